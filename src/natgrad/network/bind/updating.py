"""Add rows to a fit, or take rows out of it, and go on from its state."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.inference.problem import State
from natgrad.network.bind.bound import Binding, bind_network, find_domain, held, id_column, open_tables
from natgrad.network.bind.build import Domain, Template
from natgrad.network.bind.chunking import Cuts, sequences_along
from natgrad.network.bind.tables import Table, TableChunks, as_chunks
from natgrad.posterior.factor import Factor, shifted
from natgrad.validation import real_number

if TYPE_CHECKING:
    from natgrad.network.results.fit import Fit, Settings

__all__ = ["Pieces", "forget_rows", "update_rows"]

# Chunks of new rows come after the old ones, and rows are taken out of the chunk that they are in: whatever is not touched is
# the chunk that it was, under the key that it had (`natgrad.network.bind.chunks`).

Flags = npt.NDArray[np.bool_]


class Pieces(NamedTuple):
    """Sources one after the other, each cut as it was, without some rows.

    Parameters
    ----------
    template, plate, size : how tables are cut
    parts : the tables
    gone : rows that went, as numbers in the chunk that they were in, by the key of that
    """

    template: Template
    plate: str
    size: int
    parts: tuple[TableChunks, ...]
    gone: Mapping[Any, npt.NDArray[np.int64]]

    @classmethod
    def of(cls, template: Template, plate: str, size: int, table: Table | TableChunks) -> Pieces:
        """Those of a table that was fitted."""
        source = as_chunks(table)
        earlier: Pieces | None = source.pieces
        return cls(template, plate, size, (source,), {}) if earlier is None else earlier

    def table(self) -> TableChunks:
        """As one table."""
        counts, first = [part.n_rows for part in self.parts], self.parts[0]
        gone = sum(map(len, self.gone.values()))
        total = None if None in counts else sum(count for count in counts if count is not None) - gone
        files = [path for part in self.parts for path in part.files]
        table = TableChunks(self.read, first.names, first.where, total, files, is_cut=True)
        table.pieces = self
        return table

    def with_rows(self, more: Table | TableChunks) -> Pieces:
        """With another table after the others."""
        return self._replace(parts=(*self.parts, as_chunks(more)))

    def without(self, columns: Sequence[str], chosen: Callable[[Table, int], Flags]) -> Pieces:
        """Without the rows that a function chooses, of a chunk and of how many rows were before it."""
        gone, first = dict(self.gone), 0
        for chunk, there in self._chunks([*self.template.columns_on(self.plate), *columns]):
            flags = chosen(chunk.take(there), first)
            first += len(there)
            if flags.any():
                before = gone.get(chunk.key, np.zeros(0, dtype=np.int64))
                gone[chunk.key] = np.sort(np.concatenate([before, there[flags]]))
        return self._replace(gone=gone)

    def read(self, names: Sequence[str], size: int) -> Iterator[Table]:
        """The chunks that have rows left."""
        for chunk, there in self._chunks(names):
            if len(there) == chunk.n_rows:
                yield chunk
            elif len(there):
                left = chunk.take(there)
                digest = hashlib.blake2b(self.gone[chunk.key].tobytes(), digest_size=12).digest()
                left.key, left.first = (chunk.key, digest), chunk.first
                yield left

    def _chunks(self, names: Sequence[str]) -> Iterator[tuple[Table, npt.NDArray[np.int64]]]:
        """Every chunk as it was, and the numbers of its rows that are left."""
        groups, wanted = sequences_along(self.template, self.plate), list(dict.fromkeys(names))
        for part in self.parts:
            for chunk in Cuts(part, list(dict.fromkeys([*wanted, *groups])), self.size, groups).tables():
                there = np.arange(chunk.n_rows)
                yield chunk, np.delete(there, self.gone[chunk.key]) if chunk.key in self.gone else there


#     rows that are held, or can be read again     sums over all of them are made anew, nothing is subtracted, and sweeps go on
#     rows that are gone (a loaded file)           they speak through what they told last: λ less what the other nodes say
#
# Elements are matched by their ids: a new level starts at its prior, one without rows is gone.

Ints = npt.NDArray[np.int64]
Factors = Mapping[str, Factor]


def update_rows(
    binding: Binding,
    factors: Factors,
    groups: Sequence[tuple[str, ...]],
    settings: Settings,
    t: int,
    data: Any,
    forgetting: float | None,
    drift: str | None,
    options: Any,
) -> Fit:
    """The fit with rows added.

    Parameters
    ----------
    binding, factors, settings, t : of the fit
    groups : nodes that share a factor in it
    data : table, or tables by plate
    forgetting : part of what was learned before that no longer counts, optional
    drift : "auto" to learn it, optional
    options : limits and callbacks, as of ``Fit.continue_fit``
    """
    template = binding.template
    new = open_tables(template, data, "the new rows", partial=True)
    from natgrad.data.frames import choose_columns

    for plate, table in new.items():
        choose_columns(table.where, list(table.names), template.columns_on(plate))
    if forgetting is not None and not 0.0 <= real_number(forgetting, "forgetting") < 1.0:
        raise ValueError(
            f"forgetting must lie in [0, 1): the part of what was learned that no longer counts, got {forgetting!r}"
        )
    if drift not in (None, "auto"):
        raise ValueError(f'drift must be "auto", which learns how much to forget, or None, got {drift!r}')
    if drift is not None and forgetting is not None:
        raise ValueError(f'forgetting = {forgetting!r} is fixed, and drift="auto" learns it: give one of them')
    if binding.tables is None or forgetting is not None or drift is not None:
        from natgrad.network.bind.remembering import fit_remembering

        part = None if drift is not None else forgetting or 0.0
        return fit_remembering(binding, factors, groups, settings, t, held(template, new), part, options)
    if binding.chunk_rows is not None:
        return _again_in_chunks(binding, factors, settings, t, _appended(binding, binding.tables, new), options)
    old = {plate: table for plate, table in binding.tables.items() if isinstance(table, Table)}
    rows = _joined(binding, old, held(template, new))
    domain = find_domain(template, rows, binding.domain)
    maps = {
        plate: np.where(np.arange(table.n_rows) < old[plate].n_rows, np.arange(table.n_rows), -1)
        for plate, table in rows.items()
    }
    return _again(binding, factors, settings, t, rows, domain, maps, options)


def forget_rows(binding: Binding, factors: Factors, settings: Settings, t: int, what: Any, options: Any) -> Fit:
    """The fit with rows removed.

    Parameters
    ----------
    binding, factors, settings, t : of the fit
    what : {column: ids}, or the numbers of rows, or a flag for each row
    options : as in `update_rows`
    """
    if binding.tables is None:
        raise PlateMismatch(
            "forget: the rows of this fit are not held, so that nothing can be summed up without some of them"
        )
    if binding.chunk_rows is not None:
        return _again_in_chunks(binding, factors, settings, t, _without(binding, binding.tables, what), options)
    old = {plate: table for plate, table in binding.tables.items() if isinstance(table, Table)}
    kept = {plate: np.flatnonzero(flags) for plate, flags in _kept(old, what).items()}
    for plate, rows in kept.items():
        if not len(rows):
            raise ValueError(f"forget: no row of plate {plate!r} would be left")
    tables = {plate: table.take(kept[plate]) for plate, table in old.items()}
    remaining = find_domain(binding.template, tables)
    # The values of categories stay: they are what a vector of probabilities is about.
    domain = Domain(remaining.levels, binding.domain.categories)
    return _again(binding, factors, settings, t, tables, domain, kept, options)


# -- going on --


def _again(
    binding: Binding,
    factors: Factors,
    settings: Settings,
    t: int,
    rows: Mapping[str, Table],
    domain: Domain,
    maps: Mapping[str, Ints],
    options: Any,
) -> Fit:
    from natgrad.network.fit_run import FitRun

    network = bind_network(binding.template, rows, domain)
    problem = network.problem
    state = warm_state(problem, factors, binding.domain, domain, maps, t)
    # A chain of other rows begins at its prior, and is told first: whoever read it there would forget what was learned.
    if begun := tuple(name for name, block in problem.blocks.items() if _is_chain(block)):
        state = problem.sweep(state, begun).state._replace(t=t)
    fit = FitRun.continued(network.source, settings, None, None, options).run(state)
    return fit.bound_to(Binding(binding.template, domain, dict(rows)))


def _again_in_chunks(
    binding: Binding, factors: Factors, settings: Settings, t: int, tables: Mapping[str, Any], options: Any
) -> Fit:
    from natgrad.network.bind.streaming import go_on

    def start(problem: Any, domain: Domain) -> State:
        return warm_state(problem, factors, binding.domain, domain, {}, t)

    return go_on(binding, tables, settings, start, options)


def warm_state(
    problem: Any, factors: Factors, before: Domain, after: Domain, maps: Mapping[str, Ints], t: int
) -> State:
    """λ of every element that was there, found by its id or by its row; the others at their priors."""
    prior = problem.prior({})
    lam, mu = {}, {}
    for name, block in problem.blocks.items():
        lam[name] = tuple(np.asarray(part) for part in prior.lam[name])
        if name in factors and not _is_chain(block):
            codes = [_codes(plate, before, after, maps) for plate in block.plates]
            lam[name] = matched(block, factors[name], lam[name], codes)
        mu[name] = problem.moments(block, lam[name])
    return State(lam, mu, t)


def _is_chain(block: Any) -> bool:
    """Whether an element of a block is whole sequences of rows: with others it is another."""
    return hasattr(block.family, "lengths")


def matched(block: Any, factor: Factor, prior: tuple[Any, ...], codes: Sequence[Ints | None]) -> tuple[Any, ...]:
    """λ of a block whose elements along each plate are those of a factor with these numbers (−1: new)."""
    zero = np.zeros(())
    old, new = (zero if origin is None else origin for origin in (factor.origin, block.origin))
    lam = shifted(block.family, factor.lam, old - new) if np.any(old != new) else factor.lam
    fresh = np.zeros(block.shape, dtype=bool)
    for axis, numbers in enumerate(codes):
        if numbers is not None:
            lam = tuple(np.take(part, np.maximum(numbers, 0), axis=axis) for part in lam)
            fresh |= (numbers < 0).reshape([-1 if i == axis else 1 for i in range(fresh.ndim)])
    if not fresh.any():
        return tuple(np.array(part) for part in lam)
    return tuple(
        np.where(fresh.reshape(fresh.shape + (1,) * (part.ndim - fresh.ndim)), np.broadcast_to(own, part.shape), part)
        for part, own in zip(lam, prior, strict=True)
    )


def _codes(plate: str, before: Domain, after: Domain, maps: Mapping[str, Ints]) -> Ints | None:
    if plate in after.levels:
        return before.levels[plate].find(after.levels[plate].ids)
    return maps.get(plate)


# -- rows --


def _joined(binding: Binding, old: Mapping[str, Table], new: Mapping[str, Table]) -> dict[str, Table]:
    """Rows after rows; of a table with a row for each id, the new row takes the place of the old one."""
    tables = dict(old)
    for plate, table in new.items():
        before = old[plate]
        if plate in binding.template.level_plates:
            name = id_column(binding.template, plate, table)
            before = before.take(~np.isin(before.cells(name), table.cells(name)))
        tables[plate] = Table.joined([before, table], before.where) if before.n_rows else table
    return tables


def _kept(tables: Mapping[str, Table], what: Any) -> dict[str, npt.NDArray[np.bool_]]:
    if isinstance(what, Mapping):
        return _kept_by_ids(tables, what)
    if len(tables) > 1:
        raise TypeError(f"forget: there are tables of {', '.join(tables)}: name the rows by their ids, {{column: ids}}")
    ((plate, table),) = tables.items()
    return {plate: ~_row_flags(what, table.n_rows)}


def _kept_by_ids(tables: Mapping[str, Table], what: Mapping[str, Any]) -> dict[str, npt.NDArray[np.bool_]]:
    kept = {plate: np.ones(table.n_rows, dtype=bool) for plate, table in tables.items()}
    for column, ids in what.items():
        wanted = [ids] if isinstance(ids, (str, bytes)) or np.ndim(ids) == 0 else list(ids)
        there = [plate for plate, table in tables.items() if column in table]
        if not there:
            names = sorted({name for table in tables.values() for name in table.names})
            raise ValueError(f"forget: there is no column {column!r}; there are {', '.join(map(repr, names))}")
        for plate in there:
            kept[plate] &= ~_is_in(tables[plate], column, wanted)
        for one in wanted:
            if not any(_is_in(tables[plate], column, [one]).any() for plate in there):
                raise ValueError(f"forget: no row has {column} = {one!r}")
    return kept


def _is_in(table: Table, column: str, wanted: list[Any]) -> npt.NDArray[np.bool_]:
    cells, chosen = table.cells(column), set(wanted)
    if cells.dtype.kind in "iu" and all(isinstance(one, (int, np.integer)) for one in chosen):
        return np.isin(cells, list(chosen))
    return np.array([cell in chosen for cell in cells.tolist()], dtype=bool)


# -- rows that are read in chunks: those that stay where they are keep their keys --


def _pieces(binding: Binding, tables: Mapping[str, Any]) -> tuple[str, Pieces]:
    """The plate whose rows come in chunks, and these."""
    assert binding.chunk_rows is not None
    plate = binding.problem.source.chunks.plate
    return plate, Pieces.of(binding.template, plate, binding.chunk_rows, tables[plate])


def _appended(binding: Binding, tables: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Tables that are read in chunks, chunks of the new rows after the old ones."""
    rows, pieces = _pieces(binding, tables)
    side = {plate: table for plate, table in new.items() if plate != rows}
    old = held(binding.template, {plate: tables[plate] for plate in side})
    joined = {**tables, **_joined(binding, old, held(binding.template, side))}
    if rows in new:
        joined[rows] = pieces.with_rows(new[rows]).table()
    return joined


