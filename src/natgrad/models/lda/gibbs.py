"""Sample topics: sweeps of collapsed Gibbs sampling from the topics of VB, their averages and the priors learned with them.

Every token gets a topic by the variational topics, and then sweeps resample them all (`natgrad.kernels.lda.gibbs`). The first
half of the sweeps burns in: the tables of proposals follow the counts, and priors are learned. In the second half both stay as
they are, so that with one shard the chain is exactly collapsed Gibbs sampling of p(z | w, α, β), and its counts are averaged.

Priors climb the evidence of all tokens' topics, p(z | α) and p(w | z, β), by Minka's fixed point (2000), which never lowers it.

Given the tokens' topics, φ_k ~ Dir(n_k + β) and θ_d ~ Dir(n_d + α) exactly. Averaged over sweeps these are the posterior, and its
first two moments take two arrays of the size of the topics, however many sweeps there are. Where there is room, draws are kept
besides: a word that a topic hardly has is skewed beyond what two moments can say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.special as sp

from natgrad.data.corpus import Corpus
from natgrad.families import Dirichlet
from natgrad.inference.problem import State
from natgrad.inference.steppers.stepper import StepInfo, Stepper
from natgrad.kernels.lda.gibbs import count_topics, merge_shards, rising_sums, rising_total, sweep_shards, word_tables
from natgrad.kernels.lda.shares import draw_shares
from natgrad.models.lda.dirichlet_prior import RANGE
from natgrad.models.lda.settings import SAMPLED
from natgrad.posterior.draws import DrawnFactor
from natgrad.random import Stream, generator
from natgrad.threads import threads_for

if TYPE_CHECKING:
    from natgrad.models.lda.problem import LDAProblem

__all__ = ["GibbsSweeps", "Sampler", "TopicMoments", "deviations", "drawn_factors", "drawn_shares", "whole_counts"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Sweeps in which documents settle on the variational topics, before the counts become their own.
SETTLING = 3
# Fewer tokens are one shard; more get shards as long as copying the counts for each is a small part of a sweep.
ONE_SHARD, TOKENS_PER_COUNT, MOST_SHARDS = 100_000, 0.25, 16
# Priors are learned in the burn-in, by so many rounds of the fixed point in each sweep; not in its first part, as small α make
# tokens stay where they are: held-out scores of 5 000 and 12 000 documents were 0.005 to 0.015 better than from the start on.
LEARN_FROM, ROUNDS = 0.4, 2
CHUNK = 1_000
# Counts of topics and words are 32-bit integers.
MAX_TOKENS = 2**31
# Sweeps whose seeds are drawn at once: a generator takes as long to make as a thousand tokens.
SEEDS = 256
# Products that take as long as the draw of a token, to tell whether a second thread pays.
COST = 20

# Numbers of documents × topics up to which the shares of the fitted documents are kept.
MOST_SHARES = 4_000_000
# Numbers of kept draws of topics, or of documents; fewer draws than this say nothing of the ends of an interval.
MOST_KEPT, FEWEST_KEPT = 4_000_000, 40
# Sweeps over a held-out document: those that do not count, and those that do.
BURN, SWEEPS = 30, 100


class GibbsSweeps(Stepper):
    """A closing phase of a run: sweeps from its topics, the second half of them averaged.

    Parameters
    ----------
    problem : LDAProblem
    sweeps : int
    draws : bool
        Whether the moments of the averaged samples, and draws, are kept: a seventh of the time of small fits.
    """

    monotone = False

    def __init__(self, problem: LDAProblem, sweeps: int, draws: bool = True) -> None:
        self.problem, self.sweeps, self.burn = problem, sweeps, sweeps // 2
        self.log_likelihood: Floats = np.empty(0)
        self.averaged = 0
        self.moments = TopicMoments(sweeps - sweeps // 2) if draws else None
        self._sampler: Sampler | None = None

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        """Every token once; the state stays that of the start, and is another object after each sweep that counts."""
        sampler, number = self._settled(state, seed), len(self.log_likelihood)
        sampling = number >= self.burn
        if not sampling and number >= LEARN_FROM * self.burn:
            sampler.update_hyper(self.problem.learn)
        value = sampler.sweep(fresh=number <= self.burn, averaged=sampling)
        self.averaged += sampling
        if sampling and self.moments is not None:
            self.moments.add(sampler)
        self.log_likelihood = np.append(self.log_likelihood, value / max(1.0, self.problem.corpus.n_tokens))
        return state._replace() if sampling else state, StepInfo(
            {}, float("nan"), self.problem.n_messages, unbounded=True
        )

    def point(self, state: State) -> tuple[LDAProblem, State]:
        """Topics at the mean of the samples, a point, with the priors that were learned."""
        sampler = self._sampler
        assert sampler is not None
        point = self.problem.with_topics("point")
        mean = sampler.sums.T / self.averaged
        hyper = {"doc_prior": sampler.alpha, "topic_prior": sampler.beta}
        return point, point.at(mean + sampler.beta, state.t)._replace(hyper=hyper)

    def bound(self, state: State) -> float:
        """A lower bound of log p(w), for q(φ) = Dir(mean counts + β) and documents that are solved for it."""
        _, there = self.point(state)
        under_q = self.problem.with_topics("posterior")
        return under_q.bound(under_q.at(there.lam["phi"][0] + 1.0, state.t)._replace(hyper=there.hyper))

    @property
    def description(self) -> str:
        """The inference that was run, on one line."""
        n = len(self.log_likelihood)
        early = "" if n == self.sweeps else f", stopped before the {self.sweeps} that were asked for"
        return f"{SAMPLED}, {n} sweeps (mean of the last {self.averaged}){early}"

    def _settled(self, state: State, seed: int) -> Sampler:
        if self._sampler is None:
            here = self.problem.with_hyper(state)
            self._sampler = Sampler(self.problem.corpus, here.doc_prior, here.topic_prior, seed)
            self._sampler.settle(np.ascontiguousarray(state.lam["phi"][0] + 1.0))
        return self._sampler


class Sampler:
    """Tokens with their topics, and the counts that go with them.

    Attributes
    ----------
    topics : int32 [tokens]
    past : int32 [V, K], counts of tokens that are gone; they stay as they are
    by_word, totals : counts n_wk [V, K] and n_k [K], those of the past among them
    sums : [V, K], counts summed over the averaged sweeps
    refused : float, part of the proposals of the last sweep that were refused
    """

    def __init__(
        self,
        corpus: Corpus,
        doc_prior: Floats,
        topic_prior: float,
        seed: int,
        shards: int | None = None,
        past: npt.NDArray[np.int32] | None = None,
    ) -> None:
        self.corpus, self.seed, self.sweeps, self.past = corpus, seed, 0, past
        self.alpha, self.beta = np.asarray(doc_prior, dtype=np.float64).copy(), float(topic_prior)
        self.counts = whole_counts(corpus)
        self.tokens = np.concatenate([[0], np.cumsum(corpus.lengths.astype(np.int64))])
        n_tokens, shape = int(self.tokens[-1]), (corpus.n_words, len(self.alpha))
        if shards is None:
            copies = n_tokens / (TOKENS_PER_COUNT * shape[0] * shape[1])
            shards = 1 if n_tokens < ONE_SHARD else int(np.clip(copies, 2, MOST_SHARDS))
        cuts = np.searchsorted(self.tokens, np.linspace(0, n_tokens, shards + 1), side="left")
        cuts[0], cuts[-1] = 0, len(corpus)
        self.shards = np.unique(cuts)
        self.topics = generator(seed, Stream.GIBBS).integers(0, shape[1], n_tokens, dtype=np.int32)
        self.by_word, self.totals = np.zeros(shape, np.int32), np.zeros(shape[1], np.int64)
        self._seeds = np.empty((0, 0), np.uint64)
        # One shard moves the counts themselves.
        alone = len(self.shards) == 2
        self._copies = self.by_word[None] if alone else np.zeros((len(self.shards) - 1, *shape), np.int32)
        self.table, self._whole, self.sums = (
            np.empty(shape, np.float32),
            np.empty(shape[0], np.float32),
            np.zeros(shape),
        )
        self.refused = 0.0

    def settle(self, components: Floats) -> None:
        """Topics of all tokens given the topics' words, whose counts stay until every document has settled."""
        self.by_word[:] = np.maximum(np.round(components.T - self.beta), 0)
        self.totals[:] = self.by_word.sum(0, dtype=np.int64)
        for number in range(SETTLING):
            self._copies[:] = self.by_word
            self._sweep(fresh=number == 0, moving=False)
        self.recount()

    def recount(self) -> None:
        """Counts of the tokens' topics, from nothing or from what was there before."""
        count_topics(self.corpus.words, self.counts, self.topics, self.by_word, self.totals)
        if self.past is not None:
            self.by_word += self.past
            self.totals += self.past.sum(0, dtype=np.int64)
        self._copies[:] = self.by_word

    def sweep(self, fresh: bool = True, averaged: bool = False) -> float:
        """Every token once; Σ log p(w_i | all others). ``fresh`` renews the tables, ``averaged`` adds the counts to ``sums``."""
        value = self._sweep(fresh, moving=True)
        if len(self._copies) > 1:
            with threads_for(self.by_word.size):
                merge_shards(self._copies, self.by_word, self.sums, averaged)
            self.totals[:] = self.by_word.sum(0, dtype=np.int64)
        elif averaged:
            self.sums += self.by_word
        return value

    def update_hyper(self, learn: frozenset[str]) -> None:
        """A few rounds of the fixed point for the priors that are learned."""
        for _ in range(ROUNDS):
            if "doc" in learn and len(self.topics):
                chunks = np.append(np.arange(0, len(self.corpus), CHUNK), len(self.corpus))
                parts = np.empty((len(chunks) - 1, len(self.alpha) + 1))
                rising_sums(chunks, self.tokens, self.topics, self.alpha, parts)
                sums = parts.sum(0)
                self.alpha = np.clip(self.alpha * sums[:-1] / sums[-1], *RANGE)
            if "topic" in learn and len(self.topics):
                by_word, size = np.empty(len(self.by_word)), len(self.by_word) * self.beta
                rising_total(self.by_word, self.beta, by_word)
                below = float((sp.digamma(size + self.totals) - sp.digamma(size)).sum()) * len(self.by_word)
                self.beta = float(np.clip(self.beta * by_word.sum() / below, *RANGE))

    def _sweep(self, fresh: bool, moving: bool) -> float:
        if fresh:
            with threads_for(self.by_word.size):
                word_tables(self.by_word, self.totals, self.alpha, self.beta, self.table, self._whole)
        n_shards = len(self.shards) - 1
        block, number = divmod(self.sweeps, SEEDS)
        if number == 0:
            self._seeds = generator(self.seed, Stream.GIBBS, block).integers(
                1, 2**63, (SEEDS, n_shards), dtype=np.uint64
            )
        seeds = self._seeds[number]
        self.sweeps += 1
        totals = self.totals[None] if n_shards == 1 else np.tile(self.totals, (n_shards, 1))
        out = np.empty((n_shards, 2))
        with threads_for(len(self.topics) * COST):
            sweep_shards(
            self.shards, self.corpus.start, self.tokens, self.corpus.words, self.counts, self.alpha.astype(np.float32),
            np.float32(self.beta), self.table, self._whole, int(moving), seeds, self.topics, self._copies, totals, out,
            )  # fmt: skip
        self.refused = float(out[:, 1].sum()) / n_shards
        return float(out[:, 0].sum())


