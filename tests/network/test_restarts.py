"""Several starts, compared after a few sweeps: the best goes on. A default for mixtures, and clusters of any data."""

import numpy as np
import pytest
from networks import CASES, scalar_mixture

import natgrad as ng


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
@pytest.mark.parametrize("name", ["scalar_mixture", "mixture", "hmm"])
def test_the_default_is_no_worse_than_clusters_and_draws(name):
    network = CASES[name]().network
    for seed in range(10):
        best = max(network.fit(init=init, seed=seed).elbo for init in ("kmeans", "random"))
        assert network.fit(seed=seed).elbo > best - 1e-2, seed
