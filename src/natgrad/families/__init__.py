"""Natural parameters in, moments out: the exponential families a network is built from."""

from natgrad.families._binary import Binary
from natgrad.families._bounds import ConcentrationBound, LogGamma, LogisticBound, StickBound
from natgrad.families._chain import MarkovChain
from natgrad.families._discrete import Bernoulli, Categorical, Poisson
from natgrad.families._family import Family, Param
from natgrad.families._gamma import Gamma, Wishart
from natgrad.families._gaussian_chain import GaussianChain
from natgrad.families._gaussian_gamma import GaussianGamma
from natgrad.families._joint import NormalGamma, NormalWishart, TiedNormalWishart
from natgrad.families._matrix_normal import MatrixNormalWishart
from natgrad.families._normal import MultivariateNormal, Normal
from natgrad.families._ops import Array, Stats, spd_inverse_logdet, spd_logdet
from natgrad.families._polya_gamma import LaplaceWeight, PolyaGamma
from natgrad.families._quadrature import GammaShape, HalfNormalPrecision
from natgrad.families._shares import Shares
from natgrad.families._simplex import Beta, Dirichlet
from natgrad.families._sticks import Sticks
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
