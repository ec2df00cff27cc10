"""Likelihoods of several functions, or with several numbers of their own: classes, ordered classes, noise that varies.

Softmax           p(y = k) = exp(f_k) / Σ_j exp(f_j). E log Σ exp(f_k) has no closed form, and is at most, for any a,
                      Σ_k ½ a_k² v_k + log Σ_k exp(m_k + (½ − a_k) v_k)
                  which is smallest where a is the softmax of the exponents; there its slopes are p_k and ½ p_k (1 − p_k)
Ordinal           y is the number of cutpoints below f + N(0, 1)
Heteroskedastic   y ~ N(f, exp(g)), g = μ + s h with h of the kernel of f: E[exp(−g)] = exp(−m_g + ½ v_g), all in closed form

Knowles and Minka (2011), section 5, for the first; Lázaro-Gredilla and Titsias (2011) for the last. Both are bounds of the
evidence, as is a Gauss–Hermite sum up to its error.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, final

import numpy as np
import numpy.typing as npt
import scipy.special as sp

from natgrad.families._ops import logsumexp
from natgrad.models.gp.likelihoods import (
    LOG_2PI,
    NODES,
    WEIGHTS,
    Expected,
    Gaussian,
    Likelihood,
    NegativeBinomial,
    Poisson,
    StudentT,
)

__all__ = ["Heteroskedastic", "Ordinal", "Softmax", "cutpoints", "likelihood_named"]

Floats = npt.NDArray[np.float64]
# Rounds in which the tilts of a softmax are found, and how near: the bound is flat there, and loses the square of it.
MOST_ROUNDS, NEAR = 100, 1e-7
# Points of a quasi-random sum, and rows of it at once: E[softmax] to 0.003 where functions are known to ±2, better elsewhere.
POINTS, SOME_ROWS = 512, 256
# The logarithm of the largest precision: beyond it a variance of the noise is rounding.
MOST_LOG_PRECISION = 25.0
# Where the spread s of the logarithm of the noise starts.
FIRST_SPREAD = 0.5
LEAST_CHANCE = 1e-300
LEAST_VARIANCE = 1e-12


@final
class Softmax(Likelihood):
    """y [N, K] is 1 for a row's class and −1 for the others; a function for each class."""

    name, shifts = "softmax", True
    # Functions move together, each as if the others stayed. With curvatures p (1 − p) instead of diag(p) − p pᵀ a step is one to
    # two times too long, apart from a shift of all functions: D^−½ (diag(p) − p pᵀ) D^−½ is diag(1/(1 − p)) less a matrix of
    # rank one, so that its other values are at least 1, and no more than 2.
    stride = 2.0 / 3.0

    def first(self, y: Floats, variance: float) -> Floats:
        """It has no parameters."""
        return np.zeros(y.shape[1])

    def offsets(self, y: Floats) -> Floats:
        """Logarithms of the shares of the classes."""
        counts = (y > 0).sum(0) + 0.5
        shares = np.log(counts / counts.sum())
        return np.asarray(shares - shares.mean())

    def expected_rows(self, psi: Floats, y: Floats, mean: Floats, var: Floats) -> Expected:
        """The best of the bounds with tilts a, for each row."""
        hit = (y.T > 0).astype(np.float64)
        tilt, p, log_sum = _tilted(mean, var)
        value = (hit * mean).sum(0) - 0.5 * (tilt**2 * var).sum(0) - log_sum
        spread = -0.5 * (tilt**2 + (1.0 - 2.0 * tilt) * p)
        return Expected(value, hit - p, -p * (1.0 - p), spread, np.zeros(len(psi)))

    def predict_rows(self, psi: Floats, mean: Floats, var: Floats) -> tuple[Floats, Floats]:
        """E[softmax(f)] and p (1 − p), by a quasi-random sum."""
        p = np.empty_like(mean)
        for begin in range(0, len(mean), SOME_ROWS):
            rows = slice(begin, begin + SOME_ROWS)
            f = mean[rows, None] + np.sqrt(var[rows, None]) * _points(mean.shape[1])
            p[rows] = softmax(f).mean(1)
        return p, p * (1.0 - p)

    def log_predictive_rows(self, psi: Floats, y: Floats, mean: Floats, var: Floats) -> Floats:
        """Log E[p] of the row's class."""
        p = self.predict_rows(psi, mean, var)[0]
        return np.asarray(np.log(np.maximum(np.where(y > 0, p, 0.0).sum(1), LEAST_CHANCE)))

    def quantile_rows(self, psi: Floats, level: float, mean: Floats, var: Floats) -> Floats:
        """Classes have no order."""
        raise NotImplementedError("classes have no quantiles")

    def sample_rows(self, psi: Floats, f: Floats, rng: np.random.Generator) -> Floats:
        """The largest of f and Gumbel noise has a softmax's law."""
        noisy = f + rng.gumbel(size=f.shape)
        return np.where(noisy == noisy.max(-1, keepdims=True), 1.0, -1.0)


