"""Lower pieces of a polynomial to products of arrays: the value, or the derivative by the moments of a node.

P is a sum of products of factors. The derivative by a factor is the product of the others, contracted to the axes of this one;
where the factor was read through an index, that is added up by the element that it reads.

A `Job` is the list of products, found once from the structure alone. Bound to known arrays and shapes it is a list of functions
of the moments: what only known numbers decide is added up once, and what goes back through the same indices is added up before
it is spread over the node. NumPy calls these functions, JAX traces them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from natgrad.network.compile.plan import PlannedTerm
from natgrad.network.execute.addressing import (
    COEFFICIENTS,
    FULL,
    SAMPLE,
    WHOLE,
    Layout,
    Piece,
    Reader,
    View,
    layout_of,
)
from natgrad.network.polynomial import Factor, Label, Monomial, Take, readings

if TYPE_CHECKING:
    from natgrad.network.execute.backend import Backend

__all__ = [
    "MOST_KEPT",
    "Bound",
    "Job",
    "Jobs",
    "Product",
    "Reads",
    "Unbound",
    "lower_others",
    "lower_product",
    "product_at",
    "times_unread",
]

Array = Any
Stats = tuple[Array, ...]
Labels = tuple[Label, ...]
Moments = Mapping[str, Stats]
Known = Mapping[str, Array]
Shape = tuple[int, ...]
# The operands of a job's functions: the number of the column that is wanted, then the arrays that were read.
Operands = list[Array]
Pack = Callable[[Monomial, Piece, Layout], Sequence[Factor | Reader] | None]
# Numbers that the product of known arrays may have; a larger one is multiplied at every call.
MOST_KEPT = 2**16


class Reads:
    """Reads the arrays of some products, each once.

    Either ``shapes`` gives the shapes of a node's statistics, or ``moments`` are read as they are asked for. What reads
    ``anew`` has known arrays among its operands, those of the next call among them (`again`).
    """

    def __init__(
        self,
        known: Known,
        view: View = FULL,
        shapes: Callable[[str], Sequence[Shape]] | None = None,
        moments: Moments | None = None,
        anew: bool = False,
    ) -> None:
        self.known, self.view, self.shapes, self.moments, self.anew = known, view, shapes, moments, anew
        self.layout = layout_of(view)
        self.first: Operands = [None]
        self._places: dict[Reader, int] = {}
        self._shapes: dict[Reader, Shape] = {}
        self._readers: dict[Factor, Reader] = {}
        self._found: list[tuple[str, int, Callable[[Array], Array] | None]] = []

    def reader(self, factor: Factor) -> Reader:
        """How a factor is read."""
        reader = self._readers.get(factor)
        if reader is None:
            reader = self._readers[factor] = Reader(factor, self.layout)
        return reader

    def place(self, reader: Reader) -> int:
        """The place of a random factor's array among the operands."""
        place = self._places.get(reader)
        if place is None and self.anew:
            assert self.moments is not None
            self.first.append(_array(reader, self.moments, self.known, self.view))
            place = self._places[reader] = len(self.first) - 1
        elif place is None:
            gather = reader.gather(self.known, self.view)
            self._found.append((reader.source, reader.stat, gather))
            place = self._places[reader] = len(self._found)
            if self.moments is not None:
                array = self.moments[reader.source][reader.stat]
                self.first.append(array if gather is None else gather(array))
        return place

    def again(self, moments: Moments, known: Known, view: View) -> Operands:
        """The operands at other moments, known arrays and positions of the same layout; for threads, nothing is kept."""
        return [None, *[_array(reader, moments, known, view) for reader in self._places]]

    def put(self, reader: Any, name: str, array: Array) -> int:
        """Give an array that the caller makes of a node's moments a place among the operands."""
        self.first.append(array)
        self._found.append((name, 0, None))
        place = self._places[reader] = len(self._found)
        return place

    def forget(self) -> None:
        """Drop the moments that were read first."""
        self.first, self.moments = [], None

    def shape(self, reader: Reader) -> Shape:
        """The shape of a random factor's array, gathers carried out."""
        if self.moments is not None:
            shape: Shape = self.first[self.place(reader)].shape
            return shape
        known_shape = self._shapes.get(reader)
        if known_shape is None:
            assert self.shapes is not None
            known_shape = self._shapes[reader] = reader.shape(self.shapes(reader.source)[reader.stat], self.known)
        return known_shape

    def __call__(self, moments: Moments, number: Array = None) -> Operands:
        return [
            number,
            *[
                moments[name][stat] if gather is None else gather(moments[name][stat])
                for name, stat, gather in self._found
            ],
        ]


