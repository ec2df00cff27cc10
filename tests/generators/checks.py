"""What must hold for every random network: each check raises an AssertionError that says what differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from generators.build import Params, build, q_of, random_q, state_of
from generators.evidence import log_evidence
from generators.networks import Declaration, commuted, parents, redeclared, renamed, transposed
from generators.reference import Reference
from generators.walk import elements

import natgrad as ng
from natgrad.errors import NotAdditive, NotConjugate, PlateMismatch
from natgrad.inference.engine import Limits, Phase, run
from natgrad.inference.problem import State
from natgrad.inference.steppers.groups import GroupStepper
from natgrad.network.results.psis import _log_weights

# Sums of a few hundred terms of order 1 … 1e3: rounding stays some digits below this.
RTOL = 1e-9
REFUSALS = (NotConjugate, PlateMismatch)


class Case:
    """A declaration, its network, and a state far from any optimum."""

    def __init__(self, seed: int, declaration: Declaration, backend: str = "numpy") -> None:
        self.seed, self.declaration, self.backend = seed, declaration, backend
        self.rng = np.random.default_rng([seed, 1])
        self.network = build(declaration)
        self.problem = self.network.problem_on(backend)
        self.q = random_q(declaration, self.rng)
        self.state = state_of(self.network, self.q)
        self.order = tuple(str(name) for name in self.rng.permutation(list(self.problem.blocks)))


def close(got: float, wanted: float, what: str) -> None:
    assert abs(got - wanted) <= RTOL * (1.0 + abs(wanted)), f"{what}: {got!r}, but the reference has {wanted!r}"


def check_bound(case: Case, state: State | None = None) -> None:
    """Every term of the bound is what the reference finds."""
    state = case.state if state is None else state
    reference = Reference(case.declaration, q_of(case.network, state))
    got = case.problem.bound_by_node(state)
    assert set(got) == set(case.declaration.nodes), "the network has other nodes than the declaration"
    for name, node in case.declaration.nodes.items():
        wanted = reference.term(node) + (reference.entropy(node) if node.hidden else 0.0)
        close(got[name], wanted, f"term {name!r}")


def check_weights(case: Case, n: int = 100) -> None:
    """The importance weights of draws from q average, as logarithms, to the bound."""
    bound = case.problem.bound(case.state)
    for n_draws in (
        n,
        50 * n,
    ):  # a value of probability below 1 / n may be in no draw, and then the spread says nothing
        weights = _log_weights(case.problem, case.state, n_draws, case.rng)
        error = weights.std() / np.sqrt(n_draws)
        if abs(weights.mean() - bound) <= 6 * error + RTOL * (1.0 + abs(bound)):
            return
    raise AssertionError((weights.mean(), bound, error))


def check_targets(case: Case) -> None:
    """Targets are the slopes of the reference's E[log p]: it is linear in the moments of one element."""
    other = random_q(case.declaration, case.rng)
    for name, block in case.problem.blocks.items():
        node = case.declaration.nodes[name]
        places = list(elements(case.declaration, node))
        place = places[int(case.rng.integers(len(places)))]
        moved: Params = {**case.q, name: {key: np.array(value) for key, value in case.q[name].items()}}
        for key, value in other[name].items():
            moved[name][key][place] = value[place]
        touched = [n for n in case.declaration.nodes.values() if n.name == name or name in parents(n)]
        before, after = Reference(case.declaration, case.q), Reference(case.declaration, moved)
        wanted = sum(after.term(n) - before.term(n) for n in touched)
        mu = [state_of(case.network, q).mu[name] for q in (case.q, moved)]
        target = case.problem.target(block, case.state)
        weight = case.declaration.weight(node.block_plates, dict(zip(node.block_plates, place, strict=True)))
        got = weight * sum(float(np.sum(np.asarray(t) * (b - a))) for t, a, b in zip(target, *mu, strict=True))
        scale = sum(abs(before.term(n)) for n in touched)
        assert abs(got - wanted) <= RTOL * (1.0 + scale), (
            f"target of {name!r} at {place}: slope {got!r}, reference {wanted!r}"
        )


