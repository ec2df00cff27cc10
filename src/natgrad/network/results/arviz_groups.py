"""Make the groups beside "posterior" that ArviZ reads, from draws of the hidden nodes of a network.

    observed_data          what was observed
    log_likelihood         log p(y | hidden values of the draw) of every observed element: for ``loo``, ``compare``
    posterior_predictive   data drawn given the hidden values of each draw: for ``plot_ppc``
    prior, prior_predictive  hidden values and data drawn from the model before it sees data

Elements that are missing have no likelihood. A node with missing elements is written along one axis, those that were observed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

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


class _Draws(NamedTuple):
    """Hidden values [chains · draws, …] by name, and how they are cut into chains."""

    values: Mapping[str, Array]
    chains: int

    @property
    def n(self) -> int:
        return len(next(iter(self.values.values()))) if self.values else self.chains

    def cut(self, values: Array) -> Array:
        return values.reshape(self.chains, -1, *values.shape[1:])


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
    chains = next((len(v) for v in values.values()), 1)
    drawn = _Draws({name: v.reshape(-1, *v.shape[2:]) for name, v in values.items()}, chains)
    leaves = {name: node for name, node in plan.declared.items() if node.is_observed and node.value is not None}
    rng = np.random.default_rng([seed, 7])
    makers: dict[str, Callable[[], Variables]] = {
        "observed_data": lambda: {name: _seen(node, np.asarray(node.value), 0) for name, node in leaves.items()},
        "log_likelihood": lambda: {name: _log_likelihood(plan, node, drawn) for name, node in leaves.items()},
        "posterior_predictive": lambda: {name: _replicated(plan, node, drawn, rng) for name, node in leaves.items()},
    }
    prior = _Prior(plan, drawn.n, seed)
    makers |= {"prior": prior.hidden, "prior_predictive": prior.data}
    groups: dict[str, Variables] = {}
    missing: dict[str, str] = {}
    size = drawn.n * sum(np.asarray(node.value).size for node in leaves.values())
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


class _Prior:
    """Values of all nodes drawn from the model, once."""

    def __init__(self, plan: Plan, n: int, seed: int) -> None:
        self._plan, self._n, self._seed = plan, n, seed
        self._values: dict[str, Array] | None = None

    def _drawn(self) -> dict[str, Array]:
        if self._values is None:
            plan = make_plan(list(self._plan.declared.values())) if self._plan.members else self._plan
            self._values = simulate_nodes(plan, self._seed, self._n)
        return self._values

    def hidden(self) -> Variables:
        nodes = self._plan.declared
        return {
            name: ((*_dims(nodes[name], value.ndim - 1),), value[None])
            for name, value in self._drawn().items()
            if name in nodes and not nodes[name].is_observed
        }

    def data(self) -> Variables:
        nodes = self._plan.declared
        return {
            name: _cut_seen(nodes[name], value[None])
            for name, value in self._drawn().items()
            if name in nodes and nodes[name].is_observed
        }


def _predictive(plan: Plan, node: Node, drawn: _Draws) -> tuple[Predictive, dict[str, Array]]:
    """The node as it would be without its data, and its parameters at every draw."""
    if weighted := [plate.name for plate in node.plates if plate.weight is not None]:
        raise PlateMismatch(
            f"to_arviz: plate {weighted[0]!r} has weights: write the rows out to compare them one by one"
        )
    # Empty parameters say that a node is hidden: all values are in the draws.
    made = make_predictive(plan, dict.fromkeys(drawn.values, ()), node.name, {}, {})
    return made, made._slots(made.node, np.random.default_rng(0), drawn.n, dict(drawn.values))


def _log_likelihood(plan: Plan, node: Node, drawn: _Draws) -> tuple[tuple[str, ...], Array]:
    made, slots = _predictive(plan, node, drawn)
    with np.errstate(invalid="ignore", divide="ignore"):  # elements that are missing
        logs = made.node.log_density_given(np.asarray(node.value), slots)
    shape = (drawn.n, *(plate.size for plate in node.plates))
    return _cut_seen(node, drawn.cut(np.broadcast_to(logs, shape)))


def _replicated(plan: Plan, node: Node, drawn: _Draws, rng: np.random.Generator) -> tuple[tuple[str, ...], Array]:
    made, slots = _predictive(plan, node, drawn)
    shape = (drawn.n, *(plate.size for plate in node.plates))
    twin = made.node.with_trials_of(node.value)
    return _cut_seen(node, drawn.cut(np.asarray(twin.sample_given(slots, rng, shape))))


def _dims(node: Node, ndim: int) -> tuple[str, ...]:
    plates = tuple(plate.name for plate in node.plates)
    return (*plates, *(f"{node.name}_dim_{i}" for i in range(ndim - len(plates))))


def _cut_seen(node: Node, values: Array) -> tuple[tuple[str, ...], Array]:
    return _seen(node, values, 2)


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
