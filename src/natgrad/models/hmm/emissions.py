"""Kinds of observations of a hidden state: moments of q(φ) in, weights for the kernels out; sums in, messages out.

    Gaussian, full      y ~ N(μ_k, Λ_k⁻¹)        (μ_k, Λ_k) ~ NormalWishart
    Gaussian, diagonal  y_d ~ N(μ_kd, 1/τ_kd)    (μ_kd, τ_kd) ~ NormalGamma
    categories          y ~ Cat(φ_k)             φ_k ~ Dirichlet
    counts              y_d ~ Poisson(ρ_kd)      ρ_kd ~ Gamma
    binary tracks       y_d ~ Bernoulli(p_kd)    p_kd ~ Beta

log p(y | k, φ) = ⟨m(y), u(φ_k)⟩ + base(y) is linear in statistics of y, so E_q of it is a weight for each of them, and the
message to φ_k is the same statistics summed with q(x_t = k). ``sums`` are [F, K] as the kernels leave them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, final

import numpy as np
import numpy.typing as npt
import scipy.special as sp

from natgrad.data.sequences import chunks_of
from natgrad.families import Beta, Dirichlet, Family, Gamma, NormalGamma, NormalWishart
from natgrad.kernels.hmm.emissions import BY_COLUMN, QUADRATIC, TABLE

__all__ = [
    "EMISSIONS",
    "Bernoullis",
    "Categories",
    "Emission",
    "FullGaussians",
    "IndependentGaussians",
    "Observed",
    "Poissons",
]

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
Stats = tuple[Any, ...]
LOG_2PI = float(np.log(2 * np.pi))
NO_CODES, NO_VALUES = np.zeros(0, np.uint8), np.zeros((0, 0))
# Rows that have few values are numbered: a code costs a look-up where a linear form costs an exponential for each state.
MOST_PATTERNS = 4096


class Observed(NamedTuple):
    """Checked data as the kernels read them: codes or values, what codes stand for, and Σ log base measure."""

    codes: Array
    values: Array
    patterns: Floats | None = None
    base: float = 0.0


class Emission(Protocol):
    """What a hidden Markov model needs to know of its observations."""

    @property
    def kind(self) -> int:
        """Which statistics the kernels make of data."""
        ...

    @property
    def family(self) -> Family:
        """Of q(φ)."""
        ...

    @property
    def arguments(self) -> dict[str, Any]:
        """What it was made of."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the block's plates: states, or states by columns."""
        ...

    @property
    def prior(self) -> Stats:
        """η̃; it broadcasts."""
        ...

    @property
    def origin(self) -> Floats | None:
        """From where values are measured, as a value of φ: λ is of φ − origin. None is zero."""
        ...

    def observe(self, X: Array) -> Observed:
        """Data [T, D], checked."""
        ...

    def weights(self, mu: Stats) -> Floats:
        """E log p(y | k) as a linear form: [K, F]."""
        ...

    def message(self, sums: Floats) -> Stats:
        """What observations with sums [F, K] tell φ."""
        ...

    def point(self, lam: Stats) -> Stats:
        """Moments of a point mass at the mean of q: with `weights`, log p(y | k) at it."""
        ...

    def draw(self, lam: Stats, states: Array, rng: np.random.Generator) -> Array:
        """An observation for each state, at the mean of q."""
        ...


@final
class FullGaussians:
    """Gaussians with a full precision matrix for each state."""

    kind, family = QUADRATIC, NormalWishart()

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
        _check_finite(X)
        for begin, part in chunks_of(X):
            missing = np.isnan(part) if part.dtype.kind == "f" else np.zeros((1, 1), bool)
            partly = missing.any(1) & ~missing.all(1)
            if partly.any():
                row = int(np.argmax(partly))
                raise ValueError(
                    f"X[{begin + row}, {int(np.argmax(missing[row]))}] is NaN, but other columns of that row are not: with "
                    'covariance="full" only whole rows can be missing; covariance="diag" takes single entries'
                )
        return Observed(NO_CODES, _less(_floats(X), self.origin))

    def weights(self, mu: Stats) -> Floats:
        scaled, quadratic, precision, log = mu
        rows, columns = np.triu_indices(self.n_columns)
        products = -np.where(rows == columns, 0.5, 1.0) * precision[:, rows, columns]
        constant = 0.5 * (log - quadratic - self.n_columns * LOG_2PI)
        return np.column_stack([constant, scaled, products])

    def message(self, sums: Floats) -> Stats:
        size, first, second = sums[0], sums[1 : 1 + self.n_columns].T, sums[1 + self.n_columns :].T
        rows, columns = np.triu_indices(self.n_columns)
        squares = np.empty((len(size), self.n_columns, self.n_columns))
        squares[:, rows, columns] = squares[:, columns, rows] = second
        return first.copy(), -0.5 * size, -0.5 * squares, 0.5 * size

    def point(self, lam: Stats) -> Stats:
        return self.family.stats_of(self.family.mean(lam))

    def draw(self, lam: Stats, states: Array, rng: np.random.Generator) -> Array:
        packed = self.family.mean(lam)
        factors = np.linalg.cholesky(np.linalg.inv(packed[..., 1:]))
        noise = rng.standard_normal((len(states), self.n_columns))
        drawn = packed[states, :, 0] + np.einsum("tde,te->td", factors[states], noise)
        return np.asarray(drawn if self.origin is None else drawn + self.origin[:, 0])


