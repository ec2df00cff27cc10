"""A sparse Gaussian process as the engine's Problem: one block, the inducing variables; the groups are rows of data.

    f ~ GP(0, k),   u = f(Z) = L v,   v ~ N(0, I),   K_mm = L Lᵀ,   a_n = L⁻¹ k_n
    q(f_n) = N(a_nᵀ m, k_nn − a_nᵀ a_n + a_nᵀ S a_n)                       with q(v) = N(m, S)
    L₃ = Σ_n E_q[log p(y_n | f_n)] − KL(q(v) ‖ N(0, I))

The block is v: its prior stays N(0, I) when the kernel moves. A row says (w_n r_n a_n, −½ w_n a_n a_nᵀ) with w_n = −curvature,
cut at zero, and w_n r_n = slope + w_n a_nᵀm; for Gaussian noise w = 1/σ² and r = y, whatever q is, so that a step of length
one on all rows is the optimum. Several outputs have one kernel and one Z, and a q(v) each; outputs that go together read sums of
these functions, and where some are missing there is one q(v) of all functions (`natgrad.models.gp.outputs`).

Hensman, Fusi and Lawrence (2013), equations 4–6; Titsias (2009) for the collapsed bound; Hensman et al. (2015) for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas

from natgrad.covariance import Covariance, Inducing, factorised
from natgrad.data.rows import Rows
from natgrad.families import MultivariateNormal
from natgrad.inference.problem import Block, GroupProblem, GroupResult, Hyper, State, SweepResult
from natgrad.models.gp import algebra
from natgrad.models.gp.algebra import Posterior
from natgrad.models.gp.likelihoods import LOG_2PI, Gaussian, Likelihood
from natgrad.models.gp.outputs import (
    Coregionalised,
    Marginal,
    by_blocks,
    covariance_slope,
    marginal,
    retold,
    stacked,
    unmixed,
)
from natgrad.models.gp.settings import MOST_ROWS, Gradient, Learned, Matrices, Settings, compiled
from natgrad.threads import in_order, one_blas_thread

if TYPE_CHECKING:
    from natgrad.inference.problem import State

__all__ = ["GPProblem", "Predictor"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Stats = tuple[Any, ...]
# Just below the largest block that glibc learns from, 32 MB.
LARGEST_BLOCK = 31 << 20


class GPProblem(GroupProblem):
    """A sparse Gaussian process on rows of data.

    Parameters
    ----------
    rows : Rows, inputs [N, D] and outputs [N, P], standardised
    kernel : Covariance, its structure; values are in the settings
    likelihood : Likelihood
    n_inducing : int, M
    learned : Learned, which settings move
    rate : float, of Adam
    jitter : float, as a part of the mean of the kernel's diagonal
    batch_size : int
    population : float, optional
        Rows that these stand for.
    offset : array [P], optional
        Added to f in the likelihood.
    joint : bool
        Whether q(v) has one factor for all functions, instead of one for each.
    """

    group_plate = "row"
    local_limits = (0.0, 1)
    follows_gradient = True

    def __init__(
        self,
        rows: Rows,
        kernel: Covariance,
        likelihood: Likelihood,
        *,
        n_inducing: int,
        learned: Learned | None = None,
        rate: float = 0.01,
        jitter: float = 1e-8,
        batch_size: int = 512,
        population: float | None = None,
        offset: Floats | None = None,
        joint: bool = False,
    ) -> None:
        self.data, self.kernel, self.likelihood = rows, kernel, likelihood
        self.learned, self.rate, self.jitter = learned or Learned(), rate, jitter
        self.n_groups, self.batch_size = len(rows), batch_size
        self.population = float(self.n_groups if population is None else population)
        self.n_outputs, self.n_inducing = likelihood.n_functions(rows.n_outputs), n_inducing
        self.offset = np.zeros(self.n_outputs) if offset is None else offset
        self.joint = joint
        self.shape = (1, n_inducing * self.n_outputs) if joint else (self.n_outputs, n_inducing)
        self.matrices: Matrices = compiled(kernel)
        _keep_freed_memory()
        self.jitter_used, self.jitter_raised = 0.0, 0
        # The last of each, with what it was made from: a step asks for them several times.
        self._last_inducing: tuple[Any, Inducing] | None = None
        self._last_posterior: tuple[Any, algebra.Posterior] | None = None
        self._last_parts: tuple[Any, tuple[Floats, Floats | None]] | None = None
        self._last_marginal: tuple[Any, Any, Marginal] | None = None
        self._last_evaluated: tuple[Any, Any, algebra.Evaluated] | None = None
        self._last_valued: tuple[Any, Any, Any, tuple[float, Floats]] | None = None
        self._last_totals: tuple[Any, algebra.Totals] | None = None

    # -- what the engine asks --

    @property
    def conjugate(self) -> bool:  # type: ignore[override]
        """Gaussian noise."""
        return self.likelihood.conjugate

    @cached_property
    def blocks(self) -> Mapping[str, Block]:  # type: ignore[override]
        """The whitened inducing variables."""
        return {"v": Block("v", MultivariateNormal(), ("output",), self.shape[:1])}

    @property
    def n_observed(self) -> Mapping[str, int]:
        """All rows."""
        return {"y": self.n_groups}

    @property
    def n_messages(self) -> int:
        """Every inducing variable is read by every row."""
        return self.n_groups * self.n_outputs

    @cached_property
    def _units(self) -> float:
        """What standardising the outputs adds to the log density of all rows; the bound is in the units of the data."""
        logs = np.log(self.data.y_scaling.sd)
        if self.data.gaps:
            return self.population / self.n_groups * float(self.data.n_seen @ logs)
        return self.population * float(logs.sum())

    @cached_property
    def summed(self) -> bool:
        """Whether sums over rows are all that is needed of them: Gaussian noise, and nothing missing."""
        return isinstance(self.likelihood.own, Gaussian) and not self.joint and not self.data.gaps

    @property
    def hyper(self) -> Hyper:  # type: ignore[override]
        """Kernel, noise and inducing inputs."""
        return Hyper(lambda state: self, self._tuned)

    def prior_of(self, name: str) -> Stats:
        """(0, −½ I)."""
        return np.zeros((1, self.shape[1])), self._half

    @cached_property
    def _half(self) -> Floats:
        return -0.5 * np.eye(self.shape[1])[None]

    def start(self, settings: Settings) -> State:
        """The state with q at the prior."""
        lam = (np.zeros(self.shape), np.repeat(self._half, self.shape[0], axis=0))
        hyper = {"settings": self.matrices.started(settings)}
        return State({"v": lam}, {"v": self.moments(self.blocks["v"], lam)}, 0, hyper=hyper)

    def moments(self, block: Block, lam: Any) -> Stats:
        """E[v] and E[v vᵀ]."""
        q = self.posterior(lam)
        second = q.mean[:, :, None] * q.mean[:, None, :]
        for part, s in zip(second, q.covariance, strict=True):
            part += s.T  # symmetric; both in row order
        return q.mean, second

    def is_valid(self, block: Block, lam: Any, mu: Any) -> bool:
        """Whether every precision could be factorised."""
        return self.posterior(lam).proper

    def posterior(self, lam: Stats) -> algebra.Posterior:
        """q(v) by its moments."""
        if self._last_posterior is None or self._last_posterior[0] is not lam[1]:
            self._last_posterior = lam[1], algebra.posterior(lam)
        return self._last_posterior[1]

    def marginal(self, state: State) -> Marginal:
        """Laws under q of the functions that the likelihood reads."""
        q, mixing = self.posterior(state.lam["v"]), self._parts(state)[1]
        last = self._last_marginal
        if last is None or last[0] is not q or last[1] is not mixing:
            self._last_marginal = last = q, mixing, marginal(q.mean, q.covariance, mixing)
        return last[2]

    def _parts(self, state: State) -> tuple[Floats, Floats | None]:
        """ψ of the columns of y, and the matrix that mixes functions."""
        psi = state.hyper["settings"].psi
        if self._last_parts is None or self._last_parts[0] is not psi:
            self._last_parts = psi, self.likelihood.parts(np.asarray(psi))
        return self._last_parts[1]

    def widened(self, state: State) -> State:
        """A state with a factor for each function as one with a factor for all of them, if that is what this problem has."""
        if state.lam["v"][0].shape == self.shape:
            return state
        lam = stacked(*state.lam["v"])
        return state._replace(lam={"v": lam}, mu={"v": self.moments(self.blocks["v"], lam)})

    def global_bound(self, lam: Any, mu: Any, messages: Any) -> float:
        """⟨m, μ⟩ − KL."""
        linear = sum(float((a * b).sum()) for a, b in zip(messages["v"], mu["v"], strict=True))
        return linear - algebra.divergence(self.posterior(lam["v"]))

    def solve(self, state: State, groups: Ints | None, rows: Stats | None, tol: float, limit: int) -> GroupResult:
        """What some rows say of v; there are no local variables."""
        x, y = self.data.take(groups)
        settings = state.hyper["settings"]
        k_mm, k_nm, k_nn = self.matrices.all(settings, x)
        batch = self._batch(x, y, self._inducing(settings, k_mm), k_nm, k_nn)
        if self.summed:
            sums = algebra.totals(batch)
            return GroupResult((batch, sums), {"v": self._conjugate(state, sums)}, 0.0, 1, len(x))
        if self.conjugate:
            return GroupResult((batch,), {"v": self._messages(state, batch)}, 0.0, 1, len(x))
        said = self._evaluated(state, batch)
        return GroupResult((batch,), {"v": algebra.second_order(batch, said)}, said.value, 1, len(x))

    def solve_all(self, state: State) -> GroupResult:
        """All rows, in pieces."""
        settings = state.hyper["settings"]
        if self.summed:
            return GroupResult((), {"v": self._conjugate(state, self._all(settings))}, 0.0, 1, self.n_groups)
        first, second = np.zeros(self.shape), 0.0 * np.repeat(self._half, self.shape[0], 0)
        for batch in self._pieces(settings):
            part = self._messages(state, batch)
            first, second = first + part[0], second + part[1]
        return GroupResult((), {"v": (first, second)}, 0.0, 1, self.n_groups)

    def batch_bound(self, state: State, solved: GroupResult, messages: Any, scale: float) -> float:
        """Scale Σ_n E[log p(y_n | f_n)] − KL."""
        q = self.posterior(state.lam["v"])
        rows = solved.rows
        value = self._valued(rows[1], state)[0] if self.summed else self._evaluated(state, rows[0]).value
        return scale * value - algebra.divergence(q) - self._units

    def bound(self, state: State) -> float:
        """L₃ on all rows."""
        settings, q = state.hyper["settings"], self.posterior(state.lam["v"])
        if self.summed:
            value = self._valued(self._all(settings), state)[0]
        else:
            value = sum(self._evaluated(state, batch).value for batch in self._pieces(settings))
        return self.population / self.n_groups * value - algebra.divergence(q) - self._units

    def gradient(self, state: State, solved: GroupResult, scale: float) -> Gradient:
        """Slopes of `batch_bound` in the kernel's matrices and ψ; along what mixes functions, with q of the outputs held."""
        q, (psi, mixing), batch = self.marginal(state), self._parts(state), solved.rows[0]
        if self.summed:
            sums, squares = solved.rows[1], self._valued(solved.rows[1], state)[1]
            gradient = algebra.conjugate_gradient(batch, sums, q, self._gaussian, psi, scale, squares)
        else:
            gradient = algebra.general_gradient(batch, self._evaluated(state, batch), q, scale)
        if mixing is None:
            return gradient
        left = -0.5 * self._precisions(psi) * (solved.rows[1].left if self.summed else batch.left @ ~np.isnan(batch.y))
        whole = self.posterior(state.lam["v"])
        along = covariance_slope(whole.mean, whole.covariance, mixing, scale * left)
        return gradient._replace(psi=self.likelihood.slopes(_psi(state), gradient.psi, along))

    def _tuned(self, state: State, solved: GroupResult, messages: Any, scale: float, rho: float) -> State:
        """Adam on the slope of `batch_bound`."""
        if not any(self.learned):
            return state
        gradient = self.gradient(state, solved, scale)
        settings = state.hyper["settings"]
        after = self.matrices.moved(self.learned, self.rate, settings, solved.rows[0].x, gradient)
        moved = state._replace(hyper={**state.hyper, "settings": after})
        if not isinstance(self.likelihood, Coregionalised):
            return moved
        (t_old, d_old), (t_new, d_new) = ((self._parts(s)[1], self.likelihood.noises(_psi(s))) for s in (state, moved))
        assert t_old is not None
        assert t_new is not None
        lam = retold(state.lam["v"], (t_old, d_old), (t_new, d_new))
        return moved._replace(lam={"v": lam}, mu={"v": self.moments(self.blocks["v"], lam)})

    def sweep(self, state: State, order: tuple[str, ...] = (), rho: float = 1.0) -> SweepResult:
        """All rows, q alone."""
        after, info, _ = self.global_step(state, self.solve_all(state).messages, rho)
        return SweepResult(after._replace(t=state.t + 1), self.bound(after), info)

    def centred(self, state: State) -> State:
        """With functions whose mean is zero, where one function added to all of them says nothing: the prior is nearer there.

        Steps hardly move along it: each function is held by its rows, and only the prior by nobody but itself.
        """
        if not self.likelihood.shifts:
            return state
        first, second = state.lam["v"]
        # a copy: what has been computed of q is known by its second part
        lam = first + 2.0 * second @ self.posterior(state.lam["v"]).mean.mean(0), second.copy()
        return state._replace(lam={"v": lam}, mu={"v": self.moments(self.blocks["v"], lam)})

    # -- parts --

    def factor(self, settings: Settings) -> Inducing:
        """L and L⁻¹ of the settings."""
        return self._inducing(settings, None)

    def batch_of(self, settings: Settings, x: Floats, y: Floats) -> algebra.Batch:
        """Rows with their A."""
        k_nm, k_nn = self.matrices.rows(settings, x)
        return self._batch(x, y, self.factor(settings), k_nm, k_nn)

    def _batch(self, x: Floats, y: Floats, inducing: Inducing, k_nm: Floats, k_nn: Floats) -> algebra.Batch:
        a = blas.dtrmm(1.0, inducing.inverse, k_nm.T, lower=1)
        if not np.isfinite(a[-1].sum()) or not np.isfinite(k_nn.sum()):
            raise FloatingPointError(f"kernel {self.kernel!r} returned values that are not finite for these inputs")
        return algebra.Batch(x, y, inducing, a, k_nn)

    def _inducing(self, settings: Settings, k_mm: Floats | None) -> Inducing:
        if self._last_inducing is None or self._last_inducing[0] is not settings:
            k_mm = self.matrices.square(settings) if k_mm is None else k_mm
            try:
                inducing = factorised(k_mm, self.jitter)
            except FloatingPointError as error:
                at = self.kernel.at([np.asarray(part) for part in settings.theta])
                raise FloatingPointError(f"kernel {at!r}: {error}") from None
            self._last_inducing = settings, inducing
            self.jitter_used = max(self.jitter_used, inducing.part)
            self.jitter_raised += inducing.raised > 0
        return self._last_inducing[1]

    @property
    def _gaussian(self) -> Gaussian:
        own = self.likelihood.own
        assert isinstance(own, Gaussian)
        return own

    def _precisions(self, psi: Floats) -> Floats:
        return np.array([1.0 / self._gaussian.variance(float(p)) for p in psi])

    def _conjugate(self, state: State, sums: algebra.Totals) -> Stats:
        psi, mixing = self._parts(state)
        precision, by_y = self._precisions(psi), sums.by_y.T
        if mixing is None:
            return precision[:, None] * by_y, (-0.5 * precision)[:, None, None] * sums.outer.T
        weights = -0.5 * (mixing**2).T @ precision
        return (mixing * precision[:, None]).T @ by_y, weights[:, None, None] * sums.outer.T

    def _messages(self, state: State, batch: algebra.Batch) -> Stats:
        if not self.conjugate:
            return algebra.second_order(batch, self._evaluated(state, batch))
        psi, mixing = self._parts(state)
        return unmixed(*algebra.gaussian_messages(batch, self._precisions(psi)), mixing, self.joint)

    def _valued(self, sums: algebra.Totals, state: State) -> tuple[float, Floats]:
        last, q, psi = self._last_valued, self.marginal(state), self._parts(state)[0]
        if last is None or last[0] is not sums or last[1] is not q or last[2] is not psi:
            self._last_valued = last = sums, q, psi, algebra.conjugate_value(sums, q, self._gaussian, psi)
        return last[3]

    def _evaluated(self, state: State, batch: algebra.Batch) -> algebra.Evaluated:
        key = state.lam["v"][1]
        last = self._last_evaluated
        if last is None or last[0] is not key or last[1] is not batch:
            said = algebra.evaluate(batch, self.marginal(state), self.likelihood, _psi(state), self.offset)
            self._last_evaluated = key, batch, said
            return said
        return last[2]

    def _pieces(self, settings: Settings) -> Iterator[algebra.Batch]:
        for x, y in self.data.pieces(MOST_ROWS):
            yield self.batch_of(settings, x, y)

    def _all(self, settings: Settings) -> algebra.Totals:
        if self._last_totals is None or self._last_totals[0] is not settings:
            sums: algebra.Totals | None = None
            for batch in self._pieces(settings):
                sums = algebra.totals(batch) if sums is None else sums + algebra.totals(batch)
            assert sums is not None
            self._last_totals = settings, sums
        return self._last_totals[1]


