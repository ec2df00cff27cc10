"""Gaussian components with their conjugate priors: moments of q(φ) in, linear forms out; sums of statistics in, messages out.

    full         y ~ N(μ_k, Λ_k⁻¹)          (μ_k, Λ_k) ~ NormalWishart
    diagonal     y_d ~ N(μ_kd, 1/τ_kd)      (μ_kd, τ_kd) ~ NormalGamma
    tied         y ~ N(μ_k, Λ⁻¹)            (μ_1 … μ_K, Λ) ~ TiedNormalWishart
    spherical    y_d ~ N(μ_kd, 1/τ_k)       (μ_k1 … μ_kD, τ_k) ~ TiedNormalWishart of one dimension

log p(y | k, φ) is linear in statistics of y: 1, y and the upper triangle of y yᵀ; or 1, y_d and y_d² of every column that is not
missing. So E_q of it is a weight for each of them, [K, F], and the message to φ_k is their sums weighted with q(k), [F, K].
Hidden Markov models and mixtures share these.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from natgrad.data.sequences import chunks_of
from natgrad.families import Family, NormalGamma, NormalWishart, TiedNormalWishart
from natgrad.kernels.hmm.emissions import BY_COLUMN, QUADRATIC

__all__ = [
    "GAUSSIANS",
    "LOG_2PI",
    "NO_CODES",
    "ByColumn",
    "FullGaussians",
    "IndependentGaussians",
    "Located",
    "Observed",
    "SphericalGaussians",
    "TiedGaussians",
    "as_floats",
    "check_whole_rows",
    "n_statistics",
    "quadratic_sums",
    "require_rows",
    "statistics",
]

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
Stats = tuple[Any, ...]
LOG_2PI = float(np.log(2 * np.pi))
NO_CODES = np.zeros(0, np.uint8)


class Observed(NamedTuple):
    """Checked data as the kernels read them: codes or values, what codes stand for, and Σ log base measure."""

    codes: Array
    values: Array
    patterns: Floats | None = None
    base: float = 0.0


class Located(NamedTuple):
    """E[μ] [K, D], the inverse of the mean precision as it is shared, and standard deviations [K, D]."""

    means: Floats
    covariances: Floats
    deviations: Floats


@final
class FullGaussians:
    """Gaussians with a full precision matrix for each state."""

    kind, by_column, family = QUADRATIC, False, NormalWishart()
    axes: tuple[tuple[int, ...], ...] = ((0,),) * 4  # of λ along which states lie, for each of its statistics

    def __init__(
        self, n_states: int, mean: Floats, scale: float, dof: float, rate: Floats, origin: Floats | None = None
    ) -> None:
        self.arguments = _arguments(n_states, mean, scale, dof, rate, origin)
        self.shape: tuple[int, ...] = (n_states,)
        self.n_columns = len(mean)
        self.origin = None if origin is None else np.column_stack([origin, np.zeros((len(mean), len(mean)))])
        mean = mean if origin is None else mean - origin
        self.prior: Stats = tuple(np.asarray(part)[None] for part in self.family.natural(
            mean=mean, scale=scale, dof=dof, rate=rate
        ))  # fmt: skip

    def observe(self, X: Array) -> Observed:
        check_whole_rows(X, "full")
        return Observed(NO_CODES, _less(as_floats(X), self.family, self.origin))

    def weights(self, mu: Stats) -> Floats:
        return _quadratic_forms(*mu)

    def message(self, sums: Floats) -> Stats:
        size, first, squares = quadratic_sums(sums, self.n_columns)
        return first.copy(), -0.5 * size, -0.5 * squares, 0.5 * size

    def point(self, lam: Stats) -> Stats:
        return self.family.stats_of(self.family.mean(lam))

    def draw(self, lam: Stats, states: Array, rng: np.random.Generator) -> Array:
        packed = self.family.mean(lam)
        factors = np.linalg.cholesky(np.linalg.inv(packed[..., 1:]))
        noise = rng.standard_normal((len(states), self.n_columns))
        drawn = packed[states, :, 0] + np.einsum("tde,te->td", factors[states], noise)
        return np.asarray(drawn if self.origin is None else drawn + self.origin[:, 0])

    def located(self, lam: Stats) -> Located:
        """With E[Λ]⁻¹ [K, D, D]."""
        packed = self.family.mean(lam)
        covariance = np.linalg.inv(packed[..., 1:])
        return Located(_from(packed[..., 0], self), covariance, np.sqrt(np.diagonal(covariance, axis1=1, axis2=2)))


class ByColumn:
    """Columns that are independent given the state; a NaN is missing in its column alone."""

    kind, by_column = BY_COLUMN, True
    prior: Stats
    origin: Floats | None = None

    def __init__(self, n_states: int, n_columns: int) -> None:
        self.shape: tuple[int, ...] = (n_states, n_columns)
        self.n_columns = n_columns

    @property
    def axes(self) -> tuple[tuple[int, ...], ...]:
        """Axes of λ along which states lie, for each of its statistics."""
        return ((0,),) * len(self.prior)

    def _interleaved(self, constant: Floats, linear: Floats, square: Floats) -> Floats:
        return np.stack([constant, linear, square], axis=-1).reshape(len(constant), -1)

    def _separate(self, sums: Floats) -> tuple[Floats, Floats, Floats]:
        parts = sums.reshape(self.n_columns, 3, -1)
        return parts[:, 0].T, parts[:, 1].T, parts[:, 2].T


@final
class IndependentGaussians(ByColumn):
    """Gaussians with a precision of its own for each state and column."""

    family: Family = NormalGamma()

    def __init__(
        self, n_states: int, mean: Floats, scale: float, dof: float, rate: Floats, origin: Floats | None = None
    ) -> None:
        super().__init__(n_states, len(mean))
        self.arguments = _arguments(n_states, mean, scale, dof, rate, origin)
        self.origin = None if origin is None else np.column_stack([origin, np.zeros(len(mean))])
        mean = mean if origin is None else mean - origin
        usual = {"mean": mean, "scale": scale, "shape": 0.5 * dof, "rate": 0.5 * np.asarray(rate)}
        self.prior = tuple(np.asarray(part)[None] for part in self.family.natural(**usual))

    def observe(self, X: Array) -> Observed:
        check_finite(X)
        return Observed(NO_CODES, _less(as_floats(X), self.family, self.origin))

    def weights(self, mu: Stats) -> Floats:
        scaled, quadratic, precision, log = mu
        return self._interleaved(0.5 * (log - quadratic - LOG_2PI), scaled, -0.5 * precision)

    def message(self, sums: Floats) -> Stats:
        size, first, second = self._separate(sums)
        return first, -0.5 * size, -0.5 * second, 0.5 * size

    def point(self, lam: Stats) -> Stats:
        return self.family.stats_of(self.family.mean(lam))

    def draw(self, lam: Stats, states: Array, rng: np.random.Generator) -> Array:
        packed = self.family.mean(lam)
        noise = rng.standard_normal((len(states), self.n_columns))
        drawn = packed[states, :, 0] + noise / np.sqrt(packed[states, :, 1])
        return np.asarray(drawn if self.origin is None else drawn + self.origin[:, 0])

    def located(self, lam: Stats) -> Located:
        """With 1/E[τ] [K, D]."""
        packed = self.family.mean(lam)
        variance = 1.0 / packed[..., 1]
        return Located(_from(packed[..., 0], self), variance, np.sqrt(variance))


@final
class TiedGaussians:
    """Gaussians with one precision matrix for all components."""

    kind, by_column, family = QUADRATIC, False, TiedNormalWishart()
    axes: tuple[tuple[int, ...], ...] = ((1,), (1,), (), ())  # the last two are of the one precision that all share

    def __init__(
        self, n_states: int, mean: Floats, scale: float, dof: float, rate: Floats, origin: Floats | None = None
    ) -> None:
        self.arguments = _arguments(n_states, mean, scale, dof, rate, origin)
        self.shape: tuple[int, ...] = (1,)  # a plate of one: sums over no axes would be no arrays
        self.n_states, self.n_columns = n_states, len(mean)
        place = None if origin is None else np.repeat(origin[:, None], n_states, axis=1)
        self.origin = None if place is None else np.column_stack([place, np.zeros((len(mean), len(mean)))])
        means = np.repeat((mean if origin is None else mean - origin)[None], n_states, axis=0)
        scales = np.full((1, n_states), scale)
        self.prior: Stats = self.family.natural(mean=means[None], scale=scales, dof=[dof], rate=np.asarray(rate)[None])

    def observe(self, X: Array) -> Observed:
        """Data [T, D], checked."""
        check_whole_rows(X, "tied")
        return Observed(NO_CODES, _less(as_floats(X), self.family, self.origin))

    def weights(self, mu: Stats) -> Floats:
        """E log p(y | k) as a linear form."""
        scaled, quadratic, precision, log = mu
        wide = np.broadcast_to(precision, (self.n_states, *precision.shape[1:]))
        return _quadratic_forms(scaled[0], quadratic[0], wide, log)

    def message(self, sums: Floats) -> Stats:
        """What observations tell φ."""
        size, first, squares = quadratic_sums(sums, self.n_columns)
        return first[None].copy(), -0.5 * size[None], -0.5 * squares.sum(0)[None], 0.5 * size.sum(keepdims=True)

    def point(self, lam: Stats) -> Stats:
        """Moments of a point mass at the mean."""
        return self.family.stats_of(self.family.mean(lam))

    def draw(self, lam: Stats, states: Array, rng: np.random.Generator) -> Array:
        """An observation for each state, at the mean of q."""
        mean, covariance, _ = self.located(lam)
        noise = rng.standard_normal((len(states), self.n_columns))
        return np.asarray(mean[states] + noise @ np.linalg.cholesky(covariance).T)

    def located(self, lam: Stats) -> Located:
        """With E[Λ]⁻¹ [D, D]."""
        packed = self.family.mean(lam)[0]
        mean, covariance = _from(self.family.location(packed), self), np.linalg.inv(packed[:, -self.n_columns :])
        return Located(mean, covariance, np.broadcast_to(np.sqrt(np.diagonal(covariance)), mean.shape).copy())


@final
class SphericalGaussians(ByColumn):
    """Gaussians with one precision for all columns of a component."""

    family: Family = TiedNormalWishart()

    def __init__(
        self, n_states: int, mean: Floats, scale: float, dof: float, rate: Any, origin: Floats | None = None
    ) -> None:
        super().__init__(n_states, len(mean))
        self.arguments = _arguments(n_states, mean, scale, dof, rate, origin)
        self.shape = (n_states,)
        self.origin = None if origin is None else np.append(origin, 0.0)[None]
        means = (mean if origin is None else mean - origin)[None, :, None]
        self.prior = self.family.natural(
            mean=means, scale=np.full((1, len(mean)), scale), dof=[dof], rate=np.reshape(rate, (1, 1, 1))
        )

    def observe(self, X: Array) -> Observed:
        """Data [T, D], checked."""
        check_finite(X)
        return Observed(NO_CODES, _less(as_floats(X), self.family, self.origin))

    def weights(self, mu: Stats) -> Floats:
        """E log p(y | k) as a linear form."""
        scaled, quadratic, precision, log = mu
        square = np.broadcast_to(-0.5 * precision[..., 0], quadratic.shape)
        return self._interleaved(0.5 * (log[:, None] - quadratic - LOG_2PI), scaled[..., 0], square)

    def message(self, sums: Floats) -> Stats:
        """What observations tell φ."""
        size, first, second = self._separate(sums)
        return first[..., None], -0.5 * size, -0.5 * second.sum(1)[:, None, None], 0.5 * size.sum(1)

    def point(self, lam: Stats) -> Stats:
        """Moments of a point mass at the mean."""
        return self.family.stats_of(self.family.mean(lam))

    def draw(self, lam: Stats, states: Array, rng: np.random.Generator) -> Array:
        """An observation for each state, at the mean of q."""
        mean, _, deviation = self.located(lam)
        return np.asarray(mean[states] + deviation[states] * rng.standard_normal((len(states), self.n_columns)))

    def located(self, lam: Stats) -> Located:
        """With 1/E[τ] [K]."""
        packed = self.family.mean(lam)
        mean, variance = _from(packed[:, 0, :-1], self), 1.0 / packed[:, 0, -1]
        return Located(mean, variance, np.repeat(np.sqrt(variance)[:, None], self.n_columns, axis=1))


GAUSSIANS: dict[str, Any] = {
    "full": FullGaussians,
    "diag": IndependentGaussians,
    "tied": TiedGaussians,
    "spherical": SphericalGaussians,
}


def n_statistics(width: int, by_column: bool) -> int:
    """F."""
    return 3 * width if by_column else (width + 1) * (width + 2) // 2


def statistics(values: Array, by_column: bool) -> Floats:
    """The statistics [F, N] of rows [N, D]; those of columns are zero where an entry is missing.

    Examples
    --------
    >>> statistics(np.array([[2.0, 3.0]]), False).ravel().tolist()
    [1.0, 2.0, 3.0, 4.0, 6.0, 9.0]
    >>> statistics(np.array([[2.0, np.nan]]), True).ravel().tolist()
    [1.0, 2.0, 4.0, 0.0, 0.0, 0.0]
    """
    n_rows, width = values.shape
    if by_column:
        rows = np.empty((width, 3, n_rows))
        missing = np.isnan(values.T)
        np.logical_not(missing, out=rows[:, 0])
        rows[:, 1] = np.where(missing, 0.0, values.T)
        np.square(rows[:, 1], out=rows[:, 2])
        return rows.reshape(3 * width, n_rows)
    rows = np.empty((n_statistics(width, by_column), n_rows))
    rows[0], rows[1 : 1 + width] = 1.0, values.T
    place = 1 + width
    for d in range(width):
        np.multiply(rows[1 + d], rows[1 + d : 1 + width], out=rows[place : place + width - d])
        place += width - d
    return rows


# -- parts --


def _quadratic_forms(scaled: Floats, quadratic: Floats, precision: Floats, log: Any) -> Floats:
    width = scaled.shape[-1]
    rows, columns = np.triu_indices(width)
    products = -np.where(rows == columns, 0.5, 1.0) * precision[:, rows, columns]
    constant = 0.5 * (log - quadratic - width * LOG_2PI)
    return np.column_stack([constant, scaled, products])


def quadratic_sums(sums: Floats, width: int) -> tuple[Floats, Floats, Floats]:
    """Σ 1 [K], Σ y [K, D] and Σ y yᵀ [K, D, D]."""
    size, first, second = sums[0], sums[1 : 1 + width].T, sums[1 + width :].T
    rows, columns = np.triu_indices(width)
    squares = np.empty((len(size), width, width))
    squares[:, rows, columns] = squares[:, columns, rows] = second
    return size, first, squares


def _from(means: Floats, gaussians: Any) -> Floats:
    """Means as the user knows them."""
    origin = gaussians.origin
    return np.asarray(
        means if origin is None else means + gaussians.family.location(origin).reshape(-1, means.shape[1])
    )


def _arguments(
    n_states: int, mean: Floats, scale: float, dof: float, rate: Floats, origin: Floats | None
) -> dict[str, Any]:
    given = {"n_states": n_states, "mean": mean, "scale": scale, "dof": dof, "rate": rate}
    return given if origin is None else {**given, "origin": origin}


def _less(values: Array, family: Any, origin: Floats | None) -> Array:
    """Values measured from the origin: differences of numbers far from zero are exact, their squares are not."""
    if origin is None:
        return values
    out, place = np.empty_like(values), np.asarray(family.location(origin)).reshape(-1, values.shape[1])[0]
    for begin, part in chunks_of(values):
        out[begin : begin + len(part)] = part - place
    return out


def check_whole_rows(X: Array, covariance: str, advice: str = 'covariance="diag" takes single entries') -> None:
    """Refuse infinity, and rows that are missing in part."""
    check_finite(X)
    for begin, part in chunks_of(X):
        missing = np.isnan(part) if part.dtype.kind == "f" else np.zeros((1, 1), bool)
        partly = missing.any(1) & ~missing.all(1)
        if partly.any():
            row = int(np.argmax(partly))
            raise ValueError(
                f"X[{begin + row}, {int(np.argmax(missing[row]))}] is NaN, but other columns of that row are not: with "
                f'covariance="{covariance}" only whole rows can be missing; {advice}'
            )


def as_floats(X: Array) -> Array:
    """Floats in rows: as they are if they are single or double, otherwise a copy in double."""
    return np.ascontiguousarray(X, dtype=X.dtype if X.dtype in (np.float32, np.float64) else np.float64)


def check_finite(X: Array) -> None:
    """Refuse infinity."""
    if X.dtype.kind == "f":
        for begin, part in chunks_of(X):
            require_rows(part, ~np.isinf(part), begin, "finite, or NaN where it is missing (no inf/infinity)")


def require_rows(part: Array, good: Array, begin: int, rule: str) -> None:
    """Refuse the first entry that is not good."""
    if not good.all():
        row, column = (int(i) for i in np.argwhere(~good)[0])
        raise ValueError(f"X[{begin + row}, {column}] = {part[row, column]:g} must be {rule}")
