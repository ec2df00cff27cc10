"""Data and a fraction in; a part to fit and a part to judge the fit by, drawn at random from a seed, out.

Documents and rows are drawn one by one. Of ratings, those are never drawn that are the only one of a user or an item. Of series,
whole sequences are drawn; a single one is cut, and its end is held out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.data.corpus import Corpus
from natgrad.data.frames import take_rows
from natgrad.data.ratings import Ratings
from natgrad.validation import whole_number

__all__ = ["held_out_rows", "split_ratings", "split_sequences", "train_test_split"]

Array = npt.NDArray[Any]


def train_test_split(*data: Any, lengths: Any = None, test_size: float = 0.1, seed: int = 0) -> Any:
    """Two parts of the data, one to fit and one to score.

    Parameters
    ----------
    *data : ratings; documents; rows, and targets of the same length
        `Ratings`; texts, a `Corpus` or a matrix of counts; arrays or frames of rows.
    lengths : array of whole numbers, optional
        The lengths of sequences, of which whole ones are drawn; of a single one the end is held out.
    test_size : float
        The part that is held out, between 0 and 1. Of ratings it may come out smaller: every user and every item keeps one.
    seed : int

    Returns
    -------
    train, test
        Of several arrays: the two parts of the first, of the second, …; with ``lengths``, those of the sequences at the end.

    Examples
    --------
    >>> import numpy as np, natgrad as ng
    >>> X, y = np.arange(20.0).reshape(10, 2), np.arange(10)
    >>> X_train, X_test, y_train, y_test = ng.data.train_test_split(X, y, test_size=0.3)
    >>> len(X_train), len(X_test), sorted([*y_train.tolist(), *y_test.tolist()]) == y.tolist()
    (7, 3, True)
    >>> ratings = ng.data.make_ratings(n_users=30, n_items=20, n_ratings=200).ratings
    >>> train, test = ng.data.train_test_split(ratings, test_size=0.2)
    >>> set(test.user_ids) <= set(train.user_ids)
    True
    """
    if not data:
        raise TypeError("train_test_split needs data: ratings, documents or rows")
    if not 0 < test_size < 1:
        raise ValueError(f"test_size must lie between 0 and 1, got {test_size!r}: 0.1 holds a tenth out")
    rng = np.random.default_rng(whole_number(seed, "seed", least=0))
    if isinstance(data[0], Ratings):
        if len(data) > 1:
            raise TypeError(f"ratings are split alone, got {len(data) - 1} more")
        return split_ratings(data[0], test_size, rng)
    if lengths is not None:
        return _with_lengths(data, np.asarray(lengths), test_size, rng)
    sizes = [_n_rows(part) for part in data]
    if len(set(sizes)) > 1:
        raise ValueError(f"the data must have the same number of rows, got {', '.join(map(str, sizes))}")
    out = held_out_rows(sizes[0], test_size, rng, "rows")
    return tuple(_taken(part, chosen) for part in data for chosen in (~out, out))


def held_out_rows(n: int, fraction: float, rng: np.random.Generator, what: str) -> Array:
    """Which are held out, as true and false: at least one, and at least one is left."""
    if n < 2:
        raise ValueError(f"holding out a part takes at least 2 {what}, and there is {n}")
    out = np.zeros(n, dtype=bool)
    out[rng.permutation(n)[: min(max(1, round(fraction * n)), n - 1)]] = True
    return out


def split_ratings(ratings: Ratings, fraction: float, rng: np.random.Generator) -> tuple[Ratings, Ratings]:
    """Two parts, the first of which has a rating of every user and every item."""
    out = held_out_rows(len(ratings), fraction, rng, "ratings")
    for side in (ratings.users, ratings.items):
        known = np.bincount(side[~out], minlength=int(side.max()) + 1) > 0
        out &= known[side]  # who has none left gets all back
    if not out.any():
        raise ValueError("every rating is needed, as no user or item would keep one")
    parts = []
    for chosen in (~out, out):
        users, items = ratings.user_ids[ratings.users[chosen]], ratings.item_ids[ratings.items[chosen]]
        parts.append(Ratings(users, items, ratings.values[chosen]))
    return parts[0], parts[1]


def split_sequences(lengths: Array, fraction: float, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Which rows are held out, and the lengths of what is left and of what is held out."""
    n = int(lengths.sum())
    if len(lengths) == 1:
        cut = min(max(1, round((1.0 - fraction) * n)), n - 1)
        return np.arange(n) >= cut, np.array([cut]), np.array([n - cut])
    out = held_out_rows(len(lengths), fraction, rng, "sequences")
    return np.repeat(out, lengths), lengths[~out], lengths[out]


def _with_lengths(data: tuple[Any, ...], lengths: Array, fraction: float, rng: np.random.Generator) -> tuple[Any, ...]:
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 1).any():
        raise ValueError(f"lengths must be whole numbers ≥ 1, one for each sequence, got {lengths!r}")
    for part in data:
        if _n_rows(part) != lengths.sum():
            raise ValueError(f"lengths add up to {lengths.sum()}, and there are {_n_rows(part)} rows")
    out, left, held = split_sequences(lengths, fraction, rng)
    return (*(_taken(part, chosen) for part in data for chosen in (~out, out)), left, held)


def _n_rows(part: Any) -> int:
    return int(part.shape[0]) if hasattr(part, "shape") else len(part)


def _taken(part: Any, chosen: Array) -> Any:
    """The chosen rows, in the form of the whole."""
    places = np.flatnonzero(chosen)
    if isinstance(part, Corpus):
        return part.documents(places)
    if (rows := take_rows(part, places)) is not None:
        return rows
    if hasattr(part, "shape"):
        return (part.tocsr() if hasattr(part, "tocsr") else part)[places]
    return [part[place] for place in places]
