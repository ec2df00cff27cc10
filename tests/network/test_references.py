"""Networks against exact results: closed-form evidences, enumerated bounds, and another engine sweep by sweep."""

import numpy as np
import pytest

import natgrad as ng


def closed_forms():
    """Name, network and hidden node of each model whose mean-field posterior is exact."""

    def plate(data):
        return ng.Plate("n", len(data))

    def normal(r):
        x = ng.Normal("x", r["prior_mean"], r["prior_prec"])
        return ng.Normal("y", x, r["noise_prec"], plate=plate(r["data"]), observed=r["data"])

    def bernoulli(r):
        x = ng.Beta("x", r["a"], r["b"])
        return ng.Bernoulli("y", x, plate=plate(r["data"]), observed=r["data"])

    def poisson(r):
        x = ng.Gamma("x", r["a"], r["b"])
        return ng.Poisson("y", x, plate=plate(r["data"]), observed=r["data"])

    def categorical(r):
        x = ng.Dirichlet("x", r["alpha"])
        return ng.Categorical("y", x, plate=plate(r["data"]), observed=r["data"])

    def exponential(r):
        x = ng.Gamma("x", r["a"], r["b"])
        return ng.Exponential("y", x, plate=plate(r["data"]), observed=r["data"])

    def precision(r):
        x = ng.Gamma("x", r["a"], r["b"])
        return ng.Normal("y", r["mean"], x, plate=plate(r["data"]), observed=r["data"])

    def regression(r):
        g = np.random.default_rng(0)
        design = g.normal(size=(10, 3))
        y = design @ [1, -2, 0.5] + 0.3 * g.normal(size=10)
        x = ng.MultivariateNormal("x", np.zeros(3), r["alpha"] * np.eye(3))
        return ng.Normal("y", ng.dot(design, x), r["beta"], plate=ng.Plate("n", 10), observed=y)

    def wishart(r):
        x = ng.Wishart("x", r["nu"], np.array(r["V"]))
        return ng.MultivariateNormal("y", np.zeros(2), x, plate=plate(r["Y"]), observed=np.array(r["Y"]))

    return {
        "normal_known_precision": (normal, {"mean": "post_mean", "precision": "post_prec"}),
        "beta_bernoulli": (bernoulli, {"a": ("post", 0), "b": ("post", 1)}),
        "gamma_poisson": (poisson, {"shape": ("post", 0), "rate": ("post", 1)}),
        "dirichlet_categorical": (categorical, {"concentration": "post"}),
        "gamma_exponential": (exponential, {"shape": ("post", 0), "rate": ("post", 1)}),
        "gamma_normal_known_mean": (precision, {"shape": ("post", 0), "rate": ("post", 1)}),
        "linreg_known_noise": (regression, {"mean": "post_mean", "precision": "post_prec"}),
        "wishart_mvnormal_zero_mean": (wishart, {"dof": "post_nu", "rate": "post_V"}),
    }


@pytest.mark.parametrize("name", closed_forms())
def test_evidence_and_posterior_are_exact(name, reference):
    build, parameters = closed_forms()[name]
    record = reference("exact_conjugate")[name]
    fit = ng.Network(build(record)).fit()
    # One block: read once, with no second sweep, no probe, and no bound that is computed anew.
    assert (len(fit.trace), fit.trace.last.messages_read, fit.problem.probes) == (1, fit.problem.n_messages, ())
    assert fit.elbo == pytest.approx(record["log_evidence"], rel=1e-10)
    for parameter, key in parameters.items():
        wanted = record[key] if isinstance(key, str) else record[key[0]][key[1]]
        np.testing.assert_allclose(fit["x"].parameters[parameter], wanted, rtol=1e-10, atol=1e-12)


def test_normal_gamma_mean_field_reaches_its_fixed_point(reference):
    r = reference("exact_conjugate")["normal_gamma_meanfield"]
    mu, tau = ng.Normal("mu", r["mu0"], r["tau0"]), ng.Gamma("tau", r["a0"], r["b0"])
    y = ng.Normal("y", mu, tau, plate=ng.Plate("n", 5), observed=r["data"])
    fit = ng.Network(y).fit(ng.VB(), max_steps=200, tol=0)  # the bound is flat at its maximum: its rounding hides 1e-8
    assert fit.elbo == pytest.approx(r["elbo"], rel=1e-10)
    assert fit.elbo < r["log_evidence_quadrature"]
    assert fit["mu"].mean() == pytest.approx(r["fixed_point"]["mean"], rel=1e-8)
    assert fit["tau"].parameters["rate"] == pytest.approx(r["fixed_point"]["b"], rel=1e-8)


