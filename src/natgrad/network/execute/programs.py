"""Make calls of compiled programs cheap: arguments packed, λ that repeats passed once, programs named by their structure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from natgrad.network.compile.polynomial import Factor, Label, Mark, Monomial, Take
from natgrad.network.execute.addressing import Labelled, View, address
from natgrad.network.execute.program import Program
from natgrad.network.execute.updates import shortened

__all__ = ["Repeated", "Symmetric", "packed_factors"]

# Sums of the square of known rows against symmetric matrices, for JAX to trace: each entry above the diagonal once.
#
# Σ_ij A_ij x_i x_j has D (D + 1) / 2 different products, not D². A is packed as ½ (A + Aᵀ), with weight two off the diagonal, so
# that a gradient through it is the symmetric one. Matrices that are gathered for each element are left as they are: rows of 25
# numbers are gathered and added up as fast as rows of 15.

Array = Any
Symmetric = frozenset[tuple[str, int]]  # node and number of each symmetric statistic
PACKED = Mark("packed")
# Longer rows are left as they are: a program that writes out each row of a triangle grows with them.
LONGEST = 64


class _Square(NamedTuple):
    """A known factor that stands twice in a monomial, along two labels, and the symmetric matrix that has both."""

    label: Label
    matrix: Factor
    first: Factor
    second: Factor


def packed_factors(
    monomial: Monomial,
    symmetric: Symmetric,
    stats: Callable[[Factor], Array],
    known: Mapping[str, Array],
    view: View,
    labelled: Callable[[Factor], Labelled],
) -> list[Labelled] | None:
    """The factors of a monomial as labelled arrays, a square and its matrix packed; None where there is no square."""
    square = _find_square(monomial, symmetric)
    if square is None or stats(square.matrix).shape[-1] > LONGEST:
        return None
    rest = [labelled(f) for f in monomial.factors if f not in (square.matrix, square.first, square.second)]
    matrix = square.matrix._replace(axes=(*square.matrix.axes[:-2], PACKED))
    packed = address(_packed(stats(square.matrix)), matrix, known, view)
    return [packed, _squared(labelled(square.first), square.label), *rest]


def _find_square(monomial: Monomial, symmetric: Symmetric) -> _Square | None:
    matrices = [f for f in monomial.factors if not f.known and (f.source, f.stat) in symmetric]
    if len(matrices) != 1:
        return None
    matrix = matrices[0]
    *plates, i, j = matrix.axes
    if isinstance(i, Take) or isinstance(j, Take) or i == j:
        return None
    if any({i, j} & set(axis.labels if isinstance(axis, Take) else (axis,)) for axis in plates):
        return None
    pair = [f for f in monomial.factors if f is not matrix and (i in f.labels or j in f.labels)]
    if len(pair) != 2 or not all(f.known for f in pair):
        return None
    first, second = pair if i in pair[0].axes else pair[::-1]
    if first.labels.count(i) != 1 or j in first.labels or i not in first.axes:
        return None
    return _Square(i, matrix, first, second) if first.relabelled({i: j}) == second else None


def _packed(array: Array) -> Array:
    """The upper triangle of ½ (A + Aᵀ) in the place of its last two axes, what stands off the diagonal twice.

    A matrix product with a table of zeros and ones: gathering single numbers takes longer than what packing saves.
    """
    size = array.shape[-1]
    rows, columns = np.triu_indices(size)
    table = np.zeros((size * size, len(rows)))
    table[rows * size + columns, np.arange(len(rows))] = 1.0
    table[columns * size + rows, np.arange(len(rows))] = 1.0
    return array.reshape(*array.shape[:-2], size * size) @ table


def _squared(part: Labelled, label: Label) -> Labelled:
    """x_i x_j of the packed places, row by row of the triangle."""
    x = jnp.moveaxis(part.array, part.labels.index(label), -1)
    products = [x[..., i : i + 1] * x[..., i:] for i in range(x.shape[-1])]
    kept = tuple(name for name in part.labels if name != label)
    return Labelled(jnp.concatenate(products, axis=-1), (*kept, PACKED))


# The precision of the scores of a PCA without missing data is one matrix. A sweep reads of the old one how far it moved, and
# makes one new one; writing it for every row, and reading it in the next sweep, would take as long as the update.

Stats = tuple[Any, ...]


class Repeated:
    """Blocks of a program with plates along which λ of an exact update is the same."""

    def __init__(self, program: Program) -> None:
        self.plan = plan = program.plan
        # Elements that are updated in turn differ, and weights are each element's own.
        at_once = {
            name: block
            for name, block in plan.blocks.items()
            if block.n_columns == 1 and not any(plate in plan.weights for plate in block.plates)
        }
        by_block = {name: program.shared_plates(block) for name, block in at_once.items()}
        self.plates = {name: shared for name, shared in by_block.items() if any(shared)}

    def shortened(self, name: str, lam: Stats) -> Stats:
        """λ of one block, one element in place of all that share it."""
        return shortened(lam, self.plates[name]) if name in self.plates else lam

    def once(self, lam: Mapping[str, Stats], order: tuple[str, ...]) -> dict[str, Stats]:
        """λ as a sweep in this order takes it; blocks that it does not update are as they are."""
        own = {name: shared for name, shared in self.plates.items() if name in order}
        arrays = {  # NumPy cuts without a call of JAX
            name: tuple(np.asarray(p) if axes else p for p, axes in zip(lam[name], shared, strict=True))
            for name, shared in own.items()
        }
        return {**lam, **{name: shortened(arrays[name], shared) for name, shared in own.items()}}

    def for_all(self, lam: Mapping[str, Stats], order: tuple[str, ...]) -> dict[str, Stats]:
        """λ as a state has it: views, which take no memory."""
        full = {
            name: tuple(
                np.broadcast_to(np.asarray(part), shape) if axes else part
                for part, axes, shape in zip(lam[name], shared, self.plan.nodes[name].stat_shapes(), strict=True)
            )
            for name, shared in self.plates.items()
            if name in order
        }
        return {**lam, **full}
