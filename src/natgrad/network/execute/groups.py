"""Groups of one plate that are independent given the globals: batches, local steps, what they add to the globals."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.inference.executors import Broadcast, Executor, Threads
from natgrad.inference.methods import SVI
from natgrad.inference.problem import (
    Block,
    ChildSet,
    GlobalResult,
    GroupProblem,
    GroupResult,
    LocalResult,
    Sampled,
    State,
    SweepResult,
)
from natgrad.inference.schema import check, refuse
from natgrad.inference.steppers.sampled import BlockUpdates, turns
from natgrad.network.compile.plan import PlannedTerm, group_plates
from natgrad.network.execute.update import blended_block
from natgrad.network.polynomial import Take

if TYPE_CHECKING:
    from natgrad.network.compile.plan import Plan
    from natgrad.network.execute.backend import BackendName
    from natgrad.network.execute.problem import NetworkProblem
    from natgrad.network.execute.summary import Summary

__all__ = ["Batch", "BatchSource", "Groups", "NetworkGrouping", "NetworkGroups", "PlateSource", "ReadBatch"]

# Groups of one plate and what is inside them: local variables, the terms of a batch, how many messages it reads.
#
# A node is local if its plates are inside the groups (the plate itself, or a plate whose elements each belong to one group
# through a gather). Given the other nodes, the groups are independent of one another.

Ints = npt.NDArray[np.int64]
Stats = tuple[Any, ...]
# Batches of varying length are padded to the next of these, so that few shapes are compiled; the ratio bounds the waste.
PADDING_RATIO = 1.25


class Groups:
    """The groups of ``plate``, found from the declaration; ``order`` is that of a sweep."""

    def __init__(self, problem: NetworkProblem, plate: str, order: tuple[str, ...]) -> None:
        _check_plate(problem, plate)
        self.problem, self.plate = problem, plate
        plan = problem.plan
        self.grouping = group_plates(plan, plate)
        self.sizes = {label: size for term in plan.terms.values() for label, size in term.sizes.items()}
        inside = {
            name for name, block in problem.blocks.items() if any(p in self.grouping.members for p in block.plates)
        }
        self.local = tuple(name for name in order if name in inside)
        self.globals = tuple(name for name in order if name not in inside)
        for name in self.local:
            if problem.blocks[name].n_columns > 1 and problem.blocks[name].column_axis is None:
                raise ValueError(f"SVI: {name!r} is local and reads itself twice; sample another plate")
        self.plate_of = {name: self._group_plate(term) for name, term in plan.terms.items()}
        self.grouped = tuple(t for t in plan.terms.values() if self.plate_of[t.node] is not None)
        self.whole = tuple(name for name, own in self.plate_of.items() if own is None)
        self._check_inside()

    def __len__(self) -> int:
        return self.grouping.n_groups

    def sampled(self, term: PlannedTerm, batch: Batch, scale: float) -> Sampled:
        """A term on the batch: one plate zipped, local nodes addressed by their place in the batch."""
        plate = self.plate_of[term.node]
        assert plate is not None
        moved: dict[tuple[str, int], Any] = {}
        for name in (term.node, *term.readings):
            if name not in self.local:
                continue
            # The time of a chain is inside its element, even where its plate is one of the groups: it is read as it is.
            n_plates = len(self.problem.blocks[name].plates)
            for axes in self._axes_of(term, name):
                for position, axis in enumerate(axes[:n_plates]):
                    own = self.problem.plan.nodes[name].plates[position].name
                    if isinstance(axis, Take) and own in batch.place:
                        index = self.problem.plan.known[axis.index][batch.elements[plate]]
                        moved[name, position] = batch.place[own][index].astype(np.int32)
                    elif axis == plate:
                        moved[name, position] = None
        zipped = {plate: batch.elements[plate].astype(np.int32)}
        return Sampled(term.node, None, zipped, batch.real(plate) * scale, moved)

    def _axes_of(self, term: PlannedTerm, name: str) -> list[tuple[Any, ...]]:
        if name == term.node:
            return [tuple(p.name for p in self.problem.plan.nodes[name].block_plates)]
        return [reading.axes for reading in term.readings[name]]

    # -- local variables --

    def solve(self, state: State, rows: dict[str, Stats], batch: Batch, tol: float, limit: int) -> LocalResult:
        """Optimise the local blocks of a batch, starting from their ``rows``, the globals held fixed."""
        from natgrad.network.execute.problem import LocalPart, LocalResult

        if not self.local:
            return LocalResult({}, {}, 0, {})
        parts = tuple(
            LocalPart(
                name,
                tuple(self.sampled(t, batch, 1.0) for t in self.problem.plan.terms_of(name)),
                {p: batch.elements[p] for p in self.problem.blocks[name].plates if p in batch.elements},
                self._real_rows(name, batch),
            )
            for name in self.local
        )
        others = state._replace(mu={name: value for name, value in state.mu.items() if name not in rows})
        return self.problem.solve_local(others, parts, rows, tol, limit)

    def rows(self, state: State, batch: Batch) -> dict[str, Stats]:
        """The natural parameters of the batch's local variables, padded as the batch is."""
        return {name: self.take_rows(name, state.lam[name], batch) for name in self.local}

    def take_rows(self, name: str, stats: Stats, batch: Batch) -> Stats:
        """The batch's rows of arrays over all of a local block."""
        axis, plate = self._batch_axis(name)
        return tuple(np.take(np.asarray(s), batch.elements[plate], axis=axis) for s in stats)

    def _real_rows(self, name: str, batch: Batch) -> npt.NDArray[np.bool_]:
        """Which rows of a local block are not padding, over its plates."""
        axis, plate = self._batch_axis(name)
        shape = [1] * len(self.problem.blocks[name].shape)
        shape[axis] = -1
        return (batch.real(plate) > 0).reshape(shape)

    def put_rows(self, name: str, arrays: Stats, rows: Stats, batch: Batch) -> None:
        """Write the batch's rows of a local block into arrays over all of them, in place."""
        axis, plate = self._batch_axis(name)
        n_real = batch.n_real[plate]
        where = (slice(None),) * axis + (batch.elements[plate][:n_real],)
        for full, part in zip(arrays, rows, strict=True):
            full[where] = np.asarray(part)[(slice(None),) * axis + (slice(0, n_real),)]

    def entropy_weights(self, name: str, batch: Batch) -> npt.NDArray[np.float64]:
        """How often each row of a local block counts in the bound, over its plates: the weights of all of them."""
        weights = self._real_rows(name, batch).astype(np.float64)
        for axis, plate in enumerate(self.problem.blocks[name].plates):
            if plate in self.problem.plan.weights:
                own = self.problem.plan.weights[plate]
                own = own[batch.elements[plate]] if plate in batch.elements else own
                weights = weights * own.reshape([-1 if i == axis else 1 for i in range(weights.ndim)])
        return weights

    def entropy(self, local: LocalResult, batch: Batch) -> float:
        """Σ over the batch's local variables of A(λ) − ⟨λ, μ⟩, weighted as the plates are."""
        return sum(
            float((np.asarray(local.entropy[name]) * self.entropy_weights(name, batch)).sum()) for name in self.local
        )

    def reads(self, name: str, batch: Batch) -> int:
        """Messages read by a block from the batch's elements: as in a sweep, one for each pair of a variable and a child."""
        total = 0
        for children in self.problem.child_sets(name):
            plate = self.plate_of[children.term]
            if plate is not None:
                others = math.prod(size for label, size in children.sizes.items() if label != plate)
                # Local variables share their children only with those of the same group.
                sharing = children.n_sharing if name in self.globals else self._sharing_inside(children)
                total += batch.n_real[plate] * others * sharing
        return total

    def _sharing_inside(self, children: ChildSet) -> int:
        """How many variables of one group share a child."""
        axes = [axis for axis in range(len(children.block.shape)) if axis not in children.axes]
        inside = [axis for axis in axes if children.block.plates[axis] not in self.grouping.members]
        return math.prod(children.block.shape[axis] for axis in inside)

    # -- structure --

    def _check_inside(self) -> None:
        """Whatever touches a local variable must be inside the groups, or a batch would not see it."""
        for name in self.local:
            axis, plate = self._batch_axis(name)
            if self.problem.blocks[name].column_axis == axis:
                raise PlateMismatch(
                    f"SVI: the elements of {name!r} along plate {plate!r} are updated in turn, since some children read them "
                    "together: they are no independent groups. Sample another plate"
                )
            for term in self.problem.plan.terms_of(name):
                if self.plate_of[term.node] is None:
                    raise PlateMismatch(
                        f"SVI: {term.node!r} reads {name!r} but is not on plate {self.plate!r}, whose elements are thus "
                        "not independent of one another. Sample the plate of the data instead"
                    )
                self._check_readings(term, name)

    def _check_readings(self, term: PlannedTerm, name: str) -> None:
        """An element of the batch finds its local variables by an index on its own plate, not at fixed elements."""
        for axes in self._axes_of(term, name):
            for plate, axis in zip(self.problem.blocks[name].plates, axes, strict=False):
                inside = axis == plate or (isinstance(axis, Take) and axis.labels == (self.plate_of[term.node],))
                if plate in self.grouping.members and not inside:
                    raise PlateMismatch(
                        f"SVI: {term.node!r} reads {name!r} along plate {plate!r} other than by one index for each group: groups "
                        "share its elements. Sample another plate"
                    )

    def _group_plate(self, term: PlannedTerm) -> str | None:
        labels = [label for label in term.plates if label in self.grouping.members]
        if len(labels) > 1:
            raise ValueError(
                f"SVI: {term.node!r} lies on plates {labels}, which all follow from {self.plate!r}; a batch would need one"
            )
        return labels[0] if labels else None

    def _batch_axis(self, name: str) -> tuple[int, str]:
        plates = self.problem.blocks[name].plates
        axis = next(i for i, plate in enumerate(plates) if plate in self.grouping.members)
        return axis, plates[axis]


