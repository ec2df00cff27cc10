"""Define nodes of counts: Bernoulli, Binomial, Poisson and NegativeBinomial, with a probability, a rate or a link.

A sum of rates (Cemgil, 2009; Gopalan, Hofman & Blei, 2015): x = Σ_k s_k with s_k ~ Poisson(r_k), and given x the shares are
multinomial.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import numpy.typing as npt
import scipy
from scipy.special import betainc, expit, gammaincc, gammaln, ndtr

from natgrad import families
from natgrad.network.language.auxiliary import LatentNormal, PolyaGamma, Shares
from natgrad.network.language.cdfs import Cdf, binomial_cdf
from natgrad.network.language.expressions import COUNT, POSITIVE, RATE, UNIT, Access, Constant
from natgrad.network.language.links import LINKS, logistic_density, refuse_in_part
from natgrad.network.language.nodes import (
    Array,
    Plates,
    ScalarNode,
    Slot,
    Slots,
    check_possible,
    chosen_link,
    known,
    must_be_observed,
    numbers,
    observed_index,
)
from natgrad.network.language.plates import Index
from natgrad.network.language.rates import RateSum
from natgrad.network.language.scope import Scope
from natgrad.network.polynomial import Polynomial
from natgrad.validation import require

__all__ = ["Bernoulli", "Binomial", "NegativeBinomial", "Poisson"]


@final
class Bernoulli(ScalarNode):
    """x ~ Bernoulli(prob): 0 or 1. Or with a link: ``logit=`` (prob = σ(logit)), ``probit=`` (prob = Φ(probit), observed).

    It may choose between two components, as a category does: ``mu[x]``, ``table(values)[x]``.

    A link takes what a mean takes (a Normal, a dot, sums of these) and is made conjugate by an auxiliary variable for each
    element (Pólya–Gamma, truncated Normal), which is named after the node and hidden unless asked for: ``fit["y.omega"]``,
    ``fit["y.latent"]``.

    Examples
    --------
    >>> import natgrad as ng, numpy as np
    >>> w = ng.MultivariateNormal("w", np.zeros(2), np.eye(2))
    >>> X, n = np.array([[1.0, -1.0], [1.0, 0.0], [1.0, 2.0]]), ng.Plate("n", 3)
    >>> fit = ng.Network(ng.Bernoulli("y", logit=ng.dot(X, w), plate=n, observed=[0, 1, 1])).fit()
    >>> list(fit), fit.predictive("y", logit=ng.dot([[1.0, 3.0]], w)).mean().round(1)
    (['w'], array([0.8]))
    """

    family = families.Binary()
    kind = COUNT
    has_table = True
    slots_of = (Slot("prob", UNIT),)

    def __init__(
        self,
        name: str,
        prob: Any = None,
        *,
        logit: Any = None,
        probit: Any = None,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        self.link, value = chosen_link(name, "Bernoulli", {"prob": prob, "logit": logit, "probit": probit})
        self.slots_of = (LINKS.get(self.link, Slot("prob", UNIT)),)
        if self.link == "probit":
            must_be_observed(name, observed, "Bernoulli with probit=", "values of 0 and 1")
        super().__init__(name, {self.link: value}, plate, observed, mask)

    def _augment(self) -> None:
        if self.link == "logit":
            self.parameters["omega"] = PolyaGamma(self, np.ones(()))
        elif self.link == "probit":
            assert self.value is not None
            bounds = np.where(self.value == 1, 0.0, -np.inf), np.where(self.value == 1, np.inf, 0.0)
            self.parameters["latent"] = LatentNormal(
                self, {"mean": self.parameters["probit"], "precision": 1.0}, bounds, self._present()
            )

    def conditional(self, slots: Slots) -> Slots:
        return {"prob": {"prob": lambda p: p, "logit": expit, "probit": ndtr}[self.link](slots[self.link])}

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return (rng.random(shape) < slots["prob"]).astype(np.int64)

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        return np.asarray(scipy.stats.bernoulli.logpmf(x, slots["prob"]))

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any]:
        return slots["prob"], slots["prob"] * (1.0 - slots["prob"])

    def cdf_given(self, slots: Slots) -> Cdf:
        return Cdf(binomial_cdf, (np.ones(()), slots["prob"]), True)

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        self._support(value, (value == 0) | (value == 1), present, "0 or 1")
        if isinstance(prob := self.parameters.get("prob"), Constant):
            check_possible(self, value, np.where(value == 1, prob.value > 0, prob.value < 1), present)
        return np.where(present, value, 0).astype(np.float64)

    @property
    def categories(self) -> int | None:
        return 2

    def observed_index(self, access: Access) -> Index | None:
        return observed_index(self, access)

    def observed_stat(self, name: str) -> npt.NDArray[Any]:
        assert self.value is not None
        return self.value if name == "x" else 1.0 - self.value

    def log_density(self, scope: Scope) -> Polynomial:
        if self.link == "probit":
            refuse_in_part(self, scope)
            return Polynomial()  # what was seen is in the bounds of the latent variable
        x = self.own("x", scope)
        if self.link == "logit":
            return logistic_density(self.parameters["logit"], self.parameters["omega"], x, np.ones(()), scope)
        prob = self.parameters["prob"]
        return x * prob.stat("log", scope) + self.own("rest", scope) * prob.stat("log1m", scope)


@final
class Binomial(ScalarNode):
    """x ~ Binomial(trials, prob), observed. Or with a link, ``logit=``: prob = σ(logit), as in `Bernoulli`."""

    family = families.Bernoulli()
    kind = COUNT
    has_table = True
    data_stand_in = 0.0
    slots_of = (Slot("trials", POSITIVE, fixed=True), Slot("prob", UNIT))

    def __init__(
        self,
        name: str,
        trials: Any,
        prob: Any = None,
        *,
        logit: Any = None,
        plate: Plates = None,
        observed: Any = None,
        mask: Any = None,
    ) -> None:
        must_be_observed(name, observed, "Binomial")
        self.link, value = chosen_link(name, "Binomial", {"prob": prob, "logit": logit})
        self.slots_of = (Slot("trials", POSITIVE, fixed=True), LINKS.get(self.link, Slot("prob", UNIT)))
        super().__init__(name, {"trials": trials, self.link: value}, plate, observed, mask)

    def _augment(self) -> None:
        if self.link == "logit":
            self.parameters["omega"] = PolyaGamma(self, numbers(self.parameters["trials"]))

    def conditional(self, slots: Slots) -> Slots:
        return slots if self.link == "prob" else {**slots, "prob": expit(slots["logit"])}

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.binomial(numbers(self.parameters["trials"]).astype(np.int64), slots["prob"], shape)

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        return np.asarray(scipy.stats.binom.logpmf(x, slots["trials"], slots["prob"]))

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any]:
        mean = numbers(self.parameters["trials"]) * slots["prob"]
        return mean, mean * (1.0 - slots["prob"])

    def cdf_given(self, slots: Slots) -> Cdf:
        return Cdf(binomial_cdf, (numbers(self.parameters["trials"]), slots["prob"]), True)

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        trials = numbers(self.parameters["trials"])
        require(trials == np.round(trials), trials, f"{self.name!r}: trials", "a whole number")
        self._support(
            value,
            (value >= 0) & (value <= trials) & (value == np.round(value)),
            present,
            "whole numbers 0 … trials",
        )
        if isinstance(prob := self.parameters.get("prob"), Constant):
            possible = ((prob.value > 0) | (value == 0)) & ((prob.value < 1) | (value == trials))
            check_possible(self, value, possible, present)
        return np.where(present, value, 0).astype(np.float64)

    def log_density(self, scope: Scope) -> Polynomial:
        assert self.value is not None
        trials = numbers(self.parameters["trials"])
        x = self.own("x", scope)
        ways = gammaln(trials + 1.0) - gammaln(self.value + 1.0) - gammaln(trials - self.value + 1.0)
        if self.link == "logit":
            density = logistic_density(self.parameters["logit"], self.parameters["omega"], x, trials, scope)
            return density + known(scope, ways)
        prob = self.parameters["prob"]
        rest = known(scope, trials - self.value)
        return x * prob.stat("log", scope) + rest * prob.stat("log1m", scope) + known(scope, ways)


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
    data_stand_in = 0.0
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
