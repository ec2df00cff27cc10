"""The coordinates of a state space in which the bound is highest: a state in, the same state with another basis out.

With x → R x, A → R A R⁻¹, C → C R⁻¹ the data are as likely as before. The rows of R A R⁻¹ are no longer independent; q keeps
their marginal laws, which are all that the terms read, and its entropy can only grow. With S₀, S₁, S₁₀ the sums of
E[x_{t−1} x_{t−1}ᵀ], E[x_t x_tᵀ], E[x_t x_{t−1}ᵀ], means M and covariances V_j of the rows of A,

    W    = S₁ − M S₁₀ᵀ − S₁₀ Mᵀ + M S₀ Mᵀ + diag_j tr(V_j S₀)
    H    = Mᵀ G M + Σ_j G_jj V_j,   G = RᵀR
    f(R) = −½ tr(Q R W Rᵀ) − ½ tr(Λ₁ R S₁₁ Rᵀ) + N m₁ᵀ Λ₁ R x̄₁ + T log|R|              the chain
           − ½ tr(Γ R⁻ᵀ S_C R⁻¹) − rows log|R|                                           the loadings
           − ½ tr(Α R⁻ᵀ H R⁻¹) − D log|R| + ½ Σ_i log|Σ_j R_ij² V_j|                     the dynamics

is the bound but for a constant. Where Γ or Α are relevances, Gamma(a, b) for each column, they follow at once, and −½ Γ_k s_k is
−(a + n/2) log(b + s_k/2).

Luttinen (2013), Fast variational Bayesian linear state-space model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import State
from natgrad.inference.rotation import Rotation, minimise, rotate_product
from natgrad.network.compile.gauge import Relevance, StateSpace

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["best_basis", "rotation_of"]

Floats = npt.NDArray[np.float64]
Stats = tuple[Any, ...]
# Of one rotation: the next sweep changes what it climbs. With 10 more sweeps were needed, with no limit more time.
MOST_STEPS = 20


class Prior(NamedTuple):
    """A zero-mean prior of ``rows`` vectors: a known precision, or one that is learned for each column."""

    rows: int
    precision: Floats
    relevance: Relevance | None

    def cost(self, moment: Floats) -> tuple[float, Floats]:
        """−E[log p] but for a constant, given Σ_rows E[v vᵀ]; and the precision that has the same slope."""
        if self.relevance is None:
            return 0.5 * float(np.sum(self.precision * moment)), self.precision
        shape, rate = self.relevance.shape + 0.5 * self.rows, self.relevance.rate + 0.5 * np.diagonal(moment)
        if not (rate > 0).all():
            return np.inf, self.precision
        return float(shape @ np.log(rate)), np.diag(shape / rate)


class Sums(NamedTuple):
    """What f needs: see the module."""

    residual: Floats  # W
    start: Floats  # S₁₁
    pull: Floats  # N Λ₁ m₁ x̄₁ᵀ
    times: int
    rows: Floats  # M
    spreads: Floats  # V
    loadings: Floats  # S_C


def rotation_of(problem: NetworkProblem) -> Callable[..., Rotation | None] | None:
    """How a network rotates its pairs; None where it has no state spaces, and the rule of inner products is enough."""
    spaces = {(space.chain, space.loadings): space for space in problem.state_spaces}
    return partial(_rotate, problem, spaces) if spaces else None


def _rotate(
    problem: NetworkProblem, spaces: dict[Any, StateSpace], pair: tuple[str, str], state: State, needed: Any = None
) -> Rotation | None:
    if pair not in spaces:
        return rotate_product(problem, pair, state)
    space = spaces[pair]
    priors = [_prior(problem, name, space, state) for name in (space.loadings, space.dynamics)]
    if priors[0] is None or priors[1] is None:
        return None
    sums = _sums(space, state)
    turn = best_basis(space, sums, priors[0], priors[1])
    back: Floats = np.linalg.inv(turn).astype(np.float64)
    chain: tuple[Stats, Stats] = _turned_chain(state.lam[space.chain], state.mu[space.chain], turn, back)
    spreads = _marginals(turn, back, sums.spreads)
    lam, mu = dict(state.lam), dict(state.mu)
    lam[space.chain], mu[space.chain] = chain
    lam[space.dynamics], mu[space.dynamics] = _gaussian(turn @ sums.rows @ back, spreads)
    mean, second = (np.asarray(part) for part in state.mu[space.loadings])
    covariance = back.T @ (second - mean[..., :, None] * mean[..., None, :]) @ back
    lam[space.loadings], mu[space.loadings] = _gaussian(mean @ back, covariance)
    after = state._replace(lam=lam, mu=mu)
    for relevance in space.relevances.values():
        block = problem.blocks[relevance.name]
        after, _ = problem.step_block(block, after, problem.target(block, after), 1.0)
    coordinates = {
        space.chain: lambda part: _turned_lam(part, back),
        space.dynamics: lambda part: (turn @ part[0] @ back,),
        space.loadings: lambda part: (part[0] @ back,),
    }
    return Rotation(after, {}, coordinates=coordinates)


def best_basis(space: StateSpace, sums: Sums, loadings: Prior, dynamics: Prior) -> Floats:
    """R that maximises f, from where we are; never worse than the identity."""
    size = len(space.noise)

    def cost(flat: Floats) -> tuple[float, Floats]:
        value, slope = _cost(space, sums, loadings, dynamics, flat.reshape(size, size))
        return value, slope.reshape(-1)

    return minimise(cost, np.eye(size).reshape(-1), MOST_STEPS).reshape(size, size)


def _cost(space: StateSpace, sums: Sums, loadings: Prior, dynamics: Prior, turn: Floats) -> tuple[float, Floats]:
    """−f(R) and its slope; infinite where R has no inverse."""
    sign, log_det = np.linalg.slogdet(turn)
    if sign == 0 or not np.isfinite(log_det):
        return np.inf, np.zeros_like(turn)
    back = np.linalg.inv(turn)
    noisy = space.noise[:, None] * (turn @ sums.residual) + space.initial_precision @ turn @ sums.start
    value = 0.5 * float(np.sum(noisy * turn)) - float(np.sum(sums.pull * turn))
    slope = noisy - sums.pull
    size = len(turn)
    excess = sums.times - loadings.rows - size
    # Loadings.
    seen = back.T @ sums.loadings @ back
    part, precision = loadings.cost(seen)
    value, slope = value + part, slope - seen @ precision @ back.T
    # Dynamics.
    gram = turn.T @ turn
    inner = sums.rows.T @ gram @ sums.rows + np.tensordot(np.diagonal(gram), sums.spreads, 1)
    moved = back.T @ inner @ back
    part, precision = dynamics.cost(moved)
    weight = back @ precision @ back.T
    own = sums.rows @ weight @ sums.rows.T + np.diag(np.einsum("jab,ba->j", sums.spreads, weight))
    value, slope = value + part, slope - moved @ precision @ back.T + turn @ own
    mixed = np.einsum("ij,jab->iab", turn**2, sums.spreads)
    signs, log_dets = np.linalg.slogdet(mixed)
    if not (signs > 0).all():
        return np.inf, np.zeros_like(turn)
    value -= 0.5 * float(log_dets.sum())
    slope = slope - turn * np.einsum("iab,jba->ij", np.linalg.inv(mixed), sums.spreads)
    return value - excess * log_det, slope - excess * back.T


def _sums(space: StateSpace, state: State) -> Sums:
    x, xx, lagged = (np.asarray(part, dtype=np.float64) for part in state.mu[space.chain])
    mean, second = (np.asarray(part, dtype=np.float64) for part in state.mu[space.dynamics])
    size = x.shape[-1]
    spreads = second - mean[:, :, None] * mean[:, None, :]
    inside = space.inside
    first = xx[..., ~inside, :, :].reshape(-1, size, size)
    later = xx[..., inside, :, :].reshape(-1, size, size).sum(0)
    before = xx[..., np.flatnonzero(inside) - 1, :, :].reshape(-1, size, size).sum(0)
    pairs = lagged.reshape(-1, size, size).sum(0)
    cross = mean @ pairs.T
    residual = later - cross - cross.T + mean @ before @ mean.T
    residual += np.diag(np.einsum("jab,ba->j", spreads, before))
    pull = np.outer(space.initial_precision @ space.initial_mean, x[..., ~inside, :].reshape(-1, size).sum(0))
    loadings = np.asarray(state.mu[space.loadings][1], dtype=np.float64).reshape(-1, size, size).sum(0)
    return Sums(residual, first.sum(0), pull, x.size // size, mean, spreads, loadings)


def _prior(problem: NetworkProblem, name: str, space: StateSpace, state: State) -> Prior | None:
    """The prior of loadings or dynamics; None where it has a mean, or differs from row to row."""
    block = problem.blocks[name]
    linear, minus_half = (np.asarray(part) for part in problem.target(block, state, (name,)))
    size = linear.shape[-1]
    precisions = (-2.0 * minus_half).reshape(-1, size, size)
    if linear.any() or not np.allclose(precisions, precisions[0]):
        return None
    return Prior(len(precisions), precisions[0], space.relevances.get(name))


def _marginals(turn: Floats, back: Floats, spreads: Floats) -> Floats:
    """Covariances of the rows of R A R⁻¹."""
    return np.asarray(back.T @ np.einsum("ij,jab->iab", turn**2, spreads) @ back)


def _gaussian(mean: Floats, covariance: Floats) -> tuple[Stats, Stats]:
    """λ and μ of vectors with these means and covariances."""
    covariance = 0.5 * (covariance + np.swapaxes(covariance, -1, -2))
    precision = np.linalg.inv(covariance)
    precision = 0.5 * (precision + np.swapaxes(precision, -1, -2))
    lam = (precision @ mean[..., None])[..., 0], -0.5 * precision
    return lam, (mean, covariance + mean[..., :, None] * mean[..., None, :])


def _turned_chain(lam: Stats, mu: Stats, turn: Floats, back: Floats) -> tuple[Stats, Stats]:
    x, xx, lagged = (np.asarray(part) for part in mu)
    return _turned_lam(lam, back), (x @ turn.T, turn @ xx @ turn.T, turn @ lagged @ turn.T)


def _turned_lam(lam: Stats, back: Floats) -> Stats:
    """Natural parameters of R x: its quadratic form is the same at the same path."""
    h, J, C = (np.asarray(part) for part in lam)
    return h @ back, back.T @ J @ back, back.T @ C @ back
