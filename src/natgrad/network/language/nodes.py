"""Define nodes: a name, a family, parameter slots, plates and perhaps data; checked when declared.

`continuous.py`, `counts.py` and `discrete.py` have the concrete nodes. A slot says what fits into a parameter, and checks known
numbers, observations and masks that are put there. A node's whole mathematics is `log_density`: the expected log
density of its conditional, written once as a polynomial in the moments of its slots and of itself.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.families import Family
from natgrad.families._ops import Stats
from natgrad.network.language.advice import check_arguments, of_another_kind, of_no_numbers
from natgrad.network.language.cdfs import Cdf
from natgrad.network.language.columns import RecordedNode, is_deferred
from natgrad.network.language.expressions import (
    CATEGORY,
    COUNT,
    MATRIX,
    NOUN,
    POSITIVE,
    RATE,
    REAL,
    SIMPLEX,
    UNIT,
    VECTOR,
    Access,
    Constant,
    Expression,
    Kind,
    Untyped,
)
from natgrad.network.language.missing import Censored, as_censored, spread, with_unread
from natgrad.network.language.operators import as_matrix
from natgrad.network.language.plates import Index, Plate, as_plates, plates_in_words
from natgrad.network.language.scope import Scope
from natgrad.network.polynomial import Factor, Label, Polynomial, Take
from natgrad.validation import (
    LARGEST_VALUE,
    OVERFLOW,
    as_numbers,
    as_observed,
    check_precision,
    first,
    require,
    where,
    whole_number,
)

__all__ = [
    "ACCEPTED",
    "Array",
    "Censorable",
    "Node",
    "Plates",
    "ScalarNode",
    "Slot",
    "Slots",
    "Support",
    "Term",
    "category_take",
    "chain_plates",
    "check_observed_shape",
    "check_possible",
    "check_range",
    "check_shape",
    "check_slot_shape",
    "checked_mask",
    "chosen_link",
    "event_length",
    "given_size",
    "is_flat",
    "left_over",
    "must_be_observed",
    "numbers",
    "observed_index",
    "parents_first",
]

# Probabilities that were normalised in single precision, or written out with six digits, count as normalised.
SUM_TOLERANCE = 1e-6
EVENT_NDIM = {VECTOR: 1, MATRIX: 2, SIMPLEX: 1}
ACCEPTED = {
    REAL: "a constant, a Normal, a dot, a sum or a known multiple of these",
    VECTOR: "a constant vector, a MultivariateNormal, a sum or a known multiple of these",
    POSITIVE: "a positive constant, a Gamma or an Exponential (a known multiple of it too)",
    MATRIX: "a positive-definite constant, a Wishart, or diag of a Gamma",
    SIMPLEX: "constant probabilities or a Dirichlet",
    UNIT: "a constant probability or a Beta",
    RATE: "a Gamma, a dot of Gammas along a plate, or a sum of these and positive constants",
}


class Slot(NamedTuple):
    """A parameter slot: its name, what kind of expression it takes, and whether only known numbers fit.

    ``events`` is the number of event axes of a constant, where the kind alone does not tell; ``least`` the least known number
    where that is not above 0: such a prior is improper, and only for hidden nodes.
    """

    name: str
    kind: Kind
    fixed: bool = False
    events: int | None = None
    least: float | None = None  # the least known number; 0, or −1 for a shape, lets a prior be improper

    @property
    def event_ndim(self) -> int:
        """How many of the last axes of a constant belong to one element."""
        return EVENT_NDIM.get(self.kind, 0) if self.events is None else self.events


def check_range(what: str, kind: Kind, array: npt.NDArray[np.float64], least: float | None = None) -> None:
    """Constants in a slot must be possible values of what the slot stands for."""
    if least is not None and (kind == POSITIVE or array.ndim == 0):
        require(array >= least, array, what, f"≥ {least:g}")
    elif kind == POSITIVE or (kind == MATRIX and array.ndim == 0):
        require(array > 0, array, what, "> 0")
    elif kind in (UNIT, SIMPLEX):
        require((array >= 0) & (array <= 1), array, what, "between 0 and 1")
    if kind == SIMPLEX:
        if array.ndim == 0:
            raise ValueError(f"{what} must be a vector of probabilities, got the number {array:g}")
        total = np.asarray(array.sum(-1))
        if (place := first(np.abs(total - 1) > SUM_TOLERANCE)) is not None:
            raise ValueError(f"{what}{where(place)} sums to {total[place]:g}, not to 1: divide by the sum")
    if kind == MATRIX and array.ndim:
        check_precision(what, array, semidefinite=least is not None)


def is_flat(constant: Any) -> bool:
    """Whether known parameters make a prior improper: a number ≤ 0, or a precision matrix that is not of full rank."""
    value = constant.value
    if constant.kind == MATRIX and value.ndim:
        smallest = np.linalg.eigvalsh(value)[..., 0]
        return bool((smallest <= 1e-12 * np.abs(value).max(axis=(-1, -2))).any())
    return bool((value <= 0).any())


def check_slot_shape(
    name: str, slot: Slot, shape: tuple[int, ...], plates: tuple[Plate, ...], events: tuple[int, ...]
) -> None:
    """Numbers in a slot broadcast over the plates, and have the axes ``events`` of one element after those."""
    sizes = tuple(plate.size for plate in plates)
    wanted = sizes + events
    short = len(shape) < len(events) or len(shape) > len(wanted)
    ends = zip(shape[::-1], wanted[::-1], strict=False)
    # A concentration of length 1 is the same for all categories; other event axes are written out.
    if not short and all(n == m or (n == 1 and (i >= len(events) or slot.fixed)) for i, (n, m) in enumerate(ends)):
        return
    reason = f"({plates_in_words(plates)}); leading axes may be left out or be 1"
    if not sizes:
        reason = "" if events else f"as {name!r} has no plates: give plate=Plate('name', {shape[0]})"
    raise PlateMismatch(
        f"{name!r}: {slot.name} has shape {shape}, but {wanted or 'one number'} is needed {reason}".rstrip()
    )


def check_observed_shape(
    name: str, shape: tuple[int, ...], plates: tuple[Plate, ...], event_ndim: int, size: int | None
) -> None:
    """Observations have every axis of the plates, and then those of the events."""
    wanted = (*(plate.size for plate in plates), *(size or 0,) * event_ndim)
    if shape == wanted:
        return
    event = ("", f", vectors of length {size}", f", matrices of size {size}")[event_ndim]
    advice = f": give plate=Plate('name', {shape[0]})" if not plates and len(shape) == 1 + event_ndim else ""
    advice = ": give observed[..., 0]" if plates and shape == (*wanted, 1) else advice
    raise PlateMismatch(
        f"{name!r}: observed has shape {shape}, but {wanted or 'one number'} is needed "
        f"({plates_in_words(plates)}{event}){advice}"
    )


def checked_mask(name: str, mask: Any, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Which elements count: all of them where there is no mask."""
    if mask is None:
        return np.ones(shape, dtype=bool)
    array = np.asarray(mask)
    if array.dtype != bool:
        raise TypeError(f"{name!r}: mask must be booleans, True where observed, got dtype {array.dtype}")
    if array.shape != shape:
        raise PlateMismatch(f"{name!r}: mask has shape {array.shape}, but {shape} is needed, one for each element")
    return array


