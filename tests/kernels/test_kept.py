"""Compiled functions are kept on disk where there is a place; where there is none, or a file is no good, nothing is lost."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

from natgrad.kernels import _njit

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


@pytest.fixture
def double(tmp_path, monkeypatch):
    """Makes new dispatchers of one function, as new processes would, that keep their files in a folder of their own."""
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))

    def function(x):
        return x + x

    return lambda: _njit.compiled()(function)


def hits(kernel) -> int:
    return sum(kernel.stats.cache_hits.values())


def test_it_is_known_while_something_is_compiled_and_not_while_it_is_loaded(double, monkeypatch):
    seen = []
    monkeypatch.setattr("natgrad.compiling.begin", lambda: seen.append("begin"))
    monkeypatch.setattr("natgrad.compiling.end", lambda: seen.append("end"))
    double()(1.5)
    assert seen == ["begin", "end"]
    double()(1.5)
    assert seen == ["begin", "end"]


def test_what_was_compiled_is_found_again(double):
    assert double()(1.5) == 3.0
    again = double()
    assert again(1.5) == 3.0
    assert hits(again) == 1


def test_a_damaged_file_is_compiled_anew(double, tmp_path):
    double()(1.5)
    for pattern in ("*.nbc", "*.nbi"):
        for file in tmp_path.rglob(pattern):
            file.write_bytes(file.read_bytes()[:40])
        again = double()
        assert again(1.5) == 3.0
        assert hits(again) == 0


def test_a_file_of_another_signature_is_not_called(double, tmp_path):
    first = double()
    first(1.5)
    first(2)
    data = sorted(tmp_path.rglob("*.nbc"))
    assert len(data) == 2
    # Two processes that begin together number their files alike: the later one overwrites the earlier.
    data[0].write_bytes(data[1].read_bytes())
    again = double()
    assert (again(1.5), again(2)) == (3.0, 4)


def test_a_full_disk_is_no_reason_to_fail(double, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile.save", full)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert double()(np.arange(3.0)).tolist() == [0.0, 2.0, 4.0]