def check_sweeps(case: Case, sweeps: int = 2) -> State:
    """Exact sweeps never lower the bound, hand over the bound they reach, and reach one that the reference confirms."""
    state, last = case.state, case.problem.bound(case.state)
    for number in range(sweeps):
        result = case.problem.sweep(state, case.order)
        state, bound = result.state, case.problem.bound(result.state)
        close(result.bound, bound, f"the bound that sweep {number} hands over")
        assert bound >= last - RTOL * (1.0 + abs(last)), f"sweep {number} lowers the bound from {last!r} to {bound!r}"
        last = bound
    if np.isfinite(last):
        check_bound(case, state)
    return state


def check_evidence(case: Case, state: State) -> None:
    """The bound is below the exact evidence, and equal to it where q has the form of the posterior."""
    found = log_evidence(case.declaration)
    if found is None:
        return
    bound = case.problem.bound(state)
    assert bound <= found.value + 1e-7 * (1.0 + abs(found.value)), f"bound {bound!r} above the evidence {found.value!r}"
    if found.one_element:
        assert abs(bound - found.value) <= 1e-7 * (1.0 + abs(bound)), f"bound {bound!r}, exact evidence {found.value!r}"


def check_variants(case: Case, only: int | None = None, sweeps: int = 1) -> None:
    """Names, the order of plates, arguments and declarations mean nothing: same terms, same state after a sweep.

    ``only`` is the number of the one variant to try; all by default.
    """
    d, rng = case.declaration, case.rng
    ours = {name: case.problem.bound_by_node(case.state)[name] for name in d.nodes}
    swept = q_of(case.network, _swept(case.problem, case.state, case.order, sweeps))
    other_names, names = renamed(d, rng)
    same, (turned, axes) = {name: name for name in d.nodes}, transposed(d)
    variants: list[Any] = [
        ("names", other_names, names, {}),
        ("sides of sums and products", commuted(d), same, {}),
        ("order of declaration", redeclared(d, rng), same, {}),
        ("order of plates", turned, same, axes),
    ]
    for what, variant, name_of, order in variants if only is None else [variants[only % 4]]:
        network = build(variant)
        state = state_of(network, {name_of[n]: _turned(d, n, p, order) for n, p in case.q.items()})
        problem = network.problem_on(case.backend)
        theirs = problem.bound_by_node(state)
        for name, value in ours.items():
            close(theirs[name_of[name]], value, f"other {what}: term {name!r}")
        # Which element comes first among those that must not move together depends on the order of the plates.
        if order and any(b.colours is not None and len(b.shape) > 1 for b in case.problem.blocks.values()):
            continue
        found = q_of(network, _swept(problem, state, tuple(name_of[n] for n in case.order), sweeps))
        for name, wanted in swept.items():
            for key, value in _turned(d, name, wanted, order).items():
                np.testing.assert_allclose(
                    found[name_of[name]][key],
                    value,
                    rtol=1e-8,
                    atol=1e-8,
                    err_msg=f"other {what}: {key} of q({name!r})",
                )


def check_methods(case: Case, only: int | None = None) -> None:
    """A step of length one on all the data is a sweep, whoever draws; ``only`` is the number of the one method to try."""
    n_observed = sum(len(present) for present in case.problem.observed.values())
    read = {name: any(s.observed for s in case.problem.child_sets(name)) for name in case.order}
    # A global batch updates what no observation reads after the rest.
    after = tuple(sorted(case.order, key=lambda name: not read[name]))
    methods: list[Any] = [(ng.Children(10**6), case.order), (ng.GlobalBatch(n_observed), after)]
    for method, order in methods if only is None else [methods[only % 2]]:
        wanted = q_of(case.network, case.problem.sweep(case.state, order).state)
        found = q_of(case.network, _one_step(case, method))
        for name, parameters in wanted.items():
            for key, value in parameters.items():
                np.testing.assert_allclose(
                    found[name][key], value, rtol=1e-8, atol=1e-8, err_msg=f"{method}: {key} of q({name!r})"
                )


