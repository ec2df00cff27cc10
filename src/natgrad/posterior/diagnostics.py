"""Draws of several chains in; how far they can be trusted out: R̂ and effective sample sizes.

R̂ (rank-normalised, split) compares chains with one another, and is 1 where they agree; the bulk ESS says how many independent
draws the mean is worth, the tail ESS the ends of intervals. Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021).

Values are those of arviz-stats, in less than a quarter of its time: an element is sorted once, for the ranks of its values, those
of their
distances from the median (two runs that are sorted, to be merged) and its quantiles; autocovariances are summed lag after lag as
long as Geyer's sequence asks for the next one, which of draws that are nearly independent are a few.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

__all__ = ["FEWEST", "LARGEST_R_HAT", "Diagnosis", "ess", "r_hat", "worst"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
LARGEST_R_HAT, FEWEST = 1.01, 400
# Elements of a block that are looked at; of more, as many at even distances.
MOST_ELEMENTS = 24
# Lags that are summed one by one; more of them come from one Fourier transform.
FEW_LAGS = 24
# Draws that are fewer than this have no halves to compare.
SHORTEST = 4
TAILS = 0.05, 0.95


class Diagnosis(NamedTuple):
    """The worst element of a node: its largest R̂ and its smallest effective sample sizes."""

    r_hat: float
    ess_bulk: float
    ess_tail: float


def r_hat(draws: Array) -> Array:
    """R̂ of each element of draws [chain, draw, …]; NaN where all draws are equal, and of one chain."""
    return _by_element(draws, lambda element: element.r_hat)


def ess(draws: Array, kind: Literal["bulk", "tail"] = "bulk") -> Array:
    """Independent draws that those of each element are worth; NaN where all draws are equal."""
    return _by_element(draws, lambda element: element.ess_bulk if kind == "bulk" else element.ess_tail)


def worst(draws: Array) -> Diagnosis | None:
    """The worst element, of some if there are many; None if there is nothing to compare."""
    if draws.shape[1] < SHORTEST or draws.dtype.kind not in "fiu" or not draws.size:
        return None
    flat = draws.reshape(*draws.shape[:2], -1)
    if flat.shape[2] > MOST_ELEMENTS:
        flat = flat[:, :, np.linspace(0, flat.shape[2] - 1, MOST_ELEMENTS).astype(np.int64)]
    measures = _by_element(flat, lambda element: (element.r_hat, element.ess_bulk, element.ess_tail), 3)
    if np.isnan(measures[:, 0]).all():
        return None
    return Diagnosis(
        float(np.nanmax(measures[:, 0])), float(np.nanmin(measures[:, 1])), float(np.nanmin(measures[:, 2]))
    )


def _by_element(draws: Array, function: Any, width: int | None = None) -> Array:
    """A function of every element whose draws are finite and not all equal; NaN elsewhere."""
    flat = np.asarray(draws, dtype=np.float64).reshape(*draws.shape[:2], -1)
    out = np.full((flat.shape[2], *(() if width is None else (width,))), np.nan)
    if draws.shape[1] >= SHORTEST:
        with np.errstate(all="ignore"):
            for n in range(flat.shape[2]):
                own = np.ascontiguousarray(flat[:, :, n])
                if (own != own[0, 0]).any() and np.isfinite(own).all():
                    out[n] = function(_Element(own))
    return out.reshape((*draws.shape[2:], *out.shape[1:]))


class _Element:
    """The draws of one number [chain, draw], sorted once."""

    def __init__(self, draws: Floats) -> None:
        self.draws, self.halves = draws, _split(draws)

    @functools.cached_property
    def _order(self) -> tuple[npt.NDArray[np.int64], Floats]:
        """Which draw of the halves is the smallest, the next one, …; and these draws."""
        flat = self.halves.reshape(-1)
        order = np.argsort(flat)
        return order, flat[order]

    @functools.cached_property
    def _scaled(self) -> Floats:
        """The normal scores of the ranks."""
        order, upward = self._order
        return _placed(order, _scores(upward), self.halves.shape)

    @functools.cached_property
    def r_hat(self) -> float:
        """The larger one of values and of their distances from the median."""
        if len(self.draws) < 2:
            return math.nan
        order, upward = self._order
        middle = len(upward) // 2
        median = upward[middle] if len(upward) % 2 else np.mean(upward[middle - 1 : middle + 1])
        away = np.abs(upward - median)
        inwards = np.argsort(away, kind="stable")  # two runs that are sorted
        folded = _placed(order[inwards], _scores(away[inwards]), self.halves.shape)
        return max(_disagreement(self._scaled), _disagreement(folded))

    @functools.cached_property
    def ess_bulk(self) -> float:
        """That of the normal scores."""
        return _effective(self._scaled)

    @functools.cached_property
    def ess_tail(self) -> float:
        """The smaller one of what says whether a draw is below an end of the interval."""
        ends = np.quantile(self._order[1] if self.draws.size == self.halves.size else self.draws, TAILS)
        return min(_effective((self.halves <= end).astype(np.float64)) for end in ends)


def _split(draws: Floats) -> Floats:
    """Chains cut into halves; the draw in the middle of an odd number is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _placed(order: npt.NDArray[np.int64], values: Floats, shape: tuple[int, ...]) -> Floats:
    out = np.empty(len(order))
    out[order] = values
    return out.reshape(shape)


