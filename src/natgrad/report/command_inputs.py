"""A model's name and a file in; the data that its estimator is fitted to, scored on or shown with, out.

`MODELS` is what `natgrad fit` knows: for each model its estimator, its options for reading files, and how it reads them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from natgrad.data.corpora import Corpus
from natgrad.data.document_files import KINDS, Documents, count_words, read_documents
from natgrad.data.number_files import column_names, read_numbers, runs_of
from natgrad.data.rating_files import read_ratings
from natgrad.report.numbers import count

__all__ = ["MODELS", "Input", "Model", "model_of", "reading_options"]


class Input(NamedTuple):
    """What a file holds: the arguments of ``fit`` and ``score``, what a page shows, names of the rows, and a description."""

    arguments: tuple[Any, ...]
    raw: Any
    names: list[str] | None
    words: str


class Model(NamedTuple):
    """A model of the command line. ``read`` takes the path, its options and the fitted model, or None before the fit."""

    estimator: str
    module: str
    summary: str
    example: str
    options: Callable[[], list[click.Option]]
    read: Callable[[Path, dict[str, Any], Any], Input]

    def load(self) -> type:
        """The estimator's class; imported only when it is needed."""
        found: type = getattr(importlib.import_module(self.module), self.estimator)
        return found


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
    for option in reversed([*_document_options(), *_number_options(), _target_option()]):
        function = click.option(*option.opts, option.name, type=option.type, default=option.default, help=option.help)(
            function
        )
    return function


# -- documents --


def _document_options() -> list[click.Option]:
    path = click.Path(path_type=Path)
    return [
        click.Option(["--column"], help="The column with the texts, for CSV, TSV, JSON lines and Parquet."),
        click.Option(["--format"], type=click.Choice(KINDS), help="What the file is, if its name does not say."),
        click.Option(["--vocabulary"], type=path, help="A file with a word on each line, for lda-c, docword and .npz."),
        click.Option(["--pattern"], default="*.txt", help="Which files of a folder are documents.  [default: *.txt]"),
    ]


def _counting_options() -> list[click.Option]:
    rules: list[tuple[str, Any, Any, str]] = [
        ("--stop-words", click.Choice(["english", "none"]), "english", "Words to leave out."),
        ("--min-documents", click.IntRange(min=1), 2, "Leave out words in fewer documents."),
        ("--max-share", click.FloatRange(0, 1), 0.9, "Leave out words in a larger part of the documents."),
        ("--max-words", click.IntRange(min=1), 50_000, "Keep the most frequent words."),
    ]
    return _document_options() + [
        click.Option([flag], type=kind, default=default, show_default=True, help=words)
        for flag, kind, default, words in rules
    ]


def _read_documents(path: Path, options: dict[str, Any], fitted: Any) -> Input:
    documents = read_documents(
        path,
        column=options.get("column"),
        kind=options.get("format"),
        vocabulary=options.get("vocabulary"),
        pattern=options.get("pattern") or "*.txt",
    )
    if fitted is None:
        corpus = count_words(
            documents,
            stop_words=None if options["stop_words"] == "none" else options["stop_words"],
            min_documents=options["min_documents"],
            max_share=options["max_share"],
            max_words=options["max_words"],
        )
        data: Any = corpus
        words = f"{count(len(corpus))} documents, {count(corpus.n_words)} words, {count(corpus.n_tokens)} tokens"
    else:
        data = _as_fitted(documents)
        words = f"{count(len(documents))} documents"
    return Input((data,), documents.texts or data, documents.names, words)


def _as_fitted(documents: Documents) -> Corpus | list[str]:
    """Texts are counted by the model, with the words it knows."""
    if documents.corpus is not None:
        return documents.corpus
    assert documents.texts is not None
    return documents.texts


# -- ratings --


def _read_ratings(path: Path, options: dict[str, Any], fitted: Any) -> Input:
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file of ratings (looked for {path.absolute()})")
    ratings = read_ratings(path)
    return Input((ratings,), ratings, None, repr(ratings))


# -- sequences and rows --


