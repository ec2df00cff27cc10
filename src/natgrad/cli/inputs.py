"""Read a file as the data of one model: the arguments of its ``fit`` and ``score``, by the options of the command line.

`MODELS` lists what `natgrad fit` knows: for each model its estimator, its options for reading files, and its reader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from natgrad.cli.common import UserError
from natgrad.data.corpus import Corpus
from natgrad.data.dates import dates_of
from natgrad.data.ids import as_ids
from natgrad.data.io.documents import KINDS, count_words, read_documents
from natgrad.data.io.numbers import column_names, read_numbers, run_lengths
from natgrad.data.io.ratings import read_ratings
from natgrad.data.io.tables import kind_of_table, read_table
from natgrad.data.ratings import Ratings
from natgrad.data.split import held_out_rows, split_ratings, split_sequences
from natgrad.models.registry import model_class
from natgrad.report.format import count

__all__ = [
    "MODELS", "Input", "Model", "ids_like", "model_of", "options_of", "parsed_dates", "read_context", "read_texts",
    "reading_options", "remembered", "split_input",
]  # fmt: skip

ROLES, SIDES = ("user", "item", "value"), ("user", "item")
# Each option that says how a file is read: its type, its default, its help.
OPTIONS: dict[str, tuple[Any, Any, str]] = {
    "column": (None, None, "The column with the texts, for CSV, TSV, JSON lines and Parquet."),
    "format": (click.Choice(KINDS), None, "What the file is, if its name does not say."),
    "vocabulary": (click.Path(path_type=Path), None, "A file with a word on each line, for lda-c, docword and .npz."),
    "pattern": (None, "*.txt", "Which files of a folder are documents.  [default: *.txt]"),
    "stop-words": (click.Choice(["english", "none"]), "english", "Words to leave out."),
    "min-documents": (click.IntRange(min=1), 2, "Leave out words in fewer documents."),
    "max-share": (click.FloatRange(0, 1), 0.9, "Leave out words in a larger part of the documents."),
    "max-words": (click.IntRange(min=1), 50_000, "Keep the most frequent words."),
    "user": (None, None, "The column of users, if its name does not say so."),
    "item": (None, None, "The column of items, if its name does not say so."),
    "value": (None, None, "The column of ratings, if its name does not say so."),
    "user-features": (None, None, "A table of what is known of users: their ids in its first column, numbers in the others."),
    "item-features": (None, None, "A table of what is known of items: their ids in its first column, numbers in the others."),
    "time": (None, None, "The column of times of ratings; that of the fit by default."),
    "context": (None, None, "The column of contexts of ratings; that of the fit by default."),
    "columns": (None, None, "Columns to read, separated by commas; all others by default."),
    "sequence": (None, None, "The column that names the sequence of each row; one sequence by default."),
    "dates": (None, None, "The column of dates of a series (2024-01-31, or with hours): results are in dates."),
    "target": (None, None, "The column that is predicted, or several of them for gp: y,z; the last one by default."),
    "authors": (None, None, "The column of authors, of a table of documents; several are separated by semicolons."),
    "times": (None, None, "The column of times, of a table of documents: numbers, dates or names that sort."),
    "encoding": (None, None, "Of text files: latin-1, utf-16-le, …; by default what the file's first bytes say, or UTF-8."),
}  # fmt: skip
FEATURES = ("user-features", "item-features")
COUNTED = ("stop-words", "min-documents", "max-share", "max-words")
TEXTS = ("column", "format", "vocabulary", "pattern", "encoding")
RATED = (*ROLES, "encoding")
SERIES = ("columns", "sequence", "dates", "encoding")
ROWS = ("columns", "target", "encoding")


def options_of(*names: str) -> list[click.Option]:
    """Options that say how a file is read, by their names in `OPTIONS`."""
    return [
        click.Option(
            [f"--{n}"], type=OPTIONS[n][0], default=OPTIONS[n][1], show_default=n in COUNTED, help=OPTIONS[n][2]
        )
        for n in names
    ]


def reading_options(*names: str) -> Callable[[Any], Any]:
    """Decorate a command with these options; without names, with all but those of counting words."""

    def decorate(function: Any) -> Any:
        function.__click_params__ = [
            *options_of(*reversed(names or [name for name in OPTIONS if name not in (*COUNTED, *FEATURES)])),
            *getattr(function, "__click_params__", []),
        ]
        return function

    return decorate


class Input(NamedTuple):
    """What a file holds: the arguments of ``fit`` and ``score``, what a page shows, names of the rows, and a description.

    ``columns`` says which of its columns was what, for the model to remember. ``sequences`` are the names of series, ``named``
    arguments of ``fit`` with names.
    """

    arguments: tuple[Any, ...]
    raw: Any
    names: list[str] | None
    words: str
    columns: dict[str, Any] = {}  # noqa: RUF012  (never written to)
    sequences: list[str] | None = None
    named: dict[str, Any] = {}  # noqa: RUF012  (never written to)


def remembered(fitted: Any, options: dict[str, Any], there: Sequence[str] | None = None) -> dict[str, Any]:
    """The options of a call, and where it says nothing the columns of the fit; only those that are ``there``."""
    known = {} if fitted is None else dict(fitted.columns_ or {})
    known = {role: name for role, name in known.items() if there is None or name in there}
    if isinstance(known.get("columns"), list):
        known["columns"] = ",".join(known["columns"])
    return {**options, **{role: name for role, name in known.items() if options.get(role) is None}}


def _numbers_or_texts(column: Any) -> Any:
    """A column as numbers if all of its fields are, empty ones as NaN; otherwise as texts."""
    values = np.asarray(column)
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    texts = ["" if value is None else str(value) for value in values.tolist()]
    try:
        return np.array([float(text) if text.strip() else np.nan for text in texts])
    except ValueError:
        return np.array(texts)


# -- documents --


def read_texts(path: Path, options: dict[str, Any], fitted: Any) -> Input:
    """Documents of a folder or file, as they are fitted or as a model reads them."""
    if kind_of_table(path) is not None:  # elsewhere there are no columns
        options = remembered(fitted, options)
    documents = read_documents(
        path, column=options.get("column"), kind=options.get("format"), vocabulary=options.get("vocabulary"),
        pattern=options.get("pattern") or "*.txt", encoding=options.get("encoding"),
    )  # fmt: skip
    columns = {} if options.get("column") is None else {"column": options["column"]}
    if fitted is not None:  # texts are counted by the model, with the words it knows
        data: Any = documents.texts if documents.corpus is None else documents.corpus
        return Input((data,), documents.texts or data, documents.names, f"{count(len(documents))} documents", columns)
    rules = {name.replace("-", "_"): options[name.replace("-", "_")] for name in COUNTED}
    corpus = count_words(
        documents, **{**rules, "stop_words": None if rules["stop_words"] == "none" else rules["stop_words"]}
    )
    words = f"{count(len(corpus))} documents, {count(corpus.n_words)} words, {count(corpus.n_tokens)} tokens"
    return Input((corpus,), documents.texts or corpus, documents.names, words, columns)


def _read_texts_with(role: str) -> Callable[[Path, dict[str, Any], Any], Input]:
    """Read documents of a table, with one column of what is known of them."""

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
        column = read_table(path, [name], encoding=options.get("encoding"))[name]
        known = _as_lists(column) if role == "authors" else _numbers_or_texts(column)
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


# -- ratings --


def _check_ratings(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file of ratings (looked for {path.absolute()})")


def _read_rated(path: Path, options: dict[str, Any], fitted: Any) -> Input:
    """Ratings of a file; ids as a fitted model has them."""
    _check_ratings(path)
    if fitted is not None and fitted.columns_ and kind_of_table(path) is not None:
        options = remembered(fitted, options, column_names(path, encoding=options.get("encoding")))
    ratings = read_ratings(path, **{name: options.get(name) for name in RATED})
    if fitted is not None:
        known, own = fitted.ratings_, (ratings.user_ids, ratings.item_ids)
        users, items = (ids_like(*both) for both in zip((known.user_ids, known.item_ids), own, strict=True))
        ratings = Ratings.numbered(ratings.users, ratings.items, ratings.values, users, items)
    named = {
        f"{side}_features": _read_features(str(file), ids, side)
        for side, ids in zip(SIDES, (ratings.user_ids, ratings.item_ids), strict=True)
        if (file := options.get(f"{side}_features")) is not None
    }
    return Input((ratings,), ratings, None, repr(ratings), _given_roles(options), named=named)


def _given_roles(options: dict[str, Any]) -> dict[str, Any]:
    return {role: options[role] for role in ROLES if options.get(role) is not None}


def _read_features(path: str, ids: Any, side: str) -> dict[Any, Any]:
    """Numbers by id, of a table whose first column has the ids."""
    first, *others = column_names(path)
    if not others:
        raise ValueError(f"--{side}-features {path}: has one column; the first has ids, the others numbers")
    table = read_table(path)
    numbers = read_numbers(path, others, [first])
    keys = ids_like(ids, table[first]).tolist()
    if twice := [key for key, n in Counter(keys).items() if n > 1]:
        raise ValueError(
            f"--{side}-features {path}: {twice[0]!r} is there {keys.count(twice[0])} times, and once is enough"
        )
    if not set(keys) & set(ids.tolist()):
        raise ValueError(
            f"--{side}-features {path}: no id of its first column {first!r} ({keys[0]!r}, …) is that of a {side} who was rated "
            f"({ids.tolist()[0]!r}, …)"
        )
    return dict(zip(keys, numbers.rows, strict=True))


def read_context(path: Path, options: dict[str, Any], fitted: Any, *, rated: bool = True) -> Input:
    """Ratings of a table, or pairs to rate, with their times and contexts: a table of the columns that count."""
    from natgrad.recommenders.columns import as_rows, read_context_table

    _check_ratings(path)
    if kind_of_table(path) is None:
        raise ValueError(
            f"{path}: a table is needed (CSV, TSV, JSON lines, Parquet), with columns of user, item, rating and time"
        )
    there = column_names(path, encoding=options.get("encoding"))
    options = remembered(fitted, options, there)
    contexts = getattr(fitted, "context_ids_", None)
    if fitted is not None:  # where the fit was given values, the columns have these names
        known = {"time": getattr(fitted, "time_edges_", None) is not None, "context": contexts is not None}
        options |= {
            role: options.get(role) or (getattr(fitted, role) if isinstance(getattr(fitted, role), str) else role)
            for role, had in known.items()
            if had
        }
    table = read_context_table(
        path, rated=rated, **{name: options.get(name) for name in (*ROLES, "time", "context", "encoding")}
    )
    parts = {str(name): table[name] for name in table.dtype.names or ()}
    if fitted is not None:
        user, item = list(parts)[:2]
        ids = fitted.ratings_
        parts |= {user: ids_like(ids.user_ids, parts[user]), item: ids_like(ids.item_ids, parts[item])}
        if contexts is not None:
            label = str(options["context"])
            parts[label] = ids_like(contexts, parts[label])
    rows = as_rows(parts)
    return Input((rows,), rows, None, f"{count(len(rows))} ratings, columns {', '.join(parts)}", _given_roles(options))


def ids_like(known: Any, texts: Any) -> Any:
    """Ids as the model has them: a text that spells one of its ids is this id, as the 7 of a file for the 7 of a table."""
    spelled = {str(key): key for key in known.tolist()}
    return as_ids([spelled.get(str(text), text) for text in np.asarray(texts).tolist()], "ids")


# -- sequences and rows --


def _chosen(options: dict[str, Any]) -> list[str] | None:
    return [name.strip() for name in options["columns"].split(",")] if options.get("columns") else None


def _read_sequences(path: Path, options: dict[str, Any], fitted: Any) -> Input:
    """Columns of numbers; rows with the same name in the column ``sequence`` are one sequence."""
    options = remembered(fitted, options)
    apart = [name for role in ("sequence", "dates") if (name := options.get(role))]
    numbers = read_numbers(path, _chosen(options), apart, encoding=options.get("encoding"))
    return _series(numbers.rows, numbers.names, options, numbers.apart)


def _read_tracks(path: Path, options: dict[str, Any], fitted: Any) -> Input:
    """Columns of numbers or texts, by their names."""
    options = remembered(fitted, options)
    apart, chosen = [name for role in ("sequence", "dates") if (name := options.get(role))], _chosen(options)
    if path.suffix == ".npy":
        return _read_sequences(path, options, None)
    table = read_table(path, None if chosen is None else [*chosen, *apart], encoding=options.get("encoding"))
    names = [column for column in table if column not in apart] if chosen is None else chosen
    columns = [_numbers_or_texts(table[column]) for column in names]
    rows = np.empty(len(columns[0]), dtype=[(str(n), c.dtype) for n, c in zip(names, columns, strict=True)])
    for column, values in zip(names, columns, strict=True):
        rows[column] = values
    return _series(rows, names, options, {name: np.asarray(table[name]) for name in apart})


def _series(rows: Any, columns: Sequence[str], options: dict[str, Any], apart: Mapping[str, Any]) -> Input:
    """Rows cut into sequences where the values of the column ``sequence`` change, with the dates of the column ``dates``."""
    name, dates = options.get("sequence"), options.get("dates")
    lengths = run_lengths(apart[name]) if name else np.array([len(rows)])
    words = f"{count(len(rows))} times in {count(len(lengths))} sequences, columns {', '.join(columns)}"
    kept = {"columns": columns} | {role: options[role] for role in ("sequence", "dates") if options.get(role)}
    called = [str(apart[name][start]) for start in np.cumsum(lengths) - lengths] if name else None
    if dates:
        rows = as_dated(rows, columns, parsed_dates(apart[dates], dates))
    return Input((rows, lengths), (rows, lengths), None, words, kept, called)


def parsed_dates(column: Any, name: str) -> Any:
    """A column of dates, most often texts, as an index of dates."""
    pandas = _pandas(name)
    try:
        return pandas.DatetimeIndex(pandas.to_datetime(np.asarray(column, object), format="ISO8601"))
    except (ValueError, TypeError) as reason:
        words = "dates are written 2024-01-31 or 2024-01-31T12:00"
        raise UserError(f"--dates {name}: {words}; {str(reason).splitlines()[0]}") from None


def as_dated(rows: Any, columns: Sequence[str], dates: Any) -> Any:
    """Rows as a table with dates in its index; one column of labels as a series."""
    pandas = _pandas("")
    if rows.ndim == 1 and rows.dtype.names is None:
        return pandas.Series(rows, dates, name=columns[0])
    return pandas.DataFrame(rows, dates, None if rows.dtype.names else list(columns))


def _pandas(name: str) -> Any:
    try:
        import pandas
    except ImportError:
        raise UserError(f"--dates {name} needs pandas: pip install 'natgrad[table]'") from None
    return pandas


def _read_symbols(path: Path, options: dict[str, Any], fitted: Any) -> Input:
    """Columns of whole numbers, or one of labels; an empty field is missing."""
    found = _read_tracks(path, options, fitted)
    rows, lengths = found.arguments
    names, dates = found.columns["columns"], dates_of(rows)
    if dates is not None or rows.dtype.names is not None:
        columns = [np.asarray(rows[name]) for name in names]
        labels = len(columns) == 1 and columns[0].dtype.kind in "UO"
        rows = np.where(columns[0] == "", np.array(None), columns[0]) if labels else np.column_stack(columns)
        rows = rows if dates is None else as_dated(rows, names, dates)
    return found._replace(arguments=(rows, lengths), raw=(rows, lengths))


def _read_targets(path: Path, options: dict[str, Any], fitted: Any) -> Input:
    """Columns of numbers, and one or several that they predict."""
    options = remembered(fitted, options)
    target, columns, encoding = options.get("target"), _chosen(options), options.get("encoding")
    there = column_names(path, encoding=encoding)
    target = there[-1] if target is None else target
    targets = [target] if "," not in target or target in there else [name.strip() for name in target.split(",")]
    numbers = read_numbers(path, columns, targets, encoding=encoding)
    outputs = [numbers.apart[name] for name in targets]
    y = outputs[0] if len(outputs) == 1 else np.column_stack([_numbers_or_texts(output) for output in outputs])
    words = f"{count(len(numbers.rows))} rows, {target} from {', '.join(numbers.names)}"
    return Input((numbers.rows, y), (numbers.rows, y), None, words, {"columns": numbers.names, "target": target})


def _read_along(path: Path, options: dict[str, Any], fitted: Any) -> Input:
    """A column of numbers or of dates, and one that it predicts."""
    options = remembered(fitted, options)
    dates, target = options.get("dates"), options.get("target")
    if dates is None:
        return _read_targets(path, options, fitted)
    if options.get("columns") not in (None, dates):
        raise UserError(f"--dates {dates} is the input, leave --columns {options['columns']} out")
    there = column_names(path, encoding=options.get("encoding"))
    target = next((name for name in reversed(there) if name != dates), dates) if target is None else target
    table = read_numbers(path, [target], [dates], encoding=options.get("encoding"))
    parsed = parsed_dates(table.apart[dates], dates)
    times = (parsed if parsed.tz is None else parsed.tz_convert(None)).to_numpy()
    words = f"{count(len(times))} rows, {target} from {dates}"
    pair = (times, table.rows[:, 0])
    return Input(pair, pair, None, words, {"dates": dates, "columns": [dates], "target": target})


def _read_rows(path: Path, options: dict[str, Any], fitted: Any) -> Input:
    options = remembered(fitted, options)
    numbers = read_numbers(path, _chosen(options), encoding=options.get("encoding"))
    words = f"{count(len(numbers.rows))} rows, columns {', '.join(numbers.names)}"
    return Input((numbers.rows,), numbers.rows, None, words, {"columns": numbers.names})


# -- models --


class Model(NamedTuple):
    """A model of the command line. ``read`` takes the path, its options and the fitted model, or None before the fit."""

    estimator: str
    summary: str
    example: str
    options: tuple[str, ...]
    read: Callable[[Path, dict[str, Any], Any], Input]

    def load(self) -> Any:
        """The estimator's class; imported only when it is needed."""
        return model_class(self.estimator)