def _keep_freed_memory() -> None:
    """Let malloc keep what a step frees: glibc gives it back beyond twice the largest block that it has seen freed.

    Fresh pages for the matrices of every step took a tenth of its time at M = 500. Nothing is touched here.
    """
    np.empty(LARGEST_BLOCK, np.uint8)


def _psi(state: State) -> Floats:
    return np.asarray(state.hyper["settings"].psi)


class Predictor(NamedTuple):
    """Everything a prediction reads: no matrix is factorised again."""

    kernel: Covariance
    settings: Settings
    inducing: Inducing
    q: Posterior
    offset: Floats
    likelihood: Likelihood
    mixing: Floats | None
    marginal: Marginal

    @classmethod
    def of(cls, problem: GPProblem, state: State) -> Predictor:
        """Of a problem's state."""
        settings, q = state.hyper["settings"], problem.posterior(state.lam["v"])
        mixing = problem.likelihood.parts(np.asarray(settings.psi))[1]
        seen = marginal(q.mean, q.covariance, mixing)
        inducing = problem.factor(settings)
        return cls(problem.kernel, settings, inducing, q, problem.offset, problem.likelihood, mixing, seen)

    def latent(self, x: Floats) -> tuple[Floats, Floats]:
        """Means and variances of f [N, F] at standardised inputs."""
        mean, var = _in_pieces(self._sparse, x)
        return mean, var

    def _sparse(self, x: Floats) -> tuple[Floats, Floats]:
        k_nm, k_nn = compiled(self.kernel).rows(self.settings, x)
        a = blas.dtrmm(1.0, self.inducing.inverse, k_nm.T, lower=1)
        pairs = zip(self.marginal.covariance, self.marginal.scale, strict=True)
        shrunk = [np.einsum("mn,mn->n", a, blas.dsymm(1.0, s, a, lower=1) - b * a) for s, b in pairs]
        prior = self.marginal.scale * k_nn[:, None]
        return a.T @ self.marginal.mean.T + self.offset, np.maximum(prior + np.array(shrunk).T, 1e-12 * prior)

    def covariances(self, x: Floats) -> Floats:
        """Of the functions f with one another at each row [N, F, F], at standardised inputs."""
        if self.mixing is None:
            var = self.latent(x)[1]
            return np.asarray(var[:, :, None] * np.eye(var.shape[1]))
        return _in_pieces(self._mixed, x)[0]

    def _mixed(self, x: Floats) -> tuple[Floats]:
        assert self.mixing is not None
        k_nm, k_nn = compiled(self.kernel).rows(self.settings, x)
        a = blas.dtrmm(1.0, self.inducing.inverse, k_nm.T, lower=1)
        left = np.maximum(k_nn - np.einsum("mn,mn->n", a, a), 1e-12 * k_nn)
        inner = by_blocks(self.q.covariance, len(self.mixing), a) + left[:, None, None] * np.eye(len(self.mixing))
        return (self.mixing @ inner @ self.mixing.T,)

    def law(self, x: Floats, of_f: bool, known: Floats | None = None) -> tuple[Floats, Floats]:
        """Means [N, P] and covariances [N, P, P] of outputs with Gaussian noise, or of their functions, given what is known of y.

        ``known`` [N, P] is NaN where nothing is; an output that is known has no variance.
        """
        mean, covariance = self.latent(x)[0], self.covariances(x)
        noise = np.diag(self.likelihood.predict_rows(np.asarray(self.settings.psi), mean[:1], 0.0 * mean[:1])[1][0])
        if known is not None:
            mean, covariance = _given_rows(known, mean, covariance, covariance + noise)
        if of_f or known is None:
            return mean, covariance if of_f else covariance + noise
        seen = ~np.isnan(known)
        covariance = np.where(seen[:, :, None] | seen[:, None, :], 0.0, covariance + noise)
        return np.where(seen, known, mean), covariance

    def log_density(self, x: Floats, y: Floats) -> Floats:
        """Log p(y_n | data) [N] of all outputs that are seen, in standardised units."""
        if self.mixing is None:
            return self.likelihood.log_predictive_rows(np.asarray(self.settings.psi), y, *self.latent(x))
        return _gaussian_rows(y, *self.law(x, of_f=False))

    def draws(self, x: Floats, n: int, rng: np.random.Generator) -> Floats:
        """Joint draws of f [n, N, F] at standardised inputs."""
        with one_blas_thread():
            return self._draws(x, n, rng)

    def _draws(self, x: Floats, n: int, rng: np.random.Generator) -> Floats:
        k_nm, _ = compiled(self.kernel).rows(self.settings, x)
        a = blas.dtrmm(1.0, self.inducing.inverse, k_nm.T, lower=1)
        kernel = self.kernel.at([np.asarray(part) for part in self.settings.theta])
        values, vectors = np.linalg.eigh(kernel(x) - a.T @ a)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        drawn = []
        for m, s in zip(self.q.mean, self.q.covariance, strict=True):
            whole = m + rng.standard_normal((n, len(m))) @ np.linalg.cholesky(s).T
            for v in whole.reshape(n, -1, len(a)).transpose(1, 0, 2):
                drawn.append(v @ a + rng.standard_normal((n, len(x))) @ root.T)
        functions = np.stack(drawn, axis=-1)
        return np.asarray((functions if self.mixing is None else functions @ self.mixing.T) + self.offset)


