"""Draw softmax scores class by class, by exact conditionals in the place of a bound.

Given the scores of the other classes, those of class k are a logit: with C_k = log Σ_{j≠k} exp(ψ_j)

    P(y = k) = σ(ψ_k − C_k),        ω_k ~ PG(1, ψ_k − C_k)   makes it Gaussian in ψ_k

(Holmes & Held, 2006; Polson, Scott & Windle, 2013). ω and ω C are drawn again, from the values of the moment, before each class
is, and belong to that class alone: every such pair of draws leaves the posterior of the scores as it is.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from natgrad import families
from natgrad.errors import NotConjugate
from natgrad.network.compile.plan import Plan, make_plan
from natgrad.network.execute.problem import NetworkProblem
from natgrad.network.language.discrete import Categorical
from natgrad.network.language.links import Stacked
from natgrad.network.language.nodes import Node
from natgrad.network.language.scope import Scope
from natgrad.network.results.slot_values import evaluated

__all__ = ["ClassWeights", "auxiliaries", "class_weights_of", "exact_softmax"]

Array = npt.NDArray[Any]
Stats = tuple[Any, ...]


def exact_softmax(plan: Plan) -> Plan:
    """The plan with every softmax written class by class; itself if there is none."""
    bounded = [node for node in plan.nodes.values() if node.is_bounded]
    if not bounded:
        return plan
    twins: dict[str, Node] = {}
    for node in bounded:
        assert isinstance(node, Categorical)
        _refuse_what_is_not_apart(node)
        twin = node.class_by_class()
        twins |= {node.name: twin, **{aux.name: aux for aux in _auxiliaries_of(twin)}}
    nodes: list[Node] = []
    for name, node in plan.nodes.items():
        if name in twins and isinstance(node, Categorical):
            nodes.append(twins[f"{name}.offset"])
        nodes.append(twins.get(name, node))
    return make_plan(nodes, origins=plan.origins)


def _auxiliaries_of(leaf: Categorical) -> list[Node]:
    """Weights and offset of a softmax that is written class by class."""
    return [aux for name in ("omega", "offset") if isinstance(aux := leaf.parameters[name], Node)]


def _refuse_what_is_not_apart(node: Categorical) -> None:
    """A class is drawn given the others: what moves several of them at once has no such conditional."""
    scores = node.parameters["softmax"]
    if not isinstance(scores, Stacked):
        raise NotConjugate(
            f"draws: the scores softmax = {scores} of {node.name!r} are one vector, and exact conditionals are those of one "
            "class given the others. Write them as numbers along a plate, ng.Normal(…, plate=kind), or use linear_response()"
        )
    for access in scores.accesses():
        if access.node.categories is not None and not access.node.is_observed:
            raise NotConjugate(
                f"draws: {access} chooses the scores of all classes of {node.name!r} at once, and has no conditional in closed "
                "form beside a softmax. Use logits=, which is exact, or linear_response()"
            )


class ClassWeights:
    """The auxiliaries of one softmax in a network with chains.

    Parameters
    ----------
    problem : NetworkProblem, with chains
    node : the leaf, class by class
    """

    def __init__(self, problem: NetworkProblem, node: Categorical) -> None:
        self.scores: Any = node.parameters["softmax"]
        self.omega, self.offset = (aux.name for aux in _auxiliaries_of(node))
        self.readers = frozenset(a.node.name for a in self.scores.accesses() if a.node.name in problem.blocks)
        self.chains = next(iter(problem.blocks.values())).shape[0]
        self.origins = {name: problem.plan.origins.get(name, 0.0) for name in self.readers}
        # As often as a row counts: the sum of w weights of PG(1, c) is PG(w, c), and the term has the factor w already.
        self.times = np.ones(tuple(plate.size for plate in node.plates))
        for axis, plate in enumerate(node.plates):
            if plate.weight is not None:
                self.times = self.times * plate.weight.reshape([-1 if i == axis else 1 for i in range(self.times.ndim)])
        self.trials = node._present() * self.times
        self.scope = Scope(node.name, node.plates, {}, parts=problem.plan.parts)
        self.label = self.scope.fresh("class", self.scores.size or 0)
        self.polynomial = self.scores.stat("x", self.scope, (self.label,))

    def refresh(self, stats: dict[str, Stats], column: int | None, rng: np.random.Generator) -> None:
        """Draw the auxiliaries of one class, or of all, given the scores; in place."""
        moments = {name: (stats[name][0] + origin,) for name, origin in self.origins.items()}
        psi = evaluated(self.polynomial, self.scope, (self.label,), moments, self.chains)
        omega, offset = (np.array(stats[name][0]) for name in (self.omega, self.offset))
        for number in range(psi.shape[-1]) if column is None else (column,):
            rest = logsumexp(np.delete(psi, number, -1), axis=-1)
            tilt = -0.5 * (psi[..., number] - rest) ** 2
            drawn = families.PolyaGamma().sample((tilt, np.broadcast_to(self.trials, tilt.shape)), rng)
            omega[..., number] = drawn / np.where(self.times > 0, self.times, 1.0)
            offset[..., number] = omega[..., number] * rest
        stats[self.omega] = (omega, *stats[self.omega][1:])
        stats[self.offset] = (offset, *stats[self.offset][1:])


def class_weights_of(problem: NetworkProblem) -> list[ClassWeights]:
    """Those of every softmax of a network that is written class by class."""
    nodes = problem.plan.nodes.values()
    return [ClassWeights(problem, node) for node in nodes if isinstance(node, Categorical) and node.is_by_class]


def auxiliaries(weights: Collection[ClassWeights]) -> set[str]:
    """The names of what is drawn again at each turn, and never kept."""
    return {name for entry in weights for name in (entry.omega, entry.offset)}
