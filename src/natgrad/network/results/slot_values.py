"""A statistic of a slot at drawn values: the polynomial of inference with one more axis, `DRAW`, in place of expectations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.network.compile.plan import with_gates
from natgrad.network.execute.backend import HOST
from natgrad.network.execute.lower import product_at
from natgrad.network.language.expressions import SIMPLEX, UNIT, Constant, Expression
from natgrad.network.language.nodes import EVENT_NDIM, Node
from natgrad.network.language.plates import Index
from natgrad.network.language.scope import Scope
from natgrad.network.polynomial import Factor, Label, Mark, Polynomial

__all__ = ["DRAW", "evaluated", "found_size", "slot_statistic", "slot_values"]

Array = npt.NDArray[Any]
DRAW = Mark("draw")
# What is read of a slot whose expressions have logarithms alone, by kind.
STATISTIC = {SIMPLEX: "log", UNIT: "log"}


def slot_statistic(
    node: Node,
    expression: Expression,
    statistic: str,
    moments: Mapping[str, tuple[Any, ...]],
    n: int | None,
    parts: frozenset[str],
    drawn: frozenset[str] = frozenset(),
) -> Array:
    """A statistic of a slot as an array [draw, plates, event]; without draws when n is None.

    ``drawn`` are observed nodes that are read at values of their own, which ``moments`` has, too.
    """
    known: dict[str, npt.NDArray[Any]] = {}
    scope = Scope(node.name, node.plates, known, frozenset(plate.name for plate in node.plates), parts, drawn)
    events = EVENT_NDIM.get(expression.kind, 0)
    labels = tuple(scope.fresh("e", expression.size or node.size or 0) for _ in range(events))
    if node.is_chain:
        raise PlateMismatch(f"{node.name!r}: draw a chain with fit[{node.name!r}].sample(); its future is not a plate")
    return evaluated(expression.stat(statistic, scope, labels), scope, labels, moments, n)


def slot_values(
    node: Node,
    moments: Mapping[str, tuple[Any, ...]],
    n: int,
    parts: frozenset[str] = frozenset(),
    drawn: frozenset[str] = frozenset(),
) -> dict[str, Array]:
    """The parameters of a node's distribution [draw, plates, event], from statistics of drawn parents."""
    slots = {}
    for name, (slot, expression) in node.read_slots().items():
        statistic = STATISTIC.get(slot.kind, "x")
        value = slot_statistic(node, expression, statistic, moments, n, parts, drawn)
        slots[name] = np.exp(value) if statistic == "log" else value
    return node.conditional(slots)


def evaluated(
    polynomial: Polynomial,
    scope: Scope,
    labels: tuple[Label, ...],
    moments: Mapping[str, tuple[Any, ...]],
    n: int | None,
) -> Array:
    """A polynomial as an array [draw, plates, labels]; without draws when n is None."""
    known = scope.known
    lead = () if n is None else (DRAW,)
    out = (*lead, *scope.plate_names, *labels)
    sizes = {**scope.sizes, DRAW: n or 1}
    total = np.zeros(tuple(sizes[label] for label in out))
    for factors, coefficient in _settled(polynomial, scope, labels):
        total += product_at(HOST, [_drawn(f, n) for f in factors], moments, known, out, coefficient)
    return total


def _settled(polynomial: Polynomial, scope: Scope, labels: tuple[Label, ...]) -> list[tuple[tuple[Factor, ...], float]]:
    products = []
    for monomial in polynomial.monomials:
        if monomial.deltas and labels:
            # A diagonal matrix is wanted as a matrix here: an explicit identity carries the two labels.
            for delta in monomial.deltas:
                key = scope.register(np.eye(scope.sizes[delta.first]))
                identity = Factor(key, 0, (delta.first, delta.second), known=True)
                monomial = type(monomial)(monomial.coefficient, (*monomial.factors, identity))
        products += [(whole.factors, whole.coefficient) for whole in with_gates(monomial.settled(), scope.gates, ())]
    return products


def _drawn(factor: Factor, n: int | None) -> Factor:
    if factor.known or n is None:
        return factor
    return Factor(factor.source, factor.stat, (DRAW, *factor.axes), False, factor.occurrence)


def found_size(node: Node, filled: Mapping[str, Expression]) -> dict[str, int]:
    """The size of a node's only plate, as its new arrays say it."""
    if len(node.plates) != 1:
        return {}
    lengths = set()
    for expression in filled.values():
        for part in _walk(expression):
            if isinstance(part, Constant) and part.value.ndim > EVENT_NDIM.get(part.kind, 0):
                lengths.add(part.value.shape[0])
        for access in expression.accesses():
            lengths.update(len(s.values) for s in access.selectors if isinstance(s, Index) and s.values.ndim == 1)
    if len(lengths) > 1:
        raise PlateMismatch(f"predictive({node.name!r}): the new arrays have different lengths {sorted(lengths)}")
    return {node.plates[0].name: lengths.pop()} if lengths else {}


def _walk(expression: Expression) -> list[Expression]:
    return [expression, *(inner for part in expression.parts for inner in _walk(part))]
