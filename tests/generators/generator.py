"""A seed in, a random `Declaration` out: every node, every way of reading, plates of equal sizes, names used inside."""

from typing import Any

import numpy as np
from generators.expressions import Expressions
from generators.features import count_read, reads_left_out
from generators.networks import (
    NAMES,
    NEVER_HIDDEN,
    SLOTS,
    Declaration,
    NodeSpec,
    PlateSpec,
    Read,
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


class _Drawing(Expressions):
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.plates: dict[str, PlateSpec] = {}
        self.nodes: dict[str, NodeSpec] = {}
        self.names = [str(name) for name in rng.permutation(NAMES)]
        self.flavour = str(rng.choice(list(TYPES), p=[0.5, 0.2, 0.2, 0.1]))

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
