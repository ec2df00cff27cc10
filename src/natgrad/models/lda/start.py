"""Find starting values of `LDA`: topics near seed documents, sweeps of collapsed Gibbs sampling, resets of documents.

Topics that all start alike fall on one another, and some are never used. So each leans a little towards a document of its own;
these documents are drawn one after the other with a probability that grows with the distance from those drawn before, as
k-means++ does.

Coordinate ascent ends in an optimum near its start, and text has very many: of 20 topics of 5,000 abstracts restarts ended 10,000
nats apart, and the best of them 18,000 nats below what forty Gibbs sweeps, a fifth of the time of a fit, led to.

Without these sweeps what is remembered of a document was found when the topics were poor, and each visit since started from it.
So where such a run has converged, documents are reset (`natgrad.inference.proposals`): each by itself where that raises its
bound, then all of them at once. After the sweeps every document was solved from equal shares at good topics, and none is reset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.corpus import Corpus
from natgrad.inference.problem import State
from natgrad.inference.steppers.groups import BEFORE, KEY, replace_batch, rows_of
from natgrad.models.lda.parts import infer_view
from natgrad.random import Stream, generator

if TYPE_CHECKING:
    from natgrad.models.lda.problem import LDAProblem

__all__ = [
    "SampledTopics",
    "first_topics",
    "initialise_by_gibbs",
    "reset_better_documents",
    "reset_documents",
    "sample_topics",
    "seeded_topics",
    "thin_counts",
    "thinning_factor",
]

Floats = npt.NDArray[np.float64]
# Documents among which the seeds are drawn: this many, or so many for each topic.
CANDIDATES, PER_TOPIC = 2_000, 10
# The tokens that a seed adds, for each word of the vocabulary; every word starts with about one. On generated corpora and on
# abstracts (K = 5 … 50) bounds were best between 0.03 and 0.3, and far worse without.
LEAN = 0.1
# A topic with less than this part of an equal share of the words is lost: it has the words of its prior, as all lost ones do.
LOST_SHARE = 0.05
# Gibbs sweeps of a proposal; the part of them at the end whose counts are averaged, and that before priors are learned.
SWEEPS, AVERAGED, UNLEARNED = 40, 0.25, 0.2
# The largest mean count of an entry that is sampled as it is; text has 1.2 to 2.
MOST_REPEATED = 8.0
# A document is reset if its bound rises by more than the rounding of single precision, relative to it.
BETTER = 1e-5


def first_topics(corpus: Corpus, n_topics: int, rng: np.random.Generator) -> Floats:
    """Concentrations [K, V]: Gamma(100, 100) draws, as scikit-learn and gensim start, plus the seeds."""
    drawn: Floats = rng.gamma(100.0, 0.01, (corpus.n_words, n_topics)).T
    return drawn + LEAN * corpus.n_words * _seed_documents(corpus, n_topics, rng)


def reseed_lost_topics(topics: Floats, beta: float, corpus: Corpus, rng: np.random.Generator) -> Floats | None:
    """Give topics that lost their words an equal share of all, as in some document; None if no topic lost its words."""
    share = corpus.n_tokens / len(topics)
    lost = np.flatnonzero(topics.sum(1) - beta * corpus.n_words < LOST_SHARE * share)
    if not len(lost):
        return None
    out = topics.copy()
    out[lost] = beta + seeded_topics(corpus, len(topics), len(lost), rng)
    return out


def seeded_topics(corpus: Corpus, n_topics: int, n: int, rng: np.random.Generator) -> Floats:
    """Tokens [n, V] of ``n`` of all topics: an equal share of the words for each, as in some document."""
    return corpus.n_tokens / n_topics * _seed_documents(corpus, n, rng)


class SampledTopics(NamedTuple):
    """Tokens of each topic and word [K, V], α [K] and β."""

    counts: Floats
    doc_prior: Floats
    topic_prior: float


def sample_topics(
    problem: LDAProblem, concentration: Floats, seed: int, sweeps: int = SWEEPS, late: Callable[[], bool] = bool
) -> SampledTopics | None:
    """Run collapsed Gibbs sweeps from topics with these concentrations [K, V]; None if counts are not integers.

    Words that were counted before these documents came stay where they were counted; large counts are thinned. When it is
    ``late`` sweeps end: what was averaged counts, and if nothing was, the counts of the last sweep.
    """
    from natgrad.models.lda.gibbs import Sampler

    if np.any(problem.corpus.counts != np.rint(problem.corpus.counts)):
        return None
    corpus, by = thin_counts(problem.corpus), thinning_factor(problem.corpus)
    past = None if problem.past is None else np.rint(problem.past["phi"][0].T / by).astype(np.int32)
    sampler = Sampler(corpus, problem.doc_prior, problem.topic_prior, seed, past=past)
    sampler.settle(np.ascontiguousarray(concentration / by if by > 1.0 else concentration))
    last, n_averaged = max(1, round(AVERAGED * sweeps)), 0
    for number in range(sweeps):
        if late():
            break
        averaged = number >= sweeps - last
        if number >= UNLEARNED * sweeps and not averaged:
            sampler.update_hyper(problem.learn)
            sampler.beta = min(sampler.beta, problem.most_beta)
        sampler.sweep(averaged=averaged)
        n_averaged += averaged
    counts = (sampler.sums / n_averaged if n_averaged else sampler.by_word.astype(np.float64)).T
    return SampledTopics(by * (counts if past is None else counts - past.T), sampler.alpha, sampler.beta)


def initialise_by_gibbs(problem: LDAProblem, state: State, seed: int, late: Callable[[], bool] = bool) -> State:
    """Reseed lost topics after the first pass and run ``problem.start_sweeps`` Gibbs sweeps: the start of memoised passes.

    The next pass solves every document from equal shares, so that its bound is as honest as from any other start.
    """
    here = problem.with_hyper(state)
    concentration = state.lam["phi"][0] + 1.0
    anew = reseed_lost_topics(concentration, problem.topic_prior, problem.corpus, generator(seed, Stream.START, 1))
    concentration = concentration if anew is None else anew
    own = int(generator(seed, Stream.START, 2).integers(2**31))
    found = sample_topics(here, concentration, own, problem.start_sweeps, late) if problem.start_sweeps else None
    if found is not None:
        hyper = {"doc_prior": found.doc_prior, "topic_prior": found.topic_prior} if problem.learn else state.hyper
        after = problem.at(found.counts + found.topic_prior, state.t)
        return after._replace(hyper=hyper, memory={BEFORE: {"phi": (found.counts,)}})
    return state if anew is None else problem.at(anew, state.t)._replace(memory=state.memory, hyper=state.hyper)


def thinning_factor(corpus: Corpus) -> float:
    """What counts are divided by before they are sampled as a start; 1 if they are small.

    A sweep takes as long as there are tokens, a pass as long as there are entries: with counts of thousands, as of reads of
    genes, a start would take a thousand times as long as what starts there.

    Examples
    --------
    >>> from natgrad.data.corpus import as_corpus
    >>> thinning_factor(as_corpus(np.array([[1, 2]]))), thinning_factor(as_corpus(np.array([[1000, 3000]])))
    (1.0, 250.0)
    """
    return max(1.0, float(corpus.n_tokens / (MOST_REPEATED * max(1, len(corpus.words)))))


def thin_counts(corpus: Corpus) -> Corpus:
    """The corpus, or one whose mean count is `MOST_REPEATED`, in whole numbers; no word of a document is lost."""
    by = thinning_factor(corpus)
    return corpus if by == 1.0 else replace(corpus, counts=np.maximum(np.rint(corpus.counts / by), 1.0))


def reset_better_documents(
    problem: LDAProblem, state: State, order: tuple[str, ...], seed: int, number: int
) -> State | None:
    """Reset each document whose bound is higher from equal shares, at the same topics; None if there is none.

    The bound cannot fall.
    """
    here, changed = problem.with_hyper(state), False
    memory: Any = state.memory.get(KEY)
    topics = here.topics_at(state)
    for number, (groups, rows) in enumerate(rows_of(problem, state, seed)):
        view, limits = here.view_of(groups), problem.local_limits
        kept = infer_view(view, topics, here.local, rows[0], True, *limits)
        reset = infer_view(view, topics, here.local, None, False, *limits)
        better = reset.bound > kept.bound + BETTER * np.abs(kept.bound)
        if better.any():
            gamma = np.where(better[:, None], reset.gamma, kept.gamma)
            memory = replace_batch(memory, number, here.solve(state, groups, (gamma,), *limits))
            changed = True
    return state._replace(memory={KEY: memory}) if changed else None


def reset_documents(problem: LDAProblem, state: State, order: tuple[str, ...], seed: int, number: int) -> State | None:
    """Reset every document to equal shares; None if nothing is remembered.

    Documents and topics have adapted to one another: a reset loses some nats at once and wins more as the topics follow.
    """
    memory: Any = state.memory.get(KEY)
    if memory is None:
        return None
    here = problem.with_hyper(state)
    for number, (groups, _) in enumerate(rows_of(problem, state, seed)):
        memory = replace_batch(memory, number, here.solve(state, groups, None, *problem.local_limits))
    return state._replace(memory={KEY: memory})


def _seed_documents(corpus: Corpus, n: int, rng: np.random.Generator) -> Floats:
    """The words' shares [n, V] in documents that lie far apart; nothing if no document has words."""
    filled = np.flatnonzero(corpus.lengths > 0)
    if len(filled) == 0:
        return np.zeros((n, corpus.n_words))
    chosen = np.sort(rng.choice(filled, min(max(CANDIDATES, PER_TOPIC * n), len(filled)), replace=False))
    part = corpus.documents(chosen)
    rows = np.repeat(np.arange(len(part)), np.diff(part.start))
    shares = (1.0 / part.lengths)[rows] * part.counts
    seeds: Floats = np.zeros((n, corpus.n_words))
    for seed, row in zip(seeds, _far_apart(part, rows, np.sqrt(shares), n, rng), strict=True):
        here = slice(part.start[row], part.start[row + 1])
        seed[part.words[here]] = shares[here]
    return seeds


def _far_apart(part: Corpus, rows: npt.NDArray[np.int64], roots: Floats, n: int, rng: np.random.Generator) -> list[int]:
    """Documents drawn in proportion to their squared Hellinger distance, 1 − Σ_v √(p q), from the nearest one drawn before.

    ``rows`` are the documents of the entries, ``roots`` the roots of their shares.
    """
    chosen = [int(rng.integers(len(part)))]
    nearest = np.ones(len(part))
    for _ in range(n - 1):
        here = slice(part.start[chosen[-1]], part.start[chosen[-1] + 1])
        last = np.zeros(part.n_words)
        last[part.words[here]] = roots[here]
        alike = np.bincount(rows, roots * last[part.words], len(part))
        nearest = np.minimum(nearest, np.maximum(1.0 - alike, 0.0))
        # Rounding leaves 1e-16 between equal rows; with fewer kinds of documents than topics, any will do.
        weight = nearest if nearest.sum() > 1e-9 else np.ones(len(nearest))
        chosen.append(int(rng.choice(len(weight), p=weight / weight.sum())))
    return chosen
