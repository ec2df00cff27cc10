"""What was read from a file and a fraction in; a part to fit and a part to score out, as `natgrad.data.split` draws them."""

from __future__ import annotations

from typing import Any

import click
import numpy as np
import numpy.typing as npt

from natgrad.cli.common import UserError
from natgrad.cli.inputs import Input
from natgrad.data.corpus import Corpus
from natgrad.data.ratings import Ratings
from natgrad.data.split import held_out_rows, split_ratings, split_sequences
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
    try:
        return _split(source, fraction, seed)
    except ValueError as reason:
        raise UserError(f"--held-out {fraction:g}: {reason}") from None


def _split(source: Input, fraction: float, seed: int) -> tuple[Input, tuple[Any, ...]]:
    rng = np.random.default_rng([seed, 2])
    first = source.arguments[0]
    fitted: tuple[Any, ...]
    held: tuple[Any, ...]
    if isinstance(first, Ratings):
        fitted, held = ((part,) for part in split_ratings(first, fraction, rng))
    elif isinstance(first, Corpus):
        return _documents(source, first, fraction, rng)
    elif len(source.arguments) == 2 and np.asarray(source.arguments[1]).dtype.kind in "iu" and _are_lengths(source):
        out, *lengths = split_sequences(source.arguments[1], fraction, rng)
        fitted, held = (first[~out], lengths[0]), (first[out], lengths[1])
    else:
        out = held_out_rows(len(first), fraction, rng, "rows")
        fitted, held = (tuple(part[chosen] for part in source.arguments) for chosen in (~out, out))
    words = f"{source.words}; {_sized(held)} held out"
    return Input(
        fitted, fitted[0] if isinstance(first, Ratings) else fitted, source.names, words, named=source.named
    ), held


def _are_lengths(source: Input) -> bool:
    rows, lengths = source.arguments
    return len(lengths) != len(rows) and int(np.sum(lengths)) == len(rows)


def _documents(
    source: Input, corpus: Corpus, fraction: float, rng: np.random.Generator
) -> tuple[Input, tuple[Any, ...]]:
    out = held_out_rows(len(corpus), fraction, rng, "documents")
    kept, held = (corpus.documents(np.flatnonzero(chosen)) for chosen in (~out, out))
    raw = kept if source.raw is corpus else [text for text, away in zip(source.raw, out, strict=True) if not away]
    names = source.names and [name for name, away in zip(source.names, out, strict=True) if not away]
    parts = [np.flatnonzero(chosen) for chosen in (~out, out)]
    beside = [[[known[d] for d in part] for part in parts] for known in source.arguments[1:]]  # goes with its documents
    words = f"{source.words}; {count(len(held))} documents held out"
    return Input((kept, *(pair[0] for pair in beside)), raw, names, words), (held, *(pair[1] for pair in beside))


def _sized(held: tuple[Any, ...]) -> str:
    n = len(held[0])
    return f"{count(n)} {'rating' if isinstance(held[0], Ratings) else 'row'}{'' if n == 1 else 's'}"
