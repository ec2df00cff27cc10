"""Multiply by covariances under q and their inverses: what linear response asks of a family.

V = ∇²A(λ) = Cov(φ) maps a change of λ to the change of the moments, dμ = V dλ. The value x of a node is a statistic of most
families (the first one) but not of a Dirichlet, whose statistics are logarithms; Cov(x, φ) = ∂E[x]/∂λ whatever x is.
`fisher_matrix` makes V itself, column by column; elsewhere nothing of that size is made. NumPy does it in closed form. Families
without one are differentiated by JAX.

For a chain, a change of λ is a function of the path, f(z) = Σ_t v[t, z_t] + Σ_starts a[z_t] + Σ w[z_{t−1}, z_t], and dμ =
Cov(φ, f). Given z_t, what came before and what comes after are independent, so two recursions on conditional expectations of f
are enough:

    F_t(j) = v[t, j] + Σ_i P(z_{t−1} = i | z_t = j) (w[i, j] + F_{t−1}(i)),         or v[t, j] + a[j] at a start
    B_t(i) = Σ_j P(z_{t+1} = j | z_t = i) (w[i, j] + v[t+1, j] + B_{t+1}(j)),       or 0 at an end
    Cov(1[z_t = k], f) = P(z_t = k) (F_t(k) + B_t(k) − E f)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.special as sp
from numpy.typing import NDArray

from natgrad._jax import in_64_bits
from natgrad.families import _ops as ops
from natgrad.families._chain import MarkovChain, close_pairs, is_close, run_messages, under
from natgrad.families._discrete import Binary
from natgrad.families._family import Family, numpy_stats
from natgrad.families._gamma import Wishart
from natgrad.families._gaussian_gamma import GaussianGamma
from natgrad.families._joint import NormalGamma, TiedNormalWishart
from natgrad.families._ops import Array, Stats
from natgrad.families._quadrature import PositiveByQuadrature
from natgrad.families._simplex import Sticks

__all__ = ["Covariances", "chain_covariance", "covariances", "fisher_matrix"]

Times = Callable[[Stats], Stats]
# Steps of a chain above which compiling pays.
LONGEST_CHAIN = 5_000


class Covariances(NamedTuple):
    """Covariances under one q, as linear functions; arrays have the plates first.

    ``times(dλ)`` is V dλ, ``value_by(dλ)`` is Cov(x, φ) dλ, ``stats_by(a)`` is Cov(φ, x) a and ``own(a)`` is Cov(x, x) a, for
    weights a of the shape of the mean. ``centred(dλ)`` is dλ without a part that V does not see: a constant added to all logits.
    """

    times: Times
    value_by: Callable[[Stats], Array]
    stats_by: Callable[[Array], Stats]
    own: Callable[[Array], Array]
    centred: Times = lambda change: change


def covariances(family: Family, lam: Stats) -> Covariances:
    """The covariances of φ and of x under q(x; λ).

    Examples
    --------
    >>> from natgrad.families import Normal
    >>> found = covariances(Normal(), Normal().natural(mean=3.0, precision=4.0))
    >>> [float(part) for part in found.times((1.0, 0.0))]  # Var(x) and Cov(x², x)
    [0.25, 1.5]
    """
    lam = ops.align(numpy_stats(lam), family.stat_ndims)
    if family.name in ("Dirichlet", "Beta"):
        return _dirichlet(lam) if family.name == "Dirichlet" else _beta(lam)
    if isinstance(family, Sticks):
        return Covariances(_differentiated(family, lam), *family.value_covariances(lam))
    if isinstance(family, GaussianGamma):
        return _gaussian_gamma(family, lam)
    make = _CLOSED.get(family.name)
    if isinstance(family, MarkovChain) and lam[0].shape[-2] <= LONGEST_CHAIN:
        times = chain_covariance(lam, family._starts(lam[0].shape[-2]))
    elif isinstance(family, PositiveByQuadrature):
        times = _by_quadrature(family.covariance(lam))
    else:
        times = make(lam) if make is not None else _differentiated(family, lam)
    if family.name in _PACKED:
        return _packed(family, lam, times)

    def first(weights: Array) -> Stats:
        return (np.asarray(weights, np.float64), *(np.zeros_like(part) for part in lam[1:]))

    products = Covariances(
        times, lambda change: times(change)[0], lambda weights: times(first(weights)), lambda a: times(first(a))[0]
    )
    has_logits = family.name in ("Categorical", "MarkovChain")
    return products._replace(centred=_centring(family, lam)) if has_logits else products


def fisher_matrix(family: Family, lam: Stats) -> NDArray[np.float64]:
    """V = ∇²A [..., P, P] over the flattened λ: V e_p for every unit vector e_p.

    Examples
    --------
    >>> from natgrad.families import Normal
    >>> fisher_matrix(Normal(), Normal().natural(mean=3.0, precision=4.0)).tolist()
    [[0.25, 1.5], [1.5, 9.125]]
    """
    lam = ops.align(numpy_stats(lam), family.stat_ndims)
    plates = lam[0].shape[: lam[0].ndim - family.stat_ndims[0]]
    events = [g.shape[len(plates) :] for g in lam]
    sizes = [int(np.prod(event)) for event in events]
    eye = np.split(np.eye(sum(sizes)), np.cumsum(sizes)[:-1], axis=1)
    # The unit vectors lie along a first plate of λ, which is the same all along it.
    between = (1,) * len(plates)
    units = [e.reshape((-1, *between, *event)) for e, event in zip(eye, events, strict=True)]
    along = tuple(np.broadcast_to(g, (sum(sizes), *g.shape)) for g in lam)
    change = tuple(np.broadcast_to(e, g.shape) for e, g in zip(units, along, strict=True))
    rows = [np.reshape(column, (sum(sizes), *plates, -1)) for column in covariances(family, along).times(change)]
    return np.moveaxis(np.concatenate(rows, axis=-1), 0, -1)


# -- closed forms of V --


def _normal(lam: Stats) -> Times:
    variance = 1.0 / (-2.0 * lam[1])
    mean = lam[0] * variance

    def times(change: Stats) -> Stats:
        moved = variance * (change[0] + 2.0 * mean * change[1])
        return moved, 2.0 * mean * moved + 2.0 * variance**2 * change[1]

    return times


def _multivariate_normal(lam: Stats) -> Times:
    covariance = ops.spd_inverse_logdet(-2.0 * lam[1])[0]
    mean = ops.matvec(covariance, lam[0])

    def times(change: Stats) -> Stats:
        second = ops.symmetrise(change[1])
        moved = ops.matvec(covariance, change[0] + 2.0 * ops.matvec(second, mean))
        cross = ops.outer(mean, moved)
        return moved, cross + ops.transpose(cross) + 2.0 * covariance @ second @ covariance

    return times


def _gamma(lam: Stats) -> Times:
    shape, rate = lam[1] + 1.0, -lam[0]
    curved = sp.polygamma(1, shape)

    def times(change: Stats) -> Stats:
        return (change[1] + shape * change[0] / rate) / rate, curved * change[1] + change[0] / rate

    return times


def _wishart(lam: Stats) -> Times:
    size = lam[0].shape[-1]
    dof = 2.0 * lam[1] + size + 1
    inverse = ops.spd_inverse_logdet(-2.0 * lam[0])[0]
    curved = sp.polygamma(1, 0.5 * (dof[..., None] - np.arange(size))).sum(-1)

    def times(change: Stats) -> Stats:
        moved = inverse @ ops.symmetrise(change[0])  # half of −R⁻¹ dR
        more = 2.0 * change[1]
        value = more[..., None, None] * inverse + 2.0 * dof[..., None, None] * moved @ inverse
        return value, curved * change[1] + 2.0 * np.trace(moved, axis1=-2, axis2=-1)

    return times


def _normal_gamma(lam: Stats) -> Times:
    usual = NormalGamma().usual(lam)
    mean, scale, tau = usual["mean"], usual["scale"], usual["shape"] / usual["rate"]
    gamma = _gamma((-usual["rate"], usual["shape"] - 1.0))

    def times(change: Stats) -> Stats:
        d_scale = -2.0 * change[1]
        d_mean = (change[0] - mean * d_scale) / scale
        d_tau, d_log = gamma((change[2] + mean * (0.5 * mean * d_scale + scale * d_mean), change[3]))
        second = 2.0 * mean * tau * d_mean + mean**2 * d_tau - d_scale / scale**2
        return tau * d_mean + mean * d_tau, second, d_tau, d_log

    return times


def _normal_wishart(lam: Stats) -> Times:
    """One mean is several of which there is one."""
    tied = _tied_normal_wishart((lam[0][..., None, :], lam[1][..., None], *lam[2:]))

    def times(change: Stats) -> Stats:
        first, second, *rest = tied((change[0][..., None, :], change[1][..., None], *change[2:]))
        return first[..., 0, :], second[..., 0], *rest

    return times


def _tied_normal_wishart(lam: Stats) -> Times:
    usual = TiedNormalWishart().usual(lam)
    mean, scale, size = usual["mean"], usual["scale"], lam[0].shape[-1]
    natural = (-0.5 * usual["rate"], 0.5 * (usual["dof"] - size - 1))
    precision, wishart = Wishart().expected_stats(natural)[0], _wishart(natural)

    def times(change: Stats) -> Stats:
        d_scale = -2.0 * change[1]
        d_mean = (change[0] - mean * d_scale[..., None]) / scale[..., None]
        cross = ops.transpose(mean * scale[..., None]) @ d_mean
        outside = ops.transpose(mean * d_scale[..., None]) @ mean + cross + ops.transpose(cross)  # d Σ κ m mᵀ
        d_precision, d_log = wishart((change[2] + 0.5 * outside, change[3]))
        moved = mean @ d_precision
        second = 2.0 * ((mean @ precision) * d_mean).sum(-1) + (moved * mean).sum(-1) - size * d_scale / scale**2
        return moved + d_mean @ precision, second, d_precision, d_log

    return times


def _categorical(lam: Stats) -> Times:
    probs = ops.softmax(lam[0])
    return lambda change: (probs * (change[0] - (probs * change[0]).sum(-1, keepdims=True)),)


def _centring(family: Family, lam: Stats) -> Times:
    """Logits minus their mean: what is constant in them drowns the digits of the rest, and means nothing."""
    probs = np.asarray(family.mean(lam))

    def centred(change: Stats) -> Stats:
        return change[0] - (probs * change[0]).sum(-1, keepdims=True), *change[1:]

    return centred


def _bernoulli(lam: Stats) -> Times:
    variance = sp.expit(lam[0]) * sp.expit(-lam[0])
    return lambda change: (variance * change[0],)


def _binary(lam: Stats) -> Times:
    one, zero = Binary().expected_stats(lam)

    def times(change: Stats) -> Stats:
        moved = one * zero * (change[0] - change[1])
        return moved, -moved

    return times


def _poisson(lam: Stats) -> Times:
    rate = np.exp(lam[0])
    return lambda change: (rate * change[0],)


_CLOSED: dict[str, Callable[[Stats], Times]] = {
    "Normal": _normal,
    "MultivariateNormal": _multivariate_normal,
    "Gamma": _gamma,
    "Wishart": _wishart,
    "NormalGamma": _normal_gamma,
    "NormalWishart": _normal_wishart,
    "TiedNormalWishart": _tied_normal_wishart,
    "Categorical": _categorical,
    "Bernoulli": _bernoulli,
    "Binary": _binary,
    "Poisson": _poisson,
}


# -- values that are no statistics --


def _dirichlet(lam: Stats) -> Covariances:
    alpha = lam[0] + 1.0
    total = alpha.sum(-1, keepdims=True)
    mean, curved, of_total = alpha / total, sp.polygamma(1, alpha), sp.polygamma(1, total)

    def centred(weights: Array) -> Array:
        return weights - (mean * weights).sum(-1, keepdims=True)

    return Covariances(
        lambda change: (curved * change[0] - of_total * change[0].sum(-1, keepdims=True),),
        lambda change: (change[0] - mean * change[0].sum(-1, keepdims=True)) / total,
        lambda weights: (centred(np.asarray(weights, np.float64)) / total,),
        lambda weights: mean * centred(np.asarray(weights, np.float64)) / (total + 1.0),
    )


def _beta(lam: Stats) -> Covariances:
    a, b = lam[0] + 1.0, lam[1] + 1.0
    total = a + b
    mean, of_total = a / total, sp.polygamma(1, total)
    first, second = sp.polygamma(1, a), sp.polygamma(1, b)

    def times(change: Stats) -> Stats:
        shared = of_total * (change[0] + change[1])
        return first * change[0] - shared, second * change[1] - shared

    return Covariances(
        times,
        lambda change: ((1.0 - mean) * change[0] - mean * change[1]) / total,
        lambda weights: ((1.0 - mean) * weights / total, -mean * weights / total),
        lambda weights: mean * (1.0 - mean) * weights / (total + 1.0),
    )


def _gaussian_gamma(family: GaussianGamma, lam: Stats) -> Covariances:
    """Of [x, τ], which are the first and the fifth statistic."""
    times = family.covariance_times(lam)

    def value_by(change: Stats) -> Array:
        moved = times(change)
        return np.concatenate([moved[0], moved[4][..., None]], axis=-1)

    def direction(a: Array) -> Stats:
        return a[..., :-1], *(np.zeros_like(part) for part in lam[1:4]), a[..., -1], np.zeros_like(lam[5])

    return Covariances(times, value_by, lambda a: times(direction(a)), lambda a: value_by(direction(a)))


# -- by differentiation --

_PACKED = ("NormalGamma", "NormalWishart", "TiedNormalWishart", "MatrixNormalWishart")


def _by_quadrature(covariance: NDArray[np.float64]) -> Times:
    def times(change: Stats) -> Stats:
        moved = ops.matvec(covariance, np.stack(np.broadcast_arrays(*change), -1))
        return tuple(moved[..., i] for i in range(moved.shape[-1]))

    return times


def _differentiated(family: Family, lam: Stats) -> Times:
    """V dλ as the derivative of ∇A, compiled once for a family."""
    product = _compiled(family)

    def times(change: Stats) -> Stats:
        with in_64_bits():
            moved = product(lam, tuple(np.broadcast_to(c, g.shape) for c, g in zip(change, lam, strict=True)))
        return tuple(np.asarray(part) for part in moved)

    return times


@lru_cache(maxsize=64)
def _compiled(family: Family) -> Callable[[Stats, Stats], Stats]:
    import jax

    def moments(lam: Stats) -> Stats:
        return family.moments(family.project(lam))[0]

    def product(lam: Stats, change: Stats) -> Stats:
        tangent: Stats = jax.jvp(moments, (lam,), (change,))[1]
        return tangent

    compiled: Any = jax.jit(product)
    return compiled  # type: ignore[no-any-return]


def _packed(family: Family, lam: Stats, times: Times) -> Covariances:
    """Of [x | Λ]: Cov(x, φ) by differentiation; x and Λ are uncorrelated."""
    value, adjoint = _packed_value(family)

    def value_by(change: Stats) -> Array:
        with in_64_bits():
            return np.asarray(value(lam, tuple(np.broadcast_to(c, g.shape) for c, g in zip(change, lam, strict=True))))

    def stats_by(weights: Array) -> Stats:
        with in_64_bits():
            return tuple(np.asarray(part) for part in adjoint(lam, np.asarray(weights, np.float64)))

    if family.name == "NormalGamma":
        variance = family.var(lam)
        # A variance may be infinite; what is not asked for adds nothing.
        return Covariances(times, value_by, stats_by, lambda a: np.multiply(variance, a, out=0.0 * a, where=a != 0))
    usual = family.usual(lam)
    dof, rate, scale, size = usual["dof"], usual["rate"], np.asarray(usual["scale"]), usual["rate"].shape[-1]
    wishart = _wishart((-0.5 * rate, 0.5 * (dof - size - 1)))
    width = 1 if family.name == "NormalWishart" else scale.shape[-1]
    freedom = np.maximum(dof - size - 1, 0.0)[..., None, None]
    each = scale[..., None, None] if family.name == "NormalWishart" else scale[..., None, :]
    between = ops.spd_inverse_logdet(scale)[0] if family.name == "MatrixNormalWishart" else None

    def own(weights: Array) -> Array:
        means, rest = rate @ weights[..., :width], wishart((weights[..., width:], np.zeros(dof.shape)))[0]
        with np.errstate(divide="ignore"):  # a variance may be infinite; what is not asked for adds nothing
            means = np.divide(means, freedom, out=0.0 * means, where=means != 0)
        return np.concatenate([means / each if between is None else means @ between, rest], axis=-1)

    return Covariances(times, value_by, stats_by, own)


@lru_cache(maxsize=16)
def _packed_value(family: Family) -> tuple[Callable[..., Array], Callable[..., Stats]]:
    """Cov(x, φ) dλ and Cov(φ, x) a, compiled."""
    import jax
    import jax.numpy as jnp

    def mean(lam: Stats) -> Array:
        usual = family.usual(family.project(lam))
        if family.name == "NormalGamma":
            return jnp.stack([usual["mean"], usual["shape"] / usual["rate"]], axis=-1)
        columns = usual["mean"][..., None] if family.name == "NormalWishart" else jnp.swapaxes(usual["mean"], -1, -2)
        precision = usual["dof"][..., None, None] * jnp.linalg.inv(usual["rate"])
        return jnp.concatenate([columns, precision], axis=-1)

    value: Any = jax.jit(lambda lam, change: jax.jvp(mean, (lam,), (change,))[1])
    adjoint: Any = jax.jit(lambda lam, weights: jax.vjp(mean, lam)[1](weights)[0])
    return value, adjoint


# States up to which the products of matrices along a chain are kept: log₂ T for each step.
MOST_STATES = 8


def chain_covariance(lam: Stats, starts: Any) -> Callable[[Stats], Stats]:
    """V dλ of paths; ``starts`` [T] says where sequences begin. Changes may have an axis in front of those of λ."""
    potentials, initial, transition = np.moveaxis(lam[0], -2, 0), lam[1], lam[2]
    with np.errstate(all="ignore"):
        marginals, pairs = (close_pairs if is_close(transition) else _pairs)(potentials, initial, transition, starts)
    after = _divided(pairs, marginals[:-1, ..., :, None])  # P(z_{t+1} | z_t)
    before = _divided(pairs, marginals[1:, ..., None, :])  # P(z_t | z_{t+1})
    first = np.flatnonzero(starts)
    run, run_back = _recursion(ops.transpose(before)), _recursion(after[::-1])

    def times(change: Stats) -> Stats:
        wide = (slice(None), *(None,) * max(change[0].ndim - lam[0].ndim, 0))
        each, w = marginals[wide], change[2]
        v = under(np.moveaxis(change[0], -2, 0), each.ndim)
        v = np.broadcast_to(v, np.broadcast_shapes(v.shape, each.shape))
        ahead, behind = np.array(v), np.zeros(v.shape)
        ahead[first] += change[1]
        # What a step adds is found for all steps at once; across a start, probabilities are 0.
        ahead[1:] += (before[wide] * w).sum(-2)
        behind[:-1] = (after[wide] * (w + v[1:, ..., None, :])).sum(-1)
        ahead, behind = run(ahead, wide), run_back(behind[::-1], wide)[::-1]
        given = ahead + behind
        mean = (each * given).sum(-1, keepdims=True)
        of_states = each * (given - mean)
        of_pairs = ahead[:-1, ..., :, None] + w + (v + behind)[1:, ..., None, :] - mean[1:, ..., None]
        return np.moveaxis(of_states, 0, -2), of_states[first].sum(0), (pairs[wide] * of_pairs).sum(0)

    return times


def _pairs(potentials: Array, initial: Array, transition: Array, starts: Any) -> tuple[Array, Array]:
    """As `close_pairs`, in logarithms."""
    past, future = run_messages(potentials, initial, transition, starts)
    potentials = under(potentials, past.ndim)
    forward = potentials + past
    joint = forward[:-1, ..., :, None] + transition + (potentials + future)[1:, ..., None, :]
    top = joint.max((-1, -2), keepdims=True)
    pairs = np.exp(joint - np.where(np.isfinite(top), top, 0.0))
    inside = ~starts[1:].reshape((-1, *(1,) * (pairs.ndim - 1)))
    return ops.softmax(forward + future), np.where(inside, pairs / pairs.sum((-1, -2), keepdims=True), 0.0)


def _recursion(steps: Array) -> Callable[..., Array]:
    """The function of x [T, ..., K] that gives y with y_t = x_t + M_t y_{t−1}, for the matrices M_1 … M_{T−1}, read as x is.

    By doubling: after l rounds y_t has what comes from up to 2^l steps before, and the next round adds what y_{t−2^l} has, by the
    product of the 2^l matrices between. They are the same for every x, so a call is log₂ T products, not T.
    """
    if steps.shape[-1] > MOST_STATES:

        def one_by_one(x: Array, wide: Any = ...) -> Array:
            for t, matrix in enumerate(steps, 1):
                x[t] += (matrix @ x[t - 1][..., None])[..., 0]
            return x

        return one_by_one
    rounds, gap = [steps], 1
    while 2 * gap <= len(steps):
        last = rounds[-1]
        rounds.append(last[gap:] @ last[:-gap])
        gap *= 2

    def doubling(x: Array, wide: Any = ...) -> Array:
        for number, matrices in enumerate(rounds):
            between = 2**number
            x[between:] += (matrices[wide] @ x[:-between][..., None])[..., 0]
        return x

    return doubling


def _divided(pairs: Array, marginals: Array) -> Array:
    """Conditional probabilities; 0 given what never happens."""
    return np.divide(pairs, marginals, out=np.zeros_like(pairs), where=marginals > 0)
