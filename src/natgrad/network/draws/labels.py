"""Labels that mean nothing: the components of a mixture can change places without changing the joint density.

Which axes change places together is read off the plan: axes that share a label in some monomial belong together. A set of axes
has labels if a hidden category is among them. Two labels are alike if known numbers stay as they are when the two change places,
and no data are read along the set; labels that are alike are a class.

A chain that begins at q has q's labels. If it exchanges labels of a class on its way, the values are put back into the order that
agrees best with q's probabilities of the categories, which leaves the density as it is. So labels agree within a chain and across
chains. Labels that are not alike stay as they were drawn: `natgrad.network.draws.exchange` has them change places.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.sampler import alike, best_order, classes_of
from natgrad.network.compile.plan import Plan
from natgrad.network.compile.polynomial import Factor, Label, Monomial, Take
from natgrad.network.language.discrete import Categorical
from natgrad.network.language.markov_chain import MarkovChain

__all__ = ["LabelSet", "Relabelling", "along_time", "label_sets", "renumber", "renumbered_stats"]

Array = npt.NDArray[Any]
Stats = tuple[Any, ...]
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
        classes, telling = sets.told_apart(root, size)
        if any(along_time(plan, name, axis) for name, axis in keys):
            classes = np.arange(size)  # times are in an order, and none is like another
        found.append(LabelSet(size, categories, axes, classes, telling))
    return found


def along_time(plan: Plan, name: str, axis: int) -> bool:
    """Whether an axis is the time of a chain."""
    node = plan.nodes[name]
    return axis >= 0 and axis == len(node.plates) - 1 and len(node.block_plates) < len(node.plates)


def _is_category(plan: Plan, name: str) -> bool:
    return isinstance(plan.nodes[name], (Categorical, MarkovChain))


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

    def told_apart(self, root: Key, size: int) -> tuple[npt.NDArray[np.int64], tuple[tuple[str, Monomial], ...]]:
        """The classes of a set's labels, and the monomials that tell them apart."""
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
        # What is read through an index tells elements along the index apart, where it differs.
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
