"""Which plates grow, as a declaration says: those declared so, and those whose components are weighted by sticks that grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from natgrad.network.compile.plan import Plan

__all__ = ["BEFORE", "asked_plates", "axes_of", "grown_plates", "remarks", "told_before"]

# How the observation is called that stands for rows that are gone (`natgrad.network.bind.remembering`).
BEFORE = "rows before, of "


def asked_plates(plan: Plan) -> set[str]:
    """The plates that were declared to grow, by themselves or by sticks; sticks without components stand for themselves."""
    grown = {plate.name for node in plan.nodes.values() for plate in node.plates if plate.grow}
    for name, node in plan.nodes.items():
        if getattr(node, "grow", False):
            grown |= _weighted_by(plan, name) or {name}
    return grown


def grown_plates(plan: Plan) -> set[str]:
    """The plates whose number of components is to be found: those, and what is weighted by sticks of which nothing was said."""
    free = (name for name, node in plan.nodes.items() if node.family.is_stick and getattr(node, "grow", 0) is None)
    return asked_plates(plan).union(*(_weighted_by(plan, name) for name in free))


def remarks(plan: Plan, moving: bool) -> str:
    """What to know of a bound and of its components, to go after the words of a strategy."""
    words = ""
    if flat := plan.improper:
        words += f"; flat priors of {', '.join(flat)}: the bound is up to a constant"
    for name, node in plan.nodes.items():
        truncated = node.family.is_stick and getattr(node, "grow", 0) is None and _weighted_by(plan, name)
        if truncated and not moving:
            words += f"; {name} is truncated at {node.size}: components move between exact passes"
    return words


def _weighted_by(plan: Plan, name: str) -> set[str]:
    """The plates along which hidden categories choose that have these weights."""
    gates = [gate for gate in plan.choices if gate in plan.blocks and name in plan.parents_of(gate)]
    pairs = [(plan.nodes[node].plates, axis) for gate in gates for _, node, axis in plan.choices[gate]]
    return {plates[axis].name for plates, axis in pairs if axis < len(plates)}


def told_before(plan: Plan, gate: str) -> npt.NDArray[np.float64]:
    """How many observations that are gone each value of a category holds, as they told its weights."""
    held = np.zeros(plan.nodes[gate].categories or 1)
    for parent in plan.parents_of(gate):
        message = plan.nodes.get(BEFORE + parent)
        if message is not None and (plan.nodes[parent].family.is_simplex or plan.nodes[parent].family.is_stick):
            counts = np.asarray(getattr(message, "message")[0])  # noqa: B009  (of no other node)
            held += counts.reshape(-1, len(held)).sum(0)
    return held


def axes_of(family: Any) -> tuple[tuple[int, ...], ...]:
    """The axes of the statistics of a category along which its values lie; of a chain, those of pairs are two."""
    return ((-1,), (-1,), (-2, -1)) if family.is_path else ((-1,),)
