"""Answer queries of small discrete networks exactly, by variable elimination.

Variables are summed out one after the other, each time the one whose neighbours have the fewest combinations. The cost is the
largest table on the way; it is found before anything is multiplied, and a network that is too large for it is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.families._ops import logsumexp
from natgrad.network.compile.plan import Plan
from natgrad.network.execute.potentials import MOST_ENTRIES, Potential, Variable, potentials
from natgrad.network.language.expressions import LOG_ZERO
from natgrad.network.language.nodes import Node

if TYPE_CHECKING:
    from natgrad.network.network import Network

__all__ = ["Answer", "query"]

Floats = npt.NDArray[np.float64]
Wanted = str | Node | tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Answer:
    """The exact joint distribution of some nodes, given the data and the evidence.

    Attributes
    ----------
    names : what was asked for, one axis of `table` each
    table : array, probabilities of all combinations
    log_evidence : float, log p(data, evidence): exact
    largest : int, numbers in the largest table on the way: the cost
    states : {name: states} where the network has names for them
    """

    names: tuple[str, ...]
    table: Floats
    log_evidence: float
    largest: int
    states: Mapping[str, tuple[str, ...]]

    def __getitem__(self, name: str | Node) -> Floats:
        """The probabilities of one node, the others summed out."""
        key = name.name if isinstance(name, Node) else name
        if key not in self.names:
            raise KeyError(f"{key!r} was not asked for; the answer is about {', '.join(self.names)}")
        others = tuple(i for i, other in enumerate(self.names) if other != key)
        return np.asarray(self.table.sum(others))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        return np.array(self.table, dtype=dtype)

    def __repr__(self) -> str:
        lines = []
        for name in self.names:
            states = self.states.get(name, tuple(map(str, range(len(self[name])))))
            lines.append(f"{name}: " + ", ".join(f"{s} {p:.4g}" for s, p in zip(states, self[name], strict=True)))
        return "\n".join(lines)


def query(network: Network, names: Wanted | Iterable[Wanted], given: Mapping[Any, Any] | None) -> Answer:
    """The joint of the named nodes given data and evidence."""
    plan = network._plan
    _check_discrete(plan)
    wanted = _wanted(plan, names)
    evidence = _evidence(plan, network.states, given or {})
    for variable, text in wanted.items():
        if variable in evidence:
            raise ValueError(f"query: {text} is asked for and given at once")
    tables = _conditioned(potentials(plan), evidence)
    order, largest = _order(tables, set(wanted))
    if largest > MOST_ENTRIES:
        raise ValueError(
            f"query: the largest table on the way has {largest:,} numbers, more than the {MOST_ENTRIES:,} that fit: the "
            "hidden nodes are tied too closely. Give more evidence, ask for fewer nodes, or fit(), whose q is factorised"
        )
    joint = _eliminated(tables, order, tuple(wanted), [_size(plan, v) for v in wanted])
    log_evidence = float(logsumexp(joint.ravel()))
    if not log_evidence > 1e-10 * LOG_ZERO:
        raise ValueError("query: the data and the evidence have probability 0 under the tables: look for a wrong value")
    return Answer(tuple(wanted.values()), np.exp(joint - log_evidence), log_evidence, largest, network.states)


# -- what was asked --


def _check_discrete(plan: Plan) -> None:
    for name in plan.blocks:
        if plan.nodes[name].categories is None or plan.nodes[name].plates != plan.nodes[name].block_plates:
            raise NotConjugate(
                f"query: {name!r} is a hidden {type(plan.nodes[name]).__name__}, and exact queries are for networks in which "
                "everything hidden is a Categorical or a Bernoulli with known probabilities: fit() approximates this one"
            )
    if plan.weights:
        raise PlateMismatch(f"query: plate {next(iter(plan.weights))!r} has weights, for which there is no exact query")


def _size(plan: Plan, variable: Variable) -> int:
    return plan.nodes[variable[0]].categories or 0


def _variable(plan: Plan, entry: Any, what: str) -> tuple[Variable, str]:
    """A name, a node, or (name, element, …) as a variable, and what to call it."""
    name, *place = entry if isinstance(entry, tuple) else (entry,)
    key = name.name if isinstance(name, Node) else name
    if key not in plan.nodes:
        raise KeyError(f"query: {key!r} is not in this network; nodes are {', '.join(plan.nodes)}")
    node = plan.nodes[key]
    if key not in plan.blocks:
        advice = "is observed in the declaration already" if node.is_observed else "is no category"
        raise ValueError(f"query: {key!r} {advice}: {what}")
    shape = [plate.size for plate in node.plates]
    if len(place) != len(shape):
        example = ", ".join(["0"] * len(shape))
        raise PlateMismatch(
            f"query: {key!r} has {len(shape)} plate(s), so one element of it is written "
            + (f"({key!r}, {example})" if shape else repr(key))
        )
    if any(not 0 <= i < n for i, n in zip(place, shape, strict=True)):
        raise IndexError(f"query: {key!r} has elements of shape {shape}, and {tuple(place)} is none of them")
    flat = int(np.ravel_multi_index(place, shape)) if shape else 0
    return (key, flat), key if not place else f"{key}{list(place)}"


def _wanted(plan: Plan, names: Any) -> dict[Variable, str]:
    entries = [names] if isinstance(names, (str, Node, tuple)) else list(names)
    if not entries:
        raise ValueError('query: name at least one node, as in query(["rain"], given={"wet": 1})')
    return dict(_variable(plan, entry, "leave out observed= to ask for it") for entry in entries)


def _evidence(plan: Plan, states: Mapping[str, Sequence[str]], given: Mapping[Any, Any]) -> dict[Variable, int]:
    if not isinstance(given, Mapping):
        raise TypeError(f"query: given must be states by name, as in given={{'wet': 1}}, got {given!r}")
    evidence = {}
    for entry, value in given.items():
        variable, text = _variable(plan, entry, "it cannot be given again")
        known, size = states.get(variable[0]), _size(plan, variable)
        if isinstance(value, str):
            if known is None or value not in known:
                listed = ", ".join(known) if known else f"0 … {size - 1}"
                raise ValueError(f"query: given {text} = {value!r}, but its states are {listed}")
            value = known.index(value)
        number = int(value) if np.ndim(value) == 0 and value == np.round(value) else -1
        if not 0 <= number < size:
            raise ValueError(f"query: given {text} = {value!r}, but its states are 0 … {size - 1}")
        evidence[variable] = number
    return evidence


# -- elimination --


def _conditioned(tables: Iterable[Potential], evidence: Mapping[Variable, int]) -> list[Potential]:
    """The tables at the evidence."""
    reduced = []
    for names, table in tables:
        index = tuple(evidence.get(name, slice(None)) for name in names)
        reduced.append(Potential(tuple(name for name in names if name not in evidence), table[index]))
    return reduced


def _order(tables: Sequence[Potential], kept: set[Variable]) -> tuple[list[Variable], int]:
    """The variables to sum out, cheapest first, and the size of the largest table on the way."""
    sizes = {name: table.shape[i] for names, table in tables for i, name in enumerate(names)}
    neighbours: dict[Variable, set[Variable]] = {name: set() for name in sizes}
    for names, _ in tables:
        for name in names:
            neighbours[name].update(names)
    order, largest = [], max((table.size for _, table in tables), default=1)
    waiting = set(sizes) - kept
    while waiting:
        cost = {name: math.prod(sizes[other] for other in neighbours[name]) for name in waiting}
        best = min(waiting, key=lambda name: (cost[name], name))
        largest = max(largest, cost[best])
        around = neighbours.pop(best) - {best}
        for other in around:
            neighbours[other] = (neighbours[other] | around) - {best}
        waiting.remove(best)
        order.append(best)
    return order, max(largest, math.prod(sizes.get(name, 1) for name in kept))


def _eliminated(
    tables: Sequence[Potential], order: Sequence[Variable], wanted: tuple[Variable, ...], sizes: Sequence[int]
) -> Floats:
    """The log of the joint of what is wanted, not normalised."""
    waiting = list(tables)
    for name in order:
        met = [p for p in waiting if name in p.variables]
        waiting = [p for p in waiting if name not in p.variables]
        variables = tuple(dict.fromkeys(v for p in met for v in p.variables))
        total = _added(met, variables)
        rest = tuple(v for v in variables if v != name)
        waiting.append(Potential(rest, np.asarray(logsumexp(total, axis=variables.index(name)))))
    return np.broadcast_to(_added(waiting, wanted), sizes)


def _added(tables: Sequence[Potential], variables: tuple[Variable, ...]) -> Floats:
    total = np.zeros((1,) * len(variables))
    for names, table in tables:
        order = sorted(range(len(names)), key=lambda i: variables.index(names[i]))
        shape = [table.shape[names.index(v)] if v in names else 1 for v in variables]
        total = total + np.transpose(table, order).reshape(shape)
    # Sums of several impossible things stay numbers.
    return np.maximum(total, LOG_ZERO)
