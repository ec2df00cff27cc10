"""Pass λ that repeats along plates to compiled programs once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from natgrad.network.execute.program import Program
from natgrad.network.execute.updates import shortened

__all__ = ["Repeated"]

# The precision of the scores of a PCA without missing data is one matrix. A sweep reads of the old one how far it moved, and
# makes one new one; writing it for every row, and reading it in the next sweep, would take as long as the update.

Stats = tuple[Any, ...]


class Repeated:
    """Blocks of a program with plates along which λ of an exact update is the same."""

    def __init__(self, program: Program) -> None:
        self.plan = plan = program.plan
        # Elements that are updated in turn differ, and weights are each element's own.
        at_once = {
            name: block
            for name, block in plan.blocks.items()
            if block.n_columns == 1 and not any(plate in plan.weights for plate in block.plates)
        }
        by_block = {name: program.shared_plates(block) for name, block in at_once.items()}
        self.plates = {name: shared for name, shared in by_block.items() if any(shared)}

    def shortened(self, name: str, lam: Stats) -> Stats:
        """λ of one block, one element in place of all that share it."""
        return shortened(lam, self.plates[name]) if name in self.plates else lam

    def once(self, lam: Mapping[str, Stats], order: tuple[str, ...]) -> dict[str, Stats]:
        """λ as a sweep in this order takes it; blocks that it does not update are as they are."""
        own = {name: shared for name, shared in self.plates.items() if name in order}
        arrays = {  # NumPy cuts without a call of JAX
            name: tuple(np.asarray(p) if axes else p for p, axes in zip(lam[name], shared, strict=True))
            for name, shared in own.items()
        }
        return {**lam, **{name: shortened(arrays[name], shared) for name, shared in own.items()}}

    def for_all(self, lam: Mapping[str, Stats], order: tuple[str, ...]) -> dict[str, Stats]:
        """λ as a state has it: views, which take no memory."""
        full = {
            name: tuple(
                np.broadcast_to(np.asarray(part), shape) if axes else part
                for part, axes, shape in zip(lam[name], shared, self.plan.nodes[name].stat_shapes(), strict=True)
            )
            for name, shared in self.plates.items()
            if name in order
        }
        return {**lam, **full}