class _Weight:
    """Stands for the weights of a sample among the factors."""

    labels: Labels = (SAMPLE,)
    known = True


WEIGHT = _Weight()


def _array(reader: Any, moments: Moments, known: Known, view: View) -> Array:
    """The array of a factor, known ones as numbers of 64 bits."""
    if reader is WEIGHT:
        assert view.weight is not None
        return view.weight.array
    array = reader.array(moments, known, view)
    return np.asarray(array, np.float64) if reader.known else array


class Product(NamedTuple):
    """A coefficient times factors, contracted to ``out``: a constant, or a function of the operands."""

    out: Labels
    constant: Array | None
    function: Callable[[Operands], Array] | None

    def at(self, xp: Any, operands: Operands, wanted: Labels) -> Array:
        """Its value, with axes of length one for wanted labels that it does not have."""
        value = self.constant if self.function is None else self.function(operands)
        return xp.asarray(value)[tuple(slice(None) if label in self.out else None for label in wanted)]


def lower_product(
    on: Backend, reads: Reads, readers: Iterable[Reader], scale: Array, wanted: Labels, cut: Label | None = None
) -> Product:
    """Lower the product of some factors, summed to the wanted labels; ``cut`` is a label of which one element is wanted."""
    random: list[Any] = []
    arrays, labels = [], []
    for reader in readers:
        if reader.known and not reads.anew:
            arrays.append(on.xp.asarray(reader.array({}, reads.known, reads.view), dtype="float64"))
            labels.append(reader.labels)
        else:
            random.append(reader)
    weight = reads.view.weight
    if weight is not None and not reads.anew:
        arrays.append(weight.array)
        labels.append(weight.labels)
    elif weight is not None:
        assert weight.labels == WEIGHT.labels
        random.append(WEIGHT)
    present = {x for names in labels for x in names}.union(*[reader.labels for reader in random]) if wanted else ()
    out = tuple(label for label in wanted if label in present and label != cut)
    if arrays and on.keeps and reads.view is FULL:
        needed = set(out).union((cut,), *[reader.labels for reader in random])
        arrays, labels, scale = _together(on, arrays, labels, needed, scale)
    labels += [reader.labels for reader in random]
    is_cut = cut is not None and any(cut in names for names in labels)
    if not labels:
        return Product(out, scale, None)
    places = [reads.place(reader) for reader in random]
    shapes = [*(a.shape for a in arrays), *map(reads.shape, random)]
    if is_cut:
        return Product(out, None, _of_column(on, out, arrays, labels, shapes, places, scale, cut))
    contract = on.product_of(out, tuple(labels), tuple(shapes))
    if not random:
        constant = arrays[0] if contract is None else contract(*arrays)
        return Product(out, constant if _is_one(scale) else scale * constant, None)
    return Product(out, None, _bound(contract, arrays, places, scale))


def product_at(
    on: Backend,
    factors: Iterable[Factor],
    moments: Moments,
    known: Known,
    wanted: Labels,
    scale: Array = 1.0,
    view: View = FULL,
) -> Array:
    """The product of some factors at some moments, with axes of length one for wanted labels that it does not have."""
    reads = Reads(known, view, moments=moments)
    product = lower_product(on, reads, map(reads.reader, factors), scale, wanted)
    return product.at(on.xp, reads.first, wanted)


def lower_others(
    on: Backend, reads: Reads, monomial: Monomial, piece: Piece | PlannedTerm, places: Collection[int], wanted: Labels
) -> Product:
    """Lower a monomial without the factors at some places: what these are multiplied with, over the wanted labels.

    Without one factor it is a message, without two an entry of the Hessian, without none the value.
    """
    others = [reads.reader(factor) for place, factor in enumerate(monomial.factors) if place not in places]
    scale = monomial.coefficient * times_unread(monomial, monomial.labels, piece)
    return lower_product(on, reads, others, scale, wanted)


def _is_one(scale: Array) -> bool:
    return isinstance(scale, float) and scale == 1.0