class Batch:
    """The elements of every grouped plate in one batch, padded, and where each of them stands in it."""

    def __init__(self, groups: Groups, chosen: Ints) -> None:
        self.groups = chosen
        self.elements: dict[str, Ints] = {}
        self.n_real: dict[str, int] = {}
        self.place: dict[str, Ints] = {}
        for plate in groups.grouping.members:
            elements = groups.grouping.elements(plate, chosen)
            place = np.zeros(groups.sizes[plate], dtype=np.int64)
            place[elements] = np.arange(len(elements))
            padded = len(chosen) if plate == groups.plate else _padded(len(elements))
            self.n_real[plate] = len(elements)
            self.elements[plate] = np.concatenate([elements, np.zeros(padded - len(elements), dtype=np.int64)])
            self.place[plate] = place

    def real(self, plate: str) -> npt.NDArray[np.float64]:
        """1 for the elements of the batch, 0 for the padding."""
        return (np.arange(len(self.elements[plate])) < self.n_real[plate]).astype(np.float64)


def _check_plate(problem: NetworkProblem, plate: str) -> None:
    """The sampled plate must exist, and must not be the time of a chain."""
    plates = {p.name for node in problem.plan.nodes.values() for p in node.plates}
    if plate not in plates:
        raise PlateMismatch(f"SVI: there is no plate {plate!r} in this network; it has {sorted(plates)}")
    for node in problem.plan.nodes.values():
        if node.block_plates != node.plates and node.plates[-1].name == plate:
            raise PlateMismatch(
                f"SVI: {plate!r} is the time of the chain {node.name!r} and cannot be cut into independent groups; put the "
                "sequences on a plate of their own and sample that"
            )


