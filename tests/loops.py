"""Which of two ways tests take through little data: a fixture for the conftest of a folder, or for one module.

NumPy's loops, which users' first small fits take so that nothing has to be compiled, are up to three times as slow once all is,
as it is in the gate. Both are held to the same slow twins (tests/kernels), and tests of commands, files, contracts, pages and
networks take NumPy's.
"""

from collections.abc import Iterator

import pytest

from natgrad import threads


@pytest.fixture(scope="module", autouse=True)
def compiled_loops() -> Iterator[None]:
    """Little data go to the kernels, too."""
    before, threads.MOST = threads.MOST, -1.0
    yield
    threads.MOST = before
