"""A way off a poor optimum of an admixture: the shares of all groups begun anew, given the components as they have become.

A document that began while its topics were still vague has settled on a mix of them that nothing tells it to leave. Given the
topics that the run ended with, its shares begin at their prior and its words choose again. See `natgrad.inference.probes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from natgrad.inference.problem import State
from natgrad.network.compile.polynomial import Take

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["shares_anew"]


def shares_anew(problem: NetworkProblem, state: State, order: tuple[str, ...], seed: int) -> State | None:
    """Simplices that hidden categories read through known indices, at their priors, and the categories given these."""
    pairs = _shares(problem)
    if not pairs:
        return None
    for share in dict.fromkeys(share for _, share in pairs):
        block = problem.blocks[share]
        state, _ = problem.step_block(block, state, problem.target(block, state, (share,)), 1.0)
    gates = {gate for gate, _ in pairs}
    for gate in (name for name in order if name in gates):
        block = problem.blocks[gate]
        state, _ = problem.step_block(block, state, problem.target(block, state), 1.0)
    return state


def _shares(problem: NetworkProblem) -> list[tuple[str, str]]:
    """Hidden categories that choose a component, and the simplices of groups that their probabilities are read from."""
    pairs = []
    for gate in sorted(set(problem.plan.choices) & set(problem.blocks)):
        for name, readings in problem.plan.terms[gate].readings.items():
            through = any(isinstance(axis, Take) for reading in readings for axis in reading.axes)
            if through and name in problem.blocks and problem.blocks[name].family.name == "Dirichlet":
                pairs.append((gate, name))
    return pairs
