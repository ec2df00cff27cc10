"""The bound of a `Declaration` in plain NumPy and SciPy: nothing here knows what natgrad is.

One element of one node after the other is evaluated at *points* (`walk.py`): a Normal element stands at its mean ± one
standard deviation, which has its first two moments and is all that a quadratic asks for; a vector at the 2D points with its
mean and covariance; a category, or the whole path of a chain, at each of its values; and what enters linearly, a Gamma through
x and log x say, at the expectation of these. Every random element has an array axis of its own, so that the average over all
axes is the exact expectation.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from generators.networks import Declaration, NodeSpec
from generators.walk import Atom, Place, Points, along, average, counted, elements, leaves
from scipy import stats
from scipy.special import digamma, logsumexp

Q = Mapping[str, Mapping[str, np.ndarray]]
COUNTS = np.arange(400.0)  # a hidden Poisson is summed up to here


class Reference:
    """E_q[log p] and the entropy of q for parameters ``q``: by node the usual ones, of a chain the natural ones."""

    def __init__(self, declaration: Declaration, q: Q) -> None:
        self.declaration, self.q = declaration, q
        self._paths: dict[Atom, tuple[list[Place], np.ndarray]] = {}

    def bound(self) -> float:
        nodes = self.declaration.nodes.values()
        return sum(self.term(node) for node in nodes) + sum(self.entropy(node) for node in nodes if node.hidden)

    def term(self, node: NodeSpec) -> float:
        """E_q[log p] of one node, its missing elements left out and its weights counted."""
        return float(sum(weight * self.expected(node, place) for place, weight in counted(self.declaration, node)))

    def expected(self, node: NodeSpec, place: Place) -> float:
        total = 0.0
        for chosen, walk, value in leaves(self.declaration, node, place, self.points, self.options):
            chance = np.prod([self.chance(atom, choice) for atom, choice in chosen.items()])
            if chance == 0.0:
                continue
            total += float(chance) * average(value, walk)
        return total

    def entropy(self, node: NodeSpec) -> float:
        total = 0.0
        for place in elements(self.declaration, node):
            weight = self.declaration.weight(node.block_plates, dict(zip(node.block_plates, place, strict=True)))
            total += weight * self._entropy(
                node, {name: value[place] for name, value in self.q[node.name].items()}, place
            )
        return total

    def _entropy(self, node: NodeSpec, p: Mapping[str, np.ndarray], place: Place) -> float:
        if node.type == "Normal":
            return float(stats.norm(p["mean"], p["precision"] ** -0.5).entropy())
        if node.type == "MultivariateNormal":
            return float(stats.multivariate_normal(p["mean"], np.linalg.inv(p["precision"])).entropy())
        if node.kind == "positive":
            return float(stats.gamma(p["shape"], scale=1 / p["rate"]).entropy())
        if node.type == "Wishart":
            return float(stats.wishart(p["dof"], np.linalg.inv(p["rate"])).entropy())
        if node.type == "Dirichlet":
            return float(stats.dirichlet(p["concentration"]).entropy())
        if node.type == "Beta":
            return float(stats.beta(p["a"], p["b"]).entropy())
        if node.type == "Poisson":
            log_p = stats.poisson.logpmf(COUNTS, p["rate"])
            return float(-np.sum(np.exp(log_p) * log_p))
        probs = [self.chance((node.name, place), option) for option in self.options((node.name, place))]
        return float(-sum(p * np.log(p) for p in probs if p > 0))

    def options(self, atom: Atom) -> list[Any]:
        """The values of a category, or the paths of a chain."""
        node = self.declaration.nodes[atom[0]]
        if node.type == "MarkovChain":
            return self.paths(atom)[0]
        return list(range(2 if node.type == "Bernoulli" else node.size or 0))

    def chance(self, atom: Atom, choice: Any) -> float:
        node, p = self.declaration.nodes[atom[0]], self.q[atom[0]]
        if node.type == "MarkovChain":
            paths, probs = self.paths(atom)
            return float(probs[paths.index(choice)])
        if node.type == "Bernoulli":
            return float(p["prob"][atom[1]] if choice else 1 - p["prob"][atom[1]])
        return float(p["probs"][atom[1]][choice])

    def paths(self, atom: Atom) -> tuple[list[Place], np.ndarray]:
        """Every path of a chain and its probability under natural parameters: nodes, first states, pairs."""
        if atom not in self._paths:
            node, p = self.declaration.nodes[atom[0]], self.q[atom[0]]
            length = self.declaration.plates[node.plates[-1]].size
            found = list(itertools.product(range(node.size or 0), repeat=length))
            starts = set(np.cumsum((0, *(node.lengths or ())))[:-1].tolist()) if node.lengths else {0}
            logs = np.zeros(len(found))
            for number, path in enumerate(found):
                for t, state in enumerate(path):
                    logs[number] += p["marginals"][atom[1]][t, state]
                    logs[number] += (
                        p["first"][atom[1]][state] if t in starts else p["pairs"][atom[1]][path[t - 1], state]
                    )
            self._paths[atom] = found, np.exp(logs - logsumexp(logs))
        return self._paths[atom]

    def points(self, node: NodeSpec, place: Place, axis: int) -> Points:
        """An element of q as points along its own axis."""
        p = {name: value[place] for name, value in self.q[node.name].items()}
        if node.type == "Normal":
            step = p["precision"] ** -0.5
            return Points(along(np.array([p["mean"] - step, p["mean"] + step]), axis), np.array([0.5, 0.5]))
        if node.type == "MultivariateNormal":
            size = len(p["mean"])
            root = np.linalg.cholesky(np.linalg.inv(p["precision"])) * np.sqrt(size)
            table = np.concatenate([p["mean"] + root.T, p["mean"] - root.T])
            return Points([along(column, axis) for column in table.T], np.full(2 * size, 0.5 / size))
        one = np.ones(1)
        if node.kind == "positive":
            return Points((p["shape"] / p["rate"], digamma(p["shape"]) - np.log(p["rate"])), one)
        if node.type == "Wishart":
            size, dof = len(p["rate"]), p["dof"]
            log = digamma((dof - np.arange(size)) / 2).sum() + size * np.log(2) - np.linalg.slogdet(p["rate"])[1]
            return Points((dof * np.linalg.inv(p["rate"]), log), one)
        if node.type == "Dirichlet":
            return Points(list(digamma(p["concentration"]) - digamma(p["concentration"].sum())), one)
        if node.type == "Beta":
            total = digamma(p["a"] + p["b"])
            return Points((digamma(p["a"]) - total, digamma(p["b"]) - total), one)
        return Points(along(COUNTS, axis), stats.poisson.pmf(COUNTS, p["rate"]))
