"""A Plan in, traceable functions out: targets, sweeps and the bound as functions of moments.

Write P(μ) for the expected log joint. The target of block i is ∂P/∂μ_i, taken by `jax.grad` of the terms that touch i; a
sampled target is the same with the terms evaluated on the sample. What the data alone determine is folded once
(``XᵀX`` in a regression); what is long is scanned in chunks, so that no array of size elements × event² is ever built.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import lax

from natgrad.inference.problem import Block, Sampled
from natgrad.network.compile.plan import Plan, PlannedTerm, weight_key
from natgrad.network.compile.polynomial import Axis, Factor, Label, Monomial, Take, ordered_labels
from natgrad.network.execute.contraction import Labelled
from natgrad.network.execute.evaluate import FULL, SAMPLE, Column, View, evaluate, read_factor

__all__ = ["Program"]

Array = Any
Stats = tuple[Array, ...]
Moments = Mapping[str, Stats]
Known = Mapping[str, Array]
# Long plates are scanned in chunks whose largest intermediate has about this many numbers (2 MB): it then stays in cache,
# which on a mixture of 100 000 × 10 halves the time of a sweep against chunks of 32 768 rows.
CHUNK_NUMBERS = 2**18
SHORTEST_CHUNK, LONGEST_CHUNK = 1_024, 32_768


class Piece(NamedTuple):
    """Monomials of one term that are evaluated together; ``window`` is the label they are scanned along, if long."""

    monomials: tuple[Monomial, ...]
    sizes: Mapping[Label, int]
    plates: tuple[str, ...]
    window: str | None
    chunk: int = LONGEST_CHUNK


class Program:
    """Traceable mathematics of one network. Holds no state but the known arrays and what was folded from them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.known: dict[str, npt.NDArray[Any]] = dict(plan.known)
        self._folded: dict[tuple[str, frozenset[str]], tuple[Monomial, ...]] = {}

    # -- pieces --

    def pieces(self, term: PlannedTerm, dropped: frozenset[str] = frozenset()) -> list[Piece]:
        """The term's monomials, data folded, split into what is scanned along the longest plate and what is not."""
        monomials = self._fold(term, dropped)
        longest = max(term.plates, key=lambda label: term.sizes[label], default=None)
        long = tuple(m for m in monomials if longest in m.labels)
        width = max((_width(m, longest, term.sizes) for m in long), default=0)
        if longest is None or term.sizes[longest] * width <= 4 * CHUNK_NUMBERS:
            return [Piece(monomials, term.sizes, term.plates, None)]
        chunk = min(max(CHUNK_NUMBERS // width, SHORTEST_CHUNK), LONGEST_CHUNK)
        short = tuple(m for m in monomials if longest not in m.labels)
        found = [Piece(long, term.sizes, term.plates, longest, chunk), Piece(short, term.sizes, term.plates, None)]
        return [piece for piece in found if piece.monomials]

    def dropped(self, block: Block, term: PlannedTerm) -> frozenset[str]:
        """Weighted plates that the block shares element by element with the term: in its target they cancel."""
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
                self._fold_known(
                    Monomial(m.coefficient, tuple(f for f in m.factors if not (f.known and f.source in gone))),
                    term.node,
                )
                for m in term.monomials
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
        array = _contracted([read_factor(factor, {}, self.plan.known, FULL, None, None) for factor in known], kept)
        name = f"folded:{node}:{len(self.known)}"
        self.known[name] = np.asarray(array, dtype=np.float64)
        factor = Factor(name, 0, kept, known=True)
        return Monomial(monomial.coefficient, (factor, *rest), counted=frozenset(labels - alive))

    # -- gradients --

    def term_gradient(
        self, piece: Piece, block: Block, moments: Moments, known: Known, column: Array | None = None
    ) -> Stats:
        """The gradient of a piece with respect to the block's moments, or one column of them."""
        relevant = tuple(m for m in piece.monomials if any(f.source == block.name and not f.known for f in m.factors))
        piece = piece._replace(monomials=relevant)
        stats = moments[block.name]
        if column is not None:
            assert block.column_axis is not None
            axis, number = block.column_axis, column
            stats = tuple(lax.dynamic_index_in_dim(s, number, axis, keepdims=False) for s in stats)

        def value(own: Stats, view: View) -> Array:
            if column is None:
                here, part = {**moments, block.name: own}, None
            else:
                here, part = dict(moments), Column(block.name, axis, number, own)
            return evaluate(piece.monomials, piece.sizes, piece.plates, here, known, view, part)

        if piece.window is None:
            gradient: Stats = jax.grad(value)(stats, FULL)
            return gradient
        return self._scanned(piece, block.name, stats, value, cut=column is None)

    def _scanned(self, piece: Piece, name: str, stats: Stats, value: Any, cut: bool) -> Stats:
        """The same as one gradient, in chunks along the window; own arrays along it are cut, not padded with zeros."""
        label = piece.window
        assert label is not None
        starts, size, fresh = _windows(piece.sizes[label], piece.chunk)
        places = [_place(piece.monomials, name, s, label) for s in range(len(stats))]
        cut = cut and -1 not in places
        places = [place if cut else None for place in places]

        def chunk(sums: Stats, entry: tuple[Array, Array]) -> tuple[Stats, None]:
            start, weight = entry
            own = tuple(
                s if p is None else lax.dynamic_slice_in_dim(s, start, size, p)
                for s, p in zip(stats, places, strict=True)
            )
            view = View(
                weight=Labelled(weight, (label,)), window=(label, start, size), cut=(name, label) if cut else None
            )
            gradient = jax.grad(value)(own, view)
            added = tuple(
                a + g if p is None else _add_slice(a, g, start, p)
                for a, g, p in zip(sums, gradient, places, strict=True)
            )
            return added, None

        zero = tuple(jnp.zeros_like(s) for s in stats)
        gradient: Stats = lax.scan(chunk, zero, (jnp.asarray(starts), jnp.asarray(fresh)))[0]
        return gradient

    def term_value(self, piece: Piece, moments: Moments, known: Known) -> Array:
        """The piece's contribution to the expected log joint."""
        if piece.window is None:
            return evaluate(piece.monomials, piece.sizes, piece.plates, moments, known)
        label = piece.window
        starts, size, fresh = _windows(piece.sizes[label], piece.chunk)

        def chunk(total: Array, entry: tuple[Array, Array]) -> tuple[Array, None]:
            view = View(weight=Labelled(entry[1], (label,)), window=(label, entry[0], size))
            return total + evaluate(piece.monomials, piece.sizes, piece.plates, moments, known, view), None

        return lax.scan(chunk, jnp.zeros(()), (jnp.asarray(starts), jnp.asarray(fresh)))[0]

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
        shape = moments[block.name]
        if column is not None:
            assert block.column_axis is not None
            axis = block.column_axis
            shape = tuple(lax.dynamic_index_in_dim(s, column, axis, keepdims=False) for s in shape)
        total: Stats = tuple(jnp.zeros_like(s) for s in shape)
        for term in terms:
            if term.node not in chosen:
                continue
            dropped = self.dropped(block, term)
            here: Stats = tuple(jnp.zeros_like(s) for s in shape)
            for piece in self.pieces(term, dropped):
                here = _added(here, self.term_gradient(piece, block, moments, known, column))
            total = _added(total, self._unweighted(block, dropped, here, known, rows or {}))
        for sample in sampled:
            dropped = self.dropped(block, self.plan.terms[sample.term])
            gradient = self._sampled_gradient(block, moments, known, sample, column, dropped)
            total = _added(total, self._unweighted(block, dropped, gradient, known, rows or {}))
        return block.family.project(total)

    def _sampled_gradient(
        self,
        block: Block,
        moments: Moments,
        known: Known,
        sample: Sampled,
        column: Array | None,
        dropped: frozenset[str],
    ) -> Stats:
        term = self.plan.terms[sample.term]
        gone = {weight_key(plate) for plate in dropped}
        monomials = tuple(
            Monomial(m.coefficient, tuple(f for f in m.factors if not (f.known and f.source in gone)))
            for m in term.touching(block.name)
        )
        view = View(dict(sample.zipped), Labelled(sample.weight, (SAMPLE,)), None, dict(sample.moved))
        stats = moments[block.name]
        if column is not None:
            assert block.column_axis is not None
            axis = block.column_axis
            stats = tuple(lax.dynamic_index_in_dim(s, column, axis, keepdims=False) for s in stats)

        def value(own: Stats) -> Array:
            if column is not None:
                part = Column(block.name, axis, column, own)
                return evaluate(monomials, term.sizes, term.plates, moments, known, view, part)
            if sample.occurrence is None:
                here = {**moments, block.name: own}
                return evaluate(monomials, term.sizes, term.plates, here, known, view)
            reading = (block.name, sample.occurrence, own)
            return evaluate(monomials, term.sizes, term.plates, moments, known, view, None, reading)

        gradient: Stats = jax.grad(value)(stats)
        return gradient

    def _unweighted(
        self, block: Block, dropped: frozenset[str], gradient: Stats, known: Known, rows: Mapping[str, Array]
    ) -> Stats:
        """Divide by the block's own plate weights where they did not cancel (a parent read through a gather)."""
        for position, plate in enumerate(block.plates):
            if plate not in self.plan.weights or plate in dropped:
                continue
            if block.column_axis is not None:
                raise AssertionError("a coupled block on a weighted plate reads its terms element by element")
            weight = known[weight_key(plate)]
            weight = weight[rows[plate]] if plate in rows else weight
            inverse = jnp.where(weight > 0, 1.0 / jnp.where(weight > 0, weight, 1.0), 0.0)
            gradient = tuple(
                g * inverse.reshape([-1 if axis == position else 1 for axis in range(g.ndim)]) for g in gradient
            )
        return gradient

    def sampled_value(self, sample: Sampled, moments: Moments, known: Known) -> Array:
        """A term's contribution to the expected log joint, as the sample estimates it."""
        term = self.plan.terms[sample.term]
        view = View(dict(sample.zipped), Labelled(sample.weight, (SAMPLE,)), None, dict(sample.moved))
        return evaluate(term.monomials, term.sizes, term.plates, moments, known, view)

    # -- the bound --

    def log_joint(self, name: str, moments: Moments, known: Known) -> Array:
        """E[log p(x | parents)] of one node, summed over its plates."""
        total: Array = jnp.zeros(())
        for piece in self.pieces(self.plan.terms[name]):
            total = total + self.term_value(piece, moments, known)
        return total

    def entropy(self, block: Block, lam: Stats, mu: Stats, log_normalizer: Array, known: Known) -> Array:
        """Σ over elements of A(λ) − ⟨λ, μ⟩, weighted as the plates are."""
        entropy = log_normalizer - block.family.inner(lam, mu)
        for position, plate in enumerate(block.plates):
            if plate in self.plan.weights:
                shape = [-1 if axis == position else 1 for axis in range(len(block.shape))]
                entropy = entropy * known[weight_key(plate)].reshape(shape)
        return jnp.sum(entropy)


def _contracted(factors: list[Labelled], kept: tuple[Label, ...]) -> npt.NDArray[Any]:
    """The product of known arrays, gathers carried out, summed over every label that is not kept."""
    numbers = {label: n for n, label in enumerate(dict.fromkeys(label for f in factors for label in f.labels))}
    operands: list[Any] = []
    for array, labels in factors:
        operands += [array, [numbers[label] for label in labels]]
    return np.asarray(np.einsum(*operands, [numbers[label] for label in kept], optimize=True))


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


def _windows(size: int, chunk: int) -> tuple[npt.NDArray[np.int32], int, npt.NDArray[np.float64]]:
    """Starts of equal windows that cover 0 … size − 1; the last one overlaps its neighbour with weight 0."""
    count = math.ceil(size / chunk)
    length = math.ceil(size / count)
    wanted = np.arange(count) * length
    starts = np.minimum(wanted, size - length)
    fresh = (starts[:, None] + np.arange(length)[None, :] >= wanted[:, None]).astype(np.float64)
    return starts.astype(np.int32), length, fresh


def _place(monomials: tuple[Monomial, ...], name: str, stat: int, label: str) -> int | None:
    """The axis of a node's statistic that carries the window; None if none does, −1 if different readings disagree."""
    axes = [f.axes for m in monomials for f in m.factors if f.source == name and f.stat == stat and not f.known]
    places = {entry.index(label) if label in entry else None for entry in axes}
    return places.pop() if len(places) == 1 else (None if not places else -1)


def _add_slice(array: Array, piece: Array, start: Array, axis: int) -> Array:
    old = lax.dynamic_slice_in_dim(array, start, piece.shape[axis], axis)
    return lax.dynamic_update_slice_in_dim(array, old + piece, start, axis)


def _added(first: Stats, second: Stats) -> Stats:
    return tuple(a + b for a, b in zip(first, second, strict=True))
