"""List the ready models, their modules and the abilities that they may have, and load models from files.

`natgrad.<name>`, model files, the command line and the report page find a model here;
its module, which imports scikit-learn, is imported when it is needed. What a model can do stands in its class:
``abilities``, a frozenset of names of `ABILITIES` and `COMMANDS`, and ``kind``, one of `KINDS`. Tests, the command line, the
report and docs/abilities.md read these two.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from natgrad.errors import ModelFileError

__all__ = [
    "ABILITIES", "COMMANDS", "EVERY_MODEL", "KINDS", "MODELS", "NETWORK_MODELS", "NETWORK_RECORDS", "RECORDS", "load",
    "model_class",
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
RECORDS = tuple(
    "natgrad.models." + n for n in ("factorization.checks", "hmm.kinds", "hmm.expansions", "hmm.parts", "hmm.priors")
)
# The same of the fit of a network.
NETWORK_RECORDS = ("natgrad.network.results.files",)
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


def load(path: str | os.PathLike[str]) -> Any:
    """A model as it was when it was saved: an estimator, the `SavedFit` of a network, or posterior `Draws`.

    No code of the file is executed. A file that is damaged, foreign or written by a newer natgrad is a `ModelFileError`.

    Parameters
    ----------
    path : a file that ``save`` wrote

    Examples
    --------
    >>> import tempfile, natgrad as ng
    >>> texts = ["apple pear plum", "plum pear apple apple", "bolt nut screw", "nut bolt bolt screw"] * 5
    >>> model = ng.LDA(n_topics=2, seed=1).fit(texts)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/topics.natgrad")
    ...     again = ng.load(f"{folder}/topics.natgrad")
    >>> bool((again.transform(texts) == model.transform(texts)).all())
    True
    """
    from natgrad.posterior.drawing import saved_draws
    from natgrad.posterior.files.container import read_model

    stored = read_model(path, _know_records)
    try:
        if stored.kind == "Fit":
            # Networks are no models and models no networks: neither knows the other.
            return import_module("natgrad.network.results.files").saved_fit(stored.value)
        if stored.kind == "Draws":
            return saved_draws(stored.value)
        if stored.kind not in MODELS and stored.kind not in NETWORK_MODELS:
            raise ValueError(f"it holds a {stored.kind!r}, which this natgrad does not know")
        cls = model_class(stored.kind)
        cls._check_file(stored.value)
        estimator = cls(**stored.value["settings"])
        estimator._restore(stored.value["fitted"])
        if (columns := stored.value.get("columns")) is not None:
            estimator.columns_ = columns
        vars(estimator).setdefault("_data", None)  # what it was fitted to is not in the file
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as reason:
        raise ModelFileError(
            f"cannot load {os.fspath(path)!r}, written by natgrad {stored.version}: its contents do not fit together ({reason})"
        ) from None
    return estimator


def _know_records(kind: str) -> None:
    """Import the modules whose records a file of this kind may hold."""
    for module in NETWORK_RECORDS if kind == "Fit" else RECORDS:
        import_module(module)
