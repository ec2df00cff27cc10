"""Discrete nodes: Categorical, Bernoulli, Binomial, Multinomial; `counts.py` has Poisson and NegativeBinomial.

Each node declares its conditional once, as its expected log density; messages, targets, natural gradients and the bound
are all derived from these polynomials. Observed categories
are indices into tables of log probabilities, never one-hot arrays.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy.special import expit, gammaln, ndtr

from natgrad import families
from natgrad.errors import PlateMismatch
from natgrad.network.compile.polynomial import Factor, Label, Monomial, Polynomial
from natgrad.network.language.auxiliary import LatentNormal, PolyaGamma
from natgrad.network.language.expressions import CATEGORY, COUNT, POSITIVE, SIMPLEX, UNIT, Access, Constant
from natgrad.network.language.links import LINKS, chosen_link, logistic_density
from natgrad.network.language.node_helpers import (
    Plates,
    ScalarNode,
    event_length,
    known,
    must_be_observed,
    numbers,
)
from natgrad.network.language.nodes import Node, Slot, category_take
from natgrad.network.language.plates import Index
from natgrad.network.language.scope import Scope
from natgrad.network.language.slots import checked_categories, spread
from natgrad.validation import as_numbers, first, require, where

__all__ = ["Bernoulli", "Binomial", "Categorical", "Multinomial"]


@final
class Categorical(Node):
    """z ~ Cat(probs): an integer 0 … K − 1. Hidden, it chooses components: ``mu[z]``."""

    family = families.Categorical()
    kind = CATEGORY
    slots_of = (Slot("probs", SIMPLEX),)

    def __init__(self, name: str, probs: Any, *, plate: Plates = None, observed: Any = None, mask: Any = None) -> None:
        super().__init__(name, {"probs": probs}, plate, observed, mask)

    def _event_size(self, observed: Any) -> int | None:
        return event_length(self.parameters["probs"])

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        assert self.size is not None
        categories = checked_categories(f"{self.name!r}: observed", value, self.size, present)
        if isinstance(probs := self.parameters["probs"], Constant):
            table = np.broadcast_to(probs.value, (*categories.shape, self.size))
            chance = np.take_along_axis(table, categories[..., None], -1)[..., 0]
            _check_possible(self, categories, chance > 0, present)
        return categories

    def observed_index(self, access: Access) -> Index | None:
        return _observed_index(self, access)

    def log_density(self, scope: Scope) -> Polynomial:
        probs = self.parameters["probs"]
        assert self.size is not None
        if not self.is_observed or scope.in_part(self):
            k = scope.fresh("k", self.size)
            return self.own("x", scope, (k,)) * probs.stat("log", scope, (k,))
        k = scope.fresh("k", self.size)
        table, take = probs.stat("log", scope, (k,)), category_take(self, scope)
        return Polynomial(tuple(_picked(monomial, k, take) for monomial in table.monomials))


@final
class Bernoulli(ScalarNode):
    """x ~ Bernoulli(prob): 0 or 1. Or with a link: ``logit=`` (prob = σ(logit)), ``probit=`` (prob = Φ(probit), observed).

    It may choose between two components, as a category does: ``mu[x]``, ``table(values)[x]``.

    A link takes what a mean takes (a Normal, a dot, sums of these) and is made conjugate by an auxiliary variable for each
    element (Pólya–Gamma, truncated Normal), which is named after the node and hidden unless asked for: ``fit["y.omega"]``,
    ``fit["y.latent"]``.

    Examples
    --------
    >>> import natgrad as ng, numpy as np
    >>> w = ng.MultivariateNormal("w", np.zeros(2), np.eye(2))
    >>> X, n = np.array([[1.0, -1.0], [1.0, 0.0], [1.0, 2.0]]), ng.Plate("n", 3)
    >>> fit = ng.Network(ng.Bernoulli("y", logit=ng.dot(X, w), plate=n, observed=[0, 1, 1])).fit()
    >>> list(fit), fit.predictive("y", logit=ng.dot([[1.0, 3.0]], w)).mean().round(1)
    (['w'], array([0.8]))
    """

    family = families.Binary()
    kind = COUNT

    def __init__(
        self,
        name: str,
        prob: Any = None,
        *,
        logit: Any = None,
        probit: Any = None,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        self.link, value = chosen_link(name, "Bernoulli", {"prob": prob, "logit": logit, "probit": probit})
        self.slots_of = (LINKS.get(self.link, Slot("prob", UNIT)),)
        if self.link == "probit":
            must_be_observed(name, observed, "Bernoulli with probit=")
        super().__init__(name, {self.link: value}, plate, observed, mask)

    def _augment(self) -> None:
        if self.link == "logit":
            self.parameters["omega"] = PolyaGamma(self, np.ones(()))
        elif self.link == "probit":
            assert self.value is not None
            bounds = np.where(self.value == 1, 0.0, -np.inf), np.where(self.value == 1, np.inf, 0.0)
            self.parameters["latent"] = LatentNormal(self, self.parameters["probit"], 1.0, bounds, self._present())

    def conditional(self, slots: dict[str, Any]) -> dict[str, Any]:
        return {"prob": {"prob": lambda p: p, "logit": expit, "probit": ndtr}[self.link](slots[self.link])}

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        self._support(value, (value == 0) | (value == 1), present, "0 or 1")
        if isinstance(prob := self.parameters.get("prob"), Constant):
            _check_possible(self, value, np.where(value == 1, prob.value > 0, prob.value < 1), present)
        return np.where(present, value, 0).astype(np.float64)

    @property
    def categories(self) -> int | None:
        return 2

    def observed_index(self, access: Access) -> Index | None:
        return _observed_index(self, access)

    def observed_stat(self, name: str) -> npt.NDArray[Any]:
        assert self.value is not None
        return self.value if name == "x" else 1.0 - self.value

    def log_density(self, scope: Scope) -> Polynomial:
        if self.link == "probit":
            return Polynomial()  # what was seen is in the bounds of the latent variable
        x = self.own("x", scope)
        if self.link == "logit":
            return logistic_density(self.parameters["logit"], self.parameters["omega"], x, np.ones(()), scope)
        prob = self.parameters["prob"]
        return x * prob.stat("log", scope) + self.own("rest", scope) * prob.stat("log1m", scope)


@final
class Binomial(ScalarNode):
    """x ~ Binomial(trials, prob), observed. Or with a link, ``logit=``: prob = σ(logit), as in `Bernoulli`."""

    family = families.Bernoulli()
    kind = COUNT

    def __init__(
        self,
        name: str,
        trials: Any,
        prob: Any = None,
        *,
        logit: Any = None,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        must_be_observed(name, observed, "Binomial")
        self.link, value = chosen_link(name, "Binomial", {"prob": prob, "logit": logit})
        self.slots_of = (Slot("trials", POSITIVE, fixed=True), LINKS.get(self.link, Slot("prob", UNIT)))
        super().__init__(name, {"trials": trials, self.link: value}, plate, observed, mask)

    def _augment(self) -> None:
        if self.link == "logit":
            self.parameters["omega"] = PolyaGamma(self, numbers(self.parameters["trials"]))

    def conditional(self, slots: dict[str, Any]) -> dict[str, Any]:
        return slots if self.link == "prob" else {**slots, "prob": expit(slots["logit"])}

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        trials = numbers(self.parameters["trials"])
        require(trials == np.round(trials), trials, f"{self.name!r}: trials", "a whole number")
        self._support(
            value,
            (value >= 0) & (value <= trials) & (value == np.round(value)),
            present,
            "whole numbers 0 … trials",
        )
        if isinstance(prob := self.parameters.get("prob"), Constant):
            possible = ((prob.value > 0) | (value == 0)) & ((prob.value < 1) | (value == trials))
            _check_possible(self, value, possible, present)
        return np.where(present, value, 0).astype(np.float64)

    def log_density(self, scope: Scope) -> Polynomial:
        assert self.value is not None
        trials = numbers(self.parameters["trials"])
        x = self.own("x", scope)
        ways = gammaln(trials + 1.0) - gammaln(self.value + 1.0) - gammaln(trials - self.value + 1.0)
        if self.link == "logit":
            density = logistic_density(self.parameters["logit"], self.parameters["omega"], x, trials, scope)
            return density + known(scope, ways)
        prob = self.parameters["prob"]
        rest = known(scope, trials - self.value)
        return x * prob.stat("log", scope) + rest * prob.stat("log1m", scope) + known(scope, ways)


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
            _check_possible(self, value, (probs.value > 0) | (value == 0), present)
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


def _check_possible(
    node: Node, value: npt.NDArray[Any], possible: npt.NDArray[np.bool_], present: npt.NDArray[np.bool_]
) -> None:
    """Known probabilities must allow what was observed; log 0 would swallow the whole bound."""
    if (place := first(spread(present, value.ndim) & ~possible)) is not None:
        slot = node.slots_of[-1].name
        raise ValueError(
            f"{node.name!r}: observed{where(place)} = {value[place]:g} has probability 0 under the {slot} given"
        )


def _picked(monomial: Monomial, label: Label, take: Any) -> Monomial:
    """The same monomial with one event axis read through observed categories."""
    factors = []
    for factor in monomial.factors:
        axes = tuple(take if axis == label else axis for axis in factor.axes)
        factors.append(Factor(factor.source, factor.stat, axes, factor.known, factor.occurrence))
    return Monomial(monomial.coefficient, tuple(factors), monomial.deltas)


def _observed_index(node: Node, access: Access) -> Index | None:
    if node.value is None:
        return None
    if node.mask is not None:
        return None  # what is missing is inferred: a gate, in which what was observed is certain
    if any(isinstance(selector, Access) for selector in access.selectors):
        return None  # a hidden category chooses which observed one does: a gate, though one with known numbers
    values, names = node.value.astype(np.int64), tuple(plate.name for plate in node.plates)
    indices = [selector for selector in access.selectors if isinstance(selector, Index)]
    if not indices:
        return Index(values, names, (node,))
    if len(indices) < len(names) or len({(index.plates, index.values.shape) for index in indices}) > 1:
        raise PlateMismatch(
            f"{access}: an observed category on several plates is read with one index for each of them, all on the same plates; "
            "otherwise index its values"
        )
    chosen = tuple(entry for index in indices for entry in index.categories)
    return Index(values[tuple(index.values for index in indices)], indices[0].plates, (*chosen, node))
