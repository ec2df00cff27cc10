"""What a prediction of a sparse Gaussian process reads, made once after the fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas

from natgrad.covariance import Covariance, Inducing
from natgrad.models.gp.algebra import Posterior
from natgrad.models.gp.likelihood import LOG_2PI, Likelihood
from natgrad.models.gp.outputs import Marginal, by_blocks, marginal
from natgrad.models.gp.settings import MOST_ROWS, Settings, compiled
from natgrad.threads import in_order, one_blas_thread

if TYPE_CHECKING:
    from natgrad.inference.problem import State
    from natgrad.models.gp.problem import GPProblem

__all__ = ["Predictor"]

Floats = npt.NDArray[np.float64]


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
