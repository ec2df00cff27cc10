"""Gibbs sampling of a network whose rows are read in chunks: one pass over the table is a sweep of all chains.

Hidden nodes of rows are drawn inside their chunk, given the values of the globals, and forgotten; what the rows then tell the
globals is added up over chunks, and the globals are drawn from that, one block after the other. Rows without hidden nodes tell
the same at every sweep: the table is read once. Where a row reads several globals through different indices nothing adds up,
and every block of every chain takes a pass. Random numbers of rows are a function of seed, sweep, chain and chunk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConjugate
from natgrad.inference.problem import Block, BlockInfo, State
from natgrad.inference.steppers.gibbs import Schedule, drawn_point, keep_draw, moves_of, no_moves, point_stats, room_for
from natgrad.inference.steppers.stepper import StepInfo
from natgrad.network.bind.chunk_groups import ChunkGroups
from natgrad.network.bind.chunked import ChunkedEdges
from natgrad.network.bind.windows import summed
from natgrad.network.compile.plan import weight_key
from natgrad.network.draws.labels import Exchange, Relabelling, exchange_labels, exchanges_of
from natgrad.network.execute.numpy_backend import HOST
from natgrad.network.execute.update import Parts, update
from natgrad.posterior.drawing import draws_so_far, run_chains, schedule_of, stride_of
from natgrad.posterior.draws import DrawnFactor, Draws
from natgrad.random import Stream, generator

if TYPE_CHECKING:
    from natgrad.network.results.fit import Fit

__all__ = ["ChunkedGibbs", "draw_chunks"]

Array = npt.NDArray[Any]
Stats = tuple[Any, ...]


def draw_chunks(
    fit: Fit, n: int, chains: int, warmup: int | None, thin: int, seed: int, names: Sequence[str] | None, **options: Any
) -> Draws:
    """Draws of the globals of a fit to chunks; arguments are those of ``Fit.draws``."""
    schedule, settings = schedule_of(n, chains, warmup, thin, seed)
    problem: Any = fit.problem
    if isinstance(names, str):
        raise TypeError(f"names must be a list of names, got the text {names!r}: write [{names!r}]")
    for name in names or ():
        if name in problem.program.local:
            raise ValueError(
                f"names: {name!r} is hidden in every row, and rows are read in chunks: it is drawn, not kept"
            )
    members = problem.plan.members
    asked = {members[name].joint if name in members else fit[name].name for name in names or ()}
    _check(problem)
    sizes = {name: int(np.size(block.family.mean(fit.state.lam[name]))) for name, block in problem.blocks.items()}
    strides = {name: 1 if name in asked else stride_of(size, schedule, chains) for name, size in sizes.items()}
    gibbs = ChunkedGibbs(problem, schedule, chains, strides, fit.state)
    start = gibbs.start(fit.state.lam, settings.seed)

    def found(state: State) -> Draws:
        made, factors = draws_so_far(schedule, settings, state.t), {}
        for name, block in problem.blocks.items():
            kept = state.memory["kept"][name][:, : -(-made.n // strides[name])]
            first, second = state.memory["sums"][name]
            own = {n: (m.family, (..., *m.place)) for n, m in members.items() if m.joint == name}
            for node, (family, at) in (own or {name: (block.family, (...,))}).items():
                origin = None if block.origin is None or family.is_precision else np.asarray(block.origin)[at]
                factors[node] = DrawnFactor(
                    node, family, block.plates, kept[at], first[at], second[at], made.n, strides[name], origin
                )
        return Draws(factors, made, *moves_of(state.memory), labels=fit._labels)

    about = {"names": sorted(asked), "backend": problem.backend.name, "chunks": problem.chunks.n_chunks}
    return run_chains(problem, gibbs, start, settings, about, found, **options)


def _check(problem: Any) -> None:
    """What a pass cannot draw, in words."""
    program, local = problem.program, problem.program.local
    reason = ""
    if problem.chunks.chained:
        reason = "sequences are hidden along its rows"
    elif local and isinstance(problem, ChunkedEdges):
        reason = f"rows have a hidden node ({local[0]!r}) and read several others through different indices"
    elif program.meet:
        reason = f"hidden nodes of a row ({', '.join(map(repr, local))}) read one another"
    elif any(program.plan.blocks[name].n_columns > 1 for name in local):
        reason = f"elements of {local[0]!r} meet one another inside a row"
    bounds = [n for n, b in program.plan.blocks.items() if b.family.is_bound]
    if bounds or any(node.is_bounded for node in program.plan.nodes.values()):
        reason = "a bound stands in the place of a law, which has no conditional to draw from"
    if any(b.colours is not None for b in problem.blocks.values()):
        reason = "a row reads two elements of one node"
    if reason:
        raise NotConjugate(f"draws: this network was read in chunks, and {reason}: fit it without chunk_rows= to draw")


class ChunkedGibbs:
    """A stepper: one sweep of all chains.

    The state is that of `natgrad.network.draws.gibbs.Gibbs`, of the globals alone.

    Parameters
    ----------
    problem : ChunkGroups or ChunkedEdges
    schedule : Schedule
    chains : int
    strides : {block: every how many draws one is kept}
    at : State, q: whose labels are kept
    """

    monotone, steps_per_pass, batches = False, 1, 1

    def __init__(
        self,
        problem: ChunkGroups | ChunkedEdges,
        schedule: Schedule,
        chains: int,
        strides: Mapping[str, int],
        at: State,
    ) -> None:
        self.problem, self.schedule, self.chains, self.strides = problem, schedule, chains, strides
        self.plan, self.local = problem.program.plan, problem.program.local
        self.sizes = {name: self.plan.nodes[name].size for name in self.plan.blocks}
        self._told: dict[str, Any] | None = None
        self.relabel: Relabelling | None = None
        self.exchanges: list[Exchange] = []
        if self.local:
            mu = {name: at.mu[name] for name in problem.blocks}
            rows = next(problem.visit("hidden", mu, numbers=[0])).parts
            self._refuse_weights()
            self.relabel = Relabelling(self.plan, {**mu, **rows})
            # Rows are drawn anew after a move: what they say is the same whichever labels change places.
            self.exchanges = exchanges_of(self.plan, chains, local=self.local)

    def _refuse_weights(self) -> None:
        key = weight_key(self.problem.chunks.plate)
        for chunk in self.problem.chunks.map(lambda ready: np.asarray(ready.arrays.get(key, np.ones(1)))):
            if not np.isin(chunk, (0.0, 1.0)).all():
                raise NotConjugate(
                    f"draws: rows of plate {self.problem.chunks.plate!r} have weights and hidden nodes, and were read in chunks: "
                    "fit without chunk_rows= to draw"
                )

    def start(self, lam: Mapping[str, Stats], seed: int) -> State:
        """Every chain at a draw of its own from q."""
        rng = generator(seed, Stream.DRAWS)
        values = {n: b.family.sample(lam[n], rng, self.chains) for n, b in self.problem.blocks.items()}
        stats = {n: point_stats(b.family, values[n], self.sizes[n]) for n, b in self.problem.blocks.items()}
        sums = {n: (np.zeros(value.shape), np.zeros(value.shape)) for n, value in values.items()}
        kept = room_for(values, self.strides, self.schedule)
        return State({}, stats, 0, {"values": values, "sums": sums, "kept": kept, **no_moves(self.chains)})

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        """Rows of all chains in one pass, then the globals of one chain after the other."""
        info: dict[str, BlockInfo] = {}
        stats = {name: tuple(np.array(part) for part in parts) for name, parts in state.mu.items()}
        values = {name: np.array(value) for name, value in state.memory["values"].items()}
        first = {name: np.zeros(np.shape(value)) for name, value in values.items()}
        second = {name: np.zeros(np.shape(value)) for name, value in values.items()}
        with np.errstate(all="ignore"):
            exchanged = exchange_labels(self.exchanges, stats, values, seed, state.t)
            told = self._rows(stats, seed, state.t)
            for chain in range(self.chains):
                rng = generator(seed, Stream.DRAWS, state.t, 0, chain)
                here = {name: tuple(part[chain] for part in parts) for name, parts in stats.items()}
                for name, block in self.problem.blocks.items():
                    drawn = self._drawn(block, here, values[name][chain], told, chain, rng)
                    info[name] = BlockInfo(drawn is not None, 0.0)
                    if drawn is None:
                        return state, StepInfo(info, float("nan"), self.problem.n_messages, unbounded=True)
                    lam, value, here[name] = drawn
                    values[name][chain] = value
                    mean = value if self.strides.get(name) == 1 else block.family.mean(lam)
                    spread = 0.0 if self.strides.get(name) == 1 else block.family.var(lam)
                    first[name][chain], second[name][chain] = mean, spread + mean**2
                    for part, own in zip(stats[name], here[name], strict=True):
                        part[chain] = own
        moved = self._relabelled(stats, values, first, second, told)
        moves = {"relabelled": moved, "exchanged": exchanged}
        memory = {**state.memory, "values": values, **{n: state.memory[n] + more for n, more in moves.items()}}
        keep_draw(memory, self.schedule, self.strides, state.t, first, second)
        done = StepInfo(info, float("nan"), self.problem.n_messages, unbounded=True)
        return State({}, stats, state.t + 1, memory), done

    def finish(self, state: State) -> State:
        """The last sweep is a state like any other."""
        return state

    # -- parts --

    def _rows(self, stats: Mapping[str, Stats], seed: int, t: int) -> dict[str, Any]:
        """What all rows tell, by chain: read once where nothing is hidden in them; nothing where it does not add up."""
        if isinstance(self.problem, ChunkedEdges):
            return {}
        if self._told is not None:
            return self._told
        chains = tuple(
            {name: tuple(part[chain] for part in parts) for name, parts in stats.items()}
            for chain in range(self.chains)
        )
        asked = chains if self.local else chains[:1]
        visits = self.problem.chunks.map(lambda pair: pair[1].tell("drawn", pair[0], seed, t, asked), numbered=True)
        told = {key: tuple(map(np.asarray, value)) for key, value in summed(visits).parts.items()}
        if not self.local:
            self._told = {f"{c} {key[2:]}": value for key, value in told.items() for c in range(self.chains)}
            return self._told
        return told

    def _drawn(
        self,
        block: Block,
        here: dict[str, Stats],
        value: Array,
        told: dict[str, Any],
        chain: int,
        rng: np.random.Generator,
    ) -> tuple[Stats, Array, Stats] | None:
        """The conditional, value and statistics of a block of one chain; column after column where they meet in a row."""
        name, size, good = block.name, self.sizes[block.name], True

        def message(number: int | None, parts: Parts) -> Stats:
            return self._conditional(block, {**here, name: parts[1]}, told, chain, number)

        def draw(old: Parts, target: Stats) -> Parts:
            nonlocal good
            lam = tuple(np.broadcast_to(part, like.shape) for part, like in zip(target, old[1], strict=True))
            good = bool(np.all(block.family.valid(lam)))
            if not good:
                return old
            drawn, fresh = drawn_point(block.family, lam, rng, size)
            return lam, fresh, (drawn,)

        start = tuple(np.zeros_like(part) for part in here[name]), here[name], (value,)
        lam, fresh, (drawn,) = update(HOST, block, start, message, draw, lambda: not good)
        return (lam, drawn, fresh) if good else None

    def _conditional(
        self, block: Block, here: Mapping[str, Stats], told: dict[str, Any], chain: int, column: int | None
    ) -> Stats:
        """The natural parameter of a block of one chain given values of the other globals and of the rows."""
        problem = self.problem
        if isinstance(problem, ChunkedEdges):
            target = problem.target(block, State({}, dict(here), 0), column=column)
            return tuple(np.asarray(part) for part in target)
        head = f"{chain} "
        own = {key[len(head) :]: value for key, value in told.items() if key.startswith(head)}
        return problem.target_from(block, here, {k: v for k, v in own.items() if k not in self.local}, column)

    def _relabelled(
        self, stats: dict[str, Stats], values: dict[str, Array], first: dict[str, Array], second: dict[str, Array],
        told: dict[str, Any],
    ) -> Array:  # fmt: skip
        """Labels put back into the order of q, by the rows of the first chunk."""
        if self.relabel is None or not self.relabel.sets:
            return np.zeros(self.chains, dtype=np.int64)
        rows = {
            name: tuple(
                np.stack(parts) for parts in zip(*(told[f"{c} {name}"] for c in range(self.chains)), strict=True)
            )
            for name in self.local
        }
        everything, drawn = {**stats, **rows}, {**values, **{name: parts[0] for name, parts in rows.items()}}
        moved = self.relabel.put_back(everything, drawn, first, second)
        for name in self.problem.blocks:
            stats[name], values[name] = everything[name], drawn[name]
        return moved
