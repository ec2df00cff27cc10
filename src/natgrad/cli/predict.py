"""What a fitted model is used for: `score`, `predict`, `transform`, `topics`, `recommend`, `report`."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import numpy as np

from natgrad.cli.common import (
    Command,
    UserError,
    emit,
    json_option,
    load_model,
    make_table,
    output_option,
    require_model,
    with_digits,
)
from natgrad.cli.inputs import Input, model_of, pair_options, read_texts, reading_options, remembered
from natgrad.cli.networks import opened, predict_table
from natgrad.cli.options import Value
from natgrad.cli.ratings import ids_like, pairs_at
from natgrad.data.io.numbers import Numbers, read_numbers
from natgrad.data.io.tables import read_table
from natgrad.data.rating_columns import rating_columns
from natgrad.report.format import percent, short

__all__ = ["decode", "predict", "recommend", "report", "score", "series_of", "topics", "transform", "write_rows"]

MODEL = click.argument("model", type=click.Path(path_type=Path))
FILE = click.argument("file", type=click.Path(path_type=Path))


@click.command(cls=Command, example="natgrad score letters.natgrad letters/")
@MODEL
@FILE
@reading_options
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
    if type(fitted).__name__ == "ContextFactorization":
        scores["rmse"] = fitted.score(*source.arguments, metric="rmse")
    if type(fitted).__name__ == "MatrixFactorization":
        ratings = source.arguments[0]
        guess = fitted.predict(ratings.user_ids[ratings.users], ratings.item_ids[ratings.items])
        scores["rmse"] = float(np.sqrt(np.mean((ratings.values - guess) ** 2)))
    emit(scores, "   ".join(f"{name} {short(value, 6)}" for name, value in scores.items() if name != "model"), as_json)


@click.command(cls=Command, example="natgrad predict ratings.natgrad pairs.csv -o predicted.csv")
@MODEL
@FILE
@output_option("A CSV file; standard output if not given.")
@click.option("--columns", help="For models of rows: the columns of the fit, separated by commas.")
@click.option("--column", help="For models of documents: the column with the texts.")
@pair_options
def predict(
    model: Path,
    file: Path,
    output: Path | None,
    columns: str | None,
    column: str | None,
    encoding: str | None,
    **named: str | None,
) -> None:
    """Predict ratings of pairs, the target of rows or documents, or what a table lacks, with standard deviations.

    Factorisations take a table with columns of users and items, and of times and contexts if they were fitted with them.
    Gaussian processes and mixtures take the columns that they were fitted to; a classifier gives the class and its
    probability, a mixture the component. A network that was fitted to a table predicts the observed columns that the new one
    has not.
    """
    fitted = load_model(model)
    if fitted.kind == "network":
        predict_table(fitted, file, output)
        return
    require_model(fitted, "predict")
    if fitted.kind == "topics":
        _predict_documents(fitted, read_texts(file, {"column": column, "encoding": encoding}, fitted), output)
        return
    if fitted.kind in ("mixture", "process"):
        chosen = remembered(fitted, {"columns": columns})["columns"]
        _predict_rows(fitted, read_numbers(file, chosen and chosen.split(","), encoding=encoding), output)
        return
    if type(fitted).__name__ == "ContextFactorization":
        names, pairs, mean, sd = pairs_at(file, {**named, "encoding": encoding}, fitted)
        ends = ([with_digits(m, s), f"{s:.6g}"] for m, s in zip(mean, sd, strict=True))
        write_rows(
            output, [*names, "mean", "sd"], ([*row, *end] for row, end in zip(pairs.tolist(), ends, strict=True))
        )
        return
    _predict_pairs(fitted, file, output, named, encoding)


def _predict_rows(fitted: Any, numbers: Numbers, output: Path | None) -> None:
    rows = [[f"{value:.15g}" for value in row] for row in numbers.rows]
    if hasattr(fitted, "predict_proba"):
        probability = fitted.predict_proba(numbers.rows)
        best = probability.argmax(1)
        names = fitted.classes_[best] if hasattr(fitted, "classes_") else best
        labelled = zip(names, probability[np.arange(len(best)), best], strict=True)
        head = ["class" if hasattr(fitted, "classes_") else "component", "probability"]
        ends = [[str(name), f"{p:.5f}"] for name, p in labelled]
    else:
        mean, sd = (np.reshape(part, (len(rows), -1)) for part in fitted.predict(numbers.rows, return_std=True))
        suffixes = [""] if mean.shape[1] == 1 else [f" {p}" for p in range(mean.shape[1])]
        head = [f"{word}{suffix}" for suffix in suffixes for word in ("mean", "sd")]
        ends = [
            [text for a, b in zip(m, s, strict=True) for text in (with_digits(a, b), f"{b:.6g}")]
            for m, s in zip(mean, sd, strict=True)
        ]
    write_rows(output, [*numbers.names, *head], ([*row, *end] for row, end in zip(rows, ends, strict=True)))


def _predict_documents(fitted: Any, source: Input, output: Path | None) -> None:
    if fitted.response == "bernoulli":
        chance = fitted.predict_proba(*source.arguments)[:, 1]
        head, ends = ["probability"], [[f"{p:.5f}"] for p in chance]
    else:
        pairs = zip(*fitted.predict(*source.arguments, return_std=True), strict=True)
        head, ends = ["mean", "sd"], [[with_digits(m, s), f"{s:.6g}"] for m, s in pairs]
    names = source.names or [str(d) for d in range(len(ends))]
    write_rows(output, ["document", *head], ([name, *end] for name, end in zip(names, ends, strict=True)))


def _predict_pairs(
    fitted: Any, file: Path, output: Path | None, named: dict[str, str | None], encoding: str | None
) -> None:
    columns = read_table(file, encoding=encoding)
    known = remembered(fitted, dict(named), list(columns))
    chosen = rating_columns(list(columns), known["user"], known["item"], where=f"{file}: ", rated=False)
    users, items = columns[chosen.user], columns[chosen.item]
    known = fitted.ratings_
    mean, sd = fitted.predict(ids_like(known.user_ids, users), ids_like(known.item_ids, items), return_std=True)
    rows = zip(users, items, map(with_digits, mean, sd), (f"{s:.6g}" for s in sd), strict=True)
    write_rows(output, ["user", "item", "mean", "sd"], rows)


@click.command(cls=Command, example="natgrad transform letters.natgrad letters/ -o shares.csv")
@MODEL
@FILE
@output_option("A CSV file; standard output if not given.")
@reading_options
def transform(model: Path, file: Path, output: Path | None, **options: Any) -> None:
    """Shares of the topics in documents, a row for each."""
    fitted = load_model(model)
    require_model(fitted, "transform")
    source = model_of(fitted).read(file, options, fitted)
    given = source.arguments[:1] if type(fitted).__name__ == "SupervisedLDA" else source.arguments
    shares = fitted.transform(*given)
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
    if type(fitted).__name__ != "LDA":
        return fitted._word_counts().sum(1)
    prior = getattr(fitted, "topic_prior_", fitted.topic_prior)
    return fitted.components_.sum(1) - prior * fitted.components_.shape[1]


@click.command(cls=Command, example="natgrad decode series.natgrad series.csv --columns level -o states.csv")
@MODEL
@FILE
@output_option("A CSV file; standard output if not given.")
@reading_options
def decode(model: Path, file: Path, output: Path | None, **options: Any) -> None:
    """The likeliest path of hidden states, a row for each time, with the probability of the state at that time."""
    fitted = load_model(model)
    require_model(fitted, "decode")
    source = model_of(fitted).read(file, options, fitted)
    _, states = fitted.decode(*source.arguments)
    sure = fitted.predict_proba(*source.arguments)[np.arange(len(states)), states]
    names = np.repeat(series_of(source), source.arguments[1])
    rows = zip(names.tolist(), states.tolist(), (f"{p:.4f}" for p in sure), strict=True)
    write_rows(output, ["sequence", "state", "probability"], rows)


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
@reading_options
def report(
    model: Path, output: Path, data: Path | None, held_out: Path | None, title: str | None, force: bool, **options: Any
) -> None:
    """Write the page of a model: one HTML file that needs nothing else."""
    from natgrad.cli.fit import check_output
    from natgrad.report.page import write_report  # statistics and charts

    check_output(output, force)
    fitted = load_model(model)
    shown = None if data is None else model_of(fitted).read(data, options, fitted)
    other = None if held_out is None else _shown_part(model_of(fitted).read(held_out, options, fitted).arguments)
    raw, names = (None, None) if shown is None else (shown.raw, shown.names)
    where = write_report(fitted, output, data=raw, names=names, held_out=other, title=title)
    click.echo(f"{where}: {where.stat().st_size / 1000:.0f} kB")


# -- parts --


def _when_and_where(fitted: Any, time: Any, context: str | None) -> dict[str, Any] | None:
    """The time and the context of a call, as a model knows them; None of a model without."""
    given = {name: value for name, value in (("time", time), ("context", context)) if value is not None}
    if type(fitted).__name__ != "ContextFactorization":
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


def _shown_part(arguments: tuple[Any, ...]) -> Any:
    """What a page is given: the data alone, or all of a pair."""
    return arguments[0] if len(arguments) == 1 else arguments


def series_of(source: Input) -> list[Any]:
    """The names of series, or their numbers."""
    return list(range(len(source.arguments[1]))) if source.sequences is None else source.sequences


def write_rows(path: Path | None, head: list[str], rows: Iterable[Iterable[Any]]) -> None:
    """A CSV file, or standard output."""
    with opened(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)
