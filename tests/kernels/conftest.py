import pytest

from natgrad.kernels import small


@pytest.fixture(autouse=True, scope="module", params=["compiled", "plain"])
def loops(request):
    """Everything that a test of this folder compares with a slow twin, compiled and, for what has a plain path, in NumPy."""
    before, small.MOST = small.MOST, {"compiled": -1.0, "plain": 1e300}[request.param]
    yield request.param
    small.MOST = before
