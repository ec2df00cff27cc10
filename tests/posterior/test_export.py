"""Tables, labelled arrays and draws: the same numbers as the factors, under the names that the user knows."""

import numpy as np
import pytest

import natgrad as ng

xarray = pytest.importorskip("xarray")


@pytest.fixture(scope="module")
def fit():
    rng = np.random.default_rng(0)
    data = rng.normal([-3.0, 3.0], 1.0, (40, 2)).ravel()
    point, component = ng.Plate("point", len(data)), ng.Plate("component", 2)
    weight = ng.Dirichlet("weight", 1.0, size=2)
    z = ng.Categorical("z", weight, plate=point)
    mu = ng.Normal("mu", 0.0, 0.01, plate=component)
    tau = ng.Gamma("tau", 1.0, 1.0)
    return ng.Network(ng.Normal("x", mu[z], tau, plate=point, observed=data)).fit(init="kmeans")


@pytest.fixture(scope="module")
def topics():
    texts = ["apple pear plum", "plum pear apple apple", "bolt nut screw", "nut bolt bolt screw"] * 3
    return ng.LDA(n_topics=2, seed=1, inference="vb", max_passes=5).fit(texts)


def test_dataset_has_the_numbers_of_the_factors(fit):
    found = fit.to_xarray(mass=0.8)
    assert found["mu"].dims == ("component",)
    np.testing.assert_array_equal(found["mu"], fit["mu"].mean())
    np.testing.assert_array_equal(found["mu_sd"], fit["mu"].std())
    np.testing.assert_array_equal(found["mu_upper"], fit["mu"].interval(0.8)[1])
    assert found["tau"].dims == ()
    assert found["z"].dims == ("point", "z_dim_0")
    assert "z_lower" not in found  # categories have no order
    assert set(fit.to_xarray(["mu"]).data_vars) == {"mu", "mu_sd", "mu_lower", "mu_upper"}


def test_draws_are_those_of_the_posterior(fit):
    tree = fit.to_arviz(n=4000, seed=3)
    draws = tree["posterior"]["mu"]
    assert draws.dims == ("chain", "draw", "component")
    sd = fit["mu"].std()
    assert (np.abs(draws.mean(("chain", "draw")).values - fit["mu"].mean()) < 5 * sd / np.sqrt(4000)).all()
    np.testing.assert_allclose(draws.std(("chain", "draw")).values, sd, rtol=0.1)
    assert tree["posterior"]["z"].dtype.kind == "i"
    again = fit.to_arviz(n=4000, seed=3)["posterior"]["mu"]
    np.testing.assert_array_equal(draws, again)


def test_arviz_reads_the_draws(fit):
    arviz_base = pytest.importorskip("arviz_base")
    draws = arviz_base.extract(fit.to_arviz(n=500), var_names="mu")
    assert dict(draws.sizes) == {"component": 2, "sample": 500}
    np.testing.assert_allclose(draws.mean("sample"), fit["mu"].mean(), atol=0.1)


def test_table_has_a_row_for_each_element(fit):
    table = fit.to_pandas(["tau", "mu", "weight"])
    assert list(table.index) == ["tau", "mu[0]", "mu[1]", "weight[0]", "weight[1]"]
    np.testing.assert_array_equal(table.loc[["mu[0]", "mu[1]"], "mean"], fit["mu"].mean())
    assert table.notna().all(axis=None)
    assert fit.to_pandas(["z"])["lower"].isna().all()


def test_a_saved_fit_exports_too(fit, tmp_path):
    fit.save(tmp_path / "fit")
    saved = ng.load(tmp_path / "fit")
    found = saved.to_xarray()
    for name in saved:
        np.testing.assert_array_equal(found[name], saved[name].mean())


def test_ready_models_have_their_own_labels(topics):
    found = topics.posterior_.to_xarray()
    assert found["phi"].dims == ("topic", "word")
    assert found["theta"].dims == ("doc", "topic")
    np.testing.assert_allclose(
        found["phi"].sel(word="apple"), topics.topics_[:, list(topics.vocabulary_).index("apple")]
    )
    assert "phi[0, apple]" in topics.posterior_.to_pandas().index
    tree = topics.posterior_.to_arviz(["phi"], n=10)
    assert tree["posterior"]["phi"].shape == (1, 10, 2, 6)
    ratings = ng.Ratings(["ann", "bob", "ann", "cho"], ["alien", "alien", "brazil", "brazil"], [5, 3, 4, 2])
    model = ng.MatrixFactorization(n_factors=2, max_steps=3).fit(ratings)
    assert model.posterior_.to_xarray()["u"].sel(user="bob").shape == (3,)
    series = np.random.default_rng(0).normal(size=(50, 2))
    chain = ng.GaussianHMM(2, n_init=1, max_passes=2).fit(series)
    assert chain.posterior_.to_xarray()["transition"].dims == ("state", "next_state")
    assert chain.posterior_.to_arviz(n=5)["posterior"]["initial"].shape == (1, 5, 2)


def test_a_variable_may_have_the_name_of_its_plate():
    topic = ng.Plate("topic", 3)
    node = ng.Normal("topic", 0.0, 1.0, plate=topic)
    fit = ng.Network(ng.Normal("y", node, 1.0, plate=topic, observed=[1.0, 2.0, 3.0])).fit(max_steps=2)
    assert fit.to_xarray()["topic"].dims == ("topic_axis",)


def test_wrong_names_are_said(fit, topics):
    with pytest.raises(KeyError, match="hidden nodes are"):
        fit.to_pandas(["nu"])
    with pytest.raises(TypeError, match=r"write \['mu'\]"):
        fit.to_arviz("mu")
    with pytest.raises(KeyError, match="it has phi, theta"):
        topics.posterior_["psi"]
