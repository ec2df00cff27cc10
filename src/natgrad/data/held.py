"""What a fit was made of, to which something comes or from which something goes: rows, sequences, documents, ratings.

Each says what its elements are called, how many there are, what it is with others after its own, and what it is with some of its
own alone. Nothing here computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from natgrad.data.corpus import Corpus
from natgrad.data.dates import Clock
from natgrad.data.ratings import Ratings

__all__ = ["Held", "HeldDocuments", "HeldRatings", "HeldRows", "HeldSequences", "chosen_elements"]

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Held(Protocol):
    """The data of a fit; ``noun`` is what its elements are called."""

    noun: ClassVar[str]

    @property
    def n_elements(self) -> int:
        """How many there are."""
        ...

    def joined(self, more: Any) -> Any:
        """With others after its own."""
        ...

    def taken(self, numbers: Ints) -> Any:
        """Some of its own."""
        ...

    def named(self, which: Mapping[str, Any]) -> Flags:
        """Those that have some ids."""
        ...


def chosen_elements(held: Held, which: Any) -> Flags:
    """A flag for each element: those with some ids, with some numbers, or with a flag of the caller."""
    if isinstance(which, Mapping):
        return held.named(which)
    count, rows = held.n_elements, np.asarray(which)
    if rows.dtype == bool and rows.shape == (count,):
        return np.asarray(rows)
    rows = rows.reshape(1) if rows.ndim == 0 else rows
    if rows.dtype.kind not in "iu" or rows.ndim != 1:
        raise TypeError(f"forget takes the numbers of {held.noun}, or a flag for each of the {count}; got {which!r}")
    if rows.size and (rows.min() < 0 or rows.max() >= count):
        bad = int(rows[(rows < 0) | (rows >= count)][0])
        raise IndexError(f"forget: there are {count} {held.noun}, numbered from 0, and no number {bad}")
    flags = np.zeros(count, dtype=bool)
    flags[rows] = True
    return flags


class _WithoutIds:
    noun: ClassVar[str]

    def named(self, which: Mapping[str, Any]) -> Flags:
        """These have none."""
        raise TypeError(f"forget: {self.noun} have no ids here: give their numbers, or a flag for each")


class _Rows(NamedTuple):
    arrays: tuple[Array | None, ...]


class HeldRows(_Rows, _WithoutIds):
    """Arrays whose first axis is rows; None stands for ones."""

    noun: ClassVar[str] = "rows"

    @property
    def n_elements(self) -> int:
        """Rows."""
        return next(len(array) for array in self.arrays if array is not None)

    def joined(self, more: HeldRows) -> HeldRows:
        """One array after the other."""
        pairs = zip(self.arrays, more.arrays, strict=True)
        return HeldRows(tuple(_joined(a, b, self.n_elements, more.n_elements) for a, b in pairs))

    def taken(self, numbers: Ints) -> HeldRows:
        """Some rows."""
        return HeldRows(tuple(None if array is None else array[numbers] for array in self.arrays))


class _Sequences(NamedTuple):
    columns: Array
    lengths: Ints
    labels: Array | None
    clocks: tuple[Clock | None, ...]


class HeldSequences(_Sequences, _WithoutIds):
    """Rows of sequences one after the other, how long each is, known states (−1: unknown), and the dates at which they end."""

    noun: ClassVar[str] = "sequences"

    @property
    def n_elements(self) -> int:
        """Sequences."""
        return len(self.lengths)

    def joined(self, more: HeldSequences) -> HeldSequences:
        """One after the other."""
        labels = None
        if self.labels is not None or more.labels is not None:
            own = (np.full(len(h.columns), -1) if h.labels is None else h.labels for h in (self, more))
            labels = np.concatenate(list(own))
        columns = np.concatenate([self.columns, more.columns])
        lengths = np.concatenate([self.lengths, more.lengths])
        return HeldSequences(columns, lengths, labels, self.clocks + more.clocks)

    def taken(self, numbers: Ints) -> HeldSequences:
        """Some sequences, whole."""
        starts = np.concatenate([[0], np.cumsum(self.lengths)])
        rows = np.concatenate([np.arange(starts[n], starts[n + 1]) for n in numbers])
        labels = None if self.labels is None else self.labels[rows]
        clocks = tuple(self.clocks[n] for n in numbers)
        return HeldSequences(self.columns[rows], self.lengths[numbers], labels, clocks)


class _Documents(NamedTuple):
    corpus: Corpus
    open_words: bool = False


class HeldDocuments(_Documents, _WithoutIds):
    """Documents; ``open_words`` says that the vocabulary is whatever they use: a word that none uses any more is gone."""

    noun: ClassVar[str] = "documents"

    @property
    def n_elements(self) -> int:
        """Documents."""
        return len(self.corpus)

    def joined(self, more: HeldDocuments) -> HeldDocuments:
        """One after the other; the words of the new ones are numbered as those of the old ones, with others after them."""
        a, b = self.corpus, more.corpus
        start = np.concatenate([a.start, a.start[-1] + b.start[1:]])
        words, counts = np.concatenate([a.words, b.words]), np.concatenate([a.counts, b.counts])
        return HeldDocuments(Corpus(start, words, counts, b.n_words, b.vocabulary), self.open_words)

    def taken(self, numbers: Ints) -> HeldDocuments:
        """Some documents."""
        return self._replace(corpus=self.corpus.documents(numbers))


class _Ratings(NamedTuple):
    ratings: Ratings


class HeldRatings(_Ratings):
    """Ratings, by the ids of users and items."""

    noun: ClassVar[str] = "ratings"

    @property
    def n_elements(self) -> int:
        """Ratings."""
        return len(self.ratings)

    def joined(self, more: HeldRatings) -> HeldRatings:
        """With new ones, of new users and items too; a pair that comes again has its new value."""
        return HeldRatings(self.ratings.extended(more.ratings))

    def taken(self, numbers: Ints) -> HeldRatings:
        """Some ratings; a user or an item without any is gone."""
        own = self.ratings
        users, items = own.users[numbers], own.items[numbers]
        sides = []
        for codes, ids in ((users, own.user_ids), (items, own.item_ids)):
            left = np.unique(codes)
            sides.append((np.searchsorted(left, codes), ids[left]))
        (users, user_ids), (items, item_ids) = sides
        return HeldRatings(Ratings.numbered(users, items, own.values[numbers], user_ids, item_ids))

    def named(self, which: Mapping[str, Any]) -> Flags:
        """The ratings of some users, or of some items."""
        own, flags = self.ratings, np.zeros(len(self.ratings), dtype=bool)
        for side, ids in which.items():
            if side not in ("user", "item"):
                raise ValueError(f'forget: ratings are named by "user" or "item", got {side!r}: {{"user": [ids]}}')
            wanted = [ids] if isinstance(ids, (str, bytes)) or np.ndim(ids) == 0 else list(ids)
            find, codes = (own.find_users, own.users) if side == "user" else (own.find_items, own.items)
            flags |= np.isin(codes, find(wanted, f"forget: {side}"))
        return flags


def _joined(a: Array | None, b: Array | None, n: int, m: int) -> Array | None:
    if a is None and b is None:
        return None
    return np.concatenate([np.ones(n) if a is None else a, np.ones(m) if b is None else b])
