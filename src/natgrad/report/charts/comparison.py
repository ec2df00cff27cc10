"""Fits side by side as a picture that stands alone: bounds against K, or what draws have in their place."""

from __future__ import annotations

from typing import Any

import numpy as np

from natgrad.report.charts.drawing import Drawing
from natgrad.report.charts.svg import HEIGHT, RIGHT, TOP, WIDTH, Axis, Line, line_chart
from natgrad.report.html import Html, tag

__all__ = ["draw_comparison"]

# What is drawn if it is known: two bounds, which draws have not.
BOUNDS = {"corrected": "bound with log of the labellings", "bound": "bound"}
DRAWS = {"loo": "leave-one-out"}
# The colours of a page: a file and a notebook have no style sheet.
STYLE = """
.ng-chart text{font-size:12px;fill:#5a5e66}.ng-chart path{fill:none}.ng-chart .grid{stroke:#e2dfd8}.ng-chart .axis{stroke:#7b7f87}
.ng-chart .line,.ng-chart .dots{stroke:#1d5c86;stroke-width:1.8}.ng-chart .second{stroke:#a84a14;stroke-width:1.8}
.ng-chart .dots{stroke-width:7;stroke-linecap:round}.ng-chart .point{fill:#1d5c86}
.ng-chart text.of-line{fill:#1d5c86}.ng-chart text.of-second{fill:#a84a14}
@media (prefers-color-scheme:dark){.ng-chart text{fill:#a8adb5}.ng-chart .grid{stroke:#33373d}.ng-chart .axis{stroke:#868b94}
.ng-chart .line,.ng-chart .dots{stroke:#83bce3}.ng-chart .second{stroke:#efa872}.ng-chart .point{fill:#83bce3}
.ng-chart text.of-line{fill:#83bce3}.ng-chart text.of-second{fill:#efa872}}
"""


def draw_comparison(table: Any) -> Drawing:
    """The bound and the corrected bound of each fit against its K, or its place in the table; of draws their LOO."""
    size = table["K"]
    x, label = (size, "K") if not np.isnan(size).any() else (np.arange(1.0, len(table) + 1), "place")
    order = np.argsort(x, kind="stable")
    known = {name: words for name, words in BOUNDS.items() if not np.isnan(table[name]).all()} or DRAWS
    kinds = dict(zip(known, ("line", "second"), strict=False))
    lines = [Line(x[order], table[name][order], kind=kind) for name, kind in kinds.items()]
    lines += [Line(x[order], table[name][order], kind="dots") for name in list(known)[:1]]
    title = f"{'Bounds' if known is not DRAWS else 'Scores'} against {label}"
    words = f"{table.best} is first of {len(table)}. Lines: {', '.join(known.values())}."
    height = Axis("nats")
    chart = line_chart(lines, Axis(label, whole=True), height, title=title, description=words)
    legend = [
        tag("text", known[name], class_=f"of-{kind}", x=WIDTH - RIGHT, y=TOP + 14 * (row + 1), text_anchor="end")
        for row, (name, kind) in enumerate(kinds.items())
    ]
    return _alone(chart, legend)


def _alone(chart: Html, more: list[Html]) -> Drawing:
    """A chart of a page as a file: with its namespace, its size and its colours."""
    head, inside = str(chart).split(">", 1)
    space = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="system-ui, sans-serif"'
    )
    head = head.replace("<svg", space, 1).replace(
        'class="chart"', 'class="ng-chart" style="max-width:100%;height:auto"'
    )
    return Drawing(f"{head}>{tag('style', Html(STYLE))}{inside.removesuffix('</svg>')}{''.join(map(str, more))}</svg>")
