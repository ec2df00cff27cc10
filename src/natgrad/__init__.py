"""natgrad: stochastic variational inference in Bayesian networks.

Declare a conditionally conjugate network; every message, the natural gradient and the exact bound follow from it. Sampled
steps need no step size from you, and a run that diverges is stopped with its last good state.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from natgrad._version import __version__ as __version__

if TYPE_CHECKING:
    from natgrad import covariance, data, errors, families, inference, topics
    from natgrad import recommenders as recommenders
    from natgrad.inference import SVI, VB, Auto, Children, HeldOut
    from natgrad.models.factorization.estimator import MatrixFactorization
    from natgrad.models.gp.classifier import SparseGPClassifier
    from natgrad.models.gp.regressor import SparseGPRegressor
    from natgrad.models.hmm.models import BernoulliHMM, CategoricalHMM, GaussianHMM, PoissonHMM
    from natgrad.models.lda.estimator import LDA
    from natgrad.models.mixture.estimator import GaussianMixture
    from natgrad.models.registry import load
    from natgrad.network import language
    from natgrad.network.language.binary import Bernoulli, Binomial
    from natgrad.network.language.continuous import Dirichlet, Gamma, MultivariateNormal, Normal, Wishart
    from natgrad.network.language.counts import Poisson
    from natgrad.network.language.discrete import Categorical
    from natgrad.network.language.markov_chain import MarkovChain
    from natgrad.network.language.operators import diag, dot
    from natgrad.network.language.plates import Plate
    from natgrad.network.language.process import GaussianProcess
    from natgrad.network.language.simplex import Beta
    from natgrad.network.language.tables import table
    from natgrad.network.network import Network
    from natgrad.posterior.compare import compare

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

# Everything is imported when it is first asked for: a command that shows its help, or a worker that sums ratings, needs no
# language of networks; who declares one gets all of it with the first name.
_NAMESPACES = {
    "covariance": "natgrad.covariance",
    "data": "natgrad.data",
    "errors": "natgrad.errors",
    "families": "natgrad.families",
    "inference": "natgrad.inference",
    "language": "natgrad.network.language",
    "models": "natgrad.models",
    "recommenders": "natgrad.recommenders",
    "topics": "natgrad.topics",
}
_HOMES = {
    "compare": "natgrad.posterior.compare",
    "load": "natgrad.models.registry",
    "Network": "natgrad.network.network",
    **dict.fromkeys(("SVI", "VB", "Auto", "Children", "HeldOut"), "natgrad.inference"),
}
# Names that resolve here although their home is a namespace: what is rarely declared (`ng.language`) or set.
_ELSEWHERE = {
    "Column": "natgrad.network.language",
    "Columns": "natgrad.network.language",
    "Constant": "natgrad.inference",
    "Dask": "natgrad.inference",
    "Exponential": "natgrad.network.language",
    "GammaShape": "natgrad.network.language",
    "GaussianChain": "natgrad.network.language",
    "GlobalBatch": "natgrad.inference",
    "HMM": "natgrad.models.hmm",
    "HalfCauchy": "natgrad.network.language",
    "HalfNormal": "natgrad.network.language",
    "HoldThenDecay": "natgrad.inference",
    "Laplace": "natgrad.network.language",
    "LocalOptions": "natgrad.inference",
    "LogNormal": "natgrad.network.language",
    "ModelFileError": "natgrad.errors",
    "Multinomial": "natgrad.network.language",
    "NegativeBinomial": "natgrad.network.language",
    "Ordinal": "natgrad.network.language",
    "PerNode": "natgrad.inference",
    "Ratings": "natgrad.data",
    "RobbinsMonro": "natgrad.inference",
    "concatenate": "natgrad.network.language",
    "frequencies": "natgrad.network.language",
    "sum_over": "natgrad.network.language",
    "StateSpaceGP": "natgrad.models.gp",
    "StickBreaking": "natgrad.network.language",
    "StudentT": "natgrad.network.language",
    "TruncatedNormal": "natgrad.network.language",
    "VecchiaGPRegressor": "natgrad.models.gp",
    "block_diag": "natgrad.network.language",
    "censored": "natgrad.network.language",
    "kron": "natgrad.network.language",
}


def __getattr__(name: str) -> Any:
    """A namespace, an estimator, or a name of a namespace."""
    if name in _NAMESPACES:
        value: Any = import_module(_NAMESPACES[name])
    elif name not in __all__ and name not in _ELSEWHERE:
        raise AttributeError(f"module 'natgrad' has no attribute {name!r}")
    else:
        from natgrad.models.registry import MODELS

        module = MODELS.get(name) or _HOMES.get(name) or _ELSEWHERE.get(name) or "natgrad.network.language"
        value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
