"""`TopicNetwork`, what estimators of declared topic models share: documents in; a fit of the network, topics and shares out.

A model says which network it declares for documents (`_network`), what is known of them besides words (`_side`), and how new
documents are read. The network is fitted as any other; it starts from the topics of a few passes of `LDA`, which are cheap. New
documents are read with the mean topics, as `LDA` with ``topics="point"`` in its `LocalOptions` reads them.

Documents may come in parts (`partial_fit`, or a stream in `fit`). What earlier parts told the nodes that all documents share
(`told_to`) is then an observation of the network of the next: streaming variational Bayes, as in ``Fit.update``.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from natgrad.data.corpus import Corpus, as_corpus, has_names, with_words
from natgrad.data.stream import as_stream
from natgrad.inference.methods import Method
from natgrad.inference.monitor import Since
from natgrad.inference.options import FitOptions, LocalOptions, all_or_nothing, checked_method, seeing, split_options
from natgrad.inference.trace import Stop, Trace
from natgrad.models.base import Estimator
from natgrad.models.lda.estimator import LDA
from natgrad.models.lda.problem import LDAProblem, Local
from natgrad.models.lda.start import thin_counts, thinning_factor
from natgrad.models.lda.topics import By, How, coherence, completion, ranked_words
from natgrad.models.registry import EVERY_MODEL
from natgrad.network.bind.remembering import Message, messages_to
from natgrad.network.network import Network
from natgrad.network.results.fit import Fit
from natgrad.posterior.export import Posterior
from natgrad.posterior.files.checkpoints import refuse_checkpoint
from natgrad.posterior.files.tables import METHOD, STEP
from natgrad.random import Stream, generator
from natgrad.validation import is_sparse, real_number, whole_number

__all__ = [
    "MOST_NUMBERS",
    "First",
    "FixedTopics",
    "Part",
    "Told",
    "TopicNetwork",
    "as_shares",
    "first_topics",
    "likeliest",
    "parts_of_stream",
    "reminded",
    "told_apart",
    "told_to",
    "with_rows",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Documents are read with the mean topics until γ changes by less, in so many rounds at most.
READ_TOL, READ_ROUNDS = 1e-4, 1000
# Numbers of q of the tokens' topics, or of their authors; there are a few arrays of these.
MOST_NUMBERS = 200_000_000
# From where on a fit takes so long that whoever has large counts should hear of it.
MANY_NUMBERS = 1_000_000
SETTINGS: dict[str, Any] = {
    "n_topics": "natural",
    "topic_prior": "positive",
    "method": METHOD,
    "step": STEP,
    "max_steps": "natural",
    "max_seconds": "none | positive",
    "tol": "nonnegative",
    "seed": "whole",
    "verbose": "none | flag",
}
FITTED: dict[str, Any] = {
    "vocabulary": "none | ids [word]",
    "n_words": "size word",
    "n_documents": "natural",
    "elbo": "float",
    "trace": Trace,
    "stop": Stop,
}


@dataclass(repr=False, eq=False)
class TopicNetwork(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator, ABC):
    """A topic model that is a declared network; abstract.

    A fit sets ``network_``, the declaration, and ``fit_``, its `Fit`, with everything that fits of networks have: factors, linear
    response, draws. They are not in the file that ``save`` writes, which has what predictions and `partial_fit` need.

    Parameters
    ----------
    n_topics : int
    topic_prior : float
        β, the concentration of a topic's words.
    method, step : as in ``Network.fit``
        Sweeps over all documents by default; `SVI({"doc": size})` takes batches of documents, `SVI({"cell": size})` batches of
        words where documents are no plate (`AuthorTopics`).
    max_steps, max_seconds : limits
        Most steps (a sweep, or a batch), most time, that of the first topics and of all parts of a stream included.
    tol : float
        Nats a word left to gain below which the fit has converged. 0.003 are 0.3 % of the perplexity of the words of the fit;
        what comes after it changes held-out scores by less than another seed does.
    seed : int
    executor : as in ``Network.fit``
        Of workers of a Dask cluster; they share out batches of documents, for which ``method`` is `SVI`.
    verbose : bool, optional
    """

    kind: ClassVar[str] = "topics"
    abilities: ClassVar[frozenset[str]] = (EVERY_MODEL - {"update", "forget"}) | {
        "partial_fit", "executor", "linear_response", "transform", "topics",
    }  # fmt: skip

    n_topics: int = 20
    _: KW_ONLY
    topic_prior: float = 0.05
    method: Any = None
    step: Any = None
    max_steps: int = 200
    max_seconds: float | None = None
    tol: float = 3e-3
    seed: int = 0
    executor: Any = None
    verbose: bool | None = None

    _keeps_data = False
    _asks_for_side = True  # whether documents alone are not enough
    _best_method: ClassVar[Method | None] = None  # where it is not the engine that chooses

    # -- what a model says --

    @abstractmethod
    def _side(self, known: Any, n_documents: int, anew: bool) -> Any:
        """What is known of documents, checked and coded; what earlier parts told is brought in line with new codes."""

    @abstractmethod
    def _network(self, corpus: Corpus, side: Any) -> Network:
        """The declaration for some documents; ``side`` is what is known of them besides words."""

    @abstractmethod
    def _publish_fit(self, fit: Any) -> None:
        """Set what users of the model expect, and nothing that follows from it."""

    def _start(self, first: First, corpus: Corpus, side: Any) -> dict[str, Any]:
        """Where the network starts, given the first topics."""
        return {"phi": first.topics}

    def _mean_topics(self) -> Floats:
        """Topics [K, V] that stand for the model where there can be one set alone."""
        return self.topics_

    def _word_counts(self) -> Floats:
        """How often each word is expected to have come from each topic [K, V], in all documents that were read."""
        return np.asarray(np.maximum(self._told["phi"][0], 0.0))

    # -- fitting --

    def _learn(
        self, X: Any, known: Any, vocabulary: Sequence[Any] | None, keep: FitOptions, *, anew: bool = True
    ) -> Self:
        """Fit to documents, or to all parts of a stream; unless ``anew``, what earlier ones told counts on."""
        self._check_from_table()
        whole_number(self.seed, "seed", least=0)
        seconds = (
            None if self.max_seconds is None else Since(self.max_seconds)
        )  # of the first topics and all parts, too
        if (parts := parts_of_stream(X, known, self._asks_for_side)) is not None:
            refuse_checkpoint(split_options(keep)[1], type(self).__name__)
            for part in parts:
                with part.named():
                    first = anew and part.number == 0
                    own = vocabulary if first else None
                    self._learn_part(part.documents, part.known, own, keep, seconds, anew=first)
                if seconds is not None and seconds.over:
                    break
            return self
        return self._learn_part(X, known, vocabulary, keep, seconds, anew=anew)

    def _learn_part(
        self,
        X: Any,
        known: Any,
        vocabulary: Sequence[Any] | None,
        keep: FitOptions,
        seconds: Since | None,
        *,
        anew: bool,
    ) -> Self:
        anew = anew or not hasattr(self, "_state")
        if not anew and vocabulary is not None:
            raise ValueError("vocabulary is for the first documents: later ones are read with the words of the model")
        corpus = self._documents(X, vocabulary) if anew else self._new_documents(X)
        if corpus.n_words < 2:
            raise ValueError("X has n_features = 1: topics are told apart by two words at least")
        if known is None and self._asks_for_side:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: y, authors or times come second"
            )
        self._told: Told = {} if anew else self._told
        side = self._side(known, len(corpus), anew)
        n_tokens = float(corpus.counts.sum())
        if n_tokens == 0:
            raise ValueError("X has no words to fit to")
        if anew:
            prior = real_number(self.topic_prior, "topic_prior")
            first = first_topics(corpus, whole_number(self.n_topics, "n_topics"), prior, self.seed, seconds)
        else:
            first = First(self._mean_topics(), self._by_words(corpus))
        self._names, self._n_words = corpus.vocabulary, corpus.n_words
        self.n_features_in_, self._n_features_out = corpus.n_words, self.n_topics
        self.n_documents_seen_: int = len(corpus) + (0 if anew else self.n_documents_seen_)
        self.network_ = reminded(self._network(corpus, side), self._told)
        callbacks, kept = split_options(keep)
        method = self._best_method if self.method is None and self.executor is None else checked_method(self.method)
        fit = self.network_.fit(
            method, step=self.step, executor=self.executor,
            init=self._start(first, corpus, side), max_steps=self.max_steps, max_seconds=seconds,
            tol=self.tol * n_tokens, seed=self.seed, verbose=self.verbose,
            # Probes look for merged topics, which samples at the start have parted, and cost more than all sweeps.
            callbacks=[seeing(callback, self._at) for callback in callbacks], moves=False, **kept,
        )  # fmt: skip
        self._publish(fit)
        return self

    @all_or_nothing
    def continue_fit(self, max_steps: int | None = None) -> Self:
        """Go on from where the last fit ended, on the same documents, which `fit_` has; the trace continues.

        Parameters
        ----------
        max_steps : most steps more; by default as many as of a fit
        """
        self._check_fitted()
        if not hasattr(self, "fit_"):
            raise ValueError(
                "continue_fit: files and pickles have no documents; fit() again, or partial_fit() more of them"
            )
        fit: Fit = self.fit_
        steps = self.max_steps if max_steps is None else whole_number(max_steps, "max_steps")
        self._publish(fit.continue_fit(max_steps=steps, max_seconds=self.max_seconds, verbose=self.verbose))
        return self

    def _at(self, fit: Fit) -> Self:
        """A copy of the model as it would be if the run ended with this fit."""
        shown = copy(self)
        shown.network_ = self.network_  # which pickles and copies go without
        shown._publish(fit)
        return shown

    def _publish(self, fit: Fit) -> None:
        self.topics_: Floats
        self.fit_ = fit
        self.elbo_: float = fit.elbo
        self.trace_, self.stop_ = fit.trace, fit.stop
        self.posterior_ = Posterior({name: fit[name] for name in fit})
        self._state = fit.state
        self._told = told_to(self.network_, fit)
        self._publish_fit(fit)

    def _by_words(self, corpus: Corpus) -> Floats:
        """Shares of the topics in documents [D, K], by their words alone and with equal shares a priori."""
        alpha = np.full(self.n_topics, 1.0 / self.n_topics)
        return as_shares(read_documents(corpus, self._mean_topics(), alpha))

    _draws_advice = (
        "fit_, the fit of its network, has them: model.fit_.draws(). It is there after fit, and not in files"
    )

    def _data_of_fit(self, X: Any, what: str) -> Any:
        raise TypeError(
            f"{type(self).__name__} has no {what}(): fit_, the fit of its network, has it: model.fit_.{what}(). It is there "
            "after fit, and not in files"
        )

    @property
    def vocabulary_(self) -> npt.NDArray[Any]:
        """The V words, or their numbers."""
        self._check_fitted()
        return np.arange(self._n_words) if self._names is None else np.asarray(self._names)

    @staticmethod
    def _documents(X: Any, vocabulary: Sequence[Any] | None = None) -> Corpus:
        return with_words(as_corpus(X, vocabulary))

    def _new_documents(self, X: Any) -> Corpus:
        self._check_fitted()
        return as_corpus(X, self._names, self._n_words)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.positive_only = True
        tags.target_tags.required = self._asks_for_side
        return tags

    def __getstate__(self) -> Any:
        """For pickles: the model, without the network and its data."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ("network_", "fit_")}

    # -- files --

    @classmethod
    def _settings_table(cls) -> Mapping[str, Any]:
        return {**SETTINGS, **cls._own_settings()}

    @classmethod
    def _own_settings(cls) -> Mapping[str, Any]:
        raise NotImplementedError

    @classmethod
    def _own_fitted(cls) -> Mapping[str, Any]:
        """The table of what `_publish_fit` sets, by name."""
        raise NotImplementedError

    @classmethod
    def _told_table(cls, own: Any) -> Mapping[str, Any]:
        """The table of what documents told the nodes that they share, by name; ``own`` is what `_publish_fit` sets, unchecked."""
        raise NotImplementedError

    @classmethod
    def _tables(cls, settings: Mapping[str, Any], fitted: Mapping[str, Any]) -> tuple[Any, Any]:
        told = dict(cls._told_table(fitted.get("own")))
        return cls._settings_table(), {"own": dict(cls._own_fitted()), "told": told, **FITTED}

    def _to_file(self, name: str, value: Any) -> Any:
        """A fitted attribute as files can hold it."""
        return value

    def _from_file(self, name: str, value: Any) -> Any:
        """And back."""
        return value

    def _saved(self) -> dict[str, Any]:
        return {
            "vocabulary": self._names,
            "n_words": self._n_words,
            "n_documents": self.n_documents_seen_,
            "elbo": self.elbo_,
            "trace": self.trace_,
            "stop": self.stop_,
            "own": {
                name.rstrip("?"): self._to_file(name, getattr(self, name.rstrip("?")))
                for name in self._own_fitted()
                if not name.endswith("?") or hasattr(self, name.rstrip("?"))
            },
            "told": self._told,
        }

    def _restore(self, saved: Mapping[str, Any]) -> None:
        self._names, self._n_words = saved["vocabulary"], saved["n_words"]
        self.n_features_in_, self._n_features_out = self._n_words, self.n_topics
        self.elbo_, self.trace_, self.stop_ = saved["elbo"], saved["trace"], saved["stop"]
        self.n_documents_seen_, self._told = saved["n_documents"], saved["told"]
        for name, value in saved["own"].items():
            setattr(self, name, self._from_file(name, value))
        self._state: Any = None  # there, and not fitted here: the network and its factors are not in the file


