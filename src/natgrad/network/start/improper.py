"""Flat priors: a network in; an error with the node's name out, unless the data make its posterior proper.

A prior without an integral (a Normal of precision 0, Gamma(0, 0), Gamma(−½, 0)) is fine where the likelihood has one. What can
be seen before the first step is checked: every element must get enough from its children, whatever their moments are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from natgrad.inference.problem import State
from natgrad.network.compile.polynomial import Take
from natgrad.network.language.continuous import Gamma, MultivariateNormal
from natgrad.network.language.node_helpers import numbers
from natgrad.network.language.nodes import Node
from natgrad.validation import first, where

if TYPE_CHECKING:
    from natgrad.network.execute.problem import NetworkProblem

__all__ = ["check_proper"]


def check_proper(problem: NetworkProblem, state: State) -> None:
    """Refuse flat priors that the data leave without a posterior."""
    for name in problem.plan.improper:
        block = problem.blocks[name]
        _check_gates(problem, name)
        target = tuple(np.asarray(part) for part in problem.target(block, state))
        if (place := first(~np.asarray(block.family.valid(target)))) is not None:
            raise ValueError(
                f"{name!r}: the prior is flat, and the data leave the posterior of {name}{where(place)} improper: too little is "
                "observed that depends on it. Give it a proper prior, or drop it"
            )
        if isinstance(problem.plan.nodes[name], Gamma):
            _check_precision(problem, name)


def _check_gates(problem: NetworkProblem, name: str) -> None:
    """What a hidden category chooses may be chosen by nobody, and then has nothing but its prior."""
    for term in problem.plan.terms_of(name):
        for reading in term.readings.get(name, ()):
            for axis in reading.axes:
                if not isinstance(axis, Take) and axis in term.gates:
                    raise ValueError(
                        f"{name!r}: the prior is flat, but {term.gates[axis]!r} chooses among its elements, and one that nobody "
                        "chooses has no posterior. Give it a proper prior"
                    )


def _check_precision(problem: NetworkProblem, name: str) -> None:
    """A precision with a flat prior: of hidden numbers it must not be free to grow, of data these must not be fitted exactly."""
    node = problem.plan.nodes[name]
    shape = float(np.min(numbers(node.parameters["shape"])))
    children = [term for term in problem.plan.terms_of(name) if term.node != name]
    hidden = [term.node for term in children if term.node in problem.blocks]
    if hidden and shape >= 0 and not np.all(numbers(node.parameters["rate"]) > 0):
        raise ValueError(
            f"{name!r}: Gamma({shape:g}, 0) is no prior for the precision of {hidden[0]!r}, which is hidden: the posterior "
            "piles up at infinity. Gamma(-0.5, 0), flat in the standard deviation, is one, or HalfCauchy"
        )
    flat = {other for term in children for other in term.readings if problem.plan.nodes[other].is_improper} - {name}
    n_flat = sum(_dimension(problem.plan.nodes[other]) for other in flat)
    n_seen = sum(
        len(problem.observed[term.node]) * (problem.plan.nodes[term.node].size or 1)
        for term in children
        if term.node in problem.observed
    )
    if not hidden and n_seen + 2.0 * shape <= n_flat:
        raise ValueError(
            f"{name!r}: the prior is flat, and so are those of {n_flat} numbers that {n_seen} observations depend on: these can "
            "be fitted exactly, and the posterior is improper. Give a proper prior to one of them"
        )


def _dimension(node: Node) -> int:
    """How many numbers of a node have a flat prior."""
    elements = int(np.prod([plate.size for plate in node.plates]))
    if isinstance(node, Gamma):
        return 0
    return elements * (node.size or 1) if isinstance(node, MultivariateNormal) else elements
