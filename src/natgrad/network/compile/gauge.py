"""Find pairs of blocks that children see only through an inner product: gauges, and chains with their loadings."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.network.compile.plan import Plan, PlannedTerm
from natgrad.network.language.continuous import Gamma
from natgrad.network.language.expressions import REAL, VECTOR, Access, Constant, Expression
from natgrad.network.language.gaussian_chain import GaussianChain, diagonal_numbers
from natgrad.network.language.nodes import Node
from natgrad.network.language.operators import Diag
from natgrad.network.polynomial import Axis, Factor, Label, Monomial, Take

__all__ = ["Relevance", "StateSpace", "find_gauges", "find_state_spaces", "is_rotatable", "only_inner_products"]

# From a plan, the pairs of nodes that their children see only through an inner product.
#
# Σ_k a_k b_k is unchanged by a → G a, b → G⁻ᵀ b for every invertible G: a direction in which the likelihood is flat and
# coordinate ascent creeps. Factorisations, probabilistic PCA and factor analysis have such a pair.


def find_gauges(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Pairs of hidden Gaussian nodes that meet in inner products and nowhere else but in their own priors."""
    names = [name for name in plan.blocks if is_rotatable(plan, name)]
    pairs = []
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            terms = [t for t in plan.terms.values() if first in t.readings or second in t.readings]
            own = {first, second}
            if terms and all(t.node not in own and only_inner_products(plan, t, first, second) for t in terms):
                pairs.append((first, second))
    return tuple(pairs)


def is_rotatable(plan: Plan, name: str) -> bool:
    """Whether an inner product may be all that is seen of a block: Gaussian, without weights."""
    return _rotatable_axis(plan, name) is not None and not _weighted(plan, name)


def _rotatable_axis(plan: Plan, name: str) -> int | None:
    """The axis that an inner product sums: the entries of a vector, or the plate of scalars that are summed over."""
    node, block = plan.nodes[name], plan.blocks[name]
    # The prior of a path is not that of single vectors.
    if block.colours is not None or node.plates != node.block_plates:
        return None
    if not block.family.is_gaussian:
        return None
    if node.kind == VECTOR:
        return len(block.shape)
    return block.column_axis if node.kind == REAL else None


def _weighted(plan: Plan, name: str) -> bool:
    return any(plate in plan.weights for plate in plan.blocks[name].plates)


def only_inner_products(plan: Plan, term: PlannedTerm, first: str, second: str) -> bool:
    """Every latent index of one node meets the same index of the other, and nothing else."""
    if first not in term.readings or second not in term.readings:
        return False
    return all(_balanced(plan, monomial, first, second) for monomial in term.monomials)


def _balanced(plan: Plan, monomial: Monomial, first: str, second: str) -> bool:
    ours = _latent_labels(plan, monomial, first)
    theirs = _latent_labels(plan, monomial, second)
    if ours is None or theirs is None or Counter(ours) != Counter(theirs):
        return False
    others = [f for f in monomial.factors if f.known or f.source not in (first, second)]
    return not any(label in set(ours) for factor in others for label in factor.labels)


def _latent_labels(plan: Plan, monomial: Monomial, name: str) -> list[Label] | None:
    """The labels on a node's latent axis (two for each second moment of a vector); None if it is read through an index."""
    node = plan.nodes[name]
    axis = len(node.plates) if node.kind == VECTOR else _rotatable_axis(plan, name)
    assert axis is not None
    latent: list[Label] = []
    for factor in monomial.factors:
        if factor.known or factor.source != name:
            continue
        labels = _from(factor, axis) if plan.nodes[name].kind == VECTOR else [factor.axes[axis]]
        for label in labels:
            if isinstance(label, Take):
                return None
            latent.append(label)
    return latent


def _from(factor: Factor, axis: int) -> list[Axis]:
    return list(factor.axes[axis:])


# From a plan, the state spaces whose coordinates nobody sees: a chain, its random dynamics and the loadings that read it.
#
# For every invertible R the data are as likely under x → R x, A → R A R⁻¹, C → C R⁻¹; what changes are priors and entropies.
# That is so where the dynamics are rows of a `MultivariateNormal` that the chain alone reads, noise and start of the chain are
# known numbers, the noise independent in each coordinate, and every other reader sees inner products of the states with one
# node.

