"""The topics of a corpus for `natgrad.inference.moves`: a topic's words split by topics that are fitted to them alone.

The model is latent Dirichlet allocation with K topics and a learned asymmetric prior: α_k of an empty topic is no part of it, and
its φ_k has its prior. So the bound is that of K topics, at the α that was learned for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.special as sp

from natgrad.data.corpus import Corpus
from natgrad.inference.auto import Auto, choose
from natgrad.inference.engine import take_steps
from natgrad.inference.group_components import Birth, GroupComponents, settled
from natgrad.inference.problem import State
from natgrad.inference.steppers.groups import BEFORE, KEY, BatchMemory, GroupMemory
from natgrad.models.lda.dirichlet_prior import RANGE
from natgrad.models.lda.parts import Local, Topics, infer_view, make_view
from natgrad.models.lda.problem import LEAST_WEIGHT, LDAProblem
from natgrad.models.lda.start import SampledTopics, first_topics, sample_topics, seeded_topics
from natgrad.random import Stream, generator

__all__ = ["TopicComponents", "found_topics"]

Floats = npt.NDArray[np.float64]
# Parts of a topic that are tried, of one that has most words more; sweeps of each on the topic's own words.
PARTS, MORE_PARTS, SWEEPS = (2,), (2, 4, 8), 8
# Entries of the documents that are read for splits, and the least tokens of one that is a topic's own, or of a topic in all.
MOST_ENTRIES, LEAST_TOKENS, LEAST_HELD = 1_000_000, 0.02, 10.0
# Passes in batches of topics that are begun anew: before a sampler goes on from them, and in all where counts are no tokens.
FIRST_PASSES, PASSES = 2, 15
# How finely documents are solved in these sweeps, and the part of the bound that ends them.
LOCAL, LITTLE = Local(tol=1e-2, limit=10), 1e-4
# Nats that a split may be behind on these words, and still be worth passes over all documents.
BEHIND = 20.0


class Reading(NamedTuple):
    """Documents as the topics of a state read them: θ's geometric mean for each, Σ_k of θ φ for every entry, their bounds."""

    state: State
    part: LDAProblem
    topics: Topics
    bound: Floats
    corpus: Corpus
    documents: npt.NDArray[np.int64]
    shares: Floats
    weights: Floats
    total: Floats
    places: npt.NDArray[np.int64]


