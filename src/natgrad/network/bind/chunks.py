"""Read a table in chunks as the known arrays of one plan that serves all, and cache what was computed of each chunk.

A plan's structure follows from the declaration alone: every chunk registers its arrays in the same order. Two registrations share
a key only if their arrays are equal in every chunk. A chunk that is short is filled up with copies of its first row, of weight 0.
A chain along the rows has a factor for each of its sequences: chunks are then whole sequences (`chunking.py`), nothing is filled
up, and each has a plan of its own, equal to the others in all that globals are told.

Before the first sweep the table is read twice: once for the levels of plates, once for what chunks have in common; and once or
twice more if values are missing that others read.

What was computed of a chunk is cached by its key: a chunk is known by where it was read and by the rows that
were taken out of it since: its key changes when it does.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.stream import prefetch
from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.network.bind.bound import aligned, find_domain
from natgrad.network.bind.build import Builder, Domain, Template, made_parents, with_ancestors
from natgrad.network.bind.chunking import Cuts, sequences_along
from natgrad.network.bind.levels import Levels
from natgrad.network.bind.tables import Table, TableChunks
from natgrad.network.compile.joint_factors import chosen_groups, with_joint_factors
from natgrad.network.compile.origins import Ends, find_origins, placed, widened
from natgrad.network.compile.plan import Plan, coloured, make_plan, meeting_pairs, weight_key
from natgrad.network.language.missing import hidden_in_part
from natgrad.network.language.nodes import Node
from natgrad.network.language.scope import Numbered

__all__ = [
    "Arrays",
    "Chunks",
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


# Bytes of chunks that stay in memory; more are made anew from the table in every pass.
HELD = 2**28
# Chunks that are worked on at a time, in threads: no more are in memory.
AHEAD = 2


class Chunks:
    """The rows of a plate as chunks of one plan.

    Parameters
    ----------
    template : Template
    plate : name of the plate whose rows come in chunks
    source : TableChunks
    others : tables of other plates, in memory
    size : rows of a chunk
    before : Chunks, optional
        Those of the table before some rows came or went: chunks that stayed are not looked at again.

    Attributes
    ----------
    plan : Plan, of a chunk
    domain : Domain
    local : names of the hidden nodes of rows, parents first
    n_rows, n_chunks : int
    """

    def __init__(
        self,
        template: Template,
        plate: str,
        source: TableChunks,
        others: Mapping[str, Table],
        size: int,
        before: Chunks | None = None,
    ) -> None:
        self.template, self.plate, self.source, self.size = template, plate, source, size
        self.asked, self.before = size, before
        self.domain: Domain
        self._origins: dict[str, npt.NDArray[np.float64]] | None = None
        inside = [name for name, node in template.nodes.items() if any(p.name == plate for p in node.plates)]
        sequences = sequences_along(template, plate)
        self.chained = bool(sequences)
        self.cuts = Cuts(source, template.columns_on(plate), size, sequences)
        if plate in template.level_plates:
            raise PlateMismatch(f"rows of plate {plate!r} are read by their ids: they cannot come in chunks")
        self.inside = frozenset(inside)
        self._scan(others)
        outside = [name for name in template.nodes if name not in self.inside]
        self.made = Builder(template, aligned(template, others, self.domain), self.domain).nodes(outside)
        self.made.update(made_parents(template))
        self._ready: Callable[[Known], Any] = _as_is
        self._held: list[Any] | None = None
        self._coloured: dict[str, Any] = {}
        self._find_gaps()
        self._learn()
        self.before = None  # nothing more is asked of it

    # -- reading --

    @property
    def tables(self) -> Callable[[], Iterator[Table]]:
        """The chunks as tables."""
        return self.cuts.tables

    @property
    def n_rows(self) -> int:
        """Of all chunks."""
        return self.cuts.n_rows or 0

    @property
    def n_chunks(self) -> int:
        """How many there are."""
        return self.cuts.n_chunks

    def known(self, table: Table) -> Known:
        """The known arrays of a chunk, under the keys of the plan."""
        nodes, weight = self._nodes(table)
        if self.chained:
            return self._with_plan(table, nodes)
        calls = self._registered(nodes)
        self._check_layout(table, calls)
        return self._under_keys(calls, weight)

    def _with_plan(self, table: Table, nodes: list[Node]) -> Known:
        arrays = Numbered(self._keys)
        plan = with_joint_factors(make_plan(nodes, self._origins, arrays, self.read), self.groups)
        self._check_layout(table, arrays.calls)
        chunk = Known(plan.known)
        chunk.plan = replace(plan, known={}, blocks={**plan.blocks, **self._coloured})
        return chunk

    def map(self, function: Callable[[Any], Any], numbers: Any = None) -> Iterator[Any]:
        """The function of every chunk, or of some by number, as `use` hands them out, in order; what fits stays in memory."""
        from natgrad.threads import in_order, n_threads  # Numba takes a while to import

        waiting: list[Any] = []
        window = max(AHEAD, n_threads())
        chunks = self._all() if numbers is None else self.some(numbers)
        for known in chunks:
            waiting.append(known)
            if len(waiting) == window:
                yield from in_order(function, waiting)
                waiting = []
        yield from in_order(function, waiting)

    def some(self, numbers: Any) -> Iterator[Any]:
        """Some chunks, by number, in order."""
        wanted = sorted(int(number) for number in numbers)
        if self._held is not None:
            return (self._held[number].made for number in wanted)
        if self.cuts.can_jump:
            return prefetch(self._ready(self.known(self.cuts.table(number))) for number in wanted)
        chosen = set(wanted)
        return (self._ready(self.known(table)) for number, table in enumerate(self.tables()) if number in chosen)

    def __getstate__(self) -> dict[str, Any]:
        """For another process: nothing that is held here, and nothing of chunks but what all have in common."""
        return {**self.__dict__, "_held": None, "_ready": _as_is, "scans": {}, "arrays": {}, "keys": []}

    def use(self, ready: Callable[[Known], Any]) -> None:
        """Hand chunks out as ``ready`` makes them; of those that stay in memory it is asked once."""
        self._ready = ready
        if self._held is not None:
            self._held = [Later(ready, later.known) for later in self._held]

    @property
    def held(self) -> list[Any] | None:
        """All chunks, if they stay in memory."""
        return None if self._held is None else [later.made for later in self._held]

    def _all(self) -> Iterator[Any]:
        if self._held is not None:
            return (later.made for later in self._held)
        return prefetch(self._ready(self.known(table)) for table in self.tables())

    # -- what chunks have in common --

    def _scan(self, others: Mapping[str, Table]) -> None:
        before = {} if self.before is None else self.before.scans
        self.keys: list[Any] = []
        self.scans: dict[Any, Scan] = {}
        longest = 0
        for table in self.tables():
            self.keys.append(table.key)
            longest = max(longest, table.n_rows)
            self.scans[table.key] = before.get(table.key) or scan_chunk(
                self.template, self.plate, {**others, self.plate: table}
            )
        if not self.n_rows:
            raise ValueError(f"{self.source.where} has no rows: there is nothing to learn from on plate {self.plate!r}")
        self.size = min(self.size, longest)
        if self.before is not None:
            self.size = max(self.size, self.before.size)
        self.lost = {name for scan in self.scans.values() for name in scan.lost}
        self.domain = kept_levels(
            [self.scans[key] for key in self.keys], None if self.before is None else self.before.domain
        )

    def _find_gaps(self) -> None:
        """Which observed nodes are hidden where they are missing, in any chunk: they are so in all of them."""
        self.read: frozenset[str] = frozenset()
        self.in_parts: set[str] = set()
        done: set[Any] = set()
        if self.before is not None:
            # What had gaps before may have none now: nothing is told to those of its elements that nobody misses.
            self.read, self.in_parts = self.before.read, set(self.before.in_parts)
            self.lost |= self.before.lost
            done = set(self.before.keys)
        while self.lost:
            read = self.read
            for table in self.tables():
                if table.key in done and read == self.read:
                    continue
                nodes, _ = self._nodes(table)
                read = hidden_in_part(nodes, read)
                self.in_parts.update(node.name for node in nodes if node.entries is not None)
            if read == self.read:
                break
            self.read = read
        self.parts = self.read | self.in_parts

    def _learn(self) -> None:
        """Origins, the keys of registrations, and colours; and the arrays themselves, if they fit."""
        classes: list[Any] = []
        calls_held: list[Any] | None = []
        n_bytes, counts, self.n_present = 0, False, dict.fromkeys(self.template.observed(), 0)
        self._origins = None if self.before is None else self.before._origins
        self._layout: list[Any] = []
        self.arrays: dict[Any, Arrays] = {}
        kept_arrays = self._arrays_before()
        first, ends = list[Node](), list[Ends]()
        for table in self.tables():
            own = kept_arrays.get(table.key)
            if own is None or not first or self.chained:
                nodes, weight = self._nodes(table)
                self._origins = find_origins(nodes, self.parts) if self._origins is None else self._origins
            if not first:
                first, first_weight, self.first_rows = nodes, weight, table.n_rows
            if own is None:
                calls = self._registered(nodes)
                marks = [hashlib.blake2b(call.tobytes(), digest_size=12).digest() for call in calls]
                present = counted(nodes, self.n_present, self.plate, slice(table.n_rows))
                own = Arrays(calls, marks, weight, present)
            counts = counts or bool(np.any(own.weight))
            ends = widened(ends, own.calls)
            self._layout = self._layout or self._layout_of(own.calls)
            self._check_layout(table, own.calls)
            numbers: dict[Any, int] = {}
            pairs = zip(classes or self._layout, own.marks, strict=True)
            classes = [numbers.setdefault(pair, len(numbers)) for pair in pairs]
            for name, count in own.present.items():
                self.n_present[name] += count
            n_bytes += sum(call.nbytes for call in own.calls)
            kept = partial(self._under_keys, own.calls, own.weight)
            if self.chained:
                kept = partial(self._with_plan, table, nodes)
            calls_held = None if calls_held is None or n_bytes > HELD else [*calls_held, kept]
            if calls_held is not None:
                self.arrays[table.key] = own
        if not counts:
            raise ValueError(f"plate {self.plate!r}: weight is 0 everywhere: there is nothing to learn from")
        if calls_held is None:
            self.arrays = {}
        self._keys = [f"known:{number}" for number in classes]
        self.ends = dict(zip(self._keys, ends, strict=True))
        known = Numbered(self._keys)
        if not self.chained:
            known[weight_key(self.plate)] = first_weight
        plan = make_plan(first, self._origins, known, self.read)
        self.groups: list[tuple[str, ...]] = (
            chosen_groups(plan, self.template.joint) if self.before is None else self.before.groups
        )
        self.plan = with_joint_factors(plan, self.groups)
        # What was declared hidden, what is missing and read, and what makes a leaf conjugate (`language/auxiliary.py`).
        self.local = self._in_rows(self.plan)
        check_hidden(plan, {*self._in_rows(plan), *(node.name for node in with_ancestors(self.made))}, self.plate)
        if calls_held is not None:
            self._held = [Later(_as_is, make()) for make in calls_held]
        self._colour()

    def _in_rows(self, plan: Plan) -> tuple[str, ...]:
        """Names of the blocks that lie on the plate of the rows."""
        return tuple(name for name in plan.blocks if any(p.name == self.plate for p in plan.nodes[name].plates))

    def _check_layout(self, table: Table, calls: list[Array]) -> None:
        if self._layout_of(calls) != self._layout:
            raise PlateMismatch(
                f"{table.where}, row {table.first}: what is missing, censored or known in part makes this chunk another network "
                "than the first one, and one plan cannot serve both: leave chunk_rows= out"
            )

    def _layout_of(self, calls: list[Array]) -> list[Any]:
        # Sequences of a chunk are as long as they are.
        return [(call.dtype.str, call.ndim if self.chained else call.shape) for call in calls]

    def _under_keys(self, calls: list[Array], weight: Array) -> Known:
        keyed = Known(zip(reversed(self._keys), reversed(calls), strict=True))
        keyed[weight_key(self.plate)] = weight
        return keyed

    def _arrays_before(self) -> Mapping[Any, Arrays]:
        """Of chunks that stayed, if ids are numbered as they were and nothing else is seen in another way."""
        old = self.before
        if old is None or old.size != self.size or not same_codes(old.domain, self.domain):
            return {}
        return old.arrays if (old.lost, old.parts) == (self.lost, self.parts) else {}

    def _colour(self) -> None:
        """Elements that meet in any chunk have different colours."""
        blocks = {name: block for name, block in self.plan.blocks.items() if block.colours is not None}
        if any(name in self.local for name in blocks):
            raise NotConjugate(
                f"{min(set(blocks) & set(self.local))!r} is read twice by one row: leave chunk_rows= out"
            )
        if not blocks:
            return
        pairs: dict[str, set[tuple[int, int]]] = {name: set() for name in blocks}
        for known in self._all():
            for name, block in blocks.items():
                terms = [t for t in self.plan.terms.values() if len(t.readings.get(name, ())) > 1]
                pairs[name] |= meeting_pairs(self.plan.nodes[name], block.shape, terms, {**self.plan.known, **known})
        self._coloured = {
            name: replace(block, colours=coloured(pairs[name], block.shape)) for name, block in blocks.items()
        }
        self.plan = replace(self.plan, blocks={**self.plan.blocks, **self._coloured})
        for later in self._held or ():
            if (own := later.known.plan) is not None:
                later.known.plan = replace(own, blocks={**own.blocks, **self._coloured})

    def plan_of(self, table: Table) -> Plan:
        """The plan of any rows, with their arrays."""
        own = copy.copy(self)
        own.size = table.n_rows
        nodes, weight = own._nodes(table)
        known = Numbered(self._keys)
        if not self.chained:
            known[weight_key(self.plate)] = weight
        plan = with_joint_factors(make_plan(nodes, self._origins, known, self.read), self.groups)
        return replace(plan, blocks={**plan.blocks, **self._coloured})

    # -- a chunk --

    def _nodes(self, table: Table) -> tuple[list[Node], Array]:
        """The nodes of a network whose rows are those of a chunk, parents first, and how often each row counts."""
        if self.chained:
            padded, weight, weights = table, np.ones(table.n_rows), {}
        else:
            padded = table if table.n_rows == self.size else table.repeated(self.size)
            weight = (np.arange(self.size) < table.n_rows).astype(np.float64)
            if (own := self.template.plates[self.plate].later) is not None:
                weight = weight * padded.numbers(own.name)
            weights = {self.plate: weight}
        tables, part = {self.plate: padded}, (self.plate,)
        builder = Builder(self.template, tables, self.domain, self.made, weights=weights, part=part, masked=self.lost)
        nodes = with_ancestors({**self.made, **builder.nodes(self.inside)})
        for node in nodes:
            if node.name in getattr(self, "in_parts", ()):
                split(node)
        return nodes, weight

    def _registered(self, nodes: list[Node]) -> list[Array]:
        known = Numbered()
        assert self._origins is not None
        for node in nodes:
            placed(node, self._origins, self.parts).term(known, self.read)
        return known.calls


def _as_is(known: Known) -> Known:
    return known
