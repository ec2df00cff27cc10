"""Make a longer chain of the states, which share emissions: by durations (`NegativeBinomial`, `Explicit`) or known inputs.

A state k becomes several states of a longer chain (semi-Markov by expansion); forward–backward stays exact. Weights of the longer
chain are products of probabilities, so their expected logarithms are sums of E log, and the messages to π, A and durations are
sums of its expected counts.

    NegativeBinomial(r)     stages (k, 0) … (k, r − 1); each is left with probability p_k ~ Beta, so a stay lasts r times at
                            least, and the number beyond is negative binomial. r = 1 is the geometric law of every Markov chain
    Explicit(D)             (k, i): i more times in k. A stay lasts d ≤ D times with probability θ_kd ~ Dirichlet
    inputs u_t, known       (k, u_t): x_t ~ Cat(A^{u_t}_{x_{t−1}}),   A^c_k ~ Dirichlet; other categories are impossible

With durations, transitions of the model lead from one state to another, never back to itself. Every category of the inputs has
transitions of its own, a priori alike and independent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from natgrad.families import Beta, Dirichlet
from natgrad.models.hmm.kinds import categories_in, pair_of_positives
from natgrad.models.hmm.tracks import Part
from natgrad.posterior.files.container import register
from natgrad.validation import real_number, whole_number

__all__ = ["Ahead", "Chain", "Durations", "Explicit", "InputChain", "NegativeBinomial", "coded", "walked"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Stats = tuple[Any, ...]
Moments = Mapping[str, Stats]


@dataclass(frozen=True)
class Durations(ABC):
    """What kinds of durations share."""

    @property
    @abstractmethod
    def size(self) -> int:
        """States of the chain for each state."""

    @abstractmethod
    def part(self, n_states: int) -> Part:
        """The block of their parameters."""

    @abstractmethod
    def first(self, log_initial: Floats, log: Stats) -> Floats:
        """Log weights of the first states of the chain [K, m]."""

    @abstractmethod
    def steps(self, log_transition: Floats, log: Stats) -> Floats:
        """Log weights of its transitions [K, m, K, m]."""

    @abstractmethod
    def told(self, heads: Floats, pairs: Floats) -> tuple[Floats, Stats]:
        """What first states [K, m] and pairs [K, m, K, m] of the chain tell transitions [K, K], and durations."""

    @abstractmethod
    def guessed(self, times: Floats, runs: Floats) -> Stats:
        """What states with so many times in so many runs tell durations, about."""

    @abstractmethod
    def mean(self, lam: Stats) -> Floats:
        """Expected durations [K], at the mean of q."""

    @property
    @abstractmethod
    def n_free(self) -> int:
        """Free numbers for each state."""


@final
@dataclass(frozen=True)
class NegativeBinomial(Durations):
    """Stays of at least ``r`` times, the number beyond them negative binomial: r stages with one probability to go on.

    Parameters
    ----------
    r : int
        Stages: the more, the less do durations vary about their mean. 1 is the geometric law of a Markov chain.
    prior : (a, b)
        Of the Beta prior of the probability to leave a stage.
    """

    r: int = 2
    prior: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        whole_number(self.r, "r")
        object.__setattr__(self, "prior", pair_of_positives(self.prior, "prior"))

    @property
    def size(self) -> int:
        return int(self.r)

    def part(self, n_states: int) -> Part:
        prior = tuple(np.full(1, float(p)) for p in Beta().natural(a=self.prior[0], b=self.prior[1]))
        return Part(Beta(), ("state",), (n_states,), prior, ((0,), (0,)))

    def first(self, log_initial: Floats, log: Stats) -> Floats:
        out = np.full((len(log_initial), self.size), -np.inf)
        out[:, 0] = log_initial
        return out

    def steps(self, log_transition: Floats, log: Stats) -> Floats:
        n, m = len(log_transition), self.size
        out = np.full((n, m, n, m), -np.inf)
        own = np.arange(n)
        for stage in range(m):
            out[own, stage, own, stage] = log[1]
            if stage + 1 < m:
                out[own, stage, own, stage + 1] = log[0]
        away = log_transition + log[0][:, None]
        off = ~np.eye(n, dtype=bool)
        out[:, m - 1, :, 0] = np.where(off, away, out[:, m - 1, :, 0])
        return out

    def told(self, heads: Floats, pairs: Floats) -> tuple[Floats, Stats]:
        n, m = heads.shape
        own = np.arange(n)
        stays = sum(pairs[own, stage, own, stage] for stage in range(m))
        moves = np.where(np.eye(n, dtype=bool), 0.0, pairs[:, m - 1, :, 0])
        on = sum((pairs[own, stage, own, stage + 1] for stage in range(m - 1)), np.zeros(n))
        return moves, (on + moves.sum(1), np.asarray(stays))

    def guessed(self, times: Floats, runs: Floats) -> Stats:
        left = np.minimum(runs * self.size, 0.9 * times)
        return left, times - left

    def mean(self, lam: Stats) -> Floats:
        return np.asarray(self.size / Beta().mean(lam))

    @property
    def n_free(self) -> int:
        return 1


@final
@dataclass(frozen=True)
class Explicit(Durations):
    """Stays of 1 … ``longest`` times with any probabilities. A run takes (K · longest)² a time: for short stays.

    Parameters
    ----------
    longest : int, D
        No stay is longer.
    prior : float
        Concentration of each duration.
    """

    longest: int = 10
    prior: float = 1.0

    def __post_init__(self) -> None:
        whole_number(self.longest, "longest")
        if not 0 < real_number(self.prior, "prior") < np.inf:
            raise ValueError(f"prior must be > 0, got {self.prior!r}")

    @property
    def size(self) -> int:
        return int(self.longest)

    def part(self, n_states: int) -> Part:
        prior = Dirichlet().natural(concentration=np.full((1, self.size), float(self.prior)))
        return Part(Dirichlet(), ("state",), (n_states,), tuple(np.asarray(p) for p in prior), ((0,),))

    def first(self, log_initial: Floats, log: Stats) -> Floats:
        return np.asarray(log_initial[:, None] + log[0])

    def steps(self, log_transition: Floats, log: Stats) -> Floats:
        n, m = len(log_transition), self.size
        out = np.full((n, m, n, m), -np.inf)
        own = np.arange(n)
        for left in range(1, m):
            out[own, left, own, left - 1] = 0.0
        away = log_transition[:, :, None] + log[0]
        off = ~np.eye(n, dtype=bool)
        out[:, 0] = np.where(off[:, :, None], away, out[:, 0])
        return out

    def told(self, heads: Floats, pairs: Floats) -> tuple[Floats, Stats]:
        off = ~np.eye(len(heads), dtype=bool)
        begun = np.where(off[:, :, None], pairs[:, 0], 0.0)
        return begun.sum(2), (heads + begun.sum(0),)

    def guessed(self, times: Floats, runs: Floats) -> Stats:
        stay = np.clip(1.0 - runs / np.maximum(times, 1e-9), 0.05, 0.99)[:, None]
        shares = stay ** np.arange(self.size)
        return (runs[:, None] * shares / shares.sum(1, keepdims=True),)

    def mean(self, lam: Stats) -> Floats:
        return np.asarray(Dirichlet().mean(lam) @ np.arange(1.0, self.size + 1))

    @property
    def n_free(self) -> int:
        return self.size - 1


class Chain:
    """The longer chain of durations; states of the chain are numbered state by state."""

    inputs = None  # which an `InputChain` has

    def __init__(self, durations: Durations, n_states: int) -> None:
        self.durations, self.n_states, self.size = durations, n_states, durations.size
        self.states: Ints = np.repeat(np.arange(n_states), self.size)
        self.part = durations.part(n_states)

    def weights(self, mu: Moments) -> tuple[Floats, Floats]:
        """Exp of log weights: first states [S] and transitions [S, S] of the chain, from statistics of π, A and durations."""
        log = mu["duration"]
        first = self.durations.first(mu["initial"][0], log).ravel()
        steps = self.durations.steps(mu["transition"][0], log).reshape(len(first), len(first))
        return np.exp(first), np.exp(steps)

    def messages(self, heads: Floats, pairs: Floats) -> dict[str, Stats]:
        """What expected counts of the chain tell π, A and durations."""
        shape = (self.n_states, self.size)
        heads, pairs = heads.reshape(shape), pairs.reshape(*shape, *shape)
        transition, durations = self.durations.told(heads, pairs)
        return {"initial": (heads.sum(1),), "transition": (transition,), "duration": durations}

    def guessed(self, heads: Floats, pairs: Floats) -> dict[str, Stats]:
        """The same from counts of states, as if they were known: diagonal pairs are stays."""
        moves = np.where(np.eye(self.n_states, dtype=bool), 0.0, pairs)
        runs = np.maximum(heads + moves.sum(0), 1e-3)
        times = heads + pairs.sum(0)
        return {"initial": (heads,), "transition": (moves,), "duration": self.durations.guessed(times, runs)}

    def folded(self, q: Floats) -> Floats:
        """Probabilities of the chain's states [..., S] as those of the states [..., K]."""
        return np.asarray(q.reshape(*q.shape[:-1], self.n_states, self.size).sum(-1))


register(NegativeBinomial, "hmm.NegativeBinomial")
register(Explicit, "hmm.Explicit")


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
