"""What users declare: `Gaussian`, `StudentT`, `Autoregressive`, `Poisson`, `Bernoulli`, `Categorical`, `Mixture`.

Each is a record of settings. With columns of data it becomes an emission (`natgrad.models.hmm.emissions`), or a track of
several (`natgrad.models.hmm.tracks`); priors that were left open follow from the data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, final

import numpy as np
import numpy.typing as npt

from natgrad.data.frames import as_column, frame_columns
from natgrad.models.gaussian_prior import COVARIANCES, PRIOR_ROWS, finite_numbers, gaussian_prior, mean_and_variance
from natgrad.posterior.files.container import register
from natgrad.validation import check_counts, is_missing, real_number, require, whole_number

__all__ = [
    "Autoregressive",
    "Bernoulli",
    "Categorical",
    "EmissionKind",
    "Gaussian",
    "Mixture",
    "Poisson",
    "StudentT",
    "as_categories",
    "as_tuples",
    "categories_in",
    "declared_emissions",
    "encoded",
    "flat_labels",
    "holds_labels",
    "is_several",
    "pair_of_positives",
]

Array = npt.NDArray[Any]
# More categories than this are numbers that mean something else; a smaller prior gives a probability of exactly zero.
MOST_CATEGORIES, LEAST_PRIOR = 1_000_000, 1e-8
GAUSSIANS = "FullGaussians", "IndependentGaussians", "TiedGaussians", "SphericalGaussians"
# Names of blocks that are not the emissions'.
TAKEN = ("initial", "transition", "duration", "states")
OF_COVARIANCE = dict(zip(COVARIANCES, GAUSSIANS, strict=True))


@dataclass(frozen=True)
class EmissionKind(ABC):
    """What all kinds share: they make an emission of columns."""

    # Whether an emission of this kind alone is one that the kernels know, without local variables of its own.
    plain: ClassVar[bool] = True

    @abstractmethod
    def emission(self, X: Array, n_states: int, categories: Array | None = None) -> Any:
        """The emission of columns [T, D] with so many states; ``categories`` are labels, of which X has the numbers."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """The class of the emission."""

    def extras(self) -> dict[str, Any]:
        """What a track of it has besides its emission."""
        return {}

    @property
    def inner(self) -> EmissionKind:
        """The kind without what is wrapped around it."""
        return self

    def track(
        self, name: str, columns: tuple[int, ...], X: Array, n_states: int, categories: Array | None
    ) -> dict[str, Any]:
        """What a `Track` of these columns is made of."""
        extras = self.extras()
        made = self.emission(X, n_states * extras.get("n_components", 1), categories)
        return {"name": name, "columns": columns, "kind": self.kind, "arguments": made.arguments, **extras}


@dataclass(frozen=True)
class _Normal(EmissionKind):
    """Settings that every Gaussian has."""

    covariance: Literal["full", "diag", "tied", "spherical"] = "full"
    mean_prior: Any = None
    mean_scale: float = 0.01
    dof_prior: float | None = None
    scale_prior: Any = None

    def __post_init__(self) -> None:
        if self.covariance not in COVARIANCES:
            raise ValueError(f'covariance must be "full", "diag", "tied" or "spherical", got {self.covariance!r}')
        _positive(self.mean_scale, "mean_scale")
        if self.dof_prior is not None:
            _positive(self.dof_prior, "dof_prior")
        for name in ("mean_prior", "scale_prior"):
            object.__setattr__(self, name, as_tuples(getattr(self, name)))

    @property
    def kind(self) -> str:
        return OF_COVARIANCE[self.covariance]

    def emission(self, X: Array, n_states: int, categories: Array | None = None) -> Any:
        from natgrad.models.gaussians import GAUSSIANS

        prior = gaussian_prior(self, X, n_states)
        # Ordinary data stay where they are, and are not copied.
        return GAUSSIANS[self.covariance](n_states, *prior[:4], prior.origin if prior.far else None)


@final
@dataclass(frozen=True)
class Gaussian(_Normal):
    """Real vectors: each state has a mean and a precision. Settings are those of `GaussianHMM`.

    Parameters
    ----------
    covariance : "full", "diag", "tied" or "spherical"
    mean_prior : array [D], optional
        m, by default the mean of each column.
    mean_scale : float
        κ, how many observations the prior mean is worth.
    dof_prior : float, optional
        ν of Λ ~ Wishart(ν, R), E[Λ] = ν R⁻¹; of "diag" and "spherical", τ ~ Gamma(ν/2, R/2). By default D + 2.
    scale_prior : array [D, D] (full, tied), [D] (diag) or a number (spherical), optional
        R. By default the variance of each column divided by K^(2/D), a guess of what one state covers; of "spherical" the mean of
        these.
    """


@final
@dataclass(frozen=True)
class StudentT(_Normal):
    """Real vectors with heavy tails: y ~ N(μ_k, (u Λ_k)⁻¹), u ~ Gamma(dof/2, dof/2). Outliers move no state.

    q(u, x) of a time is one factor, so nothing is lost by the scale u. Settings besides are those of `GaussianHMM`.

    Parameters
    ----------
    covariance : "full", "diag", "tied" or "spherical"
    mean_prior, mean_scale, dof_prior, scale_prior : as in `Gaussian`
    dof : float, ν
        Degrees of freedom: 1 is Cauchy's distribution, 30 and more nearly a Gaussian.
    """

    dof: float = 4.0
    plain: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _Normal.__post_init__(self)
        _positive(self.dof, "dof")

    def extras(self) -> dict[str, Any]:
        return {"dof": float(self.dof)}


@final
@dataclass(frozen=True)
class Autoregressive(EmissionKind):
    """Real vectors that follow from those before: y_t ~ N(a_k + Σ_lag B_k,lag y_{t−lag}, Λ_k⁻¹), a regression for each state.

    The first ``order`` observations of a sequence are given, and so is what follows a missing one within ``order`` times.

    Parameters
    ----------
    order : int, p
        How many observations before count.
    mean_scale : float, κ
        How many observations the prior of the coefficients, which are zero a priori, is worth.
    dof_prior : float, optional
        ν of the Wishart prior of the noise's precision; by default D + 2.
    scale_prior : array [D, D], optional
        Its R; by default the variance of each column divided by K^(2/D).
    dof : float, optional
        Degrees of freedom, if the noise is Student's t.
    """

    order: int = 1
    mean_scale: float = 0.01
    dof_prior: float | None = None
    scale_prior: Any = None
    dof: float | None = None
    plain: ClassVar[bool] = False
    covariance: ClassVar[str] = "full"
    mean_prior: ClassVar[None] = None

    def __post_init__(self) -> None:
        whole_number(self.order, "order")
        _positive(self.mean_scale, "mean_scale")
        for name in ("dof_prior", "dof"):
            if getattr(self, name) is not None:
                _positive(getattr(self, name), name)
        object.__setattr__(self, "scale_prior", as_tuples(self.scale_prior))

    @property
    def kind(self) -> str:
        return "Autoregressions"

    def extras(self) -> dict[str, Any]:
        return {} if self.dof is None else {"dof": float(self.dof)}

    def emission(self, X: Array, n_states: int, categories: Array | None = None) -> Any:
        from natgrad.models.hmm.autoregression import Autoregressions

        if len(X) <= self.order:
            raise ValueError(
                f"order = {self.order} observations come before the first that is modelled, and X has n_samples = {len(X)}: take "
                "a smaller order"
            )
        prior = gaussian_prior(self, X, n_states)
        _, variance = mean_and_variance(X, words=False)
        scale = prior.scale * np.concatenate([[1.0], np.tile(variance, int(self.order))])
        return Autoregressions(n_states, int(self.order), prior.origin, scale, prior.dof, prior.rate)


@final
@dataclass(frozen=True)
class Poisson(EmissionKind):
    """Counts: each state has a rate for each column.

    Parameters
    ----------
    rate_prior : (shape, rate), optional
        Of the Gamma prior of the rates; by default shape 1 and the mean of the data.
    """

    rate_prior: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.rate_prior is not None:
            object.__setattr__(self, "rate_prior", pair_of_positives(self.rate_prior, "rate_prior"))

    @property
    def kind(self) -> str:
        return "Poissons"

    def emission(self, X: Array, n_states: int, categories: Array | None = None) -> Any:
        from natgrad.models.hmm.emissions import Poissons

        stride = max(1, len(X) // PRIOR_ROWS)
        check_counts(np.asarray(X[::stride]), "X", stride)
        if self.rate_prior is None:
            mean, _ = mean_and_variance(X, words=False)
            return Poissons(n_states, X.shape[1], 1.0, 1.0 / max(float(mean.mean()), 1e-3))
        return Poissons(n_states, X.shape[1], *self.rate_prior)


@final
@dataclass(frozen=True)
class Bernoulli(EmissionKind):
    """Binary tracks: each state has a probability for each column.

    Parameters
    ----------
    track_prior : (a, b)
        Of the Beta prior of the probabilities.
    """

    track_prior: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "track_prior", pair_of_positives(self.track_prior, "track_prior"))

    @property
    def kind(self) -> str:
        return "Bernoullis"

    def emission(self, X: Array, n_states: int, categories: Array | None = None) -> Any:
        from natgrad.models.hmm.emissions import Bernoullis

        return Bernoullis(n_states, X.shape[1], *self.track_prior)


@final
@dataclass(frozen=True)
class Categorical(EmissionKind):
    """Symbols, numbers or labels: each state has its own probabilities of them. One column.

    Parameters
    ----------
    categories : int or sequence, optional
        V, by default the largest symbol plus one; or the labels, if the column holds labels, by default those that occur, in
        their order. A number or a label beyond them is refused.
    emission_prior : float or array [K, V]
        Concentration of the categories.
    """

    categories: int | Sequence[Any] | None = None
    emission_prior: Any = 1.0

    def __post_init__(self) -> None:
        for name in ("categories", "emission_prior"):
            object.__setattr__(self, name, as_tuples(getattr(self, name)))
        if self.categories is not None and self.labels is None:
            whole_number(self.categories, "categories")

    @property
    def labels(self) -> Any:
        """The labels that ``categories`` names; None where it is a number, or left out."""
        return self.categories if hasattr(self.categories, "__len__") else None

    @property
    def kind(self) -> str:
        return "Categories"

    def emission(self, X: Array, n_states: int, categories: Array | None = None) -> Any:
        from natgrad.models.hmm.emissions import Categories

        n_categories = self._size(X, categories)
        prior = finite_numbers(self.emission_prior, "emission_prior", [(), (n_states, n_categories)])
        require(prior >= LEAST_PRIOR, prior, "emission_prior", f"≥ {LEAST_PRIOR:g}")
        return Categories(n_states, n_categories, prior)

    def _size(self, X: Array, categories: Array | None) -> int:
        if self.categories is not None and (categories is None) != (self.labels is None):
            held = "numbers: give how many" if categories is None else "labels: name them"
            raise ValueError(f"categories={self.categories!r}, but X holds {held}")
        if categories is not None:
            return max(1, len(categories))
        if self.categories is not None:
            return whole_number(self.categories, "categories")
        n_categories = int(np.asarray(X[np.isfinite(X)], dtype=np.float64).max(initial=0.0)) + 1
        if n_categories > MOST_CATEGORIES:
            place = np.unravel_index(np.nanargmax(np.where(np.isfinite(X), X, np.nan)), X.shape)
            raise ValueError(
                f"X[{place[0]}, {place[1]}] = {X[place]:g}: categories are numbered 0, 1, 2, …, without gaps, and there are "
                f"at most {MOST_CATEGORIES:,}; number them, np.unique(X, return_inverse=True)[1], or give categories"
            )
        return n_categories


@final
@dataclass(frozen=True)
class Mixture(EmissionKind):
    """Several components in each state, each an emission of its own with a weight.

    q(component, x) of a time is one factor: components are summed out with the state.

    Parameters
    ----------
    emission_of : what a component emits, such as ``Gaussian()`` or ``StudentT()``
    n_components : int, m
        In each state.
    weight_prior : float
        Concentration of their weights.
    """

    emission_of: EmissionKind
    n_components: int = 2
    weight_prior: float = 1.0
    plain: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.emission_of, EmissionKind) or isinstance(self.emission_of, Mixture):
            raise TypeError(
                f"emission_of must be what a component emits, such as Gaussian() or Poisson(), got {self.emission_of!r}"
            )
        if getattr(self.emission_of, "covariance", None) == "tied":
            raise ValueError(
                'covariance="tied" shares one matrix among all components of all states, which a Mixture has no block for: '
                'take "full", "diag" or "spherical"'
            )
        whole_number(self.n_components, "n_components")
        _positive(self.weight_prior, "weight_prior")

    @property
    def kind(self) -> str:
        return self.emission_of.kind

    @property
    def inner(self) -> EmissionKind:
        return self.emission_of.inner

    def extras(self) -> dict[str, Any]:
        own = {"n_components": int(self.n_components), "weight_prior": float(self.weight_prior)}
        return {**self.emission_of.extras(), **own}

    def emission(self, X: Array, n_states: int, categories: Array | None = None) -> Any:
        return self.emission_of.emission(X, n_states, categories)


for _class in (Gaussian, StudentT, Autoregressive, Poisson, Bernoulli, Categorical, Mixture):
    register(_class, f"hmm.{_class.__name__}", lambda kind: {f.name: getattr(kind, f.name) for f in fields(kind)})


def declared_emissions(emissions: Any, n_columns: int) -> list[tuple[str, tuple[int, ...], EmissionKind]]:
    """The name, the columns and the kind of every track; keys checked against the columns of X."""
    if emissions is None or isinstance(emissions, EmissionKind):
        return [("emission", tuple(range(n_columns)), Gaussian() if emissions is None else emissions)]
    if not isinstance(emissions, Mapping) or not emissions:
        raise TypeError(
            "emissions must be a kind of natgrad.models.hmm, such as Gaussian(), or {column: kind}, got "
            f"{emissions!r}"
        )
    keys = {key: key if isinstance(key, tuple) else (key,) for key in emissions}
    flat = [part for key in keys.values() for part in key]
    named = all(isinstance(part, str) for part in flat)
    if not named and not all(isinstance(part, (int, np.integer)) and not isinstance(part, bool) for part in flat):
        raise TypeError(
            f"keys of emissions are names of columns or numbers of columns, not both, got {list(emissions)}"
        )
    if len(set(flat)) < len(flat):
        twice = next(part for part in flat if flat.count(part) > 1)
        raise ValueError(f"emissions has the column {twice!r} twice: join the columns of one vector in a tuple")
    places = {part: place for place, part in enumerate(flat)} if named else {part: int(part) for part in flat}
    if sorted(places.values()) != list(range(n_columns)):
        missing = sorted(set(range(n_columns)) - set(places.values()))
        what = f"column {missing[0]} of X has none" if missing else f"there is no column {max(places.values())}"
        raise ValueError(
            f"emissions must name every one of the {n_columns} columns of X: {what}; got {list(emissions)}"
        )
    found = []
    for key, kind in emissions.items():
        if not isinstance(kind, EmissionKind):
            raise TypeError(
                f"emissions[{key!r}] must be a kind of natgrad.models.hmm, such as Gaussian(), got {kind!r}"
            )
        name = "_".join(str(part) for part in keys[key]) if named else "column" + "_".join(str(p) for p in keys[key])
        found.append((name, tuple(places[part] for part in keys[key]), kind))
    _check_names(found)
    return found


def _check_names(found: list[tuple[str, tuple[int, ...], EmissionKind]]) -> None:
    names = [
        own for name, _, kind in found for own in (name, f"{name}_weights")[: 1 + ("n_components" in kind.extras())]
    ]
    for name in names:
        if name in TAKEN or names.count(name) > 1:
            raise ValueError(
                f"{name!r} cannot be the name of an emission, because it names another block: rename the column"
            )


def pair_of_positives(value: Any, what: str) -> tuple[float, float]:
    """Two numbers > 0."""
    try:
        first, second = (real_number(v, what) for v in value)
    except (TypeError, ValueError):
        raise ValueError(f"{what} must be two numbers > 0, got {value!r}") from None
    if not (0 < first < np.inf and 0 < second < np.inf):
        raise ValueError(f"{what} must be two numbers > 0, got {value!r}")
    return first, second


def _positive(value: Any, what: str) -> None:
    if not 0 < real_number(value, what) < np.inf:
        raise ValueError(f"{what} must be > 0 and finite, got {value!r}")


def as_tuples(value: Any) -> Any:
    """Arrays and lists as tuples, which compare and do not change."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(as_tuples(part) for part in value) if isinstance(value, (list, tuple)) else value


