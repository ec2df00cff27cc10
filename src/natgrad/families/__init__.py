"""Exponential families: natural and mean parameters, log-normalisers, sampling."""

from natgrad.families._bounds import ConcentrationBound, LaplaceWeight, LogGamma, LogisticBound, PolyaGamma, StickBound
from natgrad.families._chain import MarkovChain
from natgrad.families._discrete import Bernoulli, Binary, Categorical, Poisson
from natgrad.families._family import Family, Param
from natgrad.families._gamma import Gamma, Wishart
from natgrad.families._gaussian_chain import GaussianChain
from natgrad.families._gaussian_gamma import GaussianGamma
from natgrad.families._joint import MatrixNormalWishart, NormalGamma, NormalWishart, TiedNormalWishart
from natgrad.families._normal import MultivariateNormal, Normal
from natgrad.families._ops import Array, Stats, spd_inverse_logdet, spd_logdet
from natgrad.families._quadrature import GammaShape, HalfNormalPrecision
from natgrad.families._simplex import Beta, Dirichlet, Shares, Sticks
from natgrad.families._truncated import TruncatedExponential, TruncatedNormal

__all__ = [
    "Array",
    "Bernoulli",
    "Beta",
    "Binary",
    "Categorical",
    "ConcentrationBound",
    "Dirichlet",
    "Family",
    "Gamma",
    "GammaShape",
    "GaussianChain",
    "GaussianGamma",
    "HalfNormalPrecision",
    "LaplaceWeight",
    "LogGamma",
    "LogisticBound",
    "MarkovChain",
    "MatrixNormalWishart",
    "MultivariateNormal",
    "Normal",
    "NormalGamma",
    "NormalWishart",
    "Param",
    "Poisson",
    "PolyaGamma",
    "Shares",
    "Stats",
    "StickBound",
    "Sticks",
    "TiedNormalWishart",
    "TruncatedExponential",
    "TruncatedNormal",
    "Wishart",
    "spd_inverse_logdet",
    "spd_logdet",
]
