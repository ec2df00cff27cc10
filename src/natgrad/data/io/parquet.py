"""Parquet or Arrow files, or a folder of them, in; row group after row group, their columns out.

`ParquetTable` is the one reader: tables, ratings, documents, rows and sequences take their columns from it. A row group that
cannot be read is an error that names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from natgrad.data.frames import as_column, choose_columns, refuse_duplicates
from natgrad.data.io.file_errors import as_file_error
from natgrad.data.origin import identities, reopened
from natgrad.data.stream import SIZE, RowSource

__all__ = ["ParquetSource", "ParquetTable"]

Array = npt.NDArray[Any]
ARROW = (".arrow", ".feather")


@final
class ParquetTable:
    """The columns of a file, or of all files in a folder.

    Parameters
    ----------
    path : str or Path

    Attributes
    ----------
    names : of the columns
    n_rows : int
    files : those that it reads
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            import pyarrow
            import pyarrow.dataset
            import pyarrow.parquet
        except ImportError:
            raise ImportError(f"{self.path}: reading Parquet needs PyArrow: pip install 'natgrad[arrow]'") from None
        files = self.path.iterdir() if self.path.is_dir() else [self.path]
        kind = "feather" if any(file.suffix in ARROW for file in files) else "parquet"
        try:
            self._data = pyarrow.dataset.dataset(self.path, format=kind)
            self.n_rows: int = self._data.count_rows()
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.path}: there is no such file or folder") from None
        except (pyarrow.ArrowInvalid, OSError) as error:
            if "duplicate field names" in str(error):
                refuse_duplicates(self.path, pyarrow.parquet.read_schema(self.path).names)
            raise ValueError(
                f"{self.path}: cannot be read as {kind} ({error}); the file is damaged or cut off: write it anew"
            ) from None
        self.files = tuple(map(Path, self._data.files))
        self.names: list[str] = list(self._data.schema.names)
        if not self.names:
            raise ValueError(f"{self.path}: there are no columns in it; expected Parquet or Arrow files")
        refuse_duplicates(self.path, self.names)

    def __reduce__(self) -> Any:
        return reopened, (ParquetTable, identities(self.files), (self.path.absolute(),))

    def choose(self, columns: Sequence[str] | None) -> list[str]:
        """The names of some columns, or of all; one that is not there is an error."""
        return choose_columns(self.path, self.names, columns)

    def type_of(self, name: str) -> Any:
        """Arrow's type of a column."""
        return self._data.schema.field(name).type

    def batches(self, columns: list[str], size: int = SIZE, rows: range | None = None) -> Iterator[Any]:
        """Columns of at most ``size`` rows at a time, as Arrow has them; a batch never spans two row groups.

        ``rows`` are those that are wanted, all by default: row groups without any of them are not read.
        """
        before = 0
        for fragment in self._data.get_fragments():
            # Arrow would fill a column that another file of the folder lacks with nothing.
            choose_columns(fragment.path, fragment.physical_schema.names, columns)
            # Arrow reads several row groups of a file at once unless it is given them one by one.
            groups = fragment.split_by_row_group() if hasattr(fragment, "split_by_row_group") else [fragment]
            for number, group in enumerate(groups):
                with as_file_error(f"{fragment.path}, row group {number}"):
                    if rows is None:
                        parts = group.to_batches(schema=self._data.schema, columns=columns, batch_size=size)
                        yield from (part for part in parts if part.num_rows)
                        continue
                    # Of a row group, Arrow would count the rows of its file.
                    own = getattr(group, "row_groups", None)
                    n_rows = group.count_rows() if own is None else sum(part.num_rows for part in own)
                    if before < rows.stop and rows.start < before + n_rows:
                        yield from self._some(group, columns, size, range(rows.start - before, rows.stop - before))
                    before += n_rows

    def _some(self, group: Any, columns: list[str], size: int, rows: range) -> Iterator[Any]:
        """The batches of a row group with some of its rows, cut to these."""
        first = 0
        for part in group.to_batches(schema=self._data.schema, columns=columns, batch_size=size):
            begin, end = max(rows.start - first, 0), min(rows.stop - first, part.num_rows)
            if begin < end:
                yield part.slice(begin, end - begin)
            first += part.num_rows

    def arrays(self, columns: list[str], size: int = SIZE, rows: range | None = None) -> Iterator[list[Array]]:
        """The same as arrays, one for each column."""
        return (as_arrays(batch, columns) for batch in self.batches(columns, size, rows))

    def take(self, rows: Any, columns: list[str]) -> list[Array]:
        """Columns of some rows, in the order given."""
        with as_file_error(self.path):
            return as_arrays(self._data.take(np.asarray(rows), columns=columns), columns)


def as_arrays(batch: Any, columns: list[str]) -> list[Array]:
    """The columns of a batch as arrays; a missing number is NaN, a missing text None."""
    return [as_column(batch.column(name)) for name in columns]


@final
class ParquetSource(RowSource):
    """Numeric columns of Parquet or Arrow files, or of a folder of them, as rows [n, columns]; a missing value is NaN.

    Parameters
    ----------
    path : str or Path
    columns : names, optional; by default all, which must then be numbers
    size, shuffle : as in `open_source`
    """

    def __init__(
        self,
        path: str | Path,
        *,
        columns: Sequence[str] | None = None,
        size: int | None = None,
        shuffle: int | None = None,
    ) -> None:
        self._table = ParquetTable(path)
        self.columns = self._table.choose(columns)
        from pyarrow import types

        for name in self.columns:
            type_of_column = self._table.type_of(name)
            if not (
                types.is_integer(type_of_column)
                or types.is_floating(type_of_column)
                or types.is_boolean(type_of_column)
            ):
                raise TypeError(
                    f"{self._table.path}: column {name!r} is {type_of_column}, not numbers: choose others with columns="
                )
        self.files = self._table.files
        super().__init__(self._table.n_rows, size, shuffle)

    def take(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Some rows [n, columns]."""
        return _numbers(self._table.take(rows, self.columns))

    def runs(self) -> Iterator[npt.NDArray[np.float64]]:
        """Rows as they lie in the files."""
        return map(_numbers, self._table.arrays(self.columns, self.size))


def _numbers(columns: list[Array]) -> npt.NDArray[np.float64]:
    return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)
