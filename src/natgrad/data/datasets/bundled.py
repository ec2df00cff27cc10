"""Load data that every machine has: tables that come with scikit-learn, and the docstrings of the installed packages.

Sources are parsed, never imported. Files are taken in the order of a hash of their path, so that a limit takes a sample across
packages rather than those at the beginning of the alphabet; the order depends on what is installed and on nothing else.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.validation import whole_number

__all__ = ["TABLES", "Docstrings", "Table", "load_docstrings", "load_table"]

# What each is good for here. All are small, real and inside the scikit-learn package.
TABLES = {
    "digits": "1,797 handwritten digits, ink in 8 × 8 fields from 0 to 16: counts, for LDA and classification",
    "diabetes": "442 patients, ten numbers and the progress of the disease after a year: regression",
    "breast-cancer": "569 tumours, thirty numbers, malignant or benign: classification",
    "wine": "178 wines of three growers, thirteen measurements: classification, mixtures",
    "iris": "150 irises of three species, four lengths: classification, mixtures",
}


class Table(NamedTuple):
    """A table of real data.

    Attributes
    ----------
    X : array [rows, columns]
    y : array [rows], the number to predict, or the number of the class
    names : the columns of X
    classes : names of the classes; empty where y is a quantity
    """

    X: npt.NDArray[np.float64]
    y: npt.NDArray[Any]
    names: tuple[str, ...]
    classes: tuple[str, ...]


def load_table(name: str) -> Table:
    """A table that comes with scikit-learn; nothing is downloaded.

    Parameters
    ----------
    name : a name in `TABLES`, which also says what each is

    Examples
    --------
    >>> wine = load_table("wine")
    >>> wine.X.shape, wine.names[:2], len(wine.classes)
    ((178, 13), ('alcohol', 'malic_acid'), 3)
    """
    if name not in TABLES:
        raise ValueError(f"name must be one of {', '.join(TABLES)}; got {name!r}")
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name.replace('-', '_')}")()
    classes = tuple(str(word) for word in getattr(bunch, "target_names", ()))
    names = tuple(str(word) for word in bunch.feature_names)
    return Table(np.asarray(bunch.data, dtype=np.float64), np.asarray(bunch.target), names, classes)


# -- docstrings --

# Tests have many files and few docstrings; the other folders belong to somebody else's tree.
SKIPPED = {"test", "tests", "site-packages", "dist-packages", "__pycache__", "node_modules"}
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Docstrings(NamedTuple):
    """Docstrings of installed packages.

    Attributes
    ----------
    texts : the docstrings, none twice
    names : where each was found first, like "json.decoder.JSONDecoder.decode"
    packages : the first part of each name
    unreadable : how many source files could not be parsed and were left out
    """

    texts: list[str]
    names: list[str]
    packages: list[str]
    unreadable: int


class _Source(NamedTuple):
    key: bytes
    path: Path
    module: str


def load_docstrings(
    limit: int | None = 10_000,
    *,
    packages: Sequence[str] | None = None,
    min_words: int = 10,
    folders: Sequence[str | os.PathLike[str]] | None = None,
) -> Docstrings:
    """The docstrings of the installed packages and of the standard library.

    Another machine has other packages, so figures obtained from this corpus hold for one machine only.

    Parameters
    ----------
    limit : int or None
        Stop after so many; None reads every file, which may take a minute or two.
    packages : names of packages to read; by default all
    min_words : int
        Shorter docstrings are left out.
    folders : where packages are; by default the standard library and the site-packages of this Python

    Examples
    --------
    >>> found = load_docstrings(limit=10, packages=["logging"])
    >>> len(found.texts), set(found.packages)
    (10, {'logging'})
    """
    whole_number(min_words, "min_words", least=0)
    if limit is not None:
        whole_number(limit, "limit")
    if isinstance(packages, str):
        raise TypeError(f"packages must be a list of names, got the text {packages!r}: write [{packages!r}]")
    wanted = None if packages is None else set(packages)
    sources = sorted(source for folder in _folders(folders) for source in _sources(folder, wanted))
    if wanted is not None and (absent := wanted - {source.module.partition(".")[0] for source in sources}):
        raise ValueError(f"packages has {min(absent)!r}, of which no source file was found")
    texts: dict[str, str] = {}
    unreadable = 0
    for source in sources:
        if limit is not None and len(texts) >= limit:
            break
        tree = _parsed(source.path)
        if tree is None:
            unreadable += 1
            continue
        for name, text in _docstrings(tree, source.module):
            if len(text.split()) >= min_words:
                texts.setdefault(text, name)
    chosen = list(texts.items())[:limit]
    names = [name for _, name in chosen]
    return Docstrings([text for text, _ in chosen], names, [name.partition(".")[0] for name in names], unreadable)


def _folders(given: Sequence[str | os.PathLike[str]] | None) -> list[Path]:
    if given is None:
        paths = sysconfig.get_paths()
        given = [paths[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders = list(dict.fromkeys(Path(folder).resolve() for folder in given))
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"folders has {str(folder)!r}, which is no folder")
    return folders


def _sources(folder: Path, wanted: set[str] | None) -> Iterator[_Source]:
    """Every Python file below, with the name of its module."""
    for where, inside, files in os.walk(folder):
        at_top = Path(where) == folder
        inside[:] = [
            name for name in inside if name not in SKIPPED and (not at_top or wanted is None or name in wanted)
        ]
        for file in files:
            if not file.endswith(".py"):
                continue
            path = Path(where, file)
            parts = path.relative_to(folder).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
            if wanted is None or parts[0] in wanted:
                yield _Source(hashlib.sha1("/".join(parts).encode()).digest(), path, module)


def _parsed(path: Path) -> ast.Module | None:
    try:
        source = path.read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other people's escape sequences
            return ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _docstrings(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, name: str
) -> Iterator[tuple[str, str]]:
    """(name, docstring) of a module, class or function, then of those defined in its body."""
    text = ast.get_docstring(node)
    if text:
        yield name, text
    for child in node.body:
        if isinstance(child, DEFINITIONS):
            yield from _docstrings(child, f"{name}.{child.name}")
