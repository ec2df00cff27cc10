"""Autoregressive emissions: moments of q(X, Λ) in, weights for the kernels out; sums in, messages out.

    y_t ~ N(Xᵀ_k z_t, Λ_k⁻¹),   z_t = (1, y_{t−1}, …, y_{t−p}),   (X_k, Λ_k) ~ MatrixNormalWishart

log p is quadratic in (y_t, y_{t−1}, …, y_{t−p}), so with these side by side as values it is a linear form in their products, as
that of a Gaussian is. The first p observations of a sequence are given: they say nothing of its states. The same holds for an
observation that follows a missing one within p times. Values are measured from the mean of each column.
"""

from __future__ import annotations

import warnings
from typing import Any, final

import numpy as np
import numpy.typing as npt

from natgrad.families import Family, MatrixNormalWishart
from natgrad.kernels.hmm.emissions import QUADRATIC
from natgrad.models.gaussians import LOG_2PI, NO_CODES, Observed, check_whole_rows, quadratic_sums

__all__ = ["Autoregressions"]

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
Stats = tuple[Any, ...]


@final
class Autoregressions:
    """Regressions on the last ``order`` observations, with a full precision matrix for each state.

    Parameters
    ----------
    n_states : int
    order : int, p
    centre : array [D], from which values are measured
    scale : array [1 + p D], precision of the coefficients a priori, relative to that of the noise
    dof : float
    rate : array [D, D]
    """

    kind, by_column, origin = QUADRATIC, False, None
    family: Family = MatrixNormalWishart()
    axes: tuple[tuple[int, ...], ...] = ((0,),) * 4

    def __init__(self, n_states: int, order: int, centre: Floats, scale: Floats, dof: float, rate: Floats) -> None:
        self.arguments = {
            "n_states": n_states, "order": order, "centre": centre, "scale": scale, "dof": dof, "rate": rate,
        }  # fmt: skip
        self.shape: tuple[int, ...] = (n_states,)
        self.order, self.n_outputs, self.centre = int(order), len(centre), np.asarray(centre)
        self.n_values = self.n_columns = self.n_outputs * (1 + self.order)
        mean = np.zeros((len(scale), self.n_outputs))
        usual = {"mean": mean, "scale": np.diag(scale), "dof": dof, "rate": np.asarray(rate)}
        self.prior: Stats = tuple(np.asarray(part)[None] for part in self.family.natural(**usual))

    def observe(self, X: Array, ends: Array) -> Observed:
        """Observations beside those before them in the same sequence [T, D (1 + p)]; NaN where there are none."""
        check_whole_rows(X, "full", "an autoregression has no other: give each column an Autoregressive of its own")
        own = np.asarray(X, np.float64) - self.centre
        values = np.full((len(own), self.n_values), np.nan)
        values[:, : self.n_outputs] = own
        since = np.arange(len(own)) - np.repeat(ends[:-1], np.diff(ends))
        for lag in range(1, self.order + 1):
            later = np.flatnonzero(since >= lag)
            values[later, lag * self.n_outputs : (lag + 1) * self.n_outputs] = own[later - lag]
        return Observed(NO_CODES, values)

    def weights(self, mu: Stats) -> Floats:
        """E log p(y | k) as a linear form."""
        precise, quadratic, precision, log = mu
        size, width = self.n_outputs, self.n_values
        squares = np.empty((len(precise), width, width))
        squares[:, :size, :size] = -0.5 * precision
        squares[:, size:, size:] = -0.5 * quadratic[:, 1:, 1:]
        squares[:, size:, :size] = 0.5 * precise[:, 1:]
        squares[:, :size, size:] = np.swapaxes(squares[:, size:, :size], 1, 2)
        rows, columns = np.triu_indices(width)
        products = np.where(rows == columns, 1.0, 2.0) * squares[:, rows, columns]
        linear = np.concatenate([precise[:, 0], -quadratic[:, 0, 1:]], axis=1)
        constant = 0.5 * (log - quadratic[:, 0, 0] - size * LOG_2PI)
        return np.column_stack([constant, linear, products])

    def message(self, sums: Floats) -> Stats:
        """What observations tell X and Λ."""
        n, first, squares = quadratic_sums(sums, self.n_values)
        size = self.n_outputs
        crossed = np.concatenate([first[:, None, :size], squares[:, size:, :size]], axis=1)
        regressors = np.empty((len(n), self.n_values - size + 1, self.n_values - size + 1))
        regressors[:, 0, 0], regressors[:, 1:, 1:] = n, squares[:, size:, size:]
        regressors[:, 0, 1:] = regressors[:, 1:, 0] = first[:, size:]
        return crossed, -0.5 * regressors, -0.5 * squares[:, :size, :size], 0.5 * n

    def point(self, lam: Stats) -> Stats:
        """Moments of a point mass at the mean."""
        return self.family.stats_of(self.family.mean(lam))

    def named(self, lam: Stats) -> dict[str, Array]:
        """Means of intercepts [K, D], of coefficients [K, p, D, D] (of y_{t−lag}, to the row's output), and noise covariances."""
        packed = self.family.mean(lam)
        size = self.n_outputs
        by_lag = packed[..., 1:-size].reshape(len(packed), size, self.order, size)
        coefficients = np.moveaxis(by_lag, 2, 1)
        shift = self.centre - coefficients.sum(1) @ self.centre
        covariances = np.linalg.inv(packed[..., -size:])
        return {"intercepts": packed[..., 0] + shift, "coefficients": coefficients, "covariances": covariances}

    def draw_after(
        self, lam: Stats, states: Array, rng: np.random.Generator, before: Array | None, scales: Array | None
    ) -> Array:
        """Observations one after the other for paths of states [n, T], at the mean of q, after rows ``before``, or the centre."""
        packed, size = self.family.mean(lam), self.n_outputs
        factors = np.linalg.cholesky(np.linalg.inv(packed[..., -size:]))
        noise = np.einsum("ntde,nte->ntd", factors[states], rng.standard_normal((*states.shape, size)))
        if scales is not None:
            noise = noise / np.sqrt(scales)[..., None]
        rows = np.zeros((len(states), self.order + states.shape[1], size))
        if before is not None and len(before):
            last = np.asarray(before, np.float64)[-self.order :] - self.centre
            if np.isnan(last).any():
                warnings.warn(
                    f"{int(np.isnan(last).any(1).sum())} of the last {len(last)} rows of an autoregression are missing, beside "
                    "others that are not: in draws and forecasts the mean of the column stands for them. Leave the rows after "
                    "the last whole ones out, or fill them in",
                    UserWarning,
                    stacklevel=2,
                )
            rows[:, self.order - len(last) : self.order] = np.where(np.isnan(last), 0.0, last)
        for t in range(states.shape[1]):
            lags, own = rows[:, t : t + self.order][:, ::-1].reshape(len(states), -1), packed[states[:, t]]
            moved = np.einsum("ndp,np->nd", own[..., 1:-size], lags)
            rows[:, t + self.order] = own[..., 0] + moved + noise[:, t]
        return np.asarray(rows[:, self.order :] + self.centre)
