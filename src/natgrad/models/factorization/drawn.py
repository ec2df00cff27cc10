"""What draws of a factorisation predict: averages over the posterior itself; means, variances, intervals, densities, vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt
import scipy.special

from natgrad.families import Gamma, MultivariateNormal
from natgrad.models.factorization.gibbs import KeptDraws, burn_in
from natgrad.models.factorization.predictors import LOG_2PI, GaussianPredictor, Predictor, augmented
from natgrad.posterior.draws import DrawnFactor, Draws, DrawsSettings
from natgrad.posterior.export import Posterior

__all__ = ["DrawnPredictor", "PartlyDrawn", "draws_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Pair = tuple[Floats, Floats]
# Pairs whose draws are in memory together, in numbers.
PIECE = 2**22
# Steps of Newton's method, safeguarded by bisection, to a quantile: from that of a Gaussian four are enough for eight digits. It
# ends where one moves by so much of a standard deviation: what is left is the square of it.
STEPS, CLOSE = 12, 1e-6


@final
class DrawnPredictor(NamedTuple):
    """Gaussian ratings averaged over draws; ``q`` is what the variational fit says, whose moments of rows it keeps."""

    q: GaussianPredictor
    draws: KeptDraws

    @property
    def user(self) -> Pair:
        """Moments of users' vectors under q: those of draws mean nothing, for vectors of both sides can be rotated."""
        return self.q.user

    @property
    def item(self) -> Pair:
        """Moments of items' vectors under q."""
        return self.q.item

    def pairs(self, rows: Ints, columns: Ints) -> Pair:
        """The mean over draws, and its variance plus the noise."""
        out = np.empty(len(rows)), np.empty(len(rows))
        for here, means, noise in self._pieces(rows, columns):
            out[0][here], out[1][here] = means.mean(0), means.var(0) + noise.mean(0)
        return out

    def interval(self, rows: Ints, columns: Ints, mass: float) -> Pair:
        """Quantiles of the mixture of the Gaussians of all draws."""
        out = np.empty(len(rows)), np.empty(len(rows))
        for here, means, noise in self._pieces(rows, columns):
            for side, level in enumerate((0.5 - 0.5 * mass, 0.5 + 0.5 * mass)):
                out[side][here] = _quantile(means, np.sqrt(noise), level)
        return out

    def log_density(self, rows: Ints, columns: Ints, values: Floats) -> Floats:
        """The logarithm of the mean density over draws."""
        out = np.empty(len(rows))
        for here, means, noise in self._pieces(rows, columns):
            logs = -0.5 * (LOG_2PI + np.log(noise) + (values[here] - means) ** 2 / noise)
            out[here] = scipy.special.logsumexp(logs, axis=0) - np.log(len(means))
        return out

    def vectors(self) -> Pair:
        """Vectors of all draws side by side, divided by how many they are: inner products are what `pairs` predicts."""
        both = [
            augmented(u, v, self.q.biased, self.q.offset)
            for u, v in zip(self.draws.user_mean, self.draws.item, strict=True)
        ]
        users, items = (np.concatenate([pair[side] for pair in both], axis=1) for side in (0, 1))
        return users, items / len(both)

    def one(self, number: int) -> Pair:
        """Vectors of one draw, users' and items', whose inner products are its scores."""
        return augmented(self.draws.user[number], self.draws.item[number], self.q.biased, self.q.offset)

    def scores(self, rows: Ints) -> npt.NDArray[np.float32]:
        """What `pairs` expects of some users with all items [rows, items]: draw after draw, with no vectors side by side."""
        inner, n_draws = self.draws.item.shape[2] - self.q.biased, len(self.draws.noise)
        out = np.zeros((len(rows), self.draws.item.shape[1]), np.float32)
        for mine, theirs in zip(self.draws.user_mean, self.draws.item, strict=True):
            out += mine[rows, :inner] @ theirs[:, :inner].T
        out /= n_draws
        if self.q.biased:
            own, other = self.draws.user_mean[:, rows, inner], self.draws.item[..., inner]
            out += (own.mean(0, dtype=np.float64) + self.q.offset)[:, None] + other.mean(0, dtype=np.float64)
        return out

    def quantiles(self, rows: Ints, level: float) -> npt.NDArray[np.float32]:
        """Over the draws, of u·v + b + c without noise: [rows, items]; the draws are moved as in `pairs`."""
        n_draws, n_items = self.draws.item.shape[:2]
        out, size = np.empty((len(rows), n_items), np.float32), max(1, PIECE // (n_draws * n_items))
        for begin in range(0, len(rows), size):
            here = rows[begin : begin + size]
            drawn, means = (self._products(users[:, here]) for users in (self.draws.user, self.draws.user_mean))
            at = np.quantile(drawn, level, axis=0) + means.mean(0) - drawn.mean(0)
            out[begin : begin + size] = at + self.q.offset
        return out

    def _products(self, users: npt.NDArray[np.float32]) -> Floats:
        """u·v + b + c [draw, users, items] of some users with all items."""
        items, inner = self.draws.item, self.draws.item.shape[2] - self.q.biased
        scores: Floats = np.matmul(users[..., :inner], items[..., :inner].transpose(0, 2, 1)).astype(np.float64)
        if self.q.biased:
            scores += users[:, :, inner, None].astype(np.float64) + items[:, None, :, inner]
        return scores

    def _pieces(self, rows: Ints, columns: Ints) -> Iterator[tuple[slice, Floats, Floats]]:
        """Means [draw, n] and variances of the noise of some pairs at a time."""
        n_draws = len(self.draws.noise)
        size = max(1, PIECE // n_draws)
        for begin in range(0, len(rows), size):
            here = slice(begin, begin + size)
            means, better = np.empty((n_draws, len(rows[here]))), np.zeros(len(rows[here]))
            # Draw after draw: vectors of all at once would not stay in the cache.
            for number, item in enumerate(self.draws.item):
                theirs = item[columns[here]].astype(np.float64)
                means[number] = self._inner(self.draws.user[number][rows[here]], theirs)
                better += self._inner(self.draws.user_mean[number][rows[here]], theirs)
            # The mean over draws of E[f | rest] varies less than that of f: draws are moved to it.
            means += better / n_draws + self.q.offset - means.mean(0)
            noise = np.repeat(self.draws.noise[:, None], means.shape[1], axis=1)
            for own, place in ((self.draws.user_noise, rows), (self.draws.item_noise, columns)):
                if own.shape[1]:
                    noise *= own[:, place[here]]
            yield here, means, noise

    def _inner(self, users: npt.NDArray[np.float32], items: Floats) -> Floats:
        """u·v + b + c [n] of vectors of one draw."""
        mine, inner = users.astype(np.float64), items.shape[1] - self.q.biased
        products: Floats = np.einsum("nk,nk->n", mine[:, :inner], items[:, :inner])
        return products + mine[:, inner] + items[:, inner] if self.q.biased else products


@final
class PartlyDrawn(NamedTuple):
    """Gaussian ratings of users and items some of whom are behind those of the draws: these are predicted by ``q``."""

    q: Predictor
    drawn: DrawnPredictor

    @property
    def user(self) -> Pair:
        """Moments of users' vectors under q."""
        return self.q.user

    @property
    def item(self) -> Pair:
        """Moments of items' vectors under q."""
        return self.q.item

    def pairs(self, rows: Ints, columns: Ints) -> Pair:
        """Mean and variance of a new rating."""
        (known, new), out = self._split(rows, columns), (np.empty(len(rows)), np.empty(len(rows)))
        for here, predictor in ((known, self.drawn), (new, self.q)):
            out[0][here], out[1][here] = predictor.pairs(rows[here], columns[here])
        return out

    def interval(self, rows: Ints, columns: Ints, mass: float) -> Pair:
        """The ends of the central interval of a new rating."""
        (known, new), out = self._split(rows, columns), (np.empty(len(rows)), np.empty(len(rows)))
        for here, predictor in ((known, self.drawn), (new, self.q)):
            out[0][here], out[1][here] = predictor.interval(rows[here], columns[here], mass)
        return out

    def log_density(self, rows: Ints, columns: Ints, values: Floats) -> Floats:
        """The logarithm of p of new ratings."""
        (known, new), out = self._split(rows, columns), np.empty(len(rows))
        for here, predictor in ((known, self.drawn), (new, self.q)):
            out[here] = predictor.log_density(rows[here], columns[here], values[here])
        return out

    def vectors(self) -> Pair:
        """Those of q."""
        return self.q.vectors()

    def _split(self, rows: Ints, columns: Ints) -> tuple[Ints, Ints]:
        """Which pairs draws know, and which they do not."""
        n_users, n_items = self.drawn.draws.user.shape[1], self.drawn.draws.item.shape[1]
        known = (rows < n_users) & (columns < n_items)
        return np.flatnonzero(known), np.flatnonzero(~known)


def _quantile(means: Floats, deviations: Floats, level: float) -> Floats:
    """Where the mean of Gaussian distribution functions [draw, n] has a level."""
    far = scipy.special.ndtri(level) * deviations
    low, high = (means + far).min(0), (means + far).max(0)
    spread = np.sqrt(means.var(0) + (deviations**2).mean(0))
    x = np.clip(means.mean(0) + scipy.special.ndtri(level) * spread, low, high)
    for _ in range(STEPS):
        z = (x - means) / deviations
        above = scipy.special.ndtr(z).mean(0) - level
        low, high = np.where(above < 0, x, low), np.where(above > 0, x, high)
        slope = (np.exp(-0.5 * z * z) / deviations).mean(0) / np.sqrt(2 * np.pi)
        with np.errstate(divide="ignore", invalid="ignore"):
            new = x - above / slope
        before, x = x, np.where((new >= low) & (new <= high), new, 0.5 * (low + high))
        if (np.abs(x - before) <= CLOSE * spread).all():
            break
    return np.asarray(x)


def draws_of(kept: KeptDraws, seed: int, version: str, q: Posterior) -> Draws:
    """The draws as users read them: one chain; "noise" is the precision τ. Axes and labels are those of ``q``."""
    n = len(kept.noise)
    factors = {}
    for name, plate, values in (("u", "user", kept.user), ("v", "item", kept.item)):
        first, second = values.sum(0, dtype=np.float64), np.square(values, dtype=np.float64).sum(0)
        factors[name] = DrawnFactor(name, MultivariateNormal(), (plate,), values[None], first[None], second[None], n, 1)
    tau = 1.0 / kept.noise
    factors["noise"] = DrawnFactor("noise", Gamma(), (), tau[None], tau.sum()[None], (tau**2).sum()[None], n, 1)
    settings = DrawsSettings(n, 1, burn_in(kept.sweeps), 1, seed, version)
    return Draws(factors, settings, np.zeros(1, dtype=np.int64), axes=q._axes, labels=q._labels)
