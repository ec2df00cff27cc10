"""Quantiles of mixtures of conditional distributions, by their distribution functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy
import scipy.special as sp

from natgrad.network.language.binary import Bernoulli, Binomial
from natgrad.network.language.continuous import Dirichlet, Exponential, Gamma, MultivariateNormal, Normal
from natgrad.network.language.counts import NegativeBinomial, Poisson
from natgrad.network.language.discrete import Multinomial
from natgrad.network.language.robust import Laplace, LogNormal, Ordinal, StudentT, TruncatedNormal
from natgrad.network.language.simplex import Beta, HalfCauchy
from natgrad.network.results.conditionals import numbers_of, simplex_concentration, trials_of

__all__ = ["LAWS", "Law", "mixture_quantiles"]

#     F(x) = Σ_j w_j F(x | parts of j),     x ← x − (F(x) − p) / f,     f the density half way along the step
#
# Every eighth part stands for all until its own quantile is found, again by every eighth of them: from there Newton's steps end
# in two or three evaluations of all parts. The density half way is that here times what it changes by among the few, so that a
# step has no error of second order. A step whose error is below `NEAR` is not checked by another evaluation. Where steps do not
# settle (two modes far apart have nothing between them), the quantile is bracketed by the smallest and the largest of the
# parts', and found by the Illinois method. Whole numbers are counted up and down from where the few are.

Array = npt.NDArray[Any]
# Numbers of one block of elements, which fit into a cache; evaluations of F in a bracket, at most; how near to p it is to be.
BLOCK, STEPS, NEAR = 200_000, 60, 1e-9
# One part of so many stands for them, unless there are fewer than so many; Newton's steps, at most; how near to p a step begins
# that need not be checked.
STRIDE, FEW, NEWTON, CLOSE = 8, 64, 8, 1e-4
# Draws that are looked at to find elements that may be equal; a count that no law here is asked for.
LOOKED_AT, MOST = 4, 2.0**100


class Law(NamedTuple):
    """A law given its parameters: what they are, how likely values up to x are, the inverse of that, and its density.

    Whole numbers have none. ``back`` is where a value of a simpler law leads, such as exp.
    """

    parameters: Callable[[Any, dict[str, Array]], tuple[Any, ...]]
    cdf: Callable[..., Any]
    ppf: Callable[..., Any]
    pdf: Callable[..., Any] | None = None
    back: Callable[[Any], Any] | None = None


def mixture_quantiles(law: Law, parts: Sequence[tuple[Any, ...]], weights: Any, levels: Sequence[float]) -> list[Array]:
    """Quantiles of each element, by level p.

    ``parts`` are parameters [component, draw, elements], ``weights`` sum to one over the first two.
    """
    shape = np.shape(weights)[2:]
    columns = [_columns([part[place] for part in parts], np.shape(weights)) for place in range(len(parts[0]))]
    weights = np.reshape(weights, (columns[0].shape[0], -1))
    count = weights.shape[1]
    if not count:
        return [np.empty(shape) for _ in levels]
    counts = weights.max(1) > 0
    if not counts.all():
        weights, columns = weights[counts], [column[counts] for column in columns]
    weights, *columns = map(_narrow, (weights, *columns))
    chosen, places = _distinct([column for column in (weights, *columns) if column.shape[1] > 1], count)
    weights, *columns = (column if column.shape[1] == 1 else column[:, chosen] for column in (weights, *columns))
    if all(_narrow(column.T).shape[1] == 1 for column in (weights, *columns)):  # parents that are known: one law
        weights, columns = np.ones((1, weights.shape[1])), [column[:1] for column in columns]
    out = np.empty((len(levels), len(np.arange(count)[chosen])))
    width = max(1, BLOCK // len(weights))
    solve = _whole if law.pdf is None else _root
    with np.errstate(all="ignore"):  # a step may lead to where a law has no density; what is not finite is bracketed
        for begin in range(0, out.shape[1], width):
            own = slice(begin, begin + width)
            args = [column if column.shape[1] == 1 else column[:, own] for column in columns]
            mine = weights if weights.shape[1] == 1 else weights[:, own]
            for row, p in zip(out, levels, strict=True):
                row[own] = solve(law, args, mine, p)
    out = out if law.back is None else np.asarray(law.back(out))
    return [(row if places is None else row[places]).reshape(shape) for row in out]


def _columns(parts: Sequence[Any], shape: tuple[int, ...]) -> Array:
    whole = np.stack([np.broadcast_to(np.asarray(part, np.float64), shape[1:]) for part in parts])
    return whole.reshape(shape[0] * shape[1], -1)


def _narrow(column: Array) -> Array:
    """One column of those that are all the same."""
    same = column.shape[1] > 1 and bool((column[0] == column[0, 0]).all() and (column == column[:, :1]).all())
    return column[:, :1] if same else column


def _distinct(columns: list[Array], count: int) -> tuple[Any, Array | None]:
    """The elements that differ, and which of them each one is; all of them, and None, where few are equal."""
    if not columns:
        return slice(1), np.zeros(count, np.int64)
    looked = np.concatenate([column[:: max(1, len(column) // LOOKED_AT)] for column in columns])
    _, chosen, places = np.unique(looked, axis=1, return_index=True, return_inverse=True)
    places = places.reshape(-1)
    if 2 * len(chosen) > count:
        return slice(None), None
    same = all(bool((column == column[:, chosen[places]]).all()) for column in columns)
    return (chosen, places) if same else (slice(None), None)


def _mean(weights: Array, values: Any) -> Array:
    """Σ_j w_j values_j; weights that are the same for all elements are one column."""
    if weights.shape[1] == 1:
        return np.asarray(weights[:, 0] @ np.broadcast_to(values, (len(weights), np.shape(values)[-1])))
    return np.asarray(np.einsum("ij,ij->j", weights, np.broadcast_to(values, weights.shape)))


def _few(args: list[Array], weights: Array) -> tuple[list[Array], Array]:
    own = weights[::STRIDE]
    return [arg[::STRIDE] for arg in args], own / own.sum(0)


def _root(law: Law, args: list[Array], weights: Array, p: float) -> Array:
    if len(weights) < FEW:
        return _bracketed(law, args, weights, p)
    assert law.pdf is not None
    some, own = _few(args, weights)
    x = _root(law, some, own, p)
    settled = np.zeros(len(x), bool)
    for _ in range(NEWTON):
        excess, density = _mean(weights, law.cdf(x, *args)) - p, _mean(weights, law.pdf(x, *args))
        step = -excess / density
        change = _mean(own, law.pdf(x + step, *some)) / _mean(own, law.pdf(x, *some))
        near = np.abs(excess) <= NEAR
        last = (np.abs(excess) <= CLOSE) & (np.abs(excess * (change - 1.0)) <= NEAR)
        x = np.where(near | settled, x, x + 2.0 * step / (1.0 + change))
        settled |= near | (last & np.isfinite(x))
        if settled.all():
            return x
    left = ~settled
    rest = [arg if arg.shape[1] == 1 else arg[:, left] for arg in args]
    x[left] = _bracketed(law, rest, weights if weights.shape[1] == 1 else weights[:, left], p)
    return x


def _bracket(law: Law, args: list[Array], weights: Array, p: float) -> tuple[Array, Array]:
    """The smallest and the largest quantile of the parts that count."""
    ends = np.asarray(law.ppf(p, *args), np.float64)
    return np.where(weights > 0, ends, np.inf).min(0), np.where(weights > 0, ends, -np.inf).max(0)


def _bracketed(law: Law, args: list[Array], weights: Array, p: float) -> Array:
    def excess(x: Array) -> Array:
        return _mean(weights, law.cdf(x, *args)) - p

    low, high = _bracket(law, args, weights, p)
    at_low, at_high = excess(low), excess(high)
    x, side = low, np.zeros(len(low), np.int8)
    for _ in range(STEPS):
        step = at_high - at_low
        middle = 0.5 * (low + high)
        x = np.where(step > 0, low - at_low * (high - low) / np.where(step > 0, step, 1.0), middle)
        x = np.where((x > low) & (x < high), x, middle)
        here = excess(x)
        left = here < 0
        # An end that stays twice counts half (Illinois), so that both ends come closer.
        at_high = np.where(left, np.where(side == -1, 0.5 * at_high, at_high), here)
        at_low = np.where(left, here, np.where(side == 1, 0.5 * at_low, at_low))
        low, high, side = np.where(left, x, low), np.where(left, high, x), np.where(left, -1, 1)
        if ((np.abs(here) <= NEAR) | (high - low <= 2.0 * np.spacing(np.abs(x)))).all():
            break
    return x


def _whole(law: Law, args: list[Array], weights: Array, p: float) -> Array:
    """The smallest whole number with F(x) ≥ p."""

    def enough(x: Array) -> Array:
        return np.asarray(_mean(weights, law.cdf(x, *args)) >= p - 1e-12)

    if len(weights) < FEW:
        low, high = _bracket(law, args, weights, p)
        while (low < high).any():
            middle = np.floor(0.5 * (low + high))
            reached = enough(middle)
            low, high = np.where(reached, low, middle + 1), np.where(reached, middle, high)
        return low
    x = _whole(law, *_few(args, weights), p)
    # F(low) < p ≤ F(high): counted up and down from x in steps that double, and halved when both are known.
    low, high, far = np.full(len(x), -1.0), np.full(len(x), np.inf), 1.0
    while far < MOST:
        reached = enough(x)
        high, low = np.where(reached, np.minimum(high, x), high), np.where(reached, low, np.maximum(low, x))
        if (high - low <= 1).all():
            return high
        x = np.where(np.isinf(high), low + far, np.maximum(np.floor(0.5 * (low + high)), high - far))
        x, far = np.where(high - low <= 1, high, x), 2.0 * far
    return np.where(high - low <= 1, high, np.nan)


# Laws of nodes given values of their parents: parameters, distribution functions, quantiles and densities of each kind of node.
#
# Quantiles of draws of the node itself would have its own noise on top: rows that are equal would have different intervals.
# Those of the mixture of the laws, one for each draw of the parents, are found here.

Slots = dict[str, Array]
PER_SD = 1.0 / np.sqrt(2.0 * np.pi)


def _gaussian(node: Any, s: Slots) -> tuple[Any, ...]:
    return s["mean"], 1.0 / np.sqrt(s["precision"])


def _vector(node: Any, s: Slots) -> tuple[Any, ...]:
    return s["mean"], np.sqrt(np.diagonal(np.linalg.inv(s["precision"]), axis1=-2, axis2=-1))


def _normal_cdf(x: Any, mean: Any, sd: Any) -> Any:
    return sp.ndtr((x - mean) / sd)


def _normal_ppf(p: Any, mean: Any, sd: Any) -> Any:
    return mean + sd * sp.ndtri(p)


def _normal_pdf(x: Any, mean: Any, sd: Any) -> Any:
    z = (x - mean) / sd
    return np.exp(-0.5 * z * z) * (PER_SD / sd)


def _student_cdf(x: Any, mean: Any, sd: Any, df: Any) -> Any:
    return scipy.special.stdtr(df, (x - mean) / sd)


def _student_ppf(p: Any, mean: Any, sd: Any, df: Any) -> Any:
    return mean + sd * scipy.special.stdtrit(df, p)


def _student_pdf(x: Any, mean: Any, sd: Any, df: Any) -> Any:
    z, half = (x - mean) / sd, 0.5 * (df + 1.0)
    logs = sp.gammaln(half) - sp.gammaln(0.5 * df) - half * np.log1p(z * z / df)
    return np.exp(logs) / (sd * np.sqrt(np.pi * df))


def _laplace_cdf(x: Any, mean: Any, sd: Any) -> Any:
    z = (x - mean) / sd
    return np.where(z < 0, 0.5 * np.exp(np.minimum(z, 0.0)), 1.0 - 0.5 * np.exp(-np.maximum(z, 0.0)))


def _laplace_ppf(p: Any, mean: Any, sd: Any) -> Any:
    return mean + sd * (np.log(2.0 * p) if p < 0.5 else -np.log(2.0 * (1.0 - p)))


def _laplace_pdf(x: Any, mean: Any, sd: Any) -> Any:
    return 0.5 * np.exp(-np.abs(x - mean) / sd) / sd


def _gamma_pdf(x: Any, a: Any, b: Any) -> Any:
    return np.exp(a * np.log(b * x) - b * x - sp.gammaln(a)) / x


def _beta_pdf(x: Any, a: Any, b: Any) -> Any:
    return np.exp((a - 1.0) * np.log(x) + (b - 1.0) * np.log1p(-x) + sp.gammaln(a + b) - sp.gammaln(a) - sp.gammaln(b))


def _marginals(node: Any, s: Slots) -> tuple[Any, ...]:
    """Shares of a Dirichlet are Beta variables."""
    a = simplex_concentration(node, s)
    return a, a.sum(-1, keepdims=True) - a


def _between(node: Any, s: Slots) -> tuple[Any, ...]:
    """Mean and standard deviation before a truncation, and bounds in its units; mirrored (−1) where both are above the mean."""
    mean, sd = _gaussian(node, s)
    a, b = (node.lower - mean) / sd, (node.upper - mean) / sd
    sign = np.where(a > 0, -1.0, 1.0)
    return mean, sd, np.where(a > 0, -b, a), np.where(a > 0, -a, b), sign


def _truncated_cdf(x: Any, mean: Any, sd: Any, a: Any, b: Any, sign: Any) -> Any:
    """(Φ(z) − Φ(a)) / (Φ(b) − Φ(a)), each as a part of Φ(b), which may be a number that is too small to be written."""
    z = np.clip(sign * (x - mean) / sd, a, b)
    whole = sp.log_ndtr(b)
    least = np.exp(sp.log_ndtr(a) - whole)
    part = (np.exp(sp.log_ndtr(z) - whole) - least) / (1.0 - least)
    return np.where(sign > 0, part, 1.0 - part)


def _truncated_ppf(p: Any, mean: Any, sd: Any, a: Any, b: Any, sign: Any) -> Any:
    whole = sp.log_ndtr(b)
    least = np.exp(sp.log_ndtr(a) - whole)
    q = np.where(sign > 0, p, 1.0 - p)
    z = scipy.special.ndtri_exp(whole + np.log(least + q * (1.0 - least)))
    return mean + sd * sign * np.clip(z, a, b)


def _truncated_pdf(x: Any, mean: Any, sd: Any, a: Any, b: Any, sign: Any) -> Any:
    z, whole = sign * (x - mean) / sd, sp.log_ndtr(b)
    inside = np.exp(-0.5 * z * z - whole) * PER_SD / (sd * (1.0 - np.exp(sp.log_ndtr(a) - whole)))
    return np.where((z >= a) & (z <= b), inside, 0.0)


def _levels(node: Any, s: Slots) -> tuple[Any, ...]:
    """The probability of each level and those below it; of the last one it is 1."""
    below = sp.ndtr((node.cutpoints - s["mean"][..., None]) * np.sqrt(s["precision"])[..., None])
    return tuple(np.moveaxis(below, -1, 0))


def _level_cdf(x: Any, *below: Any) -> Any:
    total: Any = 1.0
    for level, chance in reversed(list(enumerate(below))):
        total = np.where(x < level + 1.0, chance, total)
    return np.where(x < 0, 0.0, total)


def _level_ppf(p: Any, *below: Any) -> Any:
    return np.sum([chance < p for chance in below], axis=0, dtype=np.float64)


def _binomial_cdf(x: Any, trials: Any, prob: Any) -> Any:
    inside = sp.betainc(np.maximum(trials - x, 1e-300), np.maximum(x, 0.0) + 1.0, 1.0 - prob)
    return np.where(x >= trials, 1.0, np.where(x < 0, 0.0, inside))


def _negative_binomial_cdf(x: Any, shape: Any, prob: Any) -> Any:
    return np.where(x < 0, 0.0, sp.betainc(shape, np.maximum(x, 0.0) + 1.0, prob))


def _counts(node: Any, s: Slots) -> tuple[Any, ...]:
    """Of each category there are so many as of a Binomial."""
    return trials_of(node)[..., None], s["probs"] / s["probs"].sum(-1, keepdims=True)


def _ppf(name: str) -> Callable[..., Any]:
    """Of a law of whole numbers as SciPy has it, which is imported when it is asked."""
    return lambda p, *args: getattr(scipy.stats, name).ppf(p, *args)


NORMAL = Law(_gaussian, _normal_cdf, _normal_ppf, _normal_pdf)
GAMMA = (
    lambda x, a, b: sp.gammainc(a, b * np.maximum(x, 0.0)),
    lambda p, a, b: sp.gammaincinv(a, p) / b,
    _gamma_pdf,
)
BETA = (
    lambda x, a, b: sp.betainc(a, b, np.clip(x, 0.0, 1.0)),
    lambda p, a, b: sp.betaincinv(a, b, p),
    _beta_pdf,
)
BINOMIAL = _binomial_cdf, _ppf("binom")
LAWS: dict[type, Law] = {
    Normal: NORMAL,
    MultivariateNormal: Law(_vector, *NORMAL[1:4]),
    LogNormal: NORMAL._replace(back=np.exp),
    StudentT: Law(lambda node, s: (*_gaussian(node, s), s["df"]), _student_cdf, _student_ppf, _student_pdf),
    Laplace: Law(_gaussian, _laplace_cdf, _laplace_ppf, _laplace_pdf),
    TruncatedNormal: Law(_between, _truncated_cdf, _truncated_ppf, _truncated_pdf),
    Gamma: Law(lambda node, s: (s["shape"], s["rate"]), *GAMMA),
    Exponential: Law(lambda node, s: (np.ones(()), s["rate"]), *GAMMA),
    # A precision is (s |c|)⁻² with a standard Cauchy c.
    HalfCauchy: Law(
        lambda node, s: (s["scale"],),
        lambda x, scale: 2.0 / np.pi * np.arctan(scale * np.sqrt(np.maximum(x, 0.0))),
        lambda p, scale: (np.tan(0.5 * np.pi * p) / scale) ** 2,
        lambda x, scale: scale / (np.pi * np.sqrt(x) * (1.0 + scale * scale * x)),
    ),
    Beta: Law(lambda node, s: (s["a"], s["b"]), *BETA),
    Dirichlet: Law(_marginals, *BETA),
    Poisson: Law(
        lambda node, s: (s["rate"],),
        lambda x, rate: np.where(x < 0, 0.0, scipy.special.gammaincc(np.maximum(x, 0.0) + 1.0, rate)),
        _ppf("poisson"),
    ),
    Bernoulli: Law(lambda node, s: (np.ones(()), s["prob"]), *BINOMIAL),
    Binomial: Law(lambda node, s: (numbers_of(node, "trials"), s["prob"]), *BINOMIAL),
    Multinomial: Law(_counts, *BINOMIAL),
    NegativeBinomial: Law(lambda node, s: (s["shape"], 1.0 - s["prob"]), _negative_binomial_cdf, _ppf("nbinom")),
    Ordinal: Law(_levels, _level_cdf, _level_ppf),
}