Array = npt.NDArray[Any]
Slots = dict[str, Array]  # values of the parameters, [draw, plates, event]


class Support(NamedTuple):
    """The values that a node takes: in words, as a test of each, and one of them, which stands where data are missing."""

    words: str
    holds: Callable[[Array], Array]
    inside: float


class Term(NamedTuple):
    """The expected log density of one node, ready to be compiled."""

    node: str
    polynomial: Polynomial
    scope: Scope
    mask: Factor | None


# What a twin of a node does not have: it may be changed, and has another term.
KEPT = ("_is_sealed", "_declared", "_parents", "_improper")
# What is no expression, told without asking all kinds of them.
PLAIN = (float, int, list, tuple, np.ndarray)


class Node(Expression):
    """A random variable, or a plate of them. Use the concrete nodes (`Normal`, `Gamma`, …)."""

    family: Family
    is_declared: ClassVar[bool] = True
    has_evidence: bool = False  # hidden, but known in places: a chain of which some states were observed
    is_bounded: bool = False  # its term is a lower bound of its log density, which has none in closed form
    has_no_mean: ClassVar[bool] = False  # its prior is proper, but has no moments to start from
    is_auxiliary: bool = False  # declared by another node, which it makes conjugate (`auxiliary.py`)
    starts_drawn: ClassVar[bool] = False  # at random, where a fit starts: what reads it is updated first
    is_gaussian: ClassVar[bool] = False  # given its mean and precision, and with a density without the latter
    support: ClassVar[Support | None] = None  # of its values; None if any number is one
    data_stand_in: ClassVar[float | None] = None  # of nodes that are nothing without data: a value that they may have
    moves_with_mean: ClassVar[bool] = False  # x − c has the same distribution as x about a mean less c
    has_table: ClassVar[bool] = False  # known probabilities of categories may stand in its term
    is_category: ClassVar[bool] = False  # its values are names of categories, without order
    is_chain: ClassVar[bool] = False  # its elements are not independent given its parents
    slots_of: tuple[Slot, ...]

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        """The node; or its record, if columns or plates without a size stand in its arguments."""
        if any(map(is_deferred, arguments)) or any(map(is_deferred, options.values())):
            return RecordedNode(cls, arguments, options)
        # Before Python counts arguments: the one that is missed most is the name.
        given = options.get("name", arguments[0] if arguments else "")
        if (arguments or options) and not isinstance(given, str | Node):
            shown = "an array" if isinstance(given, np.ndarray) else repr(given)
            raise TypeError(f"a node's name comes first: write {cls.__name__}('name', …), got {shown}")
        if arguments or options:  # not where pickle makes one
            check_arguments(cls, arguments, options)
        return object.__new__(cls)

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
        self.name = str(name)  # of NumPy, it would show in errors
        if self.kind == CATEGORY or type(self).categories is not Node.categories:
            self.advice = (
                f". To choose numbers or components with a category write natgrad.table(numbers)[{name}] or mu[{name}]"
            )
        self.plates = as_plates(name, plate)
        self.parameters = {slot.name: self._filled(slot, parameters[slot.name]) for slot in self.slots_of}
        if isinstance(observed, Censored):
            raise TypeError(
                f"{name!r}: a {type(self).__name__} cannot be censored, only a Normal, a LogNormal and an Exponential can"
            )
        data = None if observed is None else as_observed(observed, f"{name!r}: observed")
        self.size = self._event_size(data)
        for slot in self.slots_of:
            self._check_slot_size(slot)
        self.is_observed = data is not None
        self.mask: npt.NDArray[np.float64] | None = None
        self.entries: npt.NDArray[np.float64] | None = None  # of vectors that are observed in part: which entries are
        self.value: npt.NDArray[Any] | None = None
        if data is not None:
            self._observe(data, mask)
        elif mask is not None:
            raise ValueError(f"{name!r}: mask says which observations count, but there are none: give observed= too")
        self._check_proper()
        self._augment()
        # Every mistake in the declaration is found here, where the user's line is on the stack; a chunk of rows is not declared.
        self._declared = None if any(plate.is_part for plate in self.plates) else self.term({})
        self._is_sealed = True

    def __setattr__(self, name: str, value: Any) -> None:
        if "_is_sealed" in self.__dict__:
            raise AttributeError(
                f"{self.name!r}: {name} cannot be set, a node stays as it was declared: declare it anew with observed= or other "
                "parameters, and a new Network of it"
            )
        super().__setattr__(name, value)

    def __copy__(self) -> Node:
        """A twin that may still be changed, for those who compute with a node other than the declared one."""
        twin = object.__new__(type(self))
        twin.__dict__.update({name: value for name, value in self.__dict__.items() if name not in KEPT})
        return twin

    # -- what a concrete node adds --

    @abstractmethod
    def log_density(self, scope: Scope) -> Polynomial:
        """The expected log density of one element, as a polynomial in moments."""

    @abstractmethod
    def _event_size(self, observed: Any) -> int | None:
        """The length of the event axis, from the parameters or the data."""

    def _augment(self) -> None:
        """Add the auxiliary nodes that make the conditional conjugate to the parameters; data and slots are checked by now."""
        return

    def conditional(self, slots: Slots) -> Slots:
        """The parameters of its distribution, auxiliary variables integrated out, from drawn values of the slots."""
        return slots

    def read_slots(self) -> dict[str, tuple[Slot, Expression]]:
        """What its distribution reads: the slots whose values it is given, and what stands in them."""
        return {slot.name: (slot, self.parameters[slot.name]) for slot in self.slots_of}

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Draw values of all elements given those of its parameters; ``shape`` is draws and plates."""
        raise TypeError(f"{self.name!r}: a {type(self).__name__} is not drawn from its distribution given its parents")

    @classmethod
    def placeholder(cls, options: Mapping[str, Any], shape: tuple[int, ...]) -> Array | None:
        """Values in the place of data that are not there yet, of nodes that are nothing without; ``shape`` is that of plates."""
        return None if cls.data_stand_in is None else np.full(shape, cls.data_stand_in)

    def saved_options(self) -> dict[str, Any] | None:
        """What it was declared with beside slots, plates and data, for a file; None if a file cannot hold it."""
        return {}

    @property
    def is_located(self) -> bool:
        """Whether its mean, given its parameters, is what stands in its mean slot."""
        return self.is_gaussian

    def with_trials_of(self, counts: Array | None) -> Node:
        """It, or a twin whose sums are those of observed counts where no others were declared."""
        return self

    def log_density_without_precision(self, x: Array, mean: Array, first: Array, rate: Array) -> Array:
        """Of a Gaussian: log ∫ p(x | mean, precision) over a Gamma or Wishart precision with shape or dof ``first``."""
        raise TypeError(f"{self.name!r}: a {type(self).__name__} has no precision to integrate out")

    @property
    def can_sample(self) -> bool:
        """Whether its distribution given values of its parameters is known, and can be drawn from."""
        return type(self).sample_given is not Node.sample_given

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        """Log p(x | parameters) of each element."""
        raise TypeError(f"{self.name!r}: the density of a {type(self).__name__} is not known in closed form")

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any] | None:
        """E[x | parameters] and Var[x | parameters]; None if they are not known in closed form."""
        return None

    def cdf_given(self, slots: Slots) -> Cdf | None:
        """P(x ≤ · | parameters) of each number; None if it is not known in closed form."""
        return None

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        """The observed values checked against the node's support; missing entries are replaced by anything finite."""
        if self.support is not None:
            self._support(value, self.support.holds(value), present, self.support.words)
        return np.where(spread(present, value.ndim), value, self.support.inside if self.support is not None else 0.0)

    def drawn_start(self, lam: Stats, rng: np.random.Generator) -> Stats:
        """Where λ starts, of a node that `starts_drawn`; ``lam`` is its prior."""
        return lam

    def even_values(self, values: Array) -> Array:
        """Values on a scale where their spread hardly depends on their mean: where rows are compared, for clusters."""
        if self.kind == POSITIVE:
            return np.asarray(np.log(np.maximum(values, 1e-300)))
        return np.asarray(np.sqrt(values) if self.kind == COUNT else values)

    # -- reading a node --

    @property
    def whole(self) -> Access:
        """The node as an expression: every plate as it is."""
        return Access(self, (None,) * len(self.plates))

    @property
    def block_plates(self) -> tuple[Plate, ...]:
        """The plates over which the approximation factorises."""
        return self.plates

    @property
    def categories(self) -> int | None:
        """Among how many elements it can choose, as in ``mu[z]``; None if it is no category."""
        return self.size if self.kind == CATEGORY else None

    def stat_shapes(self) -> list[tuple[int, ...]]:
        """The shape of each statistic's array: plates, then events."""
        plates = tuple(plate.size for plate in self.block_plates)
        return [plates + (self.size or 0,) * ndim for ndim in self.family.stat_ndims]

    def value_shape(self) -> tuple[int, ...]:
        """The shape of the values of all elements: plates, then events."""
        return (*(plate.size for plate in self.plates), *(self.size or 0,) * self.family.event_ndim)

    def stat(
        self, name: str, scope: Scope, labels: tuple[Label, ...] = (), bind: dict[str, Label] | None = None
    ) -> Polynomial:
        return self.whole.stat(name, scope, labels, bind)

    def accesses(self) -> Iterator[Access]:
        yield self.whole

    @property
    def reads(self) -> frozenset[Any]:
        return self.whole.reads

    def __getitem__(self, key: Any) -> Any:
        if not self.plates and self.kind != VECTOR:
            raise PlateMismatch(
                f"{self.name}[…]: {self.name!r} has no plates, and only plates and the entries of vectors are indexed"
            )
        return self.whole[key]

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        plates = ", ".join(f"{plate.name}={plate.size}" for plate in self.plates)
        return (
            f"<{type(self).__name__} {self.name!r}{' on ' + plates if plates else ''}{' observed' * self.is_observed}>"
        )

    def parents(self) -> list[Node]:
        """The nodes in the parameter slots, hidden and observed categories that choose included, each once."""
        if "_parents" in self.__dict__:
            return list(self.__dict__["_parents"])
        parents: dict[str, Node] = {}
        accesses = (access for expression in self.parameters.values() for access in expression.accesses())
        for node in (node for access in accesses for node in access.nodes()):
            if parents.setdefault(node.name, node) is not node:
                raise ValueError(f"two different nodes are called {node.name!r}: give each node its own name")
        if "_is_sealed" in self.__dict__:  # they do not change any more, and are asked for many times
            self.__dict__["_parents"] = tuple(parents.values())
        return list(parents.values())

    def term(self, known: dict[str, npt.NDArray[Any]], parts: frozenset[str] | None = None) -> Term:
        """The node's expected log density and everything that is needed to evaluate it.

        ``parts`` names the partly observed nodes of the network whose missing elements are read, and thus inferred.
        """
        scope = Scope(self.name, self.plates, known, parts=parts)
        polynomial = self.log_density(scope)
        mask = None
        if scope.in_part(self):
            polynomial = with_unread(self, scope, polynomial, self.name in (parts or ()))
        elif self.mask is not None:
            mask = Factor(scope.register(self.mask), 0, scope.plate_names, known=True)
        return Term(self.name, polynomial, scope, mask)

    def declared_term(self, known: dict[str, npt.NDArray[Any]], parts: frozenset[str]) -> Term:
        """The term that was made when the node was declared, where it holds in this network; its arrays are added to known."""
        kept: Term | None = self.__dict__.get("_declared")
        partly = self.name in parts or self.entries is not None
        if (
            kept is None
            or partly
            or any(parent.mask is not None or parent.entries is not None for parent in self.parents())
        ):
            return self.term(known, parts)  # a twin, or what is missing decides
        for key, array in kept.scope.known.items():
            known.setdefault(key, array)
        return kept

    def own(self, name: str, scope: Scope, labels: tuple[Label, ...] = ()) -> Polynomial:
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

    def _observe(self, value: npt.NDArray[Any], mask: Any) -> None:
        check_observed_shape(self.name, value.shape, self.plates, self.family.event_ndim, self.size)
        counted = checked_mask(self.name, mask, tuple(plate.size for plate in self.plates))
        events = tuple(range(-self.family.event_ndim, 0))
        missing = np.isnan(value)
        partly = counted & missing.any(events) & ~missing.all(events)
        if self.kind != VECTOR and (place := first(partly)) is not None:
            raise ValueError(
                f"{self.name!r}: observed{where(place)} is partly NaN, but {NOUN[self.kind]} is observed as a whole: set all of "
                "it to NaN, or fill it in"
            )
        present = counted & ~missing.all(events)
        if not present.any() and not any(plate.is_part for plate in self.plates):
            raise ValueError(
                f"{self.name!r}: every observation is missing: there is nothing to learn from. Leave out observed= if it "
                "is hidden"
            )
        if partly.any():
            self.entries = (spread(present, value.ndim) & ~missing).astype(np.float64)
        if (place := first((np.abs(value) > LARGEST_VALUE) & spread(present, value.ndim))) is not None:
            why = f"above {LARGEST_VALUE:g} in size: {OVERFLOW}"
            why = "not finite; NaN marks missing values" if np.isinf(value[place]) else why
            raise ValueError(f"{self.name!r}: observed{where(place)} = {value[place]} is {why}")
        self.value = self._clean(value if self.entries is None else np.where(missing, 0.0, value), present)
        self.value.setflags(write=False)
        masked = any(self.name in plate.masked for plate in self.plates)
        self.mask = None if present.all() and not masked else present.astype(np.float64)

    def _present(self) -> npt.NDArray[np.bool_]:
        """Which elements were observed."""
        shape = tuple(plate.size for plate in self.plates)
        return np.ones(shape, dtype=bool) if self.mask is None else self.mask > 0

    @property
    def is_improper(self) -> bool:
        """Whether its prior has no integral: a flat one, with known parameters at the border of their range."""
        if "_improper" in self.__dict__:
            return bool(self.__dict__["_improper"])
        improper = any(
            slot.least is not None and isinstance(value := self.parameters[slot.name], Constant) and is_flat(value)
            for slot in self.slots_of
        )
        if "_is_sealed" in self.__dict__:
            self.__dict__["_improper"] = improper
        return improper

    def _check_proper(self) -> None:
        """Data need a density; only hidden nodes may have a flat prior."""
        for slot in self.slots_of if self.is_observed and self.is_improper else ():
            value = self.parameters[slot.name]
            if slot.least is None or not isinstance(value, Constant):
                continue
            if slot.kind == POSITIVE or value.value.ndim == 0:
                require(value.value > 0, value.value, f"{self.name!r}: {slot.name}", "> 0")
            else:
                check_range(f"{self.name!r}: {slot.name}", slot.kind, value.value)

    def _support(
        self, value: npt.NDArray[Any], good: npt.NDArray[np.bool_], present: npt.NDArray[np.bool_], what: str
    ) -> None:
        """Raise for the first observed element outside the support."""
        bad = spread(present, good.ndim) & ~good
        if (place := first(bad)) is not None:
            more = f" ({int(bad.sum())} such)" if bad.ndim else ""
            kind = type(self).__name__
            raise ValueError(
                f"{self.name!r}: observed{where(place)} = {value[place]:g}, but {'an' if kind[0] == 'E' else 'a'} {kind} takes "
                f"{what}{more}"
            )

    # -- slots --

    def _filled(self, slot: Slot, value: Any) -> Expression:
        what = f"{self.name!r}: {slot.name}"
        is_plain = type(value) in PLAIN
        if not is_plain and isinstance(value, Expression):
            return self._checked_parent(slot, as_matrix(value) if slot.kind == MATRIX else value)
        if not is_plain and isinstance(value, Untyped) and not slot.fixed:
            return value.of_kind(slot.kind, slot.event_ndim, what)
        if (not is_plain or isinstance(value, (list, tuple))) and (hint := of_no_numbers(value)):
            raise TypeError(f"{what} must be numbers, a node or an expression, got {type(value).__name__}{hint}")
        array = as_numbers(value, what, "known numbers" if slot.fixed else "numbers, a node or an expression")
        check_range(what, slot.kind, array, slot.least)
        return Constant(slot.kind, array)

    def _checked_parent(self, slot: Slot, value: Expression) -> Expression:
        if slot.fixed:
            raise NotConjugate(
                f"{self.name!r}: {slot.name} cannot be random, but {value} was given: the edge {value} → {self.name} has no "
                f"closed-form message. {slot.name} takes known numbers"
            )
        if value.kind != slot.kind:
            given = f"the {type(value).__name__} {value}" if isinstance(value, Node) else f"{value}, {NOUN[value.kind]}"
            raise NotConjugate(
                f"{self.name!r}: {slot.name} cannot be {given}: the edge {value} → {self.name} is not conjugate. {slot.name} "
                f"takes {ACCEPTED[slot.kind]}{value.advice or self._advice(slot, value)}"
            )
        return value

    def _advice(self, slot: Slot, value: Expression) -> str:
        """What an error adds where a number of another kind was given."""
        return of_another_kind(type(self).__name__, NOUN[slot.kind], NOUN[value.kind], str(value))

    def _check_slot_size(self, slot: Slot) -> None:
        """What stands in a slot must have the size of the node's vectors and, if known, broadcast over its plates."""
        expression = self.parameters[slot.name]
        if not isinstance(expression, Constant):
            if slot.event_ndim and None not in (expression.size, self.size) and expression.size != self.size:
                raise PlateMismatch(
                    f"{self.name!r}: {slot.name} = {expression} has size {expression.size}, but {self.size} is needed"
                )
            return
        if slot.event_ndim:
            expression.size = self.size
        if slot.kind == VECTOR and expression.value.ndim == 0:
            expression.value = np.full(self.size or 0, float(expression.value))
        self._check_shape(slot, expression.value.shape)

    def _check_shape(self, slot: Slot, shape: tuple[int, ...]) -> None:
        events = (self.size or 0,) * slot.event_ndim if shape else ()
        check_slot_shape(self.name, slot, shape, self.block_plates, events)


