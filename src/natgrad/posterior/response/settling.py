"""A state near an optimum in; the optimum out, how far it was, and how flat a direction there can be told from one that is not.

Newton's step from a state with the residual r = λ̂ − λ moves the mean of any quantity g by Cov_LR(g, φ)·r, and

    (Cov_LR(g, φ)·r)² ≤ Var_LR(g) · rᵀ Σ r,        rᵀ Σ r = 2 · (the nats that the step gains)

so that √(2 · nats left) is the farthest that any mean still has to go, in its own standard deviations. A curvature is known to
about as much as the state is beside the optimum, in standard deviations of q: what is nearer to zero is flat for all that is
known.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.posterior.response.eliminated import Eliminated, to_eliminate
from natgrad.posterior.response.operator import Linearised, Operator
from natgrad.posterior.response.solvers import FLAT, Dense, conjugate_gradients

__all__ = ["LEFT", "Settled", "at_optimum", "matrix_of", "still_to_go", "unresolved_gain"]

Floats = npt.NDArray[np.float64]
# Nats that are left to gain: above the first the state does not count as an optimum, since a mean may have 0.045 standard
# deviations to go; below the second it is one to rounding, below the third for conjugate gradients.
LEFT, SETTLED, NEARLY = 1e-3, 1e-20, 1e-13
STEPS, NEWTON_TOL = 4, 1e-2
# Newton's step leaves about the square of what it gains, where no direction is flat (0.006 to 16 times as much was met); steps
# with its curvature leave the same part each. What is expected to be left is so many times that.
FIRST_AHEAD, AHEAD = 100.0, 10.0
# By how much a curvature may be off, for each standard deviation of q that the state is beside the optimum.
ROUGH = 10.0


class Settled(NamedTuple):
    """The optimum; the nats that were left; the matrix there, if it was made; the curvature that cannot be told from none."""

    at: Linearised
    left: float
    matrix: Dense | Eliminated | None = None
    flat: float = FLAT


def at_optimum(at: Linearised) -> Settled:
    """The state after Newton's steps; as it was where there is more to gain than `LEFT`.

    A fit ends some way before the optimum, at which linear response is defined; along a direction in which the bound is flat,
    that way would look like curvature.
    """
    operator = Operator(at)
    near = matrix_of(operator)
    curvature = operator.matrix if at.matrix is not None else None
    left, last, moved, farthest = math.nan, math.nan, False, 0.0
    for turn in range(STEPS):
        if turn > 0:
            operator = Operator(at)
            operator.matrix = curvature  # that of the first step: later ones are short
        step, length, gain, unresolved = _newton(operator, near, farthest)
        farthest = max(farthest, length)
        expected = FIRST_AHEAD * gain**2 if turn == 0 else AHEAD * gain**2 / last
        left, last = gain + unresolved if turn == 0 else left, gain
        at = at._replace(covariances=operator.covariances)
        if at.elsewhere is None or gain <= (NEARLY if near is None else SETTLED) or gain + unresolved > LEFT:
            break
        new = {
            name: block.family.project(
                tuple(g + s for g, s in zip(at.lam[name], operator.part(step, name), strict=True))
            )
            for name, block in at.blocks.items()
        }
        if not all(np.all(block.family.valid(new[name])) for name, block in at.blocks.items()):
            break
        at, moved = at.elsewhere(new), True
        if near is not None and near.is_clear and expected < SETTLED:
            return Settled(at, left)
        length = math.nan
    if math.isnan(length):  # of a state that no step began at
        operator = Operator(at)
        residual = operator.residual()
        length = operator.inner(residual, operator.fisher(residual)) ** 0.5
    # A state that is none of an optimum is taken as it is, and said to be so.
    return Settled(at, left, None if moved else near, FLAT if left > LEFT else FLAT + ROUGH * length)


def _newton(operator: Operator, near: Dense | Eliminated | None, beside: float) -> tuple[Floats, float, float, float]:
    """Newton's step dλ, the length of the residual in standard deviations of q, the nats it gains, and those it may not see.

    ``beside`` is how far from the optimum the curvature was found.
    """
    residual = operator.residual()
    told = operator.fisher(residual)
    length = operator.inner(residual, told) ** 0.5
    far = max(length, beside)
    if near is not None:
        step, unresolved = near.step(residual, FLAT + far, FLAT + ROUGH * far)
    else:
        solved = conjugate_gradients(operator, residual, NEWTON_TOL, 200, truncate=FLAT + far)
        step, unresolved = solved.x, min(solved.residual, 1.0) * length
    return step, length, 0.5 * operator.inner(told, step), unresolved_gain(far, unresolved)


def unresolved_gain(length: float, unresolved: float) -> float:
    """Nats along directions that a step leaves out, as their curvature is within the length of the residual: ½ square / length.

    Of a direction that is flat by symmetry, the residual has the square of its length, and nothing comes of it.
    """
    return 0.5 * unresolved**2 / length if length > 0.0 else 0.0


def still_to_go(left: float) -> float:
    """How far the mean of any quantity may still have to go, in its standard deviations."""
    return math.sqrt(2.0 * max(left, 0.0))


def matrix_of(operator: Operator) -> Dense | Eliminated | None:
    """The system as a matrix, where it is small by itself, or without some blocks."""
    if without := to_eliminate(operator):
        rest = Eliminated(operator, without)
        if rest.is_clear or not operator.is_small:
            return rest
    return Dense(operator) if operator.is_small else None
