"""`AuthorTopics`: documents with their authors in; topics, and the shares of them that each author writes about, out.

    θ_a ~ Dir(α),   φ_k ~ Dir(β)
    x ~ uniform over the authors of the document,   z ~ Cat(θ_x),   w ~ Cat(φ_z)

Rosen-Zvi, Griffiths, Steyvers and Smyth (2004). Every word has an author x and a topic z, independent under q.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self, Unpack, final

import numpy as np
import numpy.typing as npt

from natgrad.data.corpus import Corpus
from natgrad.inference.methods import VB
from natgrad.inference.options import FitOptions, all_or_nothing
from natgrad.models.lda.topics import By, How, coherence, completion
from natgrad.network.language import Categorical, Dirichlet, Plate, table
from natgrad.network.network import Network
from natgrad.topics.base import (
    MOST_NUMBERS,
    First,
    TopicNetwork,
    as_shares,
    cells_of,
    likeliest,
    read_documents,
    told_apart,
    with_rows,
)
from natgrad.topics.known import as_authors

__all__ = ["AuthorTopics"]

Floats = npt.NDArray[np.float64]
# A word of an author is read with at least this probability of each topic.
LEAST_SHARE = 1e-6


@final
@dataclass(repr=False, eq=False)
class AuthorTopics(TopicNetwork):
    """Topics of documents, and of which of them their authors write.

    Parameters
    ----------
    n_topics : int
    author_prior, topic_prior : float
        α and β, the concentrations of an author's shares and of a topic's words.
    Further settings are those of every model here, see `TopicNetwork`.

    Attributes
    ----------
    topics_ : array [K, V], E[φ]
    authors_ : array [A], their names, sorted
    author_shares_ : array [A, K], E[θ]
    network_, fit_ : the declaration and its fit
    elbo_, trace_, stop_, vocabulary_ : as of `natgrad.LDA`

    Examples
    --------
    >>> import natgrad as ng
    >>> texts = ["apple pear plum", "plum pear apple apple", "bolt nut screw", "nut bolt bolt screw"] * 5
    >>> model = ng.topics.AuthorTopics(2, seed=1).fit(texts, [["eve"], ["eve"], ["bob"], ["bob", "tim"]] * 5)
    >>> shares = dict(zip(model.authors_, model.author_shares_.argmax(1)))
    >>> bool(shares["bob"] == shares["tim"] != shares["eve"])
    True
    """

    _: KW_ONLY
    author_prior: float = 0.1

    @all_or_nothing
    def fit(
        self, X: Any, authors: Any = None, *, vocabulary: Sequence[Any] | None = None, **keep: Unpack[FitOptions]
    ) -> Self:
        """Fit to documents and their authors.

        Parameters
        ----------
        X : documents, as `natgrad.LDA.fit` takes them; or a stream, an iterator of pairs (documents, authors)
        authors : for each document, the list of its authors, or one
        vocabulary : the V words, optional
        checkpoint, every, resume, callbacks : as in ``Network.fit``; of these, streams take callbacks alone
        """
        return self._learn(X, authors, vocabulary, keep)

    @all_or_nothing
    def partial_fit(self, X: Any, authors: Any, *, vocabulary: Sequence[Any] | None = None) -> Self:
        """Take more documents in; what the earlier ones told counts on, and their authors may be joined by others.

        Parameters
        ----------
        X, authors : as in `fit`
        vocabulary : the V words, optional
            With the first documents; later ones are read with the same words.
        """
        return self._learn(X, authors, vocabulary, {}, anew=False)

    def transform(self, X: Any, authors: Any = None) -> Floats:
        """The expected topic shares of documents [D, K]: by their authors where these are given, otherwise by their words."""
        corpus = self._new_documents(X)
        if authors is not None:
            return self._chances(as_authors(authors, len(corpus))) @ self.author_shares_
        return self._of_words(corpus)

    def _of_words(self, corpus: Corpus) -> Floats:
        return as_shares(read_documents(corpus, self.topics_, np.full(self.n_topics, float(self.author_prior))))

    def score(self, X: Any, authors: Any = None) -> float:
        """The mean log probability of a word, given the authors of its document; without, given half of its words."""
        if authors is None:
            rng = np.random.default_rng([int(self.seed), 1])
            return completion(self._of_words, self.topics_, self._new_documents(X), rng)
        shares = self.transform(X, authors)
        docs, words, counts = cells_of(self._new_documents(X))
        if not counts.sum():
            raise ValueError("X has no words to score")
        chance = np.einsum("nk,kn->n", shares[docs], self.topics_[:, words])
        return float(counts @ np.log(chance) / counts.sum())

    def perplexity(self, X: Any, authors: Any = None) -> float:
        """The exponential of minus `score`; lower is better."""
        return float(np.exp(-self.score(X, authors)))

    def top_words(self, n: int = 10, by: By = "probability") -> list[list[Any]]:
        """The n first words of each topic: the likeliest, the most typical ("lift"), or both ("relevance")."""
        self._check_fitted()
        return [self.vocabulary_[row].tolist() for row in likeliest(self.topics_, n, by)]

    def top_authors(self, n: int = 10) -> list[list[Any]]:
        """The n authors with the largest share of each topic."""
        self._check_fitted()
        order = np.argsort(-self.author_shares_.T, axis=1, kind="stable")[:, :n]
        return [self.authors_[row].tolist() for row in order]

    def coherence(self, X: Any, n: int = 10, how: How = "npmi") -> Floats:
        """How well each topic's n likeliest words go together [K], as in `LDA.coherence`."""
        corpus = self._new_documents(X)
        return coherence(likeliest(self.topics_, n), X, corpus, self.vocabulary_, how)

    # -- what the base asks --

    # Extrapolation would save some sweeps, and costs more than these: it would carry a number for each entry and author along
    # (of the benchmark, to 1e-4 nats a word, 10.2 processor seconds and 41 sweeps with it, 6.6 and 50 without; the bounds are
    # 0.3 nats apart).
    _best_method = VB()

    def _side(self, known: Any, n_documents: int, anew: bool) -> Floats:
        lists = as_authors(known, n_documents)
        self.authors_: npt.NDArray[Any]
        before = [] if anew else self.authors_.tolist()
        self.authors_ = np.unique([*before, *(name for names in lists for name in names)])
        if "theta" in self._told and len(before) < len(self.authors_):
            places = np.searchsorted(self.authors_, before)
            self._told = {**self._told, "theta": with_rows(self._told["theta"], places, len(self.authors_))}
        return self._chances(lists)

    def _network(self, corpus: Corpus, side: Floats) -> Network:
        docs, words, counts = cells_of(corpus)
        if len(docs) * len(self.authors_) > MOST_NUMBERS:
            raise ValueError(
                f"{len(docs):,} entries of documents times {len(self.authors_):,} authors are too many numbers for q: the limit "
                f"is {MOST_NUMBERS:,}. Take a part of the documents, or put authors of few documents together"
            )
        cell, author = Plate("cell", len(docs), weight=counts), Plate("author", len(self.authors_))
        phi = Dirichlet("phi", self.topic_prior, size=corpus.n_words, plate=Plate("topic", self.n_topics))
        theta = Dirichlet("theta", self.author_prior, size=self.n_topics, plate=author)
        x = Categorical("x", table(side)[cell.index(docs)], plate=cell)
        z = Categorical("z", theta[x], plate=cell)
        return Network(Categorical("w", phi[z], plate=cell, observed=words))

    def _start(self, first: First, corpus: Corpus, side: Floats) -> dict[str, Any]:
        # Authors who wrote everything together cannot be told apart, but have to start apart.
        shares = told_apart(as_shares(side.T @ first.shares + LEAST_SHARE), self.seed)
        return {"phi": first.topics, "theta": shares}

    def _publish_fit(self, fit: Any) -> None:
        self.topics_ = fit["phi"].mean()
        self.author_shares_: Floats = np.asarray(fit["theta"].mean())

    def _chances(self, lists: list[list[Any]]) -> Floats:
        """P(x) [D, A]: equal for the authors of a document."""
        known = {name: place for place, name in enumerate(self.authors_.tolist())}
        chance = np.zeros((len(lists), len(known)))
        for d, names in enumerate(lists):
            for name in names:
                if name not in known:
                    raise ValueError(f"authors[{d}] has {name!r}, who is none of the {len(known)} authors of the fit")
                chance[d, known[name]] = 1.0 / len(names)
        return chance

    @classmethod
    def _own_settings(cls) -> Mapping[str, Any]:
        return {"author_prior": "positive"}

    @classmethod
    def _own_fitted(cls) -> Mapping[str, Any]:
        return {
            "topics_": "share [topic, word]",
            "authors_": "ids [author]",
            "author_shares_": "share [author, topic]",
        }

    @classmethod
    def _told_table(cls, own: Any) -> Mapping[str, Any]:
        return {"phi": ("real [topic, word]",), "theta": ("real [author, topic]",)}