def _together(
    on: Backend, arrays: list[Array], labels: list[Labels], needed: set[Any], scale: float
) -> tuple[list[Array], list[Labels], float]:
    """Known arrays as one, with the coefficient, unless that would be much larger than they are."""
    sizes = {x: n for a, names in zip(arrays, labels, strict=True) for x, n in zip(names, a.shape, strict=True)}
    together = tuple(label for label in sizes if label in needed)
    if len(arrays) > 1 and math.prod(sizes[x] for x in together) > max(MOST_KEPT, 2 * max(a.size for a in arrays)):
        return arrays, labels, scale
    if len(arrays) > 1 or together != labels[0]:
        contract = on.product_of(together, tuple(labels), tuple(a.shape for a in arrays))
        assert contract is not None
        arrays = [contract(*arrays)]
    return [arrays[0] if scale == 1.0 else scale * arrays[0]], [together], 1.0


def _bound(
    contract: Callable[..., Array] | None, arrays: list[Array], places: list[int], scale: Array
) -> Callable[[Operands], Array]:
    """A contraction as a function of the operands, whose usual cases are single calls; None is the one operand itself."""
    first, one = places[0], _is_one(scale)
    if contract is None:
        return (lambda x: x[first]) if one else (lambda x: scale * x[first])
    if one and len(arrays) == 1 and len(places) == 1:
        constant = arrays[0]
        return lambda x: contract(constant, x[first])
    if not arrays and len(places) == 1:
        return (lambda x: contract(x[first])) if one else (lambda x: scale * contract(x[first]))
    if not arrays and len(places) == 2:
        second = places[1]
        return (lambda x: contract(x[first], x[second])) if one else (lambda x: scale * contract(x[first], x[second]))
    if one:
        return lambda x: contract(*arrays, *[x[p] for p in places])
    return lambda x: scale * contract(*arrays, *[x[p] for p in places])


def _of_column(
    on: Backend, out: Labels, arrays: list[Array], labels: list[Labels], shapes: list[Shape], places: list[int],
    scale: Array, cut: Label | None,
) -> Callable[[Operands], Array]:  # fmt: skip
    """The same with one element of a label in place of all, wherever it stands."""
    axes = [[axis for axis, x in enumerate(names) if x == cut][::-1] for names in labels]
    contract = on.product_of(
        out,
        tuple(tuple(x for x in names if x != cut) for names in labels),
        tuple(
            tuple(n for n, x in zip(shape, names, strict=True) if x != cut)
            for shape, names in zip(shapes, labels, strict=True)
        ),
    )

    def function(x: Operands) -> Array:
        operands = [*arrays, *[x[p] for p in places]]
        for n, own in enumerate(axes):
            for axis in own:
                operands[n] = on.take_column(operands[n], x[0], axis)
        return scale * (operands[0] if contract is None else contract(*operands))

    return function


def times_unread(
    monomial: Monomial, labels: Iterable[Label], piece: Piece | PlannedTerm, zipped: Iterable[str] = ()
) -> float:
    """How often the monomial is there along plates that none of its factors, which have these labels, has."""
    counted = {*labels, *zipped, *monomial.counted}
    return float(math.prod(piece.sizes[label] for label in piece.plates if label not in counted))


class _Entry(NamedTuple):
    """One factor left out of one monomial: the others, and where their product goes."""

    reader: Reader | None  # of the factor, without the axis of the column; None for a value
    others: list[Reader]
    scale: float
    place: int | None  # of the coefficient among the known ones
    cut: Label | None  # along which the column is singled out
    whole: bool  # whether the column is taken from the derivative by all of them, where no label singles it out


