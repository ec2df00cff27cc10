"""What comes next where states emit several tracks: a `Forecast` for each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from natgrad.models.hmm.autoregression import Autoregressions
from natgrad.models.hmm.forecast import Columns, Forecast, StudentColumns, columns_of
from natgrad.models.hmm.going_on import GoingOn
from natgrad.models.hmm.inputs import Ahead, walked
from natgrad.models.hmm.priors import walks
from natgrad.models.hmm.tracks import Track, Tracks

if TYPE_CHECKING:
    from natgrad.models.hmm.live import LiveHMM

__all__ = ["TrackForecast", "TrackLaws"]

# Draws of a forecast that has no closed form: an interval is then right to about a twentieth of its width.
N_DRAWS = 2_000
Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]


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
