"""K_mm in, its Cholesky factor and the inverse of that out; jitter is raised where it must be, and said."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Inducing", "diagonal", "factorised"]

Floats = npt.NDArray[np.float64]
# Jitter is raised tenfold until the factorisation succeeds; at this part of the variance the kernel is not one.
MOST_JITTER = 1e-2


class Inducing(NamedTuple):
    """The lower factor of K_mm + jitter, its inverse, the jitter as a part of the mean diagonal, and how often it was raised."""

    factor: Floats
    inverse: Floats
    part: float
    raised: int


def factorised(k_mm: Floats, jitter: float) -> Inducing:
    """L and L⁻¹ of K_mm + jitter · mean of its diagonal; raised tenfold where that is not enough."""
    from scipy.linalg import lapack  # a quarter of a second that `import natgrad` need not wait

    scale = float(np.einsum("ii->", k_mm)) / len(k_mm)
    if not np.isfinite(scale):
        raise FloatingPointError("K_mm is not finite")
    part = jitter
    for raised in range(12):
        matrix = k_mm.copy().T  # in column order
        diagonal(matrix)[:] += part * scale
        factor, failed = lapack.dpotrf(matrix, lower=1, clean=1, overwrite_a=1)
        if failed == 0:
            inverse, _ = lapack.dtrtri(factor, lower=1)
            return Inducing(factor, inverse, part, raised)
        part = max(10.0 * part, 1e-12)
        if part > MOST_JITTER:
            break
    raise FloatingPointError(
        f"K_mm of {len(k_mm)} inducing inputs is not positive definite, not even with {part / 10:.0e} of its diagonal added"
    )


def diagonal(square: Floats) -> Floats:
    """The diagonal as a view that can be written to."""
    view: Floats = np.einsum("ii->i", square)
    return view
