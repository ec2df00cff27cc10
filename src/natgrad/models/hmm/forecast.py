"""Say what comes next after a sequence: distributions of the next observations, of one kind or of several tracks.

Where no closed form is known (autoregressions), distributions are those of draws. An autoregression needs the rows before the
next one; where the last of them are missing altogether, draws begin after the last row that is there, and go through those that
are missing: what they might have been is then drawn, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, final

import numpy as np
import numpy.typing as npt

from natgrad.models.hmm.autoregression import Autoregressions
from natgrad.models.hmm.expansions import Ahead, walked
from natgrad.models.hmm.priors import walks
from natgrad.models.hmm.tracks import Track, Tracks
from natgrad.validation import real_number, whole_number

if TYPE_CHECKING:
    from natgrad.models.hmm.live import LiveHMM

__all__ = [
    "Columns",
    "Forecast",
    "GoingOn",
    "StudentColumns",
    "TrackForecast",
    "TrackLaws",
    "after_rows",
    "columns_of",
    "named_row",
]

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
# Halvings of the interval between the lowest and the highest quantile of a state: to the last digits of a double.
HALVINGS = 64
# Draws of a forecast that has no closed form: an interval is then right to about a twentieth of its width.
N_DRAWS = 2_000


@final
class Forecast:
    """The distribution of the next observations; arrays have them first, then columns [n, D].

    Made by ``model.forecast(n)`` and ``model.filter().forecast(n)``.

    Attributes
    ----------
    states : array [n, K], the probabilities of the states

    Examples
    --------
    >>> import natgrad as ng
    >>> X = np.random.default_rng(0).poisson(np.tile(np.repeat([2.0, 30.0], 20), 10))[:, None]
    >>> ahead = ng.PoissonHMM(2, seed=0, verbose=False).fit(X).forecast(2)
    >>> ahead.mean().round(-1).ravel().tolist()
    [30.0, 30.0]
    >>> low, high = ahead.interval(0.9)
    >>> bool((low < ahead.mean()).all() and (ahead.mean() < high).all())
    True
    """

    def __init__(
        self, states: Floats, model: LiveHMM, columns: Columns | None, start: GoingOn, leaves: Floats | None = None,
        chances: Floats | None = None, names: Array | None = None,
    ) -> None:  # fmt: skip
        self.states, self._model, self._columns, self._start = states, model, columns, start
        # Of mixtures the probabilities of all components [n, L]; of a track of categories its own chances and names.
        self._leaves = states if leaves is None else leaves
        self._chances, self._own_names = chances, model._names() if chances is None else names

    @property
    def of_categories(self) -> bool:
        """Whether observations are categories: they have `probabilities`, and no mean or interval."""
        return self._columns is None

    @property
    def categories(self) -> Array:
        """What the columns of `probabilities` stand for."""
        return np.arange(self._category_means().shape[1]) if self._own_names is None else self._own_names

    def probabilities(self) -> Floats:
        """Of categories the probability of each [n, V]; of binary tracks that of a one [n, D]."""
        if isinstance(self._columns, _Binary):
            return self.mean()
        return np.asarray(self._leaves @ self._category_means())

    @property
    def dates(self) -> Any:
        """The dates of the steps, where the sequence has dates with a regular step; otherwise None."""
        return self._start.dates

    def mean(self) -> Floats:
        """The expected value."""
        return self._ordered("mean").mean_of(self._leaves)

    def std(self) -> Floats:
        """The standard deviation; infinite where a state has seen too little to have one."""
        return self._ordered("standard deviation").std_of(self._leaves)

    def quantile(self, q: float) -> Floats:
        """The value below which the observation lies with probability ``q``; of counts the least with at least that."""
        if not 0 < real_number(q, "q") < 1:
            raise ValueError(f"q must lie in (0, 1), got {q!r}")
        return self._ordered("quantile").quantile(self._leaves, float(q))

    def interval(self, mass: float = 0.9) -> tuple[Floats, Floats]:
        """Lower and upper ends of the central interval of each observation with probability ``mass`` (at least, of counts)."""
        if not 0 < real_number(mass, "mass") < 1:
            raise ValueError(f"mass must lie in (0, 1), got {mass!r}")
        return self.quantile((1.0 - mass) / 2.0), self.quantile((1.0 + mass) / 2.0)

    def sample(self, n: int = 1, seed: int | None = None) -> Array:
        """``n`` ways in which the sequence may go on [n, steps, D], at the mean of q: steps depend on each other."""
        rng = np.random.default_rng(seed)
        steps = len(self.states)
        ways = range(whole_number(n, "n"))
        return np.stack([self._model._drawn_from(self._start, steps, rng)[0] for _ in ways])

    def frame(self, mass: float = 0.9) -> Any:
        """A pandas table: a row for each step and column, with mean, std and interval; of categories their probabilities.

        Its index has the dates of the steps, where the sequence has some.
        """
        import pandas as pd

        steps = np.arange(1, len(self.states) + 1)
        if self.of_categories:
            index = pd.Index(steps, name="step") if self.dates is None else self.dates
            return pd.DataFrame(self.probabilities(), index=index, columns=self.categories)
        low, high = self.interval(mass)
        width = low.shape[1]
        values = {"mean": self.mean(), "std": self.std(), "low": low, "high": high}
        columns: dict[str, Array] = {"step": np.repeat(steps, width), "column": np.tile(np.arange(width), len(steps))}
        columns |= {name: value.ravel() for name, value in values.items()}
        return pd.DataFrame(columns, index=None if self.dates is None else self.dates.repeat(width))

    def __repr__(self) -> str:
        return f"Forecast of {len(self.states)} observations by a {type(self._model).__name__}"

    def _ordered(self, what: str) -> Columns:
        if self._columns is None:
            raise TypeError(
                f"categories have no {what}, their numbers are only names: use probabilities(), or sample()"
            )
        return self._columns

    def _category_means(self) -> Floats:
        if self._columns is not None:
            raise TypeError(
                "only categories and binary tracks have probabilities: use mean(), interval() or quantile()"
            )
        if self._chances is not None:
            return self._chances
        emission: Any = self._model._model_.emission
        return np.asarray(emission.family.mean(self._model._state.lam["emission"]))


class Columns(Protocol):
    """Distributions of columns in the states whose probabilities [n, K] are given; arrays [n, D]."""

    def mean_of(self, states: Floats) -> Floats:
        """Expected values."""
        ...

    def std_of(self, states: Floats) -> Floats:
        """Standard deviations."""
        ...

    def quantile(self, states: Floats, q: float) -> Floats:
        """Quantiles."""
        ...


class _Columns:
    """Distributions of the columns in each state [K, D]; ``whole`` numbers or real ones."""

    whole = True

    def __init__(self, mean: Floats, variance: Floats) -> None:
        self.mean, self.variance = mean, variance

    def mean_of(self, states: Floats) -> Floats:
        """Of the mixture [n, D]."""
        return np.asarray(states @ self.mean)

    def std_of(self, states: Floats) -> Floats:
        """Of the mixture [n, D]."""
        mean = states @ self.mean
        between = np.einsum("nk,nkd->nd", states, (self.mean - mean[:, None]) ** 2)
        return np.asarray(np.sqrt(_weighted(states, self.variance) + between))

    def cdf(self, value: Floats) -> Floats:
        """P(y ≤ value) in each state: values [n, 1, D] to [n, K, D]."""
        raise NotImplementedError

    def ends(self, q: float) -> tuple[Floats, Floats]:
        """Values [D] between which the quantile of every state lies."""
        raise NotImplementedError

    def quantile(self, states: Floats, q: float) -> Floats:
        """Of the mixture [n, D]."""
        low, high = (np.repeat(end[None], len(states), axis=0) for end in self.ends(q))
        for _ in range(HALVINGS):
            middle = np.floor((low + high) / 2.0) if self.whole else (low + high) / 2.0
            below = _weighted(states, self.cdf(middle[:, None])) < q
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return high


class StudentColumns(_Columns):
    """Student's t in each state and column [K, D]."""

    whole = False

    def __init__(self, mean: Floats, scale: Floats, dof: Floats) -> None:
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = np.where(dof > 2.0, scale**2 * dof / (dof - 2.0), np.inf)
        super().__init__(mean, variance)
        self.scale, self.dof = scale, dof

    def cdf(self, value: Floats) -> Floats:
        import scipy.special

        return np.asarray(scipy.special.stdtr(self.dof, (value - self.mean) / self.scale))

    def ends(self, q: float) -> tuple[Floats, Floats]:
        import scipy.special

        quantiles = self.mean + self.scale * scipy.special.stdtrit(self.dof, q)
        return quantiles.min(0) - self.scale.min(0), quantiles.max(0) + self.scale.min(0)


