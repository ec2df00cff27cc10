"""Several starts, compared after a few sweeps: the best goes on. A default for mixtures, and clusters of any data."""

import numpy as np
import pytest
from generators.build import build
from generators.generator import draw
from promises.networks import CASES, scalar_mixture

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


def test_categories_without_data_of_their_own_are_refused_by_kmeans_and_drawn_by_default():
    first, second = np.triu_indices(12, 1)
    z = ng.Categorical("z", ng.Dirichlet("pi", 1.0, size=2), plate=ng.Plate("node", 12))
    table = ng.Beta("B", 1.0, 1.0, plate=(ng.Plate("from", 2), ng.Plate("to", 2)))
    edge = (first % 2 == second % 2).astype(int)
    network = ng.Network(ng.Bernoulli("e", table[z[first], z[second]], plate=ng.Plate("pair", 66), observed=edge))
    with pytest.raises(ValueError, match="needs observed data on its own plates"):
        network.fit(init="kmeans")
    fit = network.fit()
    assert all(start.name.startswith("draws") for start in fit.trace.starts)
    labels = fit["z"].mean().argmax(-1)
    assert (labels == labels[0]).tolist() == [i % 2 == 0 for i in range(12)]


# -- n_init --


def test_the_best_start_goes_on_and_the_trace_tells():
    network = scalar_mixture(n=60).network
    fit = network.fit(init="random", n_init=6, seed=3)
    names = [start.name for start in fit.trace.starts]
    assert len(names) == len(set(names)) == 6
    assert fit.trace.starts[0].accepted
    assert all(
        start.gain <= 1e-10 * abs(start.bound) for start in fit.trace.starts
    )  # equal but for rounding is no gain
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


# -- what a fit took --


@pytest.mark.parametrize(
    "make", [lambda: scalar_mixture(n=60).network, lambda: network_of("columns", data_of("columns")[1])]
)
def test_what_was_tried_is_in_the_trace_with_its_cost(make, tmp_path):
    fit = make().fit(backend="numpy")
    size, records = fit.problem.n_messages, fit.trace.proposals
    assert {record.kind for record in records} == {"start", "probe"}
    assert all(record.messages == pytest.approx(size * record.sweeps) for record in records)
    assert all(record.seconds > 0 for record in records)
    # what is left are the steps of the run, of which some are two sweeps
    own = fit.trace.last.messages_read - sum(record.messages for record in records)
    assert len(fit.trace) * size <= own <= 2 * len(fit.trace) * size
    starts = fit.trace.costs["starts"]
    assert (starts.tried, starts.accepted) == (len(fit.trace.starts), 1)
    assert f"{starts.sweeps:.4g} for {starts.tried} starts" in fit.trace.effort
    assert fit.trace.effort in str(fit.trace)
    assert fit.trace.effort in str(fit.summary())
    fit.save(tmp_path / "fit.natgrad")
    assert ng.load(tmp_path / "fit.natgrad").trace.proposals == records


@pytest.mark.parametrize("name", ["scalar_mixture", "mixture", "hmm"])
def test_the_starts_of_a_default_fit_take_a_bounded_number_of_sweeps(name):
    network = CASES[name]().network
    for seed in range(3):
        one, some = network.fit(init="kmeans", seed=seed), network.fit(seed=seed)
        assert sum(record.sweeps for record in some.trace.starts) <= 80
        assert some.elbo >= one.elbo - 0.01


@pytest.mark.parametrize("seed", [66, 227])  # eight nats, and half a nat, below before
def test_the_default_ends_no_lower_than_plain_sweeps_where_both_pass_the_same_saddle(seed):
    network = build(draw(seed))
    assert network.fit(max_steps=2000).elbo >= network.fit(ng.VB(), max_steps=2000).elbo - 2e-3


def test_topics_start_from_draws():
    """Any two words are equally far apart; clusters of them were a saddle that few sweeps liked best."""
    rng = np.random.default_rng(0)
    shares, words = rng.dirichlet(np.full(3, 0.2), 30), rng.dirichlet(np.full(40, 0.1), 3)
    doc = np.repeat(np.arange(30), 25)
    chosen = [rng.choice(40, p=row) for row in shares[doc] @ words]
    document, token, topic = ng.Plate("doc", 30), ng.Plate("token", len(doc)), ng.Plate("topic", 3)
    theta = ng.Dirichlet("theta", np.full(3, 0.2), plate=document)
    phi = ng.Dirichlet("phi", np.full(40, 0.1), plate=topic)
    z = ng.Categorical("z", theta[doc], plate=token)
    network = ng.Network(ng.Categorical("w", phi[z], plate=token, observed=chosen))
    fit = network.fit(max_steps=20, tol=0)
    assert [record.name[:5] for record in fit.trace.starts] == 5 * ["draws"]
    assert fit.elbo == network.fit(init="random", n_init=5, max_steps=20, tol=0).elbo
