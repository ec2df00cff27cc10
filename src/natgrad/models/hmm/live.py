"""A fitted hidden Markov model in use: rows as they come, what comes next, and sequences that go on.

    filtered     α_t(k) = p(x_t = k | y_1 … y_t)  ∝  Σ_i α_{t−1}(i) A_ik · p(y_t | k)
    next         p(x_{t+1} = k | y_1 … y_t) = Σ_i α_t(i) A_ik,     p(y_{t+1} | y_1 … y_t) = Σ_k p(x_{t+1} = k | …) p(y | k)

All that a filter holds of the past is α_t, so a row costs the same however many came before. States are those at the mean of q,
as in `predict_proba` and `score`; distributions of what comes next integrate over q of the emissions (`forecast.py`).
"""

from __future__ import annotations

import warnings
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from natgrad.data.dates import Clock, clocks_of, dates_of
from natgrad.data.frames import is_frame
from natgrad.data.sequences import Sequences
from natgrad.inference.trace import levels_to_the_caller
from natgrad.kernels.hmm import plain
from natgrad.kernels.hmm.chain import filter_rows
from natgrad.kernels.hmm.emissions import TABLE
from natgrad.kernels.hmm.lanes import TINY
from natgrad.models.hmm.expansions import Ahead, walked
from natgrad.models.hmm.forecast import Forecast, GoingOn, TrackForecast, TrackLaws, after_rows, columns_of, named_row
from natgrad.models.hmm.forward_backward import weights_of
from natgrad.models.hmm.parts import Segment
from natgrad.models.hmm.priors import walk
from natgrad.models.hmm.queries import StateQueries
from natgrad.models.hmm.row_weights import PlainRows, RowNames, TrackRows, codes_of, weights_of_row
from natgrad.models.hmm.tracks import Tracks, TrackWeights, observed_by, own_of
from natgrad.threads import is_little
from natgrad.validation import whole_number

if TYPE_CHECKING:
    from natgrad.models.hmm.emissions import Emission, Observed

__all__ = ["LiveHMM", "StateFilter", "checked_clocks"]

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
# Compiled functions, and their plain twins, carry no types.
_filter_rows: Any = filter_rows
_plain_rows: Any = plain.filter_rows
_log_weights: Any = plain.log_weights
# Rows of a chunk whose weights are made at once.
PIECE = 100_000


