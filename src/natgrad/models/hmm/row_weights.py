"""One row in; its log weights of the states out, in microseconds: what a filter needs for rows that come alone.

Only rows without anything unusual are read here: numbers that are there, labels that are known. Of others nothing is said (None),
and the caller takes the way of whole sequences, which checks everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np
import numpy.typing as npt
import scipy.special as sp

from natgrad.kernels.hmm.emissions import BY_COLUMN, TABLE
from natgrad.models.hmm.autoregression import Autoregressions
from natgrad.models.hmm.tracks import LOG, Track

__all__ = ["PlainRows", "RowNames", "TrackRows", "codes_of", "weights_of_row"]

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]


@final
class PlainRows:
    """Rows of a plain emission of D columns."""

    def __init__(self, emission: Any, width: int) -> None:
        self.width, self.kind, self.family = width, emission.kind, emission.family.name
        self.pairs = np.triu_indices(width)
        origin: Any = emission.origin
        self.origin = None
        if origin is not None:
            self.origin = np.asarray(emission.family.location(origin)).reshape(-1, width)[0]

    def statistics(self, row: Array) -> tuple[Floats | None, float]:
        """Those of a row that has no missing entry, and its base measure; None of others."""
        x, base = row.astype(np.float64), 0.0
        if self.origin is not None:
            x -= self.origin
        if self.family == "Gamma":
            if not ((x >= 0) & (x == np.floor(x))).all():
                return None, 0.0
            base = -float(sp.gammaln(x + 1.0).sum())
        elif self.family == "Beta":
            if not ((x == 0) | (x == 1)).all():
                return None, 0.0
        elif not np.isfinite(x).all():
            return None, 0.0
        if self.kind == BY_COLUMN:
            out = np.ones((self.width, 3))
            out[:, 1] = x
            np.multiply(x, x, out=out[:, 2])
            return out.reshape(-1), base
        return np.concatenate(([1.0], x, x[self.pairs[0]] * x[self.pairs[1]])), base


@final
class TrackRows:
    """Rows of a track, given the moments of a point mass: the same numbers as `Track.weighed` has, for one time."""

    def __init__(self, track: Track, mu: Mapping[str, Any]) -> None:
        moments, emission = track.together(mu[track.name]), track.emission
        self.columns, self.order, self.dof = list(track.columns), track.order, track.dof
        self.n_codes = emission.n_categories if emission.kind == TABLE else 0
        self.forms = np.ascontiguousarray(emission.weights(moments))
        self.plain = None if self.n_codes else PlainRows(emission, track.n_values)
        self.centre = np.tile(emission.centre, 1 + track.order) if isinstance(emission, Autoregressions) else None
        self.weights = None if track.n_components == 1 else np.asarray(mu[track.weights_name][0])
        if track.dof is not None:
            self.constant = emission.weights((*(np.zeros_like(part) for part in moments[:LOG]), moments[LOG]))
            seen = emission.n_outputs if isinstance(emission, Autoregressions) else emission.n_columns
            half = 0.5 * track.dof
            self.shape = half + 0.5 * seen
            self.rest = float(sp.gammaln(self.shape) - sp.gammaln(half) - (self.shape - half) * np.log(half))

    def logs(self, row: Floats, before: Floats) -> tuple[Floats | None, float]:
        """Log weights [K] of a row with these rows before it, and its base measure; None of an unusual one."""
        own = row[self.columns]
        if self.plain is None:
            code = own[0]
            if not (code == np.floor(code) and 0 <= code < self.n_codes):
                return None, 0.0
            return self._mixed(self.forms[:, int(code)]), 0.0
        if self.order:
            if len(before) < self.order:
                return None, 0.0
            lags = before[len(before) - self.order :][::-1, self.columns]
            own = np.concatenate([own, lags.ravel()]) - self.centre
        statistics, base = self.plain.statistics(own)
        if statistics is None:
            return None, 0.0
        logs = self.forms @ statistics
        if self.dof is not None:
            constant = self.constant @ statistics
            square = np.maximum((2.0 / self.dof) * (constant - logs), 0.0)
            logs = constant + self.rest - self.shape * np.log1p(square)
        return self._mixed(logs), base

    def _mixed(self, logs: Floats) -> Floats:
        if self.weights is None:
            return logs
        joint = logs.reshape(self.weights.shape) + self.weights
        top = joint.max(1)
        return np.asarray(top + np.log(np.exp(joint - top[:, None]).sum(1)))


@final
class RowNames:
    """Rows {name: entry} as numbers: columns in the order of the model, labels by their codes."""

    def __init__(self, names: list[str], categories: list[Array | None]) -> None:
        self.names, self.codes = names, [None if own is None else codes_of(own) for own in categories]

    def numbers(self, row: Any) -> Floats | None:
        """A row of numbers; None where something is missing, unknown, or no number."""
        out = np.empty(len(self.names))
        for place, (name, codes) in enumerate(zip(self.names, self.codes, strict=True)):
            value = row.get(name)
            if codes is not None:
                value = codes.get(value) if isinstance(value, str) else None
            if not isinstance(value, (int, float, np.integer, np.floating, np.bool_)):
                return None
            out[place] = value
        return out


def weights_of_row(tracks: list[TrackRows], row: Floats, before: Floats) -> tuple[Floats | None, float]:
    """Log weights [K] of all tracks together, and base measures; None if there is something unusual in one."""
    total, base = np.zeros(()), 0.0
    for track in tracks:
        own, measure = track.logs(row, before)
        if own is None:
            return None, 0.0
        total, base = total + own, base + measure
    return total, base


def codes_of(categories: Array) -> dict[Any, int]:
    """Numbers of labels."""
    return {label: code for code, label in enumerate(categories.tolist())}
