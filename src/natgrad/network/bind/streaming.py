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
from natgrad.inference.steppers.groups import GroupStepper, WholePasses
from natgrad.inference.steppers.stepper import Stepper
from natgrad.network.bind.bound import Binding, Rows, held
from natgrad.network.bind.build import Domain, Template
from natgrad.network.bind.chunk_groups import ChunkGroups, carry_over, chunked_problem, with_memory
from natgrad.network.bind.chunk_starts import start_from_rows, warn_of_sorted_rows
from natgrad.network.bind.chunked import ChunkBatches, ChunkedEdges
from natgrad.network.bind.chunking import sequences_along
from natgrad.network.bind.chunks import Chunks
from natgrad.network.bind.tables import CHUNK, Table, TableChunks, as_chunks
from natgrad.network.compile.origins import warn_of_offsets
from natgrad.network.compile.plan import remarks
from natgrad.network.fit_run import FitRun
from natgrad.network.results.fit import Fit, Settings
from natgrad.network.results.joint import joined_init
from natgrad.network.results.ties import warn_of_ties
from natgrad.network.start.components import NetworkComponents, asked_moves, moves_of, start_of_one
from natgrad.network.start.initial import make_start, started_nodes, symmetry_watch
from natgrad.network.start.order import default_order
from natgrad.validation import whole_number

__all__ = ["CannotBeCut", "fit_chunks"]

ChunkProblem = ChunkGroups | ChunkedEdges
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
    before = old.chunks if old.chunks.plate == plate else None
    chunks = Chunks(template, plate, as_chunks(tables[plate]), others, binding.chunk_rows, before)
    backend = old.backend.name if before is not None else None
    run = _Run(template, chunks, {"backend": backend, "init": None, "order": settings.order}, tables)
    carry_over(old, run.problem)
    settings = replace(settings, order=run.order)
    stepper, _ = run.stepper_for(run.problem, settings)
    state = with_memory(run.problem, stepper, start(run.problem, chunks.domain), settings.seed)
    return FitRun.continued(run, settings, None, None, options).run(state)


class _Run:
    """A network and its chunks, fitted as often as wanted."""

    def __init__(self, template: Template, chunks: Chunks, options: Mapping[str, Any], tables: Rows) -> None:
        self.template, self.chunks, self.tables = template, chunks, tables
        probe = chunked_problem(chunks, (), options["backend"])
        inner = probe.program.problem
        init = self.init = joined_init(options["init"], chunks.plan)
        started = started_nodes(inner, init)
        values = {n: v for n, v in init.items() if not isinstance(v, str)} if isinstance(init, Mapping) else None
        self.finds_local = bool(started & set(chunks.local))
        if wrong := sorted(started_nodes(inner, values) & set(chunks.local)):
            raise ValueError(
                f"init: {wrong[0]!r} is hidden in every row, and rows are read in chunks: start {', '.join(probe.blocks)}"
            )
        joint = {name: member.joint for name, member in chunks.plan.members.items()}
        order = list(dict.fromkeys(joint.get(name, name) for name in options["order"] or ()))
        order = order or [name for name in default_order(chunks.plan, started) if name in probe.blocks]
        if sorted(order) != sorted(probe.blocks):
            raise ValueError(f"order must name every hidden node that is not in rows once: {', '.join(probe.blocks)}")
        self.order = tuple(order)
        self.problem: ChunkProblem = probe
        if isinstance(probe, ChunkGroups):
            probe.order = self.order

    def fit(self, method: Method | None, options: Mapping[str, Any]) -> Fit:
        """A run from the start."""
        method = checked_method(method)
        problem, inner = self.problem_for(method), self.problem.program.problem
        seed = whole_number(options["seed"], "seed", least=0)
        warn_of_ties(problem.plan)
        warn_of_offsets(problem.plan, self.chunks.ends)
        moves = self._components(asked_moves(problem.plan, options.get("moves"), method))

        adds_up, remembered = isinstance(problem, ChunkGroups), isinstance(options["step"], (Auto, type(None)))
        if isinstance(problem, ChunkGroups):
            in_batches = method is None or (isinstance(method, SVI) and remembered)
            problem.keeps_start = in_batches and moves is None and bool(problem.plan.choices)

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
        moves = moves_of(self.problem.program.problem, asked, default_order(self.chunks.plan))
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
        if moving and isinstance(self.problem, ChunkGroups):
            self.problem.told.clear()  # a move that was refused may have been asked last
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
        if isinstance(problem, ChunkedEdges) and not isinstance(method, SVI):
            return None, words
        if isinstance(method, SVI) and method.plate != chunks.plate:
            raise PlateMismatch(
                f"SVI: batch names plate {method.plate!r}, and the rows that come in chunks lie along {chunks.plate!r}: SVI({{"
                f"{chunks.plate!r}: {chunks.size}}}) reads a chunk at a step"
            )
        if isinstance(problem, ChunkedEdges):
            assert isinstance(method, SVI)
            size = min(max(1, round(method.size / chunks.size)), chunks.n_chunks)
            rule = PerNode() if isinstance(step, Auto) else step
            batches = ChunkBatches(problem, self.order)
            whole = GroupStepper(batches, size, *batches.local_limits, rule, remember=False)
            return whole, f"{words}; {rule}: what chunks tell does not add up, and is not remembered"
        # Without hidden nodes chunks tell the same for ever: batches would exchange nothing.
        at_once = problem.n_groups == 1 or not problem.program.local
        if isinstance(method, VB) or (method is None and at_once):
            whole = GroupStepper(problem, problem.n_groups, *problem.local_limits, remember=True)
            return whole, f"{words}; coordinate ascent on all of them"
        # As many batches as make progress; the chunks of one are computed together, by whoever computes.
        size = -(-problem.n_groups // BATCHES)
        if isinstance(method, SVI):
            size = min(max(1, round(method.size / chunks.size)), chunks.n_chunks)
            if not isinstance(step, Auto):
                return GroupStepper(
                    problem, size, *problem.local_limits, step, remember=False
                ), f"{words}; {step}, as asked"
        memoised = GroupStepper(problem, size, *problem.local_limits, remember=True)
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
