"""Exchange and match the labels of components, so that draws of all chains mean the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.sampler import alike, best_order, classes_of, pairs_apart
from natgrad.network.compile.plan import Plan
from natgrad.network.draws.chains import CHAIN, with_chain
from natgrad.network.execute.backend import HOST
from natgrad.network.execute.lower import Reads, lower_others
from natgrad.network.language.expressions import CATEGORY
from natgrad.network.polynomial import Factor, Label, Monomial, Take
from natgrad.random import Stream, generator

__all__ = [
    "Exchange",
    "LabelSet",
    "Relabelling",
    "along_time",
    "exchange_labels",
    "exchanges_of",
    "label_sets",
    "may_move",
    "renumber",
    "renumbered_stats",
]

# Labels that priors or data distinguish change places: a chain goes from one labelling to another that no sweep leads to.
#
# Two well separated components whose priors differ have two labellings, each with its share of the posterior. To get from one to
# the other one element at a time, a chain would have to cross what is almost impossible. So everything that lives along a set of
# labels (weights, components, rows and columns of transitions, values of categories) is proposed with two labels exchanged, and
# accepted with probability
#
#     min(1, p(x′, data) / p(x, data))        a step of Metropolis: the proposal is its own way back, and its Jacobian is one
#
# In log p, which is the polynomial of the plan at the statistics of the values, only monomials with known numbers or data along
# the labels change. Labels that are alike are left to `natgrad.network.draws.labels`: exchanging them changes nothing.

Array = npt.NDArray[Any]
Stats = tuple[Any, ...]
# Numbers that a proposal may read: data that distinguish labels are known labels, and more of these leave no doubt.
MOST_READ = 200_000


class Exchange:
    """Two labels of one set, exchanged in every chain that accepts it.

    Parameters
    ----------
    plan : Plan, without chains
    entry : LabelSet, of which not all labels are alike
    chains : int
    """

    def __init__(self, plan: Plan, entry: LabelSet, chains: int) -> None:
        self.plan, self.entry, self.chains = plan, entry, chains
        self.pairs = pairs_apart(entry.classes)
        self.names = {f.source for _, m in entry.telling for f in m.factors if not f.known} & set(entry.axes)
        self.reads = Reads(
            plan.known, shapes=lambda name: [(chains, *shape) for shape in plan.nodes[name].stat_shapes()]
        )
        self._products: list[Callable[[list[Array]], Array]] = []
        for term, monomial in entry.telling:
            chained = monomial._replace(factors=tuple(map(with_chain, monomial.factors)))
            product = lower_others(HOST, self.reads, chained, plan.terms[term], (), (CHAIN,))
            if product.function is not None:
                self._products.append(product.function)

    def log_density(self, stats: Mapping[str, Stats]) -> Array:
        """What changes of the log joint when labels are exchanged [chain]."""
        operands = self.reads(stats)
        return np.asarray(sum((function(operands) for function in self._products), np.zeros(self.chains)))

    def step(self, stats: dict[str, Stats], values: dict[str, Array], rng: np.random.Generator) -> Array:
        """A pair of labels for each chain, exchanged where that is accepted, in place; whether it was [chain]."""
        pairs, height = self.pairs[rng.integers(len(self.pairs), size=self.chains)], np.log(rng.random(self.chains))
        orders = np.tile(np.arange(self.entry.size), (self.chains, 1))
        np.put_along_axis(orders, pairs, pairs[:, ::-1], 1)
        everyone = np.arange(self.chains)
        other = {n: renumbered_stats(self.plan, self.entry, n, stats[n], everyone, orders) for n in self.names}
        accepted = np.asarray(height < self.log_density({**stats, **other}) - self.log_density(stats))
        chosen = np.flatnonzero(accepted)
        if len(chosen):
            renumber(self.plan, self.entry, chosen, orders[chosen], stats, values)
        return accepted


def exchange_labels(
    moves: Sequence[Exchange], stats: dict[str, Stats], values: dict[str, Array], seed: int, t: int
) -> Array:
    """The moves before sweep ``t``, in place, with random numbers of their own; in which chains labels changed places."""
    if not moves:
        return np.zeros(1, dtype=np.int64)
    rng = generator(seed, Stream.DRAWS, 1 + t, 1)
    return np.asarray(np.any([move.step(stats, values, rng) for move in moves], axis=0), dtype=np.int64)


def exchanges_of(plan: Plan, chains: int, apart: Collection[str] = (), local: Sequence[str] = ()) -> list[Exchange]:
    """Make a move for each set of labels that priors or data distinguish, where one can be made.

    Parameters
    ----------
    plan : Plan, without chains
    chains : int
    apart : nodes that are not part of a state: a set that has one is left as it is
    local : nodes that are drawn after the move, given the others: a set whose monomials read one is left as it is
    """
    moves = []
    for entry in label_sets(plan):
        if not entry.telling or any(name in apart for name in entry.axes) or not may_move(plan, entry):
            continue
        if any(f.source in local for _, m in entry.telling for f in m.factors if not f.known):
            continue
        if sum(math.prod(plan.terms[t].sizes[x] for x in m.labels) for t, m in entry.telling) <= MOST_READ:
            moves.append(Exchange(plan, entry, chains))
    return moves


def may_move(plan: Plan, entry: LabelSet) -> bool:
    """Whether elements have the same range and measure: none is known, or has a law of its own, and none is a time of a chain."""
    for name, axes in entry.axes.items():
        node, on_plates = plan.nodes[name], any(axis >= 0 for axis in axes)
        if node.is_auxiliary or getattr(node.family, "settings", None) or (on_plates and node.is_observed):
            return False
        if any(along_time(plan, name, axis) for axis in axes):
            return False
    return True


# Labels that mean nothing: the components of a mixture can change places without changing the joint density.
#
# Which axes change places together is read off the plan: axes that share a label in some monomial belong together. A set of axes
# has labels if a hidden category is among them. Two labels are alike if known numbers stay as they are when the two change
# places, and no data are read along the set; labels that are alike are a class.
#
# A chain that begins at q has q's labels. If it exchanges labels of a class on its way, the values are put back into the order
# that agrees best with q's probabilities of the categories, which leaves the density as it is. So labels agree within a chain
# and across chains. Labels that are not alike stay as they were drawn: `natgrad.network.draws.labels` has them change places.

# An axis of a node: its plate, or −1 for the axes of its events (a category has one for its values).
Key = tuple[str, int]
EVENT = -1


class LabelSet(NamedTuple):
    """Axes that change places together.

    Attributes
    ----------
    size : int, their length
    categories : the hidden categories among them
    axes : {node: its axes}
    classes : ints [size], equal for labels that are alike
    telling : (term, monomial), those whose value may change when labels that are not alike change places
    """

    size: int
    categories: tuple[str, ...]
    axes: Mapping[str, tuple[int, ...]]
    classes: npt.NDArray[np.int64]
    telling: tuple[tuple[str, Monomial], ...]


def label_sets(plan: Plan) -> list[LabelSet]:
    """The sets of axes along which hidden categories choose."""
    sets = _Sets()
    for term in plan.terms.values():
        for monomial in term.monomials:
            _link(plan, term.node, monomial, sets)
    found = []
    for root, keys in sets.members().items():
        categories = tuple(n for n, axis in keys if axis == EVENT and _is_category(plan, n))
        size = (plan.nodes[categories[0]].size or 0) if categories else 0
        if size < 2:
            continue
        axes: dict[str, tuple[int, ...]] = {}
        for name, axis in keys:
            axes[name] = (*axes.get(name, ()), axis)
        classes, telling = sets.label_classes(root, size)
        if any(along_time(plan, name, axis) for name, axis in keys):
            classes = np.arange(size)  # times are in an order, and none is like another
        found.append(LabelSet(size, categories, axes, classes, telling))
    return found


def along_time(plan: Plan, name: str, axis: int) -> bool:
    """Whether an axis is the time of a chain."""
    node = plan.nodes[name]
    return axis >= 0 and axis == len(node.plates) - 1 and len(node.block_plates) < len(node.plates)


def _is_category(plan: Plan, name: str) -> bool:
    return plan.nodes[name].kind == CATEGORY


class _Known(NamedTuple):
    """Known numbers, what stands along their axes, and the monomial in which they do; data that are read have no array."""

    array: Array | None
    keys: Mapping[int, Key]
    term: str
    monomial: Monomial


class _Sets:
    """Disjoint sets of axes."""

    def __init__(self) -> None:
        self.parent: dict[Key, Key] = {}
        self.known: list[_Known] = []

    def find(self, key: Key) -> Key:
        self.parent.setdefault(key, key)
        while self.parent[key] != key:
            key = self.parent[key]
        return key

    def join(self, first: Key, second: Key) -> None:
        self.parent[self.find(second)] = self.find(first)

    def members(self) -> dict[Key, list[Key]]:
        members: dict[Key, list[Key]] = {}
        for key in self.parent:
            members.setdefault(self.find(key), []).append(key)
        return members

    def label_classes(self, root: Key, size: int) -> tuple[npt.NDArray[np.int64], tuple[tuple[str, Monomial], ...]]:
        """The classes of a set's labels, and the monomials that distinguish them."""
        parts, telling = list[npt.NDArray[np.int64]](), dict[tuple[str, Monomial], None]()
        for known in self.known:
            axes = [axis for axis, key in known.keys.items() if self.find(key) == root]
            if not axes:
                continue
            own = np.arange(size) if known.array is None else alike(known.array, axes)
            if own.any():
                telling[known.term, known.monomial] = None
                parts.append(own)
        return classes_of(size, parts), tuple(telling)


