"""A reader of files in; the same reader out, whose errors about a damaged file are one ValueError that names it.

What the formats' own libraries raise (a broken archive, a cut stream, a header that makes no sense, bytes that are no text, sizes
that do not fit in memory) says neither which file it was nor what to do.
"""

from __future__ import annotations

import csv
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

__all__ = ["as_file_error", "chunks_with_file_errors", "raises_file_error"]

Reader = TypeVar("Reader", bound=Callable[..., Any])
DAMAGE = (
    ArithmeticError, EOFError, LookupError, MemoryError, OSError, RuntimeError, SyntaxError, ValueError, csv.Error, struct.error,
    tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


@contextmanager
def as_file_error(path: Any) -> Iterator[None]:
    """What goes wrong inside because a file is damaged is one ValueError that names it."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except Exception as error:
        # Some errors of PyArrow belong to none of the others, and it need not be installed.
        if not isinstance(error, DAMAGE) and type(error).__module__ != "pyarrow.lib":
            raise
        if type(error) is ValueError and str(path) in str(error):
            raise
        what = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path}: cannot be read ({what}); the file is damaged, or of another kind") from None


def raises_file_error(read: Reader) -> Reader:
    """A function of a path and options that refuses damaged files with a ValueError, in which the path is named."""

    @wraps(read)
    def reader(path: Any, *args: Any, **options: Any) -> Any:
        with as_file_error(path):
            return read(path, *args, **options)

    return cast("Reader", reader)


def chunks_with_file_errors(path: Any, chunks: Iterator[Any]) -> Iterator[Any]:
    """The same chunks; an error on the way names the file."""
    with as_file_error(path):
        yield from chunks
