"""Linear response of ready models: that of the same model declared as a network, and the derivative of a fit under a tilt."""

from typing import Any

import numpy as np
import pytest
from loops import compiled_loops  # noqa: F401 - for all tests here

import natgrad as ng
from natgrad.errors import NotConverged
from natgrad.posterior.response.linearised import optimum_of_groups
from natgrad.posterior.response.operator import Operator


def documents() -> np.ndarray:
    rng = np.random.default_rng(0)
    topics = np.kron([[4.0, 1.0], [1.0, 4.0]], np.full(4, 0.05))
    return np.array([rng.multinomial(25, share @ topics) for share in rng.dirichlet([0.3, 0.3], 12)])


def test_lda_has_that_of_the_declared_network():
    table = documents()
    model = ng.LDA(
        2,
        doc_prior=0.3,
        topic_prior=0.3,
        inference="vb",
        tol=1e-9,
        max_passes=500,
        local=ng.LocalOptions(tol=1e-8, max_rounds=500, dtype="float64", skip_below=0.0),
        seed=1,
    )
    model.fit(table)
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


def test_a_hidden_markov_model_has_that_of_the_declared_network():
    rng = np.random.default_rng(2)
    states = np.repeat([0, 1, 0, 1, 0], 12)
    symbols = np.where(rng.random(60) < 0.75, states, 1 - states)
    model = ng.CategoricalHMM(2, categories=2, tol=1e-12, max_passes=3000, n_init=2).fit(symbols[:, None])
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
    counts = ng.MatrixFactorization(1, likelihood="poisson", max_steps=2)
    counts.fit(np.array([[0, 0, 1.0], [0, 1, 2.0], [1, 0, 3.0]]))
    with pytest.raises(TypeError, match="declare the model as a network"):
        counts.linear_response()


def perturbed(model: ng.GaussianMixture, x: np.ndarray, row: int, step: float) -> float:
    """The mean of the first component when one row counts a little more, by exact sweeps from the fit."""
    weight = np.ones(len(x))
    weight[row] += step
    problem, state = model._response_problem(x, weight), model._state
    for _ in range(2000):
        old, state = state, problem.sweep(state).state
        if np.abs(state.lam["weights"][0] - old.lam["weights"][0]).max() < 1e-11:
            break
    return float(problem.blocks["weights"].family.mean(state.lam["weights"])[0])


def test_influence_of_a_row_of_a_mixture_is_the_derivative_by_its_weight():
    rng = np.random.default_rng(1)
    x = np.r_[rng.normal(-2.0, 1.0, 12), rng.normal(2.0, 1.0, 18)][:, None]
    model = ng.GaussianMixture(2, covariance="diag", tol=1e-12, max_passes=3000).fit(x)
    influence = model.linear_response(x).influence(lambda m: m["weights"][0])["row"]
    assert influence.shape == (30,)
    for row in (0, 5, 20):
        ends = [perturbed(model, x, row, sign * 1e-4) for sign in (1.0, -1.0)]
        np.testing.assert_allclose(influence[row], (ends[0] - ends[1]) / 2e-4, rtol=1e-4, atol=1e-6)
    # A row of weight two is two rows.
    weight = np.ones(30)
    weight[3] = 2.0
    twice = model.set_params(n_init=1).fit(x, sample_weight=weight)
    both = model.linear_response(x, sample_weight=weight).influence(lambda m: m["weights"][0])["row"]
    copies = np.r_[x, x[3:4]]
    each = twice.linear_response(copies).influence(lambda m: m["weights"][0])["row"]
    np.testing.assert_allclose(both[3], each[3] + each[30], rtol=1e-3)


