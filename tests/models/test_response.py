"""Linear response of ready models: that of the same model declared as a network, and the derivative of a fit under a tilt."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.errors import NotConverged


def documents() -> np.ndarray:
    rng = np.random.default_rng(0)
    topics = np.kron([[4.0, 1.0], [1.0, 4.0]], np.full(4, 0.05))
    return np.array([rng.multinomial(25, share @ topics) for share in rng.dirichlet([0.3, 0.3], 12)])


def test_lda_has_that_of_the_declared_network():
    table = documents()
    model = ng.LDA(2, doc_prior=0.3, topic_prior=0.3, tol=1e-9, max_passes=500, local_tol=1e-8, local_steps=500, seed=1)
    model.set_params(dtype="float64", skip_below=0.0).fit(table)
    lr = model.linear_response(table)
    docs, words = np.nonzero(table)
    doc, cell, topic = ng.Plate("doc", 12), ng.Plate("cell", len(docs), weight=table[docs, words]), ng.Plate("topic", 2)
    theta = ng.Dirichlet("theta", 0.3, size=2, plate=doc)
    phi = ng.Dirichlet("phi", 0.3, size=8, plate=topic)
    z = ng.Categorical("z", theta[docs], plate=cell)
    network = ng.Network(ng.Categorical("w", phi[z], plate=cell, observed=words))
    init = {"phi": model.topics_, "theta": model.transform(table)}
    fit = network.fit(init=init, order=["z", "phi", "theta"], backend="numpy", tol=1e-7, max_steps=300)
    declared = fit.linear_response()
    np.testing.assert_allclose(lr["phi"].mean(), declared["phi"].mean(), atol=1e-4)
    np.testing.assert_allclose(lr["phi"].std(), declared["phi"].std(), rtol=1e-4)
    np.testing.assert_allclose(
        lr.correlation(lambda m: m["phi"][0, 1], lambda m: m["phi"][1, 1]),
        declared.correlation(lambda m: m["phi"][0, 1], lambda m: m["phi"][1, 1]),
        atol=1e-4,
    )
    assert (lr["phi"].std() / model.posterior_["phi"].std()).max() > 1.2
    assert "phi[1, 3]" in model.posterior_.summary(["phi"], linear_response=lr).rows


@pytest.mark.slow
def test_a_mixture_is_the_derivative_of_its_fit_under_a_tilt():
    rng = np.random.default_rng(1)
    x = np.r_[rng.normal(-1.2, 1.0, 40), rng.normal(1.2, 1.0, 60)][:, None]
    model = ng.GaussianMixture(2, covariance="diag", tol=1e-12, max_passes=3000, n_init=2).fit(x)
    lr = model.linear_response(x)
    problem = model._response_problem(x)
    family = problem.blocks["components"].family
    spread, step = lr["components"].std(), 1e-4
    assert (spread[..., 0] / model.posterior_["components"].std()[..., 0]).min() > 1.1
    # A tilt of φ_0 = τ x of the first component: its covariance with every mean.
    ends = []
    for sign in (1.0, -1.0):
        state = problem.at(model._state.lam)
        for _ in range(3000):
            found = problem.solve_all(state)
            lam = {
                n: [p + m for p, m in zip(problem.prior_of(n), found.messages[n], strict=True)] for n in problem.blocks
            }
            lam["components"][0] = lam["components"][0] + sign * step * np.eye(2)[:, :1]
            new = problem.at({n: tuple(part) for n, part in lam.items()})
            moved = max(np.abs(a - b).max() for n in lam for a, b in zip(new.lam[n], state.lam[n], strict=True))
            state = new
            if moved < 1e-11:
                break
        ends.append(family.mean(state.lam["components"]))
    slope = (ends[0] - ends[1]) / (2.0 * step)
    operator = lr._solver.operator
    tilt = operator.pack({"components": (np.eye(2)[:, :1], *(np.zeros((2, 1)) for _ in range(3)))})
    change = lr._solver.solve(tilt)
    found = operator.covariances["components"].value_by(operator.part(change, "components"))
    np.testing.assert_allclose(found, slope, rtol=1e-3, atol=1e-4 * np.abs(slope).max())


def test_a_hidden_markov_model_has_that_of_the_declared_network():
    rng = np.random.default_rng(2)
    states = np.repeat([0, 1, 0, 1, 0], 12)
    symbols = np.where(rng.random(60) < 0.75, states, 1 - states)
    model = ng.CategoricalHMM(2, n_categories=2, tol=1e-12, max_passes=3000, n_init=2).fit(symbols[:, None])
    lr = model.linear_response(symbols[:, None])
    time, state = ng.Plate("time", 60), ng.Plate("state", 2)
    initial = ng.Dirichlet("initial", 1.0, size=2)
    transition = ng.Dirichlet("transition", 1.0, size=2, plate=state)
    emission = ng.Dirichlet("emission", 1.0, size=2, plate=state)
    z = ng.MarkovChain("z", initial, transition, plate=time)
    network = ng.Network(ng.Categorical("y", emission[z], plate=time, observed=symbols))
    init = {"transition": model.transmat_, "emission": np.reshape(model.emissionprob_, (2, 2))}
    fit = network.fit(
        init=init, order=["z", "initial", "transition", "emission"], backend="numpy", tol=1e-12, max_steps=3000
    )
    declared = fit.linear_response()
    np.testing.assert_allclose(lr["transition"].mean(), declared["transition"].mean(), atol=1e-5)
    for name in ("transition", "emission", "initial"):
        np.testing.assert_allclose(np.squeeze(lr[name].std()), declared[name].std(), rtol=1e-3, err_msg=name)


def test_other_data_are_noticed_and_models_without_it_say_so():
    x = np.random.default_rng(3).normal(size=(50, 1))
    model = ng.GaussianMixture(1).fit(x)
    with pytest.warns(NotConverged, match="exact steps gained"):
        model.linear_response(x + 1.0)
    with pytest.raises(TypeError, match=r"give them, model.linear_response\(X\)"):
        model.linear_response()
    counts = ng.MatrixFactorization(1, likelihood="poisson", max_passes=2, biases=False)
    counts.fit(np.array([[0, 0, 1.0], [0, 1, 2.0], [1, 0, 3.0]]))
    with pytest.raises(TypeError, match="declare the model as a network"):
        counts.linear_response()
