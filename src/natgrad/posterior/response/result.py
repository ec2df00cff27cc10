"""`LinearResponse`: standard deviations, covariances, intervals and draws, and how fast sweeps come to the optimum."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConverged, PoorApproximation
from natgrad.families import Family
from natgrad.families._family import tails
from natgrad.inference.problem import State
from natgrad.posterior.export import ExportMixin, factors_of
from natgrad.posterior.factor import Factor
from natgrad.posterior.response.operator import Linearised, Operator, difference
from natgrad.posterior.response.solvers import LEFT, Settled, at_optimum, still_to_go
from natgrad.posterior.response.solving import Solver, as_quantities
from natgrad.random import sample_generator

__all__ = ["LinearResponse", "ResponseFactor", "contraction", "correlated_normals", "matched_quantile"]

# Linear response gives second moments. An interval also needs a shape: a Gamma for what is positive, a Beta for a probability, a
# Gaussian for the rest.

Floats = npt.NDArray[np.float64]


def matched_quantile(family: Family, mean: Floats, sd: Floats, probability: Any, lam: Any = None) -> Floats:
    """The quantile of the law of the family's kind with this mean and standard deviation; the probability broadcasts.

    That of a truncated law is q's own, with natural parameter ``lam``, stretched about the mean and within its bounds.

    Examples
    --------
    >>> from natgrad.families import Gamma, Normal
    >>> float(matched_quantile(Normal(), np.float64(1.0), np.float64(2.0), 0.5))
    1.0
    >>> round(float(matched_quantile(Gamma(), np.float64(2.0), np.float64(2.0), 0.5)), 4)  # an exponential
    1.3863
    """
    if family.is_discrete:
        raise TypeError(f"a {family.name} has no interval: use mean(), its probabilities, and std() of these")
    quantile = family.matched_quantile(mean, sd, probability, lam)
    with np.errstate(all="ignore"):
        beyond = family.support == "unit" and (mean * (1.0 - mean) <= sd**2)
    if np.any(beyond):
        warnings.warn(
            "the standard deviation of a probability is larger than any law on [0, 1] with its mean can have: linear "
            "response does not reach that far, and the interval is NaN there. Use draws",
            PoorApproximation,
            stacklevel=3,
        )
        quantile = np.where(beyond, np.nan, quantile)
    return np.asarray(quantile, np.float64)


def correlated_normals(covariance: Floats, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Standard deviations [P], and draws [n, P] of normal numbers with variance 1 and the correlations of a covariance.

    By the roots of the correlations: standard deviations may lie many powers of ten apart.
    """
    sd = np.sqrt(np.diagonal(covariance))
    safe = np.where(sd > 0, sd, 1.0)
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T) / (safe[:, None] * safe))
    noise = rng.standard_normal((n, len(sd)))
    return sd, (noise * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


# How fast sweeps come to the optimum: the spectral radius of a sweep near it, by iterating sweeps on a small disturbance.

# The size of the disturbance, in standard deviations of q: its square is lost to curvature, its inverse to rounding.
SIZE = 1e-5
MOST, ENOUGH = 60, 1e-3


def contraction(operator: Operator, seed: int = 0) -> float:
    """The factor by which a sweep shrinks the distance to the optimum, once only its slowest direction is left.

    Distances are in the norm of the Fisher information; sweeps are those of coordinate ascent, without acceleration.
    """
    sweep = operator.at.sweep
    if sweep is None:
        return float("nan")
    base = operator.pack(sweep(dict(operator.at.lam)))
    fixed = operator.pack(sweep(operator.unpack(base)))
    rng = np.random.default_rng(seed)
    noise = operator.unpack(rng.standard_normal(operator.size))
    direction = operator.pack({name: block.family.project(noise[name]) for name, block in operator.at.blocks.items()})
    rate = 0.0
    for _ in range(MOST):
        norm = float(np.sqrt(operator.inner(direction, operator.fisher(direction))))
        if not norm > 0:
            return 0.0
        direction *= SIZE / norm
        after = difference(operator.pack(sweep(operator.unpack(base + direction))), fixed)
        new = float(np.sqrt(max(operator.inner(after, operator.fisher(after)), 0.0))) / SIZE
        if abs(new - rate) <= ENOUGH * max(new, 1e-12):
            return new
        direction, rate = after, new
    return rate


# What linear response returns: standard deviations, intervals and covariances that read like those of a fit.

# Elements of a node up to which covariances of all of them are found exactly; above it, standard deviations are probed.
EXACT = 256
# Numbers of a joint draw: its covariance is a matrix of that size.
MOST_JOINT = 2_000
# Families whose values are positive numbers; of a Wishart, those on the diagonal.


class LinearResponse(ExportMixin):
    """Covariances of a posterior, from how the optimum of the bound moves when the log joint is tilted.

    ``lr["mu"].std()``, ``.interval(0.9)`` and ``.sample()`` read like a fit; means are those of q. Everything is computed when it
    is asked for, and kept. Where the posterior is Gaussian the covariances are exact; elsewhere they are those of the bound's
    optimum, which repairs what the factorisation loses of the spread, but not a mean that is wrong.

    Attributes
    ----------
    left : float, nats that Newton's step from here would gain: near 0 at an optimum
    """

    _level = "linear response"

    def __init__(
        self,
        at: Linearised,
        factors: Mapping[str, Factor],
        names: Sequence[str] | None = None,
        *,
        tol: float = 1e-9,
        max_iterations: int = 1000,
        probes: int = 32,
        exact: bool | None = None,
        seed: int = 0,
        left: float | None = None,
    ) -> None:
        whole = factors_of(at.blocks, State(dict(at.lam), {}, 0))
        self._factors = {**whole, **factors}
        self._names = [n for n, f in factors.items() if not f.family.is_discrete] if names is None else list(names)
        for name in self._names:
            self._factor(name)
        settled = at_optimum(at) if left is None else Settled(at, left)
        self._at, self.left = settled.at, settled.left
        # A function is differentiated where the bound is flat: beside it, predictions would change along a rotation.
        self._there = {
            name: replace(factor, lam=self._at.lam[name]) if name in self._at.lam else factor
            for name, factor in self._factors.items()
        }
        self._moments: dict[str, tuple[Floats, Floats]] = {}
        self._solver = Solver(settled, self._factors, tol, max_iterations)
        self._probes, self._exact, self._seed = probes, exact, seed
        self._variances: dict[str, tuple[Floats, Floats]] = {}
        if self.left > LEFT:
            warnings.warn(
                f"the fit has not converged: {self.left:.2g} nats are left to gain, so that means may have "
                f"{still_to_go(self.left):.2g} standard deviations to go, and covariances are those of a state on the way. "
                "Call fit.continue_fit(), with a smaller tol",
                NotConverged,
                stacklevel=3,
            )
        for name in self._names if names is not None else ():
            self._variance(name)

    def __getstate__(self) -> Any:
        raise TypeError("a linear response is computed from its fit as it is asked: pickle the fit, and ask it again")

    # -- nodes --

    def _factor(self, name: Any) -> Factor:
        name = getattr(name, "name", name)
        if name not in self._factors:
            raise KeyError(f"{name!r} is not a hidden node; these are {', '.join(self._factors)}")
        return self._factors[name]

    def __getitem__(self, name: Any) -> ResponseFactor:  # type: ignore[override]
        return ResponseFactor(self._factor(name), self)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    # -- any function of the means --

    def mean(self, quantity: str | Callable[..., Any]) -> Floats:
        """The value of a quantity at the means of q: a node by its name, or a function of the means by name."""
        return as_quantities(quantity, self._factors).value

    def var(self, quantity: str | Callable[..., Any]) -> Floats:
        """The variance of each element of a quantity; of a function, by its derivative at the means."""
        if not callable(quantity) or hasattr(quantity, "family"):
            return self._variance(self._factor(quantity).name)[0]
        asked = as_quantities(quantity, self._there, self._moments)
        values = [self._solver.var(q) for q in asked.quantities]
        return np.reshape(np.array(values, np.float64), asked.value.shape)

    def std(self, quantity: str | Callable[..., Any]) -> Floats:
        """The standard deviation of each element of a node, or of any differentiable function of the means.

        ``lr.std(lambda m: m["a"] - m["b"])`` is that of a difference. The function gets the means by name, as NumPy arrays; its
        derivative is taken by central differences, each number in steps of its own standard deviation.
        """
        return np.sqrt(self.var(quantity))

    def interval(self, quantity: str | Callable[..., Any], mass: float = 0.9) -> tuple[Floats, Floats]:
        """A Gaussian interval of a function of the means, with probability ``mass``; for nodes ask ``lr["mu"].interval()``."""
        if not callable(quantity):
            return self[quantity].interval(mass)
        from scipy.special import ndtri

        half = ndtri(tails(mass)[1]) * self.std(quantity)
        centre = self.mean(quantity)
        return centre - half, centre + half

    def cov(self, first: Any, second: Any) -> Floats:
        """Covariances of every element of one quantity with every element of another: [first's axes, second's axes]."""
        one, two = (as_quantities(q, self._there, self._moments) for q in (first, second))
        shape = one.value.shape + two.value.shape
        if len(two.quantities) < len(one.quantities):
            rows = [self._solver.cov_with(q, one.quantities) for q in two.quantities]
            return np.array(rows, np.float64).T.reshape(shape)
        return np.array([self._solver.cov_with(q, two.quantities) for q in one.quantities], np.float64).reshape(shape)

    def correlation(self, first: Any, second: Any) -> Floats:
        """Correlations of every element of one quantity with every element of another."""
        one, two = self.std(first), self.std(second)
        return self.cov(first, second) / np.multiply.outer(one, two)

    def influence(self, quantity: Any) -> dict[str, Floats]:
        """How far each observation moves the mean of a quantity: the derivative by its weight in the likelihood.

        The infinitesimal jackknife: −influence is, to first order, how the mean would change if the observation were left out.

        Returns
        -------
        {observed node: array [axes of the quantity, plates of the node]}, 0 where a value is missing. Of ready models {group:
        array [axes of the quantity, groups]}: "row" of a mixture, "doc" of LDA, "sequence" of a hidden Markov model, "rating" of
        a factorisation.
        """
        if self._at.rows is None:
            raise TypeError(
                "the influence of observations is not known for data that are read in chunks: fit the table as a whole"
            )
        asked = as_quantities(quantity, self._there, self._moments)
        rows = [self._at.rows(self._solver.moved(q)) for q in asked.quantities]
        return {
            name: np.stack([r[name] for r in rows]).reshape(asked.value.shape + rows[0][name].shape) for name in rows[0]
        }

    @cached_property
    def contraction(self) -> float:
        """By how much one sweep shrinks the distance to the optimum, in the long run; NaN where sweeps are not defined."""
        return contraction(self._solver.operator, self._seed)

    # -- draws --

    def sample(
        self, rng: np.random.Generator | int | None = None, n: int | None = None, names: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Joint draws of nodes: Gaussian with the covariances of linear response, each number then in its family's shape.

        Arrays have the draws first, ``n`` of them or one.
        """
        generator, n = sample_generator(rng, n, "linear response"), n or 1
        chosen = list(self._names if names is None else names)
        means = {name: self._factor(name).mean() for name in chosen}
        total = sum(mean.size for mean in means.values())
        if total > MOST_JOINT:
            raise ValueError(
                f"joint draws of {total} numbers need their covariance; choose nodes with names=, or use draws of q"
            )
        quantities = [q for name in chosen for q in as_quantities(name, self._factors).quantities]
        covariance = np.array([self._solver.cov_with(q, quantities) for q in quantities]).reshape(total, total)
        sd, normal = correlated_normals(covariance, n, generator)
        out, start = {}, 0
        for name, mean in means.items():
            here = normal[:, start : start + mean.size].reshape((n, *mean.shape))
            spread = sd[start : start + mean.size].reshape(mean.shape)
            out[name] = _shaped(self._factor(name), mean, spread, here)
            start += mean.size
        return out

    def _draws(self, names: Sequence[str], rng: np.random.Generator, n: int) -> dict[str, Any]:
        return self.sample(rng, n, names)

    # -- variances of whole nodes --

    def _variance(self, name: str) -> tuple[Floats, Floats]:
        """Variances of all elements of a node and the standard error of each, which is 0 where they are exact."""
        if name not in self._variances:
            size = self._factor(name).mean().size
            exact = size <= EXACT if self._exact is None else self._exact
            if exact:
                variance = self._solver.variances(name)
                self._variances[name] = variance, np.zeros_like(variance)
            else:
                self._variances[name] = self._solver.probed(
                    name, self._probes, np.random.default_rng([self._seed, size])
                )
            self._warn_if_too_far(name, self._variances[name][0])
        return self._variances[name]

    def _warn_if_too_far(self, name: str, variance: Floats) -> None:
        """Say where a straight line from the mean of a positive number is below 0 a standard deviation away, and q's is not."""
        factor = self._factor(name)
        if factor.family.support != "positive":
            return
        mean, own = (np.asarray(part, np.float64) for part in (factor.mean(), factor.var()))
        if factor.family.event_ndim == 2:
            mean, own, variance = (np.diagonal(part, axis1=-2, axis2=-1) for part in (mean, own, variance))
        with np.errstate(invalid="ignore"):
            beyond = (variance > mean**2) & (variance > 4.0 * own)
        if not beyond.any():
            return
        place = np.unravel_index(int(np.argmax(np.where(beyond, variance / mean**2, 0.0))), mean.shape)
        which = f"{name}[{', '.join(map(str, place))}]" if place else name
        warnings.warn(
            f"{int(beyond.sum())} of {mean.size} standard deviations of {name!r} are larger than their means, which are "
            f"positive: {which} is {mean[place]:.3g} ± {variance[place] ** 0.5:.3g} ({own[place] ** 0.5:.3g} under q). The bound "
            "is nearly flat along some direction, as where two factors can exchange their sizes, and linear response, a straight "
            "line from the optimum, does not reach that far. Use draws, or ask for what the data determine, such as predictions",
            PoorApproximation,
            stacklevel=5,
        )

    def __repr__(self) -> str:
        return f"<LinearResponse of {', '.join(self._names)}: {self.left:.1g} nats from the optimum>"


@dataclass(frozen=True, eq=False)
class ResponseFactor:
    """One node under linear response: the mean of q, and the spread that tilting the log joint shows."""

    factor: Factor
    response: LinearResponse

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.factor.name

    @property
    def family(self) -> Family:
        """Its exponential family."""
        return self.factor.family

    @property
    def plates(self) -> tuple[str, ...]:
        """Names of the leading axes."""
        return self.factor.plates

    def mean(self) -> Floats:
        """E[x] under q: linear response does not move it."""
        return self.factor.mean()

    def var(self) -> Floats:
        """The variance of each element."""
        return self.response._variance(self.name)[0]

    def std(self) -> Floats:
        """The standard deviation of each element."""
        return np.sqrt(self.var())

    def std_error(self) -> Floats:
        """The standard error of each standard deviation; 0 where it was not probed."""
        variance, error = self.response._variance(self.name)
        return error / (2.0 * np.sqrt(variance))

    def interval(self, mass: float = 0.9) -> tuple[Floats, Floats]:
        """Each element's central interval: of the law of its family's kind with this mean and standard deviation."""
        start, sd = 0.0 if self.factor.origin is None else self.factor.origin, self.std()
        mean = self.mean()
        ends = (matched_quantile(self.family, mean - start, sd, t, self.factor.lam) + start for t in tails(mass))
        low, high = (np.where(sd > 0, end, mean) if self.factor.seen is not None else end for end in ends)
        return low, high

    def sample(self, rng: np.random.Generator | int | None = None, n: int | None = None) -> Any:
        """Draws with the covariances of linear response; ``lr.sample`` draws several nodes together."""
        generator = sample_generator(rng, n, repr(self.name))
        draws = self.response.sample(generator, 1 if n is None else n, [self.name])[self.name]
        return draws[0] if n is None else draws

    def __repr__(self) -> str:
        return f"<linear response of {self.factor!r}>"


def _shaped(factor: Factor, mean: Floats, sd: Floats, normal: Floats) -> Floats:
    """Standard normal numbers as draws of the node: by the quantile of each, probabilities then made to sum to one."""
    if factor.family.is_gaussian:
        return np.asarray(mean + sd * normal)
    from scipy.special import ndtr

    start = 0.0 if factor.origin is None else factor.origin
    quantile = matched_quantile(factor.family, mean - start, sd, ndtr(normal), factor.lam) + start
    return (
        quantile / quantile.sum(-1, keepdims=True) if factor.family.is_simplex or factor.family.is_stick else quantile
    )
