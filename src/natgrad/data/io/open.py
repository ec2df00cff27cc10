"""Whatever holds data in, also the name of a file; the source that reads it, chunk by chunk, out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from natgrad.data.io.bags import DocwordSource, LdacSource
from natgrad.data.io.npy import load_array
from natgrad.data.io.parquet import ARROW, ParquetSource
from natgrad.data.stream import ArraySource, IteratorSource, Source

__all__ = ["open_source"]

# By the end of their names, without .gz: what can jump, and text, which is read from the front to the end.
JUMPING: dict[str, Callable[..., Source]] = {
    **dict.fromkeys((".parquet", ".pq", *ARROW), ParquetSource),
    ".npy": lambda path, **options: ArraySource(load_array(path, "r"), **options),
}
TEXT: dict[str, Callable[..., Source]] = {".ldac": LdacSource}
# What other libraries read whole, and how.
ELSEWHERE = {
    ".mtx": "scipy.io.mmread(path)",
    ".bed": "natgrad.data.genotypes(bed_reader.open_bed(path).read(dtype='int8'))",
    ".h5ad": "anndata.read_h5ad(path)",
    **dict.fromkeys((".svm", ".svmlight", ".libsvm"), "sklearn.datasets.load_svmlight_file(path)[0]"),
}


def open_source(data: Any, *, size: int | None = None, shuffle: int | None = None, **options: Any) -> Source:
    """The source of whatever holds data.

    Parameters
    ----------
    data : an array, sparse matrix or memory map; an iterator of chunks; or a path: ``.npy``, ``.parquet``, ``.arrow``,
        ``.feather`` or a folder of these, ``.ldac``, ``docword…``; text also with ``.gz``
    size : rows of a chunk, optional
    shuffle : int, optional
        A seed: chunks are then made of blocks in a random order, with their rows mixed; not for text.
    **options : of the source: ``columns`` of Parquet, ``vocabulary`` of lda-c and docword

    Examples
    --------
    >>> import numpy as np
    >>> source = open_source(np.arange(10).reshape(5, 2), size=2)
    >>> source.n_total, [len(chunk) for chunk in source.chunks()]
    (5, [2, 2, 1])
    >>> source.take(np.array([4, 0])).tolist()
    [[8, 9], [0, 1]]
    """
    if isinstance(data, (str, Path)):
        return _open_file(Path(data), size, shuffle, options)
    if hasattr(data, "chunks") and hasattr(data, "take"):
        made: Source = data
        return made
    if isinstance(data, Iterator):
        return IteratorSource(data)
    return ArraySource(data, size, shuffle)


def _open_file(path: Path, size: int | None, shuffle: int | None, options: dict[str, Any]) -> Source:
    if not path.exists():
        raise FileNotFoundError(f"{str(path)!r}: there is no such file or folder")
    name = path.name.removesuffix(".gz")
    suffix = Path(name).suffix
    if path.is_dir() or suffix in JUMPING:
        make = ParquetSource if path.is_dir() else JUMPING[suffix]
        return make(path, size=size, shuffle=shuffle, **options)
    if shuffle is not None:
        raise ValueError(
            f"shuffle={shuffle!r}: {path.name} is read from the front to the end; write it as .npy or .parquet"
        )
    if name.startswith("docword") and suffix not in TEXT:
        return DocwordSource(path, size=size, **options)
    if suffix in TEXT:
        return TEXT[suffix](path, size=size, **options)
    if suffix in ELSEWHERE:
        raise ValueError(f"{path.name!r}: read it with {ELSEWHERE[suffix]}, and give what it returns")
    raise ValueError(
        f"{path.name!r} is no kind of file that is known: .npy, .parquet, .arrow, .feather, .ldac, docword…"
    )
