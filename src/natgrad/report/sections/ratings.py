"""Show a factorisation of ratings: factors, calibration, examples; levels over time and tastes in contexts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import Ratings
from natgrad.recommenders.columns import Columns
from natgrad.recommenders.context import ContextFactorization
from natgrad.report.charts.calibration import Judged, coverage, reliability, verdict
from natgrad.report.charts.svg import Axis, Line, bar_chart, line_chart
from natgrad.report.format import count, short
from natgrad.report.html import Html, join, table, tag
from natgrad.report.sections.contribution import Fact, Section, Subject

__all__ = ["facts", "sections"]

Floats = npt.NDArray[np.float64]
MOST_JUDGED, USERS, ITEMS = 200_000, 6, 5


def facts(subject: Subject) -> list[Fact]:
    """How many ratings, users and items; the score on held-out ratings."""
    if isinstance(subject.model, ContextFactorization):
        return _facts_in_context(subject)
    model = subject.model
    facts_shown = []
    ratings = _ratings(subject)
    if ratings is not None:
        facts_shown = [
            Fact("ratings", count(len(ratings.values))),
            Fact("users", count(ratings.n_users)),
            Fact("items", count(ratings.n_items)),
        ]
    facts_shown += [Fact("factors", count(model.n_factors)), Fact("seed", str(model.seed))]
    if subject.held_out is not None:
        judged = _judged(subject)
        error = float(np.sqrt(np.mean((judged.values - judged.mean) ** 2))) if judged else float("nan")
        score = model.score(subject.held_out)
        facts_shown.append(Fact("held-out", f"{short(score)} nats a rating, root mean square error {short(error)}"))
    return facts_shown


def sections(subject: Subject) -> list[Section]:
    """Factors, calibration and examples."""
    if isinstance(subject.model, ContextFactorization):
        return _sections_in_context(subject)
    factors = subject.model.user_factors_ is not None
    shown = [Section("factors", "Factors", _factor_sizes(subject.model))] if factors else []
    judged = _judged(subject)
    if judged is not None:
        shown.append(Section("calibration", "Calibration", _calibration(subject.model, judged)))
    ratings = _ratings(subject)
    if ratings is not None:
        shown.append(Section("examples", "Examples", _examples(subject.model, ratings)))
    return shown


def _ratings(subject: Subject) -> Ratings | None:
    ratings = getattr(subject.model, "ratings_", None)
    return ratings if isinstance(ratings, Ratings) else None


# -- how much each factor carries --


def _factor_sizes(model: Any) -> Html:
    """√(E[u²] E[v²]) of each factor, averaged over users and items: what it adds to a rating, in the ratings' own unit."""
    spread = np.ones(1)
    for side in (model.user_factors_, model.item_factors_):
        spread = spread * np.sqrt(np.mean(side.mean**2 + side.sd**2, axis=0))
    order = np.argsort(-spread, kind="stable")
    names = ", ".join(f"{k}: {short(float(spread[k]), 3)}" for k in order[:10])
    chart = bar_chart(
        spread[order], Axis("factors, largest first"), Axis("typical size in a rating", low=0.0),
        title="How much each factor carries", description=f"By factor number: {names}.",
    )  # fmt: skip
    words = (
        "The root mean square of what each factor adds to a rating. Factors that are not needed shrink towards zero."
    )
    return join([tag("p", words), tag("div", tag("figure", chart), class_="charts")])


# -- whether the uncertainty is honest --


def _judged(subject: Subject) -> Judged | None:
    from natgrad.models.factorization.estimator import as_ratings

    ratings = _ratings(subject) if subject.held_out is None else as_ratings(subject.held_out)
    if ratings is None or not len(ratings.values):
        return None
    chosen = _some_judged(len(ratings.values))
    users, items = ratings.user_ids[ratings.users[chosen]], ratings.item_ids[ratings.items[chosen]]
    mean, sd = subject.model.predict(users, items, return_std=True)
    return Judged(ratings.values[chosen], mean, sd, "ratings", subject.held_out is not None)


