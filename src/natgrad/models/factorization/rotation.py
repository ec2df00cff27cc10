"""Where u, v and their biases may move unseen by the ratings, and the best place there: sums over rows in, affine maps out.

u·v + b + c stays the same when, for any vectors δ, ε and any invertible G,

    v → v + δ, b → b − u·δ        u → u + ε, c → c − v·ε        u → G u, v → G⁻ᵀ v

Only priors and entropies change. Given E[α], the best δ and ε solve linear equations; G makes both second moments diagonal
and stretches every axis to its best length (learned precisions go along: only their vague priors care for it).
No rating is read, and the maps are exact for Gaussian rows, so the bound cannot fall.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.kernels.factorization.blocks import move_rows

__all__ = ["Affine", "BestRotation", "SideSums", "best_turn", "moved_rows", "without_dead"]

Floats = npt.NDArray[np.float64]
Pair = tuple[Floats, Floats]
# A factor is dead where its means are less than this part of its second moments, on both sides.
DEAD = 1e-2


class Affine(NamedTuple):
    """X → matrix · x + shift."""

    matrix: Floats
    shift: Floats

    def then(self, matrix: Floats, shift: Floats) -> Affine:
        """The map, and another one after it."""
        return Affine(matrix @ self.matrix, matrix @ self.shift + shift)


class SideSums(NamedTuple):
    """Σ E[x] [D], Σ E[x xᵀ] [D, D], the number of rows, and E[α] [D] of one side."""

    mean: Floats
    second: Floats
    rows: int
    precision: Floats

    def moved(self, matrix: Floats, shift: Floats) -> SideSums:
        """The sums of matrix · x + shift."""
        mean = matrix @ self.mean
        second = matrix @ self.second @ matrix.T + np.outer(mean, shift) + np.outer(shift, mean)
        return self._replace(mean=mean + self.rows * shift, second=second + self.rows * np.outer(shift, shift))


class BestRotation(NamedTuple):
    """The maps of both sides, and the diagonals of Σ E[x xᵀ] after them."""

    matrices: tuple[Affine, Affine]
    diagonals: tuple[Floats, Floats]


def best_turn(
    users: SideSums, items: SideSums, n_factors: int, gamma: tuple[float, Floats] | None
) -> BestRotation | None:
    """The best maps; None where they would not raise the bound. ``gamma``: shape and rates of learned precisions."""
    size = len(users.mean)
    sides = [users, items]
    matrices = [Affine(np.eye(size), np.zeros(size)) for _ in sides]
    before = sum(_height(side, gamma) for side in sides)
    if size > n_factors:
        for one, other in ((0, 1), (1, 0)):
            shift = _best_shift(sides[one], sides[other], n_factors)
            shear = np.eye(size)
            shear[n_factors, :n_factors] = -shift[:n_factors]
            for place, matrix, offset in ((one, np.eye(size), shift), (other, shear, np.zeros(size))):
                sides[place] = sides[place].moved(matrix, offset)
                matrices[place] = matrices[place].then(matrix, offset)
    turn = _best_rotation(sides[0], sides[1], n_factors, gamma)
    if turn is None:
        return None
    volume = (users.rows - items.rows) * float(np.linalg.slogdet(turn)[1])
    for place, part in enumerate((turn, np.linalg.inv(turn).T)):
        matrix = np.eye(size)
        matrix[:n_factors, :n_factors] = part
        sides[place] = sides[place].moved(matrix, np.zeros(size))
        matrices[place] = matrices[place].then(matrix, np.zeros(size))
    if not sum(_height(side, gamma) for side in sides) + volume >= before:
        return None
    return BestRotation((matrices[0], matrices[1]), (np.diag(sides[0].second).copy(), np.diag(sides[1].second).copy()))


def without_dead(
    best: BestRotation,
    means: Mapping[str, Floats],
    sums: Mapping[str, SideSums],
    n_factors: int,
    gamma: tuple[float, Floats],
    weight: float,
) -> BestRotation:
    """The maps, and dead factors as small as the bound wants them.

    A factor without means only adds ½ τ Σ E[u²] E[v²] to the errors. Sweeps shrink it by a sum, not a part, at a time: the bound
    is W/t away after t of them, and needs hundreds. Here both its sides are multiplied by e^{y/2}, at the root of the slope of

        −½ W e^{2y} + Σ_sides [½ N y − (a + ½ N) log(b + ½ S e^y)]        W = Σ_n τ E[u²] E[v²]
    """
    sides = [sums["u"], sums["v"]]
    alive = np.zeros(n_factors, dtype=bool)
    for mean, turn, total in zip((means["u"], means["v"]), best.matrices, best.diagonals, strict=True):
        rows, added = mean.sum(0), len(mean)
        moved = turn.matrix @ (mean.T @ mean) @ turn.matrix.T
        there = turn.matrix @ rows
        energy = np.diag(moved) + 2.0 * there * turn.shift + added * turn.shift**2
        alive |= (energy > DEAD * total)[:n_factors]
    if alive.all():
        return best
    squares = [total[:n_factors] for total in best.diagonals]
    errors = weight * squares[0] / sides[0].rows * squares[1] / sides[1].rows
    low, high = np.full(n_factors, -80.0), np.zeros(n_factors)
    for _ in range(60):
        y = 0.5 * (low + high)
        slope = -errors * np.exp(2.0 * y)
        for side, square in zip(sides, squares, strict=True):
            half = 0.5 * square * np.exp(y)
            slope += 0.5 * side.rows - (gamma[0] + 0.5 * side.rows) * half / (gamma[1][:n_factors] + half)
        low, high = np.where(slope > 0, y, low), np.where(slope > 0, high, y)
    factor = np.ones(len(best.diagonals[0]))
    factor[:n_factors] = np.where(alive, 1.0, np.exp(0.25 * (low + high)))
    nothing = np.zeros(len(factor))
    matrices = tuple(turn.then(np.diag(factor), nothing) for turn in best.matrices)
    return BestRotation((matrices[0], matrices[1]), (best.diagonals[0] * factor**2, best.diagonals[1] * factor**2))


def _height(side: SideSums, gamma: tuple[float, Floats] | None) -> float:
    """What the bound says of a side's second moments: −½ Σ α S, or with the best q(α), −Σ (a + ½ N) log(b + ½ S)."""
    squares = np.diag(side.second)
    if gamma is None:
        return -0.5 * float(side.precision @ squares)
    return -(gamma[0] + 0.5 * side.rows) * float(np.log(gamma[1] + 0.5 * squares).sum())


