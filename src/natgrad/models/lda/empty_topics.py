"""Topics at their prior hold no words and have no part in θ: documents are solved with the others alone (decision 0040)."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from natgrad.data.corpus import Corpus
    from natgrad.inference.problem import GroupResult, State
    from natgrad.models.lda.parts import Local
    from natgrad.models.lda.problem import LDAProblem

__all__ = ["EmptyTopics"]

Floats = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Stats = tuple[Any, ...]


class EmptyTopics:
    """What `LDAProblem` does with topics that are empty until a move fills them."""

    if TYPE_CHECKING:
        corpus: Corpus
        doc_prior: Floats
        topic_prior: float
        local: Local
        n_topics: int
        row_bytes: int
        truncated: bool
        past: Any

        def with_hyper(self, state: State) -> LDAProblem: ...

        def at(self, concentration: Floats, t: int = 0) -> State: ...

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
        other = copy(cast("LDAProblem", self))
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
        other: type[LDAProblem] = type(self)  # type: ignore[assignment]
        return other(corpus, self.doc_prior, self.topic_prior, self.local)

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
