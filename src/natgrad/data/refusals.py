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
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

__all__ = ["naming_its_file"]

Reader = TypeVar("Reader", bound=Callable[..., Any])
DAMAGE = (
    ArithmeticError, EOFError, LookupError, MemoryError, NotImplementedError, OSError, SyntaxError, ValueError, csv.Error,
    struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def naming_its_file(read: Reader) -> Reader:
    """A function of a path and options that refuses damaged files with a ValueError, in which the path is named."""

    @wraps(read)
    def reader(path: Any, *args: Any, **options: Any) -> Any:
        try:
            return read(path, *args, **options)
        except (FileNotFoundError, PermissionError, IsADirectoryError):
            raise
        except DAMAGE as error:
            if type(error) is ValueError and str(path) in str(error):
                raise
            what = str(error) or type(error).__name__
            raise ValueError(f"{path}: cannot be read ({what}); the file is damaged, or of another kind") from None

    return cast(Reader, reader)