def whole_counts(corpus: Corpus) -> Ints:
    """Return counts as integers, or raise an error that shows the first one that is none, or too many to be held."""
    if corpus.n_tokens >= MAX_TOKENS:
        raise ValueError(
            f"X has {corpus.n_tokens:,.0f} tokens, and Gibbs sampling keeps a topic for each, of at most {MAX_TOKENS:,}: "
            'pass inference="vb"'
        )
    counts = corpus.counts.astype(np.int64)
    bad = np.flatnonzero(counts != corpus.counts)
    if len(bad):
        document = int(np.searchsorted(corpus.start, bad[0], "right")) - 1
        raise ValueError(
            f"Gibbs sampling moves tokens, so counts must be whole numbers, but X[{document}, {corpus.words[bad[0]]}] = "
            f'{corpus.counts[bad[0]]:g}; pass inference="vb" for weights'
        )
    return counts


class TopicMoments:
    """Sums over sweeps of E[φ | z], E[φ² | z], E[θ | z] and E[θ² | z].

    Of the sweeps whose draws are kept, counts are: given these, draws of all of them are made at once.
    """

    def __init__(self, n: int) -> None:
        self.n, self.count = n, 0
        self.sums: dict[str, tuple[Floats, Floats]] = {}
        self.counts: dict[str, list[npt.NDArray[np.int32]]] = {}
        self.strides: dict[str, int] = {}
        self.priors: dict[str, Any] = {}
        self._cells: npt.NDArray[np.int64] | None = None

    def add(self, sampler: Sampler) -> None:
        """One more sweep; priors are those of the first."""
        self.seed, self.count = sampler.seed, self.count + 1
        beta, n_documents, n_topics = sampler.beta, len(sampler.corpus), len(sampler.alpha)
        self._add("phi", sampler.by_word.T, beta, sampler.totals + len(sampler.by_word) * beta)
        if n_documents * n_topics <= MOST_SHARES:
            lengths = np.diff(sampler.tokens)
            if self._cells is None:
                self._cells = np.repeat(np.arange(n_documents) * n_topics, lengths)
            counts = np.bincount(self._cells + sampler.topics, minlength=n_documents * n_topics)
            self._add("theta", counts.reshape(n_documents, n_topics), sampler.alpha, lengths + sampler.alpha.sum())

    def _add(self, name: str, counts: Any, prior: Any, total: Any) -> None:
        if name not in self.strides:
            stride = 1
            while self.n / stride * counts.size > MOST_KEPT:
                stride *= 2
            self.strides[name] = stride if self.n / stride >= min(FEWEST_KEPT, self.n) else 0
            self.counts[name], self.priors[name] = [], np.array(prior)
            self.sums[name] = np.zeros(counts.shape), np.zeros(counts.shape)
        if (stride := self.strides[name]) and (self.count - 1) % stride == 0:
            self.counts[name].append(counts.astype(np.int32))
        a = counts + prior
        mean = a / total[:, None]
        one, two = self.sums[name]
        one += mean
        two += mean * (a + 1.0) / (total[:, None] + 1.0)

    def kept(self) -> dict[str, Any]:
        """Plain arrays, as a model keeps them."""
        draws = {}
        for name, counts in self.counts.items():
            if counts:
                rng = generator(self.seed, Stream.GIBBS, 1, len(name))
                draws[name] = Dirichlet().sample((np.stack(counts) + (self.priors[name] - 1.0),), rng)
        return {"count": self.count, **self.sums, "strides": {n: self.strides[n] for n in draws}, "draws": draws}