def _some_judged(n: int) -> npt.NDArray[np.int64]:
    """The numbers of ratings that are judged: all, or as many as show it."""
    return np.arange(n) if n <= MOST_JUDGED else np.sort(np.random.default_rng(0).choice(n, MOST_JUDGED, replace=False))


def _calibration(model: Any, judged: Judged) -> Html:
    """Intervals for ratings; for likes and counts, whose predictions are no Gaussians, what was seen against what was said."""
    kind = getattr(model, "likelihood", "gaussian")
    if kind == "gaussian":
        return join([verdict(judged), tag("div", coverage(judged), class_="charts")])
    what = {"bernoulli": "share of likes", "ordinal": "rating"}.get(kind, "count")
    return tag("div", reliability(judged, what), class_="charts")


# -- examples --


def _examples(model: Any, ratings: Ratings) -> Html:
    """A few users, from busy to quiet: what they liked best, and what the model would offer them."""
    degree = np.bincount(ratings.users, minlength=ratings.n_users)
    busy = np.argsort(-degree, kind="stable")
    able = busy[degree[busy] < ratings.n_items]
    rows = []
    for number in able[np.unique(np.linspace(0, len(able) - 1, min(USERS, len(able))).round().astype(int))]:
        own = np.flatnonzero(ratings.users == number)
        best = own[np.argsort(-ratings.values[own], kind="stable")[:ITEMS]]
        liked = ", ".join(f"{ratings.item_ids[ratings.items[n]]} ({short(float(ratings.values[n]))})" for n in best)
        rows.append([str(ratings.user_ids[number]), count(len(own)), liked, _offered(model, ratings, int(number), own)])
    head = ("user", "ratings", "rated highest", "predicted highest among the others")
    return table(head, rows, caption="Some users, from the busiest to the quietest", numeric=(1,))


def _offered(model: Any, ratings: Ratings, number: int, own: npt.NDArray[np.int64]) -> str:
    new = np.setdiff1d(np.arange(ratings.n_items), ratings.items[own])
    who = np.repeat(ratings.user_ids[[number]], len(new))
    mean, sd = model.predict(who, ratings.item_ids[new], return_std=True)
    best = np.argsort(-mean, kind="stable")[:ITEMS]
    return ", ".join(f"{ratings.item_ids[new[i]]} ({mean[i]:.2f} ± {sd[i]:.2f})" for i in best)


# -- times and contexts --

MOST_LINES, MOST_ROWS = 6, 40


def _facts_in_context(subject: Subject) -> list[Fact]:
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
        score, error = (model._judged(_held_out_columns(subject), metric) for metric in ("log_likelihood", "rmse"))
        shown.append(Fact("held-out", f"{short(score)} nats a rating, root mean square error {short(error)}"))
    return shown


def _sections_in_context(subject: Subject) -> list[Section]:
    """Factors, calibration, drift and contexts."""
    model: ContextFactorization = subject.model
    shown = [Section("factors", "Factors", _factor_sizes(model))]
    columns = model._data if subject.held_out is None else _held_out_columns(subject)
    if columns is not None and len(columns.ratings):
        some = columns.taken(_some_judged(len(columns.ratings)))
        mean, variance = model._foreseen(some)
        judged = Judged(some.ratings.values, mean, np.sqrt(variance), "ratings", subject.held_out is not None)
        body = join([verdict(judged), tag("div", coverage(judged), class_="charts")])
        shown.append(Section("calibration", "Calibration", body))
    if model.time_edges_ is not None:
        shown.append(Section("drift", "Drift", _drift(model)))
    if model.context_ids_ is not None:
        shown.append(Section("contexts", "Contexts", _contexts(model)))
    return shown


def _held_out_columns(subject: Subject) -> Columns:
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
