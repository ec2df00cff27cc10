"""The ready model gives the numbers of the network that declares it: the same samples, the same λ, the same bound."""

from functools import cache

import numpy as np
import pytest
from marking import some_slow

import natgrad as ng
from natgrad.inference.engine import Limits, Phase, run
from natgrad.models.factorization.scalar_problem import RatingsProblem

N_USERS, N_ITEMS, N_RATINGS, N_FACTORS = 9, 7, 40, 3
ALPHA, TAU = 0.7, 1.3
ORDER = ("v", "u")
# The kernels sum in another order; over twenty steps that stays far below this.
TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


def triples():
    rng = np.random.default_rng(5)
    # The last user and the last item have no rating.
    cells = rng.choice((N_USERS - 1) * (N_ITEMS - 1), N_RATINGS, replace=False)
    return cells // (N_ITEMS - 1), cells % (N_ITEMS - 1), rng.integers(1, 6, N_RATINGS).astype(float)


@cache
def network(factorized: bool) -> ng.Network:
    users, items, values = triples()
    user, item, rating = ng.Plate("user", N_USERS), ng.Plate("item", N_ITEMS), ng.Plate("rating", N_RATINGS)
    if factorized:
        factor = ng.Plate("factor", N_FACTORS)
        u = ng.Normal("u", 0.0, ALPHA, plate=(user, factor))
        v = ng.Normal("v", 0.0, ALPHA, plate=(item, factor))
    else:
        u = ng.MultivariateNormal("u", np.zeros(N_FACTORS), ALPHA * np.eye(N_FACTORS), plate=user)
        v = ng.MultivariateNormal("v", np.zeros(N_FACTORS), ALPHA * np.eye(N_FACTORS), plate=item)
    return ng.Network(ng.Normal("r", ng.dot(u[users], v[items]), TAU, plate=rating, observed=values))


@cache
def problem(factorized: bool) -> RatingsProblem:
    ratings = ng.Ratings(*triples(), shape=(N_USERS, N_ITEMS))
    return RatingsProblem(ratings, N_FACTORS, ALPHA, TAU, factorized)


@pytest.mark.parametrize("factorized", [True, False])
def test_blocks_children_coupling_and_start_are_those_of_the_network(factorized):
    ours, declared = problem(factorized), network(factorized).problem
    assert dict(ours.blocks) == dict(declared.blocks)
    np.testing.assert_array_equal(ours.observed["r"], declared.observed["r"])
    assert ours.gauges == declared.gauges
    for name in ours.blocks:
        assert ours.neighbours(name) == declared.neighbours(name)
        assert ours.coupling(name) == declared.coupling(name) == (2 * N_FACTORS if factorized else 2)
        (mine,), (wanted,) = ours.child_sets(name), declared.child_sets(name)
        assert (mine.term, mine.observed, mine.occurrence) == (wanted.term, wanted.observed, wanted.occurrence)
        assert (mine.axes, dict(mine.sizes)) == (wanted.axes, dict(wanted.sizes))
        np.testing.assert_array_equal(mine.children, wanted.children)
        np.testing.assert_array_equal(mine.start, wanted.start)


METHODS = [
    ng.VB(),
    ng.VB("b"),
    ng.Children(1),
    ng.Children(1, "b"),
    ng.Children(3),
    ng.Children(3, "b"),
    ng.GlobalBatch(10),
    ng.GlobalBatch(10, "b"),
]


