"""Means that are solved together, for NumPy: what is written out of a network in; their joint optimum out (`joint.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from natgrad.network.execute.addressing import Piece
from natgrad.network.execute.backend import Quadratic, squared
from natgrad.network.execute.joint import MOST, ROUNDING, SHRUNK, SMALL, inverse_of
from natgrad.network.execute.lower import Bound
from natgrad.network.execute.written_out import Writer
from natgrad.network.polynomial import Monomial

__all__ = ["InterpretedMeans"]

Array = Any
Means = dict[str, Array]


class InterpretedMeans:
    """The means of a group at their joint optimum. All of them lie in one vector: its sums and products are single calls."""

    def __init__(self, written: Writer, names: tuple[str, ...], pieces: Sequence[Piece]) -> None:
        blocks = written.program.plan.blocks
        self.names, self.quadratic = names, _Quadratic(written, names, pieces)
        self.families = {name: blocks[name].family for name in names}
        shapes = [written.shapes(name)[0] for name in names]
        ends = np.cumsum([0, *map(math.prod, shapes)]).tolist()
        self.places = [(n, slice(*at), s) for n, at, s in zip(names, pairwise(ends), shapes, strict=True)]
        self.scalars = all(not family.event_ndim for family in self.families.values())

    def __call__(self, lam: Mapping[str, Any], mu: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], int]:
        """λ and moments of the group after the solve, and how many gradients it took."""
        spread = {n: self._spread(f, lam[n]) for n, f in self.families.items()}
        start = {n: mu[n][0] for n in self.names}
        solution, count = self._solved(self.quadratic(start, spread, mu), start)
        if not np.isfinite(solution).all():
            solution = self._joined(start)
        means = self._apart(solution)
        stats = {n: (m, spread[n] + squared(m, spread[n])) for n, m in means.items()}
        return {n: f.centred(means[n], lam[n]) for n, f in self.families.items()}, stats, count

    def _spread(self, family: Any, lam: Any) -> Array:
        """The second moment of a Gaussian with mean zero, which is its covariance."""
        if self.scalars and lam[0].shape == lam[1].shape:
            return 1.0 / (-2.0 * lam[1])
        return family._moments((np.zeros_like(lam[0]), lam[1]))[0][1]

    def _inverse(self, precisions: Means, start: Means) -> Callable[[Array], Array]:
        if self.scalars:
            flat = self._joined(precisions)
            factor = np.where(flat > 0, 1.0 / flat, 0.0)
            return lambda vector: factor * vector
        one_by_one = inverse_of(np, precisions, start)
        return lambda vector: self._joined(one_by_one(self._apart(vector)))

    def _solved(self, function: Quadratic, start: Means) -> tuple[Array, int]:
        """As in `joint.py`: conjugate gradients with the precisions as preconditioner."""
        precisions = {n: -2.0 * second for n, second in function.by_second.items()}
        inverse = self._inverse(precisions, start)

        def curvature(vector: Array) -> Array:
            return self._joined(function.curvature(self._apart(vector)))

        residual, means = self._joined(function.residual), self._joined(start)
        direction = inverse(residual)
        size = float(residual @ direction)
        enough = max(SHRUNK * size, SMALL)
        # A matrix without negative eigenvalues is at most as many times its diagonal as it has rows. Only a residual that is
        # not above what that makes of the rounding needs to be compared with the rounding itself, which costs a gradient.
        if not self.scalars or not size > ROUNDING * len(means) * float(means**2 @ self._joined(precisions)):
            enough = max(enough, -ROUNDING * float(means @ curvature(means)))
        count = 1
        while size > enough and count < MOST:
            curved = curvature(direction)
            length = -size / float(direction @ curved)
            means = means + length * direction
            residual = residual + length * curved
            scaled = inverse(residual)
            before, size = size, float(residual @ scaled)
            direction = scaled + (size / before) * direction
            count += 1
        return means, count

    def _joined(self, parts: Means) -> Array:
        return np.concatenate([parts[name].reshape(-1) for name in self.names])

    def _apart(self, vector: Array) -> Means:
        return {name: vector[place].reshape(shape) for name, place, shape in self.places}


class _Quadratic:
    """∂/∂m = G₁ + 2 G₂ m. Where two means meet, G₁ is linear in them; G₂ has none of them: every term is quadratic."""

    def __init__(self, written: Writer, names: tuple[str, ...], pieces: Sequence[Piece]) -> None:
        mixed = [piece._replace(monomials=tuple(m for m in piece.monomials if _meets(m, names))) for piece in pieces]
        self.whole = {name: written.target_of(written.program.plan.blocks[name], None) for name in names}
        self.lines = {name: written.bound(mixed, name, stats=(0,)) for name in names}

    def __call__(self, start: Means, spread: Means, moments: Mapping[str, Any]) -> Quadratic:
        here = {**moments, **{n: (m, spread[n] + squared(m, spread[n])) for n, m in start.items()}}
        targets = {n: self.whole[n](here) for n in start}
        second = {n: targets[n][1] for n in start}

        def curvature(means: Means) -> Means:
            here = {**moments, **{n: (m, spread[n]) for n, m in means.items()}}
            return {n: _first(self.lines[n], here) + _twice(second[n], m) for n, m in means.items()}

        residual = {n: targets[n][0] + _twice(second[n], m) for n, m in start.items()}
        return Quadratic(second, residual, curvature)


def _first(line: Bound, moments: Mapping[str, Any]) -> Array:
    return line.added(line.reads(moments))[0]


def _meets(monomial: Monomial, names: tuple[str, ...]) -> bool:
    return sum(factor.source in names and not factor.known for factor in monomial.factors) > 1


def _twice(second: Array, mean: Array) -> Array:
    """∂⟨G, m mᵀ⟩/∂m = (G + Gᵀ) m."""
    if second.ndim == mean.ndim:
        return 2.0 * second * mean
    return ((second + np.swapaxes(second, -1, -2)) @ mean[..., None])[..., 0]