def _link(plan: Plan, term: str, monomial: Monomial, sets: _Sets) -> None:
    at: dict[Label, Key] = {}
    for factor in (f for f in monomial.factors if not f.known):
        for key, axis in _axes(plan, factor):
            if isinstance(axis, Take):
                sets.find(key)
                sets.known.append(_Known(None, {0: key}, term, monomial))  # the data say which element is meant
                continue
            sets.join(at.setdefault(axis, key), key)
    for factor in monomial.factors:
        arrays = [(plan.known[factor.source], factor.axes)] if factor.known else []
        # What is read through an index distinguishes elements along the index, where it differs.
        arrays += [(plan.known[axis.index], axis.labels) for axis in factor.axes if isinstance(axis, Take)]
        for array, axes in arrays:
            plain = {n: at[axis] for n, axis in enumerate(axes) if not isinstance(axis, Take) and axis in at}
            if plain:
                sets.known.append(_Known(array, plain, term, monomial))


def _axes(plan: Plan, factor: Factor) -> list[tuple[Key, Any]]:
    """The axes of a factor with what stands for them in the term; every axis of an event counts as the same."""
    node = plan.nodes[factor.source]
    plates = node.plates if factor.stat == 0 else node.block_plates
    return [
        ((factor.source, position if position < len(plates) else EVENT), axis)
        for position, axis in enumerate(factor.axes)
    ]


