"""The one door to JAX: 64 bits inside, and an error instead of a hang in a process that was forked after JAX had begun."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["in_64_bits"]

# The process in which JAX began. A forked child has none of its threads, and would wait for them for ever.
_began_in: int | None = None


@contextmanager
def in_64_bits() -> Iterator[None]:
    """JAX with numbers of 64 bits."""
    global _began_in
    import jax

    if _began_in is None:
        _began_in = os.getpid()
    elif _began_in != os.getpid():
        raise RuntimeError(
            "this process was forked from one in which natgrad had used JAX, whose threads do not come along: everything that "
            'needs JAX would hang. Start processes afresh, multiprocessing.get_context("spawn").Pool(…) (joblib\'s default, '
            '"loky", does so), or call os.fork before the first fit'
        )
    with jax.enable_x64(True):
        yield
