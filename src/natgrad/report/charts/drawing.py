"""Draw a network as SVG without any dependency, or write it in DOT, whose layouts are better for large ones.

Circles are variables, shaded where observed; edges lead to children; boxes are plates. Every set of plates has columns of its
own, so a box holds its nodes and no other. A set that contains another one is drawn inside it; sets that merely overlap (users ×
factors, items × factors) stand side by side, each with all its plates on the label. Parents are above their children.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from natgrad.report.html import Html, tag

__all__ = ["Drawing", "draw_network", "to_dot"]

ROW, RADIUS, GAP, PAD, LABEL, CHARACTER = 88.0, 24.0, 26.0, 13.0, 17.0, 7.4
STYLE = """
.ng-node{fill:#fff;stroke:#4a4e57;stroke-width:1.3}.ng-seen{fill:#d5e3ee}.ng-text{fill:#1d1f23}.ng-law{fill:#5a5e66}
.ng-edge{stroke:#4a4e57;fill:none;stroke-width:1.2}.ng-plate{fill:none;stroke:#8a8f98}.ng-label{fill:#5a5e66}.ng-head{fill:#4a4e57}
@media (prefers-color-scheme:dark){.ng-node{fill:#1d2024;stroke:#b9bec6}.ng-seen{fill:#2c4a60}.ng-text{fill:#e8e6e1}
.ng-law{fill:#a8adb5}.ng-edge{stroke:#b9bec6}.ng-plate{stroke:#868b94}.ng-label{fill:#a8adb5}.ng-head{fill:#b9bec6}}
"""


class Drawing(str):
    """An SVG; a notebook shows it, ``save`` writes it to a file."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)

    def save(self, path: str | Path) -> Path:
        """Write it to an .svg file."""
        where = Path(path)
        where.write_text(self, encoding="utf-8")
        return where

    def __repr__(self) -> str:
        return f"<Drawing of {len(self)} characters of SVG; .save(path) writes it to a file>"


class Cluster(NamedTuple):
    """The nodes of one set of plates, row by row, and the sets that lie inside it; the label is of plates not yet drawn."""

    plates: frozenset[str]
    label: str
    rows: Mapping[int, list[str]]
    inner: tuple[Cluster, ...]


class Box(NamedTuple):
    """A plate's rectangle, and its label."""

    left: float
    top: float
    right: float
    bottom: float
    label: str


def draw_network(nodes: Mapping[str, Any]) -> Drawing:
    """The picture of declared nodes, parents first."""
    parents, forest = _structure(nodes)
    widths = {name: _width(node) for name, node in nodes.items()}
    x, y = _columns(forest, widths), {name: ROW * rank for name, rank in _ranks(parents).items()}
    return _picture(nodes, parents, x, y, widths, [box for cluster in forest for box in _boxes(cluster, x, y, widths)])


def to_dot(nodes: Mapping[str, Any]) -> str:
    """The same network in the language of Graphviz: plates are clusters, observed nodes are filled."""
    parents, forest = _structure(nodes)
    quoted = {name: json.dumps(name, ensure_ascii=False) for name in nodes}
    lines = ["digraph network {"]

    def add(cluster: Cluster, depth: int) -> None:
        pad = "  " * depth
        if cluster.plates:
            lines.append(
                f"{pad}subgraph {json.dumps('cluster ' + ' '.join(sorted(cluster.plates)), ensure_ascii=False)} {{"
            )
            lines.append(f"{pad}  label={json.dumps(cluster.label, ensure_ascii=False)};")
        for name in (name for row in cluster.rows.values() for name in row):
            label = json.dumps(f"{name}\n{type(nodes[name]).__name__}", ensure_ascii=False)
            fill = ', style=filled, fillcolor="#d5e3ee"' if nodes[name].is_observed else ""
            lines.append(f"{pad}  {quoted[name]} [label={label}{fill}];")
        for inner in cluster.inner:
            add(inner, depth + 1)
        if cluster.plates:
            lines.append(f"{pad}}}")

    for cluster in forest:
        add(cluster, 1)
    lines += [f"  {quoted[above]} -> {quoted[name]};" for name, known in parents.items() for above in known]
    return "\n".join([*lines, "}", ""])


def _structure(nodes: Mapping[str, Any]) -> tuple[dict[str, list[str]], tuple[Cluster, ...]]:
    """The parents of every node, and the sets of plates inside each other."""
    parents = {name: [parent.name for parent in node.parents()] for name, node in nodes.items()}
    plates = {name: frozenset(plate.name for plate in node.plates) for name, node in nodes.items()}
    sizes = {plate.name: plate.size for node in nodes.values() for plate in node.plates}
    return parents, _forest(plates, _ranks(parents), sizes)


def _width(node: Any) -> float:
    """Half the width of a node: its name, and its distribution in smaller letters."""
    return max(RADIUS, CHARACTER * len(node.name) / 2 + 7, 0.76 * CHARACTER * len(type(node).__name__) / 2 + 9)


def _ranks(parents: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The longest way from a root; roots stand just above their highest child."""
    rank: dict[str, int] = {}
    for name, above in parents.items():
        rank[name] = 1 + max((rank[parent] for parent in above), default=-1)
    for name, above in parents.items():
        below = [rank[child] for child, known in parents.items() if name in known]
        if not above and below:
            rank[name] = min(below) - 1
    lowest = min(rank.values(), default=0)
    return {name: place - lowest for name, place in rank.items()}


def _forest(
    plates: Mapping[str, frozenset[str]], rank: Mapping[str, int], sizes: Mapping[str, int]
) -> tuple[Cluster, ...]:
    sets = list(dict.fromkeys(plates.values()))
    outer: dict[frozenset[str], frozenset[str] | None] = {}
    for own in sets:
        smaller = sorted((other for other in sets if other and other < own), key=len)
        chain = all(first < second for first, second in pairwise(smaller))
        outer[own] = smaller[-1] if smaller and chain else None

    def grown(own: frozenset[str]) -> Cluster:
        rows: dict[int, list[str]] = {}
        for name, around in plates.items():
            if around == own:
                rows.setdefault(rank[name], []).append(name)
        label = " × ".join(f"{plate} {sizes[plate]:,}" for plate in sorted(own - (outer[own] or frozenset())))
        return Cluster(own, label, rows, tuple(grown(other) for other in sets if outer[other] == own))

    return tuple(grown(own) for own in sets if outer[own] is None)


def _columns(clusters: Iterable[Cluster], widths: Mapping[str, float], begin: float = 0.0) -> dict[str, float]:
    """The centre of every node: sets from left to right, the nodes of a row centred in their set."""
    ends: dict[str, float] = {}
    at = begin
    for cluster in clusters:
        pad = PAD if cluster.plates else 0.0
        rows = [sum(2 * widths[name] + GAP for name in row) - GAP for row in cluster.rows.values()]
        wide = max([*rows, _label_width(cluster) - 2 * pad])
        for row, length in zip(cluster.rows.values(), rows, strict=True):
            place = at + pad + (wide - length) / 2
            for name in row:
                ends[name] = place + widths[name]
                place += 2 * widths[name] + GAP
        end = at + pad + wide
        if cluster.inner:
            inside = _columns(cluster.inner, widths, end + GAP)
            ends |= inside
            end = max(inside[name] + widths[name] for name in inside) + PAD
        at = end + pad + GAP
    return ends


def _label_width(cluster: Cluster) -> float:
    return CHARACTER * 0.9 * len(cluster.label) + 16 if cluster.label else 0.0


def _boxes(cluster: Cluster, x: Mapping[str, float], y: Mapping[str, float], widths: Mapping[str, float]) -> list[Box]:
    inside = [box for part in cluster.inner for box in _boxes(part, x, y, widths)]
    if not cluster.plates:
        return inside
    names = [name for row in cluster.rows.values() for name in row]
    left = min([x[n] - widths[n] for n in names] + [box.left for box in inside]) - PAD
    right = max([x[n] + widths[n] for n in names] + [box.right for box in inside]) + PAD
    top = min([y[n] - RADIUS for n in names] + [box.top for box in inside]) - PAD
    bottom = max([y[n] + RADIUS for n in names] + [box.bottom for box in inside]) + LABEL
    short = max(0.0, _label_width(cluster) - (right - left)) / 2
    return [Box(left - short, top, right + short, bottom, cluster.label), *inside]


def _picture(
    nodes: Mapping[str, Any],
    parents: Mapping[str, Sequence[str]],
    x: Mapping[str, float],
    y: Mapping[str, float],
    widths: Mapping[str, float],
    boxes: Sequence[Box],
) -> Drawing:
    left = min([x[n] - widths[n] for n in nodes] + [box.left for box in boxes]) - 4
    right = max([x[n] + widths[n] for n in nodes] + [box.right for box in boxes]) + 4
    top = min([y[n] - RADIUS for n in nodes] + [box.top for box in boxes]) - 4
    bottom = max([y[n] + RADIUS for n in nodes] + [box.bottom for box in boxes]) + 4
    head = tag("path", d="M0 0L8 4L0 8z", class_="ng-head")
    arrow = tag("marker", head, id="ng-arrow", markerWidth=8, markerHeight=8, refX=7.5, refY=4, orient="auto")
    parts = [
        tag("style", Html(STYLE)),
        tag("defs", arrow),
        [_box(box) for box in boxes],
        [
            _edge(*((x[n], y[n], widths[n]) for n in (above, name)))
            for name, known in parents.items()
            for above in known
        ],
        [_node(node, x[name], y[name], widths[name]) for name, node in nodes.items()],
    ]
    words = "; ".join(_in_words(name, above, nodes[name]) for name, above in parents.items())
    size = right - left, bottom - top
    drawn = tag(
        "svg",
        tag("title", f"A network: {words}"),
        parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"{left:.1f} {top:.1f} {size[0]:.1f} {size[1]:.1f}",
        width=f"{size[0]:.0f}",
        height=f"{size[1]:.0f}",
        style="max-width:100%;height:auto",
        role="img",
        aria_label=f"A network: {words}",
        font_family="system-ui, sans-serif",
    )
    return Drawing(drawn)


def _in_words(name: str, above: Sequence[str], node: Any) -> str:
    seen = ", observed" if node.is_observed else ""
    return f"{name} ({type(node).__name__}{seen})" + (f" from {', '.join(above)}" if above else "")


def _box(box: Box) -> list[Html]:
    frame = {"x": f"{box.left:.1f}", "y": f"{box.top:.1f}", "rx": 8, "class_": "ng-plate"}
    sides = {"width": f"{box.right - box.left:.1f}", "height": f"{box.bottom - box.top:.1f}"}
    place = {"x": f"{box.left + 8:.1f}", "y": f"{box.bottom - 5:.1f}", "text_anchor": "start", "font_size": 11}
    return [tag("rect", **frame, **sides), tag("text", box.label, class_="ng-label", **place)]


def _node(node: Any, x: float, y: float, wide: float) -> Html:
    shape = tag(
        "ellipse",
        cx=f"{x:.1f}",
        cy=f"{y:.1f}",
        rx=f"{wide:.1f}",
        ry=RADIUS,
        class_="ng-node" + " ng-seen" * node.is_observed,
    )
    text = tag(
        "text", node.name, x=f"{x:.1f}", y=f"{y + 0.5:.1f}", class_="ng-text", text_anchor="middle", font_size=13
    )
    kind = type(node).__name__
    law = tag("text", kind, x=f"{x:.1f}", y=f"{y + 13:.1f}", class_="ng-law", text_anchor="middle", font_size=10)
    plates = " × ".join(f"{plate.name} {plate.size:,}" for plate in node.plates)
    return tag("g", tag("title", f"{node.name}: {kind}{' on ' + plates if plates else ''}"), shape, text, law)


def _edge(first: tuple[float, float, float], last: tuple[float, float, float]) -> Html:
    """A line from the rim of an ellipse (centre, half width) to that of another one."""
    across, down = last[0] - first[0], last[1] - first[1]
    start, end = (1.0 / max(((across / wide) ** 2 + (down / RADIUS) ** 2) ** 0.5, 1e-9) for wide in (first[2], last[2]))
    (a, b), (c, d) = (
        (x + part * across, y + part * down) for x, y, part in ((*first[:2], min(start, 1)), (*last[:2], -min(end, 1)))
    )
    return tag("path", d=f"M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}", class_="ng-edge", marker_end="url(#ng-arrow)")
