"""Multiply the arrays of a network: what its mathematics asks of JAX, which compiles it, or of NumPy, which does it now.

Lowered polynomials, programs, updates and loops are written once, on a `Backend`. The two have the same methods, and differ in
how labelled arrays are multiplied, how what was gathered is added up, and how loops run. Here is that of NumPy: nothing is
compiled, and JAX is not imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from natgrad._jax import has_jax, require_jax
from natgrad.network.compile.plan import Plan, PlannedTerm
from natgrad.network.execute.addressing import FULL, Piece, Reader, View, segment_sum
from natgrad.network.execute.column_sums import ColumnSlopes
from natgrad.network.execute.contraction import product_of
from natgrad.network.execute.lower import Jobs
from natgrad.network.polynomial import Factor, Label, Monomial, Take
from natgrad.threads import one_blas_thread

if TYPE_CHECKING:
    from natgrad.network.execute.jax_backend import JaxBackend

__all__ = [
    "BACKENDS",
    "HOST",
    "Backend",
    "BackendChoice",
    "BackendName",
    "ColumnGradient",
    "NumpyBackend",
    "choose_backend",
    "make_backend",
    "sweeps_in_a_call",
]

Array = Any
Stats = tuple[Array, ...]
Moments = Mapping[str, Stats]
Known = Mapping[str, Array]
Labels = tuple[Label, ...]
BackendName = Literal["numpy", "jax"]
Backend: TypeAlias = "NumpyBackend | JaxBackend"
# Of a column by number, at moments and known arrays.
ColumnGradient = Callable[[Array, Moments, Known], Stats]
BACKENDS: tuple[BackendName, ...] = ("numpy", "jax")


class NumpyBackend:
    """Arrays, loops, values and gradients by NumPy; of every piece its products and their known parts are kept."""

    name: BackendName = "numpy"
    xp: Any = np  # functions of arrays
    keeps = True  # products of known arrays are multiplied once, for many calls

    def __init__(self) -> None:
        self.varies = False  # whether known arrays differ from call to call, as those of chunks do
        self._jobs = Jobs()
        self._columns: dict[Any, ColumnSlopes] = {}

    # -- polynomials --

    def value(self, piece: Piece, moments: Moments, known: Known, view: View = FULL) -> Array:
        """Σ over monomials of coefficient · product of factors, summed over every axis of the view."""
        return np.float64(self._jobs(piece, None, view).at(self, moments, known, view))

    def gradient(
        self,
        piece: Piece,
        name: str,
        moments: Moments,
        known: Known,
        view: View = FULL,
        column: tuple[int, Array] | None = None,
        occurrence: int | None = None,
    ) -> Stats:
        """The derivative of the value by the moments of a node; of one column (axis, number), or through one occurrence."""
        axis, number = (None, None) if column is None else column
        job = self._jobs(piece, name, view, axis, occurrence if column is None else None)
        gradient: Stats = job.at(self, moments, known, view, number)
        return gradient

    def column_gradient(self, piece: Piece, name: str, axis: int) -> ColumnGradient:
        """The gradient by columns that take turns, for one round of them; sums over the others are kept between turns."""
        key = (id(piece), name, axis, get_ident())  # each thread has sums of its own
        if key not in self._columns:
            self._columns[key] = ColumnSlopes(self, piece, name, axis)  # keeps the piece, which is known by its place
        self._columns[key].begin()
        return self._columns[key].at

    def product_of(
        self, out: Labels, inputs: tuple[Labels, ...], shapes: tuple[tuple[int, ...], ...]
    ) -> Callable[..., Array] | None:
        """The contraction of labelled arrays to ``out`` as a function of them; None for the one array as it is."""
        return product_of(out, inputs, shapes)

    def adjoint(self, reader: Reader, shape: tuple[int, ...], known: Known, view: View) -> Callable[[Array], Array]:
        """From a derivative by what a reader reads, over its distinct labels, to one by the array of that shape."""
        return reader.adjoint(shape, known, view)

    def inner(self, first: Array, second: Array) -> Array:
        """Σ of the products of two arrays of one shape."""
        return np.vdot(first, second) if np.ndim(first) else first * second

    def segment_sum(self, rows: Array, index: Array, size: int) -> Array:
        """Rows added up by the element that an index names."""
        return segment_sum(rows, index, size)

    # -- arrays and loops --

    def take_column(self, array: Array, number: Array, axis: int) -> Array:
        """One column along an axis, without the axis."""
        return array[(slice(None),) * axis + (number,)]

    def put_column(self, array: Array, piece: Array, number: Array, axis: int) -> Array:
        """The array with one column replaced."""
        return self.write_column(np.array(array), piece, number, axis)

    def own(self, array: Array) -> Array:
        """A copy for `write_column`, where arrays can be changed."""
        return np.array(array)

    def write_column(self, array: Array, piece: Array, number: Array, axis: int) -> Array:
        """The array with one column replaced, in place where arrays can be changed."""
        array[(slice(None),) * axis + (number,)] = piece
        return array

    def repeat(self, count: int, body: Callable[[Array, Any], Any], carry: Any) -> Any:
        """``body(number, carry)`` for 0 … count − 1."""
        for number in range(count):
            carry = body(number, carry)
        return carry

    def repeat_while(self, going: Callable[[Any], Array], body: Callable[[Any], Any], carry: Any) -> Any:
        """``body(carry)`` as long as ``going(carry)``."""
        while going(carry):
            carry = body(carry)
        return carry

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, ready to be called inside `running`."""
        return lambda *arguments: _arrays(function(*arguments))

    def put(self, array: Array) -> Array:
        """A known array where the backend wants it."""
        return array

    def running(self) -> AbstractContextManager[None]:
        """Around every call."""
        return _Running()


