"""Find which column a declaration reads where, and build its concrete nodes on the arrays of tables.

Roles of columns:

    observed, mask, weight     values, and which of them count
    number, vector             known numbers for each row; inside a dot, a row of them
    index                      which element of a plate a row reads; the ids are the plate's levels
    size, lengths              how many different values there are; how long the runs of equal ones are

A plate without a size is one of three: the rows of a table, the levels of an index, or the names of several `Columns`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch
from natgrad.network.bind.levels import Levels, ids_of
from natgrad.network.bind.tables import Table
from natgrad.network.compile.joint_factors import checked_joint
from natgrad.network.language.columns import LONGEST, Column, Columns, Recorded, RecordedNode, is_deferred, walk
from natgrad.network.language.expressions import Access, Expression
from natgrad.network.language.missing import censored
from natgrad.network.language.nodes import Node, parents_first
from natgrad.network.language.operators import diag, dot, transform
from natgrad.network.language.plates import Index, Plate
from natgrad.network.language.process import GaussianProcess
from natgrad.network.language.rates import RateSum
from natgrad.network.language.tables import table as table_of
from natgrad.network.language.vectors import block_diag, concatenate, frequencies, kron, sum_over
from natgrad.validation import LARGEST_VALUE, OVERFLOW, first

__all__ = [
    "FUNCTIONS",
    "Builder",
    "Domain",
    "Template",
    "Use",
    "made_parents",
    "processes",
    "with_ancestors",
]

ROLES = {"observed": "observed", "mask": "mask", "size": "size", "lengths": "lengths", "inputs": "vector"}
# Functions whose arguments are rows of numbers.
OF_VECTORS = ("dot", "evaluate", "frequencies", "concatenate")
# Flags of `censored`.
SIDES = ("right", "left")


class Use(NamedTuple):
    """A column that a node reads: in which role, and as an index, of which plate."""

    node: str
    role: str
    column: Column
    plate: Plate | None = None
    n_columns: int = 0  # of the `Columns` that it is one of


@final
class Template:
    """A network without its data.

    Parameters
    ----------
    roots : the observed nodes, recorded or made
    joint : groups of nodes, "auto", "full" or None, as of `Network`

    Attributes
    ----------
    nodes : recorded nodes by name, parents first
    uses : every column that is read
    plates : every plate by name
    row_plates : for each recorded node that lies on the rows of a table, the name of that plate
    level_plates : names of the plates whose elements are ids, and the columns that hold these
    column_plates : names of the plates whose elements are columns, and their names
    """

    def __init__(self, roots: Sequence[Any], joint: Any = None) -> None:
        self.roots = tuple(roots)
        recorded = (root for root in roots if isinstance(root, RecordedNode))
        self.nodes: dict[str, RecordedNode] = parents_first(recorded, _parents)
        self.uses = [use for node in self.nodes.values() for use in _uses(node)]
        self.plates = self._collect_plates()
        self.level_plates: dict[str, list[Use]] = {}
        for use in self.uses:
            if use.role == "index" and use.plate is not None and use.plate.is_open:
                self.level_plates.setdefault(use.plate.name, []).append(use)
        self.row_plates = {name: plate for name, node in self.nodes.items() if (plate := self._row_plate(node))}
        self.column_plates = self._find_column_plates()
        self._check()
        self.joint = checked_joint(joint, {**made_parents(self), **self.nodes})

    # -- what users ask --

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read, each once."""
        return tuple(dict.fromkeys(use.column.name for use in self.uses))

    def columns_on(self, plate: str) -> tuple[str, ...]:
        """Those that are read from the table of a plate."""
        return tuple(dict.fromkeys(use.column.name for use in self.uses if self.plate_of(use) == plate))

    def plate_of(self, use: Use) -> str | None:
        """The plate from whose table a column is read."""
        if use.role == "size":
            others = (u for u in self.uses if u.column == use.column and u.role != "size")
            return next((plate for other in others if (plate := self.plate_of(other)) is not None), None)
        if use.role == "weight":
            assert use.plate is not None
            return use.plate.name
        return self.row_plates.get(use.node)

    @property
    def tables(self) -> tuple[str, ...]:
        """Plates whose elements are rows of a table."""
        plates = (self.plate_of(use) for use in self.uses)
        return tuple(dict.fromkeys(plate for plate in plates if plate is not None))

    def observed(self) -> tuple[str, ...]:
        """Names of the nodes whose values are columns."""
        return tuple(dict.fromkeys(use.node for use in self.uses if use.role == "observed"))

    def __repr__(self) -> str:
        made = [root for root in self.roots if not isinstance(root, RecordedNode)]
        return f"Network({', '.join(map(repr, [*self.nodes.values(), *made]))})"

    # -- structure --

    def _collect_plates(self) -> dict[str, Plate]:
        plates: dict[str, Plate] = {}
        for node in self.nodes.values():
            for plate in node.plates:
                other = plates.setdefault(plate.name, plate)
                if other is not plate and (other.is_open or plate.is_open or other.size != plate.size):
                    raise PlateMismatch(
                        f"{node.name!r}: there are two plates called {plate.name!r}; use one Plate for both, or two names"
                    )
        return plates

    def _row_plate(self, node: RecordedNode) -> str | None:
        """The plate of a node that is the rows of a table: of those without a size the first one that no index makes."""
        own = [use for use in _uses(node) if use.role not in ("weight", "size")]
        opened = [plate for plate in node.plates if plate.is_open]
        free = [plate for plate in opened if plate.name not in self.level_plates]
        if not own:
            return next((plate.name for plate in free), None)
        if free or opened:
            return (free or opened)[0].name
        if node.plates:
            return node.plates[0].name
        raise PlateMismatch(
            f"{node.name!r} reads {own[0].column!r}, which has a value for each row, but lies on no plate: give "
            "plate=Plate('row')"
        )

    def _find_column_plates(self) -> dict[str, tuple[str, ...]]:
        names_of: dict[str, tuple[str, ...]] = {}
        rows = set(self.row_plates.values())
        for node in self.nodes.values():
            for part in walk((node.options.get("observed"), node.options.get("mean")), inside=False):
                if not isinstance(part, Columns):
                    continue
                for plate in node.plates:
                    if (
                        plate.is_open
                        and plate.name not in self.level_plates
                        and plate.name != self.row_plates[node.name]
                    ):
                        if plate.name in rows and any(u for u in self.uses if self.plate_of(u) == plate.name):
                            continue
                        names_of.setdefault(plate.name, part.names)
        for name, own in list(self.row_plates.items()):
            if own in names_of:  # a hidden node along the columns: not along rows
                del self.row_plates[name]
        return names_of

    def _check(self) -> None:
        known = {*self.level_plates, *self.column_plates, *self.tables}
        for name, plate in self.plates.items():
            if plate.is_open and name not in known:
                raise PlateMismatch(
                    f"plate {name!r} has no size, and no table tells it: give Plate({name!r}, size), read what lies on it with "
                    "an index Column, or put an observed Column on it"
                )
        for use in self.uses:
            if self.plate_of(use) is None:
                raise PlateMismatch(
                    f"{use.node!r}: size={use.column!r} counts the values of a column that nothing reads: observe it, or give a "
                    "number"
                )


