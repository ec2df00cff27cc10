"""Use fitted models: `score`, `predict`, `transform`, `topics`, `decode`, `forecast`, `recommend`, `report`, `compare`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import numpy as np

from natgrad.cli.common import (
    FILE,
    MODEL,
    Command,
    UserError,
    check_output,
    emit,
    json_option,
    load_model,
    make_table,
    output_option,
    require_model,
    with_declaration,
    with_digits,
    write_rows,
)
from natgrad.cli.inputs import (
    Input,
    ids_like,
    model_of,
    parsed_dates,
    read_context,
    read_texts,
    reading_options,
    remembered,
)
from natgrad.cli.options import Value
from natgrad.data.dates import date_texts, dates_of, from_days
from natgrad.data.io.numbers import read_numbers
from natgrad.data.io.tables import read_table
from natgrad.report.format import percent, short

__all__ = ["compare", "decode", "forecast", "predict", "recommend", "report", "score", "topics", "transform"]

Columns = list[tuple[str, Any]]  # names may come twice
CSV = "A CSV file; standard output if not given."
ENDS = ("mean", "sd", "lower", "upper")


@click.command(cls=Command, example="natgrad score letters.natgrad letters/")
@MODEL
@FILE
@reading_options()
@json_option
def score(model: Path, file: Path, as_json: bool, **options: Any) -> None:
    """How well a model predicts data it has not seen; higher is better.

    LDA: the bound per word, the perplexity, and the coherence (NPMI) of the topics. Matrix factorisation: the mean log density of
    a rating, and the error.
    """
    fitted = load_model(model)
    source = model_of(fitted).read(file, options, fitted)
    scores: dict[str, Any] = {"model": type(fitted).__name__, "score": fitted.score(*source.arguments)}
    if fitted.kind == "topics":
        scores["perplexity"] = float(np.exp(-scores["score"]))
        scores["coherence"] = float(np.mean(fitted.coherence(source.arguments[0])))
    if fitted.kind == "ratings":
        scores["rmse"] = fitted.score(*source.arguments, metric="rmse")
    emit(scores, "   ".join(f"{name} {short(value, 6)}" for name, value in scores.items() if name != "model"), as_json)


@click.command(cls=Command, example="natgrad predict ratings.natgrad pairs.csv -o predicted.csv")
@MODEL
@FILE
@output_option(CSV)
@click.option("--columns", help="For models of rows: the columns of the fit, separated by commas.")
@click.option("--column", help="For models of documents: the column with the texts.")
@reading_options("user", "item", "time", "context", "encoding")
def predict(model: Path, file: Path, output: Path | None, **options: Any) -> None:
    """Predict ratings of pairs, the target of rows or documents, or what a table lacks, with standard deviations.

    Factorisations take a table with columns of users and items, and of times and contexts if they were fitted with them.
    Gaussian processes and mixtures take the columns that they were fitted to; a classifier gives the class and its
    probability, a mixture the component. A network that was fitted to a table predicts the observed columns that the new one
    has not.
    """
    fitted = load_model(model)
    require_model(fitted, "predict")
    columns = {
        "network": _predict_table, "topics": _predict_documents, "ratings": _predict_pairs, "mixture": _predict_rows,
        "process": _predict_rows,
    }[fitted.kind](fitted, file, options)  # fmt: skip
    write_rows(output, [name for name, _ in columns], zip(*(column for _, column in columns), strict=True))


def _predict_rows(fitted: Any, file: Path, options: dict[str, Any]) -> Columns:
    """The columns of a table of numbers, and what is predicted of each row: mean and sd, or the likeliest class or component."""
    known = remembered(fitted, options)
    if dates := known.get("dates"):
        times = parsed_dates(read_table(file, [dates], encoding=options["encoding"])[dates], dates)
        return [(dates, date_texts(times)), *_moments(*fitted.predict(times, return_std=True))]
    chosen = known["columns"]
    numbers = read_numbers(file, chosen and chosen.split(","), encoding=options["encoding"])
    columns: Columns = [
        (name, [f"{value:.15g}" for value in column])
        for name, column in zip(numbers.names, numbers.rows.T, strict=True)
    ]
    if hasattr(fitted, "predict_proba"):
        probability = fitted.predict_proba(numbers.rows)
        best, classes = probability.argmax(1), getattr(fitted, "classes_", None)
        likeliest = ("component", best) if classes is None else ("class", classes[best])
        return [*columns, likeliest, ("probability", [f"{p:.5f}" for p in probability.max(1)])]
    mean, sd = (np.reshape(part, (len(numbers.rows), -1)) for part in fitted.predict(numbers.rows, return_std=True))
    for place in range(mean.shape[1]):
        columns += _moments(mean[:, place], sd[:, place], "" if mean.shape[1] == 1 else f" {place}")
    return columns


def _moments(mean: Any, sd: Any, suffix: str = "") -> Columns:
    means = [with_digits(m, s) for m, s in zip(mean, sd, strict=True)]
    return [(f"mean{suffix}", means), (f"sd{suffix}", [f"{s:.6g}" for s in sd])]


def _predict_documents(fitted: Any, file: Path, options: dict[str, Any]) -> Columns:
    """The response of each document: its probability, or mean and sd."""
    source = read_texts(file, options, fitted)
    if fitted.response == "bernoulli":
        ends: Columns = [("probability", [f"{p:.5f}" for p in fitted.predict_proba(*source.arguments)[:, 1]])]
    else:
        ends = _moments(*fitted.predict(*source.arguments, return_std=True))
    return [("document", source.names or range(len(ends[0][1]))), *ends]


def _predict_pairs(fitted: Any, file: Path, options: dict[str, Any]) -> Columns:
    """Users and items, times and contexts if the model knows them, and mean and sd of each rating."""
    rows = read_context(file, options, fitted, rated=False).arguments[0]
    user, item, *others = (str(name) for name in rows.dtype.names)
    at = dict(zip(_known_beside(fitted), (rows[name] for name in others), strict=True))
    mean, sd = fitted.predict(rows[user], rows[item], return_std=True, **at)
    return [*((name, rows[name]) for name in (user, item, *others)), *_moments(mean, sd)]


def _known_beside(fitted: Any) -> list[str]:
    """Which of time and context the model was fitted with."""
    had = {"time": getattr(fitted, "time_edges_", None), "context": getattr(fitted, "context_ids_", None)}
    return [name for name, known in had.items() if known is not None]


def _predict_table(fitted: Any, file: Path, options: dict[str, Any]) -> Columns:
    """The columns of a table, and beside them what the network that was fitted to such a table predicts of each row."""
    from natgrad.network.bind.bound import open_tables
    from natgrad.network.bind.tables import TableChunks

    template = with_declaration(fitted, "predict").binding.template
    ((plate, source),) = open_tables(template, str(file), str(file), partial=True).items()
    table = source.whole(source.names) if isinstance(source, TableChunks) else source
    columns: Columns = []
    for name in table.names:
        lost = table.missing(name)
        columns.append(
            (name, ["" if no else str(cell) for cell, no in zip(table.cells(name).tolist(), lost, strict=True)])
        )
    for name, predictive in fitted.predict({plate: table}).items():
        columns += _columns_of(fitted, name, predictive)
    return columns


def _columns_of(fitted: Any, name: str, predictive: Any) -> Columns:
    """What is written of a predicted node: mean, sd and the ends of a 90 % interval; of a category its name and probability."""
    if predictive.node.is_category:
        probability = predictive.probabilities()
        best = probability.argmax(-1)
        uses = [u.column.name for u in fitted.binding.template.uses if u.node == name and u.role == "observed"]
        levels = fitted.binding.domain.categories.get(uses[0])
        shown = best if levels is None else levels.ids[best]
        top = np.take_along_axis(probability, best[:, None], -1)[:, 0]
        return [(name, [str(s) for s in shown]), (f"{name} probability", [f"{p:.5f}" for p in top])]
    mean, sd, *ends = (
        np.reshape(part, (len(part), -1)) for part in (predictive.mean(), predictive.std(), *predictive.interval(0.9))
    )
    return [
        (
            f"{name}{'' if mean.shape[1] == 1 else f' {place}'} {what}",
            [with_digits(v, s) for v, s in zip(part[:, place], sd[:, place], strict=True)],
        )
        for place in range(mean.shape[1])
        for what, part in zip(ENDS, (mean, sd, *ends), strict=True)
    ]


@click.command(cls=Command, example="natgrad transform letters.natgrad letters/ -o shares.csv")
@MODEL
@FILE
@output_option(CSV)
@reading_options()
def transform(model: Path, file: Path, output: Path | None, **options: Any) -> None:
    """Shares of the topics in documents, a row for each."""
    fitted = load_model(model)
    require_model(fitted, "transform")
    source = model_of(fitted).read(file, options, fitted)
    # The responses of documents are not read from them.
    shares = fitted.transform(*(source.arguments[:1] if "predict" in fitted.abilities else source.arguments))
    names = source.names or [str(d) for d in range(len(shares))]
    head = ["document", *(f"topic {k}" for k in range(shares.shape[1]))]
    write_rows(output, head, ([name, *(f"{v:.5f}" for v in row)] for name, row in zip(names, shares, strict=True)))


@click.command(cls=Command, example="natgrad topics letters.natgrad -n 6")
@MODEL
@click.option("-n", type=click.IntRange(min=1), default=10, show_default=True, help="Words of each topic.")
@click.option(
    "--by",
    type=click.Choice(["relevance", "probability", "lift"]),
    default="relevance",
    show_default=True,
    help="Their order.",
)
@click.option(
    "--coherence",
    "texts",
    type=click.Path(path_type=Path),
    help="Documents, as for fit: how well the words of each topic go together in them (NPMI, from -1 to 1).",
)
@json_option
def topics(model: Path, n: int, by: Any, texts: Path | None, as_json: bool) -> None:
    """The words of each topic, largest topic first; with --coherence also how well they go together."""
    fitted = load_model(model)
    require_model(fitted, "topics")
    words = [[str(word) for word in row] for row in fitted.top_words(n, by=by)]
    counts = _words_of_topics(fitted)
    share = counts / counts.sum()
    order = np.argsort(-share, kind="stable").tolist()
    answer = {"topics": [{"topic": k, "share": float(share[k]), "words": words[k]} for k in order]}
    rows = [[str(k), percent(float(share[k])), " ".join(words[k])] for k in order]
    head = ["topic", "size", "words"]
    if texts is not None:
        together = fitted.coherence(model_of(fitted).read(texts, {}, fitted).arguments[0], n=n)
        for entry, row in zip(answer["topics"], rows, strict=True):
            entry["coherence"] = float(together[int(row[0])])
            row.insert(2, f"{entry['coherence']:.3f}")
        head.insert(2, "coherence")
    emit(answer, make_table(head, rows, numeric=tuple(range(len(head) - 1))), as_json)


def _words_of_topics(fitted: Any) -> Any:
    """How many words of the fit each topic has."""
    if hasattr(fitted, "_word_counts"):
        return fitted._word_counts().sum(1)
    prior = getattr(fitted, "topic_prior_", fitted.topic_prior)
    return fitted.components_.sum(1) - prior * fitted.components_.shape[1]


@click.command(cls=Command, example="natgrad decode series.natgrad series.csv --columns level -o states.csv")
@MODEL
@FILE
@output_option(CSV)
@reading_options()
def decode(model: Path, file: Path, output: Path | None, **options: Any) -> None:
    """The likeliest path of hidden states, a row for each time, with the probability of the state at that time."""
    fitted = load_model(model)
    require_model(fitted, "decode")
    source = model_of(fitted).read(file, options, fitted)
    _, states = fitted.decode(*source.arguments)
    sure = np.asarray(fitted.predict_proba(*source.arguments))[np.arange(len(states)), np.asarray(states)]
    columns = {"sequence": np.repeat(_series_of(source), source.arguments[1]).tolist()}
    if (dates := dates_of(source.arguments[0])) is not None:
        columns["date"] = date_texts(dates)
    columns |= {"state": states.tolist(), "probability": [f"{p:.4f}" for p in sure]}
    write_rows(output, list(columns), zip(*columns.values(), strict=True))


def _shown_part(arguments: tuple[Any, ...]) -> Any:
    """What a page is given: the data alone, or all of a pair."""
    return arguments[0] if len(arguments) == 1 else arguments


def _series_of(source: Input) -> list[Any]:
    """The names of series, or their numbers."""
    return list(range(len(source.arguments[1]))) if source.sequences is None else source.sequences


@click.command(cls=Command, example="natgrad forecast series.natgrad --data series.csv --steps 5 -o ahead.csv")
@MODEL
@click.option(
    "--data", type=click.Path(path_type=Path), help="For hidden Markov models: the series that go on, as for fit."
)
@click.option("--steps", type=click.IntRange(min=1), required=True, help="How many steps ahead.")
@click.option("--mass", type=float, default=0.9, show_default=True, help="The probability of the intervals.")
@click.option("--inputs", help="For models with inputs: those of the next times, separated by commas.")
@click.option(
    "--every", type=float, help="For gp-time: from one time to the next; by default the median distance of the fit's."
)
@output_option(CSV)
@reading_options("columns", "sequence", "dates", "encoding")
def forecast(
    model: Path, data: Path | None, steps: int, mass: float, inputs: str | None, every: float | None,
    output: Path | None, **options: Any,
) -> None:  # fmt: skip
    """What comes next in series: mean, sd and interval of each column, or the probability of each category.

    Hidden Markov models go on from where each sequence of the data ends. A Gaussian process along time (gp-time) goes on from the
    last time of its fit.
    """
    fitted = load_model(model)
    require_model(fitted, "forecast")
    if not 0.0 < mass < 1.0:
        raise UserError(f"--mass must lie in (0, 1), got {mass:g}")
    if fitted.kind == "process":
        _refuse(fitted, {"--inputs": inputs})
        if data is not None:
            raise UserError(
                f"--data {data}: gp-time goes on from the rows of its fit; natgrad update adds others to it"
            )
        write_rows(output, *_after_times(fitted, steps, mass, every))
        return
    _refuse(fitted, {"--every": every})
    if data is None:
        raise UserError(
            f"--data is needed: the file of a {type(fitted).__name__} holds no series that could go on; give those that do"
        )
    source = model_of(fitted).read(data, options, fitted)
    known = {} if inputs is None else {"inputs": _inputs(fitted, inputs)}
    rows, lengths = source.arguments
    places = pairwise(np.cumsum([0, *lengths]).tolist())
    each = [fitted.forecast(steps, rows[begin:end], **known) for begin, end in places]
    dated = all(ahead.dates is not None for ahead in each)
    head: list[str] = []
    lines: list[list[Any]] = []
    for name, ahead in zip(_series_of(source), each, strict=True):
        head, values = _columns_ahead(ahead, _emitted(fitted, source.columns["columns"]), mass)
        at = date_texts(ahead.dates) if dated else list(range(1, steps + 1))
        lines += [[name, step, *(f"{v:.15g}" for v in row)] for step, row in zip(at, values, strict=True)]
    write_rows(output, ["sequence", "date" if dated else "step", *head], lines)


# -- hidden Markov models --


def _emitted(fitted: Any, columns: list[str]) -> list[str]:
    """Names of what is forecast, in the order in which the model has it."""
    emissions = getattr(fitted, "emissions", None)
    if isinstance(emissions, Mapping) and all(isinstance(part, str) for key in emissions for part in _parts(key)):
        return [part for key in emissions for part in _parts(key)]
    inputs = getattr(getattr(fitted, "transitions", None), "inputs", None)
    return [name for name in columns if name != inputs]


def _parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _columns_ahead(ahead: Any, names: list[str], mass: float) -> tuple[list[str], Any]:
    """A head, and its columns [steps, …]: of every track in turn."""
    tracks = getattr(ahead, "columns", None)  # of several kinds
    each = None if tracks is None else [(ahead[track], own) for track, own in tracks.items()]
    head: list[str] = []
    parts = []
    for one, own in each or [(ahead, range(len(names)))]:
        if one.of_categories:
            head += [f"{names[own[0]]} {category}" for category in one.categories]
            parts.append(one.probabilities())
            continue
        head += [f"{names[place]} {what}" for place in own for what in ENDS]
        together = np.stack([one.mean(), one.std(), *one.interval(mass)], axis=-1)
        parts.append(together.reshape(len(together), -1))
    return head, np.hstack(parts)


def _inputs(fitted: Any, words: str) -> list[Any]:
    """Categories as the model has them: a text that spells a number is this number."""
    if not hasattr(fitted, "inputs_"):
        raise UserError(
            "--inputs is for models of Transitions(inputs=COLUMN): see natgrad fit hmm-tracks --transitions"
        )
    known = {f"{v:g}" if isinstance(v, float) else str(v): v for v in fitted.inputs_.tolist()}
    given = [word.strip() for word in words.split(",")]
    for place, word in enumerate(given):
        if word not in known:
            raise UserError(
                f"--inputs: {word!r} at place {place} was not seen in the fit; known are {', '.join(known)}"
            )
    return [known[word] for word in given]


# -- a process along time --


def _after_times(fitted: Any, steps: int, mass: float, every: float | None) -> tuple[list[str], list[list[Any]]]:
    """Head and rows of the times after the last one of the fit."""
    times = fitted._rows[0]
    if every is None:
        apart = np.diff(np.unique(times))
        if not len(apart):
            raise UserError("--every is needed: the fit has one time only, and no distance to the next")
        every = float(np.median(apart))
    if not 0.0 < every < np.inf:
        raise UserError(f"--every must be > 0, got {every:g}")
    ahead = times[-1] + every * np.arange(1, steps + 1)
    columns = np.column_stack([*fitted.predict(ahead, return_std=True), *fitted.interval(ahead, mass)])
    known = dict(fitted.columns_ or {})
    name, target = (known.get("columns") or ["x"])[0], known.get("target") or "y"
    at = date_texts(from_days(ahead)) if known.get("dates") else [f"{time:.15g}" for time in ahead]
    rows = [
        [step, time, *(f"{v:.15g}" for v in row)] for step, (time, row) in enumerate(zip(at, columns, strict=True), 1)
    ]
    return ["step", name, *(f"{target} {what}" for what in ENDS)], rows


def _refuse(fitted: Any, given: dict[str, Any]) -> None:
    for flag, value in given.items():
        if value is not None:
            raise UserError(f"{flag} is for other models, and this is {type(fitted).__name__}; leave it out")


@click.command(cls=Command, example="natgrad recommend ratings.natgrad ann -n 3")
@MODEL
@click.argument("user")
@click.option("-n", type=click.IntRange(min=1), default=10, show_default=True, help="How many items.")
@click.option("--only", multiple=True, metavar="ITEM", help="Recommend none but these; once for each.")
@click.option("--exclude", multiple=True, metavar="ITEM", help="Do not recommend these; once for each.")
@click.option("--quantile", type=float, help="Rank by a quantile: 0.1 is cautious, 0.9 tries what may be good.")
@click.option("--draw", type=click.IntRange(min=0), help="Rank by a draw from the posterior with this seed.")
@click.option("--diversity", type=float, help="From 0 to 1: how much likeness to items before counts against a score.")
@click.option("--because", type=click.IntRange(min=1), help="Show so many of the user's items that speak for each.")
@click.option("--time", type=Value(), help="The time at which, of a model that was fitted with times.")
@click.option("--context", help="The context in which, of a model that was fitted with contexts.")
@json_option
def recommend(
    model: Path, user: str, n: int, only: tuple[str, ...], exclude: tuple[str, ...], quantile: float | None,
    draw: int | None, diversity: float | None, because: int | None, time: Any, context: str | None, as_json: bool,
) -> None:  # fmt: skip
    """The items that a user has not rated and would rate highest, with standard deviations."""
    fitted = load_model(model)
    require_model(fitted, "recommend")
    ratings, at = fitted.ratings_, _when_and_where(fitted, time, context)
    who = ids_like(ratings.user_ids, [user])
    if who.tolist()[0] not in ratings.user_ids.tolist():
        known = ", ".join(str(name) for name in ratings.user_ids[:5])
        raise UserError(f"there is no user {user!r}; there are {len(ratings.user_ids)}: {known}, …")
    chosen = {
        name: ids_like(ratings.item_ids, list(ids)) for name, ids in (("only", only), ("exclude", exclude)) if ids
    }
    ways = {"quantile": quantile, "draw": draw, "diversity": diversity}
    asked = {**chosen, **{name: value for name, value in ways.items() if value is not None}}
    for name in {"draw", "diversity"} & asked.keys() if at is not None else ():
        raise UserError(f"{type(fitted).__name__} ranks by what is expected, or a quantile, without --{name}")
    try:
        found = fitted.recommend(who, n, **asked, **(at or {}))
        best = found.items[0][np.isfinite(found.scores[0])]
        reasons = [fitted.because(who[0], item, because, **(at or {})).items for item in best] if because else []
    except (TypeError, ValueError) as error:
        raise UserError(str(error)) from None
    if not len(best):
        raise UserError(f"user {user!r} has rated every item" + (" of these" if chosen else ""))
    mean, sd = fitted.predict(np.repeat(who, len(best)), best, return_std=True, **(at or {}))
    items: list[dict[str, Any]] = [
        {"item": str(item), "mean": float(m), "sd": float(s)} for item, m, s in zip(best, mean, sd, strict=True)
    ]
    for row, why in zip(items, reasons, strict=False):
        row["because"] = [str(item) for item in why]
    rows = [
        [str(row["item"]), f"{row['mean']:.2f} ± {row['sd']:.2f}", *([", ".join(row["because"])] if because else [])]
        for row in items
    ]
    emit(
        {"user": user, "items": items},
        make_table(["item", "rating", *(["because of"] if because else [])], rows, numeric=(1,)),
        as_json,
    )


@click.command(cls=Command, example="natgrad report letters.natgrad -o letters.html --data letters/")
@MODEL
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The page, an .html file."
)
@click.option("--data", type=click.Path(path_type=Path), help="What the model was fitted to, to show documents.")
@click.option("--held-out", type=click.Path(path_type=Path), help="Other data, to score the model on.")
@click.option("--title", help="The heading of the page.")
@click.option("--force", is_flag=True, help="Replace the page if it is there.")
@reading_options()
def report(
    model: Path, output: Path, data: Path | None, held_out: Path | None, title: str | None, force: bool, **options: Any
) -> None:
    """Write the page of a model: one HTML file that needs nothing else."""
    from natgrad.report.page import write_report  # statistics and charts

    check_output(output, force)
    fitted = load_model(model)
    shown = None if data is None else model_of(fitted).read(data, options, fitted)
    other = None if held_out is None else _shown_part(model_of(fitted).read(held_out, options, fitted).arguments)
    raw, names = (None, None) if shown is None else (shown.raw, shown.names)
    where = write_report(fitted, output, data=raw, names=names, held_out=other, title=title)
    click.echo(f"{where}: {where.stat().st_size / 1000:.0f} kB")


def _when_and_where(fitted: Any, time: Any, context: str | None) -> dict[str, Any] | None:
    """The time and the context of a call, as a model knows them; None of a model without."""
    given = {name: value for name, value in (("time", time), ("context", context)) if value is not None}
    if not hasattr(fitted, "time_edges_"):
        if given:
            raise UserError(f"--{next(iter(given))} is for models that were fitted with it: natgrad fit context")
        return None
    if isinstance(time, str):
        try:
            given["time"] = np.datetime64(time)
        except ValueError:
            raise UserError(f"--time {time}: must be a number, or a date as 2024-05-31") from None
    if context is not None and fitted.context_ids_ is not None:
        given["context"] = ids_like(fitted.context_ids_, [context])[0]
    return given


@click.command(cls=Command, example="natgrad compare three.natgrad auto.natgrad")
@click.argument("models", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--held-out", type=click.Path(path_type=Path), help="A file of data that no model has seen: each one's score on it."
)
@click.option("--picture", type=click.Path(path_type=Path), help="Where to write bounds against K, as an SVG.")
@reading_options()
@json_option
def compare(
    models: tuple[Path, ...], held_out: Path | None, picture: Path | None, as_json: bool, **options: Any
) -> None:
    """Put models of the same data side by side: bounds, with and without labellings, and their score on a file.

    The best is first: by its held-out score if there is one, otherwise by the bound with log of the labellings added.
    """
    from natgrad.posterior.compare import compare_by, score_of

    short_names = len({path.name for path in models}) == len(models)
    fits = {path.name if short_names else str(path): load_model(path) for path in dict.fromkeys(models)}

    def score(fit: Any) -> Any:
        assert held_out is not None
        return score_of(fit, model_of(fit).read(held_out, options, fit).arguments)

    table = compare_by(fits, None if held_out is None else score)
    if picture is not None:
        table.draw().save(picture)
    rows = [
        {
            "model": name,
            **{column: float(values[i]) for column, values in table.columns.items() if values[i] == values[i]},
        }
        for i, name in enumerate(table.names)
    ]
    emit({"models": rows}, str(table), as_json)
