"""Compiled functions are kept on disk where there is a place; where there is none, or a file is no good, nothing is lost."""

import subprocess
import sys

FIT = """
import warnings
import numpy as np
import numba.core.caching as caching
{before}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from natgrad.kernels.factorization.gather import sum_rows
    from natgrad.kernels import memory
    from natgrad.kernels.lda import documents as lda
    out = np.empty(2)
    sum_rows(np.array([0, 2, 3]), np.array([1.0, 2.0, 4.0]), out)
    memory.count_rows(np.array([0, 1]), np.zeros(3, np.int64), np.empty(2, np.int64))
print(out.tolist(), [str(w.message) for w in caught if w.category is RuntimeWarning])
"""


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout


def test_without_a_folder_to_write_to_everything_works_and_one_warning_says_what_to_do():
    # What Numba sees in a read-only installation of a user without a home: none of its places can be written.
    found = run(FIT.format(before="caching.CacheImpl._locator_classes = []"))
    assert found.startswith("[3.0, 4.0]")
    assert found.count("NUMBA_CACHE_DIR") == 1
