"""Small helpers that the nodes share: constants as arrays or polynomials, and the length of an event axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.network.language.expressions import Access, Constant, Expression, as_access
from natgrad.network.language.nodes import Node
from natgrad.network.language.plates import Index, Plate
from natgrad.network.language.scope import Scope
from natgrad.network.language.slots import spread
from natgrad.network.polynomial import Polynomial, Take, number
from natgrad.validation import first, where, whole_number

__all__ = [
    "Plates",
    "ScalarNode",
    "category_take",
    "check_possible",
    "check_shape",
    "checked_lengths",
    "chosen_link",
    "event_length",
    "given_size",
    "known",
    "left_over",
    "must_be_observed",
    "numbers",
    "observed_index",
]

Plates = Plate | tuple[Plate, ...] | list[Plate] | None


class ScalarNode(Node):
    """A node whose elements are single numbers."""

    def _event_size(self, observed: Any) -> int | None:
        return None


def numbers(expression: Any) -> npt.NDArray[np.float64]:
    """The values of a slot that takes only constants."""
    assert isinstance(expression, Constant)
    return expression.value


def known(scope: Scope, array: Any) -> Polynomial:
    """Numbers on the plates of a node as a polynomial."""
    values = np.asarray(array, dtype=np.float64)
    return number(float(values)) if values.ndim == 0 else Polynomial.of([scope.constant(values)])


def event_length(expression: Any) -> int | None:
    """The length of the event axis of what stands in a slot, if it has one."""
    if isinstance(expression, Constant):
        return int(expression.value.shape[-1]) if expression.value.ndim else None
    size = expression.size
    return None if size is None else int(size)


def given_size(name: str, size: Any, least: int = 1) -> int | None:
    """The ``size=`` argument of a node, if there is one."""
    return None if size is None else whole_number(size, f"{name!r}: size", least)


def must_be_observed(name: str, observed: Any, what: str, give: str = "counts") -> None:
    """Some nodes have no use hidden."""
    if observed is None:
        article = "an" if what[0] in "AEIO" else "a"
        raise TypeError(f"{name!r}: {article} {what} must be observed: give observed={give}")


def checked_lengths(name: str, lengths: Any, time: Plate) -> tuple[int, ...] | None:
    """The ``lengths=`` of sequences that lie end to end on the time plate, if there are several."""
    if lengths is None:
        return None
    if np.ndim(lengths) != 1 or isinstance(lengths, str):
        raise TypeError(f"{name!r}: lengths must be a list of whole numbers, one for each sequence, got {lengths!r}")
    checked = tuple(whole_number(n, f"{name!r}: lengths[{i}]") for i, n in enumerate(lengths))
    if sum(checked) != time.size:
        raise PlateMismatch(
            f"{name!r}: lengths sum to {sum(checked)}, but plate {time.name!r} has {time.size} elements"
        )
    return checked


def check_possible(
    node: Node, value: npt.NDArray[Any], possible: npt.NDArray[np.bool_], present: npt.NDArray[np.bool_]
) -> None:
    """Known probabilities must allow what was observed; log 0 would swallow the whole bound."""
    if (place := first(spread(present, value.ndim) & ~possible)) is not None:
        slot = node.slots_of[-1].name
        raise ValueError(
            f"{node.name!r}: observed{where(place)} = {value[place]:g} has probability 0 under the {slot} given"
        )


def observed_index(node: Node, access: Access) -> Index | None:
    """The index that an observed category is when something else is read through it; None where it is a gate."""
    if node.value is None:
        return None
    if node.mask is not None:
        return None  # what is missing is inferred: a gate, in which what was observed is certain
    if any(isinstance(selector, Access) for selector in access.selectors):
        return None  # a hidden category chooses which observed one does: a gate, though one with known numbers
    values, names = node.value.astype(np.int64), tuple(plate.name for plate in node.plates)
    indices = [selector for selector in access.selectors if isinstance(selector, Index)]
    if not indices:
        return Index(values, names, (node,), access)
    if len(indices) < len(names) or len({(index.plates, index.values.shape) for index in indices}) > 1:
        raise PlateMismatch(
            f"{access}: an observed category on several plates is read with one index for each of them, all on the same plates; "
            "otherwise index its values"
        )
    chosen = tuple(entry for index in indices for entry in index.categories)
    return Index(values[tuple(index.values for index in indices)], indices[0].plates, (*chosen, node), access)


def check_shape(name: str, slot: str, value: Expression) -> None:
    """A random shape, or entry of a concentration, has log Γ of itself among its statistics: a `GammaShape`, read once."""
    access = as_access(value)
    if access is None or "lgamma" not in access.node.family.stat_names:
        given = f"the {type(value).__name__} {value}" if isinstance(value, Node) else str(value)
        raise NotConjugate(
            f"{name!r}: {slot} cannot be {given}: the edge {value} → {name} has no closed-form message. {slot} takes known "
            "numbers, or what is declared for it: a GammaShape, whose q has log Γ among its statistics"
        )


def left_over(value: Expression, plates: tuple[Plate, ...], reader: str = "its reader") -> Plate | None:
    """The plate along which an expression repeats and its reader does not, if there is one."""
    own = {plate.name for plate in plates}
    extra = {
        plate.name: plate
        for access in value.accesses()
        for plate, selector in zip(access.node.plates, access.selectors, strict=True)
        if selector is None and plate.name not in own
    }
    if len(extra) > 1:
        raise PlateMismatch(f"{value} repeats over {sorted(extra)}, of which {reader} has none: index all but one")
    return next(iter(extra.values()), None)


def chosen_link(name: str, kind: str, given: dict[str, Any]) -> tuple[str, Any]:
    """The one parameter of several ways to give a probability that was given."""
    chosen = [(way, value) for way, value in given.items() if value is not None]
    if len(chosen) != 1:
        what = " and ".join(way for way, _ in chosen) + " were given" if chosen else "nothing was given"
        raise TypeError(f"{name!r}: a {kind} takes one of {', '.join(given)}, but {what}")
    return chosen[0]


def category_take(node: Node, scope: Scope) -> Take:
    """The axis of a table of log probabilities that an observed category picks from: a take, never one-hot."""
    assert node.value is not None
    return Take(scope.register(node.value.astype(np.int32)), scope.plate_names)
