"""Quantiles of a node whose law is known given its parents: parameters for each draw of these in; quantiles of the mixture out.

    F(x) = Σ_d w_d F(x | parents of draw d)

Quantiles of draws of the node itself would have its own noise on top: rows that are equal would have different intervals. The
quantile of a mixture lies between the smallest and the largest of its parts, where a root of F(x) = p is bracketed and found by
the Illinois method; of whole numbers by bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from natgrad import special as sp
from natgrad.network.language.binary import Bernoulli, Binomial
from natgrad.network.language.continuous import Exponential, Gamma, MultivariateNormal, Normal
from natgrad.network.language.counts import NegativeBinomial, Poisson
from natgrad.network.language.robust import Laplace, LogNormal, StudentT
from natgrad.network.language.simplex import Beta
from natgrad.network.results.conditionals import numbers_of

__all__ = ["LAWS", "Law", "mixture_quantile"]

Array = npt.NDArray[Any]
Slots = dict[str, Array]
# Numbers of one block of rows, which fit into a cache; evaluations of F, at most; how near to p it is to be.
BLOCK, STEPS, NEAR = 200_000, 60, 1e-9


class Law(NamedTuple):
    """A law given its parameters: what they are, how likely values up to x are, the inverse of that; whole numbers or not.

    ``back`` is where a value of a simpler law leads, such as exp.
    """

    parameters: Callable[[Any, Slots], tuple[Any, ...]]
    cdf: Callable[..., Any]
    ppf: Callable[..., Any]
    whole: bool = False
    back: Callable[[Any], Any] | None = None


def mixture_quantile(law: Law, parts: Sequence[tuple[Any, ...]], weights: Any, p: float) -> Array:
    """The quantile of each element; ``parts`` are parameters [component, draw, elements], ``weights`` sum to one over the two."""
    shape = np.shape(weights)[2:]
    columns = [_columns([part[place] for part in parts], np.shape(weights)) for place in range(len(parts[0]))]
    weights = np.reshape(weights, (-1, int(np.prod(shape, dtype=np.int64))))
    out = np.empty(weights.shape[1])
    width = max(1, BLOCK // len(weights))
    for begin in range(0, len(out), width):
        own = slice(begin, begin + width)
        args = [column[:, own] for column in columns]
        out[own] = (_whole if law.whole else _root)(law, args, weights[:, own], p)
    return (out if law.back is None else np.asarray(law.back(out))).reshape(shape)


def _columns(parts: Sequence[Any], shape: tuple[int, ...]) -> Array:
    whole = np.stack([np.broadcast_to(np.asarray(part, np.float64), shape[1:]) for part in parts])
    return whole.reshape(shape[0] * shape[1], -1)


def _bracket(law: Law, args: list[Array], weights: Array, p: float) -> tuple[Array, Array]:
    """The smallest and the largest quantile of the parts that count."""
    ends = np.asarray(law.ppf(p, *args), np.float64)
    return np.where(weights > 0, ends, np.inf).min(0), np.where(weights > 0, ends, -np.inf).max(0)


def _root(law: Law, args: list[Array], weights: Array, p: float) -> Array:
    def excess(x: Array) -> Array:
        return np.asarray((weights * law.cdf(x, *args)).sum(0) - p)

    low, high = _bracket(law, args, weights, p)
    at_low, at_high = excess(low), excess(high)
    x, side = low, np.zeros(len(low), np.int8)
    for _ in range(STEPS):
        step = at_high - at_low
        middle = 0.5 * (low + high)
        x = np.where(step > 0, low - at_low * (high - low) / np.where(step > 0, step, 1.0), middle)
        x = np.where((x > low) & (x < high), x, middle)
        here = excess(x)
        left = here < 0
        # An end that stays twice counts half (Illinois), so that both ends come closer.
        at_high = np.where(left, np.where(side == -1, 0.5 * at_high, at_high), here)
        at_low = np.where(left, here, np.where(side == 1, 0.5 * at_low, at_low))
        low, high, side = np.where(left, x, low), np.where(left, high, x), np.where(left, -1, 1)
        if ((np.abs(here) <= NEAR) | (high - low <= 2.0 * np.spacing(np.abs(x)))).all():
            break
    return x


def _whole(law: Law, args: list[Array], weights: Array, p: float) -> Array:
    """The smallest whole number with F(x) ≥ p."""
    low, high = _bracket(law, args, weights, p)
    while (low < high).any():
        middle = np.floor(0.5 * (low + high))
        enough = (weights * law.cdf(middle, *args)).sum(0) >= p - 1e-12
        low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
    return low


def _gaussian(node: Any, s: Slots) -> tuple[Any, ...]:
    return s["mean"], 1.0 / np.sqrt(s["precision"])


def _vector(node: Any, s: Slots) -> tuple[Any, ...]:
    return s["mean"], np.sqrt(np.diagonal(np.linalg.inv(s["precision"]), axis1=-2, axis2=-1))


def _normal_cdf(x: Any, mean: Any, sd: Any) -> Any:
    return sp.ndtr((x - mean) / sd)


def _normal_ppf(p: Any, mean: Any, sd: Any) -> Any:
    return mean + sd * sp.ndtri(p)


def _student_cdf(x: Any, mean: Any, sd: Any, df: Any) -> Any:
    return scipy.special.stdtr(df, (x - mean) / sd)


def _student_ppf(p: Any, mean: Any, sd: Any, df: Any) -> Any:
    return mean + sd * scipy.special.stdtrit(df, p)


def _laplace_cdf(x: Any, mean: Any, sd: Any) -> Any:
    z = (x - mean) / sd
    return np.where(z < 0, 0.5 * np.exp(np.minimum(z, 0.0)), 1.0 - 0.5 * np.exp(-np.maximum(z, 0.0)))


def _laplace_ppf(p: Any, mean: Any, sd: Any) -> Any:
    return mean + sd * (np.log(2.0 * p) if p < 0.5 else -np.log(2.0 * (1.0 - p)))


def _of_stats(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Of a law of whole numbers as SciPy has it, which is imported when it is asked."""
    return (
        lambda x, *args: getattr(scipy.stats, name).cdf(x, *args),
        lambda p, *args: getattr(scipy.stats, name).ppf(p, *args),
    )