def softmax(f: Floats) -> Floats:
    """Along the last axis."""
    weights = np.exp(f - f.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def _tilted(mean: Floats, var: Floats) -> tuple[Floats, Floats, Floats]:
    """Tilts a [K, N], the softmax of the exponents m + (½ − a) v there, and the log of their sum [N].

    The bound is convex in a, with slopes v (a − p). Newton's steps are those of a diagonal matrix and one of rank one; they are
    cut to log(1 + β)/β of their length, β the range by which they would move the exponents, and so get there from everywhere.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        tilt = softmax(mean.T).T
        for _ in range(MOST_ROUNDS):
            p = softmax((mean + (0.5 - tilt) * var).T).T
            off = p - tilt
            if not np.abs(off).max() > NEAR:
                break
            weight = p * var
            step, share = off / (1.0 + weight), p / (1.0 + weight)
            step = step + share * ((weight * step).sum(0) / (1.0 - (weight * share).sum(0)))
            reach = np.ptp(var * step, axis=0) + 1e-300
            tilt = tilt + step * (np.log1p(reach) / reach)
        exponents = (mean + (0.5 - tilt) * var).T
        return tilt, softmax(exponents).T, logsumexp(exponents)


@lru_cache(maxsize=8)
def _points(size: int) -> Floats:
    """Standard normal numbers [points, size] that fill the space evenly: those of Sobol, in the middle of their cells."""
    from scipy.stats import qmc

    return np.asarray(sp.ndtri(qmc.Sobol(size, scramble=False).random(POINTS) + 0.5 / POINTS))


@final
class Ordinal(Likelihood):
    """y [N, 1] is a level 0 … K − 1; ψ are the first cutpoint and the logarithms of the distances between them."""

    name, has_parameter = "ordinal", True

    def __init__(self, n_levels: int) -> None:
        self.n_levels = n_levels

    def first(self, y: Floats, variance: float) -> Floats:
        """Where f ~ N(0, 1) has the shares of the levels."""
        counts = np.bincount(y[:, 0].astype(np.int64), minlength=self.n_levels) + 0.5
        cuts = np.sqrt(2.0) * sp.ndtri(np.cumsum(counts)[:-1] / counts.sum())
        return np.concatenate([cuts[:1], np.log(np.diff(cuts))])

    def offsets(self, y: Floats) -> Floats:
        """The cutpoints have them."""
        return np.zeros(1)

    def expected_rows(self, psi: Floats, y: Floats, mean: Floats, var: Floats) -> Expected:
        """At the nodes of a Gauss–Hermite sum."""
        sd = np.sqrt(np.maximum(var[0], LEAST_VARIANCE))
        levels, f = y[:, 0].astype(np.int64), mean[0][:, None] + sd[:, None] * NODES
        log_p, below, above, low, high = self._parts(psi, levels, f)
        slope = below - above
        curvature = low * below - high * above - slope**2
        spread = slope @ (WEIGHTS * NODES) / (2.0 * sd)
        ends = [np.bincount(levels, part @ WEIGHTS, self.n_levels) for part in (above, below)]
        in_cuts = ends[0][:-1] - ends[1][1:]  # a cutpoint is the upper end of a level, and the lower one of the next
        along = np.cumsum(in_cuts[::-1])[::-1] * np.concatenate([[1.0], np.exp(psi[1:])])
        return Expected(log_p @ WEIGHTS, (slope @ WEIGHTS)[None], (curvature @ WEIGHTS)[None], spread[None], along)

    def _parts(self, psi: Floats, levels: npt.NDArray[np.int64], f: Floats) -> tuple[Floats, ...]:
        """Log p [N, nodes], φ/p at the lower and the upper end, and these ends (0 where there is none)."""
        ends = np.concatenate([[-np.inf], cutpoints(psi), [np.inf]])
        low, high = ends[levels][:, None] - f, ends[levels + 1][:, None] - f
        log_p = _log_between(low, high)
        with np.errstate(invalid="ignore"):
            below, above = (np.exp(-0.5 * (end**2 + LOG_2PI) - log_p) for end in (low, high))
        return log_p, below, above, np.where(np.isinf(low), 0.0, low), np.where(np.isinf(high), 0.0, high)

    def probabilities(self, psi: Floats, mean: Floats, var: Floats) -> Floats:
        """Of every level [..., K], from the mean and the variance of f."""
        ends = (cutpoints(psi) - mean[..., None]) / np.sqrt(1.0 + var)[..., None]
        edge = np.full((*mean.shape, 1), np.inf)
        ends = np.concatenate([-edge, ends, edge], axis=-1)
        return np.asarray(np.exp(_log_between(ends[..., :-1], ends[..., 1:])))

    def predict_rows(self, psi: Floats, mean: Floats, var: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of the number of the level."""
        p, numbers = self.probabilities(psi, mean[:, 0], var[:, 0]), np.arange(self.n_levels)
        centre = p @ numbers
        return centre[:, None], np.maximum(p @ numbers**2 - centre**2, 0.0)[:, None]

    def log_predictive_rows(self, psi: Floats, y: Floats, mean: Floats, var: Floats) -> Floats:
        """In closed form: f + N(0, 1) is Gaussian."""
        p = self.probabilities(psi, mean[:, 0], var[:, 0])
        return np.asarray(np.log(np.maximum(p[np.arange(len(y)), y[:, 0].astype(np.int64)], LEAST_CHANCE)))

    def quantile_rows(self, psi: Floats, level: float, mean: Floats, var: Floats) -> Floats:
        """The lowest level with at least this probability below or at it."""
        below = np.cumsum(self.probabilities(psi, mean[:, 0], var[:, 0]), axis=1)
        return np.asarray((below < level - 1e-12).sum(1)[:, None], dtype=np.float64)

    def sample_rows(self, psi: Floats, f: Floats, rng: np.random.Generator) -> Floats:
        """Levels."""
        return np.searchsorted(cutpoints(psi), f + rng.standard_normal(f.shape)).astype(np.float64)


def cutpoints(psi: Floats) -> Floats:
    """Increasing numbers from ψ."""
    return np.cumsum(np.concatenate([psi[:1], np.exp(psi[1:])]))


def _log_between(low: Floats, high: Floats) -> Floats:
    """Log (Φ(high) − Φ(low)), on the side of zero where the tails are small."""
    flip = low > 0.0
    small, large = np.where(flip, -high, low), np.where(flip, -low, high)
    top, bottom = sp.log_ndtr(large), sp.log_ndtr(small)
    return np.asarray(np.maximum(top + np.log1p(-np.exp(np.minimum(bottom - top, -1e-16))), np.log(LEAST_CHANCE)))


@final
class Heteroskedastic(Likelihood):
    """y [N, P] ~ N(f, exp(g)): P functions f, then P functions h with g = μ + s h; ψ [P, 2] has μ and log s.

    As s → 0 it is a Gaussian likelihood with variance exp(μ).
    """

    name, has_parameter, standardised = "heteroskedastic", True, True

    def n_functions(self, n_outputs: int) -> int:
        """A mean and a noise for each column."""
        return 2 * n_outputs

    def first(self, y: Floats, variance: float) -> Floats:
        """The same for all columns."""
        return np.tile([np.log(variance), np.log(FIRST_SPREAD)], (y.shape[1], 1))

    def offsets(self, y: Floats) -> Floats:
        """None: outputs are standardised."""
        return np.zeros(2 * y.shape[1])

    def expected_rows(self, psi: Floats, y: Floats, mean: Floats, var: Floats) -> Expected:
        """In closed form."""
        size, spread = y.shape[1], np.exp(psi[:, 1])[:, None]
        along, own = spread * mean[size:], spread**2 * var[size:]  # of s h
        log_noise = psi[:, :1] + along
        weight = np.exp(np.minimum(-log_noise + 0.5 * own, MOST_LOG_PRECISION))
        off = y.T - mean[:size]
        seen = 0.5 * weight * (off**2 + var[:size])
        value = -0.5 * (LOG_2PI + log_noise) - seen
        slope, inner = seen - 0.5, -0.5 * seen
        return Expected(
            value,
            np.concatenate([weight * off, spread * slope]),
            np.concatenate([-weight, -(spread**2) * seen]),
            np.concatenate([-0.5 * weight, spread**2 * inner]),
            np.stack([slope.sum(1), (slope * along + 2.0 * inner * own).sum(1)], axis=1),
        )

    def noise(self, psi: Floats, mean: Floats, var: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of g, the logarithm of the variance of the noise, [N, P]."""
        size, spread = len(psi), np.exp(psi[:, 1])
        return psi[:, 0] + spread * mean[:, size:], spread**2 * var[:, size:]

    def noise_level(self, psi: Floats) -> float:
        """The least exp(μ)."""
        return float(np.exp(psi[:, 0].min()))

    def predict_rows(self, psi: Floats, mean: Floats, var: Floats) -> tuple[Floats, Floats]:
        """M and v + E[exp(g)]."""
        centre, width = self.noise(psi, mean, var)
        size = len(psi)
        return mean[:, :size], var[:, :size] + np.exp(np.minimum(centre + 0.5 * width, MOST_LOG_PRECISION))

    def _spreads(self, psi: Floats, mean: Floats, var: Floats) -> Floats:
        """Variances of an observation at the nodes of g [N, P, nodes]."""
        centre, width = self.noise(psi, mean, var)
        log_noise = centre[..., None] + np.sqrt(width)[..., None] * NODES
        return np.asarray(var[:, : len(psi), None] + np.exp(np.minimum(log_noise, MOST_LOG_PRECISION)))

    def log_predictive_rows(self, psi: Floats, y: Floats, mean: Floats, var: Floats) -> Floats:
        """F is integrated out in closed form, g at nodes."""
        total = self._spreads(psi, mean, var)
        off = (y - mean[:, : len(psi)])[..., None]
        return np.asarray(logsumexp(np.log(WEIGHTS) - 0.5 * (LOG_2PI + np.log(total) + off**2 / total)).sum(1))

    def quantile_rows(self, psi: Floats, level: float, mean: Floats, var: Floats) -> Floats:
        """Of a mixture of Gaussians of one mean, by bisection."""
        sd = np.sqrt(self._spreads(psi, mean, var))
        high = abs(float(sp.ndtri(level))) * sd.max(-1) + 1e-300
        low, tail = np.zeros_like(high), max(level, 1.0 - level)
        for _ in range(60):
            middle = 0.5 * (low + high)
            below = sp.ndtr(middle[..., None] / sd) @ WEIGHTS < tail
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray(mean[:, : len(psi)] + np.sign(level - 0.5) * high)

    def sample_rows(self, psi: Floats, f: Floats, rng: np.random.Generator) -> Floats:
        """F and noise of its own size."""
        size = len(psi)
        log_noise = psi[:, 0] + np.exp(psi[:, 1]) * f[..., size:]
        sd = np.exp(0.5 * np.minimum(log_noise, MOST_LOG_PRECISION))
        return np.asarray(f[..., :size] + sd * rng.standard_normal(sd.shape))


def likelihood_named(name: Any, df: float = 4.0) -> Likelihood:
    """The likelihood of a regressor."""
    if isinstance(name, Likelihood):
        return name
    laws: tuple[Likelihood, ...] = (Gaussian(), StudentT(df), Poisson(), NegativeBinomial(), Heteroskedastic())
    known = {law.name: law for law in laws}
    if not isinstance(name, str) or name not in known:
        *others, last = (f'"{word}"' for word in known)
        raise ValueError(f"likelihood must be {', '.join(others)} or {last}, got {name!r}")
    return known[name]