def _in_pieces(function: Callable[[Floats], tuple[Floats, ...]], x: Floats) -> tuple[Floats, ...]:
    """What a function says of every row, by pieces that threads share: their matrices stay small, with one thread for each."""
    parts = in_order(lambda begin: function(x[begin : begin + MOST_ROWS]), range(0, len(x), MOST_ROWS))
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def _gaussian_rows(y: Floats, mean: Floats, covariance: Floats) -> Floats:
    """Log N(y_n; mean, covariance) [N] of what is seen of each row; NaN is not."""
    seen = ~np.isnan(y)
    factor = np.linalg.cholesky(_of_seen(covariance, seen))
    off = np.linalg.solve(factor, np.where(seen, y - mean, 0.0)[..., None])[..., 0]
    logs = np.log(np.einsum("npp->np", factor)).sum(1)
    return np.asarray(-0.5 * (LOG_2PI * seen.sum(1) + (off**2).sum(1)) - logs)


def _given_rows(y: Floats, mean: Floats, of_f: Floats, of_y: Floats) -> tuple[Floats, Floats]:
    """Means [N, P] and covariances [N, P, P] of f, given what is seen of y, from their joint law: Cov(f) and Cov(y) a priori."""
    seen = ~np.isnan(y)
    across = np.where(seen[:, None, :], of_f, 0.0)  # Cov(f_p, y_q) = Cov(f_p, f_q)
    weights = np.linalg.solve(_of_seen(of_y, seen), across.transpose(0, 2, 1))
    off = np.where(seen, y - mean, 0.0)
    return mean + np.einsum("nq,nqp->np", off, weights), of_f - across @ weights


def _of_seen(covariance: Floats, seen: npt.NDArray[np.bool_]) -> Floats:
    """Of what is not seen, ones on the diagonal alone."""
    both = seen[:, :, None] & seen[:, None, :]
    return np.where(both, covariance, np.eye(seen.shape[1]))