class Job:
    """The products of some pieces: their value, or the derivative by the moments of a node.

    Parameters
    ----------
    pieces : monomials of terms
    name : the node; None for the value
    layout : of the views that the job will be called with
    axis : along which one column is wanted; None for all
    occurrence : of several readings of the node in one term, the one that is differentiated
    stats : the statistics that are wanted; None for all
    readers : known ones by factor, shared by jobs of one layout
    packed : readers of a monomial whose squares of known rows are packed, or None; optional
    """

    def __init__(
        self,
        pieces: Iterable[Piece],
        name: str | None = None,
        layout: Layout = WHOLE,
        axis: int | None = None,
        occurrence: int | None = None,
        stats: Sequence[int] | None = None,
        readers: dict[Any, Reader] | None = None,
        packed: Pack | None = None,
    ) -> None:
        self.pieces = list(pieces)  # kept: a job may be known by the place of its piece in memory
        self.name, self.layout, self.axis, self.stats = name, layout, axis, stats
        self._readers: dict[Any, Reader] = {} if readers is None else readers
        self.entries: list[_Entry] = []
        self.kept: Bound | None = None
        self.changing: Bound | None = None
        for piece in self.pieces:
            for monomial in piece.monomials:
                self._add(piece, monomial, occurrence, packed)

    def _add(self, piece: Piece, monomial: Monomial, occurrence: int | None, pack: Pack | None) -> None:
        if self.name is not None and not _touches(monomial, self.name):
            return
        packed = None if pack is None else pack(monomial, piece, self.layout)
        factors: Sequence[Any] = monomial.factors if packed is None else packed
        readers = [f if isinstance(f, Reader) else self._reader(f) for f in factors]
        labels = {label for reader in readers for label in reader.labels}
        scale = monomial.coefficient if monomial.place is None else 1.0
        scale *= times_unread(monomial, labels, piece, self.layout.zipped)
        if self.name is None:
            self.entries.append(_Entry(None, readers, scale, monomial.place, None, False))
            return
        if packed is None:
            places = readings(monomial, self.name, occurrence, piece.symmetric)
        else:
            places = [
                (n, 1.0)
                for n, r in enumerate(readers)
                if not r.known and r.source == self.name and occurrence in (None, r.factor.occurrence)
            ]
        for place, times in places:
            if self.stats is None or readers[place].stat in self.stats:
                others = [*readers[:place], *readers[place + 1 :]]
                self.entries.append(self._entry(readers[place], others, scale * times, monomial.place))

    def _reader(self, factor: Factor, gone: int | None = None) -> Reader:
        key = (factor, gone)
        reader = self._readers.get(key)
        if reader is None:
            reader = self._readers[key] = Reader(factor, self.layout, gone)
        return reader

    def _entry(self, reader: Reader, others: list[Reader], scale: float, place: int | None) -> _Entry:
        cut = None if self.axis is None else self._column_label(reader)
        if cut is not None:
            assert self.axis is not None
            factor = reader.factor
            rest = factor._replace(axes=(*factor.axes[: self.axis], *factor.axes[self.axis + 1 :]), occurrence=0)
            if reader.packed is None:
                reader = self._reader(rest, self.axis)
            else:
                reader = Reader(rest, self.layout, self.axis, reader.packed)
        return _Entry(reader, others, scale, place, cut, self.axis is not None and cut is None)

    def _column_label(self, reader: Reader) -> Label | None:
        """The label along which columns lie in a factor, if it reads them as they are."""
        assert self.axis is not None
        label = reader.factor.axes[self.axis]
        moved = any(key == (reader.source, self.axis) for key, _ in self.layout.moved)
        if isinstance(label, Take) or label in self.layout.zipped or label == self.layout.window or moved:
            return None
        return label if reader.labels.count(label) == 1 else None

    def bind(self, on: Backend, reads: Reads, shapes: Sequence[Shape] = ()) -> Bound:
        """The job as functions of the moments; ``shapes`` are those of the node's statistics, all columns among them."""
        return Bound(on, self, reads, shapes)

    def at(self, on: Backend, moments: Moments, known: Known, view: View = FULL, number: Array = None) -> Any:
        """The job at some moments: a number, or statistics."""
        kept = self.kept
        if kept is not None and view is FULL and kept.fits(known):
            operands = kept.reads(moments, number)
            if [getattr(x, "shape", ()) for x in operands[1:]] == kept.read_shapes:
                return kept.of(operands)
        shapes = [] if self.name is None else [part.shape for part in moments[self.name]]
        # Whether products are made in advance must not hang on which chunk came first: they are rounded otherwise.
        varies = on.varies or any(piece.varies for piece in self.pieces)
        keeps = on.keeps and view is FULL and kept is None and not varies
        if on.keeps and not keeps:
            return self._anew(on, moments, known, view, number, shapes)
        reads = Reads(known, view, moments=moments)
        bound = self.bind(on, reads, shapes)
        operands = reads.first
        operands[0] = number
        if keeps:
            reads.forget()
            bound.read_shapes = [getattr(x, "shape", ()) for x in operands[1:]]
            self.kept = bound  # when it is whole: threads share a job
        return bound.of(operands)

    def _anew(self, on: Backend, moments: Moments, known: Known, view: View, number: Array, shapes: list[Shape]) -> Any:
        """The same with known arrays that differ from call to call: they are read and multiplied like the others."""
        bound = self.changing
        operands = [] if bound is None else bound.reads.again(moments, known, view)
        if bound is None or [shapes, *[x.shape for x in operands[1:]]] != bound.read_shapes:
            reads = Reads(known, view, moments=moments, anew=True)
            bound = self.bind(on, reads, shapes)
            operands = reads.first
            bound.read_shapes = [shapes, *[x.shape for x in operands[1:]]]
            reads.forget()
            self.changing = bound
        operands[0] = number
        return bound.of(operands, known, view)


