"""Draw from the conditional distribution of a node given its slots; its log density, mean and variance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy
from scipy.special import gammaln, log_ndtr, ndtr, xlogy

from natgrad.network.language.binary import Bernoulli, Binomial
from natgrad.network.language.continuous import Dirichlet, Exponential, Gamma, MultivariateNormal, Normal, Wishart
from natgrad.network.language.counts import NegativeBinomial, Poisson
from natgrad.network.language.discrete import Categorical, Multinomial
from natgrad.network.language.links import softmax
from natgrad.network.language.robust import Laplace, LogNormal, Ordinal, StudentT, TruncatedNormal
from natgrad.network.language.simplex import Beta, HalfCauchy

__all__ = [
    "LEAF_LOG_DENSITY",
    "LEAF_SAMPLE",
    "LOG_DENSITY",
    "MOMENTS",
    "SAMPLE",
    "WITHOUT_PRECISION",
    "numbers_of",
    "odds",
    "ordinal_probabilities",
    "simplex_concentration",
    "total_moments",
    "trials_of",
    "truncated_lam",
]

# Laws of the nodes that are conjugate by augmentation, their auxiliary variables integrated out: draws and log densities.

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


# Conditionals of nodes, given values of their parameters for each draw: how to sample one, and its log density.


def _sample_vector(node: Any, s: dict[str, Array], rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    lam = node.family.natural(mean=s["mean"], precision=s["precision"])
    return np.asarray(node.family.sample(lam, rng))


def _sample_category(node: Any, s: dict[str, Array], rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    probabilities = np.broadcast_to(s["probs"], (*shape, s["probs"].shape[-1]))
    cumulative = np.cumsum(probabilities, axis=-1)
    return np.asarray((rng.random((*shape, 1)) * cumulative[..., -1:] > cumulative).sum(-1))


def numbers_of(node: Any, name: str) -> Array:
    """A parameter that is known."""
    return np.asarray(node.parameters[name].value)


def _sample_wishart(node: Any, s: dict[str, Array], rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    rate = np.broadcast_to(s["rate"], (*shape, *s["rate"].shape[-2:]))
    dof = np.broadcast_to(s["dof"], shape)
    return np.asarray(node.family.sample(node.family.natural(dof=dof, rate=rate), rng))


def simplex_concentration(node: Any, s: dict[str, Array]) -> Array:
    """One for each category of a Dirichlet, for each draw."""
    if not node.is_learned:
        return np.asarray(node.concentration())
    of_all = s["concentration"].ndim == 1 + len(node.plates)
    wide = (*s["concentration"].shape, node.size)
    return np.broadcast_to(s["concentration"][..., None], wide) if of_all else s["concentration"]


def _sample_simplex(node: Any, s: dict[str, Array], rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    wide = np.broadcast_to(simplex_concentration(node, s), (*shape, node.size))
    # Logarithms, as tiny concentrations would be zeros to rounding: log Γ(a) variables from those of a + 1.
    logs = np.log(rng.gamma(wide + 1.0)) + np.log1p(-rng.random(wide.shape)) / wide
    return softmax(logs)


def trials_of(node: Any) -> Array:
    """How many trials each row has."""
    if node._trials is None:
        raise TypeError(
            f"{node.name!r}: trials=None takes the sums of observed counts, and new rows have none: declare trials, a number or "
            "a Column"
        )
    return np.asarray(node._trials).astype(np.int64)


def _sample_counts(node: Any, s: dict[str, Array], rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    probabilities = np.broadcast_to(s["probs"], (*shape, s["probs"].shape[-1]))
    total = probabilities.sum(-1, keepdims=True)
    return rng.multinomial(np.broadcast_to(trials_of(node), shape), probabilities / total)


SAMPLE: dict[type, Callable[..., Array]] = {
    Normal: lambda node, s, rng, shape: rng.normal(s["mean"], 1.0 / np.sqrt(s["precision"]), shape),
    MultivariateNormal: _sample_vector,
    Gamma: lambda node, s, rng, shape: rng.gamma(s["shape"], 1.0 / s["rate"], shape),
    Exponential: lambda node, s, rng, shape: rng.exponential(1.0 / s["rate"], shape),
    Poisson: lambda node, s, rng, shape: rng.poisson(s["rate"], shape),
    Bernoulli: lambda node, s, rng, shape: (rng.random(shape) < s["prob"]).astype(np.int64),
    Binomial: lambda node, s, rng, shape: rng.binomial(numbers_of(node, "trials").astype(np.int64), s["prob"], shape),
    Categorical: _sample_category,
    Beta: lambda node, s, rng, shape: rng.beta(s["a"], s["b"], shape),
    Wishart: _sample_wishart,
    Dirichlet: _sample_simplex,
    Multinomial: _sample_counts,
    **LEAF_SAMPLE,
}
LOG_DENSITY: dict[type, Callable[[Array, dict[str, Array]], Array]] = {
    Normal: lambda x, s: scipy.stats.norm.logpdf(x, s["mean"], 1.0 / np.sqrt(s["precision"])),
    MultivariateNormal: lambda x, s: _vector_density(x, s["mean"], s["precision"]),
    Gamma: lambda x, s: scipy.stats.gamma.logpdf(x, s["shape"], scale=1.0 / s["rate"]),
    Exponential: lambda x, s: scipy.stats.expon.logpdf(x, scale=1.0 / s["rate"]),
    Poisson: lambda x, s: scipy.stats.poisson.logpmf(x, s["rate"]),
    Bernoulli: lambda x, s: scipy.stats.bernoulli.logpmf(x, s["prob"]),
    Binomial: lambda x, s: scipy.stats.binom.logpmf(x, s["trials"], s["prob"]),
    Categorical: lambda x, s: _category_density(x, s["probs"]),
    Beta: lambda x, s: scipy.stats.beta.logpdf(x, s["a"], s["b"]),
    Wishart: lambda x, s: _wishart_density(x, s["dof"], s["rate"]),
    Dirichlet: lambda x, s: _simplex_density(x, s["concentration"]),
    Multinomial: lambda x, s: gammaln(x.sum(-1) + 1.0) - gammaln(x + 1.0).sum(-1) + xlogy(x, s["probs"]).sum(-1),
}


def _category_density(x: Array, probabilities: Array) -> Array:
    places = np.broadcast_to(x[..., None], (*probabilities.shape[:-1], 1))
    with np.errstate(divide="ignore"):  # a draw of the parents may rule a category out
        return np.asarray(np.log(np.take_along_axis(probabilities, places, -1))[..., 0])


def _vector_density(x: Array, mean: Array, precision: Array) -> Array:
    difference = x - mean
    quadratic = np.einsum("...i,...ij,...j->...", difference, precision, difference)
    return np.asarray(0.5 * np.linalg.slogdet(precision)[1] - 0.5 * quadratic - 0.5 * x.shape[-1] * np.log(2 * np.pi))


def _wishart_density(x: Array, dof: Array, rate: Array) -> Array:
    """Wishart(dof, rate) with E[X] = dof · rate⁻¹, whose scale matrix is rate⁻¹."""
    size = x.shape[-1]
    log_x, log_rate = np.linalg.slogdet(x)[1], np.linalg.slogdet(rate)[1]
    inside = np.einsum("...ij,...ji->...", rate, x)
    gamma = 0.25 * size * (size - 1) * np.log(np.pi) + gammaln(0.5 * (dof[..., None] - np.arange(size))).sum(-1)
    logs = 0.5 * (dof - size - 1) * log_x - 0.5 * inside - 0.5 * dof * size * np.log(2.0) + 0.5 * dof * log_rate - gamma
    return np.asarray(logs)


def _simplex_density(x: Array, concentration: Array) -> Array:
    normaliser = gammaln(concentration.sum(-1)) - gammaln(concentration).sum(-1)
    return np.asarray(normaliser + xlogy(concentration - 1.0, x).sum(-1))


def _student_density(x: Array, mean: Array, shape: Array, rate: Array) -> Array:
    return np.asarray(scipy.stats.t.logpdf(x, 2.0 * shape, mean, np.sqrt(rate / shape)))


def _vector_student_density(x: Array, mean: Array, dof: Array, rate: Array) -> Array:
    """∫ N(x; m, Λ⁻¹) Wishart(Λ; ν, R) dΛ: Student's t with ν − D + 1 degrees of freedom; ``dof`` is ν times the identity."""
    size, nu, difference = x.shape[-1], dof[..., 0, 0], x - mean
    distance = (difference * np.linalg.solve(rate, difference[..., None])[..., 0]).sum(-1)
    normaliser = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * (nu + 1.0 - size)) - 0.5 * size * np.log(np.pi)
    return np.asarray(normaliser - 0.5 * np.linalg.slogdet(rate)[1] - 0.5 * (nu + 1.0) * np.log1p(distance))


# Of a Gaussian the density with its precision integrated out: shape (dof) and rate of that come after the mean.
WITHOUT_PRECISION: dict[type, Callable[[Array, Array, Array, Array], Array]] = {
    Normal: _student_density,
    MultivariateNormal: _vector_student_density,
}


# Mean and variance of a node given values of its parameters for each draw, in closed form.
#
# Averages of these over draws of the parents are predictive means and variances (E[y] = E[E[y | parents]], and the law of total
# variance). Averages of draws of the node itself would have its own noise on top: rows that are equal would be predicted
# differently, and a probability would be a share of some two thousand coins.

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