Plates = Plate | tuple[Plate, ...] | list[Plate] | None


class ScalarNode(Node):
    """A node whose elements are single numbers."""

    def _event_size(self, observed: Any) -> int | None:
        return None


class Censorable(ScalarNode):
    """A node of which data may be known up to bounds: a latent variable stands for what was not seen as it is.

    ``least`` is where its support begins.
    """

    least: ClassVar[float] = -np.inf

    def __init__(self, name: str, parameters: dict[str, Any], plate: Plates, observed: Any, mask: Any) -> None:
        self.bounds, data = as_censored(observed, self.least)
        super().__init__(name, parameters, plate, data, mask)

    @abstractmethod
    def _latent(self, bounds: Censored, active: npt.NDArray[np.bool_]) -> Node:
        """The latent variable; ``active`` says for which elements."""

    def _augment(self) -> None:
        if self.bounds is not None:
            self.parameters["latent"] = self._latent(self.bounds, ~self.bounds.is_exact & self._present())

    def observed_stat(self, name: str) -> npt.NDArray[Any]:
        if self.bounds is not None:
            raise self.bounds.refuse_reading(self.name)
        return super().observed_stat(name)

    def saved_options(self) -> dict[str, Any] | None:
        return {} if self.bounds is None else None


def parents_first(roots: Iterable[Any], parents: Callable[[Any], Iterable[Any]]) -> dict[str, Any]:
    """Nodes and their ancestors by name, parents before children; two different ones of one name are refused.

    A chain of nodes may be longer than Python's stack: what waits is kept in a list, not in calls.
    """
    ordered: dict[str, Any] = {}
    met: dict[str, Any] = {}
    for root in roots:
        waiting = [(root, iter(parents(root)))]
        while waiting:
            node, others = waiting[-1]
            if met.setdefault(node.name, node) is not node:
                raise ValueError(f"two different nodes are called {node.name!r}: give each node its own name")
            parent = None if node.name in ordered else next(others, None)
            if parent is None:
                ordered.setdefault(node.name, node)
                waiting.pop()
            else:
                waiting.append((parent, iter(parents(parent))))
    return ordered