def _padded(length: int) -> int:
    size = 16
    while size < length:
        size = int(np.ceil(size * PADDING_RATIO))
    return size


# A declared network seen along one plate: its groups as the engine's `GroupProblem`.
#
#     local step    the local variables of a batch, given the globals
#    summary       S = Σ_g S_g, what groups add to the globals (`groups.summary`); or the batch itself, where what is
#                   told does not add up or need not be kept
#     global step   the globals, one after the other, from S or from the batch scaled by groups / batch
#
# Where the order of a sweep has globals before local variables, these are updated once from the start, so that a start given to
# the local variables counts. A batch is visited in parts, each a pure function of the globals and the part's own local
# variables: an executor may compute them anywhere. How many there are depends on the data alone, and S is summed in their order.

# Observations of a part: worth a trip to a worker.
PART = 2**17
# Memoised VB cuts the groups into batches of two groups at least, and no smaller than the globals that each of them updates; more
# batches than the most make no faster progress, and with fewer than the least a sweep of everything, as a whole, is quicker.
MOST_BATCHES, LEAST_BATCHES = 50, 10


class Visit(NamedTuple):
    """A part of a batch with its local variables optimised: λ and μ of these, S, their entropy."""

    rows: dict[str, Stats]
    mu: dict[str, Stats]
    iterations: int
    stats: dict[str, Stats]
    entropy: float


class ReadBatch(NamedTuple):
    """A batch that was just read, in place of its messages: ``solved`` is what was found in it, or where.

    ``scale`` times as many groups stand behind it.
    """

    batch: Any
    solved: Any
    scale: float


