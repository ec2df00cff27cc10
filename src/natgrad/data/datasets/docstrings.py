"""Installed Python packages in; their docstrings, a corpus of real text that every machine has, out.

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
from typing import NamedTuple

from natgrad.data.datasets.generated.checks import check_sizes

__all__ = ["Docstrings", "load_docstrings"]

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
    check_sizes({"min_words": min_words}, least=0)
    if limit is not None:
        check_sizes({"limit": limit})
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