NORMAL = Law(_gaussian, _normal_cdf, _normal_ppf)
GAMMA = (lambda x, a, b: sp.gammainc(a, b * np.maximum(x, 0.0))), (lambda p, a, b: sp.gammaincinv(a, p) / b)
LAWS: dict[type, Law] = {
    Normal: NORMAL,
    MultivariateNormal: Law(_vector, _normal_cdf, _normal_ppf),
    LogNormal: NORMAL._replace(back=np.exp),
    StudentT: Law(lambda node, s: (*_gaussian(node, s), s["df"]), _student_cdf, _student_ppf),
    Laplace: Law(_gaussian, _laplace_cdf, _laplace_ppf),
    Gamma: Law(lambda node, s: (s["shape"], s["rate"]), *GAMMA),
    Exponential: Law(lambda node, s: (np.ones(()), s["rate"]), *GAMMA),
    Beta: Law(
        lambda node, s: (s["a"], s["b"]),
        lambda x, a, b: sp.betainc(a, b, np.clip(x, 0.0, 1.0)),
        lambda p, a, b: sp.betaincinv(a, b, p),
    ),
    Poisson: Law(lambda node, s: (s["rate"],), *_of_stats("poisson"), whole=True),
    Bernoulli: Law(lambda node, s: (np.ones(()), s["prob"]), *_of_stats("binom"), whole=True),
    Binomial: Law(lambda node, s: (numbers_of(node, "trials"), s["prob"]), *_of_stats("binom"), whole=True),
    NegativeBinomial: Law(lambda node, s: (s["shape"], 1.0 - s["prob"]), *_of_stats("nbinom"), whole=True),
}