class BatchSource(ABC):
    """Batches of groups of a network, of a plate in memory (`PlateSource`) or of a table in chunks.

    Attributes
    ----------
    network : NetworkProblem, whose functions move the globals
    blocks : the hidden nodes that a state has
    globals : names of those that all groups share, in order of update
    plate, n_groups, batch_size : the plate along which groups lie, how many there are, and how many are in a batch
    summary : Summary, whose sums are the messages of a batch; None where they do not add up, or need not be kept
    row_bytes : what remembering the local variables of a group takes
    leading : globals that are updated before the local variables
    holds_rows : whether a state has the local variables
    placed : where parts of a batch are computed
    probes : of a problem over the source, as `Problem` has them
    """

    network: NetworkProblem
    blocks: Mapping[str, Block]
    globals: tuple[str, ...]
    plate: str
    n_groups: int
    batch_size: int
    summary: Summary | None = None
    row_bytes: int = 0
    leading: tuple[str, ...] = ()
    holds_rows: bool = False
    placed: Any = None
    probes: tuple[Callable[..., State | None], ...] = ()

    @property
    @abstractmethod
    def n_observed(self) -> Mapping[str, int]:
        """Observations that are not missing, by node."""

    @property
    @abstractmethod
    def n_messages(self) -> int:
        """Messages of a sweep."""

    @abstractmethod
    def solve(self, state: State, groups: Ints | None, rows: Any, tol: float, limit: int) -> GroupResult:
        """Optimise the local variables of a batch; its messages are sums, or a `ReadBatch`."""

    @abstractmethod
    def target(self, block: Block, state: State, read: ReadBatch, column: int | None) -> Stats:
        """λ^temp of a global, or of one column of it, from a batch that stands for all."""

    @abstractmethod
    def value(self, state: State, read: ReadBatch) -> float:
        """The bound as a batch estimates it, without the entropies of local variables that the state holds."""

    def begin(self, state: State) -> tuple[State, int]:
        """The state before its first batch is read, and the messages that this took."""
        return state, 0

    def rows_in(self, state: State, groups: Ints | None) -> Any:
        """λ of the local variables of a batch; None if the state has none."""
        return None

    def fits(self, rows: Any, groups: Ints | None, state: State, where: str) -> bool:
        """Whether local variables are those of a batch; refuses what they cannot be."""
        return True

    def write_rows(self, state: State, groups: Ints | None, solved: GroupResult) -> State:
        """The state with the local variables of a batch."""
        return state

    def collect(self, state: State, batches: Sequence[tuple[Ints | None, Any]]) -> State:
        """The state with the remembered local variables of all batches."""
        return state

    def shards(self, size: int) -> Sequence[Any] | None:
        """The data cut for so many threads; None if they cannot be shared out."""
        return None


