"""Rotation of pairs that meet in an inner product: the best turn, what it leaves alone, and where such pairs are found."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from promises.networks import CASES
from threadpoolctl import threadpool_limits

import natgrad as ng
from natgrad.inference.rotation import Side, best_rotation, rotate_pair
from natgrad.network.start.initial import make_start

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 5)
rows = st.integers(1, 60)


def spd(rng, size):
    root = rng.normal(size=(size, size))
    return (root @ root.T + 0.1 * np.eye(size)) * rng.uniform(0.1, 20.0)


def sides(seed, size, first_rows, second_rows, equal):
    """Two nodes with random moments, and prior precisions that are multiples of the identity or only diagonal."""
    rng = np.random.default_rng(seed)
    width = 1 if equal else size
    precision = [np.diag(np.broadcast_to(rng.uniform(0.3, 3.0, width), size)) for _ in range(2)]
    return (
        Side(spd(rng, size), first_rows, precision[0]),
        Side(spd(rng, size), second_rows, precision[1]),
        rng,
    )


def gain(first, second, turn):
    """f(G), written out from the definition."""
    back = np.linalg.inv(turn).T
    prior = np.trace(first.precision @ turn @ first.moment @ turn.T)
    prior += np.trace(second.precision @ back @ second.moment @ back.T)
    return -0.5 * prior + (first.rows - second.rows) * np.linalg.slogdet(turn)[1]


def slope(first, second, turn):
    """d f((I + E) G) / dE at E = 0: the gradient in coordinates that do not depend on the scale of G."""
    back = np.linalg.inv(turn).T
    pull = first.precision @ turn @ first.moment @ turn.T
    push = second.precision @ back @ second.moment @ back.T
    return -pull + push.T + (first.rows - second.rows) * np.eye(len(turn))


def scale_of(first, second, turn):
    back = np.linalg.inv(turn).T
    return first.rows + second.rows + np.abs(turn @ first.moment @ turn.T).sum() + np.abs(back @ second.moment).sum()


@given(seeds, sizes, rows, rows)
@settings(max_examples=60)
def test_the_closed_form_is_the_best_turn_of_all(seed, size, first_rows, second_rows):
    first, second, rng = sides(seed, size, first_rows, second_rows, equal=True)
    best = best_rotation(first, second)
    highest = gain(first, second, best)
    others = [np.eye(size)]
    for length in (1e-3, 0.1, 1.0):
        others += [best + length * rng.normal(size=(size, size)) * np.abs(best).max() for _ in range(5)]
        others += [length * rng.normal(size=(size, size)) for _ in range(5)]
    rounding = 1e-10 * scale_of(first, second, best)
    assert all(gain(first, second, other) <= highest + rounding for other in others)
    # An orthogonal matrix on the left changes nothing where priors are isotropic, so f is flat there: the comparison is tight.
    flip, _ = np.linalg.qr(rng.normal(size=(size, size)))
    assert gain(first, second, flip @ best) == pytest.approx(highest, abs=rounding)


@given(seeds, sizes, rows, rows)
@settings(max_examples=60)
def test_after_the_closed_form_the_gradient_is_zero_and_both_second_moments_are_diagonal(
    seed, size, first_rows, second_rows
):
    first, second, _ = sides(seed, size, first_rows, second_rows, equal=True)
    turn = best_rotation(first, second)
    back = np.linalg.inv(turn).T
    np.testing.assert_allclose(slope(first, second, turn), 0.0, atol=1e-8 * scale_of(first, second, turn))
    for moment in (turn @ first.moment @ turn.T, back @ second.moment @ back.T):
        np.testing.assert_allclose(moment - np.diag(np.diag(moment)), 0.0, atol=1e-8 * np.trace(moment))


@given(seeds, sizes)
@settings(max_examples=30)
def test_the_gradient_of_the_test_is_that_of_its_definition(seed, size):
    first, second, rng = sides(seed, size, 7, 3, equal=False)
    turn = np.eye(size) + 0.3 * rng.normal(size=(size, size))
    if abs(np.linalg.det(turn)) < 1e-2:
        return
    direction, step = rng.normal(size=(size, size)), 1e-6
    up, down = (gain(first, second, (np.eye(size) + sign * step * direction) @ turn) for sign in (1, -1))
    wanted = np.sum(slope(first, second, turn) * direction)
    assert (up - down) / (2 * step) == pytest.approx(wanted, rel=1e-4, abs=1e-4 * scale_of(first, second, turn))


@given(seeds, st.integers(2, 5), rows, rows)
@settings(max_examples=40)
def test_unequal_precisions_end_stationary_and_no_lower_than_the_identity_and_the_closed_form(
    seed, size, first_rows, second_rows
):
    first, second, _ = sides(seed, size, first_rows, second_rows, equal=False)
    with threadpool_limits(1, user_api="blas"):  # as the engine does; two threads take thirty times as long
        turn = best_rotation(first, second)
    plain = [side._replace(precision=side.precision[0, 0] * np.eye(size)) for side in (first, second)]
    rounding = 1e-10 * scale_of(first, second, turn)
    for other in (np.eye(size), best_rotation(*plain)):
        assert gain(first, second, turn) >= gain(first, second, other) - rounding
    # Quasi-Newton steps end when f changes by less than 2e-9 of itself: a gradient of about the root of that.
    assert np.abs(slope(first, second, turn)).max() <= 2e-3 * scale_of(first, second, turn)


def fitted(name, max_steps=2):
    case = CASES[name]()
    fit = case.network.fit(ng.VB(), max_steps=max_steps, tol=0, init=case.init, order=case.order)
    return case.network.problem, fit.state


@pytest.mark.parametrize(("name", "seen"), [("blocks", "r"), ("pca", "y"), ("pca_missing", "y")])
def test_a_turn_of_vectors_is_not_seen_by_the_data_and_raises_the_bound(name, seen):
    problem, state = fitted(name)
    (pair,) = problem.gauges
    turned = rotate_pair(problem, pair, state)
    before, after = problem.bound_by_node(state), problem.bound_by_node(turned.state)
    assert after[seen] == pytest.approx(before[seen], rel=1e-9)
    assert sum(after.values()) > sum(before.values())
    for other in set(problem.blocks) - set(pair):
        assert turned.state.lam[other] is state.lam[other]
    # The second turn finds nothing left to do.
    again = rotate_pair(problem, pair, turned.state)
    assert problem.bound(again.state) == pytest.approx(problem.bound(turned.state), rel=1e-6)


@pytest.mark.parametrize("name", ["blocks", "pca"])
def test_the_gain_of_a_turn_is_the_change_of_the_bound(name):
    problem, state = fitted(name)
    (pair,) = problem.gauges
    turned = rotate_pair(problem, pair, state)
    found = []
    for block in pair:
        second = np.asarray(state.mu[block][1])
        precision = -2.0 * np.asarray(problem.target(problem.blocks[block], state, (block,))[1])[0]
        found.append(Side(second.sum(0), len(second), precision))
    turn = turned.matrices[pair[0]]
    wanted = gain(*found, turn) - gain(*found, np.eye(len(turn)))
    assert problem.bound(turned.state) - problem.bound(state) == pytest.approx(wanted, rel=1e-7)


def test_of_vectors_mean_and_covariance_turn_exactly():
    problem, state = fitted("blocks")
    (pair,) = problem.gauges
    turned = rotate_pair(problem, pair, state)
    np.testing.assert_allclose(turned.matrices[pair[0]] @ turned.matrices[pair[1]].T, np.eye(2), atol=1e-12)
    for name, turn in turned.matrices.items():
        family = problem.blocks[name].family
        old, new = (family.expected_stats(tuple(np.asarray(p) for p in s.lam[name])) for s in (state, turned.state))
        np.testing.assert_allclose(new[0], old[0] @ turn.T, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(new[1], turn @ old[1] @ turn.T, rtol=1e-9, atol=1e-11)
        for a, b in zip(turned.state.mu[name], new, strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-10)


def test_a_declared_prior_mean_is_not_turned():
    rng = np.random.default_rng(0)
    row, column = ng.Plate("row", 5), ng.Plate("column", 4)
    w = ng.MultivariateNormal("w", np.ones(2), np.eye(2), plate=column)
    x = ng.MultivariateNormal("x", np.zeros(2), np.eye(2), plate=row)
    y = ng.Normal("y", ng.dot(w, x), 1.0, plate=(row, column), observed=rng.normal(size=(5, 4)))
    problem = ng.Network(y).problem
    (pair,) = problem.gauges
    assert rotate_pair(problem, pair, make_start(problem, "random", 0)) is None


# -- where gauges are --


def components(ard=False, offset=False, third=False, seen_alone=False):
    """Probabilistic PCA and its variants."""
    rng = np.random.default_rng(0)
    row, column, factor = ng.Plate("row", 5), ng.Plate("column", 4), ng.Plate("factor", 2)
    precision = ng.diag(ng.Gamma("ard", 1.0, 1.0, plate=factor)) if ard else np.eye(2)
    w = ng.MultivariateNormal("w", np.zeros(2), precision, plate=column)
    x = ng.MultivariateNormal("x", np.zeros(2), np.eye(2), plate=row)
    mean = ng.dot(w, x) + ng.Normal("mu", 0.0, 1.0, plate=column) if offset else ng.dot(w, x)
    leaves = [ng.Normal("y", mean, 1.0, plate=(row, column), observed=rng.normal(size=(5, 4)))]
    if third:
        z = ng.MultivariateNormal("z", np.zeros(2), np.eye(2), plate=row)
        leaves.append(ng.Normal("side", ng.dot(x, z), 1.0, plate=row, observed=rng.normal(size=5)))
    if seen_alone:
        leaves.append(ng.MultivariateNormal("label", x, np.eye(2), plate=row, observed=rng.normal(size=(5, 2))))
    return ng.Network(*leaves)


def regression():
    rng = np.random.default_rng(0)
    w = ng.Normal("w", 0.0, 1.0, plate=ng.Plate("k", 3))
    mean = ng.dot(rng.normal(size=(6, 3)), w)
    return ng.Network(ng.Normal("y", mean, 1.0, plate=ng.Plate("n", 6), observed=rng.normal(size=6)))


@pytest.mark.parametrize(
    ("network", "pair"),
    [
        (lambda: CASES["factorised"]().network, {"u", "v"}),
        (lambda: CASES["blocks"]().network, {"u", "v"}),
        (components, {"w", "x"}),
        (lambda: components(ard=True), {"w", "x"}),
        (lambda: components(offset=True), {"w", "x"}),
        (lambda: components(ard=True, offset=True), {"w", "x"}),
    ],
    ids=["scalars", "vectors", "pca", "pca ard", "pca offset", "pca ard offset"],
)
def test_a_pair_seen_only_through_inner_products_is_found(network, pair):
    assert [set(found) for found in network().problem.gauges] == [pair]


@pytest.mark.parametrize("name", ["mixture", "scalar_mixture", "lda", "hmm", "counts", "several", "skills"])
def test_no_pair_is_found_where_there_is_none(name):
    assert CASES[name]().network.problem.gauges == ()


@pytest.mark.parametrize(
    "network",
    [regression, lambda: components(third=True), lambda: components(seen_alone=True)],
    ids=["dot with data", "a third factor", "read alone"],
)
def test_a_pair_of_which_another_term_reads_one_is_not_found(network):
    assert network().problem.gauges == ()
