"""Nodes: a name, a family, parameter slots, plates and perhaps data; checked when declared.

`continuous.py` and `discrete.py` have the concrete nodes. A node's whole mathematics is `log_density`: the expected log
density of its conditional, written once as a polynomial in the moments of its slots and of itself.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.families import Family
from natgrad.network.expressions import (
    CATEGORY,
    MATRIX,
    POSITIVE,
    SIMPLEX,
    UNIT,
    VECTOR,
    Access,
    Constant,
    Expression,
    Kind,
)
from natgrad.network.plates import Index, Plate, as_index, as_plates
from natgrad.network.polynomial import Factor, Polynomial, Take
from natgrad.network.scope import Scope

__all__ = ["Node", "Slot", "Term"]

Array = Any
EVENT_NDIM = {VECTOR: 1, MATRIX: 2, SIMPLEX: 1}
ACCEPTED = {
    "real": "a constant, a Normal, a dot, a sum or a known multiple of these",
    VECTOR: "a constant vector, a MultivariateNormal, a sum or a known multiple of these",
    POSITIVE: "a positive constant, a Gamma or an Exponential (a known multiple of it too)",
    MATRIX: "a positive-definite constant, a Wishart, or diag of a Gamma",
    SIMPLEX: "constant probabilities or a Dirichlet",
    UNIT: "a constant probability or a Beta",
}


class Slot(NamedTuple):
    """A parameter slot: its name, what kind of expression it takes, and whether only known numbers fit."""

    name: str
    kind: Kind
    fixed: bool = False


class Term(NamedTuple):
    """The expected log density of one node, ready to be compiled."""

    node: str
    polynomial: Polynomial
    scope: Scope
    mask: Factor | None


class Node(Expression):
    """A random variable, or a plate of them. Use the concrete nodes (`Normal`, `Gamma`, …)."""

    family: Family
    slots_of: ClassVar[tuple[Slot, ...]]

    def __init__(
        self,
        name: str,
        parameters: dict[str, Any],
        plate: Plate | tuple[Plate, ...] | list[Plate] | None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"a node's name comes first and is a non-empty string, got {name!r}")
        self.name = name
        self.plates = as_plates(name, plate)
        self.parameters = {slot.name: self._filled(slot, parameters[slot.name]) for slot in self.slots_of}
        self.size = self._event_size(observed)
        for slot in self.slots_of:
            self._check_slot_size(slot)
        self.is_observed = observed is not None
        self.mask: npt.NDArray[np.float64] | None = None
        self.value: npt.NDArray[Any] | None = None
        if self.is_observed:
            self._observe(observed, mask)
        elif mask is not None:
            raise ValueError(f"{name!r}: mask says which observations count, but there are none: give observed=")
        self.term({})  # every mistake in the declaration is found here, where the user's line is on the stack

    # -- what a concrete node adds --

    @abstractmethod
    def log_density(self, scope: Scope) -> Polynomial:
        """The expected log density of one element, as a polynomial in moments."""

    @abstractmethod
    def _event_size(self, observed: Any) -> int | None:
        """The length of the event axis, from the parameters or the data."""

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        """The observed values checked against the node's support; missing entries are replaced by anything finite."""
        return np.where(_spread(present, value.ndim), value, 0.0)

    # -- reading a node --

    @property
    def whole(self) -> Access:
        """The node as an expression: every plate as it is."""
        return Access(self, (None,) * len(self.plates))

    @property
    def block_plates(self) -> tuple[Plate, ...]:
        """The plates over which the approximation factorises."""
        return self.plates

    def stat_shapes(self) -> list[tuple[int, ...]]:
        """The shape of each statistic's array: plates, then events."""
        plates = tuple(plate.size for plate in self.block_plates)
        return [plates + (self.size or 0,) * ndim for ndim in self.family.stat_ndims]

    def stat(
        self, name: str, scope: Scope, labels: tuple[str, ...] = (), bind: dict[str, str] | None = None
    ) -> Polynomial:
        return self.whole.stat(name, scope, labels, bind)

    def accesses(self) -> Iterator[Access]:
        yield self.whole

    def __getitem__(self, key: Any) -> Expression:
        if not self.plates:
            raise PlateMismatch(f"{self.name!r} has no plate to index")
        return self.whole[key]

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        plates = ", ".join(f"{plate.name}={plate.size}" for plate in self.plates)
        return (
            f"<{type(self).__name__} {self.name!r}{' on ' + plates if plates else ''}{' observed' * self.is_observed}>"
        )

    def parents(self) -> list[Node]:
        """The nodes in the parameter slots, gates included, each once."""
        found: dict[str, Node] = {}
        for expression in self.parameters.values():
            for access in expression.accesses():
                known = found.setdefault(access.node.name, access.node)
                if known is not access.node:
                    raise ValueError(f"{self.name!r}: two different nodes are called {known.name!r}; names must differ")
        return list(found.values())

    def term(self, known: dict[str, npt.NDArray[Any]]) -> Term:
        """The node's expected log density and everything that is needed to evaluate it."""
        scope = Scope(self.name, self.plates, known)
        polynomial = self.log_density(scope)
        mask = None
        if self.mask is not None:
            mask = Factor(scope.register(self.mask), 0, scope.plate_names, known=True)
        return Term(self.name, polynomial, scope, mask)

    def own(self, name: str, scope: Scope, labels: tuple[str, ...] = ()) -> Polynomial:
        """The node's own statistic inside its own term."""
        return scope.statistic(self.whole, name, labels, {})

    # -- data --

    def observed_stat(self, name: str) -> npt.NDArray[Any]:
        """A statistic of the data, as an array on the plates."""
        assert self.value is not None
        if name == "x":
            return self.value
        # A missing entry was replaced by some finite value; its logarithm must be finite too, weight 0 or not.
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(1.0 - self.value) if name == "log1m" else np.log(self.value)
        return np.nan_to_num(logs, nan=0.0, neginf=0.0)

    def observed_index(self, access: Access) -> Index | None:
        """For an observed category that chooses components: its values as an index."""
        return None

    def _observe(self, observed: Any, mask: Any) -> None:
        value = _as_array(self.name, observed)
        shape = tuple(plate.size for plate in self.plates)
        events = self.family.event_ndim
        if value.ndim != len(shape) + events or value.shape[: len(shape)] != shape:
            event = f" and {events} event axis" if events else ""
            raise PlateMismatch(
                f"{self.name!r}: observed has shape {value.shape}, but its plates are "
                f"{ {p.name: p.size for p in self.plates} }{event}"
            )
        present = ~np.isnan(value) if value.dtype.kind == "f" else np.ones(value.shape, dtype=bool)
        if events:
            every, some = present.all(axis=-1), present.any(axis=-1)
            if events == 2:
                every, some = every.all(axis=-1), some.any(axis=-1)
            if (partial := np.argwhere(some & ~every)).size:
                raise ValueError(
                    f"{self.name!r}: row {partial[0].tolist()} of observed is partly NaN; a vector is observed as a whole. Use "
                    "Normal on two plates for single missing entries, or set the whole row to NaN"
                )
            present = every
        if mask is not None:
            present = present & self._checked_mask(mask, shape)
        if isinstance(observed, np.ma.MaskedArray):
            hidden = np.ma.getmaskarray(observed)
            present = present & ~(hidden.any(axis=tuple(range(len(shape), hidden.ndim))) if events else hidden)
        if not present.any():
            raise ValueError(f"{self.name!r}: every observation is missing; there is nothing to learn from")
        finite = np.isfinite(value) if value.dtype.kind == "f" else np.ones(value.shape, dtype=bool)
        bad = np.argwhere(~finite & _spread(present, value.ndim))
        if bad.size:
            raise ValueError(f"{self.name!r}: observed[{_where(bad)}] = {value[tuple(bad[0])]} is not finite")
        self.value = self._clean(value, present)
        self.value.setflags(write=False)
        self.mask = None if present.all() else present.astype(np.float64)

    def _checked_mask(self, mask: Any, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
        array = np.asarray(mask)
        if array.dtype != bool:
            raise TypeError(f"{self.name!r}: mask must be boolean, True where observed, got dtype {array.dtype}")
        if array.shape != shape:
            raise PlateMismatch(f"{self.name!r}: mask has shape {array.shape}, but the plates are {shape}")
        return array

    def _support(
        self, value: npt.NDArray[Any], good: npt.NDArray[np.bool_], present: npt.NDArray[np.bool_], what: str
    ) -> None:
        """Raise for the first observed element outside the support."""
        bad = np.argwhere(_spread(present, good.ndim) & ~good)
        if bad.size:
            raise ValueError(
                f"{self.name!r}: observed[{_where(bad)}] = {value[tuple(bad[0])]:g} but a {type(self).__name__} takes {what} "
                f"({len(bad)} such)"
            )

    # -- slots --

    def _filled(self, slot: Slot, value: Any) -> Expression:
        if isinstance(value, Expression):
            return self._checked_parent(slot, value)
        try:
            array = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            raise TypeError(
                f"{self.name!r}: {slot.name} must be numbers, a node or an expression, got {type(value).__name__}"
            ) from None
        bad = np.argwhere(~np.isfinite(array))
        if bad.size:
            raise ValueError(f"{self.name!r}: {slot.name}[{_where(bad)}] = {array[tuple(bad[0])]} is not finite")
        _check_range(self.name, slot, array)
        return Constant(slot.kind, array)

    def _checked_parent(self, slot: Slot, value: Expression) -> Expression:
        if slot.fixed:
            raise NotConjugate(
                f"{self.name!r}: {slot.name} cannot be random, but {value} was given: a {type(self).__name__} with a random "
                f"{slot.name} has no closed-form update. Give a constant"
            )
        if value.kind != slot.kind:
            given = type(value).__name__ + " " if isinstance(value, Node) else ""
            raise NotConjugate(
                f"{self.name!r}: {slot.name} cannot be {given}{value} ({value.kind}): the edge {value} → {self.name} is not "
                f"conjugate. {slot.name} takes {ACCEPTED[slot.kind]}"
            )
        return value

    def _check_slot_size(self, slot: Slot) -> None:
        expression, events = self.parameters[slot.name], EVENT_NDIM.get(slot.kind, 0)
        if not events or self.size is None:
            return
        if isinstance(expression, Constant):
            if expression.value.ndim == 0:
                if slot.kind == VECTOR:
                    expression.value = np.full(self.size, float(expression.value))
                expression.size = self.size
            shape = expression.value.shape
            if shape and shape[len(shape) - events :] != (self.size,) * events:
                raise PlateMismatch(
                    f"{self.name!r}: {slot.name} has shape {shape}, but vectors here have length {self.size}"
                )
        elif expression.size is not None and expression.size != self.size:
            raise PlateMismatch(
                f"{self.name!r}: {slot.name} = {expression} has length {expression.size}, but {self.size} is needed"
            )


def category_take(node: Node, scope: Scope) -> Take:
    """The axis of a table of log probabilities that an observed category picks from: a take, never one-hot."""
    assert node.value is not None
    return Take(scope.register(node.value.astype(np.int32)), scope.plate_names)


def checked_categories(
    name: str, value: npt.NDArray[Any], size: int, present: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Integer categories 0 … size − 1, with the first offender named."""
    if value.dtype.kind == "f":
        value = np.where(present, value, 0.0)
        bad = np.argwhere(value != np.round(value))
        if bad.size:
            raise ValueError(
                f"{name!r}: observed[{_where(bad)}] = {value[tuple(bad[0])]:g}, but categories are whole numbers"
            )
        value = value.astype(np.int64)
    categories = np.where(present, as_index(value, f"{name!r}: observed"), 0)
    bad = np.argwhere((categories < 0) | (categories >= size))
    if bad.size:
        raise ValueError(
            f"{name!r}: observed[{_where(bad)}] = {categories[tuple(bad[0])]} is outside the categories 0 … {size - 1} "
            f"({len(bad)} such)"
        )
    return categories


def _check_range(name: str, slot: Slot, array: npt.NDArray[np.float64]) -> None:
    """Constants in a slot must be possible values of what the slot stands for."""
    if slot.kind == POSITIVE or (slot.kind == MATRIX and array.ndim == 0):
        bad, wanted = np.argwhere(array <= 0), "> 0"
    elif slot.kind in (UNIT, SIMPLEX):
        bad, wanted = np.argwhere((array < 0) | (array > 1)), "between 0 and 1"
    else:
        bad, wanted = np.argwhere(np.zeros(0)), ""
    if len(bad):
        where = f"[{_where(bad)}]" if array.ndim else ""
        raise ValueError(f"{name!r}: {slot.name}{where} = {array[tuple(bad[0])]:g} must be {wanted}")
    if slot.kind == SIMPLEX:
        if array.ndim == 0:
            raise ValueError(f"{name!r}: {slot.name} must be a vector of probabilities, got the number {array:g}")
        if (off := np.argwhere(np.abs(array.sum(-1) - 1) > 1e-8)).size:
            raise ValueError(
                f"{name!r}: {slot.name}{off[0].tolist() or ''} sums to {array.sum(-1)[tuple(off[0])]:g}, not to 1"
            )
    if slot.kind == MATRIX and array.ndim:
        _check_precision_matrix(name, slot, array)


def _check_precision_matrix(name: str, slot: Slot, array: npt.NDArray[np.float64]) -> None:
    if array.ndim < 2 or array.shape[-1] != array.shape[-2]:
        raise PlateMismatch(f"{name!r}: {slot.name} must be a square matrix, got shape {array.shape}")
    if not np.allclose(array, np.swapaxes(array, -1, -2)):
        raise ValueError(f"{name!r}: {slot.name} must be symmetric")
    if (smallest := float(np.linalg.eigvalsh(array).min())) <= 0:
        raise ValueError(
            f"{name!r}: {slot.name} must be positive definite, but its smallest eigenvalue is {smallest:g}"
        )


def _as_array(name: str, observed: Any) -> npt.NDArray[Any]:
    array = np.array(np.ma.getdata(observed)) if isinstance(observed, np.ma.MaskedArray) else np.array(observed)
    if array.dtype.kind in "biu":
        return array.astype(np.int64)
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"{name!r}: observed must be numbers, got dtype {array.dtype}: encode labels as integers"
        ) from None


def _spread(present: npt.NDArray[np.bool_], ndim: int) -> npt.NDArray[np.bool_]:
    return present.reshape(present.shape + (1,) * (ndim - present.ndim))


def _where(bad: npt.NDArray[Any]) -> str:
    return ", ".join(str(i) for i in bad[0])


def is_category(expression: Expression) -> bool:
    """Whether an expression chooses among components."""
    return expression.kind == CATEGORY
