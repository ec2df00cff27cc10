"""The names of a table's columns in; those that are wanted out, or an error that shows which there are."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

__all__ = ["choose_columns", "refuse_duplicates"]


def choose_columns(where: object, present: list[str], wanted: Sequence[str] | None) -> list[str]:
    """The wanted columns, or all; ``where`` begins the message about one that is not there."""
    for name in wanted or ():
        if name not in present:
            near = difflib.get_close_matches(name, present, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{where}: there is no column {name!r}; it has {', '.join(map(repr, present))}{hint}")
    return present if wanted is None else list(wanted)


def refuse_duplicates(where: object, names: list[str]) -> None:
    """Of two columns with one name only one could be read, and nobody would know which."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"{where}: the column {twice!r} is there {names.count(twice)} times among {', '.join(map(repr, names))}: rename one"
        )