def _number_options() -> list[click.Option]:
    return [
        click.Option(["--columns"], help="Columns to read, separated by commas; all others by default."),
        click.Option(["--sequence"], help="The column that names the sequence of each row; one sequence by default."),
    ]


def _row_options() -> list[click.Option]:
    return [_number_options()[0], _target_option()]


def _target_option() -> click.Option:
    return click.Option(["--target"], help="The column that is predicted; the last one by default.")


def _chosen(options: dict[str, Any]) -> list[str] | None:
    return [name.strip() for name in options["columns"].split(",")] if options.get("columns") else None


def _read_sequences(path: Path, options: dict[str, Any], fitted: Any) -> Input:
    name = options.get("sequence")
    found = read_numbers(path, _chosen(options), [name] if name else [])
    lengths = runs_of(found.apart[name]) if name else np.array([len(found.rows)])
    words = f"{count(len(found.rows))} times in {count(len(lengths))} sequences, columns {', '.join(found.names)}"
    return Input((found.rows, lengths), (found.rows, lengths), None, words)


def _read_rows(path: Path, options: dict[str, Any], fitted: Any) -> Input:
    target, columns = options.get("target"), _chosen(options)
    target = column_names(path)[-1] if target is None else target
    found = read_numbers(path, columns, [target])
    words = f"{count(len(found.rows))} rows, {target} from {', '.join(found.names)}"
    pair = (found.rows, found.apart[target])
    return Input(pair, pair, None, words)


MODELS = {
    "lda": Model(
        "LDA",
        "natgrad.models.lda",
        "Topics of documents: a folder of texts, a column of a table, lines, lda-c, docword or a sparse matrix.",
        "natgrad fit lda letters/ -o letters.natgrad --n-topics 3 --seed 1",
        _counting_options,
        _read_documents,
    ),
    "mf": Model(
        "MatrixFactorization",
        "natgrad.models.factorization",
        "Factors of users and items from ratings: lines of user, item, rating, or .npz.",
        "natgrad fit mf ratings.csv -o ratings.natgrad --n-factors 3 --noise-precision 2",
        list,
        _read_ratings,
    ),
    "hmm": Model(
        "GaussianHMM",
        "natgrad.models.hmm_models",
        "Hidden states of real-valued series: columns of a table or of .npy, a time on each row.",
        "natgrad fit hmm series.csv -o series.natgrad --n-states 2 --columns level",
        _number_options,
        _read_sequences,
    ),
    "hmm-categorical": Model(
        "CategoricalHMM",
        "natgrad.models.hmm_models",
        "Hidden states of series of symbols 0, 1, 2, …",
        "natgrad fit hmm-categorical series.csv -o symbols.natgrad --n-states 2 --columns symbol",
        _number_options,
        _read_sequences,
    ),
    "hmm-poisson": Model(
        "PoissonHMM",
        "natgrad.models.hmm_models",
        "Hidden states of series of counts.",
        "natgrad fit hmm-poisson series.csv -o counts.natgrad --n-states 2 --columns symbol",
        _number_options,
        _read_sequences,
    ),
    "hmm-bernoulli": Model(
        "BernoulliHMM",
        "natgrad.models.hmm_models",
        "Hidden states of tracks that are on (1) or off (0).",
        "natgrad fit hmm-bernoulli series.csv -o tracks.natgrad --n-states 2 --columns symbol",
        _number_options,
        _read_sequences,
    ),
    "gp": Model(
        "SparseGPRegressor",
        "natgrad.models.gp",
        "A Gaussian process from columns of numbers to a target: a table or .npy, an observation on each row.",
        "natgrad fit gp rows.csv -o rows.natgrad --columns x --target y --n-inducing 10 --max-steps 50",
        _row_options,
        _read_rows,
    ),
    "gp-classifier": Model(
        "SparseGPClassifier",
        "natgrad.models.gp",
        "A Gaussian process from columns of numbers to classes.",
        "natgrad fit gp-classifier rows.csv -o classes.natgrad --columns x,y --target kind --n-inducing 10 --max-steps 50",
        _row_options,
        _read_rows,
    ),
}