class TopicComponents(GroupComponents):
    """Topics of an `LDAProblem`; ``problem.truncated`` keeps those at their prior empty."""

    problem: LDAProblem
    # A topic has thousands of words: what its merge loses, the split of two that are one may make up for.
    most_loss = -1e6

    def __init__(self, problem: LDAProblem) -> None:
        super().__init__(problem, "topic", problem.n_topics, {"phi": ((0,),)}, ["phi"])
        self._read: Reading | None = None

    def told(self, state: State) -> dict[str, Any]:
        """λ less the prior, as it was learned."""
        return {"phi": (np.asarray(state.lam["phi"][0], np.float64) + 1.0 - self._concentrations(state),)}

    def held(self, state: State) -> Floats:
        """Tokens of each topic."""
        return np.asarray(self.told(state)["phi"][0].sum(1))

    def at(self, state: State, told: Any) -> State:
        """The state with these counts, in the memory order that documents read fastest."""
        after = self.problem.at(told["phi"][0] + self._concentrations(state), state.t)
        return after._replace(hyper=state.hyper, memory={BEFORE: told})

    def merge(self, state: State, kept: int, emptied: int) -> State:
        """Counts added up, and so are the concentrations of their shares."""
        after = super().merge(state, kept, emptied)
        alpha = self._alpha(state)
        alpha[kept] += alpha[emptied]
        return self._with_alpha(after, alpha)

    def likeness(self, state: State) -> Floats:
        """As of any components, from the two rows alone."""
        places, stays = np.flatnonzero(self.active(state)), self.stays
        rows = np.asarray(state.lam["phi"][0], np.float64)[places] + 1.0
        beta, size = self._beta(state), rows.shape[1]
        own, nothing = _normalizer(rows), size * sp.gammaln(beta) - sp.gammaln(size * beta)
        alike = np.full((self.size, self.size), -np.inf)
        for i in range(len(places) - 1):
            others = np.arange(i + 1, len(places))
            others = others[~stays[places[others]]]  # which are at β when they are empty
            gain = _normalizer(rows[i] + rows[others] - beta) + nothing - own[i] - own[others]
            alike[places[i], places[others]] = alike[places[others], places[i]] = gain
        return alike

    def split(
        self, state: State, k: int, empty: Sequence[int], number: int, seed: int, *, goal: float = -np.inf
    ) -> Birth | None:
        """The best of some numbers of topics for the words of one; what it held is shared out word by word."""
        held = self.held(state)
        if held[k] < LEAST_HELD:
            return None
        rng = generator(seed, Stream.MOVES, state.t, k, number)
        words = self._own_words(state, k, rng)
        if words is None:
            return None
        sizes = MORE_PARTS if held[k] > 0.5 * held.sum() else PARTS
        alpha, beta = self._alpha(state), self._beta(state)
        best: tuple[float, Floats] | None = None
        one = _fitted(words, np.array([alpha[k]]), beta, rng)[0]
        for size in (n for n in sizes if n <= len(empty) + 1):
            # Parts of a share have its concentration together, as parts of any Dirichlet share do.
            candidate = _fitted(words, np.full(size, alpha[k] / size), beta, rng)
            if best is None or candidate[0] > best[0]:
                best = candidate
        if best is None or best[0] < one - BEHIND:
            return None
        places = [k, *empty[: len(best[1]) - 1]]
        told = np.array(self.told(state)["phi"][0])
        told[places] = told[k] * (best[1] / best[1].sum(0))
        alpha[places] = alpha[k] / len(places)
        after = self._with_alpha(self.at(state, {"phi": (told,)}), alpha)
        return Birth(after, best[0] - one if best[0] > one else float("nan"), tuple(places[1:]))

    def delete_gains(self, state: State, seed: int) -> Floats:
        """What is gained before the others follow: its documents solved without it, and what its words cost.

        A topic may be a blend of several others, and like none of them.
        """
        gains, read = np.full(self.size, -np.inf), self._reading(state, generator(seed, Stream.MOVES, state.t))
        rows, beta = np.asarray(state.lam["phi"][0], np.float64) + 1.0, self._beta(state)
        scale = len(self.problem.corpus) / max(1, len(read.corpus))
        for place, k in enumerate(read.places.tolist()):
            if self.stays[k]:
                continue
            held = np.bincount(read.documents, _tokens(read, place), len(read.corpus))
            chosen = np.flatnonzero(held > LEAST_TOKENS)
            weights, alpha = read.topics.weights.copy(), read.topics.doc_prior.copy()
            weights[:, place], alpha[place] = LEAST_WEIGHT, RANGE[0]
            without = infer_view(
                make_view(read.corpus.documents(chosen), read.part.local.dtype, read.part.is_little),
                Topics(weights, read.topics.top, alpha), read.part.local, None, False, *read.part.local_limits,
            )  # fmt: skip
            nothing = np.full(rows.shape[1], beta)
            log_mean = sp.digamma(rows[k]) - sp.digamma(rows[k].sum())
            cost = _normalizer(nothing) - _normalizer(rows[k]) + (rows[k] - beta) @ log_mean
            gains[k] = scale * float(without.bound.sum() - read.bound[chosen].sum()) + float(cost)
        return gains

    def together(self, state: State, births: Mapping[int, Birth]) -> State:
        """As of any components, and the concentrations of their shares."""
        alpha = self._alpha(state)
        for k, birth in births.items():
            places = [k, *birth.born]
            alpha[places] = self._alpha(birth.state)[places]
        return self._with_alpha(super().together(state, births), alpha)

    def anew(self, state: State, size: int, seed: int) -> State | None:
        """Topics near one another, all with the α that was given, after passes in batches and sweeps of a sampler."""
        if "doc" not in self.problem.learn:
            return None
        part = self.problem.restricted(np.arange(size))
        part.placed = None  # shards of the run are cut for its own batches
        if self.known is not None:
            return self._joined(state, part, seed)
        stepper, _ = choose(part, None, Auto(), ("phi",))
        begun = take_steps(part, stepper, part.start(seed), FIRST_PASSES * stepper.steps_per_pass, seed).state
        found = sample_topics(part, np.asarray(begun.lam["phi"][0]) + 1.0, seed)
        if found is None:
            passes = (PASSES - FIRST_PASSES) * stepper.steps_per_pass
            fitted = take_steps(part, stepper, begun, passes, seed).state
            alpha, beta = fitted.hyper["doc_prior"], fitted.hyper["topic_prior"]
            found = SampledTopics(np.asarray(fitted.lam["phi"][0]) + 1.0 - beta, alpha, beta)
        return self._at_found(state, np.arange(size), found)

    def birth(self, state: State, k: int, empty: Sequence[int], number: int, seed: int) -> Birth | None:
        """By a split; those that join known topics are begun by a sampler, all at once (`anew`), where counts are tokens."""
        if self.stays[k] and "doc" in self.problem.learn and not np.any(self.problem.corpus.counts % 1.0):
            return None
        return super().birth(state, k, empty, number, seed)

    def _joined(self, state: State, part: LDAProblem, seed: int) -> State | None:
        """Topics that begin with single documents, beside those of the past, after sweeps of a sampler."""
        rng, stays = generator(seed, Stream.MOVES, part.n_topics), self.stays[: part.n_topics]
        past: Any = self.problem.past
        concentration = self._beta(state) + np.asarray(past["phi"][0])[: part.n_topics]
        concentration[~stays] += seeded_topics(part.corpus, part.n_topics, int((~stays).sum()), rng)
        found = sample_topics(part, concentration, seed)
        return None if found is None else self._at_found(state, np.arange(part.n_topics), found)

    def explored(self, state: State, number: int, seed: int) -> State | None:
        """Sweeps of collapsed Gibbs sampling from the topics that there are."""
        places = self.problem.places(state)
        part = self.problem.active_part(state)
        own = int(generator(seed, Stream.MOVES, state.t, number).integers(2**31))
        found = sample_topics(part, np.asarray(state.lam["phi"][0])[places] + 1.0, own)
        return None if found is None else self._at_found(state, places, found)

    # -- parts --

    def _at_found(self, state: State, places: Any, found: SampledTopics) -> State:
        """The state with these counts and priors in some places; the others are empty, with the α that was given."""
        told, alpha = np.zeros((self.size, self.problem.corpus.n_words)), np.array(self.problem.doc_prior)
        told[places], alpha[places] = found.counts, found.doc_prior
        hyper = {"doc_prior": alpha, "topic_prior": found.topic_prior} if self.problem.learn else state.hyper
        past = 0.0 if self.problem.past is None else self.problem.past["phi"][0]
        after = self.problem.at(told + found.topic_prior + past, state.t)
        return after._replace(hyper=hyper, memory={BEFORE: {"phi": (told,)}})

    def _alpha(self, state: State) -> Floats:
        return np.array(self.problem.with_hyper(state).doc_prior)

    def _beta(self, state: State) -> float:
        return float(self.problem.with_hyper(state).topic_prior)

    def _concentrations(self, state: State) -> Any:
        """β, and what was counted before these documents came."""
        return self._beta(state) if self.problem.past is None else self._beta(state) + self.problem.past["phi"][0]

    def _with_alpha(self, state: State, alpha: Floats) -> State:
        """With other concentrations where these are learned; otherwise they are part of the model."""
        if "doc" not in self.problem.learn:
            return state
        return state._replace(hyper={"doc_prior": alpha, "topic_prior": self._beta(state)})

    def _own_words(self, state: State, k: int, rng: np.random.Generator) -> Corpus | None:
        """The words that documents have from one topic, as documents with fractional counts."""
        read = self._reading(state, rng)
        counts = _tokens(read, int(np.flatnonzero(read.places == k)[0]))
        kept = np.flatnonzero(counts >= LEAST_TOKENS)
        sizes = np.bincount(read.documents[kept], minlength=len(read.corpus))
        if (sizes > 0).sum() < 2:
            return None
        start = np.concatenate([[0], np.cumsum(sizes[sizes > 0])])
        return Corpus(start, read.corpus.words[kept], counts[kept], read.corpus.n_words)

    def _reading(self, state: State, rng: np.random.Generator) -> Reading:
        """What all splits of a state have in common; of the last state, kept."""
        if self._read is None or self._read.state is not state:
            here, places = self.problem.active_part(state), self.problem.places(state)
            corpus = here.corpus
            some = int(len(corpus) * min(1.0, MOST_ENTRIES / max(1, len(corpus.words))))
            if some < len(corpus):
                corpus = corpus.documents(np.sort(rng.choice(len(corpus), some, replace=False)))
            part = here.of_documents(corpus)
            topics = part.topics_at(part.state_of(state, places))
            solved = infer_view(part.view_of(None), topics, part.local, None, False, *part.local_limits)
            shares = np.exp(sp.digamma(solved.gamma.astype(np.float64)))
            documents = np.repeat(np.arange(len(corpus)), np.diff(corpus.start))
            weights = topics.weights[:, : part.n_topics].astype(np.float64)
            total = np.concatenate([
                np.einsum("ek,ek->e", shares[documents[some]], weights[corpus.words[some]])
                for some in np.array_split(np.arange(len(documents)), 1 + len(documents) // 10_000)
            ])  # fmt: skip
            self._read = Reading(state, part, topics, solved.bound, corpus, documents, shares, weights, total, places)
        return self._read


def _tokens(read: Reading, place: int) -> Floats:
    """Of every entry, the tokens that it has from one topic."""
    own = read.shares[read.documents, place] * read.weights[read.corpus.words, place]
    return np.asarray(read.corpus.counts * own / read.total)


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