class Tokens(NamedTuple):
    """Documents token by token in rows of equal length; ``there`` says which are tokens."""

    words: Ints
    there: npt.NDArray[np.bool_]


def as_tokens(corpus: Corpus, n_topics: int) -> Tokens:
    """Documents token by token, each as long as the longest; counts must be whole numbers, and topics of tokens few enough."""
    counts = corpus.counts
    if (counts != np.round(counts)).any():
        place = int(np.flatnonzero(counts != np.round(counts))[0])
        raise ValueError(f"counts must be whole numbers, each word a token; entry {place} is {counts[place]:g}")
    lengths = np.add.reduceat(np.append(counts, 0.0), corpus.start[:-1]).astype(np.int64)
    lengths[np.diff(corpus.start) == 0] = 0
    longest = max(int(lengths.max()), 1)
    if len(corpus) * longest * n_topics > MOST_NUMBERS:
        raise ValueError(
            f"{len(corpus):,} documents of up to {longest:,} words (number {int(lengths.argmax())}; half have "
            f"{float(np.median(lengths)):.0f} or fewer) with {n_topics} topics are too many numbers for q, its rows as long "
            f"as the longest: the limit is {MOST_NUMBERS:,}. Cut long documents into parts, each with the response, or take fewer"
        )
    if len(corpus) * longest * n_topics > MANY_NUMBERS and (by := thinning_factor(corpus)) > 1.0:
        warnings.warn(
            f"every token has a topic of its own here, and there are {int(lengths.sum()):,} of them, "
            f"{corpus.n_tokens / len(corpus.words):.0f} for each word of a document: a sweep takes as long as there are tokens. "
            f"Counts divided by {by:.0f} and rounded have the same shares",
            stacklevel=2,
        )
    words = np.zeros((len(corpus), longest), dtype=np.int64)
    there = np.arange(words.shape[1]) < lengths[:, None]
    words[there] = np.repeat(corpus.words, counts.astype(np.int64))
    return Tokens(words, there)


