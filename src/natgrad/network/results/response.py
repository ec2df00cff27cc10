"""Linear response of a fitted network: the state, its targets and their derivatives, as `posterior.response` asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import Block, State
from natgrad.network.execute.tangent import Tangent
from natgrad.posterior.response.operator import Linearised

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["linearised", "linearised_chunks"]

Stats = tuple[Any, ...]


def linearised(
    problem: NetworkProblem, state: State, order: tuple[str, ...], tangent: Tangent | None = None
) -> Linearised:
    """A network near a state. A point mass of the start counts as the q that stands behind it: μ = ∇A(λ) everywhere."""
    lam = {name: tuple(np.asarray(part, np.float64) for part in stats) for name, stats in state.lam.items()}
    mu = {name: problem.moments(block, lam[name]) for name, block in problem.blocks.items()}
    here = State(lam, mu, 1)
    along = Tangent(problem) if tangent is None else tangent

    def sweep(lam: dict[str, Stats]) -> Mapping[str, Stats]:
        moments = {name: problem.moments(block, lam[name]) for name, block in problem.blocks.items()}
        return problem.sweep(State(dict(lam), moments, 1), order).state.lam

    return Linearised(
        problem.blocks,
        lam,
        {name: problem.target(block, here) for name, block in problem.blocks.items()},
        lambda direction: along.targets(mu, direction),
        {name: weight for name, block in problem.blocks.items() if (weight := _weight(problem, block)) is not None},
        sweep,
        lambda direction: along.rows(mu, direction),
        lambda lam: linearised(problem, State(lam, {}, 1), order, along),
        {name: (member.joint, member.place) for name, member in problem.plan.members.items()},
        cache(lambda: along.matrix(mu)) if along.has_matrix else None,
    )


def linearised_chunks(problem: Any, state: State) -> Linearised:
    """A network that was read in chunks near a state: what is hidden in rows is solved anew at each product, in two passes."""
    from natgrad.network.bind.chunked import ChunkedEdges
    from natgrad.posterior.response.linearised import by_differences

    blocks = problem.blocks

    def targets(mu: dict[str, Stats]) -> dict[str, Stats]:
        if isinstance(problem, ChunkedEdges):
            return {name: tuple(map(np.asarray, problem.target(b, State({}, mu, 1)))) for name, b in blocks.items()}
        told = problem.solve(State({}, mu, 1), None, None, 0.0, 0).messages
        return {name: problem.target_from(block, mu, told) for name, block in blocks.items()}

    linearised = by_differences(blocks, state.lam, targets)
    views = {name: (member.joint, member.place) for name, member in problem.plan.members.items()}
    return linearised._replace(elsewhere=lambda lam: linearised_chunks(problem, State(lam, {}, 1)), views=views)


def _weight(problem: NetworkProblem, block: Block) -> npt.NDArray[np.float64] | None:
    """The product of the weights of a block's plates, for each element; None where none has any."""
    weights = problem.plan.weights
    if not any(plate in weights for plate in block.plates):
        return None
    total = np.ones(block.shape)
    for axis, plate in enumerate(block.plates):
        if plate in weights:
            total = total * weights[plate].reshape([-1 if here == axis else 1 for here in range(len(block.shape))])
    return total
