"""Bind a template to tables: an ordinary network with its levels, and a fit that carries the ids of the data."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from natgrad.data.frames import is_frame
from natgrad.data.ids import spelled_alike
from natgrad.errors import PlateMismatch
from natgrad.inference.methods import SVI
from natgrad.inference.monitor import Since
from natgrad.network.bind.build import Builder, Domain, Template, Use, check_plate, check_rows
from natgrad.network.bind.levels import Levels, ids_of
from natgrad.network.bind.tables import LARGE, Table, TableChunks, as_table
from natgrad.network.language.columns import RecordedNode

if TYPE_CHECKING:
    from natgrad.network.network import Network
    from natgrad.network.results.fit import Fit

__all__ = ["Binding", "Rows", "bind_network", "bound_network", "find_domain", "fit_table", "open_tables"]

Rows = Mapping[str, Table | TableChunks]


class Binding(NamedTuple):
    """What a fit knows of the data: the declaration, its levels, and the rows; of those that come in chunks, how many at a time.

    A fit that was loaded from a file has no rows.
    """

    template: Template
    domain: Domain
    tables: Rows | None = None
    chunk_rows: int | None = None
    problem: Any = None  # of rows that come in chunks: it knows what they told


def open_tables(template: Template, data: Any, what: str = "the table", partial: bool = False) -> dict[str, Any]:
    """The table of each plate; with ``partial``, columns may be missing, which the caller looks after."""
    plates = template.tables
    if data is None:
        raise TypeError(
            f"declared with columns, {', '.join(map(repr, template.columns[:6]))}: give the table, as in fit(table)"
        )
    if isinstance(data, Mapping) and data and all(_is_tabular(value) for value in data.values()):
        unknown = [key for key in data if key not in plates]
        if unknown:
            raise PlateMismatch(
                f"tables are given by plate, and {unknown[0]!r} is none that has columns: {', '.join(map(repr, plates))}"
            )
        tables = {plate: as_table(value, f"the table of {plate!r}") for plate, value in data.items()}
    else:
        if len(plates) > 1:
            raise PlateMismatch(
                f"columns are read on plates {', '.join(map(repr, plates))}: give a table for each, as in "
                f"fit({{{', '.join(f'{plate!r}: …' for plate in plates)}}})"
            )
        tables = {plates[0]: as_table(data, what)}
    lacking = [plate for plate in plates if plate not in tables]
    if lacking and not partial:
        raise PlateMismatch(f"there is no table for plate {lacking[0]!r}; given are {', '.join(map(repr, tables))}")
    if not partial:
        for plate, table in tables.items():
            from natgrad.data.frames import choose_columns

            choose_columns(table.where, table.names, template.columns_on(plate))
    return tables


def held(template: Template, tables: Rows, wanted: Mapping[str, Any] | None = None) -> dict[str, Table]:
    """The tables in memory, those columns that are read."""
    held_tables = {}
    for plate, table in tables.items():
        names = [name for name in (*template.columns_on(plate), *_id_columns(template, plate)) if name in table]
        names = list(dict.fromkeys(names)) if wanted is None else list(wanted[plate])
        held_tables[plate] = table.whole(names) if isinstance(table, TableChunks) else table.only(names)
        check_rows(held_tables[plate], plate)
        if plate not in template.level_plates:
            check_plate(template, plate, held_tables[plate].n_rows)
    return held_tables


def find_domain(template: Template, tables: Mapping[str, Table], before: Domain | None = None) -> Domain:
    """The levels of every plate that is read by ids, and of every category; of the plates of ``before``, after its levels."""
    levels: dict[str, Levels] = {}
    for plate in template.level_plates if before is None else before.levels:
        uses = template.level_plates[plate]
        columns = [ids_of(tables[own], use.column.name) for use in uses if (own := _of(template, use)) in tables]
        if plate in tables:
            columns.append(ids_of(tables[plate], id_column(template, plate, tables[plate])))
        columns = [column for column in columns if len(column)]
        if before is None:
            levels[plate] = Levels.of(columns)
        else:
            levels[plate] = before.levels[plate]
            for column in columns:
                levels[plate] = levels[plate].extended(column)
    return Domain(levels, before.categories if before is not None else _categories(template, tables))


def aligned(template: Template, tables: Mapping[str, Table], domain: Domain) -> dict[str, Table]:
    """The tables, side information in the order of the levels: what a level lacks is missing."""
    by_plate = dict(tables)
    for plate, levels in domain.levels.items():
        if plate in tables:
            table = tables[plate]
            name = id_column(template, plate, table)
            codes = levels.find(ids_of(table, name))
            if len(np.unique(codes)) < len(codes):
                twice = table.cells(name)[np.flatnonzero(np.bincount(codes)[codes] > 1)[0]]
                raise ValueError(f"{table.where}: column {name!r}: {twice!r} is there twice; give every id one row")
            rows = np.full(len(levels), -1)
            rows[codes] = np.arange(len(codes))
            if (rows < 0).any():
                _check_lacking(template, plate, table, name, levels.ids[rows < 0])
            by_plate[plate] = _gathered(table, rows)
    return by_plate


def _check_lacking(template: Template, plate: str, table: Table, name: str, lacking: Any) -> None:
    """Refuse ids that other tables have and this one lacks, where its columns are known numbers or ids are spelled alike."""
    shown = ", ".join(map(repr, lacking[:5].tolist())) + (", …" if len(lacking) > 5 else "")
    words = f"{table.where}: column {name!r} lacks {shown}, which other tables name ({len(lacking)} such)"
    own = ids_of(table, name)
    if spelled_alike(own, lacking):
        key = next(key for key in own.tolist() if str(key) in set(map(str, lacking.tolist())))
        other = next(other for other in lacking.tolist() if str(other) == str(key))
        raise ValueError(
            f"{words}; it has {key!r}, a {type(key).__name__}, where another table has {other!r}, a {type(other).__name__}: "
            "convert one of the columns, so that both have the same type"
        )
    needed = [use for use in template.uses if template.plate_of(use) == plate and use.role not in ("observed", "size")]
    if needed:
        raise ValueError(
            f"{words}, but {needed[0].node!r} takes column {needed[0].column.name!r} of every {plate!r} as known: add a row for "
            "each, or leave out the rows that name them"
        )


def id_column(template: Template, plate: str, table: Table | TableChunks) -> str:
    """The column of a plate's own table by which others name its rows."""
    names = tuple(dict.fromkeys((*_id_columns(template, plate), plate)))
    for name in names:
        if name in table:
            return name
    raise ValueError(
        f"{table.where} has no column {' or '.join(map(repr, names))}, which says which row is which element of {plate!r}; "
        f"it has {', '.join(map(repr, table.names))}"
    )


