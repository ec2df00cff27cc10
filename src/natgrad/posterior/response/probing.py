"""Products of a symmetric matrix in; its diagonal, and the standard error of each element of it, out.

    diag(C) = E[z ∘ C z]                                         for random signs z (Bekas, Kokiopoulou and Saad, 2007)
            = diag(Q Qᵀ C) + E[z ∘ (I − Q Qᵀ) C z]               for any orthogonal Q

The first is as good as C is near its diagonal. Where few directions carry most of C, as biases have those of all factors in
common, Q spans what C makes of the probes: the first part of the second line is known once C Q is, and the rest is small. Each
probe is left out of the Q that it is used with, so that all of them serve for both (XDiag: Epperly, Tropp and Webber, 2024,
"XTrace: making the most of every sample in stochastic trace estimation"). Which of the two it is, the first probes say.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

__all__ = ["probed_diagonal"]

Floats = npt.NDArray[np.float64]
Product = Callable[[Floats], Floats]


def probed_diagonal(
    product: Product, n: int, products: int, rng: np.random.Generator, known: Floats | None = None
) -> tuple[Floats, Floats]:
    """The diagonal of a matrix [n, n] and its standard errors, by so many products; ``known`` is a direction that carries much.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> half = rng.normal(size=(50, 3))
    >>> diagonal, error = probed_diagonal(lambda z: half @ (half.T @ z), 50, 8, rng)
    >>> bool(np.allclose(diagonal, (half**2).sum(1)))  # three directions carry all of it
    True
    """
    if n <= products:
        return np.diagonal(_all(product, np.eye(n))).copy(), np.zeros(n)
    signs = rng.choice([-1.0, 1.0], size=(n, max(products - (known is not None), 2)))
    common = np.zeros((n, 0)) if known is None else product(known)[:, None]
    own: Floats = np.zeros(n)
    if known is not None and (size := float(known @ common[:, 0])) > 0.0:
        own = common[:, 0] ** 2 / size  # the part of C that is known from one product
    half = max(signs.shape[1] // 2, 2)
    made = _all(product, signs[:, :half])
    if _directions(made - _through(common, known, signs[:, :half])) <= half:
        return _without(product, signs[:, : max(half - common.shape[1], 2)], made, common)
    made = np.concatenate([made, _all(product, signs[:, half:])], axis=1)
    terms = signs * (made - _through(common, known, signs))
    return own + terms.mean(1), terms.std(1, ddof=1) / np.sqrt(terms.shape[1])


def _all(product: Product, vectors: Floats) -> Floats:
    return np.stack([product(vector) for vector in vectors.T], axis=1) if vectors.shape[1] else vectors


def _through(common: Floats, known: Floats | None, signs: Floats) -> Floats:
    """What c cᵀ / kᵀ c makes of the probes, c = C k."""
    if known is None or not (size := float(known @ common[:, 0])) > 0.0:
        return np.zeros_like(signs)
    return common * (common[:, 0] @ signs) / size


def _directions(made: Floats) -> float:
    """How many directions carry a matrix: what it makes of independent probes is parallel where they are few."""
    gram = made.T @ made
    size = np.sqrt(np.diagonal(gram))
    if not size.min() > 0.0:
        return 0.0
    cosines = (gram / np.outer(size, size))[np.triu_indices(len(gram), 1)]
    return float(1.0 / max(float(np.mean(cosines**2)), 1e-12))


def _without(product: Product, signs: Floats, made: Floats, common: Floats) -> tuple[Floats, Floats]:
    """The second line, with each probe left out of Q in its turn."""
    probes = signs.shape[1]
    made = made[:, :probes]
    basis, scale = np.linalg.qr(np.concatenate([common, made], axis=1))
    pivots = np.abs(np.diagonal(scale))
    through = _all(product, basis)
    left = np.zeros((len(scale), probes))
    # Q without what one probe added is Q (I − s sᵀ), s along a column of R⁻ᵀ. Where they span less, nothing is lost with one.
    if pivots.min() > 1e-10 * max(pivots.max(), 1e-300):
        left = np.linalg.inv(scale).T[:, common.shape[1] :]
        left = left / np.linalg.norm(left, axis=0)
    inner = basis.T @ made
    inner = inner - left * (left * inner).sum(0)
    estimates = (basis * through).sum(1)[:, None] - (basis @ left) * (through @ left) + signs * (made - basis @ inner)
    return estimates.mean(1), estimates.std(1, ddof=1) / np.sqrt(probes)
