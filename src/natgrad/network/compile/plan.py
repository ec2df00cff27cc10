"""Make a Plan of declared nodes: terms, blocks and known arrays, and which plates grow.

Plates grow as a declaration says: those declared so, and those whose components are weighted by sticks that grow.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.inference.problem import Block, ChildSet
from natgrad.network.compile.origins import find_origins, placed
from natgrad.network.language.missing import hidden_in_part
from natgrad.network.language.nodes import Node
from natgrad.network.language.scope import Reading
from natgrad.network.polynomial import Factor, Label, Monomial, Polynomial, Take

__all__ = [
    "BEFORE",
    "Grouping",
    "Plan",
    "PlannedTerm",
    "asked_plates",
    "axes_of",
    "child_sets",
    "coloured",
    "coupling",
    "ending_terms",
    "group_plates",
    "grown_plates",
    "make_plan",
    "meeting_pairs",
    "merged_monomials",
    "n_reads",
    "present_elements",
    "remarks",
    "told_apart",
    "told_before",
    "weight_key",
    "with_gates",
]


@dataclass(frozen=True, slots=True)
class PlannedTerm:
    """One node's expected log density with gates, missing values and plate weights multiplied in.

    ``gates`` names the category behind every gated label; ``present`` says which elements are observed, if not all are.
    """

    node: str
    plates: tuple[str, ...]
    sizes: Mapping[Label, int]
    monomials: tuple[Monomial, ...]
    readings: Mapping[str, tuple[Reading, ...]]
    present: npt.NDArray[np.bool_] | None
    gates: Mapping[Label, str]  # which category chooses along a gated label

    def touching(self, name: str) -> tuple[Monomial, ...]:
        """The monomials in which a node's moments appear."""
        return tuple(m for m in self.monomials if any(f.source == name and not f.known for f in m.factors))


@dataclass(frozen=True)
class Plan:
    """A compiled declaration: nodes in order of declaration, one term each, one block for each hidden node."""

    nodes: Mapping[str, Node]
    terms: Mapping[str, PlannedTerm]
    blocks: Mapping[str, Block]
    known: dict[str, npt.NDArray[Any]]
    weights: Mapping[str, npt.NDArray[np.float64]]
    origins: Mapping[
        str, npt.NDArray[np.float64]
    ]  # from where locations are measured; zero for those that are not here
    parts: frozenset[str] = frozenset()  # partly observed nodes whose missing elements others read
    members: Mapping[str, Any] = field(default_factory=dict)  # nodes that are in a joint factor, and where in it

    @cached_property
    def orders(self) -> dict[frozenset[str], tuple[str, ...]]:
        """Orders of a sweep that were found already, by the nodes that were given a start."""
        return {}

    def terms_of(self, name: str) -> Sequence[PlannedTerm]:
        """The terms that touch a node: its own first, then those of its children."""
        return self._terms_of[name]

    def in_factor(self, name: str) -> tuple[Node, ...]:
        """The declared nodes that a node of the plan stands for: itself, or the members of a joint factor."""
        members: tuple[Node, ...] = getattr(self.nodes[name], "members", None) or (self.nodes[name],)
        return members

    @cached_property
    def improper(self) -> list[str]:
        """The hidden nodes with flat priors."""
        return [name for name in self.blocks if self.nodes[name].is_improper]

    @cached_property
    def choices(self) -> dict[str, list[tuple[str, str, int]]]:
        """For every hidden category: (term, node it chooses from, axis of that node)."""
        choices: dict[str, list[tuple[str, str, int]]] = {}
        for term in self.terms.values():
            for name, readings in term.readings.items() if term.gates else ():
                for reading in readings:
                    for position, axis in enumerate(reading.axes):
                        if not isinstance(axis, Take) and axis in term.gates:
                            choices.setdefault(term.gates[axis], []).append((term.node, name, position))
        return choices

    @cached_property
    def merging(self) -> dict[str, list[tuple[str, str, int]]]:
        """The same, but for what known indices read one by one: data tell these apart; nor are times of a chain components."""
        told = {
            (name, position)
            for term in (self.terms.values() if self.choices else ())
            for name, readings in term.readings.items()
            for reading in readings
            for position, axis in enumerate(reading.axes)
            if isinstance(axis, Take)
        }
        undecided = {
            gate: [c for c in choices if c[1:] not in told and c[2] < len(self.nodes[c[1]].block_plates)]
            for gate, choices in self.choices.items()
        }
        return {gate: choices for gate, choices in undecided.items() if choices}

    @property
    def n_observed(self) -> int:
        """Elements of all observed nodes, missing ones among them."""
        return sum(math.prod(plate.size for plate in n.plates) for n in self.nodes.values() if n.is_observed)

    @cached_property
    def grown(self) -> set[str]:
        """The plates whose number of components is to be found."""
        return grown_plates(self)

    @cached_property
    def asked_to_grow(self) -> set[str]:
        """Those of them that were declared so: others grow where they can."""
        return asked_plates(self)

    @cached_property
    def declared(self) -> dict[str, Node]:
        """The nodes as they were declared, those of a joint factor one by one."""
        return {node.name: node for name in self.nodes for node in self.in_factor(name)}

    def parents_of(self, name: str) -> list[str]:
        """The names of a node's parents in this plan; a joint factor in place of its members."""
        parents = (parent.name for parent in self.nodes[name].parents())
        return list(dict.fromkeys(self.members[n].joint if n in self.members else n for n in parents))

    @cached_property
    def _terms_of(self) -> dict[str, list[PlannedTerm]]:
        terms = {name: [term] for name, term in self.terms.items()}
        for term in self.terms.values():
            for name in term.readings:
                if name != term.node and name in terms:
                    terms[name].append(term)
        return terms


