"""Paths of states drawn given the parameters, with what they tell these: the local part of Gibbs sampling.

Forward filtering, backward sampling (`natgrad.kernels.hmm.paths`): a whole path is one draw, however long it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.data.io.npy import RowWriter
from natgrad.families import Categorical
from natgrad.inference.problem import Block, State
from natgrad.inference.sampler import GroupDraw, alike, classes_of
from natgrad.kernels.hmm.paths import draw_paths
from natgrad.kernels.hmm.plain import log_weights
from natgrad.models.hmm.forward_backward import Counts, Weights, count, whole_sequences
from natgrad.models.hmm.tracks import Tracks, reordered

if TYPE_CHECKING:
    from natgrad.models.hmm.problem import SequenceProblem

__all__ = ["PathSampler", "drawn_paths"]

Floats = npt.NDArray[np.float64]
Stats = tuple[Any, ...]
Array = npt.NDArray[Any]
# Compiled functions, and their plain twins, carry no types.
_draw_paths: Any = draw_paths
_log_weights: Any = log_weights
# Times whose statistics are made at once.
PIECE = 100_000


class PathSampler:
    """The `GroupSampler` of a hidden Markov model."""

    def __init__(self, problem: SequenceProblem) -> None:
        self.problem, self.n_labels = problem, problem.model.n_states
        self.local_blocks = {"states": Block("states", Categorical(), ("time",), (problem.data.n_times,))}
        labels = problem.data.labels
        self.known = np.unique(labels[labels >= 0]).astype(np.int64)
        self.classes = _classes(problem, self.known)
        self._starts = np.zeros(problem.data.n_times, dtype=bool)
        self._starts[problem.data.ends[:-1][problem.data.lengths > 0]] = True

    def draw(self, state: State, rng: np.random.Generator, chances: bool) -> GroupDraw:
        """A path of each sequence."""
        problem, n_times = self.problem, self.problem.data.n_times
        weights = problem.weights(state)
        logs = _potentials(weights, n_times)
        if problem.model.chain is None:
            initial, transition = (np.ascontiguousarray(state.mu[n][0])[None] for n in ("initial", "transition"))
        else:
            initial, transition = _logs_of(weights)
        z = np.empty((1, n_times), dtype=np.int64)
        _draw_paths(logs, initial, transition, self._starts, rng.random((1, n_times)), z)
        states = z[0] if problem.model.chain is None else problem.model.chain.states[z[0]]
        return GroupDraw(problem._messages(self._counts(z[0], states, weights, state, rng)), {"states": states}, {})

    def _counts(self, z: Array, states: Array, weights: Any, state: State, rng: np.random.Generator) -> Counts:
        """First states, pairs and sums of statistics along paths of the chain, and of the states that it stands for."""
        n, problem = len(weights.initial), self.problem
        heads = np.bincount(z[self._starts], minlength=n).astype(np.float64)
        inner = ~self._starts[1:]
        pairs = np.bincount(z[:-1][inner] * n + z[1:][inner], minlength=n * n).reshape(n, n).astype(np.float64)
        emission = problem.model.emission
        if isinstance(emission, Tracks):
            told = emission.drawn(problem.data.values, state.mu, states, rng)
            return Counts(heads, pairs, emission.flat(told), 0.0)
        if len(problem.data.codes):
            codes = problem.data.codes.astype(np.int64)
            sums = np.bincount(codes * n + z, minlength=problem.n_sums * n).reshape(-1, n).astype(np.float64)
            return Counts(heads, pairs, sums, 0.0)
        sums = np.zeros((problem.n_sums, n))
        for begin in range(0, len(z), PIECE):
            here = z[begin : begin + PIECE]
            statistics = _log_weights(*weights.logs, np.arange(begin, begin + len(here))[:, None])[0][:, 0]
            sums += statistics.T @ np.eye(n)[here]
        return Counts(heads, pairs, sums, 0.0)

    def probabilities(self, state: State, most: int) -> dict[str, Floats]:
        """q(x_t) of the first times."""
        data = self.problem.data
        part = data.cut(0, min(most, data.n_times))
        problem = type(self.problem)(part, self.problem.model, n_jobs=self.problem.n_jobs)
        weights = problem.weights(state)
        windows = whole_sequences(weights, part, None, problem.n_jobs)
        with RowWriter(None, (part.n_times, len(weights.initial)), np.float64) as rows:
            count(weights, windows, problem.n_sums, problem.n_jobs, rows)
        chain = problem.model.chain
        return {"states": rows.result if chain is None else chain.folded(rows.result)}

    def renumbered_message(self, name: str, message: Stats, order: Array) -> Stats:
        """What is told parameters with the states in another order."""
        if name in self.problem.emitted:
            return reordered(self.problem.emitted[name], message, order)
        if name == "transition":  # of every input, if there are some
            return tuple(np.asarray(part[..., order, :][..., order]) for part in message)
        return tuple(np.asarray(part[order]) for part in message)


def drawn_paths(problem: SequenceProblem, weights: Weights, rng: np.random.Generator, n: int) -> Array:
    """``n`` paths of all sequences [n, T] given weights of the chain and of the emissions."""
    n_times = problem.data.n_times
    starts = np.zeros(n_times, dtype=bool)
    starts[problem.data.ends[:-1][problem.data.lengths > 0]] = True
    out = np.empty((n, n_times), dtype=np.int64)
    logs = _potentials(weights, n_times)
    _draw_paths(logs, *_logs_of(weights), starts, rng.random((n, n_times)), out)
    return out if problem.model.chain is None else problem.model.chain.states[out]


def _logs_of(weights: Weights) -> tuple[Floats, Floats]:
    with np.errstate(divide="ignore"):  # what is forbidden
        return np.log(weights.initial)[None], np.log(weights.transition)[None]


def _potentials(weights: Weights, n_times: int) -> Floats:
    """Log weights of the emissions [1, T, K]."""
    logs = np.empty((1, n_times, len(weights.initial)))
    for begin in range(0, n_times, PIECE):
        places = np.arange(begin, min(begin + PIECE, n_times))[:, None]
        logs[0, begin : begin + PIECE] = _log_weights(*weights.logs, places)[1][:, 0]
    return logs


def _classes(problem: SequenceProblem, known: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """States that may change places: whose priors stay as they are, and that are not known at any time."""
    model, apart = problem.model, np.zeros(problem.model.n_states, dtype=np.int64)
    apart[known] = 1 + np.arange(len(known))
    chain = None if model.chain is None else model.chain.part
    parts = [*problem.emitted.values(), *([] if chain is None else [chain])]
    priors = [pair for part in parts for pair in zip(part.prior, part.axes, strict=True)]
    own = [alike(np.asarray(prior), axes[:1]) for prior, axes in priors if axes]
    return classes_of(len(apart), [apart, alike(model.initial, [0]), alike(model.transition, [-2, -1]), *own])
