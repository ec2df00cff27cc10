"""Which covariance function, and how many inducing inputs where: rows in; a kernel and settings to start from out.

Kernels are compared by the bound after a short fit to some of the rows, first those of one kind with a length scale for each
column, then the best of these plus a linear function, and plus a function of each column alone. Columns of few whole numbers are
also tried as categories: a function of the other columns for each of them, alone and with what they share.

Inducing inputs are rows, each the one of which those before it say least: the largest conditional variance of f (a pivoted
Cholesky decomposition; Burt, Rasmussen and van der Wilk, 2020). What a bound with M of them can still gain is at most

    Σ_n var[f_n | u] / (2 σ²)

and more than the part of it that M + 1 would remove: M is the first at which it is less than a hundredth of a nat a row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.covariance import RBF, Categories, Covariance, Linear, Matern12, Matern32, Matern52, Product, Sum
from natgrad.data.rows import Rows
from natgrad.inference.engine import take_steps
from natgrad.inference.steppers.groups import FOLLOWING, GroupStepper
from natgrad.models.clusters import spread_rows
from natgrad.models.gp.likelihood import Likelihood
from natgrad.models.gp.problem import GPProblem
from natgrad.models.gp.settings import Settings, compiled
from natgrad.random import Stream, generator

__all__ = ["MOST_INDUCING", "chosen_kernel", "few_valued", "greedy_inducing", "spread_inducing", "tried"]

Floats = npt.NDArray[np.float64]
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
# Columns up to which a function of each of them alone is tried.
MOST_COLUMNS = 20
Made = Callable[[Covariance, int], GPProblem]
First = Callable[[Covariance, int], Settings]


def singles(n_columns: int) -> Iterator[Covariance]:
    """Rougher and rougher than an RBF, with a length scale for each column."""
    for kind in (Matern52, Matern32, Matern12):
        yield kind(lengthscale=np.full(n_columns, np.sqrt(n_columns)))


def sums(best: Covariance, n_columns: int) -> Iterator[Covariance]:
    """The best kind and something that is simpler than it."""
    yield Sum(best, Linear(variance=np.full(n_columns, 0.1)))
    if 1 < n_columns <= MOST_COLUMNS:
        yield Sum(best, *(RBF(variance=0.3, lengthscale=1.0, active=[column]) for column in range(n_columns)))


def few_valued(rows: Rows) -> list[int]:
    """Columns that may be categories: three or more values, equally spaced or multiples of a spacing, often met."""
    x = rows.take(None)[0]
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
    make: Made, n_columns: int, first: First, seed: int, seconds: float | None = None, kinds: Sequence[int] = ()
) -> tuple[Covariance, Settings]:
    """The kernel with the largest bound after a short fit, and what that learned; ``first`` has the settings of a start.

    A sum has to gain by more than the noise of a trial, since its steps take longer. After ``seconds`` no more are tried.
    """
    until = time.perf_counter() + (np.inf if seconds is None else seconds)
    best = tried(make, RBF(lengthscale=np.full(n_columns, np.sqrt(n_columns))), first, seed)
    for kernel in singles(n_columns):
        if time.perf_counter() < until:
            best = max(best, tried(make, kernel, first, seed), key=lambda trial: trial[0])
    margin = MARGIN * make(best[1], INDUCING).n_groups
    learned = best[1].at([np.asarray(part) for part in best[2].theta])
    if time.perf_counter() < until:  # sums begin where it has ended: as many steps for it as for them
        best = max(best, tried(make, learned, first, seed), key=lambda trial: trial[0])
    for kernel in (*sums(learned, n_columns), *(with_categories(learned, n_columns, [*kinds]) if kinds else ())):
        if time.perf_counter() < until:
            trial = tried(make, kernel, first, seed)
            best = trial if trial[0] > best[0] + margin else best
    return best[1:]


def tried(make: Made, kernel: Covariance, first: First, seed: int) -> tuple[float, Covariance, Settings]:
    """The bound after a short fit, with the kernel and what was learned; −∞ if the fit fails."""
    settings = first(kernel, INDUCING)
    problem = make(kernel, len(settings.inducing))
    size = min(problem.batch_size, problem.n_groups)
    stepper = GroupStepper(problem, size, *problem.local_limits, FOLLOWING, remember=False)
    try:
        state = take_steps(problem, stepper, problem.start(settings), STEPS, seed).state
        bound = problem.bound(state)
    except FloatingPointError:  # no trial may end the fit of another kernel
        return -np.inf, kernel, settings
    learned = state.hyper["settings"]._replace(adam=None)
    return bound if np.isfinite(bound) else -np.inf, kernel, learned


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
    return np.unique(spread_rows(candidates, wanted, rng), axis=0)
