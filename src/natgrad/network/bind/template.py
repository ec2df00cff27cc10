"""A declaration with columns in; which column is read where, on which plate, in which role, out.

    observed, mask, weight     values, and which of them count
    number, vector             known numbers for each row; inside a dot, a row of them
    index                      which element of a plate a row reads; the ids are the plate's levels
    size, lengths              how many different values there are; how long the runs of equal ones are

A plate without a size is one of three: the rows of a table, the levels of an index, or the names of several `Columns`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, final

from natgrad.errors import PlateMismatch
from natgrad.network.compile.joint_factors import checked_joint
from natgrad.network.language.columns import Column, Columns, Recorded, RecordedNode, is_deferred, walk
from natgrad.network.language.expressions import Access, Expression
from natgrad.network.language.nodes import Node
from natgrad.network.language.plates import Plate
from natgrad.network.language.process import GaussianProcess

__all__ = ["Template", "Use", "made_parents", "parents_first", "processes"]

ROLES = {"observed": "observed", "mask": "mask", "size": "size", "lengths": "lengths"}
# Functions whose arguments are rows of numbers.
OF_VECTORS = ("dot", "evaluate")
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
        self.nodes: dict[str, RecordedNode] = {}
        for root in roots:
            self._collect(root)
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

    def _collect(self, root: Any) -> None:
        """Parents before children; a chain of nodes may be long, so what waits is kept in a list."""
        waiting: list[tuple[Any, Iterator[Any]]] = [(root, iter(_parents(root)))]
        while waiting:
            node, parents = waiting[-1]
            if isinstance(node, RecordedNode) and self.nodes.get(node.name, node) is not node:
                raise ValueError(f"two different nodes are called {node.name!r}: give each node its own name")
            done = not isinstance(node, RecordedNode) or node.name in self.nodes
            parent = None if done else next(parents, None)
            if parent is None:
                if isinstance(node, RecordedNode):
                    self.nodes.setdefault(node.name, node)
                waiting.pop()
            else:
                waiting.append((parent, iter(_parents(parent))))

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


def _parents(node: Any) -> list[Any]:
    """The recorded nodes that stand in the arguments of one."""
    if not isinstance(node, RecordedNode):
        return []
    parts = (part for value in node.options.values() for part in walk(value, inside=False))
    return [part for part in parts if isinstance(part, RecordedNode)]


def _uses(node: RecordedNode) -> Iterator[Use]:
    for key, value in node.options.items():
        if key == "plate":
            for plate in node.plates:
                if plate.later is not None:
                    yield Use(node.name, "weight", _single(plate), plate)
        elif key != "name":
            yield from _inside(node.name, value, ROLES.get(key, "number"))


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
        inner = "vector" if value.function in OF_VECTORS else role
        for part in value.arguments:
            yield from _inside(node, part, inner)
        for key, part in value.options.items():
            yield from _inside(node, part, "mask" if value.function == "censored" and key in SIDES else inner)


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
    return {node.name: node for node in parents_first(nodes)}


def parents_first(nodes: Mapping[str, Node]) -> list[Node]:
    """Nodes and their ancestors, parents before children; of two with one name the given one."""
    ordered: dict[str, Node] = {}
    for root in nodes.values():
        waiting = [root]
        while waiting:
            node = waiting[-1]
            missing = [parent for parent in node.parents() if parent.name not in ordered]
            if missing and node.name not in ordered:
                waiting += [nodes.get(parent.name, parent) for parent in missing]
            else:
                ordered.setdefault(node.name, waiting.pop())
    return list(ordered.values())
