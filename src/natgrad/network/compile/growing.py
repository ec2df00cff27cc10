"""Which plates grow, as a declaration says: those declared so, and those whose components are weighted by sticks that grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from natgrad.network.compile.plan import Plan

__all__ = ["axes_of", "grown_plates", "remarks"]


def grown_plates(plan: Plan) -> set[str]:
    """The plates whose number of components is to be found; sticks that weight no components stand for themselves."""
    grown = {plate.name for node in plan.nodes.values() for plate in node.plates if plate.grow}
    for name, node in plan.nodes.items():
        if getattr(node, "grow", False):
            grown |= _weighted_by(plan, name) or {name}
    return grown


def remarks(plan: Plan) -> str:
    """What to know of a bound and of its components, to go after the words of a strategy."""
    words = ""
    if flat := plan.improper:
        words += f"; flat priors of {', '.join(flat)}: the bound is up to a constant"
    for name, node in plan.nodes.items():
        if node.family.name == "Sticks" and (plates := _weighted_by(plan, name)) and not plates & plan.grown:
            words += f"; {name} is truncated at {node.size}: with grow=True a fit begins small, and finds the number"
    return words


def _weighted_by(plan: Plan, name: str) -> set[str]:
    """The plates along which categories choose that have these weights."""
    gates = [gate for gate in plan.choices if name in plan.parents_of(gate)]
    pairs = [(plan.nodes[node].plates, axis) for gate in gates for _, node, axis in plan.choices[gate]]
    return {plates[axis].name for plates, axis in pairs if axis < len(plates)}


def axes_of(family: Any) -> tuple[tuple[int, ...], ...]:
    """The axes of the statistics of a category along which its values lie; of a chain, those of pairs are two."""
    return ((-1,), (-1,), (-2, -1)) if family.name == "MarkovChain" else ((-1,),)
