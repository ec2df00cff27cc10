"""Precision matrices made of smaller ones: Kronecker products, and blocks along the diagonal.

kron(A, B)        Λ[(a, c), (b, d)] = A[a, b] B[c, d],   log |Λ| = |B| log |A| + |A| log |B|, of sizes |A| and |B|
block_diag(A, B)  A and B along the diagonal,            log |Λ| = log |A| + log |B|
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from natgrad.errors import NotConjugate
from natgrad.network.language.columns import records
from natgrad.network.language.expressions import MATRIX, NOUN, POSITIVE, Access, Bind, Constant, Expression
from natgrad.network.language.node_helpers import left_over
from natgrad.network.language.operators import _Diag as Diag
from natgrad.network.language.operators import _Product as Product
from natgrad.network.language.scope import Scope
from natgrad.network.language.slots import check_precision
from natgrad.network.polynomial import Label, Polynomial
from natgrad.validation import as_numbers

__all__ = ["BlockDiagonal", "Kronecker", "block_diag", "kron"]


@records
def kron(left: Any, right: Any) -> Expression:
    """The Kronecker product of two precision matrices, each known, a `Wishart`, or a `diag`: of a matrix written row after row.

    Examples
    --------
    >>> import natgrad as ng, numpy as np
    >>> between = ng.Wishart("between", 4.0, np.eye(2))
    >>> x = ng.MultivariateNormal(
    ...     "x", np.zeros(6), ng.kron(between, np.eye(3)), plate=ng.Plate("n", 9), observed=np.ones((9, 6))
    ... )
    >>> ng.Network(x).fit()["between"].mean().shape
    (2, 2)
    """
    sides = [_matrix(side, f"kron: {place}") for side, place in ((left, "left"), (right, "right"))]
    _check_random("kron", sides)
    names = [{access.node.name for access in side.accesses() if not access.node.is_observed} for side in sides]
    if shared := names[0] & names[1]:
        raise NotConjugate(
            f"kron({sides[0]}, {sides[1]}): {min(shared)!r} stands on both sides, and the product of expectations is not the "
            "expectation of the product. Use two nodes"
        )
    return Kronecker(sides[0], sides[1])


@records
def block_diag(*blocks: Any) -> Expression:
    """Precision matrices along the diagonal, each known, a `Wishart`, or a `diag`: parts of a vector that are independent.

    Examples
    --------
    >>> import natgrad as ng, numpy as np
    >>> slopes = ng.Wishart("slopes", 3.0, np.eye(2))
    >>> w = ng.MultivariateNormal("w", np.zeros(3), ng.block_diag([[0.01]], slopes), plate=ng.Plate("group", 5))
    >>> w.size
    3
    """
    parts = [_matrix(block, f"block_diag: block {i}") for i, block in enumerate(blocks)]
    if len(parts) < 2:
        raise TypeError("block_diag takes two matrices or more, as in block_diag(A, B)")
    _check_random("block_diag", parts)
    names = [access.node.name for part in parts for access in part.accesses() if not access.node.is_observed]
    if len(set(names)) < len(names):
        shared = next(name for name in names if names.count(name) > 1)
        raise NotConjugate(
            f"block_diag: {shared!r} stands in two blocks. For the same matrix in each write "
            f"kron(numpy.eye({len(parts)}), {shared})"
        )
    return BlockDiagonal(tuple(parts))


def _matrix(value: Any, what: str) -> Expression:
    if isinstance(value, Expression):
        if value.kind != MATRIX:
            raise NotConjugate(
                f"{what} = {value} is {NOUN[value.kind]}, not a matrix: give a Wishart, a diag or a known matrix"
                f"{f', or {value} * numpy.eye(size)' if value.kind == POSITIVE else ''}"
            )
        return value
    if isinstance(value, (list, tuple)) and any(isinstance(part, Expression) for part in value):
        raise TypeError(f"{what} is a list of matrices: write {what.split(':')[0]}(*matrices)")
    array = as_numbers(value, what)
    check_precision(what, array)
    if array.ndim != 2:
        several = ": several are written one after the other, as in block_diag(A, B)" if "block" in what else ""
        raise TypeError(f"{what} must be one matrix, got shape {array.shape}{several}")
    return Constant(MATRIX, array, array.shape[-1])


def _check_random(what: str, parts: list[Expression]) -> None:
    if all(isinstance(part, Constant) for part in parts):
        known = "numpy.kron" if what == "kron" else "scipy.linalg.block_diag"
        raise TypeError(f"{what}: all matrices are known, and {known} makes one of them")


def _order(matrix: Expression) -> int:
    """The number of rows."""
    if isinstance(matrix, Product):
        return _order(matrix.right)
    if isinstance(matrix, Diag):
        plate = left_over(matrix.entries, ())
        return plate.size if plate is not None else 1
    return int(matrix.size or 1)


class Kronecker(Expression):
    """A ⊗ B."""

    kind = MATRIX

    def __init__(self, left: Expression, right: Expression) -> None:
        self.left, self.right = left, right
        self.sizes = _order(left), _order(right)
        self.size = self.sizes[0] * self.sizes[1]

    def accesses(self) -> Iterator[Access]:
        yield from self.left.accesses()
        yield from self.right.accesses()

    def __str__(self) -> str:
        return f"kron({self.left}, {self.right})"

    def stat(self, name: str, scope: Scope, labels: tuple[Label, ...] = (), bind: Bind | None = None) -> Polynomial:
        n, m = self.sizes
        if name == "log":
            return m * self.left.stat("log", scope, (), bind) + n * self.right.stat("log", scope, (), bind)
        # Which row of A and which of B a row of the product is.
        rows = np.eye(n * m).reshape(n * m, n, m)
        pairs = [(scope.fresh("i", n), scope.fresh("i", m)) for _ in labels]
        product = self.left.stat("x", scope, tuple(a for a, _ in pairs), bind)
        product = product * self.right.stat("x", scope, tuple(c for _, c in pairs), bind)
        for label, pair in zip(labels, pairs, strict=True):
            product = Polynomial.of([scope.constant(rows, (label, *pair))]) * product
        return product


class BlockDiagonal(Expression):
    """Blocks along the diagonal."""

    kind = MATRIX

    def __init__(self, parts: tuple[Expression, ...]) -> None:
        self.parts = parts
        self.sizes = tuple(_order(part) for part in parts)
        self.size = sum(self.sizes)

    def accesses(self) -> Iterator[Access]:
        for part in self.parts:
            yield from part.accesses()

    def __str__(self) -> str:
        return f"block_diag({', '.join(map(str, self.parts))})"

    def stat(self, name: str, scope: Scope, labels: tuple[Label, ...] = (), bind: Bind | None = None) -> Polynomial:
        total, start = Polynomial(), 0
        for part, size in zip(self.parts, self.sizes, strict=True):
            if name == "log":
                total += part.stat("log", scope, (), bind)
                continue
            rows = np.eye(sum(self.sizes))[:, start : start + size]
            inner = tuple(scope.fresh("i", size) for _ in labels)
            piece = part.stat("x", scope, inner, bind)
            for label, place in zip(labels, inner, strict=True):
                piece = Polynomial.of([scope.constant(rows, (label, place))]) * piece
            total, start = total + piece, start + size
        return total
