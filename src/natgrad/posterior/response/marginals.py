"""A mean and a standard deviation in, quantiles out: the member of a node's own family that has both.

Linear response gives second moments. An interval also needs a shape: a Gamma for what is positive, a Beta for a probability, a
Gaussian for the rest.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.special as sp

from natgrad.errors import PoorApproximation
from natgrad.families import Family, TruncatedExponential, TruncatedNormal
from natgrad.posterior.factor import DISCRETE

__all__ = ["correlated_normals", "matched_quantile"]

Floats = npt.NDArray[np.float64]


def matched_quantile(family: Family, mean: Floats, sd: Floats, probability: Any, lam: Any = None) -> Floats:
    """The quantile of the law of the family's kind with this mean and standard deviation; the probability broadcasts.

    That of a truncated law is q's own, with natural parameter ``lam``, stretched about the mean and within its bounds.

    Examples
    --------
    >>> from natgrad.families import Gamma, Normal
    >>> float(matched_quantile(Normal(), np.float64(1.0), np.float64(2.0), 0.5))
    1.0
    >>> round(float(matched_quantile(Gamma(), np.float64(2.0), np.float64(2.0), 0.5)), 4)  # an exponential
    1.3863
    """
    if family.name in DISCRETE:
        raise TypeError(f"a {family.name} has no interval: use mean(), its probabilities, and std() of these")
    with np.errstate(all="ignore"):
        if isinstance(family, TruncatedNormal | TruncatedExponential):
            usual = {name: np.asarray(part) for name, part in family.usual(lam).items()}
            own, low, high = (
                family._quantile(usual, np.broadcast_to(t, np.broadcast_shapes(np.shape(t), np.shape(mean))))
                for t in (probability, 0.0, 1.0)
            )
            quantile = np.clip(mean + (own - mean) * sd / np.sqrt(family.var(lam)), low, high)
        elif family.name in ("Dirichlet", "Beta", "Sticks"):
            total = mean * (1.0 - mean) / sd**2 - 1.0
            if np.any(total <= 0):
                warnings.warn(
                    "the standard deviation of a probability is larger than any law on [0, 1] with its mean can have: linear "
                    "response does not reach that far, and the interval is NaN there. Use draws",
                    PoorApproximation,
                    stacklevel=3,
                )
            quantile = sp.betaincinv(mean * total, (1.0 - mean) * total, probability)
        elif family.name in ("Gamma", "Poisson", "GammaShape", "HalfNormalPrecision"):
            quantile = sp.gammaincinv((mean / sd) ** 2, probability) * sd**2 / mean
        elif family.name == "Wishart":  # elements on the diagonal are Gammas
            diagonal = np.eye(mean.shape[-1], dtype=bool)
            positive = sp.gammaincinv((mean / sd) ** 2, probability) * sd**2 / mean
            quantile = np.where(diagonal, positive, mean + sd * sp.ndtri(probability))
        elif family.name == "NormalGamma":  # a mean beside its precision
            positive = sp.gammaincinv((mean / sd) ** 2, probability) * sd**2 / mean
            quantile = np.where(np.arange(2) == 1, positive, mean + sd * sp.ndtri(probability))
        else:
            quantile = mean + sd * sp.ndtri(probability)
    return np.asarray(quantile, np.float64)


def correlated_normals(covariance: Floats, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Standard deviations [P], and draws [n, P] of normal numbers with variance 1 and the correlations of a covariance.

    By the roots of the correlations: standard deviations may lie many powers of ten apart.
    """
    sd = np.sqrt(np.diagonal(covariance))
    safe = np.where(sd > 0, sd, 1.0)
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T) / (safe[:, None] * safe))
    noise = rng.standard_normal((n, len(sd)))
    return sd, (noise * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
