"""Scales and shapes whose q is a law of its own, by quadrature in one dimension: HalfNormal and GammaShape.

HalfNormal  1/√τ ~ N⁺(0, scale²)  ⇔  p(τ) ∝ τ^(−3/2) exp(−1 / (2 scale² τ)); q(τ) is a generalised inverse Gaussian law
GammaShape  a ~ Gamma(shape, rate), the shape of Gammas x ~ Gamma(a, b): the conditional of a is
            exp(a Σ log(b x)) / Γ(a)^n times its prior, which is q(a) itself: no bound, no point
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from scipy.special import gammaln

from natgrad import families
from natgrad.network.language.expressions import POSITIVE
from natgrad.network.language.node_helpers import Plates, ScalarNode, known, numbers
from natgrad.network.language.nodes import Slot
from natgrad.network.language.scope import Scope
from natgrad.network.polynomial import Polynomial

__all__ = ["GammaShape", "HalfNormal"]

LOG_2PI = float(np.log(2.0 * np.pi))


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
        decay = known(scope, 0.5 / scale**2) * self.own("inverse", scope)
        return -1.5 * self.own("log", scope) - decay - known(scope, np.log(scale) + 0.5 * LOG_2PI)


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
        density = known(scope, shape - 1.0) * self.own("log", scope) - rate.stat("x", scope) * self.own("x", scope)
        return known(scope, shape) * rate.stat("log", scope) + density - known(scope, gammaln(shape))
