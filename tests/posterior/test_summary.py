"""The table of a posterior: what it says of each level, how it prints, how it converts."""

import numpy as np
import pytest
from promises.networks import CASES

import natgrad as ng


def test_a_fit_shows_what_was_computed():
    pytest.importorskip("pandas")
    fit = CASES["counts"]().network.fit(backend="numpy")
    table = fit.summary()
    assert list(table.columns) == ["mean", "sd (q)", "lower", "upper"]
    assert table.level == "q"
    np.testing.assert_array_equal(table["mean"], [fit["rate"].mean(), *fit["theta"].mean()])
    lr = fit.linear_response()
    better = fit.summary(["theta"], mass=0.5)
    assert better.rows == ("theta[0]", "theta[1]", "theta[2]", "theta[3]")
    np.testing.assert_array_equal(better["sd (linear response)"], lr["theta"].std())
    np.testing.assert_array_equal(better["lower"], lr["theta"].interval(0.5)[0])
    frame = better.to_pandas()
    np.testing.assert_array_equal(frame["sd (q)"], fit["theta"].std())
    assert "mean and 50% interval: linear response" in str(better)
    assert "<td>" in better._repr_html_()
    with pytest.raises(KeyError, match="is not a column; these are mean"):
        table["sd"]


def test_draws_come_with_their_diagnostics():
    fit = CASES["counts"]().network.fit(backend="numpy")
    drawn = fit.draws(n=200, chains=2, verbose=False)
    table = fit.summary()
    assert list(table.columns) == ["mean", "sd (q)", "sd (draws)", "lower", "upper", "R̂", "ESS"]
    np.testing.assert_array_equal(table["mean"], [drawn["rate"].mean(), *drawn["theta"].mean()])
    assert np.all(np.abs(table["R̂"] - 1.0) < 0.1)


def test_a_long_table_is_cut_and_categories_are_left_out():
    fit = CASES["lda"]().network.fit(init=CASES["lda"]().init, backend="numpy", max_steps=5)
    table = fit.summary()
    assert len(table) == 7 * 3 + 3 * 9
    assert not any(row.startswith("z") for row in table.rows)
    wide = fit.summary(["z", "phi"])
    assert np.isnan(wide["lower"]).any()
    assert "…" in str(wide)
    assert len(str(wide).splitlines()) == 53


def test_a_ready_model_has_one_too():
    model = ng.LDA(n_topics=2, seed=1).fit(["a pear", "a plum", "the nut"])
    assert "phi[0, pear]" in model.posterior_.summary(["phi"]).rows


def test_a_table_of_draws_says_that_they_are_draws():
    """It said that means and intervals were those of q."""
    y = ng.Normal("y", ng.Normal("mean", 0.0, 1.0), 1.0, plate=ng.Plate("n", 4), observed=[1.0, 2.0, 0.5, 1.5])
    fit = ng.Network(y).fit()
    draws, response = fit.draws(n=50, verbose=False), fit.linear_response()
    assert "sd (draws)" in str(draws.summary())
    assert "mean and 90% interval: draws" in str(draws.summary())
    assert "sd (q)" not in str(draws.summary())
    assert "interval: linear response" in str(response.summary())
    assert "interval: draws" in str(fit.summary())
    assert "sd (q)" in str(fit.summary())


def test_categories_stand_in_a_table_of_draws():
    """A table of draws that was asked for categories ended in an error, since these have no R̂."""
    plate = ng.Plate("n", 3)
    z = ng.Categorical("z", [0.5, 0.5], plate=plate)
    mean = ng.Normal("m", np.array([-2.0, 2.0]), 1.0, plate=ng.Plate("k", 2))
    fit = ng.Network(ng.Normal("y", mean[z], 1.0, plate=plate, observed=[-2.0, 2.0, 2.2])).fit()
    draws = fit.draws(n=50, verbose=False)
    for table in (fit.summary(["z", "m"]), draws.summary(["z", "m"])):
        assert len(table) == 8
        assert np.isnan(table["R̂"][:6]).all()
        assert np.isfinite(table["R̂"][6:]).all()
        np.testing.assert_array_equal(table["mean"][:6].reshape(3, 2), draws["z"].mean())