class NetworkGroups(GroupProblem):
    """Groups of a network that are independent given the globals: batches of any source, then the globals in turn.

    Parameters
    ----------
    source : BatchSource
    """

    shards_by_row = True

    def __init__(self, source: BatchSource) -> None:
        self.source, self.network, self.summary = source, source.network, source.summary
        self.plan, self.backend, self.blocks = source.network.plan, source.network.backend, source.blocks
        self.group_plate, self.n_groups, self.population = source.plate, source.n_groups, float(source.n_groups)
        self.batch_size, self.row_bytes, self.leading = source.batch_size, source.row_bytes, source.leading
        self.summarises, self.probes = source.holds_rows, source.probes

    @property
    def placed(self) -> Any:
        """Where batches are computed."""
        return self.source.placed

    @placed.setter
    def placed(self, placed: Any) -> None:
        self.source.placed = placed

    @property
    def n_observed(self) -> Mapping[str, int]:
        """Observations that are not missing, by node."""
        return self.source.n_observed

    @property
    def n_messages(self) -> int:
        """Messages of a sweep."""
        return self.source.n_messages

    def prior_of(self, name: str) -> Stats:
        """η̃ of a block without parents; of others it depends on these, and is part of what the network computes."""
        raise NotImplementedError("the prior of a block of a network is one of its messages")

    def prior(self, fixed: Mapping[str, Stats]) -> State:
        """Every block at its prior, as `NetworkProblem.prior` has it."""
        whole = self.network.prior(fixed)
        return State({n: whole.lam[n] for n in self.blocks}, {n: whole.mu[n] for n in self.blocks}, 0)

    def bound(self, state: State) -> float:
        """The evidence lower bound at a state; local variables that it does not have are solved."""
        return self.network.bound(state) if self.source.holds_rows else super().bound(state)

    def moments(self, block: Block, lam: Stats) -> Stats:
        """μ = ∇A(λ)."""
        return self.network.moments(block, lam)

    def begin(self, state: State) -> tuple[State, int]:
        """The state before its first batch is read, and the messages that this took."""
        return self.source.begin(state)

    def rows_in(self, state: State, groups: Ints | None) -> Any:
        """λ of the local variables of a batch; None if the state has none."""
        return self.source.rows_in(state, groups)

    def solve(self, state: State, groups: Ints | None, rows: Any, tol: float, limit: int) -> GroupResult:
        """Optimise the local variables of a batch, and find its messages to the globals."""
        return self.source.solve(state, groups, rows, tol, limit)

    def fits(self, rows: Any, groups: Ints | None, state: State, where: str) -> bool:
        """Refuses what is no natural parameter of the local variables of a batch."""
        return self.source.fits(rows, groups, state, where)

    def write_rows(self, state: State, groups: Ints | None, solved: GroupResult) -> State:
        """The local variables of a batch put back among all of them."""
        return self.source.write_rows(state, groups, solved)

    def collect(self, state: State, batches: Sequence[tuple[Ints | None, Any]]) -> State:
        """The remembered local variables of all batches put in their places."""
        return self.source.collect(state, batches)

    def shards(self, size: int) -> Sequence[Any] | None:
        """The data cut for so many threads; None if they cannot be shared out."""
        return self.source.shards(size)

    def scaled(self, messages: Any, scale: float) -> Any:
        """The messages of a batch, for ``scale`` times as many groups."""
        if isinstance(messages, ReadBatch):
            return messages._replace(scale=scale)
        return {key: (value[0] * scale,) for key, value in messages.items()}

    def global_step(self, state: State, messages: Any, rho: Any = 1.0) -> GlobalResult:
        """The globals in turn: from S, or each from the batch that was read."""
        if not isinstance(messages, ReadBatch):
            return self._settle(state, messages, float(np.mean(rho)))
        updates = BlockUpdates(self.network, state, together=False)
        for name in self.source.globals:
            for column, part in turns(self.blocks[name], rho):
                target = self.source.target(self.blocks[name], updates.state, messages, column)
                updates.move(self.blocks[name], target, part, column)
        after = updates.state
        return GlobalResult(after, updates.info, self.source.value(after, messages))

    def global_bound(self, lam: Any, mu: Any, messages: Any) -> float:
        """The bound without the entropies of local variables."""
        if isinstance(messages, ReadBatch):
            return self.source.value(State(lam, mu, 0), messages)
        bound = self._settle(State(lam, mu, 0), messages, 1.0, ()).bound
        assert bound is not None
        return bound

    def sweep(self, state: State, order: tuple[str, ...] = (), rho: float = 1.0) -> SweepResult:
        """All groups, then the globals in some order."""
        self.swept += self.n_messages
        solved = self.solve_all(state)
        after, info, bound = self._settle(state, solved.messages, rho, order or None)
        assert bound is not None
        return SweepResult(after._replace(t=state.t + 1, memory={}), solved.rest + bound, info)

    def _settle(
        self, state: State, stats: dict[str, Stats], rho: float, names: tuple[str, ...] | None = None
    ) -> GlobalResult:
        """The named globals in turn, a part ρ of the way to their exact update from S; the bound with it."""
        assert self.summary is not None
        summary, exact = self.summary, rho == 1.0
        chosen = self.source.globals if names is None else names

        def build() -> Callable[..., Any]:
            def function(lam: Any, mu: Any, stats: Any, rho: Any, known: Any) -> Any:
                lam, mu, info = dict(lam), dict(mu), {}
                for name in chosen:
                    block = self.blocks[name]
                    target, fresh, info[name] = summary.update(block, lam, mu, stats, known)
                    if not exact:
                        target, fresh, _, info[name] = blended_block(self.backend, block, lam[name], target, rho)
                    lam[name], mu[name] = target, fresh
                return lam, mu, summary.bound(lam, mu, stats, 0.0, known), info

            return function

        lam, mu = ({name: part[name] for name in self.source.globals} for part in (state.lam, state.mu))
        sums = {key: value[0] for key, value in stats.items()}
        key = ("settle", self.group_plate, chosen, exact)
        lam, mu, bound, info = self.network.compiled(key, build)(lam, mu, sums, rho)
        after = state._replace(lam={**state.lam, **lam}, mu={**state.mu, **mu})
        return GlobalResult(after, info, float(bound))


