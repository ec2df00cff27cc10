"""A smoother that does not compute again what has settled gives what one gives that does."""

import numpy as np
import pytest
from marking import some_rows_slow

from natgrad.kernels.state_space.smoother import smooth_paths


def long_chain(size, n_times, scale, seed, gap):
    """h, P_tt and P_{t,t−1} of a stable system; states of very different scales, a gap, and noise that changes at one time."""
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(size, size)))
    units = scale ** np.linspace(-1, 1, size)
    A = units[:, None] * (0.9 * turn) / units
    Q, C = np.diag(10.0 / units**2), rng.normal(size=(2, size)) / units
    diagonal = np.tile(Q + A.T @ Q @ A + C.T @ C, (n_times, 1, 1))
    diagonal[-1] -= A.T @ Q @ A
    beside = np.tile(-Q @ A, (n_times, 1, 1))
    beside[0] = 0
    if gap:
        diagonal[n_times // 3 : n_times // 3 + 5] -= C.T @ C
        diagonal[2 * n_times // 3] += Q
    return rng.normal(size=(n_times, size)) / units, diagonal, beside


def smoothed(h, diagonal, beside):
    out = [np.empty((1, *part.shape)) for part in (h, diagonal, diagonal)]
    logdet, quadratic = np.empty(1), np.empty(1)
    smooth_paths(h[None], diagonal[None], beside[None], *out, logdet, quadratic)
    return [part[0] for part in (*out, logdet, quadratic)]


@pytest.mark.parametrize(
    ("size", "scale", "gap"),
    some_rows_slow(
        [(1, 1.0, True), (3, 1e3, True), (5, 1.0, False), (6, 1e2, True)],
        [(1, 1.0, True), (3, 1e3, True), (5, 1.0, False)],
    ),
)
def test_what_has_settled_is_what_would_be_computed(size, scale, gap):
    h, diagonal, beside = long_chain(size, 400, scale, size, gap)
    settled = smoothed(h, diagonal, beside)
    precision = np.zeros((400, size, 400, size))
    for t in range(400):
        precision[t, :, t] = diagonal[t]
        if t:
            precision[t, :, t - 1], precision[t - 1, :, t] = beside[t], beside[t].T
    matrix = precision.reshape(400 * size, -1)
    covariance = np.linalg.inv(matrix).reshape(400, size, 400, size)
    sd = np.sqrt(np.einsum("titi->ti", covariance))
    mean = np.einsum("tisj,sj->ti", covariance, h)
    np.testing.assert_allclose(settled[0] / sd, mean / sd, atol=1e-9)
    own = np.einsum("titj->tij", covariance)
    np.testing.assert_allclose(
        settled[1] / sd[:, :, None] / sd[:, None], own / sd[:, :, None] / sd[:, None], atol=1e-10
    )
    lagged = np.stack([covariance[t, :, t - 1] for t in range(1, 400)]) / sd[1:, :, None] / sd[:-1, None]
    np.testing.assert_allclose(settled[2][1:] / sd[1:, :, None] / sd[:-1, None], lagged, atol=1e-10)
    np.testing.assert_allclose(settled[3], np.linalg.slogdet(matrix)[1], rtol=1e-11)
