"""A corpus as the engine's Problem, with compiled kernels: one global block, the topics; the groups are documents.

    θ_d ~ Dir(α),   φ_k ~ Dir(β),   z ~ Cat(θ_d),   w ~ Cat(φ_z);   one responsibility for each (document, word)

The same numbers as the network that declares this model (a test demands it). Arrays of the topics [K, V] lie in memory word
after word, so that a document gathers short contiguous rows. The topics may also be a point, E[φ] under the same update: then
coordinate ascent is EM for the prior Dir(β + 1), and its objective bounds log p(w, φ) instead of log p(w).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.special as sp

from natgrad.data.corpus import Corpus
from natgrad.families import Dirichlet
from natgrad.inference.executors import BroadcastArgument, Call, ShardSpec, even_cuts
from natgrad.inference.problem import Block, GroupProblem, GroupResult, Hyper, State
from natgrad.inference.steppers.groups import rows_of
from natgrad.kernels.lda import plain
from natgrad.kernels.lda.documents import LANES, row_products
from natgrad.kernels.memory import aligned_empty
from natgrad.kernels.special import elog_columns
from natgrad.models.lda.dirichlet_prior import best_concentrations, best_symmetric, log_prior, log_shares
from natgrad.models.lda.parts import (
    Inferred,
    Local,
    PartResult,
    Topics,
    View,
    by_word,
    document_tangent,
    infer_view,
    make_view,
    shard_of,
    solve_shard,
    solve_view,
    told_along,
    topic_normalizers,
)
from natgrad.models.lda.settings import cheap_batches
from natgrad.models.lda.start import first_topics, initialise_by_gibbs, reset_better_documents, reset_documents
from natgrad.posterior.factor import Factor
from natgrad.random import Stream, generator
from natgrad.threads import is_little, threads_for

__all__ = ["Inferred", "LDAProblem", "Local"]

Floats = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Stats = tuple[Any, ...]
# Relative to a word's likeliest topic; below it a weight is nothing, and every word keeps some weight in every topic.
LEAST_WEIGHT = 1e-20
# But topics that move several times in the first passes end in better optima: this many batches, of this many documents.
LEAST_BATCHES, LEAST_SIZE = 10, 20
# Documents that are evaluated at once, when all of them are.
SLICE = 20_000
# Sampled steps before priors are learned: what documents say to topics near their start is no evidence about them.
LEARN_AFTER = 10
# A shard's part of a batch has at least so many entries, and so many for each word, if its documents are spread evenly: it is
# worth a trip to a worker, and so are the rows of its words.
PART, PART_PER_WORD = 2**18, 4
# A part with more than this share of the words reads the rows of all of them, which travel once to each worker.
MANY = 0.5


class LDAProblem(GroupProblem):
    """Latent Dirichlet allocation of a corpus.

    Parameters
    ----------
    corpus : Corpus
    doc_prior : array [K], α
    topic_prior : float, β
    local : Local
    batch_size : int, optional
        Documents in a batch; by default as few as keep the update of the topics a small part of the work.
    population : float, optional
        Documents that these stand for.
    shares : array [D, K], optional
        Where documents start: a point mass for each. By default equal shares.
    learn : which priors are learned, of "doc" (α, asymmetric) and "topic" (β)
    truncated : bool
        Topics at their prior hold no words and have no part in θ, so that they are empty until a move fills them (decision 0040).
    start_sweeps : int
        Sweeps of collapsed Gibbs sampling between a first pass that is forgotten and those that are remembered. Converged runs
        without them are probed by resets of documents.
    """

    group_plate = "doc"
    probes = (reset_better_documents, reset_documents)
    tangent, told_along = document_tangent, told_along

    def __init__(
        self,
        corpus: Corpus,
        doc_prior: Floats,
        topic_prior: float,
        local: Local | None = None,
        *,
        batch_size: int | None = None,
        population: float | None = None,
        shares: Floats | None = None,
        learn: frozenset[str] = frozenset(),
        truncated: bool = False,
        start_sweeps: int = 0,
    ) -> None:
        self.learn, self.truncated, self.start_sweeps = learn, truncated, start_sweeps
        self.revive = None if truncated else partial(initialise_by_gibbs, self)
        if truncated:  # documents one by one would be read with the empty topics, too
            self.probes = (reset_documents,)  # type: ignore[assignment]
        elif start_sweeps:  # every document was solved from equal shares after the sweeps
            self.probes = ()  # type: ignore[assignment]
        self.corpus, self.topic_prior, self.local = corpus, float(topic_prior), local or Local()
        # One topic for all words would have a large β, at which no topic could be born.
        self.most_beta = self.topic_prior if truncated else np.inf
        self.doc_prior = np.asarray(doc_prior, dtype=np.float64)
        self.n_topics, self.n_groups = len(self.doc_prior), len(corpus)
        self.local_limits = self.local.tol, self.local.limit
        self.row_bytes = self.n_topics * np.dtype(self.local.dtype).itemsize
        self.population = float(self.n_groups if population is None else population)
        self._shares = shares
        least = min(LEAST_BATCHES, self.n_groups // LEAST_SIZE)
        self.batch_size = batch_size or -(-self.n_groups // max(least, cheap_batches(corpus)))
        self._views: dict[int, tuple[Ints | None, View]] = {}
        self._weights_of: tuple[Any, Floats, Floats] | None = None

    # -- what the engine asks --

    @cached_property
    def blocks(self) -> Mapping[str, Block]:  # type: ignore[override]
        """The topics."""
        return {"phi": Block("phi", Dirichlet(), ("topic",), (self.n_topics,))}

    @property
    def n_observed(self) -> Mapping[str, int]:
        """All pairs of a document and a word in it."""
        return {"w": len(self.corpus.words)}

    @property
    def n_messages(self) -> int:
        """Every topic is read by every pair."""
        return len(self.corpus.words) * self.n_topics

    @property
    def message_bytes(self) -> int:
        """Counts of topics by word."""
        return self.n_topics * self.corpus.n_words * np.dtype(self.local.dtype).itemsize

    def prior_of(self, name: str) -> Stats:
        """β − 1."""
        return (np.full((1, self.corpus.n_words), self.topic_prior - 1.0),)

    def with_hyper(self, state: State) -> LDAProblem:
        """The model with the priors that a state has learned; what was prepared from the documents is shared."""
        if not state.hyper:
            return self
        other = copy(self)
        other.doc_prior, other.topic_prior = state.hyper["doc_prior"], state.hyper["topic_prior"]
        return other

    def with_topics(self, topics: Literal["posterior", "point"]) -> LDAProblem:
        """The same documents with another thing that stands for a topic."""
        other = copy(self)
        other.local, other._weights_of = self.local._replace(topics=topics), None
        return other

    @property
    def hyper(self) -> Hyper | None:  # type: ignore[override]
        """The priors, where they are learned."""
        return Hyper(self.with_hyper, self._learned, LEARN_AFTER) if self.learn else None

    def _learned(self, state: State, solved: GroupResult, messages: Any, scale: float, rho: float) -> State:
        """Newton for α given Σ_d E[log θ_d], and for β given Σ E[log φ]."""
        alpha, beta = self.doc_prior, self.topic_prior
        if "doc" in self.learn:
            sums, n_filled = messages["theta"]
            here = self._shared(messages)
            best = best_concentrations(alpha[here], sums[here], float(n_filled[0]))
            alpha = alpha.copy()
            alpha[here] = (1.0 - rho) * alpha[here] + rho * best
        if "topic" in self.learn:
            elog, shift = np.asarray(state.mu["phi"][0])[self._told(messages)], float(self.local.topics == "point")
            best_beta = best_symmetric(beta, float(elog.sum()), len(elog), self.corpus.n_words, shift)
            beta = (1.0 - rho) * beta + rho * min(best_beta, self.most_beta)
        after = state._replace(hyper={"doc_prior": alpha, "topic_prior": beta})
        return self._at_prior(after, messages) if self.truncated and "topic" in self.learn else after

    def start(self, seed: int) -> State:
        """Topics near one another, each leaning towards a document of its own; where K is found, one topic for all words."""
        if self.truncated:
            first = np.full((self.n_topics, self.corpus.n_words), self.topic_prior)
            first[0] += np.bincount(self.corpus.words, self.corpus.counts, self.corpus.n_words)
            return self.at(first)
        return self.at(first_topics(self.corpus, self.n_topics, generator(seed, Stream.START)))

    def at(self, concentration: Floats, t: int = 0) -> State:
        """The state whose topics have these concentrations [K, V]."""
        lam = (np.asfortranarray(concentration, dtype=np.float64) - 1.0,)
        return State({"phi": lam}, {"phi": self.moments(self.blocks["phi"], lam)}, t)

    def moments(self, block: Block, lam: Any) -> Stats:
        """E[log φ]; of topics that are a point, log E[φ]."""
        concentration = by_word(lam[0]) + 1.0
        totals = concentration.sum(0)
        if self.local.topics == "point":
            return (np.log(concentration / totals).T,)
        out = np.empty_like(concentration)
        with threads_for(concentration.size):
            elog_columns(concentration, sp.digamma(totals), out)
        return (out.T,)

    def global_bound(self, lam: Any, mu: Any, messages: Any) -> float:
        """What the topics add: ⟨m + η̃, μ⟩ + entropy, or the log density of the point that they are."""
        natural, elog, counts = (by_word(part["phi"][0]) for part in (lam, mu, messages))
        n_words, beta, shares = self.corpus.n_words, self.topic_prior, 0.0
        if "theta" in messages:
            sums, n_filled = messages["theta"]
            here = self._shared(messages)
            shares = log_prior(self.doc_prior[here], sums[here], float(n_filled[0]))
        if self.local.topics == "point":
            constant = self.n_topics * (sp.gammaln(n_words * (beta + 1.0)) - n_words * sp.gammaln(beta + 1.0))
            return float(((counts + beta) * elog).sum() + constant) + shares
        concentration = natural + 1.0
        constant = self.n_topics * (sp.gammaln(n_words * beta) - n_words * sp.gammaln(beta))
        if self.past is not None:
            past = by_word(self.past["phi"][0])
            counts, constant = counts + past, -topic_normalizers(past + beta)
        return (
            float((((counts + beta) - concentration) * elog).sum() + topic_normalizers(concentration) + constant)
            + shares
        )

    def solve(self, state: State, groups: Ints | None, rows: Stats | None, tol: float, limit: int) -> GroupResult:
        """The documents of a batch, and what they count for each topic and word."""
        if self.truncated:
            return self._solve_active(state, groups, rows, tol, limit)
        elog, warm = state.mu["phi"][0], rows is not None
        start = None if rows is None else rows[0]
        if rows is None and self._shares is not None:
            start = self._shares if groups is None else self._shares[groups]
        if self.placed is None:
            view = self._view(groups, keep=warm)
            solved = solve_view(view, self._topics(elog), self.local, start, warm, tol, limit)
        else:
            solved = self._solve_placed(elog, groups, start, (self.local, warm, tol, limit, self.is_little))
        inner = np.empty(self.corpus.n_words)
        with threads_for(solved.counts.size):
            row_products(solved.counts, by_word(elog), inner)
        rest = float(solved.bound - inner.sum())
        # Words are gathered once for a document, however many rounds it takes.
        sizes = np.diff(self.corpus.start)
        reads = int((sizes if groups is None else sizes[groups]).sum()) * self.n_topics
        messages: dict[str, Stats] = {"phi": (solved.counts.T,)}
        if "doc" in self.learn:
            # Σ E[log θ] and the number of documents: what α is learned from; its own term is no longer a part of the rest.
            filled = (self.corpus.lengths if groups is None else self.corpus.lengths[groups]) > 0
            sums, n_filled = log_shares(solved.gamma[filled]), float(filled.sum())
            messages["theta"] = (sums, np.array([n_filled]))
            rest -= log_prior(self.doc_prior, sums, n_filled)
        return GroupResult((solved.gamma,), messages, rest, solved.rounds, reads)

    def shards(self, size: int) -> list[Corpus | ShardSpec]:
        """The documents cut so that batches of this many have enough in each shard; a function of the data alone."""
        entries = len(self.corpus.words) * min(size, self.n_groups) // max(1, self.n_groups)
        least = max(PART, PART_PER_WORD * self.corpus.n_words)
        self._cuts = even_cuts(np.diff(self.corpus.start), max(1, entries // least))
        documents = replace(self.corpus, vocabulary=None)
        return [shard_of(documents.run(int(a), int(b))) for a, b in pairwise(self._cuts)]

    def _solve_placed(self, elog: Floats, groups: Ints | None, start: Any, how: tuple[Any, ...]) -> PartResult:
        """The documents of a batch shard by shard, where the shards are; sums in the order of the shards."""
        assert self.placed is not None
        corpus, topics, words_of = self.corpus, self._topics(elog), []
        everything = BroadcastArgument(topics)
        ends = self._cuts if groups is None else np.searchsorted(groups, self._cuts)

        def calls() -> Iterator[Call]:
            for shard, (a, b) in enumerate(pairwise(ends)):
                if a < b:
                    chosen = None if groups is None else groups[a:b] - self._cuts[shard]
                    part = corpus.run(int(a), int(b)) if groups is None else corpus.documents(groups[a:b])
                    seen = np.zeros(corpus.n_words, np.bool_)
                    seen[part.words] = True
                    words = np.flatnonzero(seen)
                    words_of.append(words)
                    shared = everything if len(words) > MANY * corpus.n_words else topics.rows(words)
                    yield shard, (shared, words, chosen, None if start is None else start[a:b], *how)

        counts: Floats = np.zeros((corpus.n_words, self.n_topics), self.local.dtype)
        bound, rounds, gamma = 0.0, 0, []
        for number, solved in enumerate(self.placed.run(solve_shard, calls())):
            counts[words_of[number]] += solved.counts
            gamma.append(solved.gamma)
            bound, rounds = bound + solved.bound, max(rounds, solved.rounds)
        return PartResult(np.concatenate(gamma), counts, bound, rounds)

    def of(self, corpus: Corpus, state: State, exact: bool = False) -> LDAProblem:
        """The same model with other documents; the weights of the state's topics, made once, come along.

        ``exact`` documents are solved in double precision, with all topics at every round.
        """
        if exact:
            here, local = self.with_hyper(state), self.local._replace(dtype=np.float64, skip=0.0)
            return LDAProblem(corpus, here.doc_prior, here.topic_prior, local)
        self._topics(state.mu["phi"][0])
        here = self.with_hyper(state)
        other = LDAProblem(corpus, here.doc_prior, here.topic_prior, self.local)
        other._weights_of = self._weights_of
        return other

    def shares(self, state: State, seed: int) -> dict[str, Factor]:
        """The factor of the fitted documents' shares, where the method remembers them."""
        rows = rows_of(self, state, seed)
        if not rows:
            return {}
        gamma = np.empty((self.n_groups, self.n_topics))
        for groups, (part,) in rows:
            gamma[slice(None) if groups is None else groups] = part
        return {"theta": Factor("theta", self.blocks["phi"].family, ("doc",), (gamma - 1.0,))}

    def infer(self, state: State, groups: Ints | None = None, tol: float = 1e-4, limit: int = 1000) -> Inferred:
        """Documents given the topics, from equal shares."""
        topics = self._topics(state.mu["phi"][0])
        return infer_view(self._view(groups, keep=False), topics, self.local, None, False, tol, limit)

    def infer_few(self, corpus: Corpus, state: State, tol: float, limit: int) -> Floats:
        """γ [D, K] of a few other documents, as `infer` has it, without what takes as long as the vocabulary."""
        none = np.empty(0, np.int64)
        counts: Floats = corpus.counts.astype(self.local.dtype)
        # Compiled, however few they are: who asks for single documents asks for many, and waits for each.
        view = View(corpus, counts, np.array([0, len(corpus)]), none.astype(np.int32), none, none)
        return infer_view(view, self._topics(state.mu["phi"][0]), self.local, None, False, tol, limit).gamma

    def bound(self, state: State) -> float:
        """The evidence lower bound at these topics, with every document optimised from equal shares."""
        here, rest = self.with_hyper(state), 0.0
        total: dict[str, Stats] = {}
        for begin in range(0, self.n_groups, SLICE):
            groups = np.arange(begin, min(begin + SLICE, self.n_groups))
            solved = here.solve(state, None if len(groups) == self.n_groups else groups, None, *self.local_limits)
            rest += solved.rest
            total = {
                name: tuple(
                    part + more for part, more in zip(total.get(name, (0.0,) * len(messages)), messages, strict=True)
                )
                for name, messages in solved.messages.items()
            }
        return rest + here.global_bound(state.lam, state.mu, total)

    def topics_at(self, state: State) -> Topics:
        """What documents read of the topics of a state."""
        return self._topics(state.mu["phi"][0])

    def view_of(self, groups: Ints | None) -> View:
        """The documents of a batch of a fixed cut; kept, unless they are also kept elsewhere."""
        return self._view(groups, keep=self.placed is None)

    def _topics(self, elog: Floats) -> Topics:
        """What documents read of the topics; of the last ones, kept."""
        if self._weights_of is None or self._weights_of[0] is not elog:
            rows = by_word(elog)
            top = rows.max(1)
            width = -(-self.n_topics // LANES) * LANES
            weights: Floats = aligned_empty(len(rows), width, self.local.dtype)
            weights[:, : self.n_topics] = np.maximum(np.exp(rows - top[:, None]), LEAST_WEIGHT)
            weights[:, self.n_topics :] = 0.0
            self._weights_of = (elog, weights, top)
        return Topics(*self._weights_of[1:], self.doc_prior)

    @property
    def is_little(self) -> bool:
        """Whether NumPy computes documents: a matter of all of them, whoever has them."""
        return bool(is_little(plain.work_of(len(self.corpus.words), self.n_topics)))

    def _view(self, groups: Ints | None, keep: bool) -> View:
        key = id(groups)
        if key in self._views and self._views[key][0] is groups:
            return self._views[key][1]
        corpus = self.corpus if groups is None else self.corpus.documents(groups)
        view = make_view(corpus, self.local.dtype, self.is_little)
        # Batches of a fixed cut come again and again; those drawn anew do not.
        if keep or groups is None:
            self._views[key] = (groups, view)
        return view

    # -- topics that are empty until a move fills them: they have no words and no part in θ (decision 0040) --

    def places(self, state: State) -> Ints:
        """The topics that are not at their prior: those that have seen words."""
        nothing = self.with_hyper(state).topic_prior - 1.0
        return np.flatnonzero((np.asarray(state.lam["phi"][0]) != nothing).any(1))

    def _told(self, messages: Any) -> Any:
        """The topics that documents have counted words for; all, where none is kept empty."""
        return np.flatnonzero(np.asarray(messages["phi"][0]).any(1)) if self.truncated else slice(None)

    def _shared(self, messages: Any) -> Any:
        """The topics that documents had shares of, with words or none (E[log θ] < 0); all, where none is kept empty."""
        if not self.truncated:
            return slice(None)
        return np.flatnonzero(np.asarray(messages["phi"][0]).any(1) | (messages["theta"][0] != 0.0))

    def _at_prior(self, state: State, messages: Any) -> State:
        """With the β that was learned: empty topics are at it, and what was told is λ less this prior, at every state."""
        moved = self.at(np.asarray(messages["phi"][0], np.float64) + state.hyper["topic_prior"], state.t)
        return moved._replace(memory=state.memory, hyper=state.hyper)

    def restricted(self, places: Ints) -> LDAProblem:
        """The same documents with some of the topics alone."""
        other = copy(self)
        other.truncated, other._weights_of = False, None
        if self.past is not None:
            other.past = {"phi": (np.asfortranarray(self.past["phi"][0][places]),)}
        other.doc_prior, other.n_topics = self.doc_prior[places], len(places)
        other.__dict__.pop("blocks", None)
        other.row_bytes = other.n_topics * np.dtype(self.local.dtype).itemsize
        return other

    def active_part(self, state: State) -> LDAProblem:
        """The problem of the topics that are not empty, with the priors of a state."""
        return self.with_hyper(state).restricted(self.places(state))

    def of_documents(self, corpus: Corpus) -> LDAProblem:
        """The same topics of other documents."""
        return LDAProblem(corpus, self.doc_prior, self.topic_prior, self.local)

    def state_of(self, state: State, places: Ints) -> State:
        """Of some topics alone, as documents read them."""
        mu = (np.asfortranarray(np.asarray(state.mu["phi"][0])[places]),)
        return state._replace(mu={"phi": mu}, memory={}, hyper={})

    def _solve_active(self, state: State, groups: Ints | None, rows: Any, tol: float, limit: int) -> GroupResult:
        """The documents with the topics that are not empty; nothing is told to the others."""
        places = self.places(state)
        part = self.restricted(places)
        warm = None if rows is None else (np.ascontiguousarray(rows[0][:, places]),)
        solved = part.solve(part.state_of(state, places), groups, warm, tol, limit)
        (counts,) = solved.messages["phi"]
        wide = np.zeros((self.corpus.n_words, self.n_topics), counts.dtype)
        wide[:, places] = np.asarray(counts).T
        messages: dict[str, Stats] = {"phi": (wide.T,)}
        if "theta" in solved.messages:
            sums = np.zeros(self.n_topics)
            sums[places] = solved.messages["theta"][0]
            messages["theta"] = (sums, solved.messages["theta"][1])
        gamma = np.empty((len(solved.rows[0]), self.n_topics), solved.rows[0].dtype)
        gamma[:] = self.doc_prior
        gamma[:, places] = solved.rows[0]
        return solved._replace(rows=(gamma,), messages=messages)