class Spot(NamedTuple):
    """Products that are added up: those of one statistic with the same axes, or that go back through the same indices."""

    stat: int
    functions: list[Callable[[Operands], Array]]
    spread: Callable[..., Array] | None
    windowed: tuple[int, ...]  # axes of the statistic along which this is cut to the window
    whole: bool

    def value(self, operands: Operands, *at: Any) -> Array:
        """The sum of the products, at the axes of the statistic."""
        value = self.functions[0](operands)
        for function in self.functions[1:]:
            value = value + function(operands)
        return value if self.spread is None else self.spread(value, *at)


class Bound:
    """A job with its known arrays: a constant part for each statistic, and functions of the operands."""

    def __init__(self, on: Backend, job: Job, reads: Reads, shapes: Sequence[Shape]) -> None:
        self.on, self.job, self.reads, self.axis = on, job, reads, job.axis
        self.read_shapes: list[Any] = []
        cut = job.axis
        self.shapes = [tuple(s) if cut is None else (*s[:cut], *s[cut + 1 :]) for s in shapes]
        self.known: list[Array] = [0.0 for _ in shapes] or [0.0]
        self.spots: list[Spot] = []
        spots: dict[Any, tuple[Spot, list[Array]]] = {}
        for entry in job.entries:
            scale = entry.scale
            if entry.place is not None:
                scale = scale * reads.known[COEFFICIENTS][entry.place]
            wanted = () if entry.reader is None else entry.reader.distinct
            product = lower_product(on, reads, entry.others, scale, wanted, entry.cut)
            spot, constants = self._spot(entry, product.out, spots, shapes)
            if product.function is not None:
                spot.functions.append(product.function)
            elif spot.whole or reads.anew or reads.view.window is not None:
                constant = product.constant
                spot.functions.append(lambda x, constant=constant: constant)  # type: ignore[misc]
            else:
                constants.append(product.constant)
        for spot, constants in spots.values():
            if constants:
                total = constants[0]
                for constant in constants[1:]:
                    total = total + constant
                whole = total if spot.spread is None else spot.spread(on.xp.asarray(total))
                self.known[spot.stat] = self.known[spot.stat] + whole
            if spot.functions:
                self.spots.append(spot)

    def _spot(
        self, entry: _Entry, out: Labels, spots: dict[Any, tuple[Spot, list[Array]]], shapes: Sequence[Shape]
    ) -> tuple[Spot, list[Array]]:
        reader = entry.reader
        if reader is None:
            return spots.setdefault(None, (Spot(0, [], None, (), False), []))
        as_it_is = reader.plain and not entry.whole
        key = (reader.stat, out, reader.windowed) if as_it_is else (reader, out, entry.whole)
        if key not in spots:
            shape = tuple(shapes[reader.stat]) if entry.whole else self.shapes[reader.stat]
            spread = self._spread(reader, out, shape)
            spots[key] = Spot(reader.stat, [], spread, reader.windowed, entry.whole), []
        return spots[key]

    def _spread(self, reader: Reader, out: Labels, shape: Shape) -> Callable[..., Array] | None:
        """From the axes of a product to those of the statistic."""
        axes = tuple(slice(None) if label in out else None for label in reader.distinct)
        if not reader.plain:
            view, xp = self.reads.view, self.on.xp
            if reader.windowed:
                assert view.window is not None
                length = view.window[2]
                shape = tuple(length if axis in reader.windowed else n for axis, n in enumerate(shape))
            if self.reads.anew:
                adjoint = self.on.adjoint
                return lambda a, known, view: adjoint(reader, shape, known, view)(xp.asarray(a)[axes])
            back = self.on.adjoint(reader, shape, self.reads.known, view)
            return (lambda a: back(xp.asarray(a)[axes])) if None in axes else back
        # Axes of length one in front are there by themselves.
        first = next((n for n, axis in enumerate(axes) if axis is not None), len(axes))
        return (lambda a, *at: a[axes]) if None in axes[first:] else None

    def fits(self, known: Known) -> bool:
        """Whether these are the known arrays that it was bound to."""
        bound = self.reads.known
        if known is bound:
            return True
        return all(known[source] is bound[source] for source in self._sources())

    def _sources(self) -> tuple[str, ...]:
        sources = self.__dict__.get("_known_sources")
        if sources is None:
            readers = [r for e in self.job.entries for r in (e.reader, *e.others) if r is not None]
            named = [name for r in readers for name in (*r.indices, *((r.source,) if r.known else ()))]
            sources = self.__dict__["_known_sources"] = tuple(dict.fromkeys(named))
        return sources

    def of(self, operands: Operands, *at: Any) -> Any:
        """The value, or the derivative by every statistic at its full shape; ``at`` the known arrays and view of this call."""
        if self.job.name is None:
            total = self.known[0]
            for spot in self.spots:
                for function in spot.functions:
                    total = total + function(operands)
            return total
        return self.filled(self.added(operands, None, *at))

    def filled(self, total: Sequence[Array]) -> Stats:
        """Derivatives at the full shapes of the statistics."""
        zeros = self.on.xp.zeros
        return tuple(
            part if part.__class__ is not float and part.shape == shape else zeros(shape) + part
            for part, shape in zip(total, self.shapes, strict=True)
        )

    def added(self, operands: Operands, known: Sequence[Array] | None = None, *at: Any) -> list[Array]:
        """The derivative by each statistic, which may lack axes along which it does not vary."""
        total = list(self.known if known is None else known)
        for spot in self.spots:
            value = spot.value(operands, *at)
            if spot.whole:
                value = self.on.take_column(value, operands[0], self.axis)  # type: ignore[arg-type]
            total[spot.stat] = total[spot.stat] + value
        return total

    def in_window(self, operands: Operands) -> dict[tuple[int, tuple[int, ...], bool], Array]:
        """Contributions to the derivative, by statistic, the axes along which they are cut to the window, and `Spot.whole`."""
        parts: dict[tuple[int, tuple[int, ...], bool], Array] = {}
        for spot in self.spots:
            value, key = spot.value(operands), (spot.stat, spot.windowed, spot.whole)
            parts[key] = parts[key] + value if key in parts else value
        return parts

    def add(self, moments: Moments, total: Sequence[Array]) -> list[Array]:
        """The derivative by each statistic but for `known`, added to a total."""
        return self.added(self.reads(moments), total)

    def __call__(self, moments: Moments) -> Any:
        return self.of(self.reads(moments))


