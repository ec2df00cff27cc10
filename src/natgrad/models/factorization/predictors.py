"""What a fitted factorisation predicts: moments of users and items in; means, variances, densities and score vectors out."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, final

import numpy as np
import numpy.typing as npt
from scipy import special

from natgrad.models.factorization.links import Cuts, level_numbers, level_probabilities
from natgrad.models.factorization.sides import pair_moments

__all__ = [
    "LOG_2PI",
    "GaussianPredictor",
    "LikesPredictor",
    "PoissonPredictor",
    "Predictor",
    "StarsPredictor",
    "augmented",
    "probit_mean",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Pair = tuple[Floats, Floats]
LOG_2PI = float(np.log(2 * np.pi))
LEAST_CHANCE = 1e-6


class Predictor(Protocol):
    """One likelihood's predictions; rows are numbers of users, columns of items.

    ``user`` and ``item`` are E[x] [rows, D] and E[x²] [rows, D], or E[x xᵀ] [rows, D, D].
    """

    @property
    def user(self) -> Pair:
        """Moments of users' vectors."""
        ...

    @property
    def item(self) -> Pair:
        """Moments of items' vectors."""
        ...

    def pairs(self, rows: Ints, columns: Ints) -> Pair:
        """Mean and variance of a new rating."""
        ...

    def interval(self, rows: Ints, columns: Ints, mass: float) -> Pair:
        """The ends of the central interval of a new rating."""
        ...

    def log_density(self, rows: Ints, columns: Ints, values: Floats) -> Floats:
        """The logarithm of p of new ratings."""
        ...

    def vectors(self) -> Pair:
        """[users, D] and [items, D] whose inner products order the items of each user as their predictions do."""
        ...


@final
class GaussianPredictor(NamedTuple):
    """Gaussian ratings with a Gaussian for each row.

    ``user_noise``, ``item_noise`` are E[1/s] and E[1/t] of each row, ``noise`` is E[1/τ].
    """

    user: Pair
    item: Pair
    biased: bool
    offset: float
    noise: float
    user_noise: Floats
    item_noise: Floats

    def pairs(self, rows: Ints, columns: Ints) -> Pair:
        """E[u·v + b + c], and its variance plus the noise."""
        mean, variance = pair_moments(rows, columns, self.user, self.item, self.biased)
        return mean + self.offset, variance + self.noise * self.user_noise[rows] * self.item_noise[columns]

    def interval(self, rows: Ints, columns: Ints, mass: float) -> Pair:
        """Of the Gaussian with this mean and variance."""
        return _gaussian_interval(*self.pairs(rows, columns), mass)

    def log_density(self, rows: Ints, columns: Ints, values: Floats) -> Floats:
        """Of the Gaussian with this mean and variance."""
        return _gaussian_density(*self.pairs(rows, columns), values)

    def vectors(self) -> Pair:
        """(u, 1) and (v, c): a user's own bias orders nothing, but is part of the score."""
        return augmented(self.user[0], self.item[0], self.biased, self.offset)


@final
class LikesPredictor(NamedTuple):
    """The probability of a like: σ(u·v + b + c + offset), or its share among all pairs.

    Where every pair counts, one of a user that is not stored c parts of a dislike (``unseen`` [users]), a share p of likes among
    pairs like these has the expected value s = p/(p + c (1 − p)), so that p = c s/(1 − s + c s).
    """

    user: Pair
    item: Pair
    biased: bool
    offset: float
    unseen: Floats | None = None

    def pairs(self, rows: Ints, columns: Ints) -> Pair:
        """The probability of a like, p, and p (1 − p)."""
        mean, variance = pair_moments(rows, columns, self.user, self.item, self.biased)
        chance = probit_mean(mean + self.offset, variance) if self.unseen is None else self._chance(rows, mean)
        return chance, chance * (1.0 - chance)

    def interval(self, rows: Ints, columns: Ints, mass: float) -> Pair:
        """The probability itself, as far as it is known: that at the ends of the interval of u·v + b + c."""
        mean, variance = pair_moments(rows, columns, self.user, self.item, self.biased)
        low, high = _gaussian_interval(mean + self.offset, variance, mass)
        return self._chance(rows, low), self._chance(rows, high)

    def log_density(self, rows: Ints, columns: Ints, values: Floats) -> Floats:
        """Of p or 1 − p, the logarithm."""
        chance = self.pairs(rows, columns)[0]
        return np.log(np.where(values > 0.5, chance, 1.0 - chance))

    def vectors(self) -> Pair:
        """As for ratings; the probability rises with the score."""
        return augmented(self.user[0], self.item[0], self.biased, self.offset)

    def _chance(self, rows: Ints, s: Floats) -> Floats:
        if self.unseen is None:
            return np.asarray(special.expit(s))
        s, c = np.clip(s, LEAST_CHANCE, 1.0 - LEAST_CHANCE), self.unseen[rows]  # a line may reach beyond zero and one
        return np.asarray(c * s / (1.0 - s + c * s))