class _NegativeBinomial(_Columns):
    def __init__(self, shape: Floats, rate: Floats) -> None:
        super().__init__(shape / rate, shape / rate * (1.0 + 1.0 / rate))
        self.shape, self.rate = shape, rate

    def cdf(self, value: Floats) -> Floats:
        import scipy.special

        return np.where(value < 0, 0.0, scipy.special.betainc(self.shape, np.maximum(value, 0.0) + 1.0, self.chance))

    @property
    def chance(self) -> Floats:
        return self.rate / (1.0 + self.rate)

    def ends(self, q: float) -> tuple[Floats, Floats]:
        high = np.ceil(self.mean + np.sqrt(self.variance)).max(0) + 1.0
        while (short := (self.cdf(high[None]) < q).any(0)).any():
            high = np.where(short, 2.0 * high, high)
        return np.full_like(high, -1.0), high


class _Binary(_Columns):
    def __init__(self, chance: Floats) -> None:
        super().__init__(chance, chance * (1.0 - chance))

    def cdf(self, value: Floats) -> Floats:
        return np.where(value < 0, 0.0, np.where(value < 1, 1.0 - self.mean, 1.0))

    def ends(self, q: float) -> tuple[Floats, Floats]:
        width = self.mean.shape[1]
        return np.full(width, -1.0), np.ones(width)


