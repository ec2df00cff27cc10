"""A table that is read in chunks and a template in; the known arrays of each chunk, for one plan that serves all, out.

A plan's structure follows from the declaration alone: every chunk registers its arrays in the same order. Two registrations share
a key only if their arrays are equal in every chunk. The last chunk is filled up with copies of its first row, of weight 0.

Before the first sweep the table is read twice: once for the levels of plates, once for what chunks have in common.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.data.stream import prefetch
from natgrad.errors import NotConjugate, PlateMismatch
from natgrad.network.bind.bound import aligned, find_domain
from natgrad.network.bind.build import Domain, build_nodes
from natgrad.network.bind.levels import Levels
from natgrad.network.bind.tables import Table, TableChunks
from natgrad.network.bind.template import Template, made_parents
from natgrad.network.compile.origins import find_origins, placed
from natgrad.network.compile.plan import coloured, make_plan, meeting_pairs, weight_key
from natgrad.network.language.gaussian_chain import GaussianChain
from natgrad.network.language.markov_chain import MarkovChain
from natgrad.network.language.missing import hidden_in_part
from natgrad.network.language.nodes import Node
from natgrad.network.language.scope import Numbered

__all__ = ["Chunks"]

Array = npt.NDArray[Any]
Known = dict[str, Array]
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

    Attributes
    ----------
    plan : Plan, of a chunk
    domain : Domain
    local : names of the hidden nodes of rows, parents first
    n_rows, n_chunks : int
    """

    def __init__(
        self, template: Template, plate: str, source: TableChunks, others: Mapping[str, Table], size: int
    ) -> None:
        self.template, self.plate, self.source, self.size = template, plate, source, size
        self.names = list(template.columns_on(plate))
        inside = [name for name, node in template.nodes.items() if any(p.name == plate for p in node.plates)]
        for name in inside:
            if issubclass(template.nodes[name].function, (MarkovChain, GaussianChain)):
                raise PlateMismatch(
                    f"{name!r} is a chain along plate {plate!r}, whose rows depend on one another: it cannot be cut into chunks. "
                    "Leave chunk_rows= out, or use one of the hidden Markov models, which stream"
                )
        if plate in template.level_plates:
            raise PlateMismatch(f"rows of plate {plate!r} are read by their ids: they cannot come in chunks")
        self.inside = frozenset(inside)
        self._scan(others)
        self.made = build_nodes(
            template, aligned(template, others, self.domain), self.domain,
            only=[name for name in template.nodes if name not in self.inside],
        )  # fmt: skip
        self.made.update(made_parents(template))
        self.local = tuple(name for name in inside if not template.nodes[name].is_observed)
        self._ready: Callable[[Known], Known] = _as_is
        self._held: list[Known] | None = None
        self._learn()

    # -- reading --

    def tables(self) -> Iterator[Table]:
        """The chunks as tables, all but the last of the same length."""
        seen = 0
        for chunk in self.source.chunks(self.names, self.size):
            seen += chunk.n_rows
            yield chunk
        if hasattr(self, "n_rows") and seen != self.n_rows:
            raise ValueError(
                f"{self.source.where} had {self.n_rows:,} rows when it was first read, and has {seen:,} now: it changed meanwhile"
            )

    def known(self, table: Table) -> Known:
        """The known arrays of a chunk, under the keys of the plan."""
        calls = self._registered(self._nodes(table))
        if len(calls) != len(self._keys):
            raise ValueError(f"{table.where}, row {table.first}: this chunk has another structure than the first one")
        found = dict(zip(reversed(self._keys), reversed(calls), strict=True))
        found[weight_key(self.plate)] = self._weight
        return found

    def map(self, function: Callable[[Known], Any]) -> Iterator[Any]:
        """The function of every chunk's arrays, in order; chunks that fit stay in memory."""
        from natgrad.kernels._threads import in_order, n_threads  # Numba takes a while to import

        waiting: list[Any] = []
        window = max(AHEAD, n_threads())
        for known in self._all():
            waiting.append(known)
            if len(waiting) == window:
                yield from in_order(function, waiting)
                waiting = []
        yield from in_order(function, waiting)

    def some(self, numbers: Any) -> Iterator[Known]:
        """The arrays of some chunks, by number, in order."""
        wanted = sorted(int(number) for number in numbers)
        if self._held is not None:
            return (self._held[number] for number in wanted)
        chosen = set(wanted)
        return (self._ready(self.known(table)) for number, table in enumerate(self.tables()) if number in chosen)

    def as_read(self) -> list[Known] | None:
        """The arrays of all chunks under the keys of the plan, if they are held."""
        return (
            None if self._held is None else [{key: np.asarray(known[key]) for key in self._own} for known in self._held]
        )

    def __getstate__(self) -> dict[str, Any]:
        """For another process: nothing that is held here."""
        return {**self.__dict__, "_held": None, "_ready": _as_is}

    def use(self, ready: Callable[[Known], Known]) -> None:
        """Hand chunks out as ``ready`` makes them; of those that stay in memory it is asked once."""
        self._ready = ready
        if self._held is not None:
            self._held = [ready(known) for known in self._held]

    def _all(self) -> Iterator[Known]:
        if self._held is not None:
            return iter(self._held)
        return prefetch(self._ready(self.known(table)) for table in self.tables())

    # -- what chunks have in common --

    def _scan(self, others: Mapping[str, Table]) -> None:
        levels: dict[str, list[Array]] = {}
        categories: dict[str, list[Array]] = {}
        self.lost: set[str] = set()
        count = n_chunks = 0
        for table in self.tables():
            found = find_domain(self.template, {**others, self.plate: table})
            for kept, parts in ((levels, found.levels), (categories, found.categories)):
                for name, part in parts.items():
                    kept.setdefault(name, []).append(part.ids)
            self.lost.update(
                use.node
                for use in self.template.uses
                if use.role == "mask" or (use.role == "observed" and table.missing(use.column.name).any())
                if self.template.plate_of(use) == self.plate
            )
            count, n_chunks = count + table.n_rows, n_chunks + 1
        if not count:
            raise ValueError(f"{self.source.where} has no rows: there is nothing to learn from on plate {self.plate!r}")
        self.n_rows, self.n_chunks, self.size = count, n_chunks, min(self.size, count)
        self.domain = Domain(
            *({name: Levels.of(parts) for name, parts in kept.items()} for kept in (levels, categories))
        )

    def _learn(self) -> None:
        """Origins, the keys of registrations, and colours; and the arrays themselves, if they fit."""
        classes: list[Any] = []
        calls_held: list[tuple[list[Array], Array]] | None = []
        n_bytes, self.n_present = 0, dict.fromkeys(self.template.observed(), 0)
        self._origins: dict[str, npt.NDArray[np.float64]] | None = None
        first: list[Node] = []
        for table in self.tables():
            nodes = self._nodes(table)
            _check_seen(nodes)
            if self._origins is None:
                first, self._origins = nodes, find_origins(nodes)
                first_weight = self._weight
            calls = self._registered(nodes)
            marks = [hashlib.blake2b(call.tobytes(), digest_size=12).digest() for call in calls]
            if classes and len(classes) != len(calls):
                raise ValueError(
                    f"{table.where}, row {table.first}: this chunk has another structure than the first one"
                )
            numbers: dict[Any, int] = {}
            pairs = zip(classes or [(c.dtype.str, c.shape) for c in calls], marks, strict=True)
            classes = [numbers.setdefault(pair, len(numbers)) for pair in pairs]
            self._count(nodes, table.n_rows)
            n_bytes += sum(call.nbytes for call in calls)
            calls_held = None if calls_held is None or n_bytes > HELD else [*calls_held, (calls, self._weight)]
        self._keys = [f"known:{number}" for number in classes]
        self._own = (*dict.fromkeys(self._keys), weight_key(self.plate))
        known = Numbered(self._keys)
        known[weight_key(self.plate)] = first_weight
        self.plan = make_plan(first, self._origins, known)
        self._held = None if calls_held is None else [self._under_keys(*entry) for entry in calls_held]
        self._colour()

    def _under_keys(self, calls: list[Array], weight: Array) -> Known:
        return {**dict(zip(reversed(self._keys), reversed(calls), strict=True)), weight_key(self.plate): weight}

    def _count(self, nodes: list[Node], n_rows: int) -> None:
        for node in nodes:
            if node.name in self.n_present and node.name in self.inside:
                real = np.take(
                    np.ones(1) if node.mask is None else node.mask, range(n_rows if node.mask is not None else 1), 0
                )
                times = (
                    1
                    if node.mask is not None
                    else n_rows * int(np.prod([p.size for p in node.plates if p.name != self.plate]))
                )
                self.n_present[node.name] += int(real.sum()) * times

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
        new = {name: replace(block, colours=coloured(pairs[name], block.shape)) for name, block in blocks.items()}
        self.plan = replace(self.plan, blocks={**self.plan.blocks, **new})

    # -- a chunk --

    def _nodes(self, table: Table) -> list[Node]:
        """The nodes of a network whose rows are those of a chunk, parents first."""
        padded = table if table.n_rows == self.size else table.repeated(self.size)
        weight = (np.arange(self.size) < table.n_rows).astype(np.float64)
        if (own := self.template.plates[self.plate].later) is not None:
            weight = weight * padded.numbers(own.name)
        self._weight = weight
        made = build_nodes(
            self.template, {self.plate: padded}, self.domain, made=self.made, weights={self.plate: weight},
            only=self.inside,
        )  # fmt: skip
        whole = {**self.made, **made}
        return [self._masked(node) for node in _parents_first(whole)]

    def _masked(self, node: Node) -> Node:
        """Where any chunk has missing values, all have a mask."""
        if node.name not in self.lost or node.mask is not None:
            return node
        twin = copy.copy(node)
        twin.mask = np.ones(tuple(plate.size for plate in node.plates))
        return twin

    def _registered(self, nodes: list[Node]) -> list[Array]:
        known = Numbered()
        assert self._origins is not None
        for node in nodes:
            placed(node, self._origins).term(known)
        return known.calls


def _check_seen(nodes: list[Node]) -> None:
    """What is missing and read by others is inferred, which takes a variable for each row, and chunks hold none of these."""
    parts = hidden_in_part(nodes).union(node.name for node in nodes if node.entries is not None)
    if parts:
        raise PlateMismatch(
            f"{min(parts)!r} has missing values that are inferred, and rows that come in chunks have no place for them: leave "
            "chunk_rows= out, so that all rows are in memory, or fill them in"
        )


def _as_is(known: Known) -> Known:
    return known


def _parents_first(nodes: Mapping[str, Node]) -> list[Node]:
    found: dict[str, Node] = {}
    for root in nodes.values():
        waiting = [root]
        while waiting:
            node = waiting[-1]
            missing = [parent for parent in node.parents() if parent.name not in found]
            if missing and node.name not in found:
                waiting += [nodes.get(parent.name, parent) for parent in missing]
            else:
                found.setdefault(node.name, waiting.pop())
    return list(found.values())
