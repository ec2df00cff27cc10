"""Laws of the nodes that are conjugate by augmentation, their auxiliary variables integrated out: draws and log densities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy
from scipy.special import log_ndtr, ndtr

from natgrad.network.language.counts import NegativeBinomial
from natgrad.network.language.robust import Laplace, LogNormal, Ordinal, StudentT, TruncatedNormal
from natgrad.network.language.simplex import HalfCauchy

__all__ = ["LEAF_LOG_DENSITY", "LEAF_SAMPLE", "odds", "ordinal_probabilities", "truncated_lam"]

Array = npt.NDArray[Any]
Slots = dict[str, Array]
Draw = Callable[[Any, Slots, np.random.Generator, tuple[int, ...]], Array]


def _sd(s: Slots) -> Array:
    return np.asarray(1.0 / np.sqrt(s["precision"]))


def ordinal_probabilities(node: Any, s: Slots) -> Array:
    """That of each level [draw, plates, level]."""
    below = ndtr((node.cutpoints - s["mean"][..., None]) * np.sqrt(s["precision"])[..., None])
    edge = np.zeros((*below.shape[:-1], 1))
    return np.diff(np.concatenate([edge, below, edge + 1.0], axis=-1), axis=-1)


def _draw_ordinal(node: Any, s: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    z = rng.normal(s["mean"], _sd(s), shape)
    return np.asarray((z[..., None] > node.cutpoints).sum(-1))


def _ordinal_density(node: Any, x: Array, s: Slots) -> Array:
    table = ordinal_probabilities(node, s)
    places = np.broadcast_to(x.astype(np.int64)[..., None], (*table.shape[:-1], 1))
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.take_along_axis(table, places, -1))[..., 0])


def odds(s: Slots) -> Array:
    """Of a negative binomial; a probability of one to rounding has odds in its logit."""
    return np.exp(np.minimum(s["logit"], 40.0)) if "logit" in s else s["prob"] / (1.0 - s["prob"])


def _draw_negative_binomial(node: Any, s: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    # NumPy draws whole numbers of up to eighteen digits.
    return rng.poisson(np.minimum(odds(s) * rng.gamma(s["shape"], 1.0, shape), 1e18))


def truncated_lam(node: Any, s: Slots) -> tuple[Any, ...]:
    """λ of a truncated Normal for each draw."""
    from natgrad.families._truncated import sides_of

    low, high, sides = sides_of(node.lower, node.upper)
    return tuple(node.family.natural(mean=s["mean"], precision=s["precision"], lower=low, upper=high, sides=sides))


def _draw_truncated(node: Any, s: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.asarray(np.broadcast_to(node.family.sample(truncated_lam(node, s), rng), shape))


def _truncated_density(node: Any, x: Array, s: Slots) -> Array:
    a, b = ((bound - s["mean"]) * np.sqrt(s["precision"]) for bound in (node.lower, node.upper))
    low, high = np.where(a > 0, -b, a), np.where(a > 0, -a, b)
    mass = log_ndtr(high) + np.log1p(-np.exp(log_ndtr(low) - log_ndtr(high)))
    inside = (x >= node.lower) & (x <= node.upper)
    return np.where(inside, scipy.stats.norm.logpdf(x, s["mean"], _sd(s)) - mass, -np.inf)


LEAF_SAMPLE: dict[type, Draw] = {
    HalfCauchy: lambda node, s, rng, shape: (s["scale"] * np.abs(rng.standard_cauchy(shape))) ** -2.0,
    StudentT: lambda node, s, rng, shape: s["mean"] + _sd(s) * rng.standard_t(s["df"], shape),
    Laplace: lambda node, s, rng, shape: rng.laplace(s["mean"], _sd(s), shape),
    LogNormal: lambda node, s, rng, shape: rng.lognormal(s["mean"], _sd(s), shape),
    NegativeBinomial: _draw_negative_binomial,
    Ordinal: _draw_ordinal,
    TruncatedNormal: _draw_truncated,
}
# These take the node, too: some of their parameters are no slots.
LEAF_LOG_DENSITY: dict[type, Callable[[Any, Array, Slots], Array]] = {
    StudentT: lambda node, x, s: scipy.stats.t.logpdf(x, s["df"], s["mean"], _sd(s)),
    Laplace: lambda node, x, s: scipy.stats.laplace.logpdf(x, s["mean"], _sd(s)),
    LogNormal: lambda node, x, s: scipy.stats.lognorm.logpdf(x, _sd(s), scale=np.exp(s["mean"])),
    NegativeBinomial: lambda node, x, s: scipy.stats.nbinom.logpmf(x, s["shape"], 1.0 - s["prob"]),
    Ordinal: _ordinal_density,
    TruncatedNormal: _truncated_density,
}