@final
class StarsPredictor(NamedTuple):
    """Levels: a mean over their probabilities."""

    user: Pair
    item: Pair
    biased: bool
    cuts: Cuts
    offset: float = 0.0

    def probabilities(self, rows: Ints, columns: Ints) -> Floats:
        """Of every level [n, levels]."""
        return level_probabilities(self.cuts, *pair_moments(rows, columns, self.user, self.item, self.biased))

    def pairs(self, rows: Ints, columns: Ints) -> Pair:
        """Mean and variance of a new rating."""
        chance, levels = self.probabilities(rows, columns), self.cuts.levels
        mean = chance @ levels
        return mean, np.maximum(chance @ levels**2 - mean**2, 0.0)

    def interval(self, rows: Ints, columns: Ints, mass: float) -> Pair:
        """The levels at which the tails end."""
        below, tail = np.cumsum(self.probabilities(rows, columns), axis=1), 0.5 * (1.0 - mass)
        last = len(self.cuts.levels) - 1
        low, high = (np.minimum((below < level).sum(1), last) for level in (tail, 1.0 - tail))
        return self.cuts.levels[low], self.cuts.levels[high]

    def log_density(self, rows: Ints, columns: Ints, values: Floats) -> Floats:
        """The logarithm of the probability of each level."""
        chance = self.probabilities(rows, columns)[np.arange(len(rows)), level_numbers(self.cuts, values, "X")]
        return np.log(np.maximum(chance, np.finfo(np.float64).tiny))

    def vectors(self) -> Pair:
        """As for ratings: the higher the hidden number, the higher the level."""
        return augmented(self.user[0], self.item[0], self.biased, self.offset)


@final
class PoissonPredictor(NamedTuple):
    """Counts: Poisson(θ·β) with Gamma factors; ``user`` and ``item`` hold E[x] and E[x²]."""

    user: Pair
    item: Pair

    def pairs(self, rows: Ints, columns: Ints) -> Pair:
        """Mean and variance of a new count; of a mixture of Poissons, mean plus the variance of the rate."""
        products = self.user[0][rows] * self.item[0][columns]
        mean = products.sum(-1)
        spread = (self.user[1][rows] * self.item[1][columns] - products**2).sum(-1)
        return mean, mean + spread

    def interval(self, rows: Ints, columns: Ints, mass: float) -> Pair:
        """Quantiles of the negative binomial with this mean and variance."""
        mean, variance = self.pairs(rows, columns)
        size, chance = _negative_binomial(mean, variance)
        tail = 0.5 * (1.0 - mass)
        quantile = special.nbdtrik
        low, high = (
            np.maximum(0.0, np.ceil(np.nan_to_num(quantile(level, size, chance)))) for level in (tail, 1.0 - tail)
        )
        return low, high

    def log_density(self, rows: Ints, columns: Ints, values: Floats) -> Floats:
        """Of the negative binomial with this mean and variance."""
        size, chance = _negative_binomial(*self.pairs(rows, columns))
        log_choose = special.gammaln(values + size) - special.gammaln(size)
        log_density: Floats = (
            log_choose - special.gammaln(values + 1.0) + size * np.log(chance) + values * np.log1p(-chance)
        )
        return log_density

    def vectors(self) -> Pair:
        """The means."""
        return self.user[0], self.item[0]


def augmented(users: Floats, items: Floats, biased: bool, offset: float) -> Pair:
    """Vectors whose inner product is u·v + b + c + offset."""
    if not biased:
        return users, items
    ones = np.ones(len(users)), np.ones(len(items))
    left = np.column_stack([users[:, :-1], users[:, -1] + offset, ones[0]])
    return left, np.column_stack([items[:, :-1], ones[1], items[:, -1]])


def probit_mean(mean: Floats, variance: Floats) -> Floats:
    """E[σ(x)] of a Gaussian x, by MacKay's σ(m / √(1 + π v / 8)); within .02 of the integral."""
    probability: Floats = special.expit(mean / np.sqrt(1.0 + np.pi * variance / 8.0))
    return probability


def _gaussian_interval(mean: Floats, variance: Floats, mass: float) -> Pair:
    width = float(special.ndtri(0.5 + 0.5 * mass)) * np.sqrt(variance)
    return mean - width, mean + width


def _gaussian_density(mean: Floats, variance: Floats, values: Floats) -> Floats:
    return np.asarray(-0.5 * (LOG_2PI + np.log(variance) + (values - mean) ** 2 / variance))


def _negative_binomial(mean: Floats, variance: Floats) -> tuple[Any, Any]:
    chance = mean / variance
    return mean * chance / (1.0 - chance), chance
