"""Auxiliary nodes: hidden variables that make a conditional conjugate, declared by the node that needs them, never by a user.

A node that is not conjugate by itself (a logistic link, a threshold, a sum of Poissons) becomes so together with one variable
for each of its elements. The auxiliary lives on the plates of its owner and is a parent of it; everything else, targets,
bounds, mini-batches, saving, sees one more hidden node. Its base measure is that of its family, so that it cancels in the
bound; what is left of its own density are its settings (a number of trials, bounds), which have the statistic 0 and reach λ by
their coefficient.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar, final

import numpy as np
import numpy.typing as npt

from natgrad import families
from natgrad.families._ops import Stats
from natgrad.families._truncated import sides_of
from natgrad.network.language.expressions import COUNT, POSITIVE, REAL, Expression
from natgrad.network.language.nodes import Node, Slot, Term
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
LOG_2PI = float(np.log(2.0 * np.pi))
AnyNode = TypeVar("AnyNode", bound=Node)


def as_auxiliary(node: AnyNode) -> AnyNode:
    """The node, marked as one that its owner declared: a fit lists it only when asked."""
    node.__dict__["is_auxiliary"] = True
    return node


class _Auxiliary(Node):
    """A node called ``owner.suffix``, on the plates of its owner.

    Of its log density the base measure leaves Σ coefficient · statistic: mostly settings, known numbers whose statistic is 0.
    """

    slots_of: tuple[Slot, ...] = ()
    is_auxiliary = True
    suffix: ClassVar[str]

    def __init__(
        self,
        owner: Node,
        coefficients: Mapping[str, Any] | None = None,
        plates: Plates | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> None:
        self.coefficients = coefficients or {}
        super().__init__(f"{owner.name}.{self.suffix}", parameters or {}, owner.plates if plates is None else plates)

    def _event_size(self, observed: Any) -> int | None:
        return None

    def log_density(self, scope: Scope) -> Polynomial:
        total = Polynomial()
        for name, value in self.coefficients.items():
            total += scope.numbers(value) * self.own(name, scope)
        return total


@final
class PolyaGamma(_Auxiliary):
    """ω ~ PG(trials, 0), one for each element of a node with a logistic link."""

    family, kind, suffix = families.PolyaGamma(), POSITIVE, "omega"

    def __init__(self, owner: Node, trials: Floats, plates: Plates | None = None) -> None:
        super().__init__(owner, {"trials": trials}, plates)


@final
class ClassOffset(_Auxiliary):
    """ω C of a class of a softmax (`links.class_by_class`); whoever draws it sets it."""

    family, kind, suffix = families.Normal(), REAL, "offset"

    def __init__(self, owner: Node, plates: Plates) -> None:
        super().__init__(owner, {"xx": -0.5}, plates)


class _WeightOfPresent(_Auxiliary):
    """One weight for each element of its owner, with a term of its own where nothing is observed, that adds 0 to the bound.

    There log p is ``level`` + ``slope`` · x.
    """

    suffix = "weight"
    level: ClassVar[float] = 0.0
    slope: ClassVar[float]

    def __init__(self, owner: Node, present: npt.NDArray[np.bool_]) -> None:
        self.missing, self._owner = 1.0 * ~present, owner
        super().__init__(owner)

    def log_density(self, scope: Scope) -> Polynomial:
        if self._owner.name in (scope.parts or ()):
            return Polynomial()  # missing values that others read have a weight like any
        return scope.numbers(self.missing) * (self.level + self.slope * self.own("x", scope))

    def declared_term(self, known: dict[str, npt.NDArray[Any]], parts: frozenset[str]) -> Term:
        return self.term(known, parts)  # which of its owner's missing values are read is decided by the network


@final
class LaplaceWeights(_WeightOfPresent):
    """u with base measure u^(−3/2) exp(−1/(2u)), one for each element of a Laplace node."""

    family, kind = families.LaplaceWeight(), POSITIVE
    level, slope = 1.0, -0.5  # the base measure has no moments: the weight of a distance of one


@final
class LogGamma(_WeightOfPresent):
    """log u with u ~ Gamma(Σ_k a_k, 1), one for each Dirichlet whose concentration a is learned: Γ(Σ_k a_k) is its integral."""

    family, kind = families.LogGamma(), REAL
    slope = 1.0  # log Γ(1) = 0


@final
class RaceTime(_WeightOfPresent):
    """u, when the first of K exponential clocks with rates r rings, one for each category that is taken by weights r.

    p(y, u) = r_y exp(−u Σ_k r_k): its integral over u is r_y / Σ_k r_k.
    """

    family, kind = families.Gamma(), POSITIVE
    slope = -1.0


class _Between(_Auxiliary):
    """A variable of which its owner has seen only that it lies between bounds.

    Elements that are not ``active`` are no part of the model: their owner knows them as numbers, or they are missing. A free z
    beside a missing observation would cost the bound, and the posterior its width: q takes z and its mean as independent.
    """

    kind, suffix = REAL, "latent"

    def __init__(
        self, owner: Node, parameters: dict[str, Any], bounds: tuple[Floats, Floats], active: Any = True
    ) -> None:
        self.active = np.asarray(active)
        ends = sides_of(*(np.where(active, bound, 0.0) for bound in bounds))  # any, where it is not active
        super().__init__(owner, dict(zip(("lower", "upper", "sides"), ends, strict=True)), None, parameters)

    @abstractmethod
    def _unbounded(self, scope: Scope) -> Polynomial:
        """The log density without bounds."""

    def log_density(self, scope: Scope) -> Polynomial:
        return where_known(self.active, self._unbounded(scope), scope) + super().log_density(scope)


@final
class LatentNormal(_Between):
    """z ~ N(mean, 1/precision), known to lie between bounds."""

    family = families.TruncatedNormal()
    slots_of = (Slot("mean", REAL), Slot("precision", POSITIVE))

    def _unbounded(self, scope: Scope) -> Polynomial:
        x, xx = self.own("x", scope), self.own("xx", scope)
        return gaussian_density(self.parameters["mean"], self.parameters["precision"], x, xx, scope)


@final
class LatentExponential(_Between):
    """t ~ Exp(rate), known to lie between bounds."""

    family = families.TruncatedExponential()
    slots_of = (Slot("rate", POSITIVE),)

    def _unbounded(self, scope: Scope) -> Polynomial:
        rate = self.parameters["rate"]
        return rate.stat("log", scope) - rate.stat("x", scope) * self.own("x", scope)


@final
class ConcentrationBound(_Auxiliary):
    """The slope of the tangent that bounds the normaliser of a Dirichlet with ``size`` categories from below."""

    family, kind, suffix = families.ConcentrationBound(), POSITIVE, "bound"

    def __init__(self, owner: Node, size: float) -> None:
        super().__init__(owner, {"size": size})


@final
class StickBound(_Auxiliary):
    """The slope of the tangent that bounds the normaliser of sticks with a discount and a learned concentration from below."""

    family, kind, suffix = families.StickBound(), POSITIVE, "bound"

    def __init__(self, owner: Node, offsets: npt.NDArray[Any]) -> None:
        self.offsets = offsets
        super().__init__(owner)

    def stat_shapes(self) -> list[tuple[int, ...]]:
        (plates, _) = super().stat_shapes()
        return [plates, (*plates, len(self.offsets))]

    def log_density(self, scope: Scope) -> Polynomial:
        k = scope.fresh("k", len(self.offsets))
        return scope.numbers(self.offsets, k) * self.own("offsets", scope, (k,))


@final
class LogisticBound(_Auxiliary):
    """The bounds of the logits of a category that is hidden, or missing in part: each counts as often as it is reached."""

    family, kind, suffix = families.LogisticBound(), POSITIVE, "omega"


@final
class Shares(_Auxiliary):
    """How an observed count was made up of the parts of its rate: a vector of ``size`` counts that sum to it."""

    family, kind, suffix = families.Shares(), COUNT, "shares"
    starts_drawn = True

    def __init__(self, owner: Node, counts: Floats, drawn: npt.NDArray[np.bool_]) -> None:
        self._drawn = drawn  # which parts are alike, so that their shares have to be drawn
        super().__init__(owner, {"count": counts})

    def _event_size(self, observed: Any) -> int | None:
        return len(self._drawn)

    def drawn_start(self, lam: Stats, rng: np.random.Generator) -> Stats:
        """Equal shares, but for those of parts that nothing else would tell apart."""
        noise = np.log(rng.gamma(1.0, size=np.shape(lam[0])) + 1e-3)
        return np.asarray(lam[0]) + np.where(self._drawn, noise, 0.0), lam[1]


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
    return scope.numbers(chosen * 1.0) * density