class PlateSource(BatchSource):
    """The groups of a network along a plate, in memory.

    Parameters
    ----------
    problem : NetworkProblem
    method : SVI, whose plate the groups lie along
    order : of a sweep
    remember : bool
        Whether messages are summed up, so that they can be kept.
    executor : Executor, optional
    """

    holds_rows = True

    def __init__(
        self,
        problem: NetworkProblem,
        method: SVI,
        order: tuple[str, ...],
        remember: bool,
        executor: Executor | None = None,
    ) -> None:
        self.network, self.remember, self.blocks = problem, remember, problem.blocks
        self.groups = groups = Groups(problem, method.plate, order)
        self.globals, self.plate, self.n_groups = groups.globals, method.plate, len(groups)
        self.batch_size = min(method.size, self.n_groups)
        self.row_bytes = 8 * sum(_numbers(problem, name) for name in groups.local) // max(1, self.n_groups)
        local = [order.index(name) for name in groups.local]
        # The others keep their start until the local variables have seen it: it may be all that tells components apart.
        self.leading = tuple(order[: min(local, default=0)])
        self._batches: dict[int, tuple[Ints | None, list[Batch]]] = {}
        if remember:
            from natgrad.network.execute.summary import Summary

            self.summary = Summary(problem, groups.local, groups.globals, groups.plate_of)
            observed = sum(len(problem.observed[t.node]) for t in groups.grouped if t.node in problem.observed)
            n_batches = math.ceil(self.n_groups / method.size)
            self.n_parts = max(1, min(method.size, observed // n_batches // PART))
            where = Threads() if executor is None else executor
            self.placed = where.place(
                [Broadcast(_RemoteNetwork(problem.plan, problem.backend.name, method, order, self))]
            )

    @property
    def n_observed(self) -> Mapping[str, int]:
        """Of the network."""
        return self.network.n_observed

    @property
    def n_messages(self) -> int:
        """Of the network."""
        return self.network.n_messages

    def begin(self, state: State) -> tuple[State, int]:
        """The leading globals, updated from the start of the local variables."""
        if not self.leading:
            return state, 0
        read = sum(children.n_reads for name in self.leading for children in self.network.child_sets(name))
        return self.network.sweep(state, self.leading).state._replace(t=state.t), read

    def rows_in(self, state: State, groups: Ints | None) -> Any:
        """λ of the local variables of a batch, part by part."""
        return [self.groups.rows(state, part) for part in self._parts(groups)]

    def solve(self, state: State, groups: Ints | None, rows: Any, tol: float, limit: int) -> GroupResult:
        """The local variables of a batch, and what they tell the globals."""
        if self.summary is None:
            (batch,) = self._parts(groups)
            local = self.groups.solve(state, rows[0], batch, tol, limit)
            reads = self._reads(batch, local.iterations)
            read = ReadBatch(batch, local, 1.0)
            return GroupResult([local.lam], read, self.groups.entropy(local, batch), local.iterations, reads)
        globals_ = {name: tuple(map(np.asarray, state.mu[name])) for name in self.groups.globals}
        parts = self._parts(groups)
        calls = [(0, (globals_, part.groups, own, tol, limit)) for part, own in zip(parts, rows, strict=True)]
        visits: list[Visit] = list(self.placed.run(_visit, calls))
        stats, entropy = visits[0].stats, visits[0].entropy
        for visit in visits[1:]:
            stats = {key: (value[0] + visit.stats[key][0],) for key, value in stats.items()}
            entropy += visit.entropy
        reads = sum(self._reads(part, visit.iterations) for part, visit in zip(parts, visits, strict=True))
        most = max(visit.iterations for visit in visits)
        return GroupResult([visit.rows for visit in visits], stats, entropy, most, reads)

    def visit(self, mu: dict[str, Stats], chosen: Ints, rows: dict[str, Stats], tol: float, limit: int) -> Visit:
        """A part, in whatever process; ``limit`` 0 leaves the local variables as they are."""
        batch = Batch(self.groups, chosen)
        if limit == 0:
            return Visit(rows, {}, 0, *self._contribution(rows, batch))
        local = self.groups.solve(State({}, mu, 0), rows, batch, tol, limit)
        after = {name: tuple(map(np.asarray, value)) for name, value in local.lam.items()}
        return Visit(after, {}, local.iterations, *self._contribution(after, batch))

    def fits(self, rows: Any, groups: Ints | None, state: State, where: str) -> bool:
        """Refuses what is no natural parameter of the local variables of a batch."""
        parts = self._parts(groups)
        if not isinstance(rows, list) or len(rows) != len(parts):
            refuse(
                where,
                f"is of {len(rows) if isinstance(rows, list) else 'no'} parts of the data, and there are {len(parts)}",
            )
        for part, own in zip(parts, rows, strict=True):
            usual = self.groups.rows(state, part)
            if own.keys() != usual.keys():
                refuse(where, f"is of {', '.join(own) or 'no node'}, and its local nodes are {', '.join(usual)}")
            for name, stats in usual.items():
                check(own[name], tuple(f"float {list(np.shape(s))}" for s in stats), where=f"{where}[{name!r}]")
                if not np.all(self.blocks[name].family.valid(own[name])):
                    refuse(f"{where}[{name!r}]", "is outside the natural parameters of its family")
        return True

    def write_rows(self, state: State, groups: Ints | None, solved: GroupResult) -> State:
        """The local variables of a batch put back among all of them."""
        read: ReadBatch = solved.messages
        lam, mu = dict(state.lam), dict(state.mu)
        for name in self.groups.local:
            for new, out in ((read.solved.lam, lam), (read.solved.mu, mu)):
                out[name] = tuple(np.array(full) for full in out[name])
                self.groups.put_rows(name, out[name], new[name], read.batch)
        return state._replace(lam=lam, mu=mu)

    def collect(self, state: State, batches: Sequence[tuple[Ints | None, Any]]) -> State:
        """The remembered local variables of all batches put in their places."""
        lam, mu = dict(state.lam), dict(state.mu)
        pieces = [
            (part, None if rows is None else rows[place])
            for groups, rows in batches
            for place, part in enumerate(self._parts(groups))
        ]
        for name in self.groups.local:
            arrays = tuple(np.array(full) for full in lam[name])
            for part, rows in pieces:
                if rows is not None:
                    self.groups.put_rows(name, arrays, rows[name], part)
            lam[name] = arrays
            fresh = tuple(np.array(part) for part in self.network.moments(self.blocks[name], arrays))
            for part, rows in pieces:
                if rows is None:  # not visited yet: it may still be a point mass
                    self.groups.put_rows(name, fresh, self.groups.take_rows(name, mu[name], part), part)
            mu[name] = fresh
        return state._replace(lam=lam, mu=mu)

    # -- parts --

    def _parts(self, groups: Ints | None) -> list[Batch]:
        """A batch cut into its parts; of a cut that comes again and again, kept."""
        key = id(groups)
        if key in self._batches and self._batches[key][0] is groups:
            return self._batches[key][1]
        chosen = np.arange(self.n_groups) if groups is None else groups
        n_parts = self.n_parts if self.remember else 1
        made = [Batch(self.groups, part) for part in np.array_split(chosen, n_parts)]
        if self.remember:
            self._batches[key] = (groups, made)
        return made

    def _reads(self, batch: Batch, iterations: int) -> int:
        reads = iterations * sum(self.groups.reads(name, batch) for name in self.groups.local)
        return int(reads + sum(self.groups.reads(name, batch) for name in self.groups.globals))

    def _samples(self, read: ReadBatch, terms: Any) -> tuple[Sampled, ...]:
        return tuple(self.groups.sampled(term, read.batch, read.scale) for term in terms)

    def target(self, block: Block, state: State, read: ReadBatch, column: int | None) -> Stats:
        """λ^temp of a global from the terms outside the groups and those of the batch, at its local variables."""
        terms, plate_of = self.network.plan.terms_of(block.name), self.groups.plate_of
        whole = tuple(t.node for t in terms if plate_of[t.node] is None)
        samples = self._samples(read, [t for t in terms if plate_of[t.node] is not None])
        here = state._replace(mu={**state.mu, **read.solved.mu})
        return self.network.target(block, here, whole, samples, column)

    def value(self, state: State, read: ReadBatch) -> float:
        """The bound as a batch estimates it, without the entropies of its local variables."""
        samples = self._samples(read, self.groups.grouped)
        here = State(state.lam, {**state.mu, **read.solved.mu}, 0)
        return self.network.partial_bound(here, self.groups.whole, samples, self.globals)

    def _contribution(self, rows: dict[str, Stats], batch: Batch) -> tuple[dict[str, Stats], float]:
        """S and the entropy of a part whose local variables have these natural parameters."""
        assert self.summary is not None
        summary = self.summary
        samples = tuple(self.groups.sampled(t, batch, 1.0) for t in self.groups.grouped)
        layouts, arrays = tuple(s.layout for s in samples), [s.arrays for s in samples]
        weights = {name: self.groups.entropy_weights(name, batch) for name in self.groups.local}

        def build() -> Callable[..., Any]:
            def function(lam: Any, arrays: Any, weights: Any, known: Any) -> tuple[dict[str, Any], Any]:
                samples = list(map(Sampled.rebuilt, layouts, arrays))
                return summary.contribution(lam, weights, samples, known)

            return function

        stats, entropy = self.network.compiled(("contribution", self.groups.plate, layouts), build)(
            rows, arrays, weights
        )
        return {key: (np.asarray(value),) for key, value in stats.items()}, float(entropy)


class NetworkGrouping:
    """The plates of a network along which groups are independent."""

    def __init__(self, problem: NetworkProblem) -> None:
        self.problem = problem

    def along(self, method: SVI, order: tuple[str, ...], executor: Executor | None = None) -> NetworkGroups:
        """For steps that remember nothing."""
        return NetworkGroups(PlateSource(self.problem, method, order, remember=False))

    def remembered(self, method: SVI, order: tuple[str, ...], executor: Executor | None = None) -> NetworkGroups:
        """For memoised steps."""
        return NetworkGroups(PlateSource(self.problem, method, order, remember=True, executor=executor))

    def best(self, order: tuple[str, ...], observations: int) -> SVI | None:
        """The plate whose groups hold the most local variables, if there are enough groups to cut into batches."""
        problem, best = self.problem, (0, 0, "")
        if problem.plan.n_observed < LEAST_BATCHES * observations:  # whichever the plate
            return None
        for plate in {plate for block in problem.blocks.values() for plate in block.plates}:
            try:
                groups = Groups(problem, plate, order)
            except (PlateMismatch, ValueError):
                continue
            seen = sum(len(problem.observed[term.node]) for term in groups.grouped if term.node in problem.observed)
            held, shared = (sum(_numbers(problem, n) for n in names) for names in (groups.local, groups.globals))
            batches = min(MOST_BATCHES, len(groups) // 2, seen // observations, held // max(1, shared))
            if groups.local and groups.globals and batches >= LEAST_BATCHES:
                best = max(best, (held, -math.ceil(len(groups) / batches), plate))
        return SVI({best[2]: -best[1]}, local_steps=1) if best[2] else None

    def coupled_means(self, method: SVI, order: tuple[str, ...]) -> tuple[str, ...]:
        """Effects on the groups and what is added to them elsewhere (crossed effects, an intercept): in turn they creep.

        Groups with categories of their own gain more from being visited in batches.
        """
        groups, nodes = Groups(self.problem, method.plate, order), self.problem.plan.nodes
        if any(nodes[name].categories is not None for name in groups.local):
            return ()
        cut = (names for names in self.problem.joint.groups if len({name in groups.local for name in names}) > 1)
        return next(cut, ())


def _numbers(problem: NetworkProblem, name: str) -> int:
    """How many numbers λ of a block has."""
    return sum(math.prod(shape) for shape in problem.plan.nodes[name].stat_shapes())


class _RemoteNetwork:
    """The groups of this process, which another one makes for itself when it is first asked."""

    def __init__(
        self, plan: Plan, backend: BackendName, method: SVI, order: tuple[str, ...], source: PlateSource | None = None
    ) -> None:
        self.plan, self.backend, self.method, self.order, self._source = plan, backend, method, order, source

    def __reduce__(self) -> Any:
        return _RemoteNetwork, (self.plan, self.backend, self.method, self.order)

    @property
    def source(self) -> PlateSource:
        """That of this process."""
        from natgrad.network.execute.problem import NetworkProblem

        if self._source is None:
            self._source = PlateSource(NetworkProblem(self.plan, self.backend), self.method, self.order, remember=True)
        return self._source


def _visit(network: _RemoteNetwork, *arguments: Any) -> Visit:
    """A part, in whatever process."""
    return network.source.visit(*arguments)
