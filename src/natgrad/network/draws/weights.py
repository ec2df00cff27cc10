"""Hidden nodes on plates with weights: a weight of 3 stands for three rows with the same data, each with its own hidden value.

Variational inference has the same factor for all three. Draws differ: what enters the terms of others is the average of the
statistics of three draws, times the weight. That is exact where the polynomial is linear in them, which it is unless two hidden
nodes of the plate meet; then the average of the products is wanted, and there is no more to do than to write the rows out.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.families import Family
from natgrad.network.compile.plan import Plan

__all__ = ["Copies", "copies_of"]

Array = npt.NDArray[Any]


class Copies(NamedTuple):
    """How many values each element of a block stands for, on its plates."""

    counts: npt.NDArray[np.int64]

    def drawn(
        self, family: Family, lam: tuple[Array, ...], rng: np.random.Generator, size: int | None
    ) -> tuple[Array, ...]:
        """The average of the statistics of so many draws; of one draw where the weight is 0, which nobody reads."""
        from natgrad.network.draws.gibbs import point_stats

        counts = np.maximum(self.counts, 1)
        if family.name == "Categorical":
            chances = family.mean(lam)
            return (rng.multinomial(counts, chances / chances.sum(-1, keepdims=True)) / counts[..., None],)
        values = family.sample(lam, rng, int(counts.max()))
        total: tuple[Array, ...] = ()
        for number, value in enumerate(values):
            wanted = (number < counts) / counts
            stats = point_stats(family, value, size)
            parts = [wanted.reshape(wanted.shape + (1,) * (s.ndim - wanted.ndim)) * s for s in stats]
            total = tuple(parts) if not total else tuple(a + b for a, b in zip(total, parts, strict=True))
        return total


def copies_of(plan: Plan, left_out: Collection[str] = ()) -> dict[str, Copies]:
    """The blocks whose elements stand for several values; a weight that is no whole number is refused. Not those ``left_out``."""
    copies = {}
    for name, block in plan.blocks.items():
        if name in left_out:
            continue
        weighted = [plate for plate in block.plates if plate in plan.weights]
        if not weighted or all(np.isin(plan.weights[plate], (0.0, 1.0)).all() for plate in weighted):
            continue
        for plate in weighted:
            weight = plan.weights[plate]
            if (bad := np.flatnonzero(weight != np.round(weight))).size:
                raise PlateMismatch(
                    f"draws: {name!r} is hidden and lies on plate {plate!r}, whose weight[{bad[0]}] = {weight[bad[0]]:g} is no "
                    "whole number: there is no such number of hidden values to draw. Plates of observed nodes may have any"
                )
            _check_alone(plan, name, plate)
        counts = np.ones(
            [size for plate, size in zip(block.plates, block.shape, strict=True) if isinstance(plate, str)]
        )
        plates = [plate for plate in block.plates if isinstance(plate, str)]
        for axis, plate in enumerate(plates):
            if plate in plan.weights:
                counts = counts * plan.weights[plate].reshape([-1 if i == axis else 1 for i in range(len(plates))])
        copies[name] = Copies(counts.astype(np.int64))
    return copies


def _check_alone(plan: Plan, name: str, plate: str) -> None:
    """Nobody else who is hidden on the plate may meet the node, and nobody may read it otherwise than element by element."""
    advice = "write the rows out as often as they count, without weight="
    for term in plan.terms_of(name):
        for reading in term.readings.get(name, ()):
            if plate not in reading.axes:
                raise PlateMismatch(
                    f"draws: {term.node!r} reads {name!r} through an index or a sum along plate {plate!r}, which has weights "
                    f"other than 0 and 1: {advice}"
                )
        for monomial in term.monomials:
            there = [f for f in monomial.factors if not f.known and plate in f.axes]
            if any(f.source == name for f in there) and len(there) > 1:
                others = sorted({f.source for f in there} - {name}) or [name]
                raise PlateMismatch(
                    f"draws: {name!r} and {others[0]!r} are both hidden on plate {plate!r}, which has weights other than 0 and "
                    f"1, and meet in {term.node!r}: {advice}"
                )
