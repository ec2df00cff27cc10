"""What is known of documents besides their words, as users have it, in; times, authors and classes, checked, out."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.validation import require

__all__ = ["as_authors", "as_classes", "as_times", "is_missing", "times_from_file", "times_to_file"]

Floats = npt.NDArray[np.float64]
NUMBER = re.compile(r"[+-]?\d+(\.\d*)?")
KINDS = {"i": "numbers", "u": "numbers", "f": "numbers", "b": "numbers", "M": "dates", "U": "names", "O": "objects"}


def is_missing(value: Any) -> bool:
    """Whether a value stands for none: None, NaN, NaT, NA."""
    if value is None or repr(value) in ("<NA>", "NaT"):
        return True
    return isinstance(value, (float, np.floating, np.datetime64)) and value != value


# -- times --


def as_times(times: Any, n_documents: int, earlier: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
    """Numbers, dates or names [D] that sort as they follow one another, of the kind of ``earlier`` ones.

    Names that are numbers are read as such: "9" comes before "10".
    """
    if isinstance(times, (str, bytes)):
        raise TypeError(f"times is one text, {times[:20]!r}: give a list with a time for each document")
    _refuse_order(times)
    given = np.asarray(times, dtype=object if isinstance(times, (list, tuple)) else None)
    if given.shape != (n_documents,):
        raise ValueError(f"times must have one entry for each of {n_documents} documents, got shape {given.shape}")
    for place, value in enumerate(given.tolist() if given.dtype.kind in "fO" else ()):
        if is_missing(value):
            raise ValueError(f"times[{place}] = {value} must be known: leave out documents without a time")
    if given.dtype.kind == "M" and np.isnat(given).any():
        raise ValueError(
            f"times[{int(np.isnat(given).argmax())}] = NaT must be known: leave out documents without a time"
        )
    labels = _of_one_kind(given) if given.dtype.kind == "O" else given
    if labels.dtype.kind == "f":
        require(np.isfinite(labels), labels, "times", "finite")
    if labels.dtype.kind not in "biufMU":
        raise TypeError(f"times must be numbers, dates or names, got an array of {labels.dtype}")
    if labels.dtype.kind == "U" and (earlier is None or earlier.dtype.kind != "U"):
        labels = _read_numbers(labels)
    if earlier is not None:
        now, then = (KINDS.get(part.dtype.kind, "objects") for part in (labels, earlier))
        if now != then:
            raise TypeError(f"times are {now}, and those of the fit are {then}, from {earlier[0]} to {earlier[-1]}")
    return labels


def _refuse_order(times: Any) -> None:
    """Refuse categories in an order that is not that of their names."""
    categories = getattr(times, "cat", times)
    if not getattr(categories, "ordered", False):
        return
    names = list(categories.categories)
    if names != sorted(names):
        codes = "times.cat.codes" if hasattr(times, "cat") else "times.codes"
        raise ValueError(
            f"times are categories in the order {', '.join(map(str, names[:3]))}, …, and would be taken in that of their names: "
            f"give {codes}"
        )


def _of_one_kind(given: npt.NDArray[Any]) -> npt.NDArray[Any]:
    values = given.tolist()
    kinds: list[tuple[Any, Any]] = [
        (str, lambda: np.array(values, dtype=str)),
        (datetime, lambda: np.array([_in_utc(value) for value in values], dtype="datetime64[us]")),
        (date, lambda: np.array(values, dtype="datetime64[us]" if any(map(_has_hours, values)) else "datetime64[D]")),
        (np.datetime64, lambda: np.array(values)),
        ((int, float, np.integer, np.floating, np.bool_), lambda: np.array(values)),
    ]
    for kind, made in kinds:
        if all(isinstance(value, kind) for value in values):
            return np.asarray(made())
    if all(type(value).__name__ == "Period" for value in values):  # of pandas: its name sorts as it does
        return np.array([str(value) for value in values])
    place = next((p for p, value in enumerate(values) if type(value) is not type(values[0])), 0)
    raise TypeError(
        f"times[{place}] = {values[place]!r} is of type {type(values[place]).__name__}, and times[0] = {values[0]!r} of type "
        f"{type(values[0]).__name__}: give numbers, dates or names, all of one kind"
    )


def _in_utc(value: Any) -> Any:
    return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)


def _has_hours(value: Any) -> bool:
    return isinstance(value, datetime)


def _read_numbers(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    names = labels.tolist()
    if all(NUMBER.fullmatch(name) for name in names):
        return np.array(names, dtype=float if any("." in name for name in names) else int)
    different = sorted(set(names))
    if len(different) > 2 and not any(c.isdigit() for name in names for c in name):
        warnings.warn(
            f"times are names, taken in alphabetical order: {', '.join(different[:4])}, …; for another, give numbers or dates",
            UserWarning,
            stacklevel=6,
        )
    return labels


# Of dates in a file, which holds numbers and texts.
DATE = "|"


def times_to_file(times: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Times as a file can hold them: dates as texts with their unit."""
    if times.dtype.kind != "M":
        return times
    return np.array([f"{times.dtype}{DATE}{value}" for value in times.astype(str).tolist()], dtype=object)


