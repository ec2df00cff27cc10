"""Starts and the order of a sweep: as the graph says, not as it was written; a given start counts, units do not."""

import math
import re

import numpy as np
import pytest
from promises.networks import CASES

import natgrad as ng
from natgrad.network.compile.plan import make_plan
from natgrad.network.start.order import default_order, factors_of_products


def table(seed, shape=(60, 6), n_factors=2, scale=1.0):
    rng = np.random.default_rng(seed)
    n, d = shape
    y = rng.normal(size=(n, n_factors)) @ rng.normal(size=(n_factors, d)) + 0.3 * rng.normal(size=shape)
    y[rng.random(shape) < 0.1] = np.nan
    return scale * y


def pca(y, swapped=False, size=4, offset=False, names=("w", "x"), noise_by_column=False, unit=1.0):
    """PCA with relevances and learned noise; `swapped` writes the product the other way round, priors are in the unit."""
    row, column, factor = ng.Plate("row", y.shape[0]), ng.Plate("column", y.shape[1]), ng.Plate("factor", size)
    relevance = ng.Gamma("relevance", 1e-3, 1e-3 * unit**2, plate=factor)
    parts = [
        ng.MultivariateNormal(names[0], np.zeros(size), ng.diag(relevance), plate=column),
        ng.MultivariateNormal(names[1], np.zeros(size), np.eye(size), plate=row),
    ]
    mean = ng.dot(*(parts[::-1] if swapped else parts))
    if offset:
        level = ng.Normal("level", 0.0, 1e-6 / unit**2, plate=column)
        mean = level + mean if swapped else mean + level
    noise = ng.Gamma("noise", 1e-3, 1e-3 * unit**2, plate=column if noise_by_column else None)
    return ng.Network(ng.Normal("y", mean, noise, plate=(row, column), observed=y))


def in_use(fit, unit=1.0):
    """How many factors carry more than a thousandth of the largest one's variance."""
    power = ((fit["w"].mean() / unit) ** 2).sum(0)
    return int((power > 1e-3 * power.max()).sum()) if power.max() > 1e-6 else 0


def order_of(network, started=()):
    return default_order(make_plan(list(network.nodes.values())), started)


# -- the order of a sweep --


def test_the_order_does_not_depend_on_how_a_product_is_written():
    y = table(0)
    wanted = ("level", "x", "w", "noise", "relevance")
    assert order_of(pca(y, offset=True)) == order_of(pca(y, offset=True, swapped=True)) == wanted
    renamed = order_of(pca(y, offset=True, names=("a", "z")))
    assert renamed == ("level", "z", "a", "noise", "relevance")
    assert order_of(pca(y, offset=True), {"w"}) == wanted
    # x has a start: w reads it before it is overwritten
    assert order_of(pca(y, offset=True), {"x"}) == ("level", "w", "x", "noise", "relevance")


def test_the_order_of_a_mixture_depends_on_what_has_a_start():
    network = CASES["scalar_mixture"]().network
    assert order_of(network) == order_of(network, {"mu"}) == ("z", "mu", "tau")
    assert order_of(network, {"z"}) == order_of(network, {"z", "mu"}) == ("mu", "tau", "z")
    chain = CASES["hmm"]().network
    assert order_of(chain, {"mu"})[0] == "z"
    assert order_of(chain, {"z"})[-1] == "z"


def test_categories_that_choose_a_prior_wait_for_what_it_is_a_prior_of():
    column, kind = ng.Plate("column", 5), ng.Plate("kind", 2)
    s = ng.Categorical("s", [0.5, 0.5], plate=column)
    width = ng.Gamma("width", [1.0, 1.0], [1.0, 100.0], plate=kind)
    w = ng.Normal("w", 0.0, width[s], plate=column)
    y = ng.Normal("y", w, 1.0, plate=column, observed=np.arange(5.0))
    assert order_of(ng.Network(y)) == ("w", "s", "width")


# -- products --


