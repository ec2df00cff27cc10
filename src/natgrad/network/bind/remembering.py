"""A fit whose rows are gone, and new rows, in; the fit to the new rows, in which the old ones speak through what they told, out.

What rows told a global is what it holds less what the other globals say:  m_i = λ_i − Σ_(terms that are no rows) ∂/∂μ_i.
It stays in the network as the log density of an observation, ⟨(1 − forgetting) m_i, φ(x_i)⟩, conjugate to anything. For one
global block this is the posterior given all rows; for several it is streaming variational Bayes: what the old rows told one block
depended on the others, and is not revised.

How much to keep can be learned (``drift="auto"``, a hierarchical power prior): with a flat prior on ρ in [0, 1], the part of
its message that a block keeps,

    log p(x | ρ) ≥ ρ log q_before(x) + (1 − ρ) log p(x),     q(ρ) ∝ exp(ω ρ),     ω = E_q[log q_before(x) − log p(x)],

where the prior p is what the other globals said before. E[ρ] = 1/(1 − e^−ω) − 1/ω takes turns with the fit: a block that new rows
contradict forgets, the others keep what they know.

Broderick, Boyd, Wibisono, Wilson and Jordan (2013); Masegosa, Nielsen, Langseth, Ramos-López, Salmerón and Madsen (2017).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from natgrad import families
from natgrad.inference.problem import State
from natgrad.network.bind.bound import Binding, aligned, find_domain
from natgrad.network.bind.build import Builder, Domain, made_parents
from natgrad.network.bind.tables import Table
from natgrad.network.bind.updating import warm_state
from natgrad.network.compile.joint_factors import groups_inside, with_joint_factors
from natgrad.network.compile.plan import BEFORE, Plan, make_plan
from natgrad.network.language.columns import RecordedNode
from natgrad.network.language.expressions import REAL
from natgrad.network.language.nodes import Node
from natgrad.network.language.scope import Scope
from natgrad.network.polynomial import Polynomial, number
from natgrad.posterior.factor import Factor

if TYPE_CHECKING:
    from natgrad.network.results.fit import Fit, Settings

__all__ = ["Message", "fit_remembering", "messages_to", "origins_of"]

Stats = tuple[Any, ...]
# How much to keep: rounds at most, sweeps of each, and the change below which it is found.
ROUNDS, FEW, SETTLED = 30, 50, 1e-4
# Blocks up to which each is tried alone.
MOST_SINGLE = 6


@final
class Message(Node):
    """An observation whose log density is ⟨m, φ(x)⟩ for each element of a node x."""

    family = families.Normal()  # only for the shape of a value: a number
    kind = REAL
    slots_of = ()

    def __init__(self, parent: Node, message: Stats) -> None:
        self.name, self.plates, self.size = BEFORE + parent.name, parent.plates, None
        self.parameters = {"of": parent.whole}
        self.is_observed, self.mask, self.entries = True, None, None
        self.value = np.zeros(tuple(plate.size for plate in parent.plates))
        self._parent, self.message = parent, message

    def _event_size(self, observed: Any) -> int | None:
        return None

    def log_density(self, scope: Scope) -> Polynomial:
        total = number(0.0)
        family = self._parent.family
        for name, ndim, part in zip(family.stat_names, family.stat_ndims, self.message, strict=True):
            labels = tuple(scope.fresh("m", size) for size in part.shape[part.ndim - ndim :])
            known = number(float(part)) if part.ndim == 0 else Polynomial.of([scope.constant(part, labels)])
            total = total + known * self._parent.whole.stat(name, scope, labels)
        return total


def fit_remembering(
    binding: Binding,
    factors: Mapping[str, Factor],
    groups: Sequence[tuple[str, ...]],
    settings: Settings,
    t: int,
    rows: Mapping[str, Table],
    forgetting: float | None,
    options: Any,
) -> Fit:
    """The fit to new rows, with what was told before; how much of it still counts is learned if ``forgetting`` is None."""
    template = binding.template
    domain = find_domain(template, rows, binding.domain)
    nodes = Builder(template, aligned(template, rows, domain), domain).nodes()
    told = _told(binding, factors, groups, rows)
    spread = {}
    for name, (message, _) in told.items():
        codes = [_levels_before(binding.domain, domain, plate) for plate in factors[name].plates]
        spread[name] = _spread(message, codes)
    make = _Kept(binding, factors, groups, settings, t, domain, nodes, spread)
    if forgetting is not None:
        return make.fit(dict.fromkeys(spread, 1.0 - forgetting), options)
    loud = [name for name, (message, _) in told.items() if _speaks(message)]
    quick = {**options, "max_steps": FEW, "verbose": False, "callbacks": (), "moves": False}
    learned = [_learned(make, told, start, quick) for start in _starts(list(spread), loud)]
    kept, _ = max(learned, key=lambda pair: pair[1])
    fit = make.fit(kept, options)
    fit.forgotten = {name: 1.0 - kept[name] for name in loud}
    return fit


def _starts(names: list[str], loud: list[str]) -> list[dict[str, float]]:
    """Keep all, none, or all but one: taking turns ends in one of several ways to explain new rows, and the best counts."""
    all_kept = dict.fromkeys(names, 1.0)
    single = [{**all_kept, name: 0.0} for name in loud] if 1 < len(loud) <= MOST_SINGLE else []
    return [all_kept, dict.fromkeys(names, 0.0), *single]


def _learned(
    make: _Kept, told: Mapping[str, tuple[Stats, Stats]], kept: dict[str, float], options: Any
) -> tuple[dict[str, float], float]:
    """The part that each block keeps, in turns with the fit, and the bound with ρ among what is inferred."""
    for _ in range(ROUNDS):
        fit = make.fit(kept, options)
        omega = {name: _contrast(make.factors[name], told[name][1], make.messages[name], fit) for name in kept}
        new = {name: _expected(total) for name, (total, _) in omega.items()}
        change = max((abs(new[name] - kept[name]) for name in kept), default=0.0)
        bound = fit.elbo - sum(kept[name] * inner for name, (_, inner) in omega.items())
        bound += sum(_log_integral(total) for total, _ in omega.values())
        kept = new
        if change < SETTLED:
            break
    return kept, bound


class _Kept(NamedTuple):
    """New rows, and the messages of the old ones, of which any part can be kept."""

    binding: Binding
    factors: Mapping[str, Factor]
    groups: Sequence[tuple[str, ...]]
    settings: Settings
    t: int
    domain: Domain
    nodes: Mapping[str, Node]
    messages: Mapping[str, Stats]

    def fit(self, kept: Mapping[str, float], options: Any) -> Fit:
        """The fit in which each block keeps a part of its message."""
        from natgrad.network.fit_run import FitRun
        from natgrad.network.network import Network

        template = self.binding.template
        every = {**made_parents(template), **self.nodes}
        still = {name: tuple(kept[name] * part for part in message) for name, message in self.messages.items()}
        messages = [Message(every[name], message) for name, message in still.items() if name in every]
        roots = [self.nodes[root.name] if isinstance(root, RecordedNode) else root for root in template.roots]
        network = Network(*roots, *messages)
        # What was told is measured from where the old fit measured.
        plan = make_plan(list(network.nodes.values()), origins_of(self.factors))
        plan = with_joint_factors(plan, groups_inside(self.groups, plan))
        for name in still.keys() - every.keys():
            plan = _with_message(plan, name, still[name])
        network._plan = plan
        problem = network.problem
        shared = {name: factor for name, factor in self.factors.items() if name in self.messages}
        state = warm_state(problem, shared, self.binding.domain, self.domain, {}, self.t)
        fit = FitRun.continued(network.source, self.settings, None, None, options).run(state)
        return fit.bound_to(Binding(template, self.domain))


def _contrast(factor: Factor, said: Stats, message: Stats, fit: Fit) -> tuple[float, float]:
    """ω = E_q[log q_before − log p], over all elements of a block, and ⟨m, μ⟩, its first part; new levels were told nothing."""
    family, now = factor.family, fit[factor.name]
    inner = float(np.sum(family.inner(message, now.family.expected_stats(now.lam))))
    before = family.log_normalizer(factor.lam)
    normalisers = np.broadcast_to(before - family.log_normalizer(said), np.shape(before))
    if not np.all(np.isfinite(normalisers)):
        raise ValueError(
            f'drift="auto" compares what {factor.name!r} learned with its prior, which is flat: give it a proper prior, or '
            "forgetting= a number"
        )
    return inner - float(np.sum(normalisers)), inner


def _log_integral(omega: float) -> float:
    """Log ∫ exp(ω ρ) dρ over [0, 1]."""
    if abs(omega) < 1e-3:
        return omega / 2.0 + omega**2 / 24.0
    return float(max(omega, 0.0) + np.log(-np.expm1(-abs(omega))) - np.log(abs(omega)))


def _expected(omega: float) -> float:
    """E[ρ] of a density exp(ω ρ) on [0, 1]."""
    if abs(omega) < 1e-3:
        return 0.5 + omega / 12.0
    return float(-1.0 / np.expm1(-omega) - 1.0 / omega) if omega > -700 else float(-1.0 / omega)


def _speaks(message: Stats) -> bool:
    return any(np.any(part != 0) for part in message)


def _with_message(plan: Plan, name: str, message: Stats) -> Plan:
    """The plan with an observation that speaks to a joint factor."""
    node = Message(plan.nodes[name], message)
    own = make_plan([plan.nodes[name], node], plan.origins)
    known, terms = {**plan.known, **own.known}, {**plan.terms, node.name: own.terms[node.name]}
    return replace(plan, nodes={**plan.nodes, node.name: node}, terms=terms, known=known)


def _told(
    binding: Binding, factors: Mapping[str, Factor], groups: Sequence[tuple[str, ...]], rows: Mapping[str, Table]
) -> dict[str, tuple[Stats, Stats]]:
    """What rows told every global of the fit, and what the other globals say to it."""
    template = binding.template
    outside = [name for name, node in template.nodes.items() if name in factors and not _in_rows(binding, name)]
    side = {plate: rows[plate] for plate in rows if plate in template.level_plates}
    made = Builder(template, aligned(template, side, binding.domain), binding.domain).nodes(outside)
    nodes = {**made_parents(template), **{name: made[name] for name in outside}}
    return messages_to(nodes, factors, groups)


def messages_to(
    nodes: Mapping[str, Node], factors: Mapping[str, Factor], groups: Sequence[tuple[str, ...]] = ()
) -> dict[str, tuple[Stats, Stats]]:
    """What the rest of a network told these nodes, whose parents are among them, and what they say to one another.

    Nodes of one of the ``groups`` share a factor.
    """
    from natgrad.network.execute.problem import NetworkProblem

    plan = make_plan(list(nodes.values()), origins_of(factors))
    problem = NetworkProblem(with_joint_factors(plan, groups_inside(groups, plan)), "numpy")
    lam = {name: tuple(map(np.asarray, factors[name].lam)) for name in problem.blocks}
    state = State(lam, {name: problem.moments(problem.blocks[name], lam[name]) for name in lam}, 0)
    messages = {}
    for name, block in problem.blocks.items():
        if problem.plan.nodes[name].is_auxiliary:  # no row speaks to it
            continue
        said = problem.target(block, state)
        message = tuple(np.asarray(a) - np.asarray(b) for a, b in zip(lam[name], said, strict=True))
        messages[name] = message, tuple(map(np.asarray, said))
    return messages


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


def origins_of(factors: Mapping[str, Factor]) -> dict[str, Any]:
    """Where the factors of a fit are measured from."""
    return {name: factor.origin for name, factor in factors.items() if factor.origin is not None}
