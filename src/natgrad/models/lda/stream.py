"""`LDA` and a stream of chunks in; topics out, with one chunk in memory at a time.

Every chunk is cut into batches, in a random order of its documents, and every batch makes a step (Hoffman, Blei and Bach, 2010;
`natgrad.inference.streams`). Words that come with later chunks join the topics with their prior.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad import random
from natgrad.data.corpus import Corpus, as_corpus, has_names, with_words
from natgrad.data.origin import Origin
from natgrad.data.stream import Stream
from natgrad.inference.options import FitOptions
from natgrad.inference.streams import Chunk, Kept
from natgrad.models.lda.files import run_table
from natgrad.models.lda.settings import batch_size, cheap_batches, finds_topics, most_passes, runs_vb

if TYPE_CHECKING:
    from natgrad.inference.problem import State
    from natgrad.models.lda.estimator import LDA
    from natgrad.models.lda.problem import LDAProblem

__all__ = ["arriving", "fit_stream", "grown"]


def arriving(X: Any, vocabulary: Sequence[Any] | None, names: Any, n_words: int | None) -> Corpus:
    """Documents with words numbered as before (``n_words`` None: these are the first); named ones may bring new words."""
    if n_words is None:
        return with_words(as_corpus(X, vocabulary))
    if vocabulary is None and not has_names(X):
        return as_corpus(X, names, n_words)
    corpus = as_corpus(X, vocabulary)
    if corpus.vocabulary is None or names is None:
        return as_corpus(corpus, None, n_words)
    number = {word: place for place, word in enumerate(names.tolist())}
    added = [word for word in corpus.vocabulary.tolist() if word not in number]
    number.update({word: len(number) + place for place, word in enumerate(added)})
    return corpus.renumbered(np.array(list(number), dtype=object), number)


def located(corpus: Corpus, chunk: Any, origin: Origin | None) -> Corpus:
    """A corpus with where it lies in files, if words have the numbers there that they have in it."""
    there = chunk.vocabulary if isinstance(chunk, Corpus) else None
    moved = there is not None and (corpus.vocabulary is None or not np.array_equal(there, corpus.vocabulary))
    return corpus if origin is None or moved else replace(corpus, origin=origin)


def grown(problem: LDAProblem, state: State) -> State:
    """The topics of a state with their prior at words that they have not seen."""
    natural = state.lam["phi"][0]
    missing = problem.corpus.n_words - natural.shape[1]
    if not missing:
        return state
    prior = problem.with_hyper(state).topic_prior
    added = np.full((problem.n_topics, missing), prior)
    larger = problem.at(np.hstack([natural + 1.0, added]), state.t)
    return larger._replace(hyper=state.hyper)


def fit_stream(
    model: LDA,
    stream: Stream,
    vocabulary: Sequence[Any] | None,
    n_documents: float | None,
    options: FitOptions,
    moves: str | None = None,
) -> None:
    """Fit a model to a stream; if a chunk is refused, the model stays as it was."""
    runs_vb(model, "a stream cannot be sampled")
    documents = _Documents(model, stream, vocabulary, moves)
    with model._threads():
        state, phases = model._run_stream(
            documents.batches, documents.chunk, documents.start, lambda: documents.problem,
            options=options, rereadable=stream.rereadable, max_passes=most_passes(model),
            n_groups=n_documents or stream.n_total, words="documents", kept=Kept(documents.told, documents.again),
            table=run_table,
        )  # fmt: skip
    model._publish(documents.problem, state)
    model._data = None
    model.n_documents_seen_, model.n_tokens_seen_, model.elbo_ = phases.seen, phases.n_observed, phases.elbo


class _Documents:
    """Batches of documents, chunk after chunk, with words numbered as in the model."""

    def __init__(self, model: LDA, stream: Stream, vocabulary: Sequence[Any] | None, moves: str | None) -> None:
        self.model, self.stream, self.vocabulary, self.moves = model, stream, vocabulary, moves
        self.found: LDA | None = None
        self.names: Any = None
        self.n_words: int | None = None
        self.steps = self.chunks = self.begun = 0

    def told(self) -> dict[str, Any]:
        """What a run needs to go on: the steps before this pass, and the priors of topics that were found."""
        found = self.found
        priors = {} if found is None else {"doc_prior": found.doc_prior_, "topic_prior": float(found.topic_prior_)}
        return {"steps": self.begun, **priors}

    def again(self, told: dict[str, Any]) -> None:
        """Go on with what was told."""
        self.steps = told["steps"]
        if "doc_prior" in told:
            self.found = copy(self.model)
            self.found.doc_prior_, self.found.topic_prior_ = told["doc_prior"], told["topic_prior"]

    def batches(self) -> Iterator[Corpus]:
        self.begun = self.steps
        for number, (chunk, origin) in enumerate(self.stream.located()):
            try:
                corpus = located(arriving(chunk, self.vocabulary, self.names, self.n_words), chunk, origin)
            except (TypeError, ValueError) as error:
                raise type(error)(f"chunk {number} of the stream: {error}") from error
            self.names, self.n_words, self.chunks = corpus.vocabulary, corpus.n_words, number
            if self.found is None and (finds_topics(self.model) or self.moves is not None):
                self.found = self.model._found_in(self.moves, corpus)
            size = batch_size(self.model)
            n_batches = cheap_batches(corpus) if size is None else -(-len(corpus) // size)
            order = random.generator(int(self.model.seed), random.Stream.STREAM_ORDER, self.steps).permutation(
                len(corpus)
            )
            for part in np.array_split(order, n_batches):
                yield corpus.documents(np.sort(part))

    def start(self, problem: LDAProblem) -> State:
        return problem.start(int(self.model.seed)) if self.found is None else self.found._resumed(problem)

    def chunk(self, corpus: Corpus) -> Chunk:
        self.steps += 1

        def problem(population: float) -> LDAProblem:
            owner = self.model if self.found is None else self.found
            self.problem = owner._problem(corpus, population, number_known=self.found is not None)
            return self.problem

        def arrivals(before: float) -> Any:
            return self.model._look(before, corpus.n_tokens, self._grow)

        finds = finds_topics(self.model) and self.chunks > 0  # those of the first chunk were found
        enter = lambda state: grown(self.problem, state)  # noqa: E731
        return Chunk(problem, len(corpus), corpus.n_tokens, enter, arrivals if finds else None)

    def _grow(self, problem: LDAProblem) -> None:
        """Go on with the topics that a batch has brought."""
        assert self.found is not None
        self.problem = problem
        self.found.doc_prior_, self.found.topic_prior_ = problem.doc_prior, problem.topic_prior
