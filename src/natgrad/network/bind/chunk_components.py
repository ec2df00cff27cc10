"""The components of a network whose rows are read in chunks, for `natgrad.inference.moves`.

What rows choose is solved when their chunk is read, and not held. So a move is a change that the next pass makes
(`chunk_program.py`): rows tell the globals what they would with other choices, and everything on the plate follows, as it does
in memory. Ordinary passes decide, by the exact bound.

    merge, delete, order   need nothing but the places
    birth                  some rows of the component, drawn from all chunks, are split in memory as they would be there
                           (`natgrad.network.start.components`); every row is then shared out by how likely the parts are

Beyond the globals and the chunks that are read, some rows for each component are held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.group_components import EMPTY, Birth, Components
from natgrad.inference.moves import Moves
from natgrad.inference.problem import State
from natgrad.network.bind.chunk_groups import ChunkGroups
from natgrad.network.bind.chunk_program import CHANGE, change_of, changed_held
from natgrad.network.bind.chunked import ChunkedEdges
from natgrad.network.bind.tables import Table
from natgrad.network.compile.plan import axes_of
from natgrad.network.execute.problem import NetworkProblem
from natgrad.network.start.components import NetworkComponents, moves_of
from natgrad.network.start.order import default_order
from natgrad.random import Stream, generator

if TYPE_CHECKING:
    from natgrad.network.bind.chunks import Chunks

__all__ = ["ChunkComponents", "moves_for", "start_of_one_in_chunks"]

Floats = npt.NDArray[np.float64]
# Rows of a component that are split in memory.
MOST_ROWS = 2_000
# Observations of a component from which on it is not merged with another of which its own rows are all but certain that they are
# elsewhere: each of them would lose ten nats.
LARGE, APART = 100.0, 1e-6
# Sweeps of these rows as one component, to know what parts gain.
SETTLING = 3


class Members(NamedTuple):
    """What components hold at a state, what labels hold of it, how alike their memberships are, and some rows of each."""

    lam: Any  # of the state, and its step
    t: int
    held: Floats
    known: Floats
    products: Floats
    rows: dict[int, _Rows]


class ChunkComponents(Components):
    """What some categories of rows choose from.

    Parameters
    ----------
    problem : ChunkGroups or ChunkedEdges
    gates : names of the categories
    plate : the plate along which they choose, as the trace calls it
    seed : of the run
    """

    def __init__(self, problem: ChunkGroups | ChunkedEdges, gates: Sequence[str], plate: str, seed: int) -> None:
        self.problem, self.gates, self.plate, self.seed = problem, tuple(gates), plate, seed
        self.size = int(problem.plan.nodes[self.gates[0]].categories or 1)
        self._last: Members | None = None

    def held(self, state: State) -> Floats:
        """Σ q(z) over all chunks; of a change that no pass has made yet, what it leads to."""
        change = state.memory.get(CHANGE)
        if change is None:
            return self._members(state).held
        own = change["gates"].get(self.gates[0])
        if state.t == 0 or own is None:  # a start: the first holds everything
            return np.where(np.arange(self.size) == 0, float(self.problem.chunks.n_rows), 0.0)
        members = self._members(state)
        return changed_held(members.held, members.known, own)

    def merge(self, state: State, kept: int, emptied: int) -> State:
        """Memberships added up in the next pass."""
        return self._changed(state, change_of(self.size, also={kept: emptied}, off=[emptied]))

    def delete(self, state: State, k: int) -> State:
        """Memberships of the others, as likely as they are to one another, in the next pass."""
        return self._changed(state, change_of(self.size, off=[k]))

    def likeness(self, state: State) -> Floats:
        """The cosine of two components' memberships; −∞ where two large ones share nothing, so that passes are not wasted."""
        members = self._members(state)
        length = np.sqrt(np.diag(members.products)) + 1e-100
        cosine, large = members.products / np.outer(length, length), members.held > LARGE
        return np.asarray(np.where((cosine < APART) & np.outer(large, large), -np.inf, cosine))

    def ordered(self, state: State) -> tuple[State, tuple[int, ...]] | None:
        """Those that hold most where weights are expected to be largest."""
        members = self._members(state)
        if self._inner.expected is None or members.known.any():
            return None
        moved = self._inner.places_by_weight(members.held)
        if moved is None:
            return None
        return self._changed(state, change_of(self.size, parents=dict(enumerate(moved)))), tuple(moved.tolist())

    @property
    def at_once(self) -> bool:
        """Not in chains, where a split changes transitions of all others."""
        return all(len(axes_of(self.problem.plan.nodes[gate].family)) == 1 for gate in self.gates)

    def together(self, state: State, births: Mapping[int, Birth]) -> State:
        """Every one of them shared out in the same pass."""
        parents, shares, mu = {}, {}, dict(state.mu)
        for k, birth in births.items():
            own, places = birth.state.memory[CHANGE], [k, *birth.born]
            parents.update(dict.fromkeys(places, k))
            shares.update({p: float(own["gates"][self.gates[0]]["share"][p]) for p in places})
            mu = self._with_parts(mu, own["mu"], places)
        return self._changed(state, change_of(self.size, parents=parents, shares=shares), mu)

    def split(
        self, state: State, k: int, empty: Sequence[int], number: int, seed: int, *, goal: float = -np.inf
    ) -> Birth | None:
        """Some rows of ``k`` are split in memory; the next pass shares out all of them."""
        if CHANGE in state.memory:  # as after a merge, with which another place is exchanged
            state = self.problem.sweep(state._replace(memory={CHANGE: state.memory[CHANGE]}), self._order).state
        rows = self._members(state).rows.get(k)
        if rows is None:
            return None
        part, inside = self._sample(state, rows)
        try:
            one = part.alone(inside, k)
            bound = -np.inf
            for _ in range(SETTLING):
                one, bound, *_ = part.problem.sweep(one, part.order)
            birth = part.split(one._replace(t=state.t), k, empty, number, seed)
        except ValueError:  # some rows rule out the parts
            return None
        if birth is None:
            return None
        gain = birth.bound - bound
        if rows.is_sample and gain <= 0.0:
            gain = float("nan")  # all of them may still gain
        places = [k, *birth.born]
        held = np.maximum(part.held(birth.state)[places], EMPTY)
        shares = dict(zip(places, np.log(held / held.sum()).tolist(), strict=True))
        mu = self._with_parts(state.mu, birth.state.mu, places)
        change = change_of(self.size, parents=dict.fromkeys(places, k), shares=shares)
        return Birth(self._changed(state, change, mu), gain, birth.born)

    # -- parts --

    @cached_property
    def _inner(self) -> NetworkComponents:
        """The same components of the first chunk: priors are those of all."""
        return NetworkComponents(self.problem.program.problem, self.gates, self.plate, self._whole_order)

    @property
    def _order(self) -> tuple[str, ...]:
        return tuple(name for name in self._whole_order if name in self.problem.blocks)

    @cached_property
    def _whole_order(self) -> tuple[str, ...]:
        return default_order(self.problem.plan)

    def _changed(self, state: State, change: Any, mu: Any = None) -> State:
        """The state, with a change for the next pass."""
        made = {"gates": dict.fromkeys(self.gates, change)}
        if mu is not None:
            made["mu"] = {name: mu[name] for name in self.problem.blocks}
        return state._replace(memory={CHANGE: made})

    def _with_parts(self, mu: Any, other: Any, places: list[int]) -> dict[str, Any]:
        """Moments, those of some components from elsewhere."""
        new, plan = dict(mu), self.problem.plan
        chosen = {(name, axis) for gate in self.gates for _, name, axis in plan.choices[gate]}
        for name, axis in sorted(chosen):
            if name in self.problem.blocks and axis < len(plan.nodes[name].plates):
                new[name] = tuple(np.array(part, np.float64) for part in new[name])
                for part, theirs in zip(new[name], other[name], strict=True):
                    np.moveaxis(part, axis, 0)[places] = np.moveaxis(np.asarray(theirs), axis, 0)[places]
        return new

    def _members(self, state: State) -> Members:
        """A pass over all chunks; of the last state it is remembered."""
        if self._last is not None and self._last.lam is state.lam and self._last.t == state.t:
            return self._last
        problem, chunks = self.problem, self.problem.chunks
        mu = {name: state.mu[name] for name in problem.globals}
        ends = problem.ends(mu)
        told = chunks.map(lambda chunk: chunk.tell("members", mu, self.gates, ends and ends.messages))
        held, known, products = np.zeros(self.size), np.zeros(self.size), np.zeros((self.size, self.size))
        rows: dict[int, _Rows] = {}
        for number, (table, one) in enumerate(zip(chunks.tables(), told, strict=True)):
            counts, total = self._row_weights(table, number), np.zeros((table.n_rows, self.size))
            for gate in self.gates:
                members, labelled = (self._by_row(gate, part, table.n_rows) for part in one.parts[gate])
                weights = counts[:, None] * self._weights_inside(gate)
                weighted = members * weights[..., None]
                held += weighted.sum((0, 1))
                known += (weighted * labelled).sum((0, 1))
                products += np.einsum("rei,rej->ij", members, weighted)
                total += members.sum(1)
            _draw(
                rows, table, total * (counts > 0.0)[:, None], self._priorities(number, state.t, table), chunks.chained
            )
        self._last = Members(state.lam, state.t, held, known, products, {k: own.drawn() for k, own in rows.items()})
        return self._last

    def _priorities(self, number: int, t: int, table: Table) -> Floats:
        return generator(self.seed, Stream.MOVES, t, number).random(table.n_rows)

    def _by_row(self, gate: str, part: Any, n_rows: int) -> Any:
        """An array of a category, rows first, then all else, then its values; a short chunk was filled up."""
        axis = [plate.name for plate in self.problem.plan.nodes[gate].plates].index(self.problem.chunks.plate)
        rows = np.moveaxis(np.asarray(part), axis, 0)[:n_rows]
        return rows.reshape(len(rows), -1, rows.shape[-1])

    def _row_weights(self, table: Table, number: int) -> Floats:
        chunks, weights = self.problem.chunks, np.ones(table.n_rows)
        if (own := chunks.template.plates[chunks.plate].later) is not None:
            weights = weights * table.numbers(own.name)
        if chunks.carried and number:
            weights[0] = 0.0  # the chunk before has counted it
        return weights

    def _weights_inside(self, gate: str) -> Floats:
        """How often each element of a row counts."""
        weights = np.ones(1)
        for plate in self.problem.plan.nodes[gate].plates:
            if plate.name != self.problem.chunks.plate:
                own = np.ones(plate.size) if plate.weight is None else np.asarray(plate.weight, np.float64)
                weights = np.multiply.outer(weights, own).ravel()
        return weights

    def _sample(self, state: State, rows: _Rows) -> tuple[NetworkComponents, State]:
        """Some rows as a network of their own, and its state with the globals of all."""
        chunks: Chunks = self.problem.chunks
        problem = NetworkProblem(chunks.plan_of(rows.table), "numpy")
        part = NetworkComponents(problem, self.gates, self.plate, self._whole_order)
        prior = problem.prior({})
        lam, mu = dict(prior.lam), dict(prior.mu)
        for name in self.problem.blocks:
            lam[name] = tuple(np.asarray(p) for p in state.lam[name])
            mu[name] = tuple(np.asarray(p) for p in state.mu[name])
        local = tuple(name for name in self._whole_order if name not in self.problem.blocks)
        return part, problem.sweep(State(lam, mu, state.t), local).state._replace(t=state.t)