def check_svi(case: Case, every: bool = True) -> None:
    """All groups at once with steps of length one: local variables at their optimum, then a sweep over the global ones.

    Globals that the order has before all local variables see the start of these first. For every plate that can be sampled, or
    for the first.
    """
    for method, stepper in _sampled(case):
        after, start = _one_step(case, method), case.state
        groups = stepper.problem.source.groups
        local, others = groups.local, groups.globals
        if stepper.problem.leading:
            start = case.problem.sweep(start, stepper.problem.leading).state
        between = State(
            {**start.lam, **{name: after.lam[name] for name in local}},
            {**start.mu, **{name: after.mu[name] for name in local}},
            0,
        )
        wanted = q_of(case.network, case.problem.sweep(between, others).state if others else between)
        for name in local:
            target = case.problem.target(case.problem.blocks[name], between)
            for found, optimum in zip(after.lam[name], target, strict=True):
                np.testing.assert_allclose(found, optimum, rtol=1e-5, atol=1e-5, err_msg=f"{method}: local {name!r}")
        found = q_of(case.network, after)
        for name in others:
            for key, value in wanted[name].items():
                np.testing.assert_allclose(
                    found[name][key], value, rtol=1e-7, atol=1e-7, err_msg=f"{method}: {key} of q({name!r})"
                )
        if not every:
            return


def check_memoised(case: Case, every: bool = True) -> None:
    """Passes in batches of one group: the bound that comes for free is the exact one, and never falls.

    For every plate that can be sampled, or for the first.
    """
    for method, plain in _sampled(case):
        n = plain.problem.n_groups
        try:
            one = replace(method, batch={method.plate: 1})
            groups = case.problem.grouping.remembered(one, case.order)
            stepper = GroupStepper(groups, 1, one.local_tol, one.local_steps, remember=True)
        except NotAdditive:  # takes steps instead, with a word
            continue
        state, last = case.state, -np.inf
        for number in range(2 * n):
            state, info = stepper.step(state, case.seed)
            if number < n - 1:
                continue
            assert info.bound is not None
            close(
                info.bound, case.problem.bound(stepper.finish(state)), f"memoised {method}: the bound of step {number}"
            )
            assert info.bound >= last - RTOL * (1.0 + abs(last)), f"memoised {method}: step {number} lowers the bound"
            last = info.bound
        if not every:
            return


def _sampled(case: Case) -> Iterator[tuple[Any, Any]]:
    """SVI on each plate that can be sampled, and its stepper."""
    for plate in case.declaration.plates.values():
        method = ng.SVI({plate.name: plate.size}, local_tol=1e-11, local_steps=3000)
        try:
            groups = case.problem.grouping.along(method, case.order)
            limits = method.size, method.local_tol, method.local_steps
            yield method, GroupStepper(groups, *limits, ng.Constant(1.0), remember=False)
        except (PlateMismatch, ValueError) as error:
            if "SVI: " not in str(error) and "Sample another plate" not in str(error):
                raise


def _one_step(case: Case, method: Any) -> State:
    phase = Phase(case.problem, method, ng.Constant(1.0), case.order, bound_every=1)
    result = run(phase, case.state, limits=Limits(1, 0.0), seed=case.seed, verbose=False)
    return result.state


def _swept(problem: Any, state: State, order: tuple[str, ...], sweeps: int) -> State:
    for _ in range(sweeps):
        state = problem.sweep(state, order).state
    return state


def _turned(declaration: Declaration, name: str, parameters: Any, order: dict[str, list[int]]) -> dict[str, np.ndarray]:
    """Parameters of q with their plates in another order."""
    n = len(declaration.nodes[name].block_plates)
    axes = [axis for axis in order.get(name, range(n)) if axis < n]
    return {key: np.transpose(v, [*axes, *range(n, v.ndim)]) for key, v in parameters.items()}
