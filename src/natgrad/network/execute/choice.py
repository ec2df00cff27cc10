"""Which backend: a plan in, the one that is expected to be done first out, and in words why.

The estimate is a function of the plan alone, never of the clock: the same network always gives the same numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from natgrad.network.compile.plan import Plan
from natgrad.network.execute.backend import BACKENDS, Backend, BackendName
from natgrad.network.execute.numpy_backend import NumpyBackend

__all__ = ["BackendChoice", "choose_backend", "make_backend"]

SWEEPS = 100
# Seconds, on a machine of 2024: of an interpreted product and for each number in it; of compiling one, and of JAX itself.
PER_PRODUCT, PER_NUMBER = 2e-5, 2e-9
COMPILING, STARTING = 0.05, 1.5
WORDS: dict[BackendName, str] = {"numpy": "interpreted by NumPy", "jax": "compiled by JAX"}


class BackendChoice(NamedTuple):
    """The name of a backend, and why it is this one."""

    name: BackendName
    words: str


def choose_backend(plan: Plan, asked: BackendName | None = None) -> BackendChoice:
    """The backend that was asked for, or the cheaper one."""
    if asked is not None and asked not in BACKENDS:
        raise ValueError(f'backend must be "numpy", "jax" or None, got {asked!r}')
    products, numbers = _work(plan)
    interpreted = SWEEPS * (PER_PRODUCT * products + PER_NUMBER * numbers)
    compiled = STARTING + COMPILING * products
    cheaper: BackendName = "numpy" if interpreted <= compiled else "jax"
    if asked is not None and asked != cheaper:
        return BackendChoice(asked, f"{WORDS[asked]}, as asked")
    words = f"{SWEEPS} sweeps of {products:,} products take about {interpreted:.1g} s, and compiling {compiled:.1g} s"
    return BackendChoice(cheaper, f"{WORDS[cheaper]}: {words}")


def _work(plan: Plan) -> tuple[int, int]:
    """Products of a sweep, one for each factor of a hidden node in each monomial, and the numbers they go over."""
    products = numbers = 0
    for term in plan.terms.values():
        for monomial in term.monomials:
            random = sum(not factor.known for factor in monomial.factors)
            products += random
            numbers += random * math.prod(term.sizes[label] for label in monomial.labels)
    return products, numbers


def make_backend(name: BackendName) -> Backend:
    """A backend by its name; JAX takes a second and 200 MB to import, and is imported only for itself."""
    if name == "jax":
        from natgrad.network.execute.jax_backend import JaxBackend

        return JaxBackend()
    return NumpyBackend()
