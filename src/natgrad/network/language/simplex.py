"""Probabilities of two and of any number of categories, and scales: Beta, StickBreaking and HalfCauchy.

StickBreaking  π_k = v_k Π_{j<k} (1 − v_j),  v_k ~ Beta(1 − d, α + k d): the Dirichlet process (d = 0) or the Pitman–Yor process,
               truncated after K categories (Sethuraman, 1994; Blei & Jordan, 2006)
HalfCauchy     1/√τ ~ C⁺(scale)  ⇔  τ ~ Gamma(½, a), a ~ Gamma(½, 1/scale²)   (Wand et al., 2011)
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import scipy
from scipy.special import betaln, gammaln

from natgrad import families
from natgrad.network.language.auxiliary import StickBound, as_auxiliary
from natgrad.network.language.cdfs import Cdf, beta_cdf
from natgrad.network.language.continuous import Gamma
from natgrad.network.language.expressions import POSITIVE, SIMPLEX, UNIT, Constant
from natgrad.network.language.nodes import (
    Array,
    Node,
    Plates,
    ScalarNode,
    Slot,
    Slots,
    Support,
    given_size,
    numbers,
)
from natgrad.network.language.scope import Scope
from natgrad.network.polynomial import Polynomial

__all__ = ["Beta", "HalfCauchy", "StickBreaking"]


@final
class Beta(ScalarNode):
    """x ~ Beta(a, b), a probability."""

    family = families.Beta()
    kind = UNIT
    support = Support("values strictly between 0 and 1", lambda x: (x > 0) & (x < 1), 0.5)
    slots_of = (Slot("a", POSITIVE, fixed=True), Slot("b", POSITIVE, fixed=True))

    def __init__(
        self, name: str, a: Any, b: Any, *, plate: Plates = None, observed: Any = None, mask: Any = None
    ) -> None:
        super().__init__(name, {"a": a, "b": b}, plate, observed, mask)

    def log_density(self, scope: Scope) -> Polynomial:
        a, b = numbers(self.parameters["a"]), numbers(self.parameters["b"])
        normaliser = gammaln(a + b) - gammaln(a) - gammaln(b)
        log_x, log_rest = self.own("log", scope), self.own("log1m", scope)
        return scope.numbers(a - 1.0) * log_x + scope.numbers(b - 1.0) * log_rest + scope.numbers(normaliser)

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.beta(slots["a"], slots["b"], shape)

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        return np.asarray(scipy.stats.beta.logpdf(x, slots["a"], slots["b"]))

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any]:
        total = slots["a"] + slots["b"]
        mean = slots["a"] / total
        return mean, mean * (1.0 - mean) / (total + 1.0)

    def cdf_given(self, slots: Slots) -> Cdf:
        return Cdf(beta_cdf, (slots["a"], slots["b"]))


@final
class StickBreaking(Node):
    """Probabilities of ``size`` categories, a truncated Dirichlet process: as many are used as the data ask for.

    Parameters
    ----------
    concentration : α, a number > 0 or a Gamma
        The expected number of categories among n draws grows like α log n.
    size : int, the most categories: more than will be used
    grow : bool, optional
        A fit finds how many categories there are: it begins with one, and what lies on the plates along which categories with
        these weights choose is split, merged and deleted as the exact bound says, as along a ``Plate(name, size, grow=True)``.
        By default wherever steps are exact; True refuses those that are not. False leaves it out: ``size`` is a truncation.
    discount : d in [0, 1), optional
        Above 0 it is a Pitman–Yor process, whose categories have a power law. The normaliser of a random concentration is then
        bounded from below, by its tangent in log α at E[log α].

    Examples
    --------
    >>> import natgrad as ng
    >>> alpha = ng.Gamma("alpha", 1.0, 1.0)
    >>> pi = ng.StickBreaking("pi", alpha, size=10)
    >>> z = ng.Categorical("z", pi, plate=ng.Plate("n", 6), observed=[0, 0, 1, 0, 2, 1])
    >>> fit = ng.Network(z).fit()
    >>> fit["pi"].mean()[:4].round(2)
    array([0.51, 0.3 , 0.13, 0.03])
    """

    family = families.Sticks()
    kind = SIMPLEX
    slots_of = (Slot("concentration", POSITIVE),)

    def __init__(
        self,
        name: str,
        concentration: Any,
        *,
        size: int,
        discount: float = 0.0,
        plate: Plates = None,
        grow: bool | None = None,
    ) -> None:
        if grow is not None and not isinstance(grow, bool):
            raise TypeError(f"{name!r}: grow must be True, False or None, got {grow!r}")
        self._size = given_size(name, size, least=2)
        if size is None:
            raise TypeError(f"{name!r}: size must be a whole number ≥ 2, the truncation, got None")
        if not isinstance(discount, (int, float)) or not 0 <= discount < 1:
            raise ValueError(f"{name!r}: discount = {discount!r} must lie in [0, 1); 0 is the Dirichlet process")
        self.discount, self.grow = float(discount), grow
        super().__init__(name, {"concentration": concentration}, plate)

    def _augment(self) -> None:
        if self.discount and not isinstance(self.parameters["concentration"], Constant):
            self.parameters["bound"] = StickBound(self, self.discount * np.arange(1, self._size))

    def _event_size(self, observed: Any) -> int | None:
        return self._size

    def saved_options(self) -> dict[str, Any]:
        return {"discount": self.discount, "grow": self.grow, "size": self.size}

    def log_density(self, scope: Scope) -> Polynomial:
        assert self.size is not None
        k = scope.fresh("k", self.size)
        own, rest = self.own("log", scope, (k,)), self.own("rest", scope, (k,))
        alpha = self.parameters["concentration"]
        value = numbers(alpha) if isinstance(alpha, Constant) else np.zeros(())
        b = value[..., None] + self.discount * np.arange(1, self.size + 1)
        a = np.broadcast_to(1.0 - self.discount, b.shape).copy()
        normaliser = scope.numbers(-betaln(a, b)[..., :-1].sum(-1)) if isinstance(alpha, Constant) else Polynomial()
        a[..., -1] = b[..., -1] = 1.0
        lam = self.family._natural({"a": a, "b": b})
        parts = (scope.numbers(c, k) * stat for c, stat in zip(lam, (own, rest), strict=True))
        density = next(parts) + next(parts) + normaliser
        if isinstance(alpha, Constant):
            return density
        # Σ_k α log(1 − v_k) = α log R_{K−1}: the sum telescopes. The normaliser is α^(K−1) without a discount.
        last = scope.numbers(np.eye(self.size)[self.size - 2], k) * rest
        slope = self.parameters["bound"].stat("x", scope) if self.discount else self.size - 1.0
        density += alpha.stat("x", scope) * last + slope * alpha.stat("log", scope)
        return density - (self.size - 1.0) * float(gammaln(1.0 - self.discount))


@final
class HalfCauchy(ScalarNode):
    """The precision τ of a standard deviation 1/√τ that is half-Cauchy with the given scale: vague, and 0 is not excluded.

    It stands where a Gamma stands (``ng.Normal("y", mu, tau)``); ``fit["tau"].mean() ** -0.5`` is about the standard deviation.

    Examples
    --------
    >>> import natgrad as ng
    >>> tau = ng.HalfCauchy("tau", 2.5)
    >>> x = ng.Normal("x", 0.0, tau, plate=ng.Plate("n", 4), observed=[1.0, -2.0, 1.5, -0.5])
    >>> print(ng.Network(x).fit()["tau"].mean().round(2))
    0.47
    """

    family = families.Gamma()
    kind = POSITIVE
    slots_of = (Slot("scale", POSITIVE, fixed=True),)

    def __init__(self, name: str, scale: Any, *, plate: Plates = None) -> None:
        super().__init__(name, {"scale": scale}, plate)

    def _augment(self) -> None:
        rate = 1.0 / numbers(self.parameters["scale"]) ** 2
        self.parameters["rate"] = as_auxiliary(Gamma(f"{self.name}.rate", 0.5, rate, plate=self.plates))

    def log_density(self, scope: Scope) -> Polynomial:
        rate = self.parameters["rate"]
        log_x, x = self.own("log", scope), self.own("x", scope)
        density = 0.5 * rate.stat("log", scope) - 0.5 * log_x - rate.stat("x", scope) * x
        return density - float(gammaln(0.5))

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return (slots["scale"] * np.abs(rng.standard_cauchy(shape))) ** -2.0

    def cdf_given(self, slots: Slots) -> Cdf:
        """A precision is (s |c|)⁻² with a standard Cauchy c."""
        return Cdf(lambda x, s: 2.0 / np.pi * np.arctan(s * np.sqrt(np.maximum(x, 0.0))), (slots["scale"],))
