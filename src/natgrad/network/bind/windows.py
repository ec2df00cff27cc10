"""Cut moments to the levels that the rows of a chunk read, and put the messages of the chunk back.

A plate of users has an axis in everything that is said to users, and a chunk of ratings reads some of them. Read and told in
full, a pass would take chunks times levels. A chunk therefore numbers the levels that it reads anew: its index arrays point into
that window, moments are taken from it, and what it tells has an entry for each of them. The others were told nothing, and a sum
that zeros are left out of has the same bits.

A plate has windows if rows read everything on it through index arrays of their own that point nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.network.compile.plan import Plan
from natgrad.network.polynomial import Factor, Take

__all__ = ["ChunkSums", "Window", "Windows", "summed", "summed_in_windows", "window_key"]

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Stats = tuple[Any, ...]
# Levels of a plate from which on windows pay, and the share of them above which a chunk reads the plate as it is.
LEAST_LEVELS, MOST_SHARE = 2_048, 0.5
# Entries of the smallest window; others are powers of two, so that few programs serve all chunks.
SMALLEST = 16


class Window(NamedTuple):
    """Which entries along an axis an array has, of how many."""

    axis: int
    levels: Ints
    size: int


class ChunkSums(NamedTuple):
    """What a chunk tells: arrays by name, a number (entropies and values of terms), and of which entries, where not of all."""

    parts: dict[str, Stats]
    value: float
    windows: Mapping[str, tuple[Window, ...]] = {}

    @property
    def nbytes(self) -> int:
        """Of its arrays."""
        return sum(array.nbytes for stats in self.parts.values() for array in stats)

    def whole(self) -> dict[str, Stats]:
        """The arrays of all entries, owned by the caller where they were cut."""
        return {key: self._whole(key) for key in self.parts}

    def _whole(self, key: str) -> Stats:
        windows = self.windows.get(key, ())
        if not windows:
            return self.parts[key]
        arrays = []
        for part in self.parts[key]:
            shape = list(part.shape)
            for window in windows:
                shape[window.axis] = window.size
            array = np.zeros(shape, part.dtype)
            array[_places(part, windows)] = part
            arrays.append(array)
        return tuple(arrays)


def summed(told: Iterable[ChunkSums]) -> ChunkSums:
    """What some chunks tell, added up in their order: of all entries."""
    total: dict[str, Stats] | None = None
    value, owned = 0.0, set[str]()
    for one in told:
        if total is None:
            total, value, owned = one.whole(), one.value, set(one.windows)
            continue
        value = value + one.value
        for key, part in one.parts.items():
            if key not in one.windows:
                total[key] = tuple(a + b for a, b in zip(total[key], part, strict=True))
            else:
                total[key] = total[key] if key in owned else tuple(map(np.array, total[key]))
                for whole, cut in zip(total[key], part, strict=True):
                    whole[_places(cut, one.windows[key])] += cut  # the levels of a window differ
            owned.add(key)
    assert total is not None
    return ChunkSums(total, value)


def summed_in_windows(told: list[ChunkSums]) -> ChunkSums:
    """The same, of the entries that any of the chunks has."""
    if len(told) == 1:
        return told[0]
    totals: dict[str, Stats] = {}
    windows: dict[str, tuple[Window, ...]] = {}
    value = told[0].value
    for one in told[1:]:
        value = value + one.value
    for key in told[0].parts:
        if not all(key in one.windows for one in told):
            totals[key] = summed(ChunkSums({key: one.parts[key]}, 0.0, _only(one.windows, key)) for one in told).parts[
                key
            ]
            continue
        own = [one.windows[key] for one in told]
        windows[key] = tuple(
            Window(same[0].axis, np.unique(np.concatenate([window.levels for window in same])), same[0].size)
            for same in zip(*own, strict=True)
        )
        inside = [_inside(mine, windows[key]) for mine in own]
        totals[key] = summed(
            ChunkSums({key: one.parts[key]}, 0.0, {key: w}) for one, w in zip(told, inside, strict=True)
        ).parts[key]
    return ChunkSums(totals, value, windows)


def _inside(windows: tuple[Window, ...], wider: tuple[Window, ...]) -> tuple[Window, ...]:
    """Windows as parts of wider ones."""
    return tuple(
        Window(own.axis, np.searchsorted(wide.levels, own.levels), len(wide.levels))
        for own, wide in zip(windows, wider, strict=True)
    )


def _only(windows: Mapping[str, tuple[Window, ...]], key: str) -> dict[str, tuple[Window, ...]]:
    return {key: windows[key]} if key in windows else {}


def _places(part: Array, windows: tuple[Window, ...]) -> Any:
    """Where the entries of a part are in the whole."""
    places: list[Any] = [np.arange(size) for size in part.shape]
    for window in windows:
        places[window.axis] = window.levels
    if len(windows) == 1:
        return (*(slice(None),) * windows[0].axis, windows[0].levels)
    return np.ix_(*places)


class Windows:
    """The plates of a plan that chunks read through windows.

    Parameters
    ----------
    plan : Plan, of a chunk
    local : names of the hidden nodes of rows
    plate : name of the plate of rows
    rows : names of the terms that lie on it

    Attributes
    ----------
    keys : for each such plate, the known index arrays that point into it
    sizes : how many levels it has
    axes : for each global that rows read, the axis of each such plate
    """

    def __init__(self, plan: Plan, local: tuple[str, ...], plate: str, rows: tuple[str, ...]) -> None:
        self.plate = plate
        terms = [plan.terms[name] for name in rows]
        self.sizes: dict[str, int] = {}
        pointing: dict[str, set[str]] = {}
        barred: set[str] = set()
        plain: set[Any] = {label for term in terms for label in term.sizes}
        names: set[str] = set()
        for factor in (f for term in terms for monomial in term.monomials for f in monomial.factors):
            taken = {axis.index for axis in factor.axes if isinstance(axis, Take)}
            if factor.known or factor.source in local:
                barred |= taken
                continue
            names.add(factor.source)
            barred |= self._read(factor, plan, pointing, plain)
        owners: dict[str, int] = {}
        for key in (key for keys in pointing.values() for key in keys):
            owners[key] = owners.get(key, 0) + 1
        self.keys = {
            name: tuple(sorted(keys))
            for name, keys in pointing.items()
            if name not in plain and name not in plan.weights and self.sizes[name] >= LEAST_LEVELS
            if not keys & barred and all(owners[key] == 1 for key in keys)
        }
        self.window_keys = tuple(map(window_key, self.keys))
        self.axes = {
            name: {p.name: axis for axis, p in enumerate(plan.nodes[name].plates) if p.name in self.keys}
            for name in plan.blocks
            if name in names
        }

    def _read(self, factor: Factor, plan: Plan, pointing: dict[str, set[str]], plain: set[Any]) -> set[str]:
        """Note what a factor of a global reads through which index; the index arrays that point to anything but levels."""
        node, elsewhere = plan.nodes[factor.source], set[str]()
        column = plan.blocks[factor.source].column_axis if factor.source in plan.blocks else None
        for position, axis in enumerate(factor.axes):
            on_plate = position < len(node.plates)
            if isinstance(axis, Take) and on_plate and axis.labels == (self.plate,) and position != column:
                own = node.plates[position]
                self.sizes[own.name] = own.size
                pointing.setdefault(own.name, set()).add(axis.index)
            else:
                elsewhere |= {axis.index} if isinstance(axis, Take) else set()
                if on_plate:
                    plain.add(node.plates[position].name)
        return elsewhere

    # -- a chunk --

    def cut(self, known: dict[str, Array]) -> dict[str, Array]:
        """Known arrays whose index arrays point into windows, and these; as they are where that is done, or would not pay."""
        arrays = dict(known)
        for plate, keys in self.keys.items():
            if window_key(plate) in known:
                continue
            levels = np.unique(np.concatenate([known[key].ravel() for key in keys]))
            width = max(SMALLEST, 1 << (len(levels) - 1).bit_length())
            if width > MOST_SHARE * self.sizes[plate]:
                continue
            for key in keys:
                arrays[key] = np.searchsorted(levels, known[key]).astype(known[key].dtype)
            arrays[window_key(plate)] = np.pad(levels, (0, width - len(levels)), mode="edge").astype(np.int32)
        return arrays

    def moments(self, mu: Mapping[str, Stats], known: Mapping[str, Any], xp: Any) -> dict[str, Stats]:
        """Moments of the levels in a chunk's windows; to be traced. Nobody reads the entries behind them."""
        moments = dict(mu)
        for name, plate, axis in self._cut_axes(known):
            if name in moments:
                moments[name] = tuple(xp.take(stat, known[window_key(plate)], axis=axis) for stat in moments[name])
        return moments

    def widths(self, known: Mapping[str, Any]) -> dict[str, int]:
        """How long the windows of a chunk are, by plate."""
        return {plate: known[window_key(plate)].shape[0] for plate in self.keys if window_key(plate) in known}

    def trimmed(self, name: str, stats: Iterable[Any], known: Mapping[str, Any]) -> tuple[Stats, tuple[Window, ...]]:
        """What a chunk tells a global, without the entries behind its windows."""
        plates = {plate: axis for own, plate, axis in self._cut_axes(known) if own == name}
        return self.trimmed_along(plates, stats, known)

    def trimmed_along(
        self, plates: Mapping[str, int], stats: Iterable[Any], known: Mapping[str, Any]
    ) -> tuple[Stats, tuple[Window, ...]]:
        """The same of arrays whose axes these plates are."""
        windows = []
        for plate, axis in plates.items():
            if window_key(plate) in known:
                padded = np.asarray(known[window_key(plate)])
                levels = padded[: np.searchsorted(padded, padded[-1]) + 1].astype(np.int64)
                windows.append(Window(axis, levels, self.sizes[plate]))
        trimmed = []
        for stat in map(np.asarray, stats):
            for window in windows:
                stat = stat[(slice(None),) * window.axis + (slice(len(window.levels)),)]
            trimmed.append(stat)
        return tuple(trimmed), tuple(windows)

    def _cut_axes(self, known: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
        for name, axes in self.axes.items():
            for plate, axis in axes.items():
                if window_key(plate) in known:
                    yield name, plate, axis


def window_key(plate: str) -> str:
    """Under which a chunk's known arrays have the levels of its window, increasing; the last one is repeated behind them."""
    return f"levels:{plate}"
