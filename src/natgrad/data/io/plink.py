"""Genomes and cells on disk in; chunks of individuals or cells as a `Corpus` out: PLINK ``.bed``, AnnData ``.h5ad``.

A ``.bed`` holds two bits for each genotype, locus after locus; ``.bim`` and ``.fam`` beside it name loci and individuals, a line
for each. An ``.h5ad`` holds counts of cells by genes, dense or compressed by rows. An error names the file, and the line and
column where there are lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import scipy.sparse as sparse

from natgrad.data.corpus import Corpus, as_corpus
from natgrad.data.genotypes import genotypes
from natgrad.data.io.file_errors import as_file_error
from natgrad.data.stream import SIZE, block_order, prefetch

__all__ = ["BedSource", "H5adSource"]

Ints = npt.NDArray[np.int64]
# What a .bed of our days begins with: two bytes that say what it is, and one for "locus after locus".
MAGIC, BY_LOCUS = b"\x6c\x1b", 1
# What bed-reader writes into small whole numbers for a genotype that is missing.
ABSENT = -127
# In an HDF5 file anything may stand where a table, a name or a number should: then it has not the attributes of one.
STRANGE = AttributeError, TypeError
FIELDS = {
    ".fam": "family, individual, father, mother, sex, phenotype",
    ".bim": "chromosome, name, position, base, allele, allele",
}


class _Rows:
    """A source whose rows can be taken by number."""

    rereadable = True
    n_total: int
    size: int
    shuffle: int | None

    def take(self, rows: Ints) -> Corpus:
        """Some rows, in the order given."""
        raise NotImplementedError

    def chunks(self) -> Iterator[Corpus]:
        """Runs of rows, or mixed blocks."""
        return prefetch(self.take(rows) for rows in self._orders() if len(rows))

    def _orders(self) -> Iterator[Ints]:
        if self.shuffle is not None:
            yield from block_order(self.n_total, self.size, self.shuffle)
            return
        for begin in range(0, self.n_total, self.size):
            yield np.arange(begin, min(begin + self.size, self.n_total))

    def _checked(self, rows: Any) -> Ints:
        wanted = np.asarray(rows, dtype=np.int64)
        if (bad := np.flatnonzero((wanted < 0) | (wanted >= self.n_total))).size:
            raise IndexError(f"rows[{bad[0]}] = {wanted[bad[0]]} is outside 0 … {self.n_total - 1}")
        return wanted


@final
class BedSource(_Rows):
    """Individuals of a PLINK ``.bed``, as bags of alleles (see `natgrad.data.genotypes`).

    Parameters
    ----------
    path : str or Path, with ``.bim`` and ``.fam`` of the same name beside it
    size, shuffle : as in `open_source`
    """

    def __init__(self, path: str | Path, *, size: int | None = None, shuffle: int | None = None) -> None:
        self.path, self.size, self.shuffle = Path(path), size or SIZE, shuffle
        loci = self._loci()
        self.n_total, self.names = len(self._fields(".fam")), loci
        with self.path.open("rb") as file:
            head = file.read(3)
        if head[:2] != MAGIC:
            raise ValueError(
                f"{self.path}: not a .bed file of PLINK: it begins with {head[:2].hex()}, expected {MAGIC.hex()}"
            )
        if head[2:] != bytes([BY_LOCUS]):
            raise ValueError(
                f"{self.path}: written individual by individual, as of old; rewrite it with plink --make-bed"
            )
        wanted, there = 3 + -(-self.n_total // 4) * len(loci), self.path.stat().st_size
        if wanted != there:
            raise ValueError(
                f"{self.path}: {there:,} bytes, but {self.n_total:,} individuals (.fam) and {len(loci):,} loci (.bim) take "
                f"{wanted:,}: the file is cut off, or the three do not belong together"
            )

    def take(self, rows: Ints) -> Corpus:
        """Some individuals."""
        try:
            from bed_reader import open_bed
        except ImportError:
            raise ImportError(f"{self.path} needs bed-reader: pip install 'natgrad[genetics]'") from None
        wanted = self._checked(rows)
        counted = (self.n_total, len(self.names))
        with open_bed(self.path, iid_count=counted[0], sid_count=counted[1], skip_format_check=False) as file:
            table = file.read(index=(wanted, slice(None)), dtype="int8", num_threads=1)
        return genotypes(np.where(table == ABSENT, -1, table), self.names)

    def _loci(self) -> list[str]:
        """The names of the loci, all different; those without one ("." in PLINK) are called by where they are."""
        lines: dict[str, int] = {}
        for number, (chromosome, name, _, base, *_) in enumerate(self._fields(".bim"), 1):
            named = f"{chromosome}:{base}" if name == "." else name
            if named in lines:
                raise ValueError(
                    f"{self.path.with_suffix('.bim')}: locus {number} is {named!r}, and so is locus {lines[named]}: give each a "
                    "name of its own, plink2 --set-all-var-ids @:#:$r:$a"
                )
            lines[named] = number
        return list(lines)

    def _fields(self, suffix: str) -> list[list[str]]:
        """The six fields of every line of the table beside the file."""
        path, found = self.path.with_suffix(suffix), []
        if not path.exists():
            raise FileNotFoundError(f"{path}: there is no such file; a .bed comes with .bim and .fam beside it")
        try:
            with path.open(encoding="utf-8") as file:
                for number, line in enumerate(file, 1):
                    fields = line.split()
                    if not fields:
                        continue
                    if len(fields) != 6:
                        raise ValueError(
                            f"{path}, line {number}, column {len(line.rstrip()) + 1}: expected 6 fields ({FIELDS[suffix]}), got "
                            f"{len(fields)}"
                        )
                    found.append(fields)
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: this is not text ({error})") from None
        if not found:
            raise ValueError(f"{path}: there are no lines in it; expected 6 fields ({FIELDS[suffix]})")
        return found


@final
class H5adSource(_Rows):
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
        self.path, self.size, self.shuffle = Path(path), size or SIZE, shuffle
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
            self.n_total, self.n_words = int(shape[0]), int(shape[1])
            names = file["var"]
            column = names.attrs.get("_index", "_index")
            if column not in names:
                raise ValueError(f"{self.path}: var has no index: the genes have no names")
            self.names = np.array(names[column].asstr()[:], dtype=object)
        if len(self.names) != self.n_words:
            raise ValueError(f"{self.path}: {self.place} has {self.n_words} genes and var names {len(self.names)}")

    def take(self, rows: Ints) -> Corpus:
        """Some cells; runs of neighbours are read at once."""
        wanted = self._checked(rows)
        order = np.argsort(wanted, kind="stable")
        runs = np.split(wanted[order], np.flatnonzero(np.diff(wanted[order]) != 1) + 1) if len(wanted) else []
        back = np.empty(len(wanted), np.int64)
        back[order] = np.arange(len(wanted))
        with as_file_error(self.path, *STRANGE), self._opened() as file:
            parts = [self._run(file[self.place], int(run[0]), int(run[-1]) + 1) for run in runs]
            return as_corpus(sparse.vstack(parts, format="csr")[back], self.names)

    def _run(self, table: Any, begin: int, end: int) -> Any:
        if not self.sparse:
            return sparse.csr_array(table[begin:end])
        start = np.asarray(table["indptr"][begin : end + 1], dtype=np.int64)
        inside = slice(int(start[0]), int(start[-1]))
        parts = table["data"][inside], table["indices"][inside], start - start[0]
        return sparse.csr_array(parts, shape=(end - begin, self.n_words))

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
