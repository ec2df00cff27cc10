"""One side's ratings and the calls of its kernels: new rows, targets, errors and predictions of pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import RatingsRows
from natgrad.kernels import rating_blocks as kernels
from natgrad.models.rating_parts import Moved, PlacedRows, Sent, packed, sweep_side
from natgrad.models.rating_rows import make_side, run_kernel

__all__ = ["ItsRatings", "Moved", "pair_moments"]

Floats = npt.NDArray[np.float64]
Pair = tuple[Floats, Floats]


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
        # Set while shards are placed.
        self.placed: PlacedRows | None = None

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
        sent = Sent(packed(other), other_weight, own_weight, prior, pull, tau, rho, None)
        if self.placed is not None:
            return self.placed.sweep(sent, lam)
        return sweep_side(self.side, self.trust, self.biased, sent, lam)

    def errors(self, own: Pair, other: Pair, other_weight: Floats) -> Floats:
        """Σ_n E[t] E[(r − …)²] of every row."""
        if self.placed is not None:
            return self.placed.errors(own, packed(other), other_weight)
        out = np.empty(len(own[0]))
        run_kernel(kernels.errors_of_rows, self.side, self.trust, packed(other), other_weight, self.biased, *own, out)
        return out

    def add_targets(self, other: Pair, other_weight: Floats, scale: Floats, out: Pair) -> None:
        """Add the messages of all ratings."""
        run_kernel(
            kernels.targets_of_rows, self.side, self.trust, packed(other), other_weight, scale, 1.0, self.biased, *out
        )

    def add_sample(
        self, own: npt.NDArray[Any], other: npt.NDArray[Any], values: Floats, scale: Floats, moments: Pair, out: Pair
    ) -> None:
        """Add the scaled messages of some ratings."""
        kernels.sampled_rows(own, other, values, scale, packed(moments), 1.0, self.biased, *out)

    def pairs(self, own: npt.NDArray[Any], other: npt.NDArray[Any], mine: Pair, theirs: Pair) -> Pair:
        """Mean and variance of u·v + b + c for pairs."""
        return pair_moments(own, other, mine, theirs, self.biased)


def pair_moments(own: npt.NDArray[Any], other: npt.NDArray[Any], mine: Pair, theirs: Pair, biased: bool) -> Pair:
    """Mean and variance of u·v + b + c for pairs of rows."""
    out = np.empty(len(own)), np.empty(len(own))
    kernels.pair_moments(own.astype(np.int64), other.astype(np.int64), *mine, *theirs, biased, *out)
    return out
