"""A template, a table that is read in chunks, and the options of a fit in; the fit out: one run of the engine, as any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from natgrad._version import __version__
from natgrad.errors import NotConjugate, PlateMismatch, SymmetricStart
from natgrad.inference.auto import Auto
from natgrad.inference.engine import Result
from natgrad.inference.methods import SVI, VB, Children, GlobalBatch, Method
from natgrad.inference.moves import Moves
from natgrad.inference.options import checked_method, checked_step
from natgrad.inference.problem import State
from natgrad.inference.step_sizes import PerNode
from natgrad.inference.steppers.groups import KEY, GroupMemory, GroupStepper, WholePasses, cut_of, replace_batch
from natgrad.inference.steppers.stepper import Stepper
from natgrad.network.bind.bound import Binding, Rows, held
from natgrad.network.bind.build import Domain, Template
from natgrad.network.bind.chunk_starts import start_from_rows, warn_of_sorted_rows
from natgrad.network.bind.chunked import ChunkedEdges, ChunkSource
from natgrad.network.bind.chunking import sequences_along
from natgrad.network.bind.chunks import Chunks
from natgrad.network.bind.tables import CHUNK, Table, TableChunks, as_chunks
from natgrad.network.bind.windows import ChunkSums, Window
from natgrad.network.compile.origins import warn_of_offsets
from natgrad.network.compile.plan import remarks
from natgrad.network.execute.groups import NetworkGroups
from natgrad.network.fit_run import FitRun
from natgrad.network.results.fit import Fit, Settings
from natgrad.network.results.joint import joined_init
from natgrad.network.results.ties import warn_of_ties
from natgrad.network.start.components import NetworkComponents, asked_moves, moves_of, start_of_one
from natgrad.network.start.initial import make_start, started_nodes, symmetry_watch
from natgrad.network.start.order import default_order
from natgrad.validation import whole_number

__all__ = ["CannotBeCut", "fit_chunks"]

ChunkProblem = NetworkGroups | ChunkedEdges
# Batches of memoised VB, at most.
BATCHES = 10
# Numbers that are hidden in the rows of a chunk, if nobody says how long it is: beyond a processor's cache a row takes two to
# four times as long. Rows at least, and rows that are looked at to know how many numbers each has.
IN_CACHE, LEAST, FEW = 2**19, 5_000, 50


class CannotBeCut(Exception):
    """Rows that nobody asked to be read in chunks, and that cannot be."""


def fit_chunks(
    template: Template, tables: Rows, method: Method | None, chunk_rows: int | None, options: Mapping[str, Any]
) -> Fit:
    """The fit of a network to a table that is read in chunks."""
    if options["n_init"] is not None:
        raise ValueError(
            f"n_init = {options['n_init']}: several starts would read a table in chunks several times, which is not done; fit a "
            "part of the table with n_init=, and give its result as init="
        )
    if chunk_rows is None and isinstance(method, (Children, GlobalBatch)):
        raise CannotBeCut(f"{method} reads single rows")
    plate = _longest(template, tables)
    others = held(template, {name: table for name, table in tables.items() if name != plate})
    source = as_chunks(tables[plate])
    try:
        size = _rows_of_a_chunk(template, plate, source, others) if chunk_rows is None else chunk_rows
        chunks = Chunks(template, plate, source, others, whole_number(size, "chunk_rows"))
        run = _Run(template, chunks, options, tables)
        run.check_growth(asked_moves(chunks.plan, options.get("moves"), method))
    except (NotConjugate, PlateMismatch) as error:
        raise error if chunk_rows is not None else CannotBeCut(str(error)) from error
    return run.fit(method, options)


def go_on(
    binding: Binding,
    tables: Rows,
    settings: Settings,
    start: Callable[[Any, Domain], State],
    options: Mapping[str, Any],
) -> Fit:
    """A fit to other rows, from a start; ``start(problem, domain)`` makes its state."""
    template, old = binding.template, binding.problem
    assert binding.chunk_rows is not None
    plate = _longest(template, tables)
    others = held(template, {name: table for name, table in tables.items() if name != plate})
    earlier: ChunkSource = old.source
    before = earlier.chunks if earlier.plate == plate else None
    chunks = Chunks(template, plate, as_chunks(tables[plate]), others, binding.chunk_rows, before)
    backend = old.backend.name if before is not None else None
    run = _Run(template, chunks, {"backend": backend, "init": None, "order": settings.order}, tables)
    carry_over(earlier, run.source)
    settings = replace(settings, order=run.order)
    stepper, _ = run.stepper_for(run.problem, settings)
    state = with_memory(run.problem, stepper, start(run.problem, chunks.domain), settings.seed)
    return FitRun.continued(run, settings, None, None, options).run(state)


class _Run:
    """A network and its chunks, fitted as often as wanted."""

    def __init__(self, template: Template, chunks: Chunks, options: Mapping[str, Any], tables: Rows) -> None:
        self.template, self.chunks, self.tables = template, chunks, tables
        source = self.source = ChunkSource(chunks, options["backend"])
        inner = source.network
        init = self.init = joined_init(options["init"], chunks.plan)
        started = started_nodes(inner, init)
        values = {n: v for n, v in init.items() if not isinstance(v, str)} if isinstance(init, Mapping) else None
        self.finds_local = bool(started & set(chunks.local))
        if wrong := sorted(started_nodes(inner, values) & set(chunks.local)):
            raise ValueError(
                f"init: {wrong[0]!r} is hidden in every row, and rows are read in chunks: start {', '.join(source.blocks)}"
            )
        joint = {name: member.joint for name, member in chunks.plan.members.items()}
        order = list(dict.fromkeys(joint.get(name, name) for name in options["order"] or ()))
        order = order or [name for name in default_order(chunks.plan, started) if name in source.blocks]
        if sorted(order) != sorted(source.blocks):
            raise ValueError(f"order must name every hidden node that is not in rows once: {', '.join(source.blocks)}")
        self.order = source.globals = tuple(order)
        self.problem: ChunkProblem = ChunkedEdges(source) if source.summary is None else NetworkGroups(source)

    def fit(self, method: Method | None, options: Mapping[str, Any]) -> Fit:
        """A run from the start."""
        method = checked_method(method)
        problem, inner = self.problem_for(method), self.source.network
        seed = whole_number(options["seed"], "seed", least=0)
        warn_of_ties(problem.plan)
        warn_of_offsets(problem.plan, self.chunks.ends)
        moves = self._components(asked_moves(problem.plan, options.get("moves"), method))

        remembered = isinstance(options["step"], (Auto, type(None)))
        in_batches = method is None or (isinstance(method, SVI) and remembered)
        adds_up = self.source.summary is not None
        self.source.keeps_start = adds_up and in_batches and moves is None and bool(problem.plan.choices)

        def start() -> State:
            state = begun()
            if isinstance(method, SVI) and not (adds_up and remembered):
                share = self.chunks.n_rows / max(method.size, self.chunks.size)
                warn_of_sorted_rows(problem, state, PerNode() if remembered else options["step"], share, seed)
            return state

        def begun() -> State:
            if moves is not None and not moves.keep and options["init"] is None:
                return start_of_one(moves, problem.prior({}))
            try:
                if self.finds_local:
                    return start_from_rows(problem, self.init, seed)
                whole = make_start(inner, self.init, seed)
            except SymmetricStart:
                if options["init"] is not None:
                    raise
                return start_from_rows(problem, None, seed)
            return State({n: whole.lam[n] for n in problem.blocks}, {n: whole.mu[n] for n in problem.blocks}, 0)

        settings = Settings(method, checked_step(options["step"], method, problem), self.order, seed, __version__)
        about = {
            "method": method, "step": settings.step, "init": options["init"], "backend": problem.backend.name,
            "chunk_rows": self.chunks.size, **({"moves": asked} if (asked := options.get("moves")) is not None else {}),
        }  # fmt: skip
        return FitRun(self, settings, options, moves).run(start, (symmetry_watch(inner, options["init"]),), about)

    def moves_for(self, asked: Any, settings: Settings) -> Moves | None:
        """The components that move."""
        if asked == "keep":
            self.check_growth(asked)
        return self._components(asked)

    def check_growth(self, asked: Any) -> None:
        """Raise `PlateMismatch` where components are to be found that rows choose: their memberships are not held."""
        found = self._found(asked) if asked == "keep" or self.chunks.plan.asked_to_grow else ()
        if gates := [gate for part in found for gate in part.gates if gate in self.chunks.local]:
            raise PlateMismatch(
                f"the number of components that {gates[0]!r} chooses is found with all rows in memory: leave chunk_rows= out, or "
                "keep all places with moves=False"
            )

    def _found(self, asked: Any) -> tuple[NetworkComponents, ...]:
        """The components that would move in memory."""
        moves = moves_of(self.source.network, asked, default_order(self.chunks.plan))
        return () if moves is None else tuple(part for part in moves.parts if isinstance(part, NetworkComponents))

    def _components(self, asked: Any) -> Moves | None:
        """The components that move: those that no row chooses."""
        problem: Any = self.problem
        parts = tuple(
            NetworkComponents(problem, part.gates, part.plate, self.order, clustered=False)
            for part in self._found(asked)
            if not set(part.gates) & set(self.chunks.local)
        )
        return Moves(parts, asked == "keep") if parts else None

    def words(self, moving: bool) -> str:
        """Remarks on the plan."""
        if moving:
            self.source.told.clear()  # a move that was refused may have been asked last
        return remarks(self.problem.plan, moving)

    def fit_at(self, result: Result, settings: Settings) -> Fit:
        """The fit of a state."""
        problem: Any = self.problem
        binding = Binding(self.template, self.chunks.domain, self.tables, self.chunks.asked, problem)
        return Fit(problem, result, settings, self).bound_to(binding)

    def problem_for(self, method: Method | None) -> ChunkProblem:
        """That of all chunks; refuses methods that read single rows."""
        if isinstance(method, (Children, GlobalBatch)):
            raise TypeError(
                f"{method} reads single rows, and rows that are read in chunks are read together: use VB(), or SVI("
                f"{{{self.chunks.plate!r}: rows}}); or leave chunk_rows= out"
            )
        return self.problem

    def stepper_for(self, problem: ChunkProblem, settings: Settings) -> tuple[Stepper | None, str]:
        """The stepper of chunks as groups; of others the engine chooses it."""
        chunks, method, step = self.chunks, settings.method, settings.step
        words = f"{chunks.n_rows:,} rows in {chunks.n_chunks} chunks of {chunks.size:,}"
        adds_up = self.source.summary is not None
        if not adds_up and not isinstance(method, SVI):
            return None, words
        if isinstance(method, SVI) and method.plate != chunks.plate:
            raise PlateMismatch(
                f"SVI: batch names plate {method.plate!r}, and the rows that come in chunks lie along {chunks.plate!r}: SVI({{"
                f"{chunks.plate!r}: {chunks.size}}}) reads a chunk at a step"
            )
        groups = NetworkGroups(self.source) if isinstance(problem, ChunkedEdges) else problem
        limits, of_step = groups.local_limits, chunks.n_chunks
        if isinstance(method, SVI):
            of_step = min(max(1, round(method.size / chunks.size)), chunks.n_chunks)
        if not adds_up:
            rule = PerNode() if isinstance(step, Auto) else step
            why = f"{words}; {rule}: what chunks tell does not add up, and is not remembered"
            return GroupStepper(groups, of_step, *limits, rule, remember=False), why
        # Without hidden nodes chunks tell the same for ever: batches would exchange nothing.
        at_once = groups.n_groups == 1 or not chunks.local
        if isinstance(method, VB) or (method is None and at_once):
            return GroupStepper(
                groups, groups.n_groups, *limits, remember=True
            ), f"{words}; coordinate ascent on all of them"
        if isinstance(method, SVI) and not isinstance(step, Auto):
            return GroupStepper(groups, of_step, *limits, step, remember=False), f"{words}; {step}, as asked"
        # As many batches as make progress; the chunks of one are computed together, by whoever computes.
        size = of_step if isinstance(method, SVI) else -(-groups.n_groups // BATCHES)
        memoised = GroupStepper(groups, size, *limits, remember=True)
        why = f"{words}; memoised VB: given the globals they are independent"
        return (WholePasses(memoised) if method is None else memoised), why


def _rows_of_a_chunk(template: Template, plate: str, source: TableChunks, others: Mapping[str, Table]) -> int:
    """As many as keep what is hidden in them, for which the first few stand, in the cache of a processor."""
    if sequences_along(template, plate):
        return CHUNK
    few = next(iter(source.chunks(template.columns_on(plate), FEW)), None)
    if few is None or not few.n_rows:
        return CHUNK  # an empty table is told by who reads it
    plan = (probe := Chunks(template, plate, as_chunks(few), others, FEW)).plan
    hidden = [plan.nodes[name].stat_shapes() for name in probe.local]
    numbers = sum(int(np.prod(shape)) for shapes in hidden for shape in shapes)
    return CHUNK if not numbers else int(np.clip(IN_CACHE * probe.size // numbers, LEAST, CHUNK))


def _longest(template: Template, tables: Rows) -> str:
    """The plate whose table is read in chunks: the longest of those whose rows are nobody's levels."""
    free = [plate for plate in tables if plate not in template.level_plates]
    if not free:
        raise PlateMismatch("rows of every table are read by their ids: none can come in chunks; leave chunk_rows= out")

    def length(plate: str) -> float:
        table = tables[plate]
        return float("inf") if table.n_rows is None else float(table.n_rows)

    return max(free, key=length)


