"""Factors of one or several levels in, a table out: means, standard deviations of each level, intervals, diagnostics of draws."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Summary", "summarise"]

Floats = npt.NDArray[np.float64]
# Rows that are printed of a longer table, from its beginning and from its end.
HEAD, TAIL = 40, 10
# Elements of a node whose R̂ and ESS are worked out for a table: some ten milliseconds a hundred.
MOST_DIAGNOSED = 20_000


@dataclass(frozen=True, eq=False)
class Summary:
    """A table of a posterior, a row for each element; prints as text, and in notebooks as a table.

    Attributes
    ----------
    rows : names of the elements, such as ``mu[2]``
    columns : {name: array [rows]}
    level : where the mean and the interval come from: "q", "linear response" or "draws"
    mass : probability of the intervals
    """

    rows: tuple[str, ...]
    columns: Mapping[str, Floats]
    level: str
    mass: float

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_pandas() needs pandas: pip install 'natgrad[table]'") from None
        return pandas.DataFrame(dict(self.columns), index=list(self.rows))

    def __getitem__(self, column: str) -> Floats:
        if column not in self.columns:
            raise KeyError(f"{column!r} is not a column; these are {', '.join(self.columns)}")
        return self.columns[column]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def _foot(self) -> str:
        return f"mean and {self.mass:.0%} interval: {self.level}"

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        """Names and texts of the rows that are shown; an ellipsis where some are left out."""
        n, shown = len(self.rows), list(range(len(self.rows)))
        if n > HEAD + TAIL:
            shown = [*range(HEAD), -1, *range(n - TAIL, n)]
        names = ["…" if i < 0 else self.rows[i] for i in shown]
        texts = [["" if i < 0 else _text(name, values[i]) for i in shown] for name, values in self.columns.items()]
        return names, texts

    def __str__(self) -> str:
        names, texts = self._cells()
        width = max([len(name) for name in names], default=0)
        lines = [" " * width, *(name.ljust(width) for name in names)]
        for heading, cells in zip(self.columns, texts, strict=True):
            wide = max([len(heading), *(len(cell) for cell in cells)])
            lines = [f"{line}  {cell.rjust(wide)}" for line, cell in zip(lines, [heading, *cells], strict=True)]
        return "\n".join([*(line.rstrip() for line in lines), self._foot])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        names, texts = self._cells()
        head = "".join(f"<th>{html.escape(column)}</th>" for column in self.columns)
        body = "".join(
            f"<tr><th>{html.escape(name)}</th>{''.join(f'<td>{cells[i]}</td>' for cells in texts)}</tr>"
            for i, name in enumerate(names)
        )
        return f"<table><tr><th></th>{head}</tr>{body}</table><p>{html.escape(self._foot)}</p>"


def summarise(
    names: list[str],
    levels: Mapping[str, Any],
    mass: float,
    labels: Callable[[str, tuple[int, ...]], list[str]],
) -> Summary:
    """A table of some nodes; ``levels`` maps "q", "linear response" and "draws" to what has their factors, worst first."""
    best = list(levels)[-1]
    rows: list[str] = []
    parts: dict[str, list[Floats]] = {}

    def add(column: str, values: Any, size: int) -> None:
        filled = parts.setdefault(column, [])
        filled.append(np.broadcast_to(np.asarray(values, np.float64).ravel(), (size,)))

    for name in names:
        mean = np.asarray(levels[best][name].mean(), np.float64)
        rows += labels(name, mean.shape)
        add("mean", mean, mean.size)
        for level, entries in levels.items():
            add(f"sd ({level})", entries[name].std(), mean.size)
        low = high = np.full(mean.shape, np.nan)
        with suppress(TypeError):  # categories have no order, hence no interval
            low, high = levels[best][name].interval(mass)
        add("lower", low, mean.size)
        add("upper", high, mean.size)
        if best == "draws":
            looked = levels[best][name].kept is not None and mean.size <= MOST_DIAGNOSED
            add("R̂", levels[best][name].r_hat() if looked else np.nan, mean.size)
            add("ESS", levels[best][name].ess() if looked else np.nan, mean.size)
    return Summary(tuple(rows), {name: np.concatenate(entries) for name, entries in parts.items()}, best, mass)


def _text(column: str, value: float) -> str:
    if np.isnan(value):
        return "–"
    return f"{value:.0f}" if column == "ESS" else f"{value:.3f}" if column == "R̂" else f"{value:.4g}"