Floats = npt.NDArray[np.float64]


class Relevance(NamedTuple):
    """Learned precisions of the columns of a node, Gamma(shape, rate), that this node alone reads."""

    name: str
    shape: Floats
    rate: Floats


class StateSpace(NamedTuple):
    """Names of a chain, of its dynamics and of its loadings; the known numbers of the chain; learned relevances."""

    chain: str
    dynamics: str
    loadings: str
    noise: Floats  # [D]
    initial_mean: Floats
    initial_precision: Floats
    relevances: dict[str, Relevance]
    inside: npt.NDArray[np.bool_]  # [T], which times have one before them


def find_state_spaces(plan: Plan) -> tuple[StateSpace, ...]:
    """The state spaces of a plan that can be rotated."""
    spaces = (_state_space(plan, node) for node in plan.nodes.values() if isinstance(node, GaussianChain))
    return tuple(space for space in spaces if space is not None)


def _state_space(plan: Plan, chain: GaussianChain) -> StateSpace | None:
    size, parameters = chain.size or 0, chain.parameters
    dynamics, noise = parameters["dynamics"], parameters["noise_precision"]
    if chain.name not in plan.blocks or chain.inputs is not None or any(p.name in plan.weights for p in chain.plates):
        return None
    rows = _read_whole(plan, dynamics)
    if rows is None or not (rows.family.is_gaussian and rows.family.event_ndim):
        return None
    name = rows.name
    if {t.node for t in plan.terms_of(name)} != {name, chain.name}:
        return None
    noises = diagonal_numbers(noise, size)
    start = [parameters[f"initial_{what}"] for what in ("mean", "precision")]
    known = [part.value for part in start if isinstance(part, Constant) and part.value.ndim <= 2]
    if noises is None or len(known) < 2 or known[0].ndim > 1:
        return None
    readers = [term for term in plan.terms_of(chain.name) if term.node != chain.name]
    loadings = [
        other
        for other in plan.blocks
        if other != name
        and is_rotatable(plan, other)
        and readers
        and {t.node for t in plan.terms_of(other)} == {other, *(t.node for t in readers)}
        and all(only_inner_products(plan, t, chain.name, other) for t in readers)
    ]
    if len(loadings) != 1 or plan.nodes[loadings[0]].size != size:
        return None
    if any(np.any(plan.origins.get(block, 0.0)) for block in (chain.name, name, loadings[0])):
        return None
    relevances = {
        owner: relevance for owner in (name, loadings[0]) if (relevance := _relevance(plan, plan.nodes[owner]))
    }
    precision = known[1] * np.eye(size) if known[1].ndim == 0 else known[1]
    mean = np.broadcast_to(known[0], (size,))
    inside = chain.inside_times
    return StateSpace(chain.name, name, loadings[0], noises, mean, precision, relevances, inside)


def _relevance(plan: Plan, node: Node) -> Relevance | None:
    """The Gamma precisions of a node's columns, where they are its own and their prior is known."""
    precision: Expression = node.parameters["precision"]
    gamma = _read_whole(plan, precision.entries) if isinstance(precision, Diag) else None
    if not isinstance(gamma, Gamma):
        return None
    if {term.node for term in plan.terms_of(gamma.name)} != {gamma.name, node.name}:
        return None
    prior = [gamma.parameters[slot] for slot in ("shape", "rate")]
    numbers = [np.broadcast_to(part.value, (gamma.plates[0].size,)) for part in prior if isinstance(part, Constant)]
    return Relevance(gamma.name, *numbers) if len(numbers) == 2 else None


def _read_whole(plan: Plan, expression: Expression) -> Node | None:
    """The hidden node on one plate that an expression is."""
    node = expression.node if isinstance(expression, Access) else expression
    if not isinstance(node, Node) or node.name not in plan.blocks or len(node.plates) != 1:
        return None
    return node if node is expression or (isinstance(expression, Access) and expression.selectors == (None,)) else None