class Relabelling:
    """Puts the values of a sweep into the order of q.

    Parameters
    ----------
    plan : Plan, without chains
    moments : of q, by node
    """

    def __init__(self, plan: Plan, moments: Mapping[str, Stats]) -> None:
        self.plan = plan
        self.sets = [entry for entry in label_sets(plan) if len(np.unique(entry.classes)) < entry.size]
        self.wanted = {n: _rows(moments[n][0]) for s in self.sets for n in s.categories}

    def orders(self, entry: LabelSet, stats: Mapping[str, Stats]) -> tuple[npt.NDArray[np.int64], Array]:
        """The chains whose labels of a set have changed places, and in which order each has them (first, second, …)."""
        agree: Any = 0.0
        for n in entry.categories:
            rows = stats[n][0].reshape(len(stats[n][0]), -1, entry.size)
            agree = agree + np.swapaxes(np.swapaxes(rows, 1, 2) @ self.wanted[n], 1, 2)  # [chain, of q, of the chain]
        may = entry.classes[:, None] == entry.classes
        own = np.einsum("cii->ci", agree)
        # Where every component agrees best with its own there is nothing to look for.
        doubtful = np.flatnonzero((np.where(may, agree, -np.inf).max(2) > own).any(1))
        chains, orders = [], []
        for chain in doubtful:
            order = best_order(agree[chain], entry.classes)
            if order is not None:
                chains.append(chain)
                orders.append(order)
        return np.array(chains, dtype=np.int64), np.array(orders, dtype=np.int64).reshape(-1, entry.size)

    def put_back(self, stats: dict[str, Stats], values: dict[str, Array], *averaged: dict[str, Array]) -> Array:
        """Labels of all sets in the order of q, in place of what was there; how often those of each chain were not [chain]."""
        moved = np.zeros(len(next(iter(values.values()))), dtype=np.int64)
        for entry in self.sets:
            chains, orders = self.orders(entry, stats)
            if len(chains):
                renumber(self.plan, entry, chains, orders, stats, values, *averaged)
                moved[chains] = 1
        return moved


