"""Which components of a network move, and the start from which they grow: a declaration and what a fit asked for in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad.inference.components import EMPTY
from natgrad.inference.methods import VB
from natgrad.inference.moves import Moves
from natgrad.inference.problem import State
from natgrad.network.compile.growing import told_before
from natgrad.network.start.components import NetworkComponents

if TYPE_CHECKING:
    from natgrad.inference.methods import Method
    from natgrad.network.compile.plan import Plan
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["asked_moves", "counted_components", "moves_of", "start_of_one"]


def asked_moves(plan: Plan, moves: Any, method: Method | None, n_init: int | None = None) -> Any:
    """``moves=`` of a fit; False where nothing was declared to grow, and steps are sampled or several starts are wanted."""
    can = method in (None, VB()) and n_init is None
    return moves if moves is not None or plan.asked_to_grow or can else False


def moves_of(problem: NetworkProblem, asked: Any, order: tuple[str, ...]) -> Moves | None:
    """The components that move: along plates that grow, or with ``"keep"`` all that hidden categories choose from.

    Parameters
    ----------
    problem : NetworkProblem
    asked : ``moves=`` of the fit: None, "keep" or False
    order : of a sweep
    """
    if asked not in (None, "keep", False):
        raise ValueError(f'moves must be "keep", False or None, got {asked!r}')
    plates = _chosen_plates(problem)
    grown = problem.plan.asked_to_grow if asked == "keep" else problem.plan.grown
    if unchosen := grown - set[str]().union(*plates.values()):
        raise ValueError(
            f"{min(unchosen)!r} grows, and no hidden category chooses along it: leave out grow=True, or read what lies on a "
            "plate with a category, as in Normal(mu[z], …)"
        )
    if asked is False or (asked is None and not grown):
        return None
    if asked == "keep" and grown:
        raise ValueError(
            f'moves="keep" keeps the number of components, and plate {min(grown)!r} is to grow: leave out one of them'
        )
    chosen = plates if asked == "keep" else {gate: names for gate, names in plates.items() if names & grown}
    parts = _together(problem, chosen, grown, order)
    if not parts:
        raise ValueError('moves="keep" needs components: no hidden category chooses from anything in this network')
    return Moves(parts, keep=asked == "keep")


def counted_components(problem: NetworkProblem, state: State, order: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """Along every plate from which hidden categories choose: the components used, and the places for them."""
    grown = problem.plan.grown
    return {
        part.plate: (int(part.active(state).sum()) if part.plate in grown else part.size, part.size)
        for part in _together(problem, _chosen_plates(problem), grown, order)
    }


def _chosen_plates(problem: NetworkProblem) -> dict[str, set[str]]:
    """For every hidden category, the plates along which it chooses."""
    nodes = problem.plan.nodes
    return {
        gate: {nodes[name].plates[axis].name for _, name, axis in choices if axis < len(nodes[name].plates)}
        for gate, choices in problem.plan.choices.items()
        if gate in problem.blocks and (nodes[gate].categories or 0) > 1 and nodes[gate].family.name != "Binary"
    }


def _together(
    problem: NetworkProblem, plates: dict[str, set[str]], grown: set[str], order: tuple[str, ...]
) -> tuple[NetworkComponents, ...]:
    """Categories that choose along a plate in common are one set of components."""
    groups: list[tuple[set[str], list[str]]] = []
    for gate in (name for name in order if name in plates):
        names, members = set(plates[gate]), [gate]
        for group in [group for group in groups if group[0] & plates[gate]]:
            names, members = names | group[0], [*group[1], *members]
            groups.remove(group)
        groups.append((names, members))
    parts = tuple(
        NetworkComponents(problem, members, min(names & grown or names, default=members[0]), order)
        for names, members in groups
    )
    for part in parts:
        before = np.sum([told_before(problem.plan, gate) for gate in part.gates], axis=0)
        part.known = before > EMPTY if np.any(before) else None
    return parts


def start_of_one(problem: NetworkProblem, moves: Moves, start: State) -> State:
    """A start in which the first of all components holds everything."""
    state = start
    for part in moves.parts:
        assert isinstance(part, NetworkComponents)
        state = part.alone(state, 0)
    return state
