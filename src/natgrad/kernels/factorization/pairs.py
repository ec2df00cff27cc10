"""Likes as ratings: moments of both sides in; E[f], E[f²] of every rating and the Gaussian bound of a logistic likelihood out.

    f = u·v + b + c,   E[f²] = E[b²] + ⟨E[u uᵀ], E[v vᵀ]⟩ + 2 E[u]·E[v c] + E[c²] + 2 E[u b]·E[v] + 2 E[b] E[c]

For one row this is a linear form in the packed moments of the other side (`rating_gather.pack`), so that a rating costs one
product of contiguous numbers. The other side is read in blocks that fit in the processor's cache, as `gather_rows` does.
"""

from __future__ import annotations

import math

import numpy as np

from natgrad.kernels._njit import lane_kernel, of_pieces, of_rows, parallel_kernel

__all__ = ["linear_forms", "logistic_bound", "moments_of_columns", "moments_of_rows"]

# Below it tanh(ξ/2) / (2 ξ) is its series.
SMALL = 1e-3


@parallel_kernel(of_pieces)
def moments_of_rows(low, high, pieces, start, other, mean, second, biased, tell, block, forms, out_mean, out_square):
    """E[f] and E[f²] of the ratings of the rows ``pieces[0] … pieces[-1]``, in their order.

    ``block`` is how many rows of ``tell`` are read at a time; ``forms`` [rows, D(D+1)/2 + D] is scratch.
    """
    first, size = pieces[0], mean.shape[1]
    begin_own, end_own, means = pieces[low], pieces[high], size * (size + 1) // 2
    cursor = start[begin_own:end_own].copy()
    for row in range(begin_own, end_own):
        _linear_form(mean[row], second[row], biased, forms[row - first])
    for begin in range(0, tell.shape[0], block):
        edge = begin + block
        for row in range(begin_own, end_own):
            n, last = cursor[row - begin_own], start[row + 1]
            own, known = 0.0, 0.0
            if biased:
                own, known = mean[row, size - 1], second[row, size - 1, size - 1]
            while n < last and other[n] < edge:
                dot, square = _both_products(mean[row], forms[row - first], tell[other[n]], means, biased)
                out_mean[n], out_square[n] = own + dot, known + square
                n += 1
            cursor[row - begin_own] = n


@parallel_kernel(of_rows)
def linear_forms(low, high, mean, second, biased, forms):
    """The forms [rows, D(D+1)/2 + D] of all rows."""
    for row in range(low, high):
        _linear_form(mean[row], second[row], biased, forms[row])


@parallel_kernel(of_pieces)
def moments_of_columns(low, high, pieces, start, other, mean, second, biased, forms, tell, block, out_mean, out_square):
    """As `moments_of_rows`, from the other side: rows have the packed moments ``tell``, and ``other`` the forms."""
    size, begin_own, end_own = mean.shape[1], pieces[low], pieces[high]
    means = size * (size + 1) // 2
    cursor = start[begin_own:end_own].copy()
    for begin in range(0, forms.shape[0], block):
        edge = begin + block
        for row in range(begin_own, end_own):
            n, last = cursor[row - begin_own], start[row + 1]
            while n < last and other[n] < edge:
                i = other[n]
                own, known = 0.0, 0.0
                if biased:
                    own, known = mean[i, size - 1], second[i, size - 1, size - 1]
                dot, square = _both_products(mean[i], forms[i], tell[row], means, biased)
                out_mean[n], out_square[n] = own + dot, known + square
                n += 1
            cursor[row - begin_own] = n


@lane_kernel
def _both_products(mean, form, told, means, biased):
    """E[u]·E[v] + E[c], and the linear form of the square."""
    size = mean.shape[0]
    n_factors = size - 1 if biased else size
    dot, square = told[means + n_factors] if biased else 0.0, 0.0
    for k in range(n_factors):
        dot += mean[k] * told[means + k]
    for t in range(form.shape[0]):
        square += form[t] * told[t]
    return dot, square


@lane_kernel
def _linear_form(mean, second, biased, out):
    """What E[f²] multiplies the packed moments of the other side with."""
    size = mean.shape[0]
    n_factors = size - 1 if biased else size
    place = 0
    for k in range(n_factors):
        for h in range(k):
            out[place] = 2.0 * second[k, h]
            place += 1
        out[place] = second[k, k]
        place += 1
    if biased:
        for k in range(n_factors):
            out[place + k] = 2.0 * mean[k]
        out[place + n_factors] = 1.0
        place += size
    for k in range(size):
        out[place + k] = 2.0 * second[n_factors, k] if biased else 0.0
    if biased:
        out[place + n_factors] = 2.0 * mean[n_factors]


@parallel_kernel(of_rows)
def logistic_bound(low, high, mean, square, offset, places, liked, own_values, own_trust, values, trust, rest):
    """Ratings and precisions that the likes are at the best ξ, in this order and at their ``places``, and what the bound adds.

    ``liked`` [n] is 1 or 0, at the places of the likes.
    """
    for n in range(low, high):
        place = places[n]
        xi = math.sqrt(max(square[n] + 2.0 * offset * mean[n] + offset * offset, 0.0))
        less = math.exp(-xi)
        omega = (1.0 - less) / ((1.0 + less) * 2.0 * xi) if xi > SMALL else 0.25 - xi * xi / 48.0
        value = (liked[place] - 0.5) / omega
        # log σ(ξ) of ξ ≥ 0, ½ log 2π of the Gaussian, and its square, which the ratings take off again.
        rest[n] = 0.5 * math.log(2.0 * np.pi) - math.log1p(less) - 0.5 * xi + 0.5 * omega * (xi * xi + value * value)
        own_values[n], own_trust[n] = value - offset, omega
        values[place], trust[place] = value - offset, omega
