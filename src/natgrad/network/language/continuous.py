"""Define nodes of continuous quantities: Normal, MultivariateNormal, Gamma, Exponential, Rayleigh, Wishart and others.

Each node declares its conditional once, as its expected log density; messages, targets, natural gradients and the bound
are all derived from these polynomials. Precision everywhere:
``Normal(mean, precision)``, ``Gamma(shape, rate)``, ``Wishart(dof, rate)`` with E = dof · rate⁻¹.

Two have a q of their own, by quadrature in one dimension:

HalfNormal  1/√τ ~ N⁺(0, scale²)  ⇔  p(τ) ∝ τ^(−3/2) exp(−1 / (2 scale² τ)); q(τ) is a generalised inverse Gaussian law
GammaShape  a ~ Gamma(shape, rate), the shape of Gammas x ~ Gamma(a, b): the conditional of a is
            exp(a Σ log(b x)) / Γ(a)^n times its prior, which is q(a) itself: no bound, no point
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt
import scipy
from scipy.special import gammaln, xlogy

from natgrad import families
from natgrad.errors import PlateMismatch
from natgrad.families._ops import multigammaln
from natgrad.network.language.auxiliary import (
    ConcentrationBound,
    LatentExponential,
    LatentNormal,
    LogGamma,
    gaussian_density,
    where_known,
)
from natgrad.network.language.cdfs import Cdf, beta_cdf, gamma_cdf, normal_cdf
from natgrad.network.language.expressions import (
    MATRIX,
    POSITIVE,
    REAL,
    SIMPLEX,
    VECTOR,
    Constant,
    Expression,
)
from natgrad.network.language.links import Stacked, softmax
from natgrad.network.language.missing import Censored
from natgrad.network.language.nodes import (
    SUM_TOLERANCE,
    Array,
    Censorable,
    Node,
    Plates,
    ScalarNode,
    Slot,
    Slots,
    Support,
    check_shape,
    event_length,
    given_size,
    left_over,
    must_be_observed,
    numbers,
)
from natgrad.network.language.plates import Plate, as_plates
from natgrad.network.language.scope import Scope
from natgrad.network.polynomial import Label, Polynomial
from natgrad.validation import check_precision, first, require, where

__all__ = [
    "Dirichlet",
    "Exponential",
    "Gamma",
    "GammaShape",
    "HalfNormal",
    "MultivariateNormal",
    "Normal",
    "Rayleigh",
    "Wishart",
]

LOG_2PI = float(np.log(2.0 * np.pi))


@final
class Normal(Censorable):
    """x ~ N(mean, 1/precision).

    With precision 0 a hidden node has a flat prior; the bound is then up to a constant. Of censored data
    (``observed=censored(…)``) only bounds are known: ``fit["x.latent"]`` has what is inferred of the rest.

    Examples
    --------
    >>> import natgrad as ng
    >>> mu = ng.Normal("mu", 0.0, 0.1)
    >>> ng.Normal("x", mu, 2.0, plate=ng.Plate("n", 3), observed=[1.2, -0.3, 0.8])
    <Normal 'x' on n=3 observed>
    """

    family = families.Normal()
    kind = REAL
    is_gaussian = moves_with_mean = True
    slots_of = (Slot("mean", REAL), Slot("precision", POSITIVE, least=0.0))

    def __init__(
        self, name: str, mean: Any, precision: Any, *, plate: Plates = None, observed: Any = None, mask: Any = None
    ) -> None:
        super().__init__(name, {"mean": mean, "precision": precision}, plate, observed, mask)

    def _latent(self, bounds: Censored, active: npt.NDArray[np.bool_]) -> Node:
        return LatentNormal(self, self.parameters, (bounds.lower, bounds.upper), active)

    def log_density(self, scope: Scope) -> Polynomial:
        mean, precision = self.parameters["mean"], self.parameters["precision"]
        if self.bounds is None:
            own = self.own("x", scope), self.own("xx", scope)
            return gaussian_density(mean, precision, *own, scope, flat=self.is_improper)
        x = scope.numbers(self.value)
        return where_known(self.bounds.is_exact, gaussian_density(mean, precision, x, x * x, scope), scope)

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.normal(slots["mean"], 1.0 / np.sqrt(slots["precision"]), shape)

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        return np.asarray(scipy.stats.norm.logpdf(x, slots["mean"], 1.0 / np.sqrt(slots["precision"])))

    def log_density_without_precision(self, x: Array, mean: Array, shape: Array, rate: Array) -> Array:
        """∫ N(x; mean, 1/τ) Gamma(τ; shape, rate) dτ, Student's t."""
        return np.asarray(scipy.stats.t.logpdf(x, 2.0 * shape, mean, np.sqrt(rate / shape)))

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any]:
        return slots["mean"], 1.0 / slots["precision"]

    def cdf_given(self, slots: Slots) -> Cdf:
        return Cdf(normal_cdf, (slots["mean"], 1.0 / np.sqrt(slots["precision"])))


