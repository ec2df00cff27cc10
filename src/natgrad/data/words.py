"""Texts in; counts of their words [D, V] and the words out, of plain English as scikit-learn's CountVectorizer counts them.

Words are runs of two or more letters, digits or underscores of the text in lower case; their order is alphabetical. Importing
scikit-learn for this takes longer than fitting thousands of short texts. Tags of HTML, links and addresses are no words
(`natgrad.data.markup`). Marks that follow a letter belong to it, and what only looks different (letters with accents in one or
two parts, ligatures, wide letters) is one: Unicode's NFKC. Chinese, Japanese, Thai, Lao, Khmer and Burmese are written without
spaces: there a run of letters becomes its pairs, one after the other, and would be one word otherwise.

A vocabulary may have phrases, words with spaces between them: then the longest phrase that begins at a word counts in its place.
It may have words with signs in them (e-mail, don't), or emoji: then texts are cut so that they are found.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from natgrad.data.markup import plain_text

__all__ = ["Cutter", "WordCounts", "analyser_of", "count_words", "is_unspaced", "words_of"]

_WORD = re.compile(r"\b\w\w+\b", re.ASCII)
# Letters of scripts without spaces between words: Chinese characters, Hiragana and Katakana with their marks; Thai, Lao, Khmer,
# Burmese. Korean has spaces.
_UNSPACED = (
    "\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003134f"
    "\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46\u0e81-\u0eb0\u0eb2\u0eb3\u0ebd-\u0ec6\u0edc-\u0edf\u1780-\u17b3\u1000-\u102a\u103f\u1050-\u1055"
)
# Signs that are written in several ways, as one.
_SIGNS = str.maketrans("\u2019\u02bc\u2010\u2011", "''--")
# A face or a thing is a word, a flag its two letters; colours of skin are left out.
_EMOJI = (
    "[\U0001f1e6-\U0001f1ff]{2}|"
    "[\u231a\u231b\u23e9-\u23f3\u2600-\u27bf\u2b50\u2b55\U0001f300-\U0001f3fa\U0001f400-\U0001faff]"
)
# What is within words and no part of them: soft hyphens, joiners, byte order marks, variants of emoji; the dot that lower case
# leaves of a Turkish İ.
_NOTHING = re.compile("[\u00ad\u200c\u200d\u2060\ufeff\ufe00-\ufe0f]|(?<=i)\u0307")


@final
@dataclass(frozen=True, slots=True)
class Cutter:
    """Cuts texts into words.

    Parameters
    ----------
    join : str
        Signs that belong to a word if they stand alone between two of its letters or digits, as in "-'".
    emoji : bool
        Whether emoji are words.

    Examples
    --------
    >>> Cutter(join="-'")("Don't e-mail -- call!")
    ["don't", 'e-mail', 'call']
    """

    join: str = ""
    emoji: bool = False

    def __call__(self, text: str) -> list[str]:
        """The words of a text, in order."""
        text = plain_text(text)
        if text.isascii():
            return _joined_word(self.join).findall(text.lower()) if self.join else _WORD.findall(text.lower())
        run_of, letter_of = _scripts(self.join, self.emoji)
        words: list[str] = []
        text = _NOTHING.sub("", unicodedata.normalize("NFKC", text.lower()))
        for run in run_of.finditer(text.translate(_SIGNS) if self.join else text):
            if run.lastgroup == "unspaced":
                parts = letter_of.findall(run[0])
                words += ["".join(parts[place : place + 2]) for place in range(max(1, len(parts) - 1))]
            else:
                words.append(run[0])
        return words


_PLAIN = Cutter()


def words_of(text: str) -> list[str]:
    """The words of a text, in order.

    Examples
    --------
    >>> words_of("A pear, an apple; a PEAR!")
    ['pear', 'an', 'apple', 'pear']
    >>> words_of("<b>Pears</b> &amp; plums: https://example.org/pears")
    ['pears', 'plums']
    >>> words_of("\u673a\u5668\u5b66\u4e60 with LDA")
    ['\u673a\u5668', '\u5668\u5b66', '\u5b66\u4e60', 'with', 'lda']
    """
    return _PLAIN(text)


def is_unspaced(word: str) -> bool:
    """Whether a word is of text without spaces, where neighbours overlap."""
    return not word.isascii() and _scripts()[1].match(word) is not None


@functools.cache
def _joined_word(join: str) -> re.Pattern[str]:
    """Words of ASCII with signs in them."""
    return re.compile(rf"\b\w(?:\w|[{re.escape(join)}](?=\w))+", re.ASCII)


@functools.cache
def _scripts(join: str = "", emoji: bool = False) -> tuple[re.Pattern[str], re.Pattern[str]]:
    r"""Words of any script, and letters of those without spaces; a letter with the marks that follow it is one.

    Python's own ``\w`` has no marks, as the vowels of Hindi and Tamil are: words would end at each of them.
    """
    marks = "".join(c for c in map(chr, range(0x300, 0x1F000)) if unicodedata.category(c).startswith("M"))
    unspaced, spaced = f"[{_UNSPACED}][{marks}]*", f"[^\\W{_UNSPACED}]"
    sign = f"|[{re.escape(join)}](?={spaced})" if join else ""
    words = f"(?P<unspaced>(?:{unspaced})+)|{spaced}(?:{spaced}|[{marks}]{sign})+" + (f"|{_EMOJI}" if emoji else "")
    return re.compile(words), re.compile(unspaced)


def analyser_of(
    vocabulary: Iterable[Any], words: Callable[[Any], Iterable[str]] = words_of
) -> Callable[[Any], Iterable[str]]:
    """What cuts a text into words as those of a vocabulary are: phrases, words with signs in them, emoji where it has some.

    Examples
    --------
    >>> analyser_of(["new york", "city"])("New York is a city in New England")
    ['new york', 'is', 'city', 'in', 'new', 'england']
    >>> analyser_of(["e-mail"])("An E-Mail: well-known")
    ['an', 'e-mail', 'well-known']
    """
    names = [name for name in vocabulary if isinstance(name, str)]
    if words is words_of:
        odd = [name for name in names if not name.isidentifier()]
        join = {sign for name in odd for sign in _signs_in(name)}
        emoji = any(re.fullmatch(_EMOJI, part) for name in odd if not name.isascii() for part in name.split(" "))
        words = Cutter("".join(sorted(join)), emoji) if join or emoji else words
    phrases = {tuple(name.split(" ")) for name in names if " " in name}
    if not phrases:
        return words
    return lambda text: joined(list(words(text)), phrases)


def _signs_in(name: str) -> set[str]:
    """Signs that stand alone between letters of a word, or of the words of a phrase."""
    signs = set[str]()
    for part in name.split(" "):
        found = re.split(r"\w+", part)
        if len(found) > 2 and not found[0] and not found[-1] and all(len(sign) == 1 for sign in found[1:-1]):
            signs.update(sign for sign in found[1:-1] if not unicodedata.category(sign).startswith("M"))
    return signs


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
