"""What a likelihood of a Gaussian process is: observations and the moments of q(f_n) in; E_q[log p(y | f)] and its slopes out.

    f ~ N(m, v):   value = E[log p(y | f)],   slope = ∂value/∂m,   curvature = E[∂² log p],   spread = ∂value/∂v

Expectations without a closed form are Gauss–Hermite sums, and slope and spread are the derivatives of these sums; the
curvature is twice the spread up to the error of the sums, and less noisy.

Most likelihoods are `Columnwise`: they read one function for each column of y, and have one number ψ for it. Others read several
functions at once (the classes of a softmax, a mean and the logarithm of its noise), or have more numbers (cutpoints).
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.families._ops import logsumexp

__all__ = ["LOG_2PI", "NODES", "WEIGHTS", "Columnwise", "Expected", "Likelihood", "Quadrature", "Scaled"]

Floats = npt.NDArray[np.float64]
LOG_2PI = float(np.log(2.0 * np.pi))
N_NODES = 20
NODES, WEIGHTS = np.polynomial.hermite.hermgauss(N_NODES)
NODES, WEIGHTS = NODES * np.sqrt(2.0), WEIGHTS / np.sqrt(np.pi)
# The noise never vanishes: σ² = LEAST + exp(ψ), in standardised units.
LEAST = 1e-6
# Below it a variance is rounding.
LEAST_VARIANCE = 1e-12


class Expected(NamedTuple):
    """What a likelihood says of some rows, arrays [N] of one function or [F, N] of several, and the slope of Σ value along ψ.

    ``value`` is of shape [N] or a part of it for each function; only its sum is read.
    """

    value: Floats
    slope: Floats
    curvature: Floats
    spread: Floats
    parameter: Any


class Likelihood(abc.ABC):
    """p(y | f) of rows y [N, P] and functions f [N, F]; ``psi`` are its own parameters, on unbounded scales."""

    name: str
    conjugate = False
    has_parameter = False
    standardised = False
    # Whether the functions of the process are mixed before they are read (`natgrad.models.gp.outputs`).
    mixes = False
    # Whether entries of y may be missing, NaN.
    skips = False
    # Whether one number added to all functions says nothing.
    shifts = False
    # How far a step of q goes that is to end at the best one: 1 where functions do not go together in the likelihood.
    stride = 1.0

    @property
    def own(self) -> Likelihood:
        """What reads the functions, after they are mixed."""
        return self

    def parts(self, psi: Floats) -> tuple[Floats, Floats | None]:
        """ψ of `own`, and the matrix that mixes functions [P, F], or None."""
        return psi, None

    def slopes(self, psi: Floats, own: Floats, covariance: Floats) -> Floats:
        """Slopes along ψ, from those along ψ of `own` and along the covariance matrix of mixed functions."""
        raise NotImplementedError

    def n_functions(self, n_outputs: int) -> int:
        """F, how many functions the columns of y read."""
        return n_outputs

    @abc.abstractmethod
    def first(self, y: Floats, variance: float) -> Floats:
        """Where ψ starts, from some rows and the variance of the noise."""

    @abc.abstractmethod
    def offsets(self, y: Floats) -> Floats:
        """Constants added to the functions [F], from some rows."""

    @abc.abstractmethod
    def expected_rows(self, psi: Floats, y: Floats, mean: Floats, var: Floats) -> Expected:
        """Of rows y [N, P] under q(f) = N(mean, var), both [F, N]."""

    @abc.abstractmethod
    def predict_rows(self, psi: Floats, mean: Floats, var: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of new observations [N, P], from those of the functions [N, F]."""

    @abc.abstractmethod
    def log_predictive_rows(self, psi: Floats, y: Floats, mean: Floats, var: Floats) -> Floats:
        """Log E_q[p(y_n | f_n)] [N], summed over the columns of y."""

    @abc.abstractmethod
    def quantile_rows(self, psi: Floats, level: float, mean: Floats, var: Floats) -> Floats:
        """Where the predictive distribution of each number reaches ``level`` [N, P]."""

    @abc.abstractmethod
    def sample_rows(self, psi: Floats, f: Floats, rng: np.random.Generator) -> Floats:
        """Observations [..., P] given functions [..., F]."""

    def noise_level(self, psi: Floats) -> float:
        """The variance of what is seen, the least of all columns; where there is none, that of a unit of f."""
        return 1.0

    def check(self, y: Floats, what: str) -> None:
        """Raise for a value outside the support; by default all numbers are inside."""
        return


