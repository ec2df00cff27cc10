"""Two ellipses and boxes in the way in; a curve from rim to rim that goes round the boxes, out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

__all__ = ["Route", "hits", "route"]

Point = tuple[float, float]
Ellipse = tuple[float, float, float, float]
Rectangle = tuple[float, float, float, float]
# How far to the side the middle of a curve may be pulled, nearest first, and at how many points it is looked at.
BENDS = (0.0, 25.0, -25.0, 50.0, -50.0, 80.0, -80.0, 120.0, -120.0, 170.0, -170.0, 240.0, -240.0, 320.0, -320.0)
POINTS = 24
# Lines keep this far from what they go round.
CLEAR = 4.0


class Route(NamedTuple):
    """The text of an SVG path, and points on it."""

    path: str
    points: list[Point]


def route(first: Ellipse, last: Ellipse, boxes: Sequence[Rectangle]) -> Route:
    """The least bent curve that meets the fewest boxes."""
    wide = [(a - CLEAR, b - CLEAR, c + CLEAR, d + CLEAR) for a, b, c, d in boxes]
    best: tuple[int, Route] | None = None
    for bend in BENDS:
        curve = _curve(first, last, bend)
        met = hits(curve.points, wide)
        if best is None or met < best[0]:
            best = met, curve
        if best[0] == 0:
            break
    assert best is not None
    return best[1]


def hits(points: Sequence[Point], boxes: Iterable[Rectangle]) -> int:
    """How many boxes a line through these points meets."""
    return sum(any(_meets(a, b, box) for a, b in pairwise(points)) for box in boxes)


def _curve(first: Ellipse, last: Ellipse, bend: float) -> Route:
    """A quadratic curve whose middle is pulled to the side."""
    across, down = last[0] - first[0], last[1] - first[1]
    length = max((across**2 + down**2) ** 0.5, 1e-9)
    middle = (
        first[0] + across / 2 - 2 * bend * down / length,
        first[1] + down / 2 + 2 * bend * across / length,
    )
    start, end = _rim(first, middle), _rim(last, middle)
    points = []
    for k in range(POINTS + 1):
        t = k / POINTS
        weights = (1 - t) ** 2, 2 * t * (1 - t), t**2
        points.append((
            sum(w * p[0] for w, p in zip(weights, (start, middle, end), strict=True)),
            sum(w * p[1] for w, p in zip(weights, (start, middle, end), strict=True)),
        ))  # fmt: skip
    path = f"M{start[0]:.1f} {start[1]:.1f}Q{middle[0]:.1f} {middle[1]:.1f} {end[0]:.1f} {end[1]:.1f}"
    return Route(path, points)


def _rim(ellipse: Ellipse, towards: Point) -> Point:
    x, y, wide, high = ellipse
    across, down = towards[0] - x, towards[1] - y
    part = 1.0 / max(((across / wide) ** 2 + (down / high) ** 2) ** 0.5, 1e-9)
    return x + across * min(part, 1.0), y + down * min(part, 1.0)


def _meets(a: Point, b: Point, box: Rectangle) -> bool:
    """Whether a segment meets a rectangle (Liang and Barsky, 1984)."""
    low, high = 0.0, 1.0
    for start, change, least, most in (
        (a[0], b[0] - a[0], box[0], box[2]),
        (a[1], b[1] - a[1], box[1], box[3]),
    ):
        if abs(change) < 1e-12:
            if not least <= start <= most:
                return False
            continue
        one, other = (least - start) / change, (most - start) / change
        low, high = max(low, min(one, other)), min(high, max(one, other))
    return low <= high
