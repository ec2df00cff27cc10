"""Declarations that were wrong once, how often the generator must draw each feature, and draws of q for the reference itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from generators.build import random_q
from generators.networks import (
    Const,
    Declaration,
    Diag,
    Dot,
    NodeSpec,
    PlateSpec,
    Product,
    Read,
    Sum,
    Take,
    parents,
)
from generators.reference import Reference
from generators.walk import Atom, Place, Points, Walk, counted, leaves
from scipy import stats

RNG = np.random.default_rng(0)


def _const(*values: Any) -> Const:
    return Const(np.asarray(values[0] if len(values) == 1 else values, dtype=float))


def _normal(name: str, *plates: str, mean: Any = None, precision: Any = None, observed: Any = None) -> NodeSpec:
    slots = {"mean": mean or _const(0.7), "precision": precision or _const(1.3)}
    return NodeSpec(name, "Normal", plates, slots, observed=observed)


def _declaration(*nodes: NodeSpec, **sizes: int) -> Declaration:
    return Declaration({p: PlateSpec(p, n) for p, n in sizes.items()}, {node.name: node for node in nodes})


def _beside_a_dot(left: Any, right: Any) -> Callable[[], Declaration]:
    """A dot along f; a and b lie on f, c and d do not."""

    def made() -> Declaration:
        y = _normal("y", "n", mean=Dot(left, right, "f"), observed=RNG.normal(size=3))
        nodes = [_normal(name, *(("f",) if name in "ab" else ())) for name in sorted(parents(y))]
        return _declaration(*nodes, y, f=2, n=3)

    return made


def _gated_dot() -> Declaration:
    """A category that lacks the plate of a dot chooses on both sides: the same for every element of it."""
    z = NodeSpec("z", "Categorical", ("n",), {"probs": _const(0.3, 0.7)}, 2)
    a, b = _normal("a", "k", "f"), _normal("b", "f", "k")
    gate = Read("z", (None,))
    mean = Dot(Read("a", (gate, None)), Read("b", (None, gate)), "f")
    return _declaration(z, a, b, _normal("y", "n", mean=mean, observed=RNG.normal(size=3)), f=2, n=3, k=2)


def _dot_and_diagonal() -> Declaration:
    """One child sums b over f, another reads b[g(f), f]: the plate stands on both axes."""
    row = Take(np.array([1, 0]), ("f",), True)
    y = _normal(
        "y", "k", mean=Dot(Read("b", (None, None)), Const(RNG.normal(size=2), ("f",)), "f"), observed=RNG.normal(size=2)
    )
    z = _normal("z", "f", mean=Read("b", (row, None)), observed=RNG.normal(size=2))
    return _declaration(_normal("b", "k", "f"), y, z, k=2, f=2)


def _scaled_diagonal(scale: Any, inside: bool = True) -> Callable[[], Declaration]:
    def made() -> Declaration:
        gamma = {"shape": _const(1.5), "rate": _const(0.8)}
        alpha = NodeSpec("alpha", "Gamma", ("f",), gamma)
        t = [NodeSpec("t", "Gamma", (), gamma)] if isinstance(scale, Read) else []
        entries = Read("alpha", (None,))
        precision = Diag(Product(scale, entries), "f") if inside else Product(scale, Diag(entries, "f"))
        slots = {"mean": _const(0.0, 0.0), "precision": precision}
        y = NodeSpec("y", "MultivariateNormal", ("n",), slots, 2, observed=RNG.normal(size=(3, 2)))
        return _declaration(alpha, *t, y, f=2, n=3)

    return made


def _dot_and_more(read: Read, *plates: str) -> Callable[[], Declaration]:
    """One child sums a over its plate f, another reads single elements of it."""

    def made() -> Declaration:
        y = _normal("y", "n", mean=Dot(A, Const(RNG.normal(size=(3, 2)), ("n", "f")), "f"), observed=RNG.normal(size=3))
        sizes = {"f": 2, "n": 3}
        z = _normal("z", *plates, mean=read, observed=RNG.normal(size=[sizes[p] for p in plates]))
        return _declaration(_normal("a", "f"), y, z, **sizes)

    return made


A, B, C, D = Read("a", (None,)), Read("b", (None,)), Read("c", ()), Read("d", ())
CASES: dict[str, Callable[[], Declaration]] = {
    # What lacks the plate of a dot is shared by all its elements: they are not independent.
    "a sum inside a dot": _beside_a_dot(Sum(A, C), B),
    "a product inside a dot": _beside_a_dot(Product(A, C), B),
    "a product inside a dot with numbers": _beside_a_dot(Product(C, A), Const(RNG.normal(size=2), ("f",))),
    "sums on both sides of a dot": _beside_a_dot(Sum(A, C), Sum(D, B)),
    # A number on each side: their product is the same for every element, and counts for each.
    "numbers on both sides of a dot": _beside_a_dot(Sum(A, _const(1.3)), Sum(B, _const(0.7))),
    "gates inside a dot": _gated_dot,
    "a dot and an integer": _dot_and_more(Read("a", (1,)), "n"),
    "a dot and a gather": _dot_and_more(Read("a", (Take(np.array([1, 0, 1]), ("n",), False),)), "n"),
    "a dot and the plate itself": _dot_and_more(A, "f"),
    "a dot and the diagonal of two plates": _dot_and_diagonal,
    "a diagonal times a number": _scaled_diagonal(_const(2.0)),
    "a diagonal times a Gamma": _scaled_diagonal(Read("t", ())),
    "a number times a diagonal": _scaled_diagonal(_const(2.0), inside=False),
    "a Gamma times a diagonal": _scaled_diagonal(Read("t", ()), inside=False),
}

# Least number of the 300 fast networks in which each feature must be.
WANTED = {
    **{f"hidden {t}": 8 for t in ("Exponential", "Dirichlet", "Beta", "MarkovChain")},
    **{f"hidden {t}": 20 for t in ("Normal", "MultivariateNormal", "Gamma", "Wishart", "Categorical")},
    **{f"observed {t}": 8 for t in ("Bernoulli", "Binomial", "Multinomial", "Poisson", "Exponential", "Beta", "Wishart")},
    **{f"observed {t}": 20 for t in ("Normal", "MultivariateNormal", "Gamma", "Dirichlet", "Categorical")},
    **{f"observed {k} in the middle": 5 for k in ("vector", "positive", "matrix", "simplex")},
    "observed real in the middle": 10, "observed category in the middle": 20,
    "plates of equal sizes": 200, "a plate of one": 20, "weights": 60, "weights of zero": 20, "missing values": 60,
    "chains end to end": 3, "a vector as long as a plate": 60, "numbers on plates": 150, "a plate called like a node": 5,
    "hidden as it is": 60, "hidden gathered": 60, "hidden gated": 60, "hidden at an integer": 20, "observed as it is": 20,
    "observed gathered": 20, "observed gated": 15, "observed at an integer": 5, "a gathered gate": 20, "a gated gate": 5,
    "two gates": 8,
    "an index that says its plate": 60, "an index found by its length": 60, "an index on two plates": 8,
    "sum": 30, "difference": 30, "product": 40, "product of two random things": 15, "product of two elements of one node": 3,
    "dot of vectors": 10, "dot along a plate": 20,
    "something beside a side of a dot": 8, "diag": 8, "known map": 10, "random transition": 2,
    **{f"hidden {k} gated by hidden Categorical": 5 for k in ("real", "positive")},
    **{f"hidden {k} gated by observed Categorical": 2 for k in ("real", "positive", "simplex")},
    "hidden real gated by hidden MarkovChain": 8, "hidden simplex gated by hidden Categorical": 1,
    **{f"name {name}": 5 for name in ("sample", "draw", "batch", "window", "x", "xx", "log", "i'0", "'0", "weight:x")},
    "evidence": 25, "exact posterior": 4,
}  # fmt: skip


# -- the reference itself --


def monte_carlo(declaration: Declaration, rng: np.random.Generator, n: int) -> tuple[float, float, float]:
    """The reference's E_q[log p], the mean of log p over draws of a random q, and the standard error of that."""
    q = random_q(declaration, rng)
    reference = Reference(declaration, q)
    drawn: dict[Atom, Any] = {}

    def points(node: NodeSpec, place: Place, axis: int) -> Points:
        if (node.name, place) not in drawn:
            drawn[node.name, place] = _draws(node, {key: value[place] for key, value in q[node.name].items()}, rng, n)
        return Points(drawn[node.name, place], np.ones(1))

    def chosen_where(chosen: dict[Atom, Any]) -> np.ndarray:
        found = np.ones(n, dtype=bool)
        for atom, choice in chosen.items():
            options = reference.options(atom)
            if atom not in drawn:
                drawn[atom] = rng.choice(len(options), n, p=[reference.chance(atom, option) for option in options])
            found &= drawn[atom] == options.index(choice)
        return found

    total = np.zeros(n)
    for node in declaration.nodes.values():
        for place, weight in counted(declaration, node):
            for chosen, _, value in leaves(declaration, node, place, points, reference.options):
                total += np.where(chosen_where(chosen), weight * np.asarray(value), 0.0)
    exact = sum(reference.term(node) for node in declaration.nodes.values())
    return exact, float(total.mean()), float(total.std() / np.sqrt(n))


