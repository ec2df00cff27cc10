"""A text file in, gzipped or not; its lines out, in the encoding that its mark or its reader names, or an error with a place.

`open_text` is the one opener of text. `TextSource` is what formats that are read line by line have in common.

A file that begins with a byte-order mark is UTF-8, UTF-16 or UTF-32, as the mark says. Everything else is UTF-8, unless
``encoding`` says otherwise: a byte that is not UTF-8 is never left out or guessed at, as "über" in Latin-1 would become "ber".
"""

from __future__ import annotations

import codecs
import gzip
import io
import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast, final

from natgrad.data.io.file_errors import chunks_with_file_errors
from natgrad.data.stream import SIZE, prefetch

__all__ = ["TextSource", "number_in", "open_text", "pairs_in", "whole_number_in", "wrong_field"]

# UTF-32 first: its mark begins with that of UTF-16.
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Bytes that are looked at for zeros, which text in UTF-8 has not and every page of UTF-16 without a mark has.
HEAD = 65_536
# Numbers of a word or a feature beyond this are a mistake: nobody has so many columns.
MOST_COLUMNS = 2**31 - 1


@contextmanager
def open_text(path: str | Path, encoding: str | None = None) -> Iterator[TextIO]:
    """A text file to read from; damaged compression and bytes that are not in the encoding are a ValueError.

    Parameters
    ----------
    path : str or Path; ``.gz`` is gzipped
    encoding : str, optional
        As Python calls it: "latin-1", "utf-16-le", "cp1252", …; by default what the file's mark says, or UTF-8.
    """
    where = Path(path)
    chosen = _known(encoding) if encoding is not None else _encoding_of(where)
    try:
        with _opened(where) as raw, io.TextIOWrapper(raw, encoding=chosen, newline="") as file:
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{where}: the compressed data are damaged or cut off ({error})") from None
    except UnicodeDecodeError:
        raise ValueError(_misread(where, chosen)) from None


def number_in(text: str) -> float:
    """The number that a field of a file holds, NaN if it is none; Python's own spellings, as 1_0 for 10, are none.

    Examples
    --------
    >>> number_in(" 2.5"), number_in("1_0"), number_in("three")
    (2.5, nan, nan)
    """
    if "_" in text:
        return math.nan
    try:
        return float(text)
    except ValueError:
        return math.nan


def whole_number_in(text: str) -> int:
    """The whole number that a field of a file holds; anything else, and 1_0, is a ValueError."""
    if "_" in text:
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def wrong_field(path: Path, line: int, text: str, place: int, expected: str) -> ValueError:
    """An error that points at a field, between blanks, of a line; ``place`` is counted from 0."""
    fields, column = text.split(), len(text.rstrip("\r\n"))
    shown = fields[place] if place < len(fields) else "the end of the line"
    if place < len(fields):
        end = 0
        for field in fields[: place + 1]:
            column = text.index(field, end)
            end = column + len(field)
    return ValueError(f"{path}, line {line}, column {column + 1}: expected {expected}, got {shown[:40]!r}")


def pairs_in(path: Path, line: int, text: str, skip: int, least: int) -> tuple[list[int], list[float]]:
    """The fields ``number:value`` of a line, after the first ``skip``; numbers from ``least`` on, and finite values."""
    numbers, values = [], []
    for place, field in enumerate(text.split()[skip:], skip):
        try:
            left, right = field.split(":")
            number, value = whole_number_in(left), number_in(right)
        except ValueError:
            raise wrong_field(path, line, text, place, "number:value") from None
        if not least <= number <= MOST_COLUMNS:
            raise wrong_field(path, line, text, place, f"a number from {least} to {MOST_COLUMNS} before the colon")
        if not math.isfinite(value):
            raise wrong_field(path, line, text, place, "a finite value")
        numbers.append(number)
        values.append(value)
    return numbers, values


class TextSource(ABC):
    """A source whose rows are lines, read from the front to the end."""

    rereadable = True

    def __init__(self, path: str | Path, size: int | None, encoding: str | None, n_total: int | None = None) -> None:
        self.path, self.size, self.encoding, self.n_total = Path(path), size or SIZE, encoding, n_total

    @abstractmethod
    def parts(self) -> Iterator[Any]:
        """All rows, ``size`` at a time."""

    @final
    def chunks(self) -> Iterator[Any]:
        """The same, read ahead; errors name the file."""
        return prefetch(chunks_with_file_errors(self.path, self.parts()))

    @final
    def take(self, rows: Any) -> Any:
        """Not of text."""
        raise TypeError(f"rows of {self.path.name} cannot be taken by number: it is text; write it as .npy or .parquet")


def _opened(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path, "rb")) if path.suffix.lower() == ".gz" else path.open("rb")


def _known(encoding: str) -> str:
    try:
        name = codecs.lookup(encoding).name
        "".encode(name)
    except (LookupError, TypeError):
        raise ValueError(
            f"encoding must be one that Python knows, as 'latin-1' or 'utf-16-le', got {encoding!r}"
        ) from None
    return "utf-8-sig" if name == "utf-8" else name


def _encoding_of(path: Path) -> str:
    try:
        with _opened(path) as raw:
            head = raw.read(HEAD)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: the compressed data are damaged or cut off ({error})") from None
    for mark, encoding in MARKS:
        if head.startswith(mark):
            return encoding
    if (zero := head.find(b"\0")) >= 0:
        raise ValueError(
            f"{path}: byte {zero} is zero, which no text in UTF-8 has: give encoding=, as in encoding='utf-16-le' (or "
            "'utf-16-be'), if this is text of two bytes a letter"
        )
    return "utf-8-sig"


def _misread(path: Path, encoding: str) -> str:
    """Where the first byte is that the encoding has not; the error of a stream counts from the middle of the file."""
    plain = "utf-8" if encoding == "utf-8-sig" else encoding
    decoder, begin, line = codecs.getincrementaldecoder(plain)(), 0, 1
    with _opened(path) as raw:
        while True:
            piece, waiting = raw.read(HEAD), len(decoder.getstate()[0])
            try:
                decoder.decode(piece, final=not piece)
            except UnicodeDecodeError as error:
                place, value = begin - waiting + error.start, error.object[error.start]
                line += piece.count(b"\n", 0, max(0, error.start - waiting))
                return (
                    f"{path}, line {line}: not a text in {plain.upper()}: byte {place} is {value:#04x} ({error.reason}); save it "
                    "as UTF-8, or give its encoding=, as in encoding='latin-1'"
                )
            if not piece:
                return f"{path}: changed while it was read"
            begin, line = begin + len(piece), line + piece.count(b"\n")
