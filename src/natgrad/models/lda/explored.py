"""Topics in; topics that some sweeps of collapsed Gibbs sampling lead to from there, and the priors learned with them, out.

A proposal for `natgrad.inference.moves`, which passes of variational inference follow and the exact bound decides. Coordinate
ascent ends in an optimum near its start, and real text has very many: of 20 topics of 5,000 abstracts restarts ended 10,000 nats
apart, and the best of them 18,000 nats below what forty sweeps, a fifth of the time of a fit, led to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.steppers.group_memory import BEFORE
from natgrad.models.lda.gibbs import Sampler
from natgrad.models.lda.start import revived_topics
from natgrad.models.lda.thinned import repeated, thinned
from natgrad.random import Stream, generator

if TYPE_CHECKING:
    from natgrad.inference.problem import State
    from natgrad.models.lda.problem import LDAProblem

__all__ = ["Explored", "after_first_pass", "explored"]

Floats = npt.NDArray[np.float64]
# Sweeps in all, if nobody says; the part of them at the end whose counts are averaged, and that before priors are learned.
SWEEPS, AVERAGED, UNLEARNED = 40, 0.25, 0.2


class Explored(NamedTuple):
    """Tokens of each topic and word [K, V], α [K] and β."""

    counts: Floats
    doc_prior: Floats
    topic_prior: float


def explored(
    problem: LDAProblem, concentration: Floats, seed: int, sweeps: int = SWEEPS, late: Callable[[], bool] = bool
) -> Explored | None:
    """Where sweeps from topics with these concentrations [K, V] lead; None for weights, which are no tokens.

    Words that were counted before these documents came stay where they were counted; large counts are thinned. When it is
    ``late`` sweeps end: what was averaged counts, and if nothing was, the counts of the last sweep.
    """
    if np.any(problem.corpus.counts != np.rint(problem.corpus.counts)):
        return None
    corpus, by = thinned(problem.corpus), repeated(problem.corpus)
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
    return Explored(by * (counts if past is None else counts - past.T), sampler.alpha, sampler.beta)


def after_first_pass(problem: LDAProblem, state: State, seed: int, late: Callable[[], bool] = bool) -> State:
    """Where remembering begins: topics that lost their words begun anew, each from a document, and what sweeps make of all.

    The next pass finds the shares of every document anew, so that its bound is as honest as from any other start.
    """
    here = problem.with_hyper(state)
    concentration = state.lam["phi"][0] + 1.0
    anew = revived_topics(concentration, problem.topic_prior, problem.corpus, generator(seed, Stream.START, 1))
    concentration = concentration if anew is None else anew
    own = int(generator(seed, Stream.START, 2).integers(2**31))
    found = explored(here, concentration, own, problem.start_sweeps, late) if problem.start_sweeps else None
    if found is not None:
        hyper = {"doc_prior": found.doc_prior, "topic_prior": found.topic_prior} if problem.learn else state.hyper
        after = problem.at(found.counts + found.topic_prior, state.t)
        return after._replace(hyper=hyper, memory={BEFORE: {"phi": (found.counts,)}})
    return state if anew is None else problem.at(anew, state.t)._replace(memory=state.memory, hyper=state.hyper)
