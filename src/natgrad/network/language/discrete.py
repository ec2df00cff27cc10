"""Categories: Categorical, Multinomial; `binary.py` has Bernoulli and Binomial, `counts.py` counts without a limit.

Each node declares its conditional once, as its expected log density; messages, targets, natural gradients and the bound
are all derived from these polynomials. Observed categories
are indices into tables of log probabilities, never one-hot arrays.
"""

from __future__ import annotations

import copy
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
from natgrad.network.language.node_helpers import (
    Plates,
    category_take,
    check_possible,
    chosen_link,
    event_length,
    known,
    must_be_observed,
    observed_index,
)
from natgrad.network.language.nodes import Array, Node, Slot, Slots
from natgrad.network.language.plates import Index, Plate, as_plates
from natgrad.network.language.scope import Scope
from natgrad.network.language.slots import checked_categories, checked_mask
from natgrad.network.polynomial import Factor, Polynomial
from natgrad.validation import as_numbers, first, where

__all__ = ["Categorical", "Multinomial"]

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
                self.parameters["omega"] = LogisticBound(self, (*self.plates, sticks))
                return
            assert self.value is not None
            asked = (
                np.not_equal if self.link == "softmax" else np.greater_equal
            )  # the others; the sticks that were reached
            reached = asked(self.value[..., None], np.arange(sticks.size)) * self._present()[..., None]
            self.parameters["omega"] = PolyaGamma(self, reached.astype(np.float64), (*self.plates, sticks))

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
                Polynomial.of([Factor(scope.register(part), 0, scope.plate_names, known=True)])
                for part in (self.there, (self.there - 1.0) * np.log(self.size))
            )
            return there * chosen + not_there
        table, take = probs.stat("log", scope, (k,)), category_take(self, scope)
        return Polynomial(tuple(picked(monomial, k, take) for monomial in table.monomials))


@final
class Multinomial(Node):
    """Counts [K] of ``trials`` draws from ``probs``, observed; ``trials=None`` takes the row sums."""

    family = families.Dirichlet()  # only for the shape of a value: a vector
    kind = COUNT
    slots_of = (Slot("probs", SIMPLEX),)

    def __init__(
        self,
        name: str,
        trials: Any,
        probs: Any,
        *,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        must_be_observed(name, observed, "Multinomial")
        self._trials = None if trials is None else as_numbers(trials, f"{name!r}: trials", "known numbers or None")
        super().__init__(name, {"probs": probs}, plate, observed, mask)

    def _event_size(self, observed: Any) -> int | None:
        return event_length(self.parameters["probs"])

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
        return self.own("x", scope, (k,)) * self.parameters["probs"].stat("log", scope, (k,)) + known(scope, ways)

    def with_trials_of(self, counts: Array | None) -> Multinomial:
        """It, or where no trials were declared a twin with as many as these counts have."""
        if self._trials is not None or counts is None:
            return self
        twin = copy.copy(self)
        twin._trials = np.asarray(counts.sum(-1))
        return twin

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
