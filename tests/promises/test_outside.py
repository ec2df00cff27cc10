"""What users rely on outside this process: workers of Dask, the command as a shell sees it, a run that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from promises.cases import CASES
from promises.promises import answers, same

import natgrad as ng
from natgrad.posterior.files.checkpoints import checkpoints_in

# What the installed script `natgrad` does.
COMMAND = "import sys; sys.argv[0] = 'natgrad'; from natgrad.cli.main import main; sys.exit(main())"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(ng.__file__).parents[1])}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as made:
        yield made


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("family", "option"), [("Hidden Markov models", "PoissonHMM"), ("Topics", "LDA"), ("Ratings", 'noise="user"')]
)
def test_dask_gives_the_same_bits(family: str, option: str, cluster: Any) -> None:
    case = CASES[family][option]
    same(answers(case.fitted(), case), answers(case.fitted(executor=cluster), case))


def natgrad(*words: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", COMMAND, *map(str, words)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=300, **options)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows of two clusters, and the mixture that a command fitted to them."""
    folder = tmp_path_factory.mktemp("shell with a space")
    rows = np.random.default_rng(0).normal(size=(60, 2)) + 8.0 * (np.arange(60) % 2)[:, None]
    (folder / "rows.csv").write_text("\n".join(["x,y", *(f"{x:.3f},{y:.3f}" for x, y in rows), ""]))
    done = natgrad("fit", "mixture", "rows.csv", "-o", "m", "--n-components", 2, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_command_fits_and_another_process_predicts(shell: Path) -> None:
    done = natgrad("predict", "m", "rows.csv", cwd=shell)
    assert done.returncode == 0, done.stderr
    found = [line.split(",") for line in done.stdout.splitlines()[1:]]
    model = ng.load(shell / "m")
    rows = np.loadtxt(shell / "rows.csv", delimiter=",", skiprows=1)
    assert len(found) == 60
    places = [k for k, column in enumerate(zip(*found, strict=True)) if column[0] in "01"]
    assert any([int(line[k]) for line in found] == model.predict(rows).tolist() for k in places), done.stdout[:200]


def test_a_mistake_is_one_line_and_exit_code_one(shell: Path) -> None:
    done = natgrad("predict", "m", "nowhere.csv", cwd=shell)
    assert done.returncode == 1
    assert "nowhere.csv" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert done.stdout == ""


def test_a_reader_that_closes_the_pipe_ends_a_command_quietly(shell: Path) -> None:
    # Sixty rows fit into a pipe: only a reader that has gone before they are written is missed.
    words = f'"{sys.executable}" -c "{COMMAND}" predict m rows.csv | true'
    done = subprocess.run(words, shell=True, cwd=shell, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")


RUN = """
import os, signal, sys
import numpy as np
import natgrad as ng

def kill(progress):
    if progress.t == 5:
        os.kill(os.getpid(), signal.SIGKILL)

counts = np.random.default_rng(0).poisson(0.3, size=(60, 20))
model = ng.LDA(3, inference="vb", max_passes=9, tol=0)
model.fit(counts, checkpoint=sys.argv[1], every=1, callbacks=[kill])
"""


def test_a_run_that_was_killed_goes_on_bit_by_bit(tmp_path: Path) -> None:
    """By SIGKILL, of which a process sees nothing."""
    command = [sys.executable, "-c", RUN, str(tmp_path / "c")]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert checkpoints_in(tmp_path / "c")
    counts = np.random.default_rng(0).poisson(0.3, size=(60, 20))
    whole = ng.LDA(3, inference="vb", max_passes=9, tol=0).fit(counts)
    resumed = ng.LDA(3, inference="vb", max_passes=9, tol=0).fit(counts, checkpoint=tmp_path / "c", resume=True)
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    np.testing.assert_array_equal(resumed.trace_["elbo"], whole.trace_["elbo"])
    assert len(whole.trace_) > 5
