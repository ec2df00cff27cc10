"""Write out targets and values of a network for NumPy: every block and term as its known part and a few products, found once.

The polynomial of a network does not change while it is fitted, nor do its known arrays. What is added up is the same that
`Program.target` adds up, without weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from natgrad.inference.problem import Block
from natgrad.network.execute.addressing import Piece, Reader
from natgrad.network.execute.lower import Bound, Job, Reads
from natgrad.network.execute.numpy_backend import HOST
from natgrad.network.execute.program import Program

__all__ = ["Writer", "WrittenTarget"]

Array = Any
Stats = tuple[Array, ...]
Moments = Mapping[str, Stats]
Known = Mapping[str, Array]


class WrittenTarget:
    """λ^temp of a block; of some terms their part of it is wanted by itself.

    Calling it gives the sum over the ``ending`` terms (None if there are none), and that over all.
    """

    def __init__(self, family: Any, ending: Sequence[Bound], others: Sequence[Bound]) -> None:
        self.project = family.project if any(family.symmetric) else None
        self.ending, self.others = _sum(ending), _sum(others)

    def __call__(self, moments: Moments) -> tuple[Sequence[Array] | None, Stats]:
        if self.ending is None:
            if self.others is None:
                raise ValueError("a target of no terms")
            ended, target = None, _evaluated(*self.others, moments)
        else:
            ended = target = _evaluated(*self.ending, moments)
            if self.others is not None:
                rest = _evaluated(*self.others, moments)
                target = [a + b for a, b in zip(ended, rest, strict=True)]
        return ended, tuple(target) if self.project is None else self.project(tuple(target))


def _sum(parts: Sequence[Bound]) -> tuple[list[Array], list[Bound]] | None:
    """The known parts of all, at their full shapes, and those that have products."""
    if not parts:
        return None
    known = [np.zeros(shape) for shape in parts[0].shapes]
    for part in parts:
        known = [np.asarray(total + own) for total, own in zip(known, part.known, strict=True)]
    return known, [part for part in parts if part.spots]


def _evaluated(known: list[Array], parts: list[Bound], moments: Moments) -> list[Array]:
    total = known
    for part in parts:
        total = part.added(part.reads(moments), total)
    return list(total)


class Writer:
    """What was written out of a program, kept for every order of its blocks.

    ``lead`` are sizes of axes that all arrays of hidden nodes have in front (`natgrad.network.draws.chains`).
    """

    def __init__(self, program: Program, known: Known, lead: tuple[int, ...] = ()) -> None:
        self.program, self.known, self.lead = program, known, lead
        self._shapes: dict[str, Sequence[tuple[int, ...]]] = {}
        self._parts: dict[tuple[str, str], Bound] = {}
        self._targets: dict[tuple[str, tuple[str, ...] | None], WrittenTarget] = {}
        self._apart: dict[tuple[str, str | None], Bound] = {}
        self._readers: dict[Any, Reader] = {}

    def shapes(self, name: str) -> Sequence[tuple[int, ...]]:
        """The shapes of a node's statistics."""
        shapes = self._shapes.get(name)
        if shapes is None:
            own = self.program.plan.nodes[name].stat_shapes()
            shapes = self._shapes[name] = [(*self.lead, *shape) for shape in own]
        return shapes

    def bound(self, pieces: Iterable[Piece], name: str | None = None, stats: Sequence[int] | None = None) -> Bound:
        """The value of some pieces, or their derivative by the moments of a node."""
        job = Job(pieces, name, stats=stats, readers=self._readers)
        return job.bind(HOST, Reads(self.known, shapes=self.shapes), () if name is None else self.shapes(name))

    def parts(self, name: str, term: str) -> Bound:
        """The message of a term to a block."""
        if (name, term) not in self._parts:
            self._parts[name, term] = self.bound(self.program.pieces(self.program.plan.terms[term]), name)
        return self._parts[name, term]

    def prior(self, block: Block, parents: Moments) -> Stats:
        """λ of a block as its own term says, given the moments of its parents alone."""
        with self.program.backend.running():
            return tuple(map(np.asarray, block.family.project(self.parts(block.name, block.name)(parents))))

    def target(self, block: Block, ending: Iterable[str] = ()) -> WrittenTarget:
        """λ^temp of a block, from all its terms."""
        names = [term.node for term in self.program.plan.terms_of(block.name)]
        parts = {node: self.parts(block.name, node) for node in names}
        last = [parts[node] for node in names if node in set(ending)]
        return WrittenTarget(block.family, last, [parts[node] for node in names if node not in set(ending)])

    def target_of(self, block: Block, terms: tuple[str, ...] | None) -> Callable[[Moments], Stats]:
        """λ^temp of a block from some of its terms, all if None."""
        key = (block.name, terms)
        if key not in self._targets:
            names = [t.node for t in self.program.plan.terms_of(block.name) if terms is None or t.node in terms]
            self._targets[key] = WrittenTarget(block.family, (), [self.parts(block.name, node) for node in names])
        target = self._targets[key]
        return lambda moments: tuple(map(np.asarray, target(moments)[1]))

    def value(self, term: str, apart: str | None = None) -> Bound:
        """A term, or the part of it that a block does not touch."""
        if (term, apart) not in self._apart:
            pieces = self.program.pieces(self.program.plan.terms[term])
            pieces = pieces if apart is None else [self.program.apart(piece, apart) for piece in pieces]
            self._apart[term, apart] = self.bound(pieces)
        return self._apart[term, apart]
