"""natgrad: stochastic variational inference in Bayesian networks.

Declare a conditionally conjugate network; every message, the natural gradient and the exact bound follow from it. Sampled
steps need no step size from you, and a run that diverges is stopped with its last good state.
"""

from typing import TYPE_CHECKING, Any

from natgrad import covariance, families
from natgrad._version import __version__
from natgrad.data.ratings import Ratings
from natgrad.errors import ModelFileError
from natgrad.inference.auto import Auto
from natgrad.inference.methods import SVI, VB, Children, GlobalBatch
from natgrad.inference.steps import Constant, HoldThenDecay, PerNode, RobbinsMonro
from natgrad.models.network import Network
from natgrad.network.continuous import Beta, Dirichlet, Exponential, Gamma, MultivariateNormal, Normal, Wishart
from natgrad.network.discrete import Bernoulli, Binomial, Categorical, MarkovChain, Multinomial, Poisson
from natgrad.network.operators import diag, dot
from natgrad.network.plates import Plate
from natgrad.network.process import GaussianProcess

if TYPE_CHECKING:
    from natgrad.models.factorization import MatrixFactorization
    from natgrad.models.gp import SparseGPClassifier, SparseGPRegressor
    from natgrad.models.lda import LDA
    from natgrad.models.saving import load

__all__ = [
    "LDA",
    "SVI",
    "VB",
    "Auto",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Children",
    "Constant",
    "Dirichlet",
    "Exponential",
    "Gamma",
    "GaussianProcess",
    "GlobalBatch",
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
    "Ratings",
    "RobbinsMonro",
    "SparseGPClassifier",
    "SparseGPRegressor",
    "Wishart",
    "__version__",
    "covariance",
    "diag",
    "dot",
    "families",
    "load",
]


def __getattr__(name: str) -> Any:
    """The estimators, imported when they are asked for: scikit-learn alone takes as long as all the rest."""
    if name == "MatrixFactorization":
        from natgrad.models.factorization import MatrixFactorization

        return MatrixFactorization
    if name == "LDA":
        from natgrad.models.lda import LDA

        return LDA
    if name in ("SparseGPClassifier", "SparseGPRegressor"):
        from natgrad.models import gp

        return getattr(gp, name)
    if name == "load":
        from natgrad.models.saving import load

        return load
    raise AttributeError(f"module 'natgrad' has no attribute {name!r}")
