"""Make the state before the first step from what `init` says: values, draws, clusters or priors."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch, SymmetricStart
from natgrad.inference.callbacks import Once, Progress
from natgrad.inference.problem import State
from natgrad.network.compile.plan import told_apart
from natgrad.network.language.continuous import Gamma, MultivariateNormal
from natgrad.network.language.expressions import CATEGORY, COUNT, REAL, SIMPLEX, UNIT, VECTOR
from natgrad.network.language.nodes import Node, check_range, numbers
from natgrad.network.polynomial import Take
from natgrad.network.start.clusters import can_cluster, cluster_starts
from natgrad.network.start.order import default_order, factors_of_products
from natgrad.network.start.probes import memberships
from natgrad.network.start.products import fitted_products, zero_products
from natgrad.random import Stream, generator
from natgrad.validation import as_numbers, checked_categories, first, require, where

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["DRAWN_KINDS", "Init", "check_proper", "make_start", "make_starts", "started_nodes", "symmetry_watch"]

# A prior without an integral (a Normal of precision 0, Gamma(0, 0), Gamma(−½, 0)) is fine where the likelihood has one. What can
# be seen before the first step is checked: every element must get enough from its children, whatever their moments are.


def check_proper(problem: NetworkProblem, state: State) -> None:
    """Refuse flat priors that the data leave without a posterior."""
    for name in problem.plan.improper:
        block = problem.blocks[name]
        _check_gates(problem, name)
        target = tuple(np.asarray(part) for part in problem.target(block, state))
        if (place := first(~np.asarray(block.family.valid(target)))) is not None:
            raise ValueError(
                f"{name!r}: the prior is flat, and the data leave the posterior of {name}{where(place)} improper: too little is "
                "observed that depends on it. Give it a proper prior, or drop it"
            )
        if isinstance(problem.plan.nodes[name], Gamma):
            _check_precision(problem, name)


def _check_gates(problem: NetworkProblem, name: str) -> None:
    """What a hidden category chooses may be chosen by nobody, and then has nothing but its prior."""
    for term in problem.plan.terms_of(name):
        for reading in term.readings.get(name, ()):
            for axis in reading.axes:
                if not isinstance(axis, Take) and axis in term.gates:
                    raise ValueError(
                        f"{name!r}: the prior is flat, but {term.gates[axis]!r} chooses among its elements, and one that nobody "
                        "chooses has no posterior. Give it a proper prior"
                    )


def _check_precision(problem: NetworkProblem, name: str) -> None:
    """A precision with a flat prior: of hidden numbers it must not be free to grow, of data these must not be fitted exactly."""
    node = problem.plan.nodes[name]
    shape = float(np.min(numbers(node.parameters["shape"])))
    children = [term for term in problem.plan.terms_of(name) if term.node != name]
    hidden = [term.node for term in children if term.node in problem.blocks]
    if hidden and shape >= 0 and not np.all(numbers(node.parameters["rate"]) > 0):
        raise ValueError(
            f"{name!r}: Gamma({shape:g}, 0) is no prior for the precision of {hidden[0]!r}, which is hidden: the posterior "
            "piles up at infinity. Gamma(-0.5, 0), flat in the standard deviation, is one, or HalfCauchy"
        )
    flat = {other for term in children for other in term.readings if problem.plan.nodes[other].is_improper} - {name}
    n_flat = sum(_dimension(problem.plan.nodes[other]) for other in flat)
    n_seen = sum(
        len(problem.observed[term.node]) * (problem.plan.nodes[term.node].size or 1)
        for term in children
        if term.node in problem.observed
    )
    if not hidden and n_seen + 2.0 * shape <= n_flat:
        raise ValueError(
            f"{name!r}: the prior is flat, and so are those of {n_flat} numbers that {n_seen} observations depend on: these can "
            "be fitted exactly, and the posterior is improper. Give a proper prior to one of them"
        )


def _dimension(node: Node) -> int:
    """How many numbers of a node have a flat prior."""
    elements = int(np.prod([plate.size for plate in node.plates]))
    if isinstance(node, Gamma):
        return 0
    return elements * (node.size or 1) if isinstance(node, MultivariateNormal) else elements


# Where a run starts: priors, given values (point masses), random draws, or k-means for the gates of a mixture.

Init = Mapping[Any, Any] | str | None  # keys are nodes or their names
Stats = tuple[Any, ...]
Values = dict[str, Any]
# Streams of restarts, beside those of nodes.
RESTART = 2**20
DRAWN_KINDS = (REAL, VECTOR, SIMPLEX, UNIT, CATEGORY)


class Given(NamedTuple):
    """A start as the user wants it: values, nodes to draw, categories to cluster."""

    values: Values
    drawn: list[str]
    gates: list[str]
    order: tuple[str, ...]


def make_start(problem: NetworkProblem, init: Init, seed: int) -> State:
    """The state before the first step; the first candidate, where there are several.

    Parameters
    ----------
    problem : NetworkProblem
    init : mapping, "random", "kmeans" or None
        Values for some nodes (a point mass until the node's first update), or a way to find them, by node or for all.
    seed : int
        Of the random draws.
    """
    return make_starts(problem, init, seed)[0][1]()


def make_starts(
    problem: NetworkProblem, init: Init, seed: int, number: int = 0, seeds: bool = False
) -> list[tuple[str, Callable[[], State]]]:
    """The states that ``init`` may mean, each with a name: several where clusters are asked for, one for each number of them.

    ``number`` counts restarts: draws and clusters are others. ``seeds`` takes points far from one another in place of clusters.
    """
    given = _given(problem, init)
    # Of several categories the one that is clustered first sees the data, the others what it leaves.
    gates = given.gates[::-1] if number % 2 else given.gates
    candidates: list[tuple[str, Values]] = [
        ("values" if given.values else "draws" if given.drawn else "priors", given.values)
    ]
    rng = generator(seed, Stream.START, *((RESTART + number,) if number else ())) if gates else None
    for gate in gates:
        assert rng is not None
        score = functools.partial(_trial, problem, given, seed) if len(gates) == 1 else None
        candidates = [
            (name, {**new, **values})
            for _, values in candidates
            for name, new in cluster_starts(
                problem, gate, values, problem.prior({}), rng, score, fewer=len(gates) == 1, seeds=seeds
            )
        ]

    def made(values: Values) -> State:
        state = _started(problem, values, given.drawn, seed, number)
        if problem.plan.choices:
            _check_symmetry(problem, state, init)
        if problem.plan.improper:
            check_proper(problem, state)
        return state

    return [(name, functools.partial(made, values)) for name, values in candidates]


def _given(problem: NetworkProblem, init: Init) -> Given:
    wanted = _by_node(problem, init)
    nodes = problem.plan.nodes
    values = {name: _value(nodes[name], entry) for name, entry in wanted.items() if not isinstance(entry, str)}
    drawn = [name for name, entry in wanted.items() if isinstance(entry, str) and entry == "random"]
    gates = [gate for gate, entry in wanted.items() if isinstance(entry, str) and entry == "kmeans"]
    order = default_order(problem.plan, started_nodes(problem, init))
    return Given(values, drawn, gates, order)


def _trial(problem: NetworkProblem, given: Given, seed: int, values: Values, sweeps: int) -> float:
    """The bound after some sweeps from a start; what the user gave comes before what was found."""
    state, bound = _started(problem, {**values, **given.values}, given.drawn, seed), -math.inf
    for _ in range(sweeps):
        result = problem.sweep(state, given.order)
        if not math.isfinite(result.bound) or not all(bool(info.valid) for info in result.info.values()):
            return bound
        state, bound = result.state, result.bound
    return bound


def _started(problem: NetworkProblem, values: Values, drawn: list[str], seed: int, number: int = 0) -> State:
    """Point masses at values, draws, everything else at its prior; products that would be zero fitted to the data."""
    nodes = problem.plan.nodes
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
    # A number for each node that does not depend on how the network was written.
    numbers = {name: number for number, name in enumerate(default_order(problem.plan))}
    again = (number,) if number else ()
    for name in drawn:
        if name not in values:
            lam[name] = _random(nodes[name], lam[name], generator(seed, Stream.START, numbers[name], *again))
            mu[name] = problem.moments(problem.blocks[name], lam[name])
    for name, node in nodes.items():
        if node.starts_drawn and name not in values:
            rng = generator(seed, Stream.START, numbers[name])
            lam[name] = node.drawn_start(lam[name], rng)
            mu[name] = problem.moments(problem.blocks[name], lam[name])
    state = State(lam, mu, 0)
    groups = zero_products(problem, mu) if factors_of_products(problem.plan) else []
    if not groups:
        return state
    _check_zeros(groups, values)

    def draw(name: str) -> Any:
        prior = tuple(np.asarray(part) for part in state.lam[name])
        return nodes[name].family.sample(prior, generator(seed, Stream.START, numbers[name], *again))

    return fitted_products(problem, state, groups, draw)


def started_nodes(problem: NetworkProblem, init: Init) -> set[str]:
    """The nodes that ``init`` gives a start of their own.

    Where components and the category that chooses among them are both drawn, the components count: memberships that are drawn
    for each observation tell them apart much less.
    """
    wanted = _by_node(problem, init)
    if not wanted:
        return set()
    drawn = {name for name, entry in wanted.items() if isinstance(entry, str) and entry == "random"}
    chosen = {gate for gate, choices in problem.plan.choices.items() if drawn & {name for _, name, _ in choices}}
    return set(wanted) - (drawn & chosen)


def _by_node(problem: NetworkProblem, init: Init) -> dict[str, Any]:
    if init is None:
        return {}
    if isinstance(init, str):
        if init == "random":
            return {name: "random" for name in problem.blocks if problem.plan.nodes[name].kind in DRAWN_KINDS}
        if init == "kmeans":
            gates = {gate: "kmeans" for gate in problem.plan.choices}
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
    array = _over(node.value_shape(), array, what)
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


def _check_symmetry(problem: NetworkProblem, state: State, init: Init) -> None:
    """A mixture whose components and memberships are all alike would stay so for ever."""
    for gate, names in _components(problem).items():
        if not _parts(problem, state, gate) and all(_alike(state, name, axis) for name, axis in names):
            raise SymmetricStart(_symmetric_words(problem, gate, names, "all start equal", init))


def symmetry_watch(problem: NetworkProblem, init: Init) -> Once:
    """A callback that refuses a run whose components are all alike after the first pass, however that came about.

    ``init`` is the start that was asked for: it is not advised again.
    """

    def look(seen: Progress) -> None:
        for gate, names in _components(problem).items():
            if not _parts(problem, seen.state, gate) and all(_alike(seen.state, name, axis) for name, axis in names):
                words = (
                    "are all equal after the first sweep: the start did not tell them apart, or their priors lie so far from "
                    "the data that nothing does"
                )
                raise SymmetricStart(_symmetric_words(problem, gate, names, words, init))

    return Once(look)


def _components(problem: NetworkProblem) -> dict[str, list[tuple[str, int]]]:
    """For every category that chooses among more than one: the hidden nodes that it chooses from, and along which axis."""
    components, apart = {}, told_apart(problem.plan)
    for gate, choices in problem.plan.choices.items():
        hidden = [(name, axis) for _, name, axis in choices if name in problem.blocks]
        if hidden and gate not in apart and (problem.plan.nodes[gate].categories or 0) > 1:
            components[gate] = list(dict.fromkeys(hidden))
    return components


def _parts(problem: NetworkProblem, state: State, gate: str) -> bool:
    """Whether a category differs from element to element, or is known: then components that are alike need not stay so.

    Where groups keep their categories to themselves, that is not known.
    """
    if gate not in state.mu:
        return False
    members = memberships(problem.plan.nodes[gate].family, state.mu[gate])
    flat = members.reshape(-1, members.shape[-1])
    return bool(not flat[0].all() or not np.allclose(flat, flat[0], rtol=1e-12, atol=1e-14))


def _alike(state: State, name: str, axis: int) -> bool:
    stats = [np.asarray(stat) for stat in state.mu[name]]
    return all(np.ptp(stat, axis=axis).max() <= 1e-12 * np.abs(stat).max() for stat in stats)


def _symmetric_words(problem: NetworkProblem, gate: str, names: list[tuple[str, int]], what: str, init: Init) -> str:
    """The message; it advises what was not asked for: clusters, where there are rows of them, and draws."""
    listed = ", ".join(repr(name) for name in dict.fromkeys(name for name, _ in names))
    ways = [f'init={{"{names[0][0]}": values}} with values that differ']
    if init is not None:  # without init= both were compared
        if init != "random":
            ways.append('init="random"')
        if init != "kmeans" and can_cluster(problem, gate):
            ways.append('init="kmeans"')
    return (
        f"the components that {gate!r} chooses from ({listed}) {what}, so no update can tell them apart. Give another "
        f"start: {' or '.join(ways)}"
    )


def _check_zeros(groups: list[tuple[str, ...]], values: dict[str, Any]) -> None:
    for group in groups:
        for name in group:
            if name in values:
                others = ", ".join(repr(other) for other in group if other != name)
                what = f"and so is {others}, with which it is" if others else "and its elements are"
                raise SymmetricStart(
                    f"init[{name!r}] is zero everywhere, {what} multiplied: no update leaves that "
                    "point. Give numbers that are not zero, or leave it out: it is then drawn"
                )
