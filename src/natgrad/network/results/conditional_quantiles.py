"""Laws of nodes given values of their parents: parameters, distribution functions, quantiles and densities of each kind of node.

Quantiles of draws of the node itself would have its own noise on top: rows that are equal would have different intervals. Those
of the mixture of the laws, one for each draw of the parents, are found by `natgrad.network.results.mixture_quantiles`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy
import scipy.special as sp

from natgrad.network.language.binary import Bernoulli, Binomial
from natgrad.network.language.continuous import Dirichlet, Exponential, Gamma, MultivariateNormal, Normal
from natgrad.network.language.counts import NegativeBinomial, Poisson
from natgrad.network.language.discrete import Multinomial
from natgrad.network.language.robust import Laplace, LogNormal, Ordinal, StudentT, TruncatedNormal
from natgrad.network.language.simplex import Beta, HalfCauchy
from natgrad.network.results.conditionals import numbers_of, simplex_concentration, trials_of
from natgrad.network.results.mixture_quantiles import Law

__all__ = ["LAWS"]

Array = npt.NDArray[Any]
Slots = dict[str, Array]
PER_SD = 1.0 / np.sqrt(2.0 * np.pi)


def _gaussian(node: Any, s: Slots) -> tuple[Any, ...]:
    return s["mean"], 1.0 / np.sqrt(s["precision"])


def _vector(node: Any, s: Slots) -> tuple[Any, ...]:
    return s["mean"], np.sqrt(np.diagonal(np.linalg.inv(s["precision"]), axis1=-2, axis2=-1))


def _normal_cdf(x: Any, mean: Any, sd: Any) -> Any:
    return sp.ndtr((x - mean) / sd)


def _normal_ppf(p: Any, mean: Any, sd: Any) -> Any:
    return mean + sd * sp.ndtri(p)


def _normal_pdf(x: Any, mean: Any, sd: Any) -> Any:
    z = (x - mean) / sd
    return np.exp(-0.5 * z * z) * (PER_SD / sd)


def _student_cdf(x: Any, mean: Any, sd: Any, df: Any) -> Any:
    return scipy.special.stdtr(df, (x - mean) / sd)


def _student_ppf(p: Any, mean: Any, sd: Any, df: Any) -> Any:
    return mean + sd * scipy.special.stdtrit(df, p)


def _student_pdf(x: Any, mean: Any, sd: Any, df: Any) -> Any:
    z, half = (x - mean) / sd, 0.5 * (df + 1.0)
    logs = sp.gammaln(half) - sp.gammaln(0.5 * df) - half * np.log1p(z * z / df)
    return np.exp(logs) / (sd * np.sqrt(np.pi * df))


def _laplace_cdf(x: Any, mean: Any, sd: Any) -> Any:
    z = (x - mean) / sd
    return np.where(z < 0, 0.5 * np.exp(np.minimum(z, 0.0)), 1.0 - 0.5 * np.exp(-np.maximum(z, 0.0)))


def _laplace_ppf(p: Any, mean: Any, sd: Any) -> Any:
    return mean + sd * (np.log(2.0 * p) if p < 0.5 else -np.log(2.0 * (1.0 - p)))


def _laplace_pdf(x: Any, mean: Any, sd: Any) -> Any:
    return 0.5 * np.exp(-np.abs(x - mean) / sd) / sd


def _gamma_pdf(x: Any, a: Any, b: Any) -> Any:
    return np.exp(a * np.log(b * x) - b * x - sp.gammaln(a)) / x


def _beta_pdf(x: Any, a: Any, b: Any) -> Any:
    return np.exp((a - 1.0) * np.log(x) + (b - 1.0) * np.log1p(-x) + sp.gammaln(a + b) - sp.gammaln(a) - sp.gammaln(b))


def _marginals(node: Any, s: Slots) -> tuple[Any, ...]:
    """Shares of a Dirichlet are Beta variables."""
    a = simplex_concentration(node, s)
    return a, a.sum(-1, keepdims=True) - a


def _between(node: Any, s: Slots) -> tuple[Any, ...]:
    """Mean and standard deviation before a truncation, and bounds in its units; mirrored (−1) where both are above the mean."""
    mean, sd = _gaussian(node, s)
    a, b = (node.lower - mean) / sd, (node.upper - mean) / sd
    sign = np.where(a > 0, -1.0, 1.0)
    return mean, sd, np.where(a > 0, -b, a), np.where(a > 0, -a, b), sign


def _truncated_cdf(x: Any, mean: Any, sd: Any, a: Any, b: Any, sign: Any) -> Any:
    """(Φ(z) − Φ(a)) / (Φ(b) − Φ(a)), each as a part of Φ(b), which may be a number that is too small to be written."""
    z = np.clip(sign * (x - mean) / sd, a, b)
    whole = sp.log_ndtr(b)
    least = np.exp(sp.log_ndtr(a) - whole)
    part = (np.exp(sp.log_ndtr(z) - whole) - least) / (1.0 - least)
    return np.where(sign > 0, part, 1.0 - part)


def _truncated_ppf(p: Any, mean: Any, sd: Any, a: Any, b: Any, sign: Any) -> Any:
    whole = sp.log_ndtr(b)
    least = np.exp(sp.log_ndtr(a) - whole)
    q = np.where(sign > 0, p, 1.0 - p)
    z = scipy.special.ndtri_exp(whole + np.log(least + q * (1.0 - least)))
    return mean + sd * sign * np.clip(z, a, b)


def _truncated_pdf(x: Any, mean: Any, sd: Any, a: Any, b: Any, sign: Any) -> Any:
    z, whole = sign * (x - mean) / sd, sp.log_ndtr(b)
    inside = np.exp(-0.5 * z * z - whole) * PER_SD / (sd * (1.0 - np.exp(sp.log_ndtr(a) - whole)))
    return np.where((z >= a) & (z <= b), inside, 0.0)


def _levels(node: Any, s: Slots) -> tuple[Any, ...]:
    """The probability of each level and those below it; of the last one it is 1."""
    below = sp.ndtr((node.cutpoints - s["mean"][..., None]) * np.sqrt(s["precision"])[..., None])
    return tuple(np.moveaxis(below, -1, 0))


def _level_cdf(x: Any, *below: Any) -> Any:
    total: Any = 1.0
    for level, chance in reversed(list(enumerate(below))):
        total = np.where(x < level + 1.0, chance, total)
    return np.where(x < 0, 0.0, total)


def _level_ppf(p: Any, *below: Any) -> Any:
    return np.sum([chance < p for chance in below], axis=0, dtype=np.float64)


def _binomial_cdf(x: Any, trials: Any, prob: Any) -> Any:
    inside = sp.betainc(np.maximum(trials - x, 1e-300), np.maximum(x, 0.0) + 1.0, 1.0 - prob)
    return np.where(x >= trials, 1.0, np.where(x < 0, 0.0, inside))


def _negative_binomial_cdf(x: Any, shape: Any, prob: Any) -> Any:
    return np.where(x < 0, 0.0, sp.betainc(shape, np.maximum(x, 0.0) + 1.0, prob))


def _counts(node: Any, s: Slots) -> tuple[Any, ...]:
    """Of each category there are so many as of a Binomial."""
    return trials_of(node)[..., None], s["probs"] / s["probs"].sum(-1, keepdims=True)


def _ppf(name: str) -> Callable[..., Any]:
    """Of a law of whole numbers as SciPy has it, which is imported when it is asked."""
    return lambda p, *args: getattr(scipy.stats, name).ppf(p, *args)


NORMAL = Law(_gaussian, _normal_cdf, _normal_ppf, _normal_pdf)
GAMMA = (
    lambda x, a, b: sp.gammainc(a, b * np.maximum(x, 0.0)),
    lambda p, a, b: sp.gammaincinv(a, p) / b,
    _gamma_pdf,
)
BETA = (
    lambda x, a, b: sp.betainc(a, b, np.clip(x, 0.0, 1.0)),
    lambda p, a, b: sp.betaincinv(a, b, p),
    _beta_pdf,
)
BINOMIAL = _binomial_cdf, _ppf("binom")
LAWS: dict[type, Law] = {
    Normal: NORMAL,
    MultivariateNormal: Law(_vector, *NORMAL[1:4]),
    LogNormal: NORMAL._replace(back=np.exp),
    StudentT: Law(lambda node, s: (*_gaussian(node, s), s["df"]), _student_cdf, _student_ppf, _student_pdf),
    Laplace: Law(_gaussian, _laplace_cdf, _laplace_ppf, _laplace_pdf),
    TruncatedNormal: Law(_between, _truncated_cdf, _truncated_ppf, _truncated_pdf),
    Gamma: Law(lambda node, s: (s["shape"], s["rate"]), *GAMMA),
    Exponential: Law(lambda node, s: (np.ones(()), s["rate"]), *GAMMA),
    # A precision is (s |c|)⁻² with a standard Cauchy c.
    HalfCauchy: Law(
        lambda node, s: (s["scale"],),
        lambda x, scale: 2.0 / np.pi * np.arctan(scale * np.sqrt(np.maximum(x, 0.0))),
        lambda p, scale: (np.tan(0.5 * np.pi * p) / scale) ** 2,
        lambda x, scale: scale / (np.pi * np.sqrt(x) * (1.0 + scale * scale * x)),
    ),
    Beta: Law(lambda node, s: (s["a"], s["b"]), *BETA),
    Dirichlet: Law(_marginals, *BETA),
    Poisson: Law(
        lambda node, s: (s["rate"],),
        lambda x, rate: np.where(x < 0, 0.0, scipy.special.gammaincc(np.maximum(x, 0.0) + 1.0, rate)),
        _ppf("poisson"),
    ),
    Bernoulli: Law(lambda node, s: (np.ones(()), s["prob"]), *BINOMIAL),
    Binomial: Law(lambda node, s: (numbers_of(node, "trials"), s["prob"]), *BINOMIAL),
    Multinomial: Law(_counts, *BINOMIAL),
    NegativeBinomial: Law(lambda node, s: (s["shape"], 1.0 - s["prob"]), _negative_binomial_cdf, _ppf("nbinom")),
    Ordinal: Law(_levels, _level_cdf, _level_ppf),
}
