"""A template in; plain data that a file can hold out, and back. Nothing but the language is called by a name in the data.

    {"nodes": [{"kind", "name", "options"} …], "made": [the same, of nodes that need no table], "plates": …, "roots": [names]}

A value is a number, an array, a list, or an object with one of the keys below; functions and kinds of nodes are in tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np

from natgrad.covariance import Covariance
from natgrad.inference.schema import Misfit, check, refuse
from natgrad.network import language
from natgrad.network.bind.build import FUNCTIONS
from natgrad.network.bind.template import Template, made_parents, processes
from natgrad.network.language.columns import LONGEST, Column, Columns, Deferred, Recorded, RecordedNode
from natgrad.network.language.continuous import (
    Dirichlet,
    Exponential,
    Gamma,
    GammaShape,
    HalfNormal,
    MultivariateNormal,
    Normal,
    Wishart,
)
from natgrad.network.language.counts import Bernoulli, Binomial, Poisson
from natgrad.network.language.discrete import Categorical, MarkovChain, Multinomial
from natgrad.network.language.expressions import Access, Constant, Expression
from natgrad.network.language.nodes import Node
from natgrad.network.language.operators import _Diag, _Dot, _Product, _Sum, _Transformed
from natgrad.network.language.plates import Index, Plate
from natgrad.network.language.process import GaussianProcess
from natgrad.network.language.rates import Part, RateSum
from natgrad.network.language.robust import Laplace, StudentT, TruncatedNormal
from natgrad.network.language.simplex import Beta, HalfCauchy, StickBreaking
from natgrad.network.language.tables import Choice, Known, Table
from natgrad.network.language.vectors import BlockDiagonal, Frequencies, Kronecker

__all__ = ["from_data", "to_data"]

KINDS: dict[str, Any] = {
    name: cls for name in language.__all__ if isinstance(cls := getattr(language, name), type) and issubclass(cls, Node)
}
# Nodes whose slots, size and data are all that they were declared with; others stand in a file where they have columns.
PLAIN = (
    Bernoulli, Beta, Binomial, Categorical, Dirichlet, Exponential, Gamma, GammaShape, HalfCauchy, HalfNormal, Laplace,
    MarkovChain, Multinomial, MultivariateNormal, Normal, Poisson, StickBreaking, StudentT, TruncatedNormal, Wishart,
)  # fmt: skip
SIZED = (Dirichlet, MultivariateNormal, StickBreaking, Wishart)
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
    if not isinstance(node, PLAIN) or getattr(node, "bounds", None) is not None:
        raise TypeError(f"{node.name!r}, a {type(node).__name__} without columns, cannot be kept in a file")
    options = {name: _value(value) for name, value in slots.items()}
    if isinstance(node, StickBreaking):
        options |= {"discount": node.discount, "grow": node.grow}
    if isinstance(node, SIZED):
        options["size"] = node.size
    if isinstance(node, Multinomial):
        options["trials"] = node._trials
    if isinstance(node, TruncatedNormal):
        options |= {"lower": node.lower, "upper": node.upper}
    family: Any = node.family
    if isinstance(node, MarkovChain) and family.lengths is not None:
        options["lengths"] = np.array(family.lengths)
    if node.value is not None:
        options["observed"] = np.array(node.value)
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
    if isinstance(value, Recorded):
        arguments = [_key(value.arguments[1])] if value.function == "read" else [_value(a) for a in value.arguments[1:]]
        options = {key: _value(part) for key, part in value.options.items()}
        return {"call": value.function, "arguments": [_value(value.arguments[0]), *arguments], "options": options}
    if isinstance(value, Plate):
        return {"plate": value.name}
    if isinstance(value, GaussianProcess):
        return {"process": value.node.name}
    if isinstance(value, (Expression, Choice, Table)):
        return _expression(value)
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, (list, tuple)):
        deferred = len(value) <= LONGEST and any(isinstance(part, (Deferred, Expression)) for part in value)
        return [_value(part) for part in value] if deferred else np.asarray(value)
    if hasattr(value, "__array__"):
        return np.asarray(value)
    raise TypeError(f"{value!r} of a declaration cannot be kept in a file")


def _expression(value: Any) -> Any:
    if isinstance(value, Constant):
        return value.value
    if isinstance(value, Table):
        return _call("table", value.values)
    if isinstance(value, Choice):
        return _call("read", _call("table", value.values), _key(value.keys))
    if isinstance(value, Access):
        node: Any = value.node
        target = _call("table", node.constant.value) if isinstance(node, Known) else {"node": node.name}
        return _call("read", target, [_selector(s) for s in value.selectors]) if value.selectors else target
    if isinstance(value, _Sum):
        total = _value(value.parts[0])
        for part in value.parts[1:]:
            total = _call("add", total, _value(part))
        return total
    if isinstance(value, RateSum):
        return reduce(lambda total, part: _call("add", total, part), map(_rate, value.parts))
    if isinstance(value, _Product):
        return _call("multiply", _value(value.left), _value(value.right))
    if isinstance(value, _Dot):
        call = _call("dot", _value(value.left), _value(value.right))
        return call if value.over is None else {**call, "options": {"over": {"plate": value.over.name}}}
    if isinstance(value, Frequencies):
        return _call("frequencies", _value(value.categories), {"plate": value.over.name}, value.weights)
    if isinstance(value, _Transformed):
        return _call("transform", value.matrix, _value(value.vector))
    if isinstance(value, _Diag):
        return _call("diag", _value(value.entries))
    if isinstance(value, Kronecker):
        return _call("kron", _value(value.left), _value(value.right))
    if isinstance(value, BlockDiagonal):
        return _call("block_diag", *(_value(part) for part in value.parts))
    raise TypeError(f"{value} of a declaration cannot be kept in a file")


def _rate(part: Part) -> Any:
    if part.right is None:
        return _value(part.left)
    call = _call("dot", _value(part.left), _value(part.right))
    return call if part.over is None else {**call, "options": {"over": {"plate": part.over.name}}}


def _call(name: str, *arguments: Any) -> dict[str, Any]:
    return {"call": name, "arguments": list(arguments), "options": {}}


def _key(key: Any) -> list[Any]:
    return [_selector(entry) for entry in (key if isinstance(key, tuple) else (key,))]


def _selector(entry: Any) -> Any:
    if entry is None or (isinstance(entry, slice) and entry == slice(None)):
        return {"all": True}
    if isinstance(entry, Index):
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
            options["plate"] = tuple(self._plate(plate) for plate in entry["plates"])
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
        plates = tuple(self._plate(plate) for plate in entry.get("plates", []))
        process = GaussianProcess(name, kernel, inducing=inducing, jitter=entry["jitter"], plate=plates)
        self.processes[name], self.nodes[name] = process, process.node

    def _plate(self, name: Any) -> Plate:
        if name not in self.plates:
            refuse("the declaration", f"has no plate {str(name)[:60]!r}")
        return self.plates[name]

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
        if "plate" in data:
            return self._plate(data["plate"])
        if "node" in data:
            return self._node(data["node"])
        if "process" in data:
            if data["process"] not in self.processes:
                refuse("the declaration", f"has no process {str(data['process'])[:60]!r}")
            return self.processes[data["process"]]
        if "call" in data:
            return self._called(data, where, depth)
        raise Misfit(f"{where} in the declaration is nothing that is known")

    def _node(self, name: Any) -> Any:
        if name not in self.nodes:
            refuse("the declaration", f"reads node {str(name)[:60]!r}, which does not come before it")
        return self.nodes[name]

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
