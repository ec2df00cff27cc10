"""Special functions without their package: the same objects, and the package is whole for whoever asks for it."""

import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.special

from natgrad import special


def test_the_functions_are_those_of_scipy():
    for name in special.__all__:
        public = getattr(scipy.special, name, None)
        if isinstance(public, np.ufunc):  # SciPy 1.14 has a wrapper around some
            assert getattr(special, name) is public
    x = np.array([1e-8, 0.3, 1.0, 7.5, 1e9])
    np.testing.assert_array_equal(special.trigamma(x), scipy.special.polygamma(1, x))


def run(code: str) -> None:
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_the_package_runs_when_somebody_asks_for_more_than_the_functions():
    run("""
import sys
from natgrad import special
assert "numpy.testing" not in sys.modules
import scipy
assert scipy.special.betaln is special.betaln
assert type(scipy.special).__name__ == "module" and "numpy.testing" in sys.modules
from scipy.special import logsumexp, softmax
import scipy.linalg
assert scipy.linalg.det([[4.0]]) == 4.0 and type(scipy.linalg).__name__ == "module"
import scipy.special as sp
assert sp is scipy.special is sys.modules["scipy.special"] and sp.digamma is special.digamma
try:
    sp.nonsense
except AttributeError:
    pass
else:
    raise AssertionError
""")


@pytest.mark.parametrize("line", ["from scipy.linalg.blas import dgemm", "import scipy.special.cython_special"])
def test_a_submodule_is_imported_after_its_package(line):
    run(f"from natgrad import special\n{line}")


def test_threads_that_ask_at_once_all_get_the_package():
    run(f"""
import sys, threading
from natgrad import special
import scipy.special as sp
found = []
threads = [threading.Thread(target=lambda: found.append(sp.logsumexp([0.0, 0.0]))) for _ in range({threading.active_count() + 7})]
[t.start() for t in threads], [t.join() for t in threads]
assert len(found) == len(threads), len(found)
""")


def test_a_scipy_that_is_built_otherwise_is_imported_whole():
    run("""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name == "scipy.special._ufuncs" and not Refuse.asked:
            Refuse.asked = True
            raise ImportError("no such extension")
Refuse.asked = False
sys.meta_path.insert(0, Refuse())
from natgrad import special
assert Refuse.asked and type(sys.modules["scipy.special"]).__name__ == "module"
assert abs(special.gammaln(3.0) - 0.6931471805599453) < 1e-15 and abs(special.trigamma(1.0) - 1.6449340668482264) < 1e-12
""")
