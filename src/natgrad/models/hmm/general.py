"""`HMM`: a hidden Markov model whose states emit whatever is declared, several kinds of columns at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from natgrad.data.frames import frame_columns, is_frame, table_names
from natgrad.data.sequences import as_columns
from natgrad.models.hmm.estimator import HiddenMarkov
from natgrad.models.hmm.expansions import Chain, InputChain, coded
from natgrad.models.hmm.kinds import (
    Categorical,
    EmissionKind,
    Gaussian,
    as_categories,
    categories_in,
    declared_emissions,
    encoded,
    flat_labels,
    holds_labels,
)
from natgrad.models.hmm.row_weights import RowNames
from natgrad.models.hmm.tracks import Tracks
from natgrad.validation import as_numbers

if TYPE_CHECKING:
    from natgrad.models.hmm.emissions import Emission

__all__ = ["HMM"]

Array = npt.NDArray[Any]


@final
@dataclass(repr=False, eq=False)
class HMM(HiddenMarkov):
    """A hidden Markov model of any emissions: one kind for all columns, or a kind for each column.

    Parameters
    ----------
    n_states : int or "auto"
        The number of hidden states, K; "auto" finds it.
    emissions : a kind of `natgrad.models.hmm`, or {column: kind}
        `Gaussian`, `StudentT`, `Poisson`, `Bernoulli`, `Categorical`, or a `Mixture` of one; by default ``Gaussian()``. Keys are
        the names of columns of a table, or numbers of columns of an array; a tuple of them is one vector. Given the state, what
        different keys emit is independent.
    transitions : `Transitions`, optional
        The prior of transitions, the durations of states (``Transitions(durations=Explicit(12))``), and the column that decides
        where they lead (``Transitions(inputs="day")``).
    Further settings are those of every hidden Markov model, see `HiddenMarkov`.

    Attributes
    ----------
    posterior_ : {"initial", "transition", …}, a Factor each: of a single kind "emission", of several the names of their columns
        (numbers as "column0", tuples joined by "_"); of a mixture the weights besides, such as "emission_weights"
    mean_durations_ : array [K], how long states last
    categories_ : {track: labels}, of tracks whose columns hold labels
    inputs_ : array [C], the categories of the inputs; transmat_ is then [C, K, K]

    Examples
    --------
    >>> import numpy as np
    >>> from natgrad.models import hmm
    >>> rng = np.random.default_rng(0)
    >>> states = np.repeat([0, 1, 0, 1], 50)
    >>> X = np.column_stack(
    ...     [rng.normal(3.0 * states), rng.poisson(1 + 8 * states), rng.random(200) < 0.2 + 0.6 * states]
    ... )
    >>> kinds = {0: hmm.Gaussian(), 1: hmm.Poisson(), 2: hmm.Bernoulli()}
    >>> model = hmm.HMM(n_states=2, emissions=kinds, seed=0).fit(X)
    >>> sorted(model.emission_parameters()["column1"]["rates"].ravel().round().tolist())
    [1.0, 9.0]
    """

    _: KW_ONLY
    emissions: Any = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        kind = self.emissions if isinstance(self.emissions, EmissionKind) else Gaussian()
        tags.input_tags.allow_nan = getattr(kind.inner, "covariance", "diag") in ("diag", "spherical")
        return tags

    def _emission(self, X: Array) -> Emission:
        X = X if self._transitions.inputs is None else X[:, :-1]
        named = declared_emissions(self.emissions, X.shape[1])
        alone = self._transitions.durations is None and self._transitions.inputs is None
        if not isinstance(self.emissions, Mapping) and named[0][2].plain and alone:
            made: Emission = named[0][2].emission(X, self._places, self.categories_.get("emission"))
            return made
        tracks = [
            kind.track(name, columns, X[:, list(columns)], self._places, self.categories_.get(name))
            for name, columns, kind in named
        ]
        return Tracks(self._places, tracks)  # type: ignore[return-value]

    def _chain(self, n_states: int) -> Chain | InputChain | None:
        durations, inputs = self._transitions.durations, self._transitions.inputs
        if inputs is not None:
            if self._finds_number:
                raise ValueError('inputs decide where states lead to at every time: they exclude n_states="auto"')
            return InputChain(n_states, len(self.inputs_))
        if durations is None:
            return None
        if self._finds_number or n_states == 1:
            what = self._finds_number or "n_states=1"
            raise ValueError(f"durations say how long states last before another one comes: they exclude {what}")
        return Chain(durations, n_states)

    def _name(self, emission: Any, lam: Any) -> None:
        if not hasattr(self, "categories_"):
            self.categories_: dict[str, Array] = {}

    @property
    def _one_dimensional(self) -> bool:
        return isinstance(getattr(self.emissions, "inner", None), Categorical)

    # -- tables and labels --

    @property
    def _found_by_name(self) -> bool:
        return _named_keys(self.emissions) is not None

    def _as_arrays(self, X: Any, fresh: bool) -> Any:
        several = isinstance(X, (list, tuple)) and len(X) > 0 and all(_is_sequence(part) for part in X)
        parts = list(X) if several else [X]
        if fresh:
            self.categories_ = {}
        if self._transitions.inputs is not None:
            parts = self._with_inputs(parts, fresh)
        elif all(is_frame(part) or table_names(part) is not None for part in parts):
            tables = [frame_columns(part) or {} for part in parts]
            parts = self._as_numbers([_chosen(table, self.emissions) for table in tables], fresh)
        elif self._found_by_name and isinstance(X, (str, Path)):
            parts = [as_columns(X, columns=_named_keys(self.emissions))]
        elif self._one_dimensional and holds_labels(X):
            parts = self._as_numbers([[flat_labels(part)] for part in parts], fresh)
        elif isinstance(self.emissions, Mapping) and isinstance(X, np.ndarray) and X.dtype.kind == "O" and X.ndim == 2:
            parts = self._as_numbers([[X[:, d] for d in range(X.shape[1])]], fresh)
        return parts if several else parts[0]

    def _with_inputs(self, parts: list[Any], fresh: bool) -> list[Array]:
        """Arrays of the observed columns, the code of the input last."""
        pairs = [_without(part, self._transitions.inputs, self.emissions) for part in parts]
        own = np.concatenate([np.asarray(column, dtype=object) for _, column in pairs])
        codes, self.inputs_ = coded(
            own, None if fresh else self.inputs_, f"inputs (column {self._transitions.inputs!r})"
        )
        tables = self._as_numbers([columns for columns, _ in pairs], fresh)
        ends = np.cumsum([len(table) for table in tables])[:-1]
        return [np.column_stack(both) for both in zip(tables, np.split(codes, ends), strict=True)]

    def _observe(self, emission: Any, columns: Array, ends: Array, held_out: bool) -> Any:
        if self._transitions.inputs is None:
            return super()._observe(emission, columns, ends, held_out)
        seen = super()._observe(emission, columns[:, :-1], ends, held_out)
        return seen._replace(values=np.column_stack([seen.values, columns[:, -1]]))

    def _input_codes(self, inputs: Any, n: int) -> Array | None:
        if self._transitions.inputs is None:
            return super()._input_codes(inputs, n)
        if inputs is None or len(inputs) != n:
            given = "none" if inputs is None else len(inputs)
            raise ValueError(
                f"inputs must say what comes at each of {n} times, got {given}: the transitions depend on it"
            )
        return coded(inputs, self.inputs_, "inputs")[0].astype(np.int64)

    def _as_numbers(self, tables: list[list[Any]], fresh: bool) -> list[Array]:
        """Tables, each a list of columns, as arrays; labels get numbers."""
        width = len(tables[0])
        kinds = {columns: (name, kind) for name, columns, kind in declared_emissions(self.emissions, width)}
        out = [np.empty((len(table[0]), width)) for table in tables]
        for d in range(width):
            name, kind = kinds.get((d,), ("", None))
            own = [np.asarray(table[d]) for table in tables]
            if isinstance(getattr(kind, "inner", None), Categorical):
                given = kind.inner.labels  # type: ignore[union-attr]
                if fresh and (given is not None or any(holds_labels(part) for part in own)):
                    labels = categories_in(np.concatenate(own)) if given is None else as_categories(given)
                    self.categories_[name] = labels
                if name in self.categories_:
                    own = [encoded(part, self.categories_[name])[:, 0] for part in own]
            for table, part in zip(out, own, strict=True):
                try:
                    table[:, d] = as_numbers(part, "X", missing=True) if part.dtype.kind == "O" else part
                except (TypeError, ValueError):
                    raise TypeError(
                        f"column {d} of X must hold numbers, got {part.dtype}: labels need Categorical()"
                    ) from None
        return out

    def _named_values(self, drawn: Array) -> Array:
        if not self.categories_:
            return drawn
        named = drawn.astype(object)
        for name, columns, _ in declared_emissions(self.emissions, drawn.shape[1]):
            if name in self.categories_:
                named[:, columns[0]] = self.categories_[name][drawn[:, columns[0]].astype(np.int64)]
        return named

    def _names(self) -> Array | None:
        return self.categories_.get("emission")

    def _row_names(self) -> tuple[RowNames | None, bool]:
        if self._transitions.inputs is not None:
            return None, True
        keys = _named_keys(self.emissions)
        if keys is None:
            return None, bool(self.categories_)
        labels: list[Array | None] = [None] * len(keys)
        for name, columns, _ in declared_emissions(self.emissions, len(keys)):
            labels[columns[0]] = self.categories_.get(name)
        return RowNames(keys, labels), bool(self.categories_)


def _without(X: Any, inputs: Any, emissions: Any) -> tuple[list[Any], Any]:
    """The columns that are observed, and the one that is the input."""
    if (table := frame_columns(X)) is not None:
        table = {str(name): column for name, column in table.items()}
        if str(inputs) not in table:
            raise ValueError(f"inputs must name a column of X, got {inputs!r}; X has {list(table)}")
        column = table.pop(str(inputs))
        return _chosen(table, emissions), column
    rows = np.asarray(X)
    if rows.ndim != 2 or not isinstance(inputs, (int, np.integer)) or not 0 <= inputs < rows.shape[1]:
        raise ValueError(
            f"inputs={inputs!r} must be the number of a column of X, or its name in a table; X is of shape {rows.shape}"
        )
    return [rows[:, d] for d in range(rows.shape[1]) if d != inputs], rows[:, inputs]


def _is_sequence(X: Any) -> bool:
    """Whether one of several is rows of columns, not a row."""
    return getattr(X, "ndim", 0) == 2 or is_frame(X) or table_names(X) is not None


def _named_keys(emissions: Any) -> list[str] | None:
    """The names of columns that emissions reads, in order; None where it names none."""
    given = emissions if isinstance(emissions, Mapping) else {}
    keys = [part for key in given for part in (key if isinstance(key, tuple) else (key,))]
    return keys if keys and all(isinstance(key, str) for key in keys) else None


def _chosen(table: Mapping[str, Any], emissions: Any) -> list[Any]:
    """The columns of a table that emissions name, in that order; all of them where it names none."""
    keys = _named_keys(emissions) or list(table)
    if unknown := [key for key in keys if key not in table]:
        raise ValueError(f"emissions names the column {unknown[0]!r}, but X has {list(table)}")
    return [np.asarray(table[key]) for key in keys]
