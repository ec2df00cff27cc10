"""Measure locations from an origin near the data, and warn of known numbers that lose digits far from zero.

Squares of numbers that are large against their spread cancel: of 10⁹ ± 1, E[x²] − 2 E[x] E[m] + E[m²] keeps no digit of the
variance. So a plan writes x = c + x̃ with a known origin c for each Normal and MultivariateNormal node (one number, or one
vector, for all its elements) and computes with x̃ alone. In the term of a node the constants meet as numbers, before anything is
squared:

    x − m = x̃ − m̃ + (c_x − c_m),      c_m = the mean expression with every node at its origin

An origin is free to choose: it changes no result but its rounding. Nodes that stand in a product with another random node keep
c = 0, because there c would not stay a constant. What the engine holds, λ and μ, is of x̃; `Block.origin` is c, and whoever shows
values or takes them adds or subtracts it.

**Known coefficients.** The density of a Normal with mean b x + a has b² Σ x² and 2 a b Σ x beside one another. For x = 10⁶ ± 1
they are 10¹² and more, and their sum is 1: a slope, and all the more a precision, may be wrong in the first digit, and nothing
else would tell. Coefficients are as the user gave them, so that `warn_of_offsets` is all there is to do.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.errors import LostDigits
from natgrad.inference.trace import levels_to_the_caller
from natgrad.network.language.continuous import Gamma, Wishart
from natgrad.network.language.expressions import REAL, VECTOR, Access, Constant, Expression
from natgrad.network.language.nodes import Node
from natgrad.network.language.operators import Dot, Product, Sum, Transformed
from natgrad.network.language.tables import Known
from natgrad.network.polynomial import Monomial

if TYPE_CHECKING:
    from natgrad.network.compile.plan import Plan, PlannedTerm

__all__ = ["Ends", "Offset", "centred_mean", "find_origins", "offsets_of", "placed", "warn_of_offsets", "widened"]

Floats = npt.NDArray[np.float64]
Origins = Mapping[str, Floats]
# Numbers on the plates of a node (then its event axis): all of them, or a sample of the plates' elements.
Pick = Callable[[Floats, int], Floats]
# The precision that stands for a flat prior.
FLAT = 1e-12
# Below this ratio of centre to spread four digits of sixteen are lost at most, and nothing is measured anew.
FAR = 1e2
# Elements of a term that are enough to place a vector of weights.
ROWS = 256
# Observed terms come first, then what links hidden nodes; repeated from where the last solution ended, this is a strict order.
LINK, REPEATS = 1e-3, 4


def find_origins(nodes: Sequence[Node], parts: Collection[str] = ()) -> dict[str, Floats]:
    """The origin of every node that needs one: none at all unless some data lie far from zero.

    Parameters
    ----------
    nodes : all nodes of a network, parents first
    parts : names of those that are hidden where they were not observed
    """
    located = [node for node in nodes if node.moves_with_mean]
    seen = [node for node in located if node.is_observed]
    if not any(_is_far(node) for node in seen):
        return {}
    means = [part for node in located for part in _walk(node.parameters["mean"]) if not _is_linear(part)]
    mixed = {access.node.name for part in means for access in part.accesses()}
    # A link reads a location, too, and is not measured anew.
    others = (node for node in nodes if not node.moves_with_mean)
    mixed |= {a.node.name for node in others for slot in node.parameters.values() for a in slot.accesses()}
    hidden = [node for node in located if not node.is_observed and node.name not in mixed]
    # What is hidden in part has one origin for data and q, and none where it is multiplied with what is random.
    origins = {node.name: _centre(node)[0] for node in seen}
    origins.update(
        {node.name: np.zeros_like(origins[node.name]) for node in seen if node.name in parts and node.name in mixed}
    )
    origins.update(_solved(seen, hidden, origins))
    return {name: origin for name, origin in origins.items() if np.any(origin)}


def placed(node: Node, origins: Origins, parts: Collection[str] = ()) -> Node:
    """The node with everything in its term measured from the origins: a twin that is only asked for its term."""
    if not origins or not node.moves_with_mean:
        return node
    mean, constant = centred_mean(node, node.parameters["mean"], origins)
    twin = copy.copy(node)
    if node.value is not None and node.name not in parts:
        twin.value = node.value - constant
        twin.parameters = {**node.parameters, "mean": mean}
        return twin
    if node.value is not None:
        twin.value = node.value - origins.get(node.name, 0.0)
    if np.any(rest := constant - origins.get(node.name, 0.0)):
        mean = _number(node, rest) if isinstance(mean, Constant) else Sum(mean, _number(node, rest))
    twin.parameters = {**node.parameters, "mean": mean}
    return twin


def centred_mean(node: Node, mean: Expression, origins: Origins) -> tuple[Expression, Floats]:
    """A mean of ``node`` less its value with every node at its origin, and that value."""
    if not origins:
        return mean, np.zeros(())
    rest, constant = _centred(mean, origins, _whole)
    return _number(node, np.zeros(())) if rest is None else rest, constant


def _number(node: Node, value: Floats) -> Constant:
    if node.kind == VECTOR and value.ndim == 0:
        value = np.full(node.size or 0, float(value))
    return Constant(node.kind, value, node.size if node.kind == VECTOR else None)


# -- expressions that are linear in random nodes, with known coefficients --


def _is_linear(expression: Expression) -> bool:
    """Whether the expression's origin is a number: a reading, a sum, a known multiple, a known map."""
    if isinstance(expression, (Constant, Sum)) or expression.whole is not None:
        return True
    if isinstance(expression, Product):
        return isinstance(expression.left, Constant)
    if isinstance(expression, Transformed):
        return True
    if isinstance(expression, Dot):
        known, random = _sides(expression)
        if known is None or known.value.ndim == 0:
            return False
        # Along a plate, the numbers inside a sum would have axes of their own.
        return random.kind == VECTOR or random.whole is not None
    return False


