"""The scope of one term: which labels, gates, constants and readings appear in one node's expected log density."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.network.language.expressions import CATEGORY, VECTOR, Access, Expression
from natgrad.network.language.missing import split_statistic
from natgrad.network.language.plates import Index, Plate, plates_in_words
from natgrad.network.polynomial import Axis, Factor, Label, Mark, Polynomial, Take, number

if TYPE_CHECKING:
    from natgrad.network.language.nodes import Node

__all__ = ["Numbered", "Reading", "Scope"]


@dataclass(frozen=True, slots=True)
class Reading:
    """One way in which a term reads a node: the axis of the term behind each plate of the node."""

    node: str
    axes: tuple[Axis, ...]
    key: tuple[Any, ...]


# Bytes of an array from which on it pays to ask whether the same memory was hashed before.
LARGE = 2**16
# Arrays of at most so many bytes are their own key.
FEW_BYTES = 64


class Numbered(dict[str, npt.NDArray[Any]]):
    """Known arrays in the order in which they are registered, which the declaration alone determines: the numbers may change.

    Parameters
    ----------
    keys : the key of each registration, optional; by default all have one of their own
    """

    def __init__(self, keys: list[str] | None = None) -> None:
        super().__init__()
        self.given, self.calls = keys, list[npt.NDArray[Any]]()

    def numbered(self, array: npt.NDArray[Any]) -> str:
        """The key of the next registration."""
        number = len(self.calls)
        key = f"known:{number}" if self.given is None else self.given[number]
        self.calls.append(array)
        self.setdefault(key, array)
        return key


@dataclass(slots=True)
class Scope:
    """Collects what a term needs while its polynomial is written.

    ``known`` maps keys to arrays of numbers; ``gates`` maps a gated label to the factor of the category that chooses (one
    label for each reading of a category, so that everything it chooses is chosen together);
    ``resized`` plates have another size here than where their nodes were declared (predictions of new elements);
    ``parts`` names the partly observed nodes whose missing elements are inferred, None where it is not known yet who reads them;
    ``drawn`` names observed nodes whose values are drawn anew, so that they are read as hidden ones are;
    ``coupled`` holds (node, plate) pairs whose elements meet in one child and must be updated in turn.
    """

    node: str
    plates: tuple[Plate, ...]
    known: dict[str, npt.NDArray[Any]]
    resized: frozenset[str] = frozenset()
    parts: frozenset[str] | None = None
    drawn: frozenset[str] = frozenset()
    sizes: dict[Label, int] = field(default_factory=dict)
    gates: dict[Label, Polynomial] = field(default_factory=dict)
    coupled: dict[str, str] = field(default_factory=dict)
    readings: dict[str, list[Reading]] = field(default_factory=dict)
    _gate_labels: dict[tuple[Any, ...], Label] = field(default_factory=dict)
    _fresh: Iterator[int] = field(default_factory=lambda: iter(range(10**9)))

    def __post_init__(self) -> None:
        self.sizes.update({plate.name: plate.size for plate in self.plates})

    @property
    def plate_names(self) -> tuple[str, ...]:
        """Labels of the reader's own plates."""
        return tuple(plate.name for plate in self.plates)

    def fresh(self, stem: str, size: int) -> Label:
        """A label used nowhere else in this term."""
        label = Mark(stem, next(self._fresh))
        self.sizes[label] = size
        return label

    def check_size(self, plate: Plate, label: Label, what: str) -> None:
        """The plate must be as long as the axis it stands for."""
        if self.sizes[label] != plate.size:
            raise PlateMismatch(
                f"{self.node!r}: {what} lies along plate {plate.name!r} of size {plate.size}, but {self.sizes[label]} is needed"
            )

    def constant(self, array: npt.NDArray[np.float64], events: tuple[Label, ...] = ()) -> Factor:
        """Register numbers: trailing axes are the event labels, leading ones broadcast over the plates."""
        lead = array.ndim - len(events)
        if lead < 0 or array.shape[lead:] != tuple(self.sizes[label] for label in events):
            wanted = tuple(self.sizes[label] for label in events)
            raise PlateMismatch(
                f"{self.node!r}: a constant in its parameters has shape {array.shape}, but its last axes must be {wanted}"
            )
        shape = array.shape[:lead]
        sizes = tuple(plate.size for plate in self.plates)
        aligned = self.plates[len(self.plates) - lead :] if lead <= len(self.plates) else ()
        if lead > len(self.plates) or any(n not in (1, plate.size) for n, plate in zip(shape, aligned, strict=True)):
            raise PlateMismatch(
                f"{self.node!r}: a constant in its parameters has shape {array.shape}, but {(*sizes, *array.shape[lead:])} is "
                f"needed (plates {dict(zip(self.plate_names, sizes, strict=True))}); leading axes may be left out or be 1"
            )
        labels = tuple(plate.name for n, plate in zip(shape, aligned, strict=True) if n == plate.size)
        squeezed = array.reshape(
            [n for n, plate in zip(shape, aligned, strict=True) if n == plate.size] + list(array.shape[lead:])
        )
        return Factor(self.register(squeezed), 0, (*labels, *events), known=True)

    def numbers(self, array: Any, *events: Label) -> Polynomial:
        """Numbers on the plates of the node, and ``events`` as their last axes, as a polynomial."""
        values = np.asarray(array, dtype=np.float64)
        return number(float(values)) if values.ndim == 0 else Polynomial.of([self.constant(values, events)])

    def laid(self, array: npt.NDArray[Any], axes: tuple[Axis, ...]) -> Polynomial:
        """Numbers with these axes as a polynomial."""
        return Polynomial.of([Factor(self.register(array), 0, axes, known=True)])

    @staticmethod
    def moment(node: Node, name: str, axes: tuple[Axis, ...], occurrence: int = 0) -> Polynomial:
        """A statistic of what is hidden of a node, with these axes."""
        stat = node.family.stat_names.index(name)
        return Polynomial.of([Factor(node.name, stat, axes, known=False, occurrence=occurrence)])

    def register(self, array: npt.NDArray[Any]) -> str:
        """A key for an array of numbers; equal arrays share one."""
        contiguous = np.asarray(array, order="C")
        if isinstance(self.known, Numbered):
            return self.known.numbered(contiguous)
        if (
            contiguous.nbytes > LARGE
        ):  # of which a term may read the moments, the squares and the values: one hash is enough
            place = contiguous.__array_interface__
            for key, kept in self.known.items():
                if kept.nbytes == contiguous.nbytes and kept.__array_interface__ == place:
                    return key
        if contiguous.nbytes <= FEW_BYTES:
            digest = contiguous.tobytes().hex()
        else:  # processors compute this hash by themselves; the array is not copied
            digest = hashlib.sha256(contiguous.data).hexdigest()[:24]
        key = f"{contiguous.dtype.str[1:]}{list(contiguous.shape)}:{digest}"
        self.known.setdefault(key, contiguous)
        return key

    def statistic(self, access: Access, name: str, labels: tuple[Label, ...], bind: dict[str, Label]) -> Polynomial:
        """The polynomial of one statistic of a node read through its selectors."""
        node = access.node
        axes = tuple(
            self._axis(access, plate, selector, bind)
            for plate, selector in zip(node.plates, access.selectors, strict=True)
        )
        if self.is_data(node):
            return self._observed(node, name, axes, labels)
        occurrence = self._occurrence(access, axes)
        if node.is_observed and node.name not in self.drawn:
            return split_statistic(self, node, name, axes, labels, occurrence)
        return self.moment(node, name, (*axes, *labels), occurrence)

    def is_data(self, node: Node) -> bool:
        """Whether a node stands for its observed values alone."""
        return node.is_observed and node.name not in self.drawn and not self.in_part(node)

    def in_part(self, node: Node) -> bool:
        """Whether a partly observed node is hidden where it was not observed; at its declaration, if somebody else reads it."""
        if node.entries is not None:
            return True
        if node.mask is None:
            return False
        return node.name != self.node if self.parts is None else node.name in self.parts

    def _observed(self, node: Node, name: str, axes: tuple[Axis, ...], labels: tuple[Label, ...]) -> Polynomial:
        if name == "xx":
            first, second = (labels[:1], labels[1:]) if node.kind == VECTOR else (labels, labels)
            return self._observed(node, "x", axes, first) * self._observed(node, "x", axes, second)
        return self.laid(node.observed_stat(name), (*axes, *labels))

    def _axis(self, access: Access, plate: Plate, selector: Any, bind: dict[str, Label]) -> Axis:
        if selector is None:
            if plate.name in bind:
                return bind[plate.name]
            if plate.name not in self.plate_names:
                raise PlateMismatch(
                    f"{self.node!r} reads {access}, which repeats over plate {plate.name!r}, but {self.node!r} has "
                    f"{plates_in_words(self.plates)}: index {access.node.name}[…] with integers or a category, sum over the "
                    f"plate with dot, or put {self.node!r} on it"
                )
            if self.sizes[plate.name] != plate.size and plate.name not in self.resized:
                raise PlateMismatch(
                    f"{self.node!r} reads {access}: there are two plates called {plate.name!r}, of sizes {plate.size} and "
                    f"{self.sizes[plate.name]}; use one Plate for both, or two names"
                )
            return plate.name
        if isinstance(selector, Index):
            if selector.chosen_by is not None and selector.chosen_by.node.name in self.drawn:
                return self._gate(selector.chosen_by, plate.size)  # other values than those that were observed choose
            return Take(self.register(selector.values.astype(np.int32)), self._index_labels(access, selector))
        return self._gate(selector, plate.size)

    def _gate(self, category: Access, size: int) -> Label:
        """The label along which a category chooses: the same wherever the same elements of it are read."""
        key = category.key()
        if key not in self._gate_labels:
            label = self._gate_labels[key] = self.fresh("gate", size)
            axes = tuple(
                self._axis(category, inner, choice, {})
                for inner, choice in zip(category.node.plates, category.selectors, strict=True)
            )
            self.gates[label] = self._indicator(category, axes, label, size)
        return self._gate_labels[key]

    def _indicator(self, category: Access, axes: tuple[Axis, ...], label: Label, size: int) -> Polynomial:
        """E[1{category = k}] along the label k."""
        node = category.node
        if self.is_data(node):
            assert node.value is not None
            return self.laid(np.eye(size)[node.value.astype(np.int64)], (*axes, label))
        if node.kind == CATEGORY:
            return self.moment(node, "x", (*axes, label), self._occurrence(category, axes))
        # A coin has a statistic for each of its sides.
        zero, one = (self.laid(np.array(side), (label,)) for side in ([1.0, 0.0], [0.0, 1.0]))
        sides = (side * self.statistic(category, name, (), {}) for side, name in ((zero, "rest"), (one, "x")))
        return next(sides) + next(sides)

    def _index_labels(self, access: Access, index: Index) -> tuple[str, ...]:
        """The plates of the reader on which an index array lives, found by size unless it was said."""
        if index.plates is not None:
            self._check_index_plates(access, index)
            return index.plates
        if index.values.ndim == 0:
            return ()
        taken = {
            plate.name for plate, selector in zip(access.node.plates, access.selectors, strict=True) if selector is None
        }
        free = [plate for plate in self.plates if plate.name not in taken]
        shape = index.values.shape
        starts = [
            i for i in range(len(free) - len(shape) + 1) if tuple(p.size for p in free[i : i + len(shape)]) == shape
        ]
        if len(starts) != 1:
            sizes = {plate.name: plate.size for plate in self.plates}
            problem, advice = "fits none of", f"give one integer for each element of {self.node!r}"
            if starts:
                problem, advice = "fits several of", "say on which one it lies with plate.index(values)"
            raise PlateMismatch(
                f"{self.node!r} reads {access} with an index of shape {shape}, which {problem} its plates {sizes}: {advice}"
            )
        return tuple(plate.name for plate in free[starts[0] : starts[0] + len(shape)])

    def _check_index_plates(self, access: Access, index: Index) -> None:
        """An index that says where it lives (`Plate.index`, an observed category) must live on plates of the reader."""
        own = {plate.name: plate.size for plate in self.plates}
        for name, length in zip(index.plates or (), index.values.shape, strict=True):
            if own.get(name) != length:
                raise PlateMismatch(
                    f"{self.node!r} reads {access} with an index on plate {name!r} of size {length}, but {self.node!r} has "
                    f"{plates_in_words(self.plates)}"
                )

    def _occurrence(self, access: Access, axes: tuple[Axis, ...]) -> int:
        readings = self.readings.setdefault(access.node.name, [])
        key = access.key()
        for occurrence, reading in enumerate(readings):
            if reading.key == key:
                return occurrence
        # Whichever was read first: what a category chooses may be the element that the other reading has.
        gated = [any(axis in self.gates for axis in reading.axes) for reading in readings]
        if readings and (any(gated) or any(isinstance(s, Access) for s in access.selectors)):
            raise NotConjugate(
                f"{self.node!r} reads {access.node.name!r} twice through categories; one element may be read by both, and then "
                "the product of expectations is not the expectation of the product. Use two nodes"
            )
        readings.append(Reading(access.node.name, axes, key))
        return len(readings) - 1

    def couple(self, expression: Expression, plate: Plate) -> None:
        """The elements of each random side along ``plate`` are co-parents of one child."""
        for access in expression.accesses():
            node = access.node
            if plate.name not in {p.name for p in access.open_plates()} or self.is_data(node):
                continue
            if plate.name not in {p.name for p in node.block_plates}:
                raise NotConjugate(
                    f"{self.node!r} sums {node.name!r} over {plate.name!r}, the time of that chain: its states are not "
                    "independent of one another, and the product of expectations is not the expectation of the product. "
                    "Read one state for each element, or use a node without memory"
                )
            if self.coupled.setdefault(access.node.name, plate.name) != plate.name:
                raise PlateMismatch(f"{self.node!r}: {access.node.name!r} is summed over two plates in one term")

    def single_leftover(self, expression: Expression, what: str) -> Plate:
        """The one plate of an expression that the reader does not have."""
        plates = expression.leftover(self.plates)
        if len(plates) != 1:
            raise PlateMismatch(
                f"{self.node!r}: {what} must lie along one plate that {self.node!r} is not on, found {sorted(plates) or 'none'}"
            )
        return next(iter(plates.values()))
