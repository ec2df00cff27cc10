"""Cut texts into words: runs of two or more letters, digits or underscores, in lower case.

The analyser of scikit-learn's CountVectorizer counts the same of plain text. Marks that follow a letter belong to it, and what
only looks different (letters with accents in one or two parts, ligatures, wide letters) is one: Unicode's NFKC. Chinese,
Japanese, Thai, Lao, Khmer and Burmese are written without spaces: there a run of letters becomes its pairs.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["analyser_for", "words_of"]

_WORD = re.compile(r"\b\w\w+\b", re.ASCII)
# Letters of scripts without spaces between words: Chinese characters, Hiragana and Katakana with their marks; Thai, Lao, Khmer,
# Burmese. Korean has spaces.
_UNSPACED = (
    "\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003134f"
    "\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46\u0e81-\u0eb0\u0eb2\u0eb3\u0ebd-\u0ec6\u0edc-\u0edf\u1780-\u17b3\u1000-\u102a\u103f\u1050-\u1055"
)
# What is within words and no part of them: soft hyphens, joiners, byte order marks; the dot that lower case leaves of Turkish İ.
_NOTHING = re.compile("[\u00ad\u200c\u200d\u2060\ufeff\ufe00-\ufe0f]|(?<=i)\u0307")


def words_of(text: str) -> list[str]:
    """Return the words of a text, in order.

    Examples
    --------
    >>> words_of("A pear, an apple; a PEAR!")
    ['pear', 'an', 'apple', 'pear']
    >>> words_of("\u673a\u5668\u5b66\u4e60 with LDA")
    ['\u673a\u5668', '\u5668\u5b66', '\u5b66\u4e60', 'with', 'lda']
    """
    if text.isascii():
        return _WORD.findall(text.lower())
    run_of, letter_of = _scripts()
    words: list[str] = []
    for run in run_of.finditer(_NOTHING.sub("", unicodedata.normalize("NFKC", text.lower()))):
        if run.lastgroup == "unspaced":
            parts = letter_of.findall(run[0])
            words += ["".join(parts[place : place + 2]) for place in range(max(1, len(parts) - 1))]
        else:
            words.append(run[0])
    return words


def analyser_for(vocabulary: Iterable[Any]) -> Callable[[str], list[str]]:
    """Return the analyser of texts whose words have these names; refuse names that it never finds, such as phrases.

    Examples
    --------
    >>> analyser_for(["city", "york"])("New York is a city")
    ['new', 'york', 'is', 'city']
    """
    odd = next((name for name in vocabulary if isinstance(name, str) and words_of(name) != [name]), None)
    if odd is not None:
        raise ValueError(
            f"the vocabulary has {odd!r}, which is no word as texts are cut here: count texts with the vectoriser that made it, "
            "and give its counts, or give lists of words"
        )
    return words_of


@functools.cache
def _scripts() -> tuple[re.Pattern[str], re.Pattern[str]]:
    r"""Words of any script, and letters of those without spaces; a letter with the marks that follow it is one.

    Python's own ``\w`` has no marks, as the vowels of Hindi and Tamil are: words would end at each of them.
    """
    marks = "".join(c for c in map(chr, range(0x300, 0x1F000)) if unicodedata.category(c).startswith("M"))
    unspaced, spaced = f"[{_UNSPACED}][{marks}]*", f"[^\\W{_UNSPACED}]"
    return re.compile(f"(?P<unspaced>(?:{unspaced})+)|{spaced}(?:{spaced}|[{marks}])+"), re.compile(unspaced)
