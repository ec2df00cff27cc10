"""natgrad: stochastic variational inference in Bayesian networks.

Declare a conditionally conjugate network; every message, the natural gradient and the exact bound follow from it. Sampled
steps need no step size from you, and a run that diverges is stopped with its last good state.
"""

from natgrad import families
from natgrad._version import __version__
from natgrad.inference.methods import SVI, VB, Children, GlobalBatch
from natgrad.inference.steps import Constant, HoldThenDecay, PerNode, RobbinsMonro
from natgrad.models.network import Network
from natgrad.network.continuous import Beta, Dirichlet, Exponential, Gamma, MultivariateNormal, Normal, Wishart
from natgrad.network.discrete import Bernoulli, Binomial, Categorical, MarkovChain, Multinomial, Poisson
from natgrad.network.operators import diag, dot
from natgrad.network.plates import Plate

__all__ = [
    "SVI",
    "VB",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Children",
    "Constant",
    "Dirichlet",
    "Exponential",
    "Gamma",
    "GlobalBatch",
    "HoldThenDecay",
    "MarkovChain",
    "Multinomial",
    "MultivariateNormal",
    "Network",
    "Normal",
    "PerNode",
    "Plate",
    "Poisson",
    "RobbinsMonro",
    "Wishart",
    "__version__",
    "diag",
    "dot",
    "families",
]