def _without(binding: Binding, tables: Mapping[str, Any], what: Any) -> dict[str, Any]:
    """The same tables, read without some rows."""
    remaining = dict(tables)
    rows, pieces = _pieces(binding, tables)
    if not isinstance(what, Mapping):
        flags = _row_flags(what, binding.problem.source.chunks.n_rows)
        remaining[rows] = pieces.without((), lambda part, first: flags[first : first + part.n_rows]).table()
        return remaining
    wanted = {c: [ids] if isinstance(ids, str) or np.ndim(ids) == 0 else list(ids) for c, ids in what.items()}
    names = sorted({name for table in tables.values() for name in table.names})
    for column in wanted:
        if column not in names:
            raise ValueError(f"forget: there is no column {column!r}; there are {', '.join(map(repr, names))}")
    seen: set[Any] = set()

    def gone(columns: list[str], part: Table, first: int = 0) -> npt.NDArray[np.bool_]:
        flags = np.zeros(part.n_rows, dtype=bool)
        for column in columns:
            here = _is_in(part, column, wanted[column])
            seen.update((column, cell) for cell in set(part.cells(column)[here].tolist()))
            flags |= here
        return flags

    for plate, table in tables.items():
        columns = [column for column in wanted if column in table]
        if columns and plate == rows:
            remaining[plate] = pieces.without(columns, partial(gone, columns)).table()
        elif columns:
            whole = held(binding.template, {plate: table})[plate] if isinstance(table, TableChunks) else table
            remaining[plate] = whole.take(~gone(columns, whole))
    for column, ids in wanted.items():
        for one in ids:
            if (column, one) not in seen:
                raise ValueError(f"forget: no row has {column} = {one!r}")
    return remaining


def _row_flags(what: Any, n_rows: int) -> npt.NDArray[np.bool_]:
    """Which rows are named, by their numbers or by a flag for each."""
    rows = np.asarray(what)
    if rows.dtype == bool and rows.shape == (n_rows,):
        return rows
    if rows.dtype.kind not in "iu" or rows.ndim != 1:
        raise TypeError(
            f"forget takes {{column: ids}}, the numbers of rows, or a flag for each of the {n_rows} rows; got {what!r}"
        )
    if rows.size and (rows.min() < 0 or rows.max() >= n_rows):
        bad = rows[(rows < 0) | (rows >= n_rows)][0]
        raise IndexError(f"forget: row {bad} is outside 0 … {n_rows - 1}")
    flags = np.zeros(n_rows, dtype=bool)
    flags[rows] = True
    return flags
