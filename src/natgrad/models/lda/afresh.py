"""A settled run of `LDA` in; the same topics, and the documents that are better off so begun anew, or all of them, out.

Probes of `natgrad.inference.probes`.

What is remembered of a document was found when the topics were still poor, and every visit since began from it: it may hold on
to a topic that it would no longer choose. On the counts of the tests that kept the bound 180 to 1,200 nats (1 to 5 %) low, and
single documents changed their topics hundreds of passes after a run had converged.

Where no single document is better off, all of them together may be: they have settled on these topics, and the topics on them.
Begun anew they lose some nats at once and win more as the topics follow: 80 to 230 nats on 50,000 words, within four passes.

And topics may drift, with gains that say nothing, to where documents change their minds. Of what a pass moves all but the drift
has died down, so that many passes are foretold by one: the topics are tried where they will be then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad.inference.steppers.group_memory import KEY, replace_batch, rows_of
from natgrad.models.lda.parts import infer_view

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from natgrad.inference.problem import State
    from natgrad.models.lda.parts import Topics, View
    from natgrad.models.lda.problem import LDAProblem

__all__ = ["ahead", "all_anew", "begin_anew", "better_rows", "far_ahead"]

# A document's bound that is higher by more than the rounding of single precision.
BETTER = 1e-5
# A topic with less than this share of a document's words is none of its own; so many topics are given or taken up, one by one.
HOLDS, MOST_FLIPS = 0.01, 8
# Passes that are foretold from one.
NEARER, FAR = 64.0, 256.0


def begin_anew(problem: LDAProblem, state: State, order: tuple[str, ...], seed: int) -> State | None:
    """A state that remembers of every document the better of what it remembered and of a start from equal shares.

    At the same topics the bound cannot be lower. None if there is no such document, or nothing is remembered here.
    """
    here, changed = problem.with_hyper(state), False
    memory: Any = state.memory.get(KEY)
    for number, (groups, rows) in enumerate(rows_of(problem, state, seed)):
        anew = better_rows(here, state, groups, rows)
        if anew is not None:
            memory = replace_batch(memory, number, here.solve(state, groups, anew, *problem.local_limits))
            changed = True
    return state._replace(memory={KEY: memory}) if changed else None


def all_anew(problem: LDAProblem, state: State, order: tuple[str, ...], seed: int) -> State | None:
    """A state that remembers of every document what it finds from equal shares; None if nothing is remembered."""
    if state.memory.get(KEY) is None:
        return None
    return _solved(problem, state, [(groups, None) for groups, _ in rows_of(problem, state, seed)])


def far_ahead(problem: LDAProblem, state: State, order: tuple[str, ...], seed: int) -> State | None:
    """Where the topics will be after `FAR` passes like the next one."""
    return _ahead(problem, state, seed, FAR)


def ahead(problem: LDAProblem, state: State, order: tuple[str, ...], seed: int) -> State | None:
    """Where the topics will be after `NEARER` passes like the next one."""
    return _ahead(problem, state, seed, NEARER)


def _ahead(problem: LDAProblem, state: State, seed: int, passes: float) -> State | None:
    """The topics moved as far as so many passes would move them if all were like the next one; documents follow."""
    batches = rows_of(problem, state, seed)
    if not batches:
        return None
    here = problem.with_hyper(state)
    solved = _solved(problem, state, batches)
    memory: Any = solved.memory[KEY]
    now, later = (of.lam["phi"][0] for of in (state, here.global_step(solved, memory.messages, 1.0).state))
    # No word counts less than nothing.
    concentration = np.maximum(later + passes * (later - now) + 1.0, here.topic_prior)
    moved = problem.at(concentration, state.t)._replace(memory=solved.memory, hyper=state.hyper)
    return _solved(problem, moved, rows_of(problem, moved, seed))


def _solved(problem: LDAProblem, state: State, batches: Sequence[tuple[Any, Any]]) -> State:
    """The same topics; every batch remembers what its documents find from these rows."""
    here, memory = problem.with_hyper(state), state.memory[KEY]
    for number, (groups, rows) in enumerate(batches):
        memory = replace_batch(memory, number, here.solve(state, groups, rows, *problem.local_limits))
    return state._replace(memory={KEY: memory})


def better_rows(problem: LDAProblem, state: State, groups: npt.NDArray[np.int64] | None, rows: Any) -> Any:
    """γ of documents, from another start where the document's bound is higher so; None if it is nowhere.

    The starts are equal shares, and what was remembered with one topic given up or taken up.
    """
    topics, view = problem.topics_at(state), problem.view_of(groups)
    best = infer_view(view, topics, problem.local, rows[0], True, *problem.local_limits)
    gamma, bound, changed = best.gamma, best.bound, False
    equal = infer_view(view, topics, problem.local, None, False, *problem.local_limits)
    flips = _from_starts(problem, view, topics, flipped(gamma, topics.doc_prior))
    for there, reached in ((equal.gamma, equal.bound), *flips):
        better = reached > bound + BETTER * np.abs(bound)
        if better.any():
            gamma, bound = np.where(better[:, None], there, gamma), np.where(better, reached, bound)
            changed = True
    return (gamma,) if changed else None


def _from_starts(
    problem: LDAProblem, view: View, topics: Topics, starts: Iterator[npt.NDArray[Any]]
) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.float64]]]:
    """γ and bounds of documents from each of some starts; little data from all of them at once, each start copies of its own."""
    if not view.little:
        for start in starts:
            new = infer_view(view, topics, problem.local, start, True, *problem.local_limits)
            yield new.gamma, new.bound
        return
    begun = list(starts)
    copies = view.corpus.documents(np.tile(np.arange(len(view.corpus)), len(begun)))
    whole = view._replace(corpus=copies, counts=np.tile(view.counts, len(begun)))
    new = infer_view(whole, topics, problem.local, np.concatenate(begun), True, *problem.local_limits)
    yield from zip(np.split(new.gamma, len(begun)), np.split(new.bound, len(begun)), strict=True)


def flipped(gamma: npt.NDArray[Any], alpha: npt.NDArray[np.float64]) -> Iterator[npt.NDArray[Any]]:
    """γ with the heaviest topic of every document given up, then the next; where a document has no more, the next taken up."""
    held = gamma - alpha
    words = held.sum(1)
    order = np.argsort(-held, axis=1, kind="stable")
    document = np.arange(len(gamma))
    for k in order.T[:MOST_FLIPS]:
        start = gamma.copy()
        has = held[document, k] > HOLDS * words
        start[document, k] = np.where(has, alpha[k], alpha[k] + words / gamma.shape[1])
        yield start