def numbers(expression: Any) -> npt.NDArray[np.float64]:
    """The values of a slot that takes only constants."""
    assert isinstance(expression, Constant)
    return expression.value


def event_length(expression: Any) -> int | None:
    """The length of the event axis of what stands in a slot, if it has one."""
    if isinstance(expression, Constant):
        return int(expression.value.shape[-1]) if expression.value.ndim else None
    size = expression.size
    return None if size is None else int(size)


def given_size(name: str, size: Any, least: int = 1) -> int | None:
    """The ``size=`` argument of a node, if there is one."""
    return None if size is None else whole_number(size, f"{name!r}: size", least)


def must_be_observed(name: str, observed: Any, what: str, give: str = "counts") -> None:
    """Some nodes have no use hidden."""
    if observed is None:
        article = "an" if what[0] in "AEIO" else "a"
        raise TypeError(f"{name!r}: {article} {what} must be observed: give observed={give}")


def chain_plates(name: str, plate: Plates, lengths: Any) -> tuple[tuple[Plate, ...], tuple[int, ...] | None]:
    """The plates of a chain, time last, and the lengths of sequences that lie end to end on it, if there are several."""
    plates = as_plates(name, plate)
    if not plates:
        raise PlateMismatch(f"{name!r}: a chain needs a plate of time steps: give plate=Plate('time', n)")
    time = plates[-1]
    if time.weight is not None:
        raise PlateMismatch(f"{name!r}: the time plate {time.name!r} of a chain cannot carry weights")
    if lengths is None:
        return plates, None
    if np.ndim(lengths) != 1 or isinstance(lengths, str):
        raise TypeError(f"{name!r}: lengths must be a list of whole numbers, one for each sequence, got {lengths!r}")
    checked = tuple(whole_number(n, f"{name!r}: lengths[{i}]") for i, n in enumerate(lengths))
    if sum(checked) != time.size:
        raise PlateMismatch(
            f"{name!r}: lengths sum to {sum(checked)}, but plate {time.name!r} has {time.size} elements"
        )
    return plates, checked