def weight_key(plate: str) -> str:
    """The key of a plate's weights among the known arrays."""
    return f"weight:{plate}"


def make_plan(
    nodes: Sequence[Node],
    origins: Mapping[str, npt.NDArray[np.float64]] | None = None,
    known: dict[str, npt.NDArray[Any]] | None = None,
    read: frozenset[str] | None = None,
) -> Plan:
    """Compile nodes (parents first) into a plan.

    Parameters
    ----------
    nodes : all nodes of a network, parents first
    origins : from where locations are measured, by node; found from the data if not given
    known : where the known arrays go, optional
    read : partly observed nodes whose missing elements others read, where these nodes are not all; found if not given
    """
    # Terms that were kept name their arrays by what is in them, and a caller who collects arrays wants its own names.
    keep, known = known is None, {} if known is None else known
    weights: dict[str, npt.NDArray[np.float64]] = {}
    for node in nodes:
        for plate in node.plates:
            if plate.weight is not None:
                weights[plate.name] = known[weight_key(plate.name)] = plate.weight
    read = hidden_in_part(nodes) if read is None else read
    parts = read.union(node.name for node in nodes if node.entries is not None)
    origins = find_origins(nodes, parts) if origins is None else origins
    centred = [placed(node, origins, parts) for node in nodes]
    declared = {node.name: node.declared_term(known, read) if keep else node.term(known, read) for node in centred}
    terms: dict[str, PlannedTerm] = {}
    coupled: dict[str, set[str]] = {}
    for node in nodes:
        term = declared[node.name]
        scope = term.scope
        extra = tuple(Factor(weight_key(name), 0, (name,), known=True) for name in scope.plate_names if name in weights)
        extra += (term.mask,) if term.mask is not None else ()
        monomials = tuple(
            whole for m in term.polynomial.monomials for whole in with_gates(m.settled(), scope.gates, extra)
        )
        present = None if term.mask is None or node.mask is None else node.mask.astype(bool)
        readings = {name: tuple(centred) for name, centred in scope.readings.items() if name != node.name}
        terms[node.name] = PlannedTerm(
            node.name, scope.plate_names, dict(scope.sizes), merged_monomials(monomials), readings, present,
            {label: f.source for label, gate in scope.gates.items() for m in gate.monomials for f in m.factors if not f.known},
        )  # fmt: skip
        for name, label in scope.coupled.items():
            coupled.setdefault(name, set()).add(label)
    readers: dict[str, dict[str, PlannedTerm]] = {node.name: {} for node in nodes}
    for name, planned in terms.items():
        for source in planned.readings:
            readers[source][name] = planned
    blocks = {
        node.name: _block(node, coupled.get(node.name, set()), readers[node.name], known, origins.get(node.name))
        for node in nodes
        if not node.is_observed or node.name in parts
    }
    return Plan({node.name: node for node in nodes}, terms, blocks, known, weights, origins, read)


