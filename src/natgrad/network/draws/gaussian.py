"""Gaussian nodes that meet in a term, drawn together: values of everything else in, b and A of their joint conditional out.

    log p(x | rest) = −½ xᵀ A x + bᵀ x + const,    x ~ N(A⁻¹ b, A⁻¹)

Coordinate by coordinate a chain would creep along the correlations of the posterior; drawn together it forgets them at once. A is
read off the polynomial: a monomial with two means of the group contributes the product of its other factors at the two elements
that are read, one with a second moment at one of them (vectors: at two of its entries), one with a single mean contributes to b.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import Block
from natgrad.network.compile.polynomial import Factor, Label, Monomial, Take, ordered_labels
from natgrad.network.draws.chains import CHAIN
from natgrad.network.execute.addressing import read_factor
from natgrad.network.execute.joint import joint_groups
from natgrad.network.execute.numpy_contraction import Contraction
from natgrad.network.execute.problem import NetworkProblem

__all__ = ["GaussianDraw", "drawn_together"]

Array = npt.NDArray[Any]
Values = Mapping[str, Array]
Stats = Mapping[str, tuple[Any, ...]]
# Numbers up to which nodes are drawn together: their matrix is factorised at every sweep. Entries that are added up for it.
LARGEST, MOST_ENTRIES = 200, 2_000_000


def drawn_together(problem: NetworkProblem) -> list[GaussianDraw]:
    """The groups of Gaussian blocks of a network with chains that are drawn from their joint conditional."""
    weighted = problem.plan.weights
    found = []
    for group in joint_groups(problem):
        names = [n for n in group if not any(plate in weighted for plate in problem.blocks[n].plates)]
        # The largest are left out first: what is left are the globals, whose correlations slow a chain down.
        names.sort(key=lambda name: _size(problem, name))
        while names and sum(_size(problem, name) for name in names) > LARGEST:
            names.pop()
        names = [name for name in group if name in names]
        if len(names) > 1 or any(problem.blocks[name].n_columns > 1 for name in names):
            draw = GaussianDraw(problem, tuple(names))
            if draw.n_entries <= MOST_ENTRIES:
                found.append(draw)
    return found


def _size(problem: NetworkProblem, name: str) -> int:
    return math.prod(problem.plan.nodes[name].stat_shapes()[0])


class _Entry(NamedTuple):
    """One monomial: its other factors, their product's labels, and where each number of it goes."""

    coefficient: float
    factors: tuple[Factor, ...]
    labels: tuple[Label, ...]
    rows: Array
    columns: Array | None


@dataclass
class _Planned:
    """An entry with its contraction, which is found at the first call."""

    entry: _Entry
    contraction: Contraction | None = None


