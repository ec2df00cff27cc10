"""Inputs to the transitions: a known category of every time in; the chain that it makes out.

    x_t ~ Cat(A^{u_t}_{x_{t−1}}),   A^c_k ~ Dirichlet,   u_t known

Every category has transitions of its own, a priori alike and independent. A state becomes one state of a longer chain for each
category, (k, u_t), which share its emission; at a time only those of its own category are possible. Forward–backward stays
exact, and what the longer chain's pairs tell A^c is their sum over the category of the time before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.models.hmm.labels import categories_in

__all__ = ["Ahead", "InputChain", "coded", "walked"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Stats = tuple[Any, ...]


class InputChain:
    """States of the longer chain are numbered state by state, with a category each."""

    part = None  # of no block of its own
    durations = None

    def __init__(self, n_states: int, n_inputs: int) -> None:
        self.n_states, self.size = n_states, n_inputs
        self.states: Ints = np.repeat(np.arange(n_states), n_inputs)
        self.inputs: Ints = np.tile(np.arange(n_inputs), n_states)

    def weights(self, mu: Mapping[str, Stats]) -> tuple[Floats, Floats]:
        """Exp of log weights: first states [S] and transitions [S, S], from statistics of π [K] and A [C, K, K]."""
        first, steps = np.exp(mu["initial"][0]), np.exp(mu["transition"][0])
        wide = np.broadcast_to(steps.transpose(1, 2, 0)[:, None], (self.n_states, self.size, self.n_states, self.size))
        n = len(self.states)
        # A copy: of one input it would be a view that cannot be written to, for which kernels would be compiled anew.
        return np.repeat(first, self.size), wide.reshape(n, n).copy()

    def messages(self, heads: Floats, pairs: Floats) -> dict[str, Stats]:
        """What expected counts of the chain tell π and A."""
        shape = (self.n_states, self.size)
        told = pairs.reshape(*shape, *shape).sum(1).transpose(2, 0, 1)
        return {"initial": (heads.reshape(shape).sum(1),), "transition": (told,)}

    def guessed(self, heads: Floats, pairs: Floats) -> dict[str, Stats]:
        """The same from counts of states, as if inputs did not matter."""
        return {"initial": (heads,), "transition": (np.repeat(pairs[None] / self.size, self.size, axis=0),)}

    def folded(self, q: Floats) -> Floats:
        """Probabilities of the chain's states [..., S] as those of the states [..., K]."""
        return np.asarray(q.reshape(*q.shape[:-1], self.n_states, self.size).sum(-1))


class Ahead(NamedTuple):
    """Probabilities of the next state [K], and the transitions of the times after it [n − 1, K, K]."""

    first: Floats
    steps: Floats


def walked(ahead: Ahead, uniforms: Floats) -> Ints:
    """Paths of states [..., n] that begin and go on so."""
    rows = np.atleast_2d(uniforms)
    out, last = np.empty(rows.shape, np.int64), len(ahead.first) - 1
    for t in range(rows.shape[1]):
        chances = np.cumsum(ahead.first if t == 0 else ahead.steps[t - 1][out[:, t - 1]], axis=-1)
        out[:, t] = np.minimum((rows[:, t, None] >= chances).sum(-1), last)
    return out if np.ndim(uniforms) == 2 else out[0]


def coded(values: Any, categories: Any, name: str) -> tuple[Floats, Any]:
    """Inputs as numbers of their categories, which are those that occur where none are known yet; none may be missing."""
    given = np.asarray(values).reshape(-1)
    missing = [value is None or value != value for value in given.tolist()]
    if any(missing):
        place = missing.index(True)
        raise ValueError(
            f"{name}[{place}] = {given.tolist()[place]!r}: an input is known at every time; give missing ones a category"
        )
    known = categories_in(given) if categories is None else categories
    numbers = {key: place for place, key in enumerate(known.tolist())}
    codes = np.array([numbers.get(key, -1) for key in given.tolist()], dtype=np.float64)
    if (codes < 0).any():
        place = int(np.flatnonzero(codes < 0)[0])
        shown = ", ".join(map(repr, known.tolist()[:5]))
        raise ValueError(
            f"{name}[{place}] = {given.tolist()[place]!r} is none of the {len(known)} inputs of the fit: {shown}, …"
        )
    return codes, known
