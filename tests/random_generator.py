"""A seed in, a random `Declaration` out: every node, every way of reading, plates of equal sizes, names used inside."""

from typing import Any

import numpy as np
from random_features import count_read, reads_left_out
from random_networks import (
    NAMES,
    NEVER_HIDDEN,
    SLOTS,
    Const,
    Declaration,
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

# How often a node of each type is drawn, by the flavour of the network. "discrete" networks can be enumerated, "single" ones
# integrated; the others have all there is.
TYPES = {
    "mixed": {
        "Normal": 6, "MultivariateNormal": 4, "Gamma": 4, "Exponential": 1.5, "Wishart": 3, "Dirichlet": 4, "Beta": 2,
        "Categorical": 6, "MarkovChain": 0.8, "Bernoulli": 1, "Binomial": 1, "Multinomial": 1, "Poisson": 1,
    },
    "discrete": {"Categorical": 7, "Dirichlet": 1, "MarkovChain": 0.5, "Bernoulli": 0.7, "Multinomial": 0.5, "Normal": 1},
    "gaussian": {"Normal": 6, "MultivariateNormal": 4, "Gamma": 2, "Categorical": 2, "Wishart": 1},
    "single": {"Normal": 4, "Gamma": 3, "Beta": 2, "Categorical": 3, "Bernoulli": 2, "Poisson": 2, "Binomial": 1},
}  # fmt: skip
MOST_READ = 10  # random elements that one element of a term may read: the reference enumerates their points


def draw(seed: int) -> Declaration:
    """The declaration of a seed; tried again with the next stream until something is hidden and nothing is too large."""
    for attempt in range(200):
        drawing = _Drawing(np.random.default_rng([seed, attempt]))
        declaration = drawing.declaration()
        if declaration is not None:
            return declaration
    raise AssertionError(f"seed {seed}: no declaration found")


class _Drawing:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.plates: dict[str, PlateSpec] = {}
        self.nodes: dict[str, NodeSpec] = {}
        self.names = [str(name) for name in rng.permutation(NAMES)]
        self.flavour = str(rng.choice(list(TYPES), p=[0.5, 0.2, 0.2, 0.1]))

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, choices: Any) -> Any:
        choices = list(choices)
        return choices[int(self.rng.integers(len(choices)))]

    # -- the whole --

    def declaration(self) -> Declaration | None:
        common = int(self.rng.choice([2, 3], p=[0.6, 0.4]))
        for name in self.rng.permutation(NAMES)[: int(self.rng.integers(2, 5))]:
            # Mostly one size for all: what depends on sizes to tell plates apart is wrong here.
            size = common if self.chance(0.75) else int(self.pick([1, 2, 3, 4]))
            self.plates[str(name)] = PlateSpec(str(name), size, self.weight(size))
        types = TYPES[self.flavour]
        odds = np.array(list(types.values())) / sum(types.values())
        few, many = {"single": (2, 4), "discrete": (3, 6)}.get(self.flavour, (4, 9))
        wanted = int(self.rng.integers(few, many))
        for _ in range(wanted):
            self.add(str(self.rng.choice(list(types), p=odds)))
        self.close()
        declaration = Declaration(self.plates, self.nodes)
        return declaration if self.fits(declaration) else None

    def weight(self, size: int) -> np.ndarray | None:
        if not self.chance(0.2):
            return None
        weight = self.rng.choice([0.0, 0.0, 1.0, 2.0, 0.5], size=size)
        weight[int(self.rng.integers(size))] = 2.0  # not all may be zero
        return weight

    def fits(self, declaration: Declaration) -> bool:
        hidden = declaration.hidden()
        if not hidden or any(count_read(declaration, node) > MOST_READ for node in declaration.nodes.values()):
            return False
        return not any(reads_left_out(declaration, node) for node in declaration.nodes.values())

    def close(self) -> None:
        """Observe every leaf; a chain, which cannot be observed, gets a child."""
        for node in list(self.nodes.values()):
            if node.type == "MarkovChain" and not self.children(node.name):
                self.emission(node)
        for node in list(self.nodes.values()):
            if not node.hidden or node.type == "MarkovChain":
                continue
            if not self.children(node.name):
                self.nodes[node.name] = self.with_data(node)
            elif self.chance(self.seen(node)):
                self.nodes[node.name] = self.with_data(node, missing=False)

    def seen(self, node: NodeSpec) -> float:
        """How often a node that has children is observed; what cannot be enumerated always is, where all else can."""
        if self.flavour == "discrete":
            return 0.2 if node.kind == "category" else 1.0
        return 0.6 if self.flavour == "single" else 0.25

    def children(self, name: str) -> list[str]:
        return [node.name for node in self.nodes.values() if name in parents(node)]

    def emission(self, chain: NodeSpec) -> None:
        state = self.plate_of(chain.size or 2)
        if state is None:
            state = PlateSpec(self.fresh_plate(), chain.size or 2)
            self.plates[state.name] = state
        name = self.names.pop()
        slots = {"mean": self.number("real", ()), "precision": self.number("positive", ())}
        self.nodes[name] = NodeSpec(name, "Normal", (state.name,), slots)
        leaf = self.names.pop()
        gate = Read(chain.name, (None,) * len(chain.plates))
        slots = {"mean": Read(name, (gate,)), "precision": self.number("positive", ())}
        self.nodes[leaf] = self.with_data(NodeSpec(leaf, "Normal", chain.plates, slots))

    def fresh_plate(self) -> str:
        return next(str(name) for name in self.rng.permutation(NAMES) if name not in self.plates)

    def plate_of(self, size: int) -> PlateSpec | None:
        fitting = [plate for plate in self.plates.values() if plate.size == size and plate.weight is None]
        return self.pick(fitting) if fitting else None

    # -- one node --

    def add(self, type_: str) -> None:
        room = 3 if self.chance(0.1) else 2
        n = min(int(self.rng.choice([0, 1, 2], p=[0.2, 0.45, 0.35])) if room == 2 else 3, len(self.plates))
        plates = tuple(str(name) for name in self.rng.permutation(list(self.plates))[:n])
        lengths = None
        if type_ == "MarkovChain":
            # Time has no weights, and a path is enumerated: it is short.
            time = [p for p in self.plates.values() if p.weight is None]
            if not time:
                return
            last = self.pick(time).name
            plates = (*[p for p in plates if p != last][:1], last)
            if self.plates[last].size > 2 and self.chance(0.6):
                lengths = (1, self.plates[last].size - 1)
        size = self.event_size(type_)
        reader = plates[:-1] if type_ == "MarkovChain" else plates
        self.size, self.used = size, set[str]()
        slots = {slot: self.slot(type_, slot, kind, reader) for slot, kind in SLOTS[type_].items()}
        name = self.names.pop()
        node = NodeSpec(name, type_, plates, slots, size, lengths=lengths)
        self.nodes[name] = self.with_data(node) if type_ in NEVER_HIDDEN else node

    def event_size(self, type_: str) -> int | None:
        if type_ in ("MultivariateNormal", "Wishart"):
            known = [n.size for n in self.nodes.values() if n.kind in ("vector", "matrix")]
            return int(self.pick(known)) if known and self.chance(0.8) else int(self.pick([2, 2, 3, 1]))
        if type_ in ("Dirichlet", "Categorical", "Multinomial", "MarkovChain"):
            sizes = [plate.size for plate in self.plates.values() if plate.size > 1] or [2]
            known = [n.size for n in self.nodes.values() if n.kind == "simplex"]
            return int(self.pick(known if known and self.chance(0.6) else sizes))
        return None

    def with_data(self, node: NodeSpec, missing: bool = True) -> NodeSpec:
        declaration = Declaration(self.plates, self.nodes)
        shape = (*declaration.shape(node.plates), *declaration.events(node))
        rng = self.rng
        values: dict[str, Any] = {
            "Normal": lambda: rng.normal(0, 1.5, shape),
            "MultivariateNormal": lambda: rng.normal(0, 1.5, shape),
            "Gamma": lambda: rng.gamma(2.0, 0.7, shape),
            "Exponential": lambda: rng.gamma(1.0, 1.0, shape),
            "Wishart": lambda: self.matrices(shape[:-2], node.size or 1),
            "Dirichlet": lambda: rng.dirichlet(np.full(node.size or 2, 2.0), shape[:-1]),
            "Beta": lambda: rng.beta(2, 2, shape),
            "Categorical": lambda: rng.integers(0, node.size, shape),
            "Bernoulli": lambda: rng.integers(0, 2, shape),
            "Binomial": lambda: rng.integers(0, 4, shape),
            "Multinomial": lambda: rng.integers(0, 4, shape),
            "Poisson": lambda: rng.integers(0, 6, shape),
        }
        data, mask = values[node.type](), None
        plates = declaration.shape(node.plates)
        if missing and plates and np.prod(plates) > 1 and self.chance(0.25):
            mask = rng.random(plates) < 0.7
            mask[tuple(int(rng.integers(n)) for n in plates)] = True
        return node._replace(observed=data, mask=mask)

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
        """Two different elements of one node: a[i] − a[j]."""
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
        return Minus(Read(node.name, (Take(first, (line,), said),)), Read(node.name, (Take(second, (line,), said),)))

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
