"""Ratings in time and context: a fitted model in; its factors, its calibration, what drifted and what contexts change, out."""

from __future__ import annotations

import numpy as np

from natgrad.recommenders.columns import Columns
from natgrad.recommenders.context import ContextFactorization
from natgrad.report.charts.calibration import Judged, coverage, verdict
from natgrad.report.charts.svg import Axis, Line, line_chart
from natgrad.report.format import count, short
from natgrad.report.html import Html, join, table, tag
from natgrad.report.sections.contribution import Fact, Section, Subject
from natgrad.report.sections.factorization import factor_sizes, some_judged

__all__ = ["facts", "sections"]

MOST_LINES, MOST_ROWS = 6, 40


def facts(subject: Subject) -> list[Fact]:
    """How many there are of each; the score on held-out ratings."""
    model: ContextFactorization = subject.model
    edges, contexts = model.time_edges_, model.context_ids_
    shown = [
        Fact("ratings", count(len(model.ratings_))),
        Fact("users", count(len(model.user_ids_))),
        Fact("items", count(len(model.item_ids_))),
        *(
            []
            if edges is None
            else [Fact("times", f"{short(edges[0], 6)} to {short(edges[-1], 6)}, {len(edges) - 1} bins")]
        ),
        *([] if contexts is None else [Fact("contexts", count(len(contexts)))]),
        Fact("factors", count(model.n_factors)),
        Fact("seed", str(model.seed)),
    ]
    if subject.held_out is not None:
        score, error = (model._judged(_held_out(subject), metric) for metric in ("log_likelihood", "rmse"))
        shown.append(Fact("held-out", f"{short(score)} nats a rating, root mean square error {short(error)}"))
    return shown


def sections(subject: Subject) -> list[Section]:
    """Factors, calibration, drift and contexts."""
    model: ContextFactorization = subject.model
    shown = [Section("factors", "Factors", factor_sizes(model))]
    columns = model._data if subject.held_out is None else _held_out(subject)
    if columns is not None and len(columns.ratings):
        some = columns.taken(some_judged(len(columns.ratings)))
        mean, variance = model._foreseen(some)
        judged = Judged(some.ratings.values, mean, np.sqrt(variance), "ratings", subject.held_out is not None)
        body = join([verdict(judged), tag("div", coverage(judged), class_="charts")])
        shown.append(Section("calibration", "Calibration", body))
    if model.time_edges_ is not None:
        shown.append(Section("drift", "Drift", _drift(model)))
    if model.context_ids_ is not None:
        shown.append(Section("contexts", "Contexts", _contexts(model)))
    return shown


def _held_out(subject: Subject) -> Columns:
    """A table with the columns of the fit, or all that ``score`` takes."""
    model: ContextFactorization = subject.model
    if isinstance(subject.held_out, Columns):
        return subject.held_out
    X, *rest = subject.held_out if isinstance(subject.held_out, tuple) else (subject.held_out,)
    return model._read(X, rest[0] if rest else None, *(*rest[1:], None, None)[:2])


def _drift(model: ContextFactorization) -> Html:
    """The items whose levels moved most."""
    edges, drift = model.time_edges_, model.item_drift_
    assert edges is not None
    middle = 0.5 * (edges[:-1] + edges[1:])
    moved = np.ptp(drift, axis=1)
    order = np.argsort(-moved, kind="stable")
    names = [str(model.item_ids_[j]) for j in order[:MOST_LINES]]
    chart = line_chart(
        [Line(middle, drift[j], name) for j, name in zip(order, names, strict=False)],
        Axis("time"), Axis("level of the item"),
        title="Items whose levels moved most", description=f"Biases of {', '.join(names)}, bin by bin.",
    )  # fmt: skip
    sizes = (short(float(np.sqrt(step))) for step in model.moments_.steps)
    steps = " of users, ".join(sizes) + " of items"
    words = f"What an item is rated above the mean of all, at each time. A step from one bin to the next has the size: {steps}."
    rows = [
        [str(model.item_ids_[j]), short(float(drift[j, 0])), short(float(drift[j, -1])), short(float(moved[j]))]
        for j in order[:MOST_ROWS]
    ]
    grid = table(
        ("item", "first", "last", "range"), rows, caption="Levels at the first and the last time", numeric=(1, 2, 3)
    )
    return join([tag("p", words), tag("div", tag("figure", chart), class_="charts"), grid])


def _contexts(model: ContextFactorization) -> Html:
    """What each adds to every rating, and how far it turns tastes."""
    assert model.moments_.w is not None
    assert model.moments_.d is not None
    assert model.context_ids_ is not None
    (weight, _), (level, spread) = model.moments_.w, model.moments_.d
    rows = [
        [
            str(name), f"{short(float(level[place]))} ± {short(float(np.sqrt(spread[place])))}",
            " ".join(f"{value:.2f}" for value in weight[place, :MOST_LINES]),
        ]
        for place, name in enumerate(model.context_ids_[:MOST_ROWS])
    ]  # fmt: skip
    words = (
        "What a context adds to every rating, and what it multiplies the first factors with: 1 leaves a taste as it is."
    )
    return join([tag("p", words), table(("context", "level", "factors times"), rows, caption="Contexts", numeric=(1,))])
