"""Data that were read from files in; by what any machine that sees these files reads some of them again, out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.mapped import FileIdentity, check_file, file_identity

__all__ = ["Origin", "identities", "origin_of", "reopened"]

Ints = npt.NDArray[np.int64]


class Origin(NamedTuple):
    """Rows of a reader of files: its ``take(rows)`` reads them, wherever the reader travels to.

    Examples
    --------
    >>> from natgrad.data import open_source
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder) / "counts.npy", np.arange(10).reshape(5, 2))
    ...     whole = origin_of(open_source(Path(folder) / "counts.npy"), range(5))
    ...     whole.run(1, 4).chosen(np.array([2, 0])).read().tolist()
    [[6, 7], [2, 3]]
    """

    reader: Any
    files: tuple[FileIdentity, ...]
    rows: range | Ints

    def run(self, begin: int, end: int) -> Origin:
        """Some rows, one after the other."""
        return self._replace(rows=self.rows[begin:end])

    def chosen(self, numbers: Ints) -> Origin:
        """Some rows, in the order given."""
        return self._replace(rows=np.asarray(self.rows)[numbers])

    def read(self) -> Any:
        """The rows, from the files as they were; others are an error."""
        for file in self.files:
            check_file(file)
        return self.reader.take(np.asarray(self.rows, dtype=np.int64))


@lru_cache(maxsize=4)
def reopened(make: Callable[..., Any], files: tuple[FileIdentity, ...], arguments: tuple[Any, ...]) -> Any:
    """A reader that was sent here: opened once, as long as its files are what they were."""
    return make(*arguments)


def origin_of(reader: Any, rows: range | Ints) -> Origin | None:
    """Where rows of a reader lie; None if it reads no files."""
    files = identities(getattr(reader, "files", ()))
    return Origin(reader, files, rows) if files else None


def identities(paths: Iterable[Path]) -> tuple[FileIdentity, ...]:
    """Those of files that are there, by names that hold in any folder."""
    return tuple(identity for path in paths if (identity := file_identity(str(Path(path).absolute()))) is not None)
