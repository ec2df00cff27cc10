"""Sums of rates: what a Poisson reads when its count is made up of several parts, each with a rate of its own.

``dot(theta, beta)`` of Gammas along a plate, ``a + b`` of positive numbers, and sums of these. E[rate] is a polynomial; E[log
rate] is not, so a Poisson splits its count into shares, one for each part (`auxiliary.Shares`), and reads the logarithms of
the parts alone.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.network.language.expressions import NOUN, POSITIVE, RATE, Bind, Call, Constant, Expression
from natgrad.network.language.plates import Plate
from natgrad.network.language.scope import Scope
from natgrad.network.polynomial import Label, Polynomial, Take
from natgrad.validation import as_numbers, require

__all__ = ["RateSum", "add_rates", "dot_of_rates"]


class Part(NamedTuple):
    """One part: a rate, or Σ_k left_k · right_k along a plate that the reader does not have."""

    left: Expression
    right: Expression | None = None
    over: Plate | None = None

    def __str__(self) -> str:
        return str(self.left) if self.right is None else f"dot({self.left}, {self.right})"

    @property
    def sides(self) -> tuple[Expression, ...]:
        """What is multiplied."""
        return (self.left,) if self.right is None else (self.left, self.right)

    def call(self) -> Any:
        """How it is written."""
        if self.right is None:
            return self.left
        return Call("dot", self.sides, {} if self.over is None else {"over": self.over})

    def plate(self, plates: tuple[Plate, ...], node: str) -> Plate | None:
        """The plate that is summed over, seen from a reader on ``plates``."""
        if self.right is None:
            return None
        if self.over is not None:
            return self.over
        left = {name: plate for side in self.sides for name, plate in side.leftover(plates).items()}
        if len(left) != 1:
            raise PlateMismatch(
                f"{node!r}: {self} must lie along one plate that {node!r} is not on, found {sorted(left) or 'none'}: give over="
            )
        return next(iter(left.values()))

    def stat(self, name: str, scope: Scope, label: Label | None, bind: Bind) -> Polynomial:
        """E[rate], or E[log rate] of each element along ``label``."""
        sides = [self._side(side, name, scope, label, bind) for side in self.sides]
        if len(sides) == 1:
            return sides[0]
        return sides[0] + sides[1] if name == "log" else sides[0] * sides[1]

    def _side(self, side: Expression, name: str, scope: Scope, label: Label | None, bind: Bind) -> Polynomial:
        if not isinstance(side, Constant) or label is None or side.value.ndim == 0:
            return side.stat(name, scope, (), bind)
        return side.stat(name, scope, (label,), bind)

    @property
    def is_exchangeable(self) -> bool:
        """Whether no numbers tell its elements apart: a factorisation, whose shares have to be drawn at the start."""
        return self.right is not None and not any(isinstance(side, Constant) for side in self.sides)


class RateSum(Expression):
    """Σ of parts."""

    kind = RATE

    def __init__(self, summands: tuple[Part, ...]) -> None:
        self.summands = summands
        self.parts = tuple(side for part in summands for side in part.sides)

    def call(self) -> Any:
        return reduce(lambda total, part: Call("add", (total, part)), (part.call() for part in self.summands))

    def __str__(self) -> str:
        words = " + ".join(map(str, self.summands))
        return words if len(self.summands) == 1 else f"({words})"

    def sizes(self, plates: tuple[Plate, ...], node: str) -> list[int]:
        """The number of elements of each part, for a reader on ``plates``."""
        along = [part.plate(plates, node) for part in self.summands]
        return [1 if plate is None else plate.size for plate in along]

    def exchangeable(self, plates: tuple[Plate, ...], node: str) -> npt.NDArray[np.bool_]:
        """For each element of each part, whether nothing tells it from the others of its part."""
        sizes = self.sizes(plates, node)
        return np.repeat([part.is_exchangeable for part in self.summands], sizes)

    def stat(self, name: str, scope: Scope, labels: tuple[Label, ...] = (), bind: Bind | None = None) -> Polynomial:
        if name != "x":
            raise NotConjugate(f"{scope.node!r}: the logarithm of a sum, {self}, has no closed form")
        total = Polynomial()
        for part in self.summands:
            label, inner = self._along(part, scope, bind)
            total += part.stat("x", scope, label, inner)
        return total

    def shared_logs(self, shares: Expression, scope: Scope) -> Polynomial:
        """Σ E[share] · E[log rate] over all elements of all parts."""
        total, start = Polynomial(), 0
        for part, size in zip(self.summands, self.sizes(scope.plates, scope.node), strict=True):
            label, inner = self._along(part, scope, None)
            place: Any = label
            if label is None:
                place = Take(scope.register(np.asarray(start, dtype=np.int32)), ())
            elif len(self.summands) > 1:
                place = Take(scope.register(np.arange(start, start + size, dtype=np.int32)), (label,))
            total += shares.stat("x", scope, (place,)) * part.stat("log", scope, label, inner)
            start += size
        return total

    @staticmethod
    def _along(part: Part, scope: Scope, bind: Bind | None) -> tuple[Label | None, Bind]:
        plate = part.plate(scope.plates, scope.node)
        if plate is None:
            return None, bind or {}
        label = scope.fresh("part", plate.size)
        return label, {**(bind or {}), plate.name: label}


def dot_of_rates(left: Any, right: Any, over: Plate | None) -> RateSum:
    """Σ_k left_k · right_k of Gammas (or known numbers ≥ 0) along a plate."""
    sides = [_side(value, f"dot: {place}") for value, place in ((left, "left"), (right, "right"))]
    if over is not None and not isinstance(over, Plate):
        raise TypeError(f"dot: over must be the Plate to sum over, got {over!r}")
    names = [{access.node.name for access in side.accesses() if not access.node.is_observed} for side in sides]
    if shared := names[0] & names[1]:
        raise NotConjugate(
            f"dot({sides[0]}, {sides[1]}): {min(shared)!r} stands on both sides, and the product of expectations is not the "
            "expectation of the product. Use two nodes"
        )
    return RateSum((Part(sides[0], sides[1], over),))


def add_rates(left: Expression, right: Any) -> RateSum:
    """Left + right of positive numbers and sums of them."""
    other = right if isinstance(right, Expression) else _side(right, f"{left} + x: x")
    for side in (left, other):
        if side.kind not in (POSITIVE, RATE):
            raise NotConjugate(
                f"{left} + {other}: {NOUN[left.kind]} plus {NOUN[other.kind]} has no closed form; a rate is a sum of Gammas, of "
                "dots of Gammas, and of constants"
            )
    parts = [side.summands if isinstance(side, RateSum) else (Part(side),) for side in (left, other)]
    return RateSum((*parts[0], *parts[1]))


def _side(value: Any, what: str) -> Expression:
    if isinstance(value, Expression):
        return value
    array = as_numbers(value, what)
    require(array >= 0, array, what, "≥ 0, as a part of a rate")
    return Constant(POSITIVE, array)
