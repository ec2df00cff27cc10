"""Compute E_q[log p(y | f)] and its slopes for observations of a Gaussian process: Gaussian, Student-t, counts, two classes.

    f ~ N(m, v):   value = E[log p(y | f)],   slope = ∂value/∂m,   curvature = E[∂² log p],   spread = ∂value/∂v

Expectations without a closed form are Gauss–Hermite sums, and slope and spread are the derivatives of these sums; the
curvature is twice the spread up to the error of the sums, and less noisy. Bernoulli has the probit link, p(y = 1) = Φ(f); Poisson
and the negative binomial have the mean exp(f).

Most likelihoods are `Columnwise`: they read one function for each column of y, and have one number ψ for it. Others read several
functions at once (the classes of a softmax, a mean and the logarithm of its noise), or have more numbers (cutpoints).
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
import scipy.special as sp

from natgrad.families._ops import logsumexp

__all__ = [
    "LOG_2PI",
    "NODES",
    "WEIGHTS",
    "Bernoulli",
    "Columnwise",
    "Expected",
    "Gaussian",
    "Likelihood",
    "NegativeBinomial",
    "Poisson",
    "Quadrature",
    "Scaled",
    "StudentT",
    "is_function",
]

Floats = npt.NDArray[np.float64]
# Beyond this the rate of a Poisson is no number of events.
MOST_LOG_RATE = 100.0
LOG_2PI = float(np.log(2.0 * np.pi))
N_NODES = 20
NODES, WEIGHTS = np.polynomial.hermite.hermgauss(N_NODES)
NODES, WEIGHTS = NODES * np.sqrt(2.0), WEIGHTS / np.sqrt(np.pi)
# The noise never vanishes: σ² = LEAST + exp(ψ), in standardised units.
LEAST = 1e-6
# Below it a variance is rounding.
LEAST_VARIANCE = 1e-12


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


@final
class Gaussian(Scaled):
    """y ~ N(f, σ²)."""

    name, conjugate, standardised = "gaussian", True, True

    def expected(self, psi: float, y: Floats, mean: Floats, var: Floats) -> Expected:
        """In closed form."""
        noise = self.variance(psi)
        off = y - mean
        squares = off**2 + var
        value = -0.5 * (LOG_2PI + np.log(noise) + squares / noise)
        parameter = self.slope(psi, len(y), float(squares.sum()))
        return Expected(value, off / noise, np.full(len(y), -1.0 / noise), np.full(len(y), -0.5 / noise), parameter)

    def slope(self, psi: float, n: float, squares: float) -> float:
        """∂/∂ψ of Σ value, from Σ E[(y − f)²]."""
        noise = self.variance(psi)
        return 0.5 * (squares / noise - n) / noise * float(np.exp(psi))

    def noise_level(self, psi: Floats) -> float:
        """The least σ²."""
        return min(self.variance(float(p)) for p in psi)

    def predict(self, psi: float, mean: Floats, var: Floats) -> tuple[Floats, Floats]:
        """M and v + σ²."""
        return mean, var + self.variance(psi)

    def sample(self, psi: float, f: Floats, rng: np.random.Generator) -> Floats:
        """F and noise."""
        return np.asarray(f + np.sqrt(self.variance(psi)) * rng.standard_normal(f.shape))

    def log_density(self, psi: float, y: Floats, f: Floats) -> Floats:
        """Log N(y; f, σ²)."""
        noise = self.variance(psi)
        return np.asarray(-0.5 * (LOG_2PI + np.log(noise) + (y - f) ** 2 / noise))

    def cdf(self, psi: float, y: Floats, f: Floats) -> Floats:
        """Φ((y − f)/σ)."""
        return np.asarray(sp.ndtr((y - f) / np.sqrt(self.variance(psi))))

    def quantile(self, psi: float, level: float, mean: Floats, var: Floats) -> Floats:
        """In closed form."""
        return np.asarray(mean + sp.ndtri(level) * np.sqrt(var + self.variance(psi)))

    def log_predictive(self, psi: float, y: Floats, mean: Floats, var: Floats) -> Floats:
        """Log N(y; m, v + σ²)."""
        total = var + self.variance(psi)
        return np.asarray(-0.5 * (LOG_2PI + np.log(total) + (y - mean) ** 2 / total))


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


@final
class StudentT(Scaled, Quadrature):
    """y = f + σ t with t of ``df`` degrees of freedom: outliers bend the fit less."""

    name, standardised = "student_t", True

    def __init__(self, df: float = 4.0) -> None:
        self.df = df

    def derivatives(self, psi: float, y: Floats, f: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Of −(ν + 1)/2 log(1 + (y − f)²/(ν σ²)) − log σ + const."""
        scale, df = self.variance(psi), self.df
        off = y - f
        below = df * scale + off**2
        slope = (df + 1.0) * off / below
        curvature = (df + 1.0) * (off**2 - df * scale) / below**2
        along = 0.5 * ((df + 1.0) * off**2 / below - 1.0) / scale * np.exp(psi)
        return self.log_density(psi, y, f), slope, curvature, along

    def log_density(self, psi: float, y: Floats, f: Floats) -> Floats:
        """Of the scaled t distribution."""
        scale, df = self.variance(psi), self.df
        constant = sp.gammaln((df + 1.0) / 2.0) - sp.gammaln(df / 2.0) - 0.5 * np.log(df * np.pi * scale)
        return np.asarray(constant - 0.5 * (df + 1.0) * np.log1p((y - f) ** 2 / (df * scale)))

    def cdf(self, psi: float, y: Floats, f: Floats) -> Floats:
        """Of the scaled t distribution."""
        return np.asarray(sp.stdtr(self.df, (y - f) / np.sqrt(self.variance(psi))))

    def noise_level(self, psi: Floats) -> float:
        """The least σ²."""
        return min(self.variance(float(p)) for p in psi)

    def predict(self, psi: float, mean: Floats, var: Floats) -> tuple[Floats, Floats]:
        """M and v + σ² ν/(ν − 2); infinite for ν ≤ 2."""
        return mean, var + (self.variance(psi) * self.df / (self.df - 2.0) if self.df > 2.0 else np.inf)

    def sample(self, psi: float, f: Floats, rng: np.random.Generator) -> Floats:
        """F and noise with heavy tails."""
        return np.asarray(f + np.sqrt(self.variance(psi)) * rng.standard_t(self.df, f.shape))