class Columnwise(Likelihood):
    """One function and one number ψ for each column of y (0 and unused where there is none); abstract."""

    skips = True

    @abc.abstractmethod
    def expected(self, psi: float, y: Floats, mean: Floats, var: Floats) -> Expected:
        """Under q(f) = N(mean, var)."""

    @abc.abstractmethod
    def predict(self, psi: float, mean: Floats, var: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of a new observation."""

    @abc.abstractmethod
    def sample(self, psi: float, f: Floats, rng: np.random.Generator) -> Floats:
        """Observations given f."""

    @abc.abstractmethod
    def log_density(self, psi: float, y: Floats, f: Floats) -> Floats:
        """Log p(y | f)."""

    def log_predictive(self, psi: float, y: Floats, mean: Floats, var: Floats) -> Floats:
        """Log E_q[p(y | f)] [N]."""
        f = mean[:, None] + np.sqrt(var)[:, None] * NODES
        return np.asarray(logsumexp(self.log_density(psi, y[:, None], f) + np.log(WEIGHTS)))

    @abc.abstractmethod
    def cdf(self, psi: float, y: Floats, f: Floats) -> Floats:
        """P(observation ≤ y | f)."""

    def quantile(self, psi: float, level: float, mean: Floats, var: Floats) -> Floats:
        """Where the predictive distribution reaches ``level`` [N], by bisection."""
        f = mean[:, None] + np.sqrt(var)[:, None] * NODES
        centre, spread = self.predict(psi, mean, var)
        width = 1.0 + np.sqrt(np.where(np.isfinite(spread), spread, var))
        low, high = centre - width, centre + width
        for _ in range(100):
            width = 2.0 * width
            short, long = (self.cdf(psi, end[:, None], f) @ WEIGHTS for end in (low, high))
            if (short < level).all() and (long >= level).all():
                break
            low, high = np.where(short < level, low, centre - width), np.where(long >= level, high, centre + width)
        for _ in range(60):
            middle = 0.5 * (low + high)
            below = self.cdf(psi, middle[:, None], f) @ WEIGHTS < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return high

    def start(self, variance: float) -> float:
        """ψ of a given variance."""
        return 0.0

    def offset(self, y: Floats) -> float:
        """A constant added to f, from the data."""
        return 0.0

    # -- column by column --

    def first(self, y: Floats, variance: float) -> Floats:
        """The same for all columns."""
        return np.full(y.shape[1], self.start(variance))

    def offsets(self, y: Floats) -> Floats:
        """Those of the columns."""
        return np.array([self.offset(column[~np.isnan(column)]) for column in y.T])

    def expected_rows(self, psi: Floats, y: Floats, mean: Floats, var: Floats) -> Expected:
        """One column after the other."""
        said = [self._seen(float(p), *rest) for p, *rest in zip(psi, y.T, mean, var, strict=True)]
        return Expected(*(np.array(part) for part in zip(*said, strict=True)))

    def _seen(self, psi: float, y: Floats, mean: Floats, var: Floats) -> Expected:
        """Entries that are missing say nothing."""
        seen = ~np.isnan(y)
        if seen.all():
            return self.expected(psi, y, mean, var)
        said = self.expected(psi, y[seen], mean[seen], var[seen])
        value, slope, curvature, spread = (_placed(part, seen) for part in said[:4])
        return Expected(value, slope, curvature, spread, said.parameter)

    def predict_rows(self, psi: Floats, mean: Floats, var: Floats) -> tuple[Floats, Floats]:
        """One column after the other."""
        pairs = [self.predict(float(p), m, v) for p, m, v in zip(psi, mean.T, var.T, strict=True)]
        means, variances = (np.array([pair[place] for pair in pairs]).T for place in (0, 1))
        return means, variances

    def log_predictive_rows(self, psi: Floats, y: Floats, mean: Floats, var: Floats) -> Floats:
        """One column after the other."""
        values = []
        for p, column, m, v in zip(psi, y.T, mean.T, var.T, strict=True):
            seen = ~np.isnan(column)
            values.append(_placed(self.log_predictive(float(p), column[seen], m[seen], v[seen]), seen))
        return np.asarray(np.sum(values, axis=0))

    def quantile_rows(self, psi: Floats, level: float, mean: Floats, var: Floats) -> Floats:
        """One column after the other."""
        columns = zip(psi, mean.T, var.T, strict=True)
        return np.array([self.quantile(float(p), level, m, v) for p, m, v in columns]).T

    def sample_rows(self, psi: Floats, f: Floats, rng: np.random.Generator) -> Floats:
        """One column after the other."""
        return np.stack([self.sample(float(p), f[..., n], rng) for n, p in enumerate(psi)], axis=-1)


def _placed(values: Floats, seen: npt.NDArray[np.bool_]) -> Floats:
    """Numbers of rows that are seen among zeros."""
    out = np.zeros(len(seen))
    out[seen] = values
    return out


class Scaled(Columnwise):
    """With a positive number of its own, σ² or a dispersion, that is learned; abstract."""

    has_parameter = True
    parameter = "noise variance"

    def variance(self, psi: float) -> float:
        """The number at ψ."""
        return LEAST + float(np.exp(psi))

    def start(self, variance: float) -> float:
        """log(number − least)."""
        return float(np.log(max(variance - LEAST, LEAST)))


class Quadrature(Columnwise):
    """Expectations as sums over nodes; abstract."""

    def expected(self, psi: float, y: Floats, mean: Floats, var: Floats) -> Expected:
        """Value and slopes at the same nodes."""
        sd = np.sqrt(np.maximum(var, LEAST_VARIANCE))
        parts = self.derivatives(psi, y[:, None], mean[:, None] + sd[:, None] * NODES)
        value, slope, curvature = (part @ WEIGHTS for part in parts[:3])
        spread = parts[1] @ (WEIGHTS * NODES) / (2.0 * sd)
        along = float((parts[3] @ WEIGHTS).sum()) if self.has_parameter else 0.0
        return Expected(value, slope, curvature, spread, along)

    @abc.abstractmethod
    def derivatives(self, psi: float, y: Floats, f: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Log p, its first and second derivatives in f, and its derivative in ψ."""
