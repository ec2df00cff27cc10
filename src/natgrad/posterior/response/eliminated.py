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
# Numbers of J_gE: all of them are multiplied by V at once.
MOST = 1_000_000


def to_eliminate(operator: Operator) -> list[str]:
    """The blocks that may be taken out so that little is left; none if that is not so."""
    if operator.matrix is None or operator.weights is not None:
        return []
    chosen: list[str] = []
    sizes = {name: place.stop - place.start for name, place in operator.places.items()}
    half = getattr(operator.matrix, "half", operator.matrix)
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        mine = operator.places[name]
        if not any(_meet(half, mine, operator.places[other]) for other in (*chosen, name)):
            chosen.append(name)
        if 0 < operator.size - sum(sizes[n] for n in chosen) <= SMALL // 2:
            break
    left = operator.size - sum(sizes[n] for n in chosen)
    return chosen if 0 < left <= SMALL and left * (operator.size - left) <= MOST else []


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
        columns = np.stack([whole @ unit for unit in units.T]) if not isinstance(whole, np.ndarray) else whole[self._in]
        reached = np.zeros_like(columns)
        for name in without:
            place, block = operator.places[name], at.blocks[name]
            change = block.family.project(operator._units(name, columns))
            change = operator.covariances[name].centred(change)
            if operator.side_by_side(name):
                moved = operator.covariances[name].times(change)
            else:
                wide = tuple(np.broadcast_to(part, (len(columns), *part.shape)) for part in at.lam[name])
                moved = covariances(block.family, wide).times(change)
            reached[:, place] = operator._rows(moved)
        self._columns, self._reached = columns[:, self._out], reached[:, self._out]
        schur = columns[:, self._in] + self._columns @ self._reached.T
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

    def solve(self, b: Floats) -> Solution:
        """Find x with (I − J V) x = b."""
        return Solution(self._whole(b, self.dense.solve(self._told(b)).x), 0, 0.0)

    def step(self, b: Floats, flat: float) -> Floats:
        """Newton's step, as of `Dense`."""
        return self._whole(b, self.dense.step(self._told(b), flat))

    def _told(self, b: Floats) -> Floats:
        """b_g + J_gE V_E b_E."""
        outside = np.zeros_like(b)
        outside[self._out] = b[self._out]
        return np.asarray((b + self.operator.curvature(self.operator.fisher(outside)))[self._in])

    def _whole(self, b: Floats, inside: Floats) -> Floats:
        """With dλ_E = b_E + J_Eg V_g dλ_g."""
        x = np.zeros_like(b)
        x[self._in] = inside
        x[self._out] = b[self._out] + self.operator.curvature(self.operator.fisher(x))[self._out]
        return x
