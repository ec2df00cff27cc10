"""Every ready model in one line: its public name, and the module that defines it.

`natgrad.<name>`, model files, the command line and the report page find a model here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["MODELS", "model_class"]

MODELS = {
    "BernoulliHMM": "natgrad.models.hmm.models",
    "CategoricalHMM": "natgrad.models.hmm.models",
    "GaussianHMM": "natgrad.models.hmm.models",
    "GaussianMixture": "natgrad.models.mixture.estimator",
    "LDA": "natgrad.models.lda.estimator",
    "MatrixFactorization": "natgrad.models.factorization.estimator",
    "PoissonHMM": "natgrad.models.hmm.models",
    "SparseGPClassifier": "natgrad.models.gp.estimators",
    "SparseGPRegressor": "natgrad.models.gp.estimators",
}


def model_class(name: str) -> Any:
    """The class of a ready model; its module is imported when it is asked for."""
    return getattr(import_module(MODELS[name]), name)