@final
class MultivariateNormal(Node):
    """x ~ N(mean, precision⁻¹) for vectors of length ``size`` (found from the parameters or the data)."""

    family = families.MultivariateNormal()
    kind = VECTOR
    is_gaussian = moves_with_mean = True
    slots_of = (Slot("mean", VECTOR), Slot("precision", MATRIX, least=0.0))

    def __init__(
        self,
        name: str,
        mean: Any,
        precision: Any,
        *,
        size: int | None = None,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        self._size = given_size(name, size)
        super().__init__(name, {"mean": mean, "precision": precision}, plate, observed, mask)

    def _event_size(self, observed: Any) -> int | None:
        sizes = [self._size, *(event_length(self.parameters[name]) for name in ("mean", "precision"))]
        known = [size for size in sizes if size is not None]
        if not known and observed is not None and (shape := np.shape(observed)):
            return int(shape[-1])
        if not known:
            raise PlateMismatch(
                f"{self.name!r}: the length of the vectors cannot be told from mean or precision: give size="
            )
        return known[0]

    def saved_options(self) -> dict[str, Any]:
        return {"size": self.size}

    def log_density(self, scope: Scope) -> Polynomial:
        mean, precision = self.parameters["mean"], self.parameters["precision"]
        assert self.size is not None
        i, j = scope.fresh("i", self.size), scope.fresh("i", self.size)
        quadratic = self.own("x", scope, (i,)) * mean.stat("x", scope, (j,))
        quadratic += -0.5 * self.own("xx", scope, (i, j)) - 0.5 * mean.stat("xx", scope, (i, j))
        density = precision.stat("x", scope, (i, j)) * quadratic
        if self.is_improper:
            return density  # without a normaliser: the bound is up to a constant
        return density + 0.5 * precision.stat("log", scope) - 0.5 * self.size * LOG_2PI

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        lam = self.family.natural(mean=slots["mean"], precision=slots["precision"])
        return np.asarray(self.family.sample(lam, rng))

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        difference, precision = x - slots["mean"], slots["precision"]
        quadratic = np.einsum("...i,...ij,...j->...", difference, precision, difference)
        normaliser = 0.5 * x.shape[-1] * np.log(2 * np.pi)
        return np.asarray(0.5 * np.linalg.slogdet(precision)[1] - 0.5 * quadratic - normaliser)

    def log_density_without_precision(self, x: Array, mean: Array, dof: Array, rate: Array) -> Array:
        """∫ N(x; m, Λ⁻¹) Wishart(Λ; ν, R) dΛ: Student's t with ν − D + 1 degrees of freedom; ``dof`` is ν times the identity."""
        size, nu, difference = x.shape[-1], dof[..., 0, 0], x - mean
        distance = (difference * np.linalg.solve(rate, difference[..., None])[..., 0]).sum(-1)
        normaliser = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * (nu + 1.0 - size)) - 0.5 * size * np.log(np.pi)
        return np.asarray(normaliser - 0.5 * np.linalg.slogdet(rate)[1] - 0.5 * (nu + 1.0) * np.log1p(distance))

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any]:
        return slots["mean"], np.diagonal(np.linalg.inv(slots["precision"]), axis1=-2, axis2=-1)

    def cdf_given(self, slots: Slots) -> Cdf:
        mean, var = self.mean_var_given(slots)
        return Cdf(normal_cdf, (mean, np.sqrt(var)))