def _id_columns(template: Template, plate: str) -> tuple[str, ...]:
    columns = (use.column.name for use in template.level_plates.get(plate, ()))
    return tuple(dict.fromkeys((*columns, plate))) if plate in template.level_plates else ()


def _of(template: Template, use: Use) -> str:
    plate = template.plate_of(use)
    assert plate is not None
    return plate


def _categories(template: Template, tables: Mapping[str, Table]) -> dict[str, Levels]:
    """Values of a category that are names, or that the size of something counts."""
    levels: dict[str, Levels] = {}
    counted = {use.column.name for use in template.uses if use.role == "size"}
    for use in template.uses:
        node: RecordedNode = template.nodes[use.node]
        if use.role != "observed" or use.column.name in levels or not node.function.is_category:
            continue
        table, name = tables[_of(template, use)], use.column.name
        if name in counted or not table.holds_numbers(name):
            levels[name] = Levels.of([ids_of(table.take(~table.missing(name)), name)])
    for name in counted - set(levels):
        table = next(tables[_of(template, u)] for u in template.uses if u.column.name == name and u.role != "size")
        levels[name] = Levels.of([ids_of(table, name)])
    return levels


def _gathered(table: Table, rows: Any) -> Table:
    lost, columns = rows < 0, {}
    for name in table.names:
        column = table.cells(name)[rows]
        if lost.any():
            column = column.astype(np.float64 if column.dtype.kind in "biuf" else object)
            column[lost] = np.nan if column.dtype.kind == "f" else None
        columns[name] = column
    return Table(columns, table.where, table.is_text)


def _is_tabular(value: Any) -> bool:
    if isinstance(value, (Mapping, Table, TableChunks, str, Path)) or callable(getattr(value, "chunks", None)):
        return True
    return bool(value.dtype.names) if isinstance(value, np.ndarray) else is_frame(value)


def fit_table(template: Template, data: Any, method: Any, chunk_rows: int | None, options: dict[str, Any]) -> Fit:
    """The fit of a network that was declared with columns."""
    if isinstance(seconds := options["max_seconds"], (int, float)) and not isinstance(seconds, (bool, Since)):
        options["max_seconds"] = Since(seconds)  # reading the table is a part of the fit
    tables = open_tables(template, data)
    init = options["init"]
    if isinstance(init, Mapping):
        options["init"] = {key.name if isinstance(key, RecordedNode) else key: value for key, value in init.items()}
    if chunk_rows is not None or is_large(tables) or _is_shared_out(options.get("executor"), method):
        from natgrad.network.bind.streaming import CannotBeCut, fit_chunks

        with suppress(CannotBeCut):  # then all rows are read into memory
            return fit_chunks(template, tables, method, chunk_rows, options)
    rows = held(template, tables)
    domain = find_domain(template, rows)
    network = bind_network(template, rows, domain)
    return network.fit_whole(method, options).bound_to(Binding(template, domain, rows))


def bind_network(template: Template, rows: Mapping[str, Any], domain: Domain) -> Network:
    """The network of these rows, made by the language as if it had been declared with their arrays."""
    from natgrad.network.network import Network

    nodes = Builder(template, aligned(template, rows, domain), domain).nodes()
    roots = (nodes[root.name] if isinstance(root, RecordedNode) else root for root in template.roots)
    return Network(*roots, joint=template.joint)


def bound_network(template: Template, data: Any) -> Network:
    """The network of the rows of a table."""
    rows = held(template, open_tables(template, data))
    return bind_network(template, rows, find_domain(template, rows))


def _is_shared_out(executor: Any, method: Any) -> bool:
    """Whether others compute, by more than batches of groups: then they are handed chunks."""
    return executor not in (None, "threads") and not isinstance(method, SVI)


def is_large(tables: Rows) -> bool:
    """Whether there are files of so many rows that they are read in chunks."""
    return any(isinstance(table, TableChunks) and (table.n_rows or 0) > LARGE for table in tables.values())
