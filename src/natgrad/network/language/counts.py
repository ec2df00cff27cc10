"""Counts without a limit: Poisson, also of a sum of rates, and NegativeBinomial, also with a logistic link.

A sum of rates (Cemgil, 2009; Gopalan, Hofman & Blei, 2015): x = Σ_k s_k with s_k ~ Poisson(r_k), and given x the shares are
multinomial.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt
import scipy
from scipy.special import betainc, expit, gammaincc, gammaln

from natgrad import families
from natgrad.network.language.auxiliary import PolyaGamma, Shares
from natgrad.network.language.cdfs import Cdf
from natgrad.network.language.expressions import COUNT, POSITIVE, RATE, UNIT
from natgrad.network.language.links import LINKS, logistic_density
from natgrad.network.language.node_helpers import Plates, ScalarNode, chosen_link, known, must_be_observed, numbers
from natgrad.network.language.nodes import Array, Slot, Slots
from natgrad.network.language.rates import RateSum
from natgrad.network.language.scope import Scope
from natgrad.network.polynomial import Polynomial

__all__ = ["NegativeBinomial", "Poisson"]


@final
class Poisson(ScalarNode):
    """x ~ Poisson(rate): a count. Of a sum of rates (``dot(theta, beta)`` of Gammas, ``a + b``) it must be observed.

    Such a count is split into shares, one for each part, ``fit["x.shares"]``; they start from a draw, as the parts may be alike.
    """

    family = families.Poisson()
    kind = COUNT
    slots_of = (Slot("rate", POSITIVE),)

    def __init__(self, name: str, rate: Any, *, plate: Plates = None, observed: Any = None, mask: Any = None) -> None:
        if isinstance(rate, RateSum):
            must_be_observed(name, observed, f"Poisson with the rate {rate}")
        self.slots_of = (Slot("rate", RATE if isinstance(rate, RateSum) else POSITIVE),)
        super().__init__(name, {"rate": rate}, plate, observed, mask)

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        self._support(value, (value >= 0) & (value == np.round(value)), present, "whole numbers ≥ 0")
        return np.where(present, value, 0).astype(np.float64)

    def _augment(self) -> None:
        rate = self.parameters["rate"]
        if isinstance(rate, RateSum) and self.value is not None:
            self.parameters["shares"] = Shares(self, self.value, rate.exchangeable(self.plates, self.name))

    def log_density(self, scope: Scope) -> Polynomial:
        rate = self.parameters["rate"]
        if isinstance(rate, RateSum):
            # −log of the shares' factorials is the base measure of their q.
            return rate.shared_logs(self.parameters["shares"], scope) - rate.stat("x", scope)
        density = self.own("x", scope) * rate.stat("log", scope) - rate.stat("x", scope)
        # A hidden count has the same base measure −log x! in q, so the two cancel in the bound.
        return density if self.value is None else density - known(scope, gammaln(self.value + 1.0))

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.poisson(slots["rate"], shape)

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        return np.asarray(scipy.stats.poisson.logpmf(x, slots["rate"]))

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any]:
        return slots["rate"], slots["rate"]

    def cdf_given(self, slots: Slots) -> Cdf:
        return Cdf(
            lambda x, rate: np.where(x < 0, 0.0, gammaincc(np.maximum(x, 0.0) + 1.0, rate)), (slots["rate"],), True
        )


@final
class NegativeBinomial(ScalarNode):
    """x ~ NB(shape, prob), observed: Γ(x + r) / (Γ(r) x!) · prob^x (1 − prob)^r, an overdispersed count.

    The mean is shape · prob / (1 − prob); with ``logit=ψ`` it is shape · exp(ψ), a log link, and the variance mean + mean²/shape.

    Parameters
    ----------
    shape : known numbers > 0, r (also called dispersion or size)
    prob : Beta or known probability, or ``logit``: a Normal, a dot, sums of these

    Examples
    --------
    >>> import natgrad as ng, numpy as np
    >>> level = ng.Normal("level", 0.0, 0.1)
    >>> x = ng.NegativeBinomial("x", 5.0, logit=level, plate=ng.Plate("n", 4), observed=[9, 14, 7, 12])
    >>> print((5.0 * np.exp(ng.Network(x).fit()["level"].mean())).round())
    10.0
    """

    family = families.Poisson()
    kind = COUNT
    slots_of = (Slot("shape", POSITIVE, fixed=True), Slot("prob", UNIT))

    def __init__(
        self,
        name: str,
        shape: Any,
        prob: Any = None,
        *,
        logit: Any = None,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        must_be_observed(name, observed, "NegativeBinomial")
        self.link, value = chosen_link(name, "NegativeBinomial", {"prob": prob, "logit": logit})
        self.slots_of = (Slot("shape", POSITIVE, fixed=True), LINKS.get(self.link, Slot("prob", UNIT)))
        super().__init__(name, {"shape": shape, self.link: value}, plate, observed, mask)

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        self._support(value, (value >= 0) & (value == np.round(value)), present, "whole numbers ≥ 0")
        return np.where(present, value, 0).astype(np.float64)

    def _augment(self) -> None:
        if self.link == "logit":
            assert self.value is not None
            self.parameters["omega"] = PolyaGamma(self, self.value + numbers(self.parameters["shape"]))

    def conditional(self, slots: Slots) -> Slots:
        return slots if self.link == "prob" else {**slots, "prob": expit(slots["logit"])}

    def _odds(self, slots: Slots) -> Array:
        """Prob / (1 − prob); a probability of one to rounding has odds in its logit."""
        if "logit" in slots:
            return np.exp(np.minimum(slots["logit"], 40.0))
        return np.asarray(slots["prob"] / (1.0 - slots["prob"]))

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        # NumPy draws whole numbers of up to eighteen digits.
        return rng.poisson(np.minimum(self._odds(slots) * rng.gamma(slots["shape"], 1.0, shape), 1e18))

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        return np.asarray(scipy.stats.nbinom.logpmf(x, slots["shape"], 1.0 - slots["prob"]))

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any]:
        mean = slots["shape"] * self._odds(slots)
        return mean, mean * (1.0 + self._odds(slots))

    def cdf_given(self, slots: Slots) -> Cdf:
        def cdf(x: Any, shape: Any, prob: Any) -> Any:
            return np.where(x < 0, 0.0, betainc(shape, np.maximum(x, 0.0) + 1.0, prob))

        return Cdf(cdf, (slots["shape"], 1.0 - slots["prob"]), True)

    def log_density(self, scope: Scope) -> Polynomial:
        assert self.value is not None
        shape, x = numbers(self.parameters["shape"]), self.own("x", scope)
        ways = known(scope, gammaln(self.value + shape) - gammaln(shape) - gammaln(self.value + 1.0))
        if self.link == "logit":
            trials, p = self.value + shape, self.parameters
            return logistic_density(p["logit"], p["omega"], x, trials, scope) + ways
        prob = self.parameters["prob"]
        return x * prob.stat("log", scope) + known(scope, shape) * prob.stat("log1m", scope) + ways
