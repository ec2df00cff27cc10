"""Texts in; counts of their words [D, V] and the words out, as scikit-learn's CountVectorizer counts them by default.

Words are runs of two or more letters, digits or underscores of the text in lower case; their order is alphabetical. Importing
scikit-learn for this takes longer than fitting thousands of short texts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import scipy

__all__ = ["count_words", "words_of"]

_WORD = re.compile(r"(?u)\b\w\w+\b")


def words_of(text: str) -> list[str]:
    """The words of a text, in order.

    Examples
    --------
    >>> words_of("A pear, an apple; a PEAR!")
    ['pear', 'an', 'apple', 'pear']
    """
    return _WORD.findall(text.lower())


def count_words(
    texts: Sequence[Any], vocabulary: Any, words: Callable[[Any], Iterable[str]] = words_of
) -> tuple[Any, list[str]] | None:
    """Counts and their words; with a ``vocabulary`` those of its words alone. None if there is nothing to count by."""
    if vocabulary is not None:
        number = {word: place for place, word in enumerate(vocabulary)}
        if not number or len(number) != len(vocabulary):
            return None
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
    table = scipy.sparse.csr_array((np.array(counts, dtype=np.int64), columns, start), shape=(len(texts), len(names)))
    table.sort_indices()
    return table, names