@final
class Gamma(ScalarNode):
    """x ~ Gamma(shape, rate), mean shape/rate; conjugate for precisions and for rates.

    A flat prior where the data determine the rest: Gamma(0, 0) is 1/x, and Gamma(−½, 0) of a precision is flat in the standard
    deviation. The bound is then up to a constant. A shape that is learned is a `GammaShape`.
    """

    family = families.Gamma()
    kind = POSITIVE
    support = Support("values > 0", lambda x: x > 0, 1.0)
    slots_of = (Slot("shape", POSITIVE, fixed=True, least=-1.0), Slot("rate", POSITIVE, least=0.0))

    def __init__(
        self, name: str, shape: Any, rate: Any, *, plate: Plates = None, observed: Any = None, mask: Any = None
    ) -> None:
        if isinstance(shape, Expression):
            check_shape(name, "shape", shape)
            self.slots_of = (Slot("shape", POSITIVE), self.slots_of[1])
        super().__init__(name, {"shape": shape, "rate": rate}, plate, observed, mask)

    def log_density(self, scope: Scope) -> Polynomial:
        log_x, x = self.own("log", scope), self.own("x", scope)
        rate = self.parameters["rate"]
        if not isinstance(self.parameters["shape"], Constant):
            a = self.parameters["shape"]
            return (
                a.stat("x", scope) * rate.stat("log", scope)
                - a.stat("lgamma", scope)
                + (a.stat("x", scope) + -1.0) * log_x
                - rate.stat("x", scope) * x
            )
        shape = numbers(self.parameters["shape"])
        density = scope.numbers(shape - 1.0) * log_x - rate.stat("x", scope) * x
        if self.is_improper:
            return density  # without a normaliser: the bound is up to a constant
        return scope.numbers(shape) * rate.stat("log", scope) + density - scope.numbers(gammaln(shape))

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.gamma(slots["shape"], 1.0 / slots["rate"], shape)

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        return np.asarray(scipy.stats.gamma.logpdf(x, slots["shape"], scale=1.0 / slots["rate"]))

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any]:
        return slots["shape"] / slots["rate"], slots["shape"] / slots["rate"] ** 2

    def cdf_given(self, slots: Slots) -> Cdf:
        return Cdf(gamma_cdf, (slots["shape"], slots["rate"]))


@final
class Exponential(Censorable):
    """x ~ Exp(rate), mean 1/rate: a Gamma with shape 1. Data may be censored: ``observed=censored(…)``."""

    family = families.Gamma()
    kind = POSITIVE
    support = Support("values ≥ 0", lambda x: x >= 0, 1.0)
    least = 0.0
    slots_of = (Slot("rate", POSITIVE),)

    def __init__(self, name: str, rate: Any, *, plate: Plates = None, observed: Any = None, mask: Any = None) -> None:
        super().__init__(name, {"rate": rate}, plate, observed, mask)

    def _latent(self, bounds: Censored, active: npt.NDArray[np.bool_]) -> Node:
        # What is only known to be larger has the probability exp(−rate · lower): no variable is needed for it.
        active = active & np.isfinite(bounds.upper)
        return LatentExponential(self, self.parameters, (bounds.lower, bounds.upper), active)

    def log_density(self, scope: Scope) -> Polynomial:
        rate = self.parameters["rate"]
        if self.bounds is None:
            return rate.stat("log", scope) - rate.stat("x", scope) * self.own("x", scope)
        exact, right = self.bounds.is_exact, ~np.isfinite(self.bounds.upper)
        elapsed = scope.numbers(np.where(exact | right, np.asarray(self.value), 0.0))
        return where_known(exact, rate.stat("log", scope), scope) - elapsed * rate.stat("x", scope)

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.exponential(1.0 / slots["rate"], shape)

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        return np.asarray(scipy.stats.expon.logpdf(x, scale=1.0 / slots["rate"]))

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any]:
        return 1.0 / slots["rate"], slots["rate"] ** -2.0

    def cdf_given(self, slots: Slots) -> Cdf:
        return Cdf(gamma_cdf, (np.ones(()), slots["rate"]))