def _draws(node: NodeSpec, p: dict[str, np.ndarray], rng: np.random.Generator, n: int) -> Any:
    """Draws of one element, as its kind."""
    if node.type == "Normal":
        return stats.norm.rvs(p["mean"], p["precision"] ** -0.5, n, random_state=rng)
    if node.type == "MultivariateNormal":
        covariance = np.linalg.inv(p["precision"])
        return list(stats.multivariate_normal.rvs(p["mean"], covariance, n, random_state=rng).reshape(n, -1).T)
    if node.kind == "positive":
        x = stats.gamma.rvs(p["shape"], scale=1 / p["rate"], size=n, random_state=rng)
        return x, np.log(x)
    if node.type == "Wishart":
        x = stats.wishart.rvs(p["dof"], np.linalg.inv(p["rate"]), n, random_state=rng).reshape(n, *p["rate"].shape)
        return np.moveaxis(x, 0, -1), np.linalg.slogdet(x)[1]
    if node.type == "Dirichlet":
        return list(np.log(stats.dirichlet.rvs(p["concentration"], n, random_state=rng)).T)
    if node.type == "Beta":
        x = stats.beta.rvs(p["a"], p["b"], size=n, random_state=rng)
        return np.log(x), np.log1p(-x)
    return stats.poisson.rvs(p["rate"], size=n, random_state=rng).astype(float)