@pytest.mark.parametrize("factorized", [True, False], ids=["scalars", "vectors"])
@pytest.mark.parametrize(
    "step", some_slow([ng.PerNode(), ng.RobbinsMonro(first=0.05)], [ng.PerNode()]), ids=["per-node", "robbins-monro"]
)
@pytest.mark.parametrize("method", some_slow(METHODS, [ng.VB("b"), ng.Children(3), ng.GlobalBatch(10)]), ids=str)
def test_same_numbers_as_the_network(method, step, factorized):
    ours = problem(factorized)
    for seed in (0, 3):
        wanted = network(factorized).fit(method, step=step, max_steps=20, tol=0, seed=seed, init="random", order=ORDER)
        found = run(Phase(ours, method, step, ORDER), ours.start(seed), limits=Limits(20, 0.0), seed=seed)
        for name in ours.blocks:
            for a, b in zip(found.state.lam[name], wanted.state.lam[name], strict=True):
                np.testing.assert_allclose(a, np.asarray(b), **TOLERANCE)
        for column in ("elbo", "rho", "relative_change"):
            np.testing.assert_allclose(found.trace[column], wanted.trace[column], **TOLERANCE)
        np.testing.assert_array_equal(found.trace["messages_read"], wanted.trace["messages_read"])
        parts, declared = ours.bound_by_node(found.state), wanted.elbo_by_node()
        assert parts == pytest.approx(declared, rel=1e-10)
        assert ours.bound(found.state) == pytest.approx(found.trace["elbo"][-1], rel=1e-12)


@pytest.mark.parametrize("factorized", [True, False])
def test_targets_of_parts_of_the_model_are_those_of_the_network(factorized):
    ours, declared = problem(factorized), network(factorized).problem
    state = ours.start(1)
    for name, block in ours.blocks.items():
        columns = [None, 0, 2] if factorized else [None]
        for full in (None, (name,), ("r",), (name, "r"), ()):
            for column in columns:
                found = ours.target(block, state, full, (), column)
                wanted = declared.target(declared.blocks[name], state, full, (), column)
                for a, b in zip(found, wanted, strict=True):
                    np.testing.assert_allclose(a, np.asarray(b), **TOLERANCE)


@pytest.mark.parametrize("factorized", [True, False])
@pytest.mark.parametrize("jointly", [False, True])
def test_exact_sweeps_never_lower_the_bound_and_hand_it_over(factorized, jointly):
    ours = problem(factorized)
    state = ours.start(2)
    bounds = [ours.bound(state)]
    for _ in range(30):
        result = ours.sweep_jointly(state, ORDER) if jointly else ours.sweep(state, ORDER)
        state = result.state
        assert result.bound == pytest.approx(ours.bound(state), rel=1e-12)
        assert all(info.valid for info in result.info.values())
        bounds.append(result.bound)
    assert np.diff(bounds).min() >= -1e-10 * np.abs(bounds).max()


def test_joint_means_are_the_best_means_given_the_precisions():
    ours = problem(True)
    state = ours.start(4)
    once = ours.sweep(state, ("u",))
    jointly = ours.sweep_jointly(state, ("u",))
    assert jointly.bound >= once.bound - 1e-9
    for _ in range(300):  # scalar updates of one side alone converge to it
        once = ours.sweep(once.state, ("u",))
    np.testing.assert_allclose(once.state.lam["u"][0], jointly.state.lam["u"][0], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(once.state.lam["u"][1], jointly.state.lam["u"][1], rtol=1e-12)


def test_a_step_of_length_zero_keeps_moments_and_an_invalid_one_says_so():
    ours = problem(True)
    state, block = ours.start(0), ours.blocks["u"]
    target = ours.target(block, state)
    rho = np.where(np.arange(N_USERS)[:, None] == 0, 0.0, np.ones((N_USERS, N_FACTORS)))
    moved, info = ours.step_block(block, state, target, rho)
    assert info.valid
    np.testing.assert_array_equal(moved.lam["u"][0][0], state.lam["u"][0][0])
    np.testing.assert_array_equal(moved.mu["u"][0][0], state.mu["u"][0][0])
    _, info = ours.step_block(block, state, (target[0], -target[1]), 1.0)
    assert not info.valid


def test_the_prior_is_a_saddle_and_its_bound_is_known():
    ours = problem(True)
    values = ours.ratings.values
    # At the prior u·v has mean 0 and variance K/α², and KL = 0.
    spread = N_FACTORS / ALPHA**2
    wanted = 0.5 * np.sum(np.log(TAU / (2 * np.pi)) - TAU * (values**2 + spread))
    assert ours.bound(ours.prior()) == pytest.approx(wanted, rel=1e-12)
    after = ours.sweep(ours.prior(), ORDER).state
    assert not after.mu["u"][0].any()
