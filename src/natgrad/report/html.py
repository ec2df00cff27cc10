"""Text, numbers and attributes in; markup in which everything that came from outside is escaped, out.

Only `Html` is taken as markup; any other text is data, whatever it contains.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from typing import Any

__all__ = ["Html", "join", "json_block", "table", "tag"]

VOID = {"br", "hr", "input", "meta"}
CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """One element. Children are markup (`Html`), data, or lists of both; ``class_`` is class, ``aria_label`` aria-label.

    Attributes that are None or False are left out; True stands without a value.

    Examples
    --------
    >>> print(tag("p", "a < b", tag("b", 1), class_="note"))
    <p class="note">a &lt; b<b>1</b></p>
    """
    opening = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Html(opening if name in VOID else f"{opening}{join(children)}</{name}>")


def join(children: Any) -> Html:
    """Several pieces one after the other."""
    return Html("".join(_pieces(children)))


def json_block(identifier: str, data: Any) -> Html:
    """Data for a script of the page; no text in it can end the element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Html(f'<script type="application/json" id="{_escape(identifier)}">{CONTROLS.sub("�", text)}</script>')


def table(head: Iterable[Any], rows: Iterable[Iterable[Any]], *, caption: str, numeric: Iterable[int] = ()) -> Html:
    """A table whose first cell in each row is its heading; ``numeric`` columns are set to the right.

    It scrolls sideways on a narrow screen, by keyboard too.
    """
    right = set(numeric)

    def kind(place: int) -> str | None:
        return "number" if place in right else None

    body = [
        tag(
            "tr",
            [
                tag("td", cell, class_=kind(place)) if place else tag("th", cell, scope="row", class_=kind(place))
                for place, cell in enumerate(row)
            ],
        )
        for row in rows
    ]
    heads = [tag("th", cell, scope="col", class_=kind(place)) for place, cell in enumerate(head)]
    grid = tag("table", tag("caption", caption), tag("thead", tag("tr", heads)), tag("tbody", body))
    return tag("div", grid, class_="scroll", role="region", tabindex="0", aria_label=caption)


def _pieces(children: Any) -> Iterable[str]:
    if children is None or children is False:
        return
    if isinstance(children, str):
        yield children if isinstance(children, Html) else _escape(children)
    elif isinstance(children, Iterable):
        for child in children:
            yield from _pieces(child)
    else:
        yield _escape(str(children))


def _attribute(key: str, value: Any) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{_escape(str(value))}"'


def _escape(text: str) -> str:
    return html.escape(CONTROLS.sub("�", text), quote=True)
