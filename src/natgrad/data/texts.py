"""Raw texts in; a corpus that is ready for topics out: phrases as words, and without words that say nothing of a document.

Two words that follow each other more often than chance would have it are a phrase: their normalised mutual information,

    log[p(ab) / (p(a) p(b))] / −log p(ab)        (Bouma, 2009),

is 1 where one never comes without the other, and 0 by chance. Three words are a phrase where a phrase and a word are one.

A stop word of the corpus is one that many documents have, and as many as if its occurrences were dealt out at random: its
residual inverse document frequency (Church and Gale, 1995) is small. Nobody has to know the language.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from natgrad.data.corpus import Corpus, as_corpus, refuse_unordered
from natgrad.data.no_texts import no_text
from natgrad.data.words import Cutter, analyser_of, is_unspaced, joined, words_of
from natgrad.validation import whole_number

__all__ = ["count_texts"]

# A phrase occurs as often at least, and its normalised mutual information is as large.
LEAST_PAIRS, LEAST_INFORMATION = 5, 0.5
# A stop word is in this part of the documents at least, and has less than so many bits of residual inverse document frequency.
MANY, EVEN = 0.1, 0.35


def count_texts(
    texts: Iterable[str | Path] | Path,
    *,
    phrases: int = 1,
    stop_words: Literal["corpus"] | Iterable[str] | None = None,
    least_documents: int = 1,
    numbers: bool = True,
    join: str = "",
    emoji: bool = False,
    words: Callable[[str], Iterable[str]] | None = None,
    vocabulary: Iterable[str] | None = None,
    column: str | None = None,
) -> Corpus:
    """The words of texts, counted, as `LDA` takes them.

    Words are runs of two or more letters or digits in lower case, and of Chinese, Japanese and Thai the pairs of characters. Tags
    of HTML, links and addresses of e-mail are left out. The vocabulary knows phrases, signs and emoji, so that later texts can be
    given to the model as they are.

    Parameters
    ----------
    texts : the documents, as a list, a column of a table or a generator; paths of files with a document each; or one path: of
        a folder of text files, a file with a document on each line, or a table (CSV, JSON lines, Parquet); or a table itself
    phrases : int
        The most words in a phrase that counts as one word, as in "new york"; 1 for none.
    stop_words : None, "corpus" or words
        What is left out: words that you name, in upper or lower case, or those that are spread over the documents as if by
        chance.
    least_documents : int
        Words in fewer documents are left out.
    numbers : bool
        Whether words of digits alone count.
    join : str
        Signs that belong to a word where they stand between two of its letters: "-'" keeps "e-mail" and "don't" whole, which are
        "mail" and "don" otherwise.
    emoji : bool
        Whether emoji are words.
    words : function, optional
        Cuts a text into words, in place of all this. A model cannot know it: count later texts with it, too, and with
        ``vocabulary=model.vocabulary_``.
    vocabulary : the words that count, optional
        Those of an earlier corpus or a model. Then ``phrases``, ``stop_words`` and ``least_documents`` have nothing to choose.
    column : str, optional
        The column of a table that has the texts; of a file, not needed if there is only one.

    Examples
    --------
    >>> texts = ["New York is large", "the <b>subway</b> of New York", "York is old", "a day is new"] * 5
    >>> corpus = count_texts(texts, phrases=2, stop_words=["the", "of", "is"])
    >>> corpus.vocabulary.tolist()
    ['day', 'large', 'new', 'new york', 'old', 'subway', 'york']
    >>> count_texts(["Don't e-mail me: https://example.org"], join="-'").vocabulary.tolist()
    ["don't", 'e-mail', 'me']
    """
    if words is not None and (join or emoji):
        raise ValueError("words= cuts texts in its own way: leave out join= and emoji=, or words=")
    _check_signs(join)
    cut = (Cutter(join, emoji) if join or emoji else words_of) if words is None else words
    if vocabulary is not None:
        if phrases != 1 or stop_words is not None or least_documents != 1:
            raise ValueError("vocabulary= says which words count: leave out phrases=, stop_words= and least_documents=")
        known = list(vocabulary)
        cut = analyser_of(known, cut)
        return as_corpus([list(cut(text)) for text in _read(texts, column, words is None)], known)
    documents = [list(cut(text)) for text in _read(texts, column, words is None)]
    stop_words = stop_words if stop_words is None or isinstance(stop_words, str) else _as_cut(stop_words, cut)
    figures = set() if numbers else {word for document in documents for word in document if word.isnumeric()}
    left_out = _stop_words(documents, stop_words) | figures
    for _ in range(whole_number(phrases, "phrases") - 1):
        pairs = _phrases(documents, phrases, left_out, isinstance(stop_words, str))
        documents = [joined(document, pairs) for document in documents] if pairs else documents
    if isinstance(stop_words, str) and phrases > 1:  # of words, what phrases have left of them
        left_out = _stop_words(documents, stop_words) | figures
    seen = Counter(word for document in documents for word in set(document))
    least = whole_number(least_documents, "least_documents")
    kept = {word for word, count in seen.items() if count >= least and word not in left_out}
    if not kept:
        raise ValueError(
            f"no words are left of {len(seen)}: lower least_documents={least_documents}, or leave out fewer stop_words"
            if seen
            else "texts have no words, which are runs of two or more letters or digits: cut them yourself with words="
        )
    return as_corpus([[word for word in document if word in kept] for document in documents])


def _read(texts: Any, column: str | None, of_strings: bool) -> Iterator[Any]:
    """Texts one by one, files read; what is no text is an error with its place."""
    if isinstance(texts, Path):
        from natgrad.data.io.documents import read_documents

        found = read_documents(texts, column=column)
        if found.texts is None:
            raise ValueError(f"{texts}: has counts of words already, and no texts: read it with ng.data.open_source")
        texts = found.texts
    elif hasattr(texts, "columns"):
        if column is None:
            raise ValueError(
                f"texts is a table of {', '.join(map(repr, texts.columns))}: say which has them with column="
            )
        texts = texts[column]
    elif column is not None:
        raise ValueError(f"column={column!r} is for tables, and texts is none")
    if isinstance(texts, str):
        raise TypeError("texts is one text: give a list of documents, [text, …]; for a file, pathlib.Path(texts)")
    refuse_unordered(texts, "texts")
    number = -1
    for number, text in enumerate(texts):
        if isinstance(text, Path):
            from natgrad.data.io.documents import read_text

            yield read_text(text)
            continue
        if of_strings and not isinstance(text, str):
            raise TypeError(no_text(text, f"texts[{number}]"))
        yield text
    if number < 0:
        raise ValueError("texts is empty: there are no documents")


def _check_signs(join: str) -> None:
    for sign in join:
        if sign.isspace() or sign.isalnum() or sign == "_":
            raise ValueError(
                f'join must be signs, as in "-\'", got {join!r}: {sign!r} is none; for words that belong together, phrases=2'
            )


def _phrases(documents: list[list[str]], longest: int, left_out: set[str], by_chance: bool) -> set[tuple[str, ...]]:
    """Pairs of neighbours that are one word, each of whose parts may be a phrase already; none with a stop word.

    Of words that are stop words because they are spread ``by_chance``, the pair itself is asked: "new" may be, "new york" not.
    Neighbours in text without spaces have a letter in common, and are no phrase by that.
    """
    single = Counter(word for document in documents for word in document)
    pairs: Counter[tuple[str, str]] = Counter()
    inside: Counter[tuple[str, str]] = Counter()
    for document in documents:
        pairs.update(pairwise(document))
        inside.update(set(pairwise(document)) if by_chance else ())
    n = len(documents)
    n_words, n_pairs = sum(single.values()), max(1, sum(pairs.values()))
    phrases = set[tuple[str, ...]]()
    for (first, second), count in pairs.items():
        if count < LEAST_PAIRS or first == second or (is_unspaced(first) and is_unspaced(second)):
            continue
        if (first in left_out or second in left_out) and not (
            by_chance and _is_uneven(count, inside[first, second], n)
        ):
            continue
        if first.count(" ") + second.count(" ") + 2 > longest:
            continue
        chance = single[first] / n_words * single[second] / n_words
        information = math.log(count / n_pairs / chance) / -math.log(count / (n_pairs + 1))
        if information >= LEAST_INFORMATION:
            phrases.add((first, second))
    return phrases


def _as_cut(given: Iterable[str], words: Callable[[str], Iterable[str]]) -> set[str]:
    """Stop words as texts are cut: "The" is "the", and of "don't" there is "don"."""
    cut = {word: list(words(word)) for word in given}
    return {parts[0] if len(parts) == 1 else word for word, parts in cut.items()}


def _stop_words(documents: list[list[str]], given: Any) -> set[str]:
    if given is None:
        return set()
    if given != "corpus":
        if isinstance(given, str):
            raise ValueError(f'stop_words must be "corpus", a list of words, or None, got {given!r}')
        return set(given)
    total = Counter(word for document in documents for word in document)
    inside = Counter(word for document in documents for word in set(document))
    n = len(documents)
    return {word for word, count in inside.items() if count >= MANY * n and not _is_uneven(total[word], count, n)}


def _is_uneven(total: int, inside: int, n_documents: int) -> bool:
    """Whether what occurs so often is in fewer documents than it would be in if it were dealt out at random."""
    return math.log2(n_documents * -math.expm1(-total / n_documents) / inside) >= EVEN
