"""A plan with a factor for each hidden node in; the same with some Gaussian nodes in one factor, out.

E_q[log p] of independent factors has E[a] E[b] where a and b meet; with one factor for both it is E[a b], an entry of the
second moment of a vector. So nothing is declared anew: in every monomial the statistics of members are replaced by entries of
those of the joint vector, their priors become one term, and everything below (targets, bound, sweeps) goes on as with any
MultivariateNormal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad import families
from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.inference.problem import Block
from natgrad.network.compile.plan import Plan, PlannedTerm, merged_monomials
from natgrad.network.compile.polynomial import Axis, Factor, Label, Mark, Monomial, Polynomial, Take
from natgrad.network.language.expressions import REAL, VECTOR
from natgrad.network.language.nodes import Node
from natgrad.network.language.scope import Reading, Scope

__all__ = ["JointNode", "Member", "auto_groups", "checked_joint", "joined_plan", "with_joint_factors"]

# Numbers that scalars may have together to be joined by default: a covariance of that size costs nothing beside a sweep.
MOST_AUTO = 32


@dataclass(frozen=True)
class Member:
    """Where a node is in its joint factor: a number, or a run of numbers for a vector."""

    joint: str
    begin: int
    size: int | None

    @property
    def place(self) -> int | slice:
        """The index of its numbers in the vector."""
        return self.begin if self.size is None else slice(self.begin, self.begin + self.size)


class JointNode(Node):
    """Several Gaussian nodes as one vector; it stands in a plan for its members."""

    family = families.MultivariateNormal()
    kind = VECTOR
    slots_of = ()

    def __init__(self, name: str, members: Sequence[Node]) -> None:
        self.members = tuple(members)
        super().__init__(name, {}, members[0].plates, None, None)

    def _event_size(self, observed: Any) -> int | None:
        return sum(node.size or 1 for node in self.members)

    def log_density(self, scope: Scope) -> Polynomial:
        """Nothing: the terms of the members are in the plan."""
        return Polynomial()

    def parents(self) -> list[Node]:
        """Those of all members, but for members."""
        found = {parent.name: parent for node in self.members for parent in node.parents()}
        return [parent for parent in found.values() if parent not in self.members]

    def places(self) -> dict[str, Member]:
        """Where each member is."""
        found, begin = {}, 0
        for node in self.members:
            found[node.name] = Member(self.name, begin, node.size)
            begin += node.size or 1
        return found


# -- which nodes --


def joined_plan(plan: Plan, joint: Any) -> Plan:
    """The plan with the joint factors that `checked_joint` found."""
    return plan if joint is None else with_joint_factors(plan, auto_groups(plan) if joint == "auto" else joint)


def checked_joint(joint: Any, nodes: Mapping[str, Node]) -> Any:
    """What a user asked for: None, "auto", or groups as names, each of hidden Gaussian nodes of the same plates."""
    if joint is None or (isinstance(joint, str) and joint == "auto"):
        return joint
    if isinstance(joint, str) or not isinstance(joint, Iterable):
        raise TypeError(
            f'joint must be "auto", None or a list of groups of nodes, such as [("slope", "start")], got {joint!r}'
        )
    groups: list[tuple[str, ...]] = []
    taken: set[str] = set()
    for group in joint:
        if isinstance(group, (str, Node)) or not isinstance(group, Iterable):
            raise TypeError(f'joint: a group is a list of nodes, such as ("slope", "start"), got {group!r}')
        names: tuple[str, ...] = tuple(str(getattr(node, "name", node)) for node in group)
        if len(names) < 2 or len(set(names)) < len(names):
            raise ValueError(f"joint: a group has two nodes or more, each once, got {names}")
        for name in names:
            _check_member(name, nodes)
            if name in taken:
                raise ValueError(f"joint: {name!r} is in two groups")
        taken.update(names)
        first = nodes[names[0]]
        for name in names[1:]:
            if nodes[name].plates != first.plates:
                raise PlateMismatch(f"joint: {first!r} and {nodes[name]!r} lie on different plates")
        groups.append(names)
    return groups


def _check_member(name: Any, nodes: Mapping[str, Node]) -> None:
    if name not in nodes:
        raise ValueError(f"joint: {name!r} is not in this network; nodes are {', '.join(nodes)}")
    node = nodes[name]
    if node.is_observed:
        raise ValueError(f"joint: {name!r} is observed, and has no factor")
    if node.family.name not in ("Normal", "MultivariateNormal") or node.kind not in (REAL, VECTOR):
        raise NotConjugate(
            f"joint: {name!r} is a {type(node).__name__}; Normal and MultivariateNormal nodes can be joined"
        )


def auto_groups(plan: Plan) -> list[tuple[str, ...]]:
    """Hidden Normals without plates that meet in a term, up to `MOST_AUTO` of them in a group.

    They meet where a child reads them together, or where one is the mean of another. Flat priors are left out: a factor of its
    own tells a user which node the data leave open.
    """
    scalars = [
        name
        for name, block in plan.blocks.items()
        if block.family.name == "Normal" and not block.shape and not plan.nodes[name].is_improper
    ]
    pairs = dict.fromkeys(pair for term in plan.terms.values() for pair in _meeting(term, set(scalars)))
    found: list[tuple[str, ...]] = []
    for whole in _merged(scalars, pairs, lambda group: True):
        for begin in range(0, len(whole), MOST_AUTO):
            part = set(whole[begin : begin + MOST_AUTO])
            inside = [pair for pair in pairs if part.issuperset(pair)]
            for group in _merged([name for name in whole if name in part], inside, lambda group: True):
                # All of them at once, or else as far as it goes.
                own = [pair for pair in inside if pair[0] in group]
                found += [group] if _fits(plan, group) else _merged(group, own, lambda part: _fits(plan, part))
    return found


def _meeting(term: PlannedTerm, scalars: set[str]) -> list[tuple[str, str]]:
    met = ([f.source for f in m.factors if not f.known and f.stat == 0 and f.source in scalars] for m in term.monomials)
    return [pair for names in met for pair in pairwise(names) if pair[0] != pair[1]]


def _merged(
    names: Sequence[str], pairs: Iterable[tuple[str, str]], good: Callable[[tuple[str, ...]], bool]
) -> list[tuple[str, ...]]:
    """Groups of names that pairs connect, as long as each is good."""
    group_of: dict[str, tuple[str, ...]] = {name: (name,) for name in names}
    for first, second in pairs:
        one, two = group_of[first], group_of[second]
        if one != two:
            merged = tuple(name for name in names if name in one or name in two)
            if good(merged):
                group_of.update(dict.fromkeys(merged, merged))
    return [group for group in dict.fromkeys(group_of.values()) if len(group) > 1]


def _fits(plan: Plan, group: tuple[str, ...]) -> bool:
    try:
        with_joint_factors(plan, [group])
    except (NotConjugate, PlateMismatch):
        return False
    return True


# -- the plan --


def with_joint_factors(plan: Plan, groups: Sequence[tuple[str, ...]]) -> Plan:
    """The plan with one factor for each group; raises `NotConjugate` where members are not read linearly, side by side."""
    for group in groups:
        plan = _joined(plan, group)
    return plan


def _joined(plan: Plan, group: tuple[str, ...]) -> Plan:
    node = JointNode("+".join(group), [plan.nodes[name] for name in group])
    if node.name in plan.nodes:
        raise ValueError(f"joint: there is a node called {node.name!r} already")
    for name in group:
        if plan.blocks[name].n_columns > 1 or plan.blocks[name].column_axis is not None:
            raise NotConjugate(
                f"joint: elements of {name!r} meet one another in a child: use a MultivariateNormal instead"
            )
    known = dict(plan.known)
    places, indices = node.places(), {}
    for name, member in places.items():
        indices[name] = f"joint:{node.name}:{name}"
        known[indices[name]] = np.asarray(np.arange(member.begin, member.begin + (member.size or 1)), np.int32)
        if member.size is None:
            known[indices[name]] = known[indices[name]][0]
    terms = {name: _rewritten(term, node, places, indices, len(node.plates)) for name, term in plan.terms.items()}
    terms[node.name] = _prior(node, [terms.pop(name) for name in group])
    blocks = {name: block for name, block in plan.blocks.items() if name not in group}
    origin = _origin(plan, node)
    blocks[node.name] = Block(
        node.name, node.family, plan.blocks[group[0]].plates, plan.blocks[group[0]].shape, None, None, origin
    )
    nodes = {name: other for name, other in plan.nodes.items() if name not in group}
    nodes[node.name] = node
    order = _sorted(nodes, group)
    origins = {name: value for name, value in plan.origins.items() if name not in group}
    if origin is not None:
        origins[node.name] = origin
    return replace(
        plan, nodes={name: nodes[name] for name in order}, terms={name: terms[name] for name in order},
        blocks={name: blocks[name] for name in order if name in blocks}, known=known, origins=origins,
        members={**plan.members, **places},
    )  # fmt: skip


def _sorted(nodes: Mapping[str, Node], group: tuple[str, ...]) -> list[str]:
    """Parents before children, otherwise as they were."""
    name_of = {
        member.name: node.name for node in nodes.values() if isinstance(node, JointNode) for member in node.members
    }
    found: list[str] = []
    waiting = {name: {name_of.get(p.name, p.name) for p in node.parents()} for name, node in nodes.items()}
    while waiting:
        ready = [name for name, parents in waiting.items() if not parents & waiting.keys()]
        if not ready:
            raise NotConjugate(
                f"joint: a node between members of {'+'.join(group)!r} reads one of them and is read by another"
            )
        found += ready
        for name in ready:
            del waiting[name]
    return found


def _origin(plan: Plan, node: JointNode) -> npt.NDArray[np.float64] | None:
    """The origins of the members, one after the other."""
    parts = [np.broadcast_to(plan.origins.get(m.name, np.zeros(())), (m.size or 1,)) for m in node.members]
    return np.concatenate(parts) if any(m.name in plan.origins for m in node.members) else None


def _rewritten(
    term: PlannedTerm, node: JointNode, places: Mapping[str, Member], indices: Mapping[str, str], n_plates: int
) -> PlannedTerm:
    """A term with the statistics of the joint vector."""
    read = {name: readings for name, readings in term.readings.items() if name in places}
    own = term.node in places
    if not read and not own:
        return term
    axes = {reading.axes[:n_plates] for readings in read.values() for reading in readings}
    if own:
        axes.add(tuple(plate.name for plate in node.plates))
    if len(axes) > 1 or any(len(readings) > 1 for readings in read.values()):
        raise NotConjugate(
            f"joint: {term.node!r} reads members of {node.name!r} at different elements, or one of them twice"
        )
    monomials = tuple(_replaced(m, node.name, places, indices, n_plates, term.node) for m in term.monomials)
    readings = {name: found for name, found in term.readings.items() if name not in places}
    if read:
        first = next(iter(read.values()))[0]
        readings[node.name] = (Reading(node.name, first.axes[:n_plates], first.key),)
    return replace(term, monomials=merged_monomials(monomials), readings=readings)


def _replaced(
    monomial: Monomial, joint: str, places: Mapping[str, Member], indices: Mapping[str, str], n_plates: int, term: str
) -> Monomial:
    members = [f for f in monomial.factors if not f.known and f.source in places]
    if not members:
        return monomial
    if sum(1 + f.stat for f in members) > 2:
        raise NotConjugate(
            f"joint: {term!r} multiplies members of {joint!r} with one another: a vector's third moments are no statistics of it"
        )
    events: list[Axis] = []
    for factor in members:
        own = factor.axes[n_plates:]
        if any(isinstance(axis, Take) for axis in own):
            raise NotConjugate(f"joint: {term!r} reads entries of {factor.source!r} through an index")
        wanted = 1 + factor.stat  # a second moment has two entries
        labels: tuple[tuple[Label, ...], ...] = tuple((axis,) for axis in own) if own else ((),) * wanted  # type: ignore[misc]
        events += [Take(indices[factor.source], label) for label in labels]
    joined = Factor(joint, len(events) - 1, (*members[0].axes[:n_plates], *events), known=False)
    return monomial._replace(factors=(joined, *(f for f in monomial.factors if f not in members)))


def _prior(node: JointNode, terms: Sequence[PlannedTerm]) -> PlannedTerm:
    """The priors of all members as one term."""
    sizes: dict[Label, int] = {}
    monomials: list[Monomial] = []
    readings: dict[str, tuple[Reading, ...]] = {}
    gates: dict[Label, str] = {}
    for number, term in enumerate(terms):
        renamed: dict[Label, Label] = {
            label: Mark(label.stem, 1000 * (number + 1) + label.number)
            for label in term.sizes
            if isinstance(label, Mark) and label.number >= 0
        }
        sizes |= {renamed.get(label, label): size for label, size in term.sizes.items()}
        gates |= {renamed.get(label, label): name for label, name in term.gates.items()}
        monomials += [
            m._replace(factors=tuple(factor.relabelled(renamed) for factor in m.factors)) for m in term.monomials
        ]
        for name, found in term.readings.items():
            if name == node.name:
                continue
            if name in readings and readings[name][0].axes != found[0].axes:
                raise NotConjugate(f"joint: members of {node.name!r} read {name!r} at different elements")
            readings.setdefault(name, found)
    return PlannedTerm(node.name, terms[0].plates, sizes, merged_monomials(tuple(monomials)), readings, None, gates)
