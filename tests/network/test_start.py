"""Starts and the order of a sweep: as the graph says, not as it was written; a given start counts, units do not."""

import math

import numpy as np
import pytest
from networks import CASES, lda, mixture, scalar_mixture
from threadpoolctl import threadpool_limits

import natgrad as ng
from natgrad.network.compile.plan import make_plan
from natgrad.network.start.clusters import k_means, nearest
from natgrad.network.start.initial import started_nodes
from natgrad.network.start.order import checked_order, default_order, factors_of_products
from natgrad.network.start.probes import shares_anew


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


def test_a_sum_is_not_a_product():
    plan = make_plan(list(pca(table(0), offset=True).nodes.values()))
    assert factors_of_products(plan) == {"w": {"x"}, "x": {"w"}}
    assert factors_of_products(make_plan(list(CASES["several"]().network.nodes.values()))) == {}


@pytest.mark.parametrize("order", [["x", "w", "ard", "tau"], ["tau", "ard", "w", "x"]], ids=str)
def test_the_user_s_order_is_taken_as_it_is(order):
    case = CASES["pca"]()
    assert checked_order(case.network.problem.plan, order, started_nodes(case.network.problem, case.init)) == tuple(
        order
    )


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
def test_factors_that_were_switched_off_are_revived():
    network = pca(table(0))
    # Here the loadings meet random scores, and their relevance switches them off before they have seen data.
    fit = network.fit(order=["noise", "w", "relevance", "x"], init="random")
    assert in_use(fit) == 2
    assert fit.elbo == pytest.approx(network.fit().elbo, abs=0.1)


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


@pytest.mark.slow
def test_starts_at_the_truth_end_at_the_optimum():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 400)
    point, kind = ng.Plate("point", 400), ng.Plate("kind", 3)

    def category():
        return ng.Categorical("z", ng.Dirichlet("pi", 1.0, size=3), plate=point)

    z, rate = category(), ng.Gamma("rate", 1.0, 0.1, plate=kind)
    seen = rng.poisson(np.array([2.0, 10.0, 30.0])[truth])
    counts = ng.Network(ng.Poisson("y", rate[z], plate=point, observed=seen))
    z, tables = category(), ng.Dirichlet("tables", 1.0, size=12, plate=kind)
    shares = rng.dirichlet(np.full(12, 0.1), 3)
    votes = ng.Multinomial(
        "y", None, tables[z], plate=point, observed=np.stack([rng.multinomial(20, shares[t]) for t in truth])
    )
    for network in (counts, ng.Network(votes)):
        fit = network.fit(init={"z": truth})
        assert fit.elbo > max(network.fit(init="random", seed=seed).elbo for seed in range(5)) - 0.1
        assert (fit["z"].mean().argmax(-1) == truth).mean() > 0.9


def block_model(truth, size, seed):
    rng = np.random.default_rng(seed)
    first, second = np.triu_indices(len(truth), 1)
    edge = rng.random(len(first)) < np.where(truth[first] == truth[second], 0.5, 0.05)
    z = ng.Categorical("z", ng.Dirichlet("pi", 1.0, size=size), plate=ng.Plate("node", len(truth)))
    table = ng.Beta("B", 1.0, 1.0, plate=(ng.Plate("from", size), ng.Plate("to", size)))
    pair = ng.Plate("pair", len(first))
    return ng.Network(ng.Bernoulli("e", table[z[first], z[second]], plate=pair, observed=edge.astype(int)))


@pytest.mark.slow
def test_a_block_model_keeps_its_true_blocks():
    truth = np.arange(60) % 3
    network = block_model(truth, 3, 0)
    fit = network.fit(init={"z": truth})
    assert (fit["z"].mean().argmax(-1) == truth).all()
    assert fit.elbo >= max(network.fit(init="random", seed=seed).elbo for seed in range(4)) - 0.1


# -- clusters --


def two_humps(n=100):
    """Two stretched clusters, as in the eruptions of Old Faithful."""
    rng = np.random.default_rng(4)
    late = rng.random(n) < 0.65
    return np.where(late[:, None], [0.7, 0.7], [-1.3, -1.2]) + rng.normal(size=(n, 2)) * [0.25, 0.45]


def many_components(y, size):
    point, kind = ng.Plate("point", len(y)), ng.Plate("kind", size)
    z = ng.Categorical("z", ng.Dirichlet("pi", 1e-3, size=size), plate=point)
    mu = ng.MultivariateNormal("mu", np.zeros(2), 1e-3 * np.eye(2), plate=kind)
    width = ng.Wishart("width", 2.0, np.eye(2), plate=kind)
    return ng.Network(ng.MultivariateNormal("y", mu[z], width[z], plate=point, observed=y))


