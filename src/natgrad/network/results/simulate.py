"""Simulate values of nodes: parents first, each node from its conditional given the values of its parents.

The conditional of a hidden node given its parents has the natural parameter ∂P/∂μ of its own term, at the statistics of their
values, whatever kind of node it is; that of an observed one is sampled by its law. Posterior predictive draws have hidden values
from a fit, or from posterior draws, in the place of the prior.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.network.compile.plan import Plan
from natgrad.network.draws.chains import with_chains
from natgrad.network.draws.gibbs import point_stats
from natgrad.network.execute.problem import NetworkProblem
from natgrad.network.language.missing import seen_values
from natgrad.network.language.nodes import Node
from natgrad.network.language.plates import Index
from natgrad.network.results.slot_values import slot_values
from natgrad.random import Stream, generator
from natgrad.validation import whole_number

__all__ = ["observing", "simulate_nodes"]

Array = npt.NDArray[Any]
Values = dict[str, Array]
Stats = tuple[Any, ...]


def simulate_nodes(plan: Plan, seed: int, size: int | None, given: Mapping[str, Array] | None = None) -> Values:
    """Values of all nodes, parents first: [size, plates, event], or without the first axis when size is None.

    Parameters
    ----------
    plan : Plan
    seed : int
    size : int, optional
    given : values of hidden nodes [size, …], which are not drawn then
    """
    n = 1 if size is None else whole_number(size, "size")
    rng = generator(whole_number(seed, "seed", least=0), Stream.SIMULATION)
    nodes = plan.nodes
    covariates, redrawn = _covariates(nodes)
    values: Values = {name: np.asarray(value) for name, value in (given or {}).items()}
    values.update({name: np.broadcast_to(v, (n, *v.shape)) for name, v in covariates.items()})
    drawn = _HiddenNodes(plan, n, values)
    for name, node in nodes.items():
        if name in values or _is_auxiliary(node):
            continue
        if node.is_observed:
            values[name] = _drawn_leaf(node, values, rng, n, redrawn.keys())
            if redrawn.get(name) is False:  # nothing else depends on it: what was seen stays
                seen, data = seen_values(node)
                values[name] = np.where(seen, data, values[name])
        elif given is None:
            # A law with its auxiliaries integrated out is drawn as that of a leaf is.
            by_law = node.can_sample and any(_is_auxiliary(parent) for parent in node.parents())
            values[name] = drawn(name, rng, _drawn_leaf(node, values, rng, n) if by_law else None)
    return {name: value[0] if size is None else value for name, value in values.items()}


def _is_auxiliary(node: Node) -> bool:
    """Whether its owner declared it, whose law has it integrated out."""
    return bool(getattr(node, "is_auxiliary", False))


def _covariates(nodes: Mapping[str, Node]) -> tuple[Values, dict[str, bool]]:
    """Observed nodes that others read: those that stay as they are, and those to draw (True if what is hidden decides them)."""
    readers: dict[str, list[Node]] = {}
    for node in nodes.values():
        for parent in node.parents():
            readers.setdefault(parent.name, []).append(node)
    depends: set[str] = set()
    for name, node in nodes.items():
        if not node.is_observed or any(p.name in depends for p in node.parents() if not _is_auxiliary(p)):
            depends.add(name)
    kept, redrawn = {}, {}
    for name, node in nodes.items():
        if not node.is_observed or name not in readers:
            continue
        if name not in depends and node.mask is None and node.entries is None and node.value is not None:
            kept[name] = node.value
            continue
        redrawn[name] = name in depends
        for reader in readers[name]:
            if not reader.is_observed or _reads_as_index(reader, name):
                why = "depends on what is hidden" if name in depends else "is missing in part"
                raise PlateMismatch(
                    f"simulate: {name!r} is observed, {why}, and is read by {reader.name!r}, which was declared with its values: "
                    "it cannot be drawn anew. Declare it hidden, or give its values as numbers"
                )
    return kept, redrawn


def _reads_as_index(reader: Node, name: str) -> bool:
    """Whether an observed category has become integers in a reader, and can no longer choose by other values."""
    selectors = [s for e in reader.parameters.values() for access in e.accesses() for s in access.selectors]
    lost = [s for s in selectors if isinstance(s, Index) and s.chosen_by is None]
    return any(category.name == name for index in lost for category in index.categories)


class _HiddenNodes:
    """Draws hidden nodes from their conditionals given their parents, ``n`` copies of the network side by side."""

    def __init__(self, plan: Plan, n: int, given: Mapping[str, Array]) -> None:
        self.plan, self.n = plan, n
        self.problem = NetworkProblem(with_chains(plan, n), "numpy")
        self.stats: dict[str, Stats] = {}
        for name, value in given.items():
            if name in plan.blocks and not plan.nodes[name].is_observed:
                self._note(name, value - self._origin(name))

    def __call__(self, name: str, rng: np.random.Generator, value: Array | None = None) -> Array:
        """Values of a node given those before it; ``value`` if they are drawn already."""
        if value is not None:
            self._note(name, value - self._origin(name))
            return value
        block = self.problem.blocks[name]
        empty = tuple(np.zeros((self.n, *shape)) for shape in self.plan.nodes[name].stat_shapes())

        def build() -> Any:
            def function(stats: Any, known: Any) -> Stats:
                return self.problem.program.target(block, stats, known, (name,))

            return function

        lam = self.problem.compiled(("given parents", name), build)({**self.stats, name: empty})
        if self.plan.nodes[name].is_improper:
            raise ValueError(
                f"simulate: the prior of {name!r} is flat and has no integral: there is nothing to draw from. Give it a proper "
                "prior, or draw from the posterior: network.fit().simulate()"
            )
        value = block.family.sample(tuple(np.asarray(part) for part in lam), rng)
        self._note(name, value)
        return np.asarray(value + self._origin(name))

    def _note(self, name: str, value: Array) -> None:
        self.stats[name] = point_stats(self.plan.blocks[name].family, value, self.plan.nodes[name].size)

    def _origin(self, name: str) -> Any:
        origin = self.plan.blocks[name].origin
        return 0 if origin is None else origin


def _drawn_leaf(
    node: Node, values: Mapping[str, Array], rng: np.random.Generator, n: int, redrawn: Collection[str] = ()
) -> Array:
    """Values of an observed node [n, plates, event] given those of its parents; ``redrawn`` are observed ones that were drawn."""
    moments = {
        parent.name: parent.family.stats_of(values[parent.name], parent.size)
        for parent in node.parents()
        if (not parent.is_observed or parent.name in redrawn) and parent.name in values
    }
    slots = slot_values(node, moments, n, drawn=frozenset(redrawn))
    shape = (n, *(plate.size for plate in node.plates))
    if not node.can_sample:
        raise PlateMismatch(f"simulate: a {type(node).__name__} such as {node.name!r} cannot be drawn")
    return np.asarray(node.with_trials_of(node.value).sample_given(slots, rng, shape))


def observing(nodes: Mapping[str, Node], data: Mapping[str, Array]) -> list[Node]:
    """The leaves of a network with other data: twins of the observed nodes that no node reads, what was missing still missing."""
    read = {parent.name for node in nodes.values() for parent in node.parents()}
    leaves = []
    for name, node in nodes.items():
        if not node.is_observed:
            continue
        if name in read:
            _refuse_others(node, data)
            continue
        if any(_is_auxiliary(parent) for parent in node.parents()):
            raise PlateMismatch(
                f"{name!r}, a {type(node).__name__}, was declared with auxiliary variables that depend on its data: it cannot "
                "take others. Declare the network anew with them"
            )
        twin = copy.copy(node)
        twin.__dict__.pop("_declared", None)
        twin._observe(np.array(data[name], dtype=np.float64), None if node.mask is None else node.mask.astype(bool))
        twin.term({})
        leaves.append(twin)
    return leaves


def _refuse_others(node: Node, data: Mapping[str, Array]) -> None:
    """What reads an observed node was declared with its values: others would be passed over in silence."""
    if node.name not in data:
        return
    seen, values = seen_values(node)
    if not np.array_equal(np.asarray(data[node.name])[seen], values[seen]):
        raise PlateMismatch(
            f"{node.name!r} is observed, and is read by another node, which was declared with its values: it cannot take others. "
            "Declare the network anew with them"
        )
