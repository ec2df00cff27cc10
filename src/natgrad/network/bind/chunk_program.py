"""Compute the messages of a chunk to the globals, from its arrays and the moments of the globals.

Pure functions on a backend, the same in every process: hidden nodes of rows are solved here, and forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from natgrad.network.bind.chunks import Known
from natgrad.network.bind.windows import ChunkSums, Window, Windows
from natgrad.network.compile.plan import Plan, weight_key
from natgrad.network.execute.backend import BackendName
from natgrad.network.execute.problem import NetworkProblem
from natgrad.network.execute.program import BoundProgram
from natgrad.network.execute.update import block_update

__all__ = ["ChunkProgram", "ReadyChunk"]

Stats = tuple[Any, ...]
Moments = Mapping[str, Stats]
# Rounds over hidden nodes of a row that read one another, at most, and the change of a moment below which they have settled: far
# below what is promised for chunks of different sizes.
MOST_ROUNDS, SETTLED = 500, 1e-14


class ReadyChunk(NamedTuple):
    """A chunk that is ready to tell: its program, its arrays as that wants them, and the keys under which they were read."""

    program: ChunkProgram
    arrays: dict[str, Any]
    keys: tuple[str, ...]

    def tell(self, function: str, *arguments: Any) -> ChunkSums:
        """What it tells."""
        told: ChunkSums = getattr(self.program, function)(self.arrays, *arguments)
        return told


class ChunkProgram:
    """The functions of a chunk, on a backend; the same in every process.

    Parameters
    ----------
    plan : Plan, of a chunk
    local : names of the hidden nodes of rows, parents first
    plate : name of the plate of rows
    backend : name of the backend
    """

    def __init__(self, plan: Plan, local: tuple[str, ...], plate: str, backend: BackendName) -> None:
        self.problem = NetworkProblem(plan, backend)
        self.plan, self.local, self.plate = plan, local, plate
        self.weight_key = weight_key(plate)
        self.on, self.program = self.problem.backend, self.problem.program
        self.on.varies = True
        # A chain lies along rows, though its term does not.
        self.rows = tuple(name for name in plan.terms if any(p.name == plate for p in plan.nodes[name].plates))
        self.above = tuple(name for name in plan.terms if name not in self.rows)
        self.windows = Windows(plan, local, plate, self.rows)
        # Without neighbours among themselves, one update given the globals is exact.
        self.meet = any(self.problem.neighbours(name) & set(local) for name in local)
        with self.on.running():
            self.problem._fold_everything()
        self._functions: dict[Any, Callable[..., Any]] = {}

    def call(self, key: Any, build: Callable[[], Callable[..., Any]], *arguments: Any) -> Any:
        """A function of the backend, made once."""
        if key not in self._functions:
            self._functions[key] = self.on.compile(build())
        with self.on.running():
            return self._functions[key](*arguments)

    def arrays(self, known: Known) -> dict[str, Any]:
        """The arrays of a chunk where the backend wants them, folded, with its windows."""
        with self.on.running():
            cut = self.windows.cut(self.program.with_data(known))
            return {key: self.on.put(array) for key, array in cut.items()}

    def ready(self, known: Known) -> ReadyChunk:
        """A chunk with its arrays; one with a plan of its own, a chain's, has its own program."""
        own = self
        if known.plan is not None:
            plan = replace(known.plan, known=dict(known))
            own = ChunkProgram(plan, self.local, self.plate, self.on.name)
        arrays = own.arrays(known)
        return ReadyChunk(own, arrays, (*known, *(key for key in own.windows.window_keys if key in arrays)))

    def solved(self, mu: Moments, known: Any) -> tuple[dict[str, Stats], dict[str, Stats], Any]:
        """Solve the hidden nodes of a chunk's rows given the globals: their λ, moments and entropy; to be traced."""
        xp, here, lam = self.on.xp, dict(mu), {}
        bound = BoundProgram(self.program, known, changing=True)
        updates = {name: block_update(bound, self.plan.blocks[name]) for name in self.local}
        for name in self.local:
            block, shapes = self.plan.blocks[name], self.plan.nodes[name].stat_shapes()
            empty = tuple(xp.zeros(shape) for shape in shapes)
            lam[name] = here[name] = empty
            if self.meet or block.n_columns > 1:
                lam[name] = self.program.target(block, here, known, (name,))
                here[name] = block.family.expected_stats(lam[name])

        def once(carry: Any) -> Any:
            lam, own, _, _, count = carry
            entropy, change = xp.zeros(()), xp.zeros(())
            for name in self.local:
                old = own[name]
                new, fresh, _, gained = updates[name](lam, {**mu, **own})
                for a, b in zip(fresh, old, strict=True):
                    change = xp.maximum(change, xp.max(xp.abs(a - b)) / (1.0 + xp.max(xp.abs(a))))
                lam, own, entropy = {**lam, name: new}, {**own, name: fresh}, entropy + gained
            return lam, own, entropy, change, count + 1

        if not self.local:
            return {}, {}, xp.zeros(())
        carry = once((lam, {name: here[name] for name in self.local}, xp.zeros(()), xp.zeros(()), xp.int32(0)))
        if self.meet:
            carry = self.on.repeat_while(lambda c: (c[3] > SETTLED) & (c[4] < MOST_ROUNDS), once, carry)
        return carry[0], carry[1], carry[2]

    # -- additive --

    @cached_property
    def summary(self) -> Any:
        """What adds up; raises `NotAdditive`."""
        from natgrad.network.execute.summary import Summary

        plate_of = {name: self.plate if name in self.rows else None for name in self.plan.terms}
        order = tuple(name for name in self.plan.blocks if name not in self.local)
        return Summary(self.problem, self.local, order, plate_of)

    def statistics(self, known: Known, mu: Moments) -> ChunkSums:
        """S of a chunk, given its `arrays`, and the entropy of what is hidden in its rows."""

        def build() -> Callable[..., Any]:
            def function(mu: Any, known: Any) -> Any:
                _, local, entropy = self.solved(self.windows.moments(mu, known, self.on.xp), known)
                return self.summary.whole_statistics(local, known, self.windows.widths(known)), entropy

            return function

        stats, entropy = self.call("statistics", build, mu, known)
        plates = self.summary.plates
        cut = {
            key: self.windows.trimmed_along({plates[key]: 0} if key in plates else {}, (value,), known)
            for key, value in stats.items()
        }
        return _told(cut, float(entropy))

    def naturals(self, known: Known, mu: Moments) -> ChunkSums:
        """λ of the hidden nodes of a chunk's rows, given the globals."""

        def build() -> Callable[..., Any]:
            return lambda mu, known: self.solved(self.windows.moments(mu, known, self.on.xp), known)[0]

        lam = self.call("naturals", build, mu, known)
        return ChunkSums({name: tuple(map(np.asarray, stats)) for name, stats in lam.items()}, 0.0)

    # -- not additive --

    def messages(
        self,
        known: Known,
        before: Moments,
        mu: Moments,
        names: tuple[str, ...],
        column: int | None,
        valued: bool,
        terms: tuple[str, ...] | None = None,
    ) -> ChunkSums:
        """What a chunk's rows tell some globals; with ``valued``, the terms that these do not touch, and entropies, too.

        ``terms`` are those that speak, all of the rows by default. Moments that nobody reads may be left out.
        """
        rows = self.rows if terms is None else terms

        def build() -> Callable[..., Any]:
            def function(before: Any, mu: Any, column: Any, known: Any) -> Any:
                _, local, entropy = self.solved(self.windows.moments(before, known, self.on.xp), known)
                here = {**self._blank(names, known), **self.windows.moments(mu, known, self.on.xp), **local}
                parts = {
                    name: self.program.target(self.plan.blocks[name], here, known, rows, (), column) for name in names
                }
                total = entropy
                for term in rows if valued else ():
                    for piece in self.program.pieces(self.plan.terms[term]):
                        apart = self.program.apart(piece, names[0]) if names else piece
                        total = total + self.on.value(apart, here, known)
                return parts, total

            return function

        number = None if column is None else np.int32(column)
        key = ("messages", names, column is not None, valued, rows)
        parts, total = self.call(key, build, before, mu, number, known)
        return _told({name: self.windows.trimmed(name, part, known) for name, part in parts.items()}, float(total))

    def _blank(self, names: tuple[str, ...], known: Any) -> dict[str, Stats]:
        """Zeros as large as what is told to some globals: of their own moments only the shapes are asked for."""
        widths, zeros = self.windows.widths(known), {}
        for name in names:
            cut = {axis: widths[plate] for plate, axis in self.windows.axes.get(name, {}).items() if plate in widths}
            shapes = self.plan.nodes[name].stat_shapes()
            zeros[name] = tuple(
                self.on.xp.zeros(tuple(cut.get(axis, size) for axis, size in enumerate(shape))) for shape in shapes
            )
        return zeros


def _told(trimmed: Mapping[str, tuple[Stats, tuple[Window, ...]]], value: float) -> ChunkSums:
    """Arrays with their windows, as what a chunk tells."""
    windows = {key: own for key, (_, own) in trimmed.items() if own}
    return ChunkSums({key: stats for key, (stats, _) in trimmed.items()}, value, windows)
