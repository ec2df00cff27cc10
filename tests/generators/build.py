"""A `Declaration` in, a natgrad network out; and states of q, the same for the network and for the reference."""

from typing import Any

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
    parents,
)

import natgrad as ng
from natgrad.inference.problem import State


def build(declaration: Declaration) -> ng.Network:
    """The declaration in the public language."""
    plates = {p.name: ng.Plate(p.name, p.size, weight=p.weight) for p in declaration.plates.values()}
    nodes: dict[str, Any] = {}
    for node in declaration.nodes.values():
        nodes[node.name] = _declare(declaration, node, plates, nodes)
    read = set().union(*(parents(node) for node in declaration.nodes.values()))
    # The reference has a factor for each node.
    return ng.Network(*(nodes[name] for name in declaration.nodes if name not in read), joint=None)


def _declare(declaration: Declaration, node: NodeSpec, plates: dict[str, Any], nodes: dict[str, Any]) -> Any:
    write = _Writer(declaration, node, plates, nodes)
    slots = {slot: write.slot(tree) for slot, tree in node.slots.items()}
    options: dict[str, Any] = {"plate": tuple(plates[p] for p in node.plates)}
    if len(node.plates) == 1:
        options["plate"] = plates[node.plates[0]]
    if node.type in ("MultivariateNormal", "Wishart"):
        options["size"] = node.size
    if node.lengths is not None:
        options["lengths"] = list(node.lengths)
    if node.observed is not None:
        options["observed"] = node.observed
    if node.mask is not None:
        options["mask"] = node.mask
    if node.type == "Multinomial":
        slots = {"trials": None, **slots}
    return getattr(ng, node.type)(node.name, **slots, **options)


class _Writer:
    def __init__(self, declaration: Declaration, node: NodeSpec, plates: dict[str, Any], nodes: dict[str, Any]) -> None:
        self.declaration, self.node, self.plates, self.nodes = declaration, node, plates, nodes

    def slot(self, e: Any) -> Any:
        if isinstance(e, Const):
            return self.numbers(e)
        if isinstance(e, Read):
            return self.read(e)
        if isinstance(e, (Sum, Minus, Product)):
            a, b = self.slot(e.left), self.slot(e.right)
            return a + b if isinstance(e, Sum) else a - b if isinstance(e, Minus) else a * b
        if isinstance(e, Dot):
            over = self.plates[e.over] if e.said else None
            return ng.dot(self.slot(e.left), self.slot(e.right), over=over)
        if isinstance(e, Diag):
            return ng.diag(self.slot(e.entries))
        if isinstance(e, Map):
            return e.matrix @ self.slot(e.vector)
        assert isinstance(e, Rows)
        return self.slot(e.expression)

    def numbers(self, e: Const) -> Any:
        """The array with an axis for every plate of the reader from the first it has; the plate of a dot comes last."""
        reader = self.node.block_plates
        inner = [p for p in e.plates if p not in reader]
        order = [p for p in reader if p in e.plates] + inner
        n = len(e.plates)
        array = np.transpose(e.array, [*(e.plates.index(p) for p in order), *range(n, e.array.ndim)])
        if not n or not [p for p in reader if p in e.plates]:
            return array
        start = min(reader.index(p) for p in e.plates if p in reader)
        lead = [self.declaration.plates[p].size if p in e.plates else 1 for p in reader[start:]]
        return array.reshape(*lead, *array.shape[len(order) - len(inner) :])

    def read(self, e: Read) -> Any:
        node = self.nodes[e.node]
        keys = [self.key(entry) for entry in e.by]
        if all(isinstance(key, slice) for key in keys):
            return node
        return node[tuple(keys) if len(keys) > 1 else keys[0]]

    def key(self, entry: Any) -> Any:
        if entry is None:
            return slice(None)
        if isinstance(entry, Read):
            return self.read(entry)
        if isinstance(entry, Take):
            return self.plates[entry.plates[0]].index(entry.values) if entry.said else entry.values
        return entry


# -- states --

Params = dict[str, dict[str, np.ndarray]]


def random_q(declaration: Declaration, rng: np.random.Generator) -> Params:
    """Parameters of q far from any optimum: the usual ones by name, of a chain the natural ones."""
    found = {}
    for node in declaration.hidden():
        shape, size = declaration.shape(node.block_plates), node.size or 1
        root = rng.normal(0, 0.5, (*shape, size, size))
        spread = root @ np.swapaxes(root, -1, -2) + 0.5 * np.eye(size)
        choices: dict[str, Any] = {
            "real": lambda: {"mean": rng.normal(0, 1, shape), "precision": rng.gamma(3, 0.5, shape) + 0.3},  # noqa: B023
            "vector": lambda: {"mean": rng.normal(0, 1, (*shape, size)), "precision": spread},  # noqa: B023
            "positive": lambda: {"shape": rng.gamma(3, 0.7, shape) + 0.5, "rate": rng.gamma(3, 0.5, shape) + 0.3},  # noqa: B023
            "matrix": lambda: {"dof": rng.gamma(2, 1, shape) + size, "rate": spread},  # noqa: B023
            "simplex": lambda: {"concentration": rng.gamma(2, 1, (*shape, size)) + 0.3},  # noqa: B023
            "unit": lambda: {"a": rng.gamma(2, 1, shape) + 0.3, "b": rng.gamma(2, 1, shape) + 0.3},  # noqa: B023
            "category": lambda: {"probs": rng.dirichlet(np.ones(size), shape)},  # noqa: B023
            "Bernoulli": lambda: {"prob": rng.uniform(0.1, 0.9, shape)},  # noqa: B023
            "Poisson": lambda: {"rate": rng.gamma(2, 1, shape) + 0.2},  # noqa: B023
        }  # fmt: skip
        if node.type == "MarkovChain":
            time = declaration.plates[node.plates[-1]].size
            shapes = {"marginals": (time, size), "first": (size,), "pairs": (size, size)}
            found[node.name] = {name: rng.normal(0, 1, (*shape, *event)) for name, event in shapes.items()}
        else:
            found[node.name] = {
                name: np.asarray(value)
                for name, value in choices[node.type if node.kind == "count" else node.kind]().items()
            }
    return found


def state_of(network: ng.Network, q: Params) -> State:
    """The same q as a state of the engine."""
    lam, mu = {}, {}
    for name, block in network.problem.blocks.items():
        p = q[name]
        if block.origin is not None:  # the engine measures locations from there
            p = {**p, "mean": p["mean"] - block.origin}
        if "marginals" in p:
            lam[name] = tuple(p[part] for part in ("marginals", "first", "pairs"))
        else:
            lam[name] = tuple(np.asarray(part, dtype=float) for part in block.family.natural(**p))
        mu[name] = tuple(np.asarray(part) for part in block.family.expected_stats(lam[name]))
    return State(lam, mu, 0)


def q_of(network: ng.Network, state: State) -> Params:
    """The parameters of a state, as the reference takes them."""
    found = {}
    for name, block in network.problem.blocks.items():
        lam = tuple(np.asarray(part) for part in state.lam[name])
        usual = block.family.usual(lam)
        if "marginals" in usual:
            usual = dict(zip(("marginals", "first", "pairs"), lam, strict=True))
        if block.origin is not None:
            usual = {**usual, "mean": usual["mean"] + block.origin}
        found[name] = {key: np.asarray(value) for key, value in usual.items()}
    return found
