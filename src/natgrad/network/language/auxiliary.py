"""Auxiliary nodes: hidden variables that make a conditional conjugate, declared by the node that needs them, never by a user.

A node that is not conjugate by itself (a logistic link, a threshold, a sum of Poissons) becomes so together with one variable
for each of its elements. The auxiliary lives on the plates of its owner and is a parent of it; everything else, targets,
bounds, mini-batches, saving, sees one more hidden node. Its base measure is that of its family, so that it cancels in the
bound; what is left of its own density are its settings (a number of trials, bounds), which have the statistic 0 and reach λ by
their coefficient.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeVar, final

import numpy as np
import numpy.typing as npt

from natgrad import families
from natgrad.families._truncated import sides_of
from natgrad.network.language.expressions import COUNT, POSITIVE, REAL, Expression
from natgrad.network.language.nodes import Node, ScalarNode, Slot, Term, known
from natgrad.network.language.plates import Plate
from natgrad.network.language.scope import Scope
from natgrad.network.polynomial import Polynomial

__all__ = [
    "ClassOffset",
    "ConcentrationBound",
    "LaplaceWeights",
    "LatentExponential",
    "LatentNormal",
    "LogGamma",
    "LogisticBound",
    "PolyaGamma",
    "RaceTime",
    "Shares",
    "StickBound",
    "as_auxiliary",
    "gaussian_density",
    "where_known",
]

Floats = npt.NDArray[np.float64]
Plates = tuple[Plate, ...]
Bounds = tuple[Floats, Floats]
LOG_2PI = float(np.log(2.0 * np.pi))
AnyNode = TypeVar("AnyNode", bound=Node)


def as_auxiliary(node: AnyNode) -> AnyNode:
    """The node, marked as one that its owner declared: a fit lists it only when asked."""
    node.__dict__["is_auxiliary"] = True
    return node


@final
class PolyaGamma(ScalarNode):
    """ω ~ PG(trials, 0), one for each element of a node with a logistic link."""

    family = families.PolyaGamma()
    kind = POSITIVE
    slots_of = ()
    is_auxiliary = True

    def __init__(self, owner: Node, trials: Floats, plates: Plates | None = None) -> None:
        self.trials = trials
        super().__init__(f"{owner.name}.omega", {}, owner.plates if plates is None else plates)

    def log_density(self, scope: Scope) -> Polynomial:
        return known(scope, self.trials) * self.own("trials", scope)


@final
class ClassOffset(ScalarNode):
    """ω C of a class of a softmax (`links.class_by_class`); whoever draws it sets it."""

    family = families.Normal()
    kind = REAL
    slots_of = ()
    is_auxiliary = True

    def __init__(self, owner: Node, plates: Plates) -> None:
        super().__init__(f"{owner.name}.offset", {}, plates)

    def log_density(self, scope: Scope) -> Polynomial:
        return -0.5 * self.own("xx", scope)


class _WeightOfPresent(ScalarNode):
    """One weight for each element of its owner, with a term of its own where nothing is observed, that adds 0 to the bound."""

    slots_of = ()
    is_auxiliary = True

    def __init__(self, owner: Node, present: npt.NDArray[np.bool_]) -> None:
        self.missing, self._owner = 1.0 * ~present, owner
        super().__init__(f"{owner.name}.weight", {}, owner.plates)

    @abstractmethod
    def _beside_nothing(self, scope: Scope) -> Polynomial:
        """The term where nothing is observed."""

    def log_density(self, scope: Scope) -> Polynomial:
        if self._owner.name in (scope.parts or ()):
            return Polynomial()  # missing values that others read have a weight like any
        return known(scope, self.missing) * self._beside_nothing(scope)

    def declared_term(self, known: dict[str, npt.NDArray[Any]], parts: frozenset[str]) -> Term:
        return self.term(known, parts)  # which of its owner's missing values are read is decided by the network


@final
class LaplaceWeights(_WeightOfPresent):
    """u with base measure u^(−3/2) exp(−1/(2u)), one for each element of a Laplace node."""

    family = families.LaplaceWeight()
    kind = POSITIVE

    def _beside_nothing(self, scope: Scope) -> Polynomial:
        return 1.0 + -0.5 * self.own("x", scope)  # the base measure has no moments: the weight of a distance of one


@final
class LatentNormal(ScalarNode):
    """z ~ N(mean, 1/precision), of which its owner has seen only that it lies between bounds.

    Elements that are not ``active`` are no part of the model: their owner knows them as numbers, or they are missing. A free z
    beside a missing observation would cost the bound, and the posterior its width: q takes z and its mean as independent.
    """

    family = families.TruncatedNormal()
    kind = REAL
    slots_of = (Slot("mean", REAL), Slot("precision", POSITIVE))
    is_auxiliary = True

    def __init__(self, owner: Node, mean: Any, precision: Any, bounds: Bounds, active: Any = True) -> None:
        self.bounds, self.active = _bounds(bounds, active), np.asarray(active)
        super().__init__(f"{owner.name}.latent", {"mean": mean, "precision": precision}, owner.plates)

    def log_density(self, scope: Scope) -> Polynomial:
        x, xx = self.own("x", scope), self.own("xx", scope)
        density = gaussian_density(self.parameters["mean"], self.parameters["precision"], x, xx, scope)
        return where_known(self.active, density, scope) + _settings(self, self.bounds, scope)


@final
class LatentExponential(ScalarNode):
    """t ~ Exp(rate), of which its owner has seen only that it lies between bounds; ``active`` as in `LatentNormal`."""

    family = families.TruncatedExponential()
    kind = REAL
    slots_of = (Slot("rate", POSITIVE),)
    is_auxiliary = True

    def __init__(self, owner: Node, rate: Any, bounds: Bounds, active: Any = True) -> None:
        self.bounds, self.active = _bounds(bounds, active), np.asarray(active)
        super().__init__(f"{owner.name}.latent", {"rate": rate}, owner.plates)

    def log_density(self, scope: Scope) -> Polynomial:
        rate = self.parameters["rate"]
        density = rate.stat("log", scope) - rate.stat("x", scope) * self.own("x", scope)
        return where_known(self.active, density, scope) + _settings(self, self.bounds, scope)


@final
class ConcentrationBound(ScalarNode):
    """The slope of the tangent that bounds the normaliser of a Dirichlet with ``size`` categories from below."""

    family = families.ConcentrationBound()
    kind = POSITIVE
    slots_of = ()
    is_auxiliary = True

    def __init__(self, owner: Node, size: float) -> None:
        self.n_categories = size
        super().__init__(f"{owner.name}.bound", {}, owner.plates)

    def log_density(self, scope: Scope) -> Polynomial:
        return self.n_categories * self.own("size", scope)


@final
class StickBound(ScalarNode):
    """The slope of the tangent that bounds the normaliser of sticks with a discount and a learned concentration from below."""

    family = families.StickBound()
    kind = POSITIVE
    slots_of = ()
    is_auxiliary = True

    def __init__(self, owner: Node, offsets: npt.NDArray[Any]) -> None:
        self.offsets = offsets
        super().__init__(f"{owner.name}.bound", {}, owner.plates)

    def stat_shapes(self) -> list[tuple[int, ...]]:
        (plates, _) = super().stat_shapes()
        return [plates, (*plates, len(self.offsets))]

    def log_density(self, scope: Scope) -> Polynomial:
        k = scope.fresh("k", len(self.offsets))
        return Polynomial.of([scope.constant(self.offsets, (k,))]) * self.own("offsets", scope, (k,))


@final
class LogGamma(_WeightOfPresent):
    """log u with u ~ Gamma(Σ_k a_k, 1), one for each Dirichlet whose concentration a is learned: Γ(Σ_k a_k) is its integral."""

    family = families.LogGamma()
    kind = REAL

    def _beside_nothing(self, scope: Scope) -> Polynomial:
        return self.own("x", scope)  # log Γ(1) = 0


@final
class RaceTime(_WeightOfPresent):
    """u, when the first of K exponential clocks with rates r rings, one for each category that is taken by weights r.

    p(y, u) = r_y exp(−u Σ_k r_k): its integral over u is r_y / Σ_k r_k.
    """

    family = families.Gamma()
    kind = POSITIVE

    def _beside_nothing(self, scope: Scope) -> Polynomial:
        return -1.0 * self.own("x", scope)


@final
class LogisticBound(ScalarNode):
    """The bounds of the logits of a category that is hidden, or missing in part: each counts as often as it is reached."""

    family = families.LogisticBound()
    kind = POSITIVE
    slots_of = ()
    is_auxiliary = True

    def __init__(self, owner: Node, plates: Plates) -> None:
        super().__init__(f"{owner.name}.omega", {}, plates)

    def log_density(self, scope: Scope) -> Polynomial:
        return Polynomial()


@final
class Shares(Node):
    """How an observed count was made up of the parts of its rate: a vector of ``size`` counts that sum to it."""

    family = families.Shares()
    kind = COUNT
    slots_of = ()
    is_auxiliary = starts_drawn = True

    def __init__(self, owner: Node, counts: Floats, drawn: npt.NDArray[np.bool_]) -> None:
        self.counts = counts
        self._drawn = drawn  # which parts are alike, so that their shares have to be drawn
        self._size = len(drawn)
        super().__init__(f"{owner.name}.shares", {}, owner.plates)

    def _event_size(self, observed: Any) -> int | None:
        return self._size

    def drawn_logits(self, logits: Any, rng: np.random.Generator) -> Floats:
        """Where the shares start: equal, but for those of parts that nothing else would tell apart."""
        noise = np.log(rng.gamma(1.0, size=np.shape(logits)) + 1e-3)
        return np.asarray(logits) + np.where(self._drawn, noise, 0.0)

    def log_density(self, scope: Scope) -> Polynomial:
        return known(scope, self.counts) * self.own("count", scope)


def gaussian_density(
    mean: Expression,
    precision: Expression,
    x: Polynomial,
    xx: Polynomial,
    scope: Scope,
    weight: Polynomial | None = None,
    flat: bool = False,
) -> Polynomial:
    """E[log N(x | mean, 1/(precision · weight))] in moments, but for ½ E[log weight]; of a flat law without its normaliser."""
    m, mm = mean.stat("x", scope), mean.stat("xx", scope)
    t = precision.stat("x", scope)
    scale = t if weight is None else t * weight
    density = scale * (x * m - 0.5 * xx - 0.5 * mm)
    return density if flat else density + 0.5 * precision.stat("log", scope) - 0.5 * LOG_2PI


def where_known(chosen: npt.NDArray[np.bool_], density: Polynomial, scope: Scope) -> Polynomial:
    """The density of chosen elements alone; written in the same way whichever are, as other chunks of a table have others."""
    return known(scope, chosen * 1.0) * density


def _bounds(bounds: Bounds, active: Any) -> dict[str, Floats]:
    """Bounds as settings; what is not active is a known number that nobody reads."""
    lower, upper, sides = sides_of(*(np.where(active, bound, 0.0) for bound in bounds))
    return {"lower": lower, "upper": upper, "sides": sides}


def _settings(node: Node, values: dict[str, Floats], scope: Scope) -> Polynomial:
    """Numbers that are settings of a family: each the coefficient of a statistic that is 0."""
    total = Polynomial()
    for name, value in values.items():
        total += known(scope, value) * node.own(name, scope)
    return total
