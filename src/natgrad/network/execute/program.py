"""A Plan in, functions of moments out: targets, values and the bound, on whatever backend.

Write P(μ) for the expected log joint. The target of block i is ∂P/∂μ_i, of the terms that touch i; a sampled target is the same
with the terms evaluated on the sample. What the data alone determine is folded once (``XᵀX`` in a regression).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import Block, Sampled
from natgrad.network.compile.plan import Plan, PlannedTerm, weight_key
from natgrad.network.execute.addressing import (
    COEFFICIENTS,
    FULL,
    LONGEST_CHUNK,
    SAMPLE,
    Labelled,
    Piece,
    Reader,
    View,
)
from natgrad.network.execute.backend import HOST, Backend
from natgrad.network.execute.lower import Bound, Job, Reads, Unbound, product_at
from natgrad.network.polynomial import Axis, Factor, Label, Monomial, Take, ordered_labels

__all__ = ["BoundProgram", "Program", "Target"]

Array = Any
Stats = tuple[Array, ...]
Moments = Mapping[str, Stats]
Known = Mapping[str, Array]
# Long plates are scanned in chunks whose largest intermediate has about this many numbers (2 MB): it then stays in cache,
# which on a mixture of 100 000 × 10 halves the time of a sweep against chunks of 32 768 rows.
CHUNK_NUMBERS = 2**18
SHORTEST_CHUNK = 1_024


class Program:
    """The mathematics of one network. Holds no state but the known arrays and what was folded from them."""

    def __init__(self, plan: Plan, backend: Backend) -> None:
        self.plan, self.backend = plan, backend
        self.known: dict[str, npt.NDArray[Any]] = dict(plan.known)
        self._monomials = {name: term.monomials for name, term in plan.terms.items()}
        self.symmetric = frozenset(
            (name, stat)
            for name, block in plan.blocks.items()
            for stat, is_symmetric in enumerate(block.family.symmetric)
            if is_symmetric
        )
        if backend.name == "jax":
            self._monomials, self.known[COEFFICIENTS] = _with_places(self._monomials)
        self._recipes: dict[str, tuple[list[Factor], tuple[Label, ...]]] = {}
        self._folded: dict[tuple[str, frozenset[str]], tuple[Monomial, ...]] = {}
        self._pieces: dict[tuple[str, frozenset[str]], list[Piece]] = {}
        self._shared: dict[str, tuple[tuple[int, ...], ...]] = {}
        self._parts: dict[tuple[int, str], tuple[Piece, Piece, Piece, Piece, Piece]] = {}
        self._samples: dict[tuple[str, str | None, frozenset[str]], Piece] = {}

    # -- pieces --

    def pieces(self, term: PlannedTerm, dropped: frozenset[str] = frozenset()) -> list[Piece]:
        """The term's monomials, data folded, split into what is scanned along the longest plate and what is not."""
        key = (term.node, dropped)
        if key not in self._pieces:
            self._pieces[key] = self._split(term, dropped)
        return self._pieces[key]

    def _split(self, term: PlannedTerm, dropped: frozenset[str]) -> list[Piece]:
        monomials = self._fold(term, dropped)
        if math.prod(term.sizes.values()) <= 4 * CHUNK_NUMBERS:  # whatever they are wide
            return [Piece(monomials, term.sizes, term.plates, symmetric=self.symmetric)]
        longest = max(term.plates, key=lambda label: term.sizes[label], default=None)
        long = tuple(m for m in monomials if longest in m.labels)
        width = max((_width(m, longest, term.sizes) for m in long), default=0)
        if longest is None or term.sizes[longest] * width <= 4 * CHUNK_NUMBERS:
            return [Piece(monomials, term.sizes, term.plates, symmetric=self.symmetric)]
        chunk = min(max(CHUNK_NUMBERS // width, SHORTEST_CHUNK), LONGEST_CHUNK)
        short = tuple(m for m in monomials if longest not in m.labels)
        pieces = [
            Piece(long, term.sizes, term.plates, longest, chunk, self.symmetric),
            Piece(short, term.sizes, term.plates, symmetric=self.symmetric),
        ]
        return [piece for piece in pieces if piece.monomials]

    def dropped(self, block: Block, term: PlannedTerm) -> frozenset[str]:
        """Weighted plates that the block shares element by element with the term: in its target they cancel."""
        if not self.plan.weights:
            return frozenset()
        if term.node == block.name:
            return frozenset(p for p in block.plates if p in self.plan.weights)
        axes = [reading.axes for reading in term.readings[block.name]]
        return frozenset(
            plate
            for position, plate in enumerate(block.plates)
            if plate in self.plan.weights and all(entry[position] == plate for entry in axes)
        )

    def shared_plates(self, block: Block) -> tuple[tuple[int, ...], ...]:
        """For each matrix statistic, the plates along which its full target cannot vary: nothing that meets it has them."""
        if block.name not in self._shared:
            matrices = any(block.family.symmetric) and block.shape
            self._shared[block.name] = self._find_shared(block) if matrices else ((),) * len(block.family.symmetric)
        return self._shared[block.name]

    def _find_shared(self, block: Block) -> tuple[tuple[int, ...], ...]:
        shared = [set(range(len(block.shape))) if matrix else set[int]() for matrix in block.family.symmetric]
        for term in self.plan.terms_of(block.name):
            for monomial in self._fold(term, frozenset()):
                for factor in monomial.factors:
                    if factor.known or factor.source != block.name:
                        continue
                    others = {label for other in monomial.factors if other is not factor for label in other.labels}
                    # An index on another axis of the block itself chooses other elements along this one.
                    others |= {label for axis in factor.axes if isinstance(axis, Take) for label in axis.labels}
                    shared[factor.stat] &= {
                        axis
                        for axis in shared[factor.stat]
                        if not _meets(factor.axes[axis], others, block.plates[axis])
                    }
        return tuple(tuple(sorted(axes)) for axes in shared)

    def _fold(self, term: PlannedTerm, dropped: frozenset[str]) -> tuple[Monomial, ...]:
        key = (term.node, dropped)
        if key not in self._folded:
            gone = {weight_key(plate) for plate in dropped}
            self._folded[key] = tuple(
                self._fold_known(_without(m, gone), term.node) for m in self._monomials[term.node]
            )
        return self._folded[key]

    def _fold_known(self, monomial: Monomial, node: str) -> Monomial:
        """Contract the known factors of a monomial over the labels that no random factor has, once and for all.

        What is read through an index is gathered first: its labels are those of the term, not those of the array.
        """
        known = [factor for factor in monomial.factors if factor.known]
        rest = tuple(factor for factor in monomial.factors if not factor.known)
        alive = {label for factor in rest for label in factor.labels}
        labels = {label for factor in known for label in factor.labels}
        if not known or labels <= alive:
            return monomial
        kept = tuple(label for label in ordered_labels(known) if label in alive)
        array = product_at(HOST, known, {}, self.plan.known, kept)
        name = f"folded:{node}:{len(self.known)}"
        self.known[name] = array
        self._recipes[name] = known, kept
        factor = Factor(name, 0, kept, known=True)
        return monomial._replace(factors=(factor, *rest), counted=frozenset(labels - alive))

    def with_data(self, known: Known) -> dict[str, npt.NDArray[Any]]:
        """Other known arrays of the same plan, with all that was folded so far folded from them."""
        arrays = {**self.plan.known, **known}
        arrays |= {COEFFICIENTS: self.known[COEFFICIENTS]} if COEFFICIENTS in self.known else {}
        for name, (factors, kept) in self._recipes.items():
            arrays[name] = product_at(HOST, factors, {}, arrays, kept)
        return arrays

    # -- parts of pieces --

    def touching(self, piece: Piece, name: str) -> Piece:
        """The monomials of a piece in which a node's moments appear."""
        return self._parts_of(piece, name)[0]

    def apart(self, piece: Piece, name: str) -> Piece:
        """The monomials of a piece in which they do not."""
        return self._parts_of(piece, name)[1]

    def once(self, piece: Piece, name: str) -> Piece:
        """The monomials in which they appear once: their gradient stays while elements of the node take turns."""
        return self._parts_of(piece, name)[2]

    def often(self, piece: Piece, name: str) -> Piece:
        """The monomials in which they meet one another."""
        return self._parts_of(piece, name)[3]

    def meeting(self, block: Block) -> list[Piece]:
        """All monomials in which elements of a block with columns meet; weights of its own plates cancel in its target."""
        terms = [(term, self.dropped(block, term)) for term in self.plan.terms_of(block.name)]
        parts = [self.often(piece, block.name) for term, gone in terms for piece in self.pieces(term, gone)]
        return [part for part in parts if part.monomials]

    def _parts_of(self, piece: Piece, name: str) -> tuple[Piece, Piece, Piece, Piece]:
        # By its place in memory, and thus kept: a piece is long, and comparing it would take longer than a sweep.
        key = (id(piece), name)
        if key not in self._parts:
            times = [sum(f.source == name and not f.known for f in m.factors) for m in piece.monomials]

            def where(wanted: Callable[[int], bool]) -> Piece:
                chosen = tuple(m for m, count in zip(piece.monomials, times, strict=True) if wanted(count))
                return piece._replace(monomials=chosen)

            parts = where(bool), where(lambda n: n == 0), where(lambda n: n == 1), where(lambda n: n > 1)
            self._parts[key] = *parts, piece
        return self._parts[key][:4]

    def _sampled_piece(self, term: PlannedTerm, name: str | None, dropped: frozenset[str] = frozenset()) -> Piece:
        """A term as samples read it, nothing folded; what touches a node, or all of it."""
        key = (term.node, name, dropped)
        if key not in self._samples:
            gone = {weight_key(plate) for plate in dropped}
            whole = Piece(tuple(_without(m, gone) for m in self._monomials[term.node]), term.sizes, term.plates)
            self._samples[key] = whole if name is None else self.touching(whole, name)
        return self._samples[key]

    # -- targets --

    def target(
        self,
        block: Block,
        moments: Moments,
        known: Known,
        full: Iterable[str] | None = None,
        sampled: Iterable[Sampled] = (),
        column: Array | None = None,
        rows: Mapping[str, Array] | None = None,
    ) -> Stats:
        """λ^temp = η̃_i + Σ weight · η̃_ki: the terms named in ``full`` (all by default) whole, the others sampled.

        ``rows`` are the elements, by plate, that the block's moments are cut to.
        """
        terms = self.plan.terms_of(block.name)
        chosen = set(full) if full is not None else {term.node for term in terms}
        shape, place = moments[block.name], None
        if column is not None:
            assert block.column_axis is not None
            place = block.column_axis, column
            shape = tuple(self.backend.take_column(s, column, block.column_axis) for s in shape)
        total: Stats | None = None
        for term in terms:
            if term.node not in chosen:
                continue
            dropped = self.dropped(block, term)
            here: Stats | None = None
            for piece in self.pieces(term, dropped):
                touching = self.touching(piece, block.name)
                if touching.monomials:
                    here = _added(here, self.backend.gradient(touching, block.name, moments, known, FULL, place))
            if here is not None:
                total = _added(total, self.unweighted(block, dropped, here, known, rows))
        for sample in sampled:
            term = self.plan.terms[sample.term]
            dropped = self.dropped(block, term)
            gradient = self.backend.gradient(
                self._sampled_piece(term, block.name, dropped), block.name, moments, known, _view_of(sample), place,
                sample.occurrence,
            )  # fmt: skip
            total = _added(total, self.unweighted(block, dropped, gradient, known, rows))
        if total is None:
            total = tuple(self.backend.xp.zeros_like(s) for s in shape)
        return block.family.project(total)

    def gradient(
        self, piece: Piece, block: Block, moments: Moments, known: Known, column: tuple[int, Array] | None = None
    ) -> Stats:
        """The gradient of a piece with respect to the block's moments, or one column (axis, number) of them."""
        return self.backend.gradient(self.touching(piece, block.name), block.name, moments, known, FULL, column)

    def unweighted(
        self,
        block: Block,
        dropped: frozenset[str],
        gradient: Stats,
        known: Known,
        rows: Mapping[str, Array] | None = None,
    ) -> Stats:
        """Divide by the block's own plate weights where they did not cancel (a parent read through a gather)."""
        for position, plate in enumerate(block.plates):
            if plate not in self.plan.weights or plate in dropped:
                continue
            if block.column_axis is not None:
                raise AssertionError("a coupled block on a weighted plate reads its terms element by element")
            weight = known[weight_key(plate)]
            weight = weight[rows[plate]] if rows and plate in rows else weight
            where = self.backend.xp.where
            inverse = where(weight > 0, 1.0 / where(weight > 0, weight, 1.0), 0.0)
            gradient = tuple(
                g * inverse.reshape([-1 if axis == position else 1 for axis in range(g.ndim)]) for g in gradient
            )
        return gradient

    def sampled_value(self, sample: Sampled, moments: Moments, known: Known) -> Array:
        """A term's contribution to the expected log joint, as the sample estimates it."""
        piece = self._sampled_piece(self.plan.terms[sample.term], None)
        return self.backend.value(piece, moments, known, _view_of(sample))

    # -- the bound --

    def log_joint(self, name: str, moments: Moments, known: Known) -> Array:
        """E[log p(x | parents)] of one node, summed over its plates."""
        total: Array = self.backend.xp.zeros(())
        for piece in self.pieces(self.plan.terms[name]):
            total = total + self.backend.value(piece, moments, known)
        return total

    def bounds(self, lam: Mapping[str, Stats], known: Known) -> dict[str, Array]:
        """The parts of the bound of q with parameters λ; a point mass of the start counts as the q that stands behind it."""
        pairs = {name: block.family.moments_entropy(lam[name]) for name, block in self.plan.blocks.items()}
        mu = {name: stats for name, (stats, _) in pairs.items()}
        values = {name: self.log_joint(name, mu, known) for name in self.plan.terms}
        for name, block in self.plan.blocks.items():
            values[name] = values[name] + self.entropy(block, pairs[name][1], known)
        return values

    def partial_bound(
        self, whole: Iterable[str], layouts: Any, lam: Mapping[str, Stats], mu: Moments, arrays: Any, known: Known
    ) -> Array:
        """The bound of some terms whole and others sampled, with the entropies of the blocks that λ is given of."""
        total = sum((self.log_joint(name, mu, known) for name in whole), self.backend.xp.zeros(()))
        for sample in map(Sampled.rebuilt, layouts, arrays):
            total = total + self.sampled_value(sample, mu, known)
        for name, stats in lam.items():
            block = self.plan.blocks[name]
            total = total + self.entropy(block, block.family.moments_entropy(stats)[1], known)
        return total

    def entropy(self, block: Block, entropy: Array, known: Known) -> Array:
        """Σ over elements of A(λ) − ⟨λ, μ⟩, weighted as the plates are."""
        for position, plate in enumerate(block.plates):
            if plate in self.plan.weights:
                shape = [-1 if axis == position else 1 for axis in range(len(block.shape))]
                entropy = entropy * known[weight_key(plate)].reshape(shape)
        return self.backend.xp.sum(entropy)


class Target:
    """λ^temp of a block, as the sum of messages; that of the ``ending`` ones is wanted by itself as well.

    Calling it gives the sum over the ending messages (None if there are none), and that over all.
    """

    def __init__(
        self, block: Block, xp: Any, shapes: Sequence[tuple[int, ...]], ending: Sequence[Any], others: Sequence[Any]
    ) -> None:
        def known(parts: Sequence[Any]) -> list[Array]:
            total = [sum(own) for own in zip(*(part.known for part in parts), strict=True)] or [0.0 for _ in shapes]
            return [
                array if array.__class__ is not float and array.shape == shape else xp.zeros(shape) + array
                for array, shape in zip(total, shapes, strict=True)
            ]

        self.project = block.family.project if any(block.family.symmetric) else None
        self.ending = (known(ending), [part for part in ending if part.spots]) if ending else None
        self.others = (known(others), [part for part in others if part.spots]) if others or not ending else None

    def __call__(self, moments: Moments) -> tuple[Sequence[Array] | None, Stats]:
        ended = None if self.ending is None else _sum(*self.ending, moments)
        rest = None if self.others is None else _sum(*self.others, moments)
        if ended is None or rest is None:
            target: Any = rest if ended is None else ended
        else:
            target = [a + b for a, b in zip(ended, rest, strict=True)]
        return ended, tuple(target) if self.project is None else self.project(tuple(target))


def _sum(known: list[Array], messages: list[Any], moments: Moments) -> list[Array]:
    total = known
    for message in messages:
        total = message.add(moments, total)
    return total


class _Unweighted:
    """A message to a block on a weighted plate, divided by the weights that do not cancel."""

    spots = (None,)  # it is found as a whole at every call

    def __init__(self, message: Any, divide: Callable[[Stats], Stats]) -> None:
        self.message, self.divide = message, divide
        self.known = [0.0 for _ in message.known]

    def add(self, moments: Moments, total: list[Array]) -> list[Array]:
        return [a + b for a, b in zip(total, self.divide(self.message(moments)), strict=True)]


class BoundProgram:
    """A program with its known arrays: messages to blocks and values of terms as functions of the moments, each made once.

    NumPy keeps it, and what is multiplied of known arrays alone, unless these ``changing`` ones are for one call; JAX makes it
    when it traces. ``lead`` are sizes of axes that all arrays of hidden nodes have in front (`natgrad.network.draws.chains`).
    """

    def __init__(self, program: Program, known: Known, lead: tuple[int, ...] = (), *, changing: bool = False) -> None:
        self.program, self.on, self.known, self.lead = program, program.backend, known, lead
        self.keeps = self.on.keeps and not changing
        self._shapes: dict[str, Sequence[tuple[int, ...]]] = {}
        self._messages: dict[Any, Any] = {}
        self._targets: dict[Any, Target] = {}
        self._values: dict[tuple[str, str | None], Bound | Unbound] = {}
        self._readers: dict[Any, Reader] = {}

    def shapes(self, name: str) -> Sequence[tuple[int, ...]]:
        """The shapes of a node's statistics."""
        shapes = self._shapes.get(name)
        if shapes is None:
            own = self.program.plan.nodes[name].stat_shapes()
            shapes = self._shapes[name] = [(*self.lead, *shape) for shape in own]
        return shapes

    def lowered(
        self, pieces: Sequence[Piece], name: str | None = None, stats: Sequence[int] | None = None
    ) -> Bound | Unbound:
        """The value of some pieces, or their derivative by the moments of a node, or by some of its statistics."""
        shapes = () if name is None else self.shapes(name)
        if not self.keeps:
            return Unbound(self.on, pieces, name, self.known, shapes)
        job = Job(pieces, name, stats=stats, readers=self._readers)
        return job.bind(self.on, Reads(self.known, shapes=self.shapes), shapes)

    def target(
        self,
        block: Block,
        ending: Iterable[str] = (),
        terms: Iterable[str] | None = None,
        part: Callable[[Piece, str], Piece] | None = None,
    ) -> Target:
        """λ^temp of a block from some of its terms, all if None; ``part`` (`Program.once`, `often`) chooses monomials."""
        chosen, last = None if terms is None else tuple(terms), tuple(ending)
        key = block.name, last, chosen, None if part is None else part.__name__
        if key not in self._targets:
            of_term = {
                term.node: self._message(block, term, part)
                for term in self.program.plan.terms_of(block.name)
                if chosen is None or term.node in chosen
            }
            ended = [message for node, message in of_term.items() if node in last]
            others = [message for node, message in of_term.items() if node not in last]
            self._targets[key] = Target(block, self.on.xp, self.shapes(block.name), ended, others)
        return self._targets[key]

    def _message(self, block: Block, term: PlannedTerm, part: Callable[[Piece, str], Piece] | None) -> Any:
        key = block.name, term.node, None if part is None else part.__name__
        if key not in self._messages:
            program, dropped = self.program, self.program.dropped(block, term)
            pieces: Sequence[Piece] = program.pieces(term, dropped)
            if part is not None:
                pieces = [part(piece, block.name) for piece in pieces]
            message: Any = self.lowered(pieces, block.name)
            if any(plate in program.plan.weights and plate not in dropped for plate in block.plates):
                message = _Unweighted(message, lambda stats: program.unweighted(block, dropped, stats, self.known))
            self._messages[key] = message
        return self._messages[key]

    def prior(self, block: Block, parents: Moments) -> Stats:
        """λ of a block as its own term says, given the moments of its parents alone."""
        message = self._message(block, self.program.plan.terms[block.name], None)
        with self.on.running():
            return tuple(map(np.asarray, block.family.project(message(parents))))

    def value(self, term: str, without: str | None = None) -> Bound | Unbound:
        """A term, or the part of it that the moments of a node do not touch."""
        if (term, without) not in self._values:
            pieces = self.program.pieces(self.program.plan.terms[term])
            pieces = pieces if without is None else [self.program.apart(piece, without) for piece in pieces]
            self._values[term, without] = self.lowered(pieces)
        return self._values[term, without]


def _with_places(
    terms: Mapping[str, tuple[Monomial, ...]],
) -> tuple[dict[str, tuple[Monomial, ...]], npt.NDArray[np.float64]]:
    """The monomials, each with the place of its coefficient among the arguments of a compiled program, and those arguments.

    Some are numbers of the declaration, and a loop over priors must not compile again. They are not told apart from those of
    the densities by their values: a program that depended on which prior is 1 would be compiled for each such case.
    """
    placed: dict[str, tuple[Monomial, ...]] = {}
    numbers: list[float] = []
    for name, monomials in terms.items():
        placed[name] = tuple(m._replace(place=len(numbers) + n) for n, m in enumerate(monomials))
        numbers += [m.coefficient for m in monomials]
    return placed, np.array(numbers, dtype=np.float64)


def _without(monomial: Monomial, gone: set[str]) -> Monomial:
    """A monomial without some weights."""
    if not gone:
        return monomial
    return monomial._replace(factors=tuple(f for f in monomial.factors if not (f.known and f.source in gone)))


def _meets(axis: Axis, others: set[Label], plate: str) -> bool:
    """Whether something else in a monomial depends on the element along an axis; a gather always counts as such."""
    return axis != plate or plate in others


def _width(monomial: Monomial, label: str | None, sizes: Mapping[Label, int]) -> int:
    """Numbers an intermediate of the monomial has for each element of ``label``: one factor, or the known ones together."""
    factors = [set(factor.labels) for factor in monomial.factors if label in factor.labels]
    together = {
        name for factor in monomial.factors if factor.known and label in factor.labels for name in factor.labels
    }
    return max(math.prod(sizes[name] for name in labels if name != label) for labels in [*factors, together])


def _view_of(sample: Sampled) -> View:
    return View(dict(sample.zipped), Labelled(sample.weight, (SAMPLE,)), None, dict(sample.moved))


def _added(first: Stats | None, second: Stats) -> Stats:
    return second if first is None else tuple(a + b for a, b in zip(first, second, strict=True))
