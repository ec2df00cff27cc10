"""`CorrelatedTopics`: documents in; topics, and which of them occur together, out.

    ψ_d ~ N(μ, Λ⁻¹),   θ_dk = σ(ψ_dk) Π_{j<k} σ(−ψ_dj),   φ_k ~ Dir(β),   z ~ Cat(θ_d),   w ~ Cat(φ_z)

Blei and Lafferty (2007), with the logistic normal by stick-breaking and Pólya–Gamma variables (Linderman, Johnson and Adams,
2015), which makes every message exact. Topics are in the order of their sizes, the largest first: the order is part of the model.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, Unpack, final

import numpy as np
import numpy.typing as npt

from natgrad.data.corpus import Corpus
from natgrad.errors import NotConverged
from natgrad.inference.methods import VB
from natgrad.inference.options import FitOptions, all_or_nothing
from natgrad.network.language import Categorical, Dirichlet, MultivariateNormal, Plate, Wishart, table
from natgrad.network.language.links import stick_probabilities
from natgrad.network.network import Network
from natgrad.topics.base import First, FixedTopics, cells_of
from natgrad.validation import whole_number

__all__ = ["CorrelatedTopics"]

Floats = npt.NDArray[np.float64]
# Draws of ψ that shares and correlations are means over.
DRAWS = 200
# Shares below it start as this: their logarithms say little.
LEAST_SHARE = 1e-3
# Sweeps over new documents.
READ_SWEEPS = 60


@final
@dataclass(repr=False, eq=False)
class CorrelatedTopics(FixedTopics):
    """Topics whose shares are correlated: a document about one is likelier to be about another.

    Parameters
    ----------
    n_topics : int ≥ 2
    topic_prior : float
        β, the concentration of a topic's words.
    Further settings are those of every model here, see `TopicNetwork`.

    Attributes
    ----------
    topics_ : array [K, V], E[φ]; the largest topic first
    correlations_ : array [K, K], of the logarithms of the shares over documents, as the fitted prior has them
    mean_, covariance_ : arrays [K − 1] and [K − 1, K − 1], of ψ
    network_, fit_ : the declaration and its fit
    elbo_, trace_, stop_, vocabulary_ : as of `natgrad.LDA`

    Examples
    --------
    >>> import natgrad as ng
    >>> texts = ["apple pear plum", "plum pear apple apple", "bolt nut screw", "nut bolt bolt screw"] * 5
    >>> model = ng.topics.CorrelatedTopics(2, seed=1).fit(texts)
    >>> print(f"{model.correlations_[0, 1]:.1f}", sorted(model.top_words(1)))
    -0.7 [['apple'], ['bolt']]
    """

    @all_or_nothing
    def fit(
        self, X: Any, y: None = None, *, vocabulary: Sequence[Any] | None = None, **keep: Unpack[FitOptions]
    ) -> Self:
        """Fit to documents.

        Parameters
        ----------
        X : documents, as `natgrad.LDA.fit` takes them; or a stream, an iterator of them
        y : ignored
        vocabulary : the V words, optional
        checkpoint, every, resume, callbacks : as in ``Network.fit``; of these, streams take callbacks alone
        """
        whole_number(self.n_topics, "n_topics", least=2)
        return self._learn(X, None, vocabulary, keep)

    @all_or_nothing
    def partial_fit(self, X: Any, y: None = None, *, vocabulary: Sequence[Any] | None = None) -> Self:
        """Take more documents in; what the earlier ones told counts on.

        Parameters
        ----------
        X : documents
        y : ignored
        vocabulary : the V words, optional
            With the first documents; later ones are read with the same words.
        """
        whole_number(self.n_topics, "n_topics", least=2)
        return self._learn(X, None, vocabulary, {}, anew=False)

    # -- what the base asks --

    _asks_for_side = False

    def _side(self, known: None, n_documents: int, anew: bool) -> None:
        return None

    def _network(self, corpus: Corpus, side: None) -> Network:
        size = self.n_topics - 1
        phi = Dirichlet("phi", self.topic_prior, size=corpus.n_words, plate=Plate("topic", self.n_topics))
        # A priori ψ has variance about 4: shares of a few topics, as α = 0.1 of a Dirichlet has them.
        precision = Wishart("precision", size + 2.0, 4.0 * (size + 2.0) * np.eye(size))
        # Sticks that make all shares equal.
        equal = -np.log(np.arange(size, 0, -1.0))
        mean = MultivariateNormal("mean", equal, 0.1 * np.eye(size))
        return self._read(corpus, lambda z: phi[z], mean, precision)

    def _read(self, corpus: Corpus, words_of: Any, mean: Any, precision: Any) -> Network:
        docs, words, counts = cells_of(corpus)
        cell = Plate("cell", len(docs), weight=counts)
        psi = MultivariateNormal("psi", mean, precision, plate=Plate("doc", len(corpus)))
        z = Categorical("z", logits=psi[cell.index(docs)], plate=cell)
        return Network(Categorical("w", words_of(z), plate=cell, observed=words))

    def _start(self, first: First, corpus: Corpus, side: Any) -> dict[str, Any]:
        shares = np.maximum(first.shares, LEAST_SHARE)
        rest = np.cumsum(shares[:, ::-1], axis=1)[:, ::-1][:, 1:]
        return {"phi": first.topics, "psi": np.log(shares[:, :-1] / rest)}

    def _publish_fit(self, fit: Any) -> None:
        self.topics_ = fit["phi"].mean()
        self.mean_: Floats = np.asarray(fit["mean"].mean())
        self.covariance_: Floats = np.linalg.inv(fit["precision"].mean())
        logs = np.log(stick_probabilities(self._drawn(self.mean_[None], self.covariance_[None], 5000)[:, 0]))
        self.correlations_: Floats = np.corrcoef(logs.T)

    def _shares(self, corpus: Corpus) -> Floats:
        """Each document's q(ψ), given the mean topics and the mean prior; the mean of the shares over draws of it."""
        topics = self._topics_now()
        if not corpus.counts.sum():  # no words at all: the prior, as for a document without words among others
            drawn = self._drawn(self.mean_[None], self.covariance_[None], DRAWS)
            return np.repeat(stick_probabilities(drawn).mean(0), len(corpus), axis=0)
        # As many plain sweeps for all: what is said of a document depends on no other.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConverged)
            fit = self._read(corpus, lambda z: table(topics)[z], self.mean_, np.linalg.inv(self.covariance_)).fit(
                VB(), max_steps=READ_SWEEPS, tol=0, verbose=False
            )
        psi = fit["psi"]
        drawn = self._drawn(np.asarray(psi.mean()), np.linalg.inv(psi.parameters["precision"]), DRAWS)
        return np.asarray(stick_probabilities(drawn).mean(0))

    def _drawn(self, mean: Floats, covariance: Floats, n: int) -> Floats:
        """Draws of ψ [n, D, K − 1]."""
        rng = np.random.default_rng([int(self.seed), 2])
        half = rng.standard_normal((n // 2, 1, mean.shape[-1]))  # the same for all documents
        noise = np.concatenate([half, -half])[:, 0]  # so that their mean is exact
        return np.asarray(mean + np.einsum("dij,nj->ndi", np.linalg.cholesky(covariance), noise))

    @classmethod
    def _own_settings(cls) -> Mapping[str, Any]:
        return {"n_topics": "whole in [2, 1e6]"}

    @classmethod
    def _own_fitted(cls) -> Mapping[str, Any]:
        return {
            "topics_": "share [topic, word]",
            "mean_": "real [stick]",
            "covariance_": "real [stick, stick]",
            "correlations_": "real [topic, topic]",
        }

    @classmethod
    def _told_table(cls, own: Any) -> Mapping[str, Any]:
        return {
            "phi": ("real [topic, word]",),
            "mean": ("real [stick]", "real [stick, stick]"),
            "precision": ("real [stick, stick]", "real"),
        }
