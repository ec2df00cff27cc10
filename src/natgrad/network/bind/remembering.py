"""A fit whose rows are gone, and new rows, in; the fit to the new rows, in which the old ones speak through what they told, out.

What rows told a global is what it holds less what the other globals say:  m_i = λ_i − Σ_(terms that are no rows) ∂/∂μ_i.
It stays in the network as the log density of an observation, ⟨(1 − forgetting) m_i, φ(x_i)⟩, conjugate to anything. For one
global block this is the posterior given all rows; for several it is streaming variational Bayes: what the old rows told one block
depended on the others, and is not revised.

Broderick, Boyd, Wibisono, Wilson and Jordan (2013).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

import numpy as np

from natgrad import families
from natgrad.inference.engine import Result
from natgrad.inference.problem import State
from natgrad.inference.trace import Reason, Stop, Trace
from natgrad.network.bind.bound import Binding, aligned, find_domain
from natgrad.network.bind.build import Domain, build_nodes
from natgrad.network.bind.tables import Table
from natgrad.network.bind.template import made_parents
from natgrad.network.bind.updating import warm_state
from natgrad.network.compile.plan import make_plan
from natgrad.network.compile.polynomial import Polynomial, number
from natgrad.network.language.columns import RecordedNode
from natgrad.network.language.expressions import REAL
from natgrad.network.language.nodes import Node
from natgrad.network.language.scope import Scope
from natgrad.posterior.factor import Factor

if TYPE_CHECKING:
    from natgrad.network.results.fit import Fit, Settings

__all__ = ["Message", "fit_remembering"]

Stats = tuple[Any, ...]


@final
class Message(Node):
    """An observation whose log density is ⟨m, φ(x)⟩ for each element of a node x."""

    family = families.Normal()  # only for the shape of a value: a number
    kind = REAL
    slots_of = ()

    def __init__(self, parent: Node, message: Stats) -> None:
        self.name, self.plates, self.size = f"rows before, of {parent.name}", parent.plates, None
        self.parameters = {"of": parent.whole}
        self.is_observed, self.mask, self.entries = True, None, None
        self.value = np.zeros(tuple(plate.size for plate in parent.plates))
        self._parent, self._message = parent, message

    def _event_size(self, observed: Any) -> int | None:
        return None

    def log_density(self, scope: Scope) -> Polynomial:
        total = number(0.0)
        family = self._parent.family
        for name, ndim, part in zip(family.stat_names, family.stat_ndims, self._message, strict=True):
            labels = tuple(scope.fresh("m", size) for size in part.shape[part.ndim - ndim :])
            known = number(float(part)) if part.ndim == 0 else Polynomial.of([scope.constant(part, labels)])
            total = total + known * self._parent.whole.stat(name, scope, labels)
        return total


def fit_remembering(
    binding: Binding,
    factors: Mapping[str, Factor],
    settings: Settings,
    t: int,
    rows: Mapping[str, Table],
    forgetting: float,
    options: Any,
) -> Fit:
    """The fit to new rows, with what was told before."""
    from natgrad.network.network import Network
    from natgrad.network.results.fit import Fit

    template = binding.template
    domain = find_domain(template, rows, binding.domain)
    nodes = build_nodes(template, aligned(template, rows, domain), domain)
    every = {**made_parents(template), **nodes}
    told = _told(binding, factors, rows)
    messages = []
    for name, message in told.items():
        factor = factors[name]
        codes = [_levels_before(binding.domain, domain, plate) for plate in factor.plates]
        kept = tuple((1.0 - forgetting) * part for part in message)
        messages.append(Message(every[name], _spread(kept, codes)))
    roots = [nodes[root.name] if isinstance(root, RecordedNode) else root for root in template.roots]
    network = Network(*roots, *messages)
    # What was told is measured from where the old fit measured.
    network._plan = make_plan(list(network.nodes.values()), _origins(factors))
    problem = network.problem
    shared = {name: factor for name, factor in factors.items() if name in told}
    state = warm_state(problem, shared, binding.domain, domain, {}, t)
    going = Fit(problem, Result(state, Trace(), Stop(Reason.CALLBACK, "the run goes on")), settings, network._continue)
    return network._continue(going, None, **options).bound_to(Binding(template, domain))


def _told(binding: Binding, factors: Mapping[str, Factor], rows: Mapping[str, Table]) -> dict[str, Stats]:
    """What rows told every global of the fit."""
    from natgrad.network.execute.problem import NetworkProblem

    template = binding.template
    outside = [name for name, node in template.nodes.items() if name in factors and not _in_rows(binding, name)]
    side = {plate: rows[plate] for plate in rows if plate in template.level_plates}
    made = build_nodes(template, aligned(template, side, binding.domain), binding.domain, only=outside)
    nodes = {**made_parents(template), **{name: made[name] for name in outside}}
    problem = NetworkProblem(make_plan(list(nodes.values()), _origins(factors)), "numpy")
    lam = {name: factors[name].lam for name in problem.blocks}
    state = State(lam, {name: problem.moments(problem.blocks[name], lam[name]) for name in lam}, 0)
    found = {}
    for name, block in problem.blocks.items():
        if problem.plan.nodes[name].is_auxiliary:  # no row speaks to it
            continue
        said = problem.target(block, state)
        found[name] = tuple(np.asarray(a) - np.asarray(b) for a, b in zip(lam[name], said, strict=True))
    return found


def _in_rows(binding: Binding, name: str) -> bool:
    node, template = binding.template.nodes[name], binding.template
    rows = {plate for plate in template.tables if plate not in template.level_plates}
    return any(plate.name in rows for plate in node.plates)


def _levels_before(before: Domain, after: Domain, plate: str) -> Any:
    return before.levels[plate].find(after.levels[plate].ids) if plate in after.levels else None


def _spread(message: Stats, codes: list[Any]) -> Stats:
    """A message to the levels that there are now; those that are new were told nothing."""
    for axis, numbers in enumerate(codes):
        if numbers is not None:
            taken = tuple(np.take(part, np.maximum(numbers, 0), axis=axis) for part in message)
            for part in taken:
                part[(slice(None),) * axis + (numbers < 0,)] = 0.0
            message = taken
    return message


def _origins(factors: Mapping[str, Factor]) -> dict[str, Any]:
    return {name: factor.origin for name, factor in factors.items() if factor.origin is not None}
