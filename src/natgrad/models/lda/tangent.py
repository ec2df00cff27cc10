"""Documents at their optimum in; how their counts change when the topics move, exactly and in one pass, out.

Differences of two solutions need both to be solved to the last digit, and some documents take thousands of rounds for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.special as sp

from natgrad.errors import NotAtMaximum
from natgrad.inference.problem import GroupResult, State
from natgrad.kernels.lda import plain
from natgrad.kernels.lda.documents import topic_counts
from natgrad.kernels.lda.tangents import document_tangents
from natgrad.models.lda.parts import by_word, infer_view
from natgrad.threads import threads_for

if TYPE_CHECKING:
    from natgrad.models.lda.problem import LDAProblem

__all__ = ["document_tangent", "told_along"]

# Numbers of the documents' small systems up to which these are kept from one direction to the next: 256 MB.
MOST_KEPT = 32_000_000
# Words of documents whose topics are multiplied out at once.
ENTRIES = 100_000
_plain: Any = plain.document_tangents


def document_tangent(problem: LDAProblem, state: State, solved: GroupResult, strict: bool) -> Callable[[Any], Any]:
    """From a direction of E[log φ] to the change of the expected counts of topics by word.

    A document that is at no maximum of its own does not move; if ``strict``, it is an error.
    """
    view, topics = problem.view_of(None), problem.topics_at(state)
    inferred = infer_view(view, topics, problem.local, solved.rows[0], True, *problem.local_limits)
    curved, n_topics = sp.polygamma(1, inferred.gamma), problem.n_topics
    told = by_word(solved.messages["phi"][0])
    shares, ratio, least = np.empty_like(inferred.weight), np.empty_like(inferred.ratio), np.empty(len(curved))
    kept = len(curved) * n_topics**2 <= MOST_KEPT
    factors = np.empty((len(curved) if kept else 0, n_topics, n_topics))
    made = False

    def counts(ratio: Any, weight: Any) -> Any:
        out = np.empty_like(told)
        count: Any = plain.topic_counts if view.little else topic_counts
        count(view.word_start, view.place, view.documents, ratio, weight, topics.weights, out)
        return out

    def along(direction: Any) -> Any:
        nonlocal made
        moved = by_word(direction["phi"][0])
        documents = view.corpus.start, view.corpus.words, view.counts, topics.weights, curved, inferred.weight
        with threads_for(len(view.place) * n_topics):
            if view.little:
                _plain(*documents, inferred.ratio, moved, shares, ratio, least)
            else:
                document_tangents(view.chunks, *documents, inferred.ratio, moved, factors, made, shares, ratio, least)
            if strict and not made and not least.min(initial=1.0) > 0.0:
                raise NotAtMaximum(
                    f"document {int(least.argmin())} is at no maximum of its own bound: its topics are as likely as one another, "
                    "and small changes of the data decide between them. Use draws"
                )
            made = kept
            return {"phi": ((counts(inferred.ratio, shares) - counts(ratio, inferred.weight) + moved * told).T,)}

    return along


def told_along(problem: LDAProblem, state: State, rows: Any, direction: Any) -> Any:
    """Σ_wk n_w r_wk d E[log φ_kw] of each document: how its bound changes along a direction of the topics."""
    view, topics = problem.view_of(None), problem.topics_at(state)
    inferred = infer_view(view, topics, problem.local, rows[0], True, *problem.local_limits)
    moved, n_topics, each = by_word(direction["phi"][0]), problem.n_topics, np.empty(len(view.place))
    for begin in range(0, len(each), ENTRIES):
        part = slice(begin, begin + ENTRIES)
        words, documents = view.corpus.words[part], view.documents[part]
        shares = inferred.weight[documents, :n_topics] * topics.weights[words, :n_topics]
        each[part] = inferred.ratio[part] * np.einsum("ek,ek->e", shares, moved[words])
    return np.bincount(view.documents, each, len(view.corpus))