def cells_of(corpus: Corpus) -> tuple[Ints, Ints, Floats]:
    """The document, the word and the count of every entry."""
    return np.repeat(np.arange(len(corpus)), np.diff(corpus.start)), corpus.words.astype(np.int64), corpus.counts


def read_documents(corpus: Corpus, topics: Floats, alpha: Floats) -> Floats:
    """γ [D, K] of documents, given topics that are known, as LDA finds it."""
    local = Local("point", READ_TOL, READ_ROUNDS, 0.0, np.float64)
    problem = LDAProblem(corpus, alpha, 1.0, local)
    with np.errstate(divide="ignore"):
        state = problem.at(np.ones_like(topics))._replace(mu={"phi": (np.maximum(np.log(topics), -700.0),)})
    return np.asarray(problem.infer(state, None, READ_TOL, READ_ROUNDS).gamma, dtype=np.float64)


class FixedTopics(TopicNetwork, ABC):
    """A model with one topic k for all documents [K, V]; abstract."""

    @abstractmethod
    def _shares(self, corpus: Corpus) -> Floats:
        """Topic shares of a corpus."""

    def transform(self, X: Any) -> Floats:
        """The expected topic shares of documents [D, K], by their words alone."""
        return self._shares(self._new_documents(X))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log probability of a word of a random half of each document, given the shares of its other half."""
        rng = np.random.default_rng([int(self.seed), 1])
        return completion(self._shares, self._topics_now(), self._new_documents(X), rng)

    def perplexity(self, X: Any) -> float:
        """The exponential of minus `score`; lower is better."""
        return float(np.exp(-self.score(X)))

    def top_words(self, n: int = 10, by: By = "probability") -> list[list[Any]]:
        """The n first words of each topic: the likeliest, the most typical ("lift"), or both ("relevance")."""
        return [self.vocabulary_[row].tolist() for row in likeliest(self._topics_now(), n, by)]

    def coherence(self, X: Any, n: int = 10, how: How = "npmi") -> Floats:
        """How well each topic's n likeliest words go together [K], as in `LDA.coherence`."""
        words = likeliest(self._topics_now(), n)
        return coherence(words, X, self._new_documents(X), self.vocabulary_, how)

    def _topics_now(self) -> Floats:
        self._check_fitted()
        return self.topics_


