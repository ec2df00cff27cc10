"""Read the docstrings of installed packages: short documents about something real, which every machine has.

Sources are parsed, never imported. Files are taken in the order of a hash of their path, so that a limit takes a sample across
packages. Another machine has other packages: figures that were obtained on this corpus hold for one machine only.
"""

from __future__ import annotations

import ast
import hashlib
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["read_docstrings"]

SKIPPED = {"test", "tests", "site-packages", "dist-packages", "__pycache__"}
DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def read_docstrings(packages: Sequence[str], limit: int = 3000, min_words: int = 10) -> tuple[list[str], list[str]]:
    """The docstrings of some packages, none twice, and the package of each."""
    paths, sources = sysconfig.get_paths(), {}
    for folder in dict.fromkeys(Path(paths[kind]) for kind in ("stdlib", "purelib", "platlib")):
        for package in packages:
            for path in (folder / package).rglob("*.py"):
                name = path.relative_to(folder).as_posix()
                if not SKIPPED & set(name.split("/")):
                    sources[hashlib.sha1(name.encode()).digest()] = path, package
    texts: dict[str, str] = {}
    for _, (path, package) in sorted(sources.items()):
        for text in _docstrings(path):
            if len(text.split()) >= min_words and len(texts) < limit:
                texts.setdefault(text, package)
    return list(texts), list(texts.values())


def _docstrings(path: Path) -> Iterator[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other people's escape sequences
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    yield from filter(None, (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, DEFINITIONS)))
