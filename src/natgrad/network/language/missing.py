"""Write statistics of nodes that are observed in part, or up to bounds, with what is missing inferred.

Of a node x with observed elements o and hidden ones h, every statistic is linear in who supplies it,

    φ(x) = seen · φ(o) + (1 − seen) · E[φ(h)],

so that the same polynomials serve, with known masks in them. A vector with single missing entries is x_i = s_i o_i + m_i h_i, and
x xᵀ follows. The block of h has an element for every element of x. Those that nobody reads have a prior of their own, normalised
and independent of everything (N(0, 1), Gamma(1, 1), …): at their optimum they add exactly 0 to the bound. A category that was
observed needs none of this: a potential that rules out the other categories makes its q a point mass.

An element that is missing and that nobody reads stays what it was: nobody's child, without a term.

Each element of `Censored` data is known to lie between two bounds, of which one may be missing and both may agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from natgrad.errors import NotConjugate
from natgrad.families._ops import multigammaln
from natgrad.network.language.columns import records
from natgrad.network.language.expressions import CATEGORY, LOG_ZERO, MATRIX, POSITIVE, REAL, SIMPLEX, VECTOR, Access
from natgrad.network.language.plates import Index
from natgrad.network.polynomial import Axis, Label, Polynomial
from natgrad.validation import as_observed, first, where

if TYPE_CHECKING:
    from natgrad.network.language.nodes import Node
    from natgrad.network.language.scope import Scope

__all__ = [
    "Censored",
    "as_censored",
    "censored",
    "hidden_in_part",
    "seen_values",
    "split_statistic",
    "spread",
    "with_unread",
]

Floats = npt.NDArray[np.float64]
LOG_2PI = float(np.log(2.0 * np.pi))


def spread(present: npt.NDArray[np.bool_], ndim: int) -> npt.NDArray[np.bool_]:
    """A flag for each element of the plates as an array that broadcasts over the event axes."""
    return present.reshape(present.shape + (1,) * (ndim - present.ndim))


def hidden_in_part(nodes: Iterable[Node], known: frozenset[str] = frozenset()) -> frozenset[str]:
    """The names of partly observed nodes whose missing elements some other node reads; ``found`` are some of them."""
    nodes = list(nodes)
    while True:
        # What becomes hidden is a reader of its own parents where it was masked before.
        more = known.union(
            access.node.name
            for node in nodes
            for expression in node.parameters.values()
            for access in expression.accesses()
            if access.node.mask is not None and _reads_missing(node, access, node.name in known)
        )
        if more == known:
            return known
        known = more


def _reads_missing(child: Node, access: Access, whole: bool) -> bool:
    """Whether a child that counts reads an element that was not observed; ``whole`` says that all its elements count."""
    parent = access.node
    assert parent.mask is not None
    missing = parent.mask == 0
    same_plates = [plate.name for plate in parent.plates] == [plate.name for plate in child.plates]
    if same_plates and all(selector is None for selector in access.selectors):
        return bool(whole or child.mask is None or (missing & (child.mask > 0)).any())
    if len(access.selectors) == 1 and isinstance(access.selectors[0], Index):
        read = missing[access.selectors[0].values]
        if child.mask is not None and child.mask.shape == read.shape and not whole:
            read = read & (child.mask > 0)
        return bool(read.any())
    return True


def seen_values(node: Node) -> tuple[npt.NDArray[np.bool_], npt.NDArray[Any]]:
    """Which values were observed (of a vector, which entries), and the values, anything where they were not; of one shape."""
    assert node.value is not None
    seen = np.ones(()) > 0 if node.mask is None and node.entries is None else _seen(node) > 0
    return np.broadcast_to(spread(seen, node.value.ndim), node.value.shape).copy(), node.value


def _seen(node: Node) -> Floats:
    """1 where observed, 0 where not: over the plates, of a vector over its entries too."""
    if node.kind != VECTOR:
        assert node.mask is not None
        return node.mask
    if node.entries is not None:
        return node.entries
    assert node.mask is not None
    assert node.size is not None
    return np.repeat(node.mask[..., None], node.size, axis=-1)


def split_statistic(
    scope: Scope, node: Node, name: str, axes: tuple[Axis, ...], labels: tuple[Label, ...], occurrence: int
) -> Polynomial:
    """A statistic of a node that is hidden in part: of its data where they are, of q where they are not."""
    assert node.value is not None
    hidden = scope.moment(node, name, (*axes, *labels), occurrence)
    if node.kind == CATEGORY:
        return hidden
    seen = _seen(node)
    if node.kind == VECTOR:
        return _split_vector(scope, node, axes, labels, occurrence, seen)
    values = node.value**2 if name == "xx" else node.observed_stat(name)
    data = scope.laid(spread(seen > 0, values.ndim) * values, (*axes, *labels))
    return data + scope.laid(1.0 - seen, axes) * hidden


def _split_vector(
    scope: Scope, node: Node, axes: tuple[Axis, ...], labels: tuple[Label, ...], occurrence: int, seen: Floats
) -> Polynomial:
    assert node.value is not None
    known, lacking = seen * node.value, 1.0 - seen
    data, missing = ([scope.laid(array, (*axes, label)) for label in labels] for array in (known, lacking))
    entry = [
        lost * scope.moment(node, "x", (*axes, label), occurrence) for lost, label in zip(missing, labels, strict=True)
    ]
    if len(labels) == 1:
        return data[0] + entry[0]
    mixed = data[0] * entry[1] + entry[0] * data[1]
    return data[0] * data[1] + mixed + missing[0] * missing[1] * scope.moment(node, "xx", (*axes, *labels), occurrence)


def with_unread(node: Node, scope: Scope, density: Polynomial, is_read: bool) -> Polynomial:
    """A term of a node that is hidden in part, with the prior of those elements of its block that nobody reads.

    ``is_read`` says that others read what is missing; of vectors with single missing entries, rows that are missing as a whole
    are left out otherwise.
    """
    seen = node.mask if node.kind == CATEGORY else _seen(node)
    assert seen is not None
    if node.kind == VECTOR and node.mask is not None and not is_read:
        density = density * scope.laid(node.mask, scope.plate_names)
        seen = np.maximum(seen, 1.0 - node.mask[..., None])
    return density + _own_prior(node, scope, seen)


def _own_prior(node: Node, scope: Scope, seen: Floats) -> Polynomial:
    """The log density of a standard member of the family, for the elements that were seen."""
    plates, size = scope.plate_names, node.size or 1

    def known(array: Floats, *events: Label) -> Polynomial:
        return scope.laid(array, (*plates, *events))

    def hidden(stat: str, *events: Label) -> Polynomial:
        return scope.moment(node, stat, (*plates, *events))

    if node.kind == CATEGORY:
        label = scope.fresh("k", size)
        assert node.value is not None
        others = 1.0 - np.eye(size)[node.value.astype(np.int64)]
        return known(LOG_ZERO * seen[..., None] * others, label) * hidden("x", label)
    if node.kind == VECTOR:
        label = scope.fresh("i", size)
        return known(-0.5 * seen, label) * hidden("xx", label, label) + known(-0.5 * LOG_2PI * seen.sum(-1))
    if node.kind == REAL:
        return known(-0.5 * seen) * hidden("xx") + known(-0.5 * LOG_2PI * seen)
    if node.kind == POSITIVE:
        return known(-1.0 * seen) * hidden("x")
    if node.kind == MATRIX:
        label = scope.fresh("i", size)
        normaliser = 0.5 * (size + 1) * size * np.log(2.0) + float(multigammaln(np.asarray(0.5 * (size + 1)), size))
        return known(-0.5 * seen) * hidden("x", label, label) - known(normaliser * seen)
    # Flat: a Dirichlet of ones has the density (K − 1)!, a Beta of ones 1, a fair coin ½.
    constant = gammaln(size) if node.kind == SIMPLEX else -np.log(2.0) if node.family.has_sides else 0.0
    return known(constant * seen)


class Censored:
    """What is known of each element: ``lower`` ≤ x ≤ ``upper``; made by `censored`."""

    def __init__(self, lower: Floats, upper: Floats) -> None:
        self.lower, self.upper = lower, upper

    @property
    def is_exact(self) -> npt.NDArray[np.bool_]:
        """Where the number itself was seen."""
        return np.asarray(self.lower == self.upper)

    @property
    def values(self) -> Floats:
        """A number inside the bounds for each element, NaN where nothing is known: what stands in for the data."""
        inside = np.where(np.isfinite(self.lower), self.lower, self.upper)
        return np.where(np.isfinite(inside), inside, np.nan)

    def refuse_reading(self, name: str) -> NotConjugate:
        """The error for a node that would read censored data as if they were seen."""
        return NotConjugate(
            f"{name!r} is censored, and its values are not known: it cannot stand in another node. Declare what was not seen "
            "as a hidden Normal of its own"
        )


def as_censored(observed: Any, least: float = -np.inf) -> tuple[Censored | None, Any]:
    """Bounds, if data are censored, and a number for each element; ``least`` is where the support begins."""
    if not isinstance(observed, Censored):
        return None, observed
    bounds = Censored(np.where(observed.lower == -np.inf, least, observed.lower), observed.upper)
    return bounds, bounds.values if np.isinf(least) else observed.values


@records
def censored(values: Any, upper: Any = None, *, right: Any = None, left: Any = None) -> Censored:
    """Data of which only bounds were seen, for ``observed=`` of a `Normal`, `LogNormal` or `Exponential`.

    Parameters
    ----------
    values : numbers
        What was seen; the lower bounds where ``upper`` is given. NaN is missing, −inf no bound.
    upper : numbers, optional
        Upper bounds: inf where there is none (right censored), equal to ``values`` where the number itself was seen.
    right, left : booleans (or 0 and 1), optional
        Instead of ``upper``: True where the true value lies above (``right``) or below (``left``) the one that was seen.

    Examples
    --------
    >>> import natgrad as ng
    >>> rate = ng.Gamma("rate", 1.0, 1.0)
    >>> months = ng.censored([3.0, 8.0, 12.0, 12.0], right=[False, False, True, True])
    >>> t = ng.Exponential("t", rate, plate=ng.Plate("patient", 4), observed=months)
    >>> print(ng.Network(t).fit()["rate"].mean().round(4))  # (1 + 2 deaths) / (1 + 35 months)
    0.0833
    """
    low = as_observed(values, "censored: values").astype(np.float64)
    if upper is not None:
        if right is not None or left is not None:
            raise TypeError("censored takes upper bounds, or right= and left=, not both")
        high = as_observed(upper, "censored: upper").astype(np.float64)
        if high.shape not in ((), low.shape):
            raise ValueError(
                f"censored: values have shape {low.shape}, upper has {high.shape}: give one for each element"
            )
        high = np.broadcast_to(high, low.shape)
        if (place := first(low > high)) is not None:
            raise ValueError(
                f"censored: values{where(place)} = {low[place]:g} is above upper{where(place)} = {high[place]:g}: the lower "
                "bound comes first"
            )
        missing = np.isnan(low) & np.isnan(high)
        if (place := first((np.isnan(low) | np.isnan(high)) & ~missing)) is not None:
            raise ValueError(f"censored: one of the two bounds{where(place)} is NaN: no bound is -inf or inf")
        return Censored(np.where(missing, -np.inf, low), np.where(missing, np.inf, high))
    if right is None and left is None:
        raise TypeError("censored needs upper=, right= or left=: data that were all seen need no censored(…)")
    flags = {name: _flags(flag, name, low.shape) for name, flag in (("right", right), ("left", left))}
    if (place := first(flags["right"] & flags["left"])) is not None:
        raise ValueError(
            f"censored: values{where(place)} = {low[place]:g} is censored right and left: it is missing, NaN"
        )
    missing = np.isnan(low)
    return Censored(np.where(flags["left"] | missing, -np.inf, low), np.where(flags["right"] | missing, np.inf, low))


def _flags(flag: Any, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    if flag is None:
        return np.zeros(shape, dtype=bool)
    array = np.asarray(flag)
    if array.dtype != bool:
        if array.dtype.kind not in "iuf" or not np.isin(array, (0, 1)).all():
            raise TypeError(f"censored: {name} must be booleans, True where censored, got dtype {array.dtype}")
        array = array == 1
    if array.shape not in ((), shape):
        raise ValueError(f"censored: {name} has shape {array.shape}, but {shape} is needed, one for each value")
    return np.broadcast_to(array, shape)
