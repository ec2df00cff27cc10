"""Turn likes with dislikes, or levels, into Gaussian ratings given moments of both sides, by a bound that is Gaussian in f.

Likes, f_n = m + u_i · v_j + b_i + c_j:

    log p(y | f) ≥ (y − ½) f − ½ ω (f² − ξ²) + log σ(ξ) − ½ ξ,   ω = tanh(ξ/2) / (2 ξ),   ξ² = E[f²]

(Jaakkola and Jordan, 2000; ω is the mean of a Pólya–Gamma variable). Given ω these are ratings (y − ½)/ω − m with
noise precision ω.

Levels, f_n = u_i · v_j + b_i + c_j and hidden z_n ~ N(f_n, 1), level k where κ_k < z_n < κ_{k+1} (Albert and Chib, 1993). Given
q(f), q(z_n) is N(E[f_n], 1) between its two cutpoints, so that a level is a rating E[z_n] with precision 1, and the bound is

    Σ_n log [Φ(κ_{k+1} − E[f_n]) − Φ(κ_k − E[f_n])] − ½ Var[f_n]

which is concave in the cutpoints. A row is computed by itself, so that parts of a side give the bits of the whole.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from natgrad.kernels.factorization.gather import sum_rows
from natgrad.kernels.factorization.pairs import logistic_bound
from natgrad.models.factorization.sides import SideRatings

__all__ = [
    "Cuts", "Link", "better_cuts", "first_cuts", "level_numbers", "level_probabilities", "likes_as_ratings", "linked", "pulls",
]  # fmt: skip

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
HALF_LOG_2PI = 0.5 * float(np.log(2.0 * np.pi))
# Of Newton's method: steps, and the gain in nats a rating at which it ends.
STEPS, SETTLED = 50, 1e-10
# Cutpoints stay this far apart: a level between two others may have few ratings.
APART = 1e-3


class Cuts(NamedTuple):
    """The levels that ratings can have, increasing, and the points between them."""

    levels: Floats
    points: Floats

    @property
    def ends(self) -> Floats:
        """With those of the first and the last level."""
        return np.concatenate([[-np.inf], self.points, [np.inf]])


# What takes u·v + b + c to what is seen: σ with an offset, or the cutpoints of levels.
Link = float | Cuts


def linked(
    link: Link,
    moments: tuple[Floats, Floats],
    places: npt.NDArray[np.integer],
    seen: Floats,
    out: tuple[Floats, ...],
    rest: Floats,
) -> None:
    """Ratings and precisions, in the order of the moments and at their ``places`` (``out``: four arrays); what the bound adds."""
    if isinstance(link, Cuts):
        levels_as_ratings(link, moments[0], places, seen, out, rest)
    else:
        logistic_bound(*moments, link, places, seen, *out, rest)


def likes_as_ratings(
    likes: SideRatings, own: Floats, others: Floats, *, size: int, of_users: bool, link: Link
) -> tuple[SideRatings, Floats]:
    """The ratings, and of each row what the bound has besides theirs.

    ``own`` are packed moments of the rows, users or items, and ``others`` of those they have likes with.
    """
    rows, n = likes.rows, len(likes.rows.values)
    moments = likes.pair_moments(own, others, size, of_users)
    (values, trust, rest), by_row = np.empty((3, n)), np.empty(likes.n_rows)
    # Here likes are at their places: both orders are the same.
    linked(link, moments, np.arange(n), rows.values, (values, trust, values, trust), rest)
    sum_rows(rows.start, rest, by_row)
    return SideRatings(rows._replace(values=values), likes.biased, trust=trust, n_all=likes.n_all), by_row


def first_cuts(values: Floats) -> Cuts:
    """Levels that occur, and the points at which a standard Gaussian has their shares."""
    levels, counts = np.unique(values, return_counts=True)
    below = np.cumsum(counts)[:-1] / counts.sum()
    return Cuts(levels, np.asarray(special.ndtri(below), dtype=np.float64))


def level_numbers(cuts: Cuts, values: Floats, argument: str = "ratings") -> Ints:
    """The number of each rating's level."""
    numbers = np.minimum(np.searchsorted(cuts.levels, values), len(cuts.levels) - 1)
    if (wrong := np.flatnonzero(cuts.levels[numbers] != values)).size:
        known = ", ".join(f"{level:g}" for level in cuts.levels[:10])
        raise ValueError(
            f"{argument}: {values[wrong[0]]:g} is none of the levels that were fitted ({known}); "
            'likelihood="gaussian" takes any number'
        )
    return numbers


