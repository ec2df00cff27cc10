"""The full model: the numbers of the network that declares it, definitions, and the theorems of its gauge."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from reference.rating_blocks import naive_moments, naive_shares, naive_target

import natgrad as ng
from natgrad.inference.engine import Limits, Phase, run
from natgrad.kernels.factorization.gather import sum_rows
from natgrad.models.factorization import rotation
from natgrad.models.factorization.poisson import ORDER, CountsProblem
from natgrad.models.factorization.problem import FullRatingsProblem, RatingPriors
from natgrad.models.factorization.sides import OTHER, packed, pair_moments, unpacked

N_USERS, N_ITEMS, N_RATINGS, N_FACTORS, VAGUE = 9, 7, 40, 3, 1e-2


@cache
def triples():
    rng = np.random.default_rng(5)
    cells = rng.choice((N_USERS - 1) * (N_ITEMS - 1), N_RATINGS, replace=False)
    return cells // (N_ITEMS - 1), cells % (N_ITEMS - 1), rng.normal(size=N_RATINGS)


def ratings(values=None) -> ng.Ratings:
    users, items, numbers = triples()
    return ng.Ratings(users, items, numbers if values is None else values, shape=(N_USERS, N_ITEMS))


def problem(hold: bool = False, **options) -> FullRatingsProblem:
    chosen = {"user_noise": 4.0, "item_noise": 4.0, "shape": VAGUE, "rate": VAGUE, **options}
    return FullRatingsProblem(ratings(), N_FACTORS, RatingPriors(**chosen), hold)


def with_ones(row, size: int, place: int):
    """(u, b, 1) or (v, 1, c) of a vector (u, b) or (v, c)."""
    matrix, one = np.eye(size + 1), np.zeros(size + 1)
    one[place] = 1.0
    return np.delete(matrix, place, axis=1) @ row + one


@cache
def network(biases: bool = False) -> ng.Network:
    """The whole model in the language: u·v + b + c is the inner product of (u, b, 1) and (v, 1, c)."""
    users, items, values = triples()
    user, item, rating = ng.Plate("user", N_USERS), ng.Plate("item", N_ITEMS), ng.Plate("rating", N_RATINGS)
    size = N_FACTORS + biases
    factor = ng.Plate("factor", size)
    rows = []
    for name, plate in (("u", user), ("v", item)):
        precision = ng.Gamma(f"{plate.name}_precision", VAGUE, VAGUE, plate=factor)
        rows.append(ng.MultivariateNormal(name, np.zeros(size), ng.diag(precision), plate=plate))
    noise = ng.Gamma("noise", VAGUE, VAGUE)
    s, t = (ng.Gamma(f"{plate.name}_noise", 2.0, 2.0, plate=plate) for plate in (user, item))
    left, right = rows[0][users], rows[1][items]
    mean = ng.dot(with_ones(left, size, size), with_ones(right, size, size - 1)) if biases else ng.dot(left, right)
    return ng.Network(ng.Normal("r", mean, noise * s[users] * t[items], plate=rating, observed=values))


METHODS = [ng.VB(), ng.VB("b"), ng.Children(2), ng.Children(2, "b"), ng.GlobalBatch(10), ng.GlobalBatch(10, "b")]


# The network takes seconds to compile for every method: two of them on every run, the rest among the slow tests.
@pytest.mark.parametrize(
    ("method", "biases"),
    [
        pytest.param(method, biases, marks=[] if biases and number in (0, 3) else [pytest.mark.slow])
        for number, method in enumerate(METHODS)
        for biases in (True, False)
    ],
    ids=str,
)
def test_same_bound_and_posterior_as_the_network(method, biases):
    ours, declared = problem(biases=biases), network(biases).problem
    start = ours.start(3)
    step = ng.Constant(0.2) if method == ng.VB("b") else ng.PerNode()
    found, wanted = (
        run(Phase(p, method, step, ours.order), start, limits=Limits(20, 0.0), seed=1) for p in (ours, declared)
    )
    np.testing.assert_allclose(found.trace["elbo"], wanted.trace["elbo"], rtol=1e-10)
    for name in ours.blocks:
        for a, b in zip(found.state.lam[name], wanted.state.lam[name], strict=True):
            np.testing.assert_allclose(a, np.asarray(b), rtol=1e-8, atol=1e-10)


def settled(of, max_steps=6, order=None, seed=0):
    state = of.start(seed)
    for _ in range(max_steps):
        state = of.sweep(state, order or of.order).state
    return state


@pytest.mark.parametrize("biases", [True, False])
def test_kernels_are_their_definitions(biases):
    ours = problem(biases=biases)
    state = settled(ours, 2)
    users, items, values = triples()
    mean, variance = pair_moments(users, items, state.mu["u"], state.mu["v"], biases)
    for n in range(0, N_RATINGS, 7):
        wanted = naive_moments(state.mu["u"], state.mu["v"], users[n], items[n], biases)
        np.testing.assert_allclose((mean[n], variance[n]), wanted, rtol=1e-9, atol=1e-12)
    tell = {name: packed(state.mu[name]) for name in OTHER}
    for name, side in ours.sides.items():
        expected, square = side.pair_moments(tell[name], tell[OTHER[name]], ours.size, name == "u")
        np.testing.assert_allclose(expected, mean[side.rows.place], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(square, (variance + mean**2)[side.rows.place], rtol=1e-10)
    weight = float(state.mu["noise"][0]) * state.mu["user_noise"][0][users] * state.mu["item_noise"][0][items]
    pairs = list(zip(users, items, values, weight, strict=True))
    linear, minus_half = ours.target(ours.blocks["u"], state, ("r",))
    for row in range(N_USERS):
        wanted_linear, wanted_matrix = naive_target(pairs, row, state.mu["v"], biases)
        np.testing.assert_allclose(linear[row], wanted_linear, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(minus_half[row], -0.5 * wanted_matrix, rtol=1e-9, atol=1e-10)
    # E[log p(r | …)] from the definition.
    errors = (values - mean) ** 2 + variance
    logs = state.mu["noise"][1] + state.mu["user_noise"][1][users] + state.mu["item_noise"][1][items]
    wanted = 0.5 * np.sum(logs - np.log(2 * np.pi) - weight * errors)
    np.testing.assert_allclose(ours.bound_by_node(state)["r"], wanted, rtol=1e-10)


@pytest.mark.parametrize(
    "options", [{}, {"learn_precision": False}, {"learn_noise": False, "user_noise": None}], ids=str
)
@pytest.mark.parametrize("biases", [True, False])
def test_no_update_lowers_the_bound_and_a_sweep_knows_it(biases, options):
    ours = problem(biases=biases, **options)
    state, last = ours.start(1), -np.inf
    for _ in range(4):
        for name in ours.order:
            result = ours.sweep(state, (name,))
            assert result.bound >= last - 1e-10 * abs(result.bound)
            np.testing.assert_allclose(result.bound, ours.bound(result.state), rtol=1e-11)
            state, last = result.state, result.bound


@pytest.mark.parametrize("hold", [True, False])
@pytest.mark.parametrize("options", [{}, {"learn_precision": False}], ids=str)
@pytest.mark.parametrize("biases", [True, False])
def test_turning_raises_the_bound_and_no_prediction_changes(biases, options, hold, monkeypatch):
    ours = problem(hold, biases=biases, **options)
    state = settled(ours, 2)
    shorn = ours.rotate_pair(("u", "v"), state)
    assert shorn is None or ours.bound(shorn.state) > ours.bound(state)
    # A factor that dies takes predictions with it, so that what follows is of turning alone; test_noise.py is of both.
    monkeypatch.setattr(rotation, "DEAD", 0.0)
    turned = ours.rotate_pair(("u", "v"), state)
    assert turned is not None
    before, after = ours.bound(state), ours.bound(turned.state)
    assert after > before
    everything = np.repeat(np.arange(N_USERS), N_ITEMS), np.tile(np.arange(N_ITEMS), N_USERS)
    for a, b in zip(
        *(pair_moments(*everything, s.mu["u"], s.mu["v"], biases) for s in (state, turned.state)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)
    for name in ("u", "v"):
        for a, b in zip(ours.moments(ours.blocks[name], turned.state.lam[name]), turned.state.mu[name], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8)
    again = ours.rotate_pair(("u", "v"), turned.state)
    assert again is None or ours.bound(again.state) - after < 0.2 * (after - before)


def test_likes_have_a_lower_bound_that_never_falls():
    likes = (triples()[2] > 0).astype(float)
    ours = FullRatingsProblem(ratings(likes), N_FACTORS, RatingPriors(learn_noise=False), link=0.3)
    state, last = ours.start(0), -np.inf
    for _ in range(15):
        result = ours.sweep(state, ours.order)
        assert last - 1e-10 * abs(last) <= result.bound <= ours.bound(result.state) + 1e-10
        state, last = result.state, result.bound
    # What the bound says of the likes is below E[log σ], by quadrature, and not by much.
    users, items, _ = triples()
    mean, variance = pair_moments(users, items, state.mu["u"], state.mu["v"], True)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    f = mean[:, None] + 0.3 + np.sqrt(variance)[:, None] * nodes
    sign = 2 * likes - 1
    exact = float(np.sum((-np.logaddexp(0, -sign[:, None] * f)) @ weights / weights.sum()))
    inner, rest = ours._as_ratings(state)
    ours_says = inner.bound_by_node(state)["r"] + rest()
    assert ours_says == ours.bound_by_node(state)["r"]
    assert exact - 0.03 * len(likes) < ours_says <= exact + 1e-9


def test_counts_have_a_bound_by_its_definition_that_never_falls():
    users, items, _ = triples()
    counts = np.random.default_rng(1).poisson(2.0, N_RATINGS).astype(float)
    ours = CountsProblem(ratings(counts), 2)
    state, last = ours.start(0), -np.inf
    for _ in range(8):
        for name in ORDER:
            result = ours.sweep(state, (name,))
            assert result.bound >= last - 1e-10 * abs(last)
            state, last = result.state, result.bound
    mu = state.mu
    shares, logs = naive_shares(users, items, counts, mu["u"][1], mu["v"][1])
    np.testing.assert_allclose(ours._shared("u", mu)[0], shares, rtol=1e-10)
    np.testing.assert_allclose(ours._shared("u", mu)[1].sum(), logs, rtol=1e-10)
    # Every pair, zeros too: −E[θ·β].
    totals = np.array([[mu["u"][0][i] @ mu["v"][0][j] for j in range(N_ITEMS)] for i in range(N_USERS)])
    np.testing.assert_allclose(totals.sum(), mu["u"][0].sum(0) @ mu["v"][0].sum(0))
    with pytest.raises(NotImplementedError, match="counts are read as a whole"):
        ours.target(ours.blocks["u"], state, ("u",))


def test_what_is_packed_is_unpacked_and_rows_are_summed(rng):
    half = rng.normal(size=(7, 4, 4))
    moments = rng.normal(size=(7, 4)), half + half.transpose(0, 2, 1)
    for mine, theirs in zip(moments, unpacked(packed(moments), 4), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    start, values, out = np.array([0, 0, 3, 3, 10]), rng.normal(size=10), np.empty(4)
    sum_rows(start, values, out)
    np.testing.assert_allclose(out, [values[a:b].sum() for a, b in pairwise(start)], atol=1e-12)
