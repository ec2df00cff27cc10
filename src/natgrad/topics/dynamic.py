"""`DynamicTopics`: documents with their times in; topics that drift from one time to the next out.

    r_1kv ~ Gamma(β, βV),   s_tkv ~ Gamma(a, a r_{t−1,kv}),   r_tkv ~ Gamma(a, a s_tkv),   φ_tkv = r_tkv / Σ_u r_tku
    θ_d ~ Dir(α),   z ~ Cat(θ_d),   w ~ Cat(φ_{t_d, z})

A Gamma chain (Cemgil and Dikmen, 2007): E[r_t | s_t] = 1/s_t and E[s_t | r_{t−1}] ≈ 1/r_{t−1}, so that the logarithm of a word's
weight makes steps of variance about 2/a. Normalised, a topic of one time is Dirichlet, and the chain is one of Dirichlets. Every
message is conjugate, normaliser included (`Categorical(weights=)`): no Gaussian approximation as in Blei and Lafferty (2006).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self, Unpack, final

import numpy as np
import numpy.typing as npt

from natgrad.data.corpus import Corpus
from natgrad.errors import UnreachedNode
from natgrad.inference.options import FitOptions, all_or_nothing
from natgrad.models.lda.topics import By, How, coherence, completion
from natgrad.network.language import Categorical, Dirichlet, Gamma, Plate
from natgrad.network.network import Network
from natgrad.topics.base import First, TopicNetwork, as_shares, cells_of, likeliest, read_documents
from natgrad.topics.known import as_times, times_from_file, times_to_file

__all__ = ["DynamicTopics"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@final
@dataclass(repr=False, eq=False)
class DynamicTopics(TopicNetwork):
    """Topics whose words change with time.

    Parameters
    ----------
    n_topics : int
    drift : float
        By how much the logarithm of a word's weight moves from one time to the next, as a standard deviation; 2/drift² is a.
    doc_prior, topic_prior : float
        α and β, the concentrations of a document's shares and of a topic's words at the first time.
    Further settings are those of every model here, see `TopicNetwork`.

    Attributes
    ----------
    times_ : array [T], the times there are, in their order
    topics_ : array [T, K, V], E[r] normalised: the topics at each time
    network_, fit_ : the declaration and its fit
    elbo_, trace_, stop_, vocabulary_ : as of `natgrad.LDA`

    Examples
    --------
    >>> import natgrad as ng
    >>> texts = ["apple pear plum", "plum pear apple", "bolt nut screw", "nut bolt screw"] * 5
    >>> texts += ["apple kiwi plum", "plum kiwi apple", "bolt nut screw", "nut bolt screw"] * 5
    >>> model = ng.topics.DynamicTopics(2, drift=1.0, seed=1).fit(texts, [2001] * 20 + [2002] * 20)
    >>> pear, kiwi = (model.vocabulary_.tolist().index(word) for word in ("pear", "kiwi"))
    >>> fruit = model.topics_[:, :, pear].sum(0).argmax()
    >>> bool(model.topics_[0, fruit, pear] > model.topics_[1, fruit, pear])
    True
    """

    _: KW_ONLY
    drift: float = 0.3
    doc_prior: float = 0.1

    @all_or_nothing
    def fit(
        self, X: Any, times: Any = None, *, vocabulary: Sequence[Any] | None = None, **keep: Unpack[FitOptions]
    ) -> Self:
        """Fit to documents and their times.

        Parameters
        ----------
        X : documents, as `natgrad.LDA.fit` takes them; or a stream, an iterator of pairs (documents, times)
        times : array [D], numbers, dates or names that sort as they follow one another
            Names that are numbers are read as such, so that "9" comes before "10". Documents of one time share their topics;
            between two that follow one another, topics make one step.
        vocabulary : the V words, optional
        checkpoint, every, resume, callbacks : as in ``Network.fit``; of these, streams take callbacks alone
        """
        return self._learn(X, times, vocabulary, keep)

    @all_or_nothing
    def partial_fit(self, X: Any, times: Any, *, vocabulary: Sequence[Any] | None = None) -> Self:
        """Take more documents in, of times that were there or of others; what the earlier ones told counts on.

        Parameters
        ----------
        X, times : as in `fit`
        vocabulary : the V words, optional
            With the first documents; later ones are read with the same words.
        """
        return self._learn(X, times, vocabulary, {}, anew=False)

    def transform(self, X: Any, times: Any = None) -> Floats:
        """The expected topic shares of documents [D, K], by the topics of their times; without, by their mean over all times."""
        corpus = self._new_documents(X)
        if times is None:
            return self._read(corpus, self._mean_topics())
        return self._shares_at(corpus, self._slices(times, len(corpus)))

    def score(self, X: Any, times: Any = None) -> float:
        """The mean log probability of a word of a random half of each document, given the shares of its other half."""
        corpus = self._new_documents(X)
        rng = np.random.default_rng([int(self.seed), 1])
        if times is None:
            topics = self._mean_topics()
            return completion(partial(self._read, topics=topics), topics, corpus, rng)
        slices, total, tokens = self._slices(times, len(corpus)), 0.0, 0.0
        for t in np.unique(slices):
            part = corpus.documents(np.flatnonzero(slices == t))
            weight = float(part.counts.sum())
            if weight > 1:
                total += weight * completion(partial(self._read, topics=self.topics_[t]), self.topics_[t], part, rng)
                tokens += weight
        if not tokens:
            raise ValueError("X has too few words to predict any")
        return total / tokens

    def perplexity(self, X: Any, times: Any = None) -> float:
        """The exponential of minus `score`; lower is better."""
        return float(np.exp(-self.score(X, times)))

    def top_words(self, n: int = 10, by: By = "probability", *, time: Any = None) -> list[list[Any]]:
        """The n first words of each topic at a time; by default, of its mean over all times."""
        self._check_fitted()
        topics = self.topics_.mean(0) if time is None else self.topics_[self._slices([time], 1)[0]]
        return [self.vocabulary_[row].tolist() for row in likeliest(topics, n, by)]

    def coherence(self, X: Any, n: int = 10, how: How = "npmi") -> Floats:
        """How well the n likeliest words of each topic, in its mean over all times, go together [K]."""
        corpus = self._new_documents(X)
        return coherence(likeliest(self.topics_.mean(0), n), X, corpus, self.vocabulary_, how)

    # -- what the base asks --

    def _side(self, known: Any, n_documents: int, anew: bool) -> Ints:
        labels = as_times(known, n_documents, None if anew else self.times_)
        self.times_: npt.NDArray[Any]
        before = labels[:0] if anew else self.times_
        self.times_ = np.unique(np.concatenate([before, labels]))
        moved = {
            f"{kind}{t}": f"{kind}{new}" for t, new in enumerate(np.searchsorted(self.times_, before)) for kind in "rs"
        }
        self._told = {moved[name]: message for name, message in self._told.items()}
        return np.searchsorted(self.times_, labels).astype(np.int64)

    def _mean_topics(self) -> Floats:
        return np.asarray(self.topics_.mean(0))

    def _word_counts(self) -> Floats:
        # A word adds one to the shape of its weight.
        told = [np.asarray(message[1]) for name, message in self._told.items() if name.startswith("r")]
        return np.asarray(np.maximum(np.sum(told, axis=0), 0.0))

    def _network(self, corpus: Corpus, side: Ints) -> Network:
        docs, words, counts = cells_of(corpus)
        topic, word = Plate("topic", self.n_topics), Plate("word", corpus.n_words)
        theta = Dirichlet("theta", self.doc_prior, size=self.n_topics, plate=Plate("doc", len(corpus)))
        stiff, leaves, before = 2.0 / self.drift**2, [], None
        for t in range(self._n_times(corpus, side)):
            if before is None:
                shape, rate = self.topic_prior, self.topic_prior * corpus.n_words
                weights = Gamma("r0", shape, rate, plate=(topic, word))
            else:
                inverse = Gamma(f"s{t}", stiff, stiff * before, plate=(topic, word))
                weights = Gamma(f"r{t}", stiff, stiff * inverse, plate=(topic, word))
            before = weights
            own = np.flatnonzero(side[docs] == t)
            if not len(own):  # a time whose documents have no words
                continue
            cell = Plate(f"cell{t}", len(own), weight=counts[own])
            z = Categorical(f"z{t}", theta[cell.index(docs[own])], plate=cell)
            leaves.append(Categorical(f"w{t}", weights=weights[z], plate=cell, observed=words[own]))
        with warnings.catch_warnings():
            # Times after the last one that has words now: earlier documents told of them, which `reminded` adds.
            warnings.simplefilter("ignore", UnreachedNode)
            return Network(*leaves, before)

    def _n_times(self, corpus: Corpus, side: Ints) -> int:
        """Up to the last time that has words, now or earlier."""
        earlier = [int(name[1:]) for name in self._told if name.startswith("r")]
        return max([int(side[cells_of(corpus)[0]].max()), *earlier]) + 1

    def _start(self, first: First, corpus: Corpus, side: Any) -> dict[str, Any]:
        topics, n_times = first.topics, self._n_times(corpus, side)
        start = {f"r{t}": topics for t in range(n_times)}
        return {**start, **{f"s{t}": 1.0 / topics for t in range(1, n_times)}}

    def _publish_fit(self, fit: Any) -> None:
        # After the last time that has words, topics stay as they are.
        last = max(t for t in range(len(self.times_)) if f"r{t}" in fit)
        means = np.stack([fit[f"r{min(t, last)}"].mean() for t in range(len(self.times_))])
        self.topics_ = means / means.sum(-1, keepdims=True)

    def _slices(self, times: Any, n_documents: int) -> Ints:
        self._check_fitted()
        labels = as_times(times, n_documents, self.times_)
        places = np.minimum(np.searchsorted(self.times_, labels), len(self.times_) - 1)
        if (unknown := labels[self.times_[places] != labels]).size:
            raise ValueError(
                f"times: {unknown[0]} is none of the {len(self.times_)} times of the fit, from {self.times_[0]} to "
                f"{self.times_[-1]}"
            )
        return places

    def _shares_at(self, corpus: Corpus, slices: Ints) -> Floats:
        shares = np.empty((len(corpus), self.n_topics))
        for t in np.unique(slices):
            own = np.flatnonzero(slices == t)
            shares[own] = self._read(corpus.documents(own), self.topics_[t])
        return shares

    def _read(self, corpus: Corpus, topics: Floats) -> Floats:
        return as_shares(read_documents(corpus, topics, np.full(self.n_topics, float(self.doc_prior))))

    def _to_file(self, name: str, value: Any) -> Any:
        return times_to_file(value) if name == "times_" else value

    def _from_file(self, name: str, value: Any) -> Any:
        return times_from_file(value) if name == "times_" else value

    @classmethod
    def _own_settings(cls) -> Mapping[str, Any]:
        return {"drift": "positive", "doc_prior": "positive"}

    @classmethod
    def _own_fitted(cls) -> Mapping[str, Any]:
        return {"topics_": "share [time, topic, word]", "times_": "ids [time]"}

    @classmethod
    def _told_table(cls, own: Any) -> Mapping[str, Any]:
        times = np.asarray(own.get("times_") if isinstance(own, dict) else [])
        pair = ("real [topic, word]", "real [topic, word]")
        return {f"{kind}{t}?": pair for t in range(times.size) for kind in "rs" if kind == "r" or t}
