"""Which covariance function, and how many inducing inputs where: rows in; a kernel and settings to start from out.

Kernels are compared by the bound after a short fit to some of the rows: those of one kind with a length scale for each column;
the best of these plus a linear function; functions of each column alone, smooth or rough; both together. Columns of few whole
numbers are also tried as categories: a function of the other columns for each of them, alone and with what they share.

Inducing inputs are rows, each the one of which those before it say least: the largest conditional variance of f (a pivoted
Cholesky decomposition; Burt, Rasmussen and van der Wilk, 2020). What a bound with M of them can still gain is at most

    Σ_n var[f_n | u] / (2 σ²)

and more than the part of it that M + 1 would remove: M is the first at which it is less than a hundredth of a nat a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.covariance import RBF, Categories, Covariance, Linear, Matern12, Matern32, Matern52, Periodic, Product, Sum
from natgrad.data.rows import Rows
from natgrad.inference.engine import take_steps
from natgrad.inference.steppers.groups import FOLLOWING, ExactPass, GroupStepper
from natgrad.kmeans import spread_out
from natgrad.models.gp.likelihoods import Likelihood
from natgrad.models.gp.problem import GPProblem
from natgrad.models.gp.settings import Settings, compiled
from natgrad.random import Stream, generator

__all__ = [
    "MOST_INDUCING",
    "Trial",
    "Trials",
    "chosen_kernel",
    "few_valued",
    "fine_enough",
    "greedy_inducing",
    "spread_inducing",
    "usual",
]

Floats = npt.NDArray[np.float64]
# Of the variance of a sum, the part below which one of its functions may be left out; rows that tell.
IDLE, MOST_SPREAD = 0.02, 500
# Inducing inputs are spread among this many rows for each of them, and at most so many.
ROWS_PER_INDUCING, MOST_STARTING_ROWS = 20, 20_000
# Rows, inducing inputs and steps of a trial; rows among which inducing inputs are sought.
ROWS, INDUCING, STEPS, CANDIDATES = 4_000, 64, 200, 4_000
# Nats a row that may be left to gain, and the most and fewest inducing inputs where their number is chosen.
ENOUGH, MOST_INDUCING, FEWEST = 0.01, 500, 16
# Nats a row by which a sum must be ahead.
MARGIN = 0.005
# Values up to which a column of whole numbers may be one of categories, and rows for each of them.
MOST_CATEGORIES, ROWS_OF_EACH = 100, 10
# Rows in which waves are sought, and the share of what is left that one must explain.
MOST_WAVES, LEAST_WAVE = 1_000, 0.1
# Columns up to which a function of each of them alone is tried.
MOST_COLUMNS = 20


# Parts of the usual length scale and shares of noise that are tried, and nats a row: what is nothing, and what is something.
FINER, NOISY = (0.5, 0.2, 0.08, 0.03, 0.012), np.array([0.01, 0.05, 0.2, 0.5, 0.9])
NOTHING, SOMETHING = 0.02, 0.1


class Trial(NamedTuple):
    """A kernel with its bound after a short fit, and what that learned."""

    bound: float
    kernel: Covariance
    settings: Settings

    @property
    def learned(self) -> Covariance:
        """The kernel as it was learned."""
        return self.kernel.at([np.asarray(part) for part in self.settings.theta])


class Trials(NamedTuple):
    """Short fits to the same rows: how a problem is made, where it starts, and whether there is time for another."""

    make: Callable[[Covariance, int], GPProblem]
    first: Callable[[Covariance, int], Settings]
    seed: int
    in_time: Callable[[], bool]

    def tried(self, kernel: Covariance, steps: int = STEPS, inducing: int = INDUCING, psi: Any = None) -> Trial:
        """One of them; its bound is −∞ if it fails."""
        settings = self.first(kernel, inducing)
        settings = settings if psi is None else settings._replace(psi=psi)
        problem = self.make(kernel, len(settings.inducing))
        size = min(problem.batch_size, problem.n_groups)
        stepper = GroupStepper(problem, size, *problem.local_limits, FOLLOWING, remember=False)
        try:
            state = take_steps(problem, stepper, problem.start(settings), steps, self.seed).state
            # q is that of the settings before the last step of these. Where noise is small that is worth nats a row (y = ±sin x
            # of 100 rows: −8.7 instead of 1.2), and would decide between kernels by chance.
            bound = problem.bound(ExactPass(problem).step(state, self.seed)[0])
        except FloatingPointError:  # no trial may end the fit of another kernel
            return Trial(-np.inf, kernel, settings)
        learned = state.hyper["settings"]._replace(adam=None)
        return Trial(bound if np.isfinite(bound) else -np.inf, kernel, learned)

    def best_of(self, kernels: Iterable[Covariance], best: Trial, margin: float) -> Trial:
        """``best``, unless another is ahead by the margin; as far as time allows."""
        for kernel in kernels:
            if self.in_time() and (trial := self.tried(kernel)).bound > best.bound + margin:
                best = trial
        return best

    def climbed(self, kernels: Iterable[Covariance], margin: float) -> Trial | None:
        """The best of kernels that are rougher and rougher, after few steps: none after one that is worse by the margin."""
        best = None
        for kernel in kernels:
            trial = self.tried(kernel, STEPS // 2) if self.in_time() else None
            if trial is None or (best is not None and trial.bound < best.bound - margin):
                break
            best = trial if best is None or trial.bound > best.bound else best
        return best


def usual(n_columns: int) -> Covariance:
    """An RBF with a length scale for each column."""
    return RBF(lengthscale=np.full(n_columns, np.sqrt(n_columns)))


def fine_enough(x: Floats, y: Floats) -> Covariance:
    """The usual kernel; where that explains nothing, and shorter length scales do, with those. Of rows x [N, D], y [N, P].

    From a length scale far too long the bound has no slope towards a shorter one: the fit converges, and all of y is noise.
    """
    kernel, y = usual(x.shape[1]), y - y.mean(0)
    y = y[:, np.any(y, axis=0)]  # a constant needs no kernel
    if not y.size or not np.isfinite(y).all():  # outputs with gaps are not compared
        return kernel
    first = _explained(kernel, x, y)
    if first >= NOTHING:
        return kernel
    variance, ell = kernel.theta
    finer = [kernel.at([variance, ell + np.log(part)]) for part in FINER]
    explained = [_explained(trial, x, y) for trial in finer]
    best = int(np.argmax(explained))
    return finer[best] if explained[best] > first + SOMETHING else kernel


def _explained(kernel: Covariance, x: Floats, y: Floats) -> float:
    """Nats a row and output by which the evidence, at its best scale and share of noise, is above that of noise alone."""
    values, vectors = np.linalg.eigh(kernel(x))
    squares = (vectors.T @ y) ** 2
    excess = np.maximum(values, 0.0) - 1.0
    spread = 1.0 + excess[:, None] * (1.0 - NOISY)  # with each share of noise [N, shares]
    scales = np.log(squares.T @ (1.0 / spread) / len(x)) - np.log(squares.mean(0))[:, None]
    return float(np.max(-0.5 * (scales.mean(0) + np.log(spread).mean(0))))


def singles(n_columns: int) -> Iterator[Covariance]:
    """An RBF, and kernels that are rougher and rougher, with a length scale for each column."""
    yield usual(n_columns)
    for kind in (Matern52, Matern32, Matern12):
        yield kind(lengthscale=np.full(n_columns, np.sqrt(n_columns)))


def additive(n_columns: int) -> Iterator[Covariance]:
    """A function of each column alone, smooth or rough."""
    for kind in (RBF, Matern32, Matern12) if 1 < n_columns <= MOST_COLUMNS else ():
        yield Sum(*(kind(variance=0.3, lengthscale=1.0, active=[column]) for column in range(n_columns)))


def few_valued(x: Floats) -> list[int]:
    """Columns [N, D] that may be categories: three or more values, equally spaced or multiples of a spacing, often met."""
    found = []
    for column in range(x.shape[1]):
        values = np.unique(x[:, column])
        if 3 <= len(values) <= min(MOST_CATEGORIES, len(x) // ROWS_OF_EACH):
            apart = np.diff(values)
            places = apart / apart.min()
            if np.abs(places - np.round(places)).max() < 1e-6:
                found.append(column)
    return found


def with_categories(best: Covariance, n_columns: int, kinds: list[int]) -> Iterator[Covariance]:
    """The best kind on columns of numbers, for each category; and with functions that all of them share."""
    ell = np.asarray(getattr(best, "lengthscale", np.full(n_columns, np.sqrt(n_columns))))
    rest = [column for column in range(n_columns) if column not in kinds]
    levels = Categories(lengthscale=np.ones(len(kinds)), active=kinds)
    if not rest:
        yield levels
        return
    kind: Any = type(best)
    smooth = kind(lengthscale=ell[rest], active=rest)
    yield Product(smooth, levels)
    yield Sum(smooth, levels, Product(smooth, levels))


def chosen_kernel(
    trials: Trials, x: Floats, kinds: Sequence[int] = (), y: Floats | None = None
) -> tuple[Covariance, Settings]:
    """The kernel with the largest bound after short fits to rows [N, D], and what it learned; ``kinds``: columns of categories.

    One kind with a length scale for each column and one with a function of each are found first, by half as many steps; then
    these, and sums with them, go on from there, all equally far. A sum has to gain by more than the noise of a trial. Of outputs
    y [N] with Gaussian noise what the best of them leaves is searched for a wave along a column.
    """
    n_columns, margin = x.shape[1], MARGIN * len(x)
    single = trials.climbed(singles(n_columns), margin)
    if single is None:  # no time for anything
        return trials.tried(usual(n_columns), 1)[1:]
    columns = trials.climbed(additive(n_columns), margin)
    start = single.learned
    best = trials.best_of([start], single, 0.0)
    best = trials.best_of([Sum(start, Linear(variance=np.full(n_columns, 0.1)))], best, margin)
    if columns is not None:
        best = trials.best_of([columns.learned, Sum(columns.learned, start)], best, margin)
    if kinds:
        best = trials.best_of(with_categories(start, n_columns, [*kinds]), best, margin)
    if y is not None and trials.in_time():
        psi = np.asarray(best.settings.psi)
        wave = wave_left(x, y, best.learned, float(np.exp(psi.ravel()[0])))
        if wave is not None:  # not learned here: Adam's steps are far longer than a period is known
            trial = trials.tried(Sum(best.learned, wave), 1, 4 * INDUCING, psi - 1.0)
            best = trial if trial.bound > best.bound + margin else best
    simpler = without_idle_parts(best.learned, x)
    if simpler is not None and trials.in_time() and (trial := trials.tried(simpler)).bound > best.bound - margin:
        best = trial
    return best[1:]


def wave_left(x: Floats, y: Floats, kernel: Covariance, noise: float) -> Covariance | None:
    """A wave along a column of x [N, D] in what a kernel leaves of y [N], by a periodogram (Lomb, 1976); None if there is none.

    From a long length scale the bound has no slope towards the many short waves of a season: they are taken for noise.
    """
    x, y = x[:MOST_WAVES], y[:MOST_WAVES] - y[:MOST_WAVES].mean()
    left = np.linalg.solve(kernel(x) + max(noise, 1e-6) * np.eye(len(x)), y)
    left = left / max(float(left.std()), 1e-300)
    found: tuple[float, int, float] = (max(LEAST_WAVE, 2.0 * np.log(100.0 * len(x)) / len(x)), -1, 0.0)
    for column in range(min(x.shape[1], MOST_COLUMNS)):
        extent = float(np.ptp(x[:, column]))
        if extent == 0.0 or len(x) <= 6 or len(np.unique(x[:, column])) < len(x) // 4:
            continue
        frequencies = np.arange(3.0, len(x) / 2.0, 0.25) / extent
        angles = 2.0 * np.pi * np.outer(frequencies, x[:, column])
        shares = 2.0 * ((np.cos(angles) @ left) ** 2 + (np.sin(angles) @ left) ** 2) / len(x) ** 2
        best = int(np.argmax(shares))
        found = max(found, (float(shares[best]), column, 1.0 / float(frequencies[best])))
    share, column, period = found
    if column < 0:
        return None
    repeated = Periodic(variance=share * float(y.var()) / 2.0, period=period, active=[column])
    return Product(repeated, RBF(lengthscale=float(np.ptp(x[:, column])), active=[column]))


def without_idle_parts(kernel: Covariance, x: Floats) -> Covariance | None:
    """A sum without the functions that are expected to vary least from row to row [N, D]; None where there are none."""
    if not isinstance(kernel, Sum):
        return None
    rows = x[:MOST_SPREAD]
    spreads = np.array([np.mean(np.diag(k := part(rows))) - k.mean() for part in kernel.parts])
    kept = [part for part, spread in zip(kernel.parts, spreads, strict=True) if spread > IDLE * spreads.sum()]
    if len(kept) == len(spreads) or not kept:
        return None
    return Sum(*kept) if len(kept) > 1 else kept[0]


def greedy_inducing(
    rows: Rows,
    kernel: Covariance,
    settings: Settings,
    likelihood: Likelihood,
    wanted: int | None,
    rng: np.random.Generator,
) -> Floats:
    """Rows with the largest conditional variance, one after the other: ``wanted`` of them, or as many as it takes."""
    numbers = np.sort(rng.choice(len(rows), min(len(rows), CANDIDATES), replace=False, shuffle=False))
    x = np.unique(rows.take(numbers)[0], axis=0)
    matrices = compiled(kernel)
    left = np.array(matrices.rows(settings._replace(inducing=x[:1]), x)[1])
    noise = likelihood.noise_level(np.asarray(settings.psi))
    enough, smallest = 2.0 * noise * ENOUGH, 1e-10 * float(left.mean())
    most = min(len(x), MOST_INDUCING if wanted is None else wanted)
    root, chosen = np.empty((most, len(x))), []
    for n in range(most):
        if left.max() <= smallest or (wanted is None and n >= FEWEST and left.mean() <= enough):
            break
        pivot = int(np.argmax(left))
        column = matrices.rows(settings._replace(inducing=x[pivot : pivot + 1]), x)[0][:, 0]
        root[n] = (column - root[:n, pivot] @ root[:n]) / np.sqrt(left[pivot])
        left = np.maximum(left - root[n] ** 2, 0.0)
        left[pivot] = 0.0
        chosen.append(pivot)
    return np.ascontiguousarray(x[np.sort(chosen)])


def spread_inducing(rows: Rows, seed: int, wanted: int) -> Floats:
    """K-means++ among some rows; never two the same."""
    rng = generator(seed, Stream.START)
    most = min(len(rows), max(ROWS_PER_INDUCING * wanted, 2_000), MOST_STARTING_ROWS)
    numbers = np.sort(rng.choice(len(rows), most, replace=False, shuffle=False))
    candidates = np.unique(rows.take(numbers)[0], axis=0)
    if len(candidates) <= wanted:
        return candidates
    return np.unique(spread_out(candidates, wanted, rng), axis=0)
