"""Blocks that do not meet one another taken out of the system: what is left is as large as the others, and small.

With E such blocks, paths of a chain or memberships of rows, and g the rest, dλ_E = b_E + J_Eg V_g dλ_g. So g alone has to be
solved for, with J' = J_gg + J_gE V_E J_Eg (a Schur complement), as one small matrix.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from natgrad.families.fisher import covariances
from natgrad.posterior.response.operator import SMALL, Operator
from natgrad.posterior.response.solvers import Dense, Solution

__all__ = ["Eliminated", "to_eliminate"]

Floats = npt.NDArray[np.float64]
# Numbers of J_gE: all of them are multiplied by V at once. And those in λ up to which the whole is a small matrix, too.
MOST, FEW = 1_000_000, 32


def to_eliminate(operator: Operator) -> list[str]:
    """The blocks that may be taken out so that little is left; none if that is not so."""
    if operator.size <= FEW or operator.matrix is None or operator.weights is not None:
        return []
    chosen: list[str] = []
    sizes = {name: place.stop - place.start for name, place in operator.places.items()}
    half = getattr(operator.matrix, "half", operator.matrix)
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        mine = operator.places[name]
        if not any(_meet(half, mine, operator.places[other]) for other in (*chosen, name)):
            chosen.append(name)
        if 0 < operator.size - sum(sizes[n] for n in chosen) <= min(SMALL, operator.size) // 2:
            break
    left = operator.size - sum(sizes[n] for n in chosen)
    small = SMALL if operator.size > SMALL else operator.size // 2
    return chosen if 0 < left <= small and left * (operator.size - left) <= MOST else []


def _meet(half: object, one: slice, other: slice) -> bool:
    return any(abs(half[a, b]).max() > 0.0 for a, b in ((one, other), (other, one)))  # type: ignore[index]


class Eliminated:
    """The system without some blocks; solves as `Dense` does."""

    def __init__(self, operator: Operator, without: list[str]) -> None:
        self.operator, at = operator, operator.at
        self.without, self.kept = without, [name for name in operator.places if name not in without]
        self._out, self._in = (
            np.concatenate([np.arange(operator.size)[operator.places[name]] for name in names])
            for names in (without, self.kept)
        )
        whole = operator.matrix
        units = np.zeros((operator.size, len(self._in)))
        units[self._in, np.arange(len(self._in))] = 1.0
        rows = np.stack([whole @ unit for unit in units.T]) if not isinstance(whole, np.ndarray) else whole[self._in]
        changes, reached = operator.changes(rows), np.zeros_like(rows)
        for name in without:
            place, change = operator.places[name], operator._units(name, changes)
            if operator.side_by_side(name):
                moved = operator.covariances[name].times(change)
            else:
                wide = tuple(np.broadcast_to(part, (len(rows), *part.shape)) for part in at.lam[name])
                moved = covariances(at.blocks[name].family, wide).times(change)
            reached[:, place] = operator._rows(moved)
        self._rows, self._changes, self._reached = rows, changes[:, self._out], reached[:, self._out]
        schur = rows[:, self._in] + rows[:, self._out] @ self._reached.T
        keep = {name: at.blocks[name] for name in self.kept}
        self.reduced = Operator(
            at._replace(
                blocks=keep,
                lam={name: at.lam[name] for name in keep},
                targets={name: at.targets[name] for name in keep},
                covariances={name: operator.covariances[name] for name in keep},
                matrix=lambda: schur,
            )
        )
        self.dense = Dense(self.reduced)

    @property
    def is_clear(self) -> bool:
        """Whether no direction is flat, or rises."""
        self.reduced.flat = self.operator.flat
        return self.dense.is_clear

    def solve(self, b: Floats) -> Solution:
        """Find x with (I − J V) x = b."""
        self.reduced.flat = self.operator.flat
        return Solution(self._whole(b, self.dense.solve(self._told(b)).x), 0, 0.0)

    def step(self, b: Floats, flat: float, rising: float) -> tuple[Floats, float]:
        """Newton's step, as of `Dense`."""
        inside, unresolved = self.dense.step(self._told(b), flat, rising)
        return self._whole(b, inside), unresolved

    def responses(self, sources: Floats) -> Floats:
        """The solutions for J c of many c [n, size], of a system that is clear."""
        b = np.empty_like(sources)
        b[:, self._in] = self.reduced.changes(sources @ self._rows.T)
        b[:, self._out] = sources[:, self._in] @ self._changes
        return self._whole(b, self.dense.solved(self._told(b)))

    def _told(self, b: Floats) -> Floats:
        """b_g + J_gE V_E b_E."""
        return np.asarray(b[..., self._in] + b[..., self._out] @ self._reached.T)

    def _whole(self, b: Floats, inside: Floats) -> Floats:
        """With dλ_E = b_E + J_Eg V_g dλ_g."""
        x = np.empty_like(b)
        x[..., self._in] = inside
        x[..., self._out] = b[..., self._out] + self.dense.fisher(inside) @ self._changes
        return x
