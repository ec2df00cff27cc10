"""natgrad: stochastic variational inference in Bayesian networks.

Declare a conditionally conjugate network; every message, the natural gradient and the exact bound follow from it. Sampled
steps need no step size from you, and a run that diverges is stopped with its last good state.
"""

from natgrad._lazy import attach
from natgrad._version import __version__ as __version__

# At most 40 (tests/test_public_names.py): what most programs need. The rest is in the namespaces.
__all__ = [
    "LDA",
    "SVI",
    "VB",
    "Auto",
    "Bernoulli",
    "BernoulliHMM",
    "Beta",
    "Binomial",
    "Categorical",
    "CategoricalHMM",
    "Children",
    "Dirichlet",
    "Gamma",
    "GaussianHMM",
    "GaussianMixture",
    "GaussianProcess",
    "HeldOut",
    "MarkovChain",
    "MatrixFactorization",
    "MultivariateNormal",
    "Network",
    "Normal",
    "Plate",
    "Poisson",
    "PoissonHMM",
    "SparseGPClassifier",
    "SparseGPRegressor",
    "Wishart",
    "compare",
    "covariance",
    "data",
    "diag",
    "dot",
    "errors",
    "families",
    "inference",
    "language",
    "load",
    "table",
    "topics",
]

# Names are imported when they are asked for, from the homes that `__init__.pyi` gives them.
__getattr__, __dir__ = attach(__name__, __file__)
