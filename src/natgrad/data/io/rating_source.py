"""A file of ratings in; chunks of whole users out, never the whole file: text (also gzipped) or Parquet, ids of any type.

The ratings of a user stand together: files are sorted by user (``sort -t, -k1,1``; ``frame.sort_values("user")``). A chunk ends
where a user ends. Users whose ratings are apart are noticed within a chunk; in different chunks they count as two. An error names
the line and the column, and the chunk in which it is found is not handed out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import numpy as np

from natgrad.data.ids import as_ids
from natgrad.data.io.ratings import EXPECTED, rating_lines, rating_number
from natgrad.data.io.tables import is_parquet
from natgrad.data.io.text import open_text
from natgrad.data.rating_columns import rating_columns
from natgrad.data.ratings import Ratings
from natgrad.data.stream import prefetch

__all__ = ["RatingsSource"]

# Ratings of a chunk, if nobody says; a chunk has at least one user, whatever they rated.
SIZE = 1_000_000


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
        return prefetch(self._whole_users(self._from_parquet() if is_parquet(self.path) else self._from_text()))

    def _whole_users(self, pieces: Iterator[tuple[Any, Any, Any]]) -> Iterator[Ratings]:
        """Pieces put together so that no user is cut; a user who comes back is an error."""
        left: list[tuple[Any, Any, Any]] = []
        last: Any = None
        number = 0
        for piece in pieces:
            left.append(piece)
            users = np.concatenate([part[0] for part in left])
            changes = np.flatnonzero(users[1:] != users[:-1]) + 1
            if not len(changes):
                continue
            cut = int(changes[-1])
            items, values = (np.concatenate([part[place] for part in left]) for place in (1, 2))
            yield self._made(users[:cut], items[:cut], values[:cut], number, last)
            last, number = users[cut - 1], number + 1
            left = [(users[cut:], items[cut:], values[cut:])]
        if left:
            users, items, values = (np.concatenate([part[place] for part in left]) for place in range(3))
            yield self._made(users, items, values, number, last)
        elif not number:
            raise ValueError(f"{self.path}: there are no ratings in it; {EXPECTED}")

    def _made(self, users: Any, items: Any, values: Any, number: int, last: Any) -> Ratings:
        runs = users[np.concatenate([[0], np.flatnonzero(users[1:] != users[:-1]) + 1])]
        names, first, times = np.unique(runs, return_index=True, return_counts=True)
        twice = names[times > 1][np.argmin(first[times > 1])] if (times > 1).any() else None
        if twice is not None or (last is not None and last in names):
            who = np.array([last if twice is None else twice]).tolist()[0]
            raise ValueError(
                f"{self.path}, chunk {number}: ratings of user {who!r} do not stand together; sort the file by user"
            )
        try:
            return Ratings(users, items, values)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.path}, chunk {number}: {error}") from None

    def _from_text(self) -> Iterator[tuple[Any, Any, Any]]:
        user: list[str] = []
        item: list[str] = []
        rating: list[float] = []
        with open_text(self.path, self.encoding) as file:
            for place, (who, what, value) in rating_lines(self.path, file, self.columns or (None, None, None)):
                user.append(who)
                item.append(what)
                rating.append(rating_number(value, place))
                if len(rating) >= self.size:
                    yield as_ids(user, "user"), as_ids(item, "item"), np.array(rating)
                    user, item, rating = [], [], []
        if rating:
            yield as_ids(user, "user"), as_ids(item, "item"), np.array(rating)

    def _from_parquet(self) -> Iterator[tuple[Any, Any, Any]]:
        try:
            import pyarrow
            import pyarrow.dataset
        except ImportError:
            raise ImportError(f"{str(self.path)!r} needs PyArrow: pip install 'natgrad[arrow]'") from None
        try:
            data = pyarrow.dataset.dataset(self.path, format="parquet")
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise ValueError(f"{str(self.path)!r} cannot be read as parquet: {error}") from None
        named = self.columns or (None, None, None)
        columns = [
            name for name in rating_columns(data.schema.names, *named, where=f"{self.path}: ") if name is not None
        ]
        row = 0
        for batch in data.to_batches(columns=columns, batch_size=self.size):
            for name in columns:
                column = batch.column(name)
                if column.null_count:
                    empty = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
                    raise ValueError(f"{self.path}, row {row + empty}, column {name!r}: it is empty")
            row += batch.num_rows
            if batch.num_rows:
                user, item, *rating = (batch.column(name).to_numpy(zero_copy_only=False) for name in columns)
                yield user, item, rating[0] if rating else np.ones(len(user))