@final
class Poisson(Columnwise):
    """y ~ Poisson(exp(f))."""

    name = "poisson"

    def expected(self, psi: float, y: Floats, mean: Floats, var: Floats) -> Expected:
        """In closed form: E[exp f] = exp(m + v/2)."""
        rate = np.exp(np.minimum(mean + 0.5 * var, MOST_LOG_RATE))
        return Expected(y * mean - rate - sp.gammaln(y + 1.0), y - rate, -rate, -0.5 * rate, 0.0)

    def log_density(self, psi: float, y: Floats, f: Floats) -> Floats:
        """Y f − exp(f) − log y!."""
        return np.asarray(y * f - np.exp(np.minimum(f, MOST_LOG_RATE)) - sp.gammaln(y + 1.0))

    def cdf(self, psi: float, y: Floats, f: Floats) -> Floats:
        """P(count ≤ y)."""
        return np.asarray(np.where(y < 0, 0.0, sp.pdtr(np.maximum(y, 0.0), np.exp(np.minimum(f, MOST_LOG_RATE)))))

    def quantile(self, psi: float, level: float, mean: Floats, var: Floats) -> Floats:
        """The smallest count with at least this probability below or at it."""
        return np.maximum(np.ceil(super().quantile(psi, level, mean, var) - 1e-9), 0.0)

    def predict(self, psi: float, mean: Floats, var: Floats) -> tuple[Floats, Floats]:
        """exp(m + v/2), and that plus the variance of the rate."""
        rate = np.exp(np.minimum(mean + 0.5 * var, MOST_LOG_RATE))
        return rate, rate + rate**2 * np.expm1(np.minimum(var, MOST_LOG_RATE))

    def sample(self, psi: float, f: Floats, rng: np.random.Generator) -> Floats:
        """Counts; a rate above 10⁸ is taken as that."""
        return rng.poisson(np.exp(np.minimum(f, np.log(1e8)))).astype(np.float64)

    def offset(self, y: Floats) -> float:
        """Log of the mean count."""
        return _log_mean(y)

    def check(self, y: Floats, what: str) -> None:
        """Whole numbers ≥ 0."""
        _check_counts(y, what, self.name)