def renumber(
    plan: Plan, entry: LabelSet, chains: npt.NDArray[np.int64], orders: Array, stats: dict[str, Stats],
    values: dict[str, Array], *averaged: dict[str, Array],
) -> None:  # fmt: skip
    """Renumber everything of some chains along one set of axes, in place of what was there.

    ``orders`` [chain, label] say which label comes first, second, … in each. ``averaged`` have what is averaged of nodes, in the
    shape of their means.
    """
    back = np.argsort(orders, axis=1)
    for name, axes in entry.axes.items():
        if name not in stats:
            continue
        node = plan.nodes[name]
        stats[name] = renumbered_stats(plan, entry, name, stats[name], chains, orders)
        value = values[name]
        if _is_category(plan, name) and EVENT in axes and value.dtype.kind in "iu":
            new = value.copy()
            flat = value[chains].reshape(len(chains), -1)
            new[chains] = np.take_along_axis(back, flat, 1).reshape(value[chains].shape)
            values[name] = _renumbered(new, chains, [axis for axis in axes if axis != EVENT], orders)
        else:
            places = _places(axes, len(node.plates), value.ndim - 1)
            values[name] = _renumbered(value, chains, places, orders)
        for sums in averaged:
            if name in sums and sums[name].ndim > 1:
                places = _places(axes, len(node.plates), sums[name].ndim - 1)
                sums[name] = _renumbered(sums[name], chains, places, orders)


def renumbered_stats(
    plan: Plan, entry: LabelSet, name: str, stats: Stats, chains: npt.NDArray[np.int64], orders: Array
) -> Stats:
    """The statistics of a node with the labels of some chains in other orders."""
    node, axes = plan.nodes[name], entry.axes[name]
    parts = []
    for number, stat in enumerate(stats):
        plates = len(node.plates if number == 0 else node.block_plates)
        parts.append(_renumbered(stat, chains, _places(axes, plates, stat.ndim - 1), orders))
    return tuple(parts)


def _places(axes: tuple[int, ...], n_plates: int, ndim: int) -> list[int]:
    """Axes of one chain's array: plates as they are, and all axes of the event."""
    on_plates = [axis for axis in axes if axis != EVENT and axis < n_plates]
    return [*on_plates, *(range(n_plates, ndim) if EVENT in axes else ())]


def _renumbered(array: Array, chains: npt.NDArray[np.int64], axes: list[int], orders: Array) -> Array:
    part = array[chains]
    for axis in axes:
        shape = [len(chains), *([1] * axis), orders.shape[1], *([1] * (part.ndim - 2 - axis))]
        part = np.take_along_axis(part, orders.reshape(shape), 1 + axis)
    new = np.array(array)
    new[chains] = part
    return new


def _rows(probabilities: Any) -> Array:
    array = np.asarray(probabilities)
    return array.reshape(-1, array.shape[-1])
