"""Which elements of which hidden nodes an expression reads: two sides of a product or a sum must not share any."""

from __future__ import annotations

from collections.abc import Callable

from natgrad.errors import NotConjugate
from natgrad.network.language.expressions import CATEGORY, COUNT, Expression, Read

__all__ = ["check_independent", "reads_of"]


def reads_of(expression: Expression) -> frozenset[Read]:
    """The readings of hidden nodes inside, but for categories: what these choose shares one label and is counted once."""
    own: frozenset[Read] | None = getattr(expression, "reads", None)  # a sum knows its own
    if own is not None:
        return own
    hidden = (
        a
        for a in expression.accesses()
        if a.kind not in (CATEGORY, COUNT)
        and not (a.node.is_observed and a.node.mask is None and a.node.entries is None)
    )
    return frozenset(access.key() for access in hidden)


def check_independent(left: Expression, right: Expression, what: Callable[[], str], advice: str) -> None:
    """Refuse a product or a sum in which a node stands on both sides."""
    if shared := reads_of(left) & reads_of(right):
        name = min(name for name, _ in shared)
        raise NotConjugate(
            f"{what()}: {name!r} stands on both sides, and the product of expectations is not the expectation of the product. "
            f"{advice}"
        )
