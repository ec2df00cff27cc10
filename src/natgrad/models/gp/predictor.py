"""What a prediction of a sparse Gaussian process reads, made once after the fit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas

from natgrad.covariance import Covariance, Inducing
from natgrad.models.gp.algebra import Posterior
from natgrad.models.gp.settings import MOST_ROWS, Settings, compiled

__all__ = ["Predictor"]

Floats = npt.NDArray[np.float64]


class Predictor(NamedTuple):
    """Everything a prediction reads: no matrix is factorised again."""

    kernel: Covariance
    settings: Settings
    inducing: Inducing
    q: Posterior
    offset: Floats

    def latent(self, x: Floats) -> tuple[Floats, Floats]:
        """Means and variances of f [N, F] at standardised inputs."""
        means, variances, matrices = [], [], compiled(self.kernel)
        for begin in range(0, len(x), MOST_ROWS):
            k_nm, k_nn = matrices.rows(self.settings, x[begin : begin + MOST_ROWS])
            a = blas.dtrmm(1.0, self.inducing.inverse, k_nm.T, lower=1)
            means.append(a.T @ self.q.mean.T + self.offset)
            shrunk = [np.einsum("mn,mn->n", a, blas.dsymm(1.0, s, a, lower=1) - a) for s in self.q.covariance]
            variances.append(np.maximum(k_nn[:, None] + np.array(shrunk).T, 1e-12 * k_nn[:, None]))
        return np.concatenate(means), np.concatenate(variances)

    def draws(self, x: Floats, n: int, rng: np.random.Generator) -> Floats:
        """Joint draws of f [n, N, F] at standardised inputs."""
        k_nm, _ = compiled(self.kernel).rows(self.settings, x)
        a = blas.dtrmm(1.0, self.inducing.inverse, k_nm.T, lower=1)
        kernel = self.kernel.at([np.asarray(part) for part in self.settings.theta])
        values, vectors = np.linalg.eigh(kernel(x) - a.T @ a)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        drawn = np.empty((n, len(x), len(self.q.mean)))
        for out, (m, s) in enumerate(zip(self.q.mean, self.q.covariance, strict=True)):
            v = m + rng.standard_normal((n, len(m))) @ np.linalg.cholesky(s).T
            drawn[:, :, out] = v @ a + rng.standard_normal((n, len(x))) @ root.T + self.offset[out]
        return drawn