class _ByColumn:
    """Columns that are independent given the state; a NaN is missing in its column alone."""

    kind = BY_COLUMN
    origin: Floats | None = None

    def __init__(self, n_states: int, n_columns: int) -> None:
        self.shape: tuple[int, ...] = (n_states, n_columns)
        self.n_columns = n_columns

    def _interleaved(self, constant: Floats, linear: Floats, square: Floats) -> Floats:
        return np.stack([constant, linear, square], axis=-1).reshape(len(constant), -1)

    def _separate(self, sums: Floats) -> tuple[Floats, Floats, Floats]:
        parts = sums.reshape(self.n_columns, 3, -1)
        return parts[:, 0].T, parts[:, 1].T, parts[:, 2].T


@final
class IndependentGaussians(_ByColumn):
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
        self.prior: Stats = tuple(np.asarray(part)[None] for part in self.family.natural(**usual))

    def observe(self, X: Array) -> Observed:
        _check_finite(X)
        return Observed(NO_CODES, _less(_floats(X), self.origin))

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


@final
class Poissons(_ByColumn):
    """Counts with a rate for each state and column."""

    family: Family = Gamma()

    def __init__(self, n_states: int, n_columns: int, shape: float, rate: float) -> None:
        super().__init__(n_states, n_columns)
        self.arguments = {"n_states": n_states, "n_columns": n_columns, "shape": shape, "rate": rate}
        self.prior: Stats = tuple(np.full((1, 1), float(p)) for p in self.family.natural(shape=shape, rate=rate))

    def observe(self, X: Array) -> Observed:
        base, rule = 0.0, "a whole number ≥ 0, or NaN. Negative values in data are no counts"
        for begin, part in chunks_of(X):
            _require(part, (part >= 0) & (part == np.floor(part)) | (part != part), begin, rule)
            base -= float(
                np.nansum(sp.gammaln(part.astype(np.float64) + 1.0))
            )  # in single precision it has seven digits
        top = _largest(X)
        if X.shape[1] == 1 and top < MOST_PATTERNS:
            patterns = np.append(np.arange(top + 1.0), np.nan)[:, None]
            return Observed(_numbered(X[:, 0], int(top) + 1), NO_VALUES, patterns, base)
        return Observed(NO_CODES, _floats(X), None, base)

    def weights(self, mu: Stats) -> Floats:
        return self._interleaved(-mu[0], mu[1], np.zeros_like(mu[0]))

    def message(self, sums: Floats) -> Stats:
        size, first, _ = self._separate(sums)
        return -size, first

    def point(self, lam: Stats) -> Stats:
        return self.family.stats_of(self.family.mean(lam))

    def draw(self, lam: Stats, states: Array, rng: np.random.Generator) -> Array:
        return rng.poisson(self.family.mean(lam)[states])


@final
class Bernoullis(_ByColumn):
    """Binary tracks with a probability for each state and column."""

    family: Family = Beta()

    def __init__(self, n_states: int, n_columns: int, a: float, b: float) -> None:
        super().__init__(n_states, n_columns)
        self.arguments = {"n_states": n_states, "n_columns": n_columns, "a": a, "b": b}
        self.prior: Stats = tuple(np.full((1, 1), float(p)) for p in self.family.natural(a=a, b=b))

    def observe(self, X: Array) -> Observed:
        some_missing = False
        for begin, part in chunks_of(X):
            _require(part, (part == 0) | (part == 1) | (part != part), begin, "0, 1 or NaN")
            some_missing = some_missing or bool((part != part).any())
        values = 3 if some_missing else 2
        if values**self.n_columns > MOST_PATTERNS:
            return Observed(NO_CODES, _floats(X))
        places = values ** np.arange(self.n_columns)
        codes = np.empty(len(X), np.uint8 if values**self.n_columns <= 256 else np.int32)
        for begin, part in chunks_of(X):
            digits = np.where(part != part, 2, part).astype(np.int64)
            codes[begin : begin + len(part)] = digits @ places
        digits = np.arange(values**self.n_columns)[:, None] // places % values
        return Observed(codes, NO_VALUES, np.where(digits == 2, np.nan, digits))

    def weights(self, mu: Stats) -> Floats:
        return self._interleaved(mu[1], mu[0] - mu[1], np.zeros_like(mu[0]))

    def message(self, sums: Floats) -> Stats:
        size, first, _ = self._separate(sums)
        return first, size - first

    def point(self, lam: Stats) -> Stats:
        return self.family.stats_of(self.family.mean(lam))

    def draw(self, lam: Stats, states: Array, rng: np.random.Generator) -> Array:
        chance = self.family.mean(lam)[states]
        return (rng.random(chance.shape) < chance).astype(np.int64)