def _parents(node: RecordedNode) -> list[RecordedNode]:
    """The recorded nodes that stand in the arguments of one."""
    parts = (part for value in node.options.values() for part in walk(value, inside=False))
    return [part for part in parts if isinstance(part, RecordedNode)]


def _uses(node: RecordedNode) -> Iterator[Use]:
    for key, value in node.options.items():
        if key == "plate":
            for plate in node.plates:
                if plate.later is not None:
                    yield Use(node.name, "weight", _single(plate), plate)
        elif key != "name":
            yield from _inside(node.name, value, _role(node, key))


def _single(plate: Plate) -> Column:
    if not isinstance(plate.later, Column):
        raise TypeError(f"plate {plate.name!r}: weight must be one Column, got {plate.later!r}")
    return plate.later


def _inside(node: str, value: Any, role: str) -> Iterator[Use]:
    if isinstance(value, Column):
        yield Use(node, role, value)
    elif isinstance(value, Columns):
        for column in value.columns:
            yield Use(node, role, column, None, len(value.columns))
    elif isinstance(value, RecordedNode):
        return
    elif isinstance(value, Recorded) and value.function == "read":
        target, key = value.arguments
        plates = _plates_of(target)
        for position, entry in enumerate(key if isinstance(key, tuple) else (key,)):
            if isinstance(entry, Column):
                plate = plates[position] if position < len(plates) else None
                yield Use(node, "index", entry, plate)
            elif is_deferred(entry):
                yield from _inside(node, entry, "index")
        yield from _inside(node, target, role)
    elif isinstance(value, Recorded):
        for key, part in (*enumerate(value.arguments), *value.options.items()):
            yield from _inside(node, part, _role_inside(value.function, key, role))


