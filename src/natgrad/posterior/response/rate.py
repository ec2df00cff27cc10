"""How fast sweeps come to the optimum: the spectral radius of a sweep near it, by iterating sweeps on a small disturbance."""

from __future__ import annotations

import numpy as np

from natgrad.posterior.response.operator import Operator, difference

__all__ = ["contraction"]

# The size of the disturbance, in standard deviations of q: its square is lost to curvature, its inverse to rounding.
SIZE = 1e-5
MOST, ENOUGH = 60, 1e-3


def contraction(operator: Operator, seed: int = 0) -> float:
    """The factor by which a sweep shrinks the distance to the optimum, once only its slowest direction is left.

    Distances are in the norm of the Fisher information; sweeps are those of coordinate ascent, without acceleration.
    """
    sweep = operator.at.sweep
    if sweep is None:
        return float("nan")
    base = operator.pack(sweep(dict(operator.at.lam)))
    fixed = operator.pack(sweep(operator.unpack(base)))
    rng = np.random.default_rng(seed)
    noise = operator.unpack(rng.standard_normal(operator.size))
    direction = operator.pack({name: block.family.project(noise[name]) for name, block in operator.at.blocks.items()})
    rate = 0.0
    for _ in range(MOST):
        norm = float(np.sqrt(operator.inner(direction, operator.fisher(direction))))
        if not norm > 0:
            return 0.0
        direction *= SIZE / norm
        after = difference(operator.pack(sweep(operator.unpack(base + direction))), fixed)
        new = float(np.sqrt(max(operator.inner(after, operator.fisher(after)), 0.0))) / SIZE
        if abs(new - rate) <= ENOUGH * max(new, 1e-12):
            return new
        direction, rate = after, new
    return rate
