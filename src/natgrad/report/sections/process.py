"""The page of a Gaussian process: the function, residuals, calibration, and which inputs matter."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.dates import date_texts, from_days
from natgrad.models.gp.state_space import as_times
from natgrad.report.charts.calibration import Judged, coverage, reliability, verdict
from natgrad.report.charts.svg import Axis, Line, bar_chart, line_chart
from natgrad.report.format import count, short
from natgrad.report.html import Html, join, table, tag
from natgrad.report.sections.contribution import Fact, Section, Subject

__all__ = ["facts", "sections"]

Floats = npt.NDArray[np.float64]
MOST_JUDGED, MOST_DOTS, GRID = 20_000, 1500, 200


class Rows(NamedTuple):
    """Inputs, what was observed, and whether the rows were not fitted."""

    X: Floats
    y: npt.NDArray[Any]
    fresh: bool


def facts(subject: Subject) -> list[Fact]:
    """How much was read, what was learned, and how well other rows are predicted."""
    model = subject.model
    facts_shown = [
        Fact("rows", count(model.n_rows_seen_)),
        Fact("inputs", count(model.n_features_in_)),
        *([Fact("inducing inputs", count(len(model.inducing_)))] if hasattr(model, "inducing_") else []),
        Fact("kernel", repr(model.kernel_)),
        Fact("seed", str(model.seed)),
    ]
    if subject.held_out is not None:
        X, y = subject.held_out
        if np.ndim(y) == 1 or not np.isnan(np.asarray(y, dtype=np.float64)).any():  # R² is of whole rows
            facts_shown.append(Fact("held-out score", short(float(model.score(X, y)))))
    return facts_shown


def sections(subject: Subject) -> list[Section]:
    """With rows: the fit and its calibration. Always: the inputs that matter."""
    rows = _rows(subject)
    shown = []
    if rows is not None:
        if hasattr(subject.model, "classes_"):
            shown.append(Section("classes", "Classes", _classes(subject.model, rows)))
        elif rows.y.ndim == 1:
            judged = _judged(subject.model, rows)
            shown.append(Section("fit", "The fit", _fit(subject.model, rows, judged)))
            figures = tag("div", coverage(judged), class_="charts")
            shown.append(Section("calibration", "Calibration", join([verdict(judged), figures])))
    if len(getattr(subject.model, "output_correlation_", ())) > 1:
        shown.append(Section("outputs", "Outputs", _outputs(subject.model, rows)))
    shown.append(Section("inputs", "Inputs", _inputs(subject.model)))
    return shown


def _rows(subject: Subject) -> Rows | None:
    given = subject.data if subject.held_out is None else subject.held_out
    if given is None:
        return None
    if not (isinstance(given, tuple) and len(given) == 2):
        raise TypeError(f"data of a Gaussian process must be a pair (X, y), got {type(given).__name__}")
    X, y = np.asarray(as_times(given[0]), dtype=np.float64), np.asarray(given[1])
    if len(X) > MOST_JUDGED:
        chosen = np.sort(np.random.default_rng(0).choice(len(X), MOST_JUDGED, replace=False))
        X, y = X[chosen], y[chosen]
    return Rows(X, y, subject.held_out is not None)


def _judged(model: Any, rows: Rows) -> Judged:
    mean, sd = model.predict(rows.X, return_std=True)
    return Judged(rows.y.astype(np.float64), mean, sd, "rows", rows.fresh)


# -- regression --


def _fit(model: Any, rows: Rows, judged: Judged) -> Html:
    few = np.linspace(0, len(rows.X) - 1, min(MOST_DOTS, len(rows.X))).round().astype(int)
    error = judged.values - judged.mean
    charts = [_curve(model, rows, few)] if rows.X.shape[1] == 1 else [_against(judged, few)]
    level = Line(np.array([judged.mean.min(), judged.mean.max()]), np.zeros(2), kind="guide")
    size = short(float(np.sqrt(np.mean(error**2))))
    charts.append(
        line_chart(
            [Line(judged.mean[few], error[few], kind="dots"), level], Axis("predicted"), Axis("observed − predicted"),
            title="Residuals", description=f"Root mean square {size}.",
        )
    )  # fmt: skip
    spread = 1.0 - float(np.var(error) / np.var(judged.values)) if np.var(judged.values) > 0 else float("nan")
    words = f"Of {judged.whose}, {spread:.1%} of the variance is explained; the root mean square error is "
    figures = [tag("figure", chart) for chart in charts]
    return join([tag("p", words + f"{size}."), tag("div", figures, class_="charts")])


def _curve(model: Any, rows: Rows, few: npt.NDArray[np.int64]) -> Html:
    """One input: the function itself, with its interval."""
    grid = np.linspace(rows.X.min(), rows.X.max(), GRID)
    mean, sd = model.predict(grid[:, None], return_std=True)
    lines = [
        Line(rows.X[few, 0], rows.y[few].astype(np.float64), kind="dots"),
        Line(grid, mean, "mean"),
        Line(grid, mean - 1.645 * sd, "90 % interval", "second"),
        Line(grid, mean + 1.645 * sd, kind="second"),
    ]
    axis = Axis(_input_name(model, 0), dates=getattr(model, "_dated", False))
    ends = date_texts(from_days(grid[[0, -1]])) if axis.dates else [short(float(x)) for x in grid[[0, -1]]]
    words = f"Over {ends[0]} to {ends[1]}, with {len(few)} of the rows."
    return line_chart(lines, axis, Axis("output"), title="The function and its rows", description=words)


def _against(judged: Judged, few: npt.NDArray[np.int64]) -> Html:
    ends = np.array([min(judged.mean.min(), judged.values.min()), max(judged.mean.max(), judged.values.max())])
    return line_chart(
        [Line(judged.mean[few], judged.values[few], kind="dots"), Line(ends, ends, kind="guide")],
        Axis("predicted"), Axis("observed"), title="Observed against predicted", description=f"{len(few)} of {judged.whose}.",
    )  # fmt: skip


def _outputs(model: Any, rows: Rows | None) -> Html:
    """How outputs go together, and with rows how well each of them is predicted where it is seen."""
    correlation = model.output_correlation_
    names = [f"output {p}" for p in range(len(correlation))]
    numbers = [[name, *(short(float(c), 3) for c in row)] for name, row in zip(names, correlation, strict=True)]
    parts = [table(("", *names), numbers, caption="Correlations of the functions", numeric=range(1, len(names) + 1))]
    if rows is not None and rows.y.ndim == 2:
        y = rows.y.astype(np.float64)
        mean, sd = model.predict(rows.X, return_std=True)
        low, high = model.interval(rows.X, 0.9)
        cells = []
        for p, name in enumerate(names):
            seen = ~np.isnan(y[:, p])
            error = np.sqrt(np.mean((y - mean)[seen, p] ** 2)) if seen.any() else np.nan
            inside = np.mean(((y > low) & (y < high))[seen, p]) if seen.any() else np.nan
            cells.append(
                [name, count(int(seen.sum())), short(float(error)), short(float(sd[:, p].mean())), f"{inside:.1%}"]
            )
        heads = ("", "seen", "root mean square error", "predicted sd", "within 90 % intervals")
        whose = "held-out rows" if rows.fresh else "the rows of the fit"
        parts.append(table(heads, cells, caption=f"Predictions of {whose}", numeric=range(1, 5)))
    return join(parts)


# -- classification --


def _classes(model: Any, rows: Rows) -> Html:
    probability = model.predict_proba(rows.X)
    said = model.classes_[probability.argmax(1)]
    names = [str(name) for name in model.classes_]
    cells = [
        [count(int(np.sum((rows.y == real) & (said == other)))) for other in model.classes_] for real in model.classes_
    ]
    whose = "held-out rows" if rows.fresh else "the rows of the fit"
    confusion = table(
        ("observed", *(f"predicted {name}" for name in names)), [[name, *row] for name, row in zip(names, cells, strict=True)],
        caption=f"Classes of {whose}: {np.mean(said == rows.y):.1%} right", numeric=range(1, len(names) + 1),
    )  # fmt: skip
    shown = range(1, 2) if len(names) == 2 else range(len(names))
    figures = []
    for k in shown[:4]:
        seen = (rows.y == model.classes_[k]).astype(np.float64)
        judged = Judged(seen, probability[:, k], np.ones(len(seen)), "rows", rows.fresh)
        figures.append(reliability(judged, f"share of {names[k]}"))
    return join([confusion, tag("div", figures, class_="charts")])


# -- inputs --


def _input_name(model: Any, column: int) -> str:
    """The name of a column of a table, or its number."""
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        return str(names[column])
    return "input" if model.n_features_in_ == 1 else f"input {column}"


def _inputs(model: Any) -> Html:
    """The kernel's parameters, and 1/ℓ of each input where each has a length scale of its own."""
    parameters = {name: np.atleast_1d(np.asarray(value)) for name, value in model.kernel_.parameters.items()}
    parts = []
    inside = getattr(model, "_kernel", model.kernel_).parameters  # of standardised inputs, whose lengths compare
    for name, value in parameters.items():
        if "lengthscale" in name and len(value) > 1:
            relevance = 1.0 / np.asarray(inside[name])
            chart = bar_chart(
                relevance, Axis("input"), Axis("1 / length scale", low=0.0), title=f"Relevance of the inputs ({name})",
                description=", ".join(f"{_input_name(model, d)} {short(float(r), 3)}" for d, r in enumerate(relevance[:20])),
                edges=np.arange(len(relevance) + 1, dtype=np.float64) - 0.5,
            )  # fmt: skip
            words = (
                "In units of the standardised inputs: an input that does not matter has a long scale, and a low bar."
            )
            parts.append(tag("div", tag("figure", chart, tag("figcaption", words)), class_="charts"))
    rows = [
        [name, tag("code", ", ".join(short(float(v), 4) for v in value[:20]))] for name, value in parameters.items()
    ]
    return join([parts, table(("parameter", "learned value"), rows, caption="The kernel")])
