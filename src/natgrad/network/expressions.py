"""Expressions over nodes: what may stand in a parameter slot, and the moments it offers to a term.

An expression answers ``stat(name, scope, labels)`` with a polynomial: its expected statistic ``name`` inside the term of
one node. Scalars offer x and xx, vectors x[i] and xx[i, j], positive things x and log, matrices x[i, j] and
log-determinant "log", simplices log[i], probabilities log and log1m. That is the whole interface; gathers, gates, dots
and sums are ways of writing one expression's polynomial in those of others (seed paper, section 2.2: every message is
multi-linear in the expectations of the neighbours).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.network.plates import Index, Plate, as_index
from natgrad.network.polynomial import Delta, Factor, Polynomial, number

if TYPE_CHECKING:
    from natgrad.network.nodes import Node
    from natgrad.network.scope import Scope

__all__ = ["Access", "Constant", "Expression", "Kind", "Selector", "diag", "dot"]

Kind = str
REAL, VECTOR, POSITIVE, MATRIX = "real", "vector", "positive", "matrix"
SIMPLEX, UNIT, CATEGORY, COUNT = "simplex", "probability", "category", "count"
# A probability of zero: finite, so that 0 · log 0 is 0 and never NaN, yet exp() of it is 0.
LOG_ZERO = -1e100
Bind = dict[str, str]
Read = tuple[str, tuple[Any, ...]]


class Expression(ABC):
    """Something with expected statistics. ``kind`` says which, ``size`` the length of its event axis (if any)."""

    kind: Kind
    size: int | None = None

    @abstractmethod
    def stat(self, name: str, scope: Scope, labels: tuple[str, ...] = (), bind: Bind | None = None) -> Polynomial:
        """Statistic ``name`` with its event axes called ``labels``; ``bind`` renames plates that are summed over."""

    @abstractmethod
    def accesses(self) -> Iterator[Access]:
        """Every reading of a node inside."""

    @abstractmethod
    def __str__(self) -> str: ...

    # Array-likes on the left must ask us, not broadcast over us.
    __array_ufunc__ = None

    def __add__(self, other: Any) -> Expression:
        return _Sum(self, _as_operand(other, self, "+"))

    def __radd__(self, other: Any) -> Expression:
        return _Sum(_as_operand(other, self, "+"), self)

    def __sub__(self, other: Any) -> Expression:
        right = _as_operand(other, self, "−")
        return _Sum(self, _Product(Constant(REAL, -1.0), right))

    def __rsub__(self, other: Any) -> Expression:
        return _Sum(_as_operand(other, self, "−"), _Product(Constant(REAL, -1.0), self))

    def __neg__(self) -> Expression:
        return _Product(Constant(REAL, -1.0), self)

    def __mul__(self, other: Any) -> Expression:
        return _Product(_as_operand(other, self, "·", factor=True), self)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Expression:
        if isinstance(other, Expression):
            raise NotConjugate(
                f"{self} / {other}: the expectation of a ratio has no closed form; parameterise by precision"
            )
        return self * (1.0 / np.asarray(other, dtype=np.float64))

    def __getitem__(self, key: Any) -> Expression:
        raise TypeError(f"{self} cannot be indexed: index the nodes inside it instead, as in a[i] + b[j]")

    def __bool__(self) -> bool:
        raise TypeError(f"{self} is random: it has no truth value")


class Constant(Expression):
    """Known numbers in a slot of the given kind; leading axes broadcast over the plates of the reader, as in NumPy."""

    def __init__(self, kind: Kind, value: npt.ArrayLike, size: int | None = None) -> None:
        self.kind = kind
        self.value = np.asarray(value, dtype=np.float64)
        self.size = size
        self._logs: dict[str, npt.NDArray[np.float64]] = {}

    def accesses(self) -> Iterator[Access]:
        yield from ()

    def __str__(self) -> str:
        return f"{self.value:g}" if self.value.ndim == 0 else f"array{list(self.value.shape)}"

    def stat(self, name: str, scope: Scope, labels: tuple[str, ...] = (), bind: Bind | None = None) -> Polynomial:
        if name == "xx":
            first = self.stat("x", scope, labels[:1] if self.kind == VECTOR else labels)
            return first * self.stat("x", scope, labels[1:] if self.kind == VECTOR else labels)
        if self.kind == MATRIX and self.value.ndim == 0:
            return self._scalar_matrix(name, labels)
        array = self._array(name)
        if array.ndim == 0:
            return number(float(array))
        return Polynomial.of([scope.constant(array, labels)])

    def _scalar_matrix(self, name: str, labels: tuple[str, ...]) -> Polynomial:
        assert self.size is not None
        if name == "log":
            return number(self.size * float(np.log(self.value)))
        return float(self.value) * Polynomial.of([], Delta(*labels))

    def _array(self, name: str) -> npt.NDArray[np.float64]:
        if name == "x":
            return self.value
        if name not in self._logs:
            self._logs[name] = self._log(name)
        return self._logs[name]

    def _log(self, name: str) -> npt.NDArray[np.float64]:
        if self.kind == MATRIX:
            return np.asarray(np.linalg.slogdet(self.value)[1])
        value = 1.0 - self.value if name == "log1m" else self.value
        with np.errstate(divide="ignore"):
            return np.maximum(np.log(value), LOG_ZERO)


Selector = Union[Index, "Access", None]


class Access(Expression):
    """A node read through selectors, one for each of its plates: as it is, by integers (gather), by a category (gate)."""

    def __init__(self, node: Node, selectors: tuple[Selector, ...]) -> None:
        self.node = node
        self.selectors = selectors
        self.kind = node.kind
        self.size = node.size

    def accesses(self) -> Iterator[Access]:
        yield self
        for selector in self.selectors:
            if isinstance(selector, Access):
                yield from selector.accesses()

    def __str__(self) -> str:
        parts = [":" if s is None else (str(s) if isinstance(s, Access) else "…") for s in self.selectors]
        while parts and parts[-1] == ":":
            parts.pop()
        return self.node.name + (f"[{', '.join(parts)}]" if parts else "")

    def __getitem__(self, key: Any) -> Expression:
        return Access(self.node, _select(self, key))

    def stat(self, name: str, scope: Scope, labels: tuple[str, ...] = (), bind: Bind | None = None) -> Polynomial:
        return scope.statistic(self, name, labels, bind or {})

    def leftover(self, scope: Scope) -> list[Plate]:
        """Plates read as they are that the reader does not have: a dot, a diag or a chain must use them up."""
        return [
            plate
            for plate, selector in zip(self.node.plates, self.selectors, strict=True)
            if selector is None and plate.name not in scope.plate_names
        ]

    def key(self) -> Read:
        """Equal for two readings of the same elements."""
        parts: list[Any] = []
        for selector in self.selectors:
            if isinstance(selector, Access):
                parts.append(selector.key())
            else:
                parts.append(None if selector is None else (selector.values.shape, selector.values.tobytes()))
        return self.node.name, tuple(parts)


def _select(access: Access, key: Any) -> tuple[Selector, ...]:
    keys = key if isinstance(key, tuple) else (key,)
    plates = access.node.plates
    if len(keys) > len(plates):
        raise PlateMismatch(f"{access} has {len(plates)} plate(s), but {len(keys)} indices were given")
    selectors = list(access.selectors)
    for position, entry in enumerate(keys):
        if isinstance(entry, slice) and entry == slice(None):
            continue
        plate, old = plates[position], selectors[position]
        if isinstance(old, Access):
            raise PlateMismatch(f"{access}: plate {plate.name!r} is already chosen by a category")
        new = _selector(access, plate, entry)
        if isinstance(old, Index):
            if not isinstance(new, Index):
                raise PlateMismatch(
                    f"{access}: a gate on top of a gather is not supported; gather the category instead"
                )
            new = Index(old.values[new.values], new.plates)
        selectors[position] = new
    return tuple(selectors)


def _selector(access: Access, plate: Plate, entry: Any) -> Selector:
    if isinstance(entry, Expression):
        gate = _as_access(entry)
        if gate is None or gate.kind != CATEGORY:
            raise TypeError(
                f"{access.node.name}[{entry}]: only a Categorical or a MarkovChain can choose among components"
            )
        if gate.size != plate.size:
            raise PlateMismatch(
                f"{access.node.name}[{gate}]: {gate} has {gate.size} categories, but plate {plate.name!r} of "
                f"{access.node.name!r} has {plate.size} elements"
            )
        observed = gate.node.observed_index(gate)
        return gate if observed is None else observed
    index = entry if isinstance(entry, Index) else Index(as_index(entry, f"the index of {access.node.name!r}"))
    bad = np.argwhere((index.values < 0) | (index.values >= plate.size))
    if bad.size:
        where = ", ".join(str(i) for i in bad[0])
        raise IndexError(
            f"{access.node.name}[…]: index[{where}] = {index.values[tuple(bad[0])]} is outside plate {plate.name!r} "
            f"with elements 0 … {plate.size - 1} ({len(bad)} such)"
        )
    return index


class _Sum(Expression):
    """a + b for scalars or vectors: E[(a+b)(a+b)ᵀ] = E[aaᵀ] + E[bbᵀ] + E[a]E[b]ᵀ + E[b]E[a]ᵀ."""

    def __init__(self, left: Expression, right: Expression) -> None:
        self.left, self.right = left, right
        self.kind = _common_kind(left, right, "+")
        self.size = left.size if left.size is not None else right.size
        if self.kind not in (REAL, VECTOR):
            raise NotConjugate(
                f"{self}: a sum of {self.kind} expressions has no closed-form E[log]; sums work for Normal and "
                "MultivariateNormal nodes, dots and constants"
            )
        _check_independent(left, right, str(self))

    def accesses(self) -> Iterator[Access]:
        yield from self.left.accesses()
        yield from self.right.accesses()

    def __str__(self) -> str:
        return f"({self.left} + {self.right})"

    def stat(self, name: str, scope: Scope, labels: tuple[str, ...] = (), bind: Bind | None = None) -> Polynomial:
        a, b = self.left, self.right
        if name == "x":
            return a.stat("x", scope, labels, bind) + b.stat("x", scope, labels, bind)
        squares = a.stat("xx", scope, labels, bind) + b.stat("xx", scope, labels, bind)
        i, j = labels[:1], labels[1:]
        cross = a.stat("x", scope, i, bind) * b.stat("x", scope, j, bind)
        if self.kind == REAL:
            return squares + 2.0 * cross
        return squares + cross + b.stat("x", scope, i, bind) * a.stat("x", scope, j, bind)


class _Product(Expression):
    """a · b of independent factors, or a known scale: every statistic multiplies, logarithms add."""

    def __init__(self, left: Expression, right: Expression) -> None:
        self.left, self.right = left, right
        self.kind = right.kind
        self.size = right.size
        if self.kind not in (REAL, VECTOR, POSITIVE, MATRIX):
            raise NotConjugate(f"{self}: a {self.kind} cannot be scaled")
        scalar = POSITIVE if self.kind in (POSITIVE, MATRIX) else REAL
        if left.kind != scalar:
            raise NotConjugate(f"{self}: a {self.kind} can be multiplied by a {scalar}, not by a {left.kind}")
        _check_independent(left, right, str(self))

    def accesses(self) -> Iterator[Access]:
        yield from self.left.accesses()
        yield from self.right.accesses()

    def __str__(self) -> str:
        return f"{self.left}·{self.right}"

    def stat(self, name: str, scope: Scope, labels: tuple[str, ...] = (), bind: Bind | None = None) -> Polynomial:
        if name == "log":
            times = 1.0 if self.kind == POSITIVE else float(self.size or 1)
            return times * self.left.stat("log", scope, (), bind) + self.right.stat("log", scope, labels, bind)
        return self.left.stat(name, scope, (), bind) * self.right.stat(name, scope, labels, bind)


class _Dot(Expression):
    """Σ_i a_i b_i: of two vectors, or of scalars along a plate that the reader does not have."""

    kind = REAL

    def __init__(self, left: Expression, right: Expression, over: Plate | None) -> None:
        self.left, self.right, self.over = left, right, over
        _check_independent(left, right, str(self))

    def accesses(self) -> Iterator[Access]:
        yield from self.left.accesses()
        yield from self.right.accesses()

    def __str__(self) -> str:
        return f"dot({self.left}, {self.right})"

    def stat(self, name: str, scope: Scope, labels: tuple[str, ...] = (), bind: Bind | None = None) -> Polynomial:
        if VECTOR in (self.left.kind, self.right.kind):
            size = self.left.size or self.right.size or 0
            axes = tuple(scope.fresh("i", size) for _ in range(1 if name == "x" else 2))
            return self.left.stat(name, scope, axes, bind) * self.right.stat(name, scope, axes, bind)
        plate = self._contracted(scope)
        scope.couple(self, plate)
        f, g = scope.fresh(plate.name, plate.size), scope.fresh(plate.name, plate.size)
        product = self._scalar("x", scope, plate, f)
        if name == "x":
            return product
        # E[(Σ_f a_f b_f)²] = (Σ_f ab)² + Σ_f (E[a²]E[b²] − (ab)²): the square of the mean plus the variance.
        return product * self._scalar("x", scope, plate, g) + self._scalar("xx", scope, plate, f) - product * product

    def _scalar(self, name: str, scope: Scope, plate: Plate, label: str) -> Polynomial:
        left, right = (
            side.stat(name, scope, (label,))
            if isinstance(side, Constant)
            else side.stat(name, scope, (), {plate.name: label})
            for side in (self.left, self.right)
        )
        return left * right

    def _contracted(self, scope: Scope) -> Plate:
        if self.over is not None:
            return self.over
        left, right = (
            None if isinstance(side, Constant) else {p.name: p for a in side.accesses() for p in a.leftover(scope)}
            for side in (self.left, self.right)
        )
        found = left if right is None else right if left is None else {n: p for n, p in left.items() if n in right}
        if not found or len(found) != 1:
            raise PlateMismatch(
                f"{scope.node!r}: {self} must be summed over one plate that both have and {scope.node!r} has not; found "
                f"{sorted(found or {}) or 'none'}. Say dot(a, b, over=plate), or multiply with * if no sum is meant"
            )
        return next(iter(found.values()))


class _Diag(Expression):
    """A diagonal matrix of positive entries that lie along a plate (automatic relevance determination)."""

    kind = MATRIX

    def __init__(self, entries: Expression) -> None:
        if entries.kind != POSITIVE:
            raise NotConjugate(
                f"diag({entries}): a precision matrix needs positive entries, a Gamma, not a {entries.kind}"
            )
        self.entries = entries

    def accesses(self) -> Iterator[Access]:
        yield from self.entries.accesses()

    def __str__(self) -> str:
        return f"diag({self.entries})"

    def stat(self, name: str, scope: Scope, labels: tuple[str, ...] = (), bind: Bind | None = None) -> Polynomial:
        plate = scope.single_leftover(self.entries, f"diag({self.entries})")
        if name == "log":
            return self.entries.stat("log", scope, (), {plate.name: scope.fresh(plate.name, plate.size)})
        first, second = labels
        scope.check_size(plate, first, str(self))
        return self.entries.stat("x", scope, (), {plate.name: first}) * Polynomial.of([], Delta(first, second))


def dot(left: Any, right: Any, over: Plate | None = None) -> Expression:
    """The inner product of two vectors, random or known, or of scalar nodes along a plate.

    Parameters
    ----------
    left, right : node, expression or array
        Vectors (`MultivariateNormal`, or known rows ``[N, D]``), or scalars (`Normal` on plates) that share a plate which
        the reading node does not have; the sum runs over that plate.
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
    if not kinds <= {REAL, VECTOR} or len(kinds) > 1:
        raise NotConjugate(
            f"dot({left if sides[0] else 'array'}, {right if sides[1] else 'array'}): both sides must be Normal scalars along a "
            f"plate or MultivariateNormal vectors, got {' and '.join(sorted(kinds))}"
        )
    kind = next(iter(kinds))
    size = next(side.size for side in sides if side is not None)
    a, b = (
        Constant(kind, _finite(raw, "dot"), size) if side is None else side
        for raw, side in zip((left, right), sides, strict=True)
    )
    if kind == VECTOR:
        for side, other in ((a, b), (b, a)):
            length = side.value.shape[-1] if isinstance(side, Constant) and side.value.ndim else side.size
            if length is not None and other.size is not None and length != other.size:
                raise PlateMismatch(f"dot({a}, {b}): lengths {length} and {other.size} differ")
    return _Dot(a, b, over)


