"""The language of networks, `ng.language`: every node, operator and reading that a declaration can be made of."""

from natgrad.network.language.columns import Column, Columns
from natgrad.network.language.continuous import (
    Dirichlet,
    Exponential,
    Gamma,
    GammaShape,
    HalfNormal,
    MultivariateNormal,
    Normal,
    Rayleigh,
    Wishart,
)
from natgrad.network.language.counts import Bernoulli, Binomial, NegativeBinomial, Poisson
from natgrad.network.language.discrete import Categorical, MarkovChain, Multinomial
from natgrad.network.language.gaussian_chain import GaussianChain
from natgrad.network.language.missing import censored
from natgrad.network.language.operators import diag, dot
from natgrad.network.language.plates import Plate
from natgrad.network.language.process import GaussianProcess
from natgrad.network.language.robust import Laplace, LogNormal, Ordinal, StudentT, TruncatedNormal
from natgrad.network.language.simplex import Beta, HalfCauchy, StickBreaking
from natgrad.network.language.tables import table
from natgrad.network.language.vectors import block_diag, concatenate, frequencies, kron, sum_over

__all__ = [
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Column",
    "Columns",
    "Dirichlet",
    "Exponential",
    "Gamma",
    "GammaShape",
    "GaussianChain",
    "GaussianProcess",
    "HalfCauchy",
    "HalfNormal",
    "Laplace",
    "LogNormal",
    "MarkovChain",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "Ordinal",
    "Plate",
    "Poisson",
    "Rayleigh",
    "StickBreaking",
    "StudentT",
    "TruncatedNormal",
    "Wishart",
    "block_diag",
    "censored",
    "concatenate",
    "diag",
    "dot",
    "frequencies",
    "kron",
    "sum_over",
    "table",
]
