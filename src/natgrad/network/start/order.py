"""The order of a sweep: a network and what was given a start in; the hidden nodes in order out, or the user's order checked.

The order follows from the graph alone, never from how a declaration was written: `dot(w, x)` and `dot(x, w)` are one model.

    1  categories that choose from what is observed: they read where the components start
    2  means: first those that enter linearly (levels, offsets), then the sides of products; local ones before global ones
    3  precisions, relevances, probabilities: after what they govern has seen data, or they would explain it away
    4  categories that were given a start: what reads them comes first, so that the start counts before it is overwritten

Inside each, children come before parents and large nodes before small ones; a name decides only between nodes that nothing else
tells apart.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from natgrad.network.language.expressions import CATEGORY, REAL, VECTOR

if TYPE_CHECKING:
    from natgrad.network.compile.plan import Plan

__all__ = ["checked_order", "default_order", "factors_of_products"]


def default_order(plan: Plan, started: Collection[str] = ()) -> tuple[str, ...]:
    """Every hidden node once; ``started`` are those that were given a start."""
    known = plan.orders.get(frozenset(started))
    if known is None:
        known = plan.orders[frozenset(started)] = _found_order(plan, started)
    return known


def checked_order(plan: Plan, order: Any, started: Collection[str] = ()) -> tuple[str, ...]:
    """The order that the user named, which has every hidden node once; the default where there is none."""
    default = default_order(plan, started)
    if order is None:
        return default
    names = tuple(order) if isinstance(order, Iterable) and not isinstance(order, str) else (None,)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"order must be a list of the hidden nodes' names, such as {list(default)}, got {order!r}")
    # Auxiliary nodes that are not named come last, after what they read.
    names += tuple(name for name in default if plan.nodes[name].is_auxiliary and name not in names)
    if plan.members:  # where the first of them is
        whole = (plan.members[name].joint if name in plan.members else name for name in dict.fromkeys(names))
        names = tuple(dict.fromkeys(whole))
    wrong = [f"{name!r} is missing" for name in default if name not in names]
    for name in dict.fromkeys(names):
        if name not in default:
            wrong.append(f"{name!r} is {'observed' if name in plan.nodes else 'not in this network'}")
        elif names.count(name) > 1:
            wrong.append(f"{name!r} is there {names.count(name)} times")
    if wrong:
        raise ValueError(f"order must name every hidden node once: {', '.join(wrong)}")
    return names


def _found_order(plan: Plan, started: Collection[str]) -> tuple[str, ...]:
    if len(plan.blocks) == 1:
        return tuple(plan.blocks)
    depth, products = _depths(plan), set(factors_of_products(plan))

    def key(name: str) -> tuple[int, bool, bool, int, int, str]:
        # A started mean comes after the others: they read it first.
        later = name in started
        return _stage(plan, name, started), later, name in products, depth[name], -_numbers(plan, name), name

    return tuple(sorted(plan.blocks, key=key))


def factors_of_products(plan: Plan) -> dict[str, set[str]]:
    """For every hidden mean that is multiplied with others, these others; itself, where its elements are multiplied.

    The square of a product has the second moments of both factors in one monomial; that of a sum has not.
    """
    partners: dict[str, set[str]] = {}
    means = {name for name in plan.blocks if _is_mean(plan, name)}
    for term in plan.terms.values() if means else ():
        for monomial in term.monomials:
            squares = [f.source for f in monomial.factors if not f.known and f.stat == 1 and f.source != term.node]
            for place, name in enumerate(squares):
                if others := means.intersection(squares[:place] + squares[place + 1 :] if name in means else ()):
                    partners.setdefault(name, set()).update(others)
    return partners


def _stage(plan: Plan, name: str, started: Collection[str]) -> int:
    if plan.nodes[name].starts_drawn:
        return 6  # drawn at the start: what reads them comes first
    if plan.nodes[name].kind != CATEGORY and not _chooses(plan, name):
        return 2 if _is_mean(plan, name) else 4
    if name in started:
        return 6
    children = [term.node for term in plan.terms_of(name) if term.node != name]
    if any(_is_mean(plan, child) for child in children):
        return 3  # it chooses among priors of means that have to see data first
    around = {other for term in plan.terms_of(name) for other in (term.node, *term.readings)} & set(started)
    return 5 if around and all(plan.nodes[other].kind == CATEGORY for other in around) else 1


def _chooses(plan: Plan, name: str) -> bool:
    """Whether a Bernoulli stands where a category chooses."""
    return any(name in term.gates.values() for term in plan.terms_of(name))


def _is_mean(plan: Plan, name: str) -> bool:
    return name in plan.blocks and plan.nodes[name].kind in (REAL, VECTOR)


def _numbers(plan: Plan, name: str) -> int:
    return math.prod(plan.nodes[name].stat_shapes()[0])


def _depths(plan: Plan) -> dict[str, int]:
    """The longest way from a node down to a leaf; nodes of a plan come parents first."""
    depth = dict.fromkeys(plan.nodes, 0)
    for name in reversed(list(plan.nodes)):
        for parent in plan.parents_of(name):
            depth[parent] = max(depth[parent], depth[name] + 1)
    return depth
