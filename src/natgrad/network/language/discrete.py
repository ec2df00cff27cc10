"""Define nodes of categories: Categorical, Multinomial, and MarkovChain, one factor for a path of categories along time.

Each node declares its conditional once, as its expected log density; messages, targets, natural gradients and the bound
are all derived from these polynomials. Observed categories
are indices into tables of log probabilities, never one-hot arrays.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, xlogy

from natgrad import families
from natgrad.errors import PlateMismatch
from natgrad.network.language.auxiliary import ClassOffset, LogisticBound, PolyaGamma, RaceTime
from natgrad.network.language.cdfs import Cdf, binomial_cdf
from natgrad.network.language.expressions import (
    CATEGORY,
    COUNT,
    LOG_ZERO,
    POSITIVE,
    REAL,
    SIMPLEX,
    VECTOR,
    Access,
    Constant,
    Expression,
)
from natgrad.network.language.links import (
    Stacked,
    class_by_class,
    hidden_stick_density,
    one_against_each,
    picked,
    refuse_in_part,
    shares_of_weights,
    softmax,
    stick_density,
    stick_probabilities,
    weights_density,
)
from natgrad.network.language.nodes import (
    Array,
    Node,
    Plates,
    Slot,
    Slots,
    category_take,
    chain_plates,
    check_possible,
    checked_mask,
    chosen_link,
    event_length,
    must_be_observed,
    observed_index,
)
from natgrad.network.language.plates import Index, Plate, as_plates, plates_in_words
from natgrad.network.language.scope import Scope
from natgrad.network.polynomial import Label, Polynomial
from natgrad.validation import as_numbers, as_observed, checked_categories, first, where

__all__ = ["Categorical", "MarkovChain", "Multinomial"]

# Probabilities of categories, from what stands in the slot of a link.
PROBABILITIES = {"logits": stick_probabilities, "softmax": softmax, "weights": shares_of_weights}


@final
class Categorical(Node):
    """z ~ Cat(probs): an integer 0 … K − 1. Hidden, it chooses components: ``mu[z]``.

    It may have ``logits=`` instead: K − 1 real numbers along a plate of their own (or a vector), by stick-breaking: category k is
    taken with probability σ(logit_k) if none before it was. The order of the categories is part of this model. Observed, it may
    have ``softmax=``: K real numbers, in no order, with probabilities exp(s_k) / Σ_j exp(s_j). Its likelihood is bounded from
    below by one-against-each logits, so that the bound stays one of the evidence; predictions and draws are of the softmax.
    Observed, it may have ``weights=``: K positive numbers, Gammas along a plate, with probabilities r_k / Σ_j r_j.

    ``mask`` says which observations count; of hidden categories with ``probs``, which of them there are, as of the words of
    documents that are not all equally long. The others tell their probabilities nothing.

    Examples
    --------
    >>> import natgrad as ng, numpy as np
    >>> X, n, cut = np.array([[1.0, -2.0], [1.0, 0.0], [1.0, 2.0]]), ng.Plate("n", 3), ng.Plate("cut", 2)
    >>> w = ng.MultivariateNormal("w", np.zeros(2), np.eye(2), plate=cut)
    >>> y = ng.Categorical("y", logits=ng.dot(X, w), plate=n, observed=[0, 1, 2])
    >>> ng.Network(y).fit().predictive("y").probabilities().shape
    (3, 3)
    >>> v = ng.MultivariateNormal("v", np.zeros(2), np.eye(2), plate=ng.Plate("kind", 3))
    >>> y = ng.Categorical("y", softmax=ng.dot(X, v), plate=n, observed=[0, 1, 2])
    >>> ng.Network(y).fit().predictive("y").probabilities().argmax(-1).tolist()
    [0, 1, 2]
    """

    family = families.Categorical()
    kind = CATEGORY
    is_category = True
    has_table = True
    slots_of = (Slot("probs", SIMPLEX),)
    is_by_class = False  # whether a softmax is written class by class, for draws

    def __init__(
        self,
        name: str,
        probs: Any = None,
        *,
        logits: Any = None,
        softmax: Any = None,
        weights: Any = None,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        self.link, value = chosen_link(
            name, "Categorical", {"probs": probs, "logits": logits, "softmax": softmax, "weights": weights}
        )
        self.is_bounded = self.link == "softmax"
        if self.link in ("softmax", "weights"):
            must_be_observed(
                name,
                observed,
                f"Categorical with {self.link}=",
                "categories; a hidden one may have logits=, by stick-breaking",
            )
        if self.link != "probs":
            self.slots_of = (Slot(self.link, VECTOR),)
            if not isinstance(value, Expression):
                raise TypeError(
                    f"{name!r}: {self.link} must be random, a dot or nodes along a plate: known ones are probs="
                )
        # Of hidden categories: which there are. A hidden one that nobody reads would still count for its probabilities.
        self.there: npt.NDArray[np.float64] | None = None
        if observed is None and mask is not None and self.link == "probs":
            shape = tuple(part.size for part in as_plates(name, plate))
            self.there, mask = checked_mask(name, mask, shape).astype(np.float64), None
        super().__init__(name, {self.link: value}, plate, observed, mask)

    def _checked_parent(self, slot: Slot, value: Expression) -> Expression:
        if slot.name in ("logits", "softmax", "weights") and value.kind == (
            POSITIVE if slot.name == "weights" else REAL
        ):
            value = Stacked.of(value, self.plates, self.name, slot.name)
        return super()._checked_parent(slot, value)

    def _check_slot_size(self, slot: Slot) -> None:
        if slot.name != "logits":  # of which there is one less than categories
            super()._check_slot_size(slot)

    def _event_size(self, observed: Any) -> int | None:
        if self.link == "logits":
            return int(self.parameters["logits"].size or 0) + 1
        return event_length(self.parameters["probs"]) if self.link == "probs" else self.parameters[self.link].size

    def _augment(self) -> None:
        if self.link == "weights":
            self.parameters["time"] = RaceTime(self, np.asarray(self._present(), dtype=bool))
        elif self.link != "probs":
            logits = self.parameters[self.link]
            sticks = logits.plate if isinstance(logits, Stacked) else Plate(f"{self.name}.stick", logits.size or 0)
            if self.is_unknown:
                self.parameters["omega"] = LogisticBound(self, plates=(*self.plates, sticks))
                return
            assert self.value is not None
            asked = (
                np.not_equal if self.link == "softmax" else np.greater_equal
            )  # the others; the sticks that were reached
            reached = asked(self.value[..., None], np.arange(sticks.size)) * self._present()[..., None]
            self.parameters["omega"] = PolyaGamma(self, reached.astype(np.float64), (*self.plates, sticks))

    def saved_options(self) -> dict[str, Any]:
        return {} if self.there is None else {"mask": self.there > 0}

    def class_by_class(self) -> Categorical:
        """A softmax with auxiliaries for each class given the others, which are exact, and for draws alone."""
        twin = copy.copy(self)
        twin.__dict__.pop("_declared", None)
        scores = self.parameters["softmax"]
        assert isinstance(scores, Stacked)  # what is refused elsewhere
        plates = (*self.plates, scores.plate)
        present = np.broadcast_to(self._present()[..., None], tuple(plate.size for plate in plates))
        twin.is_bounded, twin.is_by_class = False, True
        twin.parameters = {
            "softmax": scores,
            "omega": PolyaGamma(self, present.astype(np.float64), plates),
            "offset": ClassOffset(self, plates),
        }
        return twin

    @property
    def is_unknown(self) -> bool:
        """Whether logits of categories that are hidden, or missing in part, have to be bounded."""
        return self.link == "logits" and (not self.is_observed or self.mask is not None)

    def conditional(self, slots: Slots) -> Slots:
        if self.link == "probs":
            return slots
        return {"probs": PROBABILITIES[self.link](slots[self.link])}

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        probabilities = np.broadcast_to(slots["probs"], (*shape, slots["probs"].shape[-1]))
        cumulative = np.cumsum(probabilities, axis=-1)
        return np.asarray((rng.random((*shape, 1)) * cumulative[..., -1:] > cumulative).sum(-1))

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        places = np.broadcast_to(x[..., None], (*slots["probs"].shape[:-1], 1))
        with np.errstate(divide="ignore"):  # a draw of the parents may rule a category out
            return np.asarray(np.log(np.take_along_axis(slots["probs"], places, -1))[..., 0])

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        assert self.size is not None
        categories = checked_categories(f"{self.name!r}: observed", value, self.size, present)
        if isinstance(probs := self.parameters.get("probs"), Constant):
            table = np.broadcast_to(probs.value, (*categories.shape, self.size))
            chance = np.take_along_axis(table, categories[..., None], -1)[..., 0]
            check_possible(self, categories, chance > 0, present)
        return categories

    def observed_index(self, access: Access) -> Index | None:
        return observed_index(self, access)

    def log_density(self, scope: Scope) -> Polynomial:
        if self.is_unknown:
            return hidden_stick_density(self.parameters["logits"], self.parameters["omega"], self, scope)
        if self.is_by_class:
            scores, omega, offset = (self.parameters[name] for name in ("softmax", "omega", "offset"))
            assert isinstance(scores, Stacked)
            return class_by_class(scores, omega, offset, np.asarray(self.value), scope)
        if self.link != "probs":
            refuse_in_part(self, scope)
        if self.link == "weights":
            weights, time = self.parameters["weights"], self.parameters["time"]
            return weights_density(weights, time, category_take(self, scope), scope)
        if self.link != "probs":
            density = stick_density if self.link == "logits" else one_against_each
            return density(self.parameters[self.link], self.parameters["omega"], np.asarray(self.value), scope)
        probs = self.parameters["probs"]
        assert self.size is not None
        k = scope.fresh("k", self.size)
        if not self.is_observed or scope.in_part(self):
            chosen = self.own("x", scope, (k,)) * probs.stat("log", scope, (k,))
            if self.there is None:
                return chosen
            # What is not there has equal probabilities, under p as under q, and adds nothing to the bound.
            there, not_there = (
                scope.laid(part, scope.plate_names) for part in (self.there, (self.there - 1.0) * np.log(self.size))
            )
            return there * chosen + not_there
        table, take = probs.stat("log", scope, (k,)), category_take(self, scope)
        return Polynomial(tuple(picked(monomial, k, take) for monomial in table.monomials))


@final
class Multinomial(Node):
    """Counts [K] of ``trials`` draws from ``probs``, observed; ``trials=None`` takes the row sums."""

    family = families.Dirichlet()  # only for the shape of a value: a vector
    kind = COUNT
    has_table = True
    slots_of = (Slot("probs", SIMPLEX),)

    def __init__(
        self, name: str, trials: Any, probs: Any, *, plate: Plates = None, observed: Any = None, mask: Any = None
    ) -> None:
        must_be_observed(name, observed, "Multinomial")
        self._trials = None if trials is None else as_numbers(trials, f"{name!r}: trials", "known numbers or None")
        super().__init__(name, {"probs": probs}, plate, observed, mask)

    def _event_size(self, observed: Any) -> int | None:
        return event_length(self.parameters["probs"])

    @classmethod
    def placeholder(cls, options: Mapping[str, Any], shape: tuple[int, ...]) -> Array:
        probs = options["probs"]
        counts = np.zeros((*shape, (probs.size or 0) if isinstance(probs, Expression) else np.shape(probs)[-1]))
        counts[..., 0] = 0 if options["trials"] is None else options["trials"]
        return counts

    def saved_options(self) -> dict[str, Any]:
        return {"trials": self._trials}

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        self._support(value, (value >= 0) & (value == np.round(value)), present, "whole numbers ≥ 0")
        if isinstance(probs := self.parameters["probs"], Constant):
            check_possible(self, value, (probs.value > 0) | (value == 0), present)
        filled = np.where(present[..., None], value, 0).astype(np.float64)
        if self._trials is not None:
            self._check_trials(np.asarray(filled.sum(-1)), self._trials, present)
        return filled

    def _check_trials(self, total: npt.NDArray[Any], trials: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> None:
        try:
            wanted = np.broadcast_to(trials, total.shape)
        except ValueError:
            raise PlateMismatch(
                f"{self.name!r}: trials has shape {trials.shape}, but {total.shape} is needed, one number for each row"
            ) from None
        if (place := first(present & (total != wanted))) is not None:
            raise ValueError(
                f"{self.name!r}: observed{where(place)} sums to {total[place]:g}, but trials = {wanted[place]:g}; trials=None "
                "takes the row sums"
            )

    def log_density(self, scope: Scope) -> Polynomial:
        assert self.size is not None
        assert self.value is not None
        k = scope.fresh("k", self.size)
        ways = gammaln(self.value.sum(-1) + 1.0) - gammaln(self.value + 1.0).sum(-1)
        return self.own("x", scope, (k,)) * self.parameters["probs"].stat("log", scope, (k,)) + scope.numbers(ways)

    def with_trials_of(self, counts: Array | None) -> Multinomial:
        """It, or where no trials were declared a twin with as many as these counts have."""
        if self._trials is not None or counts is None:
            return self
        twin = copy.copy(self)
        twin._trials = np.asarray(counts.sum(-1))
        return twin

    def even_values(self, values: Array) -> Array:
        return np.asarray(np.sqrt(values / np.maximum(values.sum(-1, keepdims=True), 1.0)))

    def _trials_given(self) -> Array:
        """How many trials each row has."""
        if self._trials is None:
            raise TypeError(
                f"{self.name!r}: trials=None takes the sums of observed counts, and new rows have none: declare trials, a number "
                "or a Column"
            )
        return np.asarray(self._trials).astype(np.int64)

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        probabilities = np.broadcast_to(slots["probs"], (*shape, slots["probs"].shape[-1]))
        total = probabilities.sum(-1, keepdims=True)
        return rng.multinomial(np.broadcast_to(self._trials_given(), shape), probabilities / total)

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        return np.asarray(gammaln(x.sum(-1) + 1.0) - gammaln(x + 1.0).sum(-1) + xlogy(x, slots["probs"]).sum(-1))

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any]:
        share = slots["probs"] / slots["probs"].sum(-1, keepdims=True)
        mean = self._trials_given()[..., None] * share
        return mean, mean * (1.0 - share)

    def cdf_given(self, slots: Slots) -> Cdf:
        """Of the count of each category, which is a Binomial variable."""
        share = slots["probs"] / slots["probs"].sum(-1, keepdims=True)
        return Cdf(binomial_cdf, (self._trials_given()[..., None], share), True)


@final
class MarkovChain(Node):
    """z_1 ~ Cat(initial), z_t ~ Cat(transition[z_{t−1}]) along the last plate: one factor for the whole chain.

    Parameters
    ----------
    initial : Dirichlet or probabilities [K]
    transition : Dirichlet on a plate of K states, or probabilities [K, K]; row i holds P(next | i)
    plate : Plate or several
        The last one is time; those before it are independent sequences of equal length.
    lengths : ints, optional
        Several sequences laid end to end on the time plate: the length of each.
    observed : integers [plates…, time], optional
        States that are known; NaN, or ``mask`` False, where they are not. The others are inferred given these.
    """

    kind = CATEGORY
    is_chain = True
    slots_of = (Slot("initial", SIMPLEX), Slot("transition", SIMPLEX, events=2))

    def __init__(
        self,
        name: str,
        initial: Any,
        transition: Any,
        *,
        plate: Plates,
        lengths: Any = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        plates, self.lengths = chain_plates(name, plate, lengths)
        self.family = families.MarkovChain(self.lengths)
        self._evidence: npt.NDArray[np.float64] | None = None
        self._states = observed, mask
        self._seen: dict[str, Any] = {}
        super().__init__(name, {"initial": initial, "transition": transition}, plates)

    @property
    def block_plates(self) -> tuple[Plate, ...]:
        return self.plates[:-1]

    def stat_shapes(self) -> list[tuple[int, ...]]:
        marginals, first, pairs = super().stat_shapes()
        return [(*marginals[:-2], self.plates[-1].size, marginals[-1]), first, pairs]

    def _event_size(self, observed: Any) -> int | None:
        sizes = {name: event_length(self.parameters[name]) for name in ("initial", "transition")}
        if sizes["initial"] != sizes["transition"]:
            raise PlateMismatch(
                f"{self.name!r}: initial has {sizes['initial']} states, but the rows of transition have {sizes['transition']}"
            )
        size = sizes["initial"]
        assert size is not None
        self._evidence = self._checked_states(size)
        self.has_evidence = self._evidence is not None
        return size

    def _checked_states(self, size: int) -> npt.NDArray[np.float64] | None:
        """The potentials [plates…, time, state] of states that were observed: they rule out all others."""
        observed, mask = self._states
        if observed is None:
            if mask is not None:
                raise ValueError(
                    f"{self.name!r}: mask says which states were observed, but there are none: give observed= too"
                )
            return None
        states = as_observed(observed, f"{self.name!r}: observed")
        shape = tuple(plate.size for plate in self.plates)
        if states.shape != shape:
            raise PlateMismatch(
                f"{self.name!r}: observed has shape {states.shape}, but {shape} is needed ({plates_in_words(self.plates)})"
            )
        present = ~np.isnan(states) & checked_mask(self.name, mask, shape)
        chosen = checked_categories(f"{self.name!r}: observed", states, size, present)
        self._seen = {"observed": np.where(present, states, np.nan)}
        return np.where(present[..., None] & (np.arange(size) != chosen[..., None]), LOG_ZERO, 0.0)

    def saved_options(self) -> dict[str, Any]:
        return self._seen | ({} if self.lengths is None else {"lengths": np.array(self.lengths)})

    def log_density(self, scope: Scope) -> Polynomial:
        # The term lives on the sequences; time is inside the factor.
        scope.plates = self.block_plates
        initial, transition, size = self.parameters["initial"], self.parameters["transition"], self.size
        assert size is not None
        for slot, expression in self.parameters.items():
            if self.plates[-1].name in expression.leftover(scope.plates):
                raise PlateMismatch(
                    f"{self.name!r}: {slot} = {expression} lies on the time plate {self.plates[-1].name!r}, but a chain has one "
                    f"{slot} for all times"
                )
        i, j, k = (scope.fresh("k", size) for _ in range(3))
        if transition.is_known:
            table = transition.stat("log", scope, (i, j))
        else:
            plate = scope.single_leftover(transition, f"transition = {transition}, a row for each state,")
            scope.check_size(plate, i, f"transition = {transition}, a row for each state,")
            table = transition.stat("log", scope, (j,), {plate.name: i})
        first = self._chain("first", scope, (k,)) * initial.stat("log", scope, (k,))
        density = first + self._chain("pairs", scope, (i, j)) * table
        if self._evidence is None:
            return density
        time, state = scope.fresh("time", self.plates[-1].size), scope.fresh("k", size)
        seen = scope.laid(self._evidence, (*scope.plate_names, time, state))
        return density + seen * self._chain("x", scope, (time, state))

    def _chain(self, name: str, scope: Scope, labels: tuple[Label, ...]) -> Polynomial:
        return scope.moment(self, name, (*scope.plate_names, *labels))
