"""Find other places where a posterior may have mass, by fits from random starts, and what draws miss there.

Chains that begin at q see what sweeps lead to, and R̂ compares them with one another alone. So some fits are made from random
starts. One that ends elsewhere, not much lower than the fit, is a rival: exp(its bound − the bound) is about its share of the
posterior beside that of the fit. Then a few chains begin at both; if there is a gap between them after some sweeps, the draws
would not cross it either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.errors import SymmetricStart
from natgrad.inference.engine import Result, few_steps
from natgrad.inference.steppers.gibbs import Schedule
from natgrad.network.draws.gibbs import sampler_of
from natgrad.network.draws.labels import Relabelling
from natgrad.network.execute.problem import NetworkProblem
from natgrad.network.results.joint import as_separate_factors
from natgrad.network.start.restarts import random_starts
from natgrad.posterior.drawing import EACH, FAR, SAME, SWEEPS, is_gap, words_of
from natgrad.random import Stream, generator

if TYPE_CHECKING:
    from natgrad.network.results.fit import Fit

__all__ = ["Rival", "chain_inits", "missed_modes", "rivals_of"]

Array = npt.NDArray[Any]
Stats = tuple[Any, ...]
# Fits from random starts, and the sweeps that each may take: together at most a fifth of the sweeps of the draws.
STARTS, FEWEST_SWEEPS, MOST_SWEEPS, SHARE = 6, 10, 200, 0.2
# Messages of a sweep beyond which no other fits are made unasked.
LARGE = 500_000
# Numbers of a node that are compared.
MOST_COMPARED = 2000


class Rival(NamedTuple):
    """A fit from another start, and by how many nats its bound is above that of the fit."""

    fit: Fit
    gain: float


def chain_inits(
    fit: Fit, starts: Literal["q", "restarts"] | Sequence[Fit] | None, sweeps: int, seed: int
) -> tuple[list[Fit], list[str]]:
    """The fits at which chains begin, this one first, and a sentence on what they miss."""
    if starts is None:
        return [fit], missed_modes(fit, sweeps, seed)
    if isinstance(starts, str):
        if starts not in ("q", "restarts"):
            raise ValueError(f'starts must be "q", "restarts" or a list of fits, got {starts!r}')
        return [fit, *(rival.fit for rival in (rivals_of(fit, sweeps, seed) if starts == "restarts" else ()))], []
    for number, other in enumerate(starts):
        problem = getattr(other, "problem", None)
        blocks = problem.blocks if isinstance(problem, NetworkProblem) else {}
        if {n: b.shape for n, b in blocks.items()} != {n: b.shape for n, b in fit.problem.blocks.items()}:
            raise ValueError(f"starts[{number}] must be a fit of the same network, got {other!r:.80}")
    return [fit, *(other for other in starts if other is not fit)], []


def rivals_of(fit: Fit, sweeps: int, seed: int) -> list[Rival]:
    """Fits from random starts that ended elsewhere and not far below, the highest first; for so many sweeps of draws."""
    problem, steps = fit.problem, min(MOST_SWEEPS, int(SHARE * sweeps / STARTS))
    # Hidden categories are what makes modes that no sweep joins; and a few more fits must cost little.
    hidden = any(block.family.is_category for block in problem.blocks.values())
    if (
        not hidden
        or problem.n_messages > LARGE
        or problem.plan.grown
        or not _compared(problem)
        or steps < FEWEST_SWEEPS
    ):
        return []
    fit = _interpreted(fit)
    problem = fit.problem
    bound, rivals = problem.bound(fit.state), list[Rival]()
    for start, stepper in random_starts(problem, int(generator(seed, Stream.DRAWS, 0, 1).integers(2**31)), STARTS):
        try:
            result = few_steps(problem, stepper, start, steps, seed, tol=1e-3)
        except (SymmetricStart, ValueError, FloatingPointError):
            continue  # a start that rules out the data says nothing of the posterior
        gain = problem.bound(result.state) - bound
        if result.stop.diverged or not gain > -FAR:
            continue
        other = type(fit)(problem, result, fit.settings, fit._source)
        if not any(_is_same(known, other) for known in (fit, *(rival.fit for rival in rivals))):
            rivals.append(Rival(other, float(gain)))
    return sorted(rivals, key=lambda rival: -rival.gain)


def _interpreted(fit: Fit) -> Fit:
    """The fit without JAX: a few sweeps in orders of their own take less time than compiling them.

    Arrays of JAX would be computed with by JAX, outside of its double precision.
    """
    lam, mu = (
        {name: tuple(map(np.asarray, parts)) for name, parts in table.items()}
        for table in (fit.state.lam, fit.state.mu)
    )
    result = Result(fit.state._replace(lam=lam, mu=mu), fit.trace, fit.stop, fit._bound)
    return type(fit)(fit.problem.interpreted(), result, fit.settings, fit._source)


def _compared(problem: NetworkProblem) -> list[str]:
    """The nodes that say where a fit is: numbers that nothing can rotate."""
    turned = {name for pair in problem.gauges for name in pair}
    names = []
    for name, block in problem.blocks.items():
        node = problem.plan.nodes[name]
        small = np.prod(node.stat_shapes()[0], dtype=np.int64) <= MOST_COMPARED
        if small and name not in turned and not node.is_auxiliary and not block.family.is_category:
            names.append(name)
    return names


def _is_same(fit: Fit, other: Fit) -> bool:
    """Whether two fits are at the same place, but for the numbers of components that are alike."""
    if abs(fit.problem.bound(fit.state) - other.problem.bound(other.state)) > SAME:
        return False
    plan, names = fit.problem.plan, _compared(fit.problem)
    relabel = Relabelling(plan, fit.state.mu)
    stats: dict[str, Stats] = {
        n: tuple(np.asarray(part)[None] for part in parts) for n, parts in other.state.mu.items()
    }
    means = {n: np.asarray(b.family.mean(other.state.lam[n]))[None] for n, b in plan.blocks.items()}
    relabel.put_back(stats, means)
    for name in names:
        family, lam = plan.blocks[name].family, fit.state.lam[name]
        away = np.abs(means[name][0] - family.mean(lam))
        if (away > 0.5 * np.sqrt(family.var(lam))).any():
            return False
    return True


def missed_modes(fit: Fit, sweeps: int, seed: int) -> list[str]:
    """A sentence if there is a rival that chains from q do not reach, nor chains from there q, for so many sweeps of draws."""
    rivals = rivals_of(fit, sweeps, seed)
    if not rivals or not _stay_apart(fit, rivals[0].fit, min(SWEEPS, sweeps // 10), seed):
        return []
    lower = 'draws(starts="restarts") has chains at both'
    return [words_of(rivals[0].gain, "fit again with init= or n_init=", lower)]


def _stay_apart(fit: Fit, other: Fit, sweeps: int, seed: int) -> bool:
    here, there = as_separate_factors(fit), as_separate_factors(other)
    schedule = Schedule(sweeps, sweeps, 1)
    gibbs, _ = sampler_of(here.problem.plan, here.state.mu, 2 * EACH, schedule, "numpy")
    gibbs.strides = strides = {name: 1 for name in _compared(here.problem)}
    if set(strides) & set(gibbs.copies):
        return False
    start = gibbs.start([here.state.lam] * EACH + [there.state.lam] * EACH, seed)
    result = few_steps(gibbs.problem, gibbs, start, schedule.sweeps, seed)
    kept: Mapping[str, Array] = result.state.memory["kept"]
    return any(is_gap(kept[name][:EACH], kept[name][EACH:]) for name in strides)