def test_clusters_go_to_the_components_that_expect_them():
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.normal(10.0, 1.0, 30), rng.normal(3.0, 1.0, 20)])
    point, kind = ng.Plate("point", 50), ng.Plate("kind", 2)
    z = ng.Categorical("z", [0.5, 0.5], plate=point)
    mu = ng.Normal("mu", [3.0, 10.0], 1.0, plate=kind)
    network = ng.Network(ng.Normal("y", mu[z], 1.0, plate=point, observed=y))
    for seed in range(4):  # k-means numbers its clusters by chance
        np.testing.assert_allclose(network.fit(init="kmeans", seed=seed)["mu"].mean(), [3.0, 10.0], atol=0.7)


@pytest.mark.slow
def test_more_components_than_clusters_are_left_empty():
    network = many_components(two_humps(), 6)
    fit = network.fit(init="kmeans")
    assert fit.elbo > max(network.fit(init="random", seed=seed).elbo for seed in range(3)) - 0.1
    assert (fit["z"].mean().sum(0) > 1).sum() == 2


@pytest.mark.slow
def test_clusters_are_no_worse_than_draws():
    for network in (many_components(two_humps(272), 10), CASES["mixture"]().network, scalar_mixture(n=200).network):
        best = max(network.fit(init="random", seed=seed, max_steps=300).elbo for seed in range(5))
        for seed in range(5):
            assert network.fit(init="kmeans", seed=seed, max_steps=300).elbo > best - 0.5


@pytest.mark.slow
def test_sums_of_components_are_clustered_one_after_the_other():
    rng = np.random.default_rng(0)
    paths = [np.cumsum(rng.random(200) < 0.1) % 2 for _ in range(2)]
    y = 3.0 * paths[0] + 1.5 * paths[1] + 0.3 * rng.normal(size=200)
    time, mean = ng.Plate("time", 200), []
    for name in "ab":
        state = ng.Plate(f"state {name}", 2)
        rows = ng.Dirichlet(f"A {name}", 1.0, size=2, plate=state)
        z = ng.MarkovChain(f"z {name}", ng.Dirichlet(f"pi {name}", 1.0, size=2), rows, plate=time)
        mean.append(ng.Normal(f"mu {name}", 0.0, 0.1, plate=state)[z])
    y = ng.Normal("y", mean[0] + mean[1], ng.Gamma("tau", 1.0, 1.0), plate=time, observed=y)
    network = ng.Network(y)
    best = network.fit(init={"z a": paths[0], "z b": paths[1]}).elbo
    for seed in range(3):
        assert network.fit(init="kmeans", seed=seed).elbo > best - 2.0


@pytest.mark.parametrize(("size", "clusters"), [(1, 3), (2, 5), (8, 4)])
def test_our_k_means_is_as_good_as_that_of_scikit_learn(size, clusters):
    from sklearn.cluster import KMeans

    rng = np.random.default_rng(size)
    points = (
        1e6 + 4.0 * rng.normal(size=(clusters, size))[rng.integers(0, clusters, 400)] + rng.normal(size=(400, size))
    )
    centres = k_means(points, clusters, np.random.default_rng(0))
    found = ((points - centres[nearest(points, centres)]) ** 2).sum()
    with threadpool_limits(1):
        wanted = KMeans(clusters, n_init=5, random_state=0).fit(points).inertia_
    assert found <= 1.02 * wanted


def test_k_means_of_equal_points_and_of_fewer_kinds_than_clusters():
    same = np.full((5, 2), 3.0)
    np.testing.assert_array_equal(k_means(same, 2, np.random.default_rng(0)), np.full((2, 2), 3.0))
    two = np.repeat([[0.0], [1.0]], 4, axis=0)
    assert set(k_means(two, 3, np.random.default_rng(0)).ravel()) == {0.0, 1.0}


def test_shares_begin_anew_at_their_prior_and_categories_given_these():
    case = lda(counts=False)
    fit = case.network.fit(max_steps=3, tol=0, seed=1, backend="numpy", verbose=False)
    problem, state, order = fit.problem, fit.state, fit.settings.order
    anew = shares_anew(problem, state, order, 0)
    np.testing.assert_allclose(anew.mu["theta"][0], problem.prior({}).mu["theta"][0], rtol=1e-12)
    assert anew.lam["phi"] is state.lam["phi"]
    target = problem.target(problem.blocks["z"], anew)
    np.testing.assert_allclose(anew.lam["z"][0], target[0], rtol=1e-12)
    assert shares_anew(mixture(n=10).network.problem_on("numpy"), state, order, 0) is None  # weights are no groups'


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
