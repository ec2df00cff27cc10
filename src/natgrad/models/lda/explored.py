"""Topics in; topics that some sweeps of collapsed Gibbs sampling lead to from there, and the priors learned with them, out.

A proposal for `natgrad.inference.moves`, which passes of variational inference follow and the exact bound decides. Coordinate
ascent ends in an optimum near its start, and real text has very many: of 20 topics of 5,000 abstracts restarts ended 10,000 nats
apart, and the best of them 18,000 nats below what forty sweeps, a fifth of the time of a fit, led to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.models.lda.gibbs import Sampler

if TYPE_CHECKING:
    from natgrad.models.lda.problem import LDAProblem

__all__ = ["Explored", "explored"]

Floats = npt.NDArray[np.float64]
# Sweeps in all, those at the end whose counts are averaged, and those before priors are learned.
SWEEPS, AVERAGED, UNLEARNED = 40, 10, 8


class Explored(NamedTuple):
    """Tokens of each topic and word [K, V], α [K] and β."""

    counts: Floats
    doc_prior: Floats
    topic_prior: float


def explored(problem: LDAProblem, concentration: Floats, seed: int) -> Explored | None:
    """Where sweeps from topics with these concentrations [K, V] lead; None for weights, which are no tokens."""
    if np.any(problem.corpus.counts != np.rint(problem.corpus.counts)):
        return None
    sampler = Sampler(problem.corpus, problem.doc_prior, problem.topic_prior, seed)
    sampler.settle(np.ascontiguousarray(concentration))
    for number in range(SWEEPS):
        averaged = number >= SWEEPS - AVERAGED
        if number >= UNLEARNED and not averaged:
            sampler.update_hyper(problem.learn)
            sampler.beta = min(sampler.beta, problem.most_beta)
        sampler.sweep(averaged=averaged)
    return Explored(sampler.sums.T / AVERAGED, sampler.alpha, sampler.beta)
