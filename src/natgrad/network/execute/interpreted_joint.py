"""The quadratic function of some means, for NumPy: what is written out of a network in; its gradient and curvature out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from natgrad.network.compile.polynomial import Monomial
from natgrad.network.execute.addressing import Piece
from natgrad.network.execute.backend import Quadratic, squared
from natgrad.network.execute.written_out import Parts, Writer

__all__ = ["InterpretedQuadratic"]

Array = Any
Means = dict[str, Array]


class InterpretedQuadratic:
    """∂/∂m = G₁ + 2 G₂ m. Where two means meet, G₁ is linear in them; G₂ has none of them: every term is quadratic."""

    def __init__(self, written: Writer, names: tuple[str, ...], pieces: Sequence[Piece]) -> None:
        mixed = [piece._replace(monomials=tuple(m for m in piece.monomials if _meets(m, names))) for piece in pieces]
        self.whole = {name: written.target_of(written.program.plan.blocks[name], None) for name in names}
        self.lines = {name: Parts(name, mixed, written.known, written.shapes, stats=(0,)) for name in names}

    def __call__(self, start: Means, spread: Means, moments: Mapping[str, Any], known: Any) -> Quadratic:
        here = {**moments, **{n: (m, spread[n] + squared(m, spread[n])) for n, m in start.items()}}
        found = {n: self.whole[n](here) for n in start}
        second = {n: found[n][1] for n in start}

        def curvature(means: Means) -> Means:
            here = {**moments, **{n: (m, spread[n]) for n, m in means.items()}}
            return {n: self.lines[n](here)[0] + _twice(second[n], m) for n, m in means.items()}

        residual = {n: found[n][0] + _twice(second[n], m) for n, m in start.items()}
        return Quadratic(second, residual, curvature)


def _meets(monomial: Monomial, names: tuple[str, ...]) -> bool:
    return sum(factor.source in names and not factor.known for factor in monomial.factors) > 1


def _twice(second: Array, mean: Array) -> Array:
    """∂⟨G, m mᵀ⟩/∂m = (G + Gᵀ) m."""
    if second.ndim == mean.ndim:
        return 2.0 * second * mean
    return ((second + np.swapaxes(second, -1, -2)) @ mean[..., None])[..., 0]