class Unbound:
    """The same of pieces that are read and multiplied at every call: those that are traced, or whose known arrays change."""

    spots = (None,)  # nothing is a constant

    def __init__(
        self, on: Backend, pieces: Iterable[Piece], name: str | None, known: Known, shapes: Sequence[Shape]
    ) -> None:
        self.on, self.name, self.at, self.shapes = on, name, known, shapes
        self.known: list[Array] = [0.0 for _ in shapes] or [0.0]
        self.pieces = [piece for piece in pieces if any(name is None or _touches(m, name) for m in piece.monomials)]

    def add(self, moments: Moments, total: Sequence[Array]) -> list[Array]:
        """The derivative by each statistic, added to a total."""
        assert self.name is not None
        for piece in self.pieces:
            gradient = self.on.gradient(piece, self.name, moments, self.at)
            total = [a + b for a, b in zip(total, gradient, strict=True)]
        return list(total)

    def __call__(self, moments: Moments) -> Any:
        zeros = self.on.xp.zeros
        if self.name is None:
            return sum([self.on.value(piece, moments, self.at) for piece in self.pieces], zeros(()))
        return tuple(self.add(moments, [zeros(shape) for shape in self.shapes]))


def _touches(monomial: Monomial, name: str) -> bool:
    return any(factor.source == name and not factor.known for factor in monomial.factors)


class Jobs:
    """Finds the job of a piece, once for each layout of views."""

    def __init__(self, packed: Pack | None = None) -> None:
        self.packed = packed
        self._jobs: dict[Any, Job] = {}

    def __call__(
        self, piece: Piece, name: str | None, view: View, axis: int | None = None, occurrence: int | None = None
    ) -> Job:
        layout = layout_of(view)
        # By its place in memory, where its job keeps it: a piece is long, and comparing it would take longer than a sweep.
        key = (id(piece), name, layout, axis, occurrence)
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = Job([piece], name, layout, axis, occurrence, packed=self.packed)
        return job
