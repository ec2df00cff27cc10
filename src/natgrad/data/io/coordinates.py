"""Lines ``row column value`` of a sparse table, counted from 1, in; blocks of entries, counted from 0 and checked, out.

Both docword and Matrix Market write tables like this, below headers of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

from natgrad.data.io.text import number_in, wrong_field

__all__ = ["Entries", "Layout", "entry_blocks"]

Floats = npt.NDArray[np.float64]
# Lines that are parsed at once.
BLOCK = 100_000


class Entries(NamedTuple):
    """Rows and columns from 0, and values [n]."""

    row: Any
    column: Any
    value: Any


class Layout(NamedTuple):
    """What the header of a file says.

    ``names`` are those of row, column and value (of the first two, if every value is 1); ``announced`` entries come after
    ``header`` lines; values are at least ``least``; rows come in order if ``ordered``.
    """

    names: tuple[str, ...]
    sizes: tuple[int, int]
    announced: int
    header: int
    least: float = -np.inf
    ordered: bool = False


def entry_blocks(path: Path, file: TextIO, layout: Layout) -> Iterator[Entries]:
    """All entries as they come, some lines at a time; ``file`` stands after its header."""
    seen, last, first = 0, 1.0, 1 + layout.header
    while texts := list(islice(file, BLOCK)):
        lines = [first + place for place, text in enumerate(texts) if _is_entry(text)]
        first += len(texts)
        if not lines:
            continue
        texts = texts if len(lines) == len(texts) else list(filter(_is_entry, texts))
        table = _numbers(path, texts, lines, layout)
        for place, bad, expected in _rules(table, layout, last):
            if bad.any():
                n = int(np.argmax(bad))
                raise wrong_field(path, lines[n], texts[n], place, expected)
        seen, last = seen + len(table), table[-1, 0]
        row, column = (table[:, place].astype(np.int64) - 1 for place in (0, 1))
        yield Entries(row, column, table[:, 2] if len(layout.names) > 2 else np.ones(len(table)))
    if seen != layout.announced:
        raise ValueError(
            f"{path}, line {layout.header} announces {layout.announced:,} entries, and there are {seen:,}: was it cut off?"
        )


def _is_entry(text: str) -> bool:
    return bool(text.strip()) and not text.startswith("%")


def _rules(table: Floats, layout: Layout, last: float) -> Iterator[tuple[int, npt.NDArray[np.bool_], str]]:
    """Which lines break a rule at which place, and what was expected there."""
    for place, (name, most) in enumerate(zip(layout.names, layout.sizes, strict=False)):
        number = table[:, place]
        wrong = ~((number >= 1) & (number <= most) & (number == np.floor(number)))
        yield place, wrong, f"a {name} from 1 to {most}"
    if len(layout.names) > 2 and layout.least > -np.inf:
        value = table[:, 2]
        yield 2, ~((value >= layout.least) & (value < np.inf)), f"a {layout.names[2]} ≥ {layout.least:g}"
    if layout.ordered:
        name = layout.names[0]
        yield 0, np.diff(table[:, 0], prepend=last) < 0, f"{name}s in order: sort the file by {name}"


def _numbers(path: Path, texts: list[str], lines: list[int], layout: Layout) -> Floats:
    """The numbers of each line."""
    width = len(layout.names)
    try:
        table = np.loadtxt(texts, dtype=np.float64, ndmin=2, comments=None)
        if table.shape == (len(lines), width):
            return table
    except ValueError:
        pass  # the slow way finds the place
    for line, text in zip(lines, texts, strict=True):
        fields = text.split()
        for place in range(width):
            if place >= len(fields) or math.isnan(number_in(fields[place])):
                raise wrong_field(path, line, text, place, " ".join(layout.names))
        if len(fields) > width:
            raise wrong_field(path, line, text, width, f"no more than {' '.join(layout.names)}")
    raise ValueError(f"{path}, line {lines[0]}: expected lines of {' '.join(layout.names)}")