def _sides(expression: Dot) -> tuple[Constant | None, Expression]:
    """The known side of a dot, if there is one, and the random one."""
    left, right = expression.left, expression.right
    if isinstance(right, Constant):
        return right, left
    return (left if isinstance(left, Constant) else None), right


def _parts(expression: Expression) -> Iterator[Expression]:
    """What a linear expression is made of."""
    if isinstance(expression, Sum):
        yield from expression.parts
    elif isinstance(expression, Product):
        yield expression.right
    elif isinstance(expression, Transformed):
        yield expression.vector
    elif isinstance(expression, Dot):
        yield _sides(expression)[1]


def _walk(expression: Expression) -> Iterator[Expression]:
    """Every part of an expression, itself first; of parts that are not linear nothing is inside."""
    waiting = [expression]
    while waiting:
        part = waiting.pop()
        yield part
        if _is_linear(part):
            waiting += _parts(part)


def _centred(expression: Expression, origins: Origins, pick: Pick) -> tuple[Expression | None, Floats]:
    """The expression of x̃ in place of x, None where nothing random is left; and its value with every node at its origin.

    The value is on the plates of its reader.
    """
    if isinstance(expression, Constant):
        return None, pick(expression.value, int(expression.kind == VECTOR and expression.value.ndim > 0))
    if not _is_linear(expression):
        return expression, np.zeros(())
    access = expression.whole
    if access is not None:
        return _reading(access, origins), _origin(access, origins)
    if isinstance(expression, Sum):
        both = [_centred(part, origins, pick) for part in expression.parts]
        terms = [part for part, _ in both if part is not None]
        return (reduce(Sum, terms) if terms else None), np.asarray(sum(constant for _, constant in both))
    inner, constant = _centred(next(_parts(expression)), origins, pick)
    if isinstance(expression, Product):
        factor = _centred(expression.left, origins, pick)[1] if np.any(constant) else np.zeros(())
        wide = expression.kind == VECTOR and factor.ndim
        constant = factor[..., None] * constant if wide else factor * constant
        return (None if inner is None else Product(expression.left, inner)), constant
    if isinstance(expression, Transformed):
        constant = constant @ expression.matrix.T if np.any(constant) else np.zeros(())
        return (None if inner is None else Transformed(expression.matrix, inner)), constant
    assert isinstance(expression, Dot)
    known, _ = _sides(expression)
    assert known is not None
    constant = np.asarray((pick(known.value, 1) * constant).sum(-1)) if np.any(constant) else np.zeros(())
    if inner is None:
        return None, constant
    left, right = (known, inner) if expression.left is known else (inner, known)
    return Dot(left, right, expression.over), constant


