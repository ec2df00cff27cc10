"""Multiply by covariances under q and their inverses: what linear response asks of a family.

V = ∇²A(λ) = Cov(φ) maps a change of λ to the change of the moments, dμ = V dλ. The value x of a node is a statistic of most
families (the first one) but not of a Dirichlet, whose statistics are logarithms; Cov(x, φ) = ∂E[x]/∂λ whatever x is.
`fisher_matrix` makes V itself, column by column; elsewhere nothing of that size is made. NumPy does it in closed form. Families
without one are differentiated by JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from natgrad._jax import in_64_bits
from natgrad.families import _ops as ops
from natgrad.families._family import Family, Times, numpy_stats
from natgrad.families._ops import Array, Stats

__all__ = ["Covariances", "covariances", "fisher_matrix"]


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
    times = family.covariance_times(lam) or _differentiated(family, lam)
    if (of_value := family.value_covariances(lam, times)) is not None:
        return Covariances(times, *of_value)

    def first(weights: Array) -> Stats:
        return (np.asarray(weights, np.float64), *(np.zeros_like(part) for part in lam[1:]))

    products = Covariances(
        times, lambda change: times(change)[0], lambda weights: times(first(weights)), lambda a: times(first(a))[0]
    )
    return products._replace(centred=_centring(family, lam)) if family.is_category else products


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


def _centring(family: Family, lam: Stats) -> Times:
    """Logits minus their mean: what is constant in them drowns the digits of the rest, and means nothing."""
    probs = np.asarray(family.mean(lam))

    def centred(change: Stats) -> Stats:
        return change[0] - (probs * change[0]).sum(-1, keepdims=True), *change[1:]

    return centred


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
