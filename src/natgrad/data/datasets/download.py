"""The name of a classic public data set in; its files, fetched once, checked and kept, out. Nothing else here uses the network.

A file arrives under a temporary name beside its place and is renamed only when it is complete and its SHA-256 is right, so an
interrupted download leaves nothing that looks like data. The checksums in the catalogue are those that others publish; where
none is known, that of the first download is written beside the file, and later downloads must match it: this notices damage
and change, not a wrong first copy.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, NamedTuple

__all__ = ["DATASETS", "ChecksumError", "DataSet", "RemoteFile", "download"]

CHUNK = 1 << 20
_GROUPLENS = "https://files.grouplens.org/datasets/movielens/"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/bag-of-words/"
_DATAVERSE = "https://dataverse.harvard.edu/api/access/datafile/:persistentId?persistentId=doi:10.7910/DVN/HG7NV7/"


class RemoteFile(NamedTuple):
    """A file to fetch; ``sha256`` is None where nobody published one that we know."""

    name: str
    url: str
    sha256: str | None = None


class DataSet(NamedTuple):
    """Files that belong together, what they are, and the terms of those who publish them."""

    files: tuple[RemoteFile, ...]
    about: str
    terms: str


class ChecksumError(ValueError):
    """A file is not the one that was expected."""


def _movielens(size: str, sha256: str, about: str) -> DataSet:
    terms = "GroupLens: research use, cite Harper and Konstan (2015), no redistribution; see the README inside"
    return DataSet((RemoteFile(f"ml-{size}.zip", f"{_GROUPLENS}ml-{size}.zip", sha256),), about, terms)


def _bag_of_words(name: str, about: str) -> DataSet:
    files = tuple(RemoteFile(file, _UCI + file) for file in (f"docword.{name}.txt.gz", f"vocab.{name}.txt"))
    return DataSet(files, about, "UCI Machine Learning Repository, Newman (2008); cite the repository")


def _airline(year: int, key: str) -> DataSet:
    return DataSet(
        (RemoteFile(f"{year}.csv.bz2", _DATAVERSE + key),),
        f"flights within the United States in {year} with their delays: the Data Expo of 2009",
        "Harvard Dataverse, doi:10.7910/DVN/HG7NV7",
    )


# The MovieLens checksums are those that TensorFlow Datasets records for the same addresses.
DATASETS: MappingProxyType[str, DataSet] = MappingProxyType({
    "movielens-100k": _movielens(
        "100k", "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
        "100,000 ratings of 1,682 films by 943 users (1998)",
    ),
    "movielens-1m": _movielens(
        "1m", "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
        "1,000,209 ratings of about 3,900 films by 6,040 users (2003)",
    ),
    "movielens-20m": _movielens(
        "20m", "96f243c338a8665f6bcc89c53edf6ee39162a846940de6b7c8c48aeada765ff3",
        "20 million ratings of 27,000 films by 138,000 users (2015)",
    ),
    "movielens-25m": _movielens(
        "25m", "8b21cfb7eb1706b4ec0aac894368d90acf26ebdfb6aced3ebd4ad5bd1eb9c6aa",
        "25 million ratings of 62,000 films by 162,000 users (2019)",
    ),
    "bag-of-words-kos": _bag_of_words("kos", "3,430 entries of the KOS blog, 6,906 words"),
    "bag-of-words-nips": _bag_of_words("nips", "1,500 papers of NIPS, 12,419 words"),
    "bag-of-words-enron": _bag_of_words("enron", "39,861 e-mails of Enron, 28,102 words"),
    "bag-of-words-nytimes": _bag_of_words("nytimes", "300,000 articles of the New York Times, 102,660 words"),
    "bag-of-words-pubmed": _bag_of_words("pubmed", "8,200,000 abstracts of PubMed, 141,043 words"),
    "airline-2007": _airline(2007, "2BHLWK"),
    "airline-2008": _airline(2008, "EIR0RA"),
})  # fmt: skip


def download(name: str, folder: str | os.PathLike[str] | None = None, *, timeout: float = 60.0) -> list[Path]:
    """The files of a public data set; those that are there already are checked and not fetched again.

    Parameters
    ----------
    name : a name in `DATASETS`, which also says what is in each and on which terms
    folder : where to keep the files; by default the folder of the data set below NATGRAD_CACHE, else below ~/.cache/natgrad
    timeout : float
        Seconds without an answer after which to give up.

    Examples
    --------
    >>> from natgrad.data import DATASETS
    >>> DATASETS["movielens-100k"].about
    '100,000 ratings of 1,682 films by 943 users (1998)'
    """
    if name not in DATASETS:
        raise ValueError(f"name must be one of {', '.join(DATASETS)}; got {name!r}")
    cache = os.environ.get("NATGRAD_CACHE") or Path.home() / ".cache" / "natgrad"
    where = Path(cache, name) if folder is None else Path(folder)
    where.mkdir(parents=True, exist_ok=True)
    return [_kept(file, where, timeout) for file in DATASETS[name].files]


def _kept(file: RemoteFile, folder: Path, timeout: float) -> Path:
    path, record = folder / file.name, folder / f"{file.name}.sha256"
    expected = file.sha256 or (record.read_text().split()[0] if record.exists() else None)
    if path.exists():
        # Without any checksum the file is somebody's own copy: it is taken, and recorded from now on.
        digest = _copied(path.open("rb"), None)
        if expected not in (None, digest):
            raise ChecksumError(f"{path} has SHA-256 {digest}, expected {expected}: delete the file to fetch it again")
    else:
        digest = _fetched(file, path, expected, timeout)
    if not record.exists():
        record.write_text(f"{digest}  {file.name}\n")
    return path


def _fetched(file: RemoteFile, path: Path, expected: str | None, timeout: float) -> str:
    """Fetch beside the place, check, rename; whatever happens, no part of a file stays."""
    from urllib.request import urlopen  # nobody else needs the network

    handle, temporary = tempfile.mkstemp(prefix=f".{file.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            try:
                answer = urlopen(file.url, timeout=timeout)
            except OSError as error:
                raise ConnectionError(
                    f"could not fetch {file.url} ({error}): download it by other means and put it at {path}"
                ) from error
            announced = answer.headers.get("Content-Length")
            digest = _copied(answer, out)
        size = Path(temporary).stat().st_size
        if announced is not None and size != int(announced):
            raise ConnectionError(f"{file.url} broke off after {size} of {announced} bytes: try again")
        if expected not in (None, digest):
            raise ChecksumError(
                f"{file.url} gave a file with SHA-256 {digest}, expected {expected}: nothing was kept. It was changed at its "
                "source or on the way"
            )
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return digest


def _copied(source: BinaryIO, out: BinaryIO | None) -> str:
    """The SHA-256 of what was read, which is written on the way if there is a place for it."""
    digest = hashlib.sha256()
    with source:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            if out is not None:
                out.write(chunk)
    return digest.hexdigest()
