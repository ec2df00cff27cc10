"""A block in, its target as a short list of products out: what the interpreter does at every sweep, found once and written out.

The polynomial of a network does not change while it is fitted, nor do its known arrays. So for every block and every term that
it meets: what only known numbers decide is added up once; each other product is one function of the arrays that it reads; what
has the same axes, or goes back through the same indices, is added up before it is spread over the block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from natgrad.inference.problem import Block
from natgrad.network.execute.addressing import FULL, Piece
from natgrad.network.execute.interpreter import MOST_KEPT, Reader, scale_of
from natgrad.network.execute.numpy_contraction import product_of
from natgrad.network.execute.program import Program
from natgrad.network.polynomial import Factor, Label, Monomial

__all__ = ["Parts", "Product", "Reads", "Writer", "WrittenTarget", "WrittenValue", "written_product"]

Array = Any
Stats = tuple[Array, ...]
Labels = tuple[Label, ...]
Moments = Mapping[str, Stats]
Known = Mapping[str, Array]
Operands = list[Array]
Shapes = Callable[[str], Sequence[tuple[int, ...]]]  # of the statistics of a node


class Reads:
    """The arrays that some products read: each once, gathers carried out."""

    def __init__(self, known: Known, shapes: Shapes, readers: dict[Factor, Reader] | None = None) -> None:
        self.known, self.shapes = known, shapes
        self._readers: dict[Factor, Reader] = {} if readers is None else readers
        self._places: dict[Factor, int] = {}
        self._shapes: dict[Factor, tuple[int, ...]] = {}
        self._found: list[tuple[str, int, Callable[[Array], Array] | None]] = []

    def reader(self, factor: Factor) -> Reader:
        """How a factor is read."""
        reader = self._readers.get(factor)
        if reader is None:
            reader = self._readers[factor] = Reader(factor, (), {})
        return reader

    def place(self, factor: Factor) -> int:
        """Where the array of a random factor stands among the operands."""
        place = self._places.get(factor)
        if place is None:
            place = self._places[factor] = len(self._found)
            self._found.append((factor.source, factor.stat, self.reader(factor).gather(self.known)))
        return place

    def shape(self, factor: Factor) -> tuple[int, ...]:
        """The shape of a random factor, gathers carried out."""
        shape = self._shapes.get(factor)
        if shape is None:
            whole = self.shapes(factor.source)[factor.stat]
            shape = self._shapes[factor] = self.reader(factor).shape(whole, self.known)
        return shape

    def __call__(self, moments: Moments) -> Operands:
        return [
            moments[name][stat] if gather is None else gather(moments[name][stat]) for name, stat, gather in self._found
        ]


class Product(NamedTuple):
    """Coefficient times factors, contracted to ``out``: a known array or number, or a function of the operands."""

    out: Labels
    constant: Array | None
    function: Callable[[Operands], Array] | None


def written_product(reads: Reads, factors: Sequence[Factor], scale: float, wanted: Labels) -> Product:
    """The product of some factors of a monomial, summed to the wanted labels."""
    random = [factor for factor in factors if not factor.known]
    readers = [reads.reader(factor) for factor in factors if factor.known]
    chosen = [reads.reader(factor) for factor in random]
    arrays, labels = (
        [np.asarray(r.array({}, reads.known, FULL), np.float64) for r in readers],
        [r.labels for r in readers],
    )
    present = {label for reader in (*readers, *chosen) for label in reader.labels} if wanted else ()
    out = tuple(label for label in wanted if label in present)
    if arrays:
        needed = set(out).union(*(reader.labels for reader in chosen))
        arrays, labels, scale = _together(arrays, labels, needed, scale)
    if not random:
        if not arrays:
            return Product(out, scale, None)
        contract = product_of(out, labels, [a.shape for a in arrays])
        constant = arrays[0] if contract is None else contract(*arrays)
        return Product(out, constant if scale == 1.0 else scale * constant, None)
    places = [reads.place(factor) for factor in random]
    labels += [reader.labels for reader in chosen]
    contract = product_of(out, labels, [*(a.shape for a in arrays), *map(reads.shape, random)])
    return Product(out, None, _bound(contract, arrays, places, scale))


def _together(
    arrays: list[Array], labels: list[Labels], needed: set[Label], scale: float
) -> tuple[list[Array], list[Labels], float]:
    """Known arrays as one, with the coefficient, unless that would be much larger than they are."""
    sizes = {x: n for a, names in zip(arrays, labels, strict=True) for x, n in zip(names, a.shape, strict=True)}
    together = tuple(label for label in sizes if label in needed)
    if len(arrays) > 1 and math.prod(sizes[x] for x in together) > max(MOST_KEPT, 2 * max(a.size for a in arrays)):
        return arrays, labels, scale
    if len(arrays) > 1 or together != labels[0]:
        contract = product_of(together, labels, [a.shape for a in arrays])
        assert contract is not None
        arrays = [contract(*arrays)]
    return [arrays[0] if scale == 1.0 else scale * arrays[0]], [together], 1.0


def _bound(
    contract: Callable[..., Array] | None, arrays: list[Array], places: list[int], scale: float
) -> Callable[[Operands], Array]:
    """A contraction as a function of the operands; None is the one operand itself."""
    first = places[0]
    if contract is None:
        return (lambda x: x[first]) if scale == 1.0 else (lambda x: scale * x[first])
    if len(arrays) == 1 and len(places) == 1:
        constant = arrays[0]
        return lambda x: contract(constant, x[first])
    if not arrays and len(places) == 1:
        return (lambda x: contract(x[first])) if scale == 1.0 else (lambda x: scale * contract(x[first]))
    if not arrays and len(places) == 2:
        second = places[1]
        if scale == 1.0:
            return lambda x: contract(x[first], x[second])
        return lambda x: scale * contract(x[first], x[second])
    if scale == 1.0:
        return lambda x: contract(*arrays, *[x[p] for p in places])
    return lambda x: scale * contract(*arrays, *[x[p] for p in places])


class _Spot(NamedTuple):
    """Products that are added up: those of one statistic with the same axes, or that go back through the same indices."""

    stat: int
    functions: list[Callable[[Operands], Array]]
    spread: Callable[[Array], Array] | None


class Parts:
    """What some pieces say to one node: a known part for each statistic, and products. ``stats`` are those that are wanted."""

    def __init__(
        self,
        name: str,
        pieces: Iterable[Piece],
        known: Known,
        shapes: Shapes,
        stats: Sequence[int] | None = None,
        readers: dict[Factor, Reader] | None = None,
    ) -> None:
        self.shapes, self.reads, self.stats = shapes(name), Reads(known, shapes, readers), stats
        self.known: list[Array] = [0.0 for _ in self.shapes]
        self.spots: list[_Spot] = []
        spots: dict[Any, tuple[_Spot, list[Array]]] = {}
        for piece in pieces:
            for monomial in piece.monomials:
                for place, factor in enumerate(monomial.factors):
                    if factor.source == name and not factor.known and (stats is None or factor.stat in stats):
                        self._add(piece, monomial, place, spots)
        for spot, constants in spots.values():
            if constants:
                total = constants[0]
                for constant in constants[1:]:
                    total = total + constant
                whole = total if spot.spread is None else spot.spread(np.asarray(total))
                self.known[spot.stat] = self.known[spot.stat] + whole
            if spot.functions:
                self.spots.append(spot)

    def _add(self, piece: Piece, monomial: Monomial, place: int, spots: dict[Any, tuple[_Spot, list[Array]]]) -> None:
        factor, reads = monomial.factors[place], self.reads
        others = (*monomial.factors[:place], *monomial.factors[place + 1 :])
        reader = reads.reader(factor)
        scale = scale_of(monomial, [reads.reader(f) for f in monomial.factors], piece, ())
        product = written_product(reads, others, scale, reader.distinct)
        key = (factor.stat, product.out) if reader.plain else (reader, product.out)
        if key not in spots:
            spread = _spread(reader, product.out, self.shapes[factor.stat], reads.known)
            spots[key] = _Spot(factor.stat, [], spread), []
        if product.function is None:
            spots[key][1].append(product.constant)
        else:
            spots[key][0].functions.append(product.function)

    def __call__(self, moments: Moments) -> Stats:
        """The derivative by the moments of the node, every statistic that is wanted in full."""
        chosen = range(len(self.shapes)) if self.stats is None else self.stats
        total: list[Array] = [None] * len(self.shapes)
        for stat in chosen:
            total[stat] = np.zeros(self.shapes[stat]) + self.known[stat]
        _add_up(total, self.spots, self.reads(moments))
        return tuple(total)

    def first(self, moments: Moments) -> Array:
        """The derivative by the first statistic, which may lack axes along which it does not vary."""
        total = [self.known[0]]
        _add_up(total, self.spots, self.reads(moments))
        return total[0]


def _add_up(total: list[Array], spots: list[_Spot], operands: Operands) -> None:
    for stat, functions, spread in spots:
        value = functions[0](operands)
        for function in functions[1:]:
            value = value + function(operands)
        total[stat] = total[stat] + (value if spread is None else spread(value))


def _spread(reader: Reader, out: Labels, shape: tuple[int, ...], known: Known) -> Callable[[Array], Array] | None:
    """From the axes of a product to those of the block."""
    axes = tuple(slice(None) if label in out else None for label in reader.distinct)
    if not reader.plain:
        back = reader.way_back(shape, known)
        return (lambda a: back(np.asarray(a)[axes])) if None in axes else back
    # Axes of length one in front are there by themselves.
    first = next((n for n, axis in enumerate(axes) if axis is not None), len(axes))
    return (lambda a: a[axes]) if None in axes[first:] else None


class WrittenTarget:
    """λ^temp of a block; of some terms their part of it is wanted by itself.

    Calling it gives the sum over the ``ending`` terms (None if there are none), and that over all.
    """

    def __init__(self, family: Any, ending: Sequence[Parts], others: Sequence[Parts]) -> None:
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


def _sum(parts: Sequence[Parts]) -> tuple[list[Array], list[tuple[Reads, list[_Spot]]]] | None:
    """The known parts of all, at their full shapes, and the products of each."""
    if not parts:
        return None
    known = [np.zeros(shape) for shape in parts[0].shapes]
    for part in parts:
        known = [np.asarray(total + own) for total, own in zip(known, part.known, strict=True)]
    return known, [(part.reads, part.spots) for part in parts if part.spots]


def _evaluated(known: list[Array], groups: list[tuple[Reads, list[_Spot]]], moments: Moments) -> list[Array]:
    total = list(known)
    for reads, spots in groups:
        _add_up(total, spots, reads(moments))
    return total


class WrittenValue:
    """The sum of some monomials, each summed over all its axes."""

    def __init__(
        self, pieces: Iterable[Piece], known: Known, shapes: Shapes, readers: dict[Factor, Reader] | None = None
    ) -> None:
        self.known = 0.0
        self.functions: list[Callable[[Operands], Array]] = []
        self.reads = reads = Reads(known, shapes, readers)
        for piece in pieces:
            for monomial in piece.monomials:
                scale = scale_of(monomial, [reads.reader(f) for f in monomial.factors], piece, ())
                product = written_product(reads, monomial.factors, scale, ())
                if product.function is None:
                    self.known += float(product.constant)  # type: ignore[arg-type]
                else:
                    self.functions.append(product.function)

    def __call__(self, moments: Moments) -> Any:
        total = self.known
        if self.functions:
            operands = self.reads(moments)
            for function in self.functions:
                total = total + function(operands)
        return total


class Writer:
    """What was written out of a program, kept for every order of its blocks.

    ``lead`` are sizes of axes that all arrays of hidden nodes have in front (`natgrad.network.draws.chains`).
    """

    def __init__(self, program: Program, known: Known, lead: tuple[int, ...] = ()) -> None:
        self.program, self.known, self.lead = program, known, lead
        self._shapes: dict[str, Sequence[tuple[int, ...]]] = {}
        self._parts: dict[tuple[str, str], Parts] = {}
        self._targets: dict[tuple[str, tuple[str, ...] | None], WrittenTarget] = {}
        self._apart: dict[tuple[str, str | None], WrittenValue] = {}
        self._readers: dict[Factor, Reader] = {}

    def shapes(self, name: str) -> Sequence[tuple[int, ...]]:
        """The shapes of a node's statistics."""
        shapes = self._shapes.get(name)
        if shapes is None:
            own = self.program.plan.nodes[name].stat_shapes()
            shapes = self._shapes[name] = [(*self.lead, *shape) for shape in own]
        return shapes

    def parts(self, name: str, term: str) -> Parts:
        """What a term says to a block."""
        if (name, term) not in self._parts:
            pieces = self.program.pieces(self.program.plan.terms[term])
            self._parts[name, term] = Parts(name, pieces, self.known, self.shapes, readers=self._readers)
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

    def value(self, term: str, apart: str | None = None) -> WrittenValue:
        """A term, or the part of it that a block does not touch."""
        if (term, apart) not in self._apart:
            pieces = self.program.pieces(self.program.plan.terms[term])
            pieces = pieces if apart is None else [self.program.apart(piece, apart) for piece in pieces]
            self._apart[term, apart] = WrittenValue(pieces, self.known, self.shapes, self._readers)
        return self._apart[term, apart]
