"""A ready model in, simulation-based calibration of its posterior out: parameters from the priors, data from these, ranks."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConverged, PoorMixing
from natgrad.inference.callbacks import progress_bar
from natgrad.inference.sampler import best_order
from natgrad.inference.trace import StepRecord, Trace
from natgrad.posterior.calibration import LEVELS, Calibration, normal_ranks, spaced_draws
from natgrad.random import Stream, generator
from natgrad.validation import whole_number

if TYPE_CHECKING:
    from natgrad.models.uncertainty import UncertaintyMixin

__all__ = ["calibrate_model"]

Array = npt.NDArray[Any]


def calibrate_model(
    model: UncertaintyMixin,
    n: int,
    size: int,
    level: Literal["q", "linear_response", "draws"],
    n_ranks: int,
    seed: int,
    draws_options: dict[str, Any],
    verbose: bool | None,
) -> Calibration:
    """Ranks of parameters that were drawn from the priors of a fitted model, each among draws from its posterior."""
    whole_number(n, "n")
    whole_number(size, "size", least=2)
    whole_number(n_ranks, "n_ranks", least=9)
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(map(repr, LEVELS))}, got {level!r}")
    ranks: dict[str, list[Array]] = {}
    failed, trace = 0, Trace()
    with progress_bar(n, verbose) as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore", PoorMixing)
        warnings.simplefilter("ignore", NotConverged)
        for number in range(n):
            rng = generator(whole_number(seed, "seed", least=0), Stream.SIMULATION, number)
            truth, X, z = model._simulated(size, rng)
            other: Any = copy.copy(model)
            other.__dict__.update(model._with_same_priors(), inference="vb", n_sweeps=None, seed=number, verbose=False)
            try:
                other.fit(X)
                own_ranks = _ranks(other, X, truth, z, level, n_ranks, rng, {"seed": number, **draws_options})
            except (FloatingPointError, ValueError):
                failed += 1
                if failed == n:
                    raise
                continue
            for name, own in own_ranks.items():
                ranks.setdefault(name, []).append(own)
            trace.append(StepRecord(number + 1, np.nan, np.nan, np.nan, 0.0, 0, 0.0))
            bar(trace)
    return Calibration({name: np.stack(own_ranks) for name, own_ranks in ranks.items()}, n_ranks, level, failed)


def _ranks(
    model: Any, X: Array, truth: dict[str, Array], z: Array, level: str, n_ranks: int, rng: np.random.Generator,
    options: dict[str, Any],
) -> dict[str, Array]:  # fmt: skip
    problem = model._draws_problem(X)
    (wanted,) = problem.sampler.probabilities(model._state, len(z)).values()
    agree = np.array([np.bincount(z, wanted[:, k], problem.sampler.n_labels) for k in range(wanted.shape[1])])
    order = best_order(agree, problem.sampler.classes)
    if order is not None:  # true parameters in the order of the fit
        truth = {name: model._renumbered(name, value, order) for name, value in truth.items()}
    origins = {name: 0.0 if b.origin is None else b.origin for name, b in problem.blocks.items()}
    truth = {name: value + origins[name] for name, value in truth.items()}
    if level == "linear_response":
        response = model.linear_response(X)
        return {n: normal_ranks(v, response[n].mean(), response[n].std(), n_ranks) for n, v in truth.items()}
    if level == "q":
        samples = {name: model.posterior_[name].sample(rng, n_ranks) for name in truth}
    else:
        draws = model.draws(X, **{"n": 250, "chains": 2, "warmup": 100, "verbose": False, "starts": "q", **options})
        samples = {name: spaced_draws(draws[name].values, n_ranks) for name in truth}
    return {name: _ranked(value, samples[name], rng) for name, value in truth.items()}


def _ranked(value: Array, samples: Array, rng: np.random.Generator) -> Array:
    """How many samples are smaller; of those that are equal any number, as of a transition that is certain."""
    return np.asarray((samples < value).sum(0) + rng.integers(0, (samples == value).sum(0) + 1))
