"""Summarise ranks of true values among posterior draws, over many simulations, as coverage of intervals.

Values drawn from the prior, data drawn given these, and a posterior that is right: then the rank of each value among draws from
its posterior is uniform (simulation-based calibration). Ranks that pile up at both ends say that intervals are too narrow.
Talts, Betancourt, Simpson, Vehtari and Gelman (2018).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy
from scipy.special import ndtr

__all__ = ["LEVELS", "Calibration", "normal_ranks", "spaced_draws"]

Array = npt.NDArray[Any]
LEVELS = ("q", "linear_response", "draws")


@dataclass(frozen=True)
class Calibration:
    """What simulations say of intervals.

    Attributes
    ----------
    ranks : {name: ints [simulation, elements…]}, how many of the draws lie below the true value
    n_ranks : int, draws of each posterior; ranks are 0 … n_ranks
    level : str, which posterior
    failed : int, simulations whose fit ended with an error; they are left out
    """

    ranks: Mapping[str, npt.NDArray[np.int64]]
    n_ranks: int
    level: str
    failed: int = 0

    def coverage(self, mass: float = 0.9) -> dict[str, float]:
        """How often central intervals with probability ``mass`` hold the true value, over all elements and simulations."""
        if not 0 < mass < 1:
            raise ValueError(f"mass must lie in (0, 1), got {mass}. For 90 % use mass=0.9.")
        return {name: float((np.abs(self._places(name) - 0.5) < mass / 2).mean()) for name in self.ranks}

    def p_values(self, bins: int = 10) -> dict[str, float]:
        """How likely ranks as uneven as these are if the posterior is right (χ², ``bins`` bins); below 0.01 it hardly is.

        Elements of one simulation depend on one another, so each counts as a part of one: the value is a rough one.
        """
        p_values = {}
        for name, ranks in self.ranks.items():
            counts = self._counts(name, bins)
            expected = counts.sum() / bins
            weight = len(ranks) / max(1, ranks.size)
            p_values[name] = float(scipy.stats.chi2.sf(weight * ((counts - expected) ** 2 / expected).sum(), bins - 1))
        return p_values

    def plot(self, path: Any = None, names: Sequence[str] | None = None, bins: int = 10) -> Any:
        """Histograms of the ranks with the band in which 95 % of the bars should lie; a matplotlib figure.

        Parameters
        ----------
        path : where to save it, optional
        names : which nodes; by default all
        bins : int
        """
        from matplotlib.figure import Figure

        chosen = list(self.ranks) if names is None else list(names)
        columns = min(4, max(1, len(chosen)))
        rows = math.ceil(len(chosen) / columns)
        figure = Figure(figsize=(2.6 * columns, 2.0 * rows), layout="constrained")
        axes = np.ravel(figure.subplots(rows, columns, squeeze=False))
        for axis, name in zip(axes, chosen, strict=False):
            counts, n = self._counts(name, bins), len(self.ranks[name])
            low, high = scipy.stats.binom.ppf([0.025, 0.975], n, 1 / bins) / n * bins
            axis.axhspan(low, high, color="0.9", zorder=0)
            axis.bar((np.arange(bins) + 0.5) / bins, counts / counts.sum() * bins, 0.9 / bins, color="tab:blue")
            axis.axhline(1.0, color="0.5", linewidth=0.8)
            axis.set_title(f"{name}: 90 % hold {100 * self.coverage()[name]:.0f} %", fontsize=8)
            axis.tick_params(labelsize=7)
        for axis in axes[len(chosen) :]:
            axis.axis("off")
        if path is not None:
            figure.savefig(path)
        return figure

    def _places(self, name: str) -> Array:
        """Ranks as numbers in (0, 1)."""
        return (self.ranks[name] + 0.5) / (self.n_ranks + 1)

    def _counts(self, name: str, bins: int) -> Array:
        return np.histogram(self._places(name), bins=bins, range=(0.0, 1.0))[0]

    def __repr__(self) -> str:
        n = len(next(iter(self.ranks.values()))) if self.ranks else 0
        held = ", ".join(f"{name} {100 * share:.0f} %" for name, share in self.coverage().items())
        lost = f"; {self.failed} fits failed" if self.failed else ""
        return f"<Calibration of {self.level} by {n} simulations: 90 % intervals hold {held}{lost}>"


def spaced_draws(values: Array, n: int) -> Array:
    """As many draws [chain, draw, …] at even distances, of all chains."""
    flat = values.reshape(-1, *values.shape[2:])
    return np.asarray(flat[np.linspace(0, len(flat) - 1, n).astype(np.int64)])


def normal_ranks(value: Array, mean: Array, sd: Array, n_ranks: int) -> Array:
    """The rank that a value has on average among so many draws of a Gaussian."""
    return np.asarray(np.minimum((ndtr((value - mean) / sd) * (n_ranks + 1)).astype(np.int64), n_ranks))
