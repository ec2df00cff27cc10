"""One fitted factor q(x): what a user asks of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.families import Family

__all__ = ["Factor", "shifted"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Factor:
    """The posterior approximation of one hidden node; arrays have the node's plates first.

    Attributes
    ----------
    name, family : the node's name and its exponential family
    plates : names of the leading axes
    lam : natural parameter of x − origin, a tuple with one array for each sufficient statistic
    origin : from where a location is measured, None for zero: data far from zero are held as differences, which keep their digits
    labels : what the elements of plates are called, by plate, where they have names
    """

    name: str
    family: Family
    plates: tuple[str, ...]
    lam: tuple[Array, ...]
    origin: Array | None = None
    labels: Mapping[str, Any] | None = None

    @property
    def natural(self) -> dict[str, Array]:
        """The natural parameter by the name of its statistic."""
        return dict(zip(self.family.stat_names, shifted(self.family, self.lam, self.origin), strict=True))

    @property
    def parameters(self) -> dict[str, Array]:
        """The usual parameters: mean and precision, shape and rate, concentration and so on."""
        usual = {name: np.asarray(value) for name, value in self.family.usual(self.lam).items()}
        return usual if self.origin is None else {**usual, "mean": usual["mean"] + self.family.location(self.origin)}

    @property
    def moments(self) -> dict[str, Array]:
        """Expected sufficient statistics."""
        values = self.family.expected_stats(shifted(self.family, self.lam, self.origin))
        return {name: np.asarray(value) for name, value in zip(self.family.stat_names, values, strict=True)}

    def mean(self) -> Array:
        """E[x]; for categories, their probabilities."""
        return np.asarray(self.family.mean(self.lam) + self._start)

    def var(self) -> Array:
        """The variance of each element."""
        return np.asarray(self.family.var(self.lam))

    def std(self) -> Array:
        """The standard deviation of each element."""
        return np.sqrt(self.var())

    def interval(self, mass: float = 0.9) -> tuple[Array, Array]:
        """Lower and upper ends of each element's central interval with probability ``mass``."""
        low, high = self.family.interval(self.lam, mass)
        return low + self._start, high + self._start

    def sample(self, rng: np.random.Generator | int | None = None, n: int | None = None) -> Array:
        """Draws from q: ``n`` of them along a new first axis, or one without it."""
        return np.asarray(self.family.sample(self.lam, np.random.default_rng(rng), n) + self._start)

    def entropy(self) -> Array:
        """−E[log q] of each element."""
        return np.asarray(self.family.entropy(self.lam))

    def frame(self, *, mass: float = 0.9) -> Any:
        """A pandas DataFrame with one row for each element: ids, mean, sd, and the ends of interval with probability ``mass``.

        Vectors have these columns for each of their entries, ``mean_0``, ``sd_0`` and so on; categories have ``prob_0``, ….
        """
        from natgrad.posterior.export import element_frame

        return element_frame(self, mass)

    @property
    def _start(self) -> Any:
        # An integer, so that what is not measured from elsewhere keeps its type (the categories of a sample).
        return 0 if self.origin is None else self.origin

    def __repr__(self) -> str:
        shape = self.lam[0].shape[: len(self.plates)]
        plates = ", ".join(f"{plate}={size}" for plate, size in zip(self.plates, shape, strict=True))
        return f"<q({self.name}): {self.family.name}{' on ' + plates if plates else ''}>"


def shifted(family: Any, lam: tuple[Any, ...], origin: Any) -> tuple[Any, ...]:
    """λ of x, where `lam` is that of x − origin; a difference of two λ is shifted in the same way."""
    return lam if origin is None else tuple(family.shifted(lam, origin))