class GaussianDraw:
    """The joint conditional of a group of Gaussian blocks.

    Parameters
    ----------
    problem : NetworkProblem, with chains
    names : the blocks
    """

    def __init__(self, problem: NetworkProblem, names: tuple[str, ...]) -> None:
        self.names, self.known = names, problem.program.known
        self.blocks: dict[str, Block] = {name: problem.blocks[name] for name in names}
        self.chains = problem.blocks[names[0]].shape[0]
        shapes = {name: problem.plan.nodes[name].stat_shapes()[0] for name in names}
        sizes = [math.prod(shape) for shape in shapes.values()]
        self.size, begins = sum(sizes), np.cumsum([0, *sizes])
        self.shapes = shapes
        self.places = {n: slice(int(begins[i]), int(begins[i + 1])) for i, n in enumerate(names)}
        terms = [t for t in problem.plan.terms.values() if t.node in names or set(names) & set(t.readings)]
        self._quadratic: list[_Planned] = []
        self._linear: list[_Planned] = []
        self.n_entries = 0
        for term in terms:
            for piece in problem.program.pieces(term):
                for monomial in piece.monomials:
                    self._read(monomial, piece.sizes, piece.plates)
        self._goes_to = np.concatenate(
            [(p.entry.rows * self.size + p.entry.columns).reshape(-1) for p in self._quadratic]
        )
        self._goes_to_linear = np.concatenate(
            [np.zeros(0, dtype=np.int64), *(p.entry.rows.reshape(-1) for p in self._linear)]
        )

    def _read(self, monomial: Monomial, sizes: Mapping[Label, int], plates: Sequence[str]) -> None:
        own = [f for f in monomial.factors if not f.known and f.source in self.names]
        if not own:
            return
        rest = tuple(f for f in monomial.factors if not any(f is g for g in own))
        inside = [label for label in ordered_labels(own) if label != CHAIN]
        grid = np.indices([sizes[label] for label in inside], sparse=True) if inside else ()
        at: dict[Label, Array] = dict(zip(inside, grid, strict=True))
        shape = tuple(sizes[label] for label in inside)
        flat = [np.broadcast_to(place, shape) for f in own for place in self._elements(f, at)]
        # A sum over a plate that no factor has is a multiplication.
        present = set(monomial.labels) | set(monomial.counted)
        times = math.prod(sizes[plate] for plate in plates if plate not in present)
        entry = _Entry(
            monomial.coefficient * times, rest, (CHAIN, *inside), flat[0], flat[1] if len(flat) == 2 else None
        )
        (self._linear if len(flat) == 1 else self._quadratic).append(_Planned(entry))
        self.n_entries += math.prod(shape)

    def _elements(self, factor: Factor, at: Mapping[Label, Array]) -> list[Array]:
        """The number of the element that a factor reads, at every place; two for a second moment."""
        block, shape = self.blocks[factor.source], self.shapes[factor.source]
        n_plates = len(block.shape) - 1
        places: list[Array] = []
        for axis in factor.axes[1:]:
            if isinstance(axis, Take):
                index = self.known[axis.index]
                places.append(index[tuple(at[label] for label in axis.labels)] if axis.labels else np.asarray(index))
            else:
                places.append(at[axis])
        plate, event = places[:n_plates], places[n_plates:]
        start = self.places[factor.source].start
        if not event:
            return [start + _flat(plate, shape)] * (1 + factor.stat)
        return [start + _flat([*plate, entry], shape) for entry in event]

    def form(self, stats: Stats) -> tuple[Array, Array]:
        """A [chain, size, size] and b [chain, size] at the values of all other nodes."""
        curved = self._added(self._quadratic, stats, self._goes_to, self.size**2)
        half = curved.reshape(self.chains, self.size, self.size)
        b = self._added(self._linear, stats, self._goes_to_linear, self.size)
        return -(half + np.swapaxes(half, -1, -2)), b

    def _added(self, planned: Sequence[_Planned], stats: Stats, goes_to: Array, width: int) -> Array:
        if not planned:
            return np.zeros((self.chains, width))
        parts = [self._numbers(entry, stats) for entry in planned]
        numbers = np.concatenate(parts, axis=1)
        places = (np.arange(self.chains)[:, None] * width + goes_to).reshape(-1)
        return np.bincount(places, numbers.reshape(-1), self.chains * width).reshape(self.chains, width)

    def _numbers(self, planned: _Planned, stats: Stats) -> Array:
        """The product of the other factors [chain, places]."""
        entry = planned.entry
        arrays = [read_factor(factor, stats, self.known) for factor in entry.factors]
        present = {label for array in arrays for label in array.labels}
        kept = tuple(label for label in entry.labels if label in present)
        if planned.contraction is None:
            inputs = [array.labels for array in arrays]
            planned.contraction = Contraction(kept, inputs, [array.array.shape for array in arrays])
        product = np.asarray(planned.contraction([array.array for array in arrays]) if arrays else 1.0)
        shape = (self.chains, *entry.rows.shape)
        sizes = dict(zip(entry.labels, shape, strict=True))
        wide = product.reshape([sizes[label] if label in kept else 1 for label in entry.labels])
        return entry.coefficient * np.broadcast_to(wide, shape).reshape(self.chains, -1)

    def sample(self, stats: Stats, rngs: Sequence[np.random.Generator]) -> tuple[dict[str, Array], bool]:
        """Values of all nodes of the group, and whether their conditional is a distribution."""
        precision, b = self.form(stats)
        try:
            # Scaled to a unit diagonal, so that nodes in different units can be factorised together.
            scale = 1.0 / np.sqrt(np.diagonal(precision, axis1=-2, axis2=-1))
            root = np.linalg.cholesky(precision * scale[:, :, None] * scale[:, None, :])
        except np.linalg.LinAlgError:
            return {}, False
        noise = np.stack([rng.standard_normal(self.size) for rng in rngs])
        whitened = np.linalg.solve(root, (scale * b)[..., None]) + noise[..., None]
        x = scale * np.linalg.solve(np.swapaxes(root, -1, -2), whitened)[..., 0]
        values = {n: x[:, place].reshape(self.chains, *self.shapes[n]) for n, place in self.places.items()}
        return values, bool(np.isfinite(x).all())


def _flat(places: Sequence[Array], shape: tuple[int, ...]) -> Array:
    found: Any = np.zeros((), dtype=np.int64)
    for place, size in zip(places, shape, strict=True):
        found = found * size + place
    return np.asarray(found)