def test_a_product_finds_its_factors_in_any_units_and_written_either_way():
    # × 100: noise and relevances at their priors would switch every factor off at once
    fits = [pca(table(0, scale=100.0), swapped).fit() for swapped in (False, True)]
    assert [in_use(fit) for fit in fits] == [2, 2]
    assert fits[0].elbo == pytest.approx(fits[1].elbo, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_the_relevant_factors_are_found_in_every_run(seed):
    # the declaration of the docs, 200 rows of ten columns
    y = table(seed, (200, 10))
    networks = [pca(y, swapped) for swapped in (False, True)]
    fits = [network.fit(seed=run) for network in networks for run in range(3)]
    assert [in_use(fit) for fit in fits] == [2] * 6
    np.testing.assert_allclose([fit.elbo for fit in fits], fits[0].elbo, rtol=0, atol=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("swapped", [False, True])
def test_factor_analysis_does_not_depend_on_the_units(swapped):
    y = table(1, (300, 20), 3)
    n = np.isfinite(y).sum()
    found = {}
    for unit in (1e-6, 1.0, 1e6):
        network = pca(unit * (y + 2.0), swapped, size=6, offset=True, noise_by_column=True, unit=unit)
        fits = [network.fit(seed=run) for run in range(2)]
        assert [in_use(fit, unit) for fit in fits] == [3, 3], unit
        found[unit] = fits[0].elbo + n * math.log(unit)
    assert np.ptp(list(found.values())) < 0.1, found


def test_a_product_that_is_given_zeros_is_refused():
    case = CASES["pca"]()
    with pytest.raises(ng.errors.SymmetricStart, match=r"init\['w'\] is zero everywhere, and so is 'x'"):
        case.network.fit(init={"w": np.zeros((6, 2))})


def product_starts():
    return [name for name in CASES if factors_of_products(make_plan(list(CASES[name]().network.nodes.values())))]


@pytest.mark.slow
@pytest.mark.parametrize("name", product_starts())
def test_the_default_start_is_no_worse_than_a_draw(name):
    network = CASES[name]().network
    drawn = [network.fit(init="random", seed=seed, max_steps=500, tol=1e-9).elbo for seed in range(5)]
    ours = [network.fit(seed=seed, max_steps=500, tol=1e-9).elbo for seed in range(5)]
    assert np.median(ours) > np.median(drawn) - 0.5
    assert min(ours) > min(drawn) - 0.5


# -- a given start counts --

METHODS = [
    (None, None),
    (ng.SVI({"point": 8}), None),
    (ng.SVI({"point": 8}), ng.RobbinsMonro(first=0.5)),
    (ng.Children(12), ng.Constant(0.5)),
    (ng.GlobalBatch(12), ng.Constant(0.5)),
]


@pytest.mark.parametrize(("method", "step"), METHODS, ids=str)
def test_given_memberships_are_used_before_they_are_overwritten(method, step):
    network = CASES["scalar_mixture"]().network
    data = np.asarray(network.nodes["y"].value)
    fit = network.fit(method, step=step, init={"z": (data > 0).astype(int)}, max_steps=30, tol=0)
    np.testing.assert_allclose(fit["mu"].mean(), [data[data < 0].mean(), data[data > 0].mean()], atol=0.15)


def test_a_given_path_is_used_before_it_is_overwritten():
    network = CASES["hmm"]().network
    data = np.asarray(network.nodes["y"].value)
    fit = network.fit(init={"z": (data > 0).astype(int)}, max_steps=20)
    np.testing.assert_allclose(fit["mu"].mean(), [-2.0, 2.0], atol=0.5)


def test_components_that_the_first_sweep_made_equal_are_refused():
    network = CASES["scalar_mixture"]().network
    labels = (np.asarray(network.nodes["y"].value) > 0).astype(int)
    # In this order the labels are overwritten before anything has read them.
    with pytest.raises(ng.errors.SymmetricStart, match="all equal after the first sweep"):
        network.fit(init={"z": labels}, order=["z", "mu", "tau"])
    with pytest.raises(ng.errors.SymmetricStart, match="'z' chooses from \\('mu', 'tau'\\)"):
        network.fit(init={"z": np.full((24, 2), 0.5)})
    # One component that holds everything differs from the others.
    assert np.isfinite(network.fit(init={"z": np.zeros(24, dtype=int)}).elbo)


def test_what_a_symmetric_start_is_advised_works():
    """Places can be clustered, precisions cannot; what was asked for is not advised again."""
    places = CASES["scalar_mixture"]().network
    rows, k = ng.Plate("n", 40), ng.Plate("k", 2)
    z = ng.Categorical("z", ng.Dirichlet("pi", 1.0, size=2), plate=rows)
    tau = ng.Gamma("tau", 1.0, 1.0, plate=k)
    y = np.random.default_rng(0).normal(size=40) * np.repeat([1.0, 9.0], 20)
    scales = ng.Network(ng.Normal("y", 0.0, tau[z], plate=rows, observed=y))
    for network, name, ways in ((places, "mu", {"random", "kmeans"}), (scales, "tau", {"random"})):
        with pytest.raises(ng.errors.SymmetricStart) as caught:
            network.fit(init={name: [1.0, 1.0]})
        assert set(re.findall(r'init="(\w+)"', str(caught.value))) == ways
        for way in ways:
            assert np.isfinite(network.fit(init=way, max_steps=3, tol=0).elbo)


# -- clusters --


def test_clusters_go_to_the_components_that_expect_them():
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.normal(10.0, 1.0, 30), rng.normal(3.0, 1.0, 20)])
    point, kind = ng.Plate("point", 50), ng.Plate("kind", 2)
    z = ng.Categorical("z", [0.5, 0.5], plate=point)
    mu = ng.Normal("mu", [3.0, 10.0], 1.0, plate=kind)
    network = ng.Network(ng.Normal("y", mu[z], 1.0, plate=point, observed=y))
    for seed in range(4):  # k-means numbers its clusters by chance
        np.testing.assert_allclose(network.fit(init="kmeans", seed=seed)["mu"].mean(), [3.0, 10.0], atol=0.7)


