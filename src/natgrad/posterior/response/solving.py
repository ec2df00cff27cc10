"""Solve for variances and covariances of nodes and of functions of the means."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConverged
from natgrad.posterior.factor import Factor
from natgrad.posterior.response.operator import Operator
from natgrad.posterior.response.solvers import Dense, Eliminated, Settled, conjugate_gradients, matrix_of
from natgrad.threads import one_blas_thread

__all__ = ["Quantities", "Quantity", "Solver", "Values", "as_quantities", "probed_diagonal"]

Floats = npt.NDArray[np.float64]
# Steps of numerical derivatives, in standard deviations under q: what is cut off is their square, rounding their inverse.
STEP = 1e-4
# Numbers of a node from which on they are moved in groups; an irrational number, whose multiples differ.
GROUPED, GOLDEN = 32, 0.6180339887498949

Quantity = Mapping[str, Any]  # the weights of each node's values
_Known = dict[str, tuple[Floats, Floats]]  # mean and standard deviation by name


class Quantities(NamedTuple):
    """The value of a quantity at the means, and the derivative of each of its elements, in C order."""

    value: Floats
    quantities: list[Quantity]


def as_quantities(of: Any, factors: Mapping[str, Factor], moments: _Known | None = None) -> Quantities:
    """The elements of a node (its name, or itself), or of a function of the means, as weights on values.

    ``moments`` keeps the mean and the standard deviation of nodes from one question to the next.
    """
    if callable(of) and not hasattr(of, "family"):
        return _of_function(of, factors, {} if moments is None else moments)
    name: str = getattr(of, "name", of)
    if name not in factors:
        raise KeyError(f"{name!r} is not a hidden node; these are {', '.join(factors)}")
    mean = np.asarray(factors[name].mean(), np.float64)
    eye = np.eye(mean.size)
    return Quantities(mean, [{name: row.reshape(mean.shape)} for row in eye])


class _Means(Mapping[str, Any]):
    """The means by name, which record the names that are asked for; some may be given in their place."""

    def __init__(self, factors: Mapping[str, Factor], given: Mapping[str, Floats], known: _Known) -> None:
        self._factors, self._given, self._known = factors, given, known
        self.asked: dict[str, Floats] = {}

    def __getitem__(self, name: Any) -> Floats:
        name = name if isinstance(name, str) else getattr(name, "name", name)
        if name not in self._factors:
            raise KeyError(f"{name!r} is not a hidden node; these are {', '.join(self._factors)}")
        if name in self._given:
            return self._given[name]
        if name not in self.asked:
            if name not in self._known:
                mean = np.asarray(self._factors[name].mean(), np.float64)
                self._known[name] = mean, np.broadcast_to(self._factors[name].std(), mean.shape)
            self.asked[name] = self._known[name][0]
        return self.asked[name].copy()

    def __iter__(self) -> Iterator[str]:
        return iter(self._factors)

    def __len__(self) -> int:
        return len(self._factors)


def _of_function(function: Callable[..., Any], factors: Mapping[str, Factor], kept: _Known) -> Quantities:
    means = _Means(factors, {}, kept)
    value = np.asarray(function(means), np.float64)
    if (known := getattr(function, "derivatives", None)) is not None:  # nothing to be differentiated number by number
        return Quantities(value, list(known(means)))
    slopes = {
        name: _slope(function, value, name, mean, np.where(kept[name][1] == 0.0, 1.0, kept[name][1]), factors, kept)
        for name, mean in means.asked.items()
    }
    if not np.all(np.isfinite(value)) or not all(np.all(np.isfinite(s)) for s in slopes.values()):
        raise ValueError("the function, or its derivative, is not finite at the means")
    return Quantities(value, [{name: s[place] for name, s in slopes.items()} for place in np.ndindex(value.shape)])


def _slope(
    function: Callable[..., Any],
    value: Floats,
    name: str,
    mean: Floats,
    sd: Floats,
    factors: Mapping[str, Factor],
    kept: _Known,
) -> Floats:
    """The derivative by every number of one node [axes of the value, those of the node].

    Most functions read few numbers of a large node. So √n of them are moved at once, each by a step of its own, so that no two
    cancel; where not a bit of the value changes on either side, none of them counts.
    """
    given: dict[str, Floats] = {}
    there, flat, steps = _Means(factors, given, kept), mean.ravel(), STEP * np.ravel(sd)

    def at(places: Any, numbers: Any) -> Any:
        moved = flat.copy()
        moved[places] = numbers
        given[name] = moved.reshape(mean.shape)
        return function(there)

    def counts(places: slice) -> bool:
        own = steps[places] * (0.5 + (np.arange(mean.size)[places] * GOLDEN) % 1.0)
        return any(not np.array_equal(at(places, flat[places] + sign * own), value) for sign in (1.0, -1.0))

    columns = np.zeros((mean.size, *value.shape))
    width = math.isqrt(mean.size) if mean.size >= GROUPED else max(mean.size, 1)
    ends = list(zip((flat + steps).tolist(), (flat - steps).tolist(), strict=True))
    for begin in range(0, mean.size, width):
        group = slice(begin, begin + width)
        if width == mean.size or counts(group):
            for place in range(mean.size)[group]:
                columns[place] = np.subtract(at(place, ends[place][0]), at(place, ends[place][1]), dtype=np.float64)
    columns /= (2.0 * steps).reshape(-1, *(1,) * value.ndim)
    return np.moveaxis(columns, 0, -1).reshape(value.shape + mean.shape)


class Values(NamedTuple):
    """Covariances of linear response of the values of some blocks, and where those of each block are."""

    covariance: Floats
    places: Mapping[str, slice]

    def cov_with(self, quantity: Quantity, others: Sequence[Quantity]) -> list[float] | None:
        """Covariances of a quantity with others; None where one of them reads what is not here."""
        if any(name not in self.places for of in (quantity, *others) for name in of):
            return None
        moved = self.covariance @ self._weights(quantity)
        return [float(np.vdot(self._weights(other), moved)) for other in others]

    def _weights(self, quantity: Quantity) -> Floats:
        weights = np.zeros(len(self.covariance))
        for name, part in quantity.items():
            weights[self.places[name]] = np.ravel(part)
        return weights


def values_of(system: Dense | Eliminated, shapes: Mapping[str, tuple[int, ...]]) -> Values:
    """Covariances of all values of some blocks with these shapes.

    With S the sources Cov_q(x, φ) of all values x, Cov_LR = Cov_q(x, x) + S dλ, dλ the solutions for J Sᵀ: three products of
    matrices, where one question after the other would take as many calls for each.
    """
    operator, n = system.operator, sum(math.prod(shape) for shape in shapes.values())
    places: dict[str, slice] = {}
    sources, own, end = np.zeros((n, operator.size)), np.zeros((n, n)), 0
    for name, shape in shapes.items():
        here = places[name] = slice(end, end + math.prod(shape))
        sources[here, operator.places[name]], own[here, here] = operator.sources(name, shape)
        end = here.stop
    return Values(own + sources @ system.responses(sources).T, places)


#     diag(C) = E[z ∘ C z]                                         for random signs z (Bekas, Kokiopoulou and Saad, 2007)
#             = diag(Q Qᵀ C) + E[z ∘ (I − Q Qᵀ) C z]               for any orthogonal Q
#
# The first is as good as C is near its diagonal. Where few directions carry most of C, as biases have those of all factors in
# common, Q spans what C makes of the probes: the first part of the second line is known once C Q is, and the rest is small. Each
# probe is left out of the Q that it is used with, so that all of them serve for both (XDiag: Epperly, Tropp and Webber, 2024,
# "XTrace: making the most of every sample in stochastic trace estimation"). Which of the two it is, the first probes say.

Product = Callable[[Floats], Floats]


def probed_diagonal(
    product: Product, n: int, products: int, rng: np.random.Generator, known: Floats | None = None
) -> tuple[Floats, Floats]:
    """The diagonal of a matrix [n, n] and its standard errors, by so many products; ``known`` is a direction that carries much.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> half = rng.normal(size=(50, 3))
    >>> diagonal, error = probed_diagonal(lambda z: half @ (half.T @ z), 50, 8, rng)
    >>> bool(np.allclose(diagonal, (half**2).sum(1)))  # three directions carry all of it
    True
    """
    if n <= products:
        return np.diagonal(_all(product, np.eye(n))).copy(), np.zeros(n)
    signs: Floats = rng.choice(np.array([-1.0, 1.0]), size=(n, max(products - (known is not None), 2)))
    common = np.zeros((n, 0)) if known is None else product(known)[:, None]
    own: Floats = np.zeros(n)
    if known is not None and (size := float(known @ common[:, 0])) > 0.0:
        own = common[:, 0] ** 2 / size  # the part of C that is known from one product
    half = max(signs.shape[1] // 2, 2)
    made = _all(product, signs[:, :half])
    if _directions(made - _through(common, known, signs[:, :half])) <= half:
        return _without(product, signs[:, : max(half - common.shape[1], 2)], made, common)
    made = np.concatenate([made, _all(product, signs[:, half:])], axis=1)
    terms = signs * (made - _through(common, known, signs))
    return own + terms.mean(1), terms.std(1, ddof=1) / np.sqrt(terms.shape[1])


def _all(product: Product, vectors: Floats) -> Floats:
    return np.stack([product(vector) for vector in vectors.T], axis=1) if vectors.shape[1] else vectors


def _through(common: Floats, known: Floats | None, signs: Floats) -> Floats:
    """What c cᵀ / kᵀ c makes of the probes, c = C k."""
    if known is None or not (size := float(known @ common[:, 0])) > 0.0:
        return np.zeros_like(signs)
    return common * (common[:, 0] @ signs) / size


def _directions(made: Floats) -> float:
    """How many directions carry a matrix: what it makes of independent probes is parallel where they are few."""
    gram = made.T @ made
    size = np.sqrt(np.diagonal(gram))
    if not size.min() > 0.0:
        return 0.0
    cosines = (gram / np.outer(size, size))[np.triu_indices(len(gram), 1)]
    return float(1.0 / max(float(np.mean(cosines**2)), 1e-12))


def _without(product: Product, signs: Floats, made: Floats, common: Floats) -> tuple[Floats, Floats]:
    """The second line, with each probe left out of Q in its turn."""
    probes = signs.shape[1]
    made = made[:, :probes]
    basis, scale = np.linalg.qr(np.concatenate([common, made], axis=1))
    pivots = np.abs(np.diagonal(scale))
    through = _all(product, basis)
    left = np.zeros((len(scale), probes))
    # Q without what one probe added is Q (I − s sᵀ), s along a column of R⁻ᵀ. Where they span less, nothing is lost with one.
    if pivots.min() > 1e-10 * max(pivots.max(), 1e-300):
        left = np.linalg.inv(scale).T[:, common.shape[1] :]
        left = left / np.linalg.norm(left, axis=0)
    inner = basis.T @ made
    inner = inner - left * (left * inner).sum(0)
    estimates = (basis * through).sum(1)[:, None] - (basis @ left) * (through @ left) + signs * (made - basis @ inner)
    return estimates.mean(1), estimates.std(1, ddof=1) / np.sqrt(probes)


Stats = tuple[Any, ...]
# Numbers in λ up to which a matrix of that size is made at once, or may be made; numbers of kept solutions; values of which all
# covariances are found at once, and numbers in their solutions.
SMALL, MOST_DENSE, MOST_KEPT, MOST_VALUES, MOST_SOLVED = 32, 1_000, 20_000_000, 64, 100_000
# What is probed has an error of percents anyway; this one is counted tenfold beside it, since solutions are less exact than
# residuals.
PROBE_TOL = 1e-4
# Relative standard errors of a standard deviation above which an element is solved for, if that are few, and is not known.
DOUBT, LOST = 0.1, 0.5


class Solver:
    """Covariances of linear response at one state."""

    def __init__(self, settled: Settled, factors: Mapping[str, Factor], tol: float, limit: int) -> None:
        self._dense = settled.matrix
        self.operator = Operator(settled.at) if self._dense is None else self._dense.operator
        self.operator.flat, self.factors = settled.flat, factors
        self._tol, self._limit = tol, limit
        self._looked = self._dense is not None  # whether it is a matrix by itself
        self._iterations = 10.0  # of a solve, as the last ones took
        self._kept: dict[Any, Floats] = {}

    # -- solves --

    def solve(self, b: Floats, tol: float = 0.0) -> Floats:
        """Find x with (I − J V) x = b; ``tol`` is a coarser tolerance than usual."""
        tol = max(tol, self._tol)
        self.expect(1)
        if self._dense is not None:
            return self._dense.solve(b).x
        cg = conjugate_gradients(self.operator, b, tol, self._limit)
        self._iterations = 0.5 * (self._iterations + cg.iterations)
        if cg.residual > 100 * tol:
            warnings.warn(
                f"conjugate gradients stopped after {cg.iterations} products with {cg.residual:.1g} of the right-hand side "
                "left: these covariances are not right to more than that. Raise max_iterations, or use draws",
                NotConverged,
                stacklevel=6,
            )
        return cg.x

    def expect(self, solves: int) -> None:
        """Make the matrix if that takes fewer products than so many solves by conjugate gradients, or than were made so far.

        Who does not know how often he will be asked makes it when he has paid its price: at most twice what was needed.
        """
        if self._dense is None and not self._looked:
            self._dense, self._looked = matrix_of(self.operator), True
        n = self.operator.size
        pays = n <= SMALL or n < max(solves * self._iterations, self.operator.n_products)
        if self._dense is None and n <= MOST_DENSE and pays:
            with one_blas_thread():  # threads gain nothing at this size, and lose much where others use the machine
                self._dense = Dense(self.operator)

    # -- quantities --

    def _by_block(self, quantity: Quantity) -> Quantity:
        """The weights of parts of a block as weights of the block."""
        views = self.operator.at.views
        quantity = {name: self._unseen(name, weights) for name, weights in quantity.items()}
        if not any(name in views for name in quantity):
            return quantity
        by_block = {name: weights for name, weights in quantity.items() if name not in views}
        for name in (name for name in quantity if name in views):
            block, place = views[name]
            whole = np.zeros(np.shape(self.factors[block].mean()))
            whole[(..., *place)] = quantity[name]
            by_block[block] = by_block[block] + whole if block in by_block else whole
        return by_block

    def _unseen(self, name: str, weights: Any) -> Any:
        """Weights of the elements that are not data."""
        return weights if self.factors[name].seen is None else np.where(self.factors[name].var() > 0, weights, 0.0)

    def source(self, quantity: Quantity) -> Floats:
        """Cov_q(φ, g), of one copy where an element stands for several."""
        stats_of = {}
        for name, weights in self._by_block(quantity).items():
            stats = self.operator.covariances[name].stats_by(np.asarray(weights, np.float64))
            if name in self.operator.at.weights:
                stats = _shared(stats, self.operator.at.weights[name], name, weights)
            stats_of[name] = stats
        return self.operator.pack(stats_of)

    def change(self, quantity: Quantity) -> Floats:
        """The change dλ for a tilt by the quantity, kept for single elements."""
        key = _key(quantity)
        if key is None or key not in self._kept:
            x = self.solve(self.operator.curvature(self.source(quantity)))
            if key is None or sum(kept.size for kept in self._kept.values()) > MOST_KEPT:
                return x
            self._kept[key] = x
        return self._kept[key]

    def moved(self, quantity: Quantity) -> dict[str, Stats]:
        """The change dμ of all blocks for a tilt by the quantity."""
        direction = self.source(quantity) + self.operator.fisher(self.change(quantity))
        return self.operator.unpack(direction)

    def _read(self, quantity: Quantity, of: Quantity, change: Floats) -> float:
        """Cov_q(h, g) + Cov_q(h, φ)·dλ."""
        total, of = 0.0, self._by_block(of)
        for name, weights in self._by_block(quantity).items():
            covariance = self.operator.covariances[name]
            value = covariance.value_by(self.operator.part(change, name))
            if name in of:
                value = value + covariance.own(np.asarray(of[name], np.float64))
            total += float(np.vdot(weights, value))
        return total

    def var(self, quantity: Quantity) -> float:
        """Var_LR of a quantity."""
        return self.cov_with(quantity, [quantity])[0]

    def cov_with(self, quantity: Quantity, others: Sequence[Quantity]) -> list[float]:
        """Cov_LR of a quantity with several, by one solve."""
        self.expect(len(others))
        if self._values is not None:  # all of them are known
            found = self._values.cov_with(self._by_block(quantity), [self._by_block(other) for other in others])
            if found is not None:
                return found
        change = self.change(quantity)
        return [self._read(other, quantity, change) for other in others]

    @cached_property
    def _values(self) -> Values | None:
        """Covariances of the values of small blocks; None where they would be many, or some direction is flat."""
        if self._dense is None or not self._dense.is_clear or self.operator.weights is not None:
            return None
        shapes = {name: np.shape(self.factors[name].mean()) for name in self.operator.places}
        sizes = {name: math.prod(shape) for name, shape in shapes.items()}
        small, total = {}, 0
        for name in sorted(sizes, key=sizes.__getitem__):
            total += sizes[name]
            if total > MOST_VALUES or total * self.operator.size > MOST_SOLVED:
                break
            small[name] = shapes[name]
        return values_of(self._dense, small) if small else None

    # -- whole nodes --

    def variances(self, name: str) -> Floats:
        """The variance of each element of a node, by one solve for each."""
        mean = np.asarray(self.factors[name].mean())
        self.expect(mean.size)
        if self._values is not None and self.factors[name].seen is None and name in self._values.places:
            return np.diagonal(self._values.covariance)[self._values.places[name]].reshape(mean.shape).copy()
        out = np.empty(mean.shape)
        for place in np.ndindex(mean.shape):
            unit = np.zeros(mean.shape)
            unit[place] = 1.0
            out[place] = np.nan if self._left_out(name, place) else self.var({name: unit})
        return out

    def probed(self, name: str, probes: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """The variance of each element, and its standard error, by so many solves: q's own, which is known, plus the rest.

        The rest is probed in units of q's own standard deviations (`probing`). What stays uncertain is solved for, element by
        element, as far as a few solves go.
        """
        own = np.asarray(self.factors[name].var(), np.float64)
        block, place = self.operator.at.views.get(name, (name, None))
        covariance, unit = self.operator.covariances[block], np.sqrt(own)
        inverse = np.asarray(self._unseen(name, np.divide(1.0, unit, out=np.zeros_like(unit), where=unit > 0)))
        self.expect(probes)

        def rest(weights: Floats) -> Floats:
            """C z, in units of q."""
            source = self.source({name: inverse * weights.reshape(own.shape)})
            change = self.solve(self.operator.curvature(source), PROBE_TOL)
            moved = covariance.value_by(self.operator.part(change, block))
            return np.asarray(inverse * (moved if place is None else moved[(..., *place)])).ravel()

        # What all elements have in common, as biases beside a level, is a direction that no probe has to find. Probabilities sum
        # to one: their sum does not vary, and has nothing in common with anything.
        whole = self._by_block({name: np.asarray(self._unseen(name, np.ones(own.shape)))})[block]
        varies = float(np.vdot(whole, covariance.own(whole))) > 1e-9 * float(own.sum())
        found = probed_diagonal(rest, own.size, probes, rng, unit.ravel() if varies else None)
        ratio, error = (part.reshape(own.shape) for part in found)
        variance, error = own * (1.0 + ratio), own * np.hypot(error, 10.0 * PROBE_TOL * ratio)
        self._refine(name, variance, error, own, probes)
        return variance, error

    def _refine(self, name: str, variance: Floats, error: Floats, own: Floats, most: int) -> None:
        """Solve for the elements that are known worst, in place; say how many are not known at all."""
        with np.errstate(divide="ignore", invalid="ignore"):
            doubt = np.where(variance > 0, 0.5 * error / variance, np.inf)
        doubt[own <= 0] = 0.0
        for flat in np.argsort(-doubt, axis=None, kind="stable")[:most]:
            place = np.unravel_index(flat, doubt.shape)
            if doubt[place] <= DOUBT:
                break
            unit = np.zeros(own.shape)
            unit[place] = 1.0
            change = self.solve(self.operator.curvature(self.source({name: unit})), PROBE_TOL)
            variance[place], error[place], doubt[place] = self._read({name: unit}, {name: unit}, change), 0.0, 0.0
        if (lost := doubt > LOST).any():
            variance[lost] = error[lost] = np.nan
            warnings.warn(
                f"{int(lost.sum())} of {own.size} variances of {name!r} are not known to better than {LOST:.0%} after {most} "
                "probes, and are NaN: raise probes=, or ask for single elements by a function",
                NotConverged,
                stacklevel=6,
            )

    def _left_out(self, name: str, place: tuple[int, ...]) -> bool:
        weight = self.operator.at.weights.get(self.operator.at.views.get(name, (name,))[0])
        return weight is not None and weight[place[: weight.ndim]] == 0


def _key(quantity: Quantity) -> Any:
    """A single element of a node; None for anything else."""
    if len(quantity) != 1:
        return None
    ((name, weights),) = quantity.items()
    places = np.flatnonzero(weights)
    return (name, int(places[0])) if len(places) == 1 and np.ravel(weights)[places[0]] == 1.0 else None


def _shared(stats: Stats, weight: Floats, name: str, asked: Any) -> Stats:
    """The part of each of w copies, 1/w; an element of weight 0 is not among the data."""
    used = np.any(np.reshape(np.asarray(asked) != 0, (*weight.shape, -1)), axis=-1)
    if np.any(used & (weight == 0)):
        place = tuple(int(i) for i in np.argwhere(used & (weight == 0))[0])
        raise ValueError(f"{name}{list(place)} has weight 0: it is left out of the data, and nothing responds to it")
    inverse = np.divide(1.0, weight, out=np.zeros_like(weight), where=weight > 0)
    return tuple(part * inverse.reshape(weight.shape + (1,) * (np.ndim(part) - weight.ndim)) for part in stats)