def densities() -> dict[str, tuple[float, float]]:
    """One element of each type: the reference's log density of a value, and that of scipy.stats."""
    rate = np.array([[1.5, 0.3], [0.3, 0.9]])
    x, vector, counts = 0.4, np.array([0.3, -1.2]), np.array([2, 0, 3])
    simplex, matrix = np.array([0.2, 0.5, 0.3]), np.array([[1.1, -0.2], [-0.2, 0.7]])
    covariance, m = np.linalg.inv(rate), [0.1, 0.2]
    given: dict[str, Any] = {
        "Normal": ({"mean": 0.7, "precision": 1.3}, x, stats.norm(0.7, 1.3**-0.5).logpdf(x)),
        "MultivariateNormal": ({"mean": m, "precision": rate}, vector, stats.multivariate_normal.logpdf(vector, m, covariance)),
        "Gamma": ({"shape": 1.7, "rate": 0.6}, x, stats.gamma(1.7, scale=1 / 0.6).logpdf(x)),
        "Exponential": ({"rate": 0.6}, x, stats.expon(scale=1 / 0.6).logpdf(x)),
        "Wishart": ({"dof": 3.5, "rate": rate}, matrix, stats.wishart(3.5, covariance).logpdf(matrix)),
        "Dirichlet": ({"concentration": [1.5, 0.7, 2.0]}, simplex, stats.dirichlet([1.5, 0.7, 2.0]).logpdf(simplex)),
        "Beta": ({"a": 1.5, "b": 0.7}, x, stats.beta(1.5, 0.7).logpdf(x)),
        "Categorical": ({"probs": simplex}, 2, np.log(0.3)),
        "Bernoulli": ({"prob": 0.3}, 1, stats.bernoulli(0.3).logpmf(1)),
        "Binomial": ({"trials": 4.0, "prob": 0.3}, 3, stats.binom(4, 0.3).logpmf(3)),
        "Multinomial": ({"probs": simplex}, counts, stats.multinomial(5, simplex).logpmf(counts)),
        "Poisson": ({"rate": 2.2}, 4, stats.poisson(2.2).logpmf(4)),
    }  # fmt: skip
    found = {}
    for type_, (slots, value, wanted) in given.items():
        size = {"Dirichlet": 3, "Categorical": 3, "Multinomial": 3}.get(type_, 2)
        constants = {slot: Const(np.asarray(number, dtype=float)) for slot, number in slots.items()}
        node = NodeSpec("x", type_, (), constants, size, np.asarray(value))
        found[type_] = float(Walk(Declaration({}, {"x": node}), None, {}).log_density(node, ())), float(wanted)
    return found