def drawn_factors(kept: dict[str, Any]) -> dict[str, DrawnFactor]:
    """The posteriors of topics, and of documents if they were kept."""
    plates = {"phi": ("topic",), "theta": ("doc",)}
    factors = {}
    for name, axes in plates.items():
        if name in kept:
            first, second = kept[name]
            draws = kept["draws"][name][None] if name in kept["draws"] else None
            stride = kept["strides"].get(name, 1)
            # Never "all draws": means are those of the conditionals, which vary less.
            factors[name] = DrawnFactor(
                name, Dirichlet(), axes, draws, first[None], second[None], kept["count"], max(stride, 2)
            )
    return factors


def deviations(corpus: Corpus, mean: Floats, topics: Floats, alpha: Floats, seed: int) -> Floats:
    """How far the shares of documents are from ``mean``, in the root of the mean square over Gibbs samples."""
    first, second = drawn_shares(corpus, topics, alpha, seed)
    return np.sqrt(np.maximum(second - 2.0 * mean * first + mean**2, 0.0))


def drawn_shares(corpus: Corpus, topics: Floats, alpha: Floats, seed: int) -> tuple[Floats, Floats]:
    """E[θ] and E[θ²] of documents given topics [K, V], by Gibbs sampling of their tokens; counts are rounded."""
    first, second = np.empty((len(corpus), len(alpha))), np.empty((len(corpus), len(alpha)))
    seeds = generator(seed, Stream.GIBBS, 2).integers(1, 2**63, len(corpus), dtype=np.uint64)
    counts = np.round(corpus.counts).astype(np.int64)
    draw_shares(
        first, second, corpus.start, corpus.words, counts, np.ascontiguousarray(topics.T), np.asarray(alpha, np.float64),
        seeds, BURN, SWEEPS,
    )  # fmt: skip
    return first, second
