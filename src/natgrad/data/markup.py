"""A text as people have it in, with tags of HTML, references to characters, links and addresses; what it says out.

Only tags that HTML has are tags, without attributes or with one that has a value: "a <b and c> d" and generics of programs stay.
Tags that set off letters within a word (H<sub>2</sub>O) leave nothing behind, others a space.
"""

from __future__ import annotations

import html
import re

__all__ = ["plain_text"]

_WITHIN_WORDS = "b em i s small strong sub sup u wbr"
_OTHERS = """
a abbr acronym address area article aside audio base bdi bdo big blockquote body br button canvas caption cite code col
colgroup data datalist dd del details dfn dialog div dl dt embed fieldset figcaption figure font footer form frame frameset h1 h2
h3 h4 h5 h6 head header hgroup hr html iframe img input ins kbd label legend li link main map mark menu meta meter nav noframes
noscript object ol optgroup option output p param picture pre progress q rp rt ruby samp script search section select slot source
span strike style summary svg table tbody td template textarea tfoot th thead time title tr track tt ul var video
"""
_TAG = r"</?(?:{})(?:\s[^<>]*=[^<>]*)?\s*/?>"
_INLINE = re.compile(_TAG.format("|".join(_WITHIN_WORDS.split())), re.IGNORECASE)
_TAGS = re.compile(_TAG.format("|".join([*_OTHERS.split(), "center"])) + r"|<!doctype[^<>]*>", re.IGNORECASE)
# What stands between these is no text.
_ELEMENTS = (("<!--", "-->"), ("<script", "</script>"), ("<style", "</style>"))
_REFERENCE = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")
# Of what can be written in ASCII, since a link may be followed by Chinese without a space.
_LINK = re.compile(r"(?<![a-zA-Z0-9_])(?:(?:https?|ftp)://|mailto:|www\.)[!#-;=?-~]+", re.IGNORECASE)
_ADDRESS = re.compile(r"(?<![\w.+%-])[\w.+%-]+@[\w-]+(?:\.[\w-]+)+")


def plain_text(text: str) -> str:
    """The text without tags, links and addresses, and with characters in place of references to them.

    Examples
    --------
    >>> plain_text('<p class="x">H<sub>2</sub>O &amp; salt: see https://example.org or ask me@example.org</p>').split()
    ['H2O', '&', 'salt:', 'see', 'or', 'ask']
    >>> plain_text("if a <b and c> d")
    'if a <b and c> d'
    """
    if "<" in text:
        for begin, end in _ELEMENTS:
            text = _without(text, begin, end)
        text = _TAGS.sub(" ", _INLINE.sub("", text))
    if "&" in text:
        text = _REFERENCE.sub(lambda found: html.unescape(found[0]), text)
    if ":" in text or "." in text:
        text = _LINK.sub(" ", text)
    return _ADDRESS.sub(" ", text) if "@" in text else text


def _without(text: str, begin: str, end: str) -> str:
    """The text without what stands between two marks; one that does not end stays."""
    lower = text.lower()
    if begin not in lower or len(lower) != len(text):  # of a few letters the lower case is longer: places would differ
        return text
    parts, place = [], 0
    while (first := lower.find(begin, place)) >= 0 and (last := lower.find(end, first)) >= 0:
        parts += [text[place:first], " "]
        place = last + len(end)
    return "".join([*parts, text[place:]])
