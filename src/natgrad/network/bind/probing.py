"""Ways off a saddle for tables in chunks: components that have merged are shifted apart or split (`network.start.probes`).

Rows choose anew when their chunk is read next, so that only the globals are moved. The memberships of the first chunk stand for
those of all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import State
from natgrad.network.start.probes import memberships, moved_apart, put_beside
from natgrad.random import Stream, generator

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["shifted_in_chunks", "split_in_chunks"]


def shifted_in_chunks(problem: Any, state: State, order: tuple[str, ...], seed: int, number: int) -> State | None:
    """The components that hidden categories choose from, each moved by what a single child of its could tell of it."""
    chosen, times = _memberships(problem, state)
    return moved_apart(problem.network, state, chosen, generator(seed, Stream.PROBE, number), times)


def split_in_chunks(problem: Any, state: State, order: tuple[str, ...], seed: int, number: int) -> State | None:
    """The lightest component of a category beside the heaviest, as likely as that."""
    (chosen, times), inner = _memberships(problem, state), problem.network
    found = put_beside(inner, state, chosen, generator(seed, Stream.PROBE, number, 1), times)
    if found is None:
        return None
    split, pairs = found
    for gate, pair in pairs.items():
        split = _as_likely(inner, split, gate, list(pair))
    return split


def _memberships(problem: Any, state: State) -> tuple[dict[str, npt.NDArray[np.float64]], float]:
    """Of the first chunk, by category, and how many times that are all rows."""
    gates, chunks = problem.network.plan.merging, problem.source.chunks
    nodes = problem.network.plan.nodes
    chosen = {gate: memberships(nodes[gate].family, state.mu[gate]) for gate in gates if gate in state.mu}
    if inside := [gate for gate in gates if gate in chunks.local]:
        solved = next(problem.source.visit("naturals", {name: state.mu[name] for name in problem.blocks}, numbers=[0]))
        for gate in inside:
            family = nodes[gate].family
            chosen[gate] = memberships(family, family.expected_stats(solved.parts[gate]))
    return chosen, chunks.n_rows / chunks.first_rows


def _as_likely(problem: NetworkProblem, state: State, gate: str, pair: list[int]) -> State:
    """The probabilities of a category, those of two components made equal."""
    lam, mu = dict(state.lam), dict(state.mu)
    for parent in problem.plan.parents_of(gate):
        if parent in lam and problem.blocks[parent].family.is_simplex and lam[parent][0].shape[-1] > max(pair):
            even = np.array(lam[parent][0])
            even[..., pair] = even[..., pair].mean(-1, keepdims=True)
            lam[parent] = (even,)
            mu[parent] = problem.moments(problem.blocks[parent], lam[parent])
    return state._replace(lam=lam, mu=mu)
