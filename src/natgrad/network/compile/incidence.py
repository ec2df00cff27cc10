"""Who reads whom: the children of every element of a block, and the groups that a batch of a plate is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.inference.problem import Block, ChildSet
from natgrad.network.compile.plan import Plan, PlannedTerm, element_keys
from natgrad.network.language.scope import Reading
from natgrad.network.polynomial import Take

__all__ = ["Grouping", "child_sets", "coupling", "group_plates", "n_reads", "present_elements", "told_apart"]

Ints = npt.NDArray[np.int64]


def child_sets(plan: Plan, block: Block) -> list[ChildSet]:
    """One set for every term that reads the block and every way in which it does."""
    sets = []
    for term in plan.terms_of(block.name):
        for occurrence, reading in enumerate(term.readings.get(block.name, ())):
            sets.append(_child_set(plan, block, term, occurrence, reading))
    return sets


def n_reads(plan: Plan, block: Block) -> int:
    """Messages that a block gets from all its children; the same as its sets of children say."""
    total = 0
    for term in plan.terms_of(block.name):
        readings = term.readings.get(block.name, ())
        if not readings:
            continue
        present = math.prod(term.sizes[label] for label in term.plates)
        present = present if term.present is None else int(term.present.sum())
        for reading in readings:
            axes = reading.axes[: len(block.shape)]
            shared = [
                n for n, a in zip(block.shape, axes, strict=True) if not isinstance(a, Take) and a not in term.plates
            ]
            total += present * math.prod(shared)
    return total


def present_elements(term: PlannedTerm) -> Ints:
    """The elements of a term that are not missing."""
    size = int(np.prod([term.sizes[label] for label in term.plates]))
    return np.arange(size) if term.present is None else np.flatnonzero(term.present.reshape(-1))


def coupling(plan: Plan, block: Block) -> int:
    """ω: the most variables that meet a block's element in one term, itself included; scalars along a summed plate count each.

    When all of them move at the same time, each by its own optimum given the others, they overshoot up to ω times.
    """
    most = 1
    for term in plan.terms_of(block.name):
        names = {term.node, *term.readings} & set(plan.blocks)
        most = max(most, sum(_meeting(plan.blocks[name], term) for name in names))
    return most


def _meeting(block: Block, term: PlannedTerm) -> int:
    readings = term.readings.get(block.name, ())
    summed = block.column_axis is not None and any(
        not isinstance(axis, Take) and axis not in term.plates and axis not in term.gates
        for reading in readings
        for axis in (reading.axes[block.column_axis],)
    )
    return block.n_columns if summed else max(1, len(readings))


def _child_set(plan: Plan, block: Block, term: PlannedTerm, occurrence: int, reading: Reading) -> ChildSet:
    keys, axes = element_keys(term, reading, block.shape, plan.known)
    n_rows = int(np.prod([block.shape[axis] for axis in axes]))
    children = np.arange(len(keys))
    if term.present is not None:
        children = np.flatnonzero(term.present.reshape(-1))
        keys = keys[children]
    if n_rows > 1:
        children = children[np.argsort(keys, kind="stable")]
    start = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=n_rows))])
    sizes = {label: term.sizes[label] for label in term.plates}
    observed = plan.nodes[term.node].is_observed and term.node not in plan.blocks
    return ChildSet(term.node, observed, occurrence, block, axes, sizes, children, start)


def told_apart(plan: Plan) -> set[str]:
    """Categories whose choices known numbers tell apart: a table, or an observed node, that differs along what they choose."""
    return {
        term.gates[axis]
        for term in plan.terms.values()
        for monomial in term.monomials
        for factor in monomial.factors
        for position, axis in enumerate(factor.axes)
        if factor.known and not isinstance(axis, Take) and axis in term.gates
        if np.ptp(plan.known[factor.source], axis=position).any()
    }


@dataclass(frozen=True)
class Grouping:
    """The elements of every plate that belong to each group of one plate (the cells of a document)."""

    plate: str
    n_groups: int
    members: Mapping[str, Ints]
    start: Mapping[str, Ints]

    def elements(self, plate: str, groups: Ints) -> Ints:
        """The elements of a plate in the given groups, group after group."""
        start, members = self.start[plate], self.members[plate]
        lengths = start[groups + 1] - start[groups]
        offsets = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.asarray(members[np.repeat(start[groups], lengths) + offsets])


def group_plates(plan: Plan, plate: str) -> Grouping:
    """Follow the gathers from a plate to every plate whose elements each belong to one of its elements."""
    sizes = {label: size for term in plan.terms.values() for label, size in term.sizes.items()}
    group_of: dict[str, Ints] = {plate: np.arange(sizes[plate])}
    grown = True
    while grown:
        grown = False
        for term in plan.terms.values():
            for name, readings in term.readings.items():
                plates = tuple(p.name for p in plan.nodes[name].plates)
                for reading in readings:
                    for own, axis in zip(plates, reading.axes, strict=True):
                        if not isinstance(axis, Take) or own not in group_of or len(axis.labels) != 1:
                            continue
                        groups = group_of[own][plan.known[axis.index]]
                        label = axis.labels[0]
                        assert isinstance(label, str)  # an index lives on plates
                        if label not in group_of:
                            group_of[label], grown = groups, True
                        elif not np.array_equal(group_of[label], groups):
                            raise PlateMismatch(
                                f"{term.node!r}: an element of plate {label!r} belongs to two different elements of {plate!r}; "
                                "a batch of it would not be independent of the rest. Sample another plate"
                            )
    members = {name: np.argsort(groups, kind="stable") for name, groups in group_of.items()}
    start = {
        name: np.concatenate([[0], np.cumsum(np.bincount(groups, minlength=sizes[plate]))])
        for name, groups in group_of.items()
    }
    return Grouping(plate, sizes[plate], members, start)
