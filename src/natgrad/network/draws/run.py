"""Run chains of draws of a fit, and draw new data from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConjugate
from natgrad.inference.options import CheckpointOptions
from natgrad.inference.problem import State
from natgrad.inference.steppers.gibbs import Schedule, moves_of
from natgrad.network.compile.plan import Plan, make_plan
from natgrad.network.draws.chains import with_chains
from natgrad.network.draws.compiled import compiled_gibbs
from natgrad.network.draws.gibbs import Gibbs
from natgrad.network.draws.labels import Relabelling, exchanges_of
from natgrad.network.draws.softmax import exact_softmax
from natgrad.network.execute.backend import BackendName
from natgrad.network.execute.problem import NetworkProblem
from natgrad.network.language.expressions import CATEGORY
from natgrad.network.language.missing import seen_values
from natgrad.network.language.nodes import Node
from natgrad.network.results.arviz_groups import network_groups
from natgrad.network.results.predictive import Predictive, make_predictive
from natgrad.posterior.drawing import MOST_KEPT, draws_so_far, run_chains, schedule_of, stride_of
from natgrad.posterior.draws import DrawnFactor, Draws, DrawsSettings

if TYPE_CHECKING:
    from natgrad.network.results.fit import Fit

__all__ = ["DrawnPredictive", "attached", "draw_posterior", "predictive_of_draws"]

# The predictive distribution of a node under posterior draws: its parents at values that were drawn together.

Array = npt.NDArray[Any]


def predictive_of_draws(
    plan: Plan, draws: Draws, name: str, sizes: Mapping[Any, int], slots: Mapping[str, Any]
) -> DrawnPredictive:
    """As `make_predictive`, with draws of the posterior in the place of q."""
    made = make_predictive(plan, {}, name, sizes, slots)
    return DrawnPredictive(made.node, draws, made._new)


class DrawnPredictive(Predictive):
    """The distribution of a node's new values, averaged over draws of its parents; arrays have its plates first."""

    def __init__(self, node: Node, draws: Draws, new: Mapping[str, Node]) -> None:
        super().__init__(node, {}, new, {})
        self._draws = draws
        self._picked: Array | None = None

    def _exact_mean(self) -> Array | None:
        return None

    def _exact_variance(self) -> Array | None:
        return None

    def _slots(self, node: Node, rng: np.random.Generator, n: int, drawn: dict[str, Array]) -> dict[str, Array]:
        if not drawn:
            self._picked = None
        return super()._slots(node, rng, n, drawn)

    def _posterior(self, parent: Node, rng: np.random.Generator, n: int) -> Array:
        """Values of a parent at the same draws as those of all others."""
        names = [name for name in self._draws if self._draws[name].kept is not None]
        stride = max((self._draws[name].stride for name in names), default=1)
        factor = self._draws[parent.name]
        values = factor.values[:, :: stride // factor.stride]
        flat = values.reshape(-1, *values.shape[2:])
        if self._picked is None:
            # All of them as often as one another, as far as n goes; the rest at random.
            whole = np.tile(np.arange(len(flat)), n // len(flat))
            self._picked = np.concatenate([whole, rng.choice(len(flat), n - len(whole), replace=False)])
        return np.asarray(flat[self._picked])


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
    begins: Sequence[Fit] = (),
    notes: Sequence[str] = (),
) -> Draws:
    """Gibbs sampling from the declaration of a fit; arguments are those of ``Fit.draws``.

    ``begins`` are fits at which chains begin in turn, this one by default; ``notes`` go into the message of the draws.
    """
    schedule, settings = schedule_of(n, chains, warmup, thin, seed)
    plan = fit.problem.plan
    for name, block in plan.blocks.items():
        if block.family.is_bound:
            sticks = block.family.name == "StickBound"
            advice = (
                "Give a known number, or leave discount= out" if sticks else "Declare it as a GammaShape, which has one"
            )
            raise NotConjugate(
                f"draws: the concentration of {name.removesuffix('.bound')!r} is learned by a bound of its normaliser, which has "
                f"no conditional to draw from. {advice}"
            )
    exact = exact_softmax(plan)
    problem = NetworkProblem(with_chains(exact, chains), fit.problem.backend.name if backend is None else backend)
    asked = _checked_names(fit, names)
    relabel = Relabelling(plan, {name: fit.state.mu[name] for name in plan.blocks})
    gibbs = Gibbs(problem, schedule, {}, relabel)
    gibbs.exchanges = exchanges_of(exact, chains, gibbs.afresh)
    if lost := sorted(asked & gibbs.afresh):
        raise ValueError(
            f"draws of {lost[0]!r} cannot be kept: it is drawn afresh for each class of a softmax, and not a part of a draw"
        )
    gibbs.strides = _strides(gibbs, fit, schedule, chains, asked)
    start = gibbs.start([begin.state.lam for begin in begins or (fit,)], settings.seed)
    quick = compiled_gibbs(gibbs, exact, start) if backend is None else None
    about = {"names": sorted(asked), "backend": "compiled sweeps" if quick else problem.backend.name}
    if quick and (callbacks or (keep or {}).get("checkpoint")):
        quick.ahead = 1
    return run_chains(
        problem, quick or gibbs, start, settings, about, lambda state: _collected(fit, gibbs, state, settings, notes),
        max_seconds=max_seconds, callbacks=callbacks, verbose=verbose, keep=keep,
    )  # fmt: skip


def _checked_names(fit: Fit, names: Sequence[str] | None) -> set[str]:
    if isinstance(names, str):
        raise TypeError(f"names must be a list of names, got the text {names!r}: write [{names!r}]")
    return {fit[name].name for name in names or ()}  # whose error says which there are


def _strides(gibbs: Gibbs, fit: Fit, schedule: Schedule, chains: int, asked: set[str]) -> dict[str, int]:
    """Every how many draws of each node one is kept: powers of two, so that those of the rarest are draws of all."""
    strides = {}
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
        strides[name] = 1 if name in asked else stride_of(numbers, schedule, chains, MOST_KEPT)
    return strides


def _collected(fit: Fit, gibbs: Gibbs, state: State, settings: DrawsSettings, notes: Sequence[str]) -> Draws:
    """What the draws up to a state say."""
    memory, made = state.memory, draws_so_far(gibbs.schedule, settings, state.t)
    factors, done = {}, made.n
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
    return Draws(
        factors,
        made,
        *moves_of(memory),
        labels=fit._labels,
        predictive=partial(predictive_of_draws, fit.problem.plan),
        groups=partial(network_groups, fit.problem.plan),
        notes=notes,
    )


def attached(network: Any, draws: Draws) -> Draws:
    """Draws with the network that they are of."""
    plan = network.problem.plan
    if plan.members:  # draws are of the nodes that were declared
        plan = make_plan(list(plan.declared.values()))
    blocks = {name: block for name, block in plan.blocks.items() if not plan.nodes[name].is_auxiliary}
    if list(blocks) != list(draws) or any(draws[n].family != b.family for n, b in blocks.items()):
        raise ValueError(f"the network has hidden nodes {', '.join(blocks)}, and the draws {', '.join(draws)}")
    for name, block in blocks.items():
        if draws[name].first.shape[1 : 1 + len(block.shape)] != tuple(block.shape):
            raise ValueError(
                f"{name!r} has plates of sizes {tuple(block.shape)} in the network, and others in the draws"
            )
    return Draws(
        draws.factors,
        draws.settings,
        draws.relabelled,
        draws.exchanged,
        predictive=partial(predictive_of_draws, plan),
        groups=partial(network_groups, plan),
        notes=draws.notes,
    )
