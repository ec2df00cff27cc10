"""The compiler: values and gradients of polynomials as JAX traces them, and its loops.

What is long is scanned in chunks, so that no array of size elements × event² is ever built.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import lax

from natgrad._jax import compiled, in_64_bits
from natgrad.families import _spd  # noqa: F401  (what is traced is there before a program is named by it)
from natgrad.network.execute.addressing import FULL, Labelled, Piece, View
from natgrad.network.execute.backend import BackendName, Quadratic, squared
from natgrad.network.execute.contraction import contract
from natgrad.network.execute.evaluate import Column, evaluate, of_column
from natgrad.network.polynomial import Label, Monomial

__all__ = ["JaxBackend"]

Array = Any
Stats = tuple[Array, ...]
Moments = Mapping[str, Stats]
Known = Mapping[str, Array]
Means = dict[str, Array]


class JaxBackend:
    """Everything is traced and compiled; numbers are of 64 bits."""

    name: BackendName = "jax"
    xp = jnp

    # -- polynomials --

    def value(self, piece: Piece, moments: Moments, known: Known, view: View = FULL) -> Array:
        if piece.window is None:
            return evaluate(piece.monomials, piece.sizes, piece.plates, moments, known, view, symmetric=piece.symmetric)
        label = piece.window
        starts, size, fresh = _windows(piece.sizes[label], piece.chunk)

        def chunk(total: Array, entry: tuple[Array, Array]) -> tuple[Array, None]:
            here = View(weight=Labelled(entry[1], (label,)), window=(label, entry[0], size))
            value = evaluate(
                piece.monomials, piece.sizes, piece.plates, moments, known, here, symmetric=piece.symmetric
            )
            return total + value, None

        return lax.scan(chunk, jnp.zeros(()), (jnp.asarray(starts), jnp.asarray(fresh)))[0]

    def gradient(
        self,
        piece: Piece,
        name: str,
        moments: Moments,
        known: Known,
        view: View = FULL,
        column: tuple[int, Array] | None = None,
        occurrence: int | None = None,
    ) -> Stats:
        stats = moments[name]
        if column is not None:
            stats = tuple(self.take_column(s, column[1], column[0]) for s in stats)

        def value(own: Stats, view: View) -> Array:
            here, part, reading = moments, None, None
            if column is not None:
                part = Column(name, column[0], column[1], own)
                short = of_column(piece.monomials, piece.sizes, piece.plates, moments, known, view, part)
                if short is not None:
                    return short
            elif occurrence is not None:
                reading = (name, occurrence, own)
            else:
                here = {**moments, name: own}
            return evaluate(
                piece.monomials, piece.sizes, piece.plates, here, known, view, part, reading, piece.symmetric
            )

        if piece.window is None:
            gradient: Stats = jax.grad(value)(stats, view)
            return gradient
        return _scanned(piece, name, stats, value, cut=column is None)

    def quadratic(
        self, pieces: Sequence[Piece], start: Means, spread: Means, moments: Moments, known: Known
    ) -> Quadratic:
        def stats(means: Means) -> dict[str, Stats]:
            return {n: (m, spread[n] + squared(m, spread[n])) for n, m in means.items()}

        def value(own: Mapping[str, Stats]) -> Array:
            here, total = {**moments, **own}, jnp.zeros(())
            for piece in pieces:
                total = total + self.value(piece, here, known)
            return total

        by_stats = jax.grad(value)(stats(start))
        residual, curvature = jax.linearize(jax.grad(lambda means: value(stats(means))), start)
        return Quadratic({n: by_stats[n][1] for n in start}, residual, curvature)

    def column_slopes(self, piece: Piece, name: str, axis: int) -> None:
        return None  # a compiled loop carries arrays alone

    def contract(self, out: tuple[Label, ...], factors: list[Labelled]) -> Array:
        return contract(out, factors)

    def inner(self, first: Array, second: Array) -> Array:
        return jnp.sum(first * second)

    def segment_sum(self, rows: Array, index: Array, size: int) -> Array:
        return jax.ops.segment_sum(rows, index, num_segments=size)

    # -- arrays and loops --

    def take_column(self, array: Array, number: Array, axis: int) -> Array:
        return lax.dynamic_index_in_dim(array, number, axis, keepdims=False)

    def put_column(self, array: Array, piece: Array, number: Array, axis: int) -> Array:
        return lax.dynamic_update_index_in_dim(array, piece, number, axis)

    def own(self, array: Array) -> Array:
        return array

    write_column = put_column

    def repeat(self, count: int, body: Callable[[Array, Any], Any], carry: Any) -> Any:
        return lax.fori_loop(0, count, body, carry)

    def repeat_while(self, going: Callable[[Any], Array], body: Callable[[Any], Any], carry: Any) -> Any:
        return lax.while_loop(going, body, carry)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return compiled(function)

    def put(self, array: Array) -> Array:
        return jax.device_put(array)

    def running(self) -> AbstractContextManager[None]:
        return in_64_bits()


def _scanned(piece: Piece, name: str, stats: Stats, value: Any, cut: bool) -> Stats:
    """The same as one gradient, in chunks along the window; own arrays along it are cut, not padded with zeros."""
    label = piece.window
    assert label is not None
    starts, size, fresh = _windows(piece.sizes[label], piece.chunk)
    places = [_place(piece.monomials, name, s, label) for s in range(len(stats))]
    cut = cut and -1 not in places
    places = [place if cut else None for place in places]

    def chunk(sums: Stats, entry: tuple[Array, Array]) -> tuple[Stats, None]:
        start, weight = entry
        own = tuple(
            s if p is None else lax.dynamic_slice_in_dim(s, start, size, p) for s, p in zip(stats, places, strict=True)
        )
        view = View(weight=Labelled(weight, (label,)), window=(label, start, size), cut=(name, label) if cut else None)
        gradient = jax.grad(value)(own, view)
        added = tuple(
            a + g if p is None else _add_slice(a, g, start, p) for a, g, p in zip(sums, gradient, places, strict=True)
        )
        return added, None

    zero = tuple(jnp.zeros_like(s) for s in stats)
    gradient: Stats = lax.scan(chunk, zero, (jnp.asarray(starts), jnp.asarray(fresh)))[0]
    return gradient


def _windows(size: int, chunk: int) -> tuple[npt.NDArray[np.int32], int, npt.NDArray[np.float64]]:
    """Starts of equal windows that cover 0 … size − 1; the last one overlaps its neighbour with weight 0."""
    count = math.ceil(size / chunk)
    length = math.ceil(size / count)
    wanted = np.arange(count) * length
    starts = np.minimum(wanted, size - length)
    fresh = (starts[:, None] + np.arange(length)[None, :] >= wanted[:, None]).astype(np.float64)
    return starts.astype(np.int32), length, fresh


def _place(monomials: tuple[Monomial, ...], name: str, stat: int, label: str) -> int | None:
    """The axis of a node's statistic that carries the window; None if none does, −1 if different readings disagree."""
    axes = [f.axes for m in monomials for f in m.factors if f.source == name and f.stat == stat and not f.known]
    places = {entry.index(label) if label in entry else None for entry in axes}
    return places.pop() if len(places) == 1 else (None if not places else -1)


def _add_slice(array: Array, piece: Array, start: Array, axis: int) -> Array:
    old = lax.dynamic_slice_in_dim(array, start, piece.shape[axis], axis)
    return lax.dynamic_update_slice_in_dim(array, old + piece, start, axis)
