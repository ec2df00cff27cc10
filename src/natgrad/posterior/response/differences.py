"""A function from the moments of all blocks to their targets in; its derivative, by central differences, out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from natgrad.families import Dirichlet
from natgrad.inference.problem import Block

__all__ = ["along"]

# E log of a probability below which its exponential is 0, as of a transition that is forbidden (−1e8).
LEAST_LOG = -745.0
Stats = tuple[Any, ...]
Moments = dict[str, Stats]


def along(
    blocks: Mapping[str, Block],
    mu: Mapping[str, Stats],
    function: Callable[[Moments], Mapping[str, Stats]],
    size: float,
) -> Callable[[Moments], Moments]:
    """J dμ as a function of dμ; ``size`` is the step, as a part of the largest entry of each statistic."""
    live = {name: tuple(_has_weight(block, part) for part in mu[name]) for name, block in blocks.items()}
    scales = {
        name: tuple(
            max(float(np.abs(part, where=own, out=np.zeros(np.shape(part))).max(initial=0.0)), 1e-300)
            for part, own in zip(mu[name], live[name], strict=True)
        )
        for name in blocks
    }

    def derivative(direction: Moments) -> Moments:
        direction = {n: tuple(d * own for d, own in zip(direction[n], live[n], strict=True)) for n in blocks}
        longest = max(
            float(np.abs(d).max(initial=0.0)) / scale
            for name in blocks
            for d, scale in zip(direction[name], scales[name], strict=True)
        )
        if longest == 0.0:
            return direction
        step = size / longest
        up, down = (
            function({n: tuple(m + s * d for m, d in zip(mu[n], direction[n], strict=True)) for n in blocks})
            for s in (step, -step)
        )
        return {
            name: block.family.project(
                tuple((np.asarray(a, np.float64) - b) / (2.0 * step) for a, b in zip(up[name], down[name], strict=True))
            )
            for name, block in blocks.items()
        }

    return derivative


def _has_weight(block: Block, part: Any) -> Any:
    """Where moments are of something that occurs: what has no probability at all changes nothing, however it is moved."""
    return np.asarray(part) > LEAST_LOG if isinstance(block.family, Dirichlet) else np.ones(np.shape(part), dtype=bool)
