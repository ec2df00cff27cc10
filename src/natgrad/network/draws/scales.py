"""Precisions of Gaussian nodes that are drawn together, with these nodes integrated out.

A chain that draws a scale given its effects, and the effects given the scale, creeps where the scale is near zero: each holds the
other. Given everything else, the effects x of a precision t are Gaussian, and can be integrated out,

    log p(t | rest) = ⟨λ₀, φ(t)⟩ + ½ bᵀA⁻¹b − ½ log|A| + const,

with A and b of their conditional at t, and λ₀ the conditional of t where all terms that have x are left out. t is drawn by slice
sampling of log t (Neal, 2003), and x right after it: together they are one draw of (t, x).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import Block
from natgrad.inference.slicing import sliced
from natgrad.network.draws.gaussian import GaussianDraw
from natgrad.network.execute.problem import NetworkProblem

__all__ = ["ScaleDraw", "scales_of"]

Array = npt.NDArray[Any]
Stats = tuple[Any, ...]
# A matrix is factorised at every look at the density: only small ones are.
LARGEST = 40


def scales_of(problem: NetworkProblem, group: GaussianDraw, taken: Sequence[str]) -> list[ScaleDraw]:
    """The precisions of members of a group: single numbers whose effects are all in it."""
    scales = []
    for name, block in problem.blocks.items():
        if block.family.name != "Gamma" or len(block.shape) != 1 or name in taken or group.size > LARGEST:
            continue
        children = [term.node for term in problem.plan.terms.values() if name in term.readings]
        if any(node in group.names for node in children):
            scales.append(ScaleDraw(block, group))
    return scales


class ScaleDraw:
    """One precision, drawn with a group of Gaussian nodes integrated out."""

    def __init__(self, block: Block, group: GaussianDraw) -> None:
        self.block, self.group, self.name = block, group, block.name

    def sample(
        self,
        stats: Mapping[str, Stats],
        value: Array,
        conditional: Callable[[Block, Mapping[str, Stats]], Stats],
        rng: np.random.Generator,
    ) -> tuple[Array, Callable[[np.random.Generator], Array]] | None:
        """A new value of each chain, and what draws the Gaussian nodes [chain, size] at it; None where the density is none."""
        here = dict(stats)
        for name in self.group.names:
            here[name] = tuple(np.zeros_like(part) for part in stats[name])
        rest = conditional(self.block, here)
        pencil = self._pencil(here)
        if pencil is None:
            return None
        old = np.log(np.maximum(value, 1e-300))

        def density(log_value: Array) -> Array:
            """The log density of log t given the rest, of every chain."""
            return np.asarray(
                rest[0] * np.exp(log_value) + (rest[1] + 1.0) * log_value + pencil.log_integral(log_value - old)
            )

        new = sliced(density, old, rng)
        return np.exp(new), partial(pencil.sample, new - old)

    def _pencil(self, stats: Mapping[str, Stats]) -> _Pencil | None:
        at = {**stats, self.name: tuple(np.zeros_like(part) for part in stats[self.name])}
        (precision, b), (without, b_without) = self.group.form(stats), self.group.form(at)
        try:
            scale = 1.0 / np.sqrt(np.einsum("cii->ci", precision))
            wide = scale[:, :, None] * scale[:, None, :]
            back = np.linalg.inv(np.linalg.cholesky(precision * wide))
            d, turn = np.linalg.eigh(back @ ((precision - without) * wide) @ back.transpose(0, 2, 1))
        except np.linalg.LinAlgError:
            return None
        basis = scale[:, :, None] * (back.transpose(0, 2, 1) @ turn)
        start = (b_without[:, None] @ basis)[:, 0]
        return _Pencil(np.clip(d, 0.0, 1.0), basis, start, (b[:, None] @ basis)[:, 0] - start)


class _Pencil(NamedTuple):
    """The Gaussian conditional of x at every multiple r of the value that t has, for every chain.

    A and b are affine in t: A₀ + r A₁ and b₀ + r b₁. With A₀ + A₁ = LLᵀ and L⁻¹A₁L⁻ᵀ = UDUᵀ the matrix at r is
    LU(I + (r − 1)D)UᵀLᵀ, so that one factorisation serves all r. ``basis`` is W = L⁻ᵀU, ``start`` Wᵀb₀, ``slope`` Wᵀb₁.
    """

    d: Array
    basis: Array
    start: Array
    slope: Array

    def log_integral(self, log_r: Array) -> Array:
        """The logarithm of ∫ exp(−½ xᵀAx + bᵀx) dx, up to a constant."""
        r = np.exp(log_r)[:, None]
        size = np.maximum(1.0 + (r - 1.0) * self.d, 1e-300)
        return np.asarray(0.5 * ((self.start + r * self.slope) ** 2 / size - np.log(size)).sum(1))

    def sample(self, log_r: Array, rng: np.random.Generator) -> Array:
        """Draws from N(A⁻¹b, A⁻¹)."""
        r = np.exp(log_r)[:, None]
        size = np.maximum(1.0 + (r - 1.0) * self.d, 1e-300)
        at = (self.start + r * self.slope) / size + rng.standard_normal(size.shape) / np.sqrt(size)
        return np.asarray((self.basis @ at[..., None])[..., 0])
