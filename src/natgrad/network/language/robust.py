"""Continuous nodes that are mixtures of Gaussians or thresholds of them: StudentT, Laplace, LogNormal, Ordinal, TruncatedNormal.

StudentT   x ~ N(mean, 1/(precision u)), u ~ Gamma(df/2, df/2)
Laplace    x ~ N(mean, 1/(precision u)), 1/u ~ Exp(½): ½ √precision exp(−√precision |x − mean|)   (Andrews & Mallows, 1974)
LogNormal  log x ~ N(mean, 1/precision)
Ordinal    the number of cutpoints below z ~ N(mean, 1/precision)                                    (Albert & Chib, 1993)
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from natgrad import families
from natgrad.families._truncated import sides_of
from natgrad.network.compile.polynomial import Polynomial
from natgrad.network.language.auxiliary import (
    LaplaceWeights,
    LatentNormal,
    as_auxiliary,
    gaussian_density,
    where_known,
)
from natgrad.network.language.censoring import as_censored
from natgrad.network.language.continuous import Gamma
from natgrad.network.language.expressions import COUNT, POSITIVE, REAL, Constant
from natgrad.network.language.node_helpers import Plates, ScalarNode, known, must_be_observed, numbers
from natgrad.network.language.nodes import Slot
from natgrad.network.language.scope import Scope
from natgrad.network.language.slots import checked_categories
from natgrad.validation import as_numbers, first, where

__all__ = ["Laplace", "LogNormal", "Ordinal", "StudentT", "TruncatedNormal"]

LOG_2 = float(np.log(2.0))


@final
class StudentT(ScalarNode):
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

    family = families.Normal()
    kind = REAL
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

    def log_density(self, scope: Scope) -> Polynomial:
        weight, p = self.parameters["weight"], self.parameters
        own = self.own("x", scope), self.own("xx", scope)
        density = gaussian_density(p["mean"], p["precision"], *own, scope, weight.stat("x", scope))
        return density + 0.5 * weight.stat("log", scope)


@final
class Laplace(ScalarNode):
    """x ~ ½ r exp(−r |x − mean|), r = √precision: noise for medians, or the prior of the lasso. The variance is 2/precision.

    Examples
    --------
    >>> import natgrad as ng
    >>> mu = ng.Normal("mu", 0.0, 1e-4)
    >>> x = ng.Laplace("x", mu, 100.0, plate=ng.Plate("n", 5), observed=[0.9, 1.1, 1.0, 0.8, 30.0])
    >>> print(ng.Network(x).fit(tol=1e-6)["mu"].mean().round(1))
    1.0
    """

    family = families.Normal()
    kind = REAL
    slots_of = (Slot("mean", REAL), Slot("precision", POSITIVE))

    def __init__(
        self, name: str, mean: Any, precision: Any, *, plate: Plates = None, observed: Any = None, mask: Any = None
    ) -> None:
        super().__init__(name, {"mean": mean, "precision": precision}, plate, observed, mask)

    def _augment(self) -> None:
        self.parameters["weight"] = LaplaceWeights(self, self._present())

    def log_density(self, scope: Scope) -> Polynomial:
        weight, p = self.parameters["weight"], self.parameters
        own = self.own("x", scope), self.own("xx", scope)
        density = gaussian_density(p["mean"], p["precision"], *own, scope, weight.stat("x", scope))
        # The base measure of the weight has the √(2π) that a Gaussian brings, and the ½ of its own prior is left.
        return density + (0.5 * float(np.log(2.0 * np.pi)) - LOG_2)


@final
class LogNormal(ScalarNode):
    """Log x ~ N(mean, 1/precision), observed: a positive number with multiplicative errors. Data may be censored."""

    family = families.Normal()
    kind = POSITIVE
    slots_of = (Slot("mean", REAL), Slot("precision", POSITIVE))

    def __init__(
        self, name: str, mean: Any, precision: Any, *, plate: Plates = None, observed: Any = None, mask: Any = None
    ) -> None:
        must_be_observed(name, observed, "LogNormal", "values; a hidden one is a Normal, its logarithm")
        self.bounds, data = as_censored(observed, least=0.0)
        super().__init__(name, {"mean": mean, "precision": precision}, plate, data, mask)

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        self._support(value, value > 0, present, "values > 0")
        return np.where(present, value, 1.0).astype(np.float64)

    def _augment(self) -> None:
        if self.bounds is None:
            return
        active = ~self.bounds.is_exact & self._present()
        with np.errstate(divide="ignore"):
            lower, upper = (np.log(np.where(active, b, 1.0)) for b in (self.bounds.lower, self.bounds.upper))
        p = self.parameters
        self.parameters["latent"] = LatentNormal(self, p["mean"], p["precision"], (lower, upper), active)

    def observed_stat(self, name: str) -> npt.NDArray[Any]:
        if self.bounds is not None:
            raise self.bounds.refuse_reading(self.name)
        return super().observed_stat(name)

    def log_density(self, scope: Scope) -> Polynomial:
        assert self.value is not None
        x = known(scope, np.log(self.value))
        density = gaussian_density(self.parameters["mean"], self.parameters["precision"], x, x * x, scope) - x
        return density if self.bounds is None else where_known(self.bounds.is_exact, density, scope)


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
        bounds, p = (ends[self.value], ends[self.value + 1]), self.parameters
        self.parameters["latent"] = LatentNormal(self, p["mean"], p["precision"], bounds, self._present())

    def log_density(self, scope: Scope) -> Polynomial:
        return Polynomial()  # what was seen is in the bounds of the latent variable


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

    def log_density(self, scope: Scope) -> Polynomial:
        mean, precision = (numbers(self.parameters[name]) for name in ("mean", "precision"))
        own = self.own("x", scope), self.own("xx", scope)
        density = gaussian_density(Constant(REAL, mean), Constant(POSITIVE, precision), *own, scope)
        a, b = ((bound - mean) * np.sqrt(precision) for bound in (self.lower, self.upper))
        density = density - known(scope, _log_mass(a, b))
        if self.is_observed:
            return density
        for setting, value in zip(("lower", "upper", "sides"), sides_of(self.lower, self.upper), strict=True):
            density += known(scope, value) * self.own(setting, scope)
        return density


def _log_mass(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """log(Φ(b) − Φ(a)), mirrored where both lie above 0: in the lower tail differences of logarithms keep their digits."""
    low, high = np.where(a > 0, -b, a), np.where(a > 0, -a, b)
    return np.asarray(log_ndtr(high) + np.log1p(-np.exp(log_ndtr(low) - log_ndtr(high))))
