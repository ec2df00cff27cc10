"""How much of a prediction is that of neighbours: means and variances of two processes for rows that judge in; a weight out.

    m = w m_N + (1 − w) m_S,   v = w v_N + (1 − w) v_S + w (1 − w) (m_N − m_S)²       N: neighbours, S: the sparse process

are the moments of a mixture of both, with weights that all rows share: where the two differ, neither is certain. Neighbours know
what is near, the sparse process what all rows say together, and their errors differ. w is the one that expects best the rows
that judge, each without itself, as in stacking (Yao, Vehtari, Simpson and Gelman, 2018).

Classes are predicted by the mixture itself, p = w p_N + (1 − w) p_S. Functions of classes have no scale in common: where all are
certain, one process may say 5 and another 50, and one number added to all functions of a softmax says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["Moments", "Weighed", "mixed", "pooled", "weighed", "weighed_logs"]

Floats = npt.NDArray[np.float64]
T = TypeVar("T", float, Floats)
# What is tried.
WEIGHTS = np.linspace(0.0, 1.0, 21)
# Nats a row that two processes must expect better than neighbours alone, whose predictions need no other.
MARGIN = 0.002


class Moments(NamedTuple):
    """Means and variances of f [B, F]."""

    mean: Floats
    var: Floats


class Weighed(NamedTuple):
    """The weight of neighbours, and what rows [B] gain beside the sparse process, in nats."""

    weight: float
    gains: Floats

    @property
    def gain(self) -> float:
        """Of a row, on average."""
        return float(self.gains.mean())

    @property
    def error(self) -> float:
        """The standard error of that."""
        return float(self.gains.std() / np.sqrt(len(self.gains)))


def pooled(near: Moments, sparse: Moments, weight: float) -> Moments:
    """Moments of the mixture of two."""
    apart = weight * (1.0 - weight) * (near.mean - sparse.mean) ** 2
    return Moments(mixed(near.mean, sparse.mean, weight), mixed(near.var, sparse.var, weight) + apart)


def mixed(near: T, sparse: T, weight: float) -> T:
    """The mean of two, such as variances of noise."""
    return weight * near + (1.0 - weight) * sparse


def weighed(
    log_densities: Callable[[Moments, float], Floats], near: Moments, sparse: Moments, any_weight: bool
) -> Weighed:
    """The best weight for rows whose log densities [B] under moments, and a weight for the noise, can be asked for.

    ``any_weight``: else neighbours alone predict.
    """
    return _best(lambda w: log_densities(pooled(near, sparse, w), w), any_weight)


def weighed_logs(near: Floats, sparse: Floats, any_weight: bool) -> Weighed:
    """The best weight for rows that are expected by a mixture itself; log densities [C, B] of C observations of each."""

    def mixture(w: float) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray(np.logaddexp(np.log(w) + near, np.log1p(-w) + sparse).sum(0))

    return _best(mixture, any_weight)


def _best(log_densities: Callable[[float], Floats], any_weight: bool) -> Weighed:
    without = log_densities(0.0)
    alone = Weighed(1.0, log_densities(1.0) - without)
    if not any_weight:
        return alone
    between = [Weighed(w, log_densities(w) - without) for w in map(float, WEIGHTS[1:-1])]
    best = max(between, key=lambda one: one.gain)
    return best if best.gain > alone.gain + MARGIN else alone
