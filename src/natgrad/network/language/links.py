"""Links of discrete nodes: how a real number (or several) becomes a probability, and what makes that conjugate.

logit     P(1) = σ(ψ).  With ω ~ PG(b, 0) (Polson, Scott & Windle, 2013)
              σ(ψ)^a σ(−ψ)^(b − a)  =  2^(−b) E_ω[exp((a − b/2) ψ − ½ ω ψ²)]
          which is Gaussian in ψ. The bound is that of Jaakkola & Jordan (2000), ξ² = E[ψ²].
probit    P(1) = Φ(ψ).  y = 1 where z > 0, z ~ N(ψ, 1) (Albert & Chib, 1993); q(z) is a truncated Normal.
logits    of K categories, by stick-breaking (Linderman, Johnson & Adams, 2015): category k is taken with probability σ(ψ_k) if
          none before it was; K − 1 numbers, exact, and each a logit.
softmax   of K categories, bounded from below by one-against-each (Titsias, 2016)
              exp(ψ_y) / Σ_j exp(ψ_j)  ≥  Π_{j≠y} σ(ψ_y − ψ_j)
          in which each factor is a logit of a difference; no order of the categories, but a bound of the likelihood.
weights   P(k) = r_k / Σ_j r_j.  With u, when the first of clocks with rates r rings,
              p(y, u) = r_y exp(−u Σ_j r_j)
          which is conjugate to Gammas. The bound has log Σ_j E[r_j] in place of the normaliser.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_expit

from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.network.language.expressions import REAL, UNIT, VECTOR, Bind, Expression
from natgrad.network.language.nodes import Node, Slot
from natgrad.network.language.plates import Plate
from natgrad.network.language.scope import Scope
from natgrad.network.polynomial import Factor, Label, Monomial, Polynomial, Take

__all__ = [
    "LINKS",
    "Stacked",
    "class_by_class",
    "hidden_stick_density",
    "logistic_density",
    "one_against_each",
    "picked",
    "refuse_in_part",
    "shares_of_weights",
    "softmax",
    "stick_density",
    "stick_probabilities",
    "weights_density",
]

LOG_2 = float(np.log(2.0))
Array = npt.NDArray[Any]
LINKS = {"prob": Slot("prob", UNIT), "logit": Slot("logit", REAL), "probit": Slot("probit", REAL)}


def refuse_in_part(node: Node, scope: Scope) -> None:
    """Thresholds and logits of several categories are conjugate for what was observed alone."""
    if scope.in_part(node):
        raise NotConjugate(
            f"{node.name!r} is missing in part, and another node reads it: with its link what is missing has no closed form. "
            "Observe it, or leave out what reads it"
        )


def logistic_density(
    psi: Expression, omega: Expression, successes: Polynomial, trials: Array, scope: Scope
) -> Polynomial:
    """(a − b/2) ψ − ½ ω ψ² − b log 2, in moments: a log σ(ψ) + (b − a) log σ(−ψ) given ω."""
    linear = (successes - scope.numbers(0.5 * trials)) * psi.stat("x", scope)
    return linear - 0.5 * omega.stat("x", scope) * psi.stat("xx", scope) - scope.numbers(LOG_2 * trials)


def stick_density(logits: Expression, omega: Any, categories: Array, scope: Scope) -> Polynomial:
    """Of K − 1 logits: each that was reached is a logit of its own, taken or not."""
    size = logits.size or 0
    k = scope.fresh("stick", size)
    reached = (categories[..., None] >= np.arange(size)) * 1.0
    taken = (categories[..., None] == np.arange(size)) * 1.0
    weight = omega.stat("x", scope, (), {omega.plates[-1].name: k})
    linear = scope.numbers(taken - 0.5 * reached, k) * logits.stat("x", scope, (k,))
    square: Polynomial = 0.5 * weight * logits.stat("xx", scope, (k, k))
    return linear - square - scope.numbers(LOG_2 * reached.sum(-1))


def hidden_stick_density(logits: Expression, omega: Any, owner: Node, scope: Scope) -> Polynomial:
    """The same where the category is not known: the logit of stick j counts with the probability that it is reached.

    Σ_j E[1{z = j} − ½ 1{z ≥ j}] ψ_j − E[1{z ≥ j}] (log 2 + ½ w_j ψ_j² − κ_j), with (w_j, κ_j) of a `families.LogisticBound`.
    """
    size = logits.size or 0
    k, j = scope.fresh("k", size + 1), scope.fresh("stick", size)
    category, stick = np.arange(size + 1)[:, None], np.arange(size)
    reached, taken = ((asked * 1.0).astype(np.float64) for asked in (category >= stick, category == stick))
    if owner.is_observed and not scope.in_part(owner):  # what is missing is nobody's parent, and masked
        own = scope.numbers(np.asarray(np.eye(size + 1)[owner.value], np.float64), k)
    else:
        own = owner.own("x", scope, (k,))
    linear, counts = (scope.numbers(array, k, j) for array in (taken - 0.5 * reached, reached))
    bind = {omega.plates[-1].name: j}
    weight, value = omega.stat("x", scope, (), bind), omega.stat("value", scope, (), bind)
    square: Polynomial = 0.5 * weight * logits.stat("xx", scope, (j, j))
    density: Polynomial = own * linear * logits.stat("x", scope, (j,)) + own * counts * (value - square + -LOG_2)
    return density


def one_against_each(scores: Expression, omega: Any, categories: Array, scope: Scope) -> Polynomial:
    """Of K scores: a logit of the difference to each of the others, each of which was won by the observed category."""
    size = scores.size or 0
    k, j = scope.fresh("winner", size), scope.fresh("loser", size)
    won = (categories[..., None] == np.arange(size)) * 1.0
    winner, loser = (scope.numbers(w, label) for w, label in ((won, k), (1.0 - won, j)))
    linear = 0.5 * (size - 1) * winner * scores.stat("x", scope, (k,)) - 0.5 * loser * scores.stat("x", scope, (j,))
    pairs: Polynomial = winner * loser * omega.stat("x", scope, (), {omega.plates[-1].name: j})
    square = (
        scores.stat("xx", scope, (k, k)) + scores.stat("xx", scope, (j, j)) - 2.0 * scores.stat("xx", scope, (k, j))
    )
    return linear - 0.5 * pairs * square - LOG_2 * (size - 1)


def class_by_class(scores: Stacked, omega: Any, offset: Any, categories: Array, scope: Scope) -> Polynomial:
    """The logit of each class given the others, up to what does not depend on it: for draws, class after class.

    Σ_k (1{y = k} − ½) ψ_k − ½ ω_k ψ_k² + ω_k C_k ψ_k, with ω_k and ω_k C_k of the values of the moment.
    """
    k = scope.fresh("class", scores.plate.size)
    scope.couple(scores.inner, scores.plate)
    won = (categories[..., None] == np.arange(scores.plate.size)) * 1.0
    weight, pull = (aux.stat("x", scope, (), {aux.plates[-1].name: k}) for aux in (omega, offset))
    score = scores.stat("x", scope, (k,))
    linear: Polynomial = (scope.numbers(won - 0.5, k) + pull) * score
    square: Polynomial = 0.5 * weight * scores.stat("xx", scope, (k, k))
    return linear - square


def weights_density(weights: Expression, time: Any, take: Take, scope: Scope) -> Polynomial:
    """Log r_y − u Σ_j r_j, in moments."""
    size = weights.size or 0
    k, j = scope.fresh("taken", size), scope.fresh("clock", size)
    logs = weights.stat("log", scope, (k,))
    taken = Polynomial(tuple(picked(monomial, k, take) for monomial in logs.monomials))
    passed: Polynomial = time.stat("x", scope) * weights.stat("x", scope, (j,))
    return taken - passed


def picked(monomial: Monomial, label: Label, take: Take) -> Monomial:
    """The same monomial with one event axis read through observed categories."""
    factors = []
    for factor in monomial.factors:
        axes = tuple(take if axis == label else axis for axis in factor.axes)
        factors.append(Factor(factor.source, factor.stat, axes, factor.known, factor.occurrence))
    return Monomial(monomial.coefficient, tuple(factors), monomial.deltas)


def shares_of_weights(weights: Array) -> Array:
    """Probabilities of K categories from K weights.

    Examples
    --------
    >>> shares_of_weights(np.array([1.0, 3.0])).tolist()
    [0.25, 0.75]
    """
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def softmax(scores: Array) -> Array:
    """Probabilities of K categories from K scores.

    Examples
    --------
    >>> softmax(np.array([0.0, 0.0, 1e3])).tolist()
    [0.0, 0.0, 1.0]
    """
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def stick_probabilities(logits: Array) -> Array:
    """Probabilities of K categories from K − 1 logits, by stick-breaking.

    Examples
    --------
    >>> stick_probabilities(np.array([0.0, 0.0])).tolist()
    [0.5, 0.25, 0.25]
    """
    rest = np.cumsum(log_expit(-logits), axis=-1)
    before = np.concatenate([np.zeros((*logits.shape[:-1], 1)), rest], axis=-1)
    taken = np.concatenate([log_expit(logits), np.zeros((*logits.shape[:-1], 1))], axis=-1)
    return np.asarray(np.exp(before + taken))


class Stacked(Expression):
    """Real numbers along a plate that the reader does not have, as one vector: the logits or scores of categories."""

    kind = VECTOR

    def __init__(self, inner: Expression, plate: Plate) -> None:
        self.inner, self.plate, self.size, self.parts = inner, plate, plate.size, (inner,)

    @classmethod
    def of(cls, expression: Expression, plates: tuple[Plate, ...], name: str, slot: str) -> Stacked:
        """The numbers along the one plate that is not among those of the reader."""
        left = expression.leftover(plates)
        if len(left) != 1:
            raise PlateMismatch(
                f"{name!r}: {slot} = {expression} must lie along one plate that {name!r} is not on, one number for each category"
                f"{' but the last' if slot == 'logits' else ''}, found {sorted(left) or 'none'}"
            )
        plate = next(iter(left.values()))
        for access in expression.accesses() if slot == "softmax" else ():
            if access.node.categories is not None or access.node.is_observed:
                continue  # it chooses, and both scores of a pair are chosen by it
            if plate.name not in {p.name for p in access.node.plates}:
                raise NotConjugate(
                    f"{name!r}: softmax = {expression} reads {access}, which is the same for all categories: added, it cancels, "
                    f"and multiplied, the scores depend on one another. Leave it out, or give it plate {plate.name!r}"
                )
        return cls(expression, plate)

    def call(self) -> Expression:
        return self.inner

    def __str__(self) -> str:
        return str(self.inner)

    def stat(self, name: str, scope: Scope, labels: tuple[Label, ...] = (), bind: Bind | None = None) -> Polynomial:
        if name == "xx" and labels[0] != labels[1]:
            # Two different categories: elements that q takes as independent, and that are thus updated in turn.
            scope.couple(self.inner, self.plate)
            return self.stat("x", scope, labels[:1], bind) * self.stat("x", scope, labels[1:], bind)
        scope.check_size(self.plate, labels[0], f"logits = {self.inner}")
        return self.inner.stat(name, scope, (), {**(bind or {}), self.plate.name: labels[0]})
