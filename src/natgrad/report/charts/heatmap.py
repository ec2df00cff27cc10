"""A table of numbers in, a table of coloured cells out: a heat map that a screen reader reads as the table it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from natgrad.report.format import short
from natgrad.report.html import Html, tag

__all__ = ["heat_table"]

Floats = npt.NDArray[np.float64]
# The share of the accent colour behind the largest number; more of it would make the number hard to read.
MOST = 0.45


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
