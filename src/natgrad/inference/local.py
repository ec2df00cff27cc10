"""Hoffman's SVI on a network: a batch of groups, their local variables optimised, then a step of the globals.

The groups are the elements of one plate. A node is local if its plates are inside the groups (the plate itself, or a plate
whose elements each belong to one group through a gather). Global targets are scaled by groups / batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.inference.draws import generator
from natgrad.inference.methods import SVI
from natgrad.inference.steppers import Moves, StepInfo, check_plate
from natgrad.inference.steps import Step
from natgrad.network.incidence import group_plates
from natgrad.network.plan import PlannedTerm
from natgrad.network.polynomial import Take
from natgrad.network.problem import LocalPart, LocalResult, NetworkProblem
from natgrad.problem import Sampled, State

__all__ = ["SVIStepper"]

Ints = npt.NDArray[np.int64]
Stats = tuple[Any, ...]
# Batches of varying length are padded to the next of these, so that few shapes are compiled; the ratio bounds the waste.
PADDING_RATIO = 1.25


class Batch:
    """The elements of every grouped plate in one batch, padded, and where each of them stands in it."""

    def __init__(self, stepper: SVIStepper, groups: Ints) -> None:
        self.groups = groups
        self.elements: dict[str, Ints] = {}
        self.n_real: dict[str, int] = {}
        self.place: dict[str, Ints] = {}
        for plate in stepper.grouping.members:
            elements = stepper.grouping.elements(plate, groups)
            place = np.zeros(stepper.sizes[plate], dtype=np.int64)
            place[elements] = np.arange(len(elements))
            padded = len(groups) if plate == stepper.grouping.plate else _padded(len(elements))
            self.n_real[plate] = len(elements)
            self.elements[plate] = np.concatenate([elements, np.zeros(padded - len(elements), dtype=np.int64)])
            self.place[plate] = place

    def real(self, plate: str) -> npt.NDArray[np.float64]:
        """1 for the elements of the batch, 0 for the padding."""
        return (np.arange(len(self.elements[plate])) < self.n_real[plate]).astype(np.float64)


class SVIStepper:
    """A batch of groups, local variables inside."""

    def __init__(self, problem: NetworkProblem, method: SVI, step: Step, order: tuple[str, ...]) -> None:
        check_plate(problem, method.plate)
        self.problem, self.method, self.schedule = problem, method, step
        plan = problem.plan
        self.grouping = group_plates(plan, method.plate)
        self.sizes = {label: size for term in plan.terms.values() for label, size in term.sizes.items()}
        if method.size > self.grouping.n_groups:
            raise ValueError(
                f"SVI: a batch of {method.size} is larger than plate {method.plate!r} with {self.grouping.n_groups} elements; "
                "VB() reads all of them"
            )
        self.scale = self.grouping.n_groups / method.size
        inside = {
            name for name, block in problem.blocks.items() if any(p in self.grouping.members for p in block.plates)
        }
        self.local = tuple(name for name in order if name in inside)
        self.globals = tuple(name for name in order if name not in inside)
        for name in self.local:
            if problem.blocks[name].n_columns > 1 and problem.blocks[name].column_axis is None:
                raise ValueError(f"SVI: {name!r} is local and reads itself twice; sample another plate")
        self.plate_of = {name: self._group_plate(term) for name, term in plan.terms.items()}
        self._check_inside()

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        rng = generator(seed, state.t)
        groups = np.sort(rng.choice(self.grouping.n_groups, size=self.method.size, replace=False, shuffle=False))
        batch = Batch(self, groups)
        local = self._solve(state, batch)
        here = state._replace(mu={**state.mu, **local.mu})
        moves = Moves(self.problem, here, together=False)
        rho = self.schedule.rate(state.t + 1, self.scale)
        reads = local.iterations * sum(self._reads(name, batch) for name in self.local)
        for name in self.globals:
            block = self.problem.blocks[name]
            whole = tuple(t.node for t in self.problem.plan.terms_of(name) if self.plate_of[t.node] is None)
            samples = tuple(
                self._sampled(t, batch, self.scale)
                for t in self.problem.plan.terms_of(name)
                if self.plate_of[t.node] is not None
            )
            columns: list[int | None] = [None] if block.column_axis is None else list(range(block.n_columns))
            for column in columns:
                target = self.problem.target(block, moves.state, whole, samples, column)
                moves.move(block, target, rho, column)
            reads += self._reads(name, batch)
        estimate = self._estimate(moves.state, local, batch)
        after = self._written(state, moves.finish(), local, batch)
        return after, StepInfo(moves.info, moves.rho, int(reads), estimate=estimate)

    # -- the local step --

    def _solve(self, state: State, batch: Batch) -> LocalResult:
        if not self.local:
            return LocalResult({}, {}, 0, {})
        parts = tuple(
            LocalPart(name, tuple(self._sampled(t, batch, 1.0) for t in self.problem.plan.terms_of(name)))
            for name in self.local
        )
        rows = {name: self._rows(name, state.lam[name], batch) for name in self.local}
        others = state._replace(mu={name: value for name, value in state.mu.items() if name not in rows})
        return self.problem.solve_local(others, parts, rows, self.method.local_tol, self.method.local_steps)

    def _sampled(self, term: PlannedTerm, batch: Batch, scale: float) -> Sampled:
        """A term on the batch: one plate zipped, local nodes addressed by their place in the batch."""
        plate = self.plate_of[term.node]
        assert plate is not None
        moved: dict[tuple[str, int], Any] = {}
        for name in (term.node, *term.readings):
            if name not in self.local:
                continue
            for axes in self._axes_of(term, name):
                for position, axis in enumerate(axes):
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

    def _rows(self, name: str, stats: Stats, batch: Batch) -> Stats:
        axis, plate = self._batch_axis(name)
        return tuple(np.take(np.asarray(s), batch.elements[plate], axis=axis) for s in stats)

    def _written(self, before: State, after: State, local: LocalResult, batch: Batch) -> State:
        """The rows of the batch put back among all rows."""
        lam, mu = dict(after.lam), dict(after.mu)
        for name in self.local:
            axis, plate = self._batch_axis(name)
            n_real = batch.n_real[plate]
            where = (slice(None),) * axis + (batch.elements[plate][:n_real],)
            for old, new, out in ((before.lam, local.lam, lam), (before.mu, local.mu, mu)):
                arrays = []
                for full, rows in zip(old[name], new[name], strict=True):
                    copy = np.array(full)
                    copy[where] = np.asarray(rows)[(slice(None),) * axis + (slice(0, n_real),)]
                    arrays.append(copy)
                out[name] = tuple(arrays)
        return after._replace(lam=lam, mu=mu)

    # -- the estimate --

    def _estimate(self, state: State, local: LocalResult, batch: Batch) -> float:
        """The bound as the batch sees it: grouped terms and local entropies scaled, the rest exact."""
        grouped = tuple(t for t in self.problem.plan.terms.values() if self.plate_of[t.node] is not None)
        samples = tuple(self._sampled(t, batch, self.scale) for t in grouped)
        whole = tuple(name for name, plate in self.plate_of.items() if plate is None)
        entropies = 0.0
        for name in self.local:
            axis, plate = self._batch_axis(name)
            weights = batch.real(plate)
            if plate in self.problem.plan.weights:
                weights = weights * self.problem.plan.weights[plate][batch.elements[plate]]
            values = np.moveaxis(np.asarray(local.entropy[name]), axis, -1)
            entropies += self.scale * float((values * weights).sum())
        return self.problem.partial_bound(state, whole, samples, self.globals) + entropies

    # -- structure --

    def _check_inside(self) -> None:
        """Whatever touches a local variable must be inside the groups, or a batch would not see it."""
        for name in self.local:
            for term in self.problem.plan.terms_of(name):
                if self.plate_of[term.node] is None:
                    raise PlateMismatch(
                        f"SVI: {term.node!r} reads {name!r} but is not on plate {self.method.plate!r}, whose elements are thus "
                        "not independent of one another. Sample the plate of the data instead"
                    )

    def _group_plate(self, term: PlannedTerm) -> str | None:
        found = [label for label in term.plates if label in self.grouping.members]
        if len(found) > 1:
            raise ValueError(
                f"SVI: {term.node!r} lies on plates {found}, which all follow from {self.method.plate!r}; a batch would need one"
            )
        return found[0] if found else None

    def _batch_axis(self, name: str) -> tuple[int, str]:
        plates = self.problem.blocks[name].plates
        axis = next(i for i, plate in enumerate(plates) if plate in self.grouping.members)
        return axis, plates[axis]

    def _reads(self, name: str, batch: Batch) -> int:
        """Messages read by a block from the batch's elements."""
        total = 0
        for term in self.problem.plan.terms_of(name):
            plate = self.plate_of[term.node]
            if term.node == name or plate is None:
                continue
            others = int(np.prod([term.sizes[label] for label in term.plates if label != plate]))
            total += batch.n_real[plate] * others
        return total


def _padded(length: int) -> int:
    size = 16
    while size < length:
        size = int(np.ceil(size * PADDING_RATIO))
    return size
