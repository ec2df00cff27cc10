"""What chunks told last in; the same for chunks that stayed when rows came or went elsewhere, bit by bit, out.

Sums by the elements of an index have an axis of levels: a level that is new was told nothing, one that is gone is left out. The
rest is what it was. What the touched chunks tell is summed anew, nothing is subtracted, and a run goes on from there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import State
from natgrad.inference.steppers.groups import KEY, GroupMemory, GroupStepper, WholePasses, cut_of, replace_batch
from natgrad.network.bind.build import Domain
from natgrad.network.bind.chunk_groups import ChunkGroups
from natgrad.network.bind.windows import ChunkSums, Window

__all__ = ["carry_over", "with_memory"]

Ints = npt.NDArray[np.int64]


def carry_over(old: Any, new: Any) -> None:
    """Have a problem remember what the chunks told that it shares with an older one."""
    if not isinstance(old, ChunkGroups) or not isinstance(new, ChunkGroups) or not _alike(old, new):
        return
    axes = _level_axes(new)
    if axes is None:
        return
    for key in new.chunks.keys:
        if key in old.told:
            new.told[key] = _moved(old.told[key], axes, old.chunks.domain, new.chunks.domain)


def _alike(old: ChunkGroups, new: ChunkGroups) -> bool:
    """Whether two problems have the same terms, in the same order, measured from the same origins."""
    a, b = old.chunks, new.chunks
    return a._keys == b._keys and a._origins is b._origins and (a.lost, a.parts) == (b.lost, b.parts)


def _level_axes(problem: ChunkGroups) -> dict[str, str] | None:
    """The plate of the first axis of each sum by an index; None if levels are an axis in any other way."""
    levels, plate_of = problem.chunks.domain.levels, {}
    for term, entries in problem.program.summary.entries.items():
        for number, entry in enumerate(entries):
            if any(label in levels for label in entry.kept):
                return None
            if entry.plate is not None and entry.plate in levels:
                plate_of[problem.program.summary.key(term, number)] = entry.plate
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
    """The state from which a run goes on: chunks that stayed have said what they said, the others are read."""
    inner = stepper.inner if isinstance(stepper, WholePasses) else stepper
    if not isinstance(problem, ChunkGroups) or not isinstance(inner, GroupStepper) or not inner.remember:
        return state
    if not any(key in problem.told for key in problem.chunks.keys):
        return state
    memory = GroupMemory({}, 0.0, (None,) * inner.n_batches, (problem.group_plate, inner.n_batches, seed))
    for number, groups in enumerate(cut_of(seed, problem.n_groups, inner.n_batches)):
        memory = replace_batch(memory, number, problem.solve_remembering(state, groups))
    after = problem.global_step(state, memory.messages).state
    return after._replace(memory={KEY: memory})