def weighted(model: Any, problem: Any, lr: Any, name: str, group: int, more: float) -> float:
    """The mean of the first number of a node, refitted with 1 + ``more`` times the statistics of a group."""
    state = model._state._replace(lam=dict(lr._at.lam))
    state = state._replace(mu={n: problem.moments(b, state.lam[n]) for n, b in problem.blocks.items()})
    rows = None
    for _ in range(1500):
        solved = problem.solve(state, None, rows, 1e-12, 2000)
        rows = solved.rows or None
        own = None if rows is None else tuple(part[group : group + 1] for part in rows)
        extra = problem.solve(state, np.array([group]), own, 1e-12, 2000).messages
        told = {
            n: tuple(m + more * e for m, e in zip(solved.messages[n], extra[n], strict=True)) for n in problem.blocks
        }
        old, state = state, problem.global_step(state, told).state
        if max(np.abs(state.lam[n][0] - old.lam[n][0]).max() for n in problem.blocks) < 1e-10:
            break
    return float(np.ravel(problem.blocks[name].family.mean(state.lam[name]))[0])


def grouped() -> list[tuple[Any, Any, str, str]]:
    """Models of documents and of sequences, their data, the plate of the groups and a node."""
    table = documents()
    lda = ng.LDA(
        2,
        doc_prior=0.3,
        topic_prior=0.3,
        inference="vb",
        tol=1e-9,
        max_passes=500,
        local=ng.LocalOptions(tol=1e-8, max_rounds=500, dtype="float64", skip_below=0.0),
        seed=1,
    )
    lda.fit(table)
    rng = np.random.default_rng(2)
    symbols = [(rng.random((9, 1)) < 0.3 + 0.4 * (i % 2)).astype(int) for i in range(6)]
    hmm = ng.CategoricalHMM(2, categories=2, tol=1e-12, max_passes=3000, n_init=2).fit(symbols)
    return [(lda, table, "doc", "phi"), (hmm, symbols, "sequence", "emission")]


def test_influence_of_documents_and_sequences_is_the_derivative_by_their_weight():
    """Groups whose statistics count w times: the prior's part of the target stays, theirs is multiplied."""
    for model, data, plate, name in grouped():
        lr, problem = model.linear_response(data), model._response_problem(data)
        influence = lr.influence(lambda m, name=name: np.ravel(m[name])[0])[plate]
        ends = [weighted(model, problem, lr, name, 1, sign * 1e-3) for sign in (1.0, -1.0)]
        np.testing.assert_allclose(influence[1], (ends[0] - ends[1]) / 2e-3, rtol=1e-3, atol=1e-7, err_msg=plate)
        assert influence.shape == (problem.n_groups,)


def test_a_fit_that_ended_at_a_saddle_is_taken_to_the_maximum_beside_it():
    """Two topics that are nearly one: sweeps leave them so, the bound rises along the direction in which they part."""
    table = documents()
    model = ng.LDA(
        2,
        doc_prior=0.3,
        topic_prior=0.3,
        inference="vb",
        local=ng.LocalOptions(tol=1e-8, dtype="float64", skip_below=0.0),
        seed=1,
    ).fit(table)
    problem = model._response_problem(table)
    mean = table.sum(0) / 2.0 + 0.3
    near = np.stack([mean, mean]) + 1e-5 * np.random.default_rng(0).normal(size=(2, 8))
    state = problem.at(near)
    for _ in range(2):
        state = problem.global_step(state, problem.solve(state, None, None, 1e-10, 5000).messages).state
    at, gained, left = optimum_of_groups(problem, state)
    assert gained > 1.0
    assert left < 1e-6
    operator = Operator(at)
    kept = operator.fisher_matrix("phi")
    values = np.linalg.eigvals(np.eye(operator.size) - operator.jacobian @ kept)
    assert values.real.min() > 0.0  # a maximum
    model._state = state
    with pytest.warns(NotConverged, match="exact steps gained .* as are its means"):
        lr = model.linear_response(table)
    np.testing.assert_allclose(lr["phi"].mean(), at.blocks["phi"].family.mean(at.lam["phi"]), rtol=1e-4)
    assert (lr["phi"].std() > 0).all()
