"""Fits side by side as a picture: bounds against K."""

from __future__ import annotations

from typing import Any

import numpy as np

from natgrad.report.charts.drawing import Drawing
from natgrad.report.charts.svg import Axis, Line, line_chart

__all__ = ["draw_comparison"]


def draw_comparison(table: Any) -> Drawing:
    """The bound and the corrected bound of each fit against its K, or its place in the table."""
    size = table["K"]
    x, label = (size, "K") if not np.isnan(size).any() else (np.arange(1.0, len(table) + 1), "place")
    order = np.argsort(x, kind="stable")
    lines = [
        Line(x[order], table[name][order], kind=kind)
        for name, kind in (("corrected", "line"), ("bound", "second"))
        if not np.isnan(table[name]).all()
    ]
    words = f"{table.best} is first of {len(table)}. The first line is corrected for labellings, the second the bound itself."
    return Drawing(
        line_chart(lines, Axis(label), Axis("bound (nats)"), title=f"Bounds against {label}", description=words)
    )
