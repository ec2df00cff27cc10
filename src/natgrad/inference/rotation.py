"""Rotate pairs of blocks that children see through an inner product to where the bound is highest, by quasi-Newton steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import Block, EdgeProblem, State

__all__ = [
    "Rotation",
    "Side",
    "apply_rotation",
    "best_rotation",
    "minimise",
    "rotate_pair",
    "rotate_product",
    "rotated",
]

# Our own, because the optimisers of SciPy take a fifth of a second to import, and a fit of a small network a few hundredths.
#
# Nocedal and Wright (2006), algorithms 7.4 and 3.1.

Floats = npt.NDArray[np.float64]
Cost = Callable[[Floats], tuple[float, Floats]]
REMEMBERED, MOST_STEPS, MOST_HALVINGS = 10, 3_000, 40
# It ends where no slope is above the first, or a step lowers the cost by less than the second part of it.
FLAT, LITTLE = 1e-5, 1e-9
# Part of the decrease that the slope promises which a step must give.
ENOUGH = 1e-4


def minimise(cost: Cost, start: Floats, most_steps: int = MOST_STEPS) -> Floats:
    """The point where quasi-Newton steps end; never higher than the start. ``cost`` gives value and slope, inf where it has none.

    Examples
    --------
    >>> minimise(lambda x: (float(((x - 1.0) ** 2).sum()), 2.0 * (x - 1.0)), np.zeros(2)).round(6).tolist()
    [1.0, 1.0]
    """
    point, (value, slope) = start, cost(start)
    memory: list[tuple[Floats, Floats, float]] = []
    for _ in range(most_steps):
        if not np.abs(slope).max() > FLAT:
            break
        direction = -_scaled(slope, memory)
        promised = float(slope @ direction)
        if not promised < 0:  # what is remembered has become useless
            memory, direction = [], -slope
            promised = float(slope @ direction)
        length = 1.0 if memory else min(1.0, 1.0 / float(np.abs(slope).sum()))
        for _ in range(MOST_HALVINGS):
            new = point + length * direction
            after, there = cost(new)
            if after <= value + ENOUGH * length * promised:
                break
            length *= 0.5
        else:
            break
        step, turn = new - point, there - slope
        curvature = float(step @ turn)
        if curvature > 1e-12 * float(turn @ turn):
            memory = [*memory[1 - REMEMBERED :], (step, turn, curvature)]
        gained = value - after
        point, value, slope = new, after, there
        if gained <= LITTLE * max(abs(value), abs(value + gained), 1.0):
            break
    return point


def _scaled(slope: Floats, memory: list[tuple[Floats, Floats, float]]) -> Floats:
    """The inverse curvature, as the last steps have shown it, times the slope."""
    out, parts = slope.copy(), []
    for step, turn, curvature in reversed(memory):
        part = float(step @ out) / curvature
        parts.append(part)
        out -= part * turn
    if memory:
        _, turn, curvature = memory[-1]
        out *= curvature / float(turn @ turn)
    for (step, turn, curvature), part in zip(memory, reversed(parts), strict=True):
        out += step * (part - float(turn @ out) / curvature)
    return out


# Parameter expansion: before a sweep, turn and stretch a pair of nodes along the direction that their children cannot see.
#
# The children of a and b see only aᵀb, so E[log p(children)] is the same for a → G a, b → G⁻ᵀ b. What changes are the priors
# and the entropies; with S = Σ_rows E[x xᵀ], prior precisions Λ and M rows,
#
#     f(G) = −½ tr(Λ_a G S_a Gᵀ) + M_a log|G|  −½ tr(Λ_b G⁻ᵀ S_b G⁻¹) − M_b log|G|
#
# is maximised by a closed form where Λ_a and Λ_b are multiples of the identity. No data are read. For factors with a full
# covariance this can only raise the bound. For scalar factors the turned q is projected onto its diagonal, the bound may fall,
# and whoever calls this must compare bounds.
#
# Qi and Jaakkola (2006), parameter expanded variational Bayes; Luttinen and Ilin (2010), rotations in factor analysis.

Stats = tuple[Any, ...]


class Side(NamedTuple):
    """One of the two nodes: Σ_rows E[x xᵀ], the number of rows, the precision of the prior."""

    moment: Floats
    rows: int
    precision: Floats


class Rotation(NamedTuple):
    """A turned state, and the matrix that turned each of the two nodes; ``shifts`` were added to them after it.

    Nodes that are turned in another way have a function of their ``coordinates``: means of Gaussians, λ of others.
    """

    state: State
    matrices: dict[str, Floats]
    shifts: Mapping[str, Floats] = {}
    coordinates: Mapping[str, Callable[[Stats], Stats]] = {}


def rotate_pair(
    problem: EdgeProblem, pair: tuple[str, str], state: State, needed: tuple[str, ...] | None = None
) -> Rotation | None:
    """The state with the pair turned; None where the priors have a mean, or differ from row to row.

    A problem that knows more of its gauge, biases and learned precisions for example, has a ``rotate_pair`` of its own. It
    may leave alone blocks that are not among ``needed``: the next sweep updates them before it reads them.
    """
    if problem.rotate_pair is not None:
        rotation: Rotation | None = problem.rotate_pair(pair, state, needed)
        return rotation
    return rotate_product(problem, pair, state)


def rotate_product(problem: EdgeProblem, pair: tuple[str, str], state: State) -> Rotation | None:
    """The same for any problem, by what is known of every inner product."""
    sides = [_side(problem, name, state) for name in pair]
    if any(side is None for side in sides):
        return None
    first, second = sides
    assert first is not None
    assert second is not None
    turn = best_rotation(first, second)
    lam, mu = dict(state.lam), dict(state.mu)
    inverse = np.asarray(np.linalg.inv(turn).T, dtype=np.float64)
    matrices = dict(zip(pair, (turn, inverse), strict=True))
    for name, matrix in matrices.items():
        block = problem.blocks[name]
        lam[name] = _rotated_lam(block, state.lam[name], matrix)
        mu[name] = problem.moments(block, lam[name])
    return Rotation(state._replace(lam=lam, mu=mu), matrices)


def rotated(problem: EdgeProblem, state: State) -> State:
    """The state with every gauge of the problem in its best position."""
    for pair in problem.gauges:
        rotation = rotate_pair(problem, pair, state)
        state = state if rotation is None else rotation.state
    return state


def apply_rotation(block: Block, mean: Floats, matrix: Floats) -> Floats:
    """G x for every row of a block."""
    if block.column_axis is None:
        return mean @ matrix.T
    return _unrows(block, _rows(block, mean) @ matrix.T)


def best_rotation(first: Side, second: Side) -> Floats:
    """G that maximises the priors and entropies of the pair; both second moments become diagonal.

    Examples
    --------
    >>> a = Side(np.diag([8.0, 2.0]), 10, np.eye(2))
    >>> b = Side(np.diag([2.0, 8.0]), 10, np.eye(2))
    >>> G = best_rotation(a, b)
    >>> bool(np.allclose(G @ a.moment @ G.T, np.linalg.inv(G).T @ b.moment @ np.linalg.inv(G)))
    True
    """
    scale = first.precision[0, 0], second.precision[0, 0]
    turn = _isotropic(scale[0] * first.moment, scale[1] * second.moment, first.rows - second.rows)
    plain = np.eye(len(turn))
    if all(np.allclose(side.precision, s * plain) for side, s in zip((first, second), scale, strict=True)):
        return turn
    return _climb(first, second, turn)


def _isotropic(first: Floats, second: Floats, excess: int) -> Floats:
    """The closed form. A = GᵀG solves A S_a A − (M_a − M_b) A − S_b = 0, a quadratic in the axes of Lᵀ S_b L, S_a = L Lᵀ."""
    factor = np.linalg.cholesky(first)
    values, axes = np.linalg.eigh(factor.T @ second @ factor)
    # (e + √(e² + 4d)) / 2 without cancellation when e is negative.
    root = np.sqrt(excess**2 + 4.0 * values)
    stretch = 0.5 * (excess + root) if excess >= 0 else 2.0 * values / (root - excess)
    turn: Floats = np.sqrt(stretch)[:, None] * np.linalg.solve(factor.T, axes).T
    return turn


def _climb(first: Side, second: Side, start: Floats) -> Floats:
    """The same by quasi-Newton steps, for priors with different precisions along different axes."""
    size = len(start)

    def cost(flat: Floats) -> tuple[float, Floats]:
        value, slope = _cost(first, second, flat.reshape(size, size))
        return value, slope.reshape(-1)

    best = min((np.eye(size), start), key=lambda turn: _cost(first, second, turn)[0])
    return minimise(cost, best.reshape(-1)).reshape(size, size)


def _cost(first: Side, second: Side, turn: Floats) -> tuple[float, Floats]:
    """−f(G) and its slope; infinite where G has no inverse."""
    sign, log_det = np.linalg.slogdet(turn)
    if sign == 0:
        return np.inf, np.zeros_like(turn)
    excess, inverse = first.rows - second.rows, np.linalg.inv(turn).T
    pull, push = first.precision @ turn @ first.moment, second.precision @ inverse @ second.moment
    value = 0.5 * np.sum(pull * turn) + 0.5 * np.sum(push * inverse) - excess * log_det
    return float(value), pull - inverse @ push.T @ inverse - excess * inverse


def _side(problem: EdgeProblem, name: str, state: State) -> Side | None:
    block = problem.blocks[name]
    mean, minus_half = (np.asarray(part) for part in problem.target(block, state, (name,)))
    first, second = (np.asarray(part) for part in state.mu[name])
    if np.any(mean):
        return None
    if block.column_axis is None:
        size = first.shape[-1]
        precisions = (-2.0 * minus_half).reshape(-1, size, size)
        if not np.allclose(precisions, precisions[0]):
            return None
        return Side(second.reshape(-1, size, size).sum(0), int(np.prod(block.shape)), precisions[0])
    mean_rows, square = _rows(block, first), _rows(block, second)
    precisions = _rows(block, -2.0 * minus_half)
    if not np.allclose(precisions, precisions[0]):
        return None
    moment = mean_rows.T @ mean_rows
    np.fill_diagonal(moment, square.sum(0))
    return Side(moment, len(square), np.diag(precisions[0]))


def _rotated_lam(block: Block, lam: Stats, matrix: Floats) -> Stats:
    """Natural parameters of G x: exact for a vector, the diagonal of its covariance for scalars."""
    if block.column_axis is None:
        inverse = np.linalg.inv(matrix)
        precision = np.asarray(lam[1])
        return np.asarray(lam[0]) @ inverse, inverse.T @ precision @ inverse
    linear, minus_half = (_rows(block, np.asarray(part)) for part in lam)
    variance = (-0.5 / minus_half) @ (matrix**2).T
    mean = (-0.5 * linear / minus_half) @ matrix.T
    return tuple(_unrows(block, part) for part in (mean / variance, -0.5 / variance))


def _rows(block: Block, array: Floats) -> Floats:
    """A block with a coupled plate as a table [elements, columns]."""
    assert block.column_axis is not None
    return np.moveaxis(array, block.column_axis, -1).reshape(-1, block.n_columns)


def _unrows(block: Block, table: Floats) -> Floats:
    assert block.column_axis is not None
    shape = [n for axis, n in enumerate(block.shape) if axis != block.column_axis]
    return np.moveaxis(table.reshape(*shape, block.n_columns), -1, block.column_axis)
