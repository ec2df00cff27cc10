"""The language of networks, `ng.language`: every node, operator and reading that a declaration can be made of."""

from natgrad.network.language.columns import Column, Columns
from natgrad.network.language.continuous import Beta, Dirichlet, Exponential, Gamma, MultivariateNormal, Normal, Wishart
from natgrad.network.language.discrete import Bernoulli, Binomial, Categorical, MarkovChain, Multinomial, Poisson
from natgrad.network.language.operators import diag, dot
from natgrad.network.language.plates import Plate
from natgrad.network.language.process import GaussianProcess
from natgrad.network.language.tables import table

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
    "GaussianProcess",
    "MarkovChain",
    "Multinomial",
    "MultivariateNormal",
    "Normal",
    "Plate",
    "Poisson",
    "Wishart",
    "diag",
    "dot",
    "table",
]
