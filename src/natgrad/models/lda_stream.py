"""`LDA` and a stream of chunks in; topics out, with one chunk in memory at a time.

Every chunk is cut into batches, in a random order of its documents, and every batch makes a step (Hoffman, Blei and Bach, 2010):

    λ ← (1 − ρ) λ + ρ (η̃ + documents of the stream / documents of the batch · counts)

A generator is read once. What can be read again is, until the mean estimate of the bound over a pass changes by less than ``tol``
or ``max_passes`` are made. While the number of documents is not known, it is taken to be that seen so far.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from natgrad.data.corpora import Corpus
from natgrad.data.streams import Stream
from natgrad.inference.draws import generator
from natgrad.inference.trace import Reason, StepRecord, Stop, Trace
from natgrad.network.checks import whole_number

if TYPE_CHECKING:
    from natgrad.models.lda import LDA

__all__ = ["fit_stream"]

# A step ends with an update of all K·V numbers; batches this many times V entries long make it a small part.
ENTRIES_PER_WORD, MOST_BATCHES = 20, 50
# A stream of random numbers of its own: the order of the documents of a chunk.
SHUFFLE = 2**31 - 6


def fit_stream(model: LDA, stream: Stream, vocabulary: Sequence[Any] | None, n_documents: float | None) -> None:
    """Fit a model to a stream; if a chunk is refused, the model stays as it was."""
    passes = whole_number(model.max_passes, "max_passes") if stream.again else 1
    worker, trace, begin = clone(model), Trace(), time.perf_counter()
    trace.choice = "sampled steps: the data are a stream, nothing is remembered"
    total, last, words = n_documents or stream.n_total, np.nan, "all passes were made"
    reason = Reason.STEPS
    for epoch in range(passes):
        seen, estimates = 0, []
        for batch in _batches(worker, stream, vocabulary):
            seen += len(batch)
            info = worker._learn(batch, max(total or 0.0, seen))
            estimates.append(info.estimate)
            accesses = info.accesses + (trace.last.accesses if len(trace) else 0)
            moved = max((float(block.moved) for block in info.blocks.values()), default=0.0)
            seconds = time.perf_counter() - begin
            trace.append(StepRecord(worker._state.t, np.nan, info.estimate, info.rho, moved, accesses, seconds))
        if not seen:
            what = "the stream is empty" if not epoch else "the stream was empty when it was read again"
            raise ValueError(f"X has no documents: {what}")
        total, before, last = max(seen, n_documents or 0), last, float(np.mean(estimates))
        if abs(last - before) < model.tol * abs(last):
            reason, words = Reason.TOLERANCE, ""
            break
    if not stream.again:
        words = "the stream was read once; what cannot be read again is not"
    worker.n_documents_seen_, worker.elbo_, worker.trace_, worker.stop_ = seen, last, trace, Stop(reason, words)
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
        order = generator(int(worker.seed), SHUFFLE, steps).permutation(len(corpus))
        for part in np.array_split(order, n_batches):
            yield corpus.documents(np.sort(part))
