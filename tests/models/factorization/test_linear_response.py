"""Linear response of factorisations: that of the network which declares the same model."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import natgrad as ng
from natgrad.errors import NotConverged
from natgrad.inference.problem import State
from natgrad.models.factorization.gibbs import gibbs_problem
from natgrad.network.results.fit import linearised
from natgrad.posterior.response.linearised import linearised_edges, settled
from natgrad.posterior.response.operator import Operator
from natgrad.posterior.response.result import LinearResponse

N, M, K = 14, 10, 2


def table(seed: int = 0, biases: bool = False) -> np.ndarray:
    rng = np.random.default_rng(seed)
    full = rng.normal(size=(N, K)) @ rng.normal(size=(K, M)) + 0.5 * rng.normal(size=(N, M))
    if biases:
        full = full + rng.normal(size=(N, 1)) + rng.normal(size=M)
    return np.where(rng.random((N, M)) < 0.6, full, np.nan)


def fitted(x: np.ndarray, **options: Any) -> ng.MatrixFactorization:
    return ng.MatrixFactorization(K, verbose=False, tol=1e-12, max_steps=5000, **options).fit(x)


KNOWN = {"noise": 4.0, "priors": ng.recommenders.FactorPriors(precision=1.0, biases=False)}


def test_known_precisions_equal_the_network():
    x = table(4)
    model = fitted(x, **KNOWN)
    who, what = np.nonzero(np.isfinite(x))
    user, item, rating = ng.Plate("user", N), ng.Plate("item", M), ng.Plate("r", len(who))
    u, v = (ng.MultivariateNormal(n, np.zeros(K), np.eye(K), plate=p) for n, p in (("u", user), ("v", item)))
    node = ng.Normal("y", ng.dot(u[who], v[what]), 4.0, plate=rating, observed=x[who, what])
    net = ng.Network(node, joint=None)
    # At the optimum of the model, for a network that starts there may end at another.
    lam = {name: model.posterior_[name].lam for name in ("u", "v")}
    at = linearised(net.problem, State(lam, {}, 1), ("u", "v"))
    for name, target in at.targets.items():
        for found, own in zip(target, lam[name], strict=True):
            np.testing.assert_allclose(found, own, rtol=1e-3, atol=1e-3)
    factors = {name: model.posterior_[name] for name in lam}
    wanted = LinearResponse(at, factors, []).std(lambda m: (m["u"][:4] * m["v"][:4]).sum(-1))
    lr = model.linear_response()
    pairs = np.arange(4)
    np.testing.assert_allclose(lr.std(model.expected(pairs, pairs)), wanted, rtol=1e-5)
    # The derivative that is known is that of differences.
    again = model.expected(pairs, pairs)
    np.testing.assert_allclose(lr.std(lambda m: again(m)), wanted, rtol=1e-5)
    np.testing.assert_allclose(lr.mean(again), model.predict(pairs, pairs), rtol=1e-9)
    told = LinearResponse(at, factors, []).influence(again)["y"]
    np.testing.assert_allclose(lr.influence(again)["rating"], told, rtol=1e-4, atol=1e-4 * np.abs(told).max())
    q = np.sqrt(model._predictor.pairs(pairs, pairs)[1] - 0.25)
    assert not np.allclose(wanted, q, rtol=0.02)


def test_it_is_how_the_optimum_moves():
    """A little more of the prior's rate tilts the log joint by −τ: the optimum itself, found anew, moves as was said."""
    model = fitted(table(1, biases=True), priors=ng.recommenders.FactorPriors(precision=1.0))
    lr = model.linear_response(names=["noise"])
    problem = gibbs_problem(model._kind, model.ratings_)
    moved = []
    for sign in (1.0, -1.0):
        other = copy.copy(problem)
        rate = problem.priors.rate * (1.0 + sign)  # of 1e-3: less would be lost in rounding
        other.priors = replace(problem.priors, rate=rate)
        state, _ = settled(other, model.result_.state, problem.order)
        for _ in range(300):
            state = other.sweep(state, problem.order).state
        moved.append((float(state.mu["noise"][0]), model.expected([0, 3], [2, 4])({n: state.mu[n][0] for n in "uv"})))
    tilt = -2.0 * problem.priors.rate * problem.priors.unit**2
    np.testing.assert_allclose((moved[0][0] - moved[1][0]) / tilt, lr["noise"].var(), rtol=1e-3)
    wanted = (moved[0][1] - moved[1][1]) / tilt
    np.testing.assert_allclose(lr.cov(model.expected([0, 3], [2, 4]), "noise"), wanted, rtol=0.02, atol=1e-4)