def _scores(upward: Floats) -> Floats:
    """Normal scores of the ranks of sorted numbers; equal ones share the average of their ranks."""
    size = len(upward)
    differs = upward[1:] != upward[:-1]
    if differs.all():
        return _all_scores(size)
    begins = np.concatenate([[0], np.flatnonzero(differs) + 1, [size]])
    ranks = 0.5 * (begins[:-1] + begins[1:] + 1)
    return np.repeat(_score(ranks, size), np.diff(begins))


@functools.lru_cache(maxsize=4)
def _all_scores(size: int) -> Floats:
    scores = _score(np.arange(1.0, size + 1.0), size)
    scores.setflags(write=False)
    return scores


def _score(ranks: Floats, size: int) -> Floats:
    """Φ⁻¹ of a rank of so many (Blom 1958)."""
    return np.asarray(special.ndtri((ranks - 0.375) / (size + 0.25)))


def _disagreement(draws: Floats) -> float:
    """√(var⁺ / W): the variance of all chains together against that inside them."""
    n = draws.shape[1]
    within, between = draws.var(1, ddof=1).mean(), n * draws.mean(1).var(ddof=1)
    return float(np.sqrt((between / within + n - 1.0) / n))


def _effective(draws: Floats) -> float:
    """C n / τ, with the autocorrelations of Geyer's initial monotone sequence (1992) in τ."""
    chains, n = draws.shape
    if np.ptp(draws) < np.finfo(float).resolution:
        return float(draws.size)
    means = draws.mean(1)
    lags = _Lags(draws - means[:, None])
    within = lags(0) * n / (n - 1.0)
    whole = lags(0) + (means.var(ddof=1) if chains > 1 else 0.0)

    def pair(number: int) -> tuple[float, float]:
        """ρ of an even lag and of the next one."""
        one, two = (1.0 - (within - lags(2 * number + i)) / whole for i in (0, 1))
        return one if number else 1.0, two

    last, sums = pair(0), list[float]()
    while 2 * len(sums) + 1 < n - 3 and sum(last) > 0.0:
        # Sums of pairs never rise; the first one is as it is.
        sums.append(min(sum(last), sums[-1]) if sums else sum(last))
        last = pair(len(sums))
    rest = last[0] if last[0] > 0.0 or sum(last) >= 0.0 else 0.0
    tau = max(2.0 * math.fsum(sums) + rest - 1.0, 1.0 / math.log10(draws.size))
    return math.nan if math.isnan(sum(last)) else draws.size / tau


class _Lags:
    """Autocovariances of centred draws [chain, draw], averaged over chains."""

    def __init__(self, centred: Floats) -> None:
        self.centred, self.known = centred, dict[int, float]()
        self.all: Floats | None = None

    def __call__(self, lag: int) -> float:
        if lag <= FEW_LAGS:
            if lag not in self.known:
                n = self.centred.shape[1]
                ahead, behind = self.centred[:, lag:], self.centred[:, : n - lag]
                self.known[lag] = float(np.einsum("ij,ij->", ahead, behind)) / self.centred.size
            return self.known[lag]
        if self.all is None:
            self.all = self._transformed()
        return float(self.all[lag])

    def _transformed(self) -> Floats:
        n = self.centred.shape[1]
        length = 1 << (2 * n - 1).bit_length()
        power = (np.abs(np.fft.rfft(self.centred, length, axis=1)) ** 2).sum(0)
        return np.asarray(np.fft.irfft(power, length)[:n] / self.centred.size)