def check_possible(
    node: Node, value: npt.NDArray[Any], possible: npt.NDArray[np.bool_], present: npt.NDArray[np.bool_]
) -> None:
    """Known probabilities must allow what was observed; log 0 would swallow the whole bound."""
    if (place := first(spread(present, value.ndim) & ~possible)) is not None:
        slot = node.slots_of[-1].name
        raise ValueError(
            f"{node.name!r}: observed{where(place)} = {value[place]:g} has probability 0 under the {slot} given"
        )


def observed_index(node: Node, access: Access) -> Index | None:
    """The index that an observed category is when something else is read through it; None where it is a gate."""
    if node.value is None:
        return None
    if node.mask is not None:
        return None  # what is missing is inferred: a gate, in which what was observed is certain
    if any(isinstance(selector, Access) for selector in access.selectors):
        return None  # a hidden category chooses which observed one does: a gate, though one with known numbers
    values, names = node.value.astype(np.int64), tuple(plate.name for plate in node.plates)
    indices = [selector for selector in access.selectors if isinstance(selector, Index)]
    if not indices:
        return Index(values, names, (node,), access)
    if len(indices) < len(names) or len({(index.plates, index.values.shape) for index in indices}) > 1:
        raise PlateMismatch(
            f"{access}: an observed category on several plates is read with one index for each of them, all on the same plates; "
            "otherwise index its values"
        )
    chosen = tuple(entry for index in indices for entry in index.categories)
    return Index(values[tuple(index.values for index in indices)], indices[0].plates, (*chosen, node), access)


