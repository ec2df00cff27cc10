"""Parts and wholes of vectors: entries and slices, vectors end to end, sums along a plate; each a known map of its parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.network.language.columns import records
from natgrad.network.language.expressions import NOUN, REAL, VECTOR, Access, Constant, Expression
from natgrad.network.language.operators import _Dot as Dot
from natgrad.network.language.operators import _Product as Product
from natgrad.network.language.operators import _Transformed as Transformed
from natgrad.network.language.operators import add
from natgrad.network.language.plates import Plate
from natgrad.validation import as_numbers

__all__ = ["concatenate", "entries", "sum_over"]


def entries(vector: Access, key: Any) -> Expression:
    """Entries of a vector: ``w[0]`` is a real number, ``w[:3]`` and ``w[[2, 0]]`` are vectors."""
    size = vector.size or 0
    if isinstance(key, (slice, list, np.ndarray, range)):
        try:
            rows = np.eye(size)[list(key) if isinstance(key, range) else key]
        except IndexError:
            raise IndexError(f"{vector}[{key}]: {vector} has entries 0 … {size - 1}") from None
        if rows.ndim != 2 or not len(rows):
            raise PlateMismatch(f"{vector}[{key}] chooses no entry of a vector with entries 0 … {size - 1}")
        return Transformed(rows, vector)
    if isinstance(key, (Expression, bool)) or not isinstance(key, (int, np.integer)):
        raise TypeError(f"{vector}[{key}]: entries of a vector are chosen by whole numbers or a slice, not by {key!r}")
    if not -size <= key < size:
        raise IndexError(f"{vector}[{key}]: {vector} has entries 0 … {size - 1}")
    return Dot(Constant(VECTOR, np.eye(size)[key], size), vector, None)


@records
def concatenate(parts: Any, *more: Any) -> Expression:
    """Vectors, and real numbers as vectors of length one, end to end.

    Examples
    --------
    >>> import natgrad as ng, numpy as np
    >>> a, w = ng.Normal("a", 0.0, 1.0), ng.MultivariateNormal("w", np.zeros(2), np.eye(2))
    >>> ng.concatenate([a, w]).size
    3
    """
    if isinstance(parts, Expression) or more:
        raise TypeError(f"concatenate takes a list, as in concatenate([a, b]), got {parts}")
    listed = list(parts)
    if not any(isinstance(part, Expression) for part in listed):
        raise TypeError(
            "concatenate takes a list of vectors and real numbers, at least one of them random; NumPy joins known ones"
        )
    lengths = []
    for part in listed:
        if isinstance(part, Expression) and part.kind not in (REAL, VECTOR):
            raise NotConjugate(
                f"concatenate: {part} is {NOUN[part.kind]}; vectors are made of vectors and real numbers"
            )
        if isinstance(part, Expression):
            lengths.append(part.size or 0 if part.kind == VECTOR else 1)
        else:
            lengths.append(int(np.atleast_1d(as_numbers(part, "concatenate: a known part")).shape[-1]))
    total, end, joined = sum(lengths), 0, None
    for part, length in zip(listed, lengths, strict=True):
        rows = np.eye(total)[:, end : end + length]
        end += length
        if not isinstance(part, Expression):
            piece: Expression = Constant(
                VECTOR, np.atleast_1d(as_numbers(part, "concatenate: a known part")) @ rows.T, total
            )
        elif part.kind == VECTOR:
            piece = Transformed(rows, part)
        else:
            piece = Product(part, Constant(VECTOR, rows[:, 0], total))
        joined = piece if joined is None else add(joined, piece)
    assert joined is not None
    return joined


@records
def sum_over(values: Expression, plate: Plate) -> Expression:
    """The sum of real numbers along a plate that the reader does not have.

    Examples
    --------
    >>> import natgrad as ng
    >>> part = ng.Plate("part", 3)
    >>> x = ng.Normal("x", 1.0, 1.0, plate=part)
    >>> total = ng.Normal("total", ng.sum_over(x, part), 100.0, observed=6.0)
    >>> print(f"{ng.Network(total).fit(tol=1e-12)['x'].mean().sum():.3f}")
    5.990
    """
    if not isinstance(values, Expression) or values.kind != REAL:
        given = f"{values}, {NOUN[values.kind]}" if isinstance(values, Expression) else type(values).__name__
        raise TypeError(f"sum_over takes Normals, or an expression of real numbers, and a plate, not {given}")
    if not isinstance(plate, Plate):
        raise TypeError(f"sum_over: the plate to sum over comes second, got {plate!r}")
    return Dot(Constant(REAL, np.ones(plate.size)), values, plate)
