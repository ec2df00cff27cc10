"""Multiply by the linear map from a tilt of the log joint to the change of λ at an optimum.

At the optimum λ = λ̂(μ), with λ̂_i = ∂P/∂μ_i. Tilt the log joint by t·g(x): then

    dλ = J dμ + …,    dμ = V dλ + c,    c = Cov_q(φ, g),    J = ∂λ̂/∂μ = W⁻¹ H,   H = ∂²P/∂μ∂μ,   V = ∇²A

so that (I − J V) dλ = J c and Cov_LR(h, g) = Cov_q(h, g) + Cov_q(h, φ)·dλ. W are the weights of plates: an element of weight w
stands for w copies. I − J V is self-adjoint and, at a maximum of the bound, positive in the inner product ⟨a, b⟩ = aᵀ W V b, so
conjugate gradients solve it with one product by J and one by V an iteration. Neither V^½ nor V⁻¹ is needed: V may be singular, as
it is for symmetric statistics and for point masses. See Giordano, Broderick and Jordan (2018), "Covariances, robustness, and
variational Bayes".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.families._family import Covariances
from natgrad.inference.problem import Block

__all__ = ["FLAT", "Linearised", "Operator", "difference"]

Floats = npt.NDArray[np.float64]
Stats = tuple[Any, ...]


# Numbers in λ up to which what is known as a matrix is used as one array.
SMALL = 200
# The curvature of the bound along a direction, 1 for independent factors: below −FLAT it goes up, within FLAT it is flat.
FLAT = 1e-10


class Linearised(NamedTuple):
    """A problem near one state: all that linear response has to know.

    Parameters
    ----------
    blocks, lam : the factors of q
    targets : λ̂ at this state, which is λ where it is an optimum
    curvature : from a direction dμ of all blocks to the change of their targets, J dμ
    weights : for the blocks that lie on weighted plates, the weight of each element
    sweep : λ after one sweep from another λ; None where there is none
    rows : from a direction dμ to the change of the expected log density of each observation; None where it is not known
    elsewhere : the same at another λ; None where there is none
    views : for names that are a part of a block, the block, and the index of their numbers in its events
    matrix : makes the curvature as a matrix [P, P], an array or sparse, over all statistics one after the other, and without what
        symmetric statistics have in common; None where there is none
    covariances : those of the blocks under q, where they are known already
    """

    blocks: Mapping[str, Block]
    lam: Mapping[str, Stats]
    targets: Mapping[str, Stats]
    curvature: Callable[[dict[str, Stats]], Mapping[str, Stats]]
    weights: Mapping[str, Floats] = {}
    sweep: Callable[[dict[str, Stats]], Mapping[str, Stats]] | None = None
    rows: Callable[[dict[str, Stats]], Mapping[str, Floats]] | None = None
    elsewhere: Callable[[dict[str, Stats]], Linearised] | None = None
    views: Mapping[str, tuple[str, Any]] = {}
    matrix: Callable[[], Any] | None = None
    covariances: Mapping[str, Covariances] | None = None


class Operator:
    """I − J V on vectors that hold the natural parameters of all blocks, one after the other."""

    def __init__(self, at: Linearised) -> None:
        self.at = at
        self.shapes = {name: tuple(np.shape(part) for part in stats) for name, stats in at.lam.items()}
        self.places: dict[str, slice] = {}
        end = 0
        for name, shapes in self.shapes.items():
            size = sum(math.prod(shape) for shape in shapes)
            self.places[name] = slice(end, end + size)
            end += size
        self.size = end
        self.n_products = 0
        self.flat = FLAT  # a curvature up to this cannot be distinguished from none, at this state

    @cached_property
    def covariances(self) -> dict[str, Covariances]:
        """Covariances under q, of each block."""
        if self.at.covariances is not None:
            return dict(self.at.covariances)
        return {name: block.family.covariances(self.at.lam[name]) for name, block in self.at.blocks.items()}

    @cached_property
    def weights(self) -> Floats | None:
        """The weight of the element that each number belongs to; None if all are one."""
        if not self.at.weights:
            return None
        weights = np.ones(self.size)
        for name, weight in self.at.weights.items():
            family, n_plates = self.at.blocks[name].family, np.ndim(weight)
            parts = []
            for shape, ndim in zip(self.shapes[name], family.stat_ndims, strict=True):
                wide = np.reshape(weight, np.shape(weight) + (1,) * ndim)
                parts.append(np.broadcast_to(wide, (*shape[:n_plates], *shape[len(shape) - ndim :])).ravel())
            weights[self.places[name]] = np.concatenate(parts)
        return weights

    def pack(self, stats: Mapping[str, Stats]) -> Floats:
        """One vector; zeros for blocks that are not there."""
        out = np.zeros(self.size)
        for name, parts in stats.items():
            shapes = self.shapes[name]
            flat = [_full(part, shape).ravel() for part, shape in zip(parts, shapes, strict=True)]
            out[self.places[name]] = np.concatenate(flat)
        return out

    def part(self, vector: Floats, name: str, begin: int | None = None) -> Stats:
        """The statistics of one block, of vectors along any leading axes; it begins at ``begin`` in them, or at its own place."""
        out, start = [], self.places[name].start if begin is None else begin
        for shape in self.shapes[name]:
            size = math.prod(shape)
            out.append(vector[..., start : start + size].reshape((*vector.shape[:-1], *shape)))
            start += size
        return tuple(out)

    def unpack(self, vector: Floats) -> dict[str, Stats]:
        """The statistics of all blocks."""
        return {name: self.part(vector, name) for name in self.places}

    def fisher(self, change: Floats) -> Floats:
        """V dλ."""
        return self.pack(
            {name: covariance.times(self.part(change, name)) for name, covariance in self.covariances.items()}
        )

    def curvature(self, direction: Floats) -> Floats:
        """J dμ."""
        if self.is_small:
            return self.jacobian @ direction
        self.n_products += 1
        if self.matrix is None:
            return self._centred(self.at.curvature(self.unpack(direction)))
        moved = self.unpack(self.matrix @ direction)
        return self._centred({name: self.at.blocks[name].family.project(parts) for name, parts in moved.items()})

    @property
    def is_small(self) -> bool:
        """Whether J is there as an array, and products need nothing else."""
        return self.at.matrix is not None and self.size <= SMALL

    @cached_property
    def matrix(self) -> Any:
        """H, an array or sparse; None where only its products are known."""
        return None if self.at.matrix is None else self.at.matrix()

    @cached_property
    def jacobian(self) -> Floats:
        """J as an array, a column for each number of μ."""
        if self.matrix is None:
            return np.stack([self.curvature(row) for row in np.eye(self.size)], axis=1)
        self.n_products += 1
        # H is symmetric: its rows are changes along the unit directions.
        return self.changes(self.matrix if isinstance(self.matrix, np.ndarray) else self.matrix.toarray()).T

    def changes(self, rows: Floats) -> Floats:
        """Rows of H as changes of λ [n, size]: what symmetric statistics have in common goes to both, and centred."""
        columns = []
        for name, block in self.at.blocks.items():
            parts = self.part(rows, name)
            parts = block.family.project(parts) if any(block.family.symmetric) else parts
            columns.append(self._rows(self.covariances[name].centred(parts)))
        return np.concatenate(columns, axis=1)

    def fisher_matrix(self, name: str) -> Floats:
        """V of one block."""
        units = np.eye(self.places[name].stop - self.places[name].start)
        return self._images(name, lambda unit: self.covariances[name].times(self.part(unit, name, 0)), units)

    def sources(self, name: str, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
        """Cov_q(x, φ) [n, size of the block] and Cov_q(x, x) [n, n] of the n values of a block; ``shape`` is theirs."""
        n, covariance = math.prod(shape), self.covariances[name]
        units = np.eye(n).reshape(n, *shape)
        stats = self._images(name, covariance.stats_by, units)
        if self.side_by_side(name):
            return stats, _full(covariance.own(units), (n, *shape)).reshape(n, n)
        return stats, np.stack([np.ravel(covariance.own(unit)) for unit in units])

    def _images(self, name: str, function: Callable[[Floats], Stats], units: Floats) -> Floats:
        """What a linear function makes of vectors along a first axis, in the statistics of a block: all at once, or in turn."""
        n, shapes = len(units), self.shapes[name]
        if self.side_by_side(name):
            return self._rows(tuple(_full(p, (n, *s)) for p, s in zip(function(units), shapes, strict=True)))
        each = [[_full(p, s).ravel() for p, s in zip(function(unit), shapes, strict=True)] for unit in units]
        return np.stack([np.concatenate(parts) for parts in each])

    def side_by_side(self, name: str) -> bool:
        """Whether V of a block takes several changes of λ, along a first axis."""
        return self.at.blocks[name].family.takes_changes(self.shapes[name])

    def free_directions(self, name: str) -> Floats | None:
        """An orthogonal basis of what a block's numbers can be, where some are symmetric; None where all are free."""
        symmetric = self.at.blocks[name].family.symmetric
        if not any(symmetric):
            return None
        size = self.places[name].stop - self.places[name].start
        start, swapped = 0, np.arange(size)
        for shape, turned in zip(self.shapes[name], symmetric, strict=True):
            numbers = np.arange(start, start + math.prod(shape)).reshape(shape)
            if turned:
                swapped[numbers.ravel()] = np.swapaxes(numbers, -1, -2).ravel()
            start += math.prod(shape)
        keep = np.flatnonzero(swapped >= np.arange(size))
        free = np.zeros((size, len(keep)))
        free[keep, np.arange(len(keep))] = free[swapped[keep], np.arange(len(keep))] = 1.0
        return np.asarray(free / np.sqrt(free.sum(0)))

    def _rows(self, stats: Stats) -> Floats:
        """The way back: statistics along a first axis as vectors."""
        return np.concatenate([part.reshape(len(part), -1) for part in stats], axis=1)

    def _centred(self, stats: Mapping[str, Stats]) -> Floats:
        return self.pack({name: self.covariances[name].centred(parts) for name, parts in stats.items()})

    def weighed(self, vector: Floats) -> Floats:
        """W a."""
        return vector if self.weights is None else vector * self.weights

    def inner(self, first: Floats, second: Floats) -> float:
        """aᵀ W b."""
        return float(np.vdot(self.weighed(first), second))

    def residual(self) -> Floats:
        """λ̂ − λ: zero at an optimum."""
        pairs = {
            name: tuple(difference(new, old) for new, old in zip(self.at.targets[name], self.at.lam[name], strict=True))
            for name in self.places
        }
        return self._centred(pairs)


def _full(part: Any, shape: tuple[int, ...]) -> Floats:
    return np.asarray(part if np.shape(part) == shape else np.broadcast_to(part, shape), np.float64)


def difference(new: Any, old: Any) -> Floats:
    """λ̂ − λ; a category that never happens has −∞ in both."""
    new, old = np.asarray(new, np.float64), np.asarray(old, np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(new == old, 0.0, new - old)
