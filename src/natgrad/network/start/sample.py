"""Compare starts of a large network on a random sample of its groups: rows of a mixture, documents of a corpus.

The sample is a network of its own, whose plan is cut out of the whole one: numbers, indices and sizes of the plates that are
sampled. Its bound ranks the starts, and the globals of the best one, at the natural parameters that they have there, are where
the whole network starts; local variables follow from them in the first sweep.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import State
from natgrad.network.compile.plan import Plan, PlannedTerm
from natgrad.network.compile.polynomial import Take
from natgrad.network.groups.groups import Groups
from natgrad.network.language.nodes import Node
from natgrad.network.language.plates import Plate
from natgrad.random import Stream, generator

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["MAX_MESSAGES", "part_of_plan", "sample_of", "start_of_whole"]

Ints = npt.NDArray[np.int64]
# Messages that a sweep of the sample reads: some ten milliseconds. Observations that a group plate must have to be sampled.
MAX_MESSAGES, MIN_OBSERVATIONS = 1_000_000, 1_000
# Stream of the random groups, beside those of nodes.
SAMPLE = 2**21


def sample_of(problem: NetworkProblem, order: tuple[str, ...], seed: int) -> NetworkProblem | None:
    """The network of a random sample of the groups, on NumPy; None where there are no groups, or a few are as many as all."""
    from natgrad.network.execute.problem import NetworkProblem

    method = problem.grouping.best(order, MIN_OBSERVATIONS)
    if method is None or problem.n_messages < 2 * MAX_MESSAGES:
        return None
    groups = Groups(problem, method.plate, order)
    n_groups = max(1, len(groups) * MAX_MESSAGES // problem.n_messages)
    chosen = np.sort(generator(seed, Stream.START, SAMPLE).choice(len(groups), n_groups, replace=False))
    elements = {plate: np.sort(groups.grouping.elements(plate, chosen)) for plate in groups.grouping.members}
    plan = part_of_plan(problem.plan, elements)
    return None if plan is None else NetworkProblem(plan, "numpy")


def start_of_whole(problem: NetworkProblem, start: State) -> State:
    """The state of a network whose globals are where those of a sample of it are, and the others at their priors."""
    same = {name: lam for name, lam in start.lam.items() if _shapes(lam) == _shapes_of(problem, name)}
    state = problem.prior({name: start.mu[name] for name in same})
    return State({**state.lam, **same}, state.mu, 0)


def _shapes(lam: Any) -> list[tuple[int, ...]]:
    return [np.shape(part) for part in lam]


def _shapes_of(problem: NetworkProblem, name: str) -> list[tuple[int, ...]]:
    return [tuple(shape) for shape in problem.plan.nodes[name].stat_shapes()]


def part_of_plan(plan: Plan, elements: Mapping[str, Ints]) -> Plan | None:
    """The plan of some elements of some plates; None where a node has more than numbers, indices and plates to be cut."""
    cut = _Cut(plan, elements)
    try:
        terms = {name: cut.term(term) for name, term in plan.terms.items()}
        nodes = {name: cut.node(node) for name, node in plan.nodes.items()}
    except _Whole:
        return None
    blocks = {
        name: replace(
            block,
            shape=tuple(cut.size(plate, size) for plate, size in zip(block.plates, block.shape, strict=True)),
            colours=None if block.colours is None else cut.array(block.colours, block.plates),
        )
        for name, block in plan.blocks.items()
    }
    weights = {plate: cut.array(weight, (plate,)) for plate, weight in plan.weights.items()}
    return replace(plan, nodes=nodes, terms=terms, blocks=blocks, known=cut.known(), weights=weights)


class _Whole(Exception):
    """Something that cannot be cut."""


class _Cut:
    """Cuts the elements of some plates out of terms, nodes and known arrays."""

    def __init__(self, plan: Plan, elements: Mapping[str, Ints]) -> None:
        self.plan, self.elements = plan, elements
        # How each known array is cut: the labels of its axes, and of an index the plate whose elements it names.
        self.ways: dict[str, tuple[tuple[Any, ...], str | None]] = {}

    def size(self, plate: Any, size: int) -> int:
        return len(self.elements[plate]) if plate in self.elements else size

    def array(self, array: npt.NDArray[Any], labels: tuple[Any, ...]) -> npt.NDArray[Any]:
        """An array whose leading axes have these labels."""
        for axis, label in enumerate(labels):
            if label in self.elements:
                array = np.take(array, self.elements[label], axis=axis)
        return array

    def term(self, term: PlannedTerm) -> PlannedTerm:
        for monomial in term.monomials:
            for factor in monomial.factors:
                plates = () if factor.known else tuple(p.name for p in self.plan.nodes[factor.source].plates)
                self._look(factor.axes, plates)
                if factor.known:
                    self._note(factor.source, tuple(None if isinstance(a, Take) else a for a in factor.axes), None)
        for name, readings in term.readings.items():
            for reading in readings:
                self._look(reading.axes, tuple(p.name for p in self.plan.nodes[name].plates))
        sizes = {label: self.size(label, size) for label, size in term.sizes.items()}
        present = None if term.present is None else self.array(term.present, term.plates)
        return replace(term, sizes=sizes, present=present)

    def _look(self, axes: tuple[Any, ...], plates: tuple[str, ...]) -> None:
        for position, axis in enumerate(axes):
            if isinstance(axis, Take):
                self._note(axis.index, axis.labels, plates[position] if position < len(plates) else None)

    def _note(self, key: str, labels: tuple[Any, ...], target: str | None) -> None:
        way = tuple(label if label in self.elements else None for label in labels), target
        if self.ways.setdefault(key, way) != way:
            raise _Whole

    def known(self) -> dict[str, npt.NDArray[Any]]:
        """The known arrays, indices with the places of the elements that are left."""
        return {key: self._known(key, array) for key, array in self.plan.known.items()}

    def _known(self, key: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        labels, target = self.ways.get(key, ((), None))
        array = self.array(array, labels)
        if target is None or target not in self.elements:
            return array
        return np.searchsorted(self.elements[target], array).astype(array.dtype)

    def node(self, node: Node) -> Node:
        names = tuple(plate.name for plate in node.plates)
        if not any(name in self.elements for name in names):
            return node
        is_simple = not node.is_auxiliary and node.entries is None and not hasattr(node, "members")
        if not is_simple or node.name in self.plan.parts or "trials" in node.parameters:
            raise _Whole
        is_cut_in_time = node.block_plates != node.plates and names[-1] in self.elements
        if is_cut_in_time or any(isinstance(value, np.ndarray) for value in vars(node.family).values()):
            raise _Whole
        if any(
            p.weight is not None and not p.weight[self.elements[p.name]].any()
            for p in node.plates
            if p.name in self.elements
        ):
            raise _Whole
        twin = copy.copy(node)
        twin.plates = tuple(
            Plate(
                p.name, len(self.elements[p.name]), weight=None if p.weight is None else p.weight[self.elements[p.name]]
            )
            if p.name in self.elements
            else p
            for p in node.plates
        )
        twin.value = None if node.value is None else self.array(node.value, names)
        twin.mask = None if node.mask is None else self.array(node.mask, names)
        return twin
