"""Every ready model in one line: its public name, and the module that defines it.

`natgrad.<name>`, model files, the command line and the report page find a model here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["MODELS", "NETWORK_MODELS", "RECORDS", "model_class"]

MODELS = {
    "BernoulliHMM": "natgrad.models.hmm.models",
    "CategoricalHMM": "natgrad.models.hmm.models",
    "GaussianHMM": "natgrad.models.hmm.models",
    "GaussianMixture": "natgrad.models.mixture.estimator",
    "HMM": "natgrad.models.hmm.general",
    "LDA": "natgrad.models.lda.estimator",
    "MatrixFactorization": "natgrad.models.factorization.estimator",
    "PoissonHMM": "natgrad.models.hmm.models",
    "SparseGPClassifier": "natgrad.models.gp.classifier",
    "SparseGPRegressor": "natgrad.models.gp.regressor",
}
# Modules of records that files of a model may hold: `load` knows them before it knows the model.
RECORDS = ("natgrad.models.hmm.kinds", "natgrad.models.hmm.durations")
# Models that are declared networks: in namespaces, and known to `load`.
NETWORK_MODELS = {
    "AuthorTopics": "natgrad.topics.authors",
    "ContextFactorization": "natgrad.recommenders.context",
    "CorrelatedTopics": "natgrad.topics.correlated",
    "DynamicTopics": "natgrad.topics.dynamic",
    "SupervisedLDA": "natgrad.topics.supervised",
}


def model_class(name: str) -> Any:
    """The class of a ready model; its module is imported when it is asked for."""
    return getattr(import_module({**MODELS, **NETWORK_MODELS}[name]), name)
