"""A file of ratings in; `Ratings`, or chunks of whole users, out; a file that is not one is told the line and the column.

Parquet has columns, by name. Anything else is text,
maybe gzipped, with a rating on each line; fields are separated by commas, semicolons, tabs or ``::`` (MovieLens). If the first
line names the columns, the names say which is which (`natgrad.data.rating_columns`); without names they are user, item, rating,
and maybe more, which is not read. Ids of a text are text: 7, 007 and +7 are three users.

Whole or in chunks, the same pieces are read. For chunks the ratings of a user must stand together: files are sorted by user
(``sort -t, -k1,1``; ``frame.sort_values("user")``). A chunk ends where a user ends. Users whose ratings are apart are noticed
within a chunk; in different chunks they count as two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from natgrad.data.ids import as_ids
from natgrad.data.io.file_errors import chunks_with_file_errors, raises_file_error
from natgrad.data.io.parquet import ParquetTable, as_arrays
from natgrad.data.io.tables import is_parquet, records, separator_in
from natgrad.data.io.text import number_in, open_text
from natgrad.data.origin import Origin, check_file, origin_of
from natgrad.data.rating_columns import looks_like_header, rating_columns
from natgrad.data.ratings import Ratings, RatingsRows, first_repeated, sorted_run
from natgrad.data.stream import prefetch

__all__ = ["RatingsReader", "RatingsSource", "read_ratings", "read_run"]

Array = npt.NDArray[Any]
FIELDS = ("user", "item", "rating")
EXPECTED = (
    "expected lines of user,item,rating (separated by commas, semicolons, tabs or ::; the first line may be names)"
)
# Ratings of a chunk, if nobody says; a chunk has at least one user, whatever they rated.
SIZE = 1_000_000
# Ratings of a piece, if all are read.
PIECE = 100_000
# The columns that the caller names: user, item and rating, each a name or None.
Named = tuple[str | None, str | None, str | None]
NOBODY: Named = (None, None, None)


@raises_file_error
def read_ratings(
    path: str | Path,
    *,
    user: str | None = None,
    item: str | None = None,
    value: str | None = None,
    encoding: str | None = None,
) -> Ratings:
    r"""Ratings from a file: text (also ``.gz``) or Parquet.

    Parameters
    ----------
    path : str or Path
    user, item, value : str, optional
        The names of the columns, where those of the file do not say what they are. A file with users and items alone holds likes.
    encoding : str, optional
        Of text: by default what its byte-order mark says, or UTF-8.

    Raises
    ------
    ValueError
        With the file, the line and the column of the first thing that is wrong, and what is expected there.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "ratings.csv"
    ...     _ = path.write_text("stars,who,movie\n5,ann,alien\n3,bob,alien\n")
    ...     read_ratings(path, user="who").user_ids.tolist()
    ['ann', 'bob']
    """
    where = Path(path)
    reader = RatingsReader(where.absolute(), (user, item, value), encoding)
    try:
        pieces = list(reader.pieces(PIECE))
    except OSError as error:
        raise ValueError(f"{where}: cannot be read ({error.strerror or error})") from None
    ratings = _ratings(where, _joined(where, pieces))
    ratings.origin = origin_of(reader, range(len(ratings)))
    return ratings


class RatingsReader(NamedTuple):
    """A file of ratings, which whoever sees it reads as it was read here."""

    path: Path
    named: Named = NOBODY
    encoding: str | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """What others may read again: columns, and not text, which takes longer to read than to send."""
        return (self.path.absolute(),) if self.can_jump else ()

    @property
    def can_jump(self) -> bool:
        """Whether ratings in the middle are read without those before them."""
        return is_parquet(self.path)

    def pieces(self, size: int, rows: range | None = None) -> Iterator[_Piece]:
        """All ratings, or some rows of a file that can jump, about ``size`` at a time."""
        if self.can_jump:
            return _parquet_pieces(self.path, self.named, size, rows)
        return _text_pieces(self.path, self.named, self.encoding, size)


def read_run(origin: Origin, of_users: bool, own_ids: Array, other_ids: Array) -> RatingsRows:
    """The ratings of some users, or of some items, of a file, sorted; no others are in memory, but for a piece at a time."""
    for file in origin.files:
        check_file(file)
    assert isinstance(origin.rows, range)
    pieces = origin.reader.pieces(PIECE, origin.rows)
    columns = ((p.user, p.item, p.rating) if of_users else (p.item, p.user, p.rating) for p in pieces)
    return sorted_run(columns, own_ids, other_ids)


@final
class RatingsSource:
    r"""Ratings of a file, in chunks of whole users.

    Parameters
    ----------
    path : str or Path
        Text as `read_ratings` reads it (user, item, rating on each line, or a first line of names; may be ``.gz``), or Parquet.
        Sorted by user.
    size : int, optional
        Ratings of a chunk, about.
    columns : (user, item, rating), optional
        The names of the columns; by default those whose names say what they are.
    encoding : str, optional
        Of text: by default what its byte-order mark says, or UTF-8.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "ratings.csv"
    ...     _ = path.write_text("ann,alien,5\nann,brazil,4\nbob,alien,3\n")
    ...     [chunk.user_ids.tolist() for chunk in RatingsSource(path, size=1).chunks()]
    [['ann'], ['bob']]
    """

    rereadable = True

    def __init__(
        self,
        path: str | Path,
        *,
        size: int | None = None,
        columns: tuple[str, str, str] | None = None,
        encoding: str | None = None,
    ) -> None:
        self.path, self.size, self.columns, self.encoding = Path(path), size or SIZE, columns, encoding
        if not self.path.exists():
            raise FileNotFoundError(f"{str(self.path)!r}: there is no such file")
        self.n_total: int | None = None

    def take(self, rows: Any) -> Ratings:
        """Not of a file of ratings."""
        raise TypeError(
            f"ratings of {self.path.name} cannot be taken by number: they are read from the front to the end"
        )

    def chunks(self) -> Iterator[Ratings]:
        """Chunks of whole users, as they stand in the file."""
        self._reader = RatingsReader(self.path.absolute(), self.columns or NOBODY, self.encoding)
        pieces = self._reader.pieces(self.size)
        return prefetch(chunks_with_file_errors(self.path, self._whole_users(pieces)))

    def _whole_users(self, pieces: Iterator[_Piece]) -> Iterator[Ratings]:
        """Pieces put together so that no user is cut; a user who comes back is an error."""
        left: list[_Piece] = []
        last: Any = None
        number = 0
        for piece in pieces:
            left.append(piece)
            begins = _begins(piece.user)
            if len(left) > 1 and left[-2].user[-1] == piece.user[0]:
                begins = begins[1:]
            if not len(begins) or (len(left) == 1 and len(begins) == 1):
                continue
            whole = _joined(self.path, left)
            cut = len(whole.user) - len(piece.user) + int(begins[-1])
            yield self._checked(whole.part(0, cut), number, last)
            last, number, left = whole.user[cut - 1], number + 1, [whole.part(cut, len(whole.user))]
        if left or not number:
            yield self._checked(_joined(self.path, left), number, last)

    def _checked(self, piece: _Piece, number: int, last: Any) -> Ratings:
        runs = piece.user[_begins(piece.user)]
        names, first, times = np.unique(runs, return_index=True, return_counts=True)
        twice = names[times > 1][np.argmin(first[times > 1])] if (times > 1).any() else None
        if twice is not None or (last is not None and last in names):
            who = np.array([last if twice is None else twice]).tolist()[0]
            raise ValueError(
                f"{self.path}, chunk {number}: ratings of user {who!r} do not stand together; sort the file by user"
            )
        ratings = _ratings(self.path, piece)
        if self._reader.can_jump:
            ratings.origin = origin_of(self._reader, range(int(piece.place[0]), int(piece.place[-1]) + 1))
        return ratings


class _Piece(NamedTuple):
    """Columns as they stand in a file; ``place`` is the line or row of each rating."""

    user: Array
    item: Array
    rating: Array
    place: Array

    def part(self, begin: int, end: int) -> _Piece:
        """Some of it."""
        return _Piece(*(column[begin:end] for column in self))


def _joined(path: Path, pieces: list[_Piece]) -> _Piece:
    """Pieces as one."""
    if not pieces:
        raise ValueError(f"{path}: there are no ratings in it; {EXPECTED}")
    return _Piece(*(np.concatenate(column) for column in zip(*pieces, strict=True)))


def _begins(users: Array) -> npt.NDArray[np.int64]:
    """Where another user begins."""
    return np.concatenate([[0], np.flatnonzero(users[1:] != users[:-1]) + 1])


def _ratings(path: Path, piece: _Piece) -> Ratings:
    """The ratings of a piece; a pair that comes twice is an error with both places."""
    try:
        ratings = Ratings(piece.user, piece.item, piece.rating, duplicates="keep")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    if (repeated := first_repeated(ratings.users, ratings.items)) is not None:
        second, earlier, times = repeated
        unit = "row" if is_parquet(path) else "line"
        raise ValueError(
            f"{path}, {unit} {piece.place[second]}: user {piece.user[second]} rates item {piece.item[second]} a second time, "
            f"after {unit} {piece.place[earlier]} ({times} such); expected one rating for each pair"
        )
    return ratings


# -- text --


def _text_pieces(path: Path, named: Named, encoding: str | None, size: int) -> Iterator[_Piece]:
    with open_text(path, encoding) as file:
        rows = _text_rows(path, file, named)
        # Column by column: a million small tuples are half a gigabyte.
        while (first := next(rows, None)) is not None:
            user, item, rating, line = ([value] for value in first)
            for who, what, value, number in islice(rows, size - 1):
                user.append(who)
                item.append(what)
                rating.append(value)
                line.append(number)
            yield _Piece(as_ids(user, "user"), as_ids(item, "item"), np.array(rating), np.array(line, np.int64))


def _text_rows(path: Path, file: Any, named: Named) -> Iterator[tuple[str, str, float, int]]:
    """User, item, rating and line of each record; a like is the rating 1."""
    skipped = 0
    first = next(file, "")
    while first and not first.strip():
        skipped, first = skipped + 1, next(file, "")
    if not first:
        return
    separator = separator_in(path, first)
    if separator is None:
        raise ValueError(f"{path}, line {skipped + 1}: no separator in {first.strip()[:40]!r}; {EXPECTED}")
    places: tuple[int, ...] = ()
    for number, fields in records(path, chain([first], file), separator):
        line = number + skipped
        if not places:
            places, header = _layout(path, line, [field.strip() for field in fields], named)
            if header:
                continue
        if len(fields) <= max(places):
            if not any(map(str.strip, fields)):
                continue
            raise ValueError(
                f"{path}, line {line}: {len(fields)} column{'s' if len(fields) != 1 else ''}, but at least "
                f"{max(places) + 1} are needed; {EXPECTED}"
            )
        user, item = fields[places[0]].strip(), fields[places[1]].strip()
        if not (user and item):
            if not any(map(str.strip, fields)):
                continue
            name, place = (FIELDS[0], places[0]) if not user else (FIELDS[1], places[1])
            raise ValueError(f"{path}, line {line}, column {place + 1}: the {name} is empty; {EXPECTED}")
        rating = number_in(fields[places[2]]) if len(places) > 2 else 1.0
        if not math.isfinite(rating):
            shown = fields[places[2]].strip()
            raise ValueError(
                f"{path}, line {line}, column {places[2] + 1}: the rating must be a finite number, got {shown!r}"
            )
        yield user, item, rating, line


def _layout(path: Path, line: int, names: list[str], named: Named) -> tuple[tuple[int, ...], bool]:
    """Where user, item and rating stand (likes have none), by the first record; and whether that is a header."""
    # A line with a number in it is a rating, unless it has the names that we know, or the caller says that there are names.
    if named == NOBODY and not looks_like_header(names) and any(math.isfinite(number_in(name)) for name in names):
        return (0, 1, 2), False
    columns = rating_columns(names, *named, where=f"{path}, line {line}: ")
    return tuple(names.index(name) for name in columns if name is not None), True


# -- columns --


def _parquet_pieces(path: Path, named: Named, size: int, rows: range | None = None) -> Iterator[_Piece]:
    table, row = ParquetTable(path), 0 if rows is None else rows.start
    columns = [name for name in rating_columns(table.names, *named, where=f"{path}: ") if name is not None]
    for batch in table.batches(columns, size, rows):
        for name in columns:
            if batch.column(name).null_count:
                empty = int(np.argmax(batch.column(name).is_null().to_numpy(zero_copy_only=False)))
                raise ValueError(f"{path}, row {row + empty}, column {name!r}: it is empty; leave out the row")
        user, item, *value = as_arrays(batch, columns)
        rating = value[0] if value else np.ones(len(user))
        if rating.dtype.kind == "f" and not np.isfinite(rating).all():
            place = int(np.argmin(np.isfinite(rating)))
            raise ValueError(
                f"{path}, row {row + place}, column {columns[-1]!r}: the rating must be a finite number, got {rating[place]}; "
                "leave out the row"
            )
        yield _Piece(user, item, rating, np.arange(row, row + batch.num_rows))
        row += batch.num_rows