@final
class Rayleigh(ScalarNode):
    """x ~ Rayleigh(1/√precision), observed: the length of a vector in the plane whose entries are N(0, 1/precision).

    The density is precision · x · exp(−½ precision x²), and a Gamma is conjugate to the precision.

    Examples
    --------
    >>> import natgrad as ng
    >>> tau = ng.Gamma("tau", 1.0, 1.0)
    >>> speed = ng.Rayleigh("speed", tau, plate=ng.Plate("hour", 4), observed=[2.0, 4.0, 4.0, 2.0])
    >>> print(ng.Network(speed).fit()["tau"].mean().round(3))  # (1 + 4) / (1 + ½ · 40)
    0.238
    """

    family = families.Gamma()  # only for the shape of a value: a number
    kind = POSITIVE
    data_stand_in = 1.0
    support = Support("values > 0", lambda x: x > 0, 1.0)
    slots_of = (Slot("precision", POSITIVE),)

    def __init__(
        self, name: str, precision: Any, *, plate: Plates = None, observed: Any = None, mask: Any = None
    ) -> None:
        must_be_observed(name, observed, "Rayleigh")
        super().__init__(name, {"precision": precision}, plate, observed, mask)

    def log_density(self, scope: Scope) -> Polynomial:
        assert self.value is not None
        precision, x = self.parameters["precision"], self.value
        return (
            precision.stat("log", scope)
            + scope.numbers(np.log(x))
            - scope.numbers(0.5 * x**2) * precision.stat("x", scope)
        )

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.rayleigh(1.0 / np.sqrt(slots["precision"]), shape)

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        return np.asarray(np.log(slots["precision"]) + np.log(x) - 0.5 * slots["precision"] * x**2)

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any]:
        return np.sqrt(0.5 * np.pi / slots["precision"]), (2.0 - 0.5 * np.pi) / slots["precision"]

    def cdf_given(self, slots: Slots) -> Cdf:
        return Cdf(lambda x, precision: -np.expm1(-0.5 * precision * np.maximum(x, 0.0) ** 2), (slots["precision"],))


