"""One chain along all rows of a table in chunks: what every chunk says of its ends in; what each is told there out.

A chunk begins with the last row of the one before. It sums or integrates out all but its two ends (a first visit), the ends of
all chunks are a short chain that is solved here, and its messages make each chunk what it is in the whole (a second visit). Only
what is at the ends is kept from one visit to the other, and chunks are visited in any order, by whoever computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.inference.problem import Block
from natgrad.network.bind.cuts import Chains
from natgrad.network.bind.template import Template
from natgrad.network.bind.windows import ChunkSums
from natgrad.network.compile.plan import Plan

__all__ = ["NUMBER", "Ends", "check_alone", "check_chains", "solve_ends"]

# The key, among the known arrays of a chunk, of its place in the table.
NUMBER = "number of the chunk"


class Ends(NamedTuple):
    """What chunks [n, …] are told at their first and last row, by chain; and the entropy of the rows that two have in common."""

    messages: Mapping[str, Any]
    shared: float


def check_chains(template: Template, plate: str, chains: Chains, size: int) -> None:
    """What a chain along all rows forbids."""
    if not chains.carried:
        return
    own = template.plates[plate]
    if own.weight is not None or own.later is not None:
        raise PlateMismatch(f"{chains.carried[0]!r}: the time plate {plate!r} of a chain cannot carry weights")
    if size < 2:
        raise PlateMismatch(
            f"chunk_rows = {size}: {chains.carried[0]!r} is one chain along all rows, of which a chunk has two at least"
        )


def check_alone(plan: Plan, local: Iterable[str], carried: Iterable[str]) -> None:
    """Nothing else that is hidden in rows meets a chain along all of them: it would be solved with the whole chain."""
    for term in plan.terms.values():
        own = {term.node, *term.readings} & set(local)
        if len(own) > 1 and (chain := own & set(carried)):
            other = min(own - {min(chain)})
            raise NotConjugate(
                f"{min(chain)!r} is one chain along all rows, and {other!r}, which is hidden in rows too, meets it in "
                f"{term.node!r}: the two are solved in turn along the whole table. Leave chunk_rows= out"
            )


def solve_ends(blocks: Mapping[str, Block], told: Iterable[ChunkSums]) -> Ends:
    """The messages to all chunks, from what they said of their ends, in order."""
    parts = [chunk.parts for chunk in told]
    messages, shared = {}, 0.0
    for name in parts[0]:
        family: Any = blocks[name].family
        found = family.end_messages(tuple(np.stack(stats) for stats in zip(*(own[name] for own in parts), strict=True)))
        messages[name] = found.before, found.after
        shared += float(np.sum(found.shared))
    return Ends(messages, shared)
