"""The finish by neighbours where noise is not Gaussian: a kernel, a law and rows in; a local process given sites out.

Every row gets a Gaussian site (`natgrad.models.gp.sites`), from the dense process of rows around it (`natgrad.models.gp.blocks`),
and f at new inputs is predicted from the sites of the nearest rows. Before that the kernel is settled again, by steps of Adam on

    Σ_i log p(y_i | y of the rows around i)        over neighbourhoods of rows at random

with sites that follow after each step; what a sparse process has found is too smooth. Such sites have seen y_i, too, and where
the variance of f is large, that flatters. So a fifth of the rows, kept apart, judges whether steps have gained, with sites of
the other rows alone, and gets its sites when all is settled. Where nobody has given a kernel, it starts from the best of smooth
and rough ones, and rougher and rougher Matérns are tried as long as these rows gain.

Ordered classes have cutpoints in units of their noise. Neighbours leave less to noise: for them it is N(0, 1/unit²), with f and
cutpoints as they are in the sparse process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.covariance import Covariance, Matern12, Matern32
from natgrad.models.gp.blocks import Neighbourhoods, slopes_around, solved, values_around
from natgrad.models.gp.joint import Ordinal
from natgrad.models.gp.local import MARGIN, RATE, SQUARES, Budget, drawn_given, kernel_at, rougher
from natgrad.models.gp.neighbours import SMOOTHEST_FIRST, conditional, nearest
from natgrad.models.gp.settings import adam_direction
from natgrad.models.gp.sites import Law, Sites, neutral
from natgrad.models.gp.weighing import Moments

__all__ = ["Observed", "SitedLocal", "settled_sites"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# One row in so many is judged.
KEPT_APART = 5
# Steps between two searches for neighbourhoods, neighbourhoods read at each; rows of one, and those of them that are judged.
STEPS, AT_ONCE, AROUND, INNER = 8, 2, 256, 64
# Where kernels are compared: neighbourhoods, fewer of them where it starts, and fewest to tell the best few of rough starts; rows
# of each, and those judged.
COMPARED, FEWER, FEWEST, WITHIN, JUDGED = 64, 24, 8, 128, 16
BEST_FEW = 3
# Searches for the first kind of kernel, for each rougher one or the same again, rounds of these at most, and searches at the end
# with a third of the rate.
FIRST, ROUGHER, ROUNDS, LAST = 16, 8, 3, 8
# Variances of f, and parts of the length scales that a sparse process has found, where settling may start as well. Beyond the
# largest variance classes are certain but at their edges, wherever these are: more changes nothing, and sites settle slowly.
VARIANCES, PARTS = (10.0, 100.0, 1_000.0), (1.0, 0.35, 0.12)
# Other kinds of kernels where it may start, and nats a row that they must gain there: steps find a kind that is a little rougher.
ROUGH_KINDS, ROUGH_GAIN = (Matern32, Matern12), 0.02
# Times the unit in which noise of ordered classes is one, tried when the kernel has moved.
UNITS = (0.5, 2.0)


class Observed(NamedTuple):
    """Rows: standardised inputs [N, D], outputs [N, P], and their law."""

    x: Floats
    y: Floats
    law: Law

    @property
    def n_apart(self) -> int:
        """How many rows, the last ones, are judged and have no sites until that is done."""
        return 0 if len(self.x) < 2 else max(1, len(self.x) // KEPT_APART)

    @property
    def others(self) -> Observed:
        """Without the rows that are judged."""
        left = len(self.x) - self.n_apart
        return Observed(self.x[:left], self.y[:left], self.law)

    def around(self, kernel: Covariance, seeds: Ints, size: int, judged: int) -> Neighbourhoods:
        """The nearest rows that are judged, and the nearest of the others, around some of the rows that are judged."""
        left = len(self.x) - self.n_apart
        judged, at = min(judged, self.n_apart), self.x[left + seeds]
        apart = left + nearest(kernel, self.x[left:], at, judged)
        return Neighbourhoods(np.hstack([apart, nearest(kernel, self.x[:left], at, min(size, left))]), judged)

    def in_units(self, unit: float) -> Observed:
        """The same with noise that is one in such units."""
        return self._replace(law=self.law._replace(unit=unit))


class Choice(NamedTuple):
    """A kernel, and the unit of f in which noise is one."""

    kernel: Covariance
    unit: float


class SitedLocal(NamedTuple):
    """A process given the sites of its nearest rows: kernel, inputs, sites, offsets [F], m, what judges say."""

    kernel: Covariance
    x: Floats
    sites: Sites
    offset: Floats
    n_neighbors: int
    log_density: float = np.nan
    n_judges: int = 0
    # That of ordered classes, in which their noise is one.
    unit: float = 1.0

    def latent(self, x: Floats) -> tuple[Floats, Floats]:
        """Means and variances of f [N, F] at standardised inputs."""
        mean, var = self._given(x, nearest(self.kernel, self.x, x, min(self.n_neighbors, len(self.x))))
        return mean + self.offset, var

    def expected(self, x: Floats, numbers: Ints) -> Moments:
        """Of f at some rows that it has not seen, nor at one that is all there is."""
        if len(x) > len(self.x):
            return Moments(*self.latent(x[numbers]))
        prior = np.tile(np.asarray(self.kernel.diagonal(self.kernel.theta, x))[:, None], len(self.offset))
        return Moments(0.0 * prior + self.offset, prior)

    def with_all(self, rows: Observed, in_time: Callable[[], bool]) -> SitedLocal:
        """The same with sites of all rows, of those that have judged it, too."""
        rows = rows.in_units(self.unit)
        z, s = neutral(rows.law, rows.y)
        z[:, : len(self.x)], s[:, : len(self.x)] = self.sites
        return self._replace(
            x=rows.x, sites=solved(self.kernel, rows.law, rows.x, rows.y, Sites(z, s), self.n_neighbors, in_time)
        )

    def draws(self, x: Floats, n: int, rng: np.random.Generator) -> Floats:
        """Joint draws of f [n, N, F]."""
        functions = [
            drawn_given(self.kernel, s, self.x, z, self.n_neighbors, x, n, rng)
            for z, s in zip(*self.sites, strict=True)
        ]
        return np.stack(functions, axis=-1) + self.offset

    def _given(self, x: Floats, near: Ints) -> tuple[Floats, Floats]:
        pairs = [conditional(self.kernel, s, self.x, z, x, near) for z, s in zip(*self.sites, strict=True)]
        mean, var = (np.stack(part, axis=-1) for part in zip(*pairs, strict=True))
        return mean, var


def settled_sites(
    kernel: Covariance, rows: Observed, m: int, learned: bool, any_kind: bool, rng: np.random.Generator, budget: Budget
) -> tuple[SitedLocal, Ints, Floats]:
    """The local process of four fifths of the rows, the rows of the other fifth that judged it, and their log densities.

    ``learned``: whether the kernel moves; ``any_kind``: whether rougher ones are tried. Rows are in a random order.
    """
    n, choice = len(rows.x), Choice(kernel, 1.0)
    sites = neutral(rows.law, rows.others.y)
    if learned and n > 1 and budget:
        choice, sites = _settled(kernel, rows, any_kind, rng, budget)
    rows = rows.in_units(choice.unit)
    others = rows.others
    sites = solved(choice.kernel, rows.law, others.x, others.y, sites, m, budget.in_time)
    local = SitedLocal(choice.kernel, others.x, sites, rows.law.offset, m, unit=choice.unit)
    judges = np.arange(n - max(1, rows.n_apart), n)[: budget.judges]
    mean, var = local.expected(rows.x, judges)
    densities = rows.law.log_densities(rows.y[judges], (mean - local.offset).T, var.T)
    return local._replace(log_density=float(densities.mean()), n_judges=len(judges)), judges, densities


def _settled(
    start: Covariance, rows: Observed, any_kind: bool, rng: np.random.Generator, budget: Budget
) -> tuple[Choice, Sites]:
    """The kernel and the unit that neighbourhoods prefer, from where it starts; and sites on their way."""
    seeds = rng.permutation(rows.n_apart)[:COMPARED]

    def judged(choice: Choice, among: int = COMPARED) -> float:
        if not budget.in_time():
            return -np.inf
        around, law = rows.around(choice.kernel, seeds[:among], WITHIN, JUDGED), rows.in_units(choice.unit).law
        try:
            return float(values_around(choice.kernel, law, rows.x, rows.y, around).mean())
        except FloatingPointError:
            return -np.inf

    # Rough starts cost as much as some searches: not where there are few of these.
    best = _start(start, rows.law, any_kind and budget.left >= ROUGHER, judged)
    value, sites = judged(best), neutral(rows.in_units(best.unit).law, rows.others.y)

    def moved(from_: Choice, searches: int, rate: float) -> tuple[Choice, float]:
        found = Choice(_moved(from_, rows, sites, searches, rate, rng, budget), from_.unit)
        return found, judged(found)

    best, value = max((best, value), moved(best, FIRST, RATE), key=lambda pair: pair[1])
    kinds = list(SMOOTHEST_FIRST[SMOOTHEST_FIRST.index(type(best.kernel)) + 1 :]) if any_kind else []
    for _ in range(ROUNDS if any_kind else 0):
        if not budget:
            break
        kind = kinds.pop(0) if kinds else None
        trial = moved(best if kind is None else best._replace(kernel=rougher(kind, best.kernel)), ROUGHER, RATE)
        if trial[1] >= value + MARGIN:
            best, value = trial
        elif kind is None:
            break
        else:  # it is rough enough, and goes on
            kinds = []
    if isinstance(rows.law.likelihood, Ordinal):
        others = [best._replace(unit=times * best.unit) for times in UNITS]
        best, value = max([(best, value), *((other, judged(other)) for other in others)], key=lambda pair: pair[1])
    return max((best, value), moved(best, LAST, RATE / 3.0), key=lambda pair: pair[1])[0], sites


def _start(kernel: Covariance, law: Law, any_kind: bool, judged: Callable[[Choice, int], float]) -> Choice:
    """The best start of the kind that the sparse process has; of another, if that gains much: some rows judge the best few."""
    starts = _starts(kernel, law)
    if len(starts) == 1:
        return starts[0]
    kinds = [kind for kind in ROUGH_KINDS if any_kind and kind is not type(kernel)]
    others = [one._replace(kernel=rougher(kind, one.kernel)) for kind in kinds for one in starts]
    others.sort(key=lambda one: judged(one, FEWEST), reverse=True)
    own, rough = ([(judged(one, FEWER), one) for one in some] for some in (starts, others[:BEST_FEW]))
    value, best = max(own, key=lambda pair: pair[0])
    gained, other = max(rough, key=lambda pair: pair[0], default=(-np.inf, best))
    return other if gained > value + ROUGH_GAIN else best


def _starts(kernel: Covariance, law: Law) -> list[Choice]:
    """The kernel, and if it is stationary some with other variances of f, in units of the noise, and shorter length scales."""
    if not isinstance(kernel, SMOOTHEST_FIRST):
        return [Choice(kernel, 1.0)]
    variance, ell = float(np.exp(kernel.theta[0])), kernel.theta[1]
    found = [Choice(kernel, 1.0)] if variance < VARIANCES[-1] else []
    for value in VARIANCES:
        # cutpoints stay where they have the shares of the classes: f and noise have the same variance together
        unit = float(np.sqrt((1.0 + value) / (1.0 + variance))) if isinstance(law.likelihood, Ordinal) else 1.0
        found += [Choice(kernel.at([np.log(value / unit**2), ell + np.log(part)]), unit) for part in PARTS]
    return found


def _moved(
    choice: Choice,
    rows: Observed,
    sites: Sites,
    searches: int,
    rate: float,
    rng: np.random.Generator,
    budget: Budget,
) -> Covariance:
    """Steps of Adam, each on some neighbourhoods; the mean of the last quarter of them. Sites follow in place."""
    kernel, rows = choice.kernel, rows.in_units(choice.unit)
    at = np.concatenate([np.ravel(part) for part in kernel.theta])
    most = np.full(len(at), np.inf)
    if isinstance(kernel, SMOOTHEST_FIRST):
        most[0] = np.log(VARIANCES[-1] / choice.unit**2)
    mu, nu, seen = np.zeros_like(at), np.zeros_like(at), [at]
    n, size = len(rows.others.x), min(AROUND, len(rows.others.x))
    for search in range(searches):
        if not budget:
            break
        budget.spend()
        seeds = rng.permutation(n)[: STEPS * AT_ONCE]
        near = nearest(kernel_at(kernel, at), rows.others.x, rows.x[seeds], size)
        for step in range(STEPS):
            some = near[np.arange(step * AT_ONCE, (step + 1) * AT_ONCE) % len(seeds)]
            try:
                found = slopes_around(kernel_at(kernel, at), rows.law, rows.x, rows.y, sites, some, min(INNER, size))
            except FloatingPointError:  # too far: what it came from stands
                return kernel_at(kernel, np.mean(seen[-max(1, len(seen) // 4) :], axis=0))
            uphill = np.concatenate([np.ravel(part) for part in found])
            mu, nu, direction = adam_direction(search * STEPS + step + 1, mu, nu, uphill, SQUARES)
            at = np.minimum(at + rate * direction, most)
            seen.append(at)
    return kernel_at(kernel, np.mean(seen[-max(1, len(seen) // 4) :], axis=0))