class _Rows:
    """Some rows of a component: those with the smallest priorities of all that come by, or the chunk that holds most."""

    def __init__(self) -> None:
        self.tables: list[Table] = []
        self.priorities: list[Floats] = []
        self.count, self.most = 0, 0.0

    def add(self, table: Table, chosen: npt.NDArray[np.int64], priorities: Floats) -> None:
        """Rows of a chunk come by."""
        self.count += len(chosen)
        self.tables.append(table.take(chosen))
        self.priorities.append(priorities[chosen])
        if sum(map(len, self.priorities)) > 4 * MOST_ROWS:
            self._keep()

    def _keep(self) -> None:
        table, priorities = Table.joined(self.tables), np.concatenate(self.priorities)
        kept = np.sort(np.argsort(priorities, kind="stable")[:MOST_ROWS])
        self.tables, self.priorities = [table.take(kept)], [priorities[kept]]

    def drawn(self) -> _Rows:
        """The rows, in the order of the table."""
        if self.priorities:
            self._keep()
        return self

    @property
    def table(self) -> Table:
        return self.tables[0]

    @property
    def is_sample(self) -> bool:
        """Whether there are others."""
        return not self.priorities or self.count > self.table.n_rows


def _draw(rows: dict[int, _Rows], table: Table, members: Floats, priorities: Floats, whole: bool) -> None:
    """Note the rows of a chunk; of sequences, which are not cut, the chunk."""
    for k in range(members.shape[1]):
        chosen = np.flatnonzero(members[:, k] > 0.5)
        if not len(chosen):
            continue
        own = rows.setdefault(k, _Rows())
        if not whole:
            own.add(table, chosen, priorities)
        elif (total := float(members[:, k].sum())) > own.most:
            own.tables, own.most = [table], total


