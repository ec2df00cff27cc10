"""Define what every exponential family can do: moments, log-normaliser, entropy and samples of natural parameters.

An exponential family with statistics φ = (φ_1 … φ_k) has the density

    log q(x) = ⟨λ, φ(x)⟩ + f(x) − A(λ)

with ⟨λ, μ⟩ summed over all event axes of all statistics. λ and μ = E_q[φ] = ∇A(λ) are tuples of arrays, one
per statistic, with plate axes first and that statistic's event axes last. f = 0 except for Poisson (−log x!);
other constants are inside A, so the entropy is A − ⟨λ, μ⟩ − E f. See Wainwright & Jordan (2008), section 3.

Auxiliary variables (`_bounds.py`, `_truncated.py`, `Shares`) have an f without a closed expectation, which a
conditional and its q share, so that it cancels in every bound: their entropies are relative to exp f. Some have settings (a
number of trials, bounds): known numbers that travel in λ so that each element may have its own. The statistic of a setting is 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np
import scipy.special as sp
from numpy.typing import NDArray

from natgrad._jax import in_64_bits
from natgrad.families import _ops as ops
from natgrad.families._ops import Array, Stats

__all__ = ["Covariances", "Family", "Param", "Stats", "Times", "ValueCovariances"]

Times = Callable[[Stats], Stats]
ValueCovariances = tuple[Callable[[Stats], Array], Callable[[Array], Stats], Callable[[Array], Array]]


class Covariances(NamedTuple):
    """Covariances under one q, as linear functions; arrays have the plates first.

    V = ∇²A(λ) = Cov(φ) maps a change of λ to the change of the moments, dμ = V dλ. The value x of a node is a statistic of most
    families (the first one) but not of a Dirichlet, whose statistics are logarithms; Cov(x, φ) = ∂E[x]/∂λ whatever x is.

    ``times(dλ)`` is V dλ, ``value_by(dλ)`` is Cov(x, φ) dλ, ``stats_by(a)`` is Cov(φ, x) a and ``own(a)`` is Cov(x, x) a, for
    weights a of the shape of the mean. ``centred(dλ)`` is dλ without a part that V does not see: a constant added to all logits.
    """

    times: Times
    value_by: Callable[[Stats], Array]
    stats_by: Callable[[Array], Stats]
    own: Callable[[Array], Array]
    centred: Times = lambda change: change


class Param(NamedTuple):
    """One of the usual parameters: its name, number of event axes, and the values it takes.

    `domain` is "real", "positive", "probability" (open interval), "simplex", "spd" or "log" (may be −inf).
    """

    name: str
    ndim: int
    domain: str


class Family(ABC):
    """An exponential family; instances hold no numbers, compare and hash by value.

    Everything from `log_normalizer` to `inner` accepts NumPy arrays or JAX arrays, traced or not, and returns
    the same kind. Outside the natural parameter space results are NaN or meaningless, never an exception or a
    warning: `valid` is the place where the border is seen.
    """

    name: ClassVar[str]
    stat_names: ClassVar[tuple[str, ...]]
    stat_ndims: ClassVar[tuple[int, ...]]  # by default numbers
    symmetric: ClassVar[tuple[bool, ...]]  # by default none of them
    event_ndim: ClassVar[int] = 0
    params: ClassVar[tuple[Param, ...]]
    allows_minus_inf: ClassVar[bool] = False
    support: ClassVar[Literal["real", "positive", "count", "unit", "category"]] = (
        "real"  # where values, or entries of them, lie
    )
    is_gaussian: ClassVar[bool] = False  # a number or a vector with mean and precision
    is_precision: ClassVar[bool] = False  # may share a factor with the Gaussians whose precision it is
    is_category: ClassVar[bool] = False  # values are indices of categories, and the mean their probabilities
    is_path: ClassVar[bool] = False  # the last plate is time, along which elements depend on one another
    is_stick: ClassVar[bool] = False  # shares by breaking a stick: any number of them
    has_sides: ClassVar[bool] = False  # a coin with a statistic for each side
    covariance_broadcasts: ClassVar[bool] = False  # V is a formula that takes changes of one λ along a first axis
    instead: ClassVar[str] = ""  # of a bound: what to declare where draws are wanted
    parts: ClassVar[tuple[str, ...]] = ()  # families of nodes that may share a factor of this one
    is_bound: ClassVar[bool] = False  # no law at all, but a bound that is tightened as if it were one: nothing to draw
    sampler: ClassVar[str | None] = None  # what draws it in compiled loops, a name of `natgrad.kernels.network.gibbs`
    settings: ClassVar[tuple[str, ...]] = ()  # statistics that are 0: what stands there in λ is known and never changes

    def __init_subclass__(cls) -> None:
        n = len(getattr(cls, "stat_names", ()))
        if n:  # a family; classes that several have in common may leave it to these
            cls.stat_ndims = getattr(cls, "stat_ndims", (0,) * n)
            cls.symmetric = getattr(cls, "symmetric", (False,) * n)

    # -- what a family defines --

    @abstractmethod
    def usual(self, lam: Stats) -> dict[str, Array]:
        """The usual parameters of λ, by name."""

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """φ(value): the moments of a point mass; by default the value itself, and 0 for all other statistics.

        Parameters
        ----------
        value : array [..., event]
        size : int, number of categories K (families of categories only)
        """
        xp = ops.namespace(value)
        x = xp.asarray(value) * 1.0
        plates = x.shape[: x.ndim - self.event_ndim]
        return x, *(xp.zeros((*plates, *(1,) * ndim)) for ndim in self.stat_ndims[1:])

    @abstractmethod
    def centred(self, value: Array, lam: Stats) -> Stats:
        """λ with the concentration of `lam` and its mean at `value`: a start for an optimiser."""

    @abstractmethod
    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Draws from q: [n, ..., event], or [..., event] when n is None."""

    def mean(self, lam: Stats) -> NDArray[Any]:
        """E_q[x] (of categories: their probabilities); by default the first of the moments."""
        return np.asarray(self.expected_stats(numpy_stats(lam))[0])

    @abstractmethod
    def var(self, lam: Stats) -> NDArray[Any]:
        """Elementwise variance under q."""

    def quantile(self, lam: Stats, probability: float) -> NDArray[Any]:
        """The quantile of the marginal of each element; by default that of a distribution with its mean and variance."""
        return self.matched_quantile(self.mean(lam), np.sqrt(self.var(lam)), np.asarray(probability))

    def interval(self, lam: Stats, mass: float = 0.9) -> tuple[NDArray[Any], NDArray[Any]]:
        """Lower and upper ends of the equal-tailed interval of each element, with probability `mass`."""
        low, high = (self.quantile(lam, tail) for tail in tails(mass))
        return low, high

    def proper(self, lam: Stats) -> Stats:
        """λ, with a law that has moments wherever λ, that of an improper prior, has none: where a fit starts."""
        return lam

    @property
    def is_discrete(self) -> bool:
        """Whether values are categories, which have probabilities and no intervals."""
        return self.support == "category"

    @property
    def is_simplex(self) -> bool:
        """Whether values are shares that sum to one, of a number that is given."""
        return self.support == "unit" and self.event_ndim == 1 and not self.is_stick

    def covariance_times(self, lam: Stats) -> Times:
        """V dλ, V = ∇²A = Cov(φ), as a function of dλ; without a closed form the derivative of ∇A, compiled once for a family."""
        return self._differentiated("expected_stats", lam)[0]

    def value_covariances(self, lam: Stats, times: Times) -> ValueCovariances:
        """Cov(x, φ) dλ, Cov(φ, x) a and Cov(x, x) a as functions of dλ or a; by default x is the first statistic."""

        def first(weights: Array) -> Stats:
            return (np.asarray(weights, np.float64), *(np.zeros_like(part) for part in lam[1:]))

        return (
            lambda change: times(change)[0],
            lambda weights: times(first(weights)),
            lambda weights: times(first(weights))[0],
        )

    def _differentiated(self, function: str, lam: Stats) -> tuple[Callable[[Stats], Any], Callable[[Any], Stats]]:
        """Products with the derivative of a method at λ, and with its transpose."""
        import jax

        forwards, backwards = _derivative(self, function)

        def along(change: Stats) -> Any:
            with in_64_bits():
                wide = tuple(np.broadcast_to(c, g.shape) for c, g in zip(change, lam, strict=True))
                return jax.tree.map(np.asarray, forwards(lam, wide))

        def against(weights: Any) -> Stats:
            with in_64_bits():
                return tuple(np.asarray(part) for part in backwards(lam, np.asarray(weights, np.float64)))

        return along, against

    def takes_changes(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Whether V of statistics of these shapes takes several changes of λ, along a first axis."""
        return self.covariance_broadcasts

    def disturbance(
        self, lam: Stats, n_children: Array, noise: Callable[[tuple[int, ...]], Array], rng: np.random.Generator
    ) -> NDArray[Any] | None:
        """How far to move values of so many children each, in their units; None where other parameters tell them apart.

        ``noise`` makes standard normal numbers of a shape.
        """
        return None

    def matched_quantile(self, mean: Array, sd: Array, probability: Array, lam: Stats | None = None) -> NDArray[Any]:
        """The quantile of a distribution on this support with a mean and a standard deviation: a Gamma, a Beta or a Gaussian.

        Families may know better; those that are truncated take the bounds, and the shape, of their own λ.
        """
        with np.errstate(all="ignore"):
            if self.support == "unit":
                total = np.maximum(mean * (1.0 - mean) / sd**2 - 1.0, 1e-12)
                return np.asarray(sp.betaincinv(mean * total, (1.0 - mean) * total, probability))
            if self.support in ("positive", "count"):
                return np.asarray(sp.gammaincinv((mean / sd) ** 2, probability) * sd**2 / mean)
            return np.asarray(mean + sd * sp.ndtri(probability))

    def location(self, value: Array) -> Array:
        """The part of a value that is a place and moves with the data; all of it, unless a precision is packed beside it."""
        return value

    def _parameters(self, lam: Stats) -> dict[str, NDArray[Any]]:
        """The usual parameters of λ in NumPy, with common plates."""
        return self.usual(ops.align(numpy_stats(lam), self.stat_ndims))

    @abstractmethod
    def _natural(self, usual: dict[str, Array]) -> Stats: ...

    @abstractmethod
    def _moments(self, lam: Stats) -> tuple[Stats, Array]: ...

    @abstractmethod
    def _inside(self, lam: Stats) -> Array: ...

    def _inside_but_definite(self, lam: Stats) -> Array:
        """The conditions of `_inside` other than that matrices are positive definite."""
        return True

    def _inside_but_finite(self, lam: Stats) -> Array:
        """The conditions of `_inside` other than those that an entropy which is finite tells."""
        return self._inside_but_definite(lam) if any(self.symmetric) else self._inside(lam)

    def _expected_base(self, lam: Stats) -> Array:
        """E_q[f(x)] of the part of the log base measure that is not inside A."""
        return 0.0

    def _moments_entropy(self, lam: Stats) -> tuple[Stats, Array]:
        mu, a = self._moments(lam)
        return mu, a - self.inner(lam, mu)

    def _moments_total_entropy(self, lam: Stats) -> tuple[Stats, Any]:
        """μ, and A − ⟨λ, μ⟩ summed over the plates; for NumPy."""
        if type(self)._moments_entropy is Family._moments_entropy:
            mu, a = self._moments(lam)
            total = a.sum() if np.ndim(a) else a
            for g, m in zip(lam, mu, strict=True):
                total = total - (np.vdot(g, m) if np.ndim(g) else g * m)
            if math.isfinite(total):  # −inf · 0 is NaN: a category that never happens
                return mu, total
        mu, entropy = self._moments_entropy(lam)
        return mu, entropy.sum() if np.ndim(entropy) else entropy

    def _kl(self, lam: Stats, other: Stats) -> Array:
        mu, a = self._moments(lam)
        # ⟨λ, μ⟩ − ⟨other, μ⟩, not ⟨λ − other, μ⟩: −inf − (−inf) is NaN.
        return self.inner(lam, mu) - self.inner(other, mu) - a + self._moments(other)[1]

    def _check_usual(self, usual: dict[str, Array]) -> None:
        """Conditions that tie several usual parameters together; concrete arrays only."""
        return None

    # -- what follows from it --

    @final
    def natural(self, **usual: Array) -> Stats:
        """λ of the usual parameters; plates broadcast.

        Raises
        ------
        TypeError
            If the names differ from those of `params`.
        ValueError
            If a concrete (not traced) value lies outside its domain; names the first offending element.
        """
        names = tuple(p.name for p in self.params)
        if set(usual) != set(names):
            raise TypeError(f"{self.name} takes {', '.join(names)}; got {', '.join(usual) or 'nothing'}.")
        arrays = {p: usual[p] if ops.is_jax(usual[p]) else np.asarray(usual[p], dtype=float) for p in names}
        for param in self.params:
            if _is_concrete(arrays[param.name]):
                _check_domain(self.name, param, np.asarray(arrays[param.name]))
        if all(_is_concrete(a) for a in arrays.values()):
            self._check_usual(arrays)
        with np.errstate(divide="ignore"):  # log 0 = −inf is a category that never happens
            return ops.align(self._natural(arrays), self.stat_ndims)

    @final
    def moments(self, lam: Stats) -> tuple[Stats, Array]:
        """(μ, A): expected statistics and log-normaliser, sharing one factorisation or forward pass."""
        with np.errstate(all="ignore"):
            return self._moments(lam)

    @final
    def moments_entropy(self, lam: Stats) -> tuple[Stats, Array]:
        """(μ, A − ⟨λ, μ⟩): expected statistics and the entropy but for the base measure, sharing one factorisation."""
        with np.errstate(all="ignore"):
            return self._moments_entropy(lam)

    @final
    def log_normalizer(self, lam: Stats) -> Array:
        """A(λ), an array over the plates."""
        return self.moments(lam)[1]

    @final
    def expected_stats(self, lam: Stats) -> Stats:
        """μ = E_q[φ(x)] = ∇A(λ)."""
        return self.moments(lam)[0]

    @final
    def project(self, lam: Stats) -> Stats:
        """λ with symmetric statistics symmetrised, ½ (g + gᵀ): a gradient need not be symmetric."""
        return tuple(ops.symmetrise(g) if s else g for g, s in zip(lam, self.symmetric, strict=True))

    @final
    def valid(self, lam: Stats, log_normalizer: Array | None = None) -> Array:
        """Whether λ is finite and inside the natural parameter space: bool over the plates.

        For families of matrices A(λ) or the entropy, if it is at hand, saves a factorisation: NaN where λ is not definite.
        """
        xp = ops.namespace(*lam)
        with np.errstate(all="ignore"):
            if log_normalizer is not None and any(self.symmetric):
                ok = xp.isfinite(log_normalizer) & self._inside_but_definite(lam)
            else:
                ok = self._inside(lam)
            for g, ndim in zip(lam, self.stat_ndims, strict=True):
                fine = (g < np.inf) if self.allows_minus_inf else xp.isfinite(g)  # NaN < inf is false
                if ndim:  # NumPy reduces short axes row by row, and mostly all are fine
                    fine = True if xp is np and fine.all() else fine.all(tuple(range(-ndim, 0)))
                ok = ok & fine
        return ok

    @final
    def inner(self, lam: Stats, mu: Stats) -> Array:
        """⟨λ, μ⟩ over the event axes, with −inf · 0 = 0 (a category that never happens)."""
        xp = ops.namespace(*lam, *mu)
        total: Array = 0.0
        for g, m, ndim in zip(lam, mu, self.stat_ndims, strict=True):
            # λ is masked, not the product: ∂/∂μ must stay λ where μ is 0.
            safe = xp.where((g == -np.inf) & (m == 0), 0.0, g) if self.allows_minus_inf else g
            total = total + (safe * m).sum(tuple(range(-ndim, 0)))
        return total

    @final
    def entropy(self, lam: Stats) -> Array:
        """−E_q[log q(x)] = A − ⟨λ, μ⟩ − E f."""
        with np.errstate(all="ignore"):
            return self._moments_entropy(lam)[1] - self._expected_base(lam)

    @final
    def kl(self, lam: Stats, other: Stats) -> Array:
        """KL(q_λ ‖ q_other) = ⟨λ − other, μ⟩ − A(λ) + A(other), μ under λ."""
        with np.errstate(all="ignore"):
            return self._kl(lam, other)

    @final
    def fisher(self, lam: Stats) -> NDArray[np.float64]:
        """Fisher information ∇²A = Cov(φ): [..., P, P] over the flattened λ.

        Flattened in the order of the statistics, each in C order. With a symmetric statistic φ the entries
        (i, j) and (j, i) are the same random number, so the matrix is singular there.
        """
        lam = ops.align(numpy_stats(lam), self.stat_ndims)
        plates = lam[0].shape[: lam[0].ndim - self.stat_ndims[0]]
        events = [g.shape[len(plates) :] for g in lam]
        sizes = [int(np.prod(event)) for event in events]
        eye = np.split(np.eye(sum(sizes)), np.cumsum(sizes)[:-1], axis=1)
        # The unit vectors lie along a first plate of λ, which is the same all along it.
        between = (1,) * len(plates)
        units = [e.reshape((-1, *between, *event)) for e, event in zip(eye, events, strict=True)]
        along = tuple(np.broadcast_to(g, (sum(sizes), *g.shape)) for g in lam)
        change = tuple(np.broadcast_to(e, g.shape) for e, g in zip(units, along, strict=True))
        rows = [np.reshape(column, (sum(sizes), *plates, -1)) for column in self.covariances(along).times(change)]
        return np.moveaxis(np.concatenate(rows, axis=-1), 0, -1)

    @final
    def covariances(self, lam: Stats) -> Covariances:
        """The covariances of φ and of x under q(x; λ), as linear functions.

        Examples
        --------
        >>> from natgrad.families import Normal
        >>> found = Normal().covariances(Normal().natural(mean=3.0, precision=4.0))
        >>> [float(part) for part in found.times((1.0, 0.0))]  # Var(x) and Cov(x², x)
        [0.25, 1.5]
        """
        lam = ops.align(numpy_stats(lam), self.stat_ndims)
        times = self.covariance_times(lam)
        found = Covariances(times, *self.value_covariances(lam, times))
        if not self.is_category:
            return found
        probs = np.asarray(self.mean(lam))

        def centred(change: Stats) -> Stats:
            """Logits minus their mean: what is constant in them drowns the digits of the rest, and means nothing."""
            return change[0] - (probs * change[0]).sum(-1, keepdims=True), *change[1:]

        return found._replace(centred=centred)


@lru_cache(maxsize=64)
def _derivative(family: Family, function: str) -> tuple[Callable[..., Any], Callable[..., Stats]]:
    import jax

    def of(lam: Stats) -> Any:
        return getattr(family, function)(family.project(lam))

    forwards: Any = jax.jit(lambda lam, change: jax.jvp(of, (lam,), (change,))[1])
    backwards: Any = jax.jit(lambda lam, weights: jax.vjp(of, lam)[1](weights)[0])
    return forwards, backwards


def numpy_stats(lam: Stats) -> tuple[NDArray[np.float64], ...]:
    """λ as NumPy arrays, for what is done in NumPy only (samples, intervals)."""
    return tuple(np.asarray(g, dtype=float) for g in lam)


def tails(mass: float) -> tuple[float, float]:
    """The two probabilities that cut off an equal-tailed interval.

    Examples
    --------
    >>> tails(0.5)
    (0.25, 0.75)
    """
    if not 0 < mass < 1:
        raise ValueError(f"mass must lie in (0, 1), got {mass}. For 90 % use mass=0.9.")
    return (1 - mass) / 2, (1 + mass) / 2


def draws(n: int | None, plates: tuple[int, ...]) -> tuple[int, ...]:
    """The leading shape of a sample."""
    return plates if n is None else (n, *plates)


def _is_concrete(x: Array) -> bool:
    if not ops.is_jax(x):
        return True
    import jax

    return not isinstance(x, jax.core.Tracer)


_RULES: dict[str, tuple[str, Any]] = {
    "real": ("be finite", np.isfinite),
    "positive": ("be > 0 and finite", lambda x: (x > 0) & (x < np.inf)),
    "probability": ("lie strictly between 0 and 1", lambda x: (x > 0) & (x < 1)),
    "simplex": ("be ≥ 0 and sum to 1 along the last axis", lambda x: (x >= 0) & (x <= 1 + 1e-6)),
    "spd": ("be finite", np.isfinite),
    "log": ("be below +inf and not NaN (−inf is allowed)", lambda x: x < np.inf),
}


def _check_domain(family: str, param: Param, x: NDArray[Any]) -> None:
    name = param.name
    if x.ndim < param.ndim:
        raise ValueError(f"{family}: {name} needs {param.ndim} event axes, got an array of shape {x.shape}.")
    rule, test = _RULES[param.domain]
    _raise_at_first(~test(x), x, family, name, rule)
    if param.domain == "simplex":
        total = x.sum(-1)
        _raise_at_first(~(np.abs(total - 1) < 1e-6), total, family, f"{name}.sum(-1)", "be 1 (to 1e-6)")
    if param.domain == "spd":
        if x.shape[-1] != x.shape[-2]:
            raise ValueError(f"{family}: {name} must hold square matrices, got an array of shape {x.shape}.")
        asymmetry = np.abs(x - ops.transpose(x))
        limit = 1e-8 * np.abs(x).max(axis=(-1, -2), keepdims=True)
        _raise_at_first(asymmetry > limit, x, family, name, "be symmetric; use ½ (m + mᵀ)")
        with np.errstate(all="ignore"):
            logdet = ops.spd_logdet(x)
        smallest = np.linalg.eigvalsh(x)[..., 0]
        _raise_at_first(~np.isfinite(logdet), smallest, family, f"smallest eigenvalue of {name}", "be > 0")


def _raise_at_first(bad: NDArray[Any], x: NDArray[Any], family: str, name: str, rule: str) -> None:
    if not bad.any():
        return
    index = np.unravel_index(int(np.argmax(bad)), bad.shape)
    where = f"[{', '.join(str(int(i)) for i in index)}]" if index else ""
    raise ValueError(f"{family}: {name}{where} = {x[index]:g} must {rule}.")
