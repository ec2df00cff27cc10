"""Draw Gaussian nodes that meet in a term together, by b and A of their joint conditional.

    log p(x | rest) = −½ xᵀ A x + bᵀ x + const,    x ~ N(A⁻¹ b, A⁻¹)

Coordinate by coordinate a chain would creep along the correlations of the posterior; drawn together it forgets them at once. A is
read off the polynomial: a monomial with two means of the group contributes the product of its other factors at the two elements
that are read, one with a second moment at one of them (vectors: at two of its entries), one with a single mean contributes to b.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import Block
from natgrad.network.draws.chains import CHAIN
from natgrad.network.execute.addressing import Piece, Reader
from natgrad.network.execute.backend import HOST
from natgrad.network.execute.joint import joint_groups
from natgrad.network.execute.lower import Product, Reads, lower_others
from natgrad.network.execute.problem import NetworkProblem
from natgrad.network.polynomial import Factor, Label, Monomial, ordered_labels

__all__ = ["GaussianDraw", "drawn_together"]

Array = npt.NDArray[Any]
Values = Mapping[str, Array]
Stats = Mapping[str, tuple[Any, ...]]
# Numbers up to which nodes are drawn together: their matrix is factorised at every sweep. Entries that are added up for it.
LARGEST, MOST_ENTRIES = 200, 2_000_000
# Numbers of a matrix that adds entries up where they belong; beyond it they are counted one by one.
MOST_SCATTERED = 200_000


def drawn_together(problem: NetworkProblem, apart: Collection[str] = ()) -> list[GaussianDraw]:
    """The groups of Gaussian blocks of a network with chains that are drawn from their joint conditional; not those ``apart``."""
    weighted = problem.plan.weights
    groups = []
    for group in joint_groups(problem):
        names = [n for n in group if n not in apart]
        names = [n for n in names if not any(plate in weighted for plate in problem.blocks[n].plates)]
        # The largest are left out first: what is left are the globals, whose correlations slow a chain down.
        names.sort(key=lambda name: _size(problem, name))
        while names and sum(_size(problem, name) for name in names) > LARGEST:
            names.pop()
        names = [name for name in group if name in names]
        if len(names) > 1 or any(problem.blocks[name].n_columns > 1 for name in names):
            draw = GaussianDraw(problem, tuple(names))
            if draw.n_entries <= MOST_ENTRIES:
                groups.append(draw)
    return groups


def _size(problem: NetworkProblem, name: str) -> int:
    return math.prod(problem.plan.nodes[name].stat_shapes()[0])


class _Entry(NamedTuple):
    """One monomial: the product of its other factors, its labels, and where each number of it goes."""

    product: Product
    labels: tuple[Label, ...]
    shape: tuple[int, ...]
    goes_to: Array


class _Sum:
    """Entries that are added up to ``width`` numbers for each chain; what only known numbers decide, once."""

    def __init__(self, entries: Sequence[_Entry], chains: int, width: int) -> None:
        self.chains, self.width = chains, width
        known = np.zeros(width)
        for entry in entries:
            if entry.product.function is None:
                wide = _wide(np.asarray(entry.product.constant), entry, entry.labels[1:], entry.shape[1:])
                known += np.bincount(entry.goes_to, wide.reshape(-1), width)
        self.known = known
        self.random = [entry for entry in entries if entry.product.function is not None]
        goes_to = [entry.goes_to for entry in self.random]
        self.goes_to = np.concatenate(goes_to) if goes_to else np.zeros(0, dtype=np.int64)
        self.scatter: Array | None = None
        if 0 < self.goes_to.size * width <= MOST_SCATTERED:
            self.scatter = np.zeros((self.goes_to.size, width))
            self.scatter[np.arange(self.goes_to.size), self.goes_to] = 1.0

    def __call__(self, operands: list[Array]) -> Array:
        if not self.random:
            return np.asarray(np.broadcast_to(self.known, (self.chains, self.width)))
        parts = [
            _wide(e.product.function(operands), e, e.labels, e.shape).reshape(self.chains, -1)  # type: ignore[misc]
            for e in self.random
        ]
        numbers = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        if self.scatter is not None:
            return np.asarray(self.known + numbers @ self.scatter)
        places = (np.arange(self.chains)[:, None] * self.width + self.goes_to).reshape(-1)
        total = np.bincount(places, numbers.reshape(-1), self.chains * self.width)
        return self.known + total.reshape(self.chains, self.width)


def _wide(array: Array, entry: _Entry, labels: tuple[Label, ...], shape: tuple[int, ...]) -> Array:
    """A product at all its places."""
    if entry.product.out == labels:
        return array
    sizes = [size if label in entry.product.out else 1 for label, size in zip(labels, shape, strict=True)]
    return np.broadcast_to(np.asarray(array).reshape(sizes), shape)


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
        self.reads = Reads(self.known, shapes=lambda name: _with_chains(problem, self.chains, name))
        quadratic: list[_Entry] = []
        linear: list[_Entry] = []
        self.n_entries = 0
        for term in terms:
            for piece in problem.program.pieces(term):
                for monomial in piece.monomials:
                    self._read(monomial, piece, quadratic, linear)
        if self.n_entries <= MOST_ENTRIES:
            self._quadratic = _Sum(quadratic, self.chains, self.size**2)
            self._linear = _Sum(linear, self.chains, self.size)

    def _read(self, monomial: Monomial, piece: Piece, quadratic: list[_Entry], linear: list[_Entry]) -> None:
        places = [n for n, f in enumerate(monomial.factors) if not f.known and f.source in self.names]
        if not places:
            return
        own = [monomial.factors[n] for n in places]
        inside = [label for label in ordered_labels(own) if label != CHAIN]
        shape = tuple(piece.sizes[label] for label in inside)
        self.n_entries += math.prod(shape)
        if self.n_entries > MOST_ENTRIES:  # it will not be used
            return
        flat = [np.broadcast_to(place, shape) for f in own for place in self._elements(f, tuple(inside))]
        labels = (CHAIN, *inside)
        product = lower_others(HOST, self.reads, monomial, piece, places, labels)
        goes_to = flat[0] if len(flat) == 1 else flat[0] * self.size + flat[1]
        entry = _Entry(product, labels, (self.chains, *shape), np.ascontiguousarray(goes_to).reshape(-1))
        (linear if len(flat) == 1 else quadratic).append(entry)

    def _elements(self, factor: Factor, labels: tuple[Label, ...]) -> list[Array]:
        """The number of the element that a factor reads, over some labels; two for a second moment."""
        name, n_plates = factor.source, len(self.blocks[factor.source].shape) - 1
        own = self.places[name]
        numbers = {name: (np.arange(own.start, own.stop).reshape(self.shapes[name]),)}
        plates, event = factor.axes[1 : 1 + n_plates], factor.axes[1 + n_plates :]
        axes = [(*plates, entry) for entry in event] or [plates] * (1 + factor.stat)
        readers = [Reader(Factor(name, 0, own, known=False)) for own in axes]
        return [reader.over(reader.array(numbers, self.known), labels) for reader in readers]

    def form(self, stats: Stats) -> tuple[Array, Array]:
        """A [chain, size, size] and b [chain, size] at the values of all other nodes."""
        operands = self.reads(stats)
        half = self._quadratic(operands).reshape(self.chains, self.size, self.size)
        return -(half + half.transpose(0, 2, 1)), self._linear(operands)

    def sample(self, stats: Stats, rng: np.random.Generator) -> tuple[dict[str, Array], bool]:
        """Values of all nodes of the group, and whether their conditional is a distribution."""
        precision, b = self.form(stats)
        try:
            # Scaled to a unit diagonal, so that nodes in different units can be factorised together.
            scale = 1.0 / np.sqrt(np.einsum("cii->ci", precision))
            root = np.linalg.cholesky(precision * scale[:, :, None] * scale[:, None, :])
        except np.linalg.LinAlgError:
            return {}, False
        half = np.linalg.solve(root, (scale * b)[..., None]) + rng.standard_normal((self.chains, self.size, 1))
        return self.named(scale * np.linalg.solve(root.transpose(0, 2, 1), half)[..., 0])

    def named(self, x: Array) -> tuple[dict[str, Array], bool]:
        """Numbers of all chains [chain, size] as values of the nodes, and whether they are numbers."""
        values = {n: x[:, place].reshape(self.chains, *self.shapes[n]) for n, place in self.places.items()}
        return values, bool(np.isfinite(x).all())


def _with_chains(problem: NetworkProblem, chains: int, name: str) -> list[tuple[int, ...]]:
    return [(chains, *shape) for shape in problem.plan.nodes[name].stat_shapes()]