def _weighted(states: Floats, values: Floats) -> Floats:
    """Σ_k states[n, k] values[k, d], or values[n, k, d]; states without weight count nothing, whatever they say."""
    wide = np.broadcast_to(values, (len(states), *values.shape[-2:]))
    return np.asarray(np.einsum("nk,nkd->nd", states, np.where(states[:, :, None] > 0.0, wide, 0.0)))


def columns_of(emission: Any, lam: Any) -> Columns | None:
    """Of each state and column of a plain emission; None for categories."""
    usual = {name: np.asarray(value) for name, value in emission.family.usual(lam).items()}
    kind = emission.family.name
    if kind == "Dirichlet":
        return None
    if kind == "Gamma":
        return _NegativeBinomial(usual["shape"], usual["rate"])
    if kind == "Beta":
        return _Binary(np.asarray(emission.family.mean(lam)))
    mean, width = emission.located(lam).means, emission.n_columns
    if kind == "NormalGamma":  # τ ~ Gamma(a, b): Student's t with 2 a degrees of freedom
        dof, spread, scale = 2.0 * usual["shape"], usual["rate"] / usual["shape"], usual["scale"]
    else:
        size = usual["rate"].shape[-1]  # of the matrix: 1 if one precision is for all columns
        dof = usual["dof"] - size + 1.0
        spread = np.diagonal(usual["rate"], axis1=-2, axis2=-1) / dof[:, None]
        dof, scale = dof[:, None], np.reshape(usual["scale"], (len(mean), -1))
    square = np.broadcast_to(spread * (1.0 + 1.0 / scale), (len(mean), width))
    return StudentColumns(mean, np.sqrt(square), np.broadcast_to(dof, square.shape))


