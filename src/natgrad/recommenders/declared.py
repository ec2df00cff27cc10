"""The network of ratings in time and context: numbers in; a declaration, its start, and the moments that predict out.

    r_n ~ N(m + Σ_k u_ik v_jk w_lk + b_i(t) + c_j(t) + d_l, 1/τ)
    b_i(1) ~ N(0, 1/α_b),  b_i(t) ~ N(b_i(t − 1), 1/ω_b),   c_j likewise;   w_lk ~ N(1, 1/γ),   d_l ~ N(0, 1/α_d)

Without times b_i and c_j are numbers; without contexts there is no w and no d, and q(u_i) and q(v_j) are Gaussians of K
dimensions with u_i ~ N(0, diag(α)⁻¹). With contexts every number has a factor of its own. Precisions are Gamma, equally
vague in every unit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.schema import check, refuse
from natgrad.network.language import Column, Gamma, GaussianChain, MultivariateNormal, Normal, Plate, diag, dot
from natgrad.network.network import Network
from natgrad.recommenders.columns import Codes

__all__ = ["Moments", "Shape", "declared", "moments_of", "moments_table", "predicted", "table_of"]

Floats = npt.NDArray[np.float64]
VAGUE = 1e-3
# Of the largest number of a covariance, below which differences are rounding.
TINY = 1e-9


class Shape(NamedTuple):
    """How many there are of each; ``bins`` is 0 without times, ``contexts`` 0 without contexts."""

    users: int
    items: int
    bins: int
    contexts: int
    factors: int


class Moments(NamedTuple):
    """What predictions need: means and variances (of vectors, covariances) of every part, the last row that of the prior.

    u, v : ([rows, K], [rows, K, K] or [rows, K]);  w : the same with one row for each context, None without
    b, c : ([rows, bins], [rows, bins]);  d : ([rows], [rows]), None without contexts
    steps : variance of a step of b and c between bins, zeros without times
    """

    u: tuple[Floats, Floats]
    v: tuple[Floats, Floats]
    w: tuple[Floats, Floats] | None
    b: tuple[Floats, Floats]
    c: tuple[Floats, Floats]
    d: tuple[Floats, Floats] | None
    steps: tuple[float, float]
    offset: float
    noise: float


def declared(codes: Codes, values: Floats, shape: Shape, unit: float, columns: bool = False) -> Network:
    """The declaration; ``values`` are ratings less their mean, ``unit`` their standard deviation.

    ``columns``: with the columns of `table_of` in place of arrays, so that rows can be read in chunks.
    """
    user, item = Plate("user", shape.users), Plate("item", shape.items)
    rating = Plate("rating") if columns else Plate("rating", len(values))
    factor = Plate("factor", shape.factors)
    tau = Gamma("noise", VAGUE, VAGUE * unit**2)
    alpha = Gamma("user_precision", VAGUE, VAGUE * unit, plate=factor)
    beta = Gamma("item_precision", VAGUE, VAGUE * unit, plate=factor)
    users, items, bins, contexts = map(Column, Codes._fields) if columns else map(rating.index, codes)
    mean: Any
    u: Any
    v: Any
    if shape.contexts:
        context = Plate("context", shape.contexts)
        u, v = Normal("u", 0.0, alpha, plate=(user, factor)), Normal("v", 0.0, beta, plate=(item, factor))
        w = Normal("w", 1.0, Gamma("context_precision", 1.0, 1.0), plate=(context, factor))
        d = Normal("d", 0.0, Gamma("context_bias_precision", VAGUE, VAGUE * unit**2), plate=context)
        mean = dot(u[users] * w[contexts], v[items], over=factor) + d[contexts]
    else:
        nowhere = np.zeros(shape.factors)
        u = MultivariateNormal("u", nowhere, diag(alpha), plate=user)
        v = MultivariateNormal("v", nowhere, diag(beta), plate=item)
        mean = dot(u[users], v[items])
    for name, side, rows, plate in (("b", "user", users, user), ("c", "item", items, item)):
        first = Gamma(f"{side}_bias_precision", VAGUE, VAGUE * unit**2)
        if shape.bins:
            step = Gamma(f"{side}_step_precision", VAGUE, VAGUE * unit**2)
            time = Plate("bin", shape.bins)
            path = GaussianChain(name, 0.0, first, 1.0, step, plate=(plate, time))
            mean = mean + path[rows, bins, 0]
        else:
            mean = mean + Normal(name, 0.0, first, plate=plate)[rows]
    return Network(Normal("r", mean, tau, plate=rating, observed=Column("values") if columns else values))


def table_of(codes: Codes, values: Floats, shape: Shape) -> dict[str, Any]:
    """The rows that a declaration with columns reads."""
    read = {"users": True, "items": True, "bins": bool(shape.bins), "contexts": bool(shape.contexts)}
    return {"values": values, **{name: part for name, part in codes._asdict().items() if read[name]}}


def moments_of(fit: Any, shape: Shape, offset: float) -> Moments:
    """From the factors of a fit."""
    pairs: dict[str, Any] = {}
    for name, precision in (("u", "user_precision"), ("v", "item_precision")):
        prior, mean = _variance(fit[precision]), fit[name].mean()
        spread = fit[name].var() if shape.contexts else fit[name].moments["xx"] - mean[:, :, None] * mean[:, None, :]
        own = prior if shape.contexts else np.diag(prior)
        pairs[name] = _with_prior(mean, spread, np.zeros_like(prior), own)
    steps = []
    for name, side in (("b", "user"), ("c", "item")):
        mean, variance = (
            np.asarray(part).reshape(-1, max(shape.bins, 1)) for part in (fit[name].mean(), fit[name].var())
        )
        first = float(_variance(fit[f"{side}_bias_precision"]))
        steps.append(float(_variance(fit[f"{side}_step_precision"])) if shape.bins else 0.0)
        later = first + steps[-1] * np.arange(mean.shape[1])
        pairs[name] = _with_prior(mean, variance, np.zeros(mean.shape[1]), later)
    if shape.contexts:
        spread = float(_variance(fit["context_precision"])), float(_variance(fit["context_bias_precision"]))
        pairs["w"] = _with_prior(
            fit["w"].mean(), fit["w"].var(), np.ones(shape.factors), np.full(shape.factors, spread[0])
        )
        pairs["d"] = _with_prior(fit["d"].mean(), fit["d"].var(), np.zeros(()), np.asarray(spread[1]))
    noise = float(_variance(fit["noise"]))
    return Moments(
        pairs["u"],
        pairs["v"],
        pairs.get("w"),
        pairs["b"],
        pairs["c"],
        pairs.get("d"),
        (steps[0], steps[1]),
        offset,
        noise,
    )


def moments_table(contexts: bool) -> Any:
    """What a file may hold of them: numbers whose products are numbers, and covariances that are some."""

    def pair(side: str, *axes: str) -> tuple[str, str]:
        shape = ", ".join([side, *axes])
        return f"real [{shape}] in [-1e50, 1e50]", f"nonnegative [{shape}] in [0, 1e50]"

    vectors = [pair(side, "factor") for side in ("users", "items")]
    if not contexts:
        vectors = [(mean, spread.replace("nonnegative", "real").replace("factor]", "factor, factor]").replace("[0,", "[-1e50,"))
                   for mean, spread in vectors]  # fmt: skip
    w, d = (pair("contexts", "factor"), pair("contexts")) if contexts else ("none", "none")
    steps, noise = ("nonnegative in [0, 1e50]",) * 2, "positive in (0, 1e50]"
    rule = (*vectors, w, pair("users", "bin"), pair("items", "bin"), d, steps, "real in [-1e50, 1e50]", noise)

    def of(value: Any, sizes: Any, where: str) -> None:
        check(value, rule, sizes, where)
        for side in ("user", "item", "context")[: 3 if contexts else 2]:
            if sizes[f"{side}s"] != sizes[side] + 1:
                refuse(where, f"has {sizes[f'{side}s']} rows of {side}s instead of {sizes[side]} and one of the prior")
        for covariance in () if contexts else (np.asarray(part[1]) for part in value[:2]):
            size = np.abs(covariance).max(initial=0.0)
            turned = covariance.transpose(0, 2, 1)
            if np.abs(covariance - turned).max() > TINY * size or np.linalg.eigvalsh(covariance).min() < -TINY * size:
                refuse(where, "has a matrix that is no covariance")

    return of


def predicted(moments: Moments, codes: Codes) -> tuple[Floats, Floats]:
    """Mean and variance of ratings, noise included; numbers of −1 have the prior."""
    (mean_u, spread_u), (mean_v, spread_v) = (
        (part[codes.users] for part in moments.u),
        (part[codes.items] for part in moments.v),
    )
    if moments.w is None or moments.d is None:
        mean = np.einsum("nk,nk->n", mean_u, mean_v)
        variance = np.einsum("nk,nkl,nl->n", mean_u, spread_v, mean_u) + np.einsum(
            "nk,nkl,nl->n", mean_v, spread_u, mean_v
        )
        variance += np.einsum("nkl,nkl->n", spread_u, spread_v)
    else:
        mean_w, spread_w = (part[codes.contexts] for part in moments.w)
        product = mean_u * mean_v * mean_w
        squares = (mean_u**2 + spread_u) * (mean_v**2 + spread_v) * (mean_w**2 + spread_w)
        mean, variance = product.sum(1), (squares - product**2).sum(1)
        mean = mean + moments.d[0][codes.contexts]
        variance += moments.d[1][codes.contexts]
    for (level, spread), rows, step in zip((moments.b, moments.c), codes[:2], moments.steps, strict=True):
        last = level.shape[1] - 1
        bins = np.clip(codes.bins, 0, last)
        # Beyond the ends a path has walked on: as far as it was, and less sure with every step.
        beyond = np.where(codes.bins < 0, -codes.bins, np.maximum(codes.bins - last, 0))
        mean = mean + level[rows, bins]
        variance = variance + spread[rows, bins] + step * beyond
    return moments.offset + mean, variance + moments.noise


def _variance(precision: Any) -> Floats:
    """E[1/x] of Gammas; of those too vague to have one, 1/E[x]."""
    shape, rate = (np.asarray(precision.parameters[name]) for name in ("shape", "rate"))
    return np.asarray(np.where(shape > 1.5, rate / np.maximum(shape - 1.0, 0.5), rate / shape))


def _with_prior(mean: Any, spread: Any, prior: Any, prior_spread: Any) -> tuple[Floats, Floats]:
    return np.concatenate([mean, [prior]]), np.concatenate([spread, [prior_spread]])
