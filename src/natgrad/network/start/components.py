"""Propose births, merges and exchanges of the components of a network, and the start from which they grow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.group_components import EMPTY, Birth, Components, out_of_reach
from natgrad.inference.methods import VB
from natgrad.inference.moves import Moves
from natgrad.inference.problem import State
from natgrad.kmeans import k_means, nearest
from natgrad.network.compile.plan import axes_of, element_keys, told_before
from natgrad.network.start.clusters import rows_of
from natgrad.random import Stream, generator

if TYPE_CHECKING:
    from natgrad.inference.methods import Method
    from natgrad.network.compile.plan import Plan
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["NetworkComponents", "asked_moves", "counted_components", "meeting_rows", "moves_of", "start_of_one"]

# Rows for categories that meet in their data two by two: who is connected to whom, as places in which clusters can be found.
#
# A block model reads y of a pair through the categories of both. The values of all pairs are a matrix, whose leading singular
# vectors tell groups of elements apart that connect alike.

Floats = npt.NDArray[np.float64]
# Singular vectors, rounds of the power method that finds them, and the largest matrix that is made.
WIDTH, ROUNDS, MOST = 10, 6, 5_000_000


def meeting_rows(problem: NetworkProblem, gate: str) -> Floats | None:
    """A row for each element of a category, from observed terms that read it beside another category; None if there are none."""
    plan, shape = problem.plan, problem.blocks[gate].shape
    size, tables = math.prod(shape), list[Floats]()
    for term in plan.terms.values():
        child = plan.nodes[term.node]
        if gate not in term.readings or child.value is None or np.ndim(child.value) != len(term.plates):
            continue
        value = np.ravel(np.asarray(child.value, np.float64))
        there = np.isfinite(value) if term.present is None else np.ravel(term.present)
        value = np.where(there, value - value[there].mean(), 0.0)
        keys = {
            name: [element_keys(term, reading, problem.blocks[name].shape, plan.known)[0] for reading in readings]
            for name, readings in term.readings.items()
            if name in problem.blocks and name in term.gates.values()
        }
        for place, own in enumerate(keys.get(gate, ())):
            for name, others in keys.items():
                for number, other in enumerate(others):
                    width = math.prod(problem.blocks[name].shape)
                    if (name, number) != (gate, place) and size * width <= MOST and width > 1:
                        table = np.zeros((size, width))
                        np.add.at(table, (own, other), value)
                        tables.append(table)
    if not tables:
        return None
    return _leading(
        np.hstack([np.add.reduce([t for t in tables if t.shape == s]) for s in sorted({t.shape for t in tables})])
    )


def _leading(table: Floats) -> Floats:
    """The rows in the coordinates of the leading singular vectors."""
    if min(table.shape) <= WIDTH:
        return table
    basis = np.random.default_rng(0).standard_normal((table.shape[1], WIDTH))
    for _ in range(ROUNDS):
        basis = np.linalg.qr(table.T @ (table @ basis))[0]
    return np.asarray(table @ basis)


# The components of a network for `natgrad.inference.moves`, found from its declaration.
#
# A hidden category, or a chain of them, chooses along an axis of other nodes; whatever lies on a plate along which it chooses is
# a part of its components: weights, emissions, transitions, precisions, coefficients. Categories that choose along one plate
# move together. A move changes the memberships q(z) alone; everything else follows by the sweep after it, each node from its own
# messages, so that nothing has to be told what a merge of its elements is.
#
# A component that holds nothing is at its prior. Its weight decides what it gets in a sweep: with Dirichlet(α) weights exp ψ(α)
# of an observation, which is nothing for α = 1/K, and with sticks less than the next one would have.

Labels = npt.NDArray[np.int64]
Stats = tuple[Any, ...]
# Parts of a component that are tried, from clusters of the data and from draws; rounds in which only its own elements choose.
PARTS, DRAWN_PARTS, COMPONENTS_ROUNDS = (2, 2, 4), (2, 2, 3, 4), 6
# How certain an element is of the part that it begins in, in nats; the least that is split; rows that k-means sees.
CERTAIN, LEAST_HELD, MOST_ROWS = 3.0, 2.0, 5_000
LEAST = 1e-100
# A round that gains so few nats is the last: passes over all elements go on from there.
LITTLE = 0.01


class NetworkComponents(Components):
    """What some categories choose from.

    Parameters
    ----------
    problem : NetworkProblem
    gates : names of the categories
    plate : the plate along which they choose, as the trace calls it
    order : of a sweep
    clustered : whether the data are there, to be clustered
    """

    def __init__(
        self,
        problem: NetworkProblem,
        gates: Sequence[str],
        plate: str,
        order: tuple[str, ...],
        *,
        clustered: bool = True,
    ) -> None:
        self.problem, self.gates, self.plate, self.clustered = problem, tuple(gates), plate, clustered
        self.size = int(problem.plan.nodes[self.gates[0]].categories or 1)
        self.order = (*(name for name in order if name not in self.gates), *(n for n in order if n in self.gates))

    def held(self, state: State) -> Floats:
        """Σ q(z), each element as often as its plates say."""
        total = np.zeros(self.size)
        for gate in self.gates:
            total += (self._members(state, gate) * self._weights(gate)[..., None]).reshape(-1, self.size).sum(0)
        return total

    def merge(self, state: State, kept: int, emptied: int) -> State:
        """Memberships added up, and what follows from them."""
        return self._swept(self.added(state, kept, emptied))

    def added(self, state: State, kept: int, emptied: int) -> State:
        """Memberships added up, before any sweep: of parts that were `shared` out, what they were parts of."""
        mu = dict(state.mu)
        for gate in self.gates:
            mu[gate] = tuple(
                _merged(np.array(part, np.float64), axes, kept, emptied)
                for part, axes in zip(mu[gate], self._axes(gate), strict=True)
            )
        return state._replace(mu=mu)

    def delete(self, state: State, k: int) -> State:
        """Memberships of the others, as likely as they are now to one another."""
        lam = {}
        for gate in self.gates:
            lam[gate] = tuple(np.array(part, np.float64) for part in state.lam[gate])
            for part, axes in zip(lam[gate], self._axes(gate), strict=True):
                for axis in axes:
                    # Far below all others, and still possible: nothing else may be.
                    moved = np.moveaxis(part, axis, 0)
                    moved[k] = moved.min(0) - 1e3
        return self._swept(self._chosen(state, lam))

    def likeness(self, state: State) -> Floats:
        """The cosine of two components' memberships, added up over the categories."""
        likeness = np.zeros((self.size, self.size))
        for gate in self.gates:
            flat = self._members(state, gate).reshape(-1, self.size)
            length = np.sqrt((flat**2).sum(0)) + LEAST
            likeness += flat.T @ flat / np.outer(length, length)
        return likeness

    def ordered(self, state: State) -> tuple[State, tuple[int, ...]] | None:
        """Those that hold most where weights are expected to be largest; not where known labels say what is where."""
        moved = None if self.expected is None else self.places_by_weight(self.held(state))
        if moved is None:
            return None
        lam = {}
        for gate in self.gates:
            parts = [np.asarray(part) for part in state.lam[gate]]
            for number, axes in enumerate(self._axes(gate)):
                for axis in axes:
                    parts[number] = np.take(parts[number], moved, axis=axis)
            lam[gate] = tuple(parts)
        return self._swept(self._chosen(state, lam)), tuple(moved.tolist())

    def places_by_weight(self, held: Floats) -> Labels | None:
        """Which component is to be in each place; None if they are there."""
        assert self.expected is not None
        held = np.where(held <= EMPTY, 0.0, held)
        places = np.argsort(-self.expected, kind="stable")
        if (np.diff(held[places]) <= EMPTY).all():
            return None
        moved = np.empty(self.size, np.int64)
        moved[places] = places[np.argsort(-held[places], kind="stable")]
        return moved

    def alike(self, state: State, other: State) -> bool:
        """Whether memberships differ by less than what an empty component may hold, each component matched with one."""
        one, two = (
            np.concatenate([self._members(s, gate).reshape(-1, self.size) for gate in self.gates])[:, self.active(s)]
            for s in (state, other)
        )
        place = (one.T @ two).argmax(1)
        if sorted(place.tolist()) != list(range(two.shape[1])):
            return False
        counted = np.concatenate([np.ravel(self._weights(gate)) for gate in self.gates])
        return float(counted @ np.abs(one - two[:, place]).sum(1)) < EMPTY

    def split(
        self, state: State, k: int, empty: Sequence[int], number: int, seed: int, *, goal: float = -np.inf
    ) -> Birth | None:
        """The best of some ways to split, by the bound after some rounds in which only the elements of ``k`` choose."""
        held = float(self.held(state)[k])
        if held < LEAST_HELD:
            return None
        rng = generator(seed, Stream.MOVES, state.t, k, number)
        rows = self._rows(state, k)
        best: tuple[float, State, list[int]] | None = None
        seen: list[dict[str, Labels]] = []
        sizes = PARTS if rows is not None else DRAWN_PARTS
        # One place, as after a merge: one way, and another one next time.
        for size in sizes if len(empty) > 1 else sizes[:1]:
            places = [k, *empty[: size - 1]]
            if len(places) < size or held < LEAST_HELD * size:
                continue
            labels = self._labels(state, len(places), rows, rng)
            if labels is None or any(_same_parts(labels, other) for other in seen):
                continue
            seen.append(labels)
            candidate = self._split_into(state, k, places, labels, goal)
            if candidate is not None and (best is None or candidate[0] > best[0]):
                best = (*candidate, places)
        return None if best is None else Birth(best[1], float("nan"), tuple(best[2][1:]), best[0])

    def shared(self, state: State, k: int, places: Sequence[int], scores: Mapping[str, Floats]) -> State:
        """What elements give to ``k`` shared out among some places, before any sweep; the rest is as it was.

        Parameters
        ----------
        state : State
        k : int, the component
        places : the first of them is ``k``, the others are empty
        scores : {category: array [*plates, places]}, how likely each part is, as logarithms up to a constant
        """
        lam = {gate: self._restricted(state, gate, k, list(places), scores[gate]) for gate in self.gates}
        return self._chosen(state, lam)

    def alone(self, state: State, k: int) -> State:
        """One component holds everything, and what follows from that."""
        lam: dict[str, Stats] = {}
        others = np.arange(self.size) != k
        for gate in self.gates:
            lam[gate] = tuple(np.array(part, np.float64) for part in state.lam[gate])
            for part, axes in zip(lam[gate], self._axes(gate), strict=True):
                for axis in axes:
                    np.moveaxis(part, axis, 0)[others] -= 1e3
        return self._swept(self._chosen(state, lam))

    # -- parts --

    def _labels(self, state: State, size: int, rows: Any, rng: np.random.Generator) -> dict[str, Labels] | None:
        """The part in which each element begins."""
        found: dict[str, Labels] = {}
        for gate in self.gates:
            shape = self._members(state, gate).shape[:-1]
            labels = _clusters(rows, size, rng) if rows is not None else rng.integers(size, size=shape)
            if labels is None:
                return None
            found[gate] = np.reshape(labels, shape)
        return found

    def _split_into(
        self, state: State, k: int, places: list[int], labels: Mapping[str, Labels], goal: float
    ) -> tuple[float, State] | None:
        parts = np.arange(len(places))
        scores = {gate: np.where(own[..., None] == parts, 0.0, -CERTAIN) for gate, own in labels.items()}
        bound = -np.inf
        for left in reversed(range(COMPONENTS_ROUNDS)):
            here = self.shared(state, k, places, scores)
            try:
                result = self.problem.sweep(here, self.order)
            except ValueError:  # it rules out the data
                return None
            if not np.isfinite(result.bound) or not all(bool(info.valid) for info in result.info.values()):
                return None
            gain, bound = result.bound - bound, max(bound, result.bound)
            if gain <= max(LITTLE, 1e-6 * abs(bound)) or out_of_reach(bound, gain, left, goal):
                break
            for gate in self.gates:
                logits = np.asarray(result.state.lam[gate][0], np.float64)[..., places]
                scores[gate] = logits - logits.max(-1, keepdims=True)
        return bound, result.state._replace(t=state.t, memory={})

    def _restricted(self, state: State, gate: str, k: int, places: list[int], scores: Floats) -> Stats:
        """λ of a category whose elements share out what they give to ``k``, and the little that empty places have."""
        lam = tuple(np.array(part, np.float64) for part in state.lam[gate])
        if len(lam) == 1:
            lam[0][..., places] = np.logaddexp.reduce(lam[0][..., places], -1)[..., None]
        for part, axes in zip(lam, self._axes(gate) if len(lam) > 1 else ((),), strict=True):
            for axis in axes:  # of a chain: parts go to and come from where the whole did
                moved = np.moveaxis(part, axis, 0)
                moved[places] = moved[k]
        total = np.log(np.exp(scores).sum(-1, keepdims=True))
        lam[0][..., places] += scores - total
        return lam

    def _chosen(self, state: State, lam: dict[str, Stats]) -> State:
        """The state in which categories have these natural parameters."""
        mu = {gate: self.problem.moments(self.problem.blocks[gate], parts) for gate, parts in lam.items()}
        return state._replace(lam={**state.lam, **lam}, mu={**state.mu, **mu}, memory={})

    def _swept(self, state: State) -> State:
        """Everything else from the memberships, then these."""
        return self.problem.sweep(state, self.order).state._replace(t=state.t, memory={})

    def _members(self, state: State, gate: str) -> Floats:
        return np.asarray(state.mu[gate][0], np.float64)

    def _weights(self, gate: str) -> Any:
        """How often each element counts."""
        weights = np.ones([plate.size for plate in self.problem.plan.nodes[gate].plates])
        for place, plate in enumerate(self.problem.plan.nodes[gate].plates):
            if plate.weight is not None:
                weights = weights * plate.weight.reshape([-1] + [1] * (weights.ndim - place - 1))
        return weights

    def _axes(self, gate: str) -> tuple[tuple[int, ...], ...]:
        """The axes of its statistics along which categories lie; of a chain, those of pairs are two."""
        return axes_of(self.problem.plan.nodes[gate].family)

    @cached_property
    def expected(self) -> Floats | None:
        """The logarithm of the weight of each place before there are data; None where it is the same, or labels are known."""
        nodes, prior = self.problem.plan.nodes, self.problem.prior({})
        if any(nodes[gate].mask is not None for gate in self.gates):
            return None
        # Of a chain, to where it goes: from wherever it comes.
        each = [np.asarray(prior.lam[gate][-1], np.float64).reshape(-1, self.size).mean(0) for gate in self.gates]
        weights: Floats = np.sum(each, axis=0)
        return None if np.ptp(weights) <= 1e-9 * np.abs(weights).max() else weights

    @cached_property
    def _features(self) -> Floats | None:
        """What an element of the category explains, as a row: data on its own plates, or data in which it meets others."""
        try:
            return rows_of(self.problem, self.gates[0], {}, least=2).rows
        except ValueError:
            return meeting_rows(self.problem, self.gates[0])

    def _rows(self, state: State, k: int) -> tuple[Floats, Floats] | None:
        """What the category explains as rows, and how much of each is in ``k``; None where data do not lie on its plates."""
        if len(self.gates) > 1 or not self.clustered:
            return None
        rows = self._features
        if rows is None:
            return None
        members = self._members(state, self.gates[0]) * self._weights(self.gates[0])[..., None]
        return rows, members.reshape(-1, self.size)[:, k]


