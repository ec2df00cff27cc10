"""What collapsed Gibbs sampling says of topics and documents: mixtures of Dirichlet distributions, kept as their moments.

Given the tokens' topics, φ_k ~ Dir(n_k + β) and θ_d ~ Dir(n_d + α) exactly. Averaged over sweeps these are the posterior, and its
first two moments take two arrays of the size of the topics, however many sweeps there are. Where there is room, draws are kept
besides: a word that a topic hardly has is skewed beyond what two moments can say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.families import Dirichlet
from natgrad.kernels.lda.shares import draw_shares
from natgrad.posterior.draws import DrawnFactor
from natgrad.random import Stream, generator

if TYPE_CHECKING:
    from natgrad.data.corpus import Corpus
    from natgrad.models.lda.gibbs import Sampler

__all__ = ["MOMENTS", "TopicMoments", "deviations", "drawn_factors", "drawn_shares"]

Floats = npt.NDArray[np.float64]
# Numbers of documents × topics up to which the shares of the fitted documents are kept.
MOST_SHARES = 4_000_000
# Numbers of kept draws of topics, or of documents; fewer draws than this say nothing of the ends of an interval.
MOST_KEPT, FEWEST_KEPT = 4_000_000, 40
# Sweeps over a held-out document: those that do not count, and those that do.
BURN, SWEEPS = 30, 100
# What a file may hold of it.
MOMENTS: dict[str, Any] = {
    "count": "natural",
    "phi": ("nonnegative [topic, word]", "nonnegative [topic, word]"),
    "theta?": ("nonnegative [_, topic]", "nonnegative [_, topic]"),
    "strides": {"phi?": "natural", "theta?": "natural"},
    "draws": {"phi?": "nonnegative [_, topic, word]", "theta?": "nonnegative [_, _, topic]"},
}


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