def test_everything_learned_is_self_adjoint_and_covers_more_than_q():
    """No network declares learned precisions of a matrix's columns with the same priors: the operator itself is checked."""
    model = fitted(table(2, biases=True))
    problem = gibbs_problem(model._kind, model.ratings_)
    state, gained = settled(problem, model.result_.state, problem.order)
    assert gained < 1e-3
    operator = Operator(linearised_edges(problem, state, problem.order))
    rng = np.random.default_rng(0)
    a, b = (operator.fisher(rng.normal(size=operator.size)) for _ in range(2))
    np.testing.assert_allclose(a @ operator.curvature(b), b @ operator.curvature(a), rtol=1e-5)
    lr = model.linear_response(names=["noise"])
    assert lr["noise"].std() > model.posterior_["noise"].std()
    moved = lr.std(model.expected([0, 5], [1, 2]))
    assert moved.shape == (2,)
    assert (moved > 0).all()


@pytest.mark.parametrize(
    ("learned", "numbers"),
    [
        ({"priors": ng.recommenders.FactorPriors(precision=1.0)}, (11,)),
        pytest.param({"priors": ng.recommenders.FactorPriors(precision=1.0)}, (52,), marks=pytest.mark.slow),
        pytest.param(
            {
                "priors": ng.recommenders.FactorPriors(precision=1.0, biases=False),
            },
            (11, 52),
            marks=pytest.mark.slow,
        ),
        pytest.param({}, (11, 52), marks=pytest.mark.slow),
    ],
)
def test_influence_is_what_one_copy_more_or_less_of_a_rating_changes(learned, numbers):
    """Ten copies of each: an eleventh or a ninth is a tenth of its weight, and their difference the derivative to second order.

    Biases and the noise are found anew; the mean m, which no factor holds, stays in the first comparison and not in the refit,
    whose difference is one-sided, too.
    """
    who, what = np.nonzero(np.isfinite(x := table(1, biases=True)))

    def copies(of: int = 0, more: int = 0) -> ng.Ratings:
        chosen = np.repeat(np.arange(len(who)), np.where(np.arange(len(who)) == of, 10 + more, 10))
        return ng.Ratings(who[chosen], what[chosen], x[who, what][chosen], shape=(N, M), duplicates="keep")

    model, pairs = fitted(copies(), **learned), ([0, 3, 5], [2, 4, 1])
    asked = model.expected(*pairs)
    said = model.linear_response().influence(asked)["rating"]
    for number in numbers:
        moved = []
        for more in (1, -1):
            problem = gibbs_problem(model._kind, copies(number, more))
            state, _ = settled(problem, model.result_.state, problem.order)
            for _ in range(100):
                state = problem.sweep(state, problem.order).state
            moved.append(asked({name: state.mu[name][0] for name in "uv"}))
        size = np.abs(said[:, 10 * number]).max()
        np.testing.assert_allclose(said[:, 10 * number], (moved[0] - moved[1]) / 2.0, atol=0.01 * size)
    left_out = fitted(copies(11, -1), **learned).predict(*pairs)
    wanted = model.predict(*pairs) - left_out
    np.testing.assert_allclose(said[:, 110], wanted, atol=0.12 * np.abs(wanted).max())


def test_what_cannot_be_had_says_why():
    x = table()
    with pytest.raises(TypeError, match='inference="gibbs"'):
        fitted(x, **KNOWN).draws()
    likes = (np.nan_to_num(x) > 0).astype(float)
    model = ng.MatrixFactorization(
        K, likelihood="bernoulli", verbose=False, max_steps=5, priors=ng.recommenders.FactorPriors(n_negatives=1)
    ).fit(likes)
    with pytest.raises(TypeError, match="linear response is for Gaussian ratings"):
        model.linear_response()
    early = ng.MatrixFactorization(K, verbose=False, max_steps=3).fit(x)
    with pytest.warns(NotConverged, match="has not converged"):
        early.linear_response()
