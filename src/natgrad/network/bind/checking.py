"""A declaration from a file in; an error if no table could make it out.

What reads no column is made as it is. What reads columns is made with tables that stand in for those of the fit, and only its
shapes are looked at: whether a column's numbers fit is for the new table to say.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from natgrad.errors import PlateMismatch
from natgrad.network.bind.build import Builder, Domain
from natgrad.network.bind.tables import Table
from natgrad.network.bind.template import Template
from natgrad.network.language.columns import Column, Columns, Recorded, RecordedNode, walk
from natgrad.network.language.expressions import Constant
from natgrad.network.language.plates import Index

__all__ = ["check_makes"]

# Of whole numbers; what is larger is no float, or no size.
MOST = 2**63
# Sizes of the tables that are tried before a declaration is taken as it is.
MOST_SIZES = 64


def check_makes(template: Template, domain: Domain) -> None:
    """Make every node on tables of a few rows; an error of a node or an operator is one of the declaration."""
    parts = (part for node in template.nodes.values() for part in walk(tuple(node.options.values()), inside=False))
    if any(isinstance(part, int) and abs(part) > MOST for part in parts):
        raise ValueError("it has a whole number of more than 19 digits")
    _without_columns(template, domain)
    first: PlateMismatch | None = None
    for tried, sizes in enumerate(_sizes(template, domain)):
        try:
            _with_columns(template, domain, sizes)
        except PlateMismatch as error:
            first = first or error
        else:
            return
        if tried == MOST_SIZES:
            return
    if first is not None:
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


def _with_columns(template: Template, domain: Domain, sizes: Mapping[str, int]) -> None:
    """The terms of all nodes on tables of these sizes; a PlateMismatch if their shapes do not go together."""
    rows = {plate: _stand_in(template, domain, plate, size) for plate, size in sizes.items()}
    builder = _builder(template, rows, domain, frozenset(template.observed()))
    unmade: set[str] = set()
    for node in template.nodes.values():
        parts = walk(tuple(node.options.values()), inside=False)
        if any(part.name in unmade for part in parts if isinstance(part, RecordedNode)):
            unmade.add(node.name)
            continue
        try:
            builder.node(node).term({})
        except PlateMismatch:
            raise
        except (TypeError, ValueError, ArithmeticError, LookupError):  # the numbers do not fit, which are none of the file's
            unmade.add(node.name)


def _builder(
    template: Template, rows: Mapping[str, Table], domain: Domain, left_out: frozenset[str] = frozenset()
) -> Builder:
    return Builder(template, rows, domain, {}, left_out, dict.fromkeys(rows), frozenset(), frozenset())


def _stand_in(template: Template, domain: Domain, plate: str, size: int) -> Table:
    columns: dict[str, Any] = {"": np.zeros(size)}
    for use in template.uses:
        if template.plate_of(use) == plate and (use.role == "index" or use.column.name not in columns):
            levels = None if use.plate is None else domain.levels.get(use.plate.name)
            columns[use.column.name] = (
                np.repeat(levels.ids[:1], size)
                if use.role == "index" and levels is not None
                else np.full(size, 0 if use.role == "index" else 1)
            )
    return Table(columns, "the rows of a file")


def _sizes(template: Template, domain: Domain) -> Iterator[dict[str, int]]:
    """How many rows the tables may have: one, or as many as some array of the declaration says."""
    lengths = {1}
    for node in template.nodes.values():
        for part in walk(tuple(node.options.values()), inside=False):
            array = part.value if isinstance(part, Constant) else part.values if isinstance(part, Index) else part
            if isinstance(array, (np.ndarray, list, tuple)):  # the lists inside a list come of themselves
                lengths.update(array.shape if isinstance(array, np.ndarray) else [len(array)])
    plates = dict.fromkeys((*template.tables, *template.row_plates.values()))
    choices = [
        [len(domain.levels[name])]
        if name in domain.levels
        else [template.plates[name].size]
        if not template.plates[name].is_open
        else sorted(lengths)
        for name in plates
    ]
    return (dict(zip(plates, sizes, strict=True)) for sizes in itertools.product(*choices))
