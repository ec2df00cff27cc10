"""Draw random numbers that are the same in every row, so that what is predicted of a row does not depend on the other rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv, ndtri

__all__ = ["SameInRows"]

Array = npt.NDArray[Any]
# Columns of numbers that are drawn evenly, one from each of n equally likely parts: sorting takes longer than drawing.
EVEN = 1000
# Shapes of Gamma variables whose quantiles are looked up, which takes longer still.
FEW = 20
TINY = 2.0**-54


class SameInRows(np.random.Generator):
    """A generator that also draws the same numbers along some axes: ``rng.along(axes).normal(mean, sd, size)``.

    The first axis of these is that of draws. Uniform and normal numbers are spread evenly over it (a Latin hypercube), so that
    averages of smooth functions of few numbers are nearly those of a quadrature.
    """

    def __init__(self, rng: np.random.Generator | int | None) -> None:
        super().__init__(np.random.default_rng(rng).bit_generator)

    def along(self, axes: tuple[int, ...]) -> _Along:
        """What draws along axes of ``size`` the same numbers; equal parameters have equal draws there."""
        return _Along(self, axes)


class _Along:
    def __init__(self, rng: np.random.Generator, axes: tuple[int, ...]) -> None:
        self.rng, self.axes = rng, axes

    def __getattr__(self, name: str) -> Callable[..., Array]:
        draw = getattr(self.rng, name)
        return lambda *args, size=None: self._by_row(draw, args, size)

    def random(self, size: tuple[int, ...]) -> Array:
        return np.broadcast_to(self._uniform(size), size)

    def uniform(self, size: tuple[int, ...]) -> Array:
        return self.random(size)

    def standard_normal(self, size: tuple[int, ...]) -> Array:
        return np.broadcast_to(ndtri(np.clip(self._uniform(size), TINY, 1.0 - TINY)), size)

    def standard_exponential(self, size: tuple[int, ...]) -> Array:
        return np.broadcast_to(-np.log1p(-self._uniform(size)), size)

    def _uniform(self, size: tuple[int, ...]) -> Array:
        once = tuple(1 if place in self.axes else length for place, length in enumerate(size))
        drawn = self.rng.random(once)
        if drawn.size > EVEN * len(drawn):
            return drawn
        return np.asarray((np.argsort(np.argsort(drawn, axis=0), axis=0) + 0.5) / len(drawn))

    def standard_gamma(self, shape: Any, size: tuple[int, ...]) -> Array:
        if np.size(shape) > FEW:
            return self._by_row(self.rng.standard_gamma, (shape,), size)
        return np.asarray(gammaincinv(shape, self.random(size)))

    def normal(self, mean: Any, sd: Any, size: tuple[int, ...]) -> Array:
        return np.asarray(mean + sd * self.standard_normal(size))

    def exponential(self, scale: Any, size: tuple[int, ...]) -> Array:
        return np.asarray(scale * self.standard_exponential(size))

    def _by_row(self, draw: Callable[..., Array], args: tuple[Any, ...], size: tuple[int, ...] | None) -> Array:
        """Draws of each row from the same state of the generator: their number may depend on the parameters."""
        if size is None and isinstance(args[-1], tuple):
            args, size = args[:-1], args[-1]
        size = np.broadcast_shapes(*map(np.shape, args)) if size is None else size
        first = tuple(axis for axis in self.axes if axis < len(size))
        wide = [np.moveaxis(np.broadcast_to(arg, size), first, range(len(first))) for arg in args]
        rows, bits = wide[0].shape[: len(first)], self.rng.bit_generator
        out, state = [], bits.state
        for row in np.ndindex(rows):
            bits.state = state
            out.append(draw(*(part[row] for part in wide), size=wide[0].shape[len(first) :]))
        return np.moveaxis(np.reshape(out, wide[0].shape), range(len(first)), first)
