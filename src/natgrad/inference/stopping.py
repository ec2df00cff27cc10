"""When a run has converged: the bounds it saw in, what is left to gain out.

Near an optimum coordinate ascent contracts: the gains g of successive passes shrink by a rate r, and what is left to gain is the
rest of a geometric series, g r / (1 − r). The rate is read off at several lengths: single gains, and sums of 2, 4 and 8 of them
against the sums before. The most pessimistic of the estimates counts, after each of the last two passes, and twice as much: there
are many rates, and the slowest of them is the last to be seen. Gains that grow (r ≥ 1) are those of a run that leaves a saddle,
never of one that has converged.

A gain of less than the bound's own rounding is none that can be seen. Where bounds of a method that cannot fall do so now and
then, by rounding or because local variables are solved to a tolerance of their own, by so much they are noisy, up to a
millionth of the bound: what falls further is wrong, and ends a run (`natgrad.inference.monitor`). Below the noise
the steps themselves go on telling: near an optimum a gain is a quadratic form of the step that made it, so where a step moved λ
by a change c and gained g, one that moves it by c' gains g (c'/c)². Such gains count as those that are seen, until the steps no
longer shrink, which is their own rounding.

A tolerance is a number of nats. Since KL(q ‖ q*) is what is left to gain, 1e-3 nats left are a mean that is 0.045 posterior
standard deviations off, if it is off in one direction alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

__all__ = ["ROUNDING", "Left", "is_a_fall", "left_to_gain", "left_to_gain_noisy"]

# A sum of N terms has rounding errors of a few ε times their size; the bound is such a sum.
ROUNDING = 1e-13
# A bound of exact steps that ends lower than an earlier one by more than this part of it is wrong, not rounded.
FALL = 1e-6
# What the estimate is multiplied by, and while there are only three gains.
SAFETY, FEW_GAINS = 2.0, 200.0
# How many gains are summed before they are compared with those before.
LENGTHS = (1, 2, 4, 8)
# So many falls among the last passes are noise, and tell how much; a single one is an event.
RECENT, FALLS = 10, 3
# Evaluations of a noisy bound that are averaged.
AVERAGED = 10


class Left(NamedTuple):
    """What is left to gain, in nats: an estimate, and the noise of the bound below which nothing can be seen."""

    gain: float
    noise: float

    def below(self, tol: float) -> bool:
        """Whether it is less than a tolerance, or than what can be seen."""
        return self.gain <= max(tol, self.noise)


def is_a_fall(best: float, bound: float, rounding: float = 0.0) -> bool:
    """Whether a bound is lower than the best before it by more than a millionth and by more than its rounding error."""
    return bound < best - max(FALL * max(1.0, abs(best)), rounding)


def left_to_gain(
    bounds: Sequence[float], per_pass: int = 1, monotone: bool = True, changes: Sequence[float] = ()
) -> Left | None:
    """The pessimistic estimate after the last two passes; None while there were too few.

    Parameters
    ----------
    bounds : sequence of float
        After each step.
    per_pass : int
        Steps in a pass over all data.
    monotone : bool
        Whether the bound cannot fall but for rounding; otherwise a fall is as far from the end as a gain.
    changes : sequence of float
        How far each step moved λ, if known: then what is left is also told of gains that are smaller than the noise.
    """
    # A handful of numbers: Python's own are quicker than arrays of them.
    ends = [float(bound) for bound in bounds[::-per_pass][: 2 * LENGTHS[-1] + 2][::-1]]
    if len(ends) < 3:
        return None
    gains = [after - before for before, after in pairwise(ends)]
    falls = [-gain for gain in gains[-RECENT:] if gain < 0]
    fallen = min(max(falls), FALL * max(1.0, abs(ends[-1]))) if monotone and len(falls) >= FALLS else 0.0
    noise = max(ROUNDING * abs(ends[-1]), fallen)
    gains = [max(gain, 0.0) if monotone else abs(gain) for gain in gains]
    if max(gains[-2:]) <= noise:
        moves = [float(change) for change in changes[::-per_pass][: len(gains)][::-1]]
        unseen = _unseen(gains, moves, noise) if len(moves) == len(gains) else None
        return Left(max(gains[-2:]), noise) if unseen is None else Left(unseen, 0.0)
    if len(gains) < 3:
        return None
    # Three gains have no sums of two to compare: they count if what they leave is far below the tolerance.
    safety = SAFETY if len(gains) > 3 else FEW_GAINS
    return Left(safety * max(_rest(gains, noise), _rest(gains[:-1], noise)), noise)


def _unseen(gains: list[float], moves: list[float], noise: float) -> float | None:
    """What is left below the noise, by steps that still shrink; None where they do not."""
    seen = [k for k, gain in enumerate(gains) if gain > noise and moves[k] > 0]
    first = seen[-1] if seen else 0
    later = moves[first:]
    if len(later) < 3 or later[-1] <= 0 or not later[-1] < min(later[:-1]) or not later[-2] < later[0]:
        return None
    # Where no gain was seen, steps are as long as the noise allows; one of no length says nothing.
    scale = max((gains[k] / moves[k] ** 2 for k in seen[-4:]), default=noise / moves[0] ** 2 if moves[0] > 0 else None)
    if scale is None:
        return None
    return SAFETY * _rest([scale * move**2 for move in later], 0.0)


def _rest(gains: list[float], noise: float) -> float:
    """The rest of the series, by the slowest of the rates."""
    remaining = 0.0
    for length in LENGTHS:
        if len(gains) < 2 * length:
            break
        now, before = sum(gains[-length:]), sum(gains[-2 * length : -length])
        if now <= noise:
            continue
        remaining = max(remaining, now * now / (before - now) if now < before else math.inf)
    return remaining


def left_to_gain_noisy(bounds: Sequence[float]) -> Left | None:
    """The same for the bounds of sampled steps, from averages over them; the error of an average is counted as left."""
    if len(bounds) < 3 * AVERAGED:
        return None
    parts = np.asarray(bounds[-3 * AVERAGED :]).reshape(3, AVERAGED)
    before, now = np.abs(np.diff(parts.mean(axis=1)))
    error = float(parts[1:].std(axis=1, ddof=1).max()) / math.sqrt(AVERAGED)
    rest = float(now * now / (before - now)) if now < before else math.inf
    rest = 0.0 if now <= ROUNDING * abs(bounds[-1]) else rest
    return Left(max(rest, float(now), error), 0.0)
