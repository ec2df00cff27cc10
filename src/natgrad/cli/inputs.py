"""A model's name and a file in; the data that its estimator is fitted to, scored on or shown with, out.

`MODELS` is what `natgrad fit` knows: for each model its estimator, its options for reading files, and how it reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from natgrad.cli.columns import Input, as_numbers_or_texts, encoding_option, remembered, target_option
from natgrad.cli.documents import (
    counting_options,
    document_options,
    known_options,
    options_with,
    read_texts,
    reader_with,
)
from natgrad.cli.ratings import context_options, factor_options, rating_options, read_context, read_rated
from natgrad.data.io.numbers import column_names, read_numbers, run_lengths
from natgrad.data.io.tables import read_table
from natgrad.models.registry import model_class
from natgrad.report.format import count

__all__ = [
    "MODELS",
    "Input",
    "Model",
    "encoding_option",
    "model_of",
    "pair_options",
    "read_texts",
    "reading_options",
    "remembered",
    "series_options",
]


class Model(NamedTuple):
    """A model of the command line. ``read`` takes the path, its options and the fitted model, or None before the fit."""

    estimator: str
    summary: str
    example: str
    options: Callable[[], list[click.Option]]
    read: Callable[[Path, dict[str, Any], Any], Input]

    def load(self) -> type:
        """The estimator's class; imported only when it is needed."""
        estimator: type = model_class(self.estimator)
        return estimator


def model_of(fitted: Any) -> Model:
    """The entry of a fitted estimator."""
    for model in MODELS.values():
        if model.estimator == type(fitted).__name__:
            return model
    raise ValueError(
        f"{type(fitted).__name__} has no commands yet; known are {', '.join(m.estimator for m in MODELS.values())}"
    )


def reading_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say how a file is read, for commands that take any model."""
    own = [
        *document_options()[:-1],
        *rating_options()[:-1],
        *context_options(),
        *_number_options()[:-1],
        target_option(),
        *known_options(),
        encoding_option(),
    ]
    return _with_options(function, own)


def series_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which columns of a table are series, and how its text is read."""
    return _with_options(function, _number_options())


