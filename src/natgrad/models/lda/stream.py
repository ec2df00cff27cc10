"""`LDA` and a stream of chunks in; topics out, with one chunk in memory at a time.

Every chunk is cut into batches, in a random order of its documents, and every batch makes a step (Hoffman, Blei and Bach, 2010):

    λ ← (1 − ρ) λ + ρ (η̃ + documents of the stream / documents of the batch · counts)

A generator is read once. What can be read again is, until the mean estimates of the bound over passes say that less than ``tol``
nats a word are left to gain, or ``max_passes`` are made. While the number of documents is not known, it is taken to be that seen
so far.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad import random
from natgrad.data.corpus import Corpus, as_corpus, has_names, with_words
from natgrad.data.stream import Stream
from natgrad.inference.callbacks import Teller, asked
from natgrad.inference.executors.threads import sharing
from natgrad.inference.step_sizes import Step
from natgrad.inference.steppers.groups import ONE_PASS, SampledGroups
from natgrad.inference.steppers.sampled import StepInfo
from natgrad.inference.stopping import left_to_gain
from natgrad.inference.trace import Reason, StepRecord, Stop, Trace
from natgrad.models.lda.settings import problem_of
from natgrad.posterior.fit_options import Keep, refuse_to_keep
from natgrad.validation import whole_number

if TYPE_CHECKING:
    from natgrad.inference.problem import State
    from natgrad.models.lda.estimator import LDA
    from natgrad.models.lda.problem import LDAProblem

__all__ = ["LDAStream", "fit_stream"]

# A step ends with an update of all K·V numbers; batches this many times V entries long make it a small part.
ENTRIES_PER_WORD, MOST_BATCHES = 20, 50


class LDAStream:
    """What `LDA` does with documents that arrive one batch after the other."""

    step: Step | None
    seed: int
    executor: Any
    n_jobs: int | None
    components_: npt.NDArray[np.float64]
    vocabulary_: npt.NDArray[Any]
    topic_prior_: float
    _state: State
    _fitted: LDAProblem
    _names: Any

    def _problem(self, corpus: Corpus, population: float | None = None) -> LDAProblem:
        return problem_of(self, corpus, population)

    def _publish(self, problem: LDAProblem, state: State, seed: int | None = None) -> None:
        raise NotImplementedError

    def _threads(self) -> AbstractContextManager[None]:
        from natgrad.models.threads import at_most  # Numba takes a while to import

        return at_most(self.n_jobs)

    def _arriving(self, X: Any, vocabulary: Sequence[Any] | None) -> Corpus:
        """Documents of a stream with words numbered as in the fit; those that have names may bring new words."""
        if not hasattr(self, "_state"):
            return with_words(as_corpus(X, vocabulary))
        if vocabulary is not None or has_names(X):
            return self._joined(as_corpus(X, vocabulary))
        return as_corpus(X, self._names, len(self.vocabulary_))

    def _learn(self, corpus: Corpus, population: float) -> StepInfo:
        """One step from documents that stand for so many."""
        problem = self._problem(corpus, population=population)
        state = self._grown(problem) if hasattr(self, "_state") else problem.start(int(self.seed))
        step = self.step if self.step is not None else ONE_PASS
        tol, limit = problem.local_limits
        with self._threads(), sharing(problem, self.executor, len(corpus)):
            after, info = SampledGroups(problem, len(corpus), tol, limit, step).step(state, int(self.seed))
        if not all(bool(block.valid) for block in info.blocks.values()):
            raise FloatingPointError(f"step {after.t} left the space of valid topics; take a smaller step=")
        self._publish(problem, after)
        return info

    def _joined(self, corpus: Corpus) -> Corpus:
        """The corpus with words numbered as in the fit, new ones after them."""
        if corpus.vocabulary is None or self._names is None:
            return as_corpus(corpus, None, len(self.vocabulary_))
        number = {word: place for place, word in enumerate(self._names.tolist())}
        added = [word for word in corpus.vocabulary.tolist() if word not in number]
        number.update({word: len(number) + place for place, word in enumerate(added)})
        return corpus.renumbered(np.array(list(number), dtype=object), number)

    def _resumed(self, problem: LDAProblem) -> State:
        """The last state as this problem sees topics: those of a finish are a point."""
        if self._fitted.local.topics == problem.local.topics:
            return self._state
        return problem.at(self.components_, self._state.t)._replace(hyper=self._state.hyper)

    def _grown(self, problem: LDAProblem) -> State:
        """The fitted topics with their prior at words that they have not seen."""
        missing = problem.corpus.n_words - self.components_.shape[1]
        if not missing:
            return self._resumed(problem)
        added = np.full((problem.n_topics, missing), self.topic_prior_)
        grown = problem.at(np.hstack([self.components_, added]), self._state.t)
        return grown._replace(hyper=self._state.hyper)


def fit_stream(
    model: LDA, stream: Stream, vocabulary: Sequence[Any] | None, n_documents: float | None, keep: Keep
) -> None:
    """Fit a model to a stream; if a chunk is refused, the model stays as it was."""
    refuse_to_keep(keep)
    if model.finish is not None:
        raise ValueError(f"finish={model.finish!r} needs all documents in memory: leave it out for a stream")
    passes = whole_number(model.max_passes, "max_passes") if stream.rereadable else 1
    worker, trace, begin = type(model)(**model.get_params(deep=False)), Trace(), time.perf_counter()
    trace.choice = "sampled steps: the data are a stream, nothing is remembered"
    total, stop = n_documents or stream.n_total, None
    means: list[float] = []
    tell = Teller(asked(), trace, lambda state: copy.copy(worker))
    for epoch in range(passes):
        seen, n_words, estimates = 0, 0.0, []
        for batch in _batches(worker, stream, vocabulary):
            seen, n_words = seen + len(batch), n_words + batch.n_tokens
            info = worker._learn(batch, max(total or 0.0, seen))
            estimates.append(info.estimate)
            accesses = info.accesses + (trace.last.accesses if len(trace) else 0)
            moved = max((float(block.moved) for block in info.blocks.values()), default=0.0)
            seconds = time.perf_counter() - begin
            trace.append(StepRecord(worker._state.t, np.nan, info.estimate, info.rho, moved, accesses, seconds))
            if stop := tell(worker._state):
                break
        if not seen:
            what = "the stream is empty" if not epoch else "the stream was empty when it was read again"
            raise ValueError(f"X has no documents: {what}")
        total = max(seen, n_documents or 0)
        means.append(float(np.mean(estimates)))
        if stop is not None:
            break
        left = left_to_gain(means, rising=False)
        if model.tol > 0 and left is not None and left.below(model.tol * n_words):
            stop = Stop(Reason.TOLERANCE, f"about {left.gain:.1e} nats are left to gain in {n_words:,.0f} words")
            break
    if stop is None:
        once = "the stream was read once; what cannot be read again is not"
        stop = Stop(Reason.STEPS, "all passes were made" if stream.rereadable else once)
    worker.n_documents_seen_, worker.elbo_, worker.trace_, worker.stop_ = seen, means[-1], trace, stop
    settings = model.get_params(deep=False)
    for name, value in vars(worker).items():
        if name not in settings:
            setattr(model, name, value)


def _batches(worker: LDA, stream: Stream, vocabulary: Sequence[Any] | None) -> Iterator[Corpus]:
    """Batches of documents, chunk after chunk, with words numbered as in the model."""
    for number, chunk in enumerate(stream.read()):
        try:
            corpus = worker._arriving(chunk, vocabulary)
        except (TypeError, ValueError) as error:
            raise type(error)(f"chunk {number} of the stream: {error}") from error
        cheap = len(corpus.words) // (ENTRIES_PER_WORD * max(1, corpus.n_words))
        n_batches = max(1, min(cheap, MOST_BATCHES))
        if worker.batch_size is not None:
            n_batches = -(-len(corpus) // worker.batch_size)
        steps = worker._state.t if hasattr(worker, "_state") else 0
        order = random.generator(int(worker.seed), random.Stream.STREAM_ORDER, steps).permutation(len(corpus))
        for part in np.array_split(order, n_batches):
            yield corpus.documents(np.sort(part))
