"""List the ready models by public name and module, and the abilities that they may have.

`natgrad.<name>`, model files, the command line and the report page find a model here. What a model can do stands in its class:
``abilities``, a frozenset of names of `ABILITIES` and `COMMANDS`, and ``kind``, one of `KINDS`. Tests, the command line, the
report and docs/abilities.md read these two.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = [
    "ABILITIES", "COMMANDS", "EVERY_MODEL", "KINDS", "MODELS", "NETWORK_MODELS", "NETWORK_RECORDS", "RECORDS", "model_class",
]  # fmt: skip

# What a model can do with at least one of its options, and how docs/abilities.md calls it.
ABILITIES = {
    "clone": "clone, `get_params`, `set_params`",
    "pickle": "pickle",
    "repeat": "same seed, same fit",
    "n_jobs": "`n_jobs`",
    "checkpoint": "checkpoint, resume",
    "crash": "resume after a crash",
    "limits": "`max_seconds`, callbacks",
    "partial_fit": "`partial_fit`",
    "stream": "`fit` to a stream",
    "update": "`update`",
    "forget": "`forget`",
    "executor": "`executor=`",
    "save": "`save`, `load`",
    "report": "`report`",
    "command": "command line",
    "draws": "`draws`",
    "linear_response": "`linear_response`",
    "calibrate": "`calibrate`",
    "sample_weight": "`sample_weight`",
    "pandas": "pandas",
    "polars": "Polars",
    "missing": "missing entries",
}
# Commands that are for some models only; fit, continue, score, update, report and compare are for all.
COMMANDS = ("predict", "transform", "topics", "recommend", "decode", "forecast")
KINDS = ("topics", "ratings", "states", "mixture", "process", "network")  # what a model finds
OF_SOME = {"n_jobs", "partial_fit", "executor", "draws", "linear_response", "calibrate", "sample_weight", "missing"}
EVERY_MODEL = frozenset(ABILITIES.keys() - OF_SOME)

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
    "StateSpaceGP": "natgrad.models.gp.state_space",
    "VecchiaGPRegressor": "natgrad.models.gp.vecchia",
}
# Modules of records that files of a model may hold: `load` knows them before it knows the model.
RECORDS = ("natgrad.models.hmm.kinds", "natgrad.models.hmm.durations", "natgrad.models.hmm.parts")
# The same of the fit of a network.
NETWORK_RECORDS = ("natgrad.network.results.records", "natgrad.network.results.files")
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
