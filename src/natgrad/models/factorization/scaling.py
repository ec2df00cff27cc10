"""What ratings say of the scales of a side's numbers in, new scales out: a move of Gibbs sampling that lets factors grow and die.

A chain that draws the vectors of thousands of users given their precision α_k, and α_k given them, creeps: they say almost
exactly what α_k is, and it says how large they may be. So x_k of all N rows is multiplied by a number c > 0, with α_k integrated
out. Multiplication is a group, and c is drawn from p(c x_k | rest) cᴺ dc/c (Liu and Sabatti, 2000), which is

    exp(−½ M_kk c² + (g_k − Σ_h M_kh c_h) c) · (b_k + ½ c² Σ_i x_ik²)^−(a + N/2) · c^(N − 1),

by slice sampling of log c, for one k after the other. A vague Gamma leaves no more than 1/c of the last two factors: what moves
is what ratings cannot tell, however many rows there are. α_k is drawn anew before it is read.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from natgrad.inference.sampler import sliced

__all__ = ["drawn_scales"]

Floats = npt.NDArray[np.float64]


def drawn_scales(
    matrix: Floats, vector: Floats, squares: Floats, n_rows: int, shape: float, rates: Floats, rng: np.random.Generator
) -> Floats:
    """C [D], from M [D, D], g [D], Σ x² [D], N and the Gamma(a, b) [D] of the precisions."""
    scales = np.ones(len(vector))
    for k in range(len(vector)):
        if not squares[k] > 0.0:
            continue
        slope = vector[k] - matrix[k] @ scales + matrix[k, k] * scales[k]
        curve, half, rate = matrix[k, k], 0.5 * squares[k], rates[k]

        def density(log_c: Floats, slope=slope, curve=curve, half=half, rate=rate) -> Floats:  # type: ignore[no-untyped-def]
            c = np.exp(log_c)
            square = c * c
            prior = -shape * np.log(rate + half * square) - 0.5 * n_rows * np.log(rate / square + half)
            return np.asarray(c * slope - 0.5 * curve * square + prior)

        scales[k] = np.exp(sliced(density, np.zeros(1), rng)[0])
    return scales
