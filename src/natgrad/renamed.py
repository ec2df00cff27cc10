"""Arguments that had another name before 0.2: a call with an old name is an error that says the new one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["RENAMED", "says_new_names"]

T = TypeVar("T", bound=Callable[..., Any])
RENAMED = {
    "accesses": "max_messages",
    "max_accesses": "max_messages",
    "max_sweeps": "max_passes",
    "negatives": "n_negatives",
    "noise_by": "noise_per",
    "noise_freedom": "noise_dof",
    "passes": "max_passes",
    "progress": "verbose",
    "reads": "data_access",
    "seconds": "max_seconds",
    "skip": "skip_below",
    "steps": "max_steps",
}


def says_new_names(callable_: T) -> T:
    """Have a function, or a class when it is made, say the new name of an argument that is called by its old one.

    Examples
    --------
    >>> @says_new_names
    ... def fit(*, max_steps=10): ...
    >>> fit(steps=3)
    Traceback (most recent call last):
        ...
    TypeError: fit() has no argument 'steps' since version 0.2: write max_steps=
    """
    function: Any = callable_.__init__ if isinstance(callable_, type) else callable_  # type: ignore[misc]
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        for old in kwargs.keys() - known.keys():
            if RENAMED.get(old) in known:
                raise TypeError(
                    f"{callable_.__name__}() has no argument {old!r} since version 0.2: write {RENAMED[old]}="
                )
        return function(*args, **kwargs)

    if isinstance(callable_, type):
        callable_.__init__ = wrapped  # type: ignore[misc]
        return callable_
    return wrapped  # type: ignore[return-value]