def _merged(part: Floats, axes: tuple[int, ...], kept: int, emptied: int) -> Floats:
    for axis in axes:
        moved = np.moveaxis(part, axis, 0)
        moved[kept] += moved[emptied]
        moved[emptied] = 0.0
    return part


def _same_parts(one: Mapping[str, Labels], other: Mapping[str, Labels]) -> bool:
    """Whether the parts are the same, in whatever order."""
    for gate, labels in one.items():
        met = np.zeros((labels.max() + 1, other[gate].max() + 1), bool)
        met[labels, other[gate]] = True
        if not ((met.sum(0) <= 1).all() and (met.sum(1) <= 1).all()):
            return False
    return True


def _clusters(data: tuple[Floats, Floats], n: int, rng: np.random.Generator) -> npt.NDArray[np.int64] | None:
    """The cluster of each row, of those that are found among the rows of a component."""
    rows, weight = data
    own = np.flatnonzero(weight > 0.5)
    if len(own) < n:
        return None
    chosen = own if len(own) <= MOST_ROWS else rng.choice(own, MOST_ROWS, replace=False)
    cluster_of: npt.NDArray[np.int64] = nearest(rows, k_means(rows[chosen], n, rng))
    return cluster_of if len(set(cluster_of[own].tolist())) == n else None


