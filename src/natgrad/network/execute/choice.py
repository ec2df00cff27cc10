"""Which backend: a plan in, the one that is expected to be done first out, and in words why.

The estimate is a function of the plan alone, never of the clock: the same network always gives the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from natgrad._jax import has_jax, require_jax
from natgrad.network.compile.plan import Plan, PlannedTerm
from natgrad.network.execute.backend import BACKENDS, Backend, BackendName, NumpyBackend
from natgrad.network.polynomial import Factor, Label, Monomial, Take

__all__ = ["BackendChoice", "choose_backend", "make_backend", "sweeps_in_a_call"]

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
