"""PLINK files in; individuals as bags of alleles, a `Corpus`, out.

A ``.bed`` holds two bits for each genotype, locus after locus; ``.bim`` and ``.fam`` beside it name loci and individuals, a line
for each. An error names the file, and the line and column where there are lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from natgrad.data.alleles import genotypes
from natgrad.data.corpus import Corpus
from natgrad.data.io.text import open_text
from natgrad.data.origin import identities, reopened
from natgrad.data.stream import RowSource

__all__ = ["BedSource"]

Ints = npt.NDArray[np.int64]
# What a .bed of our days begins with: two bytes that say what it is, and one for "locus after locus".
MAGIC, BY_LOCUS = b"\x6c\x1b", 1
# What bed-reader writes into small whole numbers for a genotype that is missing.
ABSENT = -127
FIELDS = {
    ".fam": "family, individual, father, mother, sex, phenotype",
    ".bim": "chromosome, name, position, base, allele, allele",
}


@final
class BedSource(RowSource):
    """Individuals of a PLINK ``.bed``, as bags of alleles (see `natgrad.data.genotypes`).

    Parameters
    ----------
    path : str or Path, with ``.bim`` and ``.fam`` of the same name beside it
    size, shuffle : as in `open_source`
    """

    def __init__(self, path: str | Path, *, size: int | None = None, shuffle: int | None = None) -> None:
        self.path = Path(path)
        self.files = (self.path, *(self.path.with_suffix(end) for end in (".bim", ".fam")))
        self.names = loci = self._loci()
        super().__init__(len(self._fields(".fam")), size, shuffle)
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

    def __reduce__(self) -> Any:
        return reopened, (_opened, identities(self.files), (self.path.absolute(), self.size, self.shuffle))

    def take(self, rows: Ints) -> Corpus:
        """Some individuals."""
        try:
            from bed_reader import open_bed
        except ImportError:
            raise ImportError(f"{self.path} needs bed-reader: pip install 'natgrad[genetics]'") from None
        wanted = self.checked(rows)
        counted = (self.n_total, len(self.names))
        with open_bed(self.path, iid_count=counted[0], sid_count=counted[1], skip_format_check=False) as file:
            table = file.read(index=(wanted, slice(None)), dtype="int8", num_threads=1)
        return genotypes(np.where(table == ABSENT, -1, table), self.names)

    def runs(self) -> Iterator[Corpus]:
        """Individuals as they stand in the file."""
        return (self.take(np.arange(begin, end)) for begin, end in self.bounds())

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
        path, lines = self.path.with_suffix(suffix), []
        if not path.exists():
            raise FileNotFoundError(f"{path}: there is no such file; a .bed comes with .bim and .fam beside it")
        with open_text(path) as file:
            for number, line in enumerate(file, 1):
                fields = line.split()
                if fields and len(fields) != 6:
                    raise ValueError(
                        f"{path}, line {number}, column {len(line.rstrip()) + 1}: expected 6 fields ({FIELDS[suffix]}), got "
                        f"{len(fields)}"
                    )
                lines += [fields] if fields else []
        if not lines:
            raise ValueError(f"{path}: there are no lines in it; expected 6 fields ({FIELDS[suffix]})")
        return lines


def _opened(path: Path, size: int, shuffle: int | None) -> BedSource:
    return BedSource(path, size=size, shuffle=shuffle)
