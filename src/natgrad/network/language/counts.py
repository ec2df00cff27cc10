"""Define nodes of counts: Bernoulli, Binomial, Poisson and NegativeBinomial, with a probability, a rate or a link.

A sum of rates (Cemgil, 2009; Gopalan, Hofman & Blei, 2015): x = Σ_k s_k with s_k ~ Poisson(r_k), and given x the shares are
multinomial.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, final

import numpy as np
import numpy.typing as npt
import scipy
from scipy.special import betainc, expit, gammaincc, gammaln, ndtr

from natgrad import families
from natgrad.network.language.auxiliary import LatentNormal, PolyaGamma, Shares
from natgrad.network.language.cdfs import Cdf, binomial_cdf
from natgrad.network.language.expressions import COUNT, POSITIVE, RATE, Access, Constant
from natgrad.network.language.links import LINKS, logistic_density, refuse_in_part
from natgrad.network.language.nodes import (
    Array,
    Plates,
    ScalarNode,
    Slot,
    Slots,
    Support,
    check_possible,
    chosen_link,
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

WHOLE = Support("whole numbers ≥ 0", lambda x: (x >= 0) & (x == np.round(x)), 0.0)
PROBABILITIES: dict[str, Any] = {"logit": expit, "probit": ndtr}


class _Trials(ScalarNode):
    """Counts of successes beside failures: x log p + failures · log(1 − p), of a probability, or of its logit (or probit)."""

    kind = COUNT
    link: str

    def _trials(self) -> Array:
        """Successes and failures together."""
        return np.ones(())

    @abstractmethod
    def _failures(self, x: Array) -> Array:
        """How many there are beside so many successes."""

    def _log_ways(self) -> Any:
        """What the density has beside its successes and failures."""
        return 0.0

    def _augment(self) -> None:
        if self.link == "logit":
            self.parameters["omega"] = PolyaGamma(self, self._trials())

    def conditional(self, slots: Slots) -> Slots:
        return slots if self.link == "prob" else {**slots, "prob": PROBABILITIES[self.link](slots[self.link])}

    def log_density(self, scope: Scope) -> Polynomial:
        x, p = self.own("x", scope), self.parameters
        if self.link == "logit":
            density = logistic_density(p["logit"], p["omega"], x, self._trials(), scope)
        else:
            rest = (
                scope.numbers(self._failures(np.asarray(self.value)))
                if self.data_stand_in is not None
                else self.own("rest", scope)
            )
            density = x * p["prob"].stat("log", scope) + rest * p["prob"].stat("log1m", scope)
        return density + scope.numbers(self._log_ways())

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        clean = super()._clean(value, present)
        if isinstance(prob := self.parameters.get("prob"), Constant):
            possible = ((prob.value > 0) | (clean == 0)) & ((prob.value < 1) | (self._failures(clean) == 0))
            check_possible(self, clean, possible, present)
        return clean


@final
class Bernoulli(_Trials):
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
    has_table = True
    support = Support("0 or 1", lambda x: (x == 0) | (x == 1), 0.0)
    slots_of = (LINKS["prob"],)

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
        self.slots_of = (LINKS[self.link],)
        if self.link == "probit":
            must_be_observed(name, observed, "Bernoulli with probit=", "values of 0 and 1")
        super().__init__(name, {self.link: value}, plate, observed, mask)

    def _augment(self) -> None:
        super()._augment()
        if self.link == "probit":
            seen = np.asarray(self.value) == 1
            bounds, normal = (np.where(seen, 0.0, -np.inf), np.where(seen, np.inf, 0.0)), self.parameters["probit"]
            self.parameters["latent"] = LatentNormal(self, {"mean": normal, "precision": 1.0}, bounds, self._present())

    def _failures(self, x: Array) -> Array:
        return 1.0 - x

    def log_density(self, scope: Scope) -> Polynomial:
        if self.link != "probit":
            return super().log_density(scope)
        refuse_in_part(self, scope)
        return Polynomial()  # what was seen is in the bounds of the latent variable

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return (rng.random(shape) < slots["prob"]).astype(np.int64)

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        return np.asarray(scipy.stats.bernoulli.logpmf(x, slots["prob"]))

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any]:
        return slots["prob"], slots["prob"] * (1.0 - slots["prob"])

    def cdf_given(self, slots: Slots) -> Cdf:
        return Cdf(binomial_cdf, (np.ones(()), slots["prob"]), True)

    def even_values(self, values: Array) -> Array:
        return values

    @property
    def categories(self) -> int | None:
        return 2

    def observed_index(self, access: Access) -> Index | None:
        return observed_index(self, access)

    def observed_stat(self, name: str) -> npt.NDArray[Any]:
        assert self.value is not None
        return self.value if name == "x" else 1.0 - self.value


@final
class Binomial(_Trials):
    """x ~ Binomial(trials, prob), observed. Or with a link, ``logit=``: prob = σ(logit), as in `Bernoulli`."""

    family = families.Bernoulli()
    has_table = True
    data_stand_in = 0.0
    slots_of = (Slot("trials", POSITIVE, fixed=True), LINKS["prob"])

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
        self.slots_of = (self.slots_of[0], LINKS[self.link])
        super().__init__(name, {"trials": trials, self.link: value}, plate, observed, mask)

    def _clean(self, value: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        trials = self._trials()
        require(trials == np.round(trials), trials, f"{self.name!r}: trials", "a whole number")
        good = (value >= 0) & (value <= trials) & (value == np.round(value))
        self._support(value, good, present, "whole numbers 0 … trials")
        return super()._clean(value, present)

    def _trials(self) -> Array:
        return numbers(self.parameters["trials"])

    def _failures(self, x: Array) -> Array:
        return self._trials() - x

    def _log_ways(self) -> Any:
        x, trials = np.asarray(self.value), self._trials()
        return gammaln(trials + 1.0) - gammaln(x + 1.0) - gammaln(trials - x + 1.0)

    def even_values(self, values: Array) -> Array:
        return np.asarray(values / np.maximum(np.broadcast_to(self._trials(), values.shape), 1.0))

    def sample_given(self, slots: Slots, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.binomial(self._trials().astype(np.int64), slots["prob"], shape)

    def log_density_given(self, x: Array, slots: Slots) -> Array:
        return np.asarray(scipy.stats.binom.logpmf(x, slots["trials"], slots["prob"]))

    def mean_var_given(self, slots: Slots) -> tuple[Any, Any]:
        mean = self._trials() * slots["prob"]
        return mean, mean * (1.0 - slots["prob"])

    def cdf_given(self, slots: Slots) -> Cdf:
        return Cdf(binomial_cdf, (self._trials(), slots["prob"]), True)


@final
class Poisson(ScalarNode):
    """x ~ Poisson(rate): a count. Of a sum of rates (``dot(theta, beta)`` of Gammas, ``a + b``) it must be observed.

    Such a count is split into shares, one for each part, ``fit["x.shares"]``; they start from a draw, as the parts may be alike.
    """

    family = families.Poisson()
    kind = COUNT
    support = WHOLE
    slots_of = (Slot("rate", POSITIVE),)

    def __init__(self, name: str, rate: Any, *, plate: Plates = None, observed: Any = None, mask: Any = None) -> None:
        if isinstance(rate, RateSum):
            must_be_observed(name, observed, f"Poisson with the rate {rate}")
        self.slots_of = (Slot("rate", RATE if isinstance(rate, RateSum) else POSITIVE),)
        super().__init__(name, {"rate": rate}, plate, observed, mask)

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
        return density if self.value is None else density - scope.numbers(gammaln(self.value + 1.0))

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
class NegativeBinomial(_Trials):
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
    support = WHOLE
    data_stand_in = 0.0
    slots_of = (Slot("shape", POSITIVE, fixed=True), LINKS["prob"])

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
        self.slots_of = (self.slots_of[0], LINKS[self.link])
        super().__init__(name, {"shape": shape, self.link: value}, plate, observed, mask)

    def _trials(self) -> Array:
        return np.asarray(self.value) + numbers(self.parameters["shape"])

    def _failures(self, x: Array) -> Array:
        return numbers(self.parameters["shape"])

    def _log_ways(self) -> Any:
        x, shape = np.asarray(self.value), numbers(self.parameters["shape"])
        return gammaln(x + shape) - gammaln(shape) - gammaln(x + 1.0)

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
