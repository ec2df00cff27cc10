"""What a user says of first states and transitions in; concentrations of their Dirichlet priors, checked, out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.validation import real_number

__all__ = ["FORBIDDEN", "chain_priors", "stationary", "walk", "walks"]

Floats = npt.NDArray[np.float64]
# The concentration of what is forbidden: E log is −1e8, and its exponential is 0.
FORBIDDEN = 1e-8


def chain_priors(
    initial_prior: Any, transition_prior: Any, sticky: Any, topology: Any, n_states: int
) -> tuple[Floats, Floats]:
    """Concentrations of π [K] and of the rows of A [K, K]."""
    if not real_number(sticky, "sticky") >= 0:
        raise ValueError(f"sticky must be ≥ 0, got {sticky!r}: it is added to the diagonal of transition_prior")
    if topology not in ("ergodic", "left-to-right"):
        raise ValueError(f'topology must be "ergodic" or "left-to-right", got {topology!r}')
    initial = _concentrations(initial_prior, (n_states,), "initial_prior")
    rows = _concentrations(transition_prior, (n_states, n_states), "transition_prior") + float(sticky) * np.eye(
        n_states
    )
    if topology == "left-to-right":
        step = np.subtract.outer(np.arange(n_states), np.arange(n_states))
        rows = np.where((step == 0) | (step == -1), rows, 0.0)
        initial = np.where(np.arange(n_states) == 0, initial, 0.0)
    if not initial.max() > 0:
        raise ValueError(f"initial_prior forbids every first state: {initial_prior!r}")
    if (dead := np.flatnonzero(~(rows.max(1) > 0))).size:
        raise ValueError(
            f"transition_prior[{dead[0]}] forbids every way out of state {dead[0]}: leave something > 0 in it"
        )
    return np.maximum(initial, FORBIDDEN), np.maximum(rows, FORBIDDEN)


def _concentrations(value: Any, shape: tuple[int, ...], what: str) -> Floats:
    """Numbers ≥ 0 at a shape; 0 forbids."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{what} must hold numbers ≥ 0, got {value!r}") from None
    if array.shape not in ((), shape) or not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError(f"{what} must be ≥ 0, a number or an array {list(shape)}, got {value!r}")
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
