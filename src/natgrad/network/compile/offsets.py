"""A plan in; the known numbers that lie so far from zero that squares lose the digits in which they differ, out.

The density of a Normal with mean b x + a has b² Σ x² and 2 a b Σ x beside one another. For x = 10⁶ ± 1 they are 10¹² and more,
and their sum is 1: a slope, and all the more a precision, may be wrong in the first digit, and nothing else would tell. Data and
locations are measured from an origin (`origins.py`); coefficients are as the user gave them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from natgrad.errors import LostDigits
from natgrad.inference.trace import levels_to_the_caller
from natgrad.network.compile.plan import Plan, PlannedTerm
from natgrad.network.language.expressions import REAL, VECTOR
from natgrad.network.polynomial import Monomial

__all__ = ["Ends", "Offset", "offsets_of", "warn_of_offsets", "widened"]

# How many of their ranges numbers lie from zero at least, and how many there must be to have one: squares lose 8 of 16 digits.
FAR, FEWEST = 5e3, 3


class Ends(NamedTuple):
    """How many rows an array of known numbers has, and the least and the largest number of each column."""

    n: int
    low: np.ndarray
    high: np.ndarray


class Offset(NamedTuple):
    """A node whose mean reads such numbers, the column of them (None where they are not columns), and their ends."""

    node: str
    column: int | None
    low: float
    high: float


def warn_of_offsets(plan: Plan, ends: Mapping[str, Ends] | None = None) -> None:
    """One warning for all of them, where `fit` was called; ``ends`` are those of all chunks, of which the plan has one."""
    found = offsets_of(plan, ends)
    if not found:
        return
    node, column, low, high = found[0]
    which = "known numbers" if column is None else f"numbers of the known column {column}"
    more = f" ({len(found)} such)" if len(found) > 1 else ""
    warnings.warn(
        f"{which} in the mean of {node!r} lie between {low:.12g} and {high:.12g}{more}: so far from zero that their squares lose "
        "the digits in which they differ, and results may be wrong in the first one. Subtract their mean: a level beside "
        "them takes it up",
        LostDigits,
        stacklevel=levels_to_the_caller(),
    )


def offsets_of(plan: Plan, ends: Mapping[str, Ends] | None = None) -> list[Offset]:
    """Known numbers of that kind that are squared in the term of an observed node, beside something else that may cancel them."""
    if not any(plan.nodes[name].kind in (REAL, VECTOR) for name in plan.blocks):
        return []
    known = {name: _ends_of(array) for name, array in plan.known.items()} | dict(ends or {})
    far = [name for name, own in known.items() if name in plan.known and np.any(_is_far(own))]
    terms = [term for term in plan.terms.values() if plan.nodes[term.node].is_observed] if far else []
    return [
        offset
        for name in far
        for term in terms
        if _cancels(plan, term, name)
        for offset in _offsets(term, known[name], plan.known[name].ndim)
    ]


def widened(before: list[Ends], arrays: Sequence[np.ndarray]) -> list[Ends]:
    """The ends of arrays that come in chunks, with those of one more chunk."""
    own = [_ends_of(array) for array in arrays]
    return [_wider(a, b) for a, b in zip(before, own, strict=True)] if before else own


def _wider(a: Ends, b: Ends) -> Ends:
    if a.low.shape != b.low.shape:  # of sequences that are as long as they are: no columns
        return Ends(0, np.zeros(1), np.zeros(1))
    return Ends(a.n + b.n, np.minimum(a.low, b.low), np.maximum(a.high, b.high))


def _ends_of(array: object) -> Ends:
    """The rows of an array are the elements of a plate; what is no array of real numbers has no ends."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f" or array.ndim == 0 or not len(array):
        return Ends(0, np.zeros(1), np.zeros(1))
    return Ends(len(array), np.atleast_1d(array.min(axis=0)), np.atleast_1d(array.max(axis=0)))


def _is_far(ends: Ends) -> np.ndarray:
    nearest = np.where(ends.low > 0, ends.low, np.where(ends.high < 0, -ends.high, 0.0))
    away = nearest > FAR * (ends.high - ends.low)
    return np.asarray((ends.n >= FEWEST) & (ends.high > ends.low) & away)


def _cancels(plan: Plan, term: PlannedTerm, name: str) -> bool:
    """Whether the numbers are squared with a mean, and other columns or other means are beside them."""
    squares = [monomial for monomial in term.monomials if _is_of_means(plan, monomial)]
    reads = [sum(factor.source == name for factor in monomial.factors) for monomial in squares]
    columns = plan.known[name].ndim > 1 and plan.known[name].shape[-1] > 1
    return 2 in reads and (columns or min(reads) < 2)


def _is_of_means(plan: Plan, monomial: Monomial) -> bool:
    return any(
        not factor.known and factor.stat == 1 and plan.nodes[factor.source].kind in (REAL, VECTOR)
        for factor in monomial.factors
    )


def _offsets(term: PlannedTerm, ends: Ends, ndim: int) -> list[Offset]:
    far, low, high = _is_far(ends), ends.low, ends.high
    if ndim != 2:
        place = np.unravel_index(int(far.argmax()), far.shape)
        return [Offset(term.node, None, float(low[place]), float(high[place]))]
    return [Offset(term.node, int(k), float(low[k]), float(high[k])) for k in np.flatnonzero(far)]
