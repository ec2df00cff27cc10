"""Define expressions over nodes: what may stand in a parameter slot, and the moments it offers to a term.

An expression answers ``stat(name, scope, labels)`` with a polynomial: its expected statistic ``name`` inside the term of
one node. Scalars offer x and xx, vectors x[i] and xx[i, j], positive things x and log, matrices x[i, j] and
log-determinant "log", simplices log[i], probabilities log and log1m. That is the whole interface; gathers, gates, dots
and sums are ways of writing one expression's polynomial in those of others (seed paper, section 2.2: every message is
multi-linear in the expectations of the neighbours).
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.network.language.advice import Refusals, of_numpy
from natgrad.network.language.plates import Index, Plate
from natgrad.network.polynomial import Delta, Label, Polynomial, number
from natgrad.validation import as_index, as_numbers, first, require, where

if TYPE_CHECKING:
    from natgrad.network.language.nodes import Node
    from natgrad.network.language.scope import Scope

__all__ = ["Access", "Call", "Constant", "Expression", "Kind", "Nominal", "Selector", "Untyped"]


class Nominal(ABCMeta):
    """What an expression is, is what it inherits from: asked many times in a fit, and slowly the first time of each class.

    `ABCMeta` looks for classes that were registered, through all subclasses; nobody registers any here.
    """

    __instancecheck__ = type.__instancecheck__
    __subclasscheck__ = type.__subclasscheck__


Kind = str
REAL, VECTOR, POSITIVE, MATRIX = "real", "vector", "positive", "matrix"
SIMPLEX, UNIT, CATEGORY, COUNT, RATE = "simplex", "probability", "category", "count", "rate"
NOUN = {
    REAL: "a real number",
    VECTOR: "a vector",
    POSITIVE: "a positive number",
    MATRIX: "a precision matrix",
    SIMPLEX: "a vector of probabilities",
    UNIT: "a probability",
    CATEGORY: "a category",
    COUNT: "a count",
    RATE: "a sum of rates",
}
# A probability of zero: finite, so that 0 · log 0 is 0 and never NaN, yet exp() of it is 0.
LOG_ZERO = -1e100
Bind = dict[str, Label]
Read = tuple[str, tuple[Any, ...]]


class Call(NamedTuple):
    """How an expression is written: a function of the language by its name, and its arguments."""

    function: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any] = {}


class Expression(Refusals, metaclass=Nominal):
    """Something with expected statistics. ``kind`` says which, ``size`` the length of its event axis (if any)."""

    kind: Kind
    size: int | None = None
    # What an error adds where this does not fit.
    advice: str = ""
    # Whether it is known numbers alone, which lie along no plate of their own.
    is_known: bool = False
    # The expressions that it is made of.
    parts: tuple[Expression, ...] = ()

    @abstractmethod
    def stat(self, name: str, scope: Scope, labels: tuple[Label, ...] = (), bind: Bind | None = None) -> Polynomial:
        """Statistic ``name`` with its event axes called ``labels``; ``bind`` renames plates that are summed over."""

    @abstractmethod
    def __str__(self) -> str: ...

    def call(self) -> Any:
        """The `Call` that makes it, or the node that it reads as it is; a TypeError where a file cannot hold it."""
        raise TypeError(f"{self} of a declaration cannot be kept in a file")

    def accesses(self) -> Iterator[Access]:
        """Every reading of a node inside."""
        for part in self.parts:
            yield from part.accesses()

    @property
    def whole(self) -> Access | None:
        """The reading of a node that it is; None for anything else."""
        return None

    @cached_property
    def reads(self) -> frozenset[Read]:
        """The readings of hidden nodes inside, but for categories: what these choose shares one label and is counted once."""
        return frozenset[Read]().union(*(part.reads for part in self.parts))

    def leftover(self, plates: Iterable[Plate]) -> dict[str, Plate]:
        """The plates along which it repeats and a reader on ``plates`` does not: a dot, a diag or a chain must use them up."""
        own = {plate.name for plate in plates}
        found = (plate for access in self.accesses() for plate in access.open_plates())
        return {plate.name: plate for plate in found if plate.name not in own}

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Array-likes on the left ask us, and do not broadcast over us; other functions of NumPy have no closed form."""
        return of_numpy(self, ufunc, method, inputs, options)

    def __add__(self, other: Any) -> Expression:
        from natgrad.network.language.operators import add  # sums are expressions themselves
        from natgrad.network.language.rates import add_rates

        if _is_later(other):
            return NotImplemented
        return (add_rates if self.kind in (POSITIVE, RATE) else add)(self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Expression:
        if _is_later(other):
            return NotImplemented
        return self + (-other if isinstance(other, (Expression, Untyped)) else -as_numbers(other, f"{self} − x: x"))

    def __rsub__(self, other: Any) -> Expression:
        return (-self).__add__(other)

    def __neg__(self) -> Expression:
        return self * -1.0

    def __mul__(self, other: Any) -> Expression:
        from natgrad.network.language.operators import multiply

        return NotImplemented if _is_later(other) else multiply(self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Expression:
        if _is_later(other):
            return NotImplemented
        if isinstance(other, Expression):
            raise _ratio(self, other)
        divisor = as_numbers(other, f"{self} / x: x")
        require(divisor != 0, divisor, f"{self} / x: x", "different from 0")
        return self * (1.0 / divisor)

    def __rtruediv__(self, other: Any) -> Expression:
        raise _ratio("constant", self)

    def __pow__(self, other: Any) -> Expression:
        if self.kind == POSITIVE:
            raise NotConjugate(
                f"{self} ** {other}: the expectation of a power has no closed form. A Normal takes a precision: a Gamma, a "
                f"HalfCauchy and a HalfNormal are precisions as they are, so write {self}"
            )
        raise NotConjugate(
            f"{self} ** {other}: the expectation of a power has no closed form; only sums, known multiples, products of two "
            "different nodes and dot do. Powers of known numbers are columns: dot(numpy.stack([x, x**2], -1), w)"
        )

    def __matmul__(self, other: Any) -> Expression:
        raise TypeError(f"@ is not defined for {self}: write natgrad.dot(rows, {self}), one row for each element")

    def __rmatmul__(self, other: Any) -> Expression:
        if self.kind != VECTOR:
            return self.__matmul__(other)
        from natgrad.network.language.operators import transform

        return transform(other, self)

    def __getitem__(self, key: Any) -> Expression:
        raise TypeError(f"{self} cannot be indexed: index the nodes inside it instead, as in a[i] + b[j]")


class Untyped(metaclass=Nominal):
    """Known numbers that take their kind from the place where they stand, as plain arrays do."""

    # Whether they are known only when there is a table (`columns.py`): its own operators then record what is done.
    is_deferred: bool = False
    # NumPy must leave sums and products to us.
    __array_ufunc__ = None

    @abstractmethod
    def of_kind(self, kind: Kind, events: int, what: str) -> Expression:
        """An expression of the kind, with ``events`` axes for each element; ``what`` names the place in errors."""

    @abstractmethod
    def __neg__(self) -> Any: ...

    @abstractmethod
    def _combined(self, function: str, left: Any, right: Any) -> Any:
        """A sum, difference, product or ratio, of which it is one side."""

    def __add__(self, other: Any) -> Any:
        return self._combined("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._combined("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._combined("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._combined("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._combined("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._combined("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._combined("divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._combined("divide", other, self)


class Constant(Expression):
    """Known numbers in a slot of the given kind; leading axes broadcast over the plates of the reader, as in NumPy."""

    is_known = True

    def __init__(self, kind: Kind, value: npt.ArrayLike, size: int | None = None) -> None:
        self.kind = kind
        self.value = np.asarray(value, dtype=np.float64)
        self.size = size
        self._logs: dict[str, npt.NDArray[np.float64]] = {}

    def call(self) -> Any:
        return self.value

    def __str__(self) -> str:
        return f"{self.value:g}" if self.value.ndim == 0 else f"array{list(self.value.shape)}"

    def stat(self, name: str, scope: Scope, labels: tuple[Label, ...] = (), bind: Bind | None = None) -> Polynomial:
        if name == "xx":
            first = self.stat("x", scope, labels[:1] if self.kind == VECTOR else labels)
            return first * self.stat("x", scope, labels[1:] if self.kind == VECTOR else labels)
        if self.kind == MATRIX and self.value.ndim == 0:
            return self._scalar_matrix(name, labels)
        array = self.array(name)
        if array.ndim == 0:
            return number(float(array))
        return scope.numbers(array, *labels)

    def _scalar_matrix(self, name: str, labels: tuple[Label, ...]) -> Polynomial:
        assert self.size is not None
        if name == "log":
            return number(self.size * float(np.log(self.value)))
        return float(self.value) * Polynomial.of([], Delta(*labels))

    def array(self, name: str) -> npt.NDArray[np.float64]:
        """The numbers, or their logarithms."""
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
        self.is_known = not node.is_declared
        self.advice = getattr(node, "advice", "") if node.kind == VECTOR else ""

    def call(self) -> Any:
        target = self.node if self.node.is_declared else self.node.call()
        return Call("read", (target, self.selectors)) if self.selectors else target

    def accesses(self) -> Iterator[Access]:
        yield self
        for selector in self.selectors:
            if isinstance(selector, Access):
                yield from selector.accesses()

    @property
    def whole(self) -> Access:
        return self

    @cached_property
    def reads(self) -> frozenset[Read]:
        node = self.node
        seen = node.is_observed and node.mask is None and node.entries is None
        return frozenset() if seen or self.kind in (CATEGORY, COUNT) else frozenset({self.key()})

    def nodes(self) -> list[Node]:
        """The node that is read, and the observed categories that choose among its elements."""
        chosen = (node for s in self.selectors if isinstance(s, Index) for node in s.categories)
        return [*([self.node] if self.node.is_declared else []), *chosen]

    def __str__(self) -> str:
        parts = [":" if s is None else (str(s) if isinstance(s, Access) else "…") for s in self.selectors]
        while parts and parts[-1] == ":":
            parts.pop()
        return self.node.name + (f"[{', '.join(parts)}]" if parts else "")

    def __getitem__(self, key: Any) -> Any:
        return read(self, key)

    def _reindexed(self, entry: Any) -> Access:
        return Access(self.node, _select(self, (entry,)))

    def stat(self, name: str, scope: Scope, labels: tuple[Label, ...] = (), bind: Bind | None = None) -> Polynomial:
        return scope.statistic(self, name, labels, bind or {})

    def open_plates(self) -> list[Plate]:
        """The plates that are read as they are."""
        return [plate for plate, selector in zip(self.node.plates, self.selectors, strict=True) if selector is None]

    def key(self) -> Read:
        """Equal for two readings of the same elements."""
        parts: list[Any] = []
        for selector in self.selectors:
            if isinstance(selector, Access):
                parts.append(selector.key())
            elif selector is None:
                parts.append(None)
            else:
                parts.append((selector.plates, selector.values.shape, selector.values.tobytes()))
        return self.node.name, tuple(parts)


def read(access: Access, key: Any) -> Any:
    """``access[key]``; recorded, where a key is a column."""
    from natgrad.network.language.columns import Recorded, is_deferred

    if is_deferred(key):
        return Recorded("read", (access, key))
    keys = key if isinstance(key, tuple) else (key,)
    if access.kind == VECTOR and len(keys) == len(access.node.plates) + 1:  # as in NumPy: entries come after plates
        from natgrad.network.language.vectors import entries

        return entries(Access(access.node, _select(access, keys[:-1])), keys[-1])
    return Access(access.node, _select(access, keys))


def _is_later(value: Any) -> bool:
    return bool(getattr(value, "is_deferred", False))


def _select(access: Access, key: Any) -> tuple[Selector, ...]:
    keys = key if isinstance(key, tuple) else (key,)
    plates = access.node.plates
    if len(keys) > len(plates):
        names = ", ".join(repr(plate.name) for plate in plates)
        raise PlateMismatch(
            f"{access.node.name}[…] got {len(keys)} indices, but {access.node.name!r} has {len(plates)} plate(s): {names}"
            + (", and after them its entries" if access.kind == VECTOR else "")
        )
    selectors = list(access.selectors)
    for position, entry in enumerate(keys):
        plate, old = plates[position], selectors[position]
        if isinstance(entry, slice) and entry == slice(None):
            continue
        if isinstance(old, Access):
            if len(old.node.plates) != 1:
                raise PlateMismatch(
                    f"{access}: plate {plate.name!r} is already chosen by {old}, which has {len(old.node.plates)} plates; index "
                    "the category instead, as in mu[z[i, j]]"
                )
            selectors[position] = old._reindexed(entry)  # mu[z][i] is mu[z[i]]
            continue
        length = _length(access, plate, old)
        if isinstance(entry, slice):
            entry = np.arange(length)[entry]
        new = _selector(access, plate, entry, length)
        if isinstance(old, Index):
            if not isinstance(new, Index):
                raise PlateMismatch(
                    f"{access}: plate {plate.name!r} is already chosen by integers; a category must choose from all of it"
                )
            by = old.chosen_by  # mu[z][i] is mu[z[i]] here too
            by = by._reindexed(new) if by is not None and len(by.node.plates) == 1 else None
            new = Index(old.values[new.values], new.plates, (*old.categories, *new.categories), by)
        selectors[position] = new
    return tuple(selectors)


def _length(access: Access, plate: Plate, old: Index | None) -> int:
    """From how many elements along a plate the next index chooses: all, or those that integers have chosen already."""
    if old is None:
        return plate.size
    if old.values.ndim == 0:
        raise PlateMismatch(
            f"{access}: one element of plate {plate.name!r} is chosen already, and there is none to choose from"
        )
    return len(old.values)


def _selector(access: Access, plate: Plate, entry: Any, length: int) -> Selector:
    if isinstance(entry, Expression):
        gate = entry.whole
        categories = None if gate is None or not gate.node.is_declared else gate.node.categories
        if gate is None or categories is None:
            raise TypeError(
                f"{access.node.name}[{entry}]: only a Categorical, a Bernoulli or a MarkovChain can choose among components, and "
                f"{entry} is {NOUN[entry.kind] if gate is None else 'a ' + type(gate.node).__name__}"
            )
        if categories != plate.size:
            raise PlateMismatch(
                f"{access.node.name}[{gate}]: {gate} has {categories} categories, but plate {plate.name!r} of "
                f"{access.node.name!r} has {plate.size} elements"
            )
        observed = gate.node.observed_index(gate)
        return gate if observed is None else observed
    index = entry if isinstance(entry, Index) else Index(as_index(entry, f"{access.node.name}[…]: index"))
    outside = (index.values < 0) | (index.values >= length)
    if (place := first(outside)) is not None:
        more = f" ({int(outside.sum())} such)" if index.values.ndim else ""
        read = access.selectors[access.node.plates.index(plate)] is not None
        what = f"{access}, which was read from plate {plate.name!r}," if read else f"plate {plate.name!r}"
        from_one = index.values.min() == 1 and index.values.max() == length and index.values.ndim
        raise IndexError(
            f"{access.node.name}[…]: index{where(place)} = {index.values[place]} is outside {what} with elements "
            f"0 … {length - 1}{more}{': elements are counted from 0, so give index - 1' if from_one else ''}"
        )
    return index


def _ratio(above: Any, below: Any) -> NotConjugate:
    return NotConjugate(
        f"{above} / {below}: the expectation of a ratio has no closed form; give Normal a precision and Gamma a rate, which "
        "multiply instead of divide"
    )