def check_shape(name: str, slot: str, value: Expression) -> None:
    """A random shape, or entry of a concentration, has log Γ of itself among its statistics: a `GammaShape`, read once."""
    if value.whole is None or "lgamma" not in value.whole.node.family.stat_names:
        given = f"the {type(value).__name__} {value}" if isinstance(value, Node) else str(value)
        raise NotConjugate(
            f"{name!r}: {slot} cannot be {given}: the edge {value} → {name} has no closed-form message. {slot} takes known "
            "numbers, or what is declared for it: a GammaShape, whose q has log Γ among its statistics"
        )


def left_over(value: Expression, plates: tuple[Plate, ...], reader: str = "its reader") -> Plate | None:
    """The plate along which an expression repeats and its reader does not, if there is one."""
    extra = value.leftover(plates)
    if len(extra) > 1:
        raise PlateMismatch(f"{value} repeats over {sorted(extra)}, of which {reader} has none: index all but one")
    return next(iter(extra.values()), None)


def chosen_link(name: str, kind: str, given: dict[str, Any]) -> tuple[str, Any]:
    """The one parameter of several ways to give a probability that was given."""
    chosen = [(way, value) for way, value in given.items() if value is not None]
    if len(chosen) != 1:
        what = " and ".join(way for way, _ in chosen) + " were given" if chosen else "nothing was given"
        raise TypeError(f"{name!r}: a {kind} takes one of {', '.join(given)}, but {what}")
    return chosen[0]


def category_take(node: Node, scope: Scope) -> Take:
    """The axis of a table of log probabilities that an observed category picks from: a take, never one-hot."""
    assert node.value is not None
    return Take(scope.register(node.value.astype(np.int32)), scope.plate_names)


@final
class StandIn(Node):
    """A hidden node whose q is known, in the place of one of class ``cls`` with its parents and its prior: what others read."""

    slots_of = ()

    def __init__(self, name: str, cls: type[Node], family: Family, plates: tuple[Plate, ...], size: int | None) -> None:
        self.kind, self.is_category, self.family = cls.kind, cls.is_category, family  # type: ignore[misc]
        self._size = size
        super().__init__(name, {}, plates)

    def _event_size(self, observed: Any) -> int | None:
        return self._size

    @property
    def categories(self) -> int | None:
        return self._size or 2 if self.family.is_discrete else None

    def log_density(self, scope: Scope) -> Polynomial:
        """Nothing: it is not updated."""
        return Polynomial()