@final
class Wishart(Node):
    """X ~ Wishart(dof, rate), E[X] = dof · rate⁻¹: the prior of a precision matrix."""

    family = families.Wishart()
    kind = MATRIX
    slots_of = (Slot("dof", POSITIVE, fixed=True), Slot("rate", MATRIX))

    def __init__(
        self,
        name: str,
        dof: Any,
        rate: Any,
        *,
        size: int | None = None,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        self._size = given_size(name, size)
        super().__init__(name, {"dof": dof, "rate": rate}, plate, observed, mask)

    def _event_size(self, observed: Any) -> int | None:
        size = self._size if self._size is not None else event_length(self.parameters["rate"])
        if size is None:
            raise PlateMismatch(
                f"{self.name!r}: the size of the matrix cannot be told from rate: give size=, or a matrix"
            )
        dof = numbers(self.parameters["dof"])
        require(dof > size - 1, dof, f"{self.name!r}: dof", f"> {size - 1}, the size of the matrix less one")
        return size

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        filled = np.where(present[..., None, None], value, np.eye(value.shape[-1]))
        check_precision(f"{self.name!r}: observed", filled)
        return filled

    def observed_stat(self, name: str) -> npt.NDArray[Any]:
        assert self.value is not None
        return np.linalg.slogdet(self.value)[1] if name == "log" else self.value

    def saved_options(self) -> dict[str, Any]:
        return {"size": self.size}

    def log_density(self, scope: Scope) -> Polynomial:
        dof, rate, size = numbers(self.parameters["dof"]), self.parameters["rate"], self.size
        assert size is not None
        i, j = scope.fresh("i", size), scope.fresh("i", size)
        normaliser = 0.5 * dof * size * np.log(2.0) + multigammaln(np.asarray(0.5 * dof), size)
        return (
            scope.numbers(0.5 * dof) * rate.stat("log", scope)
            - 0.5 * rate.stat("x", scope, (i, j)) * self.own("x", scope, (i, j))
            + scope.numbers(0.5 * (dof - size - 1.0)) * self.own("log", scope)
            - scope.numbers(normaliser)
        )

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        rate = np.broadcast_to(slots["rate"], (*shape, *slots["rate"].shape[-2:]))
        dof = np.broadcast_to(slots["dof"], shape)
        return np.asarray(self.family.sample(self.family.natural(dof=dof, rate=rate), rng))

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        dof, rate, size = slots["dof"], slots["rate"], x.shape[-1]
        log_x, log_rate = np.linalg.slogdet(x)[1], np.linalg.slogdet(rate)[1]
        inside = np.einsum("...ij,...ji->...", rate, x)
        gamma = 0.25 * size * (size - 1) * np.log(np.pi) + gammaln(0.5 * (dof[..., None] - np.arange(size))).sum(-1)
        logs = 0.5 * (dof - size - 1) * log_x - 0.5 * inside - 0.5 * dof * size * np.log(2.0)
        return np.asarray(logs + 0.5 * dof * log_rate - gamma)

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any]:
        scale, dof = np.linalg.inv(slots["rate"]), np.asarray(slots["dof"])[..., None, None]
        diagonal = np.diagonal(scale, axis1=-2, axis2=-1)
        return dof * scale, dof * (scale**2 + diagonal[..., :, None] * diagonal[..., None, :])