class LiveHMM(StateQueries):
    """`filter`, `forecast` and `sample` of every hidden Markov model."""

    n_states_: int
    startprob_: Floats
    transmat_: Floats

    def filter(self, X: Any = None) -> StateFilter:
        """An object that takes observations as they come, and says which state it is and what comes next.

        Parameters
        ----------
        X : optional
            What was seen so far of the sequence; by default nothing, and the next row is a first one.

        Examples
        --------
        >>> import natgrad as ng
        >>> rng = np.random.default_rng(0)
        >>> X = np.repeat([[-3.0], [3.0], [-3.0], [3.0]], 50, axis=0) + rng.normal(size=(200, 1))
        >>> model = ng.GaussianHMM(2, seed=0, verbose=False).fit(X)
        >>> live = model.filter()
        >>> state = live.update(X[0])  # one row: p(x_1 | y_1), [K]
        >>> states = live.update(X[1:])  # rows: p(x_t | y_1 … y_t), [n, K]
        >>> bool(np.allclose(states[-1], model.predict_proba(X)[-1]))
        True
        >>> live.n_seen, live.forecast(3).mean().shape
        (200, (3, 1))
        """
        self._check_fitted()
        live = StateFilter(self)
        if X is not None:
            columns, lengths = self._columns(X, None, None)
            if lengths is not None:
                raise ValueError(f"X is a list of {len(lengths)} sequences, and a filter follows one: give that one")
            (live._clock,) = checked_clocks(dates_of(X), len(columns))
            live._taken(columns)
        return live

    def forecast(self, n: int = 1, X: Any = None, *, inputs: Any = None) -> Forecast | TrackForecast:
        """The distribution of the next ``n`` observations: means, intervals, states.

        Parameters
        ----------
        n : int
            How many.
        X : optional
            The sequence that goes on; by default the one that the model was fitted to, of several the last one.
        inputs : sequence [n], of a model with inputs
            Those of the next times.
        """
        self._check_fitted()
        n = whole_number(n, "n")
        if X is None:
            held = getattr(self, "_data", None)
            if held is None:
                raise ValueError(
                    f"{type(self).__name__} holds no sequence that could go on (it was loaded, or fitted to a stream): give "
                    "forecast(n, X)"
                )
            live = StateFilter(self)
            live._taken(held.columns[len(held.columns) - int(held.lengths[-1]) :])
            live._clock = held.clocks[-1]
            return live.forecast(n, inputs=inputs)
        return self.filter(X).forecast(n, inputs=inputs)

    def sample(
        self, n: int = 1, seed: int | None = None, *, after: Any = None, inputs: Any = None
    ) -> tuple[Array, Array]:
        """A sequence of ``n`` observations from the model at the mean of q, and its states.

        Parameters
        ----------
        n : int
            How many.
        seed : int, optional
        after : optional
            A sequence (or a filter that saw it) that the drawn one continues; by default it begins anew.
        inputs : sequence [n], of a model with inputs
            Those of the drawn times.
        """
        self._check_fitted()
        rng, n = np.random.default_rng(seed), whole_number(n, "n")
        live = after if isinstance(after, StateFilter) else self.filter(after)
        return self._drawn_from(live._goes_on(n, inputs), n, rng)

    def _drawn_from(self, start: GoingOn, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """A sequence that begins so; rows before it matter to autoregressions."""
        first, before, missing, _ = start
        if isinstance(first, Ahead):
            states = walked(first, rng.random(n))
        else:
            states = walk(np.cumsum(np.vstack([first, self._chain_at_mean()[1]]), axis=1), rng.random(missing + n))
            states = states if self._model_.chain is None else self._model_.chain.states[states]
        emission = self._model_.emission
        if isinstance(emission, Tracks):
            drawn = emission.draw(self._state.lam, states, rng, before)
        else:
            drawn = emission.draw(self._state.lam["emission"], states, rng)
        return self._named_values(drawn[missing:]), states[missing:]

    def _chain_at_mean(self) -> tuple[Floats, Floats]:
        """Probabilities of first states and transitions of the chain, which is longer where durations are declared."""
        chain = self._model_.chain
        if chain is None:
            return self.startprob_, self.transmat_
        with np.errstate(divide="ignore"):
            logs = {"initial": (np.log(self.startprob_),), "transition": (np.log(self.transmat_),)}
        if chain.durations is not None:
            duration = self.posterior_["duration"]
            logs["duration"] = duration.family.stats_of(duration.family.mean(self._state.lam["duration"]))
        return chain.weights(logs)

    # -- hooks --

    def _observe(self, emission: Emission, columns: Array, ends: Array, held_out: bool) -> Observed:
        """Checked data; ``held_out`` if nothing is learned from them."""
        return observed_by(emission, columns, ends, held_out)

    def _input_codes(self, inputs: Any, n: int) -> Array | None:
        """Numbers of the inputs of the next n times; None of a model without any."""
        if inputs is not None:
            raise ValueError(
                f"inputs are for a model that has some, and this {type(self).__name__} has none: leave them out"
            )
        return None

    def _named_values(self, drawn: Array) -> Array:
        """Observations as the user writes them."""
        return drawn

    def _names(self) -> Array | None:
        """What categories are called, where they have names."""
        return None

    def _row_names(self) -> tuple[RowNames | None, bool]:
        """How rows with names are read, where that takes no more than their numbers; whether rows of numbers are not enough."""
        return None, True


def checked_clocks(dates: Any, *ends: int) -> tuple[Clock | None, ...]:
    """The date and the step at the end of each sequence of rows with these dates; warn if the steps differ."""
    clocks, irregular = clocks_of(dates, np.array([0, *ends]))
    if irregular:
        warnings.warn(irregular, UserWarning, stacklevel=levels_to_the_caller())
    return clocks


@final
class StateFilter:
    """Where a sequence stands: rows in, probabilities of its state out, in constant time and memory.

    Made by ``model.filter()``. A row is an array [D] (of `CategoricalHMM` a symbol), and may be missing (NaN); several: [n, D].

    Attributes
    ----------
    states : array [K], p(x_t | y_1 … y_t); of an empty sequence those of the first row
    next_states : array [K], p(x_{t+1} | y_1 … y_t); NaN with inputs, since it depends on the next one (`forecast` takes it)
    log_prob : float, log p(y_1 … y_t), what `score` would say of all rows
    n_seen : int, t
    """

    def __init__(self, model: LiveHMM) -> None:
        emission: Any = model._model_.emission
        self._model, self._emission = model, emission
        self._initial, self._transition = (np.ascontiguousarray(part) for part in model._chain_at_mean())
        self._chain = model._model_.chain
        self._point = emission.point(own_of(emission, model._state.lam))
        self._width = model.n_features_in_
        self._simple = not isinstance(emission, Tracks)
        self._order = 0 if self._simple else emission.order
        if self._simple:
            self._columns = columns_of(emission, model._state.lam["emission"])
            self._forms = np.ascontiguousarray(emission.weights(self._point))
            self._kind, self._rows = emission.kind, PlainRows(emission, self._width)
            self._codes = None if (names := model._names()) is None else codes_of(names)
        else:
            self._tracks = [TrackRows(track, self._point) for track in emission.tracks]
            self._row_names, self._named = model._row_names()
            self._laws = TrackLaws(model)
        self.reset()

    def reset(self) -> None:
        """Forget what was seen: the next row is the first of a sequence."""
        self.states: Floats = self._model.startprob_.copy()
        self.next_states: Floats = self._model.startprob_.copy()
        self._of_chain = self._initial  # of the chain's states, where these are more
        self.log_prob, self.n_seen = 0.0, 0
        self._before: Array = np.zeros((0, self._width))  # rows that the next one still depends on
        self._start = GoingOn(self._initial, self._before)
        self._clock: Clock | None = None  # the date of the last row that was seen

    def copy(self) -> StateFilter:
        """Another filter that stands where this one does."""
        other = StateFilter(self._model)
        other.states, other.next_states = self.states.copy(), self.next_states.copy()
        other._of_chain, other.log_prob, other.n_seen = self._of_chain, self.log_prob, self.n_seen
        other._before, other._start, other._clock = self._before, self._start, self._clock
        return other

    def update(self, rows: Any) -> Floats:
        """Probabilities of the state after a row [K], or after each of several rows [n, K].

        A row whose entries have names (a dict, a row of a table) is read by them.
        """
        if (dates := dates_of(rows)) is None and self._clock is None:
            return self._updated(rows)
        if dates is not None and np.ndim(rows) == 1:
            rows = rows.to_frame()
        clock = None if dates is None else self._clock_after(dates)
        seen = self.n_seen
        states = self._updated(rows)
        self._clock = self._clock.advanced(self.n_seen - seen) if clock is None and self._clock is not None else clock
        return states

    def _clock_after(self, dates: Any) -> Clock | None:
        """The clock after rows with these dates."""
        known = dates if self._clock is None else dates.insert(0, self._clock.last)
        if self._clock is None or self._clock.step is None:
            return checked_clocks(known, len(known))[0]
        expected = self._clock.dates(len(dates))
        if not expected.equals(dates):
            place = int(np.argmax(expected != dates))
            raise ValueError(
                f"row {place} is of {dates[place]}, but the sequence goes on with {expected[place]}: update rows of NaN for "
                "dates that are missing"
            )
        return Clock(dates[-1], self._clock.step)

    def _updated(self, rows: Any) -> Floats:
        named = type(rows) is not np.ndarray and hasattr(rows, "keys") and not is_frame(rows)
        if not self._simple:
            return self._row_of_tracks(rows, named)
        if named and self._kind != TABLE:  # of symbols, several of them
            return np.asarray(self._several(named_row(rows))[0])
        if self._kind == TABLE:
            if np.ndim(rows) > 0:
                return self._several(rows)
            usual = self._code(rows)
            found = None if usual is None else self._stepped(usual, 0.0)
            return np.asarray(self._several([rows])[0]) if found is None else found
        row = np.asarray(rows)
        if row.ndim != 1 or row.dtype.kind not in "fiub":
            return self._several(rows)
        statistics, base = self._rows.statistics(row) if len(row) == self._width else (None, 0.0)
        found = None if statistics is None else self._stepped(self._forms @ statistics, base)
        return np.asarray(self._several(row[None])[0]) if found is None else found

    def forecast(self, n: int = 1, *, inputs: Any = None) -> Forecast | TrackForecast:
        """The distribution of the next ``n`` observations given what was seen, and their ``inputs`` where a model has some."""
        n = whole_number(n, "n")
        start = self._goes_on(n, inputs)._replace(dates=None if self._clock is None else self._clock.dates(n))
        if isinstance(start.first, Ahead):
            told = list(accumulate(start.first.steps, np.matmul, initial=start.first.first))
            return self._laws.forecast(np.array(told), start)
        states = np.empty((n, len(self._initial)))
        states[0] = self._ahead
        for step in range(1, len(states)):
            states[step] = states[step - 1] @ self._transition
        if self._chain is not None:  # what leaks through a forbidden transition (1e-8) shows at an offset of 1e9
            states /= states.sum(1, keepdims=True)
        if not self._simple:
            return self._laws.forecast(self._folded(states), start)
        return Forecast(states, self._model, self._columns, start)

    # -- parts --

    def _goes_on(self, n: int, inputs: Any) -> GoingOn:
        """What the next state is drawn from, and with inputs those after it."""
        codes = self._model._input_codes(inputs, n)
        if codes is None:
            return self._start if self._order else GoingOn(self._ahead)
        A = self._model.transmat_
        first = self._model.startprob_ if self.n_seen == 0 else self.states @ A[codes[0]]
        return GoingOn(Ahead(first, A[codes[1:]]), self._before)

    @property
    def _ahead(self) -> Floats:
        """Probabilities of the chain's next state."""
        return self.next_states if self._chain is None else self._of_chain

    def _folded(self, q: Floats) -> Floats:
        return q if self._chain is None else self._chain.folded(q)

    def _row_of_tracks(self, rows: Any, named: bool) -> Floats:
        """A row of several tracks at once, or as a sequence where there is something unusual in it."""
        one = named or np.ndim(rows) == (0 if self._model._one_dimensional else 1)
        if not one:
            return self._several(rows)
        row: Any = None
        if named:
            row = None if self._row_names is None else self._row_names.numbers(rows)
        elif not self._named and (given := np.asarray(rows)).dtype.kind in "fiub" and given.size == self._width:
            row = given.astype(np.float64).reshape(-1)
        logs, base = (None, 0.0) if row is None else weights_of_row(self._tracks, row, self._before)
        if logs is None or (found := self._stepped(logs, base)) is None:
            return np.asarray(self._several(named_row(rows) if named else np.asarray(rows)[None])[0])
        if self._order:
            self._remember(row[None], found[None] if self._chain is None else self._at[None])
        return found

    def _stepped(self, logs: Floats, base: float) -> Floats | None:
        """A row with weights ``logs``, without the checks that only what is unusual needs; None if no state explains it."""
        wide = logs if self._chain is None else logs[self._chain.states]
        top = wide.max()
        product = self._ahead * np.exp(wide - top)
        total = product.sum()
        if not total >= TINY:
            return None
        self._at = product / total
        ahead = self._at @ self._transition
        self.states, self.next_states, self._of_chain = self._folded(self._at), self._folded(ahead), ahead
        self.log_prob += float(np.log(total) + top) + base
        self.n_seen += 1
        return self.states

    def _code(self, symbol: Any) -> Floats | None:
        """The weights of a symbol that is a known number, or a known label; None of others."""
        if self._codes is not None:
            code = self._codes.get(symbol) if type(symbol) is str or type(symbol) is np.str_ else None
            return None if code is None else np.asarray(self._forms[:, code])
        usual = type(symbol) is int or isinstance(symbol, np.integer)
        return np.asarray(self._forms[:, symbol]) if usual and 0 <= symbol < self._emission.n_categories else None

    def _several(self, rows: Any) -> Floats:
        return self._taken(self._model._columns(rows, None, None)[0])

    def _taken(self, columns: Array) -> Floats:
        """Checked rows, in pieces."""
        ends, tracks = np.array([0, len(columns)]), not self._simple
        seen = self._seen_tracks(columns) if tracks else self._model._observe(self._emission, columns, ends, True)
        if tracks:
            own = (None, None) if self._chain is None else (self._chain.states, self._chain.inputs)
            sent = TrackWeights(self._initial, self._transition, self._emission, self._point, *own)
            weights = sent.on(Segment(seen.codes, seen.values, np.zeros(0, np.int32)))
        else:
            data = Sequences(seen.codes, seen.values, ends, seen.patterns)
            weights = weights_of(self._emission, data, self.states, self._transition, self._forms)
        out = np.empty((len(columns), len(self._initial)))
        states, ahead, log_prob = self.states, self._ahead, seen.base
        little = is_little(plain.work_of(len(columns), len(self._initial)))
        for begin in range(0, len(columns), PIECE):
            part = out[begin : begin + PIECE]
            logs = _log_weights(*weights.logs, np.arange(begin, begin + len(part))[:, None])[1][:, 0]
            run = _plain_rows if little else _filter_rows
            log_prob += run(np.ascontiguousarray(logs), ahead, self._transition, part)
            states = part[-1].copy()
            ahead = states @ self._transition
        if not np.isfinite(log_prob):
            raise ValueError(
                "these rows are impossible for every state that can be reached: the filter stays where it was"
            )
        self.states, self.next_states, self._of_chain = self._folded(states), self._folded(ahead), ahead
        if self._chain is not None and self._chain.inputs is not None:
            self.next_states = np.full(len(self.states), np.nan)
        self.log_prob += float(log_prob)
        self.n_seen += len(columns)
        if self._order:
            self._remember(columns, out)
        return self._folded(out)

    def _remember(self, columns: Array, states: Floats) -> None:
        """The last rows, which autoregressions read, and those of the chain's states."""
        self._start = after_rows(self._start, self._before, columns, states, self._transition, self._order)
        kept = np.vstack([self._before, columns])
        self._before = kept[len(kept) - min(self._order, len(kept)) :]

    def _seen_tracks(self, columns: Array) -> Observed:
        """Rows that know those before them."""
        n, before = len(self._before), self._before
        observe = partial(self._model._observe, self._emission, held_out=True)
        seen: Observed = observe(np.vstack([before, columns]), np.array([0, n + len(columns)]))
        known = observe(before, np.array([0, n])).base if n else 0.0
        return seen._replace(values=seen.values[n:], base=seen.base - known)