# Where rows came or went, the sums of chunks that stayed are carried over bit by bit. Sums by the elements of an index have an
# axis of levels: a level that is new has none, one that is gone is left out. The rest is what it was. Messages of the touched
# chunks are summed anew, nothing is subtracted, and a run goes on from there.


def carry_over(old: ChunkSource, new: ChunkSource) -> None:
    """Keep the sums of the chunks that two tables share."""
    if old.summary is None or new.summary is None or not _alike(old, new):
        return
    axes = _level_axes(new)
    if axes is None:
        return
    for key in new.chunks.keys:
        if key in old.told:
            new.told[key] = _moved(old.told[key], axes, old.chunks.domain, new.chunks.domain)


def _alike(old: ChunkSource, new: ChunkSource) -> bool:
    """Whether two sources have the same terms, in the same order, measured from the same origins."""
    a, b = old.chunks, new.chunks
    return a._keys == b._keys and a._origins is b._origins and (a.lost, a.parts) == (b.lost, b.parts)


def _level_axes(source: ChunkSource) -> dict[str, str] | None:
    """The plate of the first axis of each sum by an index; None if levels are an axis in any other way."""
    levels, plate_of = source.chunks.domain.levels, {}
    assert source.summary is not None
    for term, entries in source.summary.entries.items():
        for number, entry in enumerate(entries):
            if any(label in levels for label in entry.kept):
                return None
            if entry.plate is not None and entry.plate in levels:
                plate_of[source.summary.key(term, number)] = entry.plate
    return plate_of


