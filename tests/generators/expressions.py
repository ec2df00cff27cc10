"""What stands in the slots of a random node: known numbers, expressions, readings; drawn for `generator.py`."""

from typing import Any

import numpy as np
from generators.networks import (
    Const,
    Diag,
    Dot,
    Map,
    Minus,
    NodeSpec,
    PlateSpec,
    Product,
    Read,
    Rows,
    Sum,
    Take,
    parents,
)


class Expressions:
    """The plates and nodes so far, and how another node may read them."""

    rng: np.random.Generator
    plates: dict[str, PlateSpec]
    nodes: dict[str, NodeSpec]
    size: int | None
    used: set[str]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, choices: Any) -> Any:
        choices = list(choices)
        return choices[int(self.rng.integers(len(choices)))]

    def children(self, name: str) -> list[str]:
        return [node.name for node in self.nodes.values() if name in parents(node)]

    # -- known numbers --

    def number(self, kind: str, reader: tuple[str, ...], over: str | None = None) -> Const:
        """Known numbers on some of the reader's plates, and on the plate of a dot."""
        plates = tuple(p for p in reader if self.chance(0.3)) + (() if over is None else (over,))
        shape = tuple(self.plates[p].size for p in plates)
        size, rng = self.size if kind != "unit" else None, self.rng
        if kind in ("real", "unit"):
            array = rng.normal(0, 1, shape) if kind == "real" else rng.uniform(0.1, 0.9, shape)
        elif kind in ("positive", "number"):
            array = rng.uniform(0.3, 2.5, shape)
        elif kind == "vector":
            array = rng.normal(0, 1, (*shape, size))
        elif kind == "matrix":
            if self.chance(0.2):
                return Const(np.asarray(rng.uniform(0.5, 2.0)))
            array = self.matrices(shape, size or 1)
        else:
            array = rng.dirichlet(np.full(size or 2, 2.0), shape)
        return Const(np.asarray(array), plates)

    def matrices(self, shape: tuple[int, ...], size: int) -> np.ndarray:
        root = self.rng.normal(0, 0.6, (*shape, size, size))
        return root @ np.swapaxes(root, -1, -2) + np.eye(size)

    def slot(self, type_: str, slot: str, kind: str, reader: tuple[str, ...]) -> Any:
        if slot == "dof":
            return Const(self.number("number", reader).array.min() + np.asarray(float(self.size or 1)))
        if slot == "trials":
            return Const(np.asarray(4.0))
        if slot == "concentration":
            plates = self.number("number", reader).plates
            return Const(self.rng.uniform(0.5, 2.5, (*self.shape(plates), self.size)), plates)
        if kind == "rows":
            return self.transition(reader)
        if kind == "number":
            return self.number(kind, reader)
        return self.expression(kind, reader) if self.chance(0.85) else self.number(kind, reader)

    def shape(self, plates: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(self.plates[name].size for name in plates)

    def transition(self, reader: tuple[str, ...]) -> Any:
        rows = [
            (node, plate)
            for node in self.nodes.values()
            if node.kind == "simplex" and node.size == self.size and node.name not in self.used
            for plate in node.plates
            if plate not in reader and self.plates[plate].size == self.size
        ]
        if rows:
            node, plate = self.pick(rows)
            return Rows(self.read(node, reader, keep=plate), plate)
        return Const(self.rng.dirichlet(np.full(self.size or 2, 2.0), self.size))

    # -- expressions --

    def expression(self, kind: str, reader: tuple[str, ...], depth: int = 0) -> Any:
        """Something random of a kind, or numbers where there is nothing."""
        made = getattr(self, f"_{kind}")(reader, depth)
        return self.number(kind, reader) if made is None else made

    def find(self, kind: str, size: int | None = None, *, along: str | None = None) -> NodeSpec | None:
        """A node of a kind that this term does not read yet."""
        fitting = [
            node
            for node in self.nodes.values()
            if node.kind == kind
            and node.name not in self.used
            and (size is None or node.size == size)
            and (along is None or along in node.plates)
        ]
        if not fitting:
            return None
        chosen = self.unread(fitting)
        self.used.add(chosen.name)
        return chosen

    def unread(self, nodes: list[NodeSpec]) -> NodeSpec:
        """One of some nodes, mostly one that nobody reads yet: networks then hang together."""
        fresh = [node for node in nodes if not self.children(node.name)]
        chosen: NodeSpec = self.pick(fresh if fresh and self.chance(0.8) else nodes)
        return chosen

    def _real(self, reader: tuple[str, ...], depth: int) -> Any:
        way = self.rng.random() if depth < 2 else 1.0
        if way < 0.2:
            left, right = self.expression("real", reader, depth + 1), self.expression("real", reader, depth + 1)
            return self.random_pair(Sum if self.chance(0.6) else Minus, left, right)
        if way < 0.32:
            left, right = self.expression("real", reader, depth + 1), self.expression("real", reader, depth + 1)
            return self.random_pair(Product, left, right)
        if way < 0.5 and (made := self.vector_dot(reader)) is not None:
            return made
        if way < 0.65 and (made := self.plate_dot(reader)) is not None:
            return made
        if way < 0.72 and (made := self.difference(reader)) is not None:
            return made
        node = self.find("real")
        return None if node is None else self.read(node, reader)

    def random_pair(self, form: Any, left: Any, right: Any) -> Any:
        """A form of two sides of which at least one is random."""
        return left if isinstance(left, Const) and isinstance(right, Const) else form(left, right)

    def vector_dot(self, reader: tuple[str, ...]) -> Any:
        first = self.find("vector")
        if first is None:
            return None
        old, self.size = self.size, first.size
        left: Any = self.read(first, reader)
        if self.chance(0.2):
            left = Sum(left, self.expression("vector", reader, 2))
        right = self.expression("vector", reader, 1) if self.chance(0.6) else self.number("vector", reader)
        self.size = old
        return Dot(left, right) if self.chance(0.5) else Dot(right, left)

    def plate_dot(self, reader: tuple[str, ...]) -> Any:
        free = [
            p
            for p in self.plates
            if p not in reader and any(p in n.plates for n in self.nodes.values() if n.kind == "real")
        ]
        if not free:
            return None
        over = self.pick(free)
        first = self.find("real", along=over)
        if first is None:
            return None
        left = self.inside_dot(self.read(first, reader, keep=over), reader)
        second = self.find("real", along=over) if self.chance(0.6) else None
        if second is None:
            right: Any = self.number("real", reader, over)
        else:
            right = self.inside_dot(self.read(second, reader, keep=over), reader)
        sides = (left, right) if self.chance(0.5) else (right, left)
        return Dot(*sides, over, self.chance(0.5))

    def inside_dot(self, read: Read, reader: tuple[str, ...]) -> Any:
        """A side of a dot along a plate; sometimes with something beside it that lacks the plate."""
        if self.chance(0.65):
            return read
        other = self.expression("real", reader, 2)
        return Sum(read, other) if self.chance(0.5) else Product(other, read)

    def difference(self, reader: tuple[str, ...]) -> Any:
        """Two different elements of one node: a[i] − a[j], or a[i] a[j]."""
        scalars = [n for n in self.nodes.values() if n.kind == "real" and n.name not in self.used]
        fitting = [n for n in scalars if len(n.plates) == 1 and self.shape(n.plates)[0] > 1]
        lines = [p for p in reader if [self.plates[q].size for q in reader].count(self.plates[p].size) == 1]
        if not fitting or not lines:
            return None
        node, line = self.pick(fitting), self.pick(lines)
        self.used.add(node.name)
        size, length = self.shape(node.plates)[0], self.plates[line].size
        first = self.rng.integers(0, size, length)
        second = (first + self.rng.integers(1, size, length)) % size
        said = node.plates[0] == line or self.chance(0.4)
        form = Product if (first + second).sum() % 2 else Minus  # no draw of its own: seeds keep their networks
        return form(Read(node.name, (Take(first, (line,), said),)), Read(node.name, (Take(second, (line,), said),)))

    def _vector(self, reader: tuple[str, ...], depth: int) -> Any:
        way = self.rng.random() if depth < 2 else 1.0
        if way < 0.2:
            left, right = self.expression("vector", reader, depth + 1), self.expression("vector", reader, depth + 1)
            return self.random_pair(Sum if self.chance(0.6) else Minus, left, right)
        if way < 0.35:
            scalar, vector = self.expression("real", reader, depth + 1), self.expression("vector", reader, depth + 1)
            if isinstance(vector, Const):  # numbers beside a real number are read as its multiple, not as a vector
                return vector
            return Product(*((scalar, vector) if self.chance(0.5) else (vector, scalar)))
        if way < 0.5:
            inner = self.find("vector")
            if inner is not None:
                return Map(self.rng.normal(0, 0.7, (self.size, inner.size)), self.read(inner, reader))
        node = self.find("vector", self.size)
        return None if node is None else self.read(node, reader)

    def _positive(self, reader: tuple[str, ...], depth: int) -> Any:
        if depth < 2 and self.chance(0.25):
            left, right = self.expression("positive", reader, depth + 1), self.expression("positive", reader, depth + 1)
            return self.random_pair(Product, left, right)
        node = self.find("positive")
        return None if node is None else self.read(node, reader)

    def _matrix(self, reader: tuple[str, ...], depth: int) -> Any:
        way = self.rng.random() if depth < 1 else 0.5 + 0.5 * self.rng.random()
        if way < 0.25:
            scale, matrix = self.expression("positive", reader, 2), self.expression("matrix", reader, depth + 1)
            return matrix if isinstance(matrix, Const) else Product(scale, matrix)
        along = [p for p in self.plates if p not in reader and self.plates[p].size == self.size]
        if way < 0.75 and along:
            over = self.pick(along)
            node = self.find("positive", along=over)
            if node is not None:
                entries: Any = self.read(node, reader, keep=over)
                return Diag(
                    Product(self.expression("positive", reader, 2), entries) if self.chance(0.3) else entries, over
                )
        node = self.find("matrix", self.size)
        return None if node is None else self.read(node, reader)

    def _simplex(self, reader: tuple[str, ...], depth: int) -> Any:
        node = self.find("simplex", self.size)
        return None if node is None else self.read(node, reader)

    def _unit(self, reader: tuple[str, ...], depth: int) -> Any:
        node = self.find("unit")
        return None if node is None else self.read(node, reader)

    # -- readings --

    def read(self, node: NodeSpec, reader: tuple[str, ...], keep: str | None = None, depth: int = 0) -> Read:
        """A node read by a reader; plate ``keep`` stays open for a dot, a diagonal or a chain."""
        self.used.add(node.name)
        as_is = {p for p in node.plates if p == keep or (p in reader and self.chance(0.6))}
        by = tuple(None if p in as_is else self.selector(node, p, reader, as_is, depth) for p in node.plates)
        return Read(node.name, by)

    def selector(self, node: NodeSpec, plate: str, reader: tuple[str, ...], as_is: set[str], depth: int) -> Any:
        size, way = self.plates[plate].size, self.rng.random()
        gates = [n for n in self.nodes.values() if n.kind == "category" and n.size == size and n.name != node.name]
        if gates and way < 0.6 and depth < 2:
            return self.read(self.unread(gates), reader, depth=depth + 1)
        if not reader or way > 0.9:
            return int(self.rng.integers(size))
        if len(reader) > 1 and self.chance(0.1):
            pair = reader[:2]
            shape = self.shape(pair)
            free = [p for p in reader if p not in as_is]
            fitting = [i for i in range(len(free) - 1) if self.shape(tuple(free[i : i + 2])) == shape]
            if tuple(free[:2]) == pair and len(fitting) == 1:
                return Take(self.rng.integers(0, size, shape), pair, False)
        line = self.pick(reader)
        length = self.plates[line].size
        clear = [p for p in reader if p not in as_is and self.plates[p].size == length] == [line]
        return Take(self.rng.integers(0, size, length), (line,), not clear or self.chance(0.3))