def times_from_file(times: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """And back."""
    names = [str(name).split(DATE) for name in times.tolist()]
    if not names or any(len(name) != 2 or not name[0].startswith("datetime64[") for name in names):
        return times
    return np.array([name[1] for name in names], dtype=names[0][0])


# -- authors --


def as_authors(authors: Any, n_documents: int) -> list[list[Any]]:
    """The different authors of each document."""
    if isinstance(authors, (str, bytes, Mapping)):
        raise TypeError(f"authors must be a list with the authors of each document, got {type(authors).__name__}")
    if isinstance(authors, np.ndarray) and authors.ndim == 2 and _is_membership(authors):
        raise TypeError(
            "authors is a table of 0 and 1, and is read as names: give names, as in [np.flatnonzero(row) for row in authors]"
        )
    listed = list(authors if hasattr(authors, "__iter__") else np.asarray(authors))
    if len(listed) != n_documents:
        raise ValueError(f"authors must have a list for each of {n_documents} documents, got {len(listed)}")
    lists = [_names(entry, f"authors[{d}]") for d, entry in enumerate(listed)]
    kinds = {isinstance(name, str): (d, name) for d, names in reversed(list(enumerate(lists))) for name in names}
    if len(kinds) == 2:
        (d, name), (e, other) = kinds[True], kinds[False]
        raise TypeError(
            f"authors[{d}] has the text {name!r} and authors[{e}] has {other!r}: give all as texts, or none"
        )
    return lists


def _names(entry: Any, where: str) -> list[Any]:
    single = entry is None or isinstance(entry, (str, bytes)) or not isinstance(entry, Iterable)
    names = [entry] if single else list(dict.fromkeys(entry))
    if not names:
        raise ValueError(f"{where} is empty: every document has at least one author")
    for name in names:
        if is_missing(name):
            raise ValueError(
                f"{where} has {name!r}: every document has at least one author; leave out those without, or name one"
            )
        if not isinstance(name, (str, int, float, np.integer, np.floating)):
            raise TypeError(f"{where} has {name!r}: authors are names or numbers")
    return names


def _is_membership(table: npt.NDArray[Any]) -> bool:
    return table.dtype.kind == "b" or (table.dtype.kind in "iuf" and bool(np.isin(table, (0, 1)).all()))


# -- classes --


def as_classes(y: Any, n_documents: int, known: npt.NDArray[Any] | None) -> tuple[Floats, npt.NDArray[Any]]:
    """Responses of two classes as 0, 1 and NaN for none [D]; the two classes, by default those that there are, sorted."""
    given = np.asarray(y, dtype=object)
    if given.shape != (n_documents,):
        raise ValueError(f"y must have one class for each of {n_documents} documents, got shape {given.shape}")
    there = np.array([not is_missing(value) for value in given.tolist()], dtype=bool)
    if known is None:
        known = _two_classes({place: given[place] for place in np.flatnonzero(there).tolist()})
    number = {name: place for place, name in enumerate(known.tolist())}
    values = np.full(n_documents, np.nan)
    for place in np.flatnonzero(there).tolist():
        if given[place] not in number:
            raise ValueError(
                f"y[{place}] = {given[place]!r} is none of the two classes of the fit, {known[0]!r} and {known[1]!r}"
            )
        values[place] = number[given[place]]
    return values, known


def _two_classes(found: Mapping[int, Any]) -> npt.NDArray[Any]:
    different = list(dict.fromkeys(found.values()))
    names = [value for value in different if isinstance(value, str)]
    if names and len(names) < len(different):
        raise TypeError(f"y has texts and others, {names[0]!r} and {next(v for v in different if v not in names)!r}")
    if not names:
        for place, value in found.items():
            if value % 1 != 0:  # of infinity, too
                raise ValueError(
                    f'y[{place}] = {value!r} must be 0 or 1, or one of two classes, with response="bernoulli"'
                )
        if set(different) <= {0, 1}:
            return np.array([0.0, 1.0])
    if len(different) != 2:
        shown = ", ".join(map(repr, different[:3]))
        third = next((place for place, value in found.items() if different[2:3] == [value]), None)
        raise ValueError(
            f'y must have two classes with response="bernoulli", or be 0 and 1, got {len(different)}: {shown}'
            + ("" if third is None else f"; the third comes with y[{third}]")
        )
    return np.array(sorted(different), dtype=object if names else np.float64)
