"""Calibrate the posterior of a network by simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.inference.callbacks import progress_bar
from natgrad.inference.trace import StepRecord, Trace
from natgrad.network.draws.gibbs import point_stats
from natgrad.network.draws.labels import Relabelling
from natgrad.network.draws.run import draw_posterior
from natgrad.network.results.joint import as_separate_factors
from natgrad.posterior.calibration import LEVELS, Calibration, normal_ranks, spaced_draws
from natgrad.posterior.export import listed
from natgrad.random import Stream, generator
from natgrad.validation import whole_number

if TYPE_CHECKING:
    from natgrad.network.network import Network
    from natgrad.network.results.fit import Fit

__all__ = ["Level", "calibrate_network", "in_order_of"]

Array = npt.NDArray[Any]
Level = Literal["q", "linear_response", "draws"]


def calibrate_network(
    network: Network,
    n: int,
    level: Level,
    names: Sequence[str] | None,
    n_ranks: int,
    seed: int,
    fit_options: dict[str, Any],
    draws_options: dict[str, Any],
    verbose: bool | None,
) -> Calibration:
    """Ranks of hidden values that were drawn from the model, each among draws from its posterior."""
    whole_number(n, "n")
    whole_number(n_ranks, "n_ranks", least=9)
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(map(repr, LEVELS))}, got {level!r}")
    if weighted := [p for node in network.nodes.values() for p in node.plates if p.weight is not None]:
        raise PlateMismatch(
            f"calibrate: plate {weighted[0].name!r} has weights: data that count more than once cannot be drawn, write rows out"
        )
    network._check_bound("calibrate")
    chosen = _checked_names(network, names)
    truth = network.simulate(seed, n)
    ranks: dict[str, list[Array]] = {name: [] for name in chosen}
    failed, trace = 0, Trace()
    with progress_bar(n, verbose) as bar:
        for number in range(n):
            values = {name: value[number] for name, value in truth.items()}
            other = network.observing(values)
            try:
                fit = other.fit(**{"verbose": False, "seed": number, **fit_options})
                own = _ranks(fit, level, values, chosen, n_ranks, number, draws_options)
            except FloatingPointError:
                failed += 1
                continue
            for name in chosen:
                ranks[name].append(own[name])
            trace.append(StepRecord(number + 1, np.nan, np.nan, np.nan, 0.0, 0, 0.0))
            bar(trace)
    return Calibration({name: np.stack(own) for name, own in ranks.items()}, n_ranks, level, failed)


def _checked_names(network: Network, names: Sequence[str] | None) -> list[str]:
    ordered = [name for name in network.hidden if not network.nodes[name].family.is_discrete]
    for name in listed(names):
        if name not in ordered:
            raise ValueError(f"names: {name!r} is not a hidden node with an order; these are {', '.join(ordered)}")
    return ordered if names is None else list(names)


def _ranks(
    fit: Fit, level: Level, values: dict[str, Array], names: Sequence[str], n_ranks: int, seed: int, options: Any
) -> dict[str, Array]:
    values = in_order_of(fit, values)
    if level == "linear_response":
        response: Any = fit.linear_response(list(names))
        return {n: normal_ranks(values[n], response[n].mean(), response[n].std(), n_ranks) for n in names}
    samples: Mapping[str, Array]
    if level == "q":
        rng = generator(seed, Stream.SIMULATION, 2)
        samples = {name: fit[name].sample(rng, n_ranks) for name in names}
    else:
        draws = draw_posterior(
            as_separate_factors(fit),
            **{"n": 250, "chains": 2, "warmup": 100, "seed": seed, "verbose": False, **options},
        )
        samples = {name: spaced_draws(draws[name].values, n_ranks) for name in names}
    return {name: (samples[name] < values[name]).sum(0) for name in names}


def in_order_of(fit: Fit, values: dict[str, Array]) -> dict[str, Array]:
    """True values with the components in the order in which the fit has them, where the order means nothing."""
    plan = fit.problem.plan
    relabel = Relabelling(plan, {name: fit.state.mu[name] for name in plan.blocks})
    if not relabel.sets:
        return values
    moving = {name for entry in relabel.sets for name in entry.axes}
    hidden = {name: np.asarray(values[name])[None] for name in plan.blocks if name in moving}
    stats = {name: point_stats(plan.blocks[name].family, hidden[name], plan.nodes[name].size) for name in hidden}
    averaged = {name: stats[name][0] for name in hidden}
    relabel.put_back(stats, hidden, averaged)
    return {**values, **{name: value[0] for name, value in hidden.items()}}
