"""A table of numbers in, a table of coloured cells out: a heat map that a screen reader reads as the table it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from natgrad.report.format import short
from natgrad.report.html import Html, tag

__all__ = ["heat_table", "means_table", "values_table"]

Floats = npt.NDArray[np.float64]
# The share of the accent colour behind the largest number; more of it would make the number hard to read.
MOST = 0.45
# Of more columns than this a page shows the first.
MOST_COLUMNS = 30


def heat_table(
    values: Floats,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    caption: str,
    texts: Sequence[Sequence[str]] | None = None,
    scale: Floats | None = None,
) -> Html:
    """Numbers [rows, columns], each on a ground as strong as it is large; ``scale`` in [0, 1] if strength is something else."""
    spread = float(np.ptp(values)) or 1.0
    strength = (values - values.min()) / spread if scale is None else scale
    body = []
    for i, name in enumerate(rows):
        cells = [
            tag(
                "td",
                short(float(values[i, j]), 3) if texts is None else texts[i][j],
                class_="number",
                style=f"--part:{100 * MOST * float(strength[i, j]):.0f}%",
            )
            for j in range(values.shape[1])
        ]
        body.append(tag("tr", tag("th", name, scope="row"), cells))
    head = tag("tr", tag("td"), [tag("th", name, scope="col", class_="number") for name in columns])
    grid = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", body), class_="heat")
    return tag("div", grid, class_="scroll", role="region", tabindex="0", aria_label=caption)


def values_table(
    values: Floats,
    names: Sequence[str],
    caption: str,
    texts: Sequence[Sequence[str]] | None = None,
    scale: Floats | None = None,
    columns: Sequence[str] | None = None,
) -> Html:
    """Numbers [K, D] of states or components, the first columns if there are many."""
    shown = min(values.shape[1], MOST_COLUMNS)
    if shown < values.shape[1]:
        caption += f" (the first {shown} of {values.shape[1]} columns)"
    heads = [str(d) for d in range(shown)] if columns is None else [str(name) for name in columns[:shown]]
    return heat_table(
        values[:, :shown], names, heads, caption=caption,
        texts=None if texts is None else [row[:shown] for row in texts], scale=None if scale is None else scale[:, :shown],
    )  # fmt: skip


def means_table(
    mean: Floats, sd: Floats, names: Sequence[str], caption: str, columns: Sequence[str] | None = None
) -> Html:
    """Means ± standard deviations [K, D], coloured by where the mean lies within its column."""
    texts = [
        [f"{short(m, 3)} ± {short(s, 2)}" for m, s in zip(*rows, strict=True)] for rows in zip(mean, sd, strict=True)
    ]
    scale = (mean - mean.min(0)) / np.maximum(np.ptp(mean, axis=0), 1e-300)
    return values_table(mean, names, caption, texts, scale, columns)