@final
class NegativeBinomial(Scaled, Quadrature):
    """Counts with mean μ = exp(f) and variance μ + α μ²; ψ is that of the dispersion α = 1/r, and α → 0 is Poisson."""

    name, parameter = "negative_binomial", "dispersion"

    def derivatives(self, psi: float, y: Floats, f: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """With p = μ/(r + μ): y − (y + r) p, −(y + r) p (1 − p), and dr/dψ = −r² exp(ψ) times the slope in r."""
        r = 1.0 / self.variance(psi)
        p = sp.expit(f - np.log(r))
        log_rest = sp.log_expit(np.log(r) - f)
        in_r = sp.digamma(y + r) - sp.digamma(r) + log_rest + 1.0 - (y + r) / r * (1.0 - p)
        along = -(r**2) * np.exp(psi) * in_r
        return self.log_density(psi, y, f), y - (y + r) * p, -(y + r) * p * (1.0 - p), along

    def log_density(self, psi: float, y: Floats, f: Floats) -> Floats:
        """Log Γ(y + r) − log Γ(r) − log y! + r log(1 − p) + y log p."""
        r = 1.0 / self.variance(psi)
        counted = sp.gammaln(y + r) - sp.gammaln(r) - sp.gammaln(y + 1.0)
        return np.asarray(counted + r * sp.log_expit(np.log(r) - f) + y * sp.log_expit(f - np.log(r)))

    def cdf(self, psi: float, y: Floats, f: Floats) -> Floats:
        """P(count ≤ y): a regularised incomplete beta function."""
        r = 1.0 / self.variance(psi)
        below = sp.betainc(r, np.floor(np.maximum(y, 0.0)) + 1.0, sp.expit(np.log(r) - f))
        return np.asarray(np.where(y < 0, 0.0, below))

    def quantile(self, psi: float, level: float, mean: Floats, var: Floats) -> Floats:
        """The smallest count with at least this probability below or at it."""
        return np.maximum(np.ceil(super().quantile(psi, level, mean, var) - 1e-9), 0.0)

    def predict(self, psi: float, mean: Floats, var: Floats) -> tuple[Floats, Floats]:
        """E[μ] = exp(m + v/2), and E[μ] + (1 + α) E[μ²] − E[μ]²."""
        rate = np.exp(np.minimum(mean + 0.5 * var, MOST_LOG_RATE))
        more = (1.0 + self.variance(psi)) * np.exp(np.minimum(var, MOST_LOG_RATE)) - 1.0
        return rate, rate + rate**2 * more

    def sample(self, psi: float, f: Floats, rng: np.random.Generator) -> Floats:
        """Counts of a rate that is itself drawn; one above 10⁸ is taken as that."""
        spread = self.variance(psi)
        rate = np.exp(np.minimum(f, np.log(1e8))) * rng.gamma(1.0 / spread, spread, f.shape)
        return rng.poisson(np.minimum(rate, 1e8)).astype(np.float64)

    def offset(self, y: Floats) -> float:
        """Log of the mean count."""
        return _log_mean(y)

    def check(self, y: Floats, what: str) -> None:
        """Whole numbers ≥ 0."""
        _check_counts(y, what, self.name)


def _log_mean(y: Floats) -> float:
    return float(np.log(max(float(np.mean(y)), 1e-3)))


def _check_counts(y: Floats, what: str, name: str) -> None:
    bad = np.argwhere(~np.isnan(y) & ((y < 0) | (y != np.round(y))))
    if len(bad):
        place = tuple(int(i) for i in bad[0])
        raise ValueError(f"{what}{list(place)} = {y[place]:g}: likelihood={name!r} needs whole numbers ≥ 0")


@final
class Bernoulli(Quadrature):
    """y = ±1 with p(y = 1) = Φ(f)."""

    name = "bernoulli"

    def derivatives(self, psi: float, y: Floats, f: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Of log Φ(y f)."""
        signed = y * f
        value = sp.log_ndtr(signed)
        ratio = np.exp(-0.5 * (signed**2 + LOG_2PI) - value)
        return value, y * ratio, -ratio * (signed + ratio), value

    def cdf(self, psi: float, y: Floats, f: Floats) -> Floats:
        """P(label ≤ y)."""
        return np.where(y < -1.0, 0.0, np.where(y < 1.0, sp.ndtr(-f), 1.0))

    def log_density(self, psi: float, y: Floats, f: Floats) -> Floats:
        """Log Φ(y f)."""
        return np.asarray(sp.log_ndtr(y * f))

    def log_predictive(self, psi: float, y: Floats, mean: Floats, var: Floats) -> Floats:
        """Log Φ(y m/√(1 + v))."""
        return np.asarray(sp.log_ndtr(y * mean / np.sqrt(1.0 + var)))

    def predict(self, psi: float, mean: Floats, var: Floats) -> tuple[Floats, Floats]:
        """P = Φ(m/√(1 + v)) and p (1 − p)."""
        p = sp.ndtr(mean / np.sqrt(1.0 + var))
        return p, p * (1.0 - p)

    def sample(self, psi: float, f: Floats, rng: np.random.Generator) -> Floats:
        """±1."""
        return np.where(rng.random(f.shape) < sp.ndtr(f), 1.0, -1.0)


def is_function(what: str) -> bool:
    """Whether what is asked for is the function, "f", and not observations, "y"."""
    if what not in ("f", "y"):
        raise ValueError(f'what must be "f" or "y", got {what!r}')
    return what == "f"


class Expected(NamedTuple):
    """What a likelihood says of some rows, arrays [N] of one function or [F, N] of several, and the slope of Σ value along ψ.

    ``value`` is of shape [N] or a part of it for each function; only its sum is read.
    """

    value: Floats
    slope: Floats
    curvature: Floats
    spread: Floats
    parameter: Any


def _placed(values: Floats, seen: npt.NDArray[np.bool_]) -> Floats:
    """Numbers of rows that are seen among zeros."""
    out = np.zeros(len(seen))
    out[seen] = values
    return out