class _Running:
    """One thread of the matrix library, and a λ that is no more valid is told by the numbers, not by warnings."""

    def __enter__(self) -> None:
        self._one, self._quiet = one_blas_thread(), np.errstate(all="ignore")
        self._one.__enter__()
        self._quiet.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._quiet.__exit__(*error)
        self._one.__exit__(*error)


def _arrays(tree: Any) -> Any:
    """Numbers as arrays without axes, as JAX has them: a state is made of arrays, and so are files of it."""
    if isinstance(tree, dict):
        return {key: _arrays(part) for key, part in tree.items()}
    if isinstance(tree, tuple):
        parts = [_arrays(part) for part in tree]
        return tree._make(parts) if hasattr(tree, "_make") else tuple(parts)
    return np.asarray(tree) if isinstance(tree, np.generic) else tree


# For what is neither traced nor compiled, whatever backend a network has.
HOST = NumpyBackend()


# -- which of the two --

# The backend that is expected to be done first is chosen by an estimate of the work, which is a function of the plan alone,
# never of the clock: the same network always gives the same numbers.

# Sweeps of a fit: the mean of 45 of 46 networks that were fitted with their defaults; one takes as many as it may.
SWEEPS = 60
# Seconds of a sweep by NumPy, as measured in 2026 on two shared cores: for a product, for a number in it, for one that is read
# through an index, for one of λ, and for a time of a chain.
PER_PRODUCT, PER_NUMBER, PER_GATHERED, PER_HELD, PER_TIME = 6e-5, 1e-9, 7e-9, 3e-8, 1e-5
# Seconds that JAX takes to begin, and to compile a product; what a compiled sweep takes for a row that is read through an index,
# and the part of NumPy's seconds that it takes for the other numbers. Moments of λ (exp, digamma) take both as long: of 1.5
# million numbers a compiled sweep took 0.062 processor seconds, and an interpreted one 0.076.
STARTING, COMPILING, PER_ROW, COMPILED_PART = 1.5, 0.15, 1e-8, 0.25
# Numbers that take no time beside that of calling NumPy for their product: which of them are read is not looked at.
FEW_NUMBERS = 1_000
# Most sweeps that are made in one call, of a network whose compiled sweep is expected to take at most so many seconds: no longer
# than calling it.
MOST_AHEAD, SHORT_SWEEP = 32, 1e-3
WORDS: dict[BackendName, str] = {"numpy": "interpreted by NumPy", "jax": "compiled by JAX"}


class BackendChoice(NamedTuple):
    """The name of a backend, why it is this one, and the seconds that the sweeps of a fit would take NumPy."""

    name: BackendName
    words: str
    seconds: float


def choose_backend(plan: Plan, asked: BackendName | None = None, repeats: int = 1) -> BackendChoice:
    """The backend that was asked for, or the cheaper one; a sweep reads the plan's data, or ``repeats`` times as many."""
    if asked is not None and asked not in BACKENDS:
        raise ValueError(f'backend must be "numpy", "jax" or None, got {asked!r}')
    work = _work(plan)
    interpreted = SWEEPS * work.interpreted * repeats
    compiled = STARTING + COMPILING * work.products + SWEEPS * work.compiled * repeats
    cheaper: BackendName = "numpy" if interpreted <= compiled else "jax"
    if asked is not None and asked != cheaper:
        return BackendChoice(asked, f"{WORDS[asked]}, as asked", interpreted)
    if cheaper == "jax" and not has_jax():
        words = f"{WORDS['numpy']}: JAX, which would be faster here, is not installed"
        return BackendChoice("numpy", words, interpreted)
    words = f"{SWEEPS} sweeps of {work.products:,} products take about {interpreted:.1g} s, compiled {compiled:.1g} s"
    return BackendChoice(cheaper, f"{WORDS[cheaper]}: {words}", interpreted)


def sweeps_in_a_call(plan: Plan) -> int:
    """How many sweeps a call of the compiled program may make."""
    return MOST_AHEAD if _work(plan).compiled <= SHORT_SWEEP else 1


class _Work(NamedTuple):
    """Products of a sweep, one for each factor of a hidden node in each monomial, and seconds of a sweep by either backend."""

    products: int
    interpreted: float
    compiled: float


