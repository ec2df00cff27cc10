"""Run and compile functions with JAX: 64 bits inside, and an error instead of a hang in a process forked after JAX had begun.

Compiled programs are shared in memory: a program is identified by its text (StableHLO, with every constant), and numbers are
arguments, so that networks of one structure, with other data or priors, are compiled once in a process. Programs are kept on
disk by JAX alone, if the owner of the process has set ``JAX_COMPILATION_CACHE_DIR`` (docs/scale.md).
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from typing import Any

from natgrad.compiling import compiling

__all__ = ["compiled", "has_jax", "in_64_bits", "on_host", "require_jax"]

# Programs that stay in memory although nobody may need them any more: those of a few networks, a megabyte or two each.
MAX_PROGRAMS = 64
# Names of results, which are part of a program's text and change nothing.
_RESULT_NAMES = re.compile(r'jax\.result_info = "[^"]*"')
_PROGRAMS: OrderedDict[Any, Callable[..., Any]] = OrderedDict()
_LOCK = threading.Lock()

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
        raise ImportError(f"{what} needs JAX, which is not installed: pip install jax")


@contextmanager
def in_64_bits() -> Iterator[None]:
    """JAX with numbers of 64 bits."""
    global _began_in
    require_jax("this")
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


def compiled(function: Callable[..., Any], static: tuple[int, ...] = ()) -> Callable[..., Any]:
    """``jax.jit`` whose programs are shared by all functions that have the same text.

    Parameters
    ----------
    function : of arrays and nested containers of arrays
    static : positions of the arguments that are constants of the program
    """
    return _Compiled(function, static)


class _Compiled:
    """A function, with the programs for the shapes and types that it was called with."""

    def __init__(self, function: Callable[..., Any], static: tuple[int, ...]) -> None:
        import jax

        self._traced, self._static = jax.jit(function, static_argnums=static or None), static
        self._found: dict[Any, Callable[..., Any]] = {}
        self._last: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        if self._static:
            return self._for(arguments)(*(a for n, a in enumerate(arguments) if n not in self._static))
        if self._last is not None:
            try:
                return self._last(*arguments)
            except TypeError:  # other shapes, types or structure than those it was compiled for
                pass
        self._last = self._for(arguments)
        return self._last(*arguments)

    def _for(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        import jax

        leaves, structure = jax.tree.flatten(arguments)
        types = tuple(jax.typeof(leaf) if hasattr(leaf, "dtype") else type(leaf) for leaf in leaves)
        key = structure, types, tuple(arguments[n] for n in self._static)
        if key not in self._found:
            self._found[key] = _program(self._traced.trace(*arguments).lower())
        return self._found[key]


def _program(lowered: Any) -> Callable[..., Any]:
    """Compile what JAX has lowered, unless a program with the same text, arguments and results is in memory."""
    import jax

    # Arguments that a function does not read are not in its text, but it must be called with them.
    types = tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(lowered.args_info))
    text = sha256(_RESULT_NAMES.sub("", lowered.as_text()).encode()).digest()
    key = text, types, lowered.in_tree, lowered.out_tree
    with _LOCK:
        program = _PROGRAMS.get(key)
    if program is None:
        with compiling():
            program = lowered.compile()
    with _LOCK:
        _PROGRAMS[key] = program
        _PROGRAMS.move_to_end(key)
        while len(_PROGRAMS) > MAX_PROGRAMS:
            _PROGRAMS.popitem(last=False)
    return program


def on_host(value: Any) -> Any:
    """The same nested values with arrays of NumPy: those of JAX, read back from a pickle, would have 32 bits."""
    import numpy as np

    if isinstance(value, dict):
        return {key: on_host(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [on_host(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return np.asarray(value) if hasattr(value, "__array__") else value
