"""The one door to JAX: 64 bits inside, and an error instead of a hang in a process that was forked after JAX had begun."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

__all__ = ["has_jax", "in_64_bits", "on_host", "prepare_lapack", "require_jax"]

# The process in which JAX began. A forked child has none of its threads, and would wait for them for ever.
_began_in: int | None = None


@cache
def has_jax() -> bool:
    """Whether JAX is installed: Gaussian processes and large networks need it, the rest does not."""
    try:
        return find_spec("jax") is not None
    except ImportError:
        return False


def require_jax(what: str) -> None:
    """An error that says how to get JAX, where there is none."""
    if not has_jax():
        raise ImportError(f"{what} needs JAX, which is not installed: pip install jax optax")


@contextmanager
def in_64_bits() -> Iterator[None]:
    """JAX with numbers of 64 bits."""
    global _began_in
    require_jax("this")
    import jax

    if _began_in is None:
        from natgrad.special import load_lapack

        load_lapack()
        _began_in = os.getpid()
    elif _began_in != os.getpid():
        raise RuntimeError(
            "this process was forked from one in which natgrad had used JAX, whose threads do not come along: everything that "
            'needs JAX would hang. Start processes afresh, multiprocessing.get_context("spawn").Pool(…) (joblib\'s default, '
            '"loky", does so), or call os.fork before the first fit'
        )
    with jax.enable_x64(True):
        yield


def prepare_lapack() -> None:
    """Tell JAX where LAPACK is, as it does itself when it lowers a program that calls it; any error says that it is elsewhere."""
    import numpy as np
    from jaxlib import lapack

    found: Any = lapack
    found.prepare_lapack_call("potrf_ffi", np.float64)


def on_host(value: Any) -> Any:
    """The same nested values with arrays of NumPy: those of JAX, read back from a pickle, would have 32 bits."""
    import numpy as np

    if isinstance(value, dict):
        return {key: on_host(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [on_host(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return np.asarray(value) if hasattr(value, "__array__") else value
