"""Ready models beside the networks that declare them, both run to the end from one place: the same bound and the same posterior.

`EQUALITIES` names for every ready model the test that holds it to its network, or to its definition where none can be declared;
`docs/abilities.md` has the same table.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import natgrad as ng
from natgrad.models import hmm

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "abilities.md"
LAST: dict[str, Any] = {"tol": 1e-14, "max_steps": 5000, "verbose": False}
NETWORK, DEFINITION, BOTH = "a declared network", "its definition", "a declared network, and its definition"
# What is held, to what, and where.
EQUALITIES = [
    ("`GaussianHMM`, full and diagonal", BOTH, "models/test_declared.py::test_chains_and_mixtures_are_their_networks"),
    (
        "tied and spherical covariances", DEFINITION,
        "models/test_against_networks.py::test_a_chain_has_the_bound_that_all_paths_add_up_to",
    ),
    (
        "`CategoricalHMM`, `PoissonHMM`, `BernoulliHMM`", DEFINITION,
        "models/test_against_networks.py::test_a_chain_has_the_bound_that_all_paths_add_up_to",
    ),
    ("several tracks", NETWORK, "models/hmm/test_general.py::test_four_kinds_of_tracks_are_the_declared_network"),
    ("`Autoregressive`", NETWORK, "models/hmm/test_general.py::test_an_autoregression_is_the_declared_network"),
    (
        "`StudentT`, `Mixture` in several states", DEFINITION,
        "models/hmm/test_general.py::test_the_bound_is_that_of_all_paths_and_components",
    ),
    ("`StudentT`, `Mixture` in one state", NETWORK, "models/hmm/test_general.py::test_one_state_is_the_declared_network"),
    ("`durations=`", DEFINITION, "models/hmm/test_durations.py::test_the_bound_is_that_of_all_segmentations"),
    ("`inputs=`", DEFINITION, "models/hmm/test_inputs.py::test_answers_are_sums_over_all_paths"),
    ("`GaussianMixture`", BOTH, "models/test_declared.py::test_chains_and_mixtures_are_their_networks"),
    ("`LDA`", NETWORK, "models/test_against_networks.py::test_topics_are_those_of_the_network_sweep_by_sweep"),
    (
        "Gaussian ratings, `noise=`", NETWORK,
        "models/factorization/test_problem.py::test_same_bound_and_posterior_as_the_network",
    ),
    ("likes and dislikes", NETWORK, "models/test_declared.py::test_likes_are_the_declared_network"),
    (
        "likes alone", DEFINITION,
        "models/factorization/test_likes.py::test_updates_and_the_bound_are_those_of_all_weighted_pairs",
    ),
    (
        "ordinal ratings", NETWORK,
        "models/factorization/test_ordinal.py::test_the_bound_and_the_posterior_are_those_of_the_declared_network",
    ),
    ("counts", NETWORK, "models/test_declared.py::test_counts_are_the_declared_network"),
    ("`ContextFactorization`", NETWORK, "recommenders/test_context.py::test_it_is_its_declared_network"),
    (
        "Gaussian noise, several outputs", DEFINITION,
        "models/gp/test_outputs.py::test_inducing_inputs_at_the_data_give_the_dense_process_of_all_outputs",
    ),
    ("other likelihoods of Gaussian processes", DEFINITION, "models/gp/test_joint.py::test_values_are_those_of_a_slow_twin"),
    ("`StateSpaceGP`", BOTH, "models/gp/test_state_space.py::test_it_is_the_declared_chain"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "to", "where"), EQUALITIES)
def test_the_page_names_a_test_that_there_is(what: str, to: str, where: str) -> None:
    file, name = where.split("::")
    assert re.search(rf"^def {name}", (TESTS / file).read_text(encoding="utf-8"), flags=re.MULTILINE), where
    assert f"| {what} | {to} | `{where}` |" in PAGE.read_text(encoding="utf-8"), f"| {what} | {to} | `{where}` |"


def blobs(rng: np.random.Generator) -> tuple[Any, Any]:
    states = np.repeat([0, 1] * 3, 8)
    return states, np.column_stack([3.0 * states, -2.0 * states]) + rng.normal(size=(48, 2))


@pytest.mark.parametrize("kind", [pytest.param("full", marks=pytest.mark.slow), "diag"])
@pytest.mark.parametrize("chain", [True, False], ids=["chain", "mixture"])
def test_chains_and_mixtures_are_their_networks(kind: str, chain: bool, rng: np.random.Generator) -> None:
    """Means and precisions of a state, or component, are one factor."""
    X, rate, mean = blobs(rng)[1], np.array([[2.0, 0.3], [0.3, 1.5]]), np.array([0.2, -0.1])
    point, state, column = ng.Plate("point", 48), ng.Plate("state", 2), ng.Plate("column", 2)
    first = ng.Dirichlet("initial" if chain else "weights", 1.0, size=2)
    if chain:
        rows = ng.Dirichlet("transition", 1.0, size=2, plate=state)
        z: Any = ng.MarkovChain("z", first, rows, plate=point, lengths=np.array([20, 28]))
    else:
        z = ng.Categorical("z", first, plate=point)
    if kind == "full":
        precision: Any = ng.Wishart("precision", 5.0, rate, plate=state)
        mu: Any = ng.MultivariateNormal("mu", mean, 0.5 * precision, plate=state)
        y: Any = ng.MultivariateNormal("y", mu[z], precision[z], plate=point, observed=X)
    else:
        precision = ng.Gamma("precision", 2.5, 0.5 * np.diag(rate), plate=(state, column))
        mu = ng.Normal("mu", mean, 0.5 * precision, plate=(state, column))
        y = ng.Normal("y", mu[z, :], precision[z, :], plate=(point, column), observed=X)
    own = hmm.Gaussian(kind, mean, 0.5, 5.0, rate if kind == "full" else np.diag(rate))
    prior = {"covariance": own, "tol": 1e-14, "verbose": False, "max_passes": 2000}
    if chain:
        model: Any = ng.GaussianHMM(2, **prior).fit(X, lengths=[20, 28])
    else:
        model = ng.GaussianMixture(2, weight_prior=1.0, **prior).fit(X)
    fit = ng.Network(y, joint=[("mu", "precision")]).fit(ng.VB(), init={"mu": model.means_}, **LAST)
    assert model.elbo_ == pytest.approx(fit.elbo, rel=1e-10)
    np.testing.assert_allclose(
        fit["mu"].mean(), model.means_, atol=1e-6
    )  # a bound at its maximum tells half the digits


def pairs(rng: np.random.Generator) -> tuple[Any, Any, Any]:
    users, items = np.nonzero(rng.random((6, 5)) < 0.7)
    return users, items, (rng.normal(size=(6, 2)) @ rng.normal(size=(2, 5)))[users, items]


@pytest.mark.slow
def test_likes_are_the_declared_network(rng: np.random.Generator) -> None:
    users, items, taste = pairs(rng)
    likes = (taste + 0.3 * rng.normal(size=len(users)) > 0) * 1.0
    settings = {
        "priors": ng.recommenders.FactorPriors(precision=0.8, biases=False, n_negatives=0),
    }
    model = ng.MatrixFactorization(2, likelihood="bernoulli", **settings, **LAST).fit(ng.Ratings(users, items, likes))
    rows = ng.Plate("user", model.ratings_.n_users), ng.Plate("item", model.ratings_.n_items)
    u, v = (
        ng.MultivariateNormal(name, np.zeros(2), 0.8 * np.eye(2), plate=plate)
        for name, plate in zip("uv", rows, strict=True)
    )
    level = ng.dot(u[model.ratings_.users], v[model.ratings_.items]) + float(model.offset_)
    y = ng.Bernoulli("y", logit=level, plate=ng.Plate("rating", len(likes)), observed=model.ratings_.values)
    start = {name: model.posterior_[name].mean() for name in "uv"}
    fit = ng.Network(y).fit(ng.VB(), init=start, **LAST)
    assert model.elbo_ == pytest.approx(fit.elbo, rel=1e-10)
    np.testing.assert_allclose(fit["u"].mean(), model.posterior_["u"].mean(), atol=1e-4)


def test_counts_are_the_declared_network(rng: np.random.Generator) -> None:
    """At any q, its shares of each count being the best. Pairs that are not stored are zeros: the network reads them all."""
    users, items, taste = pairs(rng)
    counts = rng.poisson(np.exp(0.5 * taste)) + 1.0
    model = ng.MatrixFactorization(2, likelihood="poisson", max_steps=6, tol=0, verbose=False).fit(
        ng.Ratings(users, items, counts)
    )
    ratings = model.ratings_
    table = np.zeros((ratings.n_users, ratings.n_items))
    table[ratings.users, ratings.items] = ratings.values
    user, item, factor = ng.Plate("user", len(table)), ng.Plate("item", table.shape[1]), ng.Plate("factor", 2)
    xi, eta = ng.Gamma("user_rate", 0.3, 0.3, plate=user), ng.Gamma("item_rate", 0.3, 0.3, plate=item)
    theta, beta = ng.Gamma("u", 0.3, xi, plate=(user, factor)), ng.Gamma("v", 0.3, eta, plate=(item, factor))
    a, b = (part.ravel() for part in np.indices(table.shape))
    y = ng.Poisson(
        "y", ng.dot(theta[a, :], beta[b, :], over=factor), plate=ng.Plate("cell", table.size), observed=table.ravel()
    )
    problem = (network := ng.Network(y)).problem
    begun = network.fit(ng.VB(), max_steps=1, tol=0, verbose=False).state
    lam = {**begun.lam, **{name: tuple(factor.lam) for name, factor in model.posterior_.items()}}
    mu = {name: problem.moments(block, lam[name]) for name, block in problem.blocks.items()}
    state = problem.sweep(begun._replace(lam=lam, mu=mu), ("y.shares",)).state
    assert problem.bound(state) == pytest.approx(model.elbo_, rel=1e-10)
