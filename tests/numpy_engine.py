"""The compiled network run by NumPy: what JAX is asked for, in a page, so that hundreds of tiny networks need no compilation.

The declared terms and the logic of targets, sweeps and samples are the library's own; only who multiplies the arrays
changes. A gradient is a central difference with steps of one, which is exact: a term is at most quadratic in the moments
of one block.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

EXECUTE = ("contraction", "evaluate", "local", "problem", "program", "updates")
MODULES = (*(f"natgrad.network.execute.{name}" for name in EXECUTE), "natgrad.network.groups.summary")


@contextlib.contextmanager
def numpy_engine() -> Iterator[None]:
    """Networks inside this block are evaluated by NumPy; make them inside, too: they remember how they were compiled."""
    jax = SimpleNamespace(
        jit=lambda f: f, grad=_grad, enable_x64=lambda _: contextlib.nullcontext(), device_put=lambda tree: tree,
        lax=_Lax, ops=SimpleNamespace(segment_sum=_segment_sum),
    )  # fmt: skip
    names = {"jax": jax, "jnp": np, "lax": _Lax}
    with contextlib.ExitStack() as stack:
        # All of them first: a module that is imported under the patch would keep it.
        for place in [importlib.import_module(module) for module in MODULES]:
            for name, value in names.items():
                if hasattr(place, name):
                    stack.enter_context(mock.patch.object(place, name, value))
            if hasattr(place, "contract"):
                stack.enter_context(mock.patch.object(place, "contract", _contract))
        yield


def _contract(out: Any, factors: Any) -> Any:
    """One sum over all labels at once: nothing is planned, everything is tiny."""
    sizes = {label: n for factor in factors for label, n in zip(factor.labels, factor.array.shape, strict=True)}
    numbers = {label: number for number, label in enumerate(sizes)}
    operands: list[Any] = []
    for factor in factors:
        operands += [factor.array, [numbers[label] for label in factor.labels]]
    large = np.prod(list(sizes.values())) > 2000
    return np.einsum(*operands, [numbers[label] for label in out], optimize=bool(large))


def _segment_sum(rows: Any, index: Any, num_segments: int) -> Any:
    total = np.zeros((num_segments, *rows.shape[1:]))
    np.add.at(total, index, rows)
    return total


def _grad(function: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(stats: tuple[Any, ...], *rest: Any) -> tuple[Any, ...]:
        found = []
        for number, stat in enumerate(stats):
            moved = np.array(stat, dtype=float)
            here = (*stats[:number], moved, *stats[number + 1 :])
            slope = np.zeros_like(moved)
            for place in np.ndindex(moved.shape):
                middle = moved[place]
                values = []
                for step in (1.0, -1.0):
                    moved[place] = middle + step
                    values.append(float(function(here, *rest)))
                moved[place] = middle
                slope[place] = 0.5 * (values[0] - values[1])
            found.append(slope)
        return tuple(found)

    return gradient


class _Lax:
    """The few primitives that are used by name."""

    @staticmethod
    def dot_general(a: Any, b: Any, dimensions: Any) -> Any:
        (sum_a, sum_b), (batch_a, batch_b) = dimensions
        axes_a, axes_b = list(range(a.ndim)), list(range(100, 100 + b.ndim))
        for i, j in [*zip(sum_a, sum_b, strict=True), *zip(batch_a, batch_b, strict=True)]:
            axes_b[j] = i
        symbols = {axis: k for k, axis in enumerate(dict.fromkeys([*axes_a, *axes_b]))}
        batch = list(batch_a)
        free = [x for x in axes_a if x not in (*sum_a, *batch_a)] + [x for x in axes_b if x >= 100]
        inputs = [[symbols[x] for x in axes] for axes in (axes_a, axes_b)]
        return np.einsum(a, inputs[0], b, inputs[1], [symbols[x] for x in (*batch, *free)])

    @staticmethod
    def dynamic_index_in_dim(array: Any, index: Any, axis: int = 0, keepdims: bool = True) -> Any:
        return np.take(array, [index] if keepdims else int(index), axis)

    @staticmethod
    def dynamic_update_index_in_dim(array: Any, piece: Any, index: Any, axis: int) -> Any:
        new = np.array(array, dtype=float)
        np.moveaxis(new, axis, 0)[int(index)] = np.squeeze(piece, axis) if np.ndim(piece) == new.ndim else piece
        return new

    @staticmethod
    def slice_in_dim(array: Any, start: int, stop: int, axis: int = 0) -> Any:
        return np.take(array, np.arange(start, stop), axis)

    @staticmethod
    def fori_loop(start: int, stop: int, body: Any, carry: Any) -> Any:
        for number in range(start, stop):
            carry = body(number, carry)
        return carry

    @staticmethod
    def while_loop(going: Any, body: Any, carry: Any) -> Any:
        while going(carry):
            carry = body(carry)
        return carry
