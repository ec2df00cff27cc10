"""A hook of MkDocs: formulas in TeX become MathML while the site is built, and pages get what keyboards and screen readers need.

Browsers draw MathML themselves, offline and without a script, and screen readers read it. A formula that cannot be converted
fails the build. No page asks another host for anything.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

# Where the theme would fetch what lets search work from the disk.
SHIM = "https://unpkg.com/iframe-worker/shim"
_FORMULA = re.compile(r'<(span|div) class="arithmatex">(?:\\\(|\\\[)(.*?)(?:\\\)|\\\])</\1>', re.DOTALL)
# What the theme leaves to be mended: (pattern, replacement).
_MENDED = (
    # The first column of a table may have no name.
    (re.compile(r"<th([^>]*)></th>"), r"<td\1></td>"),
    # Colours follow the system; the theme's hidden switches must not take the focus.
    (
        re.compile(r'<input class="md-option" data-md-color-media'),
        '<input tabindex="-1" class="md-option" data-md-color-media',
    ),
)


def _converted(match: re.Match[str]) -> str:
    element, tex = match[1], html.unescape(match[2]).strip()
    markup = convert(tex, display="block" if element == "div" else "inline")
    # A wide formula scrolls by itself on a phone, with the keyboard too.
    box = ' tabindex="0" role="group" aria-label="formula"' if element == "div" else ""
    return f'<{element} class="formula"{box}>{markup}</{element}>'


def on_page_content(html: str, **_: Any) -> str:
    """Called by MkDocs with the markup of each page."""
    return _FORMULA.sub(_converted, html)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Called by MkDocs with each page as it will be written."""
    # Search from the disk needs no other host.
    ours = "../" * page.url.count("/") + "assets/file-worker.js"
    output = output.replace(SHIM, ours)
    for pattern, better in _MENDED:
        output = pattern.sub(better, output)
    return output


def on_post_template(output_content: str, **_: Any) -> str:
    """The page for addresses that do not exist, which no disk has: it needs no search."""
    return output_content.replace(f'<script src="{SHIM}"></script>', "")
