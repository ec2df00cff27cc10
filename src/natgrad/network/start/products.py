"""Where the factors of a product start: a network whose factors would all start at zero in; a start that has seen the data out.

At w = x = 0 no update of w·x leaves zero, so something has to be drawn. A draw from the prior knows nothing of the data's units,
and a relevance that meets it before the factors have seen data switches them off for good. So:

    null        the factors held at zero: levels and noise become those of data without structure
    scale       the smaller factor drawn, stretched so that the product is as large as the data
    govern      relevances and prior means from that draw
    sweeps      everything but these, so that the factors fit the data before their relevance is judged
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad.inference.problem import State
from natgrad.network.language.expressions import CATEGORY, REAL, VECTOR
from natgrad.network.start.order import default_order, factors_of_products

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["at_points", "before_relevance", "fitted_products", "governors", "spread_of_children", "zero_products"]

Stats = tuple[Any, ...]
# Sweeps before relevances are judged: enough for alternating least squares to find the leading directions.
SWEEPS = 10


def zero_products(problem: NetworkProblem, mu: dict[str, Stats]) -> list[tuple[str, ...]]:
    """Groups of nodes that are multiplied, one with another or its own elements, and have mean zero; in the order of a sweep."""
    zero = {n: others for n, others in factors_of_products(problem.plan).items() if not np.any(np.asarray(mu[n][0]))}
    groups: list[tuple[str, ...]] = []
    order = default_order(problem.plan)
    for name in order:
        if name not in zero or any(name in group for group in groups):
            continue
        group, waiting = {name}, [name]
        while waiting:
            new = {other for other in zero[waiting.pop()] if other in zero} - group
            group |= new
            waiting += new
        if len(group) > 1 or name in zero[name]:
            groups.append(tuple(n for n in order if n in group))
    return groups


def fitted_products(
    problem: NetworkProblem, state: State, groups: Sequence[tuple[str, ...]], drawn: Callable[[str], Any]
) -> State:
    """The state with the factors of zero products started from the data; ``drawn`` gives a draw from a node's prior."""
    inside = {name for group in groups for name in group}
    beside, governing = governors(problem, inside)
    if beside:
        zeros = {name: np.zeros_like(np.asarray(state.mu[name][0])) for name in inside}
        null = _swept(problem, at_points(problem, state, zeros), _in_order(problem, beside))
        lam, mu = ({name: part[name] for name in beside} for part in (null.lam, null.mu))
        state = state._replace(lam={**state.lam, **lam}, mu={**state.mu, **mu})
    for group in groups:
        *_, last = group
        stretch = _stretch(problem, state, group)
        for name in group:
            factor = stretch if name == last else 1.0
            state = at_points(problem, state, {name: factor * drawn(name)}, factor)
    return before_relevance(problem, state, governing)._replace(t=0) if governing else state


def governors(problem: NetworkProblem, inside: set[str]) -> tuple[set[str], set[str]]:
    """Hidden nodes that stand beside some factors in what their children read, and those that govern the factors' priors."""
    plan = problem.plan
    beside = {other for name in inside for term in _children(problem, name) for other in term.readings} - inside
    beside = {name for name in beside if name in plan.blocks and plan.nodes[name].kind != CATEGORY}
    return beside, _ancestors(problem, inside) - inside - beside


def before_relevance(problem: NetworkProblem, state: State, governing: set[str]) -> State:
    """What governs the factors taken from where they stand, and then held while everything else is swept."""
    if governing:
        state = _swept(problem, state, _in_order(problem, governing))
    ungoverned = _in_order(problem, set(problem.blocks) - governing)
    for _ in range(SWEEPS):
        state = _swept(problem, state, ungoverned)
    return state


def _in_order(problem: NetworkProblem, names: set[str]) -> tuple[str, ...]:
    return tuple(name for name in default_order(problem.plan) if name in names)


def at_points(problem: NetworkProblem, state: State, values: dict[str, Any], factor: float = 1.0) -> State:
    """Nodes at values: point masses, behind them the q of the state, ``factor`` times as wide."""
    lam, mu = dict(state.lam), dict(state.mu)
    for name, value in values.items():
        node = problem.plan.nodes[name]
        narrow = tuple(np.asarray(part) / factor**2 for part in lam[name])
        shapes = node.stat_shapes()
        lam[name] = tuple(
            np.broadcast_to(p, s) for p, s in zip(node.family.centred(value, narrow), shapes, strict=True)
        )
        stats = node.family.stats_of(value, node.size)
        mu[name] = tuple(np.broadcast_to(p, s).astype(np.float64) for p, s in zip(stats, shapes, strict=True))
    return state._replace(lam=lam, mu=mu)


def _swept(problem: NetworkProblem, state: State, order: tuple[str, ...]) -> State:
    """One sweep of some blocks; the state as it was if a number left its range."""
    result = problem.sweep(state, order)
    return result.state if all(bool(info.valid) for info in result.info.values()) else state


def _children(problem: NetworkProblem, name: str) -> list[Any]:
    return [term for term in problem.plan.terms_of(name) if term.node != name]


def _ancestors(problem: NetworkProblem, names: set[str]) -> set[str]:
    """Hidden nodes above these: what governs their priors."""
    ancestors: set[str] = set()
    waiting = list(names)
    while waiting:
        for parent in problem.plan.parents_of(waiting.pop()):
            if parent in problem.blocks and parent not in ancestors:
                ancestors.add(parent)
                waiting.append(parent)
    return ancestors


def _stretch(problem: NetworkProblem, state: State, group: tuple[str, ...]) -> float:
    """What makes the product as large as the data that it explains; one where these are hidden."""
    spread = spread_of_children(problem, group)
    if spread == 0:
        return 1.0
    # Of elements of one node that are multiplied each is stretched, of several factors the last one.
    each = len(group) == 1
    sizes = [float(np.mean(_second(problem, state, name))) for name in (group * 2 if each else group)]
    node, block = problem.plan.nodes[group[0]], problem.blocks[group[0]]
    n_terms = (node.size or 1) if node.kind == VECTOR else block.n_columns
    return float((spread / (n_terms * np.prod(sizes))) ** (0.25 if each else 0.5))


def spread_of_children(problem: NetworkProblem, group: tuple[str, ...]) -> float:
    """The mean variance of the observed numbers that some factors explain; zero if they are hidden."""
    spreads = [_spread(problem, term.node) for name in group for term in _children(problem, name)]
    known = [spread for spread in spreads if spread > 0]
    return float(np.mean(known)) if known else 0.0


def _second(problem: NetworkProblem, state: State, name: str) -> Any:
    second = np.asarray(state.mu[name][1])
    return np.diagonal(second, axis1=-2, axis2=-1) if problem.plan.nodes[name].kind == VECTOR else second


def _spread(problem: NetworkProblem, name: str) -> float:
    """The variance of observed numbers, zero for others."""
    node = problem.plan.nodes[name]
    if node.value is None or node.kind not in (REAL, VECTOR):
        return 0.0
    present = np.ones(node.value.shape[: len(node.plates)], bool) if node.mask is None else node.mask.astype(bool)
    seen = node.value[present]
    return float(np.mean(np.var(seen, axis=0))) if seen.size else 0.0
