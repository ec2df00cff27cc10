"""Quantities in, covariances out: which solves are made, by which solver, and what is kept of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConverged
from natgrad.posterior.factor import Factor
from natgrad.posterior.response.operator import Operator
from natgrad.posterior.response.probing import probed_diagonal
from natgrad.posterior.response.quantities import Quantity
from natgrad.posterior.response.settling import Settled, matrix_of
from natgrad.posterior.response.solvers import Dense, conjugate_gradients
from natgrad.posterior.response.values import Values
from natgrad.threads import one_blas_thread

__all__ = ["Solver"]

Floats = npt.NDArray[np.float64]
Stats = tuple[Any, ...]
# Numbers in λ up to which a matrix of that size is made at once, or may be made; numbers of kept solutions; values of which all
# covariances are found at once, and numbers in their solutions.
SMALL, MOST_DENSE, MOST_KEPT, MOST_VALUES, MOST_SOLVED = 32, 1_000, 20_000_000, 64, 100_000
# What is probed has an error of percents anyway; this one is counted tenfold beside it, since solutions are less exact than
# residuals.
PROBE_TOL = 1e-4
# Relative standard errors of a standard deviation above which an element is solved for, if that are few, and is not known.
DOUBT, LOST = 0.1, 0.5


class Solver:
    """Covariances of linear response at one state."""

    def __init__(self, settled: Settled, factors: Mapping[str, Factor], tol: float, limit: int) -> None:
        self._dense = settled.matrix
        self.operator = Operator(settled.at) if self._dense is None else self._dense.operator
        self.operator.flat, self.factors = settled.flat, factors
        self._tol, self._limit = tol, limit
        self._looked = self._dense is not None  # whether it is a matrix by itself
        self._iterations = 10.0  # of a solve, as the last ones took
        self._kept: dict[Any, Floats] = {}

    # -- solves --

    def solve(self, b: Floats, tol: float = 0.0) -> Floats:
        """Find x with (I − J V) x = b; ``tol`` is a coarser tolerance than usual."""
        tol = max(tol, self._tol)
        self.expect(1)
        if self._dense is not None:
            return self._dense.solve(b).x
        cg = conjugate_gradients(self.operator, b, tol, self._limit)
        self._iterations = 0.5 * (self._iterations + cg.iterations)
        if cg.residual > 100 * tol:
            warnings.warn(
                f"conjugate gradients stopped after {cg.iterations} products with {cg.residual:.1g} of the right-hand side "
                "left: these covariances are not right to more than that. Raise max_iterations, or use draws",
                NotConverged,
                stacklevel=6,
            )
        return cg.x

    def expect(self, solves: int) -> None:
        """Make the matrix if that takes fewer products than so many solves by conjugate gradients, or than were made so far.

        Who does not know how often he will be asked makes it when he has paid its price: at most twice what was needed.
        """
        if self._dense is None and not self._looked:
            self._dense, self._looked = matrix_of(self.operator), True
        n = self.operator.size
        pays = n <= SMALL or n < max(solves * self._iterations, self.operator.n_products)
        if self._dense is None and n <= MOST_DENSE and pays:
            with one_blas_thread():  # threads gain nothing at this size, and lose much where others use the machine
                self._dense = Dense(self.operator)

    # -- quantities --

    def _by_block(self, quantity: Quantity) -> Quantity:
        """The weights of parts of a block as weights of the block."""
        views = self.operator.at.views
        quantity = {name: self._unseen(name, weights) for name, weights in quantity.items()}
        if not any(name in views for name in quantity):
            return quantity
        by_block = {name: weights for name, weights in quantity.items() if name not in views}
        for name in (name for name in quantity if name in views):
            block, place = views[name]
            whole = np.zeros(np.shape(self.factors[block].mean()))
            whole[(..., *place)] = quantity[name]
            by_block[block] = by_block[block] + whole if block in by_block else whole
        return by_block

    def _unseen(self, name: str, weights: Any) -> Any:
        """Weights of the elements that are not data."""
        return weights if self.factors[name].seen is None else np.where(self.factors[name].var() > 0, weights, 0.0)

    def source(self, quantity: Quantity) -> Floats:
        """Cov_q(φ, g), of one copy where an element stands for several."""
        stats_of = {}
        for name, weights in self._by_block(quantity).items():
            stats = self.operator.covariances[name].stats_by(np.asarray(weights, np.float64))
            if name in self.operator.at.weights:
                stats = _shared(stats, self.operator.at.weights[name], name, weights)
            stats_of[name] = stats
        return self.operator.pack(stats_of)

    def change(self, quantity: Quantity) -> Floats:
        """The change dλ for a tilt by the quantity, kept for single elements."""
        key = _key(quantity)
        if key is None or key not in self._kept:
            x = self.solve(self.operator.curvature(self.source(quantity)))
            if key is None or sum(kept.size for kept in self._kept.values()) > MOST_KEPT:
                return x
            self._kept[key] = x
        return self._kept[key]

    def moved(self, quantity: Quantity) -> dict[str, Stats]:
        """The change dμ of all blocks for a tilt by the quantity."""
        direction = self.source(quantity) + self.operator.fisher(self.change(quantity))
        return self.operator.unpack(direction)

    def _read(self, quantity: Quantity, of: Quantity, change: Floats) -> float:
        """Cov_q(h, g) + Cov_q(h, φ)·dλ."""
        total, of = 0.0, self._by_block(of)
        for name, weights in self._by_block(quantity).items():
            covariance = self.operator.covariances[name]
            value = covariance.value_by(self.operator.part(change, name))
            if name in of:
                value = value + covariance.own(np.asarray(of[name], np.float64))
            total += float(np.vdot(weights, value))
        return total

    def var(self, quantity: Quantity) -> float:
        """Var_LR of a quantity."""
        self.expect(1)
        found = None if self._values is None else self._values.var(self._by_block(quantity))
        return self.cov_with(quantity, [quantity])[0] if found is None else found

    def cov_with(self, quantity: Quantity, others: Sequence[Quantity]) -> list[float]:
        """Cov_LR of a quantity with several, by one solve."""
        self.expect(len(others))
        if self._values is not None:  # all of them are known
            found = self._values.cov_with(self._by_block(quantity), [self._by_block(other) for other in others])
            if found is not None:
                return found
        change = self.change(quantity)
        return [self._read(other, quantity, change) for other in others]

    @cached_property
    def _values(self) -> Values | None:
        """Covariances of the values of small blocks; None where they would be many, or some direction is flat."""
        if self._dense is None or not self._dense.is_clear or self.operator.weights is not None:
            return None
        shapes = {name: np.shape(self.factors[name].mean()) for name in self.operator.places}
        sizes = {name: math.prod(shape) for name, shape in shapes.items()}
        small, total = {}, 0
        for name in sorted(sizes, key=sizes.__getitem__):
            total += sizes[name]
            if total > MOST_VALUES or total * self.operator.size > MOST_SOLVED:
                break
            small[name] = shapes[name]
        return Values(self._dense, small) if small else None

    # -- whole nodes --

    def variances(self, name: str) -> Floats:
        """The variance of each element of a node, by one solve for each."""
        mean = np.asarray(self.factors[name].mean())
        self.expect(mean.size)
        known = None if self._values is None or self.factors[name].seen is not None else self._values.variances(name)
        if known is not None:
            return known.reshape(mean.shape)
        out = np.empty(mean.shape)
        for place in np.ndindex(mean.shape):
            unit = np.zeros(mean.shape)
            unit[place] = 1.0
            out[place] = np.nan if self._left_out(name, place) else self.var({name: unit})
        return out

    def probed(self, name: str, probes: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """The variance of each element, and its standard error, by so many solves: q's own, which is known, plus the rest.

        The rest is probed in units of q's own standard deviations (`probing`). What stays uncertain is solved for, element by
        element, as far as a few solves go.
        """
        own = np.asarray(self.factors[name].var(), np.float64)
        block, place = self.operator.at.views.get(name, (name, None))
        covariance, unit = self.operator.covariances[block], np.sqrt(own)
        inverse = np.asarray(self._unseen(name, np.divide(1.0, unit, out=np.zeros_like(unit), where=unit > 0)))
        self.expect(probes)

        def rest(weights: Floats) -> Floats:
            """C z, in units of q."""
            source = self.source({name: inverse * weights.reshape(own.shape)})
            change = self.solve(self.operator.curvature(source), PROBE_TOL)
            moved = covariance.value_by(self.operator.part(change, block))
            return np.asarray(inverse * (moved if place is None else moved[(..., *place)])).ravel()

        # What all elements have in common, as biases beside a level, is a direction that no probe has to find. Probabilities sum
        # to one: their sum does not vary, and has nothing in common with anything.
        whole = self._by_block({name: np.asarray(self._unseen(name, np.ones(own.shape)))})[block]
        varies = float(np.vdot(whole, covariance.own(whole))) > 1e-9 * float(own.sum())
        found = probed_diagonal(rest, own.size, probes, rng, unit.ravel() if varies else None)
        ratio, error = (part.reshape(own.shape) for part in found)
        variance, error = own * (1.0 + ratio), own * np.hypot(error, 10.0 * PROBE_TOL * ratio)
        self._refine(name, variance, error, own, probes)
        return variance, error

    def _refine(self, name: str, variance: Floats, error: Floats, own: Floats, most: int) -> None:
        """Solve for the elements that are known worst, in place; say how many are not known at all."""
        with np.errstate(divide="ignore", invalid="ignore"):
            doubt = np.where(variance > 0, 0.5 * error / variance, np.inf)
        doubt[own <= 0] = 0.0
        for flat in np.argsort(-doubt, axis=None, kind="stable")[:most]:
            place = np.unravel_index(flat, doubt.shape)
            if doubt[place] <= DOUBT:
                break
            unit = np.zeros(own.shape)
            unit[place] = 1.0
            change = self.solve(self.operator.curvature(self.source({name: unit})), PROBE_TOL)
            variance[place], error[place], doubt[place] = self._read({name: unit}, {name: unit}, change), 0.0, 0.0
        if (lost := doubt > LOST).any():
            variance[lost] = error[lost] = np.nan
            warnings.warn(
                f"{int(lost.sum())} of {own.size} variances of {name!r} are not known to better than {LOST:.0%} after {most} "
                "probes, and are NaN: raise probes=, or ask for single elements by a function",
                NotConverged,
                stacklevel=6,
            )

    def _left_out(self, name: str, place: tuple[int, ...]) -> bool:
        weight = self.operator.at.weights.get(self.operator.at.views.get(name, (name,))[0])
        return weight is not None and weight[place[: weight.ndim]] == 0


def _key(quantity: Quantity) -> Any:
    """A single element of a node; None for anything else."""
    if len(quantity) != 1:
        return None
    ((name, weights),) = quantity.items()
    places = np.flatnonzero(weights)
    return (name, int(places[0])) if len(places) == 1 and np.ravel(weights)[places[0]] == 1.0 else None


def _shared(stats: Stats, weight: Floats, name: str, asked: Any) -> Stats:
    """The part of each of w copies, 1/w; an element of weight 0 is not among the data."""
    used = np.any(np.reshape(np.asarray(asked) != 0, (*weight.shape, -1)), axis=-1)
    if np.any(used & (weight == 0)):
        place = tuple(int(i) for i in np.argwhere(used & (weight == 0))[0])
        raise ValueError(f"{name}{list(place)} has weight 0: it is left out of the data, and nothing responds to it")
    inverse = np.divide(1.0, weight, out=np.zeros_like(weight), where=weight > 0)
    return tuple(part * inverse.reshape(weight.shape + (1,) * (np.ndim(part) - weight.ndim)) for part in stats)