def test_a_category_chooses_a_time_of_a_chain():
    """Times are no components: probes, which move these apart, leave them where they are."""
    time, row, side = ng.Plate("time", 3), ng.Plate("row", 6), ng.Plate("side", 2)
    path = ng.MarkovChain("path", [0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], plate=time)
    when = ng.Categorical("when", [0.2, 0.3, 0.5], plate=row)
    mean = ng.Normal("mean", 0.0, 0.1, plate=side)
    data = np.array([3.1, 2.8, 3.4, -3.0, -2.7, -3.3])
    y = ng.Normal("y", mean[path[when]], 1.0, plate=row, observed=data)
    fit = ng.Network(y).fit(init={"mean": [-1.0, 1.0]}, backend="numpy")
    assert fit.stop.converged
    np.testing.assert_allclose(np.sort(fit["mean"].mean()), [-3.0, 3.1], atol=0.2)


@pytest.mark.parametrize("leaf", ["Normal", "logit", "StudentT"])
@pytest.mark.parametrize("kind", ["product", "dot"])
def test_elements_of_one_node_that_are_multiplied_start_off_zero(kind, leaf):
    """The latent-space model of a graph: zero is a saddle, which no update leaves."""
    rng = np.random.default_rng(3)
    i, j = np.triu_indices(9, 1)
    node, edge = ng.Plate("node", 9), ng.Plate("edge", len(i))
    places = rng.normal(size=(9, 2))
    score = (places[i] * places[j]).sum(1)
    if kind == "dot":
        x = ng.MultivariateNormal("x", np.zeros(2), np.eye(2), plate=node)
        mean = ng.dot(x[i], x[j])
    else:
        x = ng.Normal("x", 0.0, 1.0, plate=node)
        mean, score = x[i] * x[j], places[i, 0] * places[j, 0]
    noisy = score + 0.2 * rng.normal(size=len(i))
    y = {
        "Normal": lambda: ng.Normal("y", mean, 10.0, plate=edge, observed=noisy),
        "logit": lambda: ng.Bernoulli("y", logit=mean, plate=edge, observed=(score > 0) * 1.0),
        "StudentT": lambda: ng.StudentT("y", mean, 10.0, df=4.0, plate=edge, observed=noisy),
    }[leaf]()
    network = ng.Network(y)
    drawn = max(network.fit(init="random", seed=seed, verbose=False).elbo for seed in range(3))
    assert network.fit(verbose=False).elbo > drawn - 0.01
    with pytest.raises(ng.errors.SymmetricStart, match="and its elements are multiplied"):
        network.fit(init={"x": 0.0}, verbose=False)
