"""Texts in; counts of their words [D, V] and the words out, as scikit-learn's CountVectorizer counts them by default.

Words are runs of two or more letters, digits or underscores of the text in lower case; their order is alphabetical. Importing
scikit-learn for this takes longer than fitting thousands of short texts. Chinese and Japanese are written without spaces: there a
run of characters becomes its pairs, one after the other, and would be one word otherwise.

A vocabulary may have phrases, words with spaces between them: then the longest phrase that begins at a word counts in its place.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["WordCounts", "analyser_of", "count_words", "words_of"]

_WORD = re.compile(r"(?u)\b\w\w+\b")
# Chinese characters, Hiragana and Katakana with their marks; Korean has spaces.
_CJK = "\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003134f"
_UNSPACED = re.compile(f"[{_CJK}]")
_RUN = re.compile(f"(?u)[{_CJK}]+|[^\\W{_CJK}]+")


def words_of(text: str) -> list[str]:
    """The words of a text, in order.

    Examples
    --------
    >>> words_of("A pear, an apple; a PEAR!")
    ['pear', 'an', 'apple', 'pear']
    >>> words_of("\u673a\u5668\u5b66\u4e60 with LDA")
    ['\u673a\u5668', '\u5668\u5b66', '\u5b66\u4e60', 'with', 'lda']
    """
    lower = text.lower()
    if lower.isascii() or _UNSPACED.search(lower) is None:
        return _WORD.findall(lower)
    words: list[str] = []
    for run in _RUN.findall(lower):
        if _UNSPACED.match(run):
            words += [run[place : place + 2] for place in range(max(1, len(run) - 1))]
        elif len(run) > 1:
            words.append(run)
    return words


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
