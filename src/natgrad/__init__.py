"""natgrad: stochastic variational inference in Bayesian networks.

Declare a conditionally conjugate network; every message, the natural gradient and the exact bound follow from it. Sampled
steps need no step size from you, and a run that diverges is stopped with its last good state.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from natgrad import covariance, data, families
from natgrad._version import __version__
from natgrad.data.ratings import Ratings
from natgrad.errors import ModelFileError
from natgrad.inference.auto import Auto
from natgrad.inference.callbacks import HeldOut
from natgrad.inference.executors import Dask
from natgrad.inference.methods import SVI, VB, Children, GlobalBatch
from natgrad.inference.steps import Constant, HoldThenDecay, PerNode, RobbinsMonro
from natgrad.models.network import Network
from natgrad.network.continuous import Beta, Dirichlet, Exponential, Gamma, MultivariateNormal, Normal, Wishart
from natgrad.network.discrete import Bernoulli, Binomial, Categorical, MarkovChain, Multinomial, Poisson
from natgrad.network.operators import diag, dot
from natgrad.network.plates import Plate
from natgrad.network.process import GaussianProcess
from natgrad.network.tables import table

if TYPE_CHECKING:
    from natgrad.models.factorization import MatrixFactorization
    from natgrad.models.gp import SparseGPClassifier, SparseGPRegressor
    from natgrad.models.hmm_models import BernoulliHMM, CategoricalHMM, GaussianHMM, PoissonHMM
    from natgrad.models.lda import LDA
    from natgrad.models.saving import load

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
    "Constant",
    "Dask",
    "Dirichlet",
    "Exponential",
    "Gamma",
    "GaussianHMM",
    "GaussianProcess",
    "GlobalBatch",
    "HeldOut",
    "HoldThenDecay",
    "MarkovChain",
    "MatrixFactorization",
    "ModelFileError",
    "Multinomial",
    "MultivariateNormal",
    "Network",
    "Normal",
    "PerNode",
    "Plate",
    "Poisson",
    "PoissonHMM",
    "Ratings",
    "RobbinsMonro",
    "SparseGPClassifier",
    "SparseGPRegressor",
    "Wishart",
    "__version__",
    "covariance",
    "data",
    "diag",
    "dot",
    "families",
    "load",
    "table",
]


# Imported when they are asked for: scikit-learn alone takes as long as all the rest.
LATER = {
    "BernoulliHMM": "natgrad.models.hmm_models",
    "CategoricalHMM": "natgrad.models.hmm_models",
    "GaussianHMM": "natgrad.models.hmm_models",
    "LDA": "natgrad.models.lda",
    "MatrixFactorization": "natgrad.models.factorization",
    "PoissonHMM": "natgrad.models.hmm_models",
    "SparseGPClassifier": "natgrad.models.gp",
    "SparseGPRegressor": "natgrad.models.gp",
    "load": "natgrad.models.saving",
}


def __getattr__(name: str) -> Any:
    """An estimator, or what reads one from a file."""
    if name not in LATER:
        raise AttributeError(f"module 'natgrad' has no attribute {name!r}")
    return getattr(import_module(LATER[name]), name)
