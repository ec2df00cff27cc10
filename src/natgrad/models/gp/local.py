"""The finish of a sparse Gaussian process by neighbours: a fitted process and its rows in; a local one that predicts out.

M inducing inputs cannot hold what is local, so a kernel learned with them is too smooth and too noisy. Here kernel and noise are
settled again, by steps of Adam on

    Σ_i log p(y_i | y_N(i))        over samples of rows, N(i) the m nearest of the others

and f at new inputs is predicted from the nearest rows (`natgrad.models.gp.neighbours`). Where nobody has given a kernel, rougher
and rougher Matérns are tried as long as the same sum over rows kept apart for that, the judges, gains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.covariance import Covariance
from natgrad.models.gp.likelihood import LEAST, LOG_2PI
from natgrad.models.gp.neighbours import (
    SMOOTHEST_FIRST,
    conditional,
    nearest,
    shuffled,
    slopes,
    weights,
)
from natgrad.models.gp.settings import Settings, adam_direction, compiled
from natgrad.models.gp.weighing import Moments

if TYPE_CHECKING:
    from natgrad.inference.problem import State
    from natgrad.models.gp.problem import GPProblem

__all__ = [
    "JUDGES",
    "MARGIN",
    "RATE",
    "SQUARES",
    "Budget",
    "Local",
    "Rows",
    "drawn_given",
    "kernel_at",
    "psi_of",
    "rougher",
    "settled",
    "sparse_without",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Steps between two searches for neighbours, rows read at each, rows among which they are drawn meanwhile; rows that judge.
STEPS, BATCH, SAMPLE, JUDGES = 8, 128, 1_024, 1_000
# Rows among which neighbours of a whole sample are sought: with more the sample is smaller, so that a search costs the same.
SEARCHED, SMALLEST = 40_000, 256
# Neighbours while kernel and noise settle, at most: kin40k, settled with 64, has an error of 0.122 given 64 and of 0.096 given
# 128; settled with 32, 0.124 given 64. More for a prediction tell more than more for the slopes, and those are most of the work.
SETTLING = 64
# Searches for the first kind of kernel, for each rougher one, and at the end with a third of the rate: 24 at most.
FIRST, ROUGHER, LAST = 8, 4, 4
# Of Adam; its memory of squares is short, because so are the runs.
RATE, SQUARES = 0.05, (0.99, 0.01)
# Parts of the length scales and of the noise that a sparse process has found, where settling may start as well.
FINER = ((0.6, 0.3), (0.35, 0.1))
# Nats a row that a rougher kernel must gain.
MARGIN = 0.002


class Rows(NamedTuple):
    """What a local process keeps: standardised inputs [N, D] and outputs [N] or [N, P], in an order of its own."""

    x: Floats
    y: Floats

    @classmethod
    def of(cls, x: Floats, y: Floats, rng: np.random.Generator) -> Rows:
        """Rows in a random order that does not depend on the one they came in."""
        order = shuffled(x, y, rng)
        return cls(x[order], y[order])


def psi_of(noise: float) -> Floats:
    """σ² as a Gaussian likelihood has it."""
    return np.array([np.log(max(noise - LEAST, LEAST * 1e-9))])


class Local(NamedTuple):
    """A process given its nearest rows: kernel, σ², rows, m, the mean log density of the judges, and how many they were."""

    kernel: Covariance
    noise: float
    rows: Rows
    n_neighbors: int
    log_density: float = np.nan
    n_judges: int = 0

    @property
    def psi(self) -> Floats:
        """σ² as a Gaussian likelihood has it."""
        return psi_of(self.noise)

    def latent(self, x: Floats) -> tuple[Floats, Floats]:
        """Means and variances of f [N, 1] at standardised inputs."""
        near = nearest(self.kernel, self.rows.x, x, min(self.n_neighbors, len(self.rows.x)))
        mean, var = conditional(self.kernel, self.noise, *self.rows, x, near)
        return mean[:, None], var[:, None]

    def without(self, numbers: Ints) -> Moments:
        """Of f at some rows, each given its nearest others."""
        m, here = min(self.n_neighbors, len(self.rows.x) - 1), self.rows.x[numbers]
        mean, var = conditional(
            self.kernel, self.noise, *self.rows, here, nearest(self.kernel, self.rows.x, here, m, numbers)
        )
        return Moments(mean[:, None], var[:, None])

    def judged(self, numbers: Ints) -> Floats:
        """Log p(y_i | y_N(i)) of some rows, each without itself."""
        mean, var = self.without(numbers)
        total = var[:, 0] + self.noise
        return np.asarray(-0.5 * (LOG_2PI + np.log(total) + (self.rows.y[numbers] - mean[:, 0]) ** 2 / total))

    def draws(self, x: Floats, n: int, rng: np.random.Generator) -> Floats:
        """Joint draws of f [n, N, 1]: each input given its nearest rows, and the nearest of the inputs drawn before."""
        noise = np.full(len(self.rows.x), self.noise)
        return drawn_given(self.kernel, noise, *self.rows, self.n_neighbors, x, n, rng)[:, :, None]


def drawn_given(
    kernel: Covariance, noise: Floats, rows: Floats, y: Floats, m: int, x: Floats, n: int, rng: np.random.Generator
) -> Floats:
    """Joint draws of f [n, N] at inputs ``x``, each given its nearest rows, and the nearest of the inputs drawn before."""
    matrices, theta = compiled(kernel), kernel.theta
    near = nearest(kernel, rows, x, min(m, len(rows)))
    numbers_of, drawn = rng.standard_normal((len(x), n)), np.empty((len(x), n))
    for i, numbers in enumerate(near):
        before = np.sort(nearest(kernel, x[:i], x[i : i + 1], min(m, i))[0]) if i else np.empty(0, np.int64)
        given = np.concatenate([rows[numbers], x[before]])
        k_mm, k_nm, k_nn = matrices.all(Settings(theta, given, ()), x[i : i + 1])
        # Drawn values have no noise but rounding's.
        own = np.concatenate([noise[numbers], np.full(len(before), 1e-9 * k_nn[0])])
        w, _ = weights(k_mm, own, k_nm[0], k_nm[0])
        known = np.concatenate([np.repeat(y[numbers][:, None], n, axis=1), drawn[before]])
        drawn[i] = w @ known + np.sqrt(max(k_nn[0] - w @ k_nm[0], 0.0)) * numbers_of[i]
    return np.ascontiguousarray(drawn.T)


class Budget:
    """How many more searches there may be, and until when; how many rows judge."""

    def __init__(self, searches: int, in_time: Callable[[], bool], judges: int = JUDGES) -> None:
        self.left, self.in_time, self.judges = searches, in_time, judges

    def __bool__(self) -> bool:
        return self.left > 0 and self.in_time()

    def spend(self) -> None:
        """One search."""
        self.left -= 1


def settled(
    start: Local, learned: tuple[bool, bool], any_kind: bool, rng: np.random.Generator, budget: Budget
) -> tuple[Local, Ints, Floats]:
    """Kernel and noise of the local process, from where they start; the rows that judged them, and their log densities.

    ``learned``: whether kernel and noise move; ``any_kind``: whether rougher kernels are tried.
    """
    n = len(start.rows.x)
    judges = rng.permutation(n)[: min(n, budget.judges)]

    def judged(local: Local) -> Local:
        return local._replace(log_density=float(local.judged(judges).mean()), n_judges=len(judges))

    def done(local: Local) -> tuple[Local, Ints, Floats]:
        densities = local.judged(judges)
        return local._replace(log_density=float(densities.mean()), n_judges=len(judges)), judges, densities

    if not any(learned) or n < 2 or not budget:
        return done(start)
    fewer = start._replace(n_neighbors=min(start.n_neighbors, SETTLING))
    best = _best([*map(judged, (fewer, *_finer(fewer, learned)))])
    best = _best([best, judged(_moved(best, learned, FIRST, RATE, rng, budget))])
    kinds = SMOOTHEST_FIRST[SMOOTHEST_FIRST.index(type(start.kernel)) + 1 :] if any_kind else ()
    for kind in kinds:
        if not budget:
            break
        trial = judged(_moved(best._replace(kernel=rougher(kind, best.kernel)), learned, ROUGHER, RATE, rng, budget))
        if trial.log_density < best.log_density + MARGIN:
            break
        best = trial
    best = _best([best, judged(_moved(best, learned, LAST, RATE / 3.0, rng, budget))])
    return done(best._replace(n_neighbors=start.n_neighbors))


def sparse_without(problem: GPProblem, state: State, x: Floats, y: Floats) -> Moments:
    """Of f given all other rows, by a sparse process with Gaussian noise, at standardised rows x [B, D], y [B, P] of its fit.

    Without row i the precision of v loses a_i a_iᵀ/σ²: with leverage ℓ = aᵀ S a/σ² the mean of aᵀ v becomes (m − ℓ y)/(1 − ℓ)
    and its variance aᵀ S a/(1 − ℓ).
    """
    settings, q, law = state.hyper["settings"], problem.posterior(state.lam["v"]), problem.likelihood
    psi, batch = np.asarray(settings.psi), problem.batch_of(settings, x, y)
    spread = np.array([np.einsum("mn,mn->n", batch.a, s @ batch.a) for s in q.covariance])
    mean, left = q.mean @ batch.a + problem.offset[:, None], np.maximum(batch.left, 0.0)
    said = law.expected_rows(psi, y, mean, spread + left)
    precision = np.maximum(-said.curvature, 1e-300)
    leverage = np.minimum(spread * precision, 1.0 - 1e-9)
    mean = (mean - leverage * (mean + said.slope / precision)) / (1.0 - leverage)
    return Moments(mean.T, (spread / (1.0 - leverage) + left).T)


def _best(locals_: list[Local]) -> Local:
    return max(locals_, key=lambda local: local.log_density)


def _finer(local: Local, learned: tuple[bool, bool]) -> list[Local]:
    """With shorter length scales and less noise: what inducing inputs could not hold is farther than steps go."""
    if not all(learned) or not isinstance(local.kernel, SMOOTHEST_FIRST):
        return []
    variance, ell = local.kernel.theta
    return [
        local._replace(
            kernel=local.kernel.at([variance, ell + np.log(part)]), noise=LEAST + share * (local.noise - LEAST)
        )
        for part, share in FINER
    ]


def rougher(kind: Any, kernel: Any) -> Covariance:
    """A stationary kernel of another kind with the same parameters."""
    other: Covariance = kind(variance=kernel.variance, lengthscale=kernel.lengthscale, active=kernel.active)
    return other


def _moved(
    local: Local,
    learned: tuple[bool, bool],
    searches: int,
    rate: float,
    rng: np.random.Generator,
    budget: Budget,
) -> Local:
    """Steps of Adam, each on some of a sample of rows whose neighbours were found last; the mean of the last quarter of them."""
    kernel, (x, y), n = local.kernel, local.rows, len(local.rows.x)
    m, size = min(local.n_neighbors, n - 1), min(n, max(SMALLEST, min(SAMPLE, SAMPLE * SEARCHED // n)))
    at = np.concatenate([*(np.ravel(part) for part in kernel.theta), local.psi])
    moves = np.concatenate([np.full(len(at) - 1, learned[0]), [learned[1]]])
    mu, nu, seen = np.zeros_like(at), np.zeros_like(at), [at]
    for search in range(searches):
        if not budget:
            break
        budget.spend()
        sample = rng.permutation(n)[:size]
        near = nearest(kernel_at(kernel, at), x, x[sample], m, sample)
        for step in range(STEPS):
            batch = np.arange(step * BATCH, (step + 1) * BATCH) % size if size > BATCH else np.arange(size)
            noise = LEAST + float(np.exp(at[-1]))
            try:
                found = slopes(kernel_at(kernel, at), noise, x, y, sample[batch], near[batch])
            except FloatingPointError:  # too far: what it came from stands
                return _averaged(local, seen)
            uphill = np.concatenate([*(np.ravel(part) for part in found.theta), [found.noise * (noise - LEAST)]])
            mu, nu, direction = adam_direction(search * STEPS + step + 1, mu, nu, uphill, SQUARES)
            at = np.where(moves, at + rate * direction, at)
            seen.append(at)
    return _averaged(local, seen)


def _averaged(local: Local, seen: list[Floats]) -> Local:
    at = np.mean(seen[-max(1, len(seen) // 4) :], axis=0)
    return local._replace(kernel=kernel_at(local.kernel, at), noise=LEAST + float(np.exp(at[-1])))


def kernel_at(kernel: Covariance, at: Floats) -> Covariance:
    """The kernel with θ of a vector that ends with ψ."""
    parts, begin = [], 0
    for part in kernel.theta:
        end = begin + np.size(part)
        parts.append(at[begin:end].reshape(np.shape(part)))
        begin = end
    return kernel.at(parts)
