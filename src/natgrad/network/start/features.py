"""What a category explains, as rows of numbers that clusters are looked for in: real numbers, counts, binaries and categories.

A row belongs to one element of the category. Counts enter by their square root, which has about the same variance at every rate;
categories by one column each, or by random codes where these
would be many; columns on further plates of the data (the items of a questionnaire) stand side by side.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.network.compile.joint_node import JointNode
from natgrad.network.language.binary import Bernoulli, Binomial
from natgrad.network.language.discrete import Multinomial
from natgrad.network.language.expressions import CATEGORY, COUNT, POSITIVE, REAL, VECTOR
from natgrad.network.language.node_helpers import numbers
from natgrad.network.language.nodes import Node

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["Centres", "Rows", "rows_of"]

Floats = npt.NDArray[np.float64]
Values = dict[str, Any]
# Numbers in the rows of a category with many values (the words of all documents), 128 MiB: beyond, rows are projected.
MAX_NUMBERS = 2**24


class Centres(NamedTuple):
    """A node that holds centres: its name, their columns, and the shape of one of them."""

    name: str
    columns: slice
    shape: tuple[int, ...]


class Rows(NamedTuple):
    """What a category explains: rows, which of them are whole, and the nodes that hold centres, with their columns."""

    rows: Floats
    whole: npt.NDArray[np.bool_]
    centres: list[Centres]


def rows_of(problem: NetworkProblem, gate: str, known: Values, least: int | None = None) -> Rows:
    """The rows of a category; ``known`` are starts of others, whose part of a sum is subtracted.

    There must be ``least`` of them, by default one for each component.
    """
    nodes, choices = problem.plan.nodes, problem.plan.choices
    if gate not in choices:
        raise ValueError(f'init[{gate!r}] = "kmeans" is for a category that chooses components; {gate!r} chooses none')
    plates = nodes[gate].plates
    n_rows = math.prod(plate.size for plate in plates)
    columns: list[Floats] = []
    whole, centres, width = np.ones(n_rows, dtype=bool), list[Centres](), 0
    seen: set[str] = set()
    for term, name, axis in choices[gate]:
        child, base = nodes[term], nodes[name]
        if term in seen or child.value is None or not _aligned(problem, gate, term):
            continue
        is_location = child.kind in (REAL, VECTOR)
        places = base.located if isinstance(base, JointNode) else (base,)
        if is_location and all(place.kind != child.kind for place in places):
            continue  # a precision: what it chooses is no place
        seen.add(term)
        left = child.value - _explained(problem, term, gate, known) if is_location else child.value
        block, present = _columns(child, left, n_rows)
        columns.append(block)
        whole &= present
        extra = child.plates[len(plates) :]
        same = tuple(p.name for p in base.plates[1:]) == tuple(p.name for p in extra)
        # The value of a joint factor is a mean and a precision: its start follows from the memberships alone.
        if is_location and axis == 0 and same and not isinstance(base, JointNode):
            shape = (*(p.size for p in extra), *((child.size or 0,) if child.kind == VECTOR else ()))
            centres.append(Centres(name, slice(width, width + block.shape[1]), shape))
        width += block.shape[1]
    if not columns:
        raise ValueError(
            f'init="kmeans" for {gate!r} needs observed data on its own plates, whose mean, rate or probabilities it chooses; '
            'for others use init="random"'
        )
    size = (nodes[gate].categories or 1) if least is None else least
    if whole.sum() < size:
        raise ValueError(
            f'init="kmeans" for {gate!r} needs at least {size} observations without missing values, one for each component, got '
            f"{whole.sum()}"
        )
    if len(columns) > 1:  # in other units each
        columns = [block / (np.sqrt(block[whole].var(0).sum()) or 1.0) for block in columns]
        centres = []
    return Rows(np.hstack(columns), whole, centres)


def _aligned(problem: NetworkProblem, gate: str, term: str) -> bool:
    """Whether a term has the plates of the category first, and reads it there element by element."""
    names = tuple(plate.name for plate in problem.plan.nodes[gate].plates)
    planned = problem.plan.terms[term]
    return planned.plates[: len(names)] == names and all(r.axes == names for r in planned.readings[gate])


def _columns(child: Node, value: npt.NDArray[Any], n_rows: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """The numbers of a child as columns, missing ones at the mean, and the rows of which something is there."""
    present = np.ones(value.shape[: len(child.plates)], bool) if child.mask is None else child.mask.astype(bool)
    rows = np.asarray(value, dtype=np.float64)
    if child.kind == CATEGORY:
        rows = _codes(child.size or 1, np.size(value))[value]
    elif isinstance(child, Multinomial):
        rows = np.sqrt(rows / np.maximum(rows.sum(-1, keepdims=True), 1.0))
    elif isinstance(child, Binomial):
        rows = rows / np.maximum(np.broadcast_to(numbers(child.parameters["trials"]), rows.shape), 1.0)
    elif child.kind == COUNT and not isinstance(child, Bernoulli):
        rows = np.sqrt(rows)
    elif child.kind == POSITIVE:
        rows = np.log(np.maximum(rows, 1e-300))
    there = np.broadcast_to(present.reshape((*present.shape, *(1,) * (rows.ndim - present.ndim))), rows.shape)
    rows, there = rows.reshape(n_rows, -1), there.reshape(n_rows, -1)
    count = np.maximum(there.sum(0), 1)
    filled = np.where(there, rows, np.where(there, rows, 0.0).sum(0) / count)
    # A vector that is missing tells nothing; of several columns some are enough.
    return np.asarray(filled), np.asarray(there.any(1))


def _codes(size: int, n: int) -> Floats:
    """A row for each of ``size`` categories: indicators, or random ones about as far apart if those of ``n`` values were many."""
    width = max(8, MAX_NUMBERS // n)
    if size <= width:
        return np.eye(size)
    return np.random.default_rng(0).standard_normal((size, width)) / math.sqrt(width)


def _explained(problem: NetworkProblem, term: str, gate: str, known: Values) -> Any:
    """What the components of other categories, as far as they have a start, add to the mean of a term."""
    nodes, total = problem.plan.nodes, 0.0
    for other, choices in problem.plan.choices.items():
        for child, name, axis in choices:
            if child != term or other == gate or other not in known or name not in known or axis != 0:
                continue
            labels, centres = np.asarray(known[other]), np.asarray(known[name])
            if labels.dtype.kind == "i" and nodes[name].kind == nodes[term].kind and len(nodes[name].plates) == 1:
                total = total + centres[labels]
    return total