def test_chain_with_known_parameters_is_exact(reference):
    r = reference("exact_conjugate")["hmm_fixed_parameters"]
    time, state = ng.Plate("time", len(r["obs"])), ng.Plate("state", 2)
    z = ng.MarkovChain("z", r["pi"], r["A"], plate=time)
    # Known emissions as the limit of a very sure Dirichlet. 1e7 pseudo-counts: the bias of E[log] is 1e-6 for the rarest
    # symbol, and the log-gamma functions of order 1e8 cancel to 1e-7.
    b = ng.Dirichlet("b", 1e7 * np.array(r["B"]), plate=state)
    y = ng.Categorical("y", b[z], plate=time, observed=r["obs"])
    fit = ng.Network(y).fit(max_steps=5, init={"b": np.array(r["B"])})
    np.testing.assert_allclose(fit["z"].mean(), r["smoothed"], atol=1e-5)
    assert fit.elbo == pytest.approx(r["log_likelihood"], abs=1e-5)


def test_tiny_lda_stays_below_its_enumerated_evidence(reference):
    r = reference("exact_conjugate")["lda_exact_tiny"]
    doc, cell, topic = ng.Plate("doc", 2), ng.Plate("cell", 8), ng.Plate("topic", r["K"])
    theta = ng.Dirichlet("theta", r["alpha"], size=r["K"], plate=doc)
    phi = ng.Dirichlet("phi", r["beta"], size=r["V"], plate=topic)
    z = ng.Categorical("z", theta[np.array(r["doc"])], plate=cell)
    w = ng.Categorical("w", phi[z], plate=cell, observed=r["w"])
    net = ng.Network(w)
    bounds = [net.fit(seed=seed, init="random", max_steps=300, tol=1e-12).elbo for seed in range(5)]
    assert max(bounds) < r["log_evidence"]
    assert max(bounds) > r["log_evidence"] - 2.0  # log 2! relabellings and mean field: a nat and a bit


def test_tiny_mixture_stays_below_its_enumerated_evidence(reference):
    r = reference("exact_conjugate")["gmm_exact_tiny"]
    n, k = ng.Plate("n", 6), ng.Plate("k", 2)
    weights = ng.Dirichlet("weights", float(r["alpha"]), size=2)
    z = ng.Categorical("z", weights, plate=n)
    mu = ng.Normal("mu", 0.0, 1.0 / r["mu_prior_var"], plate=k)
    y = ng.Normal("y", mu[z], float(r["noise_prec"]), plate=n, observed=r["y"])
    fit = ng.Network(y).fit(init="kmeans", max_steps=200, tol=1e-12)
    # The two labellings are two equal modes; one of them holds half the evidence: the gap is a little over log 2.
    assert 0 < r["log_evidence"] - fit.elbo < 1.0


def test_local_level_model_is_exact_as_one_vector(reference):
    r = reference("exact_conjugate")["local_level_kalman"]
    n = len(r["y"])
    difference = np.eye(n) - np.eye(n, k=-1)
    scales = np.diag([1 / r["init_var"]] + [1 / r["state_var"]] * (n - 1))
    x = ng.MultivariateNormal("x", np.zeros(n), difference.T @ scales @ difference)
    y = ng.Normal("y", ng.dot(np.eye(n), x), 1 / r["noise_var"], plate=ng.Plate("n", n), observed=r["y"])
    fit = ng.Network(y).fit()
    assert fit.elbo == pytest.approx(r["log_likelihood"], rel=1e-10)
    np.testing.assert_allclose(fit["x"].mean(), r["smoothed_mean"], rtol=1e-10)


def sweeps(network, order, init, wanted):
    fit = network.fit(ng.VB(), max_steps=len(wanted), tol=0, order=order, init=init)
    np.testing.assert_allclose(fit.trace["elbo"], wanted, rtol=1e-10)
    return fit