def with_gates(
    monomial: Monomial, gates: Mapping[Label, Polynomial], extra: tuple[Factor, ...]
) -> tuple[Monomial, ...]:
    """Multiply in the category behind every gated label; a monomial without the label needs none, as Σ_k E[z_k] = 1."""
    if not gates:
        return (Monomial(monomial.coefficient, monomial.factors + extra),)
    gated: list[Monomial] = []
    waiting = [(monomial.coefficient, monomial.factors, frozenset[Label]())]
    while waiting:
        coefficient, factors, done = waiting.pop(0)
        missing = [label for label in _labels(factors) if label in gates and label not in done]
        if not missing:
            gated.append(Monomial(coefficient, factors + extra))
            continue
        for m in gates[missing[0]].monomials:
            waiting.append((coefficient * m.coefficient, factors + m.factors, done | {missing[0]}))
    return tuple(gated)


def _labels(factors: tuple[Factor, ...]) -> list[Label]:
    return [label for factor in factors for label in factor.labels]


def merged_monomials(monomials: tuple[Monomial, ...]) -> tuple[Monomial, ...]:
    """Add up the coefficients of equal monomials (the two cross terms of a square, say); the first keeps its factors' order."""
    totals: dict[Any, tuple[float, tuple[Factor, ...]]] = {}
    for monomial in monomials:
        key: Any = frozenset(monomial.factors)
        if len(key) < len(monomial.factors):
            key = frozenset(Counter(monomial.factors).items())
        value, factors = totals.get(key, (0.0, monomial.factors))
        totals[key] = value + monomial.coefficient, factors
    return tuple(Monomial(value, factors) for value, factors in totals.values() if value != 0.0)


def _block(
    node: Node,
    plates: set[str],
    terms: Mapping[str, PlannedTerm],
    known: Mapping[str, npt.NDArray[Any]],
    origin: npt.NDArray[np.float64] | None,
) -> Block:
    names = tuple(plate.name for plate in node.block_plates)
    shape = tuple(plate.size for plate in node.block_plates)
    twice = [term for term in terms.values() if len(term.readings.get(node.name, ())) > 1]
    if plates and twice:
        raise NotConjugate(
            f"{twice[0].node!r} reads {node.name!r} twice, summed over plate {min(plates)!r} and in another way; for an element "
            "in both, the product of expectations is not the expectation of the product. Put both into one dot by adding to "
            "its known numbers, or use a second node"
        )
    if len(plates) > 1:
        raise NotConjugate(
            f"{node.name!r} is summed over plates {sorted(plates)} in different terms; its elements cannot be updated in turn "
            "along one axis. Use a MultivariateNormal, or separate nodes"
        )
    if plates:
        _check_weights(node, terms)
    _check_left_out(node, terms, known)
    axis = names.index(next(iter(plates))) if plates else None
    colours = _colours(node, shape, twice, known) if twice else None
    return Block(node.name, node.family, names, shape, axis, colours, origin)


def _check_weights(node: Node, terms: Mapping[str, PlannedTerm]) -> None:
    """Elements that are updated in turn must meet their children one by one along plates with weights."""
    for position, plate in enumerate(node.plates):
        for term in terms.values() if plate.weight is not None else ():
            if any(reading.axes[position] != plate.name for reading in term.readings.get(node.name, ())):
                raise PlateMismatch(
                    f"{node.name!r} lies on plate {plate.name!r}, which has weights, and {term.node!r} reads it there through a "
                    f"dot or an index: this has no exact update. Put the weights on the plates of {term.node!r}"
                )


