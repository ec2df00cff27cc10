"""The two shapes of q for ratings, each as the calls of its kernels: scalars q(u_ik), or vectors q(u_i).

A `Side` holds what the kernels read of one side; the laws give new λ, moments and errors. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, final

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import RatingsRows
from natgrad.families import Family, MultivariateNormal, Normal
from natgrad.kernels.factorization import ratings
from natgrad.kernels.factorization import vectors as rating_vectors
from natgrad.models.factorization.sides import LEAST_RATINGS, SideRatings, add_sampled, aligned, run_alone

__all__ = ["Law", "Scalars", "Side", "Updated", "Vectors", "make_side", "move_rows", "run_kernel"]

Floats = npt.NDArray[np.float64]
Pair = tuple[Floats, Floats]
# Runs of rows with about equally many ratings: enough to balance the threads whatever their number, and long enough that
# starting them costs nothing. They depend on the data alone, so that results do not depend on the threads.
MOST_CHUNKS = 64
NO_ERRORS = np.empty(0)


class Side(NamedTuple):
    """One side's ratings in compressed rows, cut into chunks of rows."""

    chunks: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    other: npt.NDArray[np.int32]
    values: Floats

    @property
    def n_rows(self) -> int:
        """Users, or items."""
        return len(self.start) - 1


class Sample(NamedTuple):
    """Sampled ratings: the elements of both sides, the values and the weights."""

    own: npt.NDArray[np.int32]
    other: npt.NDArray[np.int32]
    values: Floats
    weight: Floats


class Updated(NamedTuple):
    """One side after an update: λ, moments, and Σ E[(r − u·v)²] of each row where it was wanted."""

    lam: Pair
    mu: Pair
    errors: Floats


class Law(Protocol):
    """What the problem asks of a shape of q."""

    family: Family
    column_axis: int | None

    def side(self, rows: RatingsRows, n_all: int | None = None) -> Any:
        """Sorted rows of ratings as the kernels take them; it has ``n_rows``. ``n_all``: see `SideRatings`."""
        ...

    def coupling(self, n_factors: int) -> int:
        """How many variables meet in a rating."""
        ...

    def prior(self, n_rows: int, n_factors: int, precision: float) -> Pair:
        """λ of the prior."""
        ...

    def moments(self, lam: Pair) -> tuple[Pair, Floats]:
        """E[x] and E[x²] (or E[x xᵀ]), and log |Λ| of each variable; not finite where λ is not valid."""
        ...

    def sweep(self, side: Any, lam: Pair, mu: Pair, others: Pair, numbers: Numbers, rho: float, last: bool) -> Updated:
        """The exact update of a side, blended with the old λ by ρ; errors if it is the last of a sweep."""
        ...

    def sweep_jointly(self, side: Any, mu: Pair, others: Pair, numbers: Numbers, last: bool) -> Updated:
        """The exact update of a side with the best means of each row together."""
        ...

    def full_target(self, side: Any, mu: Pair, others: Pair, numbers: Numbers, column: int | None) -> Pair:
        """λ* from all ratings."""
        ...

    def add_sample(
        self, sample: Sample, mu: Pair, others: Pair, numbers: Numbers, column: int | None, out: Pair
    ) -> None:
        """Add the weighted messages of a sample to a target."""
        ...

    def errors(self, side: Any, mu: Pair, others: Pair) -> Floats:
        """Σ E[(r − u·v)²] of each row."""
        ...


class Numbers(NamedTuple):
    """The known precisions: α of the priors and τ of the noise."""

    prior: float
    noise: float


