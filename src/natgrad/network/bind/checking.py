"""A declaration from a file in; an error if no table could make it out.

What reads no column is made as it is. What reads columns is made with tables that stand in for those of the fit: of several
sizes and numbers, since the file has no rows. A declaration is refused if none of them will do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from natgrad.network.bind.build import Builder, Domain
from natgrad.network.bind.tables import Table
from natgrad.network.bind.template import Template
from natgrad.network.language.columns import Column, Columns, Recorded, RecordedNode, walk

__all__ = ["check_makes"]

# What stands in columns: something that a precision, a probability or a count may be.
NUMBERS = (1.0, 0.5, 0.0)
# Tables that are tried before a declaration is taken as it is.
MOST_TABLES = 99


def check_makes(template: Template, domain: Domain, data: Any) -> None:
    """Make every node on tables of a few rows; an error of a node or an operator is one of the declaration, given as ``data``."""
    _without_columns(template, domain)
    tables = itertools.product(_sizes(template, domain, data), NUMBERS)
    first: Exception | None = None
    for sizes, number in itertools.islice(tables, MOST_TABLES):
        try:
            _with_columns(template, domain, sizes, number)
        except (TypeError, ValueError, ArithmeticError) as error:
            first = first or error
        else:
            return
    if first is not None and next(tables, None) is None:
        raise first


def _without_columns(template: Template, domain: Domain) -> None:
    """All that reads no column, on plates of one row."""
    rows = dict.fromkeys((*template.tables, *template.row_plates.values()), Table({"row": np.zeros(1)}, "one row"))
    builder = _builder(template, rows, domain)
    reading = {use.node for use in template.uses}
    for node in template.nodes.values():  # parents come first
        whole = node.name not in reading
        for part in [node] if whole else walk(tuple(node.options.values()), inside=False):
            inside = list(walk(tuple(node.options.values()) if whole else part, inside=False))
            known = all(entry.name in builder.made for entry in inside if isinstance(entry, RecordedNode))
            if not known or any(isinstance(entry, (Column, Columns)) for entry in inside):
                continue
            if whole:
                builder.node(node)
            elif isinstance(part, Recorded):
                builder.value(node, part, "number")


def _with_columns(template: Template, domain: Domain, sizes: Mapping[str, int], number: float) -> None:
    """The terms of all nodes on tables of these sizes that are full of one number."""
    rows = {plate: _stand_in(template, domain, plate, size, number) for plate, size in sizes.items()}
    builder = _builder(template, rows, domain, frozenset(template.observed()))
    for node in template.nodes.values():
        builder.node(node).term({})


def _builder(
    template: Template, rows: Mapping[str, Table], domain: Domain, left_out: frozenset[str] = frozenset()
) -> Builder:
    return Builder(template, rows, domain, {}, left_out, dict.fromkeys(rows), frozenset(), frozenset())


def _stand_in(template: Template, domain: Domain, plate: str, size: int, number: float) -> Table:
    columns: dict[str, Any] = {"": np.zeros(size)}
    for use in template.uses:
        if template.plate_of(use) == plate and (use.role == "index" or use.column.name not in columns):
            levels = None if use.plate is None else domain.levels.get(use.plate.name)
            columns[use.column.name] = (
                np.repeat(levels.ids[:1], size)
                if use.role == "index" and levels is not None
                else np.full(size, 0 if use.role == "index" else number)
            )
    return Table(columns, "the rows of a file")


def _sizes(template: Template, domain: Domain, data: Any) -> Iterator[dict[str, int]]:
    """How many rows the tables may have: one, or as many as some array of the declaration says."""
    lengths, waiting = {1}, [data]
    while waiting:
        part = waiting.pop()
        if isinstance(part, np.ndarray):
            lengths.update(part.shape)
        elif isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, (list, tuple)):
            lengths.add(len(part))
            waiting += part
    plates = dict.fromkeys((*template.tables, *template.row_plates.values()))
    choices = [
        [len(domain.levels[name])]
        if name in domain.levels
        else [template.plates[name].size]
        if not template.plates[name].is_open
        else sorted(lengths - {0})
        for name in plates
    ]
    return (dict(zip(plates, sizes, strict=True)) for sizes in itertools.product(*choices))
