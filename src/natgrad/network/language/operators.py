"""Combine expressions by sums, products, dots and diagonal matrices, each written in the statistics of its parts.

Two sides of a product or a sum must not read the same element of a hidden node (`check_independent`), so a sum is rewritten with
every node in it once:

    a·b + b·c  =  b·(a + c)        b + a·b  =  b·(1 + a)        dot(X, w) + dot(Z, w)  =  dot(X + Z, w)
    A w + B w  =  (A + B) w        dot(X, A w) + dot(Z, w)  =  dot(X A + Z, w), as in dot(X, w[:3]) + w[3]

The expectation of (a·b + b·c)² is not what the expectations of its parts say, because b is in both; that of (b·(a + c))² is.
Where no node can be taken out of all, as in a·b + b·c + a·c, numbers are multiplied out (`Expanded`): the sum is linear in each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.network.language.columns import records
from natgrad.network.language.expressions import (
    CATEGORY,
    MATRIX,
    NOUN,
    POSITIVE,
    REAL,
    VECTOR,
    Bind,
    Call,
    Constant,
    Expression,
    Kind,
    Read,
    Untyped,
)
from natgrad.network.language.plates import Plate
from natgrad.network.language.rates import dot_of_rates
from natgrad.network.polynomial import Delta, Label, Polynomial, number
from natgrad.validation import as_numbers, check_precision, is_precision, require

if TYPE_CHECKING:
    from natgrad.network.language.scope import Scope

__all__ = [
    "Diag",
    "Dot",
    "Pair",
    "Product",
    "Sum",
    "Transformed",
    "add",
    "as_matrix",
    "check_independent",
    "diag",
    "dot",
    "multiply",
    "transform",
]

# Products of a sum that is multiplied out, at most: its square has as many terms as there are pairs of them.
MOST_PRODUCTS = 64
# A sum of more terms than this is shortened in errors.
LONGEST_SHOWN = 8


@records
def dot(left: Any, right: Any, over: Plate | None = None) -> Expression:
    """The inner product of two vectors, random or known, or of scalar nodes along a plate.

    Parameters
    ----------
    left, right : node, expression or array
        Vectors (`MultivariateNormal`, or known rows ``[N, D]``), or scalars (`Normal` on plates; `Gamma` for the rate of a
        `Poisson`) that share a plate which the reading node does not have; the sum runs over that plate.
    over : Plate, optional
        The plate to sum over, when several would do.

    Examples
    --------
    >>> import natgrad as ng, numpy as np
    >>> w = ng.MultivariateNormal("w", np.zeros(3), np.eye(3))
    >>> y = ng.Normal("y", ng.dot(np.ones((5, 3)), w), 1.0, plate=ng.Plate("n", 5), observed=np.zeros(5))
    """
    sides = [side if isinstance(side, Expression) else None for side in (left, right)]
    if sides[0] is None and sides[1] is None:
        raise TypeError("dot needs at least one node: two known arrays can be multiplied with NumPy")
    kinds = {side.kind for side in sides if side is not None}
    if kinds == {POSITIVE}:
        return dot_of_rates(left, right, over)
    if not kinds <= {REAL, VECTOR} or len(kinds) > 1:
        names = ("array" if side is None else str(side) for side in sides)
        raise NotConjugate(
            f"dot({', '.join(names)}): both sides must be MultivariateNormal vectors, or Normal scalars along a plate (or known "
            f"numbers), not {' and '.join(NOUN[kind] for kind in sorted(kinds))}"
        )
    if over is not None and not isinstance(over, Plate):
        raise TypeError(f"dot: over must be the Plate to sum over, got {over!r}")
    kind, size = next(iter(kinds)), next(side.size for side in sides if side is not None)
    a, b = (
        _known_side(raw, kind, size, f"dot: {place}") if side is None else side
        for raw, side, place in zip((left, right), sides, ("left", "right"), strict=True)
    )
    if kind == VECTOR:
        _check_lengths(a, b, f"dot({a}, {b})")
    return Dot(a, b, over)


def _known_side(value: Any, kind: Kind, size: int | None, what: str) -> Expression:
    """Known rows of a dot: an array, or what a category chooses from a table."""
    return value.of_kind(kind, 1, what) if isinstance(value, Untyped) else Constant(kind, as_numbers(value, what), size)


@records
def diag(entries: Any) -> Expression:
    """A diagonal precision matrix whose entries are a Gamma along a plate: the ARD prior of a weight vector."""
    if not isinstance(entries, Expression):
        raise TypeError(
            f"diag takes a Gamma along a plate, got {type(entries).__name__}: a known diagonal is written numpy.diag(values)"
        )
    return Diag(entries)


@records
def transform(matrix: Any, vector: Expression) -> Expression:
    """Matrix · vector: a known linear map of a random vector, written ``matrix @ vector``.

    Examples
    --------
    >>> import natgrad as ng, numpy as np
    >>> w = ng.MultivariateNormal("w", np.zeros(2), np.eye(2))
    >>> x = ng.MultivariateNormal("x", np.ones((3, 2)) @ w, np.eye(3), observed=np.zeros(3))
    """
    known = as_numbers(matrix, f"matrix @ {vector}: matrix")
    if known.ndim != 2 or (vector.size is not None and known.shape[1] != vector.size):
        raise PlateMismatch(
            f"matrix @ {vector}: the matrix must have shape [any, {vector.size}], got {list(known.shape)}; for a row of numbers "
            f"for each element write dot(rows, {vector})"
        )
    return Transformed(known, vector)


def add(left: Expression, right: Any) -> Expression:
    """Left + right; numbers take the kind of the other side, and a node that both sides multiply is written once."""
    other = _as_operand(right, left, "+")
    parts = (*_parts(left), *_parts(other))
    kinds = Product, Dot, Transformed, Expanded
    multiplied = left.kind == other.kind and any(isinstance(part, kinds) for part in parts)
    shared = left.reads & other.reads if multiplied else frozenset[Any]()
    if shared and (factored := _written_once(parts, shared)):
        return reduce(add, factored[1], factored[0])
    whole = _expanded(parts) if shared and left.kind == REAL else None
    return Sum(left, other) if whole is None else whole


def multiply(expression: Expression, factor: Any) -> Expression:
    """Factor · expression: a known scale, or an independent scalar."""
    other = _as_operand(factor, expression, "·", factor=True)
    if other.kind in (VECTOR, MATRIX) and expression.kind not in (VECTOR, MATRIX):
        other, expression = expression, other
    return Product(other, expression)


class Sum(Expression):
    """a + b + … for scalars or vectors: E[(Σ a)(Σ a)ᵀ] = Σ E[aaᵀ] + Σ_{a ≠ b} E[a]E[b]ᵀ.

    A sum of sums is one sum: a long one must not be deeper than Python's stack.
    """

    def __init__(self, left: Expression, right: Expression) -> None:
        self.parts = (*_parts(left), *_parts(right))
        self.kind = left.kind
        self.size = left.size if left.size is not None else right.size
        if left.kind != right.kind or self.kind not in (REAL, VECTOR):
            raise NotConjugate(
                f"{left} + {right}: {NOUN[left.kind]} plus {NOUN[right.kind]} has no closed form; a sum is of Normal scalars and "
                "dots, or of MultivariateNormal vectors (and constants)"
            )
        if self.kind == VECTOR:
            _check_lengths(left, right, f"{left} + {right}")
        check_independent(
            left, right, lambda: f"{left} + {right}", "Write it once: 2 * a, b * (a + c), or dot(X1 + X2, w)"
        )

    def call(self) -> Any:
        total: Any = self.parts[0]
        for part in self.parts[1:]:
            total = Call("add", (total, part))
        return total

    def __str__(self) -> str:
        shown = self.parts if len(self.parts) <= LONGEST_SHOWN else (*self.parts[: LONGEST_SHOWN - 1], "…")
        return f"({' + '.join(map(str, shown))})"

    def stat(self, name: str, scope: Scope, labels: tuple[Label, ...] = (), bind: Bind | None = None) -> Polynomial:
        if name == "x":
            return _added(part.stat("x", scope, labels, bind) for part in self.parts)
        squares = _added(part.stat("xx", scope, labels, bind) for part in self.parts)
        first = [part.stat("x", scope, labels[:1], bind) for part in self.parts]
        if self.kind == REAL:
            return squares + 2.0 * _added(a * b for i, a in enumerate(first) for b in first[i + 1 :])
        second = [part.stat("x", scope, labels[1:], bind) for part in self.parts]
        return squares + _added(a * b for i, a in enumerate(first) for j, b in enumerate(second) if i != j)


def _parts(expression: Expression) -> tuple[Expression, ...]:
    return expression.parts if isinstance(expression, Sum) else (expression,)


def _added(polynomials: Iterable[Polynomial]) -> Polynomial:
    return Polynomial(tuple(monomial for polynomial in polynomials for monomial in polynomial.monomials))


class Pair(Expression):
    """Two sides that are independent of one another."""

    def __init__(self, left: Expression, right: Expression) -> None:
        self.left, self.right = self.parts = left, right


class Product(Pair):
    """a · b of independent factors, or a known scale: every statistic multiplies, logarithms add."""

    def __init__(self, left: Expression, right: Expression) -> None:
        super().__init__(left, right)
        self.kind = right.kind
        self.size = right.size
        if self.kind not in (REAL, VECTOR, POSITIVE, MATRIX):
            raise NotConjugate(
                f"{self}: {NOUN[self.kind]} cannot be scaled, only Normals, vectors, Gammas and Wisharts can"
            )
        scalar = POSITIVE if self.kind in (POSITIVE, MATRIX) else REAL
        if left.kind != scalar:
            fitting = "a Gamma or a positive constant" if scalar == POSITIVE else "a Normal or a constant"
            raise NotConjugate(
                f"{self}: {NOUN[left.kind]} times {NOUN[self.kind]} has no closed form; {NOUN[self.kind]} is multiplied by "
                f"{fitting}"
            )
        check_independent(left, right, self.__str__, "Use two nodes")

    def call(self) -> Call:
        if self.kind == VECTOR and isinstance(self.right, Constant):  # a number along known entries (`concatenate`)
            return Call("transform", (self.right.value[:, None], Call("concatenate", ([self.left],))))
        return Call("multiply", self.parts)

    def __str__(self) -> str:
        return f"{self.left}·{self.right}"

    def stat(self, name: str, scope: Scope, labels: tuple[Label, ...] = (), bind: Bind | None = None) -> Polynomial:
        if name == "log":
            times = 1.0 if self.kind == POSITIVE else float(_order(self.right, scope))
            return times * self.left.stat("log", scope, (), bind) + self.right.stat("log", scope, labels, bind)
        return self.left.stat(name, scope, (), bind) * self.right.stat(name, scope, labels, bind)


def _order(matrix: Expression, scope: Scope) -> int:
    """The number of rows of a matrix; that of a diagonal is known where it is read."""
    if isinstance(matrix, Product):
        return _order(matrix.right, scope)
    return scope.single_leftover(matrix.entries, str(matrix)).size if isinstance(matrix, Diag) else matrix.size or 1


class Dot(Pair):
    """Σ_i a_i b_i: of two vectors, or of scalars along a plate that the reader does not have."""

    kind = REAL

    def __init__(self, left: Expression, right: Expression, over: Plate | None) -> None:
        super().__init__(left, right)
        self.over = over
        check_independent(left, right, self.__str__, "Use two nodes")

    def call(self) -> Call:
        return Call("dot", self.parts, {} if self.over is None else {"over": self.over})

    def __str__(self) -> str:
        return f"dot({self.left}, {self.right})"

    def stat(self, name: str, scope: Scope, labels: tuple[Label, ...] = (), bind: Bind | None = None) -> Polynomial:
        if VECTOR in (self.left.kind, self.right.kind):
            size = self.left.size or self.right.size or 0
            axes = tuple(scope.fresh("i", size) for _ in range(1 if name == "x" else 2))
            return self.left.stat(name, scope, axes, bind) * self.right.stat(name, scope, axes, bind)
        plate = self._contracted(scope)
        scope.couple(self, plate)
        f, g = scope.fresh(plate.name, plate.size), scope.fresh(plate.name, plate.size)
        sides = self.left, self.right
        left, right = (_along(side, name, scope, plate, f) for side in sides)
        if name == "x":
            return _summed(left * right, {f: plate.size})
        # E[(Σ_f a_f b_f)²] = Σ_fg E[a_f a_g] E[b_f b_g] + Σ_f (E[a_f²] E[b_f²] − the same with g = f), where E[a_f a_g] is
        # written for f ≠ g. Two elements are independent, but for what lacks the plate: all of them share it.
        one, other = (_pair(side, scope, plate, f, g) for side in sides)
        same, same_other = (_pair(side, scope, plate, f, f) for side in sides)
        return _summed(one * other, {f: plate.size, g: plate.size}) + _summed(
            left * right - same * same_other, {f: plate.size}
        )

    def _contracted(self, scope: Scope) -> Plate:
        left, right = (None if side.is_known else side.leftover(scope.plates) for side in self.parts)
        shared = left if right is None else right if left is None else {n: p for n, p in left.items() if n in right}
        shared = shared or {}
        if self.over is not None:
            shared = {name: plate for name, plate in shared.items() if name == self.over.name}
        if len(shared) != 1:
            asked = "one plate" if self.over is None else f"plate {self.over.name!r}, one"
            advice = "Say which with dot(a, b, over=plate)" if shared else "Multiply with * if no sum is meant"
            raise PlateMismatch(
                f"{scope.node!r}: {self} must be summed over {asked} that both sides have and {scope.node!r} has not; found "
                f"{sorted(shared) or 'none'}. {advice}"
            )
        return next(iter(shared.values()))


class Transformed(Expression):
    """A x for a known matrix: E[A x] = A E[x], E[A x xᵀ Aᵀ] = A E[x xᵀ] Aᵀ."""

    kind = VECTOR

    def __init__(self, matrix: npt.NDArray[np.float64], vector: Expression) -> None:
        self.matrix, self.vector, self.size, self.parts = matrix, vector, len(matrix), (vector,)
        self.advice = f". For a row of numbers for each element write natgrad.dot(rows, {vector})"

    def call(self) -> Call:
        return Call("transform", (self.matrix, self.vector))

    def __str__(self) -> str:
        return f"array{list(self.matrix.shape)} @ {self.vector}"

    def stat(self, name: str, scope: Scope, labels: tuple[Label, ...] = (), bind: Bind | None = None) -> Polynomial:
        inner = tuple(scope.fresh("i", self.matrix.shape[1]) for _ in labels)
        polynomial = self.vector.stat(name, scope, inner, bind)
        for outside, inside in zip(labels, inner, strict=True):
            polynomial = scope.numbers(self.matrix, outside, inside) * polynomial
        return polynomial


class Diag(Expression):
    """A diagonal matrix of positive entries that lie along a plate (automatic relevance determination)."""

    kind = MATRIX

    def __init__(self, entries: Expression) -> None:
        if entries.kind != POSITIVE:
            raise NotConjugate(
                f"diag({entries}): a precision matrix needs positive entries, a Gamma along a plate, not {NOUN[entries.kind]}"
            )
        self.entries, self.parts = entries, (entries,)

    def call(self) -> Call:
        return Call("diag", self.parts)

    def __str__(self) -> str:
        return f"diag({self.entries})"

    def stat(self, name: str, scope: Scope, labels: tuple[Label, ...] = (), bind: Bind | None = None) -> Polynomial:
        plate = scope.single_leftover(self.entries, f"diag({self.entries})")
        if name == "log":
            label = scope.fresh(plate.name, plate.size)
            return _summed(self.entries.stat("log", scope, (), {plate.name: label}), {label: plate.size})
        first, second = labels
        scope.check_size(plate, first, str(self))
        return self.entries.stat("x", scope, (), {plate.name: first}) * Polynomial.of([], Delta(first, second))


def _along(side: Expression, name: str, scope: Scope, plate: Plate, label: Label) -> Polynomial:
    """A statistic of one side of a dot at element ``label`` of the plate that is summed over."""
    if side.is_known:
        return side.stat(name, scope, (label,))
    return side.stat(name, scope, (), {plate.name: label})


def _pair(side: Expression, scope: Scope, plate: Plate, f: Label, g: Label, outer: bool = True) -> Polynomial:
    """E[a_f a_g] for two different elements of the plate; ``outer`` says that numbers lie along it, as on a side of a dot."""
    if side.is_known and not outer:
        return side.stat("xx", scope)
    chosen = (access for access in side.accesses() if access.kind != CATEGORY)  # what chooses shares its label anyway
    apart = [plate.name in {open_.name for open_ in access.open_plates()} for access in chosen]
    if side.is_known or all(apart):
        return _along(side, "x", scope, plate, f) * _along(side, "x", scope, plate, g)
    if not any(apart):
        return side.stat("xx", scope)
    if isinstance(side, Product):
        return _pair(side.left, scope, plate, f, g, False) * _pair(side.right, scope, plate, f, g, False)
    if isinstance(side, Sum):
        first, second = (
            [p.stat("x", scope) if p.is_known else _along(p, "x", scope, plate, label) for p in side.parts]
            for label in (f, g)
        )
        squares = _added(_pair(part, scope, plate, f, g, False) for part in side.parts)
        return squares + _added(a * b for i, a in enumerate(first) for j, b in enumerate(second) if i != j)
    raise NotConjugate(
        f"{scope.node!r}: {side} is summed over plate {plate.name!r}, and in it a part that repeats over this plate stands in a "
        "dot beside one that does not: this has no closed form here. Write the dot as a sum of dots"
    )


def _summed(polynomial: Polynomial, sizes: dict[Label, int]) -> Polynomial:
    """A sum over labels: a monomial that lacks one of them is the same for all its elements, and counts as often."""
    monomials = []
    for monomial in polynomial.monomials:
        times = prod(size for label, size in sizes.items() if label not in monomial.labels)
        monomials.append(monomial._replace(coefficient=times * monomial.coefficient))
    return Polynomial(tuple(monomials))


def _as_operand(value: Any, other: Expression, sign: str, factor: bool = False) -> Expression:
    if isinstance(value, Expression):
        return value
    kind = other.kind if not factor else (POSITIVE if other.kind in (POSITIVE, MATRIX) else REAL)
    what = f"{other} {sign} x: x"
    if isinstance(value, Untyped):
        return value.of_kind(kind, 1 if kind == VECTOR else 0, what)
    array = as_numbers(value, what)
    if kind == POSITIVE and factor:
        if other.kind == POSITIVE and is_precision(array):
            return Constant(MATRIX, array, array.shape[-1])
        require(array > 0, array, what, f"> 0, as {other} is {NOUN[other.kind]}")
    return Constant(kind, array, other.size if not factor else None)


def _check_lengths(left: Expression, right: Expression, what: str) -> None:
    lengths = [s.value.shape[-1] if isinstance(s, Constant) and s.value.ndim else s.size for s in (left, right)]
    if None not in lengths and lengths[0] != lengths[1]:
        turned = any(isinstance(s, Constant) and s.value.ndim == 2 and len(s.value) in lengths for s in (left, right))
        words = f"{what}: the vectors have lengths {lengths[0]} and {lengths[1]}"
        raise PlateMismatch(words + ": give the array's transpose, a row for each element" * turned)


def check_independent(left: Expression, right: Expression, what: Callable[[], str], advice: str) -> None:
    """Refuse a product or a sum in which a node stands on both sides."""
    if shared := left.reads & right.reads:
        name = min(name for name, _ in shared)
        raise NotConjugate(
            f"{what()}: {name!r} stands on both sides, and the product of expectations is not the expectation of the product. "
            f"{advice}"
        )


# -- every node once --


class _Share(NamedTuple):
    """A part of a sum as (what multiplies it) · (the node that is shared)."""

    factor: Expression
    node: Expression


class _Map(NamedTuple):
    """A known matrix times the vector that is shared."""

    matrix: npt.NDArray[np.float64]
    node: Expression


def _written_once(parts: Sequence[Expression], shared: frozenset[Read]) -> tuple[Expression, list[Expression]] | None:
    """One part for all that hold a shared reading, and the rest; None if it cannot be taken out of all of them."""
    for key in sorted(shared, key=repr):
        holding = [part for part in parts if key in _keys(part)]
        rest = [part for part in parts if part not in holding]
        for shares in ([_product(part, key) for part in holding], [_rows(part, key) for part in holding]):
            if len(holding) > 1 and all(share is not None for share in shares):
                return _together([share for share in shares if share is not None]), rest
        maps = [_map(part, key) for part in holding]
        if len(holding) > 1 and all(rewritten is not None for rewritten in maps):
            known = np.sum([one.matrix for one in maps if one is not None], axis=0)
            return Transformed(known, next(one.node for one in maps if one is not None)), rest
    return None


def _keys(expression: Expression) -> set[Read]:
    return {access.key() for access in expression.accesses()}


def _is(expression: Expression, key: Read) -> bool:
    return expression.whole is not None and expression.whole.key() == key


def _product(part: Expression, key: Read) -> _Share | None:
    """a·b as a times b, and b itself as 1 times b."""
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
    if isinstance(part, Product) and isinstance(part.left, Constant):
        inner = _rows(part.right, key)
        if inner is None or not isinstance(inner.factor, Constant):
            return None
        scaled = part.left.value[..., None] * inner.factor.value
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

    total = shares[0].factor
    for share in shares[1:]:
        total = _plus(total, share.factor)
    node = shares[0].node
    if isinstance(total, Constant) and total.kind == VECTOR and node.kind == VECTOR:
        return Dot(total, node, None)
    if total.kind == VECTOR:  # the scalar is shared, and vectors are added
        return Product(node, total)
    return Product(total, node)


def _plus(left: Expression, right: Expression) -> Expression:
    if isinstance(left, Constant) and isinstance(right, Constant):
        return Constant(left.kind, np.asarray(left.value + right.value), left.size)
    same = left.whole is not None and right.whole is not None and left.whole.key() == right.whole.key()
    return left * 2.0 if same else add(left, right)


def as_matrix(value: Expression) -> Expression:
    """A positive number times a table of positive numbers, where a precision matrix is wanted: the table is the matrix."""
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
        self.parts = tuple({key: part for one in products for key, part in one.random.items()}.values())

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


def _expanded(parts: Sequence[Expression]) -> Expanded | None:
    """A sum of numbers multiplied out; None if a part is no product of numbers, or there would be too many."""
    products: list[_Multiplied] = []
    for part in parts:
        own = _multiplied_out(part)
        if own is None or len(products) + len(own) > MOST_PRODUCTS:
            return None
        products += own
    return Expanded(products, f"({' + '.join(map(str, parts))})")


def _multiplied_out(part: Expression) -> list[_Multiplied] | None:

    if isinstance(part, Expanded):
        return list(part.products)
    if part.kind == REAL and isinstance(part, Constant):
        return [_Multiplied((part,), {})]
    if part.kind == REAL and part.whole is not None:
        return [_Multiplied((), {part.whole.key(): part})]
    if isinstance(part, Sum):
        sums = [_multiplied_out(one) for one in part.parts]
        return None if any(one is None for one in sums) else [product for one in sums if one for product in one]
    if not isinstance(part, Product):
        return None
    left, right = _multiplied_out(part.left), _multiplied_out(part.right)
    if left is None or right is None or len(left) * len(right) > MOST_PRODUCTS:
        return None
    return [_Multiplied(a.known + b.known, {**a.random, **b.random}) for a in left for b in right]