def _check_left_out(node: Node, terms: Mapping[str, PlannedTerm], known: Mapping[str, npt.NDArray[Any]]) -> None:
    """An element of weight 0 has neither prior nor entropy: nothing would hold it against the message of a child."""
    for position, plate in enumerate(node.block_plates):
        if plate.weight is None or plate.weight.all():
            continue
        for term in terms.values():
            for reading in term.readings.get(node.name, ()):
                axis = reading.axes[position]
                if axis == plate.name:
                    continue
                read = known[axis.index] if isinstance(axis, Take) else np.arange(plate.size)
                if (left_out := np.ravel(read)[plate.weight[np.ravel(read)] == 0]).size:
                    raise PlateMismatch(
                        f"{term.node!r} reads element {int(left_out[0])} of {node.name!r} along plate {plate.name!r}, where its "
                        "weight is 0: it is left out, and has no prior. Give it a weight > 0, or do not read it"
                    )


def _colours(
    node: Node, shape: tuple[int, ...], terms: list[PlannedTerm], known: Mapping[str, npt.NDArray[Any]]
) -> npt.NDArray[np.int32]:
    """Colours of the elements that meet in some child."""
    return coloured(meeting_pairs(node, shape, terms, known), shape)


def meeting_pairs(
    node: Node, shape: tuple[int, ...], terms: Sequence[PlannedTerm], known: Mapping[str, npt.NDArray[Any]]
) -> set[tuple[int, int]]:
    """The elements of a node that some child reads both, as pairs of their numbers."""
    pairs: set[tuple[int, int]] = set()
    for term in terms:
        if not _meets_itself(term, node, len(shape)):
            continue
        keys = [element_keys(term, reading, shape, known)[0] for reading in term.readings[node.name]]
        for i, first in enumerate(keys):
            for second in keys[i + 1 :]:
                if (same := np.flatnonzero(first == second)).size:
                    raise NotConjugate(
                        f"{term.node!r} reads element {int(first[same[0]])} of {node.name!r} twice (its element {int(same[0])}): "
                        "the product of expectations is not the expectation of the product. Remove it, or use two nodes"
                    )
                pairs.update(zip(np.minimum(first, second).tolist(), np.maximum(first, second).tolist(), strict=True))
    return pairs


def coloured(pairs: set[tuple[int, int]], shape: tuple[int, ...]) -> npt.NDArray[np.int32]:
    """Greedy colouring of elements that meet in pairs, largest degree first."""
    neighbours: list[list[int]] = [[] for _ in range(int(np.prod(shape)))]
    for a, b in sorted(pairs):
        neighbours[a].append(b)
        neighbours[b].append(a)
    colours = np.full(len(neighbours), -1, dtype=np.int32)
    for element in sorted(range(len(neighbours)), key=lambda e: -len(neighbours[e])):
        used = {int(colours[other]) for other in neighbours[element]}
        colours[element] = next(c for c in range(len(used) + 1) if c not in used)
    return colours.reshape(shape)


def _meets_itself(term: PlannedTerm, node: Node, n_plates: int) -> bool:
    """Whether two readings of a node are multiplied; one that reads a whole plate (a diagonal) must not be among them."""
    own = [[f.occurrence for f in m.factors if f.source == node.name and not f.known] for m in term.monomials]
    if not any(len(set(occurrences)) > 1 for occurrences in own):
        return False
    axes = [axis for reading in term.readings[node.name] for axis in reading.axes[:n_plates]]
    if any(not isinstance(axis, Take) and axis not in term.plates and axis not in term.gates for axis in axes):
        raise NotConjugate(
            f"{term.node!r} reads {node.name!r} twice, once along a whole plate; for an element in both, the product of "
            "expectations is not the expectation of the product. Use two nodes"
        )
    return True