def test_mixture_of_gaussians_sweep_by_sweep(reference):
    r = reference("gmm_small")
    n_points, dim, size = r["N"], r["D"], r["K"]
    rng = np.random.default_rng(0)
    means = rng.normal(0, 5, (size, dim))
    y = means[rng.integers(0, size, n_points)] + rng.normal(0, 1, (n_points, dim))
    n, k = ng.Plate("n", n_points), ng.Plate("k", size)
    alpha = ng.Dirichlet("alpha", 1.0, size=size)
    z = ng.Categorical("z", alpha, plate=n)
    mu = ng.MultivariateNormal("mu", np.zeros(dim), 1e-2 * np.eye(dim), plate=k)
    precision = ng.Wishart("Lambda", dim, np.eye(dim), plate=k)
    x = ng.MultivariateNormal("y", mu[z], precision[z], plate=n, observed=y)
    start = y[np.random.default_rng(2).choice(n_points, size, replace=False)]
    fit = sweeps(ng.Network(x), ["z", "mu", "Lambda", "alpha"], {"mu": start}, r["elbo"])
    np.testing.assert_allclose(fit["alpha"].parameters["concentration"], r["post"]["alpha"], rtol=1e-9)
    np.testing.assert_allclose(fit["mu"].mean(), r["post"]["mu_mean"], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(fit["mu"].var(), r["post"]["mu_cov_diag"], rtol=1e-9)
    np.testing.assert_allclose(fit["Lambda"].mean(), r["post"]["Lambda_mean"], rtol=1e-9, atol=1e-12)


def test_ard_regression_sweep_by_sweep(reference):
    r = reference("linreg_small")
    rng = np.random.default_rng(0)
    design = rng.normal(0, 1, (r["N"], r["D"]))
    weights = np.where(np.arange(r["D"]) < r["D"] // 2, rng.normal(0, 2, r["D"]), 0.0)
    y = design @ weights + 0.3 * rng.normal(0, 1, r["N"])
    alpha = ng.Gamma("alpha", 1e-3, 1e-3, plate=ng.Plate("d", r["D"]))
    tau = ng.Gamma("tau", 1e-3, 1e-3)
    w = ng.MultivariateNormal("w", 0, ng.diag(alpha), size=r["D"])
    x = ng.Normal("y", ng.dot(design, w), tau, plate=ng.Plate("n", r["N"]), observed=y)
    fit = sweeps(ng.Network(x), ["w", "alpha", "tau"], None, r["elbo"])
    np.testing.assert_allclose(fit["w"].mean(), r["post"]["w_mean"], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(
        np.linalg.inv(fit["w"].parameters["precision"]), r["post"]["w_cov"], rtol=1e-7, atol=1e-10
    )
    np.testing.assert_allclose(fit["alpha"].mean(), r["post"]["alpha_mean"], rtol=1e-8)


def test_lda_sweep_by_sweep(reference):
    r = reference("lda_small")
    n_docs, size, vocabulary, n_words = r["Ndocs"], r["K"], r["V"], r["Ntokens"]
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(0.1 * np.ones(size), n_docs)
    topics = rng.dirichlet(0.1 * np.ones(vocabulary), size)
    doc_of = rng.integers(0, n_docs, n_words)
    topic_of = [rng.choice(size, p=shares[d]) for d in doc_of]
    words = [rng.choice(vocabulary, p=topics[k]) for k in topic_of]
    doc, cell, topic = ng.Plate("doc", n_docs), ng.Plate("cell", n_words), ng.Plate("topic", size)
    theta = ng.Dirichlet("theta", 0.5, size=size, plate=doc)
    phi = ng.Dirichlet("phi", 0.1, size=vocabulary, plate=topic)
    z = ng.Categorical("z", theta[doc_of], plate=cell)
    w = ng.Categorical("w", phi[z], plate=cell, observed=words)
    start = np.random.default_rng(1)
    init = {"theta": start.dirichlet(np.ones(size), n_docs), "phi": start.dirichlet(np.ones(vocabulary), size)}
    fit = sweeps(ng.Network(w), ["z", "phi", "theta"], init, r["elbo"])
    np.testing.assert_allclose(fit["theta"].parameters["concentration"], r["post"]["theta"], rtol=1e-8)
    np.testing.assert_allclose(fit["phi"].parameters["concentration"], r["post"]["phi"], rtol=1e-8)


def test_hidden_markov_model_sweep_by_sweep(reference):
    r = reference("hmm_small")
    length, dim, size = r["T"], r["D"], r["K"]
    rng = np.random.default_rng(0)
    means = rng.normal(0, 4, (size, dim))
    transition = 0.9 * np.eye(size) + 0.1 / size
    states = np.zeros(length, int)
    for t in range(1, length):
        states[t] = rng.choice(size, p=transition[states[t - 1]])
    y = means[states] + rng.normal(0, 1, (length, dim))
    time, k = ng.Plate("time", length), ng.Plate("k", size)
    pi = ng.Dirichlet("pi", 1.0, size=size)
    rows = ng.Dirichlet("A", 1.0, size=size, plate=k)
    z = ng.MarkovChain("z", pi, rows, plate=time)
    mu = ng.MultivariateNormal("mu", np.zeros(dim), 0.01 * np.eye(dim), plate=k)
    precision = ng.Wishart("Lambda", dim, np.eye(dim), plate=k)
    x = ng.MultivariateNormal("y", mu[z], precision[z], plate=time, observed=y)
    start = y[np.random.default_rng(2).choice(length, size, replace=False)]
    fit = sweeps(ng.Network(x), ["z", "mu", "Lambda", "pi", "A"], {"mu": start}, r["elbo"])
    np.testing.assert_allclose(fit["A"].parameters["concentration"], r["post"]["A"], rtol=1e-7)
    np.testing.assert_allclose(fit["mu"].mean(), r["post"]["mu"], rtol=1e-7)
