"""Rows for categories that meet in their data two by two: who is connected to whom, as places in which clusters can be found.

A block model reads y of a pair through the categories of both. The values of all pairs are a matrix, whose leading singular
vectors tell groups of elements apart that connect alike.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from natgrad.network.compile.plan import element_keys

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["meeting_rows"]

Floats = npt.NDArray[np.float64]
# Singular vectors, rounds of the power method that finds them, and the largest matrix that is made.
WIDTH, ROUNDS, MOST = 10, 6, 5_000_000


def meeting_rows(problem: NetworkProblem, gate: str) -> Floats | None:
    """A row for each element of a category, from observed terms that read it beside another category; None if there are none."""
    plan, shape = problem.plan, problem.blocks[gate].shape
    size, tables = math.prod(shape), list[Floats]()
    for term in plan.terms.values():
        child = plan.nodes[term.node]
        if gate not in term.readings or child.value is None or np.ndim(child.value) != len(term.plates):
            continue
        value = np.ravel(np.asarray(child.value, np.float64))
        there = np.isfinite(value) if term.present is None else np.ravel(term.present)
        value = np.where(there, value - value[there].mean(), 0.0)
        keys = {
            name: [element_keys(term, reading, problem.blocks[name].shape, plan.known)[0] for reading in readings]
            for name, readings in term.readings.items()
            if name in problem.blocks and name in term.gates.values()
        }
        for place, own in enumerate(keys.get(gate, ())):
            for name, others in keys.items():
                for number, other in enumerate(others):
                    width = math.prod(problem.blocks[name].shape)
                    if (name, number) != (gate, place) and size * width <= MOST and width > 1:
                        table = np.zeros((size, width))
                        np.add.at(table, (own, other), value)
                        tables.append(table)
    if not tables:
        return None
    return _leading(
        np.hstack([np.add.reduce([t for t in tables if t.shape == s]) for s in sorted({t.shape for t in tables})])
    )


def _leading(table: Floats) -> Floats:
    """The rows in the coordinates of the leading singular vectors."""
    if min(table.shape) <= WIDTH:
        return table
    basis = np.random.default_rng(0).standard_normal((table.shape[1], WIDTH))
    for _ in range(ROUNDS):
        basis = np.linalg.qr(table.T @ (table @ basis))[0]
    return np.asarray(table @ basis)
