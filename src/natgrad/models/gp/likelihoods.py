"""Likelihoods of one function: Gaussian, Student-t, counts, two classes (`natgrad.models.gp.likelihood` has what they are).

Bernoulli has the probit link, p(y = 1) = Φ(f); Poisson and the negative binomial have the mean exp(f).
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt
import scipy.special as sp

from natgrad.models.gp.joint import Heteroskedastic
from natgrad.models.gp.likelihood import LOG_2PI, Columnwise, Expected, Likelihood, Quadrature, Scaled

__all__ = [
    "Bernoulli",
    "Gaussian",
    "NegativeBinomial",
    "Poisson",
    "StudentT",
    "is_function",
    "likelihood_named",
]

Floats = npt.NDArray[np.float64]
# Beyond this the rate of a Poisson is no number of events.
MOST_LOG_RATE = 100.0


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


def likelihood_named(name: Any, df: float = 4.0) -> Likelihood:
    """The likelihood of a regressor."""
    if isinstance(name, Likelihood):
        return name
    laws: tuple[Likelihood, ...] = (Gaussian(), StudentT(df), Poisson(), NegativeBinomial(), Heteroskedastic())
    known = {law.name: law for law in laws}
    if not isinstance(name, str) or name not in known:
        *others, last = (f'"{word}"' for word in known)
        raise ValueError(f"likelihood must be {', '.join(others)} or {last}, got {name!r}")
    return known[name]
