"""Fits side by side as a picture: bounds against K."""

from __future__ import annotations

from typing import Any

import numpy as np

from natgrad.report.charts.drawing import Drawing
from natgrad.report.charts.svg import Axis, Line, line_chart

__all__ = ["draw_comparison"]


def draw_comparison(found: Any) -> Drawing:
    """The bound and the corrected bound of each fit against its K, or its place in the table."""
    size = found["K"]
    x, label = (size, "K") if not np.isnan(size).any() else (np.arange(1.0, len(found) + 1), "place")
    order = np.argsort(x, kind="stable")
    lines = [
        Line(x[order], found[name][order], kind=kind)
        for name, kind in (("corrected", "line"), ("bound", "second"))
        if not np.isnan(found[name]).all()
    ]
    words = f"{found.best} is first of {len(found)}. The first line is corrected for labellings, the second the bound itself."
    return Drawing(
        line_chart(lines, Axis(label), Axis("bound (nats)"), title=f"Bounds against {label}", description=words)
    )
