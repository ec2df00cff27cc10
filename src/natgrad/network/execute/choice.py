"""Which backend: a plan in, the one that is expected to be done first out, and in words why.

The estimate is a function of the plan alone, never of the clock: the same network always gives the same numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from natgrad._jax import has_jax, require_jax
from natgrad.network.compile.plan import Plan, PlannedTerm
from natgrad.network.compile.polynomial import Factor, Label, Take
from natgrad.network.execute.backend import BACKENDS, Backend, BackendName
from natgrad.network.execute.numpy_backend import NumpyBackend

__all__ = ["BackendChoice", "choose_backend", "make_backend", "sweeps_in_a_call"]

# Sweeps of a fit: the mean of 45 of the 46 networks of `benchmarks/stopping.py`; one takes as many as it may.
SWEEPS = 60
# Seconds of a sweep by NumPy, as measured in 2026 on two shared cores: for a product, for a number in it, for one that is read
# through an index, for one of λ, and for a time of a chain.
PER_PRODUCT, PER_NUMBER, PER_GATHERED, PER_HELD, PER_TIME = 6e-5, 1e-9, 7e-9, 3e-8, 1e-5
# Seconds that JAX takes to begin, and to compile a product; what a compiled sweep takes for a row that is read through an index,
# and the part of NumPy's seconds that it takes for the other numbers.
STARTING, COMPILING, PER_ROW, COMPILED_PART = 1.5, 0.15, 1e-8, 0.25
# Most sweeps that are made in one call, of a network whose compiled sweep is expected to take at most so many seconds: no longer
# than calling it.
MOST_AHEAD, SHORT_SWEEP = 32, 1e-3
WORDS: dict[BackendName, str] = {"numpy": "interpreted by NumPy", "jax": "compiled by JAX"}


class BackendChoice(NamedTuple):
    """The name of a backend, and why it is this one."""

    name: BackendName
    words: str


def choose_backend(plan: Plan, asked: BackendName | None = None, repeats: int = 1) -> BackendChoice:
    """The backend that was asked for, or the cheaper one; a sweep reads the plan's data, or ``repeats`` times as many."""
    if asked is not None and asked not in BACKENDS:
        raise ValueError(f'backend must be "numpy", "jax" or None, got {asked!r}')
    work = _work(plan)
    interpreted = SWEEPS * work.interpreted * repeats
    compiled = STARTING + COMPILING * work.products + SWEEPS * work.compiled * repeats
    cheaper: BackendName = "numpy" if interpreted <= compiled else "jax"
    if asked is not None and asked != cheaper:
        return BackendChoice(asked, f"{WORDS[asked]}, as asked")
    if cheaper == "jax" and not has_jax():
        return BackendChoice("numpy", f"{WORDS['numpy']}: JAX, which would be faster here, is not installed")
    words = f"{SWEEPS} sweeps of {work.products:,} products take about {interpreted:.1g} s, compiled {compiled:.1g} s"
    return BackendChoice(cheaper, f"{WORDS[cheaper]}: {words}")


def sweeps_in_a_call(plan: Plan) -> int:
    """How many sweeps a call of the compiled program may make."""
    return MOST_AHEAD if _work(plan).compiled <= SHORT_SWEEP else 1


class _Work(NamedTuple):
    """Products of a sweep, one for each factor of a hidden node in each monomial, and seconds of a sweep by either backend."""

    products: int
    interpreted: float
    compiled: float


class _Reads(NamedTuple):
    """Products and numbers of a term in which a node is, and what is read through indices there."""

    products: int
    numbers: int
    gathered: set[Factor]


def _work(plan: Plan) -> _Work:
    count, seconds, rows = 0, 0.0, 0
    through_indices = 0.0
    reads: dict[str, dict[str, _Reads]] = {}
    for name, block in plan.blocks.items():
        node, turns = plan.nodes[name], block.n_columns
        seconds += PER_HELD * sum(math.prod(shape) for shape in node.stat_shapes())
        if node.plates != node.block_plates:
            seconds += PER_TIME * node.plates[-1].size
        for term in plan.terms_of(name):
            if term.node not in reads:
                reads[term.node] = _reads(term)
            products, numbers, gathered = reads[term.node].get(name, (0, 0, set()))
            read = sum(math.prod(term.sizes[label] for label in factor.labels) for factor in gathered)
            # One column of a product is a part of it; elements of one colour are not.
            numbers *= 1 if block.column_axis is not None else turns
            count += products
            rows += turns * sum(math.prod(term.sizes[label] for label in _taken(factor)) for factor in gathered)
            through_indices += PER_GATHERED * read * turns
            seconds += PER_PRODUCT * products * turns + PER_NUMBER * numbers
    dense = COMPILED_PART * max(
        0.0, seconds - PER_PRODUCT * count
    )  # calls of NumPy are what a compiled sweep has none of
    return _Work(count, seconds + through_indices, dense + PER_ROW * rows)


def _reads(term: PlannedTerm) -> dict[str, _Reads]:
    """By the node that is updated; of a sum of many terms the monomials are many, and gone through once."""
    reads: dict[str, _Reads] = {}
    for monomial in term.monomials:
        random = [factor for factor in monomial.factors if not factor.known]
        # What only known factors have is summed once and for all.
        labels = {label for factor in random for label in factor.labels}
        volume = math.prod(term.sizes[label] for label in labels)
        taken = [factor for factor in random if any(isinstance(axis, Take) for axis in factor.axes)]
        for factor in random:
            products, numbers, gathered = reads.get(factor.source, (0, 0, set()))
            gathered.update(taken)
            reads[factor.source] = _Reads(products + 1, numbers + volume, gathered)
    return reads


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