def holds_labels(X: Any) -> bool:
    """Whether X, a list of symbols or one of sequences, holds something else than numbers.

    Examples
    --------
    >>> holds_labels(["a", "b"]), holds_labels(np.arange(3)), holds_labels([["a"], ["b", "a"]]), holds_labels("a.npy")
    (True, False, True, False)
    """
    if isinstance(X, str) or hasattr(X, "__fspath__") or hasattr(X, "__next__"):
        return False
    if is_several(X):
        return any(holds_labels(part) for part in X)
    array = _plain(X)
    if array.dtype.kind == "O":
        return any(isinstance(v, (str, bytes, bool, tuple)) for v in array.ravel())
    return array.dtype.kind in "USM"


def is_several(X: Any) -> bool:
    """Whether X is a list of sequences."""
    return isinstance(X, (list, tuple)) and len(X) > 0 and not isinstance(X[0], (str, bytes)) and np.ndim(X[0]) > 0


def as_categories(given: Any) -> Array:
    """The labels that the user names, all different."""
    categories = np.empty(len(given), dtype=object)
    categories[:] = list(given)
    if not len(categories):
        raise ValueError("categories is empty: name the labels that may occur")
    if len(seen := dict.fromkeys(categories.tolist())) < len(categories):
        twice = next(v for v in seen if categories.tolist().count(v) > 1)
        raise ValueError(f"categories names {twice!r} twice: labels differ")
    return categories


