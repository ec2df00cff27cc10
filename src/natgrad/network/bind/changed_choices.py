"""What the rows of a chunk choose, and a change of it, in; the changed choices, which chunks tell of for one pass, out.

What rows choose is not held: a move of components (`natgrad.network.bind.chunk_components`) is made while chunks are read. A
change is arrays alone, so that it travels, and so that one program serves all moves:

    parent   [K]   the component whose elements a place takes: its own, or that of which it is a part, or whose place it takes
    share    [K]   the logarithm of the share of a part
    also     [K]   another component whose elements it takes, too; itself for none
    off      [K]   places that become empty

and, where something is split, the moments of globals in which the parts differ: an element is shared out by how likely each part
is there. Elements whose category is known keep it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["CHANGE", "change_of", "changed_held", "changed_natural", "is_known"]

Stats = tuple[Any, ...]
Floats = npt.NDArray[np.float64]
# Where a state keeps a change that the next pass makes.
CHANGE = "change"
# Nats below all others: empty, and still possible. Known categories rule the others out by far more than data do.
FAR, RULED_OUT = 1e3, -1e50
# Logarithms of odds within which exponentials are finite.
MOST, LEAST = 600.0, -700.0


def change_of(
    size: int,
    *,
    off: Sequence[int] = (),
    parents: Mapping[int, int] | None = None,
    shares: Mapping[int, float] | None = None,
    also: Mapping[int, int] | None = None,
) -> dict[str, Any]:
    """A change of a category of so many values: what is not named stays."""
    numbers = np.arange(size)
    change: dict[str, Any] = {"parent": numbers.copy(), "share": np.zeros(size), "also": numbers.copy()}
    for key, given in (("parent", parents), ("share", shares), ("also", also)):
        for place, value in (given or {}).items():
            change[key][place] = value
    return {**change, "off": np.isin(numbers, list(off))}


def is_known(xp: Any, logits: Any) -> Any:
    """Whether the category of an element is known, along a last axis of length one."""
    return xp.min(logits, axis=-1, keepdims=True) < RULED_OUT


def changed_natural(xp: Any, axes: tuple[tuple[int, ...], ...], lam: Stats, change: Any, scores: Any) -> Stats:
    """λ of a category after a change; ``scores`` say how likely each part of a component is (None: as the shares say)."""
    parent, also, off = change["parent"], change["also"], change["off"]
    parts = []
    for part, along in zip(lam, axes, strict=True):
        new = part
        for axis in along:
            shape = (-1,) + (1,) * (-1 - axis)
            moved, other = xp.take(new, parent, axis=axis), xp.take(new, also, axis=axis)
            added = xp.reshape(also != xp.arange(len(also)), shape)
            moved = xp.where(added, xp.logaddexp(moved, other), moved)
            least = xp.min(moved, axis=axis, keepdims=True)
            new = xp.where(least < RULED_OUT, new, xp.where(xp.reshape(off, shape), least - FAR, moved))
        parts.append(new)
    odds = change["share"] if scores is None else scores + change["share"]
    odds = xp.clip(odds - xp.take(odds, parent, axis=-1), LEAST, MOST)
    members = xp.asarray(parent[:, None] == xp.arange(len(parent)), dtype=odds.dtype)
    among = odds - xp.log(xp.take(xp.exp(odds) @ members, parent, axis=-1))
    return (xp.where(is_known(xp, lam[0]), parts[0], parts[0] + among), *parts[1:])


def changed_held(held: Floats, known: Floats, change: Any) -> Floats:
    """Observations that each component holds after a change, about: parts hold their shares; ``known`` is held by labels."""
    parent, also = change["parent"], change["also"]
    odds = np.exp(np.clip(change["share"] - change["share"][parent], LEAST, MOST))
    free = held - known
    moved = free[parent] * odds / np.bincount(parent, odds, len(odds))[parent]
    moved = np.where(also != np.arange(len(also)), moved + free[also], moved)
    return np.asarray(np.where(change["off"], 0.0, moved) + known)