def make_side(rows: RatingsRows) -> Side:
    """A side's rows with their chunks."""
    n_rows = len(rows.start) - 1
    n_chunks = min(MOST_CHUNKS, 1 + len(rows.values) // LEAST_RATINGS)
    cuts = np.searchsorted(rows.start, np.linspace(0, rows.start[-1], n_chunks + 1), side="left")
    cuts[0], cuts[-1] = 0, n_rows
    return Side(np.unique(cuts), rows.start, rows.other, rows.values)


@final
class Scalars:
    """q(u_ik) is Normal; arrays [rows, K]."""

    family: Family = Normal()
    column_axis: int | None = 1

    def side(self, rows: RatingsRows, n_all: int | None = None) -> Side:
        """In chunks."""
        return make_side(rows)

    def coupling(self, n_factors: int) -> int:
        """Every factor of both sides."""
        return 2 * n_factors

    def prior(self, n_rows: int, n_factors: int, precision: float) -> Pair:
        """(0, −½ α)."""
        return np.zeros((n_rows, n_factors)), np.full((n_rows, n_factors), -0.5 * precision)

    def moments(self, lam: Pair) -> tuple[Pair, Floats]:
        """(m, m² + 1/Λ) and log Λ."""
        with np.errstate(all="ignore"):
            precision = -2.0 * lam[1]
            mean = lam[0] / precision
            return (mean, mean**2 + 1.0 / precision), np.log(precision)

    def sweep(self, side: Side, lam: Pair, mu: Pair, others: Pair, numbers: Numbers, rho: float, last: bool) -> Updated:
        """Factor after factor."""
        new = _empty(mu, side, last)
        run_kernel(ratings.sweep_side, side, *others, *lam, mu[0], *numbers, rho, *new.lam, *new.mu, new.errors)
        return new

    def sweep_jointly(self, side: Side, mu: Pair, others: Pair, numbers: Numbers, last: bool) -> Updated:
        """All factors of a row together."""
        new = _empty(mu, side, last)
        run_kernel(ratings.sweep_side_jointly, side, *others, *numbers, *new.lam, *new.mu, new.errors)
        return new

    def full_target(self, side: Side, mu: Pair, others: Pair, numbers: Numbers, column: int | None) -> Pair:
        """Of all factors, or of one."""
        first, last = _range(mu, column)
        out = np.empty((side.n_rows, last - first)), np.empty((side.n_rows, last - first))
        run_kernel(ratings.full_target, side, *others, mu[0], *numbers, first, last, *out)
        return out

    def add_sample(
        self, sample: Sample, mu: Pair, others: Pair, numbers: Numbers, column: int | None, out: Pair
    ) -> None:
        """To all factors, or to one."""
        ratings.sampled_target(*sample, *others, mu[0], numbers.noise, *_range(mu, column), *out)

    def errors(self, side: Side, mu: Pair, others: Pair) -> Floats:
        """Residuals and variances."""
        errors = np.empty(side.n_rows)
        run_kernel(ratings.expected_errors, side, *mu, *others, errors)
        return errors


@final
class Vectors:
    """q(u_i) is MultivariateNormal; arrays [rows, K] and [rows, K, K]."""

    family: Family = MultivariateNormal()
    column_axis: int | None = None

    def side(self, rows: RatingsRows, n_all: int | None = None) -> SideRatings:
        """As for the full model."""
        return SideRatings(rows, biased=False, n_all=n_all)

    def coupling(self, n_factors: int) -> int:
        """A user and an item."""
        return 2

    def prior(self, n_rows: int, n_factors: int, precision: float) -> Pair:
        """(0, −½ α I)."""
        return np.zeros((n_rows, n_factors)), np.tile(-0.5 * precision * np.eye(n_factors), (n_rows, 1, 1))

    def moments(self, lam: Pair) -> tuple[Pair, Floats]:
        """(m, m mᵀ + Λ⁻¹) and log |Λ|."""
        mu, log_det = (np.empty(lam[0].shape), np.empty(lam[1].shape)), np.empty(len(lam[0]))
        rating_vectors.moments(*lam, *mu, log_det)
        return mu, log_det

    def sweep(
        self, side: SideRatings, lam: Pair, mu: Pair, others: Pair, numbers: Numbers, rho: float, last: bool
    ) -> Updated:
        """Row by row, each whole; errors come by themselves."""
        n_rows, size = mu[0].shape
        prior, nowhere = np.full(size, numbers.prior), np.zeros((1, size))
        weights = np.ones(len(others[0])), np.ones(n_rows)
        moved = side.sweep(others, *weights, prior, nowhere, numbers.noise, rho, lam)
        return Updated(moved.lam, moved.mu, moved.errors)

    def sweep_jointly(self, side: SideRatings, mu: Pair, others: Pair, numbers: Numbers, last: bool) -> Updated:
        """The same: the factors of a row are one variable."""
        # With ρ = 1 the old λ counts for nothing; any array of its shape will do.
        return self.sweep(side, mu, mu, others, numbers, 1.0, last)

    def full_target(self, side: SideRatings, mu: Pair, others: Pair, numbers: Numbers, column: int | None) -> Pair:
        """Of every row."""
        n_rows, size = mu[0].shape
        out = self.prior(n_rows, size, numbers.prior)
        side.add_targets(others, np.ones(len(others[0])), np.full(n_rows, numbers.noise), out)
        return out

    def add_sample(
        self, sample: Sample, mu: Pair, others: Pair, numbers: Numbers, column: int | None, out: Pair
    ) -> None:
        """To the rows that were sampled."""
        add_sampled(*sample[:3], numbers.noise * sample.weight, others, False, out)

    def errors(self, side: SideRatings, mu: Pair, others: Pair) -> Floats:
        """From the sums of each row."""
        return side.errors(mu, others, np.ones(len(others[0])))


def move_rows(
    side: Any, lam: Pair, mu: Pair, others: Pair, law: Law, numbers: Numbers, rho: float | None, last: bool
) -> Updated:
    """The exact update of a side or of a run of its rows; ρ None: the factors of each row together."""
    lam, mu, others = ((aligned(pair[0]), aligned(pair[1])) for pair in (lam, mu, others))
    if rho is None:
        return law.sweep_jointly(side, mu, others, numbers, last)
    return law.sweep(side, lam, mu, others, numbers, rho, last)


def run_kernel(kernel: Callable[..., None], side: Side, *arguments: Any) -> None:
    """A kernel on a side; in this thread if there is only one chunk, since others would only be waited for."""
    if len(side.chunks) > 2:
        kernel(*side, *arguments)
    else:
        run_alone(kernel, *side, *arguments)


def _empty(mu: Pair, side: Side, last: bool) -> Updated:
    a, b, c, d = (np.empty(part.shape) for part in (*mu, *mu))
    return Updated((a, b), (c, d), np.empty(side.n_rows) if last else NO_ERRORS)


def _range(mu: Pair, column: Any) -> tuple[int, int]:
    return (0, mu[0].shape[1]) if column is None else (int(column), int(column) + 1)
