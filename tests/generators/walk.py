"""One element of one node of a `Declaration` at given points: its log density in plain NumPy, natgrad nowhere."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from generators.networks import (
    Const,
    Declaration,
    Diag,
    Dot,
    Map,
    Minus,
    NodeSpec,
    Product,
    Read,
    Rows,
    Sum,
    Take,
)
from scipy.special import gammaln, multigammaln

Place = tuple[int, ...]
Atom = tuple[str, Place]
LOG_2PI = float(np.log(2 * np.pi))


class Choose(Exception):
    """A category is read that has no value yet."""

    def __init__(self, atom: Atom) -> None:
        self.atom = atom


class Points(NamedTuple):
    """A random element at its points: one value (of the node's kind) with arrays along an axis, and the weights there."""

    value: Any
    weights: np.ndarray


class Walk:
    """One element of one node at the points of q: choices made so far, and an axis for every continuous element met."""

    def __init__(self, declaration: Declaration, points: Any, chosen: dict[Atom, Any]) -> None:
        self.declaration, self.points, self.chosen = declaration, points, chosen
        self.met: dict[Atom, Points] = {}

    # -- what stands in a slot --

    def real(self, e: Any, env: dict[str, int]) -> Any:
        if isinstance(e, Const):
            return _at(e, env)
        if isinstance(e, (Sum, Minus)):
            return self.real(e.left, env) + (1 if isinstance(e, Sum) else -1) * self.real(e.right, env)
        if isinstance(e, Product):
            return self.real(e.left, env) * self.real(e.right, env)
        if isinstance(e, Dot) and e.over is None:
            size = self.size(e.left) or self.size(e.right)
            left, right = self.vector(e.left, env, size), self.vector(e.right, env, size)
            return sum(a * b for a, b in zip(left, right, strict=True))
        if isinstance(e, Dot):
            rows = [{**env, e.over: f} for f in range(self.declaration.plates[e.over].size)]
            return sum(self.real(e.left, row) * self.real(e.right, row) for row in rows)
        return self.element(e, env)

    def vector(self, e: Any, env: dict[str, int], size: int | None) -> list[Any]:
        if isinstance(e, Const):
            return list(np.broadcast_to(_at(e, env), (size,)))
        if isinstance(e, (Sum, Minus)):
            sign = 1 if isinstance(e, Sum) else -1
            pairs = zip(self.vector(e.left, env, size), self.vector(e.right, env, size), strict=True)
            return [a + sign * b for a, b in pairs]
        if isinstance(e, Product):
            scalar, vector = (e.left, e.right) if self.size(e.left) is None else (e.right, e.left)
            factor = self.real(scalar, env)
            return [factor * x for x in self.vector(vector, env, size)]
        if isinstance(e, Map):
            inner = self.vector(e.vector, env, e.matrix.shape[1])
            return [sum(a * x for a, x in zip(row, inner, strict=True)) for row in e.matrix]
        return self.element(e, env)

    def positive(self, e: Any, env: dict[str, int]) -> tuple[Any, Any]:
        if isinstance(e, Const):
            return _at(e, env), np.log(_at(e, env))
        if isinstance(e, Product):
            (a, log_a), (b, log_b) = self.positive(e.left, env), self.positive(e.right, env)
            return a * b, log_a + log_b
        return self.element(e, env)

    def matrix(self, e: Any, env: dict[str, int], size: int) -> tuple[list[list[Any]], Any]:
        if isinstance(e, Const):
            array = _at(e, env) if np.ndim(_at(e, env)) else _at(e, env) * np.eye(size)
            return [list(row) for row in array], np.linalg.slogdet(array)[1]
        if isinstance(e, Product):
            scalar, rest = (e.left, e.right) if self.is_positive(e.left) else (e.right, e.left)
            (t, log_t), (rows, log_det) = self.positive(scalar, env), self.matrix(rest, env, size)
            return [[t * x for x in row] for row in rows], log_det + size * log_t
        if isinstance(e, Diag):
            entries = [self.positive(e.entries, {**env, e.over: i}) for i in range(size)]
            rows = [[entries[i][0] if i == j else 0.0 for j in range(size)] for i in range(size)]
            return rows, sum(log for _, log in entries)
        return self.element(e, env)

    def simplex(self, e: Any, env: dict[str, int]) -> list[Any]:
        if isinstance(e, Const):
            with np.errstate(divide="ignore"):
                return list(np.log(_at(e, env)))
        return self.element(e, env)

    def unit(self, e: Any, env: dict[str, int]) -> tuple[Any, Any]:
        if isinstance(e, Const):
            return np.log(_at(e, env)), np.log1p(-_at(e, env))
        return self.element(e, env)

    def size(self, e: Any) -> int | None:
        """The length of a vector; None for a scalar, and for numbers that take the other side's."""
        if isinstance(e, Read):
            node = self.declaration.nodes[e.node]
            return node.size if node.kind == "vector" else None
        if isinstance(e, Map):
            return len(e.matrix)
        if isinstance(e, (Sum, Minus, Product)):
            return self.size(e.left) or self.size(e.right)
        if isinstance(e, Const) and e.array.ndim > len(e.plates):
            return e.array.shape[-1]
        return None

    def is_positive(self, e: Any) -> bool:
        if isinstance(e, Read):
            return self.declaration.nodes[e.node].kind == "positive"
        if isinstance(e, Product):
            return self.is_positive(e.left) and self.is_positive(e.right)
        return isinstance(e, Const) and e.array.ndim == len(e.plates)

    # -- elements --

    def element(self, read: Read, env: dict[str, int]) -> Any:
        node = self.declaration.nodes[read.node]
        places = []
        for plate, entry in zip(node.plates, read.by, strict=True):
            if entry is None:
                places.append(env[plate])
            elif isinstance(entry, Read):
                places.append(self.element(entry, env))
            elif isinstance(entry, Take):
                places.append(int(entry.values[tuple(env[p] for p in entry.plates)]))
            else:
                places.append(entry)
        return self.own(node, tuple(places))

    def own(self, node: NodeSpec, place: Place) -> Any:
        """The value of one element of a node: data, a choice, or its points."""
        if node.observed is not None:
            return known_value(node, node.observed[place])
        if node.type == "MarkovChain":
            path = self.choice((node.name, place[:-1]))
            return path[place[-1]]
        if node.kind == "category" or node.type == "Bernoulli":
            return self.choice((node.name, place))
        if (node.name, place) not in self.met:
            self.met[node.name, place] = self.points(node, place, len(self.met))
        return self.met[node.name, place].value

    def choice(self, atom: Atom) -> Any:
        if atom not in self.chosen:
            raise Choose(atom)
        return self.chosen[atom]

    # -- densities --

    def log_density(self, node: NodeSpec, place: Place) -> Any:
        """Log p(element | parents), everything at its points."""
        names = node.block_plates
        env = dict(zip(names, place, strict=False))
        s, size = node.slots, node.size or 1
        if node.type == "MarkovChain":
            return self._path(node, place, env)
        x = self.own(node, place)
        if node.type == "Normal":
            m, (t, log_t) = self.real(s["mean"], env), self.positive(s["precision"], env)
            return 0.5 * log_t - 0.5 * LOG_2PI - 0.5 * t * (x - m) ** 2
        if node.type == "MultivariateNormal":
            m, (rows, log_det) = self.vector(s["mean"], env, size), self.matrix(s["precision"], env, size)
            d = [a - b for a, b in zip(x, m, strict=True)]
            square = sum(rows[i][j] * d[i] * d[j] for i in range(size) for j in range(size))
            return 0.5 * log_det - 0.5 * size * LOG_2PI - 0.5 * square
        if node.type in ("Gamma", "Exponential"):
            a = _at(s["shape"], env) if "shape" in s else 1.0
            rate, log_rate = self.positive(s["rate"], env)
            return a * log_rate - gammaln(a) + (0.0 if a == 1.0 else (a - 1) * x[1]) - rate * x[0]
        if node.type == "Wishart":
            dof, (rate, log_det) = _at(s["dof"], env), self.matrix(s["rate"], env, size)
            trace = sum(rate[i][j] * x[0][j][i] for i in range(size) for j in range(size))
            start = 0.5 * dof * log_det - 0.5 * dof * size * np.log(2) - multigammaln(0.5 * dof, size)
            return start + 0.5 * (dof - size - 1) * x[1] - 0.5 * trace
        if node.type == "Dirichlet":
            alpha = np.broadcast_to(_at(s["concentration"], env), (size,))
            start = gammaln(alpha.sum()) - gammaln(alpha).sum()
            return start + sum((a - 1) * log for a, log in zip(alpha, x, strict=True))
        if node.type == "Beta":
            a, b = _at(s["a"], env), _at(s["b"], env)
            return gammaln(a + b) - gammaln(a) - gammaln(b) + (a - 1) * x[0] + (b - 1) * x[1]
        return self._discrete(node, x, env)

    def _discrete(self, node: NodeSpec, x: Any, env: dict[str, int]) -> Any:
        s = node.slots
        if node.type == "Categorical":
            return self.simplex(s["probs"], env)[x]
        if node.type == "Bernoulli":
            return self.unit(s["prob"], env)[0 if x == 1 else 1]
        if node.type == "Binomial":
            n, (log, log1m) = _at(s["trials"], env), self.unit(s["prob"], env)
            return gammaln(n + 1) - gammaln(x + 1) - gammaln(n - x + 1) + x * log + (n - x) * log1m
        if node.type == "Multinomial":
            probs = self.simplex(s["probs"], env)
            return gammaln(sum(x) + 1) + sum(n * log - gammaln(n + 1) for n, log in zip(x, probs, strict=True))
        rate, log_rate = self.positive(s["rate"], env)
        return x * log_rate - rate - gammaln(x + 1)

    def _path(self, node: NodeSpec, place: Place, env: dict[str, int]) -> Any:
        path = self.choice((node.name, place))
        starts = np.cumsum((0, *(node.lengths or ())))[:-1] if node.lengths else [0]
        table = node.slots["transition"]
        total: Any = 0.0
        for t, state in enumerate(path):
            if t in starts:
                total = total + self.simplex(node.slots["initial"], env)[state]
            elif isinstance(table, Rows):
                total = total + self.simplex(table.expression, {**env, table.over: path[t - 1]})[state]
            else:
                total = total + np.log(_at(table, env)[path[t - 1], state])
        return total


def known_value(node: NodeSpec, value: Any) -> Any:
    """One element's value as its kind: the numbers and the logarithms that a density asks for."""
    if node.kind == "positive":
        with np.errstate(divide="ignore"):
            return value, np.log(value)
    if node.kind == "matrix":
        return value, np.linalg.slogdet(value)[1]
    if node.kind == "simplex":
        return list(np.log(value))
    if node.kind == "unit":
        return np.log(value), np.log1p(-value)
    return int(value) if node.kind == "category" else value


def _at(constant: Const, env: dict[str, int]) -> Any:
    return constant.array[tuple(env[p] for p in constant.plates)]


def elements(declaration: Declaration, node: NodeSpec) -> Iterator[Place]:
    yield from itertools.product(*(range(n) for n in declaration.shape(node.block_plates)))


def counted(declaration: Declaration, node: NodeSpec) -> Iterator[tuple[Place, float]]:
    """The elements of a node that count, with their weights."""
    for place in elements(declaration, node):
        weight = declaration.weight(node.block_plates, dict(zip(node.block_plates, place, strict=True)))
        if weight and (node.mask is None or node.mask[place]):
            yield place, weight


def leaves(declaration: Declaration, node: NodeSpec, place: Place, points: Any, options: Any) -> Iterator[Any]:
    """Every way in which the categories that a term's element reads can come out, and its log density there."""
    todo: list[dict[Atom, Any]] = [{}]
    while todo:
        chosen = todo.pop()
        walk = Walk(declaration, points, chosen)
        try:
            value = walk.log_density(node, place)
        except Choose as asked:
            todo += [{**chosen, asked.atom: option} for option in options(asked.atom)]
            continue
        yield chosen, walk, value


def average(value: Any, walk: Walk) -> float:
    """The mean of a value over the axes of all points."""
    array = np.asarray(value, dtype=float)
    weights = [point.weights for point in walk.met.values()]
    while array.ndim:
        mine = weights[array.ndim - 1]
        array = array[0] if len(array) == 1 else np.tensordot(mine, array, axes=(0, 0))
    return float(array)


def along(values: np.ndarray, axis: int) -> np.ndarray:
    """Values along axis number ``axis``, counted from the right, as arrays are matched."""
    return np.asarray(values).reshape((-1,) + (1,) * axis)
