"""Columns of numbers in; small charts as inline SVG out, coloured by the page and readable without seeing them.

Every chart has a title and a description for screen readers. Colours are classes of the style sheet, so that light and dark
need one drawing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.report.format import log_ticks, tick_labels, ticks
from natgrad.report.html import Html, tag

__all__ = ["Axis", "Line", "bar_chart", "line_chart", "picture", "sparkline", "thinned"]

Floats = npt.NDArray[np.float64]
WIDTH, HEIGHT = 440, 270
RIGHT, TOP, BOTTOM = 12, 12, 42
# The left margin: the label of the axis, and as much as the longest number needs.
AXIS_LABEL, DIGIT = 30, 7.2
MOST_POINTS = 400


class Line(NamedTuple):
    """One line or cloud of a chart: its points, what it is called, and its class (line, second, dots, guide)."""

    x: Floats
    y: Floats
    name: str = ""
    kind: str = "line"


class Axis(NamedTuple):
    """What an axis shows, whether it is logarithmic, its ends where the data should not say, and whether ticks are whole.

    Ticks may be dates; values are then days since the beginning of 1970.
    """

    label: str
    log: bool = False
    low: float | None = None
    high: float | None = None
    whole: bool = False
    dates: bool = False


class Frame(NamedTuple):
    """The frame of a chart: ticks and labels, where the left edge is, and the place of a value along each axis."""

    markup: Html
    left: float
    x: Callable[[Any], Floats]
    y: Callable[[Any], Floats]


def line_chart(lines: Sequence[Line], x: Axis, y: Axis, *, title: str, description: str) -> Html:
    """Lines over two axes; points that are not finite interrupt a line, and what lies outside is cut off."""
    shown = [_finite(line, x.log, y.log) for line in lines]
    clouds = [line for line in shown if line.kind == "dots" and len(line.x)]
    # Dots at the ends are seen whole.
    xs = [line.x for line in shown] + [_widened(line.x) for line in clouds if not x.log]
    ys = [line.y for line in shown] + [_widened(line.y) for line in clouds if not y.log]
    frame = _frame(x, y, xs, ys)
    key = hashlib.sha256(f"{title}{description}".encode()).hexdigest()[:8]
    clip = tag(
        "clipPath",
        tag(
            "rect", x=_n(frame.left), y=TOP - 2, width=_n(WIDTH - frame.left - RIGHT), height=HEIGHT - TOP - BOTTOM + 4
        ),
        id=f"clip-{key}",
    )
    drawn = [_drawn(line, frame) for line in shown]
    inside = tag("g", drawn, clip_path=f"url(#clip-{key})")
    chart = picture(WIDTH, HEIGHT, [clip, frame.markup, inside], title=title, description=description)
    named = [line for line in lines if line.name]
    if len(named) < 2:
        return chart
    legend = [tag("li", tag("span", class_=f"swatch {line.kind}", aria_hidden="true"), line.name) for line in named]
    return Html(tag("ul", legend, class_="legend") + chart)


def bar_chart(
    heights: Floats,
    x: Axis,
    y: Axis,
    *,
    title: str,
    description: str,
    edges: Floats | None = None,
    intervals: tuple[Floats, Floats] | None = None,
    guide: float | None = None,
) -> Html:
    """Bars from zero, on ``edges`` or one for each whole number; ``guide`` is a line at the height that is expected."""
    if edges is None:
        edges = np.arange(len(heights) + 1, dtype=np.float64) + 0.5
    tops = [heights, np.zeros(1)] + ([intervals[1]] if intervals else []) + ([np.array([guide])] if guide else [])
    frame = _frame(x, y, [edges], tops)
    left, right, zero = frame.x(edges[:-1]), frame.x(edges[1:]), float(frame.y(0.0))
    gap = np.minimum(2.0, 0.15 * (right - left))
    parts = [
        tag("rect", class_="bar", x=_n(a + g), y=_n(top), width=_n(b - a - 2 * g), height=_n(max(zero - top, 0.0)))
        for a, b, g, top in zip(left, right, gap, frame.y(heights), strict=True)
    ]
    if intervals is not None:
        middle = (left + right) / 2
        parts += [
            tag("path", class_="whisker", d=f"M{_n(at)} {_n(low)}V{_n(high)}")
            for at, low, high in zip(middle, frame.y(intervals[0]), frame.y(intervals[1]), strict=True)
        ]
    if guide is not None:
        parts.append(tag("path", class_="guide", d=f"M{_n(frame.left)} {_n(float(frame.y(guide)))}H{WIDTH - RIGHT}"))
    return picture(WIDTH, HEIGHT, [frame.markup, parts], title=title, description=description)


def sparkline(y: Floats, *, title: str) -> Html:
    """A line without axes, for a notebook."""
    width, height = 160.0, 40.0
    values = thinned(np.arange(len(y), dtype=np.float64), y)[1]
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return Html("")
    low, high = _shown_range(values)
    x = np.linspace(2, width - 2, len(values))
    place = height - 3 - (height - 6) * (np.clip(values, low, high) - low) / ((high - low) or 1.0)
    path = tag("path", d=_path(x, place), fill="none", stroke="currentColor", stroke_width="1.5")
    return picture(int(width), int(height), [path], title=title, description="")


def picture(width: float, height: float, parts: Any, *, title: str, description: str) -> Html:
    """An SVG that says what it shows."""
    return tag(
        "svg",
        tag("title", title),
        tag("desc", description) if description else None,
        parts,
        viewBox=f"0 0 {_n(width)} {_n(height)}",
        role="img",
        aria_label=f"{title}. {description}" if description else title,
        class_="chart",
    )


def thinned(x: Floats, y: Floats, most: int = MOST_POINTS) -> tuple[Floats, Floats]:
    """At most ``most`` points of a line: of each stretch the lowest and the highest, so that no spike is lost."""
    if len(x) <= most:
        return x, y
    keep = {0, len(x) - 1}
    for part in np.array_split(np.arange(len(x)), most // 2 - 1):
        known = part[np.isfinite(y[part])]
        if len(known):
            keep |= {int(known[np.argmin(y[known])]), int(known[np.argmax(y[known])])}
    order = np.array(sorted(keep))
    return x[order], y[order]


# -- parts --


def _finite(line: Line, log_x: bool, log_y: bool) -> Line:
    x, y = np.asarray(line.x, dtype=np.float64), np.asarray(line.y, dtype=np.float64)
    good = np.isfinite(x) & np.isfinite(y) & (~np.array(log_x) | (x > 0)) & (~np.array(log_y) | (y > 0))
    if line.kind == "dots":
        return Line(x[good], y[good], line.name, line.kind)
    x, y = thinned(x[good], y[good])
    return Line(x, y, line.name, line.kind)


def _widened(values: Floats) -> Floats:
    low, high = float(values.min()), float(values.max())
    return np.array([low - 0.03 * (high - low), high + 0.03 * (high - low)])


def _drawn(line: Line, frame: Frame) -> Html:
    x, y = frame.x(line.x), frame.y(line.y)
    if line.kind == "dots":
        return tag("path", class_="dots", d="".join(f"M{_n(a)} {_n(b)}h0" for a, b in zip(x, y, strict=True)))
    if len(x) == 1:
        return tag("circle", class_="point", cx=_n(x[0]), cy=_n(y[0]), r=3)
    return tag("path", class_=line.kind, d=_path(x, y))


def _frame(x: Axis, y: Axis, xs: Sequence[Floats], ys: Sequence[Floats]) -> Frame:
    """Ticks, grid and labels, and where values go."""
    x_low, x_high = _ends(x, xs)
    y_low, y_high = _ends(y, ys)
    if not y.log and y.low is None and y.high is None and y_high > y_low:
        y_high += 0.04 * (y_high - y_low)
    at, labels = _ticks(y, y_low, y_high)
    left = AXIS_LABEL + DIGIT * max(map(len, labels), default=0)
    to_x = _scale(x_low, x_high, x.log, left, WIDTH - RIGHT)
    to_y = _scale(y_low, y_high, y.log, HEIGHT - BOTTOM, TOP)
    parts: list[Html] = []
    for place, label in zip(to_y(at), labels, strict=True):
        parts.append(tag("path", class_="grid", d=f"M{_n(left)} {_n(place)}H{WIDTH - RIGHT}"))
        parts.append(tag("text", label, class_="tick", x=_n(left - 6), y=_n(place + 4), text_anchor="end"))
    at, labels = _ticks(x, x_low, x_high)
    for place, label in zip(to_x(at), labels, strict=True):
        parts.append(tag("text", label, class_="tick", x=_n(place), y=HEIGHT - BOTTOM + 17, text_anchor="middle"))
    parts.append(tag("path", class_="axis", d=f"M{_n(left)} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}"))
    middle = (left + WIDTH - RIGHT) / 2
    parts.append(tag("text", x.label, class_="label", x=_n(middle), y=HEIGHT - 6, text_anchor="middle"))
    turned = f"translate(11 {_n((TOP + HEIGHT - BOTTOM) / 2)}) rotate(-90)"
    parts.append(tag("text", y.label, class_="label", transform=turned, text_anchor="middle"))
    return Frame(tag("g", parts, aria_hidden="true"), left, to_x, to_y)


def _ticks(axis: Axis, low: float, high: float) -> tuple[Floats, list[str]]:
    if axis.log:
        at = log_ticks(low, high)
        return at, _powers(at)
    if axis.dates:
        from matplotlib import dates

        tools: Any = dates  # without types
        locator = tools.AutoDateLocator(minticks=3, maxticks=6)
        at = np.asarray(locator.tick_values(tools.num2date(low), tools.num2date(high)), dtype=np.float64)
        at = at[(low <= at) & (at <= high)]
        return at, [tools.AutoDateFormatter(locator)(value) for value in at]
    at = ticks(low, high)
    at = at[at == np.rint(at)] if axis.whole else at
    return at, tick_labels(at)


def _ends(axis: Axis, columns: Sequence[Floats]) -> tuple[float, float]:
    values = np.concatenate([np.asarray(column, dtype=np.float64).ravel() for column in columns] or [np.zeros(1)])
    values = values[np.isfinite(values)]
    if axis.log:
        values = values[values > 0]
    values = values if len(values) else np.ones(1)
    low = float(values.min()) if axis.low is None else axis.low
    high = float(values.max()) if axis.high is None else axis.high
    if high - low > 1e-9 * max(abs(low), abs(high)):
        return low, high
    return (low / 2, low * 2) if axis.log else (low - 0.5 * (abs(low) or 1.0), low + 0.5 * (abs(low) or 1.0))


def _scale(low: float, high: float, log: bool, begin: float, end: float) -> Callable[[Any], Floats]:
    def place(values: Any) -> Floats:
        numbers = np.asarray(values, dtype=np.float64)
        part = np.log(numbers / low) / np.log(high / low) if log else (numbers - low) / (high - low)
        return np.asarray(begin + (end - begin) * part)

    return place


def _shown_range(values: Floats) -> tuple[float, float]:
    """The range of a history without its first plunge: where it was after a tenth of the way, or above."""
    return float(values[len(values) // 10 :].min()), float(values.max())


def _powers(values: Floats) -> list[str]:
    signs = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    labels = []
    for value in values:
        power = float(np.log10(value))
        whole = round(power)
        plain = abs(whole) <= 3 or abs(power - whole) > 1e-9
        labels.append(f"{value:g}" if plain else f"10{str(whole).translate(signs)}")
    return labels


def _path(x: Floats, y: Floats) -> str:
    # Straight lines only: a curve through the points would invent values between them.
    return "M" + "L".join(f"{_n(a)} {_n(b)}" for a, b in zip(x, y, strict=True))


def _n(value: float) -> str:
    """A coordinate; a tenth of a unit is finer than a screen shows."""
    return f"{float(value):.1f}".removesuffix(".0")
