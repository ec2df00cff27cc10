"""Discrete nodes: Categorical, Bernoulli, Binomial, Multinomial, Poisson, MarkovChain.

Each node declares its conditional once, as its expected log density; messages, targets, natural gradients and the bound
are all derived from these polynomials. Observed categories
are indices into tables of log probabilities, never one-hot arrays.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from natgrad import families
from natgrad.errors import PlateMismatch
from natgrad.network.expressions import CATEGORY, COUNT, POSITIVE, SIMPLEX, UNIT, Access, Constant
from natgrad.network.node_helpers import Plates, ScalarNode, event_length, known, must_be_observed, numbers
from natgrad.network.nodes import Node, Slot, category_take, checked_categories
from natgrad.network.plates import Index, Plate
from natgrad.network.polynomial import Factor, Monomial, Polynomial
from natgrad.network.scope import Scope

__all__ = ["Bernoulli", "Binomial", "Categorical", "MarkovChain", "Multinomial", "Poisson"]


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
        return checked_categories(self.name, value, self.size, present)

    def observed_index(self, access: Access) -> Index | None:
        return _observed_index(self, access)

    def log_density(self, scope: Scope) -> Polynomial:
        probs = self.parameters["probs"]
        assert self.size is not None
        if not self.is_observed:
            k = scope.fresh("k", self.size)
            return self.own("x", scope, (k,)) * probs.stat("log", scope, (k,))
        k = scope.fresh("k", self.size)
        table, take = probs.stat("log", scope, (k,)), category_take(self, scope)
        return Polynomial(tuple(_picked(monomial, k, take) for monomial in table.monomials))


@final
class Bernoulli(ScalarNode):
    """x ~ Bernoulli(prob): 0 or 1."""

    family = families.Bernoulli()
    kind = COUNT
    slots_of = (Slot("prob", UNIT),)

    def __init__(self, name: str, prob: Any, *, plate: Plates = None, observed: Any = None, mask: Any = None) -> None:
        super().__init__(name, {"prob": prob}, plate, observed, mask)

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        self._support(value, (value == 0) | (value == 1), present, "0 or 1")
        return np.where(present, value, 0).astype(np.float64)

    def log_density(self, scope: Scope) -> Polynomial:
        prob, x = self.parameters["prob"], self.own("x", scope)
        return x * prob.stat("log", scope) + (1.0 + -1.0 * x) * prob.stat("log1m", scope)


@final
class Binomial(ScalarNode):
    """x ~ Binomial(trials, prob), observed."""

    family = families.Bernoulli()
    kind = COUNT
    slots_of = (Slot("trials", POSITIVE, fixed=True), Slot("prob", UNIT))

    def __init__(
        self,
        name: str,
        trials: Any,
        prob: Any,
        *,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        must_be_observed(name, observed, "Binomial")
        super().__init__(name, {"trials": trials, "prob": prob}, plate, observed, mask)

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        trials = numbers(self.parameters["trials"])
        self._support(
            value,
            (value >= 0) & (value <= trials) & (value == np.round(value)),
            present,
            "whole numbers 0 … trials",
        )
        return np.where(present, value, 0).astype(np.float64)

    def log_density(self, scope: Scope) -> Polynomial:
        assert self.value is not None
        trials, prob = numbers(self.parameters["trials"]), self.parameters["prob"]
        x = self.own("x", scope)
        ways = gammaln(trials + 1.0) - gammaln(self.value + 1.0) - gammaln(trials - self.value + 1.0)
        rest = known(scope, trials) - x
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
        self._trials = None if trials is None else np.asarray(trials, dtype=np.float64)
        super().__init__(name, {"probs": probs}, plate, observed, mask)

    def _event_size(self, observed: Any) -> int | None:
        return event_length(self.parameters["probs"])

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        if value.shape[-1] != self.size:
            raise PlateMismatch(
                f"{self.name!r}: observed has {value.shape[-1]} columns, but probs has {self.size} categories"
            )
        self._support(value, (value >= 0) & (value == np.round(value)), present, "whole numbers ≥ 0")
        filled = np.where(present[..., None], value, 0).astype(np.float64)
        if self._trials is not None and (bad := np.argwhere(present & (filled.sum(-1) != self._trials))).size:
            raise ValueError(
                f"{self.name!r}: observed{bad[0].tolist()} sums to {filled.sum(-1)[tuple(bad[0])]:g}, not to trials; "
                "trials=None takes the row sums"
            )
        return filled

    def log_density(self, scope: Scope) -> Polynomial:
        assert self.size is not None
        assert self.value is not None
        k = scope.fresh("k", self.size)
        ways = gammaln(self.value.sum(-1) + 1.0) - gammaln(self.value + 1.0).sum(-1)
        return self.own("x", scope, (k,)) * self.parameters["probs"].stat("log", scope, (k,)) + known(scope, ways)


@final
class Poisson(ScalarNode):
    """x ~ Poisson(rate): a count."""

    family = families.Poisson()
    kind = COUNT
    slots_of = (Slot("rate", POSITIVE),)

    def __init__(self, name: str, rate: Any, *, plate: Plates = None, observed: Any = None, mask: Any = None) -> None:
        super().__init__(name, {"rate": rate}, plate, observed, mask)

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        self._support(value, (value >= 0) & (value == np.round(value)), present, "whole numbers ≥ 0")
        return np.where(present, value, 0).astype(np.float64)

    def log_density(self, scope: Scope) -> Polynomial:
        rate, x = self.parameters["rate"], self.own("x", scope)
        density = x * rate.stat("log", scope) - rate.stat("x", scope)
        # A hidden count has the same base measure −log x! in q, so the two cancel in the bound.
        return density if self.value is None else density - known(scope, gammaln(self.value + 1.0))


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
    """

    kind = CATEGORY
    slots_of = (Slot("initial", SIMPLEX), Slot("transition", SIMPLEX))

    def __init__(
        self,
        name: str,
        initial: Any,
        transition: Any,
        *,
        plate: Plates,
        lengths: Any = None,
        observed: Any = None,
    ) -> None:
        if observed is not None:
            raise TypeError(
                f"{name!r}: an observed chain is a Categorical with probs=transition[previous state]; leave observed out"
            )
        lengths = None if lengths is None else tuple(int(n) for n in lengths)
        self.family = families.MarkovChain(lengths)
        super().__init__(name, {"initial": initial, "transition": transition}, plate)
        if not self.plates:
            raise PlateMismatch(f"{name!r}: a chain needs a plate: time")
        if lengths is not None and (sum(lengths) != self.plates[-1].size or min(lengths) < 1):
            raise PlateMismatch(
                f"{name!r}: lengths sum to {sum(lengths)} (smallest {min(lengths)}), but plate {self.plates[-1].name!r} has "
                f"{self.plates[-1].size} elements"
            )
        if self.plates[-1].weight is not None:
            raise PlateMismatch(f"{name!r}: the time plate {self.plates[-1].name!r} of a chain cannot carry weights")

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
                f"{self.name!r}: initial has {sizes['initial']} states, transition {sizes['transition']}"
            )
        return sizes["initial"]

    def log_density(self, scope: Scope) -> Polynomial:
        # The term lives on the sequences; time is inside the factor.
        scope.plates = self.block_plates
        initial, transition, size = self.parameters["initial"], self.parameters["transition"], self.size
        assert size is not None
        i, j, k = (scope.fresh("k", size) for _ in range(3))
        if isinstance(transition, Constant):
            table = transition.stat("log", scope, (i, j))
        else:
            plate = scope.single_leftover(transition, "transition")
            scope.check_size(plate, i, f"transition {transition}")
            table = transition.stat("log", scope, (j,), {plate.name: i})
        return (
            self._chain("first", scope, (k,)) * initial.stat("log", scope, (k,))
            + self._chain("pairs", scope, (i, j)) * table
        )

    def _chain(self, name: str, scope: Scope, labels: tuple[str, ...]) -> Polynomial:
        stat = self.family.stat_names.index(name)
        axes = (*scope.plate_names, *labels)
        return Polynomial.of([Factor(self.name, stat, axes, known=False)])


def _picked(monomial: Monomial, label: str, take: Any) -> Monomial:
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
        raise ValueError(f"{node.name!r} chooses components but has missing values: leave it hidden, or fill them in")
    values, names = node.value, tuple(plate.name for plate in node.plates)
    if any(isinstance(selector, Index) for selector in access.selectors):
        if len(access.selectors) > 1:
            raise PlateMismatch(
                f"{access}: an observed category on several plates cannot be gathered; index its values"
            )
        index = access.selectors[0]
        assert isinstance(index, Index)
        return Index(values[index.values], index.plates)
    return Index(values, names)