class _Reads(NamedTuple):
    """Products and numbers of a term in which a node is, and what is read through indices there.

    ``again`` are products and numbers of those monomials in which the node meets itself: they alone are multiplied anew for
    every column. NumPy keeps sums over the columns (`natgrad.network.execute.column_sums`); ``kept`` are its numbers.
    """

    products: int
    numbers: int
    gathered: set[Factor]
    again: tuple[int, int] = (0, 0)
    kept: int = 0


def _work(plan: Plan) -> _Work:
    count, seconds, rows = 0, 0.0, 0
    through_indices = held = spared = 0.0
    reads: dict[str, dict[str, _Reads]] = {}
    columns = {name: block.column_axis for name, block in plan.blocks.items()}
    for name, block in plan.blocks.items():
        node, turns = plan.nodes[name], block.n_columns
        held += PER_HELD * sum(math.prod(shape) for shape in node.stat_shapes())
        if node.plates != node.block_plates:
            seconds += PER_TIME * node.plates[-1].size
        for term in plan.terms_of(name):
            if term.node not in reads:
                reads[term.node] = _reads(term, columns)
            products, numbers, gathered, again, kept = reads[term.node].get(name, _Reads(0, 0, set()))
            read = sum(math.prod(term.sizes[label] for label in set(factor.labels)) for factor in gathered)
            count += products
            times = turns if block.column_axis is None or again[0] else 1
            if block.column_axis is None:
                again, kept = (products, numbers), numbers
            rows += times * sum(math.prod(term.sizes[label] for label in _taken(factor)) for factor in gathered)
            through_indices += PER_GATHERED * read * times
            seconds += PER_PRODUCT * (products + (turns - 1) * again[0])
            seconds += PER_NUMBER * (numbers + (turns - 1) * again[1])
            spared += PER_NUMBER * (turns - 1) * (again[1] - kept)
    dense = COMPILED_PART * max(
        0.0, seconds - PER_PRODUCT * count
    )  # calls of NumPy are what a compiled sweep has none of
    return _Work(count, seconds - spared + held + through_indices, dense + held + PER_ROW * rows)


def _reads(term: PlannedTerm, columns: Mapping[str, int | None]) -> dict[str, _Reads]:
    """By the node that is updated; of a sum of many terms the monomials are many, and gone through once."""
    reads: dict[str, _Reads] = {}
    everything = math.prod(term.sizes.values())
    for monomial in term.monomials:
        random = [factor for factor in monomial.factors if not factor.known]
        volume = everything
        if everything > FEW_NUMBERS:
            volume = _volume(monomial, [set(factor.labels) for factor in random], term.sizes)
        taken = [factor for factor in random if any(isinstance(axis, Take) for axis in factor.axes)]
        for factor in random:
            products, numbers, gathered, again, kept = reads.get(factor.source, _Reads(0, 0, set()))
            gathered.update(taken)
            others = [other for other in random if other is not factor]
            if any(other.source == factor.source for other in others):
                whole, one = _of_a_column(monomial, factor, others, columns.get(factor.source), term.sizes)
                again, kept = (again[0] + 1, again[1] + whole), kept + one
            reads[factor.source] = _Reads(products + 1, numbers + volume, gathered, again, kept)
    return reads


def _of_a_column(
    monomial: Monomial, factor: Factor, others: list[Factor], axis: int | None, sizes: Mapping[Label, int]
) -> tuple[int, int]:
    """Numbers of what the other factors say to one column of a factor; where the column that it meets is one of a sum, too."""
    label = None if axis is None else factor.axes[axis]
    met = {other.axes[axis] for other in others if other.source == factor.source} if axis is not None else set()

    def numbers(gone: set[Any]) -> int:
        rest = [set(other.labels) - gone for other in others]
        return _volume(monomial, [*rest, set().union(*rest).intersection(factor.labels)], sizes)

    return numbers({label}), numbers({label, *met})


def _volume(monomial: Monomial, labels: list[set[Label]], sizes: Mapping[Label, int]) -> int:
    """Numbers that a product of random factors with these labels goes through.

    Labels of one factor alone are summed out of it before it meets the others; what only known factors have is summed once and
    for all.
    """
    known = [set(factor.labels) for factor in monomial.factors if factor.known]
    everywhere = set().union(*labels)
    alone: set[Label] = set()
    for number, own in enumerate(labels):
        others = set().union(*labels[:number], *labels[number + 1 :])
        # A known factor that leads from such a label to others keeps it in the product.
        alone |= {x for x in own - others if all(x not in k or k & everywhere <= own for k in known)}
    together = math.prod(sizes[label] for label in everywhere - alone)
    if len(labels) < 2 or not alone:
        return math.prod(sizes[label] for label in everywhere)
    return together + sum(math.prod(sizes[label] for label in own) for own in labels if own & alone)


def _taken(factor: Factor) -> set[Label]:
    """The labels of the indices that a factor is read through."""
    return {label for axis in factor.axes if isinstance(axis, Take) for label in axis.labels}


def make_backend(name: BackendName) -> Backend:
    """A backend by its name; JAX takes a second and 200 MB to import, and is imported only for itself."""
    if name == "jax":
        require_jax('backend="jax"')
        from natgrad.network.execute.jax_backend import JaxBackend

        return JaxBackend()
    return NumpyBackend()