@final
class Dirichlet(Node):
    """x ~ Dir(concentration), probabilities over ``size`` categories; one number means a symmetric prior.

    One Gamma α as the concentration is learned: a symmetric prior, whose normaliser is bounded below by
    (K − 1) log α − log K + the tangent of h(α) = log Γ(Kα + 1) − K log Γ(α + 1), which is convex; it touches at E[α].
    A `GammaShape` is learned without that bound. Several a_k along a plate are learned one by one: groups that share them share
    weights, a_k / Σ_j a_j, a hierarchical Dirichlet law.
    """

    family = families.Dirichlet()
    kind = SIMPLEX
    slots_of = (Slot("concentration", POSITIVE, fixed=True, events=1),)

    def __init__(
        self,
        name: str,
        concentration: Any,
        *,
        size: int | None = None,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        self._size = given_size(name, size, least=2)
        self.is_learned, self.has_shapes = isinstance(concentration, Expression), False
        self.entries_plate: Plate | None = None
        if isinstance(concentration, Expression):
            self.slots_of = (Slot("concentration", POSITIVE),)
            self.entries_plate = left_over(concentration, as_plates(name, plate), repr(name))
            if self.entries_plate is not None:
                check_shape(name, "concentration", concentration)
                self._size = self._size or self.entries_plate.size
            access = concentration.whole
            self.has_shapes = access is not None and "lgamma" in access.node.family.stat_names
        super().__init__(name, {"concentration": concentration}, plate, observed, mask)

    def _augment(self) -> None:
        if self.has_shapes:
            self.parameters["bound"] = LogGamma(self, self._present())
        elif self.is_learned:
            self.parameters["bound"] = ConcentrationBound(self, float(self.size or 0))

    def _event_size(self, observed: Any) -> int | None:
        if self.is_learned:
            if self._size is None:
                raise PlateMismatch(
                    f"{self.name!r}: the number of categories cannot be told from concentration: give size="
                )
            return self._size
        values = numbers(self.parameters["concentration"])
        size = self._size if self._size is not None else (values.shape[-1] if values.ndim else None)
        if size is None or size < 2:
            got = "the number" if size is None else "a vector with one entry,"
            raise PlateMismatch(
                f"{self.name!r}: the number of categories cannot be told from concentration, {got} {values.flat[0]:g}: give "
                "size=, at least 2"
            )
        return int(size)

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        self._support(value, value > 0, present, "positive entries that sum to 1")
        total = np.asarray(value.sum(-1))
        if (place := first(present & (np.abs(total - 1) > SUM_TOLERANCE))) is not None:
            raise ValueError(
                f"{self.name!r}: observed{where(place)} sums to {total[place]:g}, not to 1: divide by the sum"
            )
        return np.where(present[..., None], value, 1.0)

    def concentration(self) -> npt.NDArray[np.float64]:
        """The prior's parameter with its event axis written out."""
        values = numbers(self.parameters["concentration"])
        assert self.size is not None
        return np.broadcast_to(values, (*values.shape[:-1], self.size)) if values.ndim else np.full(self.size, values)

    def _with_shapes(self, scope: Scope, k: Label) -> Polynomial:
        """Σ_k (a_k − 1) log x_k − log Γ(a_k) + a_k log u, with u ~ Gamma(Σ_k a_k, 1) for Γ(Σ_k a_k)."""
        each, log_u, times = self.parameters["concentration"], self.parameters["bound"].stat("x", scope), 1.0
        if self.entries_plate is None:
            times, bind = float(self.size or 0), {}
        else:
            scope.check_size(self.entries_plate, k, f"concentration = {each}")
            bind = {self.entries_plate.name: k}
        x, logs = (each.stat(stat, scope, (), bind) for stat in ("x", "lgamma"))
        return (x + -1.0) * self.own("log", scope, (k,)) + times * (log_u * x - logs)

    def saved_options(self) -> dict[str, Any]:
        return {"size": self.size}

    def log_density(self, scope: Scope) -> Polynomial:
        assert self.size is not None
        k = scope.fresh("k", self.size)
        if self.has_shapes:
            return self._with_shapes(scope, k)
        if self.is_learned:
            learned, slope = self.parameters["concentration"], self.parameters["bound"]
            x, log_x = learned.stat("x", scope), learned.stat("log", scope)
            bound = slope.stat("x", scope) * x + (self.size - 1.0) * log_x - float(np.log(self.size))
            return (x + -1.0) * self.own("log", scope, (k,)) + bound
        alpha = self.concentration()
        normaliser = gammaln(alpha.sum(-1)) - gammaln(alpha).sum(-1)
        return scope.numbers(alpha - 1.0, k) * self.own("log", scope, (k,)) + scope.numbers(normaliser)

    def read_slots(self) -> dict[str, tuple[Slot, Expression]]:
        """A learned concentration; known numbers are at hand."""
        if not self.is_learned:
            return {}
        (slot,), value = self.slots_of, self.parameters["concentration"]
        return {slot.name: (slot, value if self.entries_plate is None else Stacked(value, self.entries_plate))}

    def _concentration_given(self, slots: Slots) -> Array:
        """One for each category, for each draw."""
        if not self.is_learned:
            return np.asarray(self.concentration())
        of_all = slots["concentration"].ndim == 1 + len(self.plates)
        wide = (*slots["concentration"].shape, self.size or 0)
        return np.broadcast_to(slots["concentration"][..., None], wide) if of_all else slots["concentration"]

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        wide = np.broadcast_to(self._concentration_given(slots), (*shape, self.size or 0))
        # Logarithms, as tiny concentrations would be zeros to rounding: log Γ(a) variables from those of a + 1.
        logs = np.log(rng.gamma(wide + 1.0)) + np.log1p(-rng.random(wide.shape)) / wide
        return softmax(logs)

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        concentration = self._concentration_given(slots)
        normaliser = gammaln(concentration.sum(-1)) - gammaln(concentration).sum(-1)
        return np.asarray(normaliser + xlogy(concentration - 1.0, x).sum(-1))

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any]:
        concentration = self._concentration_given(slots)
        total = concentration.sum(-1, keepdims=True)
        mean = concentration / total
        return mean, mean * (1.0 - mean) / (total + 1.0)

    def cdf_given(self, slots: Slots) -> Cdf:
        """Of each share, which is a Beta variable."""
        a = self._concentration_given(slots)
        return Cdf(beta_cdf, (a, a.sum(-1, keepdims=True) - a))


