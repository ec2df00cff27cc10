"""Chains of a small network in, the same after some sweeps of Gibbs sampling out: one compiled loop for every network.

P, the log joint at the statistics of values, is written out in numbers (`natgrad.network.draws.numbers`): row s of a table of
products of statistics adds up to the natural parameter of statistic s. An operation of a sweep draws one element from rows,
by its family, or a group of Gaussian numbers from their joint conditional N(A⁻¹b, A⁻¹), or a precision with these integrated out
(`natgrad.network.draws.gibbs`). Matrices are held, and factorised, from the first entry of each row that is not always 0: where
effects meet in nothing but a common mean, that is as many operations as there are effects.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from natgrad.kernels._njit import of_rows, parallel_kernel, serial_kernel
from natgrad.kernels.network.gaussian import _draw_gaussian, _draw_scale, _drawn, _placed
from natgrad.kernels.network.relabel import put_back
from natgrad.kernels.network.rows import _row
from natgrad.kernels.network.variates import _begin, _gamma, _log_gamma, _normal, _uniform

__all__ = [
    "BERNOULLI",
    "BETA",
    "CATEGORICAL",
    "DIRICHLET",
    "GAMMA",
    "GAUSSIAN",
    "NORMAL",
    "SCALE",
    "Tables",
    "run_sweeps",
]

NORMAL, GAMMA, BETA, BERNOULLI, CATEGORICAL, DIRICHLET, GAUSSIAN, SCALE = range(8)
# As in `natgrad.inference.steppers.gibbs`: the least positive number with a reciprocal, the logarithm of what underflowed.
TINY, IMPOSSIBLE = 1e-300, -1e100


class Tables(NamedTuple):
    """A network as numbers; what each column is says `natgrad.network.draws.numbers`.

    Attributes
    ----------
    ops : ints [operation, 12]: kind; places of the first and the second statistic, which are their rows, of the value, and of
        what is averaged; size and number of elements; then of Gaussian ones the first row of A and b (those of
        their slope come after them), where their tables begin and end, and whether the group is drawn
    starts [rows + 1], coefs [products], factors [products, F] : coefficients, and the statistics that they multiply
    envelope [number, 2] : of each row of A its first column, and where that is held
    variables [number, 3] : places of the statistic, of the value, and of what is averaged
    outer [product, 3] : the place of a product of two numbers of a group, and which
    sets, classes, categories, wanted, moves : labels that may be put back
    """

    ops: Any
    starts: Any
    coefs: Any
    factors: Any
    envelope: Any
    variables: Any
    outer: Any
    sets: Any
    classes: Any
    categories: Any
    wanted: Any
    moves: Any


@parallel_kernel(of_rows, serial_kernel)
def run_sweeps(low, high, stats, values, sums, kept, moved, failed, tables, key, begin, end, warmup, thin):
    """Sweeps ``begin … end − 1`` of every chain; ``stats``, ``values`` and ``sums`` change in place.

    Parameters
    ----------
    stats [chains, S], values [chains, V] : place 0 of the statistics is 1
    sums [chains, 2, F] : means and second moments of conditionals, of the sweeps that count
    kept [chains, draws, V] : values of these sweeps
    moved, failed [chains] : in how many sweeps labels were put back; the operation that met no distribution, or −1
    key : uint64, of the seed
    """
    size = max(1, tables.ops[:, 5].max())
    width = 2 * size + (tables.envelope[:, 1].max() if tables.envelope.shape[0] else 0)
    random, spare = np.empty(1, np.uint64), np.empty(2)
    first, second = np.empty(sums.shape[2]), np.empty(sums.shape[2])
    lam, half, drawn = np.empty(size), np.empty(size), np.empty(size)
    constant, slope, root = np.empty(width), np.empty(width), np.empty(width)
    ops, starts, coefs, factors = tables.ops, tables.starts, tables.coefs, tables.factors
    envelope, variables, products, n_sets = tables.envelope, tables.variables, tables.outer, tables.sets.shape[0]
    for chain in range(low, high):
        x, y = stats[chain], values[chain]
        failed[chain] = -1
        for t in range(begin, end):
            _begin(key, chain, t, random, spare)
            bad = _sweep(
                ops, starts, coefs, factors, envelope, variables, products, x, y, first, second, lam, half, drawn, constant,
                slope, root, random, spare,
            )  # fmt: skip
            if bad >= 0:
                failed[chain] = bad
                break
            if n_sets:
                moved[chain] += put_back(tables, x, y, first, second)
            if t >= warmup and (t - warmup) % thin == thin - 1:
                draw = (t - warmup) // thin - max(0, begin - warmup) // thin
                for i in range(values.shape[1]):
                    kept[chain, draw, i] = values[chain, i]
                for i in range(first.shape[0]):
                    sums[chain, 0, i] += first[i]
                    sums[chain, 1, i] += second[i]


@serial_kernel
def _sweep(
    ops, starts, coefs, factors, envelope, variables, products, stats, values, first, second, lam, half, x, constant,
    slope, root, random, spare,
):  # fmt: skip
    """Every operation once; the number of the first that met no distribution, or −1."""
    for number in range(ops.shape[0]):
        kind, one, two, value, at, size, count = (
            ops[number, 0], ops[number, 1], ops[number, 2], ops[number, 3], ops[number, 4], ops[number, 5], ops[number, 6]
        )  # fmt: skip
        if kind == CATEGORICAL:
            good = _draw_categories(
                starts, coefs, factors, one, value, at, size, count, stats, values, first, lam, random
            )
        elif kind == DIRICHLET:
            good = _draw_shares(
                starts, coefs, factors, one, value, at, size, count, stats, values, first, second, lam, random, spare
            )
        elif kind in (GAUSSIAN, SCALE):
            row, table = ops[number, 7], ops[number, 8]
            if kind == GAUSSIAN:
                good = _draw_gaussian(
                    starts, coefs, factors, row, envelope, table, size, stats, constant, root, half, x, random, spare
                )
            else:
                log_value = _draw_scale(
                    starts, coefs, factors, row, one, two, envelope, table, size, stats, values[value], constant, slope,
                    root, half, random,
                )  # fmt: skip
                t = math.exp(log_value)
                good = math.isfinite(t)
                values[value], stats[one], stats[two] = t, max(t, TINY), math.log(max(t, TINY))
                first[at], second[at] = t, t * t
                if good and ops[number, 11]:
                    _drawn(envelope, table, size, root, half, x, random, spare)
            if good and ops[number, 11]:
                good = _placed(
                    variables, products, table, size, ops[number, 9], ops[number, 10], x, stats, values, first, second
                )
        else:
            good = _draw_numbers(
                starts, coefs, factors, kind, one, two, value, at, count, stats, values, first, second, random, spare
            )
        if not good:
            return number
    return -1


@serial_kernel
def _draw_numbers(
    starts, coefs, factors, kind, one, two, value, at, count, stats, values, first, second, random, spare
):
    """The numbers of a block, one after the other; whether all have a distribution."""
    for n in range(count):
        p, q = one + n, two + n
        a, b = _row(starts, coefs, factors, p, stats), 0.0
        if kind != BERNOULLI:
            b = _row(starts, coefs, factors, q, stats)
        if not (math.isfinite(a) and math.isfinite(b)):
            return False
        if kind == NORMAL:
            if b >= 0.0:
                return False
            mean, var = -0.5 * a / b, -0.5 / b
            x = mean + _normal(random, spare) * math.sqrt(var)
            stats[p], stats[q] = x, x * x
            square = var + mean * mean
        elif kind == GAMMA:
            shape, rate = b + 1.0, -a
            if not (shape > 0.0 and rate > 0.0):
                return False
            x = _gamma(shape, random, spare) if shape >= 1.0 else math.exp(_log_gamma(shape, random, spare))
            x /= rate
            stats[p] = max(x, TINY)
            stats[q] = math.log(stats[p])
            mean, square = shape / rate, shape * (shape + 1.0) / rate**2
        elif kind == BETA:
            if not (a > -1.0 and b > -1.0):
                return False
            u, v = _log_gamma(a + 1.0, random, spare), _log_gamma(b + 1.0, random, spare)
            whole = max(u, v) + math.log1p(math.exp(-abs(u - v)))
            stats[p], stats[q] = max(u - whole, IMPOSSIBLE), max(v - whole, IMPOSSIBLE)
            x, total = math.exp(u - whole), a + b + 2.0
            mean, square = (a + 1.0) / total, (a + 1.0) * (a + 2.0) / (total * (total + 1.0))
        else:
            mean = square = 1.0 / (1.0 + math.exp(-a))
            x = 1.0 if _uniform(random) < mean else 0.0
            stats[p] = x
        values[value + n], first[at + n], second[at + n] = x, mean, square
    return True


@serial_kernel
def _draw_categories(starts, coefs, factors, one, value, at, size, count, stats, values, first, lam, random):
    """The categories of a block, their indicators and their probabilities; whether each has one that can be."""
    for n in range(count):
        top = -np.inf
        for k in range(size):
            lam[k] = _row(starts, coefs, factors, one + n * size + k, stats)
            top = max(top, lam[k])
        total = 0.0
        for k in range(size):
            lam[k] = math.exp(lam[k] - top)
            total += lam[k]
        if not 0.0 < total < np.inf:  # nothing can be, or NaN
            return False
        u, upto, drawn = _uniform(random) * total, 0.0, size - 1
        while drawn > 0 and lam[drawn] == 0.0:  # what can never be is not drawn where u · total is rounded up
            drawn -= 1
        for k in range(size):
            upto += lam[k]
            if u < upto and k < drawn:
                drawn = k
            first[at + n * size + k] = lam[k] / total
            stats[one + n * size + k] = 0.0
        stats[one + n * size + drawn], values[value + n] = 1.0, drawn
    return True


@serial_kernel
def _draw_shares(starts, coefs, factors, one, value, at, size, count, stats, values, first, second, lam, random, spare):
    """Probabilities of Dirichlet distributions, by the logarithms of gammas; whether they are some."""
    for n in range(count):
        total, top, whole = 0.0, -np.inf, 0.0
        for k in range(size):
            lam[k] = _row(starts, coefs, factors, one + n * size + k, stats) + 1.0
            if not 0.0 < lam[k] < np.inf:
                return False
            total += lam[k]
        for k in range(size):
            a, place = lam[k], at + n * size + k
            first[place], second[place] = a / total, a * (a + 1.0) / (total * (total + 1.0))
            lam[k] = _log_gamma(a, random, spare)
            top = max(top, lam[k])
        for k in range(size):
            whole += math.exp(lam[k] - top)
        whole = top + math.log(whole)
        for k in range(size):
            values[value + n * size + k] = math.exp(lam[k] - whole)
            stats[one + n * size + k] = max(lam[k] - whole, IMPOSSIBLE)
    return True
