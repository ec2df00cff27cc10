"""A fitted factor in; a node of its kind and size out, for readers that ask only what it is, not where it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from natgrad.network.language.binary import Bernoulli
from natgrad.network.language.continuous import Dirichlet, Exponential, Gamma, MultivariateNormal, Normal, Wishart
from natgrad.network.language.counts import Poisson
from natgrad.network.language.discrete import Categorical
from natgrad.network.language.nodes import Node
from natgrad.network.language.plates import Plate
from natgrad.network.language.simplex import Beta
from natgrad.posterior.factor import Factor

__all__ = ["stub"]

Make = Callable[[str, int, Any], Node]
OF_CLASS: dict[type, Make] = {
    Normal: lambda name, size, plate: Normal(name, 0.0, 1.0, plate=plate),
    MultivariateNormal: lambda name, size, plate: MultivariateNormal(name, 0.0, 1.0, size=size, plate=plate),
    Gamma: lambda name, size, plate: Gamma(name, 1.0, 1.0, plate=plate),
    Exponential: lambda name, size, plate: Exponential(name, 1.0, plate=plate),
    Wishart: lambda name, size, plate: Wishart(name, float(size), np.eye(size), plate=plate),
    Dirichlet: lambda name, size, plate: Dirichlet(name, 1.0, size=size, plate=plate),
    Beta: lambda name, size, plate: Beta(name, 1.0, 1.0, plate=plate),
    Categorical: lambda name, size, plate: Categorical(name, np.full(size, 1.0 / size), plate=plate),
    Bernoulli: lambda name, size, plate: Bernoulli(name, 0.5, plate=plate),
    Poisson: lambda name, size, plate: Poisson(name, 1.0, plate=plate),
}


def stub(cls: type, factor: Factor, sizes: Mapping[str, int]) -> Node:
    """A node of a class on the plates of a factor; ``sizes`` are those that differ from the factor's."""
    if cls not in OF_CLASS:
        raise TypeError(f"{factor.name!r}: a {cls.__name__} cannot be read by new rows")
    shape = factor.lam[0].shape
    plates = tuple(Plate(name, sizes.get(name, n)) for name, n in zip(factor.plates, shape, strict=False))
    n_plates = len(plates)
    size = int(shape[n_plates]) if len(shape) > n_plates else 1
    if cls is Wishart:
        size = int(next(part.shape[-1] for part in factor.lam if part.ndim == n_plates + 2))
    return OF_CLASS[cls](factor.name, size, plates or None)
