"""A template and tables in; concrete nodes, made by the functions of the language on the arrays of the columns, out."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.network.bind.levels import Levels, ids_of
from natgrad.network.bind.tables import Table
from natgrad.network.bind.template import Template
from natgrad.network.language.columns import LONGEST, Column, Columns, Recorded, RecordedNode
from natgrad.network.language.counts import Binomial, NegativeBinomial
from natgrad.network.language.discrete import Categorical, Multinomial
from natgrad.network.language.expressions import Expression
from natgrad.network.language.missing import censored
from natgrad.network.language.nodes import Node
from natgrad.network.language.operators import diag, dot, transform
from natgrad.network.language.plates import Index, Plate
from natgrad.network.language.rates import RateSum
from natgrad.network.language.robust import LogNormal, Ordinal
from natgrad.network.language.tables import table as table_of
from natgrad.network.language.vectors import block_diag, concatenate, frequencies, kron, sum_over
from natgrad.validation import LARGEST_VALUE, OVERFLOW, first

__all__ = ["FUNCTIONS", "Builder", "Domain", "build_nodes"]

Array = npt.NDArray[Any]
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "negate": operator.neg,
    "read": operator.getitem,
    "transform": transform,
    "evaluate": lambda process, inputs: process(inputs),
    "dot": dot,
    "diag": diag,
    "kron": kron,
    "block_diag": block_diag,
    "table": table_of,
    "censored": censored,
    "concatenate": concatenate,
    "sum_over": sum_over,
    "frequencies": frequencies,
}


# Kinds of nodes that are nothing without data, and a value that each may have; with a link, all are such.
STAND_IN: dict[Any, float] = {Binomial: 0.0, LogNormal: 1.0, Multinomial: 0.0, NegativeBinomial: 0.0, Ordinal: 0.0}
LINKS = frozenset({"logit", "logits", "probit", "softmax", "weights"})


class Domain(NamedTuple):
    """What the data have fixed: the levels of plates by name, and the values of categories by column."""

    levels: Mapping[str, Levels]
    categories: Mapping[str, Levels]

    def labels(self, template: Template) -> dict[str, Array]:
        """What the elements of plates are called, where they have names."""
        ids = {plate: levels.ids for plate, levels in self.levels.items()}
        return {**ids, **{plate: np.array(names) for plate, names in template.column_plates.items()}}


def build_nodes(
    template: Template,
    tables: Mapping[str, Table],
    domain: Domain,
    *,
    made: Mapping[str, Node] | None = None,
    left_out: Collection[str] = (),
    weights: Mapping[str, Array | None] | None = None,
    only: Collection[str] | None = None,
    part: Collection[str] = (),
    masked: Collection[str] = (),
    begins: float | None = None,
) -> dict[str, Node]:
    """Every recorded node, made.

    Parameters
    ----------
    template, tables, domain : what was declared; rows by plate; levels
    made : nodes that are there already
    left_out : observed nodes that have no values here: hidden ones take their place
    weights : of the elements of a plate, in place of those of its column
    only : names of the nodes that are wanted; all by default
    part : plates whose rows are some of many, in which everything may be missing
    masked : observed nodes that miss values in some of these chunks
    begins : of rows that are part of one chain, whether it begins here (`Plate.begins`)
    """
    builder = Builder(
        template,
        tables,
        domain,
        dict(made or {}),
        frozenset(left_out),
        weights or {},
        frozenset(part),
        frozenset(masked),
        begins,
    )
    return {name: builder.node(node) for name, node in template.nodes.items() if only is None or name in only}


class Builder:
    """Makes the recorded nodes of a template from tables; the parameters are those of `build_nodes`."""

    def __init__(
        self,
        template: Template,
        tables: Mapping[str, Table],
        domain: Domain,
        made: dict[str, Node],
        left_out: frozenset[str],
        weights: Mapping[str, Array | None],
        part: frozenset[str],
        masked: frozenset[str],
        begins: float | None = None,
    ) -> None:
        self.part, self.masked, self.begins = part, masked, begins
        self.template, self.tables, self.domain = template, tables, domain
        self.made, self.left_out, self.weights = made, left_out, weights
        self.plates: dict[str, Plate] = {}

    def node(self, recorded: RecordedNode) -> Node:
        """The node of a record, made once; parents come first, so that nothing is deep."""
        if recorded.name not in self.made:
            options = self._arguments(recorded)
            try:
                self.made[recorded.name] = recorded.function(**options)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{error} (with {self._words(recorded)})") from None
        return self.made[recorded.name]

    def _arguments(self, recorded: RecordedNode) -> dict[str, Any]:
        without = ("observed", "mask") if recorded.name in self.left_out else ()
        options = {
            key: self._argument(recorded, key, value) for key, value in recorded.options.items() if key not in without
        }
        # A sum of rates is split by auxiliary shares, which say what was seen.
        augmented = LINKS & options.keys() or isinstance(options.get("rate"), RateSum)
        stand_in = STAND_IN.get(recorded.function, 0.0 if augmented else None)
        if without and stand_in is not None:
            # Values of which there are none yet: the caller takes what stands for them away (`hidden_twin`).
            counts = recorded.function is Multinomial
            shape = tuple(self.plate(plate).size for plate in recorded.plates)
            options["observed"] = np.full(shape + ((_length(options["probs"]),) if counts else ()), stand_in)
            if counts and "trials" in options:
                options["observed"][..., 0] = options["trials"]
        return options

    def _words(self, recorded: RecordedNode) -> str:
        plate = self.template.row_plates.get(recorded.name, "")
        return self.tables[plate].where if plate in self.tables else "the levels of the data"

    def plate(self, plate: Plate) -> Plate:
        """The plate with the size that the data give it."""
        name = plate.name
        if not plate.is_open and name not in self.weights:
            return plate
        if name not in self.plates:
            weight = self._weight(plate)
            # Of some rows of many none may count.
            empty = name in self.part and weight is not None and not np.any(weight)
            self.plates[name] = Plate(name, self._size(plate), None if empty else weight)
            if empty:
                self.plates[name].weight = np.zeros(self._size(plate))
            self.plates[name].is_part = name in self.part
            if name in self.part:
                self.plates[name].masked, self.plates[name].begins = self.masked, self.begins
        return self.plates[name]

    def _size(self, plate: Plate) -> int:
        name = plate.name
        if name in self.domain.levels:
            return len(self.domain.levels[name])
        if name in self.template.column_plates:
            return len(self.template.column_plates[name])
        if name in self.tables:
            return self.tables[name].n_rows
        return plate.size

    def _weight(self, plate: Plate) -> Any:
        if plate.name in self.weights:
            return self.weights[plate.name]  # None: they do not count here
        if plate.later is None:
            return None
        return self._numbers(self.tables[plate.name], plate.later.name, f"plate {plate.name!r}: weight")

    # -- arguments --

    def _argument(self, recorded: RecordedNode, key: str, value: Any) -> Any:
        if key == "plate":
            plates = tuple(self.plate(plate) for plate in recorded.plates)
            return plates[0] if len(plates) == 1 else plates
        if key == "size" and isinstance(value, Column):
            return len(self.domain.categories[value.name])
        if key == "lengths" and isinstance(value, Column):
            return self._lengths(recorded, value)
        return self.value(recorded, value, key if key in ("observed", "mask") else "number")

    def value(self, recorded: RecordedNode, value: Any, role: str) -> Any:
        """An argument of a node, with the arrays of its columns."""
        if isinstance(value, RecordedNode):
            return self.node(value)
        if isinstance(value, Column):
            return self._column(recorded, value, role)
        if isinstance(value, Columns):
            return self._columns(recorded, value, role)
        if isinstance(value, Plate):
            return self.plate(value)
        if isinstance(value, Recorded):
            if value.function == "read":
                return self._read(recorded, value.arguments[0], value.arguments[1], role)
            inner = "vector" if value.function in ("dot", "evaluate") else role
            if value.function == "censored":
                return self._censored(recorded, value)
            arguments = [self.value(recorded, part, inner) for part in value.arguments]
            options = {key: self.value(recorded, part, inner) for key, part in value.options.items()}
            return FUNCTIONS[value.function](*arguments, **options)
        if isinstance(value, (list, tuple)) and len(value) <= LONGEST:
            return type(value)(self.value(recorded, part, role) for part in value)
        return value

    def _censored(self, recorded: RecordedNode, value: Recorded) -> Any:
        """Bounds are values; which side was not seen is a flag."""
        roles = {"right": "mask", "left": "mask"}
        options = {key: self.value(recorded, part, roles.get(key, "observed")) for key, part in value.options.items()}
        return censored(*(self.value(recorded, part, "observed") for part in value.arguments), **options)

    def _read(self, recorded: RecordedNode, target: Any, key: Any, role: str) -> Any:
        from natgrad.network.bind.template import _plates_of

        keys, plates = key if isinstance(key, tuple) else (key,), _plates_of(target)
        read = [
            self._index(recorded, entry, plates[position] if position < len(plates) else None)
            if isinstance(entry, Column)
            else self.value(recorded, entry, role)
            for position, entry in enumerate(keys)
        ]
        made = self.value(recorded, target, role)
        return made[tuple(read) if isinstance(key, tuple) else read[0]]

    def _table(self, recorded: RecordedNode) -> tuple[Table, str]:
        plate = self.template.row_plates[recorded.name]
        return self.tables[plate], plate

    def _index(self, recorded: RecordedNode, column: Column, plate: Plate | None) -> Index:
        table, own = self._table(recorded)
        if plate is not None and plate.name in self.domain.levels:
            ids = ids_of(table, column.name)
            codes = self.domain.levels[plate.name].find(ids)
            if (unknown := np.flatnonzero(codes < 0)).size:
                levels = self.domain.levels[plate.name].ids
                shown = ", ".join(map(repr, levels[:3].tolist())) + (", …" if len(levels) > 3 else "")
                raise ValueError(
                    f"{table.where}: column {column.name!r}, row {table.first + unknown[0]}: {ids[unknown[0]].item()!r} is not a "
                    f"level of plate {plate.name!r} ({unknown.size} such); it has {len(levels)}: {shown}"
                )
            return Index(codes, (own,))
        name = "a table" if plate is None else f"plate {plate.name!r}"
        if not table.is_numeric(column.name) and not table.is_text:
            raise TypeError(
                f"{table.where}: column {column.name!r} chooses elements of {name}, which has a size: its elements are "
                f"numbered 0, 1, …, but the column holds {table.cells(column.name)[0]!r}. Leave the "
                "size of the plate out, and they are ids"
            )
        values = self._numbers(table, column.name, f"{recorded.name!r}: index")
        if np.any(values != np.round(values)):
            row = int(np.flatnonzero(values != np.round(values))[0])
            raise TypeError(
                f"{table.where}: column {column.name!r}, row {table.first + row}: {values[row]} is no whole number"
            )
        return Index(values.astype(np.int64), (own,))

    def _lengths(self, recorded: RecordedNode, column: Column) -> list[int]:
        table, _ = self._table(recorded)
        ids = ids_of(table, column.name)
        starts = np.concatenate([[0], np.flatnonzero(ids[1:] != ids[:-1]) + 1, [len(ids)]])
        begins = ids[starts[:-1]].tolist()
        if len(set(begins)) < len(begins):
            twice = next(name for name in begins if begins.count(name) > 1)
            raise ValueError(
                f"{table.where}: column {column.name!r}: the rows of {twice!r} are not together: sort the table by it, in "
                "order of time"
            )
        return [int(n) for n in np.diff(starts)]

    # -- values --

    def _column(self, recorded: RecordedNode, column: Column, role: str) -> Any:
        table, plate = self._table(recorded)
        name = column.name
        if role == "mask":
            return self._mask(table, name)
        if role == "observed":
            return self._observed(recorded, table, name)
        values = self._numbers(table, name, f"{recorded.name!r}")
        trailing = self._trailing(recorded, plate)
        return values.reshape(values.shape[:1] + (1,) * trailing + values.shape[1:])

    def _columns(self, recorded: RecordedNode, columns: Columns, role: str) -> Any:
        table, plate = self._table(recorded)
        if role == "observed":
            return np.stack([table.numbers(name) for name in columns.names], axis=-1)
        values = np.stack([self._numbers(table, name, f"{recorded.name!r}") for name in columns.names], axis=-1)
        trailing = self._trailing(recorded, plate)
        if role == "vector":
            return values.reshape(len(values), *(1,) * trailing, -1)
        return values.reshape(len(values), -1, *(1,) * max(trailing - 1, 0)) if trailing else values

    def _trailing(self, recorded: RecordedNode, plate: str) -> int:
        """Plates after that of the rows: a number is the same for all their elements."""
        names = [own.name for own in recorded.plates]
        return len(names) - 1 - names.index(plate)

    def _observed(self, recorded: RecordedNode, table: Table, name: str) -> Array:
        if not issubclass(recorded.function, Categorical) or name not in self.domain.categories:
            return table.numbers(name)
        lost = table.missing(name)
        cells = table.cells(name)
        levels = self.domain.categories[name]
        codes = np.full(len(lost), np.nan)
        codes[~lost] = numbers = levels.find(ids_of(table.take(~lost), name)).astype(np.float64)
        if (unknown := np.flatnonzero(numbers < 0)).size:
            cell = cells[~lost][unknown[0]]
            shown = ", ".join(map(repr, levels.ids[:8].tolist()))
            raise ValueError(
                f"{table.where}: column {name!r}: {cell!r} is not one of the categories that were fitted, {shown} "
                f"({unknown.size} such)"
            )
        return codes

    def _numbers(self, table: Table, name: str, what: str) -> Array:
        values = table.numbers(name)
        lost = np.isnan(values)
        if lost.any():
            row = int(np.argwhere(lost)[0][0])
            raise ValueError(
                f"{table.where}: column {name!r}, row {table.first + row} is missing ({int(lost.sum())} such), but {what} takes "
                "it as known: fill it in, or leave the rows out; only what is observed may be missing"
            )
        if (place := first(np.abs(values) > LARGEST_VALUE)) is not None:
            rule = "finite" if np.isinf(values[place]) else f"at most {LARGEST_VALUE:g} in size: {OVERFLOW}"
            raise ValueError(
                f"{table.where}: column {name!r}, row {table.first + place[0]}: {values[place]:g}, but what {what} takes must be "
                f"{rule}"
            )
        return values

    def _mask(self, table: Table, name: str) -> Array:
        values = self._numbers(table, name, "a mask")
        if not np.isin(values, (0, 1)).all():
            raise TypeError(f"{table.where}: column {name!r}: a mask is True where a row counts and False elsewhere")
        return values.astype(bool)


def _length(probs: Any) -> int:
    return (probs.size or 0) if isinstance(probs, Expression) else int(np.shape(probs)[-1])


def check_rows(table: Table, plate: str) -> None:
    """A table has rows."""
    if table.n_rows == 0:
        raise ValueError(f"{table.where} has no rows: plate {plate!r} would be empty")


def check_plate(template: Template, name: str, n_rows: int) -> None:
    """A plate with a size is as long as its table."""
    plate = template.plates[name]
    if not (plate.is_open and plate.later is None) and plate.size and plate.size != n_rows:
        raise PlateMismatch(
            f"plate {name!r} has size {plate.size}, but its table has {n_rows} rows: leave the size out"
        )