# Which components of a network move, and the start from which they grow: a declaration and what a fit asked for in.


def asked_moves(plan: Plan, moves: Any, method: Method | None, n_init: int | None = None) -> Any:
    """``moves=`` of a fit; False where nothing was declared to grow, and steps are sampled or several starts are wanted."""
    can = method in (None, VB()) and n_init is None
    return moves if moves is not None or plan.asked_to_grow or can else False


def moves_of(problem: NetworkProblem, asked: Any, order: tuple[str, ...]) -> Moves | None:
    """The components that move: along plates that grow, or with ``"keep"`` all that hidden categories choose from.

    Parameters
    ----------
    problem : NetworkProblem
    asked : ``moves=`` of the fit: None, "keep" or False
    order : of a sweep
    """
    if asked not in (None, "keep", False):
        raise ValueError(f'moves must be "keep", False or None, got {asked!r}')
    plates = _chosen_plates(problem)
    grown = problem.plan.asked_to_grow if asked == "keep" else problem.plan.grown
    if unchosen := grown - set[str]().union(*plates.values()):
        raise ValueError(
            f"{min(unchosen)!r} grows, and no hidden category chooses along it: leave out grow=True, or read what lies on a "
            "plate with a category, as in Normal(mu[z], …)"
        )
    if asked is False or (asked is None and not grown):
        return None
    if asked == "keep" and grown:
        raise ValueError(
            f'moves="keep" keeps the number of components, and plate {min(grown)!r} is to grow: leave out one of them'
        )
    chosen = plates if asked == "keep" else {gate: names for gate, names in plates.items() if names & grown}
    parts = _together(problem, chosen, grown, order)
    if not parts:
        raise ValueError('moves="keep" needs components: no hidden category chooses from anything in this network')
    return Moves(parts, keep=asked == "keep")


