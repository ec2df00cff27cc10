"""Make the groups beside "posterior" that ArviZ reads, from draws of the hidden nodes of a network.

    observed_data          what was observed
    log_likelihood         log p(y | hidden values of the draw) of every observed element: for ``loo``, ``compare``
    posterior_predictive   data drawn given the hidden values of each draw: for ``plot_ppc``
    prior, prior_predictive  hidden values and data drawn from the model before it sees data

Elements that are missing have no likelihood. A node with missing elements is written along one axis, those that were observed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.network.compile.plan import Plan, make_plan
from natgrad.network.language.nodes import Node
from natgrad.network.results.predictive import Predictive, make_predictive
from natgrad.network.results.simulate import simulate_nodes

__all__ = ["network_groups", "read_by_data"]

Array = npt.NDArray[Any]
Variables = dict[str, tuple[tuple[str, ...], Array]]
# Numbers in a group that is written unasked.
MOST_NUMBERS = 20_000_000


def network_groups(
    plan: Plan, values: Mapping[str, Array], asked: Sequence[str] | None, seed: int
) -> tuple[dict[str, Variables], dict[str, str]]:
    """The groups of a network by name, and why some are missing that were not asked for by name.

    Parameters
    ----------
    plan : Plan
    values : arrays [chain, draw, …] of all hidden nodes that observed ones read
    asked : names of groups; None for all that can be written
    seed : of the data that are drawn
    """
    nodes, chains = plan.declared, next((len(v) for v in values.values()), 1)
    drawn = {name: v.reshape(-1, *v.shape[2:]) for name, v in values.items()}
    n = next((len(v) for v in drawn.values()), chains)
    leaves = {name: node for name, node in nodes.items() if node.is_observed and node.value is not None}
    rng = np.random.default_rng([seed, 7])

    @cache
    def from_prior() -> dict[str, Array]:
        own = make_plan(list(nodes.values())) if plan.members else plan
        return {name: value[None] for name, value in simulate_nodes(own, seed, n).items() if name in nodes}

    def at_draws(function: Callable[[Predictive, dict[str, Array], tuple[int, ...]], Array]) -> Variables:
        """What a function makes of each leaf at all draws of its parents, in chains."""
        found = {}
        for name, node in leaves.items():
            made, slots = _at_draws(plan, node, drawn, n)
            each = function(made, slots, (n, *(plate.size for plate in node.plates)))
            found[name] = _seen(node, each.reshape(chains, -1, *each.shape[1:]), 2)
        return found

    def replicated(made: Predictive, slots: dict[str, Array], shape: tuple[int, ...]) -> Array:
        return np.asarray(made.node.with_trials_of(nodes[made.node.name].value).sample_given(slots, rng, shape))

    makers: dict[str, Callable[[], Variables]] = {
        "observed_data": lambda: {name: _seen(node, np.asarray(node.value), 0) for name, node in leaves.items()},
        "log_likelihood": lambda: at_draws(partial(_log_likelihood, leaves)),
        "posterior_predictive": lambda: at_draws(replicated),
        "prior": lambda: {
            name: ((*_dims(nodes[name], value.ndim - 2),), value)
            for name, value in from_prior().items()
            if not nodes[name].is_observed
        },
        "prior_predictive": lambda: {
            name: _seen(nodes[name], value, 2) for name, value in from_prior().items() if nodes[name].is_observed
        },
    }
    groups: dict[str, Variables] = {}
    missing: dict[str, str] = {}
    size = n * sum(np.asarray(node.value).size for node in leaves.values())
    without = [name for name in read_by_data(plan) if name not in values]
    for group in makers if asked is None else [name for name in asked if name != "posterior"]:
        if asked is None and group != "observed_data" and (size > MOST_NUMBERS or without):
            missing[group] = f"it would have {size:,} numbers or more: ask for it by name, or for fewer draws (n=)"
            continue
        if without and group in ("log_likelihood", "posterior_predictive"):
            raise PlateMismatch(
                f"to_arviz: {group!r} needs draws of {without[0]!r}, which were not kept: draws(names=…)"
            )
        try:
            groups[group] = makers[group]()
        except (PlateMismatch, TypeError) as reason:
            if asked is not None:
                raise
            missing[group] = str(reason)
    return groups, missing


def read_by_data(plan: Plan) -> list[str]:
    """The hidden nodes that observed ones read, whose draws the groups need."""
    leaves = [node for node in plan.declared.values() if node.is_observed]
    parents = {parent.name for node in leaves for parent in node.parents()}
    hidden = {*plan.blocks, *plan.members}
    return [name for name in plan.declared if name in parents and name in hidden]


def _at_draws(plan: Plan, node: Node, drawn: Mapping[str, Array], n: int) -> tuple[Predictive, dict[str, Array]]:
    """The node as it would be without its data, and its parameters at every draw."""
    if weighted := [plate.name for plate in node.plates if plate.weight is not None]:
        raise PlateMismatch(
            f"to_arviz: plate {weighted[0]!r} has weights: write the rows out to compare them one by one"
        )
    # Empty parameters say that a node is hidden: all values are in the draws.
    made = make_predictive(plan, dict.fromkeys(drawn, ()), node.name, {}, {})
    return made, made._slots(made.node, np.random.default_rng(0), n, dict(drawn))


def _log_likelihood(
    leaves: Mapping[str, Node], made: Predictive, slots: dict[str, Array], shape: tuple[int, ...]
) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):  # elements that are missing
        logs = made.node.log_density_given(np.asarray(leaves[made.node.name].value), slots)
    return np.broadcast_to(logs, shape)


def _dims(node: Node, ndim: int) -> tuple[str, ...]:
    plates = tuple(plate.name for plate in node.plates)
    return (*plates, *(f"{node.name}_dim_{i}" for i in range(ndim - len(plates))))


def _seen(node: Node, values: Array, leading: int) -> tuple[tuple[str, ...], Array]:
    """Values on the plates of a node after ``leading`` axes; only the elements that were observed."""
    n_plates = len(node.plates)
    if node.mask is None or np.all(node.mask):
        return _dims(node, values.ndim - leading), values
    seen = np.asarray(node.mask, dtype=bool)
    if seen.ndim > n_plates:  # a vector is observed as a whole
        seen = np.asarray(seen.reshape(*seen.shape[:n_plates], -1).all(-1))
    place: Any = (*(slice(None),) * leading, seen)
    cut = values[place]
    rest = cut.ndim - leading - 1
    return (f"{node.name}_seen", *(f"{node.name}_dim_{i}" for i in range(rest))), cut
