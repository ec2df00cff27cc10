"""A fit in, its posterior draws out: chains that begin at draws from q, as one run of the loop."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad._version import __version__
from natgrad.errors import NotConjugate
from natgrad.inference.callbacks import as_callbacks
from natgrad.inference.engine import Limits, Phase, run
from natgrad.inference.problem import State
from natgrad.inference.schema import record
from natgrad.inference.trace import Trace
from natgrad.network.compile.plan import Plan
from natgrad.network.draws.chains import with_chains
from natgrad.network.draws.gibbs import Gibbs, Schedule
from natgrad.network.draws.labels import Relabelling
from natgrad.network.draws.predictive import predictive_of_draws
from natgrad.network.execute.backend import BackendName
from natgrad.network.execute.problem import NetworkProblem
from natgrad.network.language.expressions import CATEGORY
from natgrad.network.language.missing import seen_values
from natgrad.posterior.draws import DrawnFactor, Draws, DrawsSettings
from natgrad.posterior.fit_options import CheckpointOptions, checkpointer_of
from natgrad.validation import whole_number

if TYPE_CHECKING:
    from natgrad.network.results.fit import Fit

__all__ = ["attached", "draw_posterior"]

# Numbers of kept draws of one node; of a larger one every second draw is kept, every fourth, …
MOST_KEPT = 4_000_000


def draw_posterior(
    fit: Fit,
    n: int = 1000,
    chains: int = 4,
    warmup: int | None = None,
    thin: int = 1,
    seed: int = 0,
    names: Sequence[str] | None = None,
    backend: BackendName | None = None,
    max_seconds: float | None = None,
    callbacks: Sequence[Any] = (),
    verbose: bool | None = None,
    keep: CheckpointOptions | None = None,
) -> Draws:
    """Gibbs sampling from the declaration of a fit; arguments are those of ``Fit.draws``."""
    warm = max(100, whole_number(n, "n") // 2) if warmup is None else whole_number(warmup, "warmup", least=0)
    schedule = Schedule(warm, n, whole_number(thin, "thin"))
    settings = DrawsSettings(
        n, whole_number(chains, "chains"), warm, schedule.thin, whole_number(seed, "seed", least=0), __version__
    )
    plan = fit.problem.plan
    for name, block in plan.blocks.items():
        if block.family.is_bound:
            raise NotConjugate(
                f"draws: the concentration of {name.removesuffix('.bound')!r} is learned by a bound of its normaliser, which has "
                "no conditional to draw from. Give it a known concentration, for example its posterior mean"
            )
    for name in (name for name, node in plan.nodes.items() if node.is_bounded):
        raise NotConjugate(
            f"draws: the softmax of {name!r} is bounded by one-against-each logits, whose draws would have another posterior. "
            "Use logits=, which is exact, or linear_response()"
        )
    problem = NetworkProblem(with_chains(plan, chains), fit.problem.backend.name if backend is None else backend)
    asked = _checked_names(fit, names)
    relabel = Relabelling(plan, {name: fit.state.mu[name] for name in plan.blocks})
    gibbs = Gibbs(problem, schedule, {}, relabel)
    gibbs.strides = _strides(gibbs, fit, schedule, chains, asked)
    about = {"draws": [n, chains, warm, schedule.thin], "names": sorted(asked), "backend": problem.backend.name}
    start = gibbs.start(fit.state.lam, settings.seed)
    checkpointer = checkpointer_of(keep or {}, about, lambda: (_table(start), {}))

    def found(state: State) -> Draws:
        return _collected(fit, gibbs, state, settings)

    result = run(
        Phase(problem, stepper=gibbs, bound_every="never", why="Gibbs sampling"), start,
        limits=Limits(schedule.sweeps, 0.0, max_seconds, advice="make more draws"), seed=settings.seed,
        callbacks=as_callbacks(callbacks), verbose=verbose, trace=Trace(), checkpointer=checkpointer, model_at=found,
    )  # fmt: skip
    if result.stop.diverged:
        reason = str(result.stop).split(": ", 1)[-1].split(". ")[0]
        raise FloatingPointError(
            f"sweep {result.state.t + 1} met a conditional that is no distribution ({reason}): priors may "
            "be improper, or numbers far apart in size. Give proper priors, or measure in other units"
        )
    return found(result.state)


def _checked_names(fit: Fit, names: Sequence[str] | None) -> set[str]:
    if isinstance(names, str):
        raise TypeError(f"names must be a list of names, got the text {names!r}: write [{names!r}]")
    return {fit[name].name for name in names or ()}  # whose error says which there are


def _strides(gibbs: Gibbs, fit: Fit, schedule: Schedule, chains: int, asked: set[str]) -> dict[str, int]:
    """Every how many draws of each node one is kept: powers of two, so that those of the rarest are draws of all."""
    found = {}
    for name in fit.problem.blocks:
        if fit.problem.plan.nodes[name].is_auxiliary and name not in asked:
            continue
        if name in gibbs.copies:
            if name in asked:
                raise ValueError(
                    f"draws of {name!r} cannot be kept: it lies on a plate with weights, and stands for several values at once"
                )
            continue
        family, shapes = fit.problem.blocks[name].family, fit.problem.plan.nodes[name].stat_shapes()
        numbers = math.prod(shapes[0][:-1] if family.name in ("Categorical", "MarkovChain") else shapes[0])
        stride = 1
        while name not in asked and stride < schedule.n and chains * schedule.n * numbers / stride > MOST_KEPT:
            stride *= 2
        found[name] = stride
    return found


def _collected(fit: Fit, gibbs: Gibbs, state: State, settings: DrawsSettings) -> Draws:
    """What the draws up to a state say."""
    schedule, memory = gibbs.schedule, state.memory
    done = max(0, (state.t - schedule.warmup) // schedule.thin)
    if done == 0:
        raise ValueError(f"there are no draws yet: {state.t} of {schedule.warmup} sweeps of the warm-up were made")
    factors = {}
    for name, block in fit.problem.blocks.items():
        if fit.problem.plan.nodes[name].is_auxiliary and name not in gibbs.strides:
            continue  # not asked for
        stride = gibbs.strides.get(name, 1)
        kept = memory["kept"][name][:, : -(-done // stride)] if name in gibbs.strides else None
        first, second = memory["sums"][name]
        node = fit.problem.plan.nodes[name]
        if node.is_observed and node.kind != CATEGORY:  # observed in part: what was seen is not drawn
            seen, values = seen_values(node)
            known = values if block.origin is None else values - block.origin
            kept = None if kept is None else np.where(seen, known, kept)
            first, second = np.where(seen, done * known, first), np.where(seen, done * known**2, second)
        factors[name] = DrawnFactor(name, block.family, block.plates, kept, first, second, done, stride, block.origin)
    made = settings if done == settings.n else _with_n(settings, done)
    return Draws(factors, made, memory["relabelled"], labels=fit._labels, predictive=_predictive_of(fit.problem.plan))


def _with_n(settings: DrawsSettings, n: int) -> DrawsSettings:
    return DrawsSettings(n, settings.chains, settings.warmup, settings.thin, settings.seed, settings.version)


def attached(network: Any, draws: Draws) -> Draws:
    """Draws with the network that they are of."""
    nodes = network.problem.plan.nodes
    blocks = {name: block for name, block in network.problem.blocks.items() if not nodes[name].is_auxiliary}
    if list(blocks) != list(draws) or any(draws[n].family != b.family for n, b in blocks.items()):
        raise ValueError(f"the network has hidden nodes {', '.join(blocks)}, and the draws {', '.join(draws)}")
    for name, block in blocks.items():
        if draws[name].first.shape[1 : 1 + len(block.shape)] != tuple(block.shape):
            raise ValueError(
                f"{name!r} has plates of sizes {tuple(block.shape)} in the network, and others in the draws"
            )
    return Draws(draws.factors, draws.settings, draws.relabelled, predictive=_predictive_of(network.problem.plan))


def _predictive_of(plan: Plan) -> Any:
    return lambda draws, name, sizes, slots: predictive_of_draws(plan, draws, name, sizes, slots)


def _table(state: State) -> Any:
    """What a checkpoint of a run may hold: arrays of the shapes of its start."""

    def arrays(tree: Any) -> Any:
        if isinstance(tree, Mapping):
            return {name: arrays(part) for name, part in tree.items()}
        if isinstance(tree, tuple):
            return tuple(arrays(part) for part in tree)
        kind = "whole" if np.asarray(tree).dtype.kind in "iu" else "real"
        return f"{kind} {list(np.shape(tree))}" if np.ndim(tree) else kind

    return record(State, lam={}, mu=arrays(state.mu), t="whole in [0, 1e12]", memory=arrays(state.memory), hyper={})