def model_of(fitted: Any) -> Model:
    """The entry of a fitted estimator."""
    for model in MODELS.values():
        if model.estimator == type(fitted).__name__:
            return model
    known = ", ".join(model.estimator for model in MODELS.values())
    raise ValueError(f"{type(fitted).__name__} has no commands yet; known are {known}")


MODELS = {
    "lda": Model(
        "LDA",
        "Topics of documents: a folder of texts, a column of a table, lines, lda-c, docword or a sparse matrix.",
        "natgrad fit lda letters/ -o letters.natgrad --n-topics 3 --seed 1",
        (*TEXTS, *COUNTED),
        read_texts,
    ),
    "supervised": Model(
        "SupervisedLDA",
        "Topics of documents that predict a column of their table: a number, or 0 and 1 with --response bernoulli.",
        "natgrad fit supervised reviews.csv -o priced.natgrad --column text --target price --n-topics 2",
        ("target", *TEXTS, *COUNTED),
        _read_texts_with("target"),
    ),
    "correlated": Model(
        "CorrelatedTopics",
        "Topics of documents, and which of them occur together.",
        "natgrad fit correlated letters/ -o together.natgrad --n-topics 3",
        (*TEXTS, *COUNTED),
        read_texts,
    ),
    "dynamic": Model(
        "DynamicTopics",
        "Topics of documents that change over the times in a column of their table.",
        "natgrad fit dynamic reviews.csv -o moving.natgrad --column text --times year --n-topics 2",
        ("times", *TEXTS, *COUNTED),
        _read_texts_with("times"),
    ),
    "author": Model(
        "AuthorTopics",
        "Topics of documents, and which of them the authors in a column of their table write about.",
        "natgrad fit author reviews.csv -o written.natgrad --column text --authors author --n-topics 2",
        ("authors", *TEXTS, *COUNTED),
        _read_texts_with("authors"),
    ),
    "mf": Model(
        "MatrixFactorization",
        "Factors of users and items from ratings: lines of user, item, rating, or Parquet.",
        "natgrad fit mf ratings.csv -o ratings.natgrad --n-factors 3 --noise 2",
        (*RATED, *FEATURES),
        _read_rated,
    ),
    "context": Model(
        "ContextFactorization",
        "Ratings whose levels drift with the times in a column of their table, or whose tastes depend on a column of contexts.",
        "natgrad fit context rated.csv -o drifting.natgrad --time year --n-factors 2 --n-bins 3 --max-steps 5",
        RATED,
        read_context,
    ),
    "hmm": Model(
        "GaussianHMM",
        "Hidden states of real-valued series: columns of a table or of .npy, a time on each row.",
        "natgrad fit hmm series.csv -o series.natgrad --n-states 2 --columns level",
        SERIES,
        _read_sequences,
    ),
    "hmm-categorical": Model(
        "CategoricalHMM",
        "Hidden states of series of symbols: 0, 1, 2, …, or labels.",
        "natgrad fit hmm-categorical series.csv -o symbols.natgrad --n-states 2 --columns symbol",
        SERIES,
        _read_symbols,
    ),
    "hmm-poisson": Model(
        "PoissonHMM",
        "Hidden states of series of counts.",
        "natgrad fit hmm-poisson series.csv -o counts.natgrad --n-states 2 --columns symbol",
        SERIES,
        _read_sequences,
    ),
    "hmm-bernoulli": Model(
        "BernoulliHMM",
        "Hidden states of tracks that are on (1) or off (0).",
        "natgrad fit hmm-bernoulli series.csv -o tracks.natgrad --n-states 2 --columns symbol",
        SERIES,
        _read_sequences,
    ),
    "hmm-tracks": Model(
        "HMM",
        'Hidden states of series of several kinds of columns: --emissions \'{"level": StudentT(), "n": Poisson()}\'.',
        "natgrad fit hmm-tracks series.csv -o both.natgrad --n-states 2 --columns level,symbol --emissions "
        '\'{"level": StudentT(), "symbol": Categorical()}\'',
        SERIES,
        _read_tracks,
    ),
    "mixture": Model(
        "GaussianMixture",
        "Clusters of rows of numbers: columns of a table or of .npy, an observation on each row.",
        "natgrad fit mixture rows.csv -o clusters.natgrad --columns x,y --n-components 3",
        ("columns", "encoding"),
        _read_rows,
    ),
    "gp": Model(
        "SparseGPRegressor",
        "A Gaussian process from columns of numbers to a target: a table or .npy, an observation on each row.",
        "natgrad fit gp rows.csv -o rows.natgrad --columns x --target y --n-inducing 10 --max-steps 50",
        ROWS,
        _read_targets,
    ),
    "gp-time": Model(
        "StateSpaceGP",
        "An exact Gaussian process along one column, such as time, for millions of rows.",
        "natgrad fit gp-time rows.csv -o waves.natgrad --columns x --target y",
        (*ROWS, "dates"),
        _read_along,
    ),
    "gp-neighbours": Model(
        "VecchiaGPRegressor",
        "A Gaussian process given the nearest rows alone, for functions too rough for inducing inputs.",
        "natgrad fit gp-neighbours rows.csv -o near.natgrad --columns x --target y --n-neighbors 30",
        ROWS,
        _read_targets,
    ),
    "gp-classifier": Model(
        "SparseGPClassifier",
        "A Gaussian process from columns of numbers to classes.",
        "natgrad fit gp-classifier rows.csv -o classes.natgrad --columns x,y --target kind --n-inducing 10 --max-steps 50",
        ROWS,
        _read_targets,
    ),
}


