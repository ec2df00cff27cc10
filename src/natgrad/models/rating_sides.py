"""One side's ratings and the calls of its kernels: new rows, targets, errors and predictions of pairs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import RatingsRows
from natgrad.kernels import rating_blocks as kernels
from natgrad.models.rating_rows import make_side, run_kernel

__all__ = ["ItsRatings", "Moved", "pair_moments"]

Floats = npt.NDArray[np.float64]
Pair = tuple[Floats, Floats]


class Moved(NamedTuple):
    """A side after an update: λ, moments, log |Λ| and Σ E[t] E[(r − …)²] of each row."""

    lam: Pair
    mu: Pair
    log_det: Floats
    errors: Floats


class ItsRatings:
    """The ratings of every row of one side.

    Parameters
    ----------
    rows : RatingsRows
    biased : bool
        Whether the last number of a vector is a bias.
    trust : array [n], optional
        A factor of the noise precision of each rating, in the order of the rows.
    """

    def __init__(self, rows: RatingsRows, biased: bool, trust: Floats | None = None) -> None:
        self.rows, self.biased = rows, biased
        self.side = make_side(rows)
        self.trust = np.ones(len(rows.values)) if trust is None else trust

    def sweep(
        self,
        other: Pair,
        other_weight: Floats,
        own_weight: Floats,
        prior: Floats,
        pull: Floats,
        tau: float,
        rho: float,
        lam: Pair,
    ) -> Moved:
        """Every row at its optimum given the other side, or ρ of the way to it."""
        n_rows, size = lam[0].shape
        new = Moved(
            (np.empty((n_rows, size)), np.empty((n_rows, size, size))),
            (np.empty((n_rows, size)), np.empty((n_rows, size, size))),
            np.empty(n_rows),
            np.empty(n_rows),
        )
        run_kernel(
            kernels.sweep_rows, self.side, self.trust, _packed(other), other_weight, own_weight, prior, pull,
            tau, self.biased, rho, *lam, *new.lam, *new.mu, new.log_det, new.errors,
        )  # fmt: skip
        return new

    def errors(self, own: Pair, other: Pair, other_weight: Floats) -> Floats:
        """Σ_n E[t] E[(r − …)²] of every row."""
        out = np.empty(len(own[0]))
        run_kernel(kernels.errors_of_rows, self.side, self.trust, _packed(other), other_weight, self.biased, *own, out)
        return out

    def add_targets(self, other: Pair, other_weight: Floats, scale: Floats, out: Pair) -> None:
        """Add the messages of all ratings."""
        run_kernel(
            kernels.targets_of_rows, self.side, self.trust, _packed(other), other_weight, scale, 1.0, self.biased, *out
        )

    def add_sample(
        self, own: npt.NDArray[Any], other: npt.NDArray[Any], values: Floats, scale: Floats, moments: Pair, out: Pair
    ) -> None:
        """Add the scaled messages of some ratings."""
        kernels.sampled_rows(own, other, values, scale, _packed(moments), 1.0, self.biased, *out)

    def pairs(self, own: npt.NDArray[Any], other: npt.NDArray[Any], mine: Pair, theirs: Pair) -> Pair:
        """Mean and variance of u·v + b + c for pairs."""
        return pair_moments(own, other, mine, theirs, self.biased)


def pair_moments(own: npt.NDArray[Any], other: npt.NDArray[Any], mine: Pair, theirs: Pair, biased: bool) -> Pair:
    """Mean and variance of u·v + b + c for pairs of rows."""
    out = np.empty(len(own)), np.empty(len(own))
    kernels.pair_moments(own.astype(np.int64), other.astype(np.int64), *mine, *theirs, biased, *out)
    return out


def _packed(moments: Pair) -> Floats:
    n_rows, size = moments[0].shape
    tell = np.empty((n_rows, size * (size + 1) // 2 + size))
    kernels.pack(*moments, tell)
    return tell
