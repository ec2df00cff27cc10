"""What a run remembers of batches of groups: sums over those seen, and what each of them said, so that it can be exchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import GroupProblem, GroupResult, State
from natgrad.inference.schema import refuse
from natgrad.random import Stream, generator

__all__ = [
    "BEFORE",
    "KEY",
    "BatchMemory",
    "GroupMemory",
    "check_shapes",
    "completed",
    "cut_of",
    "n_remembered",
    "near",
    "replace_batch",
    "rows_of",
]

Stats = tuple[Any, ...]
ByBlock = Mapping[str, Stats]
Ints = npt.NDArray[np.int64]
KEY, BEFORE = "groups", "before"
# Sums that were exchanged for many passes differ by rounding from sums that are made anew.
NEAR = 1e-9


class BatchMemory(NamedTuple):
    """What is remembered of one batch."""

    rows: Any
    messages: dict[str, Stats]
    rest: float


class GroupMemory(NamedTuple):
    """Messages and rest summed over the batches seen; what each batch holds, None if it was not seen.

    ``cut`` tells which batches these are: the plate, how many, and the seed.
    """

    messages: dict[str, Stats]
    rest: float
    batches: tuple[BatchMemory | None, ...]
    cut: tuple[str, int, int] | None = None


def rows_of(problem: GroupProblem, state: State, seed: int) -> list[tuple[Ints | None, Any]]:
    """The groups and the rows of every batch that a state remembers; empty if it does not remember all of them."""
    memory = state.memory.get(KEY)
    if memory is None or any(kept is None for kept in memory.batches):
        return []
    cut = cut_of(seed, problem.n_groups, len(memory.batches))
    return [(groups, kept.rows) for groups, kept in zip(cut, memory.batches, strict=True)]


def n_remembered(state: State) -> int:
    """The groups whose rows a state remembers."""
    memory = state.memory.get(KEY)
    return 0 if memory is None else sum(len(kept.rows[0]) for kept in memory.batches if kept is not None)


def cut_of(seed: int, n_groups: int, n_batches: int) -> list[Ints | None]:
    """The groups of each batch, a function of the seed; of a single batch nothing is copied."""
    if n_batches == 1:
        return [None]
    shuffled = generator(seed, Stream.BATCH_CUT).permutation(n_groups)
    return [np.sort(part) for part in np.array_split(shuffled, n_batches)]


def replace_batch(memory: GroupMemory, number: int, solved: GroupResult) -> GroupMemory:
    """The old contribution of a batch taken out, the new one put in; of a single batch only the sums are kept."""
    old = memory.batches[number]
    alone = len(memory.batches) == 1
    kept = BatchMemory(solved.rows, {} if alone else solved.messages, solved.rest)
    batches = (*memory.batches[:number], kept, *memory.batches[number + 1 :])
    if alone or not memory.messages:
        return memory._replace(messages=solved.messages, rest=solved.rest, batches=batches)
    messages = {
        name: tuple(
            _swapped(total, new, None if old is None else old.messages[name][place])
            for place, (total, new) in enumerate(zip(parts, solved.messages[name], strict=True))
        )
        for name, parts in memory.messages.items()
    }
    rest = memory.rest + solved.rest - (0.0 if old is None else old.rest)
    return memory._replace(messages=messages, rest=rest, batches=batches)


def near(told: Any, wanted: Any, sizes: Mapping[str, Any], where: str) -> bool:
    """Whether messages and rest are those that are wanted, but for rounding; refuses other shapes."""
    check_shapes(told, wanted, where)
    same = all(np.all(np.abs(told.messages[k][0] - wanted.messages[k][0]) <= NEAR * s) for k, s in sizes.items())
    return bool(same and abs(told.rest - wanted.rest) <= NEAR * (1.0 + abs(wanted.rest)))


def check_shapes(told: Any, wanted: Any, where: str) -> None:
    """Refuses messages of other blocks or shapes than those that are wanted."""
    shapes, right = ({key: [np.shape(p) for p in parts] for key, parts in of.messages.items()} for of in (told, wanted))
    if shapes != right:
        refuse(where, f"has sums of the shapes {shapes}, and here they are {right}")


def _swapped(total: Any, new: Any, old: Any) -> Any:
    """Sums in double precision, whatever the type of what is remembered; a float32 is a float64 exactly."""
    added = np.asarray(np.add(total, new, dtype=np.float64))
    return added if old is None else np.subtract(added, old, out=added)


def completed(problem: GroupProblem, messages: ByBlock, before: ByBlock | None, scale: float) -> Any:
    """The messages of some groups stand for all, ``scale`` times as many; or the others say what was said before."""
    out = problem.scaled(messages, scale)
    for name, parts in (before or {}).items():
        out[name] = tuple(
            np.add(new, (1.0 - 1.0 / scale) * old, dtype=np.float64)
            for new, old in zip(messages[name], parts, strict=True)
        )
    return out
