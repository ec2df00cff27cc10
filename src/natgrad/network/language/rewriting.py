"""Rewrite expressions so that every node is written once.

    a·b + b·c  =  b·(a + c)        b + a·b  =  b·(1 + a)        dot(X, w) + dot(Z, w)  =  dot(X + Z, w)
    A w + B w  =  (A + B) w        dot(X, A w) + dot(Z, w)  =  dot(X A + Z, w), as in dot(X, w[:3]) + w[3]

The expectation of (a·b + b·c)² is not what the expectations of its parts say, because b is in both; that of (b·(a + c))² is.
Where no node can be taken out of all, as in a·b + b·c + a·c, numbers are multiplied out (`Expanded`): the sum is linear in each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.network.language.expressions import (
    MATRIX,
    POSITIVE,
    REAL,
    VECTOR,
    Access,
    Bind,
    Constant,
    Expression,
    Read,
    as_access,
)
from natgrad.network.language.scope import Scope
from natgrad.network.polynomial import Label, Polynomial, number
from natgrad.validation import check_precision

__all__ = ["Expanded", "as_matrix", "expanded", "written_once"]

# Products of a sum that is multiplied out, at most: its square has as many terms as there are pairs of them.
MOST_PRODUCTS = 64


class _Share(NamedTuple):
    """A part of a sum as (what multiplies it) · (the node that is shared)."""

    factor: Expression
    node: Expression


class _Map(NamedTuple):
    """A known matrix times the vector that is shared."""

    matrix: npt.NDArray[np.float64]
    node: Expression


def written_once(parts: Sequence[Expression], shared: frozenset[Read]) -> tuple[Expression, list[Expression]] | None:
    """One part for all that hold a shared reading, and the rest; None if it cannot be taken out of all of them."""
    for key in sorted(shared, key=repr):
        holding = [part for part in parts if key in _keys(part)]
        rest = [part for part in parts if part not in holding]
        for shares in ([_product(part, key) for part in holding], [_rows(part, key) for part in holding]):
            if len(holding) > 1 and all(share is not None for share in shares):
                return _together([share for share in shares if share is not None]), rest
        maps = [_map(part, key) for part in holding]
        if len(holding) > 1 and all(rewritten is not None for rewritten in maps):
            return _mapped([rewritten for rewritten in maps if rewritten is not None]), rest
    return None


def _keys(expression: Expression) -> set[Read]:
    return {access.key() for access in expression.accesses()}


def _is(expression: Expression, key: Read) -> bool:
    access = as_access(expression)
    return access is not None and access.key() == key


def _product(part: Expression, key: Read) -> _Share | None:
    """a·b as a times b, and b itself as 1 times b."""
    from natgrad.network.language.operators import _Product as Product

    if _is(part, key):
        return _Share(Constant(REAL, 1.0), part)
    if not isinstance(part, Product):
        return None
    for factor, node in ((part.left, part.right), (part.right, part.left)):
        if key in _keys(factor):
            continue
        if _is(node, key):
            return _Share(factor, node)
        inner = _product(node, key) if isinstance(node, Product) else None
        if inner is not None and VECTOR not in (factor.kind, inner.factor.kind):
            return _Share(inner.factor * factor, inner.node)
    return None


def _rows(part: Expression, key: Read) -> _Share | None:
    """A dot of known rows with a vector."""
    from natgrad.network.language.operators import _Dot as Dot
    from natgrad.network.language.operators import _Product as Product

    if isinstance(part, Product) and isinstance(part.left, Constant):
        inner = _rows(part.right, key)
        if inner is None or not isinstance(inner.factor, Constant):
            return None
        scaled = (
            part.left.value[..., None] * inner.factor.value
            if part.left.value.ndim
            else part.left.value * inner.factor.value
        )
        return _Share(Constant(VECTOR, scaled, inner.factor.size), inner.node)
    if not isinstance(part, Dot):
        return None
    for rows, vector in ((part.left, part.right), (part.right, part.left)):
        mapped = _map(vector, key)
        if isinstance(rows, Constant) and rows.kind == VECTOR and mapped is not None:
            value = rows.value if rows.value.ndim else np.full(len(mapped.matrix), rows.value)
            return _Share(Constant(VECTOR, value @ mapped.matrix, mapped.node.size), mapped.node)
    return None


def _map(part: Expression, key: Read) -> _Map | None:
    """A known map of a vector, itself included."""
    from natgrad.network.language.operators import _Product as Product
    from natgrad.network.language.operators import _Transformed as Transformed

    if part.kind != VECTOR:
        return None
    if _is(part, key):
        return _Map(np.eye(part.size or 0), part)
    if isinstance(part, Transformed) and (inner := _map(part.vector, key)) is not None:
        return _Map(part.matrix @ inner.matrix, inner.node)
    if isinstance(part, Product) and isinstance(part.left, Constant) and part.left.value.ndim == 0:
        inner = _map(part.right, key)
        return None if inner is None else _Map(part.left.value * inner.matrix, inner.node)
    return None


def _together(shares: Sequence[_Share]) -> Expression:
    from natgrad.network.language.operators import _Dot as Dot
    from natgrad.network.language.operators import _Product as Product

    total = shares[0].factor
    for share in shares[1:]:
        total = _added(total, share.factor)
    node = shares[0].node
    if isinstance(total, Constant) and total.kind == VECTOR and node.kind == VECTOR:
        return Dot(total, node, None)
    if total.kind == VECTOR:  # the scalar is shared, and vectors are added
        return Product(node, total)
    return Product(total, node)


def _mapped(maps: Sequence[_Map]) -> Expression:
    from natgrad.network.language.operators import _Transformed as Transformed

    return Transformed(np.sum([one.matrix for one in maps], axis=0), maps[0].node)


def _added(left: Expression, right: Expression) -> Expression:
    from natgrad.network.language.operators import add

    if isinstance(left, Constant) and isinstance(right, Constant):
        return Constant(left.kind, np.asarray(left.value + right.value), left.size)
    same = as_access(left), as_access(right)
    if same[0] is not None and same[1] is not None and same[0].key() == same[1].key():
        return left * 2.0
    return add(left, right)


def as_matrix(value: Expression) -> Expression:
    """A positive number times a table of positive numbers, where a precision matrix is wanted: the table is the matrix."""
    from natgrad.network.language.operators import _Product as Product

    if value.kind == POSITIVE and isinstance(value, Product) and isinstance(value.left, Constant):
        array = value.left.value
        if array.ndim == 2 and array.shape[0] == array.shape[1]:
            check_precision(f"{value}: the matrix", array)
            return Product(value.right, Constant(MATRIX, array, array.shape[-1]))
    return value


class _Multiplied(NamedTuple):
    """A product: known numbers and readings of different nodes, by their keys."""

    known: tuple[Constant, ...]
    random: dict[Read, Expression]


class Expanded(Expression):
    """Σ_m Π a of numbers in several products: E[(Σ_m …)²] has E[a²] where a is in both of two, and E[a] where it is in one."""

    kind = REAL

    def __init__(self, products: Sequence[_Multiplied], text: str) -> None:
        self.products, self.text = tuple(products), text

    def accesses(self) -> Iterator[Access]:
        for part in {key: part for product in self.products for key, part in product.random.items()}.values():
            yield from part.accesses()

    def __str__(self) -> str:
        return self.text

    def stat(self, name: str, scope: Scope, labels: tuple[Label, ...] = (), bind: Bind | None = None) -> Polynomial:
        def term(one: _Multiplied, other: _Multiplied | None = None) -> Polynomial:
            second: dict[Read, Expression] = {} if other is None else other.random
            polynomial = number(1.0)
            for constant in (*one.known, *(() if other is None else other.known)):
                polynomial *= constant.stat("x", scope, (), bind)
            for key, part in {**one.random, **second}.items():
                both = key in one.random and key in second
                polynomial *= part.stat("xx" if both else "x", scope, (), bind)
            return polynomial

        total = Polynomial()
        for i, one in enumerate(self.products):
            if name == "x":
                total += term(one)
                continue
            total += term(one, one)
            for other in self.products[i + 1 :]:
                total += 2.0 * term(one, other)
        return total


def expanded(parts: Sequence[Expression]) -> Expanded | None:
    """A sum of numbers multiplied out; None if a part is no product of numbers, or there would be too many."""
    products: list[_Multiplied] = []
    for part in parts:
        own = _multiplied_out(part)
        if own is None or len(products) + len(own) > MOST_PRODUCTS:
            return None
        products += own
    return Expanded(products, f"({' + '.join(map(str, parts))})")


def _multiplied_out(part: Expression) -> list[_Multiplied] | None:
    from natgrad.network.language.operators import _Product as Product
    from natgrad.network.language.operators import _Sum as Sum

    if isinstance(part, Expanded):
        return list(part.products)
    if part.kind == REAL and isinstance(part, Constant):
        return [_Multiplied((part,), {})]
    if part.kind == REAL and (access := as_access(part)) is not None:
        return [_Multiplied((), {access.key(): part})]
    if isinstance(part, Sum):
        sums = [_multiplied_out(one) for one in part.parts]
        return None if any(one is None for one in sums) else [product for one in sums if one for product in one]
    if not isinstance(part, Product):
        return None
    left, right = _multiplied_out(part.left), _multiplied_out(part.right)
    if left is None or right is None or len(left) * len(right) > MOST_PRODUCTS:
        return None
    return [_Multiplied(a.known + b.known, {**a.random, **b.random}) for a in left for b in right]
