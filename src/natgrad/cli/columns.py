"""Options and columns that several kinds of files share: what a call says, or what the model remembers of its fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import click
import numpy as np

__all__ = ["Input", "as_numbers_or_texts", "encoding_option", "remembered", "target_option"]


class Input(NamedTuple):
    """What a file holds: the arguments of ``fit`` and ``score``, what a page shows, names of the rows, and a description.

    ``columns`` says which of its columns was what, for the model to remember. ``sequences`` are the names of series, ``named``
    arguments of ``fit`` with names.
    """

    arguments: tuple[Any, ...]
    raw: Any
    names: list[str] | None
    words: str
    columns: dict[str, Any] = {}  # noqa: RUF012  (never written to)
    sequences: list[str] | None = None
    named: dict[str, Any] = {}  # noqa: RUF012  (never written to)


def remembered(fitted: Any, options: dict[str, Any], there: Sequence[str] | None = None) -> dict[str, Any]:
    """The options of a call, and where it says nothing the columns of the fit; only those that are ``there``."""
    known = {} if fitted is None else dict(fitted.columns_ or {})
    known = {role: name for role, name in known.items() if there is None or name in there}
    if isinstance(known.get("columns"), list):
        known["columns"] = ",".join(known["columns"])
    return {**options, **{role: name for role, name in known.items() if options.get(role) is None}}


def encoding_option() -> click.Option:
    """``--encoding latin-1``."""
    words = "Of text files: latin-1, utf-16-le, …; by default what the file's first bytes say, or UTF-8."
    return click.Option(["--encoding"], help=words)


def target_option() -> click.Option:
    """``--target price``."""
    return click.Option(
        ["--target"], help="The column that is predicted, or several of them for gp: y,z; the last one by default."
    )


def as_numbers_or_texts(column: Any) -> Any:
    """A column as numbers where all of it are, an empty field as NaN; otherwise as texts."""
    values = np.asarray(column)
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    texts = ["" if value is None else str(value) for value in values.tolist()]
    try:
        return np.array([float(text) if text.strip() else np.nan for text in texts])
    except ValueError:
        return np.array(texts)