@final
class HalfNormal(ScalarNode):
    """The precision τ of a standard deviation 1/√τ that is half-Normal with the given scale: no larger than a few scales.

    It stands where a Gamma stands (``ng.Normal("y", mu, tau)``); ``fit["tau"].mean() ** -0.5`` is about the standard deviation.

    Examples
    --------
    >>> import natgrad as ng
    >>> tau = ng.HalfNormal("tau", 1.0)
    >>> x = ng.Normal("x", 0.0, tau, plate=ng.Plate("n", 4), observed=[1.0, -2.0, 1.5, -0.5])
    >>> print(ng.Network(x).fit()["tau"].mean().round(2))
    0.67
    """

    family = families.HalfNormalPrecision()
    kind = POSITIVE
    slots_of = (Slot("scale", POSITIVE, fixed=True),)
    has_no_mean = True

    def __init__(self, name: str, scale: Any, *, plate: Plates = None) -> None:
        super().__init__(name, {"scale": scale}, plate)

    def log_density(self, scope: Scope) -> Polynomial:
        scale = numbers(self.parameters["scale"])
        decay = scope.numbers(0.5 / scale**2) * self.own("inverse", scope)
        return -1.5 * self.own("log", scope) - decay - scope.numbers(np.log(scale) + 0.5 * LOG_2PI)


@final
class GammaShape(ScalarNode):
    """a ~ Gamma(shape, rate), a number that is itself the shape of Gammas, or an entry of the concentration of Dirichlets.

    Its q is no Gamma, but the complete conditional itself, with a, log a and log Γ(a) as statistics; moments are integrals in one
    dimension. It also stands where a Gamma stands, as a rate or a precision.

    Examples
    --------
    >>> import natgrad as ng, numpy as np
    >>> a, b = ng.GammaShape("a", 1.0, 0.1), ng.Gamma("b", 1.0, 0.1)
    >>> data = np.random.default_rng(0).gamma(3.0, 0.5, 500)
    >>> x = ng.Gamma("x", a, b, plate=ng.Plate("n", 500), observed=data)
    >>> print(ng.Network(x).fit(tol=1e-9)["a"].mean().round(2))  # the exact posterior has 3.25
    3.25
    """

    family = families.GammaShape()
    kind = POSITIVE
    slots_of = (Slot("shape", POSITIVE, fixed=True), Slot("rate", POSITIVE))

    def __init__(self, name: str, shape: Any, rate: Any, *, plate: Plates = None) -> None:
        super().__init__(name, {"shape": shape, "rate": rate}, plate)

    def log_density(self, scope: Scope) -> Polynomial:
        shape, rate = numbers(self.parameters["shape"]), self.parameters["rate"]
        density = scope.numbers(shape - 1.0) * self.own("log", scope) - rate.stat("x", scope) * self.own("x", scope)
        return scope.numbers(shape) * rate.stat("log", scope) + density - scope.numbers(gammaln(shape))
