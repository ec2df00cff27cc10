"""Labels that mean nothing: the components of a mixture can change places without changing the joint density.

Which axes change places together is read off the plan: axes that share a label in some monomial belong together. A set of axes is
exchangeable if a hidden category is among them, no data are read along it, and known numbers stay as they are when elements along
it are renumbered.

A chain that begins at q has q's labels. If it exchanges them on its way, the values are put back into the order that agrees best
with q's probabilities of the categories, which leaves the density as it is. So labels agree within a chain and across chains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from natgrad.network.compile.plan import Plan
from natgrad.network.compile.polynomial import Factor, Label, Monomial, Take
from natgrad.network.language.discrete import Categorical
from natgrad.network.language.markov_chain import MarkovChain

__all__ = ["Exchangeable", "Relabelling", "exchangeable_axes"]

Array = npt.NDArray[Any]
Stats = tuple[Any, ...]
# An axis of a node: its plate, or −1 for the axes of its events (a category has one for its values).
Key = tuple[str, int]
EVENT = -1


class Exchangeable(NamedTuple):
    """Axes that change places together: their length, the hidden categories among them, and the axes by node."""

    size: int
    categories: tuple[str, ...]
    axes: Mapping[str, tuple[int, ...]]


def exchangeable_axes(plan: Plan) -> list[Exchangeable]:
    """The sets of axes along which elements can be renumbered."""
    sets = _Sets()
    for term in plan.terms.values():
        for monomial in term.monomials:
            _link(plan, monomial, sets)
    exchangeable = []
    for root, keys in sets.classes().items():
        categories = tuple(n for n, axis in keys if axis == EVENT and _is_category(plan, n))
        if root in sets.fixed or not categories:
            continue
        axes: dict[str, tuple[int, ...]] = {}
        for name, axis in keys:
            axes[name] = (*axes.get(name, ()), axis)
        size = plan.nodes[categories[0]].size or 0
        if size > 1:
            exchangeable.append(Exchangeable(size, categories, axes))
    return exchangeable


def _is_category(plan: Plan, name: str) -> bool:
    return isinstance(plan.nodes[name], (Categorical, MarkovChain))


class _Sets:
    """Disjoint sets of axes."""

    def __init__(self) -> None:
        self.parent: dict[Key, Key] = {}
        self._fixed: set[Key] = set()
        self.known: list[tuple[Array, dict[int, Key]]] = []  # numbers, and what stands along their axes

    def find(self, key: Key) -> Key:
        self.parent.setdefault(key, key)
        while self.parent[key] != key:
            key = self.parent[key]
        return key

    def join(self, first: Key, second: Key) -> None:
        self.parent[self.find(second)] = self.find(first)

    def fix(self, key: Key) -> None:
        self.find(key)
        self._fixed.add(key)

    @property
    def fixed(self) -> set[Key]:
        """Sets along which elements are told apart, by data or by numbers that change when all axes of the set are renumbered."""
        roots = {self.find(key) for key in self._fixed}
        for array, keys in self.known:
            for root in {self.find(key) for key in keys.values()}:
                axes = [axis for axis, key in keys.items() if self.find(key) == root]
                if root not in roots and not _is_invariant(array, axes):
                    roots.add(root)
        return roots

    def classes(self) -> dict[Key, list[Key]]:
        members: dict[Key, list[Key]] = {}
        for key in self.parent:
            members.setdefault(self.find(key), []).append(key)
        return members


def _link(plan: Plan, monomial: Monomial, sets: _Sets) -> None:
    at: dict[Label, Key] = {}
    for factor in (f for f in monomial.factors if not f.known):
        for key, axis in _axes(plan, factor):
            if isinstance(axis, Take):
                sets.fix(key)  # the data say which element is meant
                continue
            sets.join(at.setdefault(axis, key), key)
    for factor in (f for f in monomial.factors if f.known):
        plain: dict[int, Key] = {}
        for position, axis in enumerate(factor.axes):
            if isinstance(axis, Take):
                for label in axis.labels:
                    if label in at:
                        sets.fix(at[label])
            elif axis in at:
                plain[position] = at[axis]
        if plain:
            sets.known.append((plan.known[factor.source], plain))


def _axes(plan: Plan, factor: Factor) -> list[tuple[Key, Any]]:
    """The axes of a factor with what stands for them in the term; every axis of an event counts as the same."""
    node = plan.nodes[factor.source]
    plates = node.plates if factor.stat == 0 else node.block_plates
    return [
        ((factor.source, position if position < len(plates) else EVENT), axis)
        for position, axis in enumerate(factor.axes)
    ]


def _is_invariant(array: Array, axes: list[int]) -> bool:
    """Whether renumbering elements along all these axes together changes nothing: an exchange and a rotation tell."""
    size = array.shape[axes[0]]
    if size < 2:
        return True
    exchange, rotation = np.arange(size), np.roll(np.arange(size), 1)
    exchange[:2] = 1, 0
    for order in (exchange, rotation):
        other = array
        for axis in axes:
            other = np.take(other, order, axis)
        if not np.array_equal(other, array):
            return False
    return True


class Relabelling:
    """Puts the values of a sweep into the order of q.

    Parameters
    ----------
    plan : Plan, without chains
    moments : of q, by node
    """

    def __init__(self, plan: Plan, moments: Mapping[str, Stats]) -> None:
        self.plan = plan
        self.sets = exchangeable_axes(plan)
        self.wanted = {n: _rows(moments[n][0]) for s in self.sets for n in s.categories}

    def in_question(self, stats: Mapping[str, Stats]) -> npt.NDArray[np.int64]:
        """The chains in which some component agrees better with another one of q than with its own; others need no look."""
        doubtful: Any = False
        for entry in self.sets:
            agree: Any = 0.0
            for n in entry.categories:
                rows = stats[n][0].reshape(len(stats[n][0]), -1, entry.size)
                agree = agree + np.swapaxes(rows, 1, 2) @ self.wanted[n]
            own = np.einsum("cii->ci", agree)
            doubtful = doubtful | (agree.max(1) > own).any(1)
        return np.flatnonzero(doubtful)

    def orders(self, stats: Mapping[str, Stats], chain: int) -> list[Array | None]:
        """For each set, which element comes first, second, …; None where all are where they belong."""
        orders: list[Array | None] = []
        for entry in self.sets:
            agree = np.sum([self.wanted[n].T @ _rows(stats[n][0][chain]) for n in entry.categories], axis=0)
            _, order = linear_sum_assignment(agree, maximize=True)
            gain = agree[np.arange(entry.size), order].sum() - np.trace(agree)
            orders.append(order if gain > 1e-9 * (1.0 + np.trace(agree)) else None)
        return orders

    def apply(
        self, order: Array, entry: Exchangeable, chain: int, stats: dict[str, Stats], values: dict[str, Array],
        *averaged: dict[str, Array],
    ) -> None:  # fmt: skip
        """Renumber everything of one chain along one set of axes, in place of what was there.

        ``averaged`` have what is averaged of nodes, in the shape of their means.
        """
        back = np.argsort(order)
        for name, axes in entry.axes.items():
            node = self.plan.nodes[name]
            n_plates = len(node.block_plates)
            parts = []
            for number, stat in enumerate(stats[name]):
                plates = len(node.plates) if number == 0 else n_plates
                parts.append(_renumbered(stat, chain, _places(axes, plates, stat.ndim - 1), order))
            stats[name] = tuple(parts)
            plain = [axis for axis in axes if axis != EVENT]
            value = values[name]
            category = _is_category(self.plan, name)
            if category and EVENT in axes and value.dtype.kind in "iu":
                new = value.copy()
                new[chain] = back[value[chain]]
                value = _renumbered(new, chain, plain, order) if plain else new
            else:
                value = _renumbered(value, chain, _places(axes, len(node.plates), value.ndim - 1), order)
            values[name] = value
            for sums in averaged:
                if name in sums and sums[name].ndim > 1:
                    places = _places(axes, len(node.plates), sums[name].ndim - 1)
                    sums[name] = _renumbered(sums[name], chain, places, order)


def _places(axes: tuple[int, ...], n_plates: int, ndim: int) -> list[int]:
    """Axes of one chain's array: plates as they are, and all axes of the event."""
    on_plates = [axis for axis in axes if axis != EVENT and axis < n_plates]
    return [*on_plates, *(range(n_plates, ndim) if EVENT in axes else ())]


def _renumbered(array: Array, chain: int, axes: list[int], order: Array) -> Array:
    part = array[chain]
    for axis in axes:
        part = np.take(part, order, axis)
    new = np.array(array)
    new[chain] = part
    return new


def _rows(probabilities: Any) -> Array:
    array = np.asarray(probabilities)
    return array.reshape(-1, array.shape[-1])