def _role(node: RecordedNode, key: str) -> str:
    """The role of columns in an argument of a node."""
    of_vectors = {slot.name for slot in node.function.slots_of if slot.event_ndim == 1}
    return ROLES.get(key, "vector" if key in of_vectors else "number")


def _role_inside(function: str, key: Any, role: str) -> str:
    """The role of columns in an argument of a function that has a role itself."""
    if function == "censored" and key in SIDES:
        return "mask"
    return "vector" if function in OF_VECTORS else role


def _plates_of(target: Any) -> tuple[Plate, ...]:
    """The plates of what is indexed."""
    if isinstance(target, (RecordedNode, Node)):
        return target.plates
    if isinstance(target, Access):
        return target.node.plates
    if isinstance(target, Recorded) and target.function == "read":
        return _plates_of(target.arguments[0])
    if isinstance(target, Recorded) and target.function == "evaluate":
        plates: tuple[Plate, ...] = target.arguments[0].node.plates
        return plates
    if isinstance(target, (Recorded, Expression)):
        raise TypeError(f"{target} cannot be indexed: index the nodes inside it instead, as in a[i] + b[j]")
    return ()


def processes(template: Template) -> Mapping[str, GaussianProcess]:
    """The Gaussian processes that stand in the declaration, by name."""
    return {part.node.name: part for part in _parts(template) if isinstance(part, GaussianProcess)}


def _parts(template: Template) -> Iterator[Any]:
    values = [value for node in template.nodes.values() for value in node.options.values()]
    return (part for value in (*values, *template.roots) for part in walk(value, inside=False))


def made_parents(template: Template) -> Mapping[str, Node]:
    """The nodes that need no table and stand in the declaration, by name, parents first."""
    nodes: dict[str, Node] = {name: process.node for name, process in processes(template).items()}
    for part in _parts(template):
        accesses = part.accesses() if isinstance(part, Expression) else ()
        for node in (node for access in accesses for node in access.nodes()):
            nodes.setdefault(node.name, node)
    return {node.name: node for node in with_ancestors(nodes)}


def with_ancestors(nodes: Mapping[str, Node]) -> list[Node]:
    """Nodes and their ancestors, parents before children; of two with one name the given one."""
    return list(parents_first(nodes.values(), lambda node: [nodes.get(p.name, p) for p in node.parents()]).values())


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


# With a link, nodes are nothing without data.
LINKS = frozenset({"logit", "logits", "probit", "softmax", "weights"})


class Domain(NamedTuple):
    """What the data have fixed: the levels of plates by name, and the values of categories by column."""

    levels: Mapping[str, Levels]
    categories: Mapping[str, Levels]

    def labels(self, template: Template) -> dict[str, Array]:
        """What the elements of plates are called, where they have names."""
        ids = {plate: levels.ids for plate, levels in self.levels.items()}
        return {**ids, **{plate: np.array(names) for plate, names in template.column_plates.items()}}


