"""Covariance functions of Gaussian processes: RBF, Matérn and others, their sums and products, and your own in JAX.

    k = RBF(lengthscale=[1.0, 2.0]) + 0.5 * Periodic(period=7.0, active=[2])

Every parameter is positive; a fit moves its logarithm.
"""

from natgrad.covariance._direct import direct_of
from natgrad.covariance._expression import Covariance, Product, Sum, covariance_from_data
from natgrad.covariance._functions import (
    RBF,
    Categories,
    Constant,
    Function,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    White,
)
from natgrad.covariance._inducing import Inducing, diagonal, factorised

__all__ = [
    "RBF",
    "Categories",
    "Constant",
    "Covariance",
    "Function",
    "Inducing",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "Sum",
    "White",
    "covariance_from_data",
    "diagonal",
    "direct_of",
    "factorised",
]
