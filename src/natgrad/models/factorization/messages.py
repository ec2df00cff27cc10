"""What a factorisation remembers of each rating: the other side's means and variances when they were last read."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import Ratings
from natgrad.inference.problem import State
from natgrad.kernels.factorization.messages import read_edges, rebuild_rows
from natgrad.models.factorization.sides import OTHER
from natgrad.threads import at_most

__all__ = ["RatingMessages"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Stats = tuple[Any, ...]
# Below this many edges one thread is quicker than several.
FEW = 50_000


class RatingMessages:
    """Remembered messages between users and items, for factorised q.

    Parameters
    ----------
    ratings : Ratings
    n_factors : int
    prior, noise : float, the precisions α and τ
    """

    def __init__(self, ratings: Ratings, n_factors: int, prior: float, noise: float) -> None:
        self.sides = {"u": ratings.by_user, "v": ratings.by_item}
        self.degree = {name: np.diff(side.start) for name, side in self.sides.items()}
        self.n_factors, self.prior, self.noise = n_factors, prior, noise

    @property
    def n_bytes(self) -> int:
        """Memory for all edges and rows of both sides."""
        size = self.n_factors
        edges = sum(len(side.values) for side in self.sides.values()) * (2 * size * 4 + 1)
        rows = sum(len(side.start) - 1 for side in self.sides.values()) * 8 * (size * size + 3 * size)
        return edges + rows

    def begin(self, state: State) -> dict[str, dict[str, Any]]:
        """Nothing read: the edges of a row hold together what makes its q the one of the state."""
        memory = {}
        for name, side in self.sides.items():
            n_rows, n_edges, size = len(side.start) - 1, len(side.values), self.n_factors
            held = np.array(state.lam[name][0], dtype=np.float64)
            memory[name] = {
                "kept": np.zeros((n_edges, 2, size), dtype=np.float32),
                "seen": np.zeros(n_edges, dtype=np.bool_),
                "cross": np.zeros((n_rows, size, size)),
                "spread": np.zeros((n_rows, size)),
                "pull": held / self.noise,
                "held": held,
            }
        return memory

    def read(
        self, name: str, state: State, memory: dict[str, dict[str, Any]], positions: Ints, over: float
    ) -> tuple[Ints, Stats]:
        """Read edges anew (sorted positions among the block's children); their rows, and λ of these given all they remember.

        The memory is changed in place.
        """
        side, mine = self.sides[name], memory[name]
        row_of = np.searchsorted(side.start, positions, side="right") - 1
        rows, first = np.unique(row_of, return_index=True)
        mean = np.empty((len(rows), self.n_factors))
        precision = np.empty_like(mean)
        others = OTHER[name]
        with at_most(1 if len(positions) < FEW else None):
            read_edges(
                positions, np.append(first, len(positions)), rows, side.other, side.values,
                np.asarray(state.mu[others][0]), np.asarray(state.lam[others][1]),
                mine["kept"], mine["seen"], mine["cross"], mine["spread"], mine["pull"], mine["held"],
                self.degree[name], self.prior, self.noise, over, mean, precision,
            )  # fmt: skip
        return rows, (mean * precision, -0.5 * precision)

    def rebuild(self, memory: dict[str, dict[str, Any]]) -> None:
        """Sum up anew what is remembered; many small changes round."""
        for name, side in self.sides.items():
            mine = memory[name]
            rebuild_rows(
                side.start, side.values, mine["kept"], mine["seen"], mine["cross"], mine["spread"], mine["pull"],
                mine["held"], self.noise,
            )  # fmt: skip
