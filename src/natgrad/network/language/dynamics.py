"""The dynamics of a `GaussianChain`: what stands in its slots in; the moments of rows, and of diagonal precisions, out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.network.language.expressions import REAL, VECTOR, Access, Bind, Constant, Expression
from natgrad.network.language.operators import _Diag as Diag
from natgrad.network.language.operators import _Product as Product
from natgrad.network.language.plates import Plate
from natgrad.network.language.scope import Scope
from natgrad.network.polynomial import Delta, Label, Polynomial, number

__all__ = ["Rows", "diagonal", "rows_of"]


class Rows:
    """The dynamics as rows a_i: known numbers, vectors along a plate, or numbers along two."""

    def __init__(self, dynamics: Expression, scope: Scope) -> None:
        self.dynamics, self.scope, self.known = dynamics, scope, dynamics.is_known
        if not self.known:
            self.plate = scope.single_leftover(dynamics, f"dynamics = {dynamics}, a row for each entry of the state,")

    def _bind(self, i: Label) -> Bind:
        self.scope.check_size(self.plate, i, f"dynamics = {self.dynamics}, a row for each entry of the state,")
        return {self.plate.name: i}

    def mean(self, i: Label, k: Label) -> Polynomial:
        """E[a_ik]."""
        if self.known:
            return self.dynamics.stat("x", self.scope, (i, k))
        return self.dynamics.stat("x", self.scope, (k,), self._bind(i))

    def second(self, i: Label, k: Label, m: Label) -> Polynomial:
        """E[a_ik a_im]."""
        return self.dynamics.stat("xx", self.scope, (k, m), self._bind(i))

    def couple(self) -> None:
        """Rows that meet in one term are updated in turn."""
        self.scope.couple(self.dynamics, self.plate)


class _Matrix(Expression):
    """Normal numbers on plates (row, column) as rows: the entries of a row are independent of one another."""

    kind = VECTOR

    def __init__(self, entries: Expression, columns: Plate) -> None:
        self.entries, self.columns, self.size = entries, columns, columns.size

    def accesses(self) -> Iterator[Access]:
        for access in self.entries.accesses():
            yield _Hidden(access, self.columns.name)

    def __str__(self) -> str:
        return str(self.entries)

    def stat(self, name: str, scope: Scope, labels: tuple[Label, ...] = (), bind: Bind | None = None) -> Polynomial:
        scope.couple(self.entries, self.columns)

        def entry(stat: str, label: Label) -> Polynomial:
            return self.entries.stat(stat, scope, (), {**(bind or {}), self.columns.name: label})

        if name == "x":
            return entry("x", labels[0])
        k, m = labels
        same = (entry("xx", k) - entry("x", k) * entry("x", k)) * Polynomial.of([], Delta(k, m))
        return entry("x", k) * entry("x", m) + same


class _Hidden(Access):
    """A reading of which one plate is used up already."""

    def __init__(self, access: Access, plate: str) -> None:
        super().__init__(access.node, access.selectors)
        self._used = plate

    def leftover(self, scope: Scope) -> list[Plate]:
        return [plate for plate in super().leftover(scope) if plate.name != self._used]


def diagonal(precision: Expression, scope: Scope, i: Label, size: int) -> Polynomial | None:
    """The entries of a diagonal precision; None for one that is not diagonal."""
    if isinstance(precision, Constant):
        value = precision.value
        if value.ndim == 0:
            return number(float(value))
        off = value * (1.0 - np.eye(size))
        return None if off.any() else Polynomial.of([scope.constant(np.diagonal(value, axis1=-2, axis2=-1), (i,))])
    if isinstance(precision, Product):
        right = diagonal(precision.right, scope, i, size)
        return None if right is None else precision.left.stat("x", scope) * right
    if isinstance(precision, Diag):
        plate = scope.single_leftover(precision.entries, str(precision))
        return precision.entries.stat("x", scope, (), {plate.name: i})
    return precision.stat("x", scope, (i, i)) if size == 1 else None


def diagonal_numbers(precision: Expression, size: int) -> npt.NDArray[np.float64] | None:
    """The entries [size] of a known diagonal precision that is the same at all times; None for any other."""
    if not isinstance(precision, Constant) or precision.value.ndim not in (0, 2):
        return None
    value = precision.value * np.eye(size) if precision.value.ndim == 0 else precision.value
    return None if (value * (1.0 - np.eye(size))).any() else np.diagonal(value).copy()


def rows_of(name: str, dynamics: Expression, own: tuple[Plate, ...]) -> Expression:
    """Random dynamics as vectors along a plate of rows; ``own`` are the plates of the chain, one matrix for each element."""
    if dynamics.kind == REAL:
        plates = {
            plate.name: plate
            for access in dynamics.accesses()
            for plate, s in zip(access.node.plates, access.selectors, strict=True)
            if s is None and plate.name not in {known.name for known in own}
        }
        if len(plates) < 2:
            raise PlateMismatch(
                f"{name!r}: dynamics = {dynamics} must lie on a plate of rows and one of columns; for one number times the "
                "identity give a number"
            )
        return _Matrix(dynamics, list(plates.values())[-1])
    if dynamics.kind != VECTOR:
        raise NotConjugate(
            f"{name!r}: dynamics cannot be {dynamics}: they take a known matrix, a MultivariateNormal on a plate of rows, or "
            "Normals on plates (row, column)"
        )
    return dynamics
