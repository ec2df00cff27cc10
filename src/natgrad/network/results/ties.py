"""Find known tables that tie hidden categories so hard that independent factors cannot follow.

q = Π q_i gives every hidden category a factor of its own. Where a known table says that one is a function of others (an "or", a
copy), or nearly so, the posterior lies on combinations: q settles on one of them and is sure of it. What counts is not that a
table has zeros but that they tie: for hidden a and b, the log odds ratio

    log p(a, b) − log p(a', b) − log p(a, b') + log p(a', b')

is 0 if the table factorises, and zeros of a product form (a = 0 and b = 0 for certain) do no harm either. Two symmetric binary
variables have two mean-field optima from 4 nats on; a thousand to one is far beyond that.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.errors import CoupledCategories
from natgrad.inference.trace import levels_to_the_caller
from natgrad.network.compile.plan import Plan, PlannedTerm
from natgrad.network.execute.potentials import term_table
from natgrad.network.language.nodes import Node
from natgrad.network.polynomial import Factor, Monomial, Take

__all__ = ["Tie", "ties_of", "warn_of_ties"]

Floats = npt.NDArray[np.float64]
# Odds ratios from here on count as logic, probabilities below as zero.
STRONG, ZERO = float(np.log(1e3)), float(np.log(1e-9))
LOWEST = 1e6  # in place of −∞, so that differences are numbers
# Larger tables are compared with their row and column means, not pair by pair.
MOST = 20_000_000
# Tables of coins on plates with more elements are not compared.
ROWS = 1000


class Tie(NamedTuple):
    """Hidden nodes, the node whose known table ties them, and the log odds ratio (inf: zeros)."""

    hidden: tuple[str, ...]
    node: str
    nats: float


def warn_of_ties(plan: Plan) -> None:
    """One warning for all tables that a factorised q cannot follow, where `fit` was called."""
    ties = ties_of(plan)
    if not ties:
        return
    shown = "; ".join(f"{' and '.join(map(repr, tie.hidden))} by the table of {tie.node!r}" for tie in ties[:3])
    more = f" ({len(ties)} such tables)" if len(ties) > 3 else ""
    warnings.warn(
        f"hidden categories are tied by tables with probabilities (near) 0 or 1: {shown}{more}. q is a product of independent "
        "factors, so their probabilities may be far off, and the bound is only a bound. network.query() is exact where all "
        "that is hidden is discrete; else observe all but one of them, or put them into one Categorical over their combinations",
        CoupledCategories,
        stacklevel=levels_to_the_caller(),
    )


def ties_of(plan: Plan) -> list[Tie]:
    """The tables that tie hidden categories, in the order of declaration."""
    ties = []
    for term in plan.terms.values():
        if not plan.nodes[term.node].has_table:
            continue
        groups: dict[tuple[Factor, ...], list[Monomial]] = {}
        for monomial in term.monomials:
            hidden = tuple(factor for factor in monomial.factors if not factor.known)
            if len(hidden) > 1 and all(_is_category(plan.nodes.get(factor.source)) for factor in hidden):
                groups.setdefault(hidden, []).append(monomial)
        if any(not plan.nodes[f.source].family.is_category for hidden in groups for f in hidden):
            nats = _strength_of_coins(plan, term, [m for some in groups.values() for m in some])
        else:
            nats = max((_strength(plan, term, hidden, some) for hidden, some in groups.items()), default=0.0)
        if nats >= STRONG:
            names = dict.fromkeys(f.source for hidden in groups for f in hidden)
            ties.append(Tie(tuple(names), term.node, nats))
    return ties


def _is_category(node: Node | None) -> bool:
    return node is not None and node.family.is_discrete


def _strength(plan: Plan, term: PlannedTerm, hidden: tuple[Factor, ...], monomials: list[Monomial]) -> float:
    """The largest log odds ratio between two hidden factors of one term."""
    total: Floats | None = None
    for monomial in monomials:
        tables = [factor for factor in monomial.factors if factor.known and _chosen_by(factor, hidden)]
        if len(tables) != 1:
            return 0.0
        part = monomial.coefficient * _table(plan, tables[0], hidden)
        total = part if total is None else total + part if total.shape == part.shape else None
        if total is None:
            return 0.0
    assert total is not None
    # Of nested choices, x[z[k]], only what chooses from the table has an axis of it; the last axis is all else.
    return _strongest(total, range(total.ndim - 1))


def _strength_of_coins(plan: Plan, term: PlannedTerm, monomials: list[Monomial]) -> float:
    """The same where coins are among them, whose two sides are statistics of their own: from the table of all combinations."""
    try:
        slots, table = term_table(plan, term, monomials)
    except ValueError:  # too large to look at
        return 0.0
    lead = len(term.plates)
    if math.prod(table.shape[:lead]) > ROWS:
        return 0.0
    return _strongest(np.clip(table, -LOWEST, LOWEST), range(lead, lead + len(slots)))


def _strongest(table: Floats, axes: Iterable[int]) -> float:
    strongest = 0.0
    for one, other in combinations(axes, 2):
        pair = np.moveaxis(table, (one, other), (0, 1))
        strongest = max(strongest, _odds_ratio(pair.reshape(*pair.shape[:2], -1)))
    return strongest


def _chosen_by(factor: Factor, hidden: tuple[Factor, ...]) -> bool:
    return any(axis == own.axes[-1] for own in hidden if own.axes for axis in factor.axes)


def _table(plan: Plan, factor: Factor, hidden: tuple[Factor, ...]) -> Floats:
    """Log probabilities [category of each hidden factor…, whatever else the table has]."""
    array = np.clip(np.asarray(plan.known[factor.source], dtype=np.float64), -LOWEST, LOWEST)
    for place, axis in enumerate(factor.axes):
        if isinstance(axis, Take):  # only what was observed, or is read, matters
            read = np.bincount(
                np.ravel(plan.known[axis.index])
            )  # np.unique imports masked arrays, which takes longer than a fit
            array = np.take(array, np.flatnonzero(read), axis=place)
    places = [factor.axes.index(own.axes[-1]) if own.axes and own.axes[-1] in factor.axes else None for own in hidden]
    first = [place for place in places if place is not None]
    rest = [place for place in range(array.ndim) if place not in first]
    array = np.transpose(array, [*first, *rest]).reshape(*(array.shape[p] for p in first), -1)
    return array


def _odds_ratio(tables: Floats) -> float:
    """The largest log odds ratio of tables [A, B, tables]; infinite if zeros tie a and b."""
    strongest = 0.0
    for place in range(tables.shape[2]):
        table = tables[:, :, place]
        possible = table > table.max() + ZERO
        rows, columns = possible.any(1), possible.any(0)
        inside = table[rows][:, columns]
        if not possible[rows][:, columns].all():
            return np.inf
        if inside.shape[0] * inside.size > MOST:
            off = inside - inside.mean(0) - inside.mean(1, keepdims=True) + inside.mean()
            strongest = max(strongest, float(np.ptp(off)))
            continue
        apart = inside[:, None] - inside[None]
        strongest = max(strongest, float(np.ptp(apart, axis=-1).max()))
    return strongest