def likeliest(topics: Floats, n: int, by: By = "probability") -> Ints:
    """The n first words of each topic [K, n]; for lift, all topics are equally common."""
    return ranked_words(topics, np.full(len(topics), 1.0 / len(topics)), n, by)


Told = dict[str, tuple[Any, ...]]
# Plates along which documents, their words and their tokens lie; some have the number of a time at the end.
OF_DOCUMENTS = ("doc", "cell", "token")


def told_to(network: Network, fit: Any) -> Told:
    """Collect the messages of the documents of a fit, and of those before, to each shared node.

    A message is what a node's natural parameter holds beyond what the shared nodes say to one another; in the network of the next
    documents it is an observation with log density ⟨m, φ(x)⟩. Messages of earlier documents are among those of later ones.
    """
    nodes = {name: network.nodes[name] for name in fit if _is_shared(network.nodes[name])}
    return {name: message for name, (message, _) in messages_to(nodes, {name: fit[name] for name in nodes}).items()}


def reminded(network: Network, told: Told) -> Network:
    """The network with what earlier documents told its shared nodes."""
    if not told:
        return network
    leaves = [node for node in network.nodes.values() if node.is_observed]
    messages = [
        Message(network.nodes[name], tuple(map(np.asarray, message)))
        for name, message in told.items()
        if name in network.nodes
    ]
    return Network(*leaves, *messages)


