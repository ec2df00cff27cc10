"""Predict a node: its parents are drawn from the posterior, the node has its conditional.

A statistic of a slot is the same polynomial as in inference; here it is evaluated at drawn values (point masses) with one
more axis, `DRAW`, instead of at expectations.

Random numbers are the same in every row (`SameInRows`), so that what is predicted of a row does not depend on the other rows.

Quantiles are those of mixtures of distributions, by their distribution functions:

    F(x) = Σ_j w_j F_j(x) = p

Secant steps, within a bracket that is halved in the order of floating-point numbers where a step does not halve the error: no
scale is needed, and gaps between modes do no harm. Steps begin at the quantile and the slope of every eighth part, which are
found in the same way. A side that is not known yet is looked for in steps that double; of whole numbers alone, without secants.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv, ndtri

from natgrad.errors import PlateMismatch
from natgrad.families._family import tails
from natgrad.families._ops import logsumexp
from natgrad.network.compile.origins import centred_mean
from natgrad.network.compile.plan import Plan
from natgrad.network.language.cdfs import Cdf
from natgrad.network.language.expressions import Access, Constant, Expression
from natgrad.network.language.nodes import Node
from natgrad.network.language.plates import Plate
from natgrad.network.results.joint import expanded, part_of_joint
from natgrad.network.results.slot_values import found_size, slot_statistic, slot_values
from natgrad.random import sample_generator
from natgrad.validation import as_numbers, checked_categories

if TYPE_CHECKING:
    from natgrad.posterior.draws import Draws

__all__ = ["Predictive", "SameInRows", "hidden_twin", "make_predictive", "mixture_quantiles"]

Array = npt.NDArray[Any]
# Columns of numbers that are drawn evenly, one from each of n equally likely parts: sorting takes longer than drawing.
EVEN = 1000
# Shapes of Gamma variables whose quantiles are looked up, which takes longer still.
MAX_ROW_NUMBERS = 20
TINY = 2.0**-54


class SameInRows(np.random.Generator):
    """A generator that also draws the same numbers along some axes: ``rng.along(axes).normal(mean, sd, size)``.

    The first axis of these is that of draws. Uniform and normal numbers are spread evenly over it (a Latin hypercube), so that
    averages of smooth functions of few numbers are nearly those of a quadrature.
    """

    def __init__(self, rng: np.random.Generator | int | None) -> None:
        super().__init__(np.random.default_rng(rng).bit_generator)

    def along(self, axes: tuple[int, ...]) -> _Along:
        """What draws along axes of ``size`` the same numbers; equal parameters have equal draws there."""
        return _Along(self, axes)


class _Along:
    def __init__(self, rng: np.random.Generator, axes: tuple[int, ...]) -> None:
        self.rng, self.axes = rng, axes

    def __getattr__(self, name: str) -> Callable[..., Array]:
        draw = getattr(self.rng, name)
        return lambda *args, size=None: self._by_row(draw, args, size)

    def random(self, size: tuple[int, ...]) -> Array:
        return np.broadcast_to(self._uniform(size), size)

    def uniform(self, size: tuple[int, ...]) -> Array:
        return self.random(size)

    def standard_normal(self, size: tuple[int, ...]) -> Array:
        return np.broadcast_to(ndtri(np.clip(self._uniform(size), TINY, 1.0 - TINY)), size)

    def standard_exponential(self, size: tuple[int, ...]) -> Array:
        return np.broadcast_to(-np.log1p(-self._uniform(size)), size)

    def _uniform(self, size: tuple[int, ...]) -> Array:
        once = tuple(1 if place in self.axes else length for place, length in enumerate(size))
        drawn = self.rng.random(once)
        if drawn.size > EVEN * len(drawn):
            return drawn
        return np.asarray((np.argsort(np.argsort(drawn, axis=0), axis=0) + 0.5) / len(drawn))

    def standard_gamma(self, shape: Any, size: tuple[int, ...]) -> Array:
        if np.size(shape) > MAX_ROW_NUMBERS:
            return self._by_row(self.rng.standard_gamma, (shape,), size)
        return np.asarray(gammaincinv(shape, self.random(size)))

    def normal(self, mean: Any, sd: Any, size: tuple[int, ...]) -> Array:
        return np.asarray(mean + sd * self.standard_normal(size))

    def exponential(self, scale: Any, size: tuple[int, ...]) -> Array:
        return np.asarray(scale * self.standard_exponential(size))

    def _by_row(self, draw: Callable[..., Array], args: tuple[Any, ...], size: tuple[int, ...] | None) -> Array:
        """Draws of each row from the same state of the generator: their number may depend on the parameters."""
        if size is None and isinstance(args[-1], tuple):
            args, size = args[:-1], args[-1]
        size = np.broadcast_shapes(*map(np.shape, args)) if size is None else size
        first = tuple(axis for axis in self.axes if axis < len(size))
        wide = [np.moveaxis(np.broadcast_to(arg, size), first, range(len(first))) for arg in args]
        rows, bits = wide[0].shape[: len(first)], self.rng.bit_generator
        out, state = [], bits.state
        for row in np.ndindex(rows):
            bits.state = state
            out.append(draw(*(part[row] for part in wide), size=wide[0].shape[len(first) :]))
        return np.moveaxis(np.reshape(out, wide[0].shape), range(len(first)), first)


Mixture = Callable[[Array], Array]
# Numbers of one block of elements, which fit into a cache.
BLOCK = 200_000
# One of so many parts stands for the others, down to so many parts.
STRIDE, FEW = 8, 16
# How near F is to be to p, and evaluations of F, at most.
NEAR, MOST_STEPS = 1e-9, 300
LARGEST = float(np.finfo(float).max)
# By how much F of a whole number may miss p, by rounding.
MISSED = 1e-12
# Draws that are compared before all of them are, to find elements that are equal.
COMPARED = 4


def mixture_quantiles(parts: Sequence[Cdf], weights: Any, levels: Sequence[float]) -> list[Array]:
    """Quantiles of each element, by level p.

    Parameters
    ----------
    parts : the distribution function of each component, of which the functions are the same
    weights : array [component, draw, elements], which sum to one over the first two axes
    levels : probabilities p
    """
    shape = np.shape(weights)[2:]
    columns = [_columns(arrays, np.shape(weights)) for arrays in zip(*(part.arguments for part in parts), strict=True)]
    weights = np.reshape(weights, (columns[0].shape[0], -1))
    count = weights.shape[1]
    if not count:
        return [np.empty(shape) for _ in levels]
    weights, *columns = map(_narrow, (weights, *columns))
    chosen, places = _distinct([column for column in (weights, *columns) if column.shape[1] > 1], count)
    weights, *columns = (column if column.shape[1] == 1 else column[:, chosen] for column in (weights, *columns))
    if all(
        _narrow(column.T).shape[1] == 1 for column in (weights, *columns)
    ):  # parents that are known: one distribution
        weights, columns = np.ones((1, weights.shape[1])), [column[:1] for column in columns]
    out = np.empty((len(levels), len(np.arange(count)[chosen])))
    width = max(1, BLOCK // len(weights))
    with np.errstate(all="ignore"):  # a step may lead to where a distribution has no mass
        for begin in range(0, out.shape[1], width):
            own = slice(begin, begin + width)
            few = [column if column.shape[1] == 1 else column[:, own] for column in (weights, *columns)]
            for row, p in zip(out, levels, strict=True):
                row[own] = _solve(parts[0].function, few, p, row[own].size, parts[0].is_whole)[0]
    out = out if parts[0].back is None else np.asarray(parts[0].back(out))
    return [(row if places is None else row[places]).reshape(shape) for row in out]


def _columns(arrays: Sequence[Any], shape: tuple[int, ...]) -> Array:
    whole = np.stack([np.broadcast_to(np.asarray(array, np.float64), shape[1:]) for array in arrays])
    return whole.reshape(shape[0] * shape[1], -1)


def _narrow(column: Array) -> Array:
    """One column of those that are all the same."""
    same = column.shape[1] > 1 and bool((column[0] == column[0, 0]).all() and (column == column[:, :1]).all())
    return column[:, :1] if same else column


def _distinct(columns: list[Array], count: int) -> tuple[Any, Array | None]:
    """The elements that differ, and which of them each one is; all of them, and None, where few are equal."""
    if not columns:
        return slice(1), np.zeros(count, np.int64)
    looked = np.concatenate([column[:: max(1, len(column) // COMPARED)] for column in columns])
    _, chosen, places = np.unique(looked, axis=1, return_index=True, return_inverse=True)
    places = places.reshape(-1)
    if 2 * len(chosen) > count:
        return slice(None), None
    same = all(bool((column == column[:, chosen[places]]).all()) for column in columns)
    return (chosen, places) if same else (slice(None), None)


def _mixture(cdf: Callable[..., Any], columns: list[Array]) -> Mixture:
    """Σ_j w_j F_j; weights, the first of the columns, that are the same for all elements are one column."""
    weights, *arguments = columns

    def value(x: Array) -> Array:
        values = np.broadcast_to(cdf(x, *arguments), (len(weights), len(x)))
        return np.asarray(weights[:, 0] @ values if weights.shape[1] == 1 else np.einsum("ij,ij->j", weights, values))

    return value


def _few(columns: list[Array]) -> list[Array] | None:
    """Every eighth part, of which some count for every element; None if there are few."""
    own = columns[0][::STRIDE]
    total = own.sum(0)
    if len(columns[0]) <= FEW or not (total > 0).all():
        return None
    return [own / total, *(column[::STRIDE] for column in columns[1:])]


def _solve(cdf: Callable[..., Any], columns: list[Array], p: float, size: int, is_whole: bool) -> tuple[Array, Array]:
    """Where F is p, and its slope there; of whole numbers the smallest with F(x) ≥ p."""
    value, few = _mixture(cdf, columns), _few(columns)
    x, slope = (np.zeros(size), np.ones(size)) if few is None else _solve(cdf, few, p, size, is_whole)
    lowest, level = (-1.0, p - MISSED) if is_whole else (-LARGEST, p)
    low, high = np.full(size, lowest), np.full(size, LARGEST)
    before, past, far = x, np.full(size, np.inf), np.zeros(size)
    for _ in range(MOST_STEPS):
        excess = value(x) - level
        low, high = np.where(excess < 0, x, low), np.where(excess < 0, high, x)
        moved = (x != before) & np.isfinite(past)
        new = (excess - past) / (x - before)
        slope = np.where(moved & (new > 0), new, slope)
        done = (high - low <= 1.0 if is_whole else np.abs(excess) <= NEAR) | (np.nextafter(low, high) >= high)
        if done.all():
            break
        step, other = x - excess / slope, _between(low, high)
        if is_whole or few is not None:  # a side that is not known yet is looked for near by
            far = np.maximum(2.0 * far, 1.0 if is_whole else np.maximum(np.abs(excess / slope), np.spacing(np.abs(x))))
            near_by = np.where(excess < 0, x + far, x - far)
            unknown = ((low == lowest) | (high == LARGEST)) & np.isfinite(near_by)
            other = np.where(unknown & (near_by > low), near_by, other)
        good = (step > low) & (step < high) & (np.abs(excess) <= 0.5 * np.abs(past)) & (not is_whole)
        before, past, x = x, excess, np.where(done, x, np.where(good, step, np.ceil(other) if is_whole else other))
    return (np.where(high < LARGEST, high, np.nan) if is_whole else x), slope


def _between(low: Array, high: Array) -> Array:
    """The floating-point number half way between two, counted one by one."""
    first, second = (_ordered(bound.view(np.int64)) for bound in (low, high))
    return _ordered((first >> 1) + (second >> 1) + (first & second & 1)).view(np.float64)


def _ordered(bits: Array) -> Array:
    """The bits of floating-point numbers as integers in their order, and back."""
    return np.asarray(np.where(bits < 0, np.int64(-(2**63)) - bits, bits))


# Draws of the parents for intervals of very many rows, at least, and numbers that are evaluated at once.
LEAST_DRAWS, MOST_NUMBERS = 1_000, 4_000_000


@dataclass(eq=False, repr=False)
class Predictive:
    """The distribution of a node's new values; arrays have its plates first.

    Attributes
    ----------
    node : the node, without data
    lam : natural parameters of hidden nodes; empty where ``draws`` has their values
    new : hidden nodes that are drawn from their own conditionals, by name
    origins : from where locations are measured in ``lam``
    n_draws : int, default=2000
        Draws of the parents for moments and intervals.
    parts : partly observed nodes whose missing elements are read
    members : nodes whose factor is a joint one
    places : by plate, which of its elements each row of its own table is
    labels : ids of elements, by plate
    categories : names of the categories
    rows : plates of a new table whose elements do not depend on one another
    draws : posterior draws from which parents have their values, those of one draw together
    """

    node: Node
    lam: Mapping[str, tuple[Any, ...]]
    new: Mapping[str, Node]
    origins: Mapping[str, Array]
    n_draws: int = 2000
    parts: frozenset[str] = frozenset()
    members: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, Array] = field(default_factory=dict)
    labels: Mapping[str, Any] = field(default_factory=dict)
    categories: Any = None
    rows: frozenset[str] = frozenset()
    draws: Draws | None = None
    _picked: Array | None = None

    def __post_init__(self) -> None:
        if not self.node.can_sample:
            raise TypeError(
                f"{self.node.name!r}: a {type(self.node).__name__} has no predictive distribution; ask its parents or children"
            )

    def sample(self, rng: np.random.Generator | int | None = None, n: int | None = None) -> Array:
        """Draws of new values: ``n`` along a new first axis, or one without it."""
        generator = sample_generator(rng, n, repr(self.node.name))
        values = self._by_row(self._draw_node(self.node, generator, n or 1, {}), 1)
        return values if n is not None else values[0]

    def probabilities(self) -> Array:
        """Of a category, the probability of each: plates, then categories; averaged over draws of the parents."""
        if not self.node.is_category:
            raise TypeError(
                f"{self.node.name!r}: only categories have probabilities; use mean(), interval() or sample()"
            )
        parts = self._given_parents(SameInRows(0), self.n_draws)
        probs = sum((weight[..., None] * slots["probs"]).sum(0) for slots, weight in parts)
        shape = (*(plate.size for plate in self.node.plates), self.node.size or 0)
        return self._by_row(np.broadcast_to(probs, shape).copy())

    def _check_ordered(self, what: str) -> None:
        if self.node.is_category:
            raise TypeError(
                f"{self.node.name!r}: categories have no {what}, their numbers are only names: use probabilities(), or sample()"
            )

    def mean(self) -> Array:
        """The expected value, a function of the row alone.

        Exact for Normal, MultivariateNormal, Laplace and StudentT with a known df above 1; for the others, and where a hidden
        node of the new rows has no data below it, the average over draws of the parents.
        """
        self._check_ordered("mean")
        exact = self._exact_mean()
        return self._by_row(self._moments()[0] if exact is None else exact)

    def var(self) -> Array:
        """The variance of each element: exact for a Normal whose precision is known or one Gamma, or over draws of parents."""
        self._check_ordered("variance")
        exact = self._exact_variance()
        return self._by_row(self._moments()[1] if exact is None else exact)

    def std(self) -> Array:
        """The standard deviation of each element."""
        return np.sqrt(self.var())

    def interval(self, mass: float = 0.9, rng: np.random.Generator | int | None = 0) -> tuple[Array, Array]:
        """Central interval of each element with probability ``mass``.

        Parents are drawn; given them, the law is known, and the ends are quantiles of the mixture of these laws: rows that are
        equal have equal intervals. Of laws whose distribution function is not in closed form, quantiles of draws.
        """
        ends = tails(mass)
        self._check_ordered("interval")
        if type(self.node).cdf_given is Node.cdf_given:
            low, high = np.quantile(self.sample(rng, self.n_draws), ends, axis=0)
            return low, high
        n = min(self.n_draws, max(LEAST_DRAWS, MOST_NUMBERS // max(1, int(np.prod(self._shape, dtype=np.int64)))))
        wide = (..., *(None,) * (len(self._shape) - len(self.node.plates)))  # of a vector all coordinates
        cdfs, weights = list[Cdf](), list[Array]()
        for slots, weight in self._given_parents(SameInRows(rng), n):
            if (cdf := self.node.cdf_given(slots)) is not None:
                cdfs.append(cdf)
                weights.append(np.broadcast_to(weight[wide], (n, *self._shape)))
        low, high = mixture_quantiles(cdfs, np.stack(weights), ends)
        return self._by_row(low), self._by_row(high)

    def frame(self, *, mass: float = 0.9) -> Any:
        """A pandas DataFrame with one row for each row of the table: ids or numbers, mean, sd and interval.

        Vectors have these columns for each of their entries, ``mean_0`` and so on; categories have ``prob_0``, or their names.

        Parameters
        ----------
        mass : float, default=0.9
            Probability of the interval.
        """
        from natgrad.posterior.export import element_frame, summary_arrays

        is_category = self.node.is_category
        summary = {"prob": self.probabilities()} if is_category else summary_arrays(self, mass)
        names = [plate.name for plate in self.node.plates]
        return element_frame(summary, names, self.labels, self.categories if is_category else None)

    def _by_row(self, array: Array, leading: int = 0) -> Array:
        """An array over the plates of the node, after so many axes, in the order of the rows of the table."""
        for axis, plate in enumerate(self.node.plates, start=leading):
            if plate.name in self.places:
                array = np.take(array, self.places[plate.name], axis=axis)
        return array

    def _given_parents(self, rng: SameInRows, n: int) -> Iterator[tuple[dict[str, Array], Array]]:
        """Slots of the node given drawn parents and what each draw counts for [draw, plates], one component after the other.

        A category of the rows that chooses components is not drawn, but added up. Other nodes of the rows are drawn with the
        same random numbers in each row, so that what is predicted of a row is a function of this row alone.
        """
        drawn: dict[str, Array] = {}
        plates, gate = tuple(plate.size for plate in self.node.plates), self._gate()
        shares = None if gate is None else self._shares(gate, rng, n, drawn)
        if gate is None or shares is None:
            yield self._slots(self.node, rng, n, drawn), np.full((n, *(1,) * len(plates)), 1.0 / n)
            return
        sizes = tuple(plate.size for plate in gate.plates)
        shares = shares.reshape(*shares.shape, *(1,) * (len(plates) - len(sizes)))
        for k, share in enumerate(shares / n):
            drawn[gate.name] = np.full((n, *sizes), k)
            yield self._slots(self.node, rng, n, drawn), share

    def _gate(self) -> Node | None:
        """The category that alone of the rows' hidden nodes is read, by rows on the first plates of the node; or None."""
        local = {node.name: node for node in self._above(self.node) if node.name in self.new or self._row_axes(node)}
        gate = next(iter(local.values()), None)
        if len(local) != 1 or gate is None or not gate.is_category:
            return None
        return gate if tuple(gate.plates) == tuple(self.node.plates)[: len(gate.plates)] else None

    def _above(self, node: Node) -> Iterator[Node]:
        """The hidden nodes that are drawn for the values of a node."""
        for parent in (parent for parent in node.parents() if not self._is_known(parent)):
            yield self.new.get(parent.name, parent)
            if parent.name in self.new:
                yield from self._above(self.new[parent.name])

    def _shares(self, gate: Node, rng: SameInRows, n: int, drawn: dict[str, Array]) -> Array | None:
        """Probabilities of the categories [category, draw, plates of the gate]."""
        shape = (n, *(plate.size for plate in gate.plates), gate.size or 0)
        if gate.name in self.new:
            shares = self._slots(gate, rng, n, drawn)["probs"]
        elif gate.name in self.lam and gate.name not in self.members:
            shares = gate.family.mean(tuple(np.asarray(part) for part in self.lam[gate.name]))
        else:
            return None
        shares = np.broadcast_to(shares / shares.sum(-1, keepdims=True), shape)
        return np.moveaxis(shares, -1, 0)

    def log_density(self, values: npt.ArrayLike, rng: np.random.Generator | int | None = 0, n: int = 200) -> Array:
        """Log p(values | data) of each element: the average density over ``n`` draws of the parents.

        Of a Gaussian whose precision has a factor of its own this precision is integrated out, not drawn: far from the mean few
        draws of it say anything, and all rows would share their error.
        """
        points = self._checked_values(values)
        with np.errstate(divide="ignore"):  # a category may be ruled out
            logs = [
                logsumexp(self._log_density(points, slots, n) + np.log(weight), axis=0)
                for slots, weight in self._given_parents(SameInRows(rng), n)
            ]
        return self._by_row(np.asarray(logsumexp(np.stack(logs), axis=0)))

    def _log_density(self, points: Array, slots: dict[str, Array], n: int) -> Array:
        """Log densities given drawn parents [draw, plates]."""
        if (precision := self._own_precision()) is not None:
            logs = self.node.log_density_without_precision(points, slots["mean"], *precision)
        else:
            logs = self.node.log_density_given(points, slots)
        return np.broadcast_to(logs, (n, *(plate.size for plate in self.node.plates)))

    def _checked_values(self, values: Any) -> Array:
        points = as_numbers(values, f"log_density of {self.node.name!r}: values")
        needed = self._by_row(np.empty(self._shape)).shape
        if points.shape != needed:
            raise PlateMismatch(
                f"log_density of {self.node.name!r}: values have shape {points.shape}, but {needed} is needed"
            )
        for axis, plate in enumerate(self.node.plates):
            if (rows := self.places.get(plate.name)) is not None:  # a level without a row has any value
                spread = np.repeat(np.take(points, [0], axis=axis), plate.size, axis=axis)
                spread[(slice(None),) * axis + (rows,)] = points
                points = spread
        if self.node.is_category:
            present = np.ones(points.shape, dtype=bool)
            return checked_categories(
                f"log_density of {self.node.name!r}: values", points, self.node.size or 0, present
            )
        return points

    # -- drawing --

    def _draw_node(self, node: Node, rng: np.random.Generator, n: int, drawn: dict[str, Array]) -> Array:
        slots = self._slots(node, rng, n, drawn)
        return node.sample_given(slots, self._noise(rng, node), (n, *(plate.size for plate in node.plates)))

    def _row_axes(self, node: Node) -> tuple[int, ...]:
        """Axes of draws of a node that are rows of the new table; those of a chain are not alike."""
        if node.block_plates != node.plates:
            return ()
        return tuple(place for place, plate in enumerate(node.plates, start=1) if plate.name in self.rows)

    def _noise(self, rng: np.random.Generator, node: Node) -> Any:
        even = isinstance(rng, SameInRows) and node.block_plates == node.plates
        return rng.along(self._row_axes(node)) if even else rng  # type: ignore[attr-defined]

    def _slots(self, node: Node, rng: np.random.Generator, n: int, drawn: dict[str, Array]) -> dict[str, Array]:
        """The value of every parameter slot for each draw: [draw, plates, event]."""
        if not drawn:
            self._picked = None
        for parent in node.parents():
            if self._is_known(parent) or parent.name in drawn:
                continue
            if parent.name in self.new:
                drawn[parent.name] = self._draw_node(self.new[parent.name], rng, n, drawn)
            elif parent.name in self.members:
                drawn[parent.name] = part_of_joint(
                    self.members[parent.name], self.lam, self.origins, self._noise(rng, parent), n, drawn
                )
            else:
                drawn[parent.name] = self._posterior(parent, rng, n)
        moments = {
            parent.name: parent.family.stats_of(drawn[parent.name], parent.size)
            for parent in node.parents()
            if not self._is_known(parent)
        }
        return slot_values(node, moments, n, self.parts)

    def _posterior(self, parent: Node, rng: np.random.Generator, n: int) -> Array:
        """Draws of a hidden node: from its factor, or its values at the same posterior draws as those of all others."""
        if self.draws is None:
            lam = tuple(np.asarray(part) for part in self.lam[parent.name])
            return np.asarray(parent.family.sample(lam, self._noise(rng, parent), n) + self.origins.get(parent.name, 0))
        kept = (own for own in self.draws.values() if own.kept is not None)
        stride = max((own.stride for own in kept), default=1)
        factor = self.draws[parent.name]
        values = factor.values[:, :: stride // factor.stride]
        flat = values.reshape(-1, *values.shape[2:])
        if self._picked is None:
            # All of them as often as one another, as far as n goes; the rest at random.
            whole = np.tile(np.arange(len(flat)), n // len(flat))
            self._picked = np.concatenate([whole, rng.choice(len(flat), n - len(whole), replace=False)])
        return np.asarray(flat[self._picked])

    def _is_known(self, parent: Node) -> bool:
        return parent.is_observed and all(parent.name not in drawn for drawn in (self.lam, self.new, self.draws or ()))

    def _own_precision(self) -> tuple[Array, Array] | None:
        """Shape (dof) and rate of a Gaussian's precision over its plates, if its q is a factor that nothing else drawn meets."""
        expression = self.node.parameters.get("precision")
        read = expression.whole if isinstance(expression, Node) else expression
        if not self.node.is_gaussian or not isinstance(read, Access):
            return None
        if any(isinstance(selector, Access) for selector in read.selectors):
            return None
        tau = read.node
        if self._is_known(tau) or tau.name in self.members or tau.name not in self.lam:
            return None
        if tau.name in self.new or any(tau.name in _ancestors(node) for node in self.new.values()):
            return None
        usual = tau.family.usual(tuple(np.asarray(part) for part in self.lam[tau.name]))
        if tau.family.is_precision and tau.family.event_ndim:
            first = usual["dof"][..., None, None] * np.eye(tau.size or 0)
        elif tau.family.is_precision:
            first = usual["shape"]
        else:
            return None
        # "x" is the first statistic of both: what is read at the places of the node are the parameters.
        shape, rate = (
            slot_statistic(self.node, read, "x", {tau.name: (part, part)}, None, self.parts)
            for part in (first, usual["rate"])
        )
        return shape, rate

    # -- moments --

    def _moments(self) -> tuple[Array, Array]:
        """Mean and variance over draws of the parents, given which they are known; of the few laws without, of draws."""
        shape, found = (self.n_draws, *self._shape), []
        for slots, weight in self._given_parents(SameInRows(0), self.n_draws):
            if (given := self.node.mean_var_given(slots)) is None:
                draws = self.sample(0, self.n_draws)
                return draws.mean(axis=0), draws.var(axis=0)
            # Draws of the node itself would have its own noise on top: rows that are equal would be predicted differently.
            mean, var = (np.broadcast_to(part, shape) for part in given)
            weight = weight.reshape(*weight.shape, *(1,) * (len(shape) - weight.ndim))
            mass = weight.sum(0)
            own = (weight * mean).sum(0) / np.where(mass > 0, mass, 1.0)
            found.append((mass, own, (weight * (var + (mean - own) ** 2)).sum(0)))
        total = np.asarray(sum(mass * own for mass, own, _ in found))
        return total, np.asarray(sum(var + mass * (own - total) ** 2 for mass, own, var in found))

    @property
    def _shape(self) -> tuple[int, ...]:
        """That of a value: plates, then the event."""
        event = (self.node.size or 0,) * self.node.family.event_ndim
        return (*(plate.size for plate in self.node.plates), *event)

    @property
    def _has_q_of_parents(self) -> bool:
        """Whether every hidden parent has a factor; one of new rows, or of draws, has none."""
        parents = [parent.name for parent in self.node.parents() if not self._is_known(parent)]
        return all(name in self.lam and name not in self.new for name in parents)

    def _exact_mean(self) -> Array | None:
        if not (self.node.is_gaussian or self.node.is_located) or not self._has_q_of_parents:
            return None
        return self._expected("mean", "x") + self._constant()

    def _expected(self, slot: str, statistic: str) -> Array:
        """A statistic of a slot; a mean is measured from `_constant`."""
        moments = {
            parent.name: parent.family.expected_stats(tuple(np.asarray(p) for p in self.lam[parent.name]))
            for parent in self.node.parents()
            if not self._is_known(parent)
        }
        expression = self.node.parameters[slot]
        if slot == "mean":
            expression = centred_mean(self.node, expression, self.origins)[0]
        return slot_statistic(self.node, expression, statistic, moments, None, self.parts)

    def _constant(self) -> Array:
        return centred_mean(self.node, self.node.parameters["mean"], self.origins)[1]

    def _exact_variance(self) -> Array | None:
        if not self.node.is_gaussian or self.node.family.event_ndim or not self._has_q_of_parents:
            return None
        if any(parent.name in self.members for parent in self.node.parents()):
            return None  # they are not independent
        precision = self.node.parameters["precision"]
        if isinstance(precision, Constant):
            noise = 1.0 / self._expected("precision", "x")
        elif (
            isinstance(precision, Node)
            and precision.family.is_precision
            and not precision.plates
            and not precision.is_observed
        ):
            usual = precision.family.usual(tuple(np.asarray(p) for p in self.lam[precision.name]))
            # E[1/τ] of a shape up to one is infinite, and any number of draws would say something else.
            noise = usual["rate"] / (usual["shape"] - 1.0) if usual["shape"] > 1 else np.asarray(np.inf)
        else:
            return None
        return np.asarray(self._expected("mean", "xx") - self._expected("mean", "x") ** 2 + noise)


def make_predictive(
    plan: Plan,
    lam: Mapping[str, tuple[Any, ...]],
    name: str,
    sizes: Mapping[Any, int],
    slots: Mapping[str, Any],
) -> Predictive:
    """A copy of a node with new parameters and new plate sizes, ready to be drawn."""
    if name not in plan.declared:
        raise KeyError(f"{name!r} is not in this network; nodes are {', '.join(plan.declared)}")
    original = plan.declared[name]
    if not isinstance(sizes, Mapping):
        raise TypeError(
            f"predictive({name!r}): sizes maps plates to their new sizes, as in {{plate: 100}}, got {sizes!r}"
        )
    names = [slot.name for slot in original.slots_of]
    for slot in slots:
        if slot not in names:
            raise TypeError(
                f"predictive({name!r}): there is no parameter {slot!r}; {type(original).__name__} has {', '.join(names)}"
            )
    new_sizes = {(plate.name if isinstance(plate, Plate) else str(plate)): size for plate, size in sizes.items()}
    known = {plate.name for node in plan.declared.values() for plate in node.plates}
    for plate in new_sizes:
        if plate not in known:
            raise PlateMismatch(f"predictive({name!r}): there is no plate {plate!r}; the network has {sorted(known)}")
    filled = {slot.name: original._filled(slot, slots[slot.name]) for slot in original.slots_of if slot.name in slots}
    if filled and not new_sizes:
        new_sizes = found_size(original, filled)
    node = _resized(original, new_sizes, filled)
    new = {
        other.name: _resized(other, new_sizes, {})
        for other in plan.declared.values()
        if not other.is_observed and any(p.name in new_sizes and p.size != new_sizes[p.name] for p in other.plates)
    }
    for parent in node.parents():
        if not parent.is_observed and plan.declared.get(parent.name) is not parent:
            raise ValueError(
                f"predictive({name!r}): {parent.name!r} is not a node of this network; write the new parameters with the nodes "
                "that were fitted"
            )
    for resized in (node, *new.values()):
        _check_sizes_of_data(name, resized)
    lam, origins = expanded(plan, lam)
    return Predictive(node, lam, new, origins, parts=plan.parts, members=plan.members)


def _check_sizes_of_data(name: str, node: Node) -> None:
    """Observed nodes that are read element by element must have as many values as are predicted."""
    sizes = {plate.name: plate.size for plate in node.plates}
    for slot, expression in node.parameters.items():
        for access in expression.accesses():
            for plate, selector in zip(access.node.plates, access.selectors, strict=True):
                size = sizes.get(plate.name, plate.size)  # a plate that is summed over stays
                if access.node.is_observed and selector is None and size != plate.size and plate.size > 1:
                    raise PlateMismatch(
                        f"predictive({name!r}): {access.node.name!r}, which {node.name!r} reads in {slot}=, is observed on "
                        f"{plate.size} elements of {plate.name!r}, and {size} are to be predicted: write the parameters "
                        "that read it again, with new values in its place"
                    )


def _ancestors(node: Node) -> set[str]:
    """Names of all that a node depends on."""
    return {name for parent in node.parents() for name in {parent.name, *_ancestors(parent)}}


def hidden_twin(node: Node) -> Node:
    """The node as it would be without its data."""
    return _resized(node, {}, {})


def _resized(node: Node, sizes: Mapping[str, int], filled: Mapping[str, Expression]) -> Node:
    twin = copy.copy(node)
    twin.plates = tuple(Plate(p.name, sizes[p.name]) if p.name in sizes else p for p in node.plates)
    # Auxiliary variables are those of the data that were seen; new values are drawn without them.
    slots = {name: value for name, value in node.parameters.items() if not getattr(value, "is_auxiliary", False)}
    twin.parameters = {**slots, **filled}
    for slot in node.slots_of:
        if slot.name in filled:
            twin._check_slot_size(slot)
    twin.is_observed, twin.value, twin.mask, twin.entries = False, None, None, None
    return twin
