"""Sampled steps with remembered messages: a pass reads every edge once, checks never fall, runs go on to the bit."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from message_problems import ORDER, make, ratings, stepper_of

import natgrad as ng
from natgrad.inference.engine import Limits, Phase, run
from natgrad.inference.problem import State
from natgrad.inference.steppers.message_memory import KEY, _copied
from natgrad.models.factorization import messages as rating_messages
from natgrad.threads import at_most

# What is remembered is in single precision: 6e-8 of each number, times what a solve makes of it.
SINGLE = {"rtol": 1e-5, "atol": 1e-5}


# -- sweeps and stationary points --


@pytest.mark.parametrize(
    "empty",
    [0, 2],
    ids=["every row has ratings", "rows without ratings"],
)
def test_reading_every_edge_from_fresh_rows_is_an_exact_joint_sweep(empty):
    problem = make(2, 3, 0.7, 1.3, empty=empty)
    state = problem.start(0)
    stepper = stepper_of(problem)
    memory = problem.message_memory.begin(state)
    found = stepper._read_all(state, memory)
    wanted = problem.sweep_jointly(state, ORDER)
    for name in ORDER:
        for a, b in zip(
            (*found.lam[name], *found.mu[name]), (*wanted.state.lam[name], *wanted.state.mu[name]), strict=True
        ):
            np.testing.assert_allclose(a, b, **SINGLE)
    assert problem.bound(found) == pytest.approx(wanted.bound, rel=1e-6)


def test_when_nothing_moves_every_natural_gradient_is_zero():
    problem = make(3, 2)
    phase = Phase(problem, ng.Children(1), ng.Auto(rotate=False), ORDER, bound_every=500)
    result = run(phase, problem.start(1), limits=Limits(1000, 0.0), seed=0)
    assert result.trace["relative_change"][-20:].max() < 1e-4
    for name, block in problem.blocks.items():
        for target, lam in zip(problem.target(block, result.state), result.state.lam[name], strict=True):
            np.testing.assert_allclose(target, lam, rtol=1e-3, atol=1e-3)
    # And the other way round: an optimum of exact sweeps is left alone.
    exact = result.state
    for _ in range(500):
        exact = problem.sweep_jointly(exact, ORDER).state
    stepper = stepper_of(problem, use_rotation=False)
    still, memory = stepper._read_all(exact, memory := problem.message_memory.begin(exact)), memory
    for t in range(8):
        for name in ORDER:
            rows, target = problem.message_memory.read(name, still, memory, stepper._next(name, t, 0), 1.0)
            for a, b in zip(target, still.lam[name], strict=True):
                np.testing.assert_allclose(a, b[rows], rtol=1e-4, atol=1e-4)


# -- which edges are read --


def test_a_pass_over_children_reads_every_edge_once_from_each_side():
    problem = make()  # 20 rows, 2 · 40 edges: a pass is four rounds
    stepper = stepper_of(problem)
    assert stepper.rate == 0.25
    for name in ORDER:
        for first in (0, 4, 11):
            read = np.concatenate([stepper._next(name, turn, 5) for turn in range(first, first + 4)])
            np.testing.assert_array_equal(np.sort(read), np.arange(40))


@given(st.integers(0, 50), st.integers(1, 30), st.integers(0, 5), st.integers(21, 90))
@settings(max_examples=40)
def test_edges_of_a_row_are_read_equally_often_and_rows_by_their_degree(seed, matrices, which, n):
    problem = make(which, 1, n=n)
    stepper = stepper_of(problem)
    for name in ORDER:
        children = stepper.sets[name]
        times = np.zeros(n)
        for turn in range(matrices):
            positions = stepper._next(name, turn, seed)
            assert (np.diff(positions) > 0).all()  # sorted, none twice
            times[positions] += 1
        for row, degree in enumerate(children.degree):
            here = times[children.start[row] : children.start[row + 1]]
            assert here.max() - here.min() <= 1
            assert abs(here.sum() - matrices * stepper.rate * degree) < 1.0 + 1e-9


@pytest.mark.parametrize("size", [8, 10, 7])
def test_a_pass_over_batches_reads_every_rating_once_and_from_both_sides(size):
    problem = make()
    stepper = stepper_of(problem, ng.GlobalBatch(size))
    seen = []
    for turn in range(40 // size):
        mine, theirs = (np.sort(stepper.sets[name].children[stepper._next(name, turn, 2)]) for name in ORDER)
        np.testing.assert_array_equal(mine, theirs)
        assert len(mine) == size
        seen.append(mine)
    read = np.sort(np.concatenate(seen))
    assert len(np.unique(read)) == len(read) == size * (40 // size)
    again = [stepper.sets["u"].children[stepper._next("u", turn, 2)] for turn in range(math.ceil(40 / size))]
    np.testing.assert_array_equal(np.unique(np.concatenate(again)), np.arange(40))


# -- moves --


@pytest.mark.parametrize("method", [ng.Children(1, "b"), ng.GlobalBatch(10, "b")], ids=str)
def test_option_b_moves_all_together_by_its_part_of_the_way(method):
    """β_i = 1/(1 + (ω − 1) c_i/N_i), ω = 2: both sides read the same old state."""
    problem = make(4)
    start = problem.start(3)
    stepper = stepper_of(problem, method)
    after, info = stepper.step(start, 9)
    memory = problem.message_memory.begin(start)
    reads = 0
    for name in ORDER:
        positions = stepper._next(name, 0, 9)
        reads += len(positions) * 3
        rows, target = problem.message_memory.read(name, _copied(start), memory, positions, 1.0)
        children = stepper.sets[name]
        read = np.array([(children.key_of_child[positions] == row).sum() for row in rows])
        beta = 1.0 / (1.0 + read / children.degree[rows])
        assert (beta < 1.0).all()
        for new, old, wanted in zip(after.lam[name], start.lam[name], target, strict=True):
            moved = np.array(old)
            moved[rows] = old[rows] + beta[:, None] * (wanted - old[rows])
            np.testing.assert_allclose(new, moved, rtol=1e-12)
    assert info.messages_read == reads
    assert info.bound is None


def test_the_state_given_in_is_not_changed():
    problem = make()
    start = problem.start(0)
    copy = _copied(start)
    stepper_of(problem).step(start, 0)
    for name in ORDER:
        np.testing.assert_array_equal(start.lam[name][0], copy.lam[name][0])


# -- checks --


def checks_of(stepper, state, seed, steps):
    """The bounds at the checks of a run, and its last state."""
    bounds = []
    for _ in range(steps):
        state, info = stepper.step(state, seed)
        if info.bound is not None:
            bounds.append(info.bound)
    return np.array(bounds), state


@pytest.mark.parametrize(
    "method", [ng.Children(1), ng.Children(2, "b"), ng.GlobalBatch(8), ng.GlobalBatch(8, "b")], ids=str
)
@pytest.mark.parametrize("use_rotation", [True, False])
def test_the_bounds_at_the_checks_never_fall(method, use_rotation):
    problem = make(5, 4)
    bounds, state = checks_of(stepper_of(problem, method, use_rotation), problem.start(0), 1, 60)
    assert len(bounds) >= 5
    # What is remembered is in single precision.
    assert np.diff(bounds).min() >= -1e-7 * np.abs(bounds).max()
    _, last = state.memory[KEY]
    assert last.bound == bounds[-1]
    assert last.checks == len(bounds)
    assert problem.bound(State(last.lam, last.mu, 0)) == pytest.approx(last.bound, rel=1e-12)


def test_a_bound_that_fell_brings_back_the_last_check_swept(monkeypatch):
    problem = make(6)
    stepper = stepper_of(problem, use_rotation=False)
    state, bounds = problem.start(2), []
    while len(bounds) < 2:
        state, info = stepper.step(state, 4)
        bounds += [] if info.bound is None else [info.bound]
    _, last = state.memory[KEY]
    true, calls = problem.bound, []

    def fallen(state):
        calls.append(state)
        return last.bound - 1.0 if len(calls) == 1 else true(state)

    monkeypatch.setattr(problem, "bound", fallen)
    info = None
    while info is None or info.bound is None:
        state, info = stepper.step(state, 4)
    monkeypatch.undo()
    _, now = state.memory[KEY]
    wanted = problem.sweep_jointly(State(last.lam, last.mu, 0), ORDER)
    assert len(calls) == 2
    assert now.restored == last.restored + 1 == 1
    assert now.over == 1.0 + (last.over - 1.0) / 2
    assert info.bound == pytest.approx(wanted.bound, rel=1e-7)
    assert info.bound >= bounds[-1]
    for name in ORDER:
        np.testing.assert_allclose(state.lam[name][0], wanted.state.lam[name][0], **SINGLE)
    bounds, _ = checks_of(stepper, state, 4, 40)
    assert bounds.min() >= info.bound - 1e-7 * abs(info.bound)


def test_a_turn_that_fell_is_given_up_before_anything_is_restored():
    problem = make(6)
    stepper = stepper_of(problem)
    bounds, state = checks_of(stepper, problem.start(2), 4, 10)
    memory, last = state.memory[KEY]
    assert last.use_rotation
    prior = problem.prior()  # a saddle below every fit, which neither a turn nor a sweep leaves
    back, now, sweeps = stepper._check(prior._replace(t=state.t), memory, last)
    assert sweeps == 3
    assert not now.use_rotation
    assert now.restored == 1
    assert now.bound >= bounds[-1]
    assert problem.bound(back) == pytest.approx(now.bound, rel=1e-12)


# -- promises --


@pytest.mark.parametrize("method", [ng.Children(1), ng.Children(1, "b"), ng.GlobalBatch(7)], ids=str)
@pytest.mark.parametrize("half", [1, 3, 13])
def test_going_on_is_exact_to_the_bit_and_changes_nothing_of_the_first_run(method, half):
    problem = make(7)

    def go(state, steps):
        return run(Phase(problem, method, ng.Auto(), ORDER), state, limits=Limits(steps, 0.0), seed=3)

    whole = go(problem.start(1), 16)
    assert "remembered messages" in whole.trace.strategy
    first = go(problem.start(1), half)
    means = np.array(first.state.lam["u"][0])
    rest, again = go(first.state, 16 - half), go(first.state, 16 - half)
    np.testing.assert_array_equal(first.state.lam["u"][0], means)
    for name in ORDER:
        for a, b, c in zip(whole.state.lam[name], rest.state.lam[name], again.state.lam[name], strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(a, c)
    np.testing.assert_array_equal(rest.trace["elbo"], whole.trace["elbo"][half:])


def test_the_estimator_goes_on_exactly_and_the_seed_decides():
    bare = {
        "noise": 1.0,
        "priors": ng.recommenders.FactorPriors(precision=1.0, biases=False, factorized=True),
    }
    options = {"n_factors": 2, "method": ng.Children(1), "tol": 0.0, **bare}
    data = ratings(8)
    whole, twin, other = (ng.MatrixFactorization(max_steps=9, seed=seed, **options).fit(data) for seed in (5, 5, 6))
    parts = ng.MatrixFactorization(max_steps=4, seed=5, **options).fit(data).continue_fit(max_steps=5)
    for fit in (twin, parts):
        np.testing.assert_array_equal(fit.user_factors_.mean, whole.user_factors_.mean)
        np.testing.assert_array_equal(fit.trace_["elbo"], whole.trace_["elbo"])
        np.testing.assert_array_equal(fit.trace_["messages_read"], whole.trace_["messages_read"])
    assert not np.array_equal(other.user_factors_.mean, whole.user_factors_.mean)


def test_going_on_from_exact_sweeps_starts_where_they_ended_and_forgets_older_messages():
    problem, seed = make(9), 0

    def go(state, method, step, steps):
        return run(Phase(problem, method, step, ORDER), state, limits=Limits(steps, 0.0), seed=seed)

    sampled = go(problem.start(0), ng.Children(1), ng.Auto(rotate=False), 6)
    exact = go(sampled.state, ng.VB(), ng.Constant(1.0), 400)
    assert KEY not in exact.state.memory
    on = go(exact.state, ng.Children(1), ng.Auto(rotate=False), 4)
    reached = exact.trace["elbo"][-1]
    assert on.trace["elbo"].min() >= reached - 1e-5 * abs(reached)


def test_threads_change_no_bit(monkeypatch):
    monkeypatch.setattr(rating_messages, "FEW", 0)
    problem = make(0, 3, n_users=60, n_items=40, n=900)
    found = []
    for threads in (1, None):
        with at_most(threads):
            _, state = checks_of(stepper_of(problem), problem.start(0), 0, 12)
        found.append([*state.lam["u"], *state.lam["v"]])
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
