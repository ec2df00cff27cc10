"""From a plan, the pairs of nodes that their children see only through an inner product.

Σ_k a_k b_k is unchanged by a → G a, b → G⁻ᵀ b for every invertible G: a direction in which the likelihood is flat and
coordinate ascent creeps. Factorisations, probabilistic PCA and factor analysis have such a pair.
"""

from __future__ import annotations

from collections import Counter

from natgrad.network.compile.plan import Plan, PlannedTerm
from natgrad.network.compile.polynomial import Axis, Factor, Label, Monomial, Take
from natgrad.network.language.expressions import REAL, VECTOR

__all__ = ["find_gauges", "is_rotatable", "only_inner_products"]


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
    if block.family.name not in ("Normal", "MultivariateNormal"):
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
