"""What was read from a file and a fraction in; a part to fit and a part to judge the fit by, drawn at random from a seed, out.

Documents and rows are drawn one by one. Of ratings, those are never drawn that are the only one of a user or an item. Of series,
whole sequences are drawn; a single one is cut, and its end is held out.
"""

from __future__ import annotations

from typing import Any

import click
import numpy as np
import numpy.typing as npt

from natgrad.cli.common import UserError
from natgrad.cli.inputs import Input
from natgrad.data.corpus import Corpus
from natgrad.data.ratings import Ratings
from natgrad.report.format import count

__all__ = ["held_out_option", "split_input"]

Array = npt.NDArray[Any]


def held_out_option() -> click.Option:
    """``--held-out 0.1``."""
    return click.Option(
        ["--held-out"],
        type=click.FloatRange(0, 1, min_open=True, max_open=True),
        metavar="FRACTION",
        help="Leave this part of the data out and score it meanwhile: in the progress bar, the result and the page.",
    )


def split_input(source: Input, fraction: float, seed: int) -> tuple[Input, tuple[Any, ...]]:
    """The input without the part that is held out, and the arguments of ``score`` for that part."""
    rng = np.random.default_rng([seed, 2])
    first = source.arguments[0]
    if isinstance(first, Ratings):
        fitted, held = _ratings(first, fraction, rng)
    elif isinstance(first, Corpus):
        return _documents(source, first, fraction, rng)
    elif len(source.arguments) == 2 and np.asarray(source.arguments[1]).dtype.kind in "iu" and _are_lengths(source):
        fitted, held = _sequences(*source.arguments, fraction, rng)
    else:
        out = _drawn(len(first), fraction, rng, "rows")
        fitted, held = (tuple(part[chosen] for part in source.arguments) for chosen in (~out, out))
    words = f"{source.words}; {_sized(held)} held out"
    return Input(fitted, fitted[0] if isinstance(first, Ratings) else fitted, source.names, words), held


def _are_lengths(source: Input) -> bool:
    rows, lengths = source.arguments
    return len(lengths) != len(rows) and int(np.sum(lengths)) == len(rows)


def _drawn(n: int, fraction: float, rng: np.random.Generator, what: str) -> Array:
    """Which are held out, as true and false: at least one, and at least one is left."""
    if n < 2:
        raise UserError(f"--held-out needs at least 2 {what}, and there is {n}")
    out = np.zeros(n, dtype=bool)
    out[rng.permutation(n)[: min(max(1, round(fraction * n)), n - 1)]] = True
    return out


def _documents(
    source: Input, corpus: Corpus, fraction: float, rng: np.random.Generator
) -> tuple[Input, tuple[Any, ...]]:
    out = _drawn(len(corpus), fraction, rng, "documents")
    kept, held = (corpus.documents(np.flatnonzero(chosen)) for chosen in (~out, out))
    raw = kept if source.raw is corpus else [text for text, away in zip(source.raw, out, strict=True) if not away]
    names = source.names and [name for name, away in zip(source.names, out, strict=True) if not away]
    return Input((kept,), raw, names, f"{source.words}; {count(len(held))} documents held out"), (held,)


def _ratings(ratings: Ratings, fraction: float, rng: np.random.Generator) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    out = _drawn(len(ratings), fraction, rng, "ratings")
    for side in (ratings.users, ratings.items):
        known = np.bincount(side[~out], minlength=int(side.max()) + 1) > 0
        out &= known[side]  # who has none left gets all back
    if not out.any():
        raise UserError(f"--held-out {fraction:g}: every rating is needed, as no user or item would keep one")
    parts = []
    for chosen in (~out, out):
        users, items = ratings.user_ids[ratings.users[chosen]], ratings.item_ids[ratings.items[chosen]]
        parts.append((Ratings(users, items, ratings.values[chosen]),))
    return parts[0], parts[1]


def _sequences(
    rows: Array, lengths: Array, fraction: float, rng: np.random.Generator
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    if len(lengths) == 1:
        cut = min(max(1, round((1.0 - fraction) * len(rows))), len(rows) - 1)
        return (rows[:cut], np.array([cut])), (rows[cut:], np.array([len(rows) - cut]))
    out = _drawn(len(lengths), fraction, rng, "sequences")
    inside = np.repeat(out, lengths)
    return (rows[~inside], lengths[~out]), (rows[inside], lengths[out])


def _sized(held: tuple[Any, ...]) -> str:
    n = len(held[0])
    return f"{count(n)} {'rating' if isinstance(held[0], Ratings) else 'row'}{'' if n == 1 else 's'}"
