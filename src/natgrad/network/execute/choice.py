"""Which backend: a plan in, the one that is expected to be done first out, and in words why.

The estimate is a function of the plan alone, never of the clock: the same network always gives the same numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from natgrad.network.compile.plan import Plan
from natgrad.network.compile.polynomial import Factor, Take
from natgrad.network.execute.backend import BACKENDS, Backend, BackendName
from natgrad.network.execute.numpy_backend import NumpyBackend

__all__ = ["BackendChoice", "choose_backend", "make_backend"]

SWEEPS = 100
# Seconds of a sweep by NumPy, as measured in 2026 on two shared cores: for a product, for a number in it, for one that is read
# through an index, for one of λ, and for a time of a chain.
PER_PRODUCT, PER_NUMBER, PER_GATHERED, PER_HELD, PER_TIME = 6e-5, 1e-9, 7e-9, 3e-8, 1e-5
# Seconds that JAX takes to begin, and to compile a product.
STARTING, COMPILING = 1.5, 0.15
WORDS: dict[BackendName, str] = {"numpy": "interpreted by NumPy", "jax": "compiled by JAX"}


class BackendChoice(NamedTuple):
    """The name of a backend, and why it is this one."""

    name: BackendName
    words: str


def choose_backend(plan: Plan, asked: BackendName | None = None, repeats: int = 1) -> BackendChoice:
    """The backend that was asked for, or the cheaper one; a sweep reads the plan's data, or ``repeats`` times as many."""
    if asked is not None and asked not in BACKENDS:
        raise ValueError(f'backend must be "numpy", "jax" or None, got {asked!r}')
    products, seconds = _work(plan)
    interpreted, compiled = SWEEPS * seconds * repeats, STARTING + COMPILING * products
    cheaper: BackendName = "numpy" if interpreted <= compiled else "jax"
    if asked is not None and asked != cheaper:
        return BackendChoice(asked, f"{WORDS[asked]}, as asked")
    words = f"{SWEEPS} sweeps of {products:,} products take about {interpreted:.1g} s, and compiling {compiled:.1g} s"
    return BackendChoice(cheaper, f"{WORDS[cheaper]}: {words}")


def _work(plan: Plan) -> tuple[int, float]:
    """Products of a sweep, one for each factor of a hidden node in each monomial, and the seconds that NumPy takes for them."""
    count, seconds = 0, 0.0
    for name, block in plan.blocks.items():
        node, turns = plan.nodes[name], block.n_columns
        seconds += PER_HELD * sum(math.prod(shape) for shape in node.stat_shapes())
        if node.plates != node.block_plates:
            seconds += PER_TIME * node.plates[-1].size
        for term in plan.terms_of(name):
            products = numbers = 0
            gathered: set[Factor] = set()
            for monomial in term.monomials:
                random = [factor for factor in monomial.factors if not factor.known]
                own = sum(factor.source == name for factor in random)
                # What only known factors have is summed once and for all.
                labels = {label for factor in random for label in factor.labels}
                products += own
                numbers += own * math.prod(term.sizes[label] for label in labels)
                gathered.update(f for f in random if own and any(isinstance(axis, Take) for axis in f.axes))
            read = sum(math.prod(term.sizes[label] for label in factor.labels) for factor in gathered)
            # One column of a product is a part of it; elements of one colour are not.
            numbers *= 1 if block.column_axis is not None else turns
            count += products
            seconds += PER_PRODUCT * products * turns + PER_NUMBER * numbers + PER_GATHERED * read * turns
    return count, seconds


def make_backend(name: BackendName) -> Backend:
    """A backend by its name; JAX takes a second and 200 MB to import, and is imported only for itself."""
    if name == "jax":
        from natgrad.network.execute.jax_backend import JaxBackend

        return JaxBackend()
    return NumpyBackend()
