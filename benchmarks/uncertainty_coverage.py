"""Simulated data, parameters from their priors: how often 90 % intervals of q and of linear response hold the truth.

Called by ``uncertainty.py coverage``. Components are matched to the truth by their means before intervals are compared.
"""

from collections.abc import Callable
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

import natgrad as ng


class Case(NamedTuple):
    """A network of simulated data, its start, and the true value of each node that is compared."""

    network: ng.Network
    init: Any
    truth: dict[str, np.ndarray]
    axis: str | None = None  # the node whose rows tell which component is which


def regression(rng: np.random.Generator) -> Case:
    """Groups with slopes and intercepts around common ones, uncentred inputs, each coefficient a node or plate of its own."""
    groups, n = 5, 60
    of, x = rng.integers(0, groups, n), 3.0 + rng.normal(size=n)
    level, slope = rng.normal(size=2)
    spread, tau = rng.gamma(4.0, 0.25), rng.gamma(4.0, 0.25)
    offsets = level + rng.normal(size=groups) / np.sqrt(spread)
    y = offsets[of] + slope * x + rng.normal(size=n) / np.sqrt(tau)
    a = ng.Normal("level", 0.0, 1.0)
    b = ng.Normal("slope", 0.0, 1.0)
    c = ng.Normal("offset", a, ng.Gamma("spread", 4.0, 4.0), plate=ng.Plate("group", groups))
    node = ng.Normal("y", c[of] + b * x, ng.Gamma("tau", 4.0, 4.0), plate=ng.Plate("n", n), observed=y)
    truth = {"level": level, "slope": slope, "offset": offsets, "spread": spread, "tau": tau}
    return Case(ng.Network(node), None, {k: np.asarray(v) for k, v in truth.items()})


def mixture(rng: np.random.Generator) -> Case:
    """Two overlapping Gaussians."""
    n = 150
    shares, means, tau = rng.dirichlet([5.0, 5.0]), np.sort(rng.normal(scale=1.5, size=2)), rng.gamma(8.0, 1 / 8.0)
    z = rng.choice(2, n, p=shares)
    y = means[z] + rng.normal(size=n) / np.sqrt(tau)
    component = ng.Plate("component", 2)
    w = ng.Dirichlet("w", [5.0, 5.0])
    mu = ng.Normal("mu", 0.0, 1 / 2.25, plate=component)
    point = ng.Plate("point", n)
    chosen = ng.Categorical("z", w, plate=point)
    node = ng.Normal("y", mu[chosen], ng.Gamma("tau", 8.0, 8.0), plate=point, observed=y)
    return Case(ng.Network(node), {"mu": means, "w": shares}, {"mu": means, "w": shares, "tau": np.asarray(tau)}, "mu")


def chain(rng: np.random.Generator) -> Case:
    """Two hidden states with emissions that overlap."""
    n = 300
    rows, means = np.array([rng.dirichlet([8.0, 2.0]), rng.dirichlet([2.0, 8.0])]), np.sort(rng.normal(size=2))
    z = np.zeros(n, dtype=int)
    for t in range(1, n):
        z[t] = rng.choice(2, p=rows[z[t - 1]])
    y = means[z] + rng.normal(size=n)
    state, time = ng.Plate("state", 2), ng.Plate("time", n)
    transition = ng.Dirichlet("A", [[8.0, 2.0], [2.0, 8.0]], plate=state)
    mu = ng.Normal("mu", 0.0, 1.0, plate=state)
    hidden = ng.MarkovChain("z", [0.5, 0.5], transition, plate=time)
    node = ng.Normal("y", mu[hidden], 1.0, plate=time, observed=y)
    return Case(ng.Network(node), {"mu": means, "A": rows}, {"mu": means, "A": rows})


def topics(rng: np.random.Generator) -> Case:
    """Three topics of twenty words, sixty documents of forty."""
    phi, theta = rng.dirichlet(np.full(20, 0.3), 3), rng.dirichlet(np.full(3, 0.3), 60)
    table = np.array([rng.multinomial(40, share @ phi) for share in theta])
    docs, words = np.nonzero(table)
    doc, cell, topic = ng.Plate("doc", 60), ng.Plate("cell", len(docs), weight=table[docs, words]), ng.Plate("topic", 3)
    shares = ng.Dirichlet("theta", 0.3, size=3, plate=doc)
    terms = ng.Dirichlet("phi", 0.3, size=20, plate=topic)
    z = ng.Categorical("z", shares[docs], plate=cell)
    network = ng.Network(ng.Categorical("w", terms[z], plate=cell, observed=words))
    init = {"phi": 0.9 * phi + 0.1 / 20, "theta": 0.9 * theta + 0.1 / 3}
    return Case(network, init, {"phi": phi})


CASES: dict[str, tuple[str, Callable[[np.random.Generator], Case]]] = {
    "regression": ("regression with groups, scalars", regression),
    "mixture": ("mixture of two Gaussians that overlap", mixture),
    "chain": ("hidden Markov model, emissions that overlap", chain),
    "topics": ("LDA, K = 3: words of topics", topics),
}


def aligned(means: dict[str, np.ndarray], case: Case) -> tuple[int, ...] | None:
    """Which component of the fit is which of the truth."""
    if case.axis is None:
        return None
    found, truth = means[case.axis], case.truth[case.axis]
    return min(permutations(range(len(truth))), key=lambda order: float(np.sum((found[list(order)] - truth) ** 2)))


def held(case: Case) -> dict[str, tuple[int, int, int]]:
    """For each node: how many numbers, how many inside the intervals of q, and of linear response."""
    fit = case.network.fit(init=case.init, verbose=False, tol=1e-6)
    lr = fit.linear_response(exact=True)
    order = aligned({name: fit[name].mean() for name in case.truth}, case)
    found = {}
    for name, truth in case.truth.items():
        counts = [truth.size]
        for level in (fit, lr):
            low, high = level[name].interval(0.9)
            if order is not None and truth.ndim:
                low, high = low[list(order)], high[list(order)]
            counts.append(int(((low <= truth) & (truth <= high)).sum()))
        found[name] = (counts[0], counts[1], counts[2])
    return found
