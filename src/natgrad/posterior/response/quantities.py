"""A node's name, or a function of the means, in; the weights with which it reads the values of nodes out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.posterior.factor import Factor

__all__ = ["Quantities", "Quantity", "as_quantities"]

Floats = npt.NDArray[np.float64]
# Steps of numerical derivatives, in standard deviations under q: what is cut off is their square, rounding their inverse.
STEP = 1e-4
# Numbers of a node from which on they are moved in groups; an irrational number, whose multiples differ.
GROUPED, GOLDEN = 32, 0.6180339887498949

Quantity = Mapping[str, Any]  # the weights of each node's values
_Known = dict[str, tuple[Floats, Floats]]  # mean and standard deviation by name


class Quantities(NamedTuple):
    """The value of a quantity at the means, and the derivative of each of its elements, in C order."""

    value: Floats
    quantities: list[Quantity]


def as_quantities(of: Any, factors: Mapping[str, Factor], moments: _Known | None = None) -> Quantities:
    """The elements of a node (its name, or itself), or of a function of the means, as weights on values.

    ``moments`` keeps the mean and the standard deviation of nodes from one question to the next.
    """
    if callable(of) and not hasattr(of, "family"):
        return _of_function(of, factors, {} if moments is None else moments)
    name: str = getattr(of, "name", of)
    if name not in factors:
        raise KeyError(f"{name!r} is not a hidden node; these are {', '.join(factors)}")
    mean = np.asarray(factors[name].mean(), np.float64)
    eye = np.eye(mean.size)
    return Quantities(mean, [{name: row.reshape(mean.shape)} for row in eye])


class _Means(Mapping[str, Any]):
    """The means by name, which remember who was asked for; given some of them anew."""

    def __init__(self, factors: Mapping[str, Factor], given: Mapping[str, Floats], known: _Known) -> None:
        self._factors, self._given, self._known = factors, given, known
        self.asked: dict[str, Floats] = {}

    def __getitem__(self, name: Any) -> Floats:
        name = name if isinstance(name, str) else getattr(name, "name", name)
        if name not in self._factors:
            raise KeyError(f"{name!r} is not a hidden node; these are {', '.join(self._factors)}")
        if name in self._given:
            return self._given[name]
        if name not in self.asked:
            if name not in self._known:
                mean = np.asarray(self._factors[name].mean(), np.float64)
                self._known[name] = mean, np.broadcast_to(self._factors[name].std(), mean.shape)
            self.asked[name] = self._known[name][0]
        return self.asked[name].copy()

    def __iter__(self) -> Iterator[str]:
        return iter(self._factors)

    def __len__(self) -> int:
        return len(self._factors)


def _of_function(function: Callable[..., Any], factors: Mapping[str, Factor], kept: _Known) -> Quantities:
    means = _Means(factors, {}, kept)
    value = np.asarray(function(means), np.float64)
    if (known := getattr(function, "derivatives", None)) is not None:  # nothing to be differentiated number by number
        return Quantities(value, list(known(means)))
    slopes = {
        name: _slope(function, value, name, mean, np.where(kept[name][1] == 0.0, 1.0, kept[name][1]), factors, kept)
        for name, mean in means.asked.items()
    }
    if not np.all(np.isfinite(value)) or not all(np.all(np.isfinite(s)) for s in slopes.values()):
        raise ValueError("the function, or its derivative, is not finite at the means")
    return Quantities(value, [{name: s[place] for name, s in slopes.items()} for place in np.ndindex(value.shape)])


def _slope(
    function: Callable[..., Any],
    value: Floats,
    name: str,
    mean: Floats,
    sd: Floats,
    factors: Mapping[str, Factor],
    kept: _Known,
) -> Floats:
    """The derivative by every number of one node [axes of the value, those of the node].

    Most functions read few numbers of a large node. So √n of them are moved at once, each by a step of its own, so that no two
    cancel; where not a bit of the value changes on either side, none of them counts.
    """
    given: dict[str, Floats] = {}
    there, flat, steps = _Means(factors, given, kept), mean.ravel(), STEP * np.ravel(sd)

    def at(places: Any, numbers: Any) -> Any:
        moved = flat.copy()
        moved[places] = numbers
        given[name] = moved.reshape(mean.shape)
        return function(there)

    def counts(places: slice) -> bool:
        own = steps[places] * (0.5 + (np.arange(mean.size)[places] * GOLDEN) % 1.0)
        return any(not np.array_equal(at(places, flat[places] + sign * own), value) for sign in (1.0, -1.0))

    columns = np.zeros((mean.size, *value.shape))
    width = math.isqrt(mean.size) if mean.size >= GROUPED else max(mean.size, 1)
    ends = list(zip((flat + steps).tolist(), (flat - steps).tolist(), strict=True))
    for begin in range(0, mean.size, width):
        group = slice(begin, begin + width)
        if width == mean.size or counts(group):
            for place in range(mean.size)[group]:
                columns[place] = np.subtract(at(place, ends[place][0]), at(place, ends[place][1]), dtype=np.float64)
    columns /= (2.0 * steps).reshape(-1, *(1,) * value.ndim)
    return np.moveaxis(columns, 0, -1).reshape(value.shape + mean.shape)
