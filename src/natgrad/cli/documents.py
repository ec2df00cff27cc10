"""Documents on disk, and what is known of them besides, in; what topic models are fitted to, scored on or shown with, out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from natgrad.cli.columns import Input, as_numbers_or_texts, encoding_option, remembered, target_option
from natgrad.data.corpus import Corpus
from natgrad.data.io.documents import KINDS, Documents, count_words, read_documents
from natgrad.data.io.numbers import column_names
from natgrad.data.io.tables import kind_of_table, read_table
from natgrad.report.format import count

__all__ = ["counting_options", "document_options", "known_options", "options_with", "read_texts", "reader_with"]


def document_options() -> list[click.Option]:
    """How documents are read."""
    path = click.Path(path_type=Path)
    return [
        click.Option(["--column"], help="The column with the texts, for CSV, TSV, JSON lines and Parquet."),
        click.Option(["--format"], type=click.Choice(KINDS), help="What the file is, if its name does not say."),
        click.Option(["--vocabulary"], type=path, help="A file with a word on each line, for lda-c, docword and .npz."),
        click.Option(["--pattern"], default="*.txt", help="Which files of a folder are documents.  [default: *.txt]"),
        encoding_option(),
    ]


def counting_options() -> list[click.Option]:
    """How documents are read, and their words counted."""
    rules: list[tuple[str, Any, Any, str]] = [
        (
            "--stop-words",
            click.Choice(["english", "corpus", "none"]),
            "english",
            "Words to leave out; corpus: those spread at random.",
        ),
        (
            "--phrases",
            click.IntRange(min=1),
            1,
            "Join as many words that occur together far more often than by chance.",
        ),
        ("--min-documents", click.IntRange(min=1), 2, "Leave out words in fewer documents."),
        ("--max-share", click.FloatRange(0, 1), 0.9, "Leave out words in a larger part of the documents."),
        ("--max-words", click.IntRange(min=1), 50_000, "Keep the most frequent words."),
    ]
    return document_options() + [
        click.Option([flag], type=kind, default=default, show_default=True, help=words)
        for flag, kind, default, words in rules
    ]


def read_texts(path: Path, options: dict[str, Any], fitted: Any) -> Input:
    """Documents of a folder or file, as they are fitted or as a model reads them."""
    if kind_of_table(path) is not None:  # elsewhere there are no columns
        options = remembered(fitted, options)
    documents = read_documents(
        path,
        column=options.get("column"),
        kind=options.get("format"),
        vocabulary=options.get("vocabulary"),
        pattern=options.get("pattern") or "*.txt",
        encoding=options.get("encoding"),
    )
    if fitted is None:
        corpus = count_words(
            documents,
            stop_words=None if options["stop_words"] == "none" else options["stop_words"],
            min_documents=options["min_documents"],
            max_share=options["max_share"],
            max_words=options["max_words"],
            phrases=options["phrases"],
        )
        data: Any = corpus
        words = f"{count(len(corpus))} documents, {count(corpus.n_words)} words, {count(corpus.n_tokens)} tokens"
    else:
        data = _as_fitted(documents)
        words = f"{count(len(documents))} documents"
    columns = {} if options.get("column") is None else {"column": options["column"]}
    return Input((data,), documents.texts or data, documents.names, words, columns)


def _as_fitted(documents: Documents) -> Corpus | list[str]:
    """Texts are counted by the model, with the words it knows."""
    if documents.corpus is not None:
        return documents.corpus
    assert documents.texts is not None
    return documents.texts


# -- documents, and what is known of them besides --


def known_options() -> list[click.Option]:
    """Which columns of a table of documents are what."""
    return [
        click.Option(
            ["--authors"], help="The column of authors, of a table of documents; several are separated by semicolons."
        ),
        click.Option(
            ["--times"], help="The column of times, of a table of documents: numbers, dates or names that sort."
        ),
    ]


def options_with(*roles: str) -> Callable[[], list[click.Option]]:
    """The options of documents, and those of some columns."""

    def options() -> list[click.Option]:
        there = {option.name: option for option in [*known_options(), target_option()]}
        return [*(there[role] for role in roles), *counting_options()]

    return options


def reader_with(role: str) -> Callable[[Path, dict[str, Any], Any], Input]:
    """Documents of a table, with the column that is known besides."""

    def read(path: Path, options: dict[str, Any], fitted: Any) -> Input:
        if kind_of_table(path) is None:
            raise ValueError(
                f"{path}: a table is needed (CSV, TSV, JSON lines, Parquet), with a column of texts and one of --{role}"
            )
        options = remembered(fitted, options)
        there = column_names(path, encoding=options.get("encoding"))
        name = options.get(role) or (role if role in there else None)
        if name is None:
            raise ValueError(f"--{role} says which column it is; {path} has {', '.join(there)}")
        rest = [column for column in there if column != name]
        if options.get("column") is None and len(rest) == 1:
            options["column"] = rest[0]
        source = read_texts(path, options, fitted)
        known = SIDES[role](read_table(path, [name], encoding=options.get("encoding"))[name])
        return source._replace(arguments=(*source.arguments, known), columns={**source.columns, role: name})

    return read


def _as_lists(column: Any) -> list[list[str]]:
    """Authors of each document, as lists or separated by semicolons."""
    return [
        [str(name) for name in entry]
        if isinstance(entry, (list, tuple, np.ndarray))
        else [name.strip() for name in str(entry).split(";") if name.strip()]
        for entry in column
    ]


# How columns of documents are read, by what they are.
SIDES: dict[str, Callable[[Any], Any]] = {
    "target": as_numbers_or_texts,
    "authors": _as_lists,
    "times": as_numbers_or_texts,
}