def counted_components(problem: NetworkProblem, state: State, order: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """Along every plate from which hidden categories choose: the components used, and the places for them."""
    grown = problem.plan.grown
    return {
        part.plate: (int(part.active(state).sum()) if part.plate in grown else part.size, part.size)
        for part in _together(problem, _chosen_plates(problem), grown, order)
    }


def _chosen_plates(problem: NetworkProblem) -> dict[str, set[str]]:
    """For every hidden category, the plates along which it chooses."""
    nodes = problem.plan.nodes
    return {
        gate: {nodes[name].plates[axis].name for _, name, axis in choices if axis < len(nodes[name].plates)}
        for gate, choices in problem.plan.choices.items()
        if gate in problem.blocks and (nodes[gate].categories or 0) > 1 and not nodes[gate].family.has_sides
    }


def _together(
    problem: NetworkProblem, plates: dict[str, set[str]], grown: set[str], order: tuple[str, ...]
) -> tuple[NetworkComponents, ...]:
    """Categories that choose along a plate in common are one set of components."""
    groups: list[tuple[set[str], list[str]]] = []
    for gate in (name for name in order if name in plates):
        names, members = set(plates[gate]), [gate]
        for group in [group for group in groups if group[0] & plates[gate]]:
            names, members = names | group[0], [*group[1], *members]
            groups.remove(group)
        groups.append((names, members))
    parts = tuple(
        NetworkComponents(problem, members, min(names & grown or names, default=members[0]), order)
        for names, members in groups
    )
    for part in parts:
        before = np.sum([told_before(problem.plan, gate) for gate in part.gates], axis=0)
        part.known = before > EMPTY if np.any(before) else None
    return parts


def start_of_one(moves: Moves, start: State) -> State:
    """A start in which the first of all components holds everything."""
    state = start
    for part in moves.parts:
        assert isinstance(part, NetworkComponents)
        state = part.alone(state, 0)
    return state
