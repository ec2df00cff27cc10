"""Arguments and attributes that had another name before 0.2: an old name is an error that says the new one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, Self, TypeVar

__all__ = ["RENAMED", "OldName", "refuse_old_names", "says_new_attributes", "says_new_names"]

T = TypeVar("T", bound=Callable[..., Any])
C = TypeVar("C", bound=type)
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


# What others call a limit on the sweeps or steps of a fit.
ELSEWHERE = (
    "n_iter",
    "num_iter",
    "max_iter",
    "maxiter",
    "iterations",
    "n_iterations",
    "epochs",
    "n_epochs",
    "repeat",
    "num_steps",
)


# Settings that some models have, and what to do where one has not.
IN_THIS_PROCESS = {
    "n_jobs": "the threads of its fit are not chosen. Leave it out; several fits in processes of their own use several cores",
    "executor": "this process computes its fit. Leave it out; rows beyond memory can be those of a file or a stream",
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
        refuse_old_names(callable_.__name__, kwargs.keys() - known.keys(), known)
        return function(*args, **kwargs)

    if isinstance(callable_, type):
        callable_.__init__ = wrapped  # type: ignore[misc]
        return callable_
    return wrapped  # type: ignore[return-value]


def refuse_old_names(called: str, given: Collection[str], known: Collection[str]) -> None:
    """A TypeError for the first of the arguments that were ``given`` under an old name of one that is ``known``."""
    for old in sorted(given):
        if RENAMED.get(old) in known:
            raise TypeError(f"{called}() has no argument {old!r} since version 0.2: write {RENAMED[old]}=")
        if old in ELSEWHERE and "max_steps" in known:
            raise TypeError(f"{called}() has no argument {old!r}: write max_steps=")
        if old in IN_THIS_PROCESS and old not in known:
            raise TypeError(f"{called}() got an unexpected keyword argument {old!r}: {IN_THIS_PROCESS[old]}")


class OldName:
    """An attribute of a class that had another name: asked of an instance, it is an error that says the new one.

    Examples
    --------
    >>> class Fit:
    ...     continue_ = OldName("continue_fit")
    >>> Fit().continue_
    Traceback (most recent call last):
        ...
    AttributeError: 'Fit' has no attribute 'continue_' since version 0.2: it is called 'continue_fit'
    """

    def __init__(self, new: str) -> None:
        self.new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self.old = name

    def __get__(self, instance: Any, owner: type) -> Self:
        if instance is not None:
            raise self.error(instance)
        return self

    def error(self, instance: Any) -> AttributeError:
        """What is said of the old name."""
        words = (
            f"{type(instance).__name__!r} has no attribute {self.old!r} since version 0.2: it is called {self.new!r}"
        )
        return AttributeError(words, name=self.old, obj=instance)


def says_new_attributes(**names: str) -> Callable[[C], C]:
    """Have a class say the new name of an attribute that is asked for by its old one.

    Examples
    --------
    >>> @says_new_attributes(words="message")
    ... class Stop:
    ...     message = "all steps were taken"
    >>> Stop().words
    Traceback (most recent call last):
        ...
    AttributeError: 'Stop' has no attribute 'words' since version 0.2: it is called 'message'
    """

    def missing(self: Any, name: str) -> Any:
        since = f" since version 0.2: it is called {names[name]!r}" if name in names else ""
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}{since}", name=name, obj=self)

    def decorated(cls: C) -> C:
        cls.__getattr__ = missing  # type: ignore[attr-defined]
        return cls

    return decorated
