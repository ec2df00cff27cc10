"""Random declarations as plain data: a function of a seed. `build.py` declares them in natgrad's language,
`reference.py` evaluates them without it.

A declaration is plates and nodes; what stands in a slot is a small tree (`Const`, `Read`, `Sum`, …) that names plates and
nodes and nothing else. It can therefore be renamed, permuted and rewritten before anybody reads it.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

# Everything that means something inside: labels of axes, names of statistics, keys of arrays, words of the language.
NAMES = [
    "sample", "draw", "batch", "window", "point", "i", "j", "k", "f", "n", "x", "xx", "log", "log1m", "first",
    "pairs", "marginals", "i'0", "i'1", "i'2", "k'0", "k'1", "k'2", "'0", "x'0", "sample'0", "x|'0", "k|'0", "x|",
    "0", "1", "a", "b", "ab", "->", ",", "weight:sample", "weight:x", "folded:x:3", "known", "mean", "precision",
    "event", "row", "column", "state", "time",
]  # fmt: skip
KIND = {
    "Normal": "real", "MultivariateNormal": "vector", "Gamma": "positive", "Exponential": "positive", "Wishart": "matrix",
    "Dirichlet": "simplex", "Beta": "unit", "Categorical": "category", "MarkovChain": "category", "Bernoulli": "count",
    "Binomial": "count", "Multinomial": "count", "Poisson": "count",
}  # fmt: skip
SLOTS = {
    "Normal": {"mean": "real", "precision": "positive"},
    "MultivariateNormal": {"mean": "vector", "precision": "matrix"},
    "Gamma": {"shape": "number", "rate": "positive"},
    "Exponential": {"rate": "positive"},
    "Wishart": {"dof": "number", "rate": "matrix"},
    "Dirichlet": {"concentration": "vector"},
    "Beta": {"a": "number", "b": "number"},
    "Categorical": {"probs": "simplex"},
    "MarkovChain": {"initial": "simplex", "transition": "rows"},
    "Bernoulli": {"prob": "unit"},
    "Binomial": {"trials": "number", "prob": "unit"},
    "Multinomial": {"probs": "simplex"},
    "Poisson": {"rate": "positive"},
}
NEVER_HIDDEN = ("Binomial", "Multinomial")


class PlateSpec(NamedTuple):
    name: str
    size: int
    weight: np.ndarray | None = None


class Const(NamedTuple):
    """Known numbers over some plates of the reader (and over the plate of a dot), event axes last."""

    array: np.ndarray
    plates: tuple[str, ...] = ()


class Take(NamedTuple):
    """Integers on plates of the reader; ``said`` whether the declaration says on which (`Plate.index`)."""

    values: np.ndarray
    plates: tuple[str, ...]
    said: bool


class Read(NamedTuple):
    """A node with one selector for each plate: None, an integer, a `Take`, or another `Read` (a gate)."""

    node: str
    by: tuple[Any, ...]


class Sum(NamedTuple):
    left: Any
    right: Any


class Minus(NamedTuple):
    left: Any
    right: Any


class Product(NamedTuple):
    left: Any
    right: Any


class Dot(NamedTuple):
    """Of vectors, or along plate ``over``; ``said`` whether the declaration says which."""

    left: Any
    right: Any
    over: str | None = None
    said: bool = False


class Diag(NamedTuple):
    entries: Any
    over: str


class Rows(NamedTuple):
    """The transition of a chain: a simplex for each element of plate ``over``."""

    expression: Any
    over: str


class Map(NamedTuple):
    matrix: np.ndarray
    vector: Any


class NodeSpec(NamedTuple):
    name: str
    type: str
    plates: tuple[str, ...]
    slots: dict[str, Any]
    size: int | None = None
    observed: np.ndarray | None = None
    mask: np.ndarray | None = None
    lengths: tuple[int, ...] | None = None

    @property
    def kind(self) -> str:
        return KIND[self.type]

    @property
    def block_plates(self) -> tuple[str, ...]:
        return self.plates[:-1] if self.type == "MarkovChain" else self.plates

    @property
    def hidden(self) -> bool:
        return self.observed is None


class Declaration(NamedTuple):
    """Plates and nodes by name, parents before children."""

    plates: dict[str, PlateSpec]
    nodes: dict[str, NodeSpec]

    def shape(self, names: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(self.plates[name].size for name in names)

    def events(self, node: NodeSpec) -> tuple[int, ...]:
        """The event axes of a value."""
        if node.type in ("MultivariateNormal", "Dirichlet", "Multinomial"):
            return (node.size,)
        return (node.size, node.size) if node.type == "Wishart" else ()

    def hidden(self) -> list[NodeSpec]:
        return [node for node in self.nodes.values() if node.hidden]

    def weight(self, names: tuple[str, ...], place: dict[str, int]) -> float:
        found = 1.0
        for name in names:
            if (weight := self.plates[name].weight) is not None:
                found *= float(weight[place[name]])
        return found


def parts(expression: Any) -> Iterator[Any]:
    """An expression and everything inside it, gates included."""
    yield expression
    if isinstance(expression, Read):
        inside = [entry for entry in expression.by if isinstance(entry, Read)]
    elif isinstance(expression, (Sum, Minus, Product, Dot)):
        inside = [expression.left, expression.right]
    else:
        inside = [
            getattr(expression, name) for name in ("entries", "expression", "vector") if hasattr(expression, name)
        ]
    for part in inside:
        yield from parts(part)


def parents(node: NodeSpec) -> set[str]:
    return {part.node for slot in node.slots.values() for part in parts(slot) if isinstance(part, Read)}


def rewritten(expression: Any, change: Callable[[Any], Any]) -> Any:
    """The same tree with ``change`` applied to every part, innermost first."""
    if isinstance(expression, Read):
        by = tuple(rewritten(entry, change) if isinstance(entry, Read) else entry for entry in expression.by)
        expression = expression._replace(by=by)
    elif isinstance(expression, (Sum, Minus, Product, Dot)):
        left, right = rewritten(expression.left, change), rewritten(expression.right, change)
        expression = expression._replace(left=left, right=right)
    else:
        for name in ("entries", "expression", "vector"):
            if hasattr(expression, name):
                expression = expression._replace(**{name: rewritten(getattr(expression, name), change)})
    return change(expression)


# -- the same network, written otherwise --


def renamed(
    declaration: Declaration, rng: np.random.Generator, pool: list[str] = NAMES
) -> tuple[Declaration, dict[str, str]]:
    """Other names for every plate and every node, and which node is which."""
    plate = dict(zip(declaration.plates, rng.permutation(pool), strict=False))
    node = dict(zip(declaration.nodes, rng.permutation(pool), strict=False))

    def change(part: Any) -> Any:
        if isinstance(part, Const):
            return part._replace(plates=tuple(str(plate[p]) for p in part.plates))
        if isinstance(part, Read):
            by = tuple(
                entry._replace(plates=tuple(str(plate[p]) for p in entry.plates)) if isinstance(entry, Take) else entry
                for entry in part.by
            )
            return Read(str(node[part.node]), by)
        over = getattr(part, "over", None)
        return part if over is None else part._replace(over=str(plate[over]))

    plates = {str(plate[p.name]): p._replace(name=str(plate[p.name])) for p in declaration.plates.values()}
    nodes = {
        str(node[n.name]): n._replace(
            name=str(node[n.name]),
            plates=tuple(str(plate[p]) for p in n.plates),
            slots={slot: rewritten(tree, change) for slot, tree in n.slots.items()},
        )
        for n in declaration.nodes.values()
    }
    return Declaration(plates, nodes), {old: str(new) for old, new in node.items()}


def commuted(declaration: Declaration) -> Declaration:
    """Every sum, product and dot with its sides exchanged."""

    def change(part: Any) -> Any:
        return part._replace(left=part.right, right=part.left) if isinstance(part, (Sum, Product, Dot)) else part

    nodes = {
        name: node._replace(slots={slot: rewritten(tree, change) for slot, tree in node.slots.items()})
        for name, node in declaration.nodes.items()
    }
    return Declaration(declaration.plates, nodes)


def redeclared(declaration: Declaration, rng: np.random.Generator) -> Declaration:
    """The nodes in another order, parents still before children."""
    left, nodes = dict(declaration.nodes), {}
    while left:
        ready = [name for name, node in left.items() if parents(node) <= set(nodes)]
        name = ready[int(rng.integers(len(ready)))]
        nodes[name] = left.pop(name)
    return Declaration(declaration.plates, nodes)


def transposed(declaration: Declaration) -> tuple[Declaration, dict[str, list[int]]]:
    """Every node with its plates in the opposite order (time stays last), and the order; data and selectors go along."""
    turned: dict[str, NodeSpec] = {}
    order: dict[str, list[int]] = {}
    for name, node in declaration.nodes.items():
        # An index on two plates lies on neighbours, in their order: such a reader keeps its plates as they are.
        tables = any(
            isinstance(entry, Take) and len(entry.plates) > 1
            for tree in node.slots.values()
            for part in parts(tree)
            if isinstance(part, Read)
            for entry in part.by
        )
        n = len(node.plates)
        last = [n - 1] if node.type == "MarkovChain" else []
        order[name] = list(range(n)) if tables else [*reversed(range(n - len(last))), *last]

        def change(part: Any) -> Any:
            return Read(part.node, tuple(part.by[i] for i in order[part.node])) if isinstance(part, Read) else part

        axes = order[name]
        data = node.observed if node.observed is None else np.transpose(
            node.observed, [*axes, *range(n, n + len(declaration.events(node)))]
        )  # fmt: skip
        turned[name] = node._replace(
            plates=tuple(node.plates[i] for i in axes),
            slots={slot: rewritten(tree, change) for slot, tree in node.slots.items()},
            observed=data,
            mask=None if node.mask is None else np.transpose(node.mask, axes),
        )
    return Declaration(declaration.plates, turned), order
