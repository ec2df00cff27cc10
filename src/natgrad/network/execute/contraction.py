"""Labelled arrays in, one labelled array out: the single contraction that evaluates every compiled term.

Each factor is an array with one label per axis. Labels that are not wanted in the result are summed over. The order of
pairwise contractions is the one that NumPy has, the cheapest in operations; each pair is a matrix product where it is one,
and otherwise a product and a sum, which XLA fuses (a batched `dot_general` over a long batch axis is much slower).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from natgrad.network.execute.addressing import Labelled
from natgrad.network.execute.numpy_contraction import order_of_pairs
from natgrad.network.polynomial import Label

__all__ = ["contract", "diagonal"]

Array = Any
# A batched matrix product pays only while the batch axis is short; beyond it, product-and-sum fuses better.
LONGEST_MATMUL_BATCH = 64


def contract(out: tuple[Label, ...], factors: list[Labelled]) -> Array:
    """The product of the factors summed over every label that is not in ``out``, axes ordered as ``out``."""
    parts = [_sum_private(_diagonal(factor), factors, position, out) for position, factor in enumerate(factors)]
    sizes = {x: n for part in parts for x, n in zip(part.labels, part.array.shape, strict=True)}
    for i, j in order_of_pairs([part.labels for part in parts], out, sizes)[0]:
        second, first = parts.pop(j), parts.pop(i)
        parts.append(_pair(first, second, set(out).union(*(part.labels for part in parts))))
    array, labels = parts[0]
    gone = tuple(axis for axis, label in enumerate(labels) if label not in out)
    array = jnp.sum(array, axis=gone) if gone else array
    kept = tuple(label for label in labels if label in out)
    return jnp.transpose(array, [kept.index(label) for label in out])


def _pair(first: Labelled, second: Labelled, needed: set[Label]) -> Labelled:
    a, b = _drop(first, second.labels, needed), _drop(second, first.labels, needed)
    shared = [label for label in a.labels if label in b.labels]
    batch = [label for label in shared if label in needed]
    summed = [label for label in shared if label not in needed]
    sizes = dict(zip(a.labels, a.array.shape, strict=True))
    if summed and math.prod(sizes[label] for label in batch) <= LONGEST_MATMUL_BATCH:
        return _matrix_product(a, b, batch, summed)
    union = [*a.labels, *(label for label in b.labels if label not in a.labels)]
    product = _aligned(a, union) * _aligned(b, union)
    gone = tuple(union.index(label) for label in summed)
    kept = tuple(label for label in union if label not in summed)
    return Labelled(jnp.sum(product, axis=gone) if gone else product, kept)


def _matrix_product(a: Labelled, b: Labelled, batch: list[Label], summed: list[Label]) -> Labelled:
    def places(part: Labelled, labels: list[Label]) -> tuple[int, ...]:
        return tuple(part.labels.index(label) for label in labels)

    dimensions = ((places(a, summed), places(b, summed)), (places(a, batch), places(b, batch)))
    array = lax.dot_general(a.array, b.array, dimensions)
    free = [label for part in (a, b) for label in part.labels if label not in batch and label not in summed]
    return Labelled(array, (*batch, *free))


def _drop(part: Labelled, others: tuple[Label, ...], needed: set[Label]) -> Labelled:
    """Sum out the labels nobody else has."""
    gone = tuple(i for i, label in enumerate(part.labels) if label not in others and label not in needed)
    if not gone:
        return part
    kept = tuple(label for i, label in enumerate(part.labels) if i not in gone)
    return Labelled(jnp.sum(part.array, axis=gone), kept)


def _sum_private(part: Labelled, factors: list[Labelled], position: int, out: tuple[Label, ...]) -> Labelled:
    others = tuple(label for i, factor in enumerate(factors) if i != position for label in factor.labels)
    return _drop(part, others, set(out))


def _diagonal(part: Labelled) -> Labelled:
    """A label that stands twice on one factor means the diagonal of these two axes."""
    array, labels = part
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            array = jnp.diagonal(array, axis1=i, axis2=j)
            labels = (*labels[:i], *labels[i + 1 : j], *labels[j + 1 :], label)
    return Labelled(array, labels)


def diagonal(part: Labelled, labels: Sequence[Label]) -> Array:
    """The array over its distinct labels, in this order."""
    return _aligned(_diagonal(part), labels)


def _aligned(part: Labelled, union: Sequence[Label]) -> Array:
    """The array with its axes in the order of ``union``, and axes of length one for labels that it has not."""
    order = [part.labels.index(label) for label in union if label in part.labels]
    array = jnp.transpose(part.array, order)
    return array[tuple(slice(None) if label in part.labels else None for label in union)]
