"""A plan in; the known numbers that lie so far from zero that squares lose the digits in which they differ, out.

The density of a Normal with mean b x + a has b² Σ x² and 2 a b Σ x beside one another. For x = 10⁶ ± 1 they are 10¹² and more,
and their sum is 1: a slope, and all the more a precision, may be wrong in the first digit, and nothing else would tell. Data and
locations are measured from an origin (`origins.py`); coefficients are as the user gave them.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

from natgrad.errors import LostDigits
from natgrad.network.compile.plan import Plan, PlannedTerm
from natgrad.network.compile.polynomial import Monomial
from natgrad.network.language.expressions import REAL, VECTOR

__all__ = ["Offset", "offsets_of", "warn_of_offsets"]

# How many of their ranges numbers lie from zero at least, and how many there must be to have one: squares lose 8 of 16 digits.
FAR, FEWEST = 5e3, 3


class Offset(NamedTuple):
    """A node whose mean reads such numbers, the column of them (None where they are not columns), and their ends."""

    node: str
    column: int | None
    low: float
    high: float


def warn_of_offsets(plan: Plan) -> None:
    """One warning for all of them, where `fit` was called."""
    found = offsets_of(plan)
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
        stacklevel=4,  # the call of fit, which says new names first
    )


def offsets_of(plan: Plan) -> list[Offset]:
    """Known numbers of that kind that are squared in the term of an observed node, beside something else that may cancel them."""
    if not any(plan.nodes[name].kind in (REAL, VECTOR) for name in plan.blocks):
        return []
    far = [name for name, array in plan.known.items() if _is_far(array)]
    terms = [term for term in plan.terms.values() if plan.nodes[term.node].is_observed] if far else []
    return [
        offset for name in far for term in terms if _cancels(plan, term, name) for offset in _ends(plan, term, name)
    ]


def _is_far(array: object) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind == "f" and bool(np.any(_far(array)[0]))


def _far(array: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which columns lie far away, and the ends of all; the rows of an array are the elements of a plate."""
    if array.ndim == 0 or len(array) < FEWEST:
        nothing = np.zeros(1)
        return nothing > 0, nothing, nothing
    low, high = np.atleast_1d(array.min(axis=0)), np.atleast_1d(array.max(axis=0))
    nearest = np.where(low > 0, low, np.where(high < 0, -high, 0.0))
    return (high > low) & (nearest > FAR * (high - low)), low, high


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


def _ends(plan: Plan, term: PlannedTerm, name: str) -> list[Offset]:
    far, low, high = _far(plan.known[name])
    if plan.known[name].ndim != 2:
        place = np.unravel_index(int(far.argmax()), far.shape)
        return [Offset(term.node, None, float(low[place]), float(high[place]))]
    return [Offset(term.node, int(k), float(low[k]), float(high[k])) for k in np.flatnonzero(far)]
