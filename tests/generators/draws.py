"""The log joint density of a `Declaration` at values of all hidden nodes, and what it says of conditionals; natgrad nowhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from generators.build import build, random_q, state_of
from generators.checks import REFUSALS
from generators.networks import Declaration, NodeSpec
from generators.walk import Place, Points, Walk, counted, elements, known_value
from scipy.special import gammaln

from natgrad.network.draws.chains import with_chains
from natgrad.network.draws.gibbs import Gibbs, Schedule, point_stats
from natgrad.network.execute.problem import NetworkProblem

Values = dict[str, np.ndarray]
CHAINS = 2


class At:
    """Every hidden element at its value."""

    def __init__(self, declaration: Declaration, values: Values) -> None:
        self.declaration, self.values = declaration, values

    def __contains__(self, atom: Any) -> bool:
        return True

    def __getitem__(self, atom: Any) -> Any:
        name, place = atom
        value = self.values[name][place]
        if self.declaration.nodes[name].type == "MarkovChain":
            return tuple(int(state) for state in value)
        return int(value)

    def points(self, node: NodeSpec, place: Place, axis: int) -> Points:
        return Points(known_value(node, self.values[node.name][place]), np.ones(1))


def log_joint(declaration: Declaration, values: Values) -> float:
    """Σ of the weighted log densities of all elements, data and hidden."""
    at, total = At(declaration, values), 0.0
    for node in declaration.nodes.values():
        for place, weight in counted(declaration, node):
            total += weight * float(Walk(declaration, at.points, at).log_density(node, place))
    return total


class Drawn:
    """A random network with chains, at values that were drawn from a q far from any optimum."""

    def __init__(self, seed: int, declaration: Declaration, backend: str = "numpy", together: bool = True) -> None:
        self.declaration, self.rng = declaration, np.random.default_rng([seed, 2])
        self.network = build(declaration)
        self.plan = self.network.problem.plan
        self.problem = NetworkProblem(with_chains(self.plan, CHAINS), backend)
        self.gibbs = Gibbs(self.problem, Schedule(0, 4, 1), {}, together=together)
        self.state = self.gibbs.start(state_of(self.network, random_q(declaration, self.rng)).lam, seed)

    def chain(self, number: int, changed: Values | None = None) -> Values:
        """Values of one chain in the coordinates of the declaration."""
        values = {**self.state.memory["values"], **(changed or {})}
        origins = {name: block.origin for name, block in self.problem.blocks.items()}
        return {n: v[number] + (0 if origins[n] is None else origins[n]) for n, v in values.items()}


def accepted(seed: int, declaration: Declaration, **options: Any) -> Drawn | None:
    """The network at drawn values; None if it is refused, or has elements that stand for several values (`Copies`)."""
    try:
        drawn = Drawn(seed, declaration, **options)
    except REFUSALS:
        return None
    return None if drawn.gibbs.copies else drawn


def check_conditionals(drawn: Drawn) -> None:
    """⟨λ, φ(x′) − φ(x)⟩ of an element is the difference of the log joint, whatever x′ is; for both chains."""
    other = drawn.gibbs.start(state_of(drawn.network, random_q(drawn.declaration, drawn.rng)).lam, 1)
    for name, block in drawn.problem.blocks.items():
        node, stats, family = drawn.declaration.nodes[name], drawn.state.mu, block.family
        # Elements that go in turn are conditioned on the others of their block: the whole gradient has all of them.
        lam = drawn.gibbs.conditional(block, stats)
        places = list(elements(drawn.declaration, node))
        place = places[int(drawn.rng.integers(len(places)))]
        weight = drawn.declaration.weight(node.block_plates, dict(zip(node.block_plates, place, strict=True)))
        if weight == 0.0:
            continue
        for chain in range(CHAINS):
            at = (chain, *place)
            changed = np.array(drawn.state.memory["values"][name])
            changed[at] = other.memory["values"][name][at]
            before, after = drawn.chain(chain), drawn.chain(chain, {name: changed})
            wanted = log_joint(drawn.declaration, after) - log_joint(drawn.declaration, before)
            fresh = point_stats(family, changed, drawn.gibbs.sizes[name])
            got = sum(float(np.sum(g[at] * (b[at] - a[at]))) for g, a, b in zip(lam, stats[name], fresh, strict=True))
            if node.type == "Poisson":  # the base measure is the family's, not the polynomial's
                got += float(gammaln(before[name][place] + 1) - gammaln(after[name][place] + 1))
            scale = abs(log_joint(drawn.declaration, before)) + abs(wanted)
            assert abs(got - wanted) <= 1e-9 * (1.0 + scale), (
                f"conditional of {name!r} at {place}: {got!r}, but the log joint says {wanted!r}"
            )


def check_groups(drawn: Drawn) -> int:
    """−½ xᵀ A x + bᵀ x of a group is the log joint but for a constant."""
    for group in drawn.gibbs.groups:
        precision, b = group.form(drawn.state.mu)
        old = {n: drawn.state.memory["values"][n] for n in group.names}
        new = {n: v + drawn.rng.normal(size=v.shape) for n, v in old.items()}
        for chain in range(CHAINS):
            x, y = (np.concatenate([v[n][chain].ravel() for n in group.names]) for v in (old, new))
            got = -0.5 * (y @ precision[chain] @ y - x @ precision[chain] @ x) + b[chain] @ (y - x)
            before, after = (log_joint(drawn.declaration, drawn.chain(chain, v)) for v in (old, new))
            assert abs(got - (after - before)) <= 1e-8 * (1.0 + abs(before) + abs(after)), (
                group.names,
                got,
                after - before,
            )
    return len(drawn.gibbs.groups)
