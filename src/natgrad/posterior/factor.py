"""One fitted factor q(x): what a user asks of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.families import Family
from natgrad.random import sample_generator

__all__ = ["Factor", "Part", "shifted"]

Array = npt.NDArray[Any]
# Families whose values have no order, hence no interval.


class Part(NamedTuple):
    """A joint law whose marginals are no members of a node's own family, and where the node is in its values."""

    family: Family
    lam: tuple[Array, ...]
    place: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Factor:
    """The posterior approximation of one hidden node; arrays have the node's plates first.

    Attributes
    ----------
    name, family : the node's name and its exponential family
    plates : names of the leading axes
    lam : natural parameter of x − origin, a tuple with one array for each sufficient statistic
    seen, values : of a node that is observed in part, which elements (of vectors, entries) were observed, and what they are; what
        q says of these is not about data, and nothing here shows it
    origin : from where a location is measured, None for zero: data far from zero are held as differences, which keep their digits
    labels : what the elements of plates are called, by plate, where they have names
    part : of a node that shares a factor with its precision, the law of both: means, variances, intervals and draws are its own;
        `lam`, and all that is read from it, has the same mean and variance in the node's family
    """

    name: str
    family: Family
    plates: tuple[str, ...]
    lam: tuple[Array, ...]
    origin: Array | None = None
    seen: Array | None = None
    values: Array | None = None
    labels: Mapping[str, Any] | None = None
    part: Part | None = None

    @property
    def natural(self) -> dict[str, Array]:
        """The natural parameter by the name of its statistic."""
        return dict(zip(self.family.stat_names, shifted(self.family, self.lam, self.origin), strict=True))

    @property
    def parameters(self) -> dict[str, Array]:
        """The usual parameters: mean and precision, shape and rate, concentration and so on; NaN for what was observed."""
        usual = {name: np.asarray(value) for name, value in self.family.usual(self.lam).items()}
        if self.origin is not None and "mean" not in usual:
            return {
                name: np.asarray(v)
                for name, v in self.family.usual(shifted(self.family, self.lam, self.origin)).items()
            }
        if self.origin is not None:
            usual = {**usual, "mean": usual["mean"] + self.family.location(self.origin)}
        if self.seen is None:
            return usual
        return {
            name: self._known(value, self.values) if name == "mean" else _choose(self._seen_elements, np.nan, value)
            for name, value in usual.items()
        }

    @property
    def moments(self) -> dict[str, Array]:
        """Expected sufficient statistics."""
        values = self.family.expected_stats(shifted(self.family, self.lam, self.origin))
        moments = {name: np.asarray(value) for name, value in zip(self.family.stat_names, values, strict=True)}
        return moments if self.seen is None else self._split(moments)

    def mean(self) -> Array:
        """E[x]; for categories, their probabilities."""
        return self._known(self._own("mean") + self._start, self.values)

    def probabilities(self) -> Array:
        """Of a category, the probability of each value: plates, then categories."""
        if not self.family.is_discrete:
            raise TypeError(f"{self.name!r}: only categories have probabilities; use mean(), interval() or sample()")
        mean = self.mean()
        return mean if self.family.stat_ndims[0] else np.stack([1.0 - mean, mean], axis=-1)

    def var(self) -> Array:
        """The variance of each element."""
        return self._known(self._own("var"), 0.0)

    def std(self) -> Array:
        """The standard deviation of each element."""
        return np.sqrt(self.var())

    def interval(self, mass: float = 0.9) -> tuple[Array, Array]:
        """Lower and upper ends of each element's central interval with probability ``mass``."""
        low, high = self._own("interval", mass)
        return self._known(low + self._start, self.values), self._known(high + self._start, self.values)

    def sample(self, rng: np.random.Generator | int | None = None, n: int | None = None) -> Array:
        """Draws from q: ``n`` of them along a new first axis, or one without it; a number as ``rng`` is a seed, and needs n."""
        generator = sample_generator(rng, n, repr(self.name))
        return self._known(self._own("sample", generator, n) + self._start, self.values)

    def entropy(self) -> Array:
        """−E[log q] of each element; 0 for what was observed."""
        if self.part is not None:
            raise TypeError(f"{self.name!r} shares its factor with another node: only the entropy of both is known")
        entropy = np.asarray(self.family.entropy(self.lam))
        if self.seen is None:
            return entropy
        if self.family.is_gaussian and self.family.event_ndim:
            # Entries that were observed are independent of the others in q, and have the variance 1.
            return np.asarray(entropy - 0.5 * (1.0 + np.log(2.0 * np.pi)) * self.seen.sum(-1))
        return np.where(self._seen_elements, 0.0, entropy)

    def _own(self, what: str, *options: Any) -> Any:
        """Mean, variance, interval or draws of the family; of a part of a joint law, of that part."""
        if self.part is None:
            return getattr(self.family, what)(self.lam, *options)
        value = getattr(self.part.family, what)(self.part.lam, *options)
        place = (..., *self.part.place)
        return tuple(end[place] for end in value) if isinstance(value, tuple) else value[place]

    def _known(self, array: Array, value: Any) -> Array:
        """An array over values, with those that were observed in their places."""
        return np.asarray(array) if self.seen is None else np.where(self.seen, value, array)

    @property
    def _seen_elements(self) -> Array:
        """Which elements were observed, of vectors at least one entry: over the plates."""
        assert self.seen is not None
        return np.asarray(self.seen.any(tuple(range(len(self.plates), self.seen.ndim))))

    def _split(self, moments: dict[str, Array]) -> dict[str, Array]:
        """Moments of data where they are, of q elsewhere."""
        assert self.seen is not None
        if self.family.is_gaussian and self.family.event_ndim:
            spread = moments["xx"] - moments["x"][..., :, None] * moments["x"][..., None, :]
            missing, mean = ~self.seen, self._known(moments["x"], self.values)
            both = missing[..., :, None] & missing[..., None, :]
            return {"x": mean, "xx": np.where(both, spread, 0.0) + mean[..., :, None] * mean[..., None, :]}
        with np.errstate(divide="ignore"):  # what was not observed has any value
            of_values = dict(zip(self.family.stat_names, self.family.stats_of(self.values), strict=True))
        return {name: _choose(self._seen_elements, of_values[name], m) for name, m in moments.items()}

    def frame(self, *, mass: float = 0.9) -> Any:
        """A pandas DataFrame with one row for each element: ids, mean, sd, and the ends of interval with probability ``mass``.

        Vectors have these columns for each of their entries, ``mean_0``, ``sd_0`` and so on; categories have ``prob_0``, ….
        """
        from natgrad.posterior.export import element_frame, summary_arrays

        summary = summary_arrays(self, mass)
        return element_frame(summary if "lower" in summary else {"prob": summary["mean"]}, self.plates, self.labels)

    @property
    def _start(self) -> Any:
        # An integer, so that what is not measured from elsewhere keeps its type (the categories of a sample).
        return 0 if self.origin is None else self.origin

    def __repr__(self) -> str:
        shape = self.lam[0].shape[: len(self.plates)]
        plates = ", ".join(f"{plate}={size}" for plate, size in zip(self.plates, shape, strict=True))
        return f"<q({self.name}): {self.family.name}{' on ' + plates if plates else ''}>"


def _choose(elements: Array, first: Any, second: Array) -> Array:
    """First where elements are chosen, second elsewhere, whatever axes follow theirs."""
    return np.where(elements.reshape(elements.shape + (1,) * (second.ndim - elements.ndim)), first, second)


def shifted(family: Any, lam: tuple[Any, ...], origin: Any) -> tuple[Any, ...]:
    """λ of x, where `lam` is that of x − origin; a difference of two λ is shifted in the same way."""
    return lam if origin is None else tuple(family.shifted(lam, origin))
