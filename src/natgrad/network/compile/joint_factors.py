"""Join Gaussian nodes, and their precision, in one factor of q: which nodes, and the node and terms that they become."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad import families
from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.families import Family
from natgrad.inference.problem import Block
from natgrad.network.compile.plan import Plan, PlannedTerm, merged_monomials
from natgrad.network.language.columns import RecordedNode
from natgrad.network.language.expressions import MATRIX, POSITIVE, REAL, VECTOR
from natgrad.network.language.nodes import Node
from natgrad.network.language.scope import Reading, Scope
from natgrad.network.polynomial import Axis, Factor, Label, Mark, Monomial, Polynomial, Take

__all__ = [
    "JointNode",
    "Member",
    "auto_groups",
    "checked_joint",
    "chosen_groups",
    "full_groups",
    "groups_inside",
    "groups_of",
    "in_joint_statistics",
    "joined_plan",
    "with_joint_factors",
]

# Several hidden nodes as one block: which law they have together, where each is in its values, and monomials of its statistics.
#
# Normal, MultivariateNormal, …        MultivariateNormal    x and xxᵀ of all of them
# these and one Gamma                  GaussianGamma         the same, and both times τ; τ and log τ
# a MultivariateNormal and a Wishart   NormalWishart         Λx, xᵀΛx, Λ and log|Λ|: the prior of x has a multiple of Λ, too


@dataclass(frozen=True)
class Member:
    """Where a node is in its joint factor: where its numbers begin in a value of that, whose law is ``whole``."""

    joint: str
    begin: int
    size: int | None
    family: Family
    whole: Family

    @property
    def place(self) -> tuple[Any, ...]:
        """The index of its numbers in a value of the factor; a matrix stands behind the vector that it is the precision of."""
        if self.whole.event_ndim == 2:
            return (slice(None), slice(1, None) if self.family.is_precision else 0)
        return (self.begin if self.size is None else slice(self.begin, self.begin + self.size),)

    def saved(self) -> dict[str, Any]:
        """What a file keeps of it; the law of the whole is that of its factor."""
        return {"joint": self.joint, "begin": self.begin, "size": self.size, "family": self.family.name}


class JointNode(Node):
    """Several nodes that have one factor; it stands in a plan for its members, of which a precision is the last."""

    kind = VECTOR
    slots_of = ()

    def __init__(self, name: str, members: Sequence[Node]) -> None:
        self.members = tuple(sorted(members, key=lambda node: node.family.is_precision))
        self.precision = self.members[-1] if self.members[-1].family.is_precision else None
        self.family = _law(name, self.members, self.precision)
        super().__init__(name, {}, members[0].plates, None, None)

    @property
    def located(self) -> tuple[Node, ...]:
        """The Gaussian members."""
        return self.members if self.precision is None else self.members[:-1]

    def _event_size(self, observed: Any) -> int | None:
        return sum(node.size or 1 for node in self.located)

    def value_shape(self) -> tuple[int, ...]:
        """The shape of the values of all elements: a precision stands after the numbers that it is of."""
        plates, size = tuple(plate.size for plate in self.plates), self.size or 0
        if self.precision is None:
            return (*plates, size)
        return (*plates, size, 1 + size) if self.precision.family.event_ndim else (*plates, size + 1)

    def log_density(self, scope: Scope) -> Polynomial:
        """Nothing: the terms of the members are in the plan."""
        return Polynomial()

    def parents(self) -> list[Node]:
        """Those of all members, but for members."""
        parents = {parent.name: parent for node in self.members for parent in node.parents()}
        return [parent for parent in parents.values() if parent not in self.members]

    def begins(self) -> dict[str, int]:
        """Where the numbers of each Gaussian member begin."""
        begins, begin = {}, 0
        for node in self.located:
            begins[node.name] = begin
            begin += node.size or 1
        return begins

    def places(self) -> dict[str, Member]:
        """Where each member is."""
        begins = self.begins()
        if self.precision is not None:
            begins[self.precision.name] = self.size or 0
        return {
            node.name: Member(self.name, begins[node.name], node.size, node.family, self.family)
            for node in self.members
        }


def _law(name: str, members: Sequence[Node], precision: Node | None) -> Family:
    if precision is None:
        return families.MultivariateNormal()
    if any(node.family.is_precision for node in members[:-1]) or len(members) < 2:
        raise NotConjugate(f"joint: {name!r} has more than one precision, or nothing else")
    for node in members:
        if node.is_improper:
            raise NotConjugate(
                f"joint: {node.name!r} has a flat prior, and no law before data are read: give it a prior"
            )
    if not precision.family.event_ndim:
        return families.GaussianGamma()
    if len(members) != 2 or not members[0].family.event_ndim:
        raise NotConjugate(f"joint: {precision.name!r} is a Wishart, which one MultivariateNormal can be joined with")
    return families.NormalWishart()


def in_joint_statistics(
    monomial: Monomial, node: JointNode, indices: Mapping[str, str], n_plates: int, term: str
) -> Monomial:
    """A monomial with the statistics of the joint factor in the place of those of its members."""
    names = {member.name for member in node.members}
    members = [f for f in monomial.factors if not f.known and f.source in names]
    if not members:
        return monomial
    precision = "" if node.precision is None else node.precision.name
    scales = [f for f in members if f.source == precision]
    numbers = [f for f in members if f.source != precision]
    order = sum(1 + f.stat for f in numbers)
    if order > 2:
        raise NotConjugate(
            f"joint: {term!r} multiplies members of {node.name!r} with one another: a vector's third moments are no statistics "
            "of it"
        )
    if len(scales) > 1 or (scales and scales[0].stat == 1 and numbers):
        raise NotConjugate(f"joint: {term!r} multiplies {precision!r} with itself, or its logarithm with {node.name!r}")
    rest = tuple(f for f in monomial.factors if f not in members)
    plates = members[0].axes[:n_plates]
    if node.family.event_ndim == 2:
        stat, events = _of_matrix(node, numbers, scales, rest, n_plates, term)
    else:
        events = [axis for factor in numbers for axis in _entries(factor, indices, n_plates, term)]
        stat = order - 1 if not scales else 1 + order if numbers else 4 + scales[0].stat
    return monomial._replace(factors=(Factor(node.name, stat, (*plates, *events), known=False), *rest))


def _entries(factor: Factor, indices: Mapping[str, str], n_plates: int, term: str) -> list[Axis]:
    own = factor.axes[n_plates:]
    if any(isinstance(axis, Take) for axis in own):
        raise NotConjugate(f"joint: {term!r} reads entries of {factor.source!r} through an index")
    wanted = 1 + factor.stat  # a second moment has two entries
    labels: tuple[tuple[Label, ...], ...] = tuple((axis,) for axis in own) if own else ((),) * wanted  # type: ignore[misc]
    return [Take(indices[factor.source], label) for label in labels]


def _of_matrix(
    node: JointNode, numbers: list[Factor], scales: list[Factor], rest: tuple[Factor, ...], n_plates: int, term: str
) -> tuple[int, list[Axis]]:
    """The statistic of a NormalWishart, and the axes of its events: products with Λ are summed inside it."""
    if not scales:
        mean, precision = (member.name for member in node.members)
        raise NotConjugate(
            f"joint: {term!r} reads {mean!r} without {precision!r}: they have a law together where the precision of {mean!r} is "
            f"a known multiple of {precision!r} in its prior, such as 0.1 * {precision}"
        )
    events = list(scales[0].axes[n_plates:])
    if not numbers:
        return (3, []) if scales[0].stat == 1 else (2, events)
    inner = [axis for factor in numbers for axis in factor.axes[n_plates:]]
    outside = {label for factor in rest for label in factor.labels}
    alone = len(set(inner)) == len(inner) and all(axis in events and axis not in outside for axis in inner)
    if not alone:
        raise NotConjugate(f"joint: {term!r} reads {numbers[0].source!r} in another way than its precision does")
    return (1, []) if len(inner) == 2 else (0, [axis for axis in events if axis not in inner])


# E_q[log p] of independent factors has E[a] E[b] where a and b meet; with one factor for both it is E[a b], an entry of the
# second moment of a vector, or, where b is a precision, a statistic of the law of both. So nothing is declared anew: in every
# monomial the statistics of members are replaced by those of the joint factor, their priors become one term, and everything
# below (targets, bound, sweeps) goes on as with any node.

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
    joinable = getattr(family, "is_gaussian", False) or getattr(family, "is_precision", False)
    if not joinable or cls.kind not in (REAL, VECTOR, POSITIVE, MATRIX):
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
        if block.family.is_gaussian
        and not block.family.event_ndim
        and not block.shape
        and not plan.nodes[name].is_improper
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
        *((name,) for name, b in plan.blocks.items() if b.family.is_gaussian and name not in inside),
    ]
    for name, block in plan.blocks.items():
        if not block.family.is_precision or plan.nodes[name].is_auxiliary:
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