def levels_as_ratings(
    cuts: Cuts, mean: Floats, places: npt.NDArray[np.integer], values: Floats, out: tuple[Floats, ...], rest: Floats
) -> None:
    """E[z] and precisions in this order and at their ``places`` (``out``, four arrays), and what the bound adds."""
    log_mass, pull = _between(cuts.ends, np.searchsorted(cuts.levels, values[places]), mean)
    rest[:] = log_mass + 0.5 * pull**2 + HALF_LOG_2PI
    out[0][:], out[1][:] = mean + pull, 1.0
    out[2][places], out[3][places] = mean + pull, 1.0


def pulls(cuts: Cuts, level: Ints, mean: Floats) -> Floats:
    """E[z] − E[f] of hidden values of these levels."""
    return np.asarray(_between(cuts.ends, level, mean)[1])


def level_probabilities(cuts: Cuts, mean: Floats, variance: Floats) -> Floats:
    """Of each level [n, levels], where f is N(mean, variance)."""
    below = special.ndtr((cuts.ends - mean[:, None]) / np.sqrt(1.0 + variance)[:, None])
    return np.asarray(np.diff(below, axis=1))


def better_cuts(cuts: Cuts, mean: Floats, values: Floats) -> Cuts:
    """The cutpoints at which the bound is largest, E[f] held: Newton's method, halved while the bound would fall."""
    level = level_numbers(cuts, values)
    points, at = cuts.points, _bound(cuts.points, level, mean)
    for _ in range(STEPS):
        slope, curvature = _derivatives(points, level, mean)
        step, length = np.linalg.solve(curvature - 1e-9 * len(mean) * np.eye(len(points)), -slope), 1.0
        while length > 1e-6:
            tried = points + length * step
            if (np.diff(tried) > APART).all() and (higher := _bound(tried, level, mean)) > at:
                break
            length *= 0.5
        else:
            break
        gained, points, at = higher - at, tried, higher
        if gained < SETTLED * len(mean):
            break
    return cuts._replace(points=points)


def _bound(points: Floats, level: Ints, mean: Floats) -> float:
    return float(_between(np.concatenate([[-np.inf], points, [np.inf]]), level, mean)[0].sum())


def _between(ends: Floats, level: Ints, mean: Floats) -> tuple[Floats, Floats]:
    """Logarithm of Φ(b) − Φ(a), and (φ(a) − φ(b)) / (Φ(b) − Φ(a)), a and b the ends of a level less the mean."""
    low, high = ends[level] - mean, ends[level + 1] - mean
    # In the lower tail, where Φ keeps its digits.
    turned = low > 0.0
    a, b = np.where(turned, -high, low), np.where(turned, -low, high)
    below, above = special.log_ndtr(a), special.log_ndtr(b)
    log_mass = above + np.log1p(-np.exp(np.minimum(below - above, -1e-300)))
    pull = np.exp(-0.5 * a**2 - HALF_LOG_2PI - log_mass) - np.exp(-0.5 * b**2 - HALF_LOG_2PI - log_mass)
    return log_mass, np.where(turned, -pull, pull)


def _derivatives(points: Floats, level: Ints, mean: Floats) -> tuple[Floats, Floats]:
    """Slope and curvature of the bound in the cutpoints."""
    ends, n = np.concatenate([[-np.inf], points, [np.inf]]), len(points)
    low, high = ends[level] - mean, ends[level + 1] - mean
    log_mass = _between(ends, level, mean)[0]
    at_low, at_high = (np.exp(-0.5 * end**2 - HALF_LOG_2PI - log_mass) for end in (low, high))
    low, high = (np.where(np.isfinite(end), end, 0.0) for end in (low, high))
    slope, curvature = np.zeros(n + 2), np.zeros((n + 2, n + 2))
    np.add.at(slope, level + 1, at_high)
    np.add.at(slope, level, -at_low)
    np.add.at(curvature, (level + 1, level + 1), -high * at_high - at_high**2)
    np.add.at(curvature, (level, level), low * at_low - at_low**2)
    np.add.at(curvature, (level, level + 1), at_low * at_high)
    np.add.at(curvature, (level + 1, level), at_low * at_high)
    return slope[1:-1], curvature[1:-1, 1:-1]
