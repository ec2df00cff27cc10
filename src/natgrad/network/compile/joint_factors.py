"""A plan with a factor for each hidden node in; the same with some nodes in one factor, out.

E_q[log p] of independent factors has E[a] E[b] where a and b meet; with one factor for both it is E[a b], an entry of the
second moment of a vector, or, where b is a precision, a statistic of the law of both. So nothing is declared anew: in every
monomial the statistics of members are replaced by those of the joint factor, their priors become one term, and everything below
(targets, bound, sweeps) goes on as with any node.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.inference.problem import Block
from natgrad.network.compile.joint_node import PRECISIONS, JointNode, Member, in_joint_statistics
from natgrad.network.compile.plan import Plan, PlannedTerm, merged_monomials
from natgrad.network.compile.polynomial import Label, Mark, Monomial
from natgrad.network.language.columns import RecordedNode
from natgrad.network.language.expressions import MATRIX, POSITIVE, REAL, VECTOR
from natgrad.network.language.nodes import Node
from natgrad.network.language.scope import Reading

__all__ = [
    "auto_groups",
    "checked_joint",
    "chosen_groups",
    "full_groups",
    "groups_inside",
    "groups_of",
    "joined_plan",
    "with_joint_factors",
]

GAUSSIAN = ("Normal", "MultivariateNormal")
# Numbers that scalars may have together to be joined by default: a covariance of that size costs nothing beside a sweep.
MOST_AUTO = 32


# -- which nodes --


def joined_plan(plan: Plan, joint: Any) -> Plan:
    """The plan with the joint factors that `checked_joint` found."""
    return with_joint_factors(plan, chosen_groups(plan, joint))


def chosen_groups(plan: Plan, joint: Any) -> list[tuple[str, ...]]:
    """The groups of nodes that `checked_joint` found, or that its words choose in a plan."""
    if isinstance(joint, str):
        return {"auto": auto_groups, "full": full_groups}[joint](plan)
    return list(joint or ())


def groups_of(joint: Any, members: Mapping[str, Member]) -> list[tuple[str, ...]]:
    """The groups of a plan that has these members, as they were given to `with_joint_factors`."""
    if not isinstance(joint, str):
        return list(joint or ())
    names = dict.fromkeys(member.joint for member in members.values())
    return [tuple(name for name, member in members.items() if member.joint == whole) for whole in names]


def groups_inside(groups: Iterable[tuple[str, ...]], plan: Plan) -> list[tuple[str, ...]]:
    """Those groups whose nodes are all hidden in a plan."""
    return [group for group in groups if all(name in plan.blocks for name in group)]


def checked_joint(joint: Any, nodes: Mapping[str, Any]) -> Any:
    """What a user asked for: None, "auto", "full", or groups as names, each of hidden nodes of the same plates.

    ``nodes`` are made, or recorded with columns.
    """
    if joint is None or (isinstance(joint, str) and joint in ("auto", "full")):
        return joint
    if isinstance(joint, str) or not isinstance(joint, Iterable):
        raise TypeError(
            f'joint must be "auto", "full", None or a list of groups of nodes, such as [("slope", "start")], got {joint!r}'
        )
    groups: list[tuple[str, ...]] = []
    taken: set[str] = set()
    for group in joint:
        if isinstance(group, (str, Node, RecordedNode)) or not isinstance(group, Iterable):
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


def _check_member(name: Any, nodes: Mapping[str, Any]) -> None:
    if name not in nodes:
        raise ValueError(f"joint: {name!r} is not in this network; nodes are {', '.join(nodes)}")
    node = nodes[name]
    if node.is_observed:
        raise ValueError(f"joint: {name!r} is observed, and has no factor")
    cls = node.function if isinstance(node, RecordedNode) else type(node)
    family = (cls if isinstance(node, RecordedNode) else node).family
    if getattr(family, "name", "") not in GAUSSIAN + PRECISIONS or cls.kind not in (REAL, VECTOR, POSITIVE, MATRIX):
        raise NotConjugate(
            f"joint: {name!r} is a {cls.__name__}; Normal and MultivariateNormal nodes can be joined, and a Gamma or a "
            "Wishart that is their children's precision"
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
    if len(scalars) < 2:
        return []
    pairs = dict.fromkeys(pair for term in plan.terms.values() for pair in _meeting(term, set(scalars)))
    groups: list[tuple[str, ...]] = []
    for whole in _merged(scalars, pairs, lambda group: True):
        for begin in range(0, len(whole), MOST_AUTO):
            part = set(whole[begin : begin + MOST_AUTO])
            inside = [pair for pair in pairs if part.issuperset(pair)]
            for group in _merged([name for name in whole if name in part], inside, lambda group: True):
                # All of them at once, or else as far as it goes.
                own = [pair for pair in inside if pair[0] in group]
                groups += [group] if _fits(plan, group) else _merged(group, own, lambda part: _fits(plan, part))
    return groups


def full_groups(plan: Plan) -> list[tuple[str, ...]]:
    """The groups of `auto_groups`, and each precision with the Gaussian nodes on its plates that it is multiplied with.

    As many of these as have a law with it, up to `MOST_AUTO` numbers; a node is in one factor only.
    """
    groups = auto_groups(plan)
    inside = {name for group in groups for name in group}
    merged = [
        *groups,
        *((name,) for name, b in plan.blocks.items() if b.family.name in GAUSSIAN and name not in inside),
    ]
    for name, block in plan.blocks.items():
        if block.family.name not in PRECISIONS or plan.nodes[name].is_auxiliary:
            continue
        near = {f.source for term in plan.terms_of(name) for m in term.touching(name) for f in m.factors if not f.known}
        whole: tuple[str, ...] = ()
        for group in [g for g in merged if near.intersection(g)]:
            size = sum(plan.nodes[n].size or 1 for n in whole + group)
            if size <= MOST_AUTO and _fits(plan, (*whole, *group, name)):
                whole += group
        if whole:
            merged = [group for group in merged if not set(group) & set(whole)]
            merged.append((*whole, name))
    return [group for group in merged if len(group) > 1]


def _meeting(term: PlannedTerm, scalars: set[str]) -> list[tuple[str, str]]:
    met = ([f.source for f in m.factors if not f.known and f.stat == 0 and f.source in scalars] for m in term.monomials)
    return [pair for names in met for pair in pairwise(names) if pair[0] != pair[1]]


def _merged(
    names: Sequence[str], pairs: Iterable[tuple[str, str]], good: Callable[[tuple[str, ...]], bool]
) -> list[tuple[str, ...]]:
    """Groups of names that pairs connect, as long as each is good."""
    group_of: dict[str, tuple[str, ...]] = {name: (name,) for name in names}
    place = {name: number for number, name in enumerate(names)}
    for first, second in pairs:
        one, two = group_of[first], group_of[second]
        if one is not two:
            merged = tuple(sorted((*one, *two), key=place.__getitem__))
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
    first = plan.nodes[group[0]]
    for name in group:
        if [(p.name, p.size) for p in plan.nodes[name].plates] != [(p.name, p.size) for p in first.plates]:
            raise PlateMismatch(f"joint: {first!r} and {plan.nodes[name]!r} lie on different plates")
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
    for name, begin in node.begins().items():
        indices[name] = f"joint:{node.name}:{name}"
        size = plan.nodes[name].size
        known[indices[name]] = np.asarray(begin if size is None else np.arange(begin, begin + size), np.int32)
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
    """Parents before children, those with the longest way from a root last, otherwise as they were."""
    name_of = {
        member.name: node.name for node in nodes.values() if isinstance(node, JointNode) for member in node.members
    }
    place = {name: number for number, name in enumerate(nodes)}
    children: dict[str, list[str]] = {name: [] for name in nodes}
    waiting = dict.fromkeys(nodes, 0)  # parents that are not there yet
    for name, node in nodes.items():
        for parent in {name_of.get(p.name, p.name) for p in node.parents()} & nodes.keys():
            children[parent].append(name)
            waiting[name] += 1
    ordered: list[str] = []
    ready = [name for name, n in waiting.items() if n == 0]
    while ready:
        ordered += ready
        freed: list[str] = []
        for child in (child for name in ready for child in children[name]):
            waiting[child] -= 1
            if waiting[child] == 0:
                freed.append(child)
        ready = sorted(freed, key=place.__getitem__)
    if len(ordered) < len(nodes):
        raise NotConjugate(
            f"joint: a node between members of {'+'.join(group)!r} reads one of them and is read by another"
        )
    return ordered


def _origin(plan: Plan, node: JointNode) -> npt.NDArray[np.float64] | None:
    """The origins of the members in a value of their factor; a precision has none."""
    if not any(m.name in plan.origins for m in node.members):
        return None
    origin = np.zeros(node.value_shape()[len(node.plates) :])
    for name, member in node.places().items():
        origin[member.place] = plan.origins.get(name, 0.0)
    return origin


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
    monomials = tuple(
        in_joint_statistics(m, node, indices, n_plates, term.node) if _touches(m, places) else m for m in term.monomials
    )
    readings = {name: readings_of_one for name, readings_of_one in term.readings.items() if name not in places}
    if read:
        first = next(iter(read.values()))[0]
        readings[node.name] = (Reading(node.name, first.axes[:n_plates], first.key),)
    return replace(term, monomials=merged_monomials(monomials), readings=readings)


def _touches(monomial: Monomial, names: Container[str]) -> bool:
    # Of a sum of many terms there are many that do not.
    return any(factor.source in names and not factor.known for factor in monomial.factors)


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
        for name, own in term.readings.items():
            if name == node.name:
                continue
            if name in readings and readings[name][0].axes != own[0].axes:
                raise NotConjugate(f"joint: members of {node.name!r} read {name!r} at different elements")
            readings.setdefault(name, own)
    return PlannedTerm(node.name, terms[0].plates, sizes, merged_monomials(tuple(monomials)), readings, None, gates)
