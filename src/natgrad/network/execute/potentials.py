"""A plan whose hidden nodes are all discrete in; its joint distribution, tables of log probabilities for each element, out.

The expected log density of a node is multilinear in the indicators of the categories that it meets. At a combination of
categories the indicators are zeros and ones, and what is left of a term is the log probability of that combination.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.network.compile.plan import Plan, PlannedTerm
from natgrad.network.execute.addressing import Reader
from natgrad.network.execute.backend import HOST
from natgrad.network.execute.lower import product_at
from natgrad.network.polynomial import Factor, Label, Mark, Monomial, Take

__all__ = ["MOST_ENTRIES", "Potential", "Variable", "potentials", "term_table"]

Floats = npt.NDArray[np.float64]
Variable = tuple[str, int]  # a node and the number of its element, flattened
# Tables with more numbers than this are refused.
MOST_ENTRIES = 2**24
# The known arrays of the two sides of a category of two: the statistics of its values 0 and 1.
SIDES = "\0second side", "\0first side"


class Potential(NamedTuple):
    """Log probabilities, up to a sum, of the combinations of some variables: one axis for each."""

    variables: tuple[Variable, ...]
    table: Floats


class _Slot(NamedTuple):
    """A category as a term reads it: the axis of the table it gets, and which element it is."""

    factor: Factor
    axis: Mark


def potentials(plan: Plan) -> Iterator[Potential]:
    """The tables of every term; what no hidden variable meets comes as a table without axes."""
    for term in plan.terms.values():
        yield from _tables(plan, term)


def _tables(plan: Plan, term: PlannedTerm) -> Iterator[Potential]:
    slots, total = term_table(plan, term, term.monomials)
    elements = [_elements(plan, term, slot) for slot in slots]
    for place in itertools.product(*(range(term.sizes[label]) for label in term.plates)):
        names = [(slot.source, int(element[place])) for slot, element in zip(slots, elements, strict=True)]
        yield _merged(names, total[place])


def term_table(plan: Plan, term: PlannedTerm, monomials: Sequence[Monomial]) -> tuple[list[Factor], Floats]:
    """The categories that some monomials of a term meet, and their sum at all combinations: [plates…, each category…]."""
    slots: dict[tuple[object, ...], _Slot] = {}
    for factor in (f for m in monomials for f in m.factors if not f.known):
        slots.setdefault(_key(plan, factor), _Slot(factor, Mark("state", len(slots))))
    sizes: dict[Label, int] = dict(term.sizes)
    sizes.update({slot.axis: plan.nodes[slot.factor.source].categories or 0 for slot in slots.values()})
    out: tuple[Label, ...] = (*term.plates, *(slot.axis for slot in slots.values()))
    entries = math.prod(sizes[label] for label in out)
    if entries > MOST_ENTRIES:
        raise ValueError(
            f"{term.node!r} has a table of {entries:,} combinations, more than the {MOST_ENTRIES:,} that exact queries hold; "
            "fit() gives the factorised approximation"
        )
    total = np.zeros([sizes[label] for label in out])
    for monomial in monomials:
        total += _evaluated(plan, monomial, slots, out)
    return [slot.factor for slot in slots.values()], total


def _key(plan: Plan, factor: Factor) -> tuple[object, ...]:
    """What tells two readings of categories apart: the node and where it is read, without the label of the category."""
    return factor.source, factor.axes[: len(plan.nodes[factor.source].plates)]


def _evaluated(
    plan: Plan,
    monomial: Monomial,
    slots: dict[tuple[object, ...], _Slot],
    out: tuple[Label, ...],
) -> Floats:
    names: dict[Label, Label] = {}
    sides: list[Factor] = []
    for factor in (f for f in monomial.factors if not f.known):
        slot, label = slots[_key(plan, factor)], factor.axes[-1] if factor.axes else None
        if plan.nodes[factor.source].family.has_sides:
            sides.append(Factor(SIDES[factor.stat], 0, (slot.axis,), known=True))
        else:
            assert label is not None
            assert not isinstance(label, Take)
            names[label] = slot.axis
    # A category whose label no known factor has was summed over already: its indicators add up to one.
    factors = [*(f.relabelled(names) for f in monomial.factors if f.known), *sides]
    known = {**plan.known, SIDES[0]: np.array([0.0, 1.0]), SIDES[1]: np.array([1.0, 0.0])}
    return np.asarray(product_at(HOST, factors, {}, known, out, monomial.coefficient))


def _elements(plan: Plan, term: PlannedTerm, factor: Factor) -> npt.NDArray[np.int64]:
    """Which element of a node every element of a term reads, flattened: an array over the term's plates."""
    plates = plan.nodes[factor.source].plates
    numbers = np.arange(math.prod(plate.size for plate in plates)).reshape([plate.size for plate in plates])
    reader = Reader(factor._replace(axes=factor.axes[: len(plates)]))
    read = reader.over(reader.read(numbers, plan.known), term.plates)
    return np.broadcast_to(read, [term.sizes[label] for label in term.plates])


def _merged(names: list[Variable], table: Floats) -> Potential:
    """One axis for each variable: two readings of one element are its diagonal."""
    distinct = list(dict.fromkeys(names))
    if len(distinct) == len(names):
        return Potential(tuple(names), table)
    places = [distinct.index(name) for name in names]
    operands: Any = (table, places, list(range(len(distinct))))
    return Potential(tuple(distinct), np.einsum(*operands))
