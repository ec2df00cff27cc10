"""The topics of a corpus for `natgrad.inference.moves`: a topic's words split by topics that are fitted to them alone.

The model is latent Dirichlet allocation with K topics and a learned asymmetric prior: α_k of an empty topic is no part of it, and
its φ_k has its prior. So the bound is that of K topics, at the α that was learned for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.special as sp

from natgrad.data.corpus import Corpus
from natgrad.inference.moves import Birth, GroupComponents, hopeful, settled
from natgrad.inference.problem import State
from natgrad.inference.steppers.group_memory import KEY, BatchMemory, GroupMemory
from natgrad.models.lda.parts import Local, infer_view
from natgrad.models.lda.problem import LDAProblem
from natgrad.models.lda.start import first_topics
from natgrad.random import Stream, generator

__all__ = ["TopicComponents", "found_topics"]

Floats = npt.NDArray[np.float64]
# Parts of a topic that are tried, of one that has most words more; sweeps of each on the topic's own words.
PARTS, MORE_PARTS, SWEEPS = (2,), (2, 4, 8), 8
# Documents whose words are looked at, and the least tokens that one must have of the topic, or the topic in all.
MOST_DOCUMENTS, LEAST_TOKENS, LEAST_HELD = 300, 1.0, 10.0
# How finely documents are solved in these sweeps, and the part of the bound that ends them.
LOCAL, LITTLE = Local(tol=1e-2, limit=10), 1e-4
# Nats that a split may be behind on these words, and still be worth passes over all documents.
BEHIND = 20.0


class TopicComponents(GroupComponents):
    """Topics of an `LDAProblem`; ``problem.truncated`` keeps those at their prior empty."""

    problem: LDAProblem

    def __init__(self, problem: LDAProblem) -> None:
        super().__init__(problem, "topic", problem.n_topics, {"phi": ((0,),)})

    def held(self, state: State) -> Floats:
        """Tokens of each topic."""
        return np.asarray(self.told(state)["phi"][0].sum(1))

    def at(self, state: State, told: Any) -> State:
        """The state with these counts, in the memory order that documents read fastest."""
        return self.problem.at(told["phi"][0] + self.problem.topic_prior, state.t)._replace(hyper=state.hyper)

    def merge(self, state: State, kept: int, emptied: int) -> State:
        """Counts added up, and so are the concentrations of their shares."""
        after = super().merge(state, kept, emptied)
        alpha = self._alpha(state)
        alpha[kept] += alpha[emptied]
        return self._with_alpha(after, alpha)

    def likeness(self, state: State) -> Floats:
        """As of any components, from the two rows alone."""
        places = np.flatnonzero(self.active(state))
        rows = np.asarray(state.lam["phi"][0], np.float64)[places] + 1.0
        beta, size = self.problem.topic_prior, rows.shape[1]
        own, nothing = _normalizer(rows), size * sp.gammaln(beta) - sp.gammaln(size * beta)
        alike = np.full((self.size, self.size), -np.inf)
        for i in range(len(places) - 1):
            gain = _normalizer(rows[i] + rows[i + 1 :] - beta) + nothing - own[i] - own[i + 1 :]
            alike[places[i], places[i + 1 :]] = alike[places[i + 1 :], places[i]] = gain
        return hopeful(alike)

    def split(self, state: State, k: int, empty: Sequence[int], number: int, seed: int) -> Birth | None:
        """The best of some numbers of topics for the words of one; what it held is shared out word by word."""
        held = self.held(state)
        if held[k] < LEAST_HELD:
            return None
        rng = generator(seed, Stream.MOVES, state.t, k, number)
        words = self._own_words(state, k, rng)
        if words is None:
            return None
        sizes = MORE_PARTS if held[k] > 0.5 * held.sum() else PARTS
        alpha = self._alpha(state)
        best: tuple[float, Floats] | None = None
        one = _fitted(words, np.array([alpha[k]]), self.problem.topic_prior, rng)[0]
        for size in (n for n in sizes if n <= len(empty) + 1):
            found = _fitted(words, np.full(size, alpha[k]), self.problem.topic_prior, rng)
            if best is None or found[0] > best[0]:
                best = found
        if best is None or best[0] < one - BEHIND:
            return None
        places = [k, *empty[: len(best[1]) - 1]]
        told = np.array(self.told(state)["phi"][0])
        told[places] = told[k] * (best[1] / best[1].sum(0))
        alpha[places] = alpha[k]
        after = self._with_alpha(self.at(state, {"phi": (told,)}), alpha)
        return Birth(after, best[0] - one if best[0] > one else float("nan"), tuple(places[1:]))

    # -- parts --

    def _alpha(self, state: State) -> Floats:
        return np.array(self.problem.with_hyper(state).doc_prior)

    def _with_alpha(self, state: State, alpha: Floats) -> State:
        """With other concentrations where these are learned; otherwise they are part of the model."""
        if "doc" not in self.problem.learn:
            return state
        return state._replace(hyper={"doc_prior": alpha, "topic_prior": self.problem.topic_prior})

    def _own_words(self, state: State, k: int, rng: np.random.Generator) -> Corpus | None:
        """The words that documents have from one topic, as documents with fractional counts."""
        here = self.problem.active_part(state)
        place = int(np.flatnonzero(self.problem.places(state) == k)[0])
        corpus = here.corpus
        chosen = np.arange(len(corpus))
        if len(chosen) > 8 * MOST_DOCUMENTS:
            chosen = np.sort(rng.choice(chosen, 8 * MOST_DOCUMENTS, replace=False))
        part = here.of_documents(corpus.documents(chosen))
        topics = part.topics_at(part.state_of(state, self.problem.places(state)))
        gamma = infer_view(part.view_of(None), topics, part.local, None, False, *part.local_limits).gamma
        shares = np.exp(sp.digamma(gamma.astype(np.float64)))
        documents = np.repeat(np.arange(len(part.corpus)), np.diff(part.corpus.start))
        weights = topics.weights[:, : part.n_topics].astype(np.float64)
        own = shares[documents, place] * weights[part.corpus.words, place]
        total = np.einsum("ek,ek->e", shares[documents], weights[part.corpus.words])
        counts = part.corpus.counts * own / total
        tokens = np.bincount(documents, counts, len(part.corpus))
        kept = np.argsort(-tokens, kind="stable")[:MOST_DOCUMENTS]
        kept = np.sort(kept[tokens[kept] >= LEAST_TOKENS])
        if len(kept) < 2:
            return None
        whole = Corpus(part.corpus.start, part.corpus.words, np.maximum(counts, 1e-12), part.corpus.n_words)
        return whole.documents(kept)


def _normalizer(concentration: Floats) -> Floats:
    return np.asarray(sp.gammaln(concentration).sum(-1) - sp.gammaln(concentration.sum(-1)))


def _fitted(words: Corpus, alpha: Floats, beta: float, rng: np.random.Generator) -> tuple[float, Floats]:
    """The bound, and the concentrations [n, V], of so many topics of some words."""
    problem = LDAProblem(words, alpha, beta, LOCAL)
    bound, state = settled(problem, problem.at(first_topics(words, len(alpha), rng)), SWEEPS, LITTLE, relative=True)
    return bound, np.asarray(state.lam["phi"][0]) + 1.0


def found_topics(problem: LDAProblem, state: State) -> tuple[LDAProblem, State]:
    """The problem and the state of the topics that hold something alone, the largest first."""
    components = TopicComponents(problem)
    held = components.held(state)
    order = np.argsort(-held, kind="stable")
    order = order[components.active(state)[order]]
    fewer = problem.restricted(order)
    hyper = {k: v[order] if k == "doc_prior" else v for k, v in state.hyper.items()}
    after = fewer.at(np.asarray(state.lam["phi"][0])[order] + 1.0, state.t)._replace(hyper=hyper)
    memory: GroupMemory | None = state.memory.get(KEY)
    return fewer, after if memory is None else after._replace(memory={KEY: _of_topics(memory, order)})


def _of_topics(memory: GroupMemory, order: Any) -> GroupMemory:
    """What is remembered, of some topics."""

    def told(messages: Any) -> dict[str, Any]:
        return {
            name: (np.asfortranarray(parts[0][order]), *parts[1:]) if name == "phi" else (parts[0][order], *parts[1:])
            for name, parts in messages.items()
        }

    batches = tuple(
        None
        if kept is None
        else BatchMemory((np.ascontiguousarray(kept.rows[0][:, order]),), told(kept.messages), kept.rest)
        for kept in memory.batches
    )
    return memory._replace(messages=told(memory.messages), batches=batches)
