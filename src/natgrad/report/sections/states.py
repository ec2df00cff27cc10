"""The page of a hidden Markov model: transitions, emissions, and the path of states with a zoom."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.dates import date_texts, dates_of
from natgrad.data.frames import column_names
from natgrad.report.charts.heatmap import heat_table, means_table, values_table
from natgrad.report.charts.svg import picture, thinned
from natgrad.report.format import count, percent, short
from natgrad.report.html import Html, join, json_block, table, tag
from natgrad.report.sections.contribution import Fact, Section, Subject, level_note

__all__ = ["facts", "sections"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Of a long path the page keeps so many stretches and points; shorter stretches than a pixel of the whole are left out.
MOST_STRETCHES, MOST_POINTS, MOST_INPUTS = 6000, 3000, 12
STRIP = (900.0, 120.0)
BUTTONS = (
    ("in", "+", "Zoom in"),
    ("out", "−", "Zoom out"),
    ("back", "←", "Earlier"),
    ("on", "→", "Later"),
    ("all", "All", "All of the path"),
)


class Path(NamedTuple):
    """The likeliest states [T], the first column of the data, where sequences end, and the dates of the rows or None."""

    states: Ints
    values: Floats
    ends: Ints
    dates: Any


def facts(subject: Subject) -> list[Fact]:
    """How much was read, and how well other sequences are predicted."""
    model = subject.model
    facts_shown = [
        Fact("times", count(getattr(model, "n_times_seen_", 0))),
        Fact("states", count(len(model.startprob_))),
        Fact("columns", count(model.n_features_in_)),
        Fact("seed", str(model.seed)),
    ]
    if subject.held_out is not None:
        X, lengths = _parts(subject.held_out)
        score = model.score(X, lengths) / len(X)
        facts_shown.append(Fact("held-out", f"{short(score)} nats a time"))
    return facts_shown


def sections(subject: Subject) -> list[Section]:
    """States, emissions and, with data, the path."""
    model = subject.model
    path = _path(subject)
    shown = [
        Section("states", "States", _states(model, path)),
        Section("emissions", "Emissions", _emissions(model)),
    ]
    if path is not None:
        shown.append(Section("path", "The path of states", _path_section(path, len(model.startprob_)), "path.js"))
    return shown


def _parts(data: Any) -> tuple[Any, Any]:
    """Data are an array, or a pair of an array and the lengths of its sequences."""
    X, lengths = data if isinstance(data, tuple) and len(data) == 2 else (data, None)
    if dates_of(X) is not None and column_names(X) is None:
        X = X.to_frame()
    if column_names(X) is not None:
        return X, lengths
    array = np.asarray(X)
    return (array[:, None] if array.ndim == 1 else array), lengths


def _path(subject: Subject) -> Path | None:
    if subject.data is None:
        return None
    X, lengths = _parts(subject.data)
    states = np.asarray(subject.model.predict(X, lengths), dtype=np.int64)
    ends = np.array([len(states)]) if lengths is None else np.cumsum(lengths)
    return Path(states, _first_numbers(X), ends.astype(np.int64), dates_of(X))


def _first_numbers(X: Any) -> Floats:
    """The first column that holds numbers; zeros if there is none."""
    if isinstance(X, np.ndarray) and X.dtype.names is None:
        return np.asarray(X[:, 0], np.float64) if X.dtype.kind in "biuf" else np.zeros(len(X))
    for name in X.dtype.names if isinstance(X, np.ndarray) else X.columns:
        column = np.asarray(X[name])
        if column.dtype.kind in "biuf":
            return column.astype(np.float64)
    return np.zeros(len(X))


# -- states --


def _states(model: Any, path: Path | None) -> Html:
    A = np.asarray(model.transmat_)
    if A.ndim == 3:
        return _with_inputs(model, A)
    K = len(A)
    names = [f"state {k}" for k in range(K)]
    texts = [[percent(float(value)) for value in row] for row in A]
    matrix = heat_table(A, names, names, caption="Transitions: from the row to the column, means", texts=texts, scale=A)
    share = _stationary(A) if path is None else np.bincount(path.states, minlength=K) / len(path.states)
    lasting_times = model.mean_durations_
    low, high = model.posterior_["transition"].interval(0.9)
    rows = [
        [name, percent(float(share[k])), short(float(lasting_times[k]), 3), percent(float(A[k, k])),
         f"{percent(float(low[k, k]))} to {percent(float(high[k, k]))}"]
        for k, name in enumerate(names)
    ]  # fmt: skip
    what = "part of the time in the long run" if path is None else "part of the times"
    head = ("state", what, "expected stay", "stays", "90 % interval")
    lasting = table(head, rows, caption="How long states last", numeric=(1, 2, 3, 4))
    return join([lasting, level_note("q of a model"), matrix])


def _with_inputs(model: Any, A: Floats) -> Html:
    """The transitions of every input."""
    names = [f"state {k}" for k in range(A.shape[1])]
    tables = []
    for place, own in list(zip(model.inputs_.tolist(), A, strict=True))[:MOST_INPUTS]:
        texts = [[percent(float(value)) for value in row] for row in own]
        caption = f"Transitions with the input {place}: from the row to the column, means"
        tables.append(heat_table(own, names, names, caption=caption, texts=texts, scale=own))
    return join([level_note("q of a model"), *tables])


def _stationary(A: Floats) -> Floats:
    """The left eigenvector of the transitions for 1, as shares."""
    values, vectors = np.linalg.eig(A.T)
    shares = np.abs(np.real(vectors[:, np.argmin(np.abs(values - 1.0))]))
    return np.asarray(shares / shares.sum())


# -- emissions --


def _emissions(model: Any) -> Html:
    """What each state emits: means with standard deviations, probabilities or rates."""
    K = len(model.startprob_)
    names = [f"state {k}" for k in range(K)]
    if hasattr(model, "means_"):
        sd = np.asarray(model.deviations_)
        words = "Means ± standard deviations of the observations in each state"
        return means_table(np.asarray(model.means_), sd, names, words)
    for attribute, words in (
        ("emissionprob_", "Probabilities of the symbols in each state"),
        ("rates_", "Expected counts in each state"),
        ("probs_", "Probability that a track is on, in each state"),
    ):
        if hasattr(model, attribute):
            return values_table(np.asarray(getattr(model, attribute)), names, words)
    named = model.emission_parameters()
    each = named if isinstance(next(iter(named.values())), dict) else {"emission": named}
    return join([_parameters(track, parts, names) for track, parts in each.items()])


def _parameters(track: str, parts: dict[str, Any], names: list[str]) -> Html:
    """Tables of what one track emits; of mixtures a row for each component."""
    shown = []
    for what, values in parts.items():
        array = np.asarray(values, np.float64)
        if what == "covariances" and array.ndim > 2 and array.shape[-1] == array.shape[-2]:
            what, array = "standard deviations", np.sqrt(np.diagonal(array, axis1=-2, axis2=-1))
        rows = array.reshape(len(array), -1) if len(array) == len(names) else array.reshape(1, -1)
        own = names if len(array) == len(names) else ["all states"]
        shown.append(values_table(rows, own, f"{track}: {what} in each state"))
    return join(shown)


# -- the path --


def _path_section(path: Path, K: int) -> Html:
    starts = np.flatnonzero(np.diff(path.states, prepend=-1))
    lengths = np.diff(np.append(starts, len(path.states)))
    if len(starts) > MOST_STRETCHES:
        # The longest ones, in order: the rest would be thinner than a line.
        keep = np.sort(np.argsort(-lengths, kind="stable")[:MOST_STRETCHES])
        starts, lengths = starts[keep], lengths[keep]
    at, values = thinned(np.arange(len(path.values), dtype=np.float64), path.values, MOST_POINTS)
    payload = {
        "times": len(path.states),
        "states": K,
        "stretches": [[int(s), int(n), int(path.states[s])] for s, n in zip(starts, lengths, strict=True)],
        "values": [[int(t), float(f"{v:.4g}")] for t, v in zip(at, values, strict=True) if np.isfinite(v)],
        "ends": path.ends[:-1].tolist()[:1000],
    }
    if path.dates is not None:  # of rows that are evenly spread; the script shows the last one before
        chosen = np.unique(np.linspace(0, len(path.dates) - 1, MOST_POINTS).astype(np.int64))
        payload["dates"] = list(zip(chosen.tolist(), date_texts(path.dates[chosen]), strict=True))
    buttons = [tag("button", text, type="button", id=f"path-{key}", aria_label=label) for key, text, label in BUTTONS]
    legend = [
        tag("li", tag("span", class_="patch", style=_colour(k, K), aria_hidden="true"), f"state {k}") for k in range(K)
    ]
    strip = tag("div", _strip(path, starts, lengths, K), id="path-strip", tabindex="0", role="application",
                aria_label="The path of states. Plus and minus zoom, arrows move, 0 shows all.")  # fmt: skip
    return join(
        [
            tag(
                "p",
                "The likeliest path of states, above it the first column of the data. + and − zoom.",
            ),
            tag("div", buttons, tag("span", id="path-range", class_="note", aria_live="polite"), class_="controls"),
            tag("ul", legend, class_="legend"),
            strip,
            json_block("path-data", payload),
        ]
    )


def _strip(path: Path, starts: Ints, lengths: Ints, K: int) -> Html:
    """The whole path, for a page without a script."""
    width, height = STRIP
    scale = width / len(path.states)
    bars = []
    for start, length in zip(starts[:1500], lengths[:1500], strict=True):
        place = {"x": f"{start * scale:.2f}", "y": f"{height - 26:.0f}", "width": f"{max(length * scale, 0.3):.2f}"}
        bars.append(tag("rect", **place, height=26, style=_colour(int(path.states[start]), K)))
    share = ", ".join(f"state {k}: {percent(float(np.mean(path.states == k)))}" for k in range(K))
    return picture(width, height, bars, title="The path of states", description=share)


def _colour(k: int, K: int) -> str:
    """States are far apart on the colour wheel; the numbers say the same for those who do not see colours."""
    return f"--hue:{(k * 360 // max(K, 1) + 205) % 360}"
