"""Every kernel runs once uncompiled, where an index out of bounds is an error, and equals its twin and its compiled self."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from kernels import without_compiler

import natgrad


def test_kernels_are_right_without_the_compiler(tmp_path):
    with without_compiler.never_plain():
        np.savez(tmp_path / "compiled.npz", **without_compiler.fits())
    script = Path(without_compiler.__file__)
    # Not what other tests of this process have put on its path: tools/reference.py would stand before the folder of twins.
    paths = os.pathsep.join([str(script.parents[1]), str(Path(natgrad.__file__).parents[1])])
    ended = subprocess.run(
        [sys.executable, script, tmp_path / "compiled.npz"],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
