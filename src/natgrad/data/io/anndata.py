"""AnnData files in; cells as bags of genes, a `Corpus`, out.

An ``.h5ad`` holds counts of cells by genes, dense or compressed by rows; they are read from the disk as they are wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import scipy

from natgrad.data.corpus import Corpus, as_corpus
from natgrad.data.io.file_errors import as_file_error
from natgrad.data.origin import identities, reopened
from natgrad.data.stream import RowSource

__all__ = ["H5adSource"]

Ints = npt.NDArray[np.int64]
# In an HDF5 file anything may stand where a table, a name or a number should: then it has not the attributes of one.
STRANGE = AttributeError, TypeError


@final
class H5adSource(RowSource):
    """Cells of an AnnData file, read from the disk as they are wanted.

    Parameters
    ----------
    path : str or Path
    layer : str, optional
        The layer with raw counts; by default "counts" if there is one, otherwise X.
    size, shuffle : as in `open_source`
    """

    def __init__(
        self, path: str | Path, *, layer: str | None = None, size: int | None = None, shuffle: int | None = None
    ) -> None:
        self.path, self.layer = Path(path), layer
        self.files = (self.path,)
        with as_file_error(self.path, *STRANGE), self._opened() as file:
            for part in ("X", "var"):
                if part not in file:
                    raise ValueError(f"{self.path}: there is no {part!r} in it: not an AnnData file")
            layers = list(file.get("layers", {}))
            if layer is not None and layer not in layers:
                raise ValueError(f"{self.path}: there is no layer {layer!r}; there are {', '.join(layers) or 'none'}")
            chosen = layer if layer is not None else "counts" if "counts" in layers else None
            self.place = "X" if chosen is None else f"layers/{chosen}"
            kind = str(file[self.place].attrs.get("encoding-type", "array"))
            if kind not in ("array", "csr_matrix"):
                raise ValueError(
                    f"{self.path}: {self.place} is a {kind}, in which rows cannot be found; write it as csr_matrix"
                )
            self.sparse = kind == "csr_matrix"
            table = file[self.place]
            shape = table.attrs["shape"] if self.sparse else table.shape
            n_cells, self.n_words = int(shape[0]), int(shape[1])
            names = file["var"]
            column = names.attrs.get("_index", "_index")
            if column not in names:
                raise ValueError(f"{self.path}: var has no index: the genes have no names")
            self.names = self._texts(names[column], f"var/{column}")
        if len(self.names) != self.n_words:
            raise ValueError(f"{self.path}: {self.place} has {self.n_words} genes and var names {len(self.names)}")
        super().__init__(n_cells, size, shuffle)

    def __reduce__(self) -> Any:
        return reopened, (_opened, identities(self.files), (self.path.absolute(), self.layer, self.size, self.shuffle))

    def _texts(self, column: Any, place: str) -> npt.NDArray[Any]:
        """A column of texts: a plain one, or one beside a mask of what is missing, as anndata 0.13 writes it with pandas 3."""
        masked = isinstance(column, Mapping)
        if masked and not {"values", "mask"} <= set(column):
            raise ValueError(f"{self.path}: {place} is no column of texts, but a group of {sorted(column)}")
        values = column["values"] if masked else column
        missing = np.flatnonzero(column["mask"][:] if masked else np.zeros(0))
        if len(missing):
            raise ValueError(f"{self.path}: {place}[{missing[0]}] is missing: every gene needs a name")
        return np.array(values.asstr()[:], dtype=object)

    def take(self, rows: Ints) -> Corpus:
        """Some cells; runs of neighbours are read at once."""
        wanted = self.checked(rows)
        order = np.argsort(wanted, kind="stable")
        runs = np.split(wanted[order], np.flatnonzero(np.diff(wanted[order]) != 1) + 1) if len(wanted) else []
        back = np.empty(len(wanted), np.int64)
        back[order] = np.arange(len(wanted))
        with as_file_error(self.path, *STRANGE), self._opened() as file:
            parts = [self._run(file[self.place], int(run[0]), int(run[-1]) + 1) for run in runs]
            return as_corpus(scipy.sparse.vstack(parts, format="csr")[back], self.names)

    def runs(self) -> Iterator[Corpus]:
        """Cells as they stand in the file."""
        return (self.take(np.arange(begin, end)) for begin, end in self.bounds())

    def _run(self, table: Any, begin: int, end: int) -> Any:
        if not self.sparse:
            return scipy.sparse.csr_array(table[begin:end])
        start = np.asarray(table["indptr"][begin : end + 1], dtype=np.int64)
        inside = slice(int(start[0]), int(start[-1]))
        parts = table["data"][inside], table["indices"][inside], start - start[0]
        return scipy.sparse.csr_array(parts, shape=(end - begin, self.n_words))

    def _opened(self) -> Any:
        try:
            import h5py
        except ImportError:
            raise ImportError(f"{self.path} needs h5py: pip install 'natgrad[cells]'") from None
        if not self.path.exists():
            raise FileNotFoundError(f"{str(self.path)!r}: there is no such file")
        try:
            return h5py.File(self.path, "r")
        except OSError as error:
            raise ValueError(f"{self.path}: cannot be read as .h5ad: {error}") from None


def _opened(path: Path, layer: str | None, size: int, shuffle: int | None) -> H5adSource:
    return H5adSource(path, layer=layer, size=size, shuffle=shuffle)