def diag(entries: Any) -> Expression:
    """A diagonal precision matrix whose entries are a Gamma along a plate: the ARD prior of a weight vector."""
    if not isinstance(entries, Expression):
        raise TypeError("diag expects a Gamma node; a known diagonal is written numpy.diag(values)")
    return _Diag(entries)


def _as_access(value: Expression) -> Access | None:
    return value if isinstance(value, Access) else getattr(value, "whole", None)


def _as_operand(value: Any, other: Expression, sign: str, factor: bool = False) -> Expression:
    if isinstance(value, Expression):
        return value
    kind = other.kind if not factor else (POSITIVE if other.kind in (POSITIVE, MATRIX) else REAL)
    array = _finite(value, f"{other} {sign} constant")
    if kind == POSITIVE and not (array > 0).all():
        raise ValueError(
            f"{other} {sign} constant: a {other.kind} can only be scaled by positive numbers, got {array.min():g}"
        )
    return Constant(kind, array, other.size if not factor else None)


def _finite(value: Any, what: str) -> npt.NDArray[np.float64]:
    array = np.asarray(value, dtype=np.float64)
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        where = "".join(f"[{i}]" for i in bad[0])
        raise ValueError(f"{what}: constants must be finite, but value{where} = {array[tuple(bad[0])]}")
    return array


def _common_kind(left: Expression, right: Expression, sign: str) -> Kind:
    if left.kind != right.kind:
        raise NotConjugate(f"{left} {sign} {right}: a {left.kind} and a {right.kind} cannot be combined")
    return left.kind


def _check_independent(left: Expression, right: Expression, what: str) -> None:
    shared = {access.key() for access in left.accesses()} & {access.key() for access in right.accesses()}
    if shared:
        name = sorted(name for name, _ in shared)[0]
        raise NotConjugate(
            f"{what}: {name!r} stands on both sides, so the product of expectations is not the expectation of the product. "
            "Collect it first (dot(X1 + X2, w)), or use two nodes"
        )


def _factor_of(polynomial: Polynomial) -> Factor:
    return polynomial.monomials[0].factors[0]
