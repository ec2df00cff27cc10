"""Several starts, compared after a few sweeps: the best goes on. A default for mixtures, and clusters of any data."""

import numpy as np
import pytest
from networks import CASES, scalar_mixture

import natgrad as ng
from natgrad.network.execute.problem import NetworkProblem
from natgrad.network.groups.groups import Groups
from natgrad.network.start import clusters as features
from natgrad.network.start import restarts
from natgrad.network.start import restarts as sample
from natgrad.network.start.initial import make_start
from natgrad.network.start.order import default_order


def data_of(kind, seed=0, n=90):
    """Three groups, told by real numbers, counts, binaries, categories, votes or waiting times."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, n)
    if kind == "columns":
        return truth, 3.0 * rng.normal(size=(3, 4))[truth] + rng.normal(size=(n, 4))
    if kind == "counts":
        return truth, rng.poisson(np.array([1.0, 12.0, 50.0])[truth])
    if kind == "waits":
        return truth, rng.exponential(np.array([0.01, 1.0, 100.0])[truth])
    if kind == "binaries":
        return truth, (rng.random((n, 10)) < np.where(rng.random((3, 10)) < 0.5, 0.1, 0.9)[truth]).astype(int)
    if kind == "binomials":
        return truth, rng.binomial(40, np.array([0.1, 0.5, 0.9])[truth])
    shares = rng.dirichlet(np.full(5, 0.2), size=(3, 8) if kind == "categories" else 3)
    if kind == "categories":
        return truth, np.array([[rng.choice(5, p=shares[t, d]) for d in range(8)] for t in truth])
    return truth, np.array([rng.multinomial(30, shares[t]) for t in truth])


def network_of(kind, y, size=3):
    point, k = ng.Plate("point", len(y)), ng.Plate("k", size)
    z = ng.Categorical("z", ng.Dirichlet("pi", 1.0, size=size), plate=point)
    feature = ng.Plate("feature", y.shape[1] if y.ndim > 1 else 1)
    if kind == "columns":
        mu, tau = ng.Normal("mu", 0.0, 0.1, plate=(k, feature)), ng.Gamma("tau", 1.0, 1.0, plate=(k, feature))
        return ng.Network(ng.Normal("y", mu[z], tau[z], plate=(point, feature), observed=y))
    if kind == "counts":
        return ng.Network(ng.Poisson("y", ng.Gamma("rate", 1.0, 0.1, plate=k)[z], plate=point, observed=y))
    if kind == "waits":
        return ng.Network(ng.Exponential("y", ng.Gamma("rate", 1.0, 0.1, plate=k)[z], plate=point, observed=y))
    if kind == "binaries":
        p = ng.Beta("p", 1.0, 1.0, plate=(k, feature))
        return ng.Network(ng.Bernoulli("y", p[z], plate=(point, feature), observed=y))
    if kind == "binomials":
        return ng.Network(ng.Binomial("y", 40, ng.Beta("p", 1.0, 1.0, plate=k)[z], plate=point, observed=y))
    if kind == "categories":
        p = ng.Dirichlet("p", 1.0, size=5, plate=(k, feature))
        return ng.Network(ng.Categorical("y", p[z], plate=(point, feature), observed=y))
    return ng.Network(ng.Multinomial("y", None, ng.Dirichlet("p", 1.0, size=5, plate=k)[z], plate=point, observed=y))


def purity(fit, truth):
    """The part of the points whose group is the one that its component has most of."""
    label = fit["z"].mean().argmax(-1)
    return np.mean([np.bincount(truth[label == k]).max() / (label == k).sum() for k in np.unique(label)])


KINDS = ["columns", "counts", "waits", "binaries", "binomials", "categories", "votes"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("init", ["kmeans", None])
def test_clusters_of_any_data_and_the_default_find_the_groups(kind, init):
    truth, y = data_of(kind)
    network = network_of(kind, y)
    fit = network.fit(init=init)
    assert purity(fit, truth) > 0.8
    assert fit.elbo > network.fit(init={"z": truth}).elbo - 0.5
    assert len(fit.trace.starts) > 1


def test_missing_columns_are_no_obstacle():
    truth, y = data_of("columns")
    y[::7, 1] = np.nan
    y[3] = np.nan
    assert purity(network_of("columns", y).fit(init="kmeans"), truth) > 0.8


def test_categories_without_data_of_their_own_are_refused_by_kmeans_and_drawn_by_default():
    first, second = np.triu_indices(12, 1)
    z = ng.Categorical("z", ng.Dirichlet("pi", 1.0, size=2), plate=ng.Plate("node", 12))
    table = ng.Beta("B", 1.0, 1.0, plate=(ng.Plate("from", 2), ng.Plate("to", 2)))
    edge = (first % 2 == second % 2).astype(int)
    network = ng.Network(ng.Bernoulli("e", table[z[first], z[second]], plate=ng.Plate("pair", 66), observed=edge))
    with pytest.raises(ValueError, match="needs observed data on its own plates"):
        network.fit(init="kmeans")
    fit = network.fit()
    assert all(start.name.startswith("draws") for start in fit.trace.starts[:-1])
    assert fit.trace.starts[-1].name == "init='random', to its end"
    labels = fit["z"].mean().argmax(-1)
    assert (labels == labels[0]).tolist() == [i % 2 == 0 for i in range(12)]


# -- n_init --


def test_the_best_start_goes_on_and_the_trace_tells():
    network = scalar_mixture(n=60).network
    fit = network.fit(init="random", n_init=6, seed=3)
    names = [start.name for start in fit.trace.starts]
    assert len(names) == len(set(names)) == 6
    bounds = [start.bound for start in fit.trace.starts if start.steps == fit.trace.starts[0].steps]
    assert fit.trace.starts[0].bound == max(bounds)
    assert fit.trace["elbo"][0] >= fit.trace.starts[0].bound - 1e-9
    assert "started from" in str(fit.trace)
    assert fit.trace["messages_read"][0] > fit.problem.n_messages  # what the comparison read is counted
    assert not network.fit(init="random", n_init=1, seed=3).trace.starts
    # the first of them is the start of a single one
    assert max(network.fit(init="random", seed=3).elbo, -1e9) <= fit.elbo + 1e-2


def test_the_same_seed_gives_the_same_fit_and_another_another():
    network = scalar_mixture(n=60).network
    fits = [network.fit(n_init=5, seed=seed) for seed in (0, 0, 1)]
    assert fits[0].trace.starts == fits[1].trace.starts != fits[2].trace.starts
    np.testing.assert_array_equal(fits[0].trace["elbo"], fits[1].trace["elbo"])


@pytest.mark.parametrize(
    "method", [ng.VB(), ng.Children(4), ng.GlobalBatch(7), ng.SVI({"point": 6})], ids=lambda m: type(m).__name__
)
def test_every_method_goes_on_from_the_best_start(method):
    network = scalar_mixture(n=24).network
    fit = network.fit(method, n_init=3, max_steps=6, tol=0, backend="numpy")
    assert len(fit.trace.starts) >= 3
    assert len(fit.trace) == 6
    assert np.ptp(fit["mu"].mean()) > 1.0


def test_values_stay_and_the_rest_is_drawn():
    network = scalar_mixture(n=60).network
    fit = network.fit(init={"mu": [-2.0, 2.0]}, n_init=3)
    assert [start.name.split(",")[0] for start in fit.trace.starts] == ["values"] * 3
    one = ng.Network(ng.Normal("y", 0.0, ng.Gamma("t", 1.0, 1.0), observed=1.0))
    assert np.isfinite(one.fit(n_init=3).elbo)


def test_a_run_that_was_stopped_goes_on_as_if_it_never_had(tmp_path):
    def network():
        return scalar_mixture(n=60).network

    whole = network().fit(n_init=4, tol=0, max_steps=8)
    network().fit(n_init=4, tol=0, max_steps=4, checkpoint=tmp_path, every=1)
    rest = network().fit(n_init=4, tol=0, max_steps=8, checkpoint=tmp_path, every=1, resume=True)
    np.testing.assert_array_equal(rest.trace["elbo"], whole.trace["elbo"])
    assert rest.trace.starts == whole.trace.starts


def test_saved_fits_keep_the_starts(tmp_path):
    fit = scalar_mixture(n=40).network.fit(n_init=3)
    fit.save(tmp_path / "fit.natgrad")
    assert ng.load(tmp_path / "fit.natgrad").trace.starts == fit.trace.starts


# -- the other starts, to their ends --


def topics(seed=0):
    """Three topics of twenty short documents: many optima, a nat or less apart."""
    rng = np.random.default_rng(seed)
    phi = rng.dirichlet(np.full(30, 0.2), 3)
    counts = np.array([rng.multinomial(40, rng.dirichlet(np.full(3, 0.3)) @ phi) for _ in range(20)])
    document, word = np.nonzero(counts)
    repeat = counts[document, word]
    theta = ng.Dirichlet("theta", 0.3, size=3, plate=ng.Plate("document", 20))
    token, beta = ng.Plate("token", int(repeat.sum())), ng.Dirichlet("phi", 0.2, size=30, plate=ng.Plate("topic", 3))
    z = ng.Categorical("z", theta[np.repeat(document, repeat)], plate=token)
    return ng.Network(ng.Categorical("w", beta[z], plate=token, observed=np.repeat(word, repeat)))


ENDS = ["init='kmeans', to its end", "init='random', to its end"]


@pytest.mark.parametrize("seed", [4, 9])  # half a nat below the draw, and below the clusters, before
def test_the_default_ends_no_lower_than_clusters_or_a_draw_of_the_same_seed(seed):
    network = topics()
    fit, clusters, draw = (network.fit(init=init, seed=seed) for init in (None, "kmeans", "random"))
    assert fit.elbo >= max(clusters.elbo, draw.elbo) - 0.01
    # each of them is the run that init= would have been, and the trace says where it ended
    assert [start.name for start in fit.trace.starts[-2:]] == ENDS
    assert [start.bound for start in fit.trace.starts[-2:]] == [clusters.elbo, draw.elbo]
    assert np.all(np.diff(fit.trace["elbo"]) > -1e-9)
    assert fit.trace.last.messages_read > clusters.trace.last.messages_read + draw.trace.last.messages_read
    assert fit.elbo == pytest.approx(fit.problem.bound(fit.state), abs=1e-8)


def test_who_says_where_to_begin_gets_that_run():
    network = scalar_mixture(n=60).network
    assert [start.name for start in network.fit().trace.starts[-2:]] == ENDS
    order = network.fit().settings.order[::-1]  # the default order, written down, is no choice
    for said in ({"n_init": 3}, {"init": "kmeans"}, {"method": ng.VB()}, {"moves": "keep"}, {"order": order}):
        assert not set(ENDS) & {start.name for start in network.fit(**said).trace.starts}, said
    assert not set(ENDS) & {start.name for start in network.fit(tol=0, max_steps=5).trace.starts}  # it never settles
    assert not set(ENDS) & {start.name for start in network.fit(max_steps=1).trace.starts}


def test_a_network_whose_fit_is_long_is_fitted_once(monkeypatch):
    network = scalar_mixture(n=60).network
    monkeypatch.setattr("natgrad.network.start.restarts.SMALL", 0.5 * network._chosen(None).seconds)
    assert not set(ENDS) & {start.name for start in network.fit().trace.starts}


def test_other_starts_keep_to_the_limits_of_the_fit():
    network = scalar_mixture(n=60).network
    whole = network.fit()
    before = whole.trace["messages_read"][-2] + whole.problem.n_messages
    fit = network.fit(max_messages=int(before) + 1)  # one more than the run itself reads
    assert fit.stop.converged
    assert [start.steps for start in fit.trace.starts[-2:]] == [1, 1]


def test_a_run_stopped_before_the_other_starts_goes_on_with_the_same_bits(tmp_path):
    whole = topics().fit(seed=4)
    jump = int(np.argmax(np.diff(whole.trace["elbo"])[20:])) + 21  # the step at which another start took over
    with pytest.warns(UserWarning, match="has not converged"):
        topics().fit(seed=4, max_steps=jump - 2, checkpoint=tmp_path, every=1000)
    rest = topics().fit(seed=4, checkpoint=tmp_path, every=1000, resume=True)
    np.testing.assert_array_equal(rest.trace["elbo"], whole.trace["elbo"])
    assert rest.trace.starts == whole.trace.starts


@pytest.mark.slow
def test_the_other_starts_are_the_same_for_both_backends():
    network = scalar_mixture(n=60).network
    ends = [network.fit(backend=backend).trace.starts[-2:] for backend in ("numpy", "jax")]
    assert [end.name for end in ends[0]] == ENDS
    assert ends[0] == ends[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scalar_mixture", "mixture", "hmm"])
def test_the_default_is_no_worse_than_clusters_and_draws(name):
    network = CASES[name]().network
    for seed in range(10):
        best = max(network.fit(init=init, seed=seed).elbo for init in ("kmeans", "random"))
        assert network.fit(seed=seed).elbo > best - 1e-2, seed


def words_in_documents(n_words: int) -> ng.Network:
    """Twelve documents, of which each has its own end of the vocabulary."""
    rng = np.random.default_rng(3)
    document = np.repeat(np.arange(12), 20)
    word = (rng.integers(n_words // 2, size=240) + (document % 2) * (n_words // 2)).astype(int)
    topic, cell = ng.Plate("topic", 2), ng.Plate("cell", 240)
    shares = ng.Dirichlet("shares", 0.5, size=2, plate=ng.Plate("document", 12))
    z = ng.Categorical("z", shares[document], plate=cell)
    words = ng.Dirichlet("words", 0.5, size=n_words, plate=topic)
    return ng.Network(ng.Categorical("word", words[z], plate=cell, observed=word))


def test_rows_of_many_categories_stay_small(monkeypatch):
    """Words of documents are clustered by random codes, not by a column for each word; the memory does not depend on these."""
    problem = words_in_documents(1000).problem
    assert features.rows_of(problem, "z", {}).rows.shape == (240, 1000)
    monkeypatch.setattr(features, "MAX_NUMBERS", 240 * 60)
    rows = features.rows_of(problem, "z", {}).rows
    assert rows.shape == (240, 60)
    distance = ((rows[:, None] - rows[None]) ** 2).sum(-1)[np.triu_indices(240, 1)]
    apart = distance > 0
    np.testing.assert_allclose(distance[apart].mean(), 2.0, rtol=0.1)  # as that of indicators
    assert distance[apart].min() > 0.8


def test_starts_have_a_budget_and_the_trace_says_what_they_took(monkeypatch):
    network = words_in_documents(20)
    n, free = network.problem.n_messages, network.fit(seed=1)
    compared = [start for start in free.trace.starts if "to its end" not in start.name]
    assert free.trace.spent["starts"] == n * sum(start.steps for start in compared)
    assert sum(free.trace.spent.values()) < free.trace.last.messages_read
    assert "messages: starts" in str(free.trace)
    monkeypatch.setattr(restarts, "BUDGET", 0)
    short = network.fit(seed=1)
    first = restarts.SWEEPS[0] * len(compared)
    assert short.trace.spent["starts"] < free.trace.spent["starts"]
    assert short.trace.spent["starts"] <= n * max(first, 2 * restarts.BUDGET_SWEEPS)
    assert short.elbo == pytest.approx(free.elbo, abs=1.0)


def bounds_of(problem, init):
    """The bounds of four sweeps from a start."""
    state, bounds = make_start(problem, init, 0), []
    for _ in range(4):
        result = problem.sweep(state, default_order(problem.plan, init))
        state, bounds = result.state, [*bounds, result.bound]
    return bounds


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "binomials"])
def test_a_part_of_a_plan_is_the_plan_of_that_part(kind):
    _, y = data_of(kind)
    chosen = np.sort(np.random.default_rng(1).choice(90, 40, replace=False))
    labels = np.random.default_rng(2).integers(3, size=40)
    part = sample.part_of_plan(network_of(kind, y)._plan, {"point": chosen})
    found = bounds_of(NetworkProblem(part, "numpy"), {"z": labels})
    wanted = bounds_of(network_of(kind, y[chosen]).problem_on("numpy"), {"z": labels})
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def documents(words, document, weight, present, n):
    """Cells of documents with counts, some of them masked; a number for each document, and one that tells of its shares."""
    cell, doc, topic = ng.Plate("cell", len(words), weight=weight), ng.Plate("doc", n), ng.Plate("topic", 2)
    shares = ng.Dirichlet("shares", 0.5, size=2, plate=doc)
    z = ng.Categorical("z", shares[document], plate=cell)
    phi = ng.Dirichlet("phi", 0.5, size=6, plate=topic)
    level = ng.Normal("level", ng.Normal("top", 0.0, 1.0), 2.0, plate=doc)
    length = ng.Normal("length", level, 3.0, plate=doc, observed=np.sin(np.arange(n)) if n == 12 else np.sin(ODD))
    return ng.Network(ng.Categorical("word", phi[z], plate=cell, observed=words, mask=present), length)


ODD = np.arange(1, 12, 2)


def test_a_part_of_documents_has_their_cells_with_weights_and_gaps():
    rng = np.random.default_rng(3)
    document = rng.integers(12, size=80)
    words, weight, present = rng.integers(6, size=80), rng.integers(1, 4, size=80).astype(float), rng.random(80) < 0.8
    whole = documents(words, document, weight, present, 12)
    groups = Groups(whole.problem, "doc", default_order(whole._plan))
    elements = {plate: np.sort(groups.grouping.elements(plate, ODD)) for plate in ("doc", "cell")}
    part = NetworkProblem(sample.part_of_plan(whole._plan, elements), "numpy")
    there = np.isin(document, ODD)
    small = documents(words[there], np.searchsorted(ODD, document[there]), weight[there], present[there], 6)
    labels = rng.integers(2, size=there.sum())
    np.testing.assert_allclose(
        bounds_of(part, {"z": labels}), bounds_of(small.problem_on("numpy"), {"z": labels}), rtol=1e-9
    )


@pytest.mark.parametrize("kind", ["columns", "counts", "categories"])
def test_starts_of_a_large_network_are_compared_on_a_sample_that_costs_less_than_the_run(kind, monkeypatch):
    _, y = data_of(kind, n=4000)
    network = network_of(kind, y)
    whole = network.fit(tol=1e-6, verbose=False)
    monkeypatch.setattr(restarts, "LARGE", 10_000)
    monkeypatch.setattr(sample, "MAX_MESSAGES", network.problem.n_messages // 40)
    monkeypatch.setattr(restarts, "BUDGET", 0)
    monkeypatch.setattr(sample, "MIN_OBSERVATIONS", 100)
    fit = network.fit(tol=1e-6, moves=False, verbose=False)
    assert fit.trace.starts
    assert fit.trace.starts[0].bound > whole.elbo / 20  # of a fortieth of the data
    assert fit.elbo == pytest.approx(whole.elbo, abs=0.5)
    assert 0 < fit.trace.spent["starts"] < 2 * network.problem.n_messages


def test_probes_are_not_followed_beyond_their_budget(monkeypatch):
    from natgrad.inference import engine

    _, y = data_of("columns", n=2000)
    monkeypatch.setattr(engine, "PROBE_BUDGET", 0)
    fit = network_of("columns", y).fit(init="kmeans", verbose=False)
    own = fit.trace.last.messages_read - sum(fit.trace.spent.values())
    assert fit.trace.spent["probes"] <= own + network_of("columns", y).problem.n_messages
