"""Several hidden nodes as one block: which law they have together, where each is in its values, and monomials of its statistics.

Normal, MultivariateNormal, …        MultivariateNormal    x and xxᵀ of all of them
these and one Gamma                  GaussianGamma         the same, and both times τ; τ and log τ
a MultivariateNormal and a Wishart   NormalWishart         Λx, xᵀΛx, Λ and log|Λ|: the prior of x has a multiple of Λ, too
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from natgrad import families
from natgrad.errors import NotConjugate
from natgrad.families import Family
from natgrad.network.compile.polynomial import Axis, Factor, Label, Monomial, Polynomial, Take
from natgrad.network.language.expressions import VECTOR
from natgrad.network.language.nodes import Node
from natgrad.network.language.scope import Scope

__all__ = ["PRECISIONS", "JointNode", "Member", "in_joint_statistics"]

PRECISIONS = ("Gamma", "Wishart")


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
        if self.whole.name == "NormalWishart":
            return (slice(None), slice(1, None) if self.family.name == "Wishart" else 0)
        return (self.begin if self.size is None else slice(self.begin, self.begin + self.size),)

    def saved(self) -> dict[str, Any]:
        """What a file keeps of it; the law of the whole is that of its factor."""
        return {"joint": self.joint, "begin": self.begin, "size": self.size, "family": self.family.name}


class JointNode(Node):
    """Several nodes that have one factor; it stands in a plan for its members, of which a precision is the last."""

    kind = VECTOR
    slots_of = ()

    def __init__(self, name: str, members: Sequence[Node]) -> None:
        self.members = tuple(sorted(members, key=lambda node: node.family.name in PRECISIONS))
        self.precision = self.members[-1] if self.members[-1].family.name in PRECISIONS else None
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
        return (*plates, size, 1 + size) if self.precision.family.name == "Wishart" else (*plates, size + 1)

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
    if any(node.family.name in PRECISIONS for node in members[:-1]) or len(members) < 2:
        raise NotConjugate(f"joint: {name!r} has more than one precision, or nothing else")
    for node in members:
        if node.is_improper:
            raise NotConjugate(
                f"joint: {node.name!r} has a flat prior, and no law before data are read: give it a prior"
            )
    if precision.family.name == "Gamma":
        return families.GaussianGamma()
    if len(members) != 2 or members[0].family.name != "MultivariateNormal":
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
    if node.family.name == "NormalWishart":
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
