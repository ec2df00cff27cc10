"""Labels that priors or data tell apart change places: a chain goes from one labelling to another that no sweep leads to.

Two well separated components whose priors differ have two labellings, each with its share of the posterior. To get from one to
the other one element at a time, a chain would have to cross what is almost impossible. So everything that lives along a set of
labels (weights, components, rows and columns of transitions, values of categories) is proposed with two labels exchanged, and
accepted with probability

    min(1, p(x′, data) / p(x, data))        a step of Metropolis: the proposal is its own way back, and its Jacobian is one

In log p, which is the polynomial of the plan at the statistics of the values, only monomials with known numbers or data along
the labels change. Labels that are alike are left to `natgrad.network.draws.labels`: exchanging them changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.sampler import pairs_apart
from natgrad.network.compile.plan import Plan
from natgrad.network.compile.polynomial import Monomial
from natgrad.network.draws.chains import CHAIN, with_chain
from natgrad.network.draws.labels import LabelSet, along_time, label_sets, renumber, renumbered_stats
from natgrad.network.execute.written_out import Reads, written_product
from natgrad.random import Stream, generator

__all__ = ["Exchange", "exchange_labels", "exchanges_of", "may_move"]

Array = npt.NDArray[Any]
Stats = tuple[Any, ...]
# Numbers that a proposal may read: data that tell labels apart are known labels, and more of these leave no doubt.
MOST_READ = 200_000


class Exchange:
    """Two labels of one set, exchanged in every chain that accepts it.

    Parameters
    ----------
    plan : Plan, without chains
    entry : LabelSet, of which not all labels are alike
    chains : int
    """

    def __init__(self, plan: Plan, entry: LabelSet, chains: int) -> None:
        self.plan, self.entry, self.chains = plan, entry, chains
        self.pairs = pairs_apart(entry.classes)
        self.names = {f.source for _, m in entry.telling for f in m.factors if not f.known} & set(entry.axes)
        self.reads = Reads(plan.known, lambda name: [(chains, *shape) for shape in plan.nodes[name].stat_shapes()])
        self._products: list[Callable[[list[Array]], Array]] = []
        for term, monomial in entry.telling:
            product = written_product(self.reads, _chained(monomial), _scale(plan, term, monomial), (CHAIN,))
            if product.function is not None:
                self._products.append(product.function)

    def log_density(self, stats: Mapping[str, Stats]) -> Array:
        """What changes of the log joint when labels are exchanged [chain]."""
        operands = self.reads(stats)
        return np.asarray(sum((function(operands) for function in self._products), np.zeros(self.chains)))

    def step(self, stats: dict[str, Stats], values: dict[str, Array], rng: np.random.Generator) -> Array:
        """A pair of labels for each chain, exchanged where that is accepted, in place; whether it was [chain]."""
        pairs, height = self.pairs[rng.integers(len(self.pairs), size=self.chains)], np.log(rng.random(self.chains))
        orders = np.tile(np.arange(self.entry.size), (self.chains, 1))
        np.put_along_axis(orders, pairs, pairs[:, ::-1], 1)
        everyone = np.arange(self.chains)
        other = {n: renumbered_stats(self.plan, self.entry, n, stats[n], everyone, orders) for n in self.names}
        accepted = np.asarray(height < self.log_density({**stats, **other}) - self.log_density(stats))
        chosen = np.flatnonzero(accepted)
        if len(chosen):
            renumber(self.plan, self.entry, chosen, orders[chosen], stats, values)
        return accepted


def exchange_labels(
    moves: Sequence[Exchange], stats: dict[str, Stats], values: dict[str, Array], seed: int, t: int
) -> Array:
    """The moves before sweep ``t``, in place, with random numbers of their own; in which chains labels changed places."""
    if not moves:
        return np.zeros(1, dtype=np.int64)
    rng = generator(seed, Stream.DRAWS, 1 + t, 1)
    return np.asarray(np.any([move.step(stats, values, rng) for move in moves], axis=0), dtype=np.int64)


def exchanges_of(plan: Plan, chains: int, apart: Collection[str] = (), local: Sequence[str] = ()) -> list[Exchange]:
    """A move for each set of labels that are told apart, where one can be made.

    Parameters
    ----------
    plan : Plan, without chains
    chains : int
    apart : nodes that are not part of a state: a set that has one is left as it is
    local : nodes that are drawn after the move, given the others: a set whose monomials read one is left as it is
    """
    moves = []
    for entry in label_sets(plan):
        if not entry.telling or any(name in apart for name in entry.axes) or not may_move(plan, entry):
            continue
        if any(f.source in local for _, m in entry.telling for f in m.factors if not f.known):
            continue
        if sum(math.prod(plan.terms[t].sizes[x] for x in m.labels) for t, m in entry.telling) <= MOST_READ:
            moves.append(Exchange(plan, entry, chains))
    return moves


def may_move(plan: Plan, entry: LabelSet) -> bool:
    """Whether elements have the same range and measure: none is known, or has a law of its own, and none is a time of a chain."""
    for name, axes in entry.axes.items():
        node, on_plates = plan.nodes[name], any(axis >= 0 for axis in axes)
        if node.is_auxiliary or getattr(node.family, "settings", None) or (on_plates and node.is_observed):
            return False
        if any(along_time(plan, name, axis) for axis in axes):
            return False
    return True


def _chained(monomial: Monomial) -> list[Any]:
    return [with_chain(factor) for factor in monomial.factors]


def _scale(plan: Plan, name: str, monomial: Monomial) -> float:
    """The coefficient, times how often the monomial is there along plates that none of its factors has."""
    term, counted = plan.terms[name], set(monomial.labels) | set(monomial.counted)
    return monomial.coefficient * math.prod(term.sizes[plate] for plate in term.plates if plate not in counted)
