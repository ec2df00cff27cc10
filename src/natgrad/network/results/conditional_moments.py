"""Mean and variance of a node given values of its parameters for each draw, in closed form.

Averages of these over draws of the parents are predictive means and variances (E[y] = E[E[y | parents]], and the law of total
variance). Averages of draws of the node itself would have its own noise on top: rows that are equal would be predicted
differently, and a probability would be a share of some two thousand coins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.network.language.binary import Bernoulli, Binomial
from natgrad.network.language.continuous import Dirichlet, Exponential, Gamma, MultivariateNormal, Normal, Wishart
from natgrad.network.language.counts import NegativeBinomial, Poisson
from natgrad.network.language.discrete import Multinomial
from natgrad.network.language.robust import Laplace, LogNormal, Ordinal, StudentT, TruncatedNormal
from natgrad.network.language.simplex import Beta
from natgrad.network.results.conditionals import numbers_of, simplex_concentration, trials_of
from natgrad.network.results.leaves import odds, ordinal_probabilities, truncated_lam

__all__ = ["MOMENTS", "total_moments"]

Array = npt.NDArray[Any]
Slots = dict[str, Array]
Moments = Callable[[Any, Slots], tuple[Any, Any]]


def total_moments(node: Any, slots: Slots, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Mean and variance over draws of the parents, whose values are ``slots``; ``shape`` is that of draws of the node."""
    mean, var = (np.broadcast_to(part, shape) for part in MOMENTS[type(node)](node, slots))
    return mean.mean(axis=0), var.mean(axis=0) + mean.var(axis=0)


def _vector(node: Any, s: Slots) -> tuple[Any, Any]:
    return s["mean"], np.diagonal(np.linalg.inv(s["precision"]), axis1=-2, axis2=-1)


def _student(node: Any, s: Slots) -> tuple[Any, Any]:
    """Up to one degree of freedom there is no mean, up to two no variance."""
    df = np.asarray(s["df"], dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        var = np.where(df > 2, df / (df - 2.0), np.where(df > 1, np.inf, np.nan)) / s["precision"]
    return np.where(df > 1, s["mean"], np.nan), var


def _lognormal(node: Any, s: Slots) -> tuple[Any, Any]:
    spread = 1.0 / s["precision"]
    mean = np.exp(s["mean"] + 0.5 * spread)
    return mean, np.expm1(spread) * mean**2


def _negative_binomial(node: Any, s: Slots) -> tuple[Any, Any]:
    mean = s["shape"] * odds(s)
    return mean, mean * (1.0 + odds(s))


def _binomial(node: Any, s: Slots) -> tuple[Any, Any]:
    mean = numbers_of(node, "trials") * s["prob"]
    return mean, mean * (1.0 - s["prob"])


def _multinomial(node: Any, s: Slots) -> tuple[Any, Any]:
    share = s["probs"] / s["probs"].sum(-1, keepdims=True)
    mean = trials_of(node)[..., None] * share
    return mean, mean * (1.0 - share)


def _ordinal(node: Any, s: Slots) -> tuple[Any, Any]:
    table = ordinal_probabilities(node, s)
    levels = np.arange(table.shape[-1])
    mean = table @ levels
    return mean, (table * (levels - mean[..., None]) ** 2).sum(-1)


def _truncated(node: Any, s: Slots) -> tuple[Any, Any]:
    lam = truncated_lam(node, s)
    return node.family.mean(lam), node.family.var(lam)


def _beta(node: Any, s: Slots) -> tuple[Any, Any]:
    total = s["a"] + s["b"]
    mean = s["a"] / total
    return mean, mean * (1.0 - mean) / (total + 1.0)


def _dirichlet(node: Any, s: Slots) -> tuple[Any, Any]:
    concentration = simplex_concentration(node, s)
    total = concentration.sum(-1, keepdims=True)
    mean = concentration / total
    return mean, mean * (1.0 - mean) / (total + 1.0)


def _wishart(node: Any, s: Slots) -> tuple[Any, Any]:
    scale, dof = np.linalg.inv(s["rate"]), np.asarray(s["dof"])[..., None, None]
    diagonal = np.diagonal(scale, axis1=-2, axis2=-1)
    return dof * scale, dof * (scale**2 + diagonal[..., :, None] * diagonal[..., None, :])


MOMENTS: dict[type, Moments] = {
    Normal: lambda node, s: (s["mean"], 1.0 / s["precision"]),
    MultivariateNormal: _vector,
    Gamma: lambda node, s: (s["shape"] / s["rate"], s["shape"] / s["rate"] ** 2),
    Exponential: lambda node, s: (1.0 / s["rate"], s["rate"] ** -2.0),
    Poisson: lambda node, s: (s["rate"], s["rate"]),
    Bernoulli: lambda node, s: (s["prob"], s["prob"] * (1.0 - s["prob"])),
    Binomial: _binomial,
    NegativeBinomial: _negative_binomial,
    Beta: _beta,
    Dirichlet: _dirichlet,
    Wishart: _wishart,
    Multinomial: _multinomial,
    StudentT: _student,
    Laplace: lambda node, s: (s["mean"], 2.0 / s["precision"]),
    LogNormal: _lognormal,
    Ordinal: _ordinal,
    TruncatedNormal: _truncated,
}
