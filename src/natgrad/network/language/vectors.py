"""Build vectors and matrices from parts, each a known map: entries, slices, concatenation, sums, frequencies, Kronecker products.

kron(A, B)        Λ[(a, c), (b, d)] = A[a, b] B[c, d],   log |Λ| = |B| log |A| + |A| log |B|, of sizes |A| and |B|
block_diag(A, B)  A and B along the diagonal,            log |Λ| = log |A| + log |B|

`frequencies` counts how often each category is taken along a plate, a vector for each element of the other plates:

    z̄ = Σ_s w_s e(z_s),   e the unit vectors

    E[z̄_k] = Σ_s w_s q_sk
    E[z̄_k z̄_l] = Σ_st w_s w_t q_sk q_tl + Σ_s w_s² (δ_kl q_sk − q_sk q_sl)

The second sum corrects the first where s = t. What remains is linear in each q_s, and categories of one element take turns, as
whatever is summed along a plate does. A regression on the shares of topics in a document, for example (Blei and McAuliffe, 2007).
"""

from __future__ import annotations

from typing import Any, final

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
    Access,
    Bind,
    Call,
    Constant,
    Expression,
)
from natgrad.network.language.nodes import left_over
from natgrad.network.language.operators import Diag, Dot, Pair, Product, Transformed, add
from natgrad.network.language.plates import Plate
from natgrad.network.language.scope import Scope
from natgrad.network.polynomial import Delta, Label, Polynomial
from natgrad.validation import as_numbers, check_precision, require

__all__ = [
    "BlockDiagonal",
    "Frequencies",
    "Kronecker",
    "block_diag",
    "concatenate",
    "entries",
    "frequencies",
    "kron",
    "sum_over",
]


def entries(vector: Access, key: Any) -> Expression:
    """Entries of a vector: ``w[0]`` is a real number, ``w[:3]`` and ``w[[2, 0]]`` are vectors."""
    size = vector.size or 0
    if isinstance(key, (slice, list, np.ndarray, range)):
        try:
            rows = np.eye(size)[list(key) if isinstance(key, range) else key]
        except IndexError:
            raise IndexError(f"{vector}[{key}]: {vector} has entries 0 … {size - 1}") from None
        if rows.ndim != 2 or not len(rows):
            raise PlateMismatch(f"{vector}[{key}] chooses no entry of a vector with entries 0 … {size - 1}")
        return Transformed(rows, vector)
    if isinstance(key, (Expression, bool)) or not isinstance(key, (int, np.integer)):
        raise TypeError(f"{vector}[{key}]: entries of a vector are chosen by whole numbers or a slice, not by {key!r}")
    if not -size <= key < size:
        raise IndexError(f"{vector}[{key}]: {vector} has entries 0 … {size - 1}")
    return Dot(Constant(VECTOR, np.eye(size)[key], size), vector, None)


@records
def concatenate(parts: Any, *more: Any) -> Expression:
    """Vectors, and real numbers as vectors of length one, end to end.

    Examples
    --------
    >>> import natgrad as ng, numpy as np
    >>> a, w = ng.Normal("a", 0.0, 1.0), ng.MultivariateNormal("w", np.zeros(2), np.eye(2))
    >>> ng.concatenate([a, w]).size
    3
    """
    if isinstance(parts, Expression) or more:
        raise TypeError(f"concatenate takes a list, as in concatenate([a, b]), got {parts}")
    listed = list(parts)
    if not any(isinstance(part, Expression) for part in listed):
        raise TypeError(
            "concatenate takes a list of vectors and real numbers, at least one of them random; NumPy joins known ones"
        )
    lengths = []
    for part in listed:
        if isinstance(part, Expression) and part.kind not in (REAL, VECTOR):
            raise NotConjugate(
                f"concatenate: {part} is {NOUN[part.kind]}; vectors are made of vectors and real numbers"
            )
        if isinstance(part, Expression):
            lengths.append(part.size or 0 if part.kind == VECTOR else 1)
        else:
            lengths.append(int(np.atleast_1d(as_numbers(part, "concatenate: a known part")).shape[-1]))
    total, end, joined = sum(lengths), 0, None
    for part, length in zip(listed, lengths, strict=True):
        rows = np.eye(total)[:, end : end + length]
        end += length
        if not isinstance(part, Expression):
            piece: Expression = Constant(
                VECTOR, np.atleast_1d(as_numbers(part, "concatenate: a known part")) @ rows.T, total
            )
        elif part.kind == VECTOR:
            piece = Transformed(rows, part)
        else:
            piece = Product(part, Constant(VECTOR, rows[:, 0], total))
        joined = piece if joined is None else add(joined, piece)
    assert joined is not None
    return joined


@records
def sum_over(values: Expression, plate: Plate) -> Expression:
    """The sum of real numbers along a plate that the reader does not have.

    Examples
    --------
    >>> import natgrad as ng
    >>> part = ng.Plate("part", 3)
    >>> x = ng.Normal("x", 1.0, 1.0, plate=part)
    >>> total = ng.Normal("total", ng.sum_over(x, part), 100.0, observed=6.0)
    >>> print(f"{ng.Network(total).fit(tol=1e-12)['x'].mean().sum():.3f}")
    5.990
    """
    if not isinstance(values, Expression) or values.kind != REAL:
        given = f"{values}, {NOUN[values.kind]}" if isinstance(values, Expression) else type(values).__name__
        raise TypeError(f"sum_over takes Normals, or an expression of real numbers, and a plate, not {given}")
    if not isinstance(plate, Plate):
        raise TypeError(f"sum_over: the plate to sum over comes second, got {plate!r}")
    return Dot(Constant(REAL, np.ones(plate.size)), values, plate)


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


