"""Networks and fits that are pickled, copied or sent to another process go on as the ones they came from."""

import copy
import pickle

import numpy as np
import pytest
from promises import networks

import natgrad as ng

CASES = [
    networks.mixture,
    networks.pca,
    networks.factorised,
    networks.lda,
    networks.hmm,
    networks.counts,
    networks.augmented,
]


def copies(thing):
    return [pickle.loads(pickle.dumps(thing)), copy.deepcopy(thing)]


def same(first, second):
    """Whether two fits have the same bits in every factor."""
    return list(first) == list(second) and all(
        np.array_equal(a, b) for name in first for a, b in zip(first[name].lam, second[name].lam, strict=True)
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_copy_of_a_fit_goes_on_as_the_fit(case):
    network, init, _ = case()
    fit = network.fit(max_steps=3, tol=0, init=init, backend="numpy")
    on = fit.continue_fit(max_steps=2, tol=0)
    for other in copies(fit):
        assert other.elbo == fit.elbo
        assert same(other, fit)
        assert same(other.continue_fit(max_steps=2, tol=0), on)
        assert not same(other, on)


def test_a_copy_of_a_network_is_fitted_alike():
    network = networks.scalar_mixture().network
    before = pickle.dumps(network)  # nothing planned yet
    fit = network.fit(max_steps=3, tol=0)
    for other in [pickle.loads(before), *copies(network)]:
        assert same(other.fit(max_steps=3, tol=0), fit)


def test_fits_of_tables_are_copied_with_their_declaration():
    rng = np.random.default_rng(0)
    table = {"who": rng.choice(["ann", "bob", "cho"], 20), "y": rng.normal(size=20)}
    row, person = ng.Plate("row"), ng.Plate("person")
    effect = ng.Normal("effect", 0.0, 1.0, plate=person)
    y = ng.Normal("y", effect[ng.Column("who")], 1.0, plate=row, observed=ng.Column("y"))
    fit = ng.Network(y).fit(table)
    new = {"who": ["bob", "ann"]}
    for other in copies(fit):
        assert other.elbo == fit.elbo
        assert np.array_equal(other.predict(new)["y"].mean(), fit.predict(new)["y"].mean())
    with pytest.raises(TypeError, match=r"save\(path\) keeps it"):
        pickle.dumps(ng.Network(y).fit(table, chunk_rows=7))


def test_what_was_drawn_comes_along():
    fit = networks.scalar_mixture().network.fit()
    with pytest.warns(ng.errors.PoorMixing):  # few draws are enough here
        draws = fit.draws(20, chains=2, warmup=5)
    for other in copies(fit):
        assert str(other.summary()) == str(fit.summary())
    assert np.array_equal(pickle.loads(pickle.dumps(draws))["mu"].mean(), draws["mu"].mean())


def test_a_linear_response_is_asked_for_again():
    fit = networks.scalar_mixture().network.fit()
    response = fit.linear_response(["mu"])
    with pytest.raises(TypeError, match="pickle the fit, and ask it again"):
        pickle.dumps(response)
    for other in copies(fit):
        assert np.array_equal(other.linear_response(["mu"])["mu"].std(), response["mu"].std())