def element_keys(
    term: PlannedTerm, reading: Reading, shape: tuple[int, ...], known: Mapping[str, npt.NDArray[Any]]
) -> tuple[npt.NDArray[np.int64], tuple[int, ...]]:
    """For each element of a term, flattened: which element of the node it reads.

    Returns the flat key over the axes that are chosen by the term's element, and the positions of these axes; the other
    axes (gated, or summed) are read whole.
    """
    sizes = [term.sizes[label] for label in term.plates]
    n_elements = int(np.prod(sizes))
    coordinates: dict[Label, npt.NDArray[Any]] = dict(
        zip(term.plates, np.unravel_index(np.arange(n_elements), sizes or (1,)), strict=False)
    )
    chosen, parts = [], []
    for position, axis in enumerate(reading.axes[: len(shape)]):
        if isinstance(axis, Take):
            index = known[axis.index][tuple(coordinates[label] for label in axis.labels)]
            parts.append(np.broadcast_to(index.astype(np.int64), n_elements))
            chosen.append(position)
        elif axis in term.plates:
            parts.append(coordinates[axis])
            chosen.append(position)
    if not parts:
        return np.zeros(n_elements, dtype=np.int64), ()
    return np.ravel_multi_index(parts, [shape[p] for p in chosen]), tuple(chosen)


def ending_terms(plan: Plan, order: Sequence[str]) -> dict[str | None, list[str]]:
    """For each block of a sweep, the terms that change no more after its update; under None those that no block touches."""
    last: dict[str, str | None] = dict.fromkeys(plan.terms, None)
    for name in order:
        for term in plan.terms_of(name):
            last[term.node] = name
    ending: dict[str | None, list[str]] = {name: [] for name in (*order, None)}
    for node, block in last.items():
        ending[block].append(node)
    return ending


# How the observation is called that stands for rows that are gone (`natgrad.network.bind.remembering`).
BEFORE = "rows before, of "


def asked_plates(plan: Plan) -> set[str]:
    """The plates that were declared to grow, by themselves or by sticks; sticks without components stand for themselves."""
    grown = {plate.name for node in plan.nodes.values() for plate in node.plates if plate.grow}
    for name, node in plan.nodes.items():
        if getattr(node, "grow", False):
            grown |= _weighted_by(plan, name) or {name}
    return grown


def grown_plates(plan: Plan) -> set[str]:
    """The plates whose number of components is to be found: those, and what is weighted by sticks of which nothing was said."""
    free = (name for name, node in plan.nodes.items() if node.family.is_stick and getattr(node, "grow", 0) is None)
    return asked_plates(plan).union(*(_weighted_by(plan, name) for name in free))


def remarks(plan: Plan, moving: bool) -> str:
    """What to know of a bound and of its components, to go after the words of a strategy."""
    words = ""
    if flat := plan.improper:
        words += f"; flat priors of {', '.join(flat)}: the bound is up to a constant"
    for name, node in plan.nodes.items():
        truncated = node.family.is_stick and getattr(node, "grow", 0) is None and _weighted_by(plan, name)
        if truncated and not moving:
            words += f"; {name} is truncated at {node.size}: components move between exact passes over rows in memory"
    return words


def _weighted_by(plan: Plan, name: str) -> set[str]:
    """The plates along which hidden categories choose that have these weights."""
    gates = [gate for gate in plan.choices if gate in plan.blocks and name in plan.parents_of(gate)]
    pairs = [(plan.nodes[node].plates, axis) for gate in gates for _, node, axis in plan.choices[gate]]
    return {plates[axis].name for plates, axis in pairs if axis < len(plates)}


def told_before(plan: Plan, gate: str) -> npt.NDArray[np.float64]:
    """How many observations that are gone each value of a category holds, as they told its weights."""
    held = np.zeros(plan.nodes[gate].categories or 1)
    for parent in plan.parents_of(gate):
        message = plan.nodes.get(BEFORE + parent)
        if message is not None and (plan.nodes[parent].family.is_simplex or plan.nodes[parent].family.is_stick):
            counts = np.asarray(getattr(message, "message")[0])  # noqa: B009  (of no other node)
            held += counts.reshape(-1, len(held)).sum(0)
    return held


def axes_of(family: Any) -> tuple[tuple[int, ...], ...]:
    """The axes of the statistics of a category along which its values lie; of a chain, those of pairs are two."""
    return ((-1,), (-1,), (-2, -1)) if family.is_path else ((-1,),)


# -- who reads whom: the children of every element of a block, and the groups that a batch of a plate is made of --

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
