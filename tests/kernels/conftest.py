import pytest

from natgrad import threads


@pytest.fixture(scope="module", params=["compiled", "plain"])
def loops(request):
    """What a module that asks for it compares with slow twins: the compiled loops and, for what has a plain path, NumPy's."""
    before, threads.MOST = threads.MOST, {"compiled": -1.0, "plain": 1e300}[request.param]
    yield request.param
    threads.MOST = before
