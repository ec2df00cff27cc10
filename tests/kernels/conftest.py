import pytest

from natgrad.kernels import small


@pytest.fixture(scope="module", params=["compiled", "plain"])
def loops(request):
    """What a module that asks for it compares with slow twins: the compiled loops and, for what has a plain path, NumPy's."""
    before, small.MOST = small.MOST, {"compiled": -1.0, "plain": 1e300}[request.param]
    yield request.param
    small.MOST = before