# -- a part that is held out --


def split_input(source: Input, fraction: float, seed: int) -> tuple[Input, tuple[Any, ...]]:
    """The input without the part that is held out, and the arguments of ``score`` for that part."""
    try:
        return _split(source, fraction, seed)
    except ValueError as reason:
        raise UserError(f"--held-out {fraction:g}: {reason}") from None


def _split(source: Input, fraction: float, seed: int) -> tuple[Input, tuple[Any, ...]]:
    rng = np.random.default_rng([seed, 2])
    first = source.arguments[0]
    fitted: tuple[Any, ...]
    held: tuple[Any, ...]
    if isinstance(first, Ratings):
        fitted, held = ((part,) for part in split_ratings(first, fraction, rng))
    elif isinstance(first, Corpus):
        return _documents(source, first, fraction, rng)
    elif len(source.arguments) == 2 and np.asarray(source.arguments[1]).dtype.kind in "iu" and _are_lengths(source):
        out, *lengths = split_sequences(source.arguments[1], fraction, rng)
        fitted, held = (first[~out], lengths[0]), (first[out], lengths[1])
    else:
        out = held_out_rows(len(first), fraction, rng, "rows")
        fitted, held = (tuple(part[chosen] for part in source.arguments) for chosen in (~out, out))
    words = f"{source.words}; {_sized(held)} held out"
    return Input(
        fitted, fitted[0] if isinstance(first, Ratings) else fitted, source.names, words, named=source.named
    ), held


def _are_lengths(source: Input) -> bool:
    rows, lengths = source.arguments
    return len(lengths) != len(rows) and int(np.sum(lengths)) == len(rows)


def _documents(
    source: Input, corpus: Corpus, fraction: float, rng: np.random.Generator
) -> tuple[Input, tuple[Any, ...]]:
    out = held_out_rows(len(corpus), fraction, rng, "documents")
    kept, held = (corpus.documents(np.flatnonzero(chosen)) for chosen in (~out, out))
    raw = kept if source.raw is corpus else [text for text, away in zip(source.raw, out, strict=True) if not away]
    names = source.names and [name for name, away in zip(source.names, out, strict=True) if not away]
    parts = [np.flatnonzero(chosen) for chosen in (~out, out)]
    beside = [[[known[d] for d in part] for part in parts] for known in source.arguments[1:]]  # goes with its documents
    words = f"{source.words}; {count(len(held))} documents held out"
    return Input((kept, *(pair[0] for pair in beside)), raw, names, words), (held, *(pair[1] for pair in beside))


def _sized(held: tuple[Any, ...]) -> str:
    n = len(held[0])
    return f"{count(n)} {'rating' if isinstance(held[0], Ratings) else 'row'}{'' if n == 1 else 's'}"