def _best_shift(one: SideSums, other: SideSums, n_factors: int) -> Floats:
    """δ of x → x + δ on one side, b → b − δ·x on the other: minimises α Σ (x + δ)² + α_b Σ (b − δ·x)²."""
    own, bias = one.precision[:n_factors], float(other.precision[n_factors])
    matrix = one.rows * np.diag(own) + bias * other.second[:n_factors, :n_factors]
    pull = bias * other.second[:n_factors, n_factors] - own * one.mean[:n_factors]
    return np.append(np.linalg.solve(matrix, pull), 0.0)


def _best_rotation(
    users: SideSums, items: SideSums, n_factors: int, gamma: tuple[float, Floats] | None
) -> Floats | None:
    """G with G S_u Gᵀ and G⁻ᵀ S_v G⁻¹ diagonal, and the best lengths of the axes."""
    first, second = users.second[:n_factors, :n_factors], items.second[:n_factors, :n_factors]
    try:
        factor = np.linalg.cholesky(first)
        values, axes = np.linalg.eigh(factor.T @ second @ factor)
    except np.linalg.LinAlgError:
        return None
    if gamma is not None:
        squares = _best_squares(values, users.rows, items.rows, gamma)
    else:
        excess, alpha = float(users.rows - items.rows), float(users.precision[0])
        squares = (excess + np.sqrt(excess**2 + 4.0 * alpha * float(items.precision[0]) * values)) / (2.0 * alpha)
    if not (values > 0).all() or not (squares > 0).all():
        return None
    turn: Floats = np.sqrt(squares)[:, None] * np.linalg.solve(factor.T, axes).T
    return turn


def _best_squares(values: Floats, n_users: int, n_items: int, gamma: tuple[float, Floats]) -> Floats:
    """Σ E[u²] along each axis where Σ E[u²] Σ E[v²] = ``values``, at the best q(α) and q(β): the root of a falling function."""
    shape, rate = gamma[0], gamma[1][: len(values)]
    # From where the two sides would share alike, in any unit.
    middle = 0.5 * np.log(np.where(values > 0, values, 1.0))
    low, high = middle - 60.0, middle + 60.0
    for _ in range(80):
        log_square = 0.5 * (low + high)
        square = np.exp(log_square)
        slope = (shape + 0.5 * n_items) * values / (2.0 * rate * square + values) + 0.5 * (n_users - n_items)
        monotone = slope > (shape + 0.5 * n_users) * square / (2.0 * rate + square)
        low, high = np.where(monotone, log_square, low), np.where(monotone, high, log_square)
    return np.asarray(np.exp(0.5 * (low + high)))


def moved_rows(mu: Pair, lam: Pair, turn: Affine) -> tuple[Pair, Pair]:
    """λ and μ of every row after the map: Λ → M⁻ᵀ Λ M⁻¹."""
    back = np.ascontiguousarray(np.linalg.inv(turn.matrix).T)
    new_lam, new_mu = ((np.empty_like(lam[0]), np.empty_like(lam[1])) for _ in range(2))
    move_rows(np.ascontiguousarray(turn.matrix), back, turn.shift, *mu, lam[1], *new_lam, *new_mu)
    return new_lam, new_mu
