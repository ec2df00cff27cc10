"""Continuous nodes that are mixtures of Gaussians or thresholds of them: StudentT, Laplace, LogNormal, Ordinal, TruncatedNormal.

StudentT   x ~ N(mean, 1/(precision u)), u ~ Gamma(df/2, df/2)
Laplace    x ~ N(mean, 1/(precision u)), 1/u ~ Exp(½): ½ √precision exp(−√precision |x − mean|)   (Andrews & Mallows, 1974)
LogNormal  log x ~ N(mean, 1/precision)
Ordinal    the number of cutpoints below z ~ N(mean, 1/precision)                                    (Albert & Chib, 1993)
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, final

import numpy as np
import numpy.typing as npt
import scipy
from scipy.special import log_ndtr, ndtr, stdtr

from natgrad import families
from natgrad.families._truncated import sides_of
from natgrad.network.language.auxiliary import (
    LaplaceWeights,
    LatentNormal,
    as_auxiliary,
    gaussian_density,
    where_known,
)
from natgrad.network.language.cdfs import Cdf, normal_cdf, truncated_cdf
from natgrad.network.language.continuous import Gamma
from natgrad.network.language.expressions import COUNT, POSITIVE, REAL, Constant
from natgrad.network.language.missing import Censored
from natgrad.network.language.nodes import (
    Array,
    Censorable,
    Node,
    Plates,
    ScalarNode,
    Slot,
    Slots,
    Support,
    must_be_observed,
    numbers,
)
from natgrad.network.language.scope import Scope
from natgrad.network.polynomial import Polynomial
from natgrad.validation import as_numbers, checked_categories, first, where

__all__ = ["Laplace", "LogNormal", "Ordinal", "StudentT", "TruncatedNormal"]

LOG_2 = float(np.log(2.0))


def _sd(slots: Slots) -> Array:
    return np.asarray(1.0 / np.sqrt(slots["precision"]))


class _ScaleMixture(ScalarNode):
    """x ~ N(mean, 1/(precision · u)) with a weight u for each element, its parameter "weight"."""

    family = families.Normal()
    kind = REAL
    moves_with_mean = True

    def log_density(self, scope: Scope) -> Polynomial:
        mean, precision, weight = (self.parameters[name] for name in ("mean", "precision", "weight"))
        own = self.own("x", scope), self.own("xx", scope)
        return gaussian_density(mean, precision, *own, scope, weight.stat("x", scope)) + self._rest(scope)

    @abstractmethod
    def _rest(self, scope: Scope) -> Polynomial | float:
        """½ E[log u], or what is left of it and of the density of u."""


@final
class StudentT(_ScaleMixture):
    """x ~ Student's t with ``df`` degrees of freedom around ``mean``, scale 1/√precision: robust noise, or a heavy-tailed prior.

    Each element has a weight ``fit["x.weight"]``: near 1 for ordinary ones, small for outliers.

    Examples
    --------
    >>> import natgrad as ng
    >>> mu = ng.Normal("mu", 0.0, 1e-4)
    >>> x = ng.StudentT("x", mu, 4.0, df=3.0, plate=ng.Plate("n", 5), observed=[0.9, 1.1, 1.0, 0.8, 30.0])
    >>> print(ng.Network(x).fit()["mu"].mean().round(1))
    1.0
    """

    slots_of = (Slot("mean", REAL), Slot("precision", POSITIVE), Slot("df", POSITIVE, fixed=True))

    def __init__(
        self,
        name: str,
        mean: Any,
        precision: Any,
        *,
        df: Any,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        super().__init__(name, {"mean": mean, "precision": precision, "df": df}, plate, observed, mask)

    def _augment(self) -> None:
        half = 0.5 * numbers(self.parameters["df"])
        self.parameters["weight"] = as_auxiliary(Gamma(f"{self.name}.weight", half, half, plate=self.plates))

    @property
    def is_located(self) -> bool:
        df = self.parameters["df"]
        return isinstance(df, Constant) and bool(np.all(np.asarray(df.value) > 1))

    def _rest(self, scope: Scope) -> Polynomial:
        return 0.5 * self.parameters["weight"].stat("log", scope)

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.asarray(slots["mean"] + _sd(slots) * rng.standard_t(slots["df"], shape))

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        return np.asarray(scipy.stats.t.logpdf(x, slots["df"], slots["mean"], _sd(slots)))

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any]:
        """Up to one degree of freedom there is no mean, up to two no variance."""
        df = np.asarray(slots["df"], dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            var = np.where(df > 2, df / (df - 2.0), np.where(df > 1, np.inf, np.nan)) / slots["precision"]
        return np.where(df > 1, slots["mean"], np.nan), var

    def cdf_given(self, slots: Slots) -> Cdf:
        return Cdf(lambda x, mean, sd, df: stdtr(df, (x - mean) / sd), (slots["mean"], _sd(slots), slots["df"]))


@final
class Laplace(_ScaleMixture):
    """x ~ ½ r exp(−r |x − mean|), r = √precision: noise for medians, or the prior of the lasso. The variance is 2/precision.

    Examples
    --------
    >>> import natgrad as ng
    >>> mu = ng.Normal("mu", 0.0, 1e-4)
    >>> x = ng.Laplace("x", mu, 100.0, plate=ng.Plate("n", 5), observed=[0.9, 1.1, 1.0, 0.8, 30.0])
    >>> print(ng.Network(x).fit(tol=1e-6)["mu"].mean().round(1))
    1.0
    """

    slots_of = (Slot("mean", REAL), Slot("precision", POSITIVE))

    def __init__(
        self, name: str, mean: Any, precision: Any, *, plate: Plates = None, observed: Any = None, mask: Any = None
    ) -> None:
        super().__init__(name, {"mean": mean, "precision": precision}, plate, observed, mask)

    def _augment(self) -> None:
        self.parameters["weight"] = LaplaceWeights(self, self._present())

    @property
    def is_located(self) -> bool:
        return True

    def _rest(self, scope: Scope) -> float:
        # The base measure of the weight has the √(2π) that a Gaussian brings, and the ½ of its own prior is left.
        return 0.5 * float(np.log(2.0 * np.pi)) - LOG_2

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.laplace(slots["mean"], _sd(slots), shape)

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        return np.asarray(scipy.stats.laplace.logpdf(x, slots["mean"], _sd(slots)))

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any]:
        return slots["mean"], 2.0 / slots["precision"]

    def cdf_given(self, slots: Slots) -> Cdf:
        def cdf(x: Any, mean: Any, sd: Any) -> Any:
            z = (x - mean) / sd
            return np.where(z < 0, 0.5 * np.exp(np.minimum(z, 0.0)), 1.0 - 0.5 * np.exp(-np.maximum(z, 0.0)))

        return Cdf(cdf, (slots["mean"], _sd(slots)))


@final
class LogNormal(Censorable):
    """Log x ~ N(mean, 1/precision), observed: a positive number with multiplicative errors. Data may be censored."""

    family = families.Normal()
    kind = POSITIVE
    data_stand_in = 1.0
    support = Support("values > 0", lambda x: x > 0, 1.0)
    least = 0.0
    slots_of = (Slot("mean", REAL), Slot("precision", POSITIVE))

    def __init__(
        self, name: str, mean: Any, precision: Any, *, plate: Plates = None, observed: Any = None, mask: Any = None
    ) -> None:
        must_be_observed(name, observed, "LogNormal", "values; a hidden one is a Normal, its logarithm")
        super().__init__(name, {"mean": mean, "precision": precision}, plate, observed, mask)

    def _latent(self, bounds: Censored, active: npt.NDArray[np.bool_]) -> Node:
        with np.errstate(divide="ignore"):
            lower, upper = (np.log(np.where(active, bound, 1.0)) for bound in (bounds.lower, bounds.upper))
        return LatentNormal(self, self.parameters, (lower, upper), active)

    def log_density(self, scope: Scope) -> Polynomial:
        assert self.value is not None
        x = scope.numbers(np.log(self.value))
        density = gaussian_density(self.parameters["mean"], self.parameters["precision"], x, x * x, scope) - x
        return density if self.bounds is None else where_known(self.bounds.is_exact, density, scope)

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.lognormal(slots["mean"], _sd(slots), shape)

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        return np.asarray(scipy.stats.lognorm.logpdf(x, _sd(slots), scale=np.exp(slots["mean"])))

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any]:
        spread = 1.0 / slots["precision"]
        mean = np.exp(slots["mean"] + 0.5 * spread)
        return mean, np.expm1(spread) * mean**2

    def cdf_given(self, slots: Slots) -> Cdf:
        return Cdf(normal_cdf, (slots["mean"], _sd(slots)), back=np.exp)


@final
class Ordinal(ScalarNode):
    """An ordered category 0 … K − 1, observed: the number of ``cutpoints`` below a hidden z ~ N(mean, 1/precision).

    Parameters
    ----------
    mean, precision : of the hidden number; ``fit["y.latent"]`` has its posterior
    cutpoints : K − 1 known numbers, increasing
        Where the scale is free (a random precision, a mean with an intercept) they only fix its unit.

    Examples
    --------
    >>> import natgrad as ng
    >>> mu = ng.Normal("mu", 0.0, 1.0)
    >>> y = ng.Ordinal("y", mu, cutpoints=[-1.0, 1.0], plate=ng.Plate("n", 4), observed=[2, 2, 1, 2])
    >>> print(ng.Network(y).fit()["mu"].mean() > 0.5)
    True
    """

    family = families.Bernoulli()  # only for the shape of a value: a number
    kind = COUNT
    data_stand_in = 0.0
    slots_of = (Slot("mean", REAL), Slot("precision", POSITIVE))

    def __init__(
        self,
        name: str,
        mean: Any,
        precision: Any = 1.0,
        *,
        cutpoints: Any,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        must_be_observed(name, observed, "Ordinal", "categories")
        self.cutpoints = as_numbers(cutpoints, f"{name!r}: cutpoints", "known numbers")
        if self.cutpoints.ndim != 1 or not len(self.cutpoints):
            raise ValueError(
                f"{name!r}: cutpoints must be a list of increasing numbers, got shape {self.cutpoints.shape}"
            )
        if (place := first(np.diff(self.cutpoints) <= 0)) is not None:
            at = place[0] + 1
            raise ValueError(
                f"{name!r}: cutpoints must increase, but cutpoints{where((at,))} = {self.cutpoints[at]:g} is not above "
                f"{self.cutpoints[at - 1]:g}"
            )
        super().__init__(name, {"mean": mean, "precision": precision}, plate, observed, mask)

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        return checked_categories(f"{self.name!r}: observed", value, len(self.cutpoints) + 1, present)

    def _augment(self) -> None:
        assert self.value is not None
        ends = np.concatenate([[-np.inf], self.cutpoints, [np.inf]])
        bounds = ends[self.value], ends[self.value + 1]
        self.parameters["latent"] = LatentNormal(self, self.parameters, bounds, self._present())

    def saved_options(self) -> None:
        return None

    def log_density(self, scope: Scope) -> Polynomial:
        return Polynomial()  # what was seen is in the bounds of the latent variable

    def _below(self, slots: Slots) -> Array:
        """The probability that the hidden number is below each cutpoint."""
        return np.asarray(ndtr((self.cutpoints - slots["mean"][..., None]) * np.sqrt(slots["precision"])[..., None]))

    def _probabilities(self, slots: Slots) -> Array:
        """The probability of each level [draw, plates, level]."""
        below = self._below(slots)
        edge = np.zeros((*below.shape[:-1], 1))
        return np.diff(np.concatenate([edge, below, edge + 1.0], axis=-1), axis=-1)

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        z = rng.normal(slots["mean"], _sd(slots), shape)
        return np.asarray((z[..., None] > self.cutpoints).sum(-1))

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        table = self._probabilities(slots)
        places = np.broadcast_to(x.astype(np.int64)[..., None], (*table.shape[:-1], 1))
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.take_along_axis(table, places, -1))[..., 0])

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any]:
        table = self._probabilities(slots)
        levels = np.arange(table.shape[-1])
        mean = table @ levels
        return mean, (table * (levels - mean[..., None]) ** 2).sum(-1)

    def cdf_given(self, slots: Slots) -> Cdf:
        def cdf(x: Any, *below: Any) -> Any:
            total: Any = 1.0
            for level, chance in reversed(list(enumerate(below))):
                total = np.where(x < level + 1.0, chance, total)
            return np.where(x < 0, 0.0, total)

        return Cdf(cdf, tuple(np.moveaxis(self._below(slots), -1, 0)), True)


@final
class TruncatedNormal(ScalarNode):
    """x ~ N(mean, 1/precision) between ``lower`` and ``upper``; mean and precision are those before truncation, and known.

    A random mean would make the normaliser Φ(b) − Φ(a) random. With ``lower=0`` it is half-Normal, a scale in a product
    (``sigma * z``).
    """

    family = families.TruncatedNormal()
    kind = REAL
    slots_of = (Slot("mean", REAL, fixed=True), Slot("precision", POSITIVE, fixed=True))

    def __init__(
        self,
        name: str,
        mean: Any,
        precision: Any,
        *,
        lower: Any = None,
        upper: Any = None,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        low, high = np.broadcast_arrays(
            np.asarray(-np.inf if lower is None else lower, dtype=np.float64),
            np.asarray(np.inf if upper is None else upper, dtype=np.float64),
        )
        if (place := first(~(low < high))) is not None:
            raise ValueError(f"{name!r}: lower{where(place)} = {low[place]:g} must be below upper = {high[place]:g}")
        self.lower, self.upper = low, high
        super().__init__(name, {"mean": mean, "precision": precision}, plate, observed, mask)

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        self._support(value, (value >= self.lower) & (value <= self.upper), present, "values between its bounds")
        return np.where(present, value, 0.0)

    def saved_options(self) -> dict[str, Any]:
        return {"lower": self.lower, "upper": self.upper}

    def log_density(self, scope: Scope) -> Polynomial:
        mean, precision = (numbers(self.parameters[name]) for name in ("mean", "precision"))
        own = self.own("x", scope), self.own("xx", scope)
        density = gaussian_density(Constant(REAL, mean), Constant(POSITIVE, precision), *own, scope)
        a, b = ((bound - mean) * np.sqrt(precision) for bound in (self.lower, self.upper))
        density = density - scope.numbers(_log_mass(a, b))
        if self.is_observed:
            return density
        for setting, value in zip(("lower", "upper", "sides"), sides_of(self.lower, self.upper), strict=True):
            density += scope.numbers(value) * self.own(setting, scope)
        return density

    def _lam(self, slots: Slots) -> tuple[Any, ...]:
        low, high, sides = sides_of(self.lower, self.upper)
        return tuple(self.family.natural(**slots, lower=low, upper=high, sides=sides))

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.asarray(np.broadcast_to(self.family.sample(self._lam(slots), rng), shape))

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        mass = _log_mass(*((bound - slots["mean"]) * np.sqrt(slots["precision"]) for bound in (self.lower, self.upper)))
        inside = (x >= self.lower) & (x <= self.upper)
        return np.where(inside, scipy.stats.norm.logpdf(x, slots["mean"], _sd(slots)) - mass, -np.inf)

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any]:
        lam = self._lam(slots)
        return self.family.mean(lam), self.family.var(lam)

    def cdf_given(self, slots: Slots) -> Cdf:
        """With bounds in units of its sd; mirrored (−1) where both are above the mean."""
        mean, sd = slots["mean"], _sd(slots)
        a, b = (self.lower - mean) / sd, (self.upper - mean) / sd
        return Cdf(
            truncated_cdf, (mean, sd, np.where(a > 0, -b, a), np.where(a > 0, -a, b), np.where(a > 0, -1.0, 1.0))
        )


def _log_mass(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """log(Φ(b) − Φ(a)), mirrored where both lie above 0: in the lower tail differences of logarithms keep their digits."""
    low, high = np.where(a > 0, -b, a), np.where(a > 0, -a, b)
    return np.asarray(log_ndtr(high) + np.log1p(-np.exp(log_ndtr(low) - log_ndtr(high))))
