"""What Python lets people write with random numbers and has no closed form, in; an error that says what to write, out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from natgrad.errors import NotConjugate
from natgrad.network.language.advice import instead, no_attribute

__all__ = ["Refusals"]


class Refusals(ABC):
    """Operators, conversions and comparisons that an expression refuses."""

    # What is random stands in a declaration already; only columns of a table wait for one (`columns.py`).
    is_deferred = False

    @abstractmethod
    def __str__(self) -> str: ...

    def __iter__(self) -> NoReturn:
        raise TypeError(
            f"{self} is random and has no elements to go through: its sum along a plate is natgrad.sum_over({self}, plate), and "
            f"one of its elements {self}[0]"
        )

    def __array__(self, *args: Any, **options: Any) -> NoReturn:
        raise TypeError(
            f"{self} is random and cannot become an array: {instead(self, 'for X @ w write natgrad.dot(X, w)')}"
        )

    def __index__(self) -> NoReturn:
        raise TypeError(f"{self} is random and cannot be an index: {instead(self, 'only categories choose')}")

    def __float__(self) -> NoReturn:
        raise TypeError(
            f"{self} is random and has no single value: after a fit, fit[{str(self)!r}].mean() is its expectation"
        )

    def __abs__(self) -> NoReturn:
        raise NotConjugate(f"abs({self}): the expectation of an absolute value has no closed form")

    def _compared(self, other: Any) -> NoReturn:
        raise TypeError(
            f"{self} is random, and comparing it with {other} is no expression: a component that depends on a condition is "
            "chosen by a Bernoulli or a Categorical, as in mu[z]"
        )

    __lt__ = __le__ = __gt__ = __ge__ = _compared

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (bool, int, float, np.generic, np.ndarray)):
            self._compared(other)  # False, which is Python's answer, would decide in silence
        return self is other

    __hash__ = object.__hash__

    def _combined(self, other: Any = None) -> NoReturn:
        raise TypeError(
            f"{self} is random: what follows from coins by and, or, not is a table of them, as in "
            "Bernoulli('both', natgrad.table([[0.0, 0.0], [0.0, 1.0]])[a, b])"
        )

    __and__ = __or__ = __xor__ = __rand__ = __ror__ = __rxor__ = __invert__ = _combined

    def _whole(self, other: Any = None) -> NoReturn:
        raise NotConjugate(f"{self}: a remainder, a whole part and rounding have no closed form; round data beforehand")

    __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __round__ = _whole

    if not TYPE_CHECKING:  # who checks types must see that there is no such thing

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, name)

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self} is random: it has no truth value")