def _reading(access: Access, origins: Origins) -> Expression:
    """A reading of x̃; of an observed node or a table, of its values less the origin."""
    if not access.node.is_observed:
        return access
    twin: Any = copy.copy(access.node)
    start = _origin(access, origins)
    if isinstance(twin, Known):
        twin.constant = Constant(twin.kind, twin.constant.value - start, twin.constant.size)
    else:
        twin.value = twin.value - start
    return Access(twin, access.selectors)


def _origin(access: Access, origins: Origins) -> Floats:
    """Of the node that is read; a table, which is no node, is measured from the middle of its values."""
    known: Any = access.node
    if isinstance(known, Known):
        return np.asarray(known.constant.value.mean(tuple(range(len(known.plates)))))
    return np.asarray(origins.get(known.name, 0.0), dtype=np.float64)


def _whole(array: Floats, events: int) -> Floats:
    return array


# -- where the origins are --


def _centre(node: Node) -> tuple[Floats, Floats]:
    """Mean and standard deviation of observed values, over all elements."""
    assert node.value is not None
    events = node.value.shape[len(node.plates) :]
    rows = node.value.reshape(-1, *events)
    if node.entries is not None:
        return _centre_of_entries(rows, node.entries.reshape(rows.shape))
    if node.mask is not None:
        rows = rows[node.mask.reshape(-1) > 0]
    scale = np.abs(rows).max(0)  # squares of numbers near the ends of the range would overflow
    scale = np.where(scale > 0, scale, 1.0)
    mean = (rows / scale).mean(0) * scale
    return np.asarray(mean), np.asarray(((rows - mean) / scale).std(0) * scale)


def _centre_of_entries(rows: Floats, entries: Floats) -> tuple[Floats, Floats]:
    """The same of vectors that are observed in part, entry by entry."""
    scale = np.maximum(np.abs(rows).max(0), 1e-300)
    count = np.maximum(entries.sum(0), 1.0)
    mean = (entries * rows / scale).sum(0) / count * scale
    return mean, np.sqrt((entries * ((rows - mean) / scale) ** 2).sum(0) / count) * scale


def _is_far(node: Node) -> bool:
    mean, sd = _centre(node)
    spread = np.where(sd > 0, sd, 1.0 / np.sqrt(_precision(node)))
    return bool(np.any(np.abs(mean) > FAR * spread))


def _precision(node: Node) -> Floats:
    """The precision that a node expects before the data: of each entry, and 1 where it is not said in numbers."""
    given = node.parameters["precision"]
    value: Any = np.ones(())
    if isinstance(given, Constant):
        value = given.value
    elif isinstance(given, Gamma) and isinstance(given.parameters["rate"], Constant) and not given.is_improper:
        value = np.asarray(given.parameters["shape"].value / given.parameters["rate"].value)  # type: ignore[attr-defined]
        value = np.exp(np.log(value).mean())
    elif isinstance(given, Wishart) and isinstance(given.parameters["rate"], Constant):
        rate = given.parameters["rate"].value
        dof = np.asarray(given.parameters["dof"].value).max()  # type: ignore[attr-defined]
        value = dof / rate if rate.ndim == 0 else dof * np.linalg.inv(rate)
    if node.kind == VECTOR and value.ndim >= 2:
        value = np.diagonal(value, axis1=-2, axis2=-1)
        return np.asarray(np.maximum(value.reshape(-1, value.shape[-1]).mean(0), FLAT))
    return np.asarray(np.maximum(np.mean(value), FLAT))


