"""A small system as a matrix in; covariances of the values of its blocks out, all of them at once.

With S the sources Cov_q(x, φ) of all values x, Cov_LR = Cov_q(x, x) + S dλ, dλ the solutions for J Sᵀ: three products of
matrices, where one question after the other would take as many calls for each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from natgrad.posterior.response.eliminated import Eliminated
from natgrad.posterior.response.quantities import Quantity
from natgrad.posterior.response.solvers import Dense

__all__ = ["Values"]

Floats = npt.NDArray[np.float64]


class Values:
    """Covariances of linear response, of the values of some blocks with these shapes."""

    def __init__(self, system: Dense | Eliminated, shapes: Mapping[str, tuple[int, ...]]) -> None:
        operator, n = system.operator, sum(math.prod(shape) for shape in shapes.values())
        self.places: dict[str, slice] = {}
        sources, own, end = np.zeros((n, operator.size)), np.zeros((n, n)), 0
        for name, shape in shapes.items():
            here = self.places[name] = slice(end, end + math.prod(shape))
            sources[here, operator.places[name]], own[here, here] = operator.sources(name, shape)
            end = here.stop
        self.covariance = own + sources @ system.responses(sources).T

    def cov_with(self, quantity: Quantity, others: Sequence[Quantity]) -> list[float] | None:
        """Covariances of a quantity with others; None where one of them reads what is not here."""
        if any(name not in self.places for of in (quantity, *others) for name in of):
            return None
        moved = self.covariance @ self._weights(quantity)
        return [float(np.vdot(self._weights(other), moved)) for other in others]

    def var(self, quantity: Quantity) -> float | None:
        """The variance of a quantity; None where it reads what is not here."""
        if any(name not in self.places for name in quantity):
            return None
        weights = self._weights(quantity)
        return float(weights @ self.covariance @ weights)

    def variances(self, name: str) -> Floats | None:
        """The variance of each value of a block; None where it is not here."""
        place = self.places.get(name)
        return None if place is None else np.diagonal(self.covariance)[place].copy()

    def _weights(self, quantity: Quantity) -> Floats:
        weights = np.zeros(len(self.covariance))
        for name, part in quantity.items():
            weights[self.places[name]] = np.ravel(part)
        return weights