def categories_in(X: Array) -> Array:
    """The labels that occur, in order where they have one."""
    seen = dict.fromkeys(v for v in X.ravel().tolist() if not is_missing(v))
    try:
        order = sorted(seen)
    except TypeError:  # labels of several types
        order = sorted(seen, key=lambda v: (type(v).__name__, str(v)))
    return as_categories(order) if order else np.zeros(0, dtype=object)


def encoded(X: Any, categories: Array) -> Array:
    """Numbers of labels [T, 1]: NaN where one is missing, V where it is none of the categories."""
    array = flat_labels(X)
    numbers = {label: float(code) for code, label in enumerate(categories.tolist())}
    other = float(len(categories))
    codes = [np.nan if is_missing(v) else numbers.get(v, other) for v in array.ravel().tolist()]
    return np.asarray(codes, dtype=np.float64)[:, None]


def flat_labels(X: Any) -> Array:
    """A column of labels."""
    array = _plain(X)
    if array.ndim > 2 or (array.ndim == 2 and array.shape[1] != 1):
        raise ValueError(f"X must have one column of categories, got an array of shape {array.shape}")
    if array.size == 0:
        raise ValueError("X is empty: there is nothing to fit to (minimum of 1 is required)")
    return array.ravel()


def _plain(X: Any) -> Array:
    if (table := frame_columns(X)) is not None and len(table) == 1:
        X = next(iter(table.values()))
    X = as_column(X)
    array = np.asarray(X)
    if array.dtype.kind in "US" and isinstance(X, (list, tuple)):  # 1 beside "a" would become "1"
        return np.asarray(X, dtype=object)
    # Nanoseconds, as pandas has them, would become whole numbers; finer than microseconds no date of Python is.
    return array.astype("M8[us]") if array.dtype.kind == "M" and array.dtype.str.endswith("[ns]") else array