def pair_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which columns of a table are users and items, times and contexts, and how its text is read."""
    return _with_options(function, [*rating_options()[:2], *context_options(), encoding_option()])


def _with_options(function: Callable[..., Any], options: list[click.Option]) -> Callable[..., Any]:
    for option in reversed(options):
        function = click.option(*option.opts, option.name, type=option.type, default=option.default, help=option.help)(
            function
        )
    return function


# -- sequences and rows --


def _number_options() -> list[click.Option]:
    return [
        click.Option(["--columns"], help="Columns to read, separated by commas; all others by default."),
        click.Option(["--sequence"], help="The column that names the sequence of each row; one sequence by default."),
        encoding_option(),
    ]


def _row_options() -> list[click.Option]:
    return [_number_options()[0], target_option(), encoding_option()]


def _chosen(options: dict[str, Any]) -> list[str] | None:
    return [name.strip() for name in options["columns"].split(",")] if options.get("columns") else None


def _read_sequences(path: Path, options: dict[str, Any], fitted: Any) -> Input:
    options = remembered(fitted, options)
    name = options.get("sequence")
    numbers = read_numbers(path, _chosen(options), [name] if name else [], encoding=options.get("encoding"))
    lengths = run_lengths(numbers.apart[name]) if name else np.array([len(numbers.rows)])
    words = f"{count(len(numbers.rows))} times in {count(len(lengths))} sequences, columns {', '.join(numbers.names)}"
    columns: dict[str, Any] = {"columns": numbers.names, **({"sequence": name} if name else {})}
    names = [str(numbers.apart[name][start]) for start in np.cumsum(lengths) - lengths] if name else None
    return Input((numbers.rows, lengths), (numbers.rows, lengths), None, words, columns, names)


def _read_tracks(path: Path, options: dict[str, Any], fitted: Any) -> Input:
    """Columns of numbers or texts, by their names."""
    options = remembered(fitted, options)
    name, chosen = options.get("sequence"), _chosen(options)
    wanted = None if chosen is None else [*chosen, *([name] if name else [])]
    if path.suffix == ".npy":
        return _read_sequences(path, options, None)
    table = read_table(path, wanted, encoding=options.get("encoding"))
    lengths = run_lengths(np.asarray(table[name])) if name else np.array([len(next(iter(table.values())))])
    names = [column for column in table if column != name] if chosen is None else chosen
    columns = [as_numbers_or_texts(table[column]) for column in names]
    rows = np.empty(len(columns[0]), dtype=[(str(n), c.dtype) for n, c in zip(names, columns, strict=True)])
    for column, values in zip(names, columns, strict=True):
        rows[column] = values
    words = f"{count(len(rows))} times in {count(len(lengths))} sequences, columns {', '.join(names)}"
    kept: dict[str, Any] = {"columns": names, **({"sequence": name} if name else {})}
    called = [str(table[name][start]) for start in np.cumsum(lengths) - lengths] if name else None
    return Input((rows, lengths), (rows, lengths), None, words, kept, called)


def _read_symbols(path: Path, options: dict[str, Any], fitted: Any) -> Input:
    """Columns of whole numbers, or one of labels; an empty field is missing."""
    found = _read_tracks(path, options, fitted)
    rows, lengths = found.arguments
    if rows.dtype.names is not None:
        columns = [rows[name] for name in rows.dtype.names]
        labels = len(columns) == 1 and columns[0].dtype.kind == "U"
        rows = np.where(columns[0] == "", None, columns[0]) if labels else np.column_stack(columns)
    return found._replace(arguments=(rows, lengths), raw=(rows, lengths))


def _read_rows(path: Path, options: dict[str, Any], fitted: Any) -> Input:
    options = remembered(fitted, options)
    target, columns, encoding = options.get("target"), _chosen(options), options.get("encoding")
    target = column_names(path, encoding=encoding)[-1] if target is None else target
    single = "," not in target or target in column_names(path, encoding=encoding)
    targets = [target] if single else [name.strip() for name in target.split(",")]
    numbers = read_numbers(path, columns, targets, encoding=encoding)
    words = f"{count(len(numbers.rows))} rows, {target} from {', '.join(numbers.names)}"
    outputs = [numbers.apart[name] for name in targets]
    pair = (
        numbers.rows,
        outputs[0] if len(outputs) == 1 else np.column_stack([as_numbers_or_texts(y) for y in outputs]),
    )
    return Input(pair, pair, None, words, {"columns": numbers.names, "target": target})


def _read_table(path: Path, options: dict[str, Any], fitted: Any) -> Input:
    options = remembered(fitted, options)
    numbers = read_numbers(path, _chosen(options), encoding=options.get("encoding"))
    words = f"{count(len(numbers.rows))} rows, columns {', '.join(numbers.names)}"
    return Input((numbers.rows,), numbers.rows, None, words, {"columns": numbers.names})


MODELS = {
    "lda": Model(
        "LDA",
        "Topics of documents: a folder of texts, a column of a table, lines, lda-c, docword or a sparse matrix.",
        "natgrad fit lda letters/ -o letters.natgrad --n-topics 3 --seed 1",
        counting_options,
        read_texts,
    ),
    "supervised": Model(
        "SupervisedLDA",
        "Topics of documents that predict a column of their table: a number, or 0 and 1 with --response bernoulli.",
        "natgrad fit supervised reviews.csv -o priced.natgrad --column text --target price --n-topics 2",
        options_with("target"),
        reader_with("target"),
    ),
    "correlated": Model(
        "CorrelatedTopics",
        "Topics of documents, and which of them occur together.",
        "natgrad fit correlated letters/ -o together.natgrad --n-topics 3",
        counting_options,
        read_texts,
    ),
    "dynamic": Model(
        "DynamicTopics",
        "Topics of documents that change over the times in a column of their table.",
        "natgrad fit dynamic reviews.csv -o moving.natgrad --column text --times year --n-topics 2",
        options_with("times"),
        reader_with("times"),
    ),
    "author": Model(
        "AuthorTopics",
        "Topics of documents, and which of them the authors in a column of their table write about.",
        "natgrad fit author reviews.csv -o written.natgrad --column text --authors author --n-topics 2",
        options_with("authors"),
        reader_with("authors"),
    ),
    "mf": Model(
        "MatrixFactorization",
        "Factors of users and items from ratings: lines of user, item, rating, Parquet, or .npz.",
        "natgrad fit mf ratings.csv -o ratings.natgrad --n-factors 3 --noise-precision 2",
        factor_options,
        read_rated,
    ),
    "context": Model(
        "ContextFactorization",
        "Ratings whose levels drift with the times in a column of their table, or whose tastes depend on a column of contexts.",
        "natgrad fit context rated.csv -o drifting.natgrad --time year --n-factors 2 --n-bins 3 --max-steps 5",
        rating_options,
        read_context,
    ),
    "hmm": Model(
        "GaussianHMM",
        "Hidden states of real-valued series: columns of a table or of .npy, a time on each row.",
        "natgrad fit hmm series.csv -o series.natgrad --n-states 2 --columns level",
        _number_options,
        _read_sequences,
    ),
    "hmm-categorical": Model(
        "CategoricalHMM",
        "Hidden states of series of symbols: 0, 1, 2, …, or labels.",
        "natgrad fit hmm-categorical series.csv -o symbols.natgrad --n-states 2 --columns symbol",
        _number_options,
        _read_symbols,
    ),
    "hmm-poisson": Model(
        "PoissonHMM",
        "Hidden states of series of counts.",
        "natgrad fit hmm-poisson series.csv -o counts.natgrad --n-states 2 --columns symbol",
        _number_options,
        _read_sequences,
    ),
    "hmm-bernoulli": Model(
        "BernoulliHMM",
        "Hidden states of tracks that are on (1) or off (0).",
        "natgrad fit hmm-bernoulli series.csv -o tracks.natgrad --n-states 2 --columns symbol",
        _number_options,
        _read_sequences,
    ),
    "hmm-tracks": Model(
        "HMM",
        'Hidden states of series of several kinds of columns: --emissions \'{"level": StudentT(), "n": Poisson()}\'.',
        "natgrad fit hmm-tracks series.csv -o both.natgrad --n-states 2 --columns level,symbol --emissions "
        '\'{"level": StudentT(), "symbol": Categorical()}\'',
        _number_options,
        _read_tracks,
    ),
    "mixture": Model(
        "GaussianMixture",
        "Clusters of rows of numbers: columns of a table or of .npy, an observation on each row.",
        "natgrad fit mixture rows.csv -o clusters.natgrad --columns x,y --n-components 3",
        lambda: [_number_options()[0], encoding_option()],
        _read_table,
    ),
    "gp": Model(
        "SparseGPRegressor",
        "A Gaussian process from columns of numbers to a target: a table or .npy, an observation on each row.",
        "natgrad fit gp rows.csv -o rows.natgrad --columns x --target y --n-inducing 10 --max-steps 50",
        _row_options,
        _read_rows,
    ),
    "gp-time": Model(
        "StateSpaceGP",
        "An exact Gaussian process along one column, such as time, for millions of rows.",
        "natgrad fit gp-time rows.csv -o waves.natgrad --columns x --target y",
        _row_options,
        _read_rows,
    ),
    "gp-neighbours": Model(
        "VecchiaGPRegressor",
        "A Gaussian process given the nearest rows alone, for functions too rough for inducing inputs.",
        "natgrad fit gp-neighbours rows.csv -o rows.natgrad --columns x --target y --n-neighbors 30",
        _row_options,
        _read_rows,
    ),
    "gp-classifier": Model(
        "SparseGPClassifier",
        "A Gaussian process from columns of numbers to classes.",
        "natgrad fit gp-classifier rows.csv -o classes.natgrad --columns x,y --target kind --n-inducing 10 --max-steps 50",
        _row_options,
        _read_rows,
    ),
}