@final
class Categories:
    """One of V categories; the code V is a missing one."""

    kind, family, origin = TABLE, Dirichlet(), None

    def __init__(self, n_states: int, n_categories: int, concentration: Floats) -> None:
        self.arguments = {"n_states": n_states, "n_categories": n_categories, "concentration": concentration}
        self.shape: tuple[int, ...] = (n_states,)
        self.n_categories = n_categories
        wide = np.broadcast_to(np.asarray(concentration, np.float64), (n_states, n_categories))
        self.prior: Stats = tuple(np.asarray(part) for part in self.family.natural(concentration=wide))

    def observe(self, X: Array) -> Observed:
        if X.shape[1] != 1:
            raise ValueError(f"X must have one column of categories, got {X.shape[1]} columns")
        for begin, part in chunks_of(X):
            good = (part >= 0) & (part < self.n_categories) & (part == np.floor(part)) | (part != part)
            _require(part, good, begin, f"a category from 0 to {self.n_categories - 1}, or NaN")
        return Observed(_numbered(X[:, 0], self.n_categories), NO_VALUES)

    def weights(self, mu: Stats) -> Floats:
        return np.column_stack([mu[0], np.zeros(self.shape[0])])

    def message(self, sums: Floats) -> Stats:
        return (sums[: self.n_categories].T.copy(),)

    def point(self, lam: Stats) -> Stats:
        return self.family.stats_of(self.family.mean(lam))

    def draw(self, lam: Stats, states: Array, rng: np.random.Generator) -> Array:
        chance = np.cumsum(self.family.mean(lam), axis=1)[states]
        drawn = (rng.random(len(states))[:, None] > chance).sum(1)
        return np.asarray(np.minimum(drawn, self.n_categories - 1))[:, None]


EMISSIONS: dict[str, Any] = {
    kind.__name__: kind for kind in (FullGaussians, IndependentGaussians, Poissons, Bernoullis, Categories)
}


# -- checks --


def _arguments(
    n_states: int, mean: Floats, scale: float, dof: float, rate: Floats, origin: Floats | None
) -> dict[str, Any]:
    given = {"n_states": n_states, "mean": mean, "scale": scale, "dof": dof, "rate": rate}
    return given if origin is None else {**given, "origin": origin}


def _less(values: Array, origin: Floats | None) -> Array:
    """Values measured from the origin: differences of numbers far from zero are exact, their squares are not."""
    if origin is None:
        return values
    out = np.empty_like(values)
    for begin, part in chunks_of(values):
        out[begin : begin + len(part)] = part - origin[:, 0]
    return out


def _floats(X: Array) -> Array:
    """Floats in rows: as they are if they are single or double, otherwise a copy in double."""
    return np.ascontiguousarray(X, dtype=X.dtype if X.dtype in (np.float32, np.float64) else np.float64)


def _numbered(column: Array, n_codes: int) -> Array:
    """Whole numbers as codes, NaN as the code after the last; bytes stay as they are."""
    if column.dtype == np.uint8 and n_codes <= 255:
        return np.ascontiguousarray(column)
    codes = np.empty(len(column), np.uint8 if n_codes <= 255 else np.int32)
    for begin, part in chunks_of(column):
        codes[begin : begin + len(part)] = np.where(part != part, n_codes, part)
    return codes


def _largest(X: Array) -> float:
    found = [float(part[part == part].max()) for _, part in chunks_of(X) if (part == part).any()]
    return max(found, default=0.0)


def _check_finite(X: Array) -> None:
    if X.dtype.kind == "f":
        for begin, part in chunks_of(X):
            _require(part, ~np.isinf(part), begin, "finite, or NaN where it is missing (no inf/infinity)")


def _require(part: Array, good: Array, begin: int, rule: str) -> None:
    if not good.all():
        row, column = (int(i) for i in np.argwhere(~good)[0])
        raise ValueError(f"X[{begin + row}, {column}] = {part[row, column]:g} must be {rule}")
