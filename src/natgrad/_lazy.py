"""Import the public names of a package when they are asked for; its stub, which type checkers read, says where they are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["attach"]


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose stub has a line ``from home import name as name`` for each name.

    Parameters
    ----------
    package, file : ``__name__`` and ``__file__`` of the package; the stub is the file beside it that ends in ``.pyi``
    """

    @cache
    def homes() -> dict[str, str]:
        import ast

        stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
        froms = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
        return {alias.name: node.module or "" for node in froms for alias in node.names}

    def get(name: str) -> Any:
        if name.startswith("__") or (home := homes().get(name)) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        # A namespace is a module of the package itself; `from home import name` finds everything else.
        value = import_module(f"{home}.{name}") if home == package else getattr(__import__(home, fromlist=[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: list(homes())
