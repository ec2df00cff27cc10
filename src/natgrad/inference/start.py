"""Where a run starts: priors, given values (point masses), random draws, or k-means for the gates of a mixture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch, SymmetricStart
from natgrad.inference.draws import generator
from natgrad.network.checks import as_numbers, require
from natgrad.network.expressions import CATEGORY, COUNT, REAL, SIMPLEX, UNIT, VECTOR
from natgrad.network.incidence import told_apart
from natgrad.network.nodes import Node
from natgrad.network.polynomial import Take
from natgrad.network.slots import check_range, checked_categories
from natgrad.problem import State

if TYPE_CHECKING:
    from natgrad.network.problem import NetworkProblem

__all__ = ["Init", "make_start"]

Init = Mapping[Any, Any] | str | None  # keys are nodes or their names
Stats = tuple[Any, ...]
# A stream of its own for starts, so that the draws of step t = 0 do not repeat them.
START = 2**31 - 1
DRAWN_KINDS = (REAL, VECTOR, SIMPLEX, UNIT, CATEGORY)


def make_start(problem: NetworkProblem, init: Init, seed: int) -> State:
    """The state before the first step.

    Parameters
    ----------
    problem : NetworkProblem
    init : mapping, "random", "kmeans" or None
        Values for some nodes (a point mass until the node's first update), or a way to find them, by node or for all.
    seed : int
        Of the random draws.
    """
    wanted = _by_node(problem, init)
    nodes = problem.plan.nodes
    values = {name: _value(nodes[name], entry) for name, entry in wanted.items() if not isinstance(entry, str)}
    for name, entry in wanted.items():
        if isinstance(entry, str) and entry == "kmeans":
            values.update({k: v for k, v in _kmeans(problem, name, seed).items() if k not in values})
    # From here on locations are measured from their origins.
    origins = {name: problem.blocks[name].origin for name in values}
    values = {name: value if origins[name] is None else value - origins[name] for name, value in values.items()}
    soft = {name for name, value in values.items() if nodes[name].kind == CATEGORY and value.dtype.kind == "f"}
    points = {name: value for name, value in values.items() if name not in soft}
    fixed = {name: nodes[name].family.stats_of(value, nodes[name].size) for name, value in points.items()}
    state = problem.prior({name: _spread(nodes[name], stats) for name, stats in fixed.items()})
    lam, mu = dict(state.lam), dict(state.mu)
    for name, value in values.items():
        prior = tuple(np.asarray(part) for part in lam[name])
        centre = nodes[name].family.centred(value, prior)
        lam[name] = tuple(np.broadcast_to(c, p.shape) for c, p in zip(centre, prior, strict=True))
        if name in soft:
            mu[name] = problem.moments(problem.blocks[name], lam[name])
    drawn = [
        name for name, entry in wanted.items() if isinstance(entry, str) and entry == "random" and name not in values
    ]
    drawn += [name for name in _saddles(problem, mu) if name not in values and name not in drawn]
    for name in drawn:
        number = list(problem.blocks).index(name)
        lam[name] = _random(nodes[name], lam[name], generator(seed, START, number))
        mu[name] = problem.moments(problem.blocks[name], lam[name])
    state = State(lam, mu, 0)
    _check_symmetry(problem, state, init)
    return state


def _by_node(problem: NetworkProblem, init: Init) -> dict[str, Any]:
    if init is None:
        return {}
    if isinstance(init, str):
        if init == "random":
            return {name: "random" for name in problem.blocks if problem.plan.nodes[name].kind in DRAWN_KINDS}
        if init == "kmeans":
            gates = {gate: "kmeans" for gate in _gated(problem)}
            if not gates:
                raise ValueError('init="kmeans" needs a mixture: no category chooses components in this network')
            return gates
        raise ValueError(f'init must be {{name: values}}, "random" or "kmeans", got {init!r}')
    if not isinstance(init, Mapping):
        raise TypeError(f'init must be {{name: values}}, "random" or "kmeans", got {type(init).__name__}')
    init = {name.name if isinstance(name, Node) else name: entry for name, entry in init.items()}
    for name, entry in init.items():
        if not isinstance(name, str):
            raise TypeError(f"init: keys must be the names of nodes, got {name!r}")
        if name not in problem.blocks:
            what = (
                "is observed: it starts and stays at its data"
                if name in problem.plan.nodes
                else "is not in this network"
            )
            raise ValueError(f"init: {name!r} {what}; hidden nodes are {', '.join(problem.blocks)}")
        if isinstance(entry, str) and entry not in ("random", "kmeans"):
            raise ValueError(f'init[{name!r}] must be an array, "random" or "kmeans", got {entry!r}')
    return dict(init)


def _value(node: Node, value: Any) -> npt.NDArray[Any]:
    """A start as an array over the node's plates; of a category, integers, or floats that are its probabilities."""
    what = f"init[{node.name!r}]"
    array = as_numbers(value, what)
    plates = tuple(plate.size for plate in node.plates)
    if node.kind == CATEGORY:
        if array.shape == (*plates, node.size):
            check_range(what, SIMPLEX, array)
            return array
        return checked_categories(what, _over(plates, array, what), node.size or 0, np.ones(plates, dtype=bool))
    array = _over(plates + (node.size or 0,) * node.family.event_ndim, array, what)
    if node.kind == SIMPLEX:
        require(array > 0, array, what, "> 0")
    elif node.kind == UNIT:
        require((array > 0) & (array < 1), array, what, "strictly between 0 and 1")
    elif node.kind == COUNT:
        require(array >= 0, array, what, "≥ 0")
    check_range(what, node.kind, array)
    return array


def _over(shape: tuple[int, ...], array: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise PlateMismatch(f"{what} has shape {array.shape}, but {shape} is needed") from None


def _spread(node: Node, stats: Stats) -> Stats:
    return tuple(
        np.broadcast_to(s, shape).astype(np.float64) for s, shape in zip(stats, node.stat_shapes(), strict=True)
    )


def _random(node: Node, prior: Stats, rng: np.random.Generator) -> Stats:
    """λ centred at a draw from the prior, with the prior's precision; Dirichlets at prior plus exponential counts."""
    prior = tuple(np.asarray(part) for part in prior)
    if node.kind in (SIMPLEX, UNIT):
        # A draw from a sparse Dirichlet has entries that are zero to machine precision; adding counts has not.
        return tuple(part + rng.exponential(size=part.shape) for part in prior)
    if node.kind == CATEGORY:
        logits = prior[0] + np.log(rng.gamma(1.0, size=prior[0].shape) + 1e-12)
        return (logits, *prior[1:])
    if node.kind not in (REAL, VECTOR):
        return prior
    return node.family.centred(node.family.sample(prior, rng), prior)


def _gated(problem: NetworkProblem) -> dict[str, list[tuple[str, str, int]]]:
    """For every hidden category: (term, node it chooses from, axis of that node)."""
    found: dict[str, list[tuple[str, str, int]]] = {}
    for term in problem.plan.terms.values():
        for name, readings in term.readings.items():
            for reading in readings:
                for position, axis in enumerate(reading.axes):
                    if not isinstance(axis, Take) and axis in term.gates:
                        found.setdefault(term.gates[axis], []).append((term.node, name, position))
    return found


def _check_symmetry(problem: NetworkProblem, state: State, init: Init) -> None:
    """A mixture whose components and memberships are all alike would stay so for ever."""
    apart = told_apart(problem.plan)
    for gate, choices in _gated(problem).items():
        if gate in apart:
            continue
        members = np.asarray(state.mu[gate][0])
        flat = members.reshape(-1, members.shape[-1])
        if len(flat) > 1 and not np.allclose(flat, flat[0], rtol=1e-12, atol=1e-14):
            continue
        hidden = [(name, axis) for _, name, axis in choices if name in problem.blocks]
        alike = [
            all(np.ptp(np.asarray(stat), axis=axis).max() <= 1e-12 * np.abs(stat).max() for stat in state.mu[name])
            for name, axis in hidden
        ]
        if hidden and all(alike):
            names = ", ".join(repr(name) for name, _ in dict.fromkeys(hidden))
            first = hidden[0][0]
            raise SymmetricStart(
                f"the components that {gate!r} chooses from ({names}) all start equal, so no update can tell them apart. Give a "
                f'start: init={{"{first}": values}}, init="random", or init="kmeans" for continuous data'
            )


def _saddles(problem: NetworkProblem, mu: dict[str, Stats]) -> list[str]:
    """Nodes whose product with another starts with both means at zero: a stationary point that nothing leaves.

    They start at a draw from their prior, as everybody starts a factorisation.
    """
    found: list[str] = []
    for term in problem.plan.terms.values():
        for monomial in term.monomials:
            means = [
                f.source
                for f in monomial.factors
                if not f.known and problem.plan.nodes[f.source].kind in (REAL, VECTOR)
            ]
            names = [name for name in dict.fromkeys(means) if name != term.node]
            if len(names) > 1 and all(not np.any(np.asarray(mu[name][0])) for name in names):
                found += [name for name in names if name not in found]
    return found


def _kmeans(problem: NetworkProblem, gate: str, seed: int) -> dict[str, Any]:
    """Memberships from k-means on the observed continuous data that a category explains, and its centres."""
    from sklearn.cluster import KMeans

    nodes = problem.plan.nodes
    if gate not in _gated(problem):
        raise ValueError(f'init[{gate!r}] = "kmeans" is for a category that chooses components; {gate!r} chooses none')
    columns, centres_of = [], []
    seen = np.ones([plate.size for plate in nodes[gate].plates], dtype=bool)
    for term, name, axis in _gated(problem)[gate]:
        child, base = nodes[term], nodes[name]
        if child.value is None or child.kind not in (REAL, VECTOR) or base.kind != child.kind:
            continue
        if len(child.plates) != len(nodes[gate].plates) or axis != 0 or len(base.plates) != 1:
            continue
        columns.append(child.value.reshape(int(np.prod([p.size for p in child.plates])), -1))
        seen &= True if child.mask is None else child.mask.astype(bool)
        centres_of.append((name, columns[-1].shape[1]))
    if not columns:
        raise ValueError(
            f'init="kmeans" for {gate!r} needs observed Normal or MultivariateNormal data whose mean it chooses; for other data '
            'use init="random"'
        )
    data = np.hstack(columns)
    complete = data[seen.reshape(-1)]
    rng = generator(seed, START)
    size = nodes[gate].size or 1
    if len(complete) < size:
        raise ValueError(
            f'init="kmeans" for {gate!r} needs at least {size} observations without missing values, one for each component, got '
            f"{len(complete)}"
        )
    model = KMeans(n_clusters=size, n_init=5, random_state=int(rng.integers(2**31))).fit(
        complete if len(complete) <= 50_000 else complete[rng.choice(len(complete), 50_000, replace=False)]
    )
    labels = model.predict(data)
    values: dict[str, Any] = {gate: labels.reshape([plate.size for plate in nodes[gate].plates])}
    start = 0
    for name, width in centres_of:
        centres = model.cluster_centers_[:, start : start + width]
        if name in problem.blocks:
            values[name] = centres if nodes[name].kind == VECTOR else centres[:, 0]
        start += width
    return values
