"""A hook of MkDocs: formulas in TeX become MathML while the site is built, so that pages typeset them offline, without a script.

Browsers draw MathML themselves, and screen readers read it. A formula that cannot be converted fails the build.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">(?:\\\(|\\\[)(.*?)(?:\\\)|\\\])</\1>', re.DOTALL)


def _converted(match: re.Match[str]) -> str:
    element, tex = match[1], html.unescape(match[2]).strip()
    markup = convert(tex, display="block" if element == "div" else "inline")
    # A wide formula scrolls by itself on a phone, with the keyboard too.
    box = ' tabindex="0" role="group" aria-label="formula"' if element == "div" else ""
    return f'<{element} class="formula"{box}>{markup}</{element}>'


def on_page_content(html: str, **_: Any) -> str:
    """Called by MkDocs with the markup of each page."""
    return _FORMULA.sub(_converted, html)
