"""Sum the messages of a batch of groups to the globals.

Each monomial of a grouped term is a product of global factors, local factors and data. Contract all but the global ones over
the elements of a batch: what is left is an array S with the axes of the global factors, and the monomial is ⟨S, globals⟩.
S is a sum over groups, so it can be kept, and the part of a batch exchanged when its local variables change: Σ z, Σ z x and
Σ z x xᵀ of a mixture, word counts by topic of a topic model. Every update of the globals, and the bound, then cost no reads.

A global that a group reads through an index (``phi[z]`` at an observed word) gets the sums by element of that index. One that
runs along the groups itself (a chain whose time is a plate of the groups) gets them by element of that plate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from natgrad.errors import NotAdditive
from natgrad.inference.problem import Block, BlockInfo, Sampled
from natgrad.network.compile.plan import PlannedTerm
from natgrad.network.execute.addressing import FULL, SAMPLE, Labelled, Piece, View
from natgrad.network.execute.lower import product_at
from natgrad.network.execute.problem import NetworkProblem
from natgrad.network.execute.update import sets, update, validity
from natgrad.network.polynomial import Axis, Factor, Label, Mark, Monomial, Take, ordered_labels

__all__ = ["Summary"]

Array = Any
Stats = tuple[Array, ...]
Moments = Mapping[str, Stats]
Labels = tuple[Label, ...]


class Entry(NamedTuple):
    """One monomial cut in two: what a batch contributes (``inner``) and what the globals do with it (``outer``)."""

    inner: tuple[Factor, ...]
    outer: Monomial
    kept: tuple[Label, ...]
    # Known index array (None: the elements themselves) and its range, if the sums go by element of an index.
    scatter: tuple[str | None, int] | None
    plate: str | None = None  # whose elements these are


# Numbers of a block from which on its moments are made for so many elements at a time.
MANY_NUMBERS, ELEMENTS = 2**21, 2**14


class Summary:
    """The statistics of the grouped terms of a network.

    Parameters
    ----------
    problem : NetworkProblem
    local, globals_ : names of the blocks inside and outside the groups, in order of update
    plate_of : for each term, the plate along which groups lie in it, or None
    """

    def __init__(
        self,
        problem: NetworkProblem,
        local: tuple[str, ...],
        globals_: tuple[str, ...],
        plate_of: Mapping[str, str | None],
    ) -> None:
        self.problem, self.local, self.globals = problem, local, globals_
        self.plate_of = plate_of
        self.whole = tuple(name for name, plate in plate_of.items() if plate is None)
        plan = problem.plan
        for name in globals_:
            if any(plate in plan.weights for plate in problem.blocks[name].plates):
                raise NotAdditive(f"{name!r} lies on a plate with weights")
            if problem.blocks[name].colours is not None:
                raise NotAdditive(f"{name!r} is read twice by one term")
        self.entries: dict[str, list[Entry]] = {}
        self.pieces: dict[str, Piece] = {}
        for term in plan.terms.values():
            if plate_of[term.node] is not None:
                self._cut(term)

    def _cut(self, term: PlannedTerm) -> None:
        sizes: dict[Label, int] = dict(term.sizes)
        entries = [self._entry(term, number, monomial, sizes) for number, monomial in enumerate(term.monomials)]
        self.entries[term.node] = entries
        self.pieces[term.node] = Piece(tuple(entry.outer for entry in entries), sizes, term.plates, varies=True)

    def _entry(self, term: PlannedTerm, number: int, monomial: Monomial, sizes: dict[Label, int]) -> Entry:
        plate = self.plate_of[term.node]
        assert plate is not None
        inner, outer = [], []
        scatter: dict[Label, tuple[str | None, int]] = {}
        chosen: str | None = None
        for factor in monomial.factors:
            if factor.known or factor.source in self.local:
                inner.append(factor)
                continue
            axes: list[Axis] = []
            for position, axis in enumerate(factor.axes):
                if not isinstance(axis, Take) or plate not in axis.labels:
                    axes.append(axis)
                    if axis == plate:
                        scatter[plate] = (None, term.sizes[plate])
                    continue
                if axis.labels != (plate,):
                    raise NotAdditive(f"{term.node!r} reads {factor.source!r} through an index with several axes")
                label = Mark(f"by {axis.index}")
                source = self.problem.plan.nodes[factor.source]
                size = source.stat_shapes()[factor.stat][position]
                chosen = source.plates[position].name if position < len(source.plates) else None  # None: categories
                if scatter.setdefault(label, (axis.index, size))[1] != size:
                    raise NotAdditive(f"{term.node!r} reads globals of different sizes through one index")
                sizes[label] = size
                axes.append(label)
            outer.append(Factor(factor.source, factor.stat, tuple(axes), False, factor.occurrence))
        if len(scatter) > 1:
            raise NotAdditive(f"{term.node!r} reads globals through different indices")
        wanted = {label for factor in outer for label in factor.labels}
        present = ordered_labels(inner)
        kept = tuple(label for label in present if label in wanted and label != plate)
        statistic = Factor(_key(term.node, number), 0, (*scatter, *kept), known=True)
        folded = Monomial(
            monomial.coefficient, (statistic, *outer), counted=(frozenset(present) | {plate}) - {*kept, *scatter}
        )
        return Entry(tuple(inner), folded, kept, next(iter(scatter.values()), None), chosen)

    @staticmethod
    def key(term: str, number: int) -> str:
        """The name of the statistic of a monomial of a term."""
        return _key(term, number)

    # -- traceable --

    def contribution(
        self, lam: Mapping[str, Stats], weights: Mapping[str, Array], samples: Sequence[Sampled], known: Any
    ) -> tuple[dict[str, Array], Array]:
        """S of a batch, and the weighted entropy of its local variables."""
        xp = self.problem.backend.xp
        mu, entropy = {}, xp.zeros(())
        for name, value in lam.items():
            mu[name], own = self.problem.blocks[name].family.moments_entropy(value)
            entropy = entropy + xp.sum(own * weights[name])
        return self.statistics(mu, samples, known), entropy

    def statistics(self, local: Moments, samples: Sequence[Sampled], known: Mapping[str, Array]) -> dict[str, Array]:
        """S of a batch, from the moments of its local variables."""
        on, arrays = self.problem.backend, {}
        for sample in samples:
            view = View(dict(sample.zipped), Labelled(sample.weight, (SAMPLE,)), None, dict(sample.moved))
            (plate,) = sample.zipped
            for number, entry in enumerate(self.entries[sample.term]):
                lead: Labels = () if entry.scatter is None else (SAMPLE,)
                array = product_at(on, entry.inner, local, known, (*lead, *entry.kept), view=view)
                if entry.scatter is not None:
                    index, size = entry.scatter
                    elements = sample.zipped[plate]
                    array = on.segment_sum(array, elements if index is None else known[index][elements], size)
                arrays[_key(sample.term, number)] = array
        return arrays

    @property
    def plates(self) -> dict[str, str]:
        """The plate whose elements the first axis of each sum by an index is."""
        return {
            _key(term, number): entry.plate
            for term, entries in self.entries.items()
            for number, entry in enumerate(entries)
            if entry.plate is not None
        }

    def whole_statistics(
        self, local: Moments, known: Mapping[str, Array], widths: Mapping[str, int] | None = None
    ) -> dict[str, Array]:
        """S of all elements that a plan has; ``widths`` are the elements of plates that are cut to those read here."""
        on, arrays = self.problem.backend, {}
        for term, entries in self.entries.items():
            plate = self.plate_of[term]
            assert plate is not None
            for number, entry in enumerate(entries):
                planned, view = self.problem.plan.terms[term], FULL
                if plate in planned.plates and not any(plate in factor.labels for factor in entry.inner):
                    # Nothing that a row says differs from row to row: they count.
                    view = View(weight=Labelled(on.xp.ones(planned.sizes[plate]), (plate,)))
                lead: Labels = () if entry.scatter is None else (plate,)
                array = product_at(on, entry.inner, local, known, (*lead, *entry.kept), view=view)
                if entry.scatter is not None:
                    index, size = entry.scatter
                    size = size if widths is None or entry.plate is None else widths.get(entry.plate, size)
                    array = array if index is None else on.segment_sum(array, known[index], size)
                arrays[_key(term, number)] = array
        return arrays

    def update(
        self, block: Block, lam: dict[str, Stats], mu: dict[str, Stats], stats: Mapping[str, Array], known: Any
    ) -> tuple[Stats, Stats, BlockInfo]:
        """The exact update of a global block from the statistics; column after column where they are coupled."""
        name, on = block.name, self.problem.backend
        known = {**known, **stats}
        if block.n_columns == 1:
            target = self.target(block, mu, known, None)
            fresh, entropy = _moments_entropy(on, block, target)
            return target, fresh, validity(on, block, lam[name], target, entropy)

        def message(number: Any, parts: Any) -> Stats:
            return self.target(block, {**mu, name: parts[1]}, known, number)

        new, fresh = update(on, block, (lam[name], mu[name]), message, sets(block))
        _, entropy = block.family.moments_entropy(new)
        return new, fresh, validity(on, block, lam[name], new, entropy)

    def target(self, block: Block, mu: Moments, known: Any, column: Array | None) -> Stats:
        """λ^temp of a global block, or of one column of it, from the statistics among the ``known`` arrays."""
        program = self.problem.program
        place = None if column is None or block.column_axis is None else (block.column_axis, column)
        terms = [term.node for term in self.problem.plan.terms_of(block.name)]
        total = program.target(block, mu, known, [name for name in terms if name in self.whole], (), column)
        for name in terms:
            if name in self.pieces:
                gradient = program.gradient(self.pieces[name], block, mu, known, place)
                total = tuple(a + b for a, b in zip(total, block.family.project(gradient), strict=True))
        return total

    def bound(
        self, lam: Mapping[str, Stats], mu: Moments, stats: Mapping[str, Array], entropy: Array, known: Any
    ) -> Array:
        """The exact bound, from the statistics of all groups and the entropy of their local variables."""
        program, known = self.problem.program, {**known, **stats}
        total = entropy + sum((program.log_joint(name, mu, known) for name in self.whole), program.backend.xp.zeros(()))
        for piece in self.pieces.values():
            total = total + program.backend.value(piece, mu, known)
        for name in self.globals:
            block = self.problem.blocks[name]
            entropies = _moments_entropy(program.backend, block, lam[name])[1]
            total = total + program.entropy(block, entropies, known)
        return total


def _key(term: str, number: int) -> str:
    return f"statistic:{term}:{number}"


def _moments_entropy(on: Any, block: Block, lam: Stats) -> tuple[Stats, Array]:
    """Of all elements; of very many, some at a time: what is compiled would hold several arrays of their size."""
    if on.name != "jax" or not block.shape or sum(math.prod(part.shape) for part in lam) < MANY_NUMBERS:
        return block.family.moments_entropy(lam)
    from jax import lax

    both: tuple[Stats, Array] = lax.map(block.family.moments_entropy, lam, batch_size=ELEMENTS)
    return both
