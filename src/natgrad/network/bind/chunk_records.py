"""What was learned of each chunk, by its key: whoever reads the same chunk again, after rows came or went elsewhere, need not.

A chunk is known by where it was read and by the rows that were taken out of it since: its key changes when it does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.network.bind.bound import find_domain
from natgrad.network.bind.build import Domain
from natgrad.network.bind.levels import Levels
from natgrad.network.bind.tables import Table
from natgrad.network.bind.template import Template
from natgrad.network.compile.plan import Plan
from natgrad.network.language.nodes import Node

__all__ = [
    "Arrays",
    "Known",
    "Later",
    "Scan",
    "check_hidden",
    "counted",
    "kept_levels",
    "same_codes",
    "scan_chunk",
    "split",
]

Array = npt.NDArray[Any]


class Known(dict[str, Array]):
    """The known arrays of a chunk by the keys of its plan, which is that of all chunks if it has none of its own."""

    plan: Plan | None = None


class Later:
    """A chunk that is made ready when it is first asked for."""

    def __init__(self, ready: Callable[[Known], Any], known: Known) -> None:
        self.ready, self.known = ready, known

    @cached_property
    def made(self) -> Any:
        """The chunk."""
        return self.ready(self.known)


class Scan(NamedTuple):
    """The ids and categories that occur in a chunk, and the observed nodes that miss values in it."""

    levels: dict[str, Array]
    categories: dict[str, Array]
    lost: frozenset[str]


class Arrays(NamedTuple):
    """The arrays that a chunk registers, in order, what is in them, the weights of its rows, and its observations by node."""

    calls: list[Array]
    marks: list[bytes]
    weight: Array
    present: dict[str, int]


def scan_chunk(template: Template, plate: str, tables: dict[str, Table]) -> Scan:
    """What occurs in a chunk."""
    table, domain = tables[plate], find_domain(template, tables)
    lost = frozenset(
        use.node
        for use in template.uses
        if template.plate_of(use) == plate
        if use.role == "mask" or (use.role == "observed" and table.missing(use.column.name).any())
    )
    levels, categories = ({name: part.ids for name, part in kept.items()} for kept in domain)
    return Scan(levels, categories, lost)


def check_hidden(plan: Plan, held: Collection[str], plate: str) -> None:
    """What is hidden is so in each row, or above all of them."""
    for name in plan.blocks:
        if name not in held:
            raise PlateMismatch(
                f"{name!r} is hidden in the rows of {plate!r}, but not one for each of them: leave chunk_rows= out"
            )


def counted(nodes: Iterable[Node], names: Collection[str], plate: str, rows: slice) -> dict[str, int]:
    """The observations in some rows of a chunk that are there, by node."""
    counts = {}
    for node in nodes:
        axes = [own.name for own in node.plates]
        if node.name in names and plate in axes:
            mask = np.ones([own.size for own in node.plates]) if node.mask is None else node.mask
            counts[node.name] = int(np.moveaxis(mask, axes.index(plate), 0)[rows].sum())
    return counts


def kept_levels(scans: list[Scan], before: Domain | None) -> Domain:
    """The levels of all chunks: those that were there before in their order, and after them those that are new."""
    by_name: dict[str, list[Array]] = {}
    for scan in scans:
        for name, ids in scan.levels.items():
            by_name.setdefault(name, []).append(ids)
    levels = {name: Levels.of(parts) for name, parts in by_name.items()}
    if before is not None:
        # The values of categories stay: they are what a vector of probabilities is about.
        return Domain({n: _in_order(own, before.levels.get(n)) for n, own in levels.items()}, before.categories)
    chosen: dict[str, list[Array]] = {}
    for scan in scans:
        for name, ids in scan.categories.items():
            chosen.setdefault(name, []).append(ids)
    return Domain(levels, {name: Levels.of(parts) for name, parts in chosen.items()})


def _in_order(now: Levels, before: Levels | None) -> Levels:
    if before is None:
        return now
    stays = now.find(before.ids) >= 0
    return Levels(before.ids[stays]).extended(now.ids) if stays.any() else now


def same_codes(before: Domain, now: Domain) -> bool:
    """Whether every id that was there has the number that it had."""
    for name, levels in before.levels.items():
        own = now.levels[name].ids
        if len(own) < len(levels) or not np.array_equal(own[: len(levels)], levels.ids):
            return False
    return True


def split(node: Node) -> None:
    """Where any chunk has vectors that are known in part, all have.

    Readers have a hold of the node itself, which was made for this chunk: no twin would do.
    """
    if node.entries is None:
        assert node.size is not None
        assert node.mask is not None
        node.__dict__["entries"] = np.repeat(node.mask[..., None], node.size, axis=-1)
