"""Declare how the chain begins and moves on: `Transitions`, with the concentrations of its Dirichlet priors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from natgrad.models.hmm.expansions import Durations
from natgrad.models.hmm.kinds import as_tuples
from natgrad.posterior.files.container import register
from natgrad.validation import real_number

__all__ = ["FORBIDDEN", "Transitions", "stationary", "walk", "walks"]

Floats = npt.NDArray[np.float64]
# The concentration of what is forbidden: E log is −1e8, and its exponential is 0.
FORBIDDEN = 1e-8


@final
@dataclass(frozen=True)
class Transitions:
    """Where a hidden Markov model begins and where its states lead: the prior of π and of the rows of A.

    Parameters
    ----------
    prior : float or array [K, K]
        Concentration of each row of transitions; 0 forbids.
    initial : float or array [K]
        Concentration of the first states; 0 forbids.
    sticky : float
        Added to the diagonal of ``prior``: states last longer.
    topology : "ergodic" or "left-to-right"
        Left to right begins in state 0 and only stays, or goes on to the next state.
    durations : `NegativeBinomial` or `Explicit`, optional
        How long states last, in place of the geometric law of a Markov chain (semi-Markov). Rows of transitions then say where a
        state leads to when it ends, and ``posterior_["duration"]`` how long it lasts. Of `HMM`.
    inputs : name or number of a column, optional
        A column of X that is no observation but decides which transitions lead to its row: each of its categories has a matrix
        of its own. It is known at every time. Of `HMM`.

    Examples
    --------
    >>> Transitions(sticky=5.0).concentrations(2)[1].tolist()
    [[6.0, 1.0], [1.0, 6.0]]
    """

    prior: Any = 1.0
    initial: Any = 1.0
    sticky: float = 0.0
    topology: Literal["ergodic", "left-to-right"] = "ergodic"
    durations: Durations | None = None
    inputs: int | str | None = None

    def __post_init__(self) -> None:
        for name in ("prior", "initial"):
            object.__setattr__(self, name, as_tuples(getattr(self, name)))
        if not 0 <= real_number(self.sticky, "sticky") < np.inf:
            raise ValueError(f"sticky must be ≥ 0, got {self.sticky!r}: it is added to the diagonal of prior")
        if self.topology not in ("ergodic", "left-to-right"):
            raise ValueError(f'topology must be "ergodic" or "left-to-right", got {self.topology!r}')
        if self.durations is None:
            return
        if not isinstance(self.durations, Durations):
            raise TypeError(f"durations must be NegativeBinomial(…) or Explicit(…), got {self.durations!r}")
        if self.inputs is not None:
            raise ValueError("inputs decide where states lead to at every time: they exclude durations")
        for what, refused in (('topology="left-to-right"', self.topology != "ergodic"), ("sticky", self.sticky != 0)):
            if refused:
                raise ValueError(f"durations say how long states last before another one comes: they exclude {what}")

    def concentrations(self, n_states: int, shared: bool = False) -> tuple[Floats, Floats]:
        """Concentrations of π [K] and of the rows of A [K, K]; ``shared``: the numbers are those of a row in all."""
        initial, rows = self.initial, self.prior
        if shared:
            initial, rows = (real_number(p, "Transitions: prior and initial") / n_states for p in (initial, rows))
        initial = _concentrations(initial, (n_states,), "initial")
        rows = _concentrations(rows, (n_states, n_states), "prior") + float(self.sticky) * np.eye(n_states)
        if self.topology == "left-to-right":
            step = np.subtract.outer(np.arange(n_states), np.arange(n_states))
            rows = np.where((step == 0) | (step == -1), rows, 0.0)
            initial = np.where(np.arange(n_states) == 0, initial, 0.0)
        if not initial.max() > 0:
            raise ValueError(f"Transitions: initial forbids every first state: {self.initial!r}")
        if (dead := np.flatnonzero(~(rows.max(1) > 0))).size:
            raise ValueError(f"Transitions: prior[{dead[0]}] forbids every way out of state {dead[0]}: let one be > 0")
        return np.maximum(initial, FORBIDDEN), np.maximum(rows, FORBIDDEN)


register(Transitions, "hmm.Transitions")


def _concentrations(value: Any, shape: tuple[int, ...], what: str) -> Floats:
    """Numbers ≥ 0 at a shape; 0 forbids."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"Transitions: {what} must hold numbers ≥ 0, got {value!r}") from None
    if array.shape not in ((), shape) or not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError(f"Transitions: {what} must be ≥ 0, a number or an array {list(shape)}, got {value!r}")
    return np.broadcast_to(array, shape).copy()


def stationary(transition: Floats) -> Floats:
    """π with π A = π and sum 1; the one of least squares where several are.

    Examples
    --------
    >>> stationary(np.array([[0.9, 0.1], [0.3, 0.7]])).round(6).tolist()
    [0.75, 0.25]
    """
    n_states = len(transition)
    rows = np.vstack([np.eye(n_states) - transition.T, np.ones(n_states)])
    wanted = np.append(np.zeros(n_states), 1.0)
    shares = np.maximum(np.linalg.lstsq(rows, wanted, rcond=None)[0], 1e-12)
    return np.asarray(shares / shares.sum())


def walk(rows: Floats, uniforms: Floats) -> npt.NDArray[np.int64]:
    """A path of states; ``rows`` are cumulative probabilities of the first one, and of the next after each."""
    states, here = np.empty(len(uniforms), np.int64), -1
    for t, u in enumerate(uniforms):
        here = states[t] = min(int(np.searchsorted(rows[here + 1], u, side="right")), rows.shape[1] - 1)
    return states


def walks(rows: Floats, uniforms: Floats) -> npt.NDArray[np.int64]:
    """Several paths [n, T] at once, as `walk` makes one.

    Examples
    --------
    >>> rows = np.cumsum([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]], axis=1)
    >>> u = np.random.default_rng(0).random((3, 7))
    >>> bool((walks(rows, u) == [walk(rows, one) for one in u]).all())
    True
    """
    states, here = np.empty(uniforms.shape, np.int64), np.full(len(uniforms), -1)
    for t in range(uniforms.shape[1]):
        here = states[:, t] = np.minimum((uniforms[:, t, None] >= rows[here + 1]).sum(1), rows.shape[1] - 1)
    return states
