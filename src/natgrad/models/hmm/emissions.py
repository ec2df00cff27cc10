"""Kinds of observations of a hidden state: moments of q(φ) in, weights for the kernels out; sums in, messages out.

    Gaussian            see `natgrad.models.gaussians`
    categories          y ~ Cat(φ_k)             φ_k ~ Dirichlet
    counts              y_d ~ Poisson(ρ_kd)      ρ_kd ~ Gamma
    binary tracks       y_d ~ Bernoulli(p_kd)    p_kd ~ Beta

log p(y | k, φ) = ⟨m(y), u(φ_k)⟩ + base(y) is linear in statistics of y, so E_q of it is a weight for each of them, and the
message to φ_k is the same statistics summed with q(x_t = k). ``sums`` are [F, K] as the kernels leave them.
"""

from __future__ import annotations

from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt
import scipy.special as sp

from natgrad.data.sequences import chunks_of
from natgrad.families import Beta, Dirichlet, Family, Gamma
from natgrad.kernels.hmm.emissions import TABLE
from natgrad.models.gaussians import (
    NO_CODES,
    ByColumn,
    FullGaussians,
    IndependentGaussians,
    Observed,
    SphericalGaussians,
    TiedGaussians,
    as_floats,
    require_rows,
)
from natgrad.models.hmm.autoregression import Autoregressions

__all__ = [
    "EMISSIONS",
    "Bernoullis",
    "Categories",
    "Emission",
    "FullGaussians",
    "IndependentGaussians",
    "Observed",
    "Poissons",
    "SphericalGaussians",
    "TiedGaussians",
]

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
Stats = tuple[Any, ...]
NO_VALUES = np.zeros((0, 0))
# Rows that have few values are numbered: a code costs a look-up where a linear form costs an exponential for each state.
MOST_PATTERNS = 4096


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
    def axes(self) -> tuple[tuple[int, ...], ...]:
        """Of each statistic, those along which states lie ."""
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
class Poissons(ByColumn):
    """Counts with a rate for each state and column."""

    family: Family = Gamma()

    def __init__(self, n_states: int, n_columns: int, shape: float, rate: float) -> None:
        super().__init__(n_states, n_columns)
        self.arguments = {"n_states": n_states, "n_columns": n_columns, "shape": shape, "rate": rate}
        self.prior = tuple(np.full((1, 1), float(p)) for p in self.family.natural(shape=shape, rate=rate))

    def observe(self, X: Array) -> Observed:
        base, rule = 0.0, "a whole number ≥ 0, or NaN. Negative values in data are no counts"
        for begin, part in chunks_of(X):
            require_rows(part, (part >= 0) & (part < np.inf) & (part == np.floor(part)) | (part != part), begin, rule)
            base -= float(
                np.nansum(sp.gammaln(part.astype(np.float64) + 1.0))
            )  # in single precision it has seven digits
        top = _largest(X)
        if X.shape[1] == 1 and top < MOST_PATTERNS:
            patterns = np.append(np.arange(top + 1.0), np.nan)[:, None]
            return Observed(_numbered(X[:, 0], int(top) + 1), NO_VALUES, patterns, base)
        return Observed(NO_CODES, as_floats(X), None, base)

    def weights(self, mu: Stats) -> Floats:
        return self._interleaved(-mu[0], mu[1], np.zeros_like(mu[0]))

    def message(self, sums: Floats) -> Stats:
        size, first, _ = self._separate(sums)
        return -size, first

    def point(self, lam: Stats) -> Stats:
        return self.family.stats_of(self.family.mean(lam))

    def draw(self, lam: Stats, states: Array, rng: np.random.Generator) -> Array:
        drawn: Array = rng.poisson(self.family.mean(lam)[states])
        return drawn


