"""Put several independent copies of a network side by side along one more axis of its plan.

Every factor of a hidden node gets a first axis, `CHAIN`; known numbers stay as they are, once for all. The polynomial of the
copies is the sum of the polynomials, so its gradient by the statistics of a block has the conditionals of all chains in it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from natgrad.inference.problem import Block
from natgrad.network.compile.plan import Plan, PlannedTerm
from natgrad.network.polynomial import Factor, Mark, Monomial

__all__ = ["CHAIN", "with_chain", "with_chains"]

CHAIN = Mark("chain")


def with_chains(plan: Plan, n: int) -> Plan:
    """The plan of ``n`` copies of a network that see the same data; arrays of hidden nodes have the copies first."""
    return replace(
        plan,
        terms={name: _term(term, n) for name, term in plan.terms.items()},
        blocks={name: _block(block, n) for name, block in plan.blocks.items()},
        known=dict(plan.known),
    )


def _term(term: PlannedTerm, n: int) -> PlannedTerm:
    readings = {
        name: tuple(replace(reading, axes=(CHAIN, *reading.axes)) for reading in plain)
        for name, plain in term.readings.items()
    }
    monomials = tuple(Monomial(m.coefficient, tuple(map(with_chain, m.factors))) for m in term.monomials)
    return replace(term, sizes={**term.sizes, CHAIN: n}, monomials=monomials, readings=readings)


def with_chain(factor: Factor) -> Factor:
    """A factor of a network of several copies."""
    return factor if factor.known else factor._replace(axes=(CHAIN, *factor.axes))


def _block(block: Block, n: int) -> Block:
    return replace(
        block,
        plates=(CHAIN, *block.plates),  # type: ignore[arg-type]  # no name that a user chooses
        shape=(n, *block.shape),
        column_axis=None if block.column_axis is None else block.column_axis + 1,
        colours=None if block.colours is None else np.broadcast_to(block.colours, (n, *block.shape)),
    )
