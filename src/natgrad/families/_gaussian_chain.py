"""Define the family of a path of real vectors, `GaussianChain`.

    q(x) ∝ exp( Σ_t h_tᵀ x_t + Σ_t ⟨J_t, x_t x_tᵀ⟩ + Σ_{t not a start} ⟨C_t, x_t x_{t−1}ᵀ⟩ )

λ = (h [T, D], J [T, D, D], C [T, D, D]). The precision of the path is block-tridiagonal, with P_tt = −2 J_t on the diagonal and
P_{t, t−1} = −C_t beside it. Its block Cholesky factorisation is the Kalman filter in information form, and what goes back is the
smoother (Rauch, Tung and Striebel, 1965):

    S_t = P_tt − P_{t,t−1} S_{t−1}⁻¹ P_{t,t−1}ᵀ,   v_t = h_t − P_{t,t−1} S_{t−1}⁻¹ v_{t−1}
    A   = Σ_t ½ v_tᵀ S_t⁻¹ v_t − ½ log|S_t| + ½ D log 2π
    m_t = S_t⁻¹ v_t − G_t m_{t+1},   Σ_t = S_t⁻¹ + G_t Σ_{t+1} G_tᵀ,   Cov(x_{t+1}, x_t) = −Σ_{t+1} G_tᵀ,   G_t = S_t⁻¹ P_{t+1,t}ᵀ

Work and memory grow with T, never with T².
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from natgrad.families import _ops as ops
from natgrad.families._chain import Path
from natgrad.families._family import Param, draws, numpy_stats
from natgrad.families._ops import Array, Stats
from natgrad.threads import is_little

__all__ = ["GaussianChain"]


class _Smoothed(NamedTuple):
    """Means [..., T, D], covariances and those with the time before [..., T, D, D]; Σ log|S_t| and Σ v_tᵀ S_t⁻¹ v_t [...]."""

    mean: Array
    covariance: Array
    lagged: Array
    logdet: Array
    quadratic: Array


# Times above which, and by which, second moments are written over covariances.
PIECE = 8_192


class _Filtered(NamedTuple):
    """S_t⁻¹ [T, …, D, D], log|S_t| [T, …], S_t⁻¹ v_t and v_t [T, …, D]: time first."""

    covariance: Array
    logdet: Array
    mean: Array
    vector: Array


@final
@dataclass(frozen=True)
class GaussianChain(Path):
    """A path of T vectors of length D in which each depends on the one before; several sequences may lie end to end.

    Plates are independent chains. What λ says of pairs across the start of a sequence is ignored, and the moment there is 0.

    Parameters
    ----------
    lengths : tuple of int, lengths of the sequences on the time axis, summing to T; None for one sequence

    Examples
    --------
    >>> chain = GaussianChain()
    >>> walk = chain.natural(h=[[1.0], [0.0]], J=[[[-1.0]], [[-0.5]]], C=[[[0.0]], [[1.0]]])
    >>> chain.mean(walk).round(9).tolist()  # precision [[2, −1], [−1, 1]], whose inverse is [[1, 1], [1, 2]]
    [[1.0], [1.0]]
    """

    name: ClassVar[str] = "GaussianChain"
    stat_names: ClassVar[tuple[str, ...]] = ("x", "xx", "lagged")
    stat_ndims: ClassVar[tuple[int, ...]] = (2, 3, 3)
    symmetric: ClassVar[tuple[bool, ...]] = (False, True, False)
    event_ndim: ClassVar[int] = 2
    params: ClassVar[tuple[Param, ...]] = (Param("h", 2, "real"), Param("J", 3, "real"), Param("C", 3, "real"))

    def _natural(self, usual: dict[str, Array]) -> Stats:
        return usual["h"], usual["J"], usual["C"]

    def usual(self, lam: Stats) -> dict[str, Array]:
        """`mean`, `covariance` and `lagged` (of each time with the one before): what a reader wants to see."""
        smoothed = self._smoothed(lam)
        return {"mean": smoothed.mean, "covariance": smoothed.covariance, "lagged": smoothed.lagged}

    # -- forwards and backwards --

    def _time_first(self, lam: Stats) -> tuple[Array, Array, Array]:
        """h, P_tt and P_{t,t−1} with time as the first axis and common plates; nothing is left across starts."""
        xp = ops.namespace(*lam)
        h, J, C = ops.align(tuple(xp.asarray(g) for g in lam), self.stat_ndims)
        inside = ~self.starts(h.shape[-2])
        diagonal, beside = xp.moveaxis(-2.0 * J, -3, 0), xp.moveaxis(-C, -3, 0)
        if xp is np:
            beside[~inside] = 0.0  # a copy already: long paths are not copied once more
        else:
            beside = xp.where(inside.reshape((-1, *(1,) * (beside.ndim - 1))), beside, 0.0)
        return xp.moveaxis(h, -2, 0), diagonal, beside

    def _filtered(self, h: Array, diagonal: Array, beside: Array) -> _Filtered:
        def step(carry: tuple[Array, Array], now: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], _Filtered]:
            covariance, mean = carry
            here, precision, back = now
            fold = back @ covariance
            S = ops.symmetrise(precision - fold @ ops.transpose(back))
            v = here - ops.matvec(back, mean)
            mean, inverse, logdet = ops.spd_solve(S, v)
            return (inverse, mean), _Filtered(inverse, logdet, mean, v)

        zero = ops.zeros(diagonal[0]), ops.zeros(h[0])
        filtered: _Filtered = ops.scan(step, zero, (h, diagonal, beside))
        return filtered

    def _smoothed(self, lam: Stats) -> _Smoothed:
        """Forwards and backwards: by a compiled kernel for long NumPy arrays, step by step otherwise."""
        xp = ops.namespace(*lam)
        h, diagonal, beside = self._time_first(lam)
        # About a hundred microseconds a time in NumPy, and what the matrices of all plates take.
        work = len(h) * (100.0 + 1e-3 * diagonal[0].size * h.shape[-1])
        if xp is np and not is_little(work):
            return _compiled(h, diagonal, beside)
        forward = self._filtered(h, diagonal, beside)
        # The last time has nothing after it.
        after = xp.concatenate([beside[1:], ops.zeros(beside[:1])])

        def step(
            carry: tuple[Array, Array], now: tuple[Array, Array, Array]
        ) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
            mean, covariance = carry
            own, filtered, back = now
            gain = own @ ops.transpose(back)
            lagged = -(covariance @ ops.transpose(gain))  # of the time after with this one
            smooth = ops.symmetrise(own - gain @ lagged)
            mean = filtered - ops.matvec(gain, mean)
            return (mean, smooth), (mean, smooth, lagged)

        zero = ops.zeros(forward.mean[0]), ops.zeros(diagonal[0])
        mean, covariance, lagged = ops.scan(step, zero, (forward.covariance, forward.mean, after), reverse=True)
        lagged = xp.concatenate([ops.zeros(lagged[:1]), lagged[:-1]])
        quadratic = (forward.vector * forward.mean).sum((0, -1))
        return _Smoothed(
            xp.moveaxis(mean, 0, -2),
            xp.moveaxis(covariance, 0, -3),
            xp.moveaxis(lagged, 0, -3),
            forward.logdet.sum(0),
            quadratic,
        )

    def _statistics(self, mean: Array, covariance: Array, lagged: Array) -> Stats:
        xp = ops.namespace(mean)
        if xp is np and mean.shape[-2] > PIECE:
            return self._in_pieces(mean, covariance, lagged)
        inside = ~self.starts(mean.shape[-2])[:, None, None]
        before = xp.concatenate([ops.zeros(mean[..., :1, :]), mean[..., :-1, :]], axis=-2)
        return mean, covariance + ops.outer(mean, mean), xp.where(inside, lagged + ops.outer(mean, before), 0.0)

    def _in_pieces(self, mean: Array, covariance: Array, lagged: Array) -> Stats:
        """The same of long paths, written over covariances piece by piece: no array of their size is made beside them."""
        n_times = mean.shape[-2]
        lagged = lagged + np.zeros_like(covariance) if np.ndim(lagged) == 0 else lagged
        for start in range(0, n_times, PIECE):
            now = slice(start, start + PIECE)
            covariance[..., now, :, :] += ops.outer(mean[..., now, :], mean[..., now, :])
            later = slice(max(start, 1), start + PIECE)
            before = slice(later.start - 1, min(start + PIECE, n_times) - 1)
            lagged[..., later, :, :] += ops.outer(mean[..., later, :], mean[..., before, :])
        lagged[..., self.starts(n_times), :, :] = 0.0
        return mean, covariance, lagged

    def _moments(self, lam: Stats) -> tuple[Stats, Array]:
        smoothed = self._smoothed(lam)
        n_times, size = smoothed.mean.shape[-2:]
        a = 0.5 * (smoothed.quadratic - smoothed.logdet + n_times * size * ops.LOG_2PI)
        return self._statistics(smoothed.mean, smoothed.covariance, smoothed.lagged), a

    def _moments_entropy(self, lam: Stats) -> tuple[Stats, Array]:
        smoothed = self._smoothed(lam)
        n_times, size = smoothed.mean.shape[-2:]
        # Without the squares of means, as for a single Normal.
        entropy = 0.5 * (n_times * size * (1.0 + ops.LOG_2PI) - smoothed.logdet)
        return self._statistics(smoothed.mean, smoothed.covariance, smoothed.lagged), entropy

    def _inside(self, lam: Stats) -> Array:
        return ops.namespace(*lam).isfinite(self._filtered(*self._time_first(lam)).logdet).all(0)

    # -- values --

    def stats_of(self, value: Array, size: int | None = None) -> Stats:
        """(x_t, x_t x_tᵀ, x_t x_{t−1}ᵀ) of paths [..., T, D]; the last is 0 at starts."""
        x = ops.namespace(value).asarray(value) * 1.0
        return self._statistics(x, 0.0 * ops.outer(x, x), 0.0)

    def centred(self, value: Array, lam: Stats) -> Stats:
        """Mean at `value`, precision of `lam`."""
        xp = ops.namespace(value, *lam)
        _, J, C = ops.align(tuple(xp.asarray(g) for g in lam), self.stat_ndims)
        x = xp.asarray(value) * 1.0 + 0.0 * J[..., 0]
        C = xp.where(~self.starts(x.shape[-2])[:, None, None], C, 0.0)
        h = ops.matvec(-2.0 * J, x)
        before = h[..., 1:, :] - ops.matvec(C[..., 1:, :, :], x[..., :-1, :])
        h = xp.concatenate([h[..., :1, :], before], axis=-2)
        after = h[..., :-1, :] - ops.matvec(ops.transpose(C[..., 1:, :, :]), x[..., 1:, :])
        return xp.concatenate([after, h[..., -1:, :]], axis=-2), J, C

    def sample(self, lam: Stats, rng: np.random.Generator, n: int | None = None) -> NDArray[Any]:
        """Paths [n, ..., T, D] by forward filtering, backward sampling."""
        h, diagonal, beside = self._time_first(numpy_stats(lam))
        with np.errstate(all="ignore"):
            forward = self._filtered(h, diagonal, beside)
        factors = np.linalg.cholesky(forward.covariance)
        noise = rng.standard_normal((len(h), *draws(n, h.shape[1:])))
        path = np.empty(noise.shape)
        for t in range(len(h) - 1, -1, -1):
            mean = forward.mean[t]
            if t + 1 < len(h):
                mean = mean - ops.matvec(forward.covariance[t] @ ops.transpose(beside[t + 1]), path[t + 1])
            path[t] = mean + ops.matvec(factors[t], noise[t])
        return np.moveaxis(path, 0, -2)

    def mean(self, lam: Stats) -> NDArray[Any]:
        """Smoothed means [..., T, D]."""
        return np.asarray(self._smoothed(numpy_stats(lam)).mean)

    def var(self, lam: Stats) -> NDArray[Any]:
        """Smoothed variances, the diagonals of the covariances [..., T, D]."""
        return np.asarray(np.diagonal(self._smoothed(numpy_stats(lam)).covariance, axis1=-2, axis2=-1))


def _compiled(h: Array, diagonal: Array, beside: Array) -> _Smoothed:
    """The same by a kernel, chain after chain; arrays come with the time first."""
    from natgrad.kernels.state_space.smoother import smooth_paths  # compiled: not for those who have no long chain

    plates, (n_times, size) = h.shape[1:-1], (len(h), h.shape[-1])
    h = np.ascontiguousarray(np.moveaxis(h, 0, -2).reshape(-1, n_times, size))
    diagonal, beside = (
        np.ascontiguousarray(np.moveaxis(part, 0, -3).reshape(-1, n_times, size, size)) for part in (diagonal, beside)
    )
    # A precision beside the diagonal is read for the last time when the covariance in its place is known.
    mean, covariance, lagged = np.empty_like(h), np.empty_like(diagonal), beside
    logdet, quadratic = np.empty(len(h)), np.empty(len(h))
    smooth_paths(h, diagonal, beside, mean, covariance, lagged, logdet, quadratic)
    wide = (*plates, n_times, size)
    return _Smoothed(
        mean.reshape(wide), covariance.reshape(*wide, size), lagged.reshape(*wide, size), logdet.reshape(plates),
        quadratic.reshape(plates),
    )  # fmt: skip