def with_rows(message: tuple[Any, ...], places: Any, size: int) -> tuple[Any, ...]:
    """A message to elements that are now among ``size``, at these places; the others were told nothing."""
    longer = []
    for part in message:
        new = np.zeros((size, *part.shape[1:]))
        new[places] = part
        longer.append(new)
    return tuple(longer)


def _is_shared(node: Any) -> bool:
    return not any(plate.name.rstrip("0123456789") in OF_DOCUMENTS for plate in node.plates)


class Part(NamedTuple):
    """Some documents of a stream, what is known of them, and which part it is; it is read once and not revised."""

    number: int
    documents: Any
    known: Any

    @contextmanager
    def named(self) -> Iterator[None]:
        """Mistakes in here say in which part they are."""
        try:
            yield
        except (TypeError, ValueError) as error:
            raise type(error)(f"part {self.number} of the stream: {error}") from error


def parts_of_stream(X: Any, known: Any, in_pairs: bool) -> Iterator[Part] | None:
    """The parts of a stream; None if X is a corpus in one piece."""
    if in_pairs:
        chunks = _chunks(X)
    else:
        stream = as_stream(X)
        chunks = None if stream is None else stream.read()
    if chunks is None:
        return None
    if known is not None:
        raise ValueError(
            "X is a stream: each of its parts is a pair (documents, what is known of them), so leave out the second argument"
        )
    return _numbered(chunks, in_pairs)


def _chunks(X: Any) -> Iterator[Any] | None:
    if callable(getattr(X, "chunks", None)):
        chunks: Iterable[Any] = X.chunks()
        return iter(chunks)
    documents = hasattr(X, "__len__") or isinstance(X, Corpus) or is_sparse(X) or has_names(X)
    return iter(X) if isinstance(X, Iterable) and not documents else None


def _numbered(chunks: Iterator[Any], in_pairs: bool) -> Iterator[Part]:
    number = -1
    for number, chunk in enumerate(chunks):
        if in_pairs and not (isinstance(chunk, tuple) and len(chunk) == 2):
            raise TypeError(
                f"part {number} of the stream must be a pair (documents, what is known of them), got {type(chunk).__name__}"
            )
        documents, known = chunk if in_pairs else (chunk, None)
        yield Part(number, documents, known)
    if number < 0:
        raise ValueError("X is a stream without parts: there are no documents to fit to")


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
