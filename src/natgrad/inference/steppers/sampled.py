"""Step by a sample of children.

Every stepper asks the problem for targets and moves blocks by λ ← (1 − ρ) λ + ρ λ^temp; they differ only in which children
are read. Randomness is a function of (seed, t, block, column).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.methods import Children, GlobalBatch
from natgrad.inference.problem import Block, BlockInfo, EdgeProblem, Sampled, State
from natgrad.inference.step_sizes import Step
from natgrad.inference.steppers.stepper import StepInfo, Stepper
from natgrad.random import draw_rows, generator

__all__ = ["BlockUpdates", "ChildrenStepper", "GlobalBatchStepper", "turns"]

Array = Any
Stats = tuple[Array, ...]
Ints = npt.NDArray[np.int64]


class BlockUpdates:
    """BlockUpdates blocks as they come (option a), or remembers the targets and moves them together at the end (option b)."""

    def __init__(self, problem: EdgeProblem, state: State, together: bool) -> None:
        self.problem, self.state, self.together = problem, state, together
        self.info: dict[str, BlockInfo] = {}
        self.lengths: list[float] = []
        self._waiting: list[tuple[Block, Stats, Any, int | None]] = []

    def move(self, block: Block, target: Stats, rho: Any, column: int | None = None) -> None:
        """Move one block, or one column of it, along its natural gradient."""
        self.lengths.append(float(np.mean(rho)))
        if self.together:
            self._waiting.append((block, target, rho, column))
        else:
            self._apply(block, target, rho, column)

    def finish(self) -> State:
        """The state after the step."""
        for entry in self._waiting:
            self._apply(*entry)
        return self.state._replace(t=self.state.t + 1, memory={})

    @property
    def rho(self) -> float:
        """The mean length of the moves."""
        return float(np.mean(self.lengths)) if self.lengths else 0.0

    def _apply(self, block: Block, target: Stats, rho: Any, column: int | None) -> None:
        self.state, info = self.problem.step_block(block, self.state, target, rho, column)
        before = self.info.get(block.name)
        if before is not None:
            info = BlockInfo(before.valid & info.valid, before.relative_change + info.relative_change)
        self.info[block.name] = info


class ChildrenStepper(Stepper):
    """Algorithm 1: every hidden variable reads its own sample of children."""

    monotone, batches = False, None

    def __init__(self, problem: EdgeProblem, method: Children, step: Step, order: tuple[str, ...]) -> None:
        self.problem, self.method, self.schedule, self.order = problem, method, step, order
        self.sets = {name: problem.child_sets(name) for name in order}
        self.counts = {name: [method.counts(s.degree) for s in sets] for name, sets in self.sets.items()}
        self.ratios = {name: self._ratio(name) for name in order}

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        moves = BlockUpdates(self.problem, state, together=self.method.option == "b")
        messages_read = 0
        for number, name in enumerate(self.order):
            block = self.problem.blocks[name]
            rho = _rate(self.schedule, state.t + 1, self.ratios[name], self.problem, block, self.method.option == "b")
            samples: tuple[Sampled, ...] = ()
            for column, part in turns(block, rho, moves.together):
                if column is not None or not samples:  # colours share a sample
                    samples = self._draw(name, generator(seed, state.t, number, column or 0))
                    messages_read += sum(
                        len(s.weight) * c.n_sharing for s, c in zip(samples, self.sets[name], strict=True)
                    ) // (1 if column is None else block.n_columns)
                target = self.problem.target(block, moves.state, (name,), samples, column)
                moves.move(block, target, part, column)
        return moves.finish(), StepInfo(moves.info, moves.rho, messages_read)

    def _draw(self, name: str, rng: np.random.Generator) -> tuple[Sampled, ...]:
        samples = []
        for children, counts in zip(self.sets[name], self.counts[name], strict=True):
            positions, rows = draw_rows(rng, children.start, counts)
            weight = (children.degree / np.maximum(counts, 1))[rows]
            zipped = children.zipped(children.children[positions])
            samples.append(Sampled(children.term, children.occurrence, zipped, weight))
        return tuple(samples)

    def _ratio(self, name: str) -> Any:
        shape = self.problem.blocks[name].shape
        total, read = np.zeros(shape), np.zeros(shape)
        for children, counts in zip(self.sets[name], self.counts[name], strict=True):
            total = total + children.spread(children.degree)
            read = read + children.spread(counts)
        return np.where(read > 0, total / np.maximum(read, 1), 1.0)


class GlobalBatchStepper(Stepper):
    """Algorithm 2: one batch of observations for all."""

    monotone, batches = False, None

    def __init__(self, problem: EdgeProblem, method: GlobalBatch, step: Step, order: tuple[str, ...]) -> None:
        self.problem, self.method, self.schedule, self.order = problem, method, step, order
        sets = {name: problem.child_sets(name) for name in order}
        self.sets = {name: [s for s in own if s.observed] for name, own in sets.items()}
        hidden = {name: [s for s in own if not s.observed] for name, own in sets.items()}
        self.whole = {name: (name, *dict.fromkeys(s.term for s in own)) for name, own in hidden.items()}
        self.hidden_reads = {name: sum(s.n_reads for s in own) for name, own in hidden.items()}
        self.observed = problem.observed
        self.n_observed = sum(len(elements) for elements in self.observed.values())
        if method.size > self.n_observed:
            raise ValueError(
                f"GlobalBatch: a batch of {method.size} is larger than the data with {self.n_observed} observations; VB() reads "
                "all of them"
            )

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        together = self.method.option == "b"
        batch = self._draw(generator(seed, state.t))
        moves = BlockUpdates(self.problem, state, together)
        messages_read = 0
        seen = [name for name in self.order if self.sets[name]]
        for name in [*seen, *(name for name in self.order if name not in seen)]:
            block = self.problem.blocks[name]
            samples, ratio, touched = self._samples(name, batch)
            rho = _rate(self.schedule, state.t + 1, ratio, self.problem, block, together)
            rho = np.where(touched, rho, 0.0) if self.sets[name] else rho
            reads = sum(int((s.weight > 0).sum()) * c.n_sharing for s, c in zip(samples, self.sets[name], strict=True))
            messages_read += reads + self.hidden_reads[name]
            for column, part in turns(block, rho, together):
                target = self.problem.target(block, moves.state, self.whole[name], samples, column)
                moves.move(block, target, part, column)
        return moves.finish(), StepInfo(moves.info, moves.rho, messages_read)

    def _draw(self, rng: np.random.Generator) -> dict[str, Ints]:
        drawn = rng.choice(self.n_observed, size=self.method.size, replace=False, shuffle=False)
        batch, offset = {}, 0
        for name, elements in self.observed.items():
            here = drawn[(drawn >= offset) & (drawn < offset + len(elements))] - offset
            batch[name] = elements[here]
            offset += len(elements)
        return batch

    def _samples(self, name: str, batch: dict[str, Ints]) -> tuple[tuple[Sampled, ...], Any, Any]:
        block = self.problem.blocks[name]
        total, read = np.zeros(block.shape), np.zeros(block.shape)
        samples = []
        for children in self.sets[name]:
            elements = batch[children.term]
            rows = children.row_of_element[elements]
            drawn = np.bincount(rows, minlength=len(children.degree))
            weight = (children.degree / np.maximum(drawn, 1))[rows]
            # Several observed nodes share the batch in varying parts: pad, so that nothing is compiled anew.
            missing = (self.method.size - len(elements)) if len(self.observed) > 1 else 0
            zipped = children.zipped(np.concatenate([elements, np.zeros(missing, dtype=np.int64)]))
            samples.append(
                Sampled(children.term, children.occurrence, zipped, np.concatenate([weight, np.zeros(missing)]))
            )
            total = total + children.spread(children.degree)
            read = read + children.spread(drawn)
        # An element that no observation reads at all is never in a batch: it steps from its hidden children, or to its prior.
        return tuple(samples), np.where(read > 0, total / np.maximum(read, 1), 1.0), (read > 0) | (total == 0)


def _rate(schedule: Step, t: int, ratio: Any, problem: EdgeProblem, block: Block, together: bool) -> Any:
    """The step lengths of a block: coupled with all that move at the same time, or with the columns that take turns."""
    coupled = problem.coupling(block.name) if together else block.n_columns
    return schedule.rate(t, ratio, coupled=coupled, together=together)


def turns(block: Block, rho: Any, together: bool = False) -> Iterator[tuple[int | None, Any]]:
    """Go through the columns of a block with their step lengths; through its colours unless all elements move ``together``."""
    if block.column_axis is None and (together or block.colours is None):
        yield None, rho
        return
    rates = np.asarray(rho)
    for number in range(block.n_columns):
        if block.column_axis is None:
            yield None, np.where(block.colours == number, rates, 0.0)
        else:
            yield number, np.take(rates, number, axis=block.column_axis) if rates.ndim else rates
