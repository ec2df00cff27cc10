"""What ArviZ reads beside the posterior: data, their likelihood, and data drawn from posterior and prior."""

import numpy as np
import pytest
import scipy.stats

import natgrad as ng

pytest.importorskip("xarray")
GROUPS = ["posterior", "observed_data", "log_likelihood", "posterior_predictive", "prior", "prior_predictive"]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    team = np.repeat(["red", "blue", "teal"], 8)
    return {"team": list(team), "points": rng.normal(np.repeat([0.0, 2.0, 4.0], 8), 1.0)}


@pytest.fixture(scope="module")
def fit(table):
    game, team = ng.Plate("game"), ng.Plate("team")
    skill = ng.Normal("skill", 0.0, 0.1, plate=team)
    noise = ng.Gamma("noise", 2.0, 2.0)
    points = ng.Normal("points", skill[ng.Column("team")], noise, plate=game, observed=ng.Column("points"))
    return ng.Network(points).fit(table)


def likelihood(tree, table):
    posterior = tree["posterior"]
    mean = posterior["skill"].sel(team=table["team"]).values
    sd = 1 / np.sqrt(posterior["noise"].values)[..., None]
    return scipy.stats.norm.logpdf(table["points"], mean, sd)


def test_all_groups_with_the_names_of_the_data(fit, table):
    tree = fit.to_arviz(n=300, seed=1)
    assert list(tree.children) == GROUPS
    assert set(tree["posterior"]["team"].values) == {"red", "blue", "teal"}
    assert set(tree["prior"]["team"].values) == {"red", "blue", "teal"}
    np.testing.assert_array_equal(tree["observed_data"]["points"], table["points"])
    np.testing.assert_allclose(tree["log_likelihood"]["points"], likelihood(tree, table), rtol=1e-9)
    assert tree["posterior_predictive"]["points"].dims == ("chain", "draw", "game")
    # Data drawn from the posterior lie where the data lie; those of the prior do not know them.
    seen = tree["posterior_predictive"]["points"].mean(("chain", "draw"))
    assert np.abs(seen - table["points"]).max() < 3.5
    assert tree["prior_predictive"]["points"].std() > 2.5
    assert list(fit.to_arviz(["noise"], n=5, groups=["posterior"]).children) == ["posterior"]


def test_draws_have_them_too(fit, table):
    draws = fit.draws(n=100, warmup=20, chains=2, verbose=False)
    tree = draws.to_arviz()
    assert list(tree.children) == GROUPS
    assert tree["log_likelihood"]["points"].shape == (2, 100, 24)
    np.testing.assert_allclose(tree["log_likelihood"]["points"], likelihood(tree, table), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")  # of one game that nobody foresaw
def test_loo_compares_two_networks(fit, table):
    arviz_stats = pytest.importorskip("arviz_stats")
    if not hasattr(arviz_stats, "loo"):
        pytest.skip("arviz-stats without xarray-einstats")
    game, mean, noise = ng.Plate("game"), ng.Normal("mean", 0.0, 0.1), ng.Gamma("noise", 2.0, 2.0)
    alone = ng.Normal("points", mean, noise, plate=game, observed=ng.Column("points"))
    trees = {"teams": fit.to_arviz(n=400), "one mean": ng.Network(alone).fit(table).to_arviz(n=400)}
    ranking = arviz_stats.compare(trees)
    assert ranking.index[0] == "teams"


def test_missing_elements_have_no_likelihood():
    n = ng.Plate("n", 4)
    y = ng.Poisson("y", ng.Gamma("rate", 1.0, 1.0), plate=n, observed=[1, np.nan, 3, 2])
    tree = ng.Network(y).fit().to_arviz(n=20)
    np.testing.assert_array_equal(tree["observed_data"]["y"], [1, 3, 2])
    rate = tree["posterior"]["rate"].values[..., None]
    np.testing.assert_allclose(tree["log_likelihood"]["y"], scipy.stats.poisson.logpmf([1, 3, 2], rate), rtol=1e-9)


def test_what_cannot_be_written_is_said():
    n = ng.Plate("n", 3, weight=[1.0, 2.0, 3.0])
    fit = ng.Network(ng.Normal("y", ng.Normal("mu", 0.0, 1.0), 1.0, plate=n, observed=[1.0, 2.0, 0.0])).fit()
    tree = fit.to_arviz(n=5)
    assert "log_likelihood" not in tree.children
    assert "weights" in tree.attrs["without_log_likelihood"]
    with pytest.raises(ng.errors.PlateMismatch, match="write the rows out"):
        fit.to_arviz(n=5, groups=["log_likelihood"])
    with pytest.raises(ValueError, match="there is no group 'loglik'"):
        fit.to_arviz(groups=["loglik"])
    mixture = ng.GaussianMixture(2).fit(np.random.default_rng(0).normal(size=(30, 1)))
    with pytest.raises(TypeError, match="of networks alone"):
        mixture.posterior_.to_arviz(groups=["log_likelihood"])
