"""Write a declaration with columns as plain data of a file, and make it from such data, with its levels.

Nothing but the language is called by a name in the data.

    {"nodes": [{"kind", "name", "options"} …], "made": [the same, of nodes that need no table], "plates": …, "roots": [names]}

A value is a number, an array, a list, or an object with one of the keys below; functions and kinds of nodes are in tables.

A declaration from a file is checked before it is used: what reads no column is made as it is. What reads columns is made with
tables that stand in for those of the fit: of several sizes and numbers, since the file has no rows. A declaration is refused if
none of them will do.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from natgrad.covariance import Covariance
from natgrad.inference.schema import Misfit, check, refuse
from natgrad.network import language
from natgrad.network.bind.bound import Binding
from natgrad.network.bind.build import FUNCTIONS, Builder, Domain, Template, made_parents, processes
from natgrad.network.bind.levels import Levels
from natgrad.network.bind.tables import Table
from natgrad.network.compile.joint_factors import Member, groups_of
from natgrad.network.language.columns import LONGEST, Column, Columns, Deferred, Recorded, RecordedNode, walk
from natgrad.network.language.expressions import Call, Expression
from natgrad.network.language.nodes import Node
from natgrad.network.language.plates import Index, Plate
from natgrad.network.language.process import GaussianProcess
from natgrad.network.language.simplex import StickBreaking
from natgrad.network.language.tables import Choice
from natgrad.network.language.tables import Table as Lookup
from natgrad.posterior.factor import Factor

__all__ = ["binding_from_data", "binding_to_data", "check_makes", "from_data", "to_data"]

KINDS: dict[str, Any] = {
    name: cls for name in language.__all__ if isinstance(cls := getattr(language, name), type) and issubclass(cls, Node)
}
# A file that says more than this was not written by us.
LARGEST_SIZE, DEEPEST = 10**7, 60
# Of whole numbers, what is larger is no float, or no size; of others, its square is none.
MOST, LARGEST = 2**63, 1e150


# -- to data --


def to_data(template: Template) -> dict[str, Any]:
    """The declaration as data; a TypeError names what a file cannot hold."""
    made = {name: node for name, node in made_parents(template).items() if not node.is_auxiliary}
    smooth = processes(template)
    every: list[Any] = [*made.values(), *template.nodes.values()]
    plates: dict[str, Plate] = {p.name: p for node in every for p in node.plates}
    return {
        "plates": {
            name: {"size": None if p.is_open and p.size == 0 else p.size, "weight": p.weight, "column": _later(p)}
            | ({"grow": True} if p.grow else {})
            for name, p in plates.items()
        },
        "processes": [
            {"name": name, "kernel": p.kernel, "inducing": p.inducing, "jitter": float(p.jitter)}
            | ({"plates": [plate.name for plate in p.node.plates]} if p.node.plates else {})
            for name, p in smooth.items()
        ],
        "made": [_made(node) for node in made.values() if node.name not in smooth],
        "nodes": [
            {
                "kind": _kind(node.function),
                "name": name,
                "plates": [p.name for p in node.plates],
                "options": {k: _value(v) for k, v in node.options.items() if k not in ("name", "plate")}
                | ({"grow": node.options.get("grow")} if node.function is StickBreaking else {}),
            }
            for name, node in template.nodes.items()
        ],
        "roots": [root.name for root in template.roots],
        "joint": template.joint if isinstance(template.joint, (str, type(None))) else [list(g) for g in template.joint],
    }


def _later(plate: Plate) -> str | None:
    return plate.later.name if isinstance(plate.later, Column) else None


def _kind(cls: Any) -> str:
    name = str(cls.__name__)
    if KINDS.get(name) is not cls:
        raise TypeError(f"a {name} is not a node of the language: its declaration cannot be kept in a file")
    return name


def _made(node: Node) -> dict[str, Any]:
    slots = {slot.name: node.parameters[slot.name] for slot in node.slots_of}
    # Auxiliaries are declared anew with their owner; bounds of censored data are not among its slots.
    own = node.saved_options()
    if own is None:
        raise TypeError(f"{node.name!r}, a {type(node).__name__} without columns, cannot be kept in a file")
    options = {name: _value(value) for name, value in slots.items()} | own
    if node.value is not None:
        options["observed"] = (
            np.where(node.entries == 0, np.nan, node.value) if node.entries is not None else node.value
        )
        if node.mask is not None:
            options["mask"] = node.mask > 0
    kind, plates = _kind(type(node)), [plate.name for plate in node.plates]
    return {"kind": kind, "name": node.name, "plates": plates, "options": options}


def _value(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str, np.generic)):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, Column):
        return {"column": value.name}
    if isinstance(value, Columns):
        return {"columns": list(value.names)}
    if isinstance(value, (RecordedNode, Node)):
        return {"node": value.name}
    if isinstance(value, (Recorded, Call)):
        first, *others = value.arguments
        arguments = [_key(others[0])] if value.function == "read" else [_value(part) for part in others]
        options = {key: _value(part) for key, part in value.options.items()}
        return {"call": value.function, "arguments": [_value(first), *arguments], "options": options}
    if isinstance(value, Plate):
        return {"plate": value.name}
    if isinstance(value, GaussianProcess):
        return {"process": value.node.name}
    if isinstance(value, (Expression, Choice, Lookup)):
        return _value(value.call())
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, (list, tuple)):
        deferred = len(value) <= LONGEST and any(isinstance(part, (Deferred, Expression)) for part in value)
        return [_value(part) for part in value] if deferred else np.asarray(value)
    if hasattr(value, "__array__"):
        return np.asarray(value)
    raise TypeError(f"{value!r} of a declaration cannot be kept in a file")


def _key(key: Any) -> list[Any]:
    return [_selector(entry) for entry in (key if isinstance(key, tuple) else (key,))]


def _selector(entry: Any) -> Any:
    if entry is None or (isinstance(entry, slice) and entry == slice(None)):
        return {"all": True}
    if isinstance(entry, slice):
        return {"slice": [None if n is None else operator.index(n) for n in (entry.start, entry.stop, entry.step)]}
    if isinstance(entry, Index) and entry.chosen_by is not None:
        return _value(entry.chosen_by)
    if isinstance(entry, Index):
        if entry.categories:
            raise TypeError(
                f"integers and then {entry.categories[-1].name!r}, which choose in turn, cannot be kept in a file"
            )
        return {"index": entry.values, "plates": None if entry.plates is None else list(entry.plates)}
    if isinstance(entry, (Deferred, Expression)):
        return _value(entry)
    return {"index": np.asarray(entry), "plates": None}


# -- from data --

NODE = {"kind": "text", "name": "text", "plates": ["text"], "options": dict}


def _joint(value: Any, sizes: Any, where: str) -> None:
    if value is not None and not isinstance(value, str):
        check(value, [["text"]], where=where)


DECLARATION: dict[str, Any] = {
    "plates": dict, "processes": list, "made": [NODE], "nodes": [NODE], "roots": ["text"], "joint?": _joint,
}  # fmt: skip


def from_data(data: Any) -> Template:
    """The template that data describe; data that are no declaration are refused."""
    check(data, DECLARATION, where="the declaration")
    reader = _Reader(data["plates"])
    for entry in data["processes"]:
        reader.add_process(entry)
    for entry in data["made"]:
        reader.add(entry)
    for entry in data["nodes"]:
        reader.add(entry)
    for name in data["roots"]:
        if name not in reader.nodes:
            refuse("the declaration", f"has no node {name[:60]!r}")
    # Before files had it, every node of a network with columns had a factor of its own.
    try:
        return Template([reader.nodes[name] for name in data["roots"]], data.get("joint"))
    except (TypeError, ValueError) as error:
        refuse("the declaration", f"cannot be made: {error}")


class _Reader:
    def __init__(self, plates: Mapping[str, Any]) -> None:
        self.plates: dict[str, Plate] = {}
        self.nodes: dict[str, Any] = {}
        self.processes: dict[str, GaussianProcess] = {}
        for name, entry in plates.items():
            rule = {
                "size": f"none | natural in [1, {2**40}]",
                "weight": _weights,
                "column": "none | text",
                "grow?": "flag",
            }
            check(entry, rule, where=f"plate {str(name)[:60]!r}")
            weight = entry["weight"] if entry["column"] is None else Column(entry["column"])
            self.plates[name] = Plate(name, entry["size"], weight, grow=entry.get("grow", False))

    def add(self, entry: Mapping[str, Any]) -> None:
        """A node, made or recorded."""
        kind, name = entry["kind"], entry["name"]
        if kind not in KINDS or name in self.nodes:
            refuse("the declaration", f"has a node {name[:60]!r} of kind {kind[:60]!r} that cannot be")
        options = {str(key): self.value(value, str(key), 0) for key, value in entry["options"].items()}
        if isinstance(size := options.get("size"), int) and not 0 < size <= LARGEST_SIZE:
            refuse(f"node {name[:60]!r}", f"has size {size}")
        if kind == "StickBreaking":
            options.setdefault("grow", False)  # of a file written when sticks were truncated unless they said otherwise
        if entry["plates"]:
            options["plate"] = tuple(self._named("plate", plate) for plate in entry["plates"])
        self.nodes[name] = KINDS[kind](name, **options)

    def add_process(self, entry: Any) -> None:
        """A Gaussian process, whose kernel is an expression that the file holds as data."""
        if not isinstance(entry, dict) or sorted({*entry} - {"plates"}) != ["inducing", "jitter", "kernel", "name"]:
            refuse("a process of the declaration", "is none")
        name, kernel, inducing = entry["name"], entry["kernel"], entry["inducing"]
        check(name, "text", where="the name of a process")
        if not isinstance(kernel, Covariance) or not isinstance(inducing, np.ndarray) or name in self.nodes:
            refuse(f"the process {name[:60]!r}", "has no kernel or no inducing inputs")
        check(entry.get("plates", []), ["text"], where=f"the plates of the process {name[:60]!r}")
        plates = tuple(self._named("plate", plate) for plate in entry.get("plates", []))
        process = GaussianProcess(name, kernel, inducing=inducing, jitter=entry["jitter"], plate=plates)
        self.processes[name], self.nodes[name] = process, process.node

    def value(self, data: Any, where: str, depth: int) -> Any:
        """The value that data describe."""
        if depth > DEEPEST:
            refuse("the declaration", "is nested too deeply")
        if isinstance(data, list):
            return [self.value(part, where, depth + 1) for part in data]
        if not isinstance(data, dict):
            if data is not None and not isinstance(data, (bool, int, float, np.ndarray)):
                refuse(f"{where} in the declaration", f"is a {type(data).__name__}")
            if _is_beyond(data):
                refuse(f"{where} in the declaration", "has a number that no fit has")
            return data
        if "column" in data:
            return Column(data["column"])
        if "columns" in data:
            return Columns(*data["columns"])
        if "call" in data:
            return self._called(data, where, depth)
        kind = next((kind for kind in ("plate", "node", "process") if kind in data), None)
        if kind is None:
            raise Misfit(f"{where} in the declaration is nothing that is known")
        return self._named(kind, data[kind])

    def _named(self, kind: str, name: Any) -> Any:
        """What the declaration has said before, by its kind and name."""
        said: Mapping[str, Any] = {"plate": self.plates, "node": self.nodes, "process": self.processes}[kind]
        if name not in said:
            refuse("the declaration", f"reads {kind} {str(name)[:60]!r}, which does not come before it")
        return said[name]

    def _called(self, data: Mapping[str, Any], where: str, depth: int) -> Any:
        check(dict(data), {"call": "text", "arguments": list, "options": dict}, where=f"{where} in the declaration")
        name, arguments = data["call"], data["arguments"]
        if name not in FUNCTIONS or (name == "evaluate" and "process" not in (arguments or [{}])[0]):
            refuse(f"{where} in the declaration", f"calls {name[:60]!r}, which is no function of the language")
        options = {str(key): self.value(part, where, depth + 1) for key, part in data["options"].items()}
        if name == "read":
            if len(arguments) != 2 or not isinstance(arguments[1], list):
                refuse(f"{where} in the declaration", "reads without an index")
            key = tuple(self._selector(entry, where, depth + 1) for entry in arguments[1])
            return self.value(arguments[0], where, depth + 1)[key if len(key) != 1 else key[0]]
        return FUNCTIONS[name](*(self.value(part, where, depth + 1) for part in arguments), **options)

    def _selector(self, entry: Any, where: str, depth: int) -> Any:
        if isinstance(entry, dict) and "all" in entry:
            return slice(None)
        if isinstance(entry, dict) and "slice" in entry:
            ends = entry["slice"]
            if not isinstance(ends, list) or len(ends) != 3 or any(type(end) not in (int, type(None)) for end in ends):
                refuse(f"{where} in the declaration", "has a slice that is none")
            return slice(*ends)
        if isinstance(entry, dict) and "index" in entry:
            values = np.asarray(entry["index"])
            if values.dtype.kind not in "iu":
                refuse(f"{where} in the declaration", "has an index that is not of whole numbers")
            plates = entry.get("plates")
            if values.ndim == 0:
                return int(values)
            return values if plates is None else Index(values.astype(np.int64), tuple(map(str, plates)))
        return self.value(entry, where, depth)


def _is_beyond(data: Any) -> bool:
    """Whether a number is too large for a fit; infinite ones may be the ends of an interval."""
    if data is None or isinstance(data, (bool, int)):
        return data is not None and abs(data) > MOST
    array = np.asarray(data)
    return array.dtype.kind == "f" and bool(np.any(np.isfinite(array) & (np.abs(array) > LARGEST)))


def _weights(value: Any, sizes: Any, where: str) -> None:
    if value is not None and not (isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iuf"):
        refuse(where, "has weights that are no numbers")


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
    builder = Builder(template, rows, domain, weights=dict.fromkeys(rows))
    reading = {use.node for use in template.uses}
    for node in template.nodes.values():  # parents come first
        whole = node.name not in reading
        for part in [node] if whole else walk(tuple(node.options.values()), inside=False):
            inside = list(walk(tuple(node.options.values()) if whole else part, inside=False))
            known = all(entry.name in builder.built for entry in inside if isinstance(entry, RecordedNode))
            if not known or any(isinstance(entry, (Column, Columns)) for entry in inside):
                continue
            if whole:
                builder.node(node)
            elif isinstance(part, Recorded):
                builder.value(node, part, "number")


def _with_columns(template: Template, domain: Domain, sizes: Mapping[str, int], number: float) -> None:
    """The terms of all nodes on tables of these sizes that are full of one number."""
    rows = {plate: _stand_in(template, domain, plate, size, number) for plate, size in sizes.items()}
    builder = Builder(template, rows, domain, left_out=template.observed(), weights=dict.fromkeys(rows))
    for node in builder.nodes().values():
        node.term({})


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


TABLE: dict[str, Any] = {"network": dict, "levels": dict, "categories": dict}


def binding_to_data(binding: Binding) -> dict[str, Any]:
    """The declaration and the levels of a fit."""
    levels, categories = binding.domain
    return {
        "network": to_data(binding.template),
        "levels": {plate: part.ids for plate, part in levels.items()},
        "categories": {column: part.ids for column, part in categories.items()},
    }


def binding_from_data(
    data: Any,
    factors: Mapping[str, Factor],
    auxiliary: Collection[str] = (),
    members: Mapping[str, Member] | None = None,
) -> Binding:
    """The declaration and the levels from a file; what does not fit to the factors, and their members, is refused."""
    check(data, TABLE, where="the declaration")
    template = from_data(data["network"])
    domain = Domain(
        *({str(key): _levels(key, ids) for key, ids in data[part].items()} for part in TABLE if part != "network")
    )
    for plate in template.level_plates:
        if plate not in domain.levels:
            refuse("the declaration", f"has no levels of plate {plate!r}")
    members = members or {}
    own = {name: Factor(name, m.family, factors[m.joint].plates, factors[m.joint].lam) for name, m in members.items()}
    joint = {member.joint for member in members.values()}
    for factor in (*factors.values(), *own.values()):
        for size, plate in zip(factor.lam[0].shape, factor.plates, strict=False):
            if plate in domain.levels and len(domain.levels[plate]) != size:
                refuse(
                    f"plate {plate!r}",
                    f"has {len(domain.levels[plate])} levels, and {factor.name!r} has {size} of them",
                )
        node = template.nodes.get(factor.name)
        declared = () if node is None else tuple(plate.name for plate in node.plates)
        # A path is one element: its time is no plate of its factor.
        if node is not None and declared[: len(factor.plates)] != factor.plates:
            refuse(f"factors[{factor.name!r}]", "is on other plates than the node that is declared")
    if not template.observed():
        refuse("the declaration", "observes no column")
    try:
        check_makes(template, domain, data["network"]["nodes"])
    except (TypeError, ValueError, ArithmeticError) as error:  # a number of 400 digits is no float
        refuse("the declaration", f"cannot be made: {error}")
    for group in groups_of(template.joint, members):
        if {members[name].joint if name in members else None for name in group} != {"+".join(group)}:
            refuse("the declaration", f"has {'+'.join(group)[:60]!r} in one factor, which is not there")
    _check_names(template, [*(name for name in factors if name not in joint), *own], auxiliary)
    return Binding(template, domain)


def _check_names(template: Template, factors: Collection[str], auxiliary: Collection[str]) -> None:
    """Every factor is of a node that is declared, and every node that is not along rows has one."""
    known = {*template.nodes, *made_parents(template), *auxiliary}
    for name in factors:
        if name not in known:
            refuse(f"factors[{name!r}]", "is of a node that is not declared")
    for name, node in template.nodes.items():
        if name not in factors and name not in template.row_plates and not node.is_observed:
            refuse(f"factors[{name!r}]", "is not there, and the node is declared")


def _levels(name: Any, ids: Any) -> Levels:
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or not len(ids):
        refuse(f"the levels of {str(name)[:60]!r}", "are no list of ids")
    if len(set(ids.tolist())) < len(ids):
        refuse(f"the levels of {str(name)[:60]!r}", "are not all different")
    return Levels(ids)