class GoingOn(NamedTuple):
    """Probabilities of the chain's state after the last row that is there (with inputs of all to come), the rows before, how
    many are missing between, and the dates of those to come.
    """  # noqa: D205

    first: Floats | Ahead
    before: Array | None = None
    missing: int = 0
    dates: Any = None


def after_rows(last: GoingOn, before: Array, columns: Array, states: Floats, transition: Floats, order: int) -> GoingOn:
    """The same after more rows [n, D], with these filtered states of the chain [n, S]; ``before`` are rows before them."""
    there = np.flatnonzero(~np.isnan(columns).all(1))
    if not len(there):
        return last._replace(missing=last.missing + len(columns))
    end = int(there[-1]) + 1
    rows = np.vstack([before, columns[:end]])
    return GoingOn(states[end - 1] @ transition, rows[len(rows) - min(order, len(rows)) :], len(columns) - end)


def named_row(row: Any) -> Array:
    """A row {name: entry} as a table of one row."""
    names = [str(name) for name in row.keys()]  # noqa: SIM118, a row of pandas is iterated by its entries
    return np.array([tuple(row[name] for name in row.keys())], dtype=[(name, object) for name in names])  # noqa: SIM118


@final
class TrackForecast(Mapping[str, Forecast]):
    """The distribution of the next observations of several tracks: ``ahead["speed"]`` is the `Forecast` of one.

    ``mean``, ``std``, ``quantile`` and ``interval`` have the columns of X, where no track is of categories.

    Attributes
    ----------
    states : array [n, K], the probabilities of the states
    columns : {track: the places of its columns}, those of ``mean`` and ``interval``
    """

    def __init__(
        self, states: Floats, model: LiveHMM, each: Mapping[str, Forecast], columns: Mapping[str, Any]
    ) -> None:
        self.states, self._model, self._each, self.columns = states, model, dict(each), dict(columns)

    def __getitem__(self, name: str) -> Forecast:
        return self._each[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._each)

    def __len__(self) -> int:
        return len(self._each)

    @property
    def dates(self) -> Any:
        """The dates of the steps, where the sequence has dates with a regular step; otherwise None."""
        return next(iter(self._each.values())).dates

    def mean(self) -> Floats:
        """The expected values [n, D]."""
        return self._side_by_side({name: one.mean() for name, one in self._each.items()})

    def std(self) -> Floats:
        """The standard deviations [n, D]."""
        return self._side_by_side({name: one.std() for name, one in self._each.items()})

    def quantile(self, q: float) -> Floats:
        """The values below which observations lie with probability ``q`` [n, D]."""
        return self._side_by_side({name: one.quantile(q) for name, one in self._each.items()})

    def interval(self, mass: float = 0.9) -> tuple[Floats, Floats]:
        """Ends of the central intervals with probability ``mass``, each [n, D]."""
        ends = {name: one.interval(mass) for name, one in self._each.items()}
        return tuple(self._side_by_side({name: end[side] for name, end in ends.items()}) for side in (0, 1))  # type: ignore[return-value]

    def sample(self, n: int = 1, seed: int | None = None) -> Array:
        """``n`` ways in which the sequence may go on [n, steps, D], at the mean of q: steps depend on each other."""
        return next(iter(self._each.values())).sample(n, seed)

    def frame(self, mass: float = 0.9) -> Any:
        """{track: a pandas table}, as `Forecast.frame` has it."""
        return {name: one.frame(mass) for name, one in self._each.items()}

    def __repr__(self) -> str:
        return (
            f"Forecast of {len(self.states)} observations of {', '.join(self._each)} by a {type(self._model).__name__}"
        )

    def _side_by_side(self, each: Mapping[str, Floats]) -> Floats:
        width = 1 + max(max(columns) for columns in self.columns.values())
        out = np.full((len(self.states), width), np.nan)
        for name, values in each.items():
            out[:, self.columns[name]] = values
        return out