def moves_for(problem: Any, asked: Any, order: tuple[str, ...], seed: int) -> Moves | None:
    """The components that move, of a network in memory or in chunks; None if none do."""
    if not isinstance(problem, (ChunkGroups, ChunkedEdges)):
        return moves_of(problem, asked, order)
    found = moves_of(problem.program.problem, asked, default_order(problem.plan))
    if found is None:
        return None
    parts: list[Components] = []
    for part in found.parts:
        assert isinstance(part, NetworkComponents)
        above = [gate for gate in part.gates if gate in problem.blocks]
        if not above:
            parts.append(ChunkComponents(problem, part.gates, part.plate, seed))
        elif len(above) == len(part.gates):
            of_chunks: Any = problem
            parts.append(NetworkComponents(of_chunks, part.gates, part.plate, order, clustered=False))
        else:
            raise ValueError(
                f"components along {part.plate!r} are chosen by {above[0]!r}, and by single rows, which are read in chunks: "
                "leave out chunk_rows=, so that the table is held; or give the number, without grow=True"
            )
    return Moves(tuple(parts), found.keep)


def start_of_one_in_chunks(problem: Any, moves: Moves) -> State:
    """Every global at its prior, but that the first of all components holds everything, or will after the first pass."""
    state: State = problem.prior({})
    gates = {}
    for part in moves.parts:
        if isinstance(part, NetworkComponents):
            state = part.alone(state, 0)
        else:
            assert isinstance(part, ChunkComponents)
            gates.update(dict.fromkeys(part.gates, change_of(part.size, off=range(1, part.size))))
    return state._replace(memory={CHANGE: {"gates": gates}} if gates else {})
