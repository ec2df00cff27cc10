"""The records that problems, steppers and the loop pass on: blocks, the state of a run, samples of children. Little computes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from natgrad.families import Family

__all__ = [
    "Block",
    "BlockInfo",
    "ChildSet",
    "LocalPart",
    "LocalResult",
    "MessageMemory",
    "Sampled",
    "State",
    "SweepResult",
    "Sweeps",
    "zip_plates",
]

Array = Any
Stats = tuple[Array, ...]
Ints = npt.NDArray[np.int64]
# A bound that is lower by this part of its size fell by rounding.
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Block:
    """A hidden node as the engine sees it: its family and the shape of its plates.

    ``column_axis`` is the plate along which elements are co-parents of one child and are updated in turn; ``colours``
    [plates] does the same for nodes that a term reads twice: elements of one colour never meet. λ and μ of a location are those
    of x − ``origin``, a number or a vector that is the same for all elements; None is zero.
    """

    name: str
    family: Family
    plates: tuple[str, ...]
    shape: tuple[int, ...]
    column_axis: int | None = None
    colours: npt.NDArray[np.int32] | None = None
    origin: npt.NDArray[np.float64] | None = None

    @property
    def n_columns(self) -> int:
        """How many groups of elements are updated one after the other."""
        if self.column_axis is not None:
            return self.shape[self.column_axis]
        return 1 if self.colours is None else int(self.colours.max()) + 1


class State(NamedTuple):
    """Everything the next step needs: natural parameters, their moments, the number of steps taken, the method's memory.

    A node that starts as a point mass has the moments of that point until its first update; from then on μ = ∇A(λ).
    ``memory`` belongs to the method: arrays and numbers by name, empty for methods that remember nothing. ``hyper`` holds
    hyper-parameters that the problem learns, by name; empty if it learns none.
    """

    lam: dict[str, Stats]
    mu: dict[str, Stats]
    t: int
    memory: Mapping[str, Any] = {}
    hyper: Mapping[str, Any] = {}


class BlockInfo(NamedTuple):
    """What one update did: whether λ stayed valid, and how far it moved (‖Δλ‖ / ‖λ‖)."""

    valid: Array
    relative_change: Array


class SweepResult(NamedTuple):
    """A state after every block was updated once, the bound there, and what each update did.

    ``reads`` are messages read beyond those of a sweep, where blocks were solved together.
    """

    state: State
    bound: float
    info: dict[str, BlockInfo]
    reads: int = 0

    def rose(self, last: float) -> bool:
        """Whether the sweep is valid and its bound not below the last one, but for rounding."""
        valid = all(bool(info.valid) for info in self.info.values())
        return valid and math.isfinite(self.bound) and self.bound >= last - ROUNDING * abs(last)


class Sweeps(NamedTuple):
    """Sweeps that were made in one call: the bound and what each update did, after each of them, and the state after the last."""

    results: list[tuple[float, dict[str, BlockInfo]]]
    end: State


class Sampled(NamedTuple):
    """A sample of one term for one reading of a block: which elements, with what weight.

    ``zipped`` has one index array for each sampled label; ``moved`` re-addresses nodes whose arrays are cut to the batch.
    """

    term: str
    occurrence: int | None
    zipped: Mapping[str, Array]
    weight: Array
    moved: Mapping[tuple[str, int], Array | None] = {}

    @property
    def layout(self) -> tuple[Any, ...]:
        """The part that is compiled in: two samples with the same layout run the same code."""
        return self.term, self.occurrence, tuple(self.zipped), tuple(self.moved)

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The part that is passed in."""
        return dict(self.zipped), self.weight, dict(self.moved)

    @classmethod
    def rebuilt(cls, layout: tuple[Any, ...], arrays: tuple[Any, ...]) -> Sampled:
        """A sample from its layout and its (traced) arrays."""
        return cls(layout[0], layout[1], *arrays)


class LocalPart(NamedTuple):
    """How one local block of a batch gets its messages.

    ``rows`` are the elements of the batch, by plate; ``real`` says which of them are not padding, over the block's plates.
    """

    block: str
    sampled: tuple[Sampled, ...]
    rows: Mapping[str, Array]
    real: Array


class LocalResult(NamedTuple):
    """Rows of the local blocks after the local step."""

    lam: dict[str, Stats]
    mu: dict[str, Stats]
    iterations: int
    entropy: dict[str, Array]


@dataclass(frozen=True)
class ChildSet:
    """The children of a block in one term, read in one way: compressed rows, one for each key.

    A key is what the child's element determines of the parent's element; parents that differ only along gated or summed
    axes have the same children and share a row. Missing observations are nobody's children. ``sizes`` are those of the
    term's plates, in order; ``observed`` says whether the children are data.
    """

    term: str
    observed: bool
    occurrence: int
    block: Block
    axes: tuple[int, ...]
    sizes: Mapping[str, int]
    children: Ints
    start: Ints

    @cached_property
    def degree(self) -> Ints:
        """N_i of each row."""
        return np.diff(self.start)

    @cached_property
    def key_of_child(self) -> Ints:
        """The row of each child in ``children``."""
        return np.repeat(np.arange(len(self.degree)), self.degree)

    @cached_property
    def row_of_element(self) -> Ints:
        """The row of each element of the term; −1 for missing ones, which are never drawn."""
        rows = np.full(int(np.prod(list(self.sizes.values()))), -1)
        rows[self.children] = self.key_of_child
        return rows

    @property
    def n_sharing(self) -> int:
        """How many elements share a row."""
        return int(np.prod([n for axis, n in enumerate(self.block.shape) if axis not in self.axes]))

    @property
    def n_reads(self) -> int:
        """Messages that the block gets from all these children."""
        return len(self.children) * self.n_sharing

    def spread(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A value for each row as an array over the block's plates."""
        kept = [self.block.shape[axis] if axis in self.axes else 1 for axis in range(len(self.block.shape))]
        return np.broadcast_to(rows.reshape(kept), self.block.shape)

    def zipped(self, children: Ints) -> dict[str, npt.NDArray[np.int32]]:
        """The index of each child along each plate of its term."""
        return zip_plates(self.sizes, children)


def zip_plates(sizes: Mapping[str, int], elements: Ints) -> dict[str, npt.NDArray[np.int32]]:
    """Flat elements of a term as one index array for each of its plates."""
    if not sizes:
        return {}
    indices = np.unravel_index(elements, list(sizes.values()))
    return {label: index.astype(np.int32) for label, index in zip(sizes, indices, strict=True)}


class MessageMemory(Protocol):
    """Messages remembered for every edge, by a problem that can. Memory is a dict for each block, changed in place."""

    @property
    def n_bytes(self) -> int:
        """What the memory takes."""
        ...

    def begin(self, state: State) -> dict[str, dict[str, Any]]:
        """Nothing read: the children of each row hold together what makes its q the one of the state."""
        ...

    def read(
        self, name: str, state: State, memory: dict[str, dict[str, Any]], positions: Ints, over: float
    ) -> tuple[Ints, Stats]:
        """Read edges anew (sorted positions among the block's children); their rows, and λ of these given all they remember."""
        ...

    def rebuild(self, memory: dict[str, dict[str, Any]]) -> None:
        """Sum up anew what is remembered, free of rounding."""
        ...
