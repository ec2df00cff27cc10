"""Other places where the posterior of a ready model may have mass: the model and its data in; what its draws miss, in words, out.

As for networks (`natgrad.network.draws.rivals`): fits from other starts, and a few chains that begin at both ends.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConverged
from natgrad.inference.engine import Limits, Phase, run
from natgrad.inference.problem import GroupProblem, State
from natgrad.inference.sampler import best_order
from natgrad.inference.steppers.gibbs import GroupGibbs, Schedule
from natgrad.posterior.drawing import EACH, FAR, SAME, SWEEPS, is_gap, words_of

__all__ = ["missed_by"]

Array = npt.NDArray[Any]
Stats = tuple[Any, ...]
# Fits from other starts, each of one start and at most so many passes; draws of fewer sweeps are made without looking.
STARTS, PASSES, FEWEST = 4, 50, 300
# Local variables by which labels of two fits are compared.
MOST_COMPARED = 10_000


def missed_by(model: Any, problem: GroupProblem, X: Any, data: Mapping[str, Any], sweeps: int, seed: int) -> list[str]:
    """A sentence, if a fit from another start ends elsewhere, not far below, and chains do not get from one to the other."""
    here: State = model._state
    if sweeps < FEWEST or problem.sampler is None or problem.sampler.n_labels < 2:
        return []
    bound = problem.bound(here)
    best: tuple[float, State] | None = None
    for number in range(STARTS):
        other: Any = copy.copy(model)
        settings = {
            "inference": "vb",
            "n_sweeps": None,
            "seed": seed + 1 + number,
            "n_init": 1,
            "max_passes": PASSES,
            "verbose": False,
        }
        other.__dict__.update(model._with_same_priors(), **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConverged)
            try:
                other.fit(X, **data)
            except (FloatingPointError, ValueError):
                continue  # a start that leads nowhere says nothing of the posterior
        there: State = other._state
        if any(np.shape(a) != np.shape(b) for n in here.lam for a, b in zip(here.lam[n], there.lam[n], strict=True)):
            continue
        gain = problem.bound(there) - bound
        if gain > -FAR and (best is None or gain > best[0]) and not _is_same(problem, here, there, gain):
            best = float(gain), there
    if best is None or not _stay_apart(problem, here, best[1], min(SWEEPS, sweeps // 10), seed):
        return []
    return [words_of(best[0], "fit again with another seed or a larger n_init", "look at fits with other seeds")]


def _is_same(problem: GroupProblem, here: State, there: State, gain: float) -> bool:
    """Whether two fits are at the same place, but for the numbers of components that are alike."""
    sampler = problem.sampler
    if sampler is None or abs(gain) > SAME:
        return False
    agree = np.zeros((sampler.n_labels, sampler.n_labels))
    for one, two in zip(*(sampler.probabilities(s, MOST_COMPARED).values() for s in (here, there)), strict=True):
        agree += one.T @ two
    order = best_order(agree, sampler.classes)
    for name, block in problem.blocks.items():
        lam = there.lam[name] if order is None else sampler.renumbered_message(name, there.lam[name], order)
        away = np.abs(block.family.mean(lam) - block.family.mean(here.lam[name]))
        if (away > 0.5 * np.sqrt(block.family.var(here.lam[name]))).any():
            return False
    return True


def _stay_apart(problem: GroupProblem, here: State, there: State, sweeps: int, seed: int) -> bool:
    sampler, schedule = problem.sampler, Schedule(sweeps, sweeps, 1)
    assert sampler is not None
    some_alike = len(np.unique(sampler.classes)) < sampler.n_labels
    wanted = sampler.probabilities(here, MOST_COMPARED) if some_alike else {}
    gibbs = GroupGibbs(problem, schedule, 2 * EACH, dict.fromkeys(problem.blocks, 1), wanted)
    start = gibbs.start([here.lam] * EACH + [there.lam] * EACH, seed)
    result = run(
        Phase(problem, stepper=gibbs, bound_every="never", why="chains of two starts"), start,
        limits=Limits(schedule.sweeps, 0.0), seed=seed, verbose=False,
    )  # fmt: skip
    return any(is_gap(draws[:EACH], draws[EACH:]) for draws in result.state.memory["kept"].values())
