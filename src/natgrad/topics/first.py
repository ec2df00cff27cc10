"""Where declared topic models start: documents in; topics that samples of `LDA` lead to, and documents' shares of them, out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.corpus import Corpus
from natgrad.inference.monitor import Since
from natgrad.inference.options import LocalOptions
from natgrad.models.lda.estimator import LDA
from natgrad.models.lda.start import thin_counts
from natgrad.random import Stream, generator

__all__ = ["First", "as_shares", "first_topics", "told_apart"]

Floats = npt.NDArray[np.float64]
# What the first topics cost: so many fits, each a pass of `LDA` and sweeps of Gibbs sampling, which part topics that variational
# steps would merge, and more sweeps from the best; passes alone where counts are not whole.
FIRST_FITS, FIRST_SWEEPS, LATER_SWEEPS, FIRST_PASSES = 4, 50, 150, 10


class First(NamedTuple):
    """Where a network starts: topics [K, V], and their shares in the documents [D, K]."""

    topics: Floats
    shares: Floats


def first_topics(corpus: Corpus, n_topics: int, topic_prior: float, seed: int, seconds: Since | None) -> First:
    """The best of some short fits of LDA, sampled on; the largest topic first. When the seconds are over, what there is."""
    settings: dict[str, Any] = {"max_passes": FIRST_PASSES, "inference": "vb"}
    sampled = bool((corpus.counts == np.round(corpus.counts)).all())
    if sampled:
        corpus = thin_counts(corpus)
        settings = {"inference": "gibbs", "max_passes": 1, "local": LocalOptions(topics="point"), "doc_prior": "learn"}
        settings |= {"gibbs_sweeps": FIRST_SWEEPS}
    settings |= {"topic_prior": topic_prior, "tol": 0, "max_seconds": seconds, "verbose": False}
    models: list[LDA] = []
    for number in range(FIRST_FITS):
        if not models or seconds is None or not seconds.over:
            model = LDA(n_topics, seed=seed + number, **settings)
            model._keeps_draws = False
            models.append(model.fit(corpus))
    # A fit whose time was up before its samples were averaged has no likelihood of them.
    best = max(models, key=lambda model: getattr(model, "log_likelihood_", [-np.inf])[-1] if sampled else model.elbo_)
    if sampled and (seconds is None or not seconds.over):
        best.gibbs_sweeps = LATER_SWEEPS  # `set_params` would import scikit-learn, which takes longer than the sweeps
        best.continue_fit(corpus)
    order = np.argsort(-best.components_.sum(1), kind="stable")
    return First(told_apart(best.topics_[order], seed), best.transform(corpus)[:, order])


def told_apart(topics: Floats, seed: int) -> Floats:
    """Rows that are all alike, as topics of documents that are, a little apart: otherwise no update could part them."""
    if len(topics) < 2 or not np.allclose(topics, topics[0], rtol=1e-6, atol=0):
        return topics
    return as_shares(topics * generator(seed, Stream.START).gamma(100.0, 0.01, topics.shape))


def as_shares(gamma: Floats) -> Floats:
    """Rows that sum to one."""
    return np.asarray(gamma / gamma.sum(1, keepdims=True))
