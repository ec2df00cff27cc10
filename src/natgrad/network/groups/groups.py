"""Groups of one plate and what is inside them: local variables, the terms of a batch, how many messages it reads.

A node is local if its plates are inside the groups (the plate itself, or a plate whose elements each belong to one group
through a gather). Given the other nodes, the groups are independent of one another.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.inference.problem import ChildSet, Sampled, State
from natgrad.network.compile.incidence import group_plates
from natgrad.network.compile.plan import PlannedTerm
from natgrad.network.compile.polynomial import Take

if TYPE_CHECKING:
    from natgrad.network.execute.problem import LocalResult, NetworkProblem

__all__ = ["Batch", "Groups"]

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
