"""natgrad: stochastic variational inference in Bayesian networks.

Declare a conditionally conjugate network; every message, the natural gradient and the exact bound follow from it. Sampled
steps need no step size from you, and a run that diverges is stopped with its last good state.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from natgrad import families
from natgrad._version import __version__
from natgrad.errors import ModelFileError
from natgrad.inference.auto import Auto
from natgrad.inference.callbacks import HeldOut
from natgrad.inference.executors.threads import Dask
from natgrad.inference.methods import SVI, VB, Children, GlobalBatch
from natgrad.inference.step_sizes import Constant, HoldThenDecay, PerNode, RobbinsMonro
from natgrad.models.registry import MODELS
from natgrad.network.language.continuous import Beta, Dirichlet, Exponential, Gamma, MultivariateNormal, Normal, Wishart
from natgrad.network.language.discrete import Bernoulli, Binomial, Categorical, MarkovChain, Multinomial, Poisson
from natgrad.network.language.operators import diag, dot
from natgrad.network.language.plates import Plate
from natgrad.network.language.process import GaussianProcess
from natgrad.network.language.tables import table
from natgrad.network.network import Network

if TYPE_CHECKING:
    from natgrad import covariance, data
    from natgrad.data.ratings import Ratings
    from natgrad.models.base import load
    from natgrad.models.factorization.estimator import MatrixFactorization
    from natgrad.models.gp.estimators import SparseGPClassifier, SparseGPRegressor
    from natgrad.models.hmm.models import BernoulliHMM, CategoricalHMM, GaussianHMM, PoissonHMM
    from natgrad.models.lda.estimator import LDA

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


# Imported when they are asked for: scikit-learn alone takes as long as all the rest, and so do sparse matrices and optimisers.
_LAZY = MODELS | {"load": "natgrad.models.base", "Ratings": "natgrad.data.ratings"}
_NAMESPACES = ("covariance", "data")


def __getattr__(name: str) -> Any:
    """An estimator, what reads one from a file, or a namespace."""
    if name in _NAMESPACES:
        return import_module(f"natgrad.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'natgrad' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
