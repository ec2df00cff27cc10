"""Read AnnData files as bags of genes, a `Corpus`, cell by cell.

An ``.h5ad`` holds counts of cells by genes, dense or compressed by rows; they are read from the disk as they are wanted.
"""

from __future__ import annotations

from collections.abc import Iterator
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
            layers = list(file.get("layers", {}))
            if layer is not None and layer not in layers:
                raise ValueError(f"{self.path}: there is no layer {layer!r}; there are {', '.join(layers) or 'none'}")
            chosen = layer if layer is not None else "counts" if "counts" in layers else None
            self.place = "X" if chosen is None else f"layers/{chosen}"
            genes = _anndata().read_elem(file["var"]).index
            n_cells, self.n_words = map(int, self._table(file).shape)
        if genes.hasnans or len(genes) != self.n_words:
            named = int(genes.notna().sum())
            raise ValueError(
                f"{self.path}: {self.place} has {self.n_words} genes, and var names {named}: name every gene"
            )
        self.names = np.array(genes, dtype=object)
        super().__init__(n_cells, size, shuffle)

    def __reduce__(self) -> Any:
        return reopened, (_opened, identities(self.files), (self.path.absolute(), self.layer, self.size, self.shuffle))

    def take(self, rows: Ints) -> Corpus:
        """Some cells; a run of neighbours is read at once."""
        wanted, back = np.unique(self.checked(rows), return_inverse=True)
        run = len(wanted) and wanted[-1] - wanted[0] + 1 == len(wanted)
        chosen = slice(int(wanted[0]), int(wanted[-1]) + 1) if run else wanted
        with as_file_error(self.path, *STRANGE), self._opened() as file:
            return as_corpus(scipy.sparse.csr_array(self._table(file)[chosen])[back], self.names)

    def runs(self) -> Iterator[Corpus]:
        """Cells as they stand in the file."""
        return (self.take(np.arange(begin, end)) for begin, end in self.bounds())

    def _table(self, file: Any) -> Any:
        """Counts on the disk, from which rows are sliced."""
        table = file[self.place]
        table = _anndata().sparse_dataset(table) if hasattr(table, "keys") else table
        if getattr(table, "format", "csr") != "csr":
            raise ValueError(
                f"{self.path}: {self.place} is stored by columns, in which rows cannot be found; write it as csr"
            )
        return table

    def _opened(self) -> Any:
        if not self.path.exists():
            raise FileNotFoundError(f"{str(self.path)!r}: there is no such file")
        _anndata()
        import h5py

        return h5py.File(self.path, "r")


def _anndata() -> Any:
    try:
        import anndata.io
    except ImportError:
        raise ImportError(".h5ad needs anndata: pip install 'natgrad[cells]'") from None
    return anndata.io


def _opened(path: Path, layer: str | None, size: int, shuffle: int | None) -> H5adSource:
    return H5adSource(path, layer=layer, size=size, shuffle=shuffle)
