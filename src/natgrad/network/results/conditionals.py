"""Conditionals of nodes, given values of their parameters for each draw: how to sample one, and its log density."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy
from scipy.special import gammaln, xlogy

from natgrad.network.language.binary import Bernoulli, Binomial
from natgrad.network.language.continuous import Dirichlet, Exponential, Gamma, MultivariateNormal, Normal, Wishart
from natgrad.network.language.counts import Poisson
from natgrad.network.language.discrete import Categorical, Multinomial
from natgrad.network.language.links import softmax
from natgrad.network.language.simplex import Beta
from natgrad.network.results.leaves import LEAF_SAMPLE

__all__ = ["LOG_DENSITY", "SAMPLE", "WITHOUT_PRECISION", "numbers_of", "simplex_concentration", "trials_of"]

Array = npt.NDArray[Any]


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