def _solved(seen: Sequence[Node], hidden: Sequence[Node], origins: Origins) -> dict[str, Floats]:
    """Origins of the hidden nodes such that means meet the data, then that nodes meet their own means, by least squares."""
    widths = [node.size or 1 if node.kind == VECTOR else 1 for node in hidden]
    ends = np.cumsum([0, *widths])
    places = {node.name: slice(end - width, end) for node, width, end in zip(hidden, widths, ends[1:], strict=True)}
    scale = max(float(np.abs(origins[node.name]).max()) for node in seen)
    if not hidden:
        return {}
    strongest = max(float(_precision(node).max()) for node in hidden)
    tables, goals, links = [], [], []
    for node in (*seen, *hidden):
        table, constant = _equations(node, hidden, places, origins, scale)
        goal = (origins[node.name] if node.is_observed else 0.0) - constant
        weight = 1.0 if node.is_observed else LINK * float(np.sqrt(_precision(node).mean() / strongest))
        weight /= np.sqrt(len(table))
        tables.append(weight * table.reshape(-1, ends[-1]))
        goals.append(weight / scale * np.broadcast_to(goal, table.shape[:2]).reshape(-1))
        links.append(np.full(goals[-1].shape, not node.is_observed))
    table, goal, link = np.concatenate(tables), np.concatenate(goals), np.concatenate(links)
    norms = np.sqrt((table**2).sum(0))
    norms[norms == 0] = 1.0
    inverse = np.linalg.pinv(table / norms, rcond=1e-12)
    solution = np.zeros(ends[-1])
    for repeat in range(REPEATS):
        # Hidden terms count once; from then on they only hold together what moves.
        missing = goal - table @ solution
        solution += inverse @ (missing if repeat == 0 else np.where(link, 0.0, missing)) / norms
    parts = [scale * solution[places[node.name]] for node in hidden]
    return {n.name: part if n.kind == VECTOR else np.asarray(part[0]) for n, part in zip(hidden, parts, strict=True)}


def _equations(
    node: Node, hidden: Sequence[Node], places: Mapping[str, slice], origins: Origins, scale: float
) -> tuple[Floats, Floats]:
    """d(mean − own) / d(origins) at some elements of a node [elements, events, origins], and the mean's known part there."""
    mean = node.parameters["mean"]
    events = node.size or 1 if node.kind == VECTOR else 1
    lead = tuple(plate.size for plate in node.plates)
    n_elements = int(np.prod(lead))
    linear = [part for part in _walk(mean) if _is_linear(part)]
    varies = any(isinstance(part, Dot) or _is_known(getattr(part, "left", None)) for part in linear)
    n_rows = min(n_elements, ROWS) if varies else 1
    chosen = np.unravel_index(np.linspace(0, n_elements - 1, n_rows).astype(np.int64), lead or (1,))

    def pick(array: Floats, trailing: int) -> Floats:
        if array.ndim <= trailing:
            return array
        end = array.shape[array.ndim - trailing :]
        if not varies:
            return np.asarray(array.reshape(-1, *end).mean(0))
        return np.broadcast_to(array, (*lead, *end))[chosen]

    def over(array: Floats) -> Floats:
        return np.broadcast_to(array[..., None] if node.kind == REAL else array, (n_rows, events))

    known = {name: origin for name, origin in origins.items() if name not in places}
    constant = over(_centred(mean, known, pick)[1])
    table = np.zeros((n_rows, events, max(place.stop for place in places.values())))
    read = {access.node.name for access in mean.accesses()}
    for other in (parent for parent in hidden if parent.name in read):
        place = places[other.name]
        for entry, unit in enumerate(scale * np.eye(place.stop - place.start)):
            moved = {**known, other.name: unit if other.kind == VECTOR else unit[0]}
            table[:, :, place.start + entry] = (over(_centred(mean, moved, pick)[1]) - constant) / scale
    if node.name in places:
        table[:, :, places[node.name]] -= np.eye(events)
    return table, constant


def _is_known(side: Expression | None) -> bool:
    """Whether a factor has numbers of its own for each element."""
    return isinstance(side, Constant) and side.value.ndim > 0


# How many of their ranges numbers lie from zero at least, and how many there must be to have one: squares lose 8 of 16 digits.
MIN_RANGES_FROM_ZERO, MIN_ROWS = 5e3, 3


class Ends(NamedTuple):
    """How many rows an array of known numbers has, and the least and the largest number of each column."""

    n: int
    low: np.ndarray
    high: np.ndarray


