"""Documents are solved by compiled loops, for data as little as that of these tests, too.

NumPy's, which users' first small fits take so that nothing has to be compiled, are three times as slow once everything is. Both
are held to the same slow twin (tests/kernels/test_lda.py), and tests of commands, files, contracts and networks take NumPy's.
"""

from collections.abc import Iterator

import pytest

from natgrad import threads


@pytest.fixture(scope="package", autouse=True)
def _compiled_loops() -> Iterator[None]:
    before, threads.MOST = threads.MOST, -1.0
    yield
    threads.MOST = before