@dataclass
class Builder:
    """Makes the recorded nodes of a template from tables.

    Parameters
    ----------
    template, tables, domain : what was declared; rows by plate; levels
    made : nodes that are there already
    left_out : observed nodes that have no values here: hidden ones take their place
    weights : of the elements of a plate, in place of those of its column
    part : plates whose rows are some of many, in which everything may be missing
    masked : observed nodes that miss values in some of these chunks
    """

    template: Template
    tables: Mapping[str, Table]
    domain: Domain
    made: Mapping[str, Node] = field(default_factory=dict)
    left_out: Collection[str] = ()
    weights: Mapping[str, Array | None] = field(default_factory=dict)
    part: Collection[str] = ()
    masked: Collection[str] = ()

    def __post_init__(self) -> None:
        self.built: dict[str, Node] = dict(self.made)
        self.plates: dict[str, Plate] = {}

    def nodes(self, only: Collection[str] | None = None) -> dict[str, Node]:
        """Every recorded node by name, or those that are wanted."""
        return {n: self.node(node) for n, node in self.template.nodes.items() if only is None or n in only}

    def node(self, recorded: RecordedNode) -> Node:
        """The node of a record, made once; parents come first, so that nothing is deep."""
        if recorded.name not in self.built:
            options = self._arguments(recorded)
            try:
                self.built[recorded.name] = recorded.function(**options)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{error} (with {self._words(recorded)})") from None
        return self.built[recorded.name]

    def _arguments(self, recorded: RecordedNode) -> dict[str, Any]:
        without = ("observed", "mask") if recorded.name in self.left_out else ()
        options = {
            key: self._argument(recorded, key, value) for key, value in recorded.options.items() if key not in without
        }
        # A sum of rates is split by auxiliary shares, which say what was seen.
        augmented = LINKS & options.keys() or isinstance(options.get("rate"), RateSum)
        if without:
            # Values of which there are none yet: the caller takes what stands for them away (`hidden_twin`).
            shape = tuple(self.plate(plate).size for plate in recorded.plates)
            values = recorded.function.placeholder(options, shape)
            if values is not None or augmented:
                options["observed"] = np.zeros(shape) if values is None else values
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
                self.plates[name].masked = frozenset(self.masked)
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
        return self.value(recorded, value, _role(recorded, key))

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
            made: dict[Any, Any] = {
                key: self.value(recorded, part, _role_inside(value.function, key, role))
                for key, part in (*enumerate(value.arguments), *value.options.items())
            }
            positions = [made.pop(place) for place in range(len(value.arguments))]
            return FUNCTIONS[value.function](*positions, **made)
        if isinstance(value, (list, tuple)) and len(value) <= LONGEST:
            return type(value)(self.value(recorded, part, role) for part in value)
        return value

    def _read(self, recorded: RecordedNode, target: Any, key: Any, role: str) -> Any:
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
        if not table.holds_numbers(column.name):
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
        """Columns side by side: entries of vectors, or elements of the plate after that of the rows, or else before it."""
        table, plate = self._table(recorded)
        seen, trailing = role == "observed", self._trailing(recorded, plate)
        read = table.numbers if seen else lambda name: self._numbers(table, name, f"{recorded.name!r}")
        values = np.stack([read(name) for name in columns.names], axis=-1)
        if role == "vector":
            return values.reshape(len(values), *(1,) * trailing, -1)
        are_entries = seen and recorded.function.family.event_ndim > 0
        if trailing == 0 and len(recorded.plates) > 1 and not are_entries:
            return values.T
        return values if seen else values.reshape(*values.shape, *(1,) * max(trailing - 1, 0))

    def _trailing(self, recorded: RecordedNode, plate: str) -> int:
        """Plates after that of the rows: a number is the same for all their elements."""
        names = [own.name for own in recorded.plates]
        return len(names) - 1 - names.index(plate)

    def _observed(self, recorded: RecordedNode, table: Table, name: str) -> Array:
        if not recorded.function.is_category or name not in self.domain.categories:
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