class Offset(NamedTuple):
    """A node whose mean reads such numbers, the column of them (None where they are not columns), and their ends."""

    node: str
    column: int | None
    low: float
    high: float


def warn_of_offsets(plan: Plan, ends: Mapping[str, Ends] | None = None) -> None:
    """One warning for all of them, where `fit` was called; ``ends`` are those of all chunks, of which the plan has one."""
    found = offsets_of(plan, ends)
    if not found:
        return
    node, column, low, high = found[0]
    which = "known numbers" if column is None else f"numbers of the known column {column}"
    more = f" ({len(found)} such)" if len(found) > 1 else ""
    warnings.warn(
        f"{which} in the mean of {node!r} lie between {low:.12g} and {high:.12g}{more}: so far from zero that their squares lose "
        "the digits in which they differ, and results may be wrong in the first one. Subtract their mean: a level beside "
        "them takes it up",
        LostDigits,
        stacklevel=levels_to_the_caller(),
    )


def offsets_of(plan: Plan, ends: Mapping[str, Ends] | None = None) -> list[Offset]:
    """Known numbers of that kind that are squared in the term of an observed node, beside something else that may cancel them."""
    if not any(plan.nodes[name].kind in (REAL, VECTOR) for name in plan.blocks):
        return []
    known = {name: _ends_of(array) for name, array in plan.known.items()} | dict(ends or {})
    far = [name for name, own in known.items() if name in plan.known and np.any(_is_offset(own))]
    terms = [term for term in plan.terms.values() if plan.nodes[term.node].is_observed] if far else []
    return [
        offset
        for name in far
        for term in terms
        if _cancels(plan, term, name)
        for offset in _offsets(term, known[name], plan.known[name].ndim)
    ]


def widened(before: list[Ends], arrays: Sequence[np.ndarray]) -> list[Ends]:
    """The ends of arrays that come in chunks, with those of one more chunk."""
    own = [_ends_of(array) for array in arrays]
    return [_wider(a, b) for a, b in zip(before, own, strict=True)] if before else own


def _wider(a: Ends, b: Ends) -> Ends:
    if a.low.shape != b.low.shape:  # of sequences that are as long as they are: no columns
        return Ends(0, np.zeros(1), np.zeros(1))
    return Ends(a.n + b.n, np.minimum(a.low, b.low), np.maximum(a.high, b.high))


def _ends_of(array: object) -> Ends:
    """The rows of an array are the elements of a plate; what is no array of real numbers has no ends."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f" or array.ndim == 0 or not len(array):
        return Ends(0, np.zeros(1), np.zeros(1))
    return Ends(len(array), np.atleast_1d(array.min(axis=0)), np.atleast_1d(array.max(axis=0)))


def _is_offset(ends: Ends) -> np.ndarray:
    nearest = np.where(ends.low > 0, ends.low, np.where(ends.high < 0, -ends.high, 0.0))
    away = nearest > MIN_RANGES_FROM_ZERO * (ends.high - ends.low)
    return np.asarray((ends.n >= MIN_ROWS) & (ends.high > ends.low) & away)


def _cancels(plan: Plan, term: PlannedTerm, name: str) -> bool:
    """Whether the numbers are squared with a mean, and other columns or other means are beside them."""
    squares = [monomial for monomial in term.monomials if _is_of_means(plan, monomial)]
    reads = [sum(factor.source == name for factor in monomial.factors) for monomial in squares]
    columns = plan.known[name].ndim > 1 and plan.known[name].shape[-1] > 1
    return 2 in reads and (columns or min(reads) < 2)


def _is_of_means(plan: Plan, monomial: Monomial) -> bool:
    return any(
        not factor.known and factor.stat == 1 and plan.nodes[factor.source].kind in (REAL, VECTOR)
        for factor in monomial.factors
    )


def _offsets(term: PlannedTerm, ends: Ends, ndim: int) -> list[Offset]:
    far, low, high = _is_offset(ends), ends.low, ends.high
    if ndim != 2:
        place = np.unravel_index(int(far.argmax()), far.shape)
        return [Offset(term.node, None, float(low[place]), float(high[place]))]
    return [Offset(term.node, int(k), float(low[k]), float(high[k])) for k in np.flatnonzero(far)]
