"""Where the numbers of each block are, in one array for each chain: a plan in, places out."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from natgrad.network.compile.plan import Plan

__all__ = ["Layout"]

Ints = npt.NDArray[np.int64]


class Layout:
    """Where the numbers of each block are: statistics, values and averages of one chain, one after the other."""

    def __init__(self, plan: Plan, values: Mapping[str, tuple[int, ...]], averages: Mapping[str, tuple[int, ...]]) -> None:
        self.stat_shapes = {name: plan.nodes[name].stat_shapes() for name in plan.blocks}
        self.value_shapes, self.average_shapes = values, averages
        self.stats: dict[tuple[str, int], int] = {}
        self.values: dict[str, int] = {}
        self.averages: dict[str, int] = {}
        self.n_stats, self.n_values, self.n_averages = 1, 0, 0
        for name in plan.blocks:
            for stat, shape in enumerate(self.stat_shapes[name]):
                self.stats[name, stat] = self.n_stats
                self.n_stats += math.prod(shape)
            self.values[name], self.averages[name] = self.n_values, self.n_averages
            self.n_values += math.prod(values[name])
            self.n_averages += math.prod(averages[name])

    def places(self, name: str, stat: int) -> Ints:
        """Those of one statistic, in its shape."""
        shape = self.stat_shapes[name][stat]
        return self.stats[name, stat] + np.arange(math.prod(shape)).reshape(shape)
