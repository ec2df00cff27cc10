"""Texts in; counts of their words [D, V] and the words out, of English as scikit-learn's CountVectorizer counts them by default.

Words are runs of two or more letters, digits or underscores of the text in lower case; their order is alphabetical. Importing
scikit-learn for this takes longer than fitting thousands of short texts. Marks that follow a letter belong to it, and what only
looks different (letters with accents in one or two parts, ligatures, wide letters) is one: Unicode's NFKC. Chinese, Japanese,
Thai, Lao, Khmer and Burmese are written without spaces: there a run of letters becomes its pairs, one after the other, and would
be one word otherwise.

A vocabulary may have phrases, words with spaces between them: then the longest phrase that begins at a word counts in its place.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["WordCounts", "analyser_of", "count_words", "is_unspaced", "words_of"]

_WORD = re.compile(r"\b\w\w+\b", re.ASCII)
# Letters of scripts without spaces between words: Chinese characters, Hiragana and Katakana with their marks; Thai, Lao, Khmer,
# Burmese. Korean has spaces.
_UNSPACED = (
    "\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003134f"
    "\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46\u0e81-\u0eb0\u0eb2\u0eb3\u0ebd-\u0ec6\u0edc-\u0edf\u1780-\u17b3\u1000-\u102a\u103f\u1050-\u1055"
)
# What is within words and no part of them: soft hyphens, joiners, byte order marks, variants of emoji; the dot that lower case
# leaves of a Turkish İ.
_NOTHING = re.compile("[\u00ad\u200c\u200d\u2060\ufeff\ufe00-\ufe0f]|(?<=i)\u0307")


def words_of(text: str) -> list[str]:
    """The words of a text, in order.

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


def is_unspaced(word: str) -> bool:
    """Whether a word is of text without spaces, where neighbours overlap."""
    return not word.isascii() and _scripts()[1].match(word) is not None


@functools.cache
def _scripts() -> tuple[re.Pattern[str], re.Pattern[str]]:
    r"""Words of any script, and letters of those without spaces; a letter with the marks that follow it is one.

    Python's own ``\w`` has no marks, as the vowels of Hindi and Tamil are: words would end at each of them.
    """
    marks = "".join(c for c in map(chr, range(0x300, 0x1F000)) if unicodedata.category(c).startswith("M"))
    unspaced, spaced = f"[{_UNSPACED}][{marks}]*", f"[^\\W{_UNSPACED}]"
    words = f"(?P<unspaced>(?:{unspaced})+)|{spaced}(?:{spaced}|[{marks}])+"
    return re.compile(words), re.compile(unspaced)


def analyser_of(
    vocabulary: Iterable[Any], words: Callable[[Any], Iterable[str]] = words_of
) -> Callable[[Any], Iterable[str]]:
    """What cuts a text into words, and into the phrases of a vocabulary where it has some.

    Examples
    --------
    >>> analyser_of(["new york", "city"])("New York is a city in New England")
    ['new york', 'is', 'city', 'in', 'new', 'england']
    """
    phrases = {tuple(name.split(" ")) for name in vocabulary if isinstance(name, str) and " " in name}
    if not phrases:
        return words
    return lambda text: joined(list(words(text)), phrases)


def joined(words: list[str], phrases: Collection[tuple[str, ...]]) -> list[str]:
    """Words with the longest phrase that begins at each of them in its place."""
    longest, merged, place = max(map(len, phrases), default=1), list[str](), 0
    while place < len(words):
        for length in range(min(longest, len(words) - place), 0, -1):
            if length == 1 or tuple(words[place : place + length]) in phrases:
                merged.append(" ".join(words[place : place + length]))
                place += length
                break
    return merged


class WordCounts(NamedTuple):
    """Rows of counts, compressed, words in order in each; the names of the words."""

    start: npt.NDArray[np.int64]
    words: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    names: list[str]


def count_words(
    texts: Sequence[Any], vocabulary: Any, words: Callable[[Any], Iterable[str]] = words_of
) -> WordCounts | None:
    """Counts and their words; with a ``vocabulary`` those of its words alone. None if there is nothing to count by."""
    if vocabulary is not None:
        number = {word: place for place, word in enumerate(vocabulary)}
        if not number or len(number) != len(vocabulary):
            return None
        words = analyser_of(number, words)
    else:
        number = {}
    places: list[int] = []
    counts: list[int] = []
    start = [0]
    for text in texts:
        for word, count in Counter(words(text)).items():
            place = number.get(word) if vocabulary is not None else number.setdefault(word, len(number))
            if place is not None:
                places.append(place)
                counts.append(count)
        start.append(len(places))
    if not number:
        return None
    names = sorted(number) if vocabulary is None else list(vocabulary)
    rank = np.empty(len(names), dtype=np.int64)
    for new, word in enumerate(names):
        rank[number[word]] = new
    columns = rank[np.array(places, dtype=np.int64)]
    sizes = np.diff(start)
    order = np.lexsort((columns, np.repeat(np.arange(len(sizes)), sizes)))  # within each text
    return WordCounts(np.array(start), columns[order], np.array(counts, dtype=np.int64)[order], names)
