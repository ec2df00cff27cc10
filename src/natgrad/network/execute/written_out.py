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
from natgrad.network.compile.plan import PlannedTerm
from natgrad.network.compile.polynomial import Factor, Label, Monomial
from natgrad.network.execute.addressing import FULL, Piece
from natgrad.network.execute.interpreter import MOST_KEPT, Reader, scale_of
from natgrad.network.execute.numpy_contraction import Contraction, product_of
from natgrad.network.execute.program import Program

__all__ = ["Parts", "WrittenTarget", "WrittenValue"]

Array = Any
Stats = tuple[Array, ...]
Labels = tuple[Label, ...]
Moments = Mapping[str, Stats]
Known = Mapping[str, Array]
Operands = list[Array]


class Reads:
    """The arrays that some products read: each once, gathers carried out."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self._readers: dict[Factor, Reader] = {}
        self._places: dict[Factor, int] = {}
        self._found: list[tuple[str, int, Callable[[Array], Array] | None]] = []

    def reader(self, factor: Factor) -> Reader:
        """How a factor is read."""
        found = self._readers.get(factor)
        if found is None:
            found = self._readers[factor] = Reader(factor, (), {})
        return found

    def place(self, factor: Factor) -> int:
        """Where the array of a random factor stands among the operands."""
        found = self._places.get(factor)
        if found is None:
            found = self._places[factor] = len(self._found)
            self._found.append((factor.source, factor.stat, self.reader(factor).gather(self.known)))
        return found

    def __call__(self, moments: Moments) -> Operands:
        return [
            moments[name][stat] if gather is None else gather(moments[name][stat]) for name, stat, gather in self._found
        ]


class _Product(NamedTuple):
    """Coefficient times factors, contracted to ``out``: a known array or number, or a function of the operands."""

    out: Labels
    constant: Array | None
    function: Callable[[Operands], Array] | None


def _product(
    reads: Reads, factors: Sequence[Factor], scale: float, wanted: Labels, shapes: Callable[[Factor], tuple[int, ...]]
) -> _Product:
    random = [factor for factor in factors if not factor.known]
    readers = [reads.reader(factor) for factor in factors if factor.known]
    arrays, labels = [np.asarray(r.array({}, reads.known, FULL), np.float64) for r in readers], [r.labels for r in readers]
    present = {label for factor in factors for label in reads.reader(factor).labels}
    out = tuple(label for label in wanted if label in present)
    needed = set(out).union(*(reads.reader(factor).labels for factor in random))
    if arrays:
        arrays, labels, scale = _together(arrays, labels, needed, scale)
    if not random:
        if not arrays:
            return _Product(out, scale, None)
        contract = product_of(out, labels, [a.shape for a in arrays])
        found = arrays[0] if contract is None else contract(*arrays)
        return _Product(out, found if scale == 1.0 else scale * found, None)
    places = [reads.place(factor) for factor in random]
    labels += [reads.reader(factor).labels for factor in random]
    contract = product_of(out, labels, [*(a.shape for a in arrays), *map(shapes, random)])
    return _Product(out, None, _bound(contract, arrays, places, scale))


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
    """What one term says to one block: a known part for each statistic, and products."""

    def __init__(self, program: Program, block: Block, term: PlannedTerm, reads: Reads) -> None:
        plan, name = program.plan, block.name
        self.shapes = plan.nodes[name].stat_shapes()
        self.known: list[Array] = [0.0 for _ in self.shapes]
        self.spots: list[_Spot] = []
        self._spots: dict[Any, tuple[_Spot, list[Array]]] = {}
        for piece in program.pieces(term):
            for monomial in piece.monomials:
                for place, factor in enumerate(monomial.factors):
                    if factor.source == name and not factor.known:
                        self._add(program, piece, monomial, place, reads)
        for spot, constants in self._spots.values():
            if constants:
                total = constants[0]
                for constant in constants[1:]:
                    total = total + constant
                found = total if spot.spread is None else spot.spread(np.asarray(total))
                self.known[spot.stat] = self.known[spot.stat] + found
            if spot.functions:
                self.spots.append(spot)
        del self._spots

    def _add(self, program: Program, piece: Piece, monomial: Monomial, place: int, reads: Reads) -> None:
        factor = monomial.factors[place]
        others = (*monomial.factors[:place], *monomial.factors[place + 1 :])
        reader = reads.reader(factor)
        scale = scale_of(monomial, [reads.reader(f) for f in monomial.factors], piece, ())
        product = _product(reads, others, scale, reader.distinct, lambda f: _shape(program, reads, f))
        key = (factor.stat, product.out) if reader.plain else (reader, product.out)
        found = self._spots.get(key)
        if found is None:
            spread = _spread(reader, product.out, self.shapes[factor.stat], reads.known)
            found = self._spots[key] = _Spot(factor.stat, [], spread), []
        if product.function is None:
            found[1].append(product.constant)
        else:
            found[0].functions.append(product.function)


def _shape(program: Program, reads: Reads, factor: Factor) -> tuple[int, ...]:
    """The shape of a random factor, gathers carried out."""
    return reads.reader(factor).shape(program.plan.nodes[factor.source].stat_shapes()[factor.stat], reads.known)


def _spread(reader: Reader, out: Labels, shape: tuple[int, ...], known: Known) -> Callable[[Array], Array] | None:
    """From the axes of a product to those of the block."""
    axes = tuple(slice(None) if label in out else None for label in reader.distinct)
    broadcast = None in axes and any(isinstance(axis, slice) for axis in axes)
    if reader.plain:
        # Axes of length one in front are there by themselves.
        first = next((n for n, axis in enumerate(axes) if axis is not None), 0)
        return (lambda a: a[axes]) if broadcast and None in axes[first:] else None
    back = reader.way_back(shape, known)
    return (lambda a: back(np.asarray(a)[axes])) if None in axes else back


class WrittenTarget:
    """λ^temp of a block; ``ending`` are the terms whose part of it is wanted by itself.

    Calling it gives the sum over the ending terms (None if there are none), and that over all.
    """

    def __init__(self, program: Program, block: Block, known: Known, ending: Iterable[str], full: Iterable[str]) -> None:
        ending = set(ending)
        self.reads, self.project = Reads(known), block.family.project if any(block.family.symmetric) else None
        self.shapes = program.plan.nodes[block.name].stat_shapes()
        terms = [term for term in program.plan.terms_of(block.name) if term.node in set(full)]
        groups = [[t for t in terms if t.node in ending], [t for t in terms if t.node not in ending]]
        self.groups = [self._sum([Parts(program, block, term, self.reads) for term in group]) for group in groups]

    def _sum(self, parts: list[Parts]) -> tuple[list[Array], list[list[tuple[Any, ...]]]] | None:
        if not parts:
            return None
        known = []
        for stat, shape in enumerate(self.shapes):
            total = np.zeros(shape)
            for part in parts:
                total = total + part.known[stat]
            known.append(np.asarray(total))
        spots: list[list[tuple[Any, ...]]] = [[] for _ in self.shapes]
        for part in parts:
            for spot in part.spots:
                spots[spot.stat].append((spot.functions[0], tuple(spot.functions[1:]), spot.spread))
        return known, spots

    def __call__(self, moments: Moments) -> tuple[Stats | None, Stats]:
        operands = self.reads(moments)
        ended, other = (None if group is None else _evaluated(*group, operands) for group in self.groups)
        if ended is None or other is None:
            target = ended if other is None else other
            assert target is not None
        else:
            target = tuple([a + b for a, b in zip(ended, other, strict=True)])
        return ended, target if self.project is None else self.project(target)


def _evaluated(known: list[Array], spots: list[list[tuple[Any, ...]]], operands: Operands) -> Stats:
    total = []
    for part, here in zip(known, spots, strict=True):
        for first, rest, spread in here:
            found = first(operands)
            for function in rest:
                found = found + function(operands)
            part = part + (found if spread is None else spread(found))
        total.append(part)
    return tuple(total)


class WrittenValue:
    """The sum of some monomials, each summed over all its axes."""

    def __init__(self, program: Program, pieces: Iterable[Piece], known: Known) -> None:
        self.reads, self.known, self.functions = Reads(known), 0.0, []
        for piece in pieces:
            for monomial in piece.monomials:
                scale = scale_of(monomial, [self.reads.reader(f) for f in monomial.factors], piece, ())
                product = _product(self.reads, monomial.factors, scale, (), lambda f: _shape(program, self.reads, f))
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