def _moved(told: ChunkSums, axes: dict[str, str], before: Domain, after: Domain) -> ChunkSums:
    parts, windows = {}, {}
    for key, (array,) in told.parts.items():
        if key in told.windows:
            (window,), old, new = told.windows[key], before.levels[axes[key]], after.levels[axes[key]]
            codes = new.find(old.ids[window.levels])
            array, windows[key] = array[codes >= 0], (Window(0, codes[codes >= 0], len(new.ids)),)
        elif key in axes:
            codes = before.levels[axes[key]].find(after.levels[axes[key]].ids)
            if len(codes) != len(array) or not np.array_equal(codes, np.arange(len(array))):
                array = np.where((codes >= 0).reshape(-1, *(1,) * (array.ndim - 1)), array[np.maximum(codes, 0)], 0.0)
        parts[key] = (array,)
    return ChunkSums(parts, told.value, windows)


def with_memory(problem: Any, stepper: Any, state: State, seed: int) -> State:
    """The state from which a run goes on: sums of chunks that stayed are there, the others are read."""
    inner, source = stepper.inner if isinstance(stepper, WholePasses) else stepper, problem.source
    if (
        not isinstance(inner, GroupStepper)
        or not inner.remember
        or not any(k in source.told for k in source.chunks.keys)
    ):
        return state
    memory = GroupMemory({}, 0.0, (None,) * inner.n_batches, (problem.group_plate, inner.n_batches, seed))
    for number, groups in enumerate(cut_of(seed, problem.n_groups, inner.n_batches)):
        memory = replace_batch(memory, number, source.solve_remembering(state, groups))
    after: State = problem.global_step(state, memory.messages).state
    return after._replace(memory={KEY: memory})
