"""Pages say of which level their intervals are, and where better ones come from."""

import numpy as np

import natgrad as ng


def test_pages_of_ready_models_and_networks_name_their_level(tmp_path):
    x = np.concatenate([np.zeros(30), np.full(30, 5.0)])[:, None] + np.random.default_rng(0).normal(size=(60, 1))
    for model in (ng.GaussianMixture(2).fit(x), ng.GaussianHMM(2).fit(x)):
        text = model.report(tmp_path / "page.html").read_text()
        assert "Intervals are those of q" in text
        assert "model.linear_response(X) and model.draws(X)" in text
    mu, tau = ng.Normal("mu", 0.0, 0.1), ng.Gamma("tau", 1.0, 1.0)
    fit = ng.Network(ng.Normal("y", mu, tau, plate=ng.Plate("n", 60), observed=x[:, 0])).fit()
    said = []
    for step in (lambda: None, fit.linear_response, lambda: fit.draws(n=50, verbose=False)):
        step()
        said.append(fit.report(tmp_path / "page.html").read_text())
    assert "are those of q, which are too narrow" in said[0]
    assert "are those of linear response" in said[1]
    assert "are those of draws from the posterior" in said[2]