@final
class TrackLaws:
    """What tracks emit in each state, read from q once; forecasts of any probabilities of states out."""

    def __init__(self, model: LiveHMM) -> None:
        emission: Any = model._model_.emission
        assert isinstance(emission, Tracks)
        self.model, self.tracks, self.lam = model, emission.tracks, model._state.lam

    def forecast(self, states: Floats, start: GoingOn) -> TrackForecast:
        """That of states which have these probabilities [n, K]; draws begin with ``start``."""
        each = {track.name: self._one(track, states, start) for track in self.tracks}
        return TrackForecast(states, self.model, each, {track.name: list(track.columns) for track in self.tracks})

    @cached_property
    def _laws(self) -> dict[str, _Law]:
        return {
            track.name: self._law(track) for track in self.tracks if not isinstance(track.emission, Autoregressions)
        }

    def _law(self, track: Track) -> _Law:
        own, shares = track.together(self.lam[track.name]), track.leaf_shares(self.lam)
        if track.kind != "Categories":
            return _Law(shares, columns_at(track, own))
        names = getattr(self.model, "categories_", None) or {}
        return _Law(shares, None, np.asarray(track.emission.family.mean(own)), names.get(track.name))

    def _one(self, track: Track, states: Floats, start: GoingOn) -> Forecast:
        if isinstance(track.emission, Autoregressions):
            return Forecast(states, self.model, _drawn(track, len(states), self.model, start), start)
        law = self._laws[track.name]
        leaves = (states[:, :, None] * law.shares).reshape(len(states), -1)
        return Forecast(states, self.model, law.columns, start, leaves, law.chances, law.names)


class _Law(NamedTuple):
    """Of a track: weights of the components in each state [K, m], and the columns, or the chances of categories [L, V]."""

    shares: Floats
    columns: Columns | None
    chances: Floats | None = None
    names: Array | None = None


class DrawnColumns:
    """Columns whose distribution is known by draws [n_draws, n, D]: where what comes depends on what came."""

    def __init__(self, drawn: Floats) -> None:
        self.drawn = drawn

    def mean_of(self, states: Floats) -> Floats:
        """Averages."""
        return np.asarray(self.drawn.mean(0))

    def std_of(self, states: Floats) -> Floats:
        """Standard deviations."""
        return np.asarray(self.drawn.std(0))

    def quantile(self, states: Floats, q: float) -> Floats:
        """Quantiles."""
        return np.asarray(np.quantile(self.drawn, q, axis=0))


def _drawn(track: Track, n: int, model: LiveHMM, start: GoingOn) -> DrawnColumns:
    """Ways to go on, at the mean of q, with a seed of their own."""
    rng, columns = np.random.default_rng(0), list(track.columns)
    first, before, missing, _ = start
    own, chain = before[:, columns] if before is not None and len(before) else None, model._model_.chain
    if isinstance(first, Ahead):
        states = walked(first, rng.random((N_DRAWS, n)))
    else:
        rows = np.cumsum(np.vstack([first, model._chain_at_mean()[1]]), axis=1)
        paths = walks(rows, rng.random((N_DRAWS, missing + n)))
        states = paths if chain is None else chain.states[paths]
    return DrawnColumns(track.draw(model._state.lam, states, rng, own)[:, missing:])


def columns_at(track: Track, lam: Any) -> Columns | None:
    """Distributions of the columns of a track in each component of a state."""
    if track.dof is None:
        return columns_of(track.emission, lam)
    # With scales of its own there is no closed form with parameters integrated out: it is Student's t at the mean of q.
    located = track.emission.located(lam)
    return StudentColumns(located.means, located.deviations, np.full(located.means.shape, track.dof))