class Kronecker(Pair):
    """A ⊗ B."""

    kind = MATRIX

    def __init__(self, left: Expression, right: Expression) -> None:
        super().__init__(left, right)
        self.sizes = _order(left), _order(right)
        self.size = self.sizes[0] * self.sizes[1]

    def call(self) -> Call:
        return Call("kron", self.parts)

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
            product = scope.numbers(rows, label, *pair) * product
        return product


class BlockDiagonal(Expression):
    """Blocks along the diagonal."""

    kind = MATRIX

    def __init__(self, parts: tuple[Expression, ...]) -> None:
        self.parts = parts
        self.sizes = tuple(_order(part) for part in parts)
        self.size = sum(self.sizes)

    def call(self) -> Call:
        return Call("block_diag", self.parts)

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
                piece = scope.numbers(rows, label, place) * piece
            total, start = total + piece, start + size
        return total


@records
def frequencies(categories: Expression, over: Plate, weights: npt.ArrayLike | None = None) -> Expression:
    """How often each category was taken along a plate, a vector: ``dot(frequencies(z, word), eta)`` is a regression on them.

    Parameters
    ----------
    categories : a hidden `Categorical`
    over : Plate
        The plate that is summed over; the reader does not have it.
    weights : array [size of ``over``], or [plates of the reader…, size of ``over``], optional
        What each element counts, 0 where there is none; by default 1 / size, so that frequencies sum to 1.

    Examples
    --------
    >>> import natgrad as ng, numpy as np
    >>> person, item = ng.Plate("person", 2), ng.Plate("item", 3)
    >>> z = ng.Categorical("z", [0.5, 0.5], plate=(person, item))
    >>> eta = ng.MultivariateNormal("eta", np.zeros(2), np.eye(2))
    >>> y = ng.Normal("y", ng.dot(ng.frequencies(z, item), eta), 1.0, plate=person, observed=[1.0, 2.0])
    """
    access = categories.whole if isinstance(categories, Expression) else None
    if access is None or access.kind != CATEGORY or access.size is None:
        given = f"{categories}, {NOUN[categories.kind]}" if isinstance(categories, Expression) else repr(categories)
        raise TypeError(f"frequencies takes a Categorical along a plate, not {given}")
    if not isinstance(over, Plate):
        raise TypeError(f"frequencies: the plate to sum over comes second, got {over!r}")
    known = np.full(over.size, 1.0 / over.size) if weights is None else as_numbers(weights, "frequencies: weights")
    if known.ndim == 0 or known.shape[-1] != over.size:
        raise PlateMismatch(
            f"frequencies: weights must have {over.size} numbers along their last axis, one for each element of plate "
            f"{over.name!r}, got shape {known.shape}"
        )
    require(np.isfinite(known), known, "frequencies: weights", "finite")
    return Frequencies(access, over, known)


@final
class Frequencies(Expression):
    """Σ_s w_s e(z_s) along a plate, a vector."""

    kind = VECTOR

    def __init__(self, categories: Access, over: Plate, weights: npt.NDArray[np.float64]) -> None:
        self.categories, self.over, self.weights = categories, over, weights
        self.size, self.parts = categories.size, (categories,)

    def call(self) -> Call:
        return Call("frequencies", (self.categories, self.over, self.weights))

    def __str__(self) -> str:
        return f"frequencies({self.categories}, {self.over.name})"

    def stat(self, name: str, scope: Scope, labels: tuple[Label, ...] = (), bind: Bind | None = None) -> Polynomial:
        if self.over.name in scope.plate_names:
            raise PlateMismatch(
                f"{scope.node!r} lies on plate {self.over.name!r}, and {self} sums over it: sum over a plate that "
                f"{scope.node!r} does not have"
            )
        scope.couple(self, self.over)
        f = scope.fresh(self.over.name, self.over.size)
        if name == "x":
            return self._at(scope, f, labels)
        g = scope.fresh(self.over.name, self.over.size)
        first, second = (labels[:1], labels[1:])
        apart = self._at(scope, f, first) * self._at(scope, g, second)
        own = self._weight(scope, f) * (
            self._at(scope, f, first) * Polynomial.of([], Delta(*labels))
            - self._at(scope, f, first) * self._indicator(scope, f, second)
        )
        return apart + own

    def _at(self, scope: Scope, label: Label, axes: tuple[Label, ...]) -> Polynomial:
        return self._weight(scope, label) * self._indicator(scope, label, axes)

    def _weight(self, scope: Scope, label: Label) -> Polynomial:
        return scope.numbers(self.weights, label)

    def _indicator(self, scope: Scope, label: Label, axes: tuple[Label, ...]) -> Polynomial:
        return self.categories.stat("x", scope, axes, {self.over.name: label})