@final
class Bernoullis(ByColumn):
    """Binary tracks with a probability for each state and column."""

    family: Family = Beta()

    def __init__(self, n_states: int, n_columns: int, a: float, b: float) -> None:
        super().__init__(n_states, n_columns)
        self.arguments = {"n_states": n_states, "n_columns": n_columns, "a": a, "b": b}
        self.prior = tuple(np.full((1, 1), float(p)) for p in self.family.natural(a=a, b=b))

    def observe(self, X: Array) -> Observed:
        some_missing = False
        for begin, part in chunks_of(X):
            require_rows(part, (part == 0) | (part == 1) | (part != part), begin, "0, 1 or NaN")
            some_missing = some_missing or bool((part != part).any())
        values = 3 if some_missing else 2
        if values**self.n_columns > MOST_PATTERNS:
            return Observed(NO_CODES, as_floats(X))
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
    """One of V categories; the code V is a missing one, V + 1 one that was never seen."""

    kind, family, origin, axes = TABLE, Dirichlet(), None, ((0,),)

    def __init__(self, n_states: int, n_categories: int, concentration: Floats) -> None:
        self.arguments = {"n_states": n_states, "n_categories": n_categories, "concentration": concentration}
        self.shape: tuple[int, ...] = (n_states,)
        self.n_categories = n_categories
        wide = np.broadcast_to(np.asarray(concentration, np.float64), (n_states, n_categories))
        self.prior: Stats = tuple(np.asarray(part) for part in self.family.natural(concentration=wide))

    def observe(self, X: Array, unseen: bool = False) -> Observed:
        """Data [T, 1], checked; with ``unseen`` categories from V on are one that was never seen."""
        if X.shape[1] != 1:
            raise ValueError(f"X must have one column of categories, got {X.shape[1]} columns")
        for begin, part in chunks_of(X):
            good = (part >= 0) & (part < (np.inf if unseen else self.n_categories)) & (part == np.floor(part))
            require_rows(part, good | (part != part), begin, f"a category from 0 to {self.n_categories - 1}, or NaN")
        return Observed(_numbered(X[:, 0], self.n_categories, unseen), NO_VALUES)

    def weights(self, mu: Stats) -> Floats:
        never = mu[1] if len(mu) > 1 else np.zeros(self.shape[0])  # there is none while something is learned
        return np.column_stack([mu[0], np.zeros(self.shape[0]), never])

    def message(self, sums: Floats) -> Stats:
        return (sums[: self.n_categories].T.copy(),)

    def point(self, lam: Stats) -> Stats:
        """Log probabilities, and that of one more category which has the prior of the others and was never seen.

        Of a Dirichlet with that category too, its mean: its concentration among all.
        """
        concentration = np.asarray(lam[0]) + 1.0
        mine = np.mean(self.prior[0] + 1.0, axis=-1)
        never = np.log(mine) - np.log(concentration.sum(-1) + mine)
        return (*self.family.stats_of(self.family.mean(lam)), np.broadcast_to(never, self.shape))

    def draw(self, lam: Stats, states: Array, rng: np.random.Generator) -> Array:
        chance = np.cumsum(self.family.mean(lam), axis=1)[states]
        drawn = (rng.random(len(states))[:, None] > chance).sum(1)
        return np.asarray(np.minimum(drawn, self.n_categories - 1))[:, None]


EMISSIONS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        FullGaussians, IndependentGaussians, TiedGaussians, SphericalGaussians, Poissons, Bernoullis, Categories,
        Autoregressions,
    )
}  # fmt: skip


# -- checks --


def _numbered(column: Array, n_codes: int, unseen: bool = False) -> Array:
    """Whole numbers as codes, NaN as the code after the last, larger ones as the next; bytes stay as they are."""
    if column.dtype == np.uint8 and n_codes <= 254 and not (unseen and (column >= n_codes).any()):
        return np.ascontiguousarray(column)
    codes = np.empty(len(column), np.uint8 if n_codes <= 254 else np.int32)
    for begin, part in chunks_of(column):
        known = np.where(part >= n_codes, n_codes + 1, part) if unseen else part
        codes[begin : begin + len(part)] = np.where(part != part, n_codes, known)
    return codes


def _largest(X: Array) -> float:
    maxima = [float(part[part == part].max()) for _, part in chunks_of(X) if (part == part).any()]
    return max(maxima, default=0.0)
