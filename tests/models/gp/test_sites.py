"""Neighbours with sites: dense with few rows, equal to definitions, and the same whatever the order, names and units."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.covariance import RBF, Linear, Matern32, Periodic
from natgrad.inference.methods import VB
from natgrad.models.gp.apart import without_rows
from natgrad.models.gp.blocks import Neighbourhoods, blocks_of, slopes_around, solved, values_around
from natgrad.models.gp.joint import Ordinal, Softmax
from natgrad.models.gp.likelihoods import Bernoulli, NegativeBinomial, Poisson
from natgrad.models.gp.local import Budget
from natgrad.models.gp.neighbours import nearest
from natgrad.models.gp.sited import Observed, SitedLocal, settled_sites
from natgrad.models.gp.sites import Law, Sites, cavities, neutral, renewed, slope_in_k

KERNEL = RBF(3.0, [0.7, 1.1])


def rows(n=70, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    f = 2 * np.sin(2 * x[:, 0]) + x[:, 1]
    return x, f, rng


def laws(n=70):
    """A law and y [n, P] of each kind."""
    _, f, rng = rows(n)
    sign = np.where(f + rng.normal(size=n) > 0, 1.0, -1.0)[:, None]
    three = np.digitize(f + rng.normal(size=n), [-1.0, 1.0])
    psi = np.zeros(1)
    return {
        "bernoulli": (Law(Bernoulli(), psi, np.zeros(1)), sign),
        "one against the rest": (
            Law(Bernoulli(), np.zeros(3), np.zeros(3)),
            np.where(three[:, None] == np.arange(3), 1.0, -1.0),
        ),
        "softmax": (
            Law(Softmax(), np.zeros(3), np.array([0.2, -0.3, 0.1])),
            np.where(three[:, None] == np.arange(3), 1.0, -1.0),
        ),
        "ordinal": (Law(Ordinal(3), np.array([-1.0, 0.7]), np.zeros(1)), three[:, None].astype(float)),
        "poisson": (Law(Poisson(), psi, np.array([0.3])), rng.poisson(np.exp(0.5 * f))[:, None].astype(float)),
        "negative binomial": (
            Law(NegativeBinomial(), psi - 1.0, np.array([0.3])),
            rng.poisson(np.exp(0.5 * f))[:, None].astype(float),
        ),
    }


NAMES = ["bernoulli", "one against the rest", "softmax", "ordinal", "poisson", "negative binomial"]
SOME = [pytest.param(name, marks=[pytest.mark.slow] if name in NAMES[1:4] else []) for name in NAMES]


def matrix(kernel, x):
    return np.asarray(kernel(x))


def dense(kernel, law, x, y):
    """Sites of the dense process by plain steps on all rows."""
    k, sites = matrix(kernel, x), neutral(law, y)
    for _ in range(60):
        found = cavities(k, sites)
        sites = renewed(law, y, found.mean, found.var, sites)
    return sites


# -- the mathematics --


def test_cavities_are_what_all_other_sites_say():
    x, _, rng = rows(12)
    k, sites = matrix(KERNEL, x), Sites(rng.normal(size=(2, 12)), rng.uniform(0.2, 3.0, (2, 12)))
    found = cavities(k, sites)
    for f in range(2):
        for n in range(12):
            others = np.arange(12) != n
            c = k[np.ix_(others, others)] + np.diag(sites.s[f, others])
            w = np.linalg.solve(c, k[others, n])
            assert found.mean[f, n] == pytest.approx(w @ sites.z[f, others], abs=1e-9)
            assert found.var[f, n] == pytest.approx(k[n, n] - w @ k[others, n], abs=1e-9)


@pytest.mark.parametrize("name", SOME)
def test_slopes_of_log_densities_are_those_of_differences(name):
    law, y = laws(8)[name]
    rng = np.random.default_rng(1)
    mean, var = rng.normal(size=(2, len(law.offset), 8))
    var = var**2 + 0.3
    value, by_mean, by_var = law.slopes(y, mean, var)
    np.testing.assert_allclose(value, law.log_densities(y, mean, var), atol=1e-12)
    # of a quasi-random sum of 512 points Stein's second derivative is no slope; its error is that of the sum
    close = 2e-2 if name == "softmax" else 1e-6
    for f in range(len(mean)):
        step = 1e-5 * (np.arange(len(mean))[:, None] == f)
        up, down = law.log_densities(y, mean + step, var), law.log_densities(y, mean - step, var)
        np.testing.assert_allclose(by_mean[f], (up - down) / 2e-5, atol=1e-6)
        up, down = law.log_densities(y, mean, var + step), law.log_densities(y, mean, var - step)
        np.testing.assert_allclose(by_var[f], (up - down) / 2e-5, atol=close)


def test_the_slope_in_k_is_that_of_sums_of_log_densities():
    x, _, rng = rows(9)
    law, y = laws(9)["bernoulli"]
    k, sites = matrix(KERNEL, x), Sites(rng.normal(size=(1, 9)), rng.uniform(0.2, 3.0, (1, 9)))

    def value(matrix):
        found = cavities(matrix, sites)
        return law.log_densities(y, found.mean, found.var).sum()

    found = cavities(k, sites)
    slope = slope_in_k(found, *law.slopes(y, found.mean, found.var)[1:])
    along = rng.normal(size=(9, 9))
    along = along + along.T
    assert (slope * along).sum() == pytest.approx((value(k + 1e-5 * along) - value(k - 1e-5 * along)) / 2e-5, rel=1e-5)


def densities_of(local, seen):
    """Log densities of rows that a local process has not seen."""
    mean, var = local.latent(seen.x)
    return seen.law.log_densities(seen.y, (mean - local.offset).T, var.T)


def expected_from_others(kernel, law, x, y, sites, judged):
    """Log densities of the first rows given sites of the others, by definition."""
    k, mean, var = matrix(kernel, x), [], []
    for z, s in zip(*sites, strict=True):
        w = np.linalg.solve(k[judged:, judged:] + np.diag(s), k[judged:, :judged])
        mean.append(w.T @ z)
        var.append(np.diag(k)[:judged] - (w * k[judged:, :judged]).sum(0))
    return law.log_densities(y[:judged], np.array(mean), np.array(var))


def test_slopes_in_the_kernel_are_those_of_settled_sites_that_stay():
    x, *_ = rows(40)
    law, y = laws(40)["bernoulli"]
    sites = dense(KERNEL, law, x, y)
    found = slopes_around(KERNEL, law, x, y, Sites(sites.z.copy(), sites.s.copy()), np.arange(40)[None], 25)

    def value(theta):
        cavity = cavities(matrix(KERNEL.at(theta), x), sites)
        return law.log_densities(y[:25], cavity.mean[:, :25], cavity.var[:, :25]).mean()

    for number, part in enumerate(KERNEL.theta):
        for place in np.ndindex(np.shape(part)):
            up, down = ([np.array(t) for t in KERNEL.theta] for _ in range(2))
            up[number][place] += 1e-5
            down[number][place] -= 1e-5
            assert np.asarray(found[number])[place] == pytest.approx((value(up) - value(down)) / 2e-5, abs=1e-5)


@pytest.mark.parametrize("name", SOME)
def test_sites_of_the_dense_process_have_no_natural_gradient_left(name):
    x, *_ = rows()
    law, y = laws()[name]
    sites = solved(KERNEL, law, x, y, neutral(law, y), 200, lambda: True)
    for z, s, f in zip(*sites, range(len(law.offset)), strict=True):
        c = np.linalg.inv(matrix(KERNEL, x) + np.diag(s))
        k = matrix(KERNEL, x)
        mean, var = k @ c @ z, np.diag(k - k @ c @ k)
        if f == 0:
            means, variances = np.empty_like(sites.z), np.empty_like(sites.z)
        means[f], variances[f] = mean, var
    said = law.expected(y, means, variances)
    np.testing.assert_allclose(-1.0 / said.curvature, sites.s, rtol=1e-4)
    np.testing.assert_allclose(means - said.slope / said.curvature, sites.z, rtol=1e-4, atol=1e-4)


def test_blocks_hold_every_row_once_and_their_halos_are_the_nearest_others():
    x = np.random.default_rng(0).normal(size=(1_000, 2))
    found = blocks_of(KERNEL, x, 30)
    np.testing.assert_array_equal(np.sort(np.concatenate([block for block, _ in found])), np.arange(1_000))
    for block, halo in found:
        assert len(block) <= 96
        assert len(halo) == len(np.unique(halo)) == 160
        assert not np.isin(halo, block).any()
        far = (((x[:, None] - x[block]) / [0.7, 1.1]) ** 2).sum(-1).min(1)
        outside = np.setdiff1d(np.arange(1_000), np.concatenate([block, halo]))
        assert np.median(far[halo]) < np.quantile(far[outside], 0.1)


def test_many_blocks_say_nearly_what_the_dense_process_does():
    x, *_ = rows(280)
    law, y = laws(280)["bernoulli"]
    at = np.random.default_rng(3).normal(size=(20, 2))
    found = SitedLocal(KERNEL, x, solved(KERNEL, law, x, y, neutral(law, y), 60, lambda: True), law.offset, 280)
    exact = SitedLocal(KERNEL, x, dense(KERNEL, law, x, y), law.offset, 280)
    assert len(blocks_of(KERNEL, x, 60)) > 3
    (mean, var), (mean2, var2) = found.latent(at), exact.latent(at)
    assert np.abs((mean - mean2) / np.sqrt(var2)).max() < 0.02
    np.testing.assert_allclose(var, var2, rtol=0.02)


@pytest.mark.parametrize("name", SOME)
def test_rows_are_judged_by_sites_that_have_not_seen_them(name):
    x, *_ = rows(40)
    law, y = laws(40)[name]
    sites = dense(KERNEL, law, x[8:], y[8:])
    wanted = expected_from_others(KERNEL, law, x, y, sites, 8)
    apart = densities_of(SitedLocal(KERNEL, x[8:], sites, law.offset, 64), Observed(x[:8], y[:8], law))
    np.testing.assert_allclose(apart, wanted, atol=1e-8)
    around = Neighbourhoods(np.arange(40)[None], 8)
    np.testing.assert_allclose(values_around(KERNEL, law, x, y, around), wanted, atol=1e-3)


def test_what_judges_say_is_what_new_rows_meet():
    """Classes by chance, and a kernel that is sure of each: sites that have seen a row would expect it far too well."""
    rng = np.random.default_rng(0)
    law, sure = Law(Bernoulli(), np.zeros(1), np.zeros(1)), RBF(1_000.0, 0.3)

    def by_chance(n):
        return Observed(rng.normal(size=(n, 2)), np.where(rng.random(n) < 0.5, 1.0, -1.0)[:, None], law)

    old, new = by_chance(120), by_chance(400)
    local, judges, densities = settled_sites(sure, old, 32, False, False, rng, Budget(1, lambda: True))
    assert len(judges) == len(densities) == 24
    whole = local.with_all(old, lambda: True)
    assert len(whole.x) == 120
    met = densities_of(whole, new)
    error = met.std() / np.sqrt(400)
    assert abs(densities.mean() - met.mean()) < 3 * np.hypot(error, densities.std() / np.sqrt(24))
    # what is said of each row by sites of all, without its own
    mean, var = whole._given(old.x, nearest(sure, old.x, old.x, 32, np.arange(120)))
    assert law.log_densities(old.y, mean.T, var.T).mean() > met.mean() + 5 * error


@pytest.mark.parametrize("n", [1, 2, 4])
def test_few_rows_are_judged_too(n):
    x, f, _ = rows(n)
    law = Law(Bernoulli(), np.zeros(1), np.zeros(1))
    seen = Observed(x, np.where(f > 0, 1.0, -1.0)[:, None], law)
    local, judges, densities = settled_sites(
        KERNEL, seen, 8, True, True, np.random.default_rng(0), Budget(2, lambda: True)
    )
    assert len(judges) == 1
    assert np.isfinite(densities).all()
    assert len(local.with_all(seen, lambda: True).x) == n


def test_rows_that_are_met_twice_say_twice_as_much():
    x, *_ = rows(30)
    law, y = laws(30)["poisson"]
    at = np.random.default_rng(3).normal(size=(9, 2))
    x, y = np.repeat(x, 2, axis=0), np.repeat(y, 2, axis=0)
    local = SitedLocal(KERNEL, x, solved(KERNEL, law, x, y, neutral(law, y), 60, lambda: True), law.offset, 60)
    once = local._replace(x=x[::2], sites=Sites(local.sites.z[:, ::2], local.sites.s[:, ::2] / 2))
    np.testing.assert_allclose(local.latent(at), once.latent(at), atol=1e-5)


# -- the estimator --

SMALL = {"n_inducing": 6, "max_steps": 80, "tol": 0, "finish": "neighbours", "n_neighbors": 12, "verbose": False}
FIXED = {**SMALL, "learn_kernel": False, "max_steps": 5}


@pytest.fixture(scope="module")
def stripes():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, (220, 2))
    return x, np.where(np.floor(x[:, 0]) % 2 == 1, "odd", "even")


@pytest.fixture(scope="module")
def fitted(stripes):
    return ng.SparseGPClassifier(**FIXED, kernel=Matern32(3.0, [0.1, 1.0])).fit(*stripes)


LAWS = ["probit", pytest.param("softmax", marks=pytest.mark.slow), pytest.param("ordinal", marks=pytest.mark.slow)]


@pytest.mark.parametrize("likelihood", LAWS)
def test_with_all_rows_as_neighbours_it_is_the_dense_classifier(likelihood):
    x, f, rng = rows(60)
    y = np.digitize(f + rng.normal(size=60), [0.0] if likelihood == "probit" else [-1.0, 1.0])
    at = rng.normal(size=(9, 2))
    near = ng.SparseGPClassifier(
        KERNEL,
        likelihood=likelihood,
        **{**FIXED, "n_neighbors": 60, "n_inducing": 60},
        inducing=x,
        learn_inducing=False,
    )
    whole = {
        "inducing": x,
        "learn_kernel": False,
        "learn_inducing": False,
        "method": VB(),
        "max_steps": 400,
        "jitter": 1e-10,
    }
    exact = ng.SparseGPClassifier(KERNEL, 60, likelihood, **whole, tol=0, finish=None, verbose=False).fit(x, y)
    near = near.set_params(max_steps=400, method=VB(), jitter=1e-10).fit(x, y)
    # 240 solutions of the block leave 1e-6 standard deviations; jitter is 1e-10
    np.testing.assert_allclose(near.predict_proba(at), exact.predict_proba(at), atol=1e-5)


def test_neighbours_see_what_few_inducing_inputs_cannot(stripes, fitted):
    at = np.random.default_rng(9).uniform(0.5, 9.5, (200, 2))
    truth = np.where(np.floor(at[:, 0]) % 2 == 1, "odd", "even")
    sparse = ng.SparseGPClassifier(**{**FIXED, "finish": None, "kernel": Matern32(3.0, [0.1, 1.0])}).fit(*stripes)
    assert fitted.elbo_ == sparse.elbo_
    assert fitted.score(at, truth) > sparse.score(at, truth) + 0.15
    assert fitted.score(at, truth) > 0.85
    assert fitted.neighbour_kernel_ == fitted.kernel_ == Matern32(3.0, [0.1, 1.0])
    assert fitted.neighbour_log_density_ > np.mean(sparse.log_predictive_density(*stripes)) + 0.1
    assert "12 neighbours expect 44 rows" in fitted.trace_.strategy
    with pytest.raises(AttributeError, match='fit with finish="neighbours"'):
        _ = sparse.neighbour_kernel_


def test_a_saved_classifier_predicts_the_same_bits(fitted, stripes, tmp_path):
    fitted.save(tmp_path / "near.natgrad")
    loaded, at = ng.load(tmp_path / "near.natgrad"), stripes[0][:9] + 0.1
    np.testing.assert_array_equal(loaded.predict_proba(at), fitted.predict_proba(at))
    np.testing.assert_array_equal(loaded.sample(at, 3), fitted.sample(at, 3))
    assert loaded.neighbour_log_density_ == fitted.neighbour_log_density_


def test_probabilities_of_draws_are_those_that_are_predicted(fitted, stripes):
    at = stripes[0][:4] + 0.2
    drawn = fitted.sample(at, 4_000).mean(0)
    # five standard errors of a mean of 4,000 numbers in [0, 1]
    np.testing.assert_allclose(drawn, fitted.predict_proba(at)[:, 1], atol=5 * 0.5 / np.sqrt(4_000))


def test_names_of_classes_change_nothing(stripes):
    x, y = stripes
    other = np.where(y == "odd", "a", "z")  # the second class is now the first
    one, two = (
        ng.SparseGPClassifier(KERNEL, **FIXED).fit(x, names).predict_proba(x[:30] + 0.1) for names in (y, other)
    )
    np.testing.assert_allclose(one, two[:, ::-1], atol=1e-9)


def test_the_order_of_columns_and_units_change_nothing(stripes):
    x, y = stripes
    at = x[:20] + 0.1
    one = ng.SparseGPClassifier(RBF(2.0, [0.3, 1.0]), **FIXED).fit(x, y).predict_proba(at)
    two = ng.SparseGPClassifier(RBF(2.0, [1.0, 0.3]), **FIXED).fit(x[:, ::-1], y).predict_proba(at[:, ::-1])
    # rows in another order of their own: blocks stop at another place before the last digits
    np.testing.assert_allclose(one, two, atol=1e-4)
    far = ng.SparseGPClassifier(RBF(2.0, [0.3, 1.0]), **FIXED).fit(1e6 * x, y).predict_proba(1e6 * at)
    np.testing.assert_allclose(far, one, atol=1e-9)


def test_the_order_of_rows_changes_nothing():
    rng = np.random.default_rng(3)
    x = rng.integers(0, 6, (150, 2)).astype(float)  # many rows are met twice
    y, mixed = rng.integers(0, 2, 150), rng.permutation(150)
    whole = {**FIXED, "kernel": KERNEL, "inducing": x[:6], "learn_inducing": False, "method": VB()}
    one, two = (
        ng.SparseGPClassifier(**whole).fit(x[order], y[order]).predict_proba(x[:20])
        for order in (np.arange(150), mixed)
    )
    np.testing.assert_allclose(one, two, atol=1e-8)


def test_three_rows_of_a_class_are_enough_and_far_away_is_the_prior():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 1))
    x[:3] = [[4.0], [4.1], [4.2]]
    y = (np.arange(100) < 3).astype(int)
    model = ng.SparseGPClassifier(RBF(9.0, 0.3), **FIXED, standardize=False).fit(x, y)
    near, other, far = model.predict_proba([[4.1], [0.0], [1e3]])[:, 1]
    assert near > 0.8
    assert other < 0.05
    assert far == pytest.approx(0.5)


@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial"])
def test_counts_have_neighbours_where_they_are_asked_for(likelihood, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, (300, 1))
    rate = 5 * np.exp(np.sin(5 * x[:, 0]))
    y = rng.poisson(rate)
    model = ng.SparseGPRegressor(RBF(1.0, 0.1), likelihood=likelihood, **FIXED).fit(x, y)
    sparse = ng.SparseGPRegressor(RBF(1.0, 0.1), likelihood=likelihood, **{**FIXED, "finish": None}).fit(x, y)
    off = [np.mean((one.predict(x) - rate) ** 2) for one in (model, sparse)]
    assert off[0] < 0.5 * off[1]
    model.save(tmp_path / "counts.natgrad")
    np.testing.assert_array_equal(ng.load(tmp_path / "counts.natgrad").predict(x[:5]), model.predict(x[:5]))
    auto = ng.SparseGPRegressor(RBF(1.0, 0.1), likelihood=likelihood, **{**FIXED, "finish": "auto"})
    assert "neighbours" not in auto.fit(np.tile(x, (4, 1)), np.tile(y, 4)).trace_.strategy


@pytest.mark.parametrize("likelihood", ["probit", "softmax", "ordinal"])
def test_a_sparse_classifier_without_rows_is_that_of_the_others(likelihood):
    x, f, rng = rows(60)
    y = np.digitize(f + rng.normal(size=60), [-1.0, 1.0] if likelihood != "probit" else [0.0])
    whole = {"learn_kernel": False, "learn_inducing": False, "method": VB(), "max_steps": 60, "tol": 0, "finish": None}
    model = ng.SparseGPClassifier(KERNEL, 20, likelihood, **whole, verbose=False).fit(x, y)
    data = model._read(x, y, False).scaled_by(model._x_scaling, model._y_scaling)
    z, outputs = data.take(None)
    apart = without_rows(model._again(data), model._state, z, outputs, 48)
    rest = type(data)(x, data.outputs, model._x_scaling, model._y_scaling, np.arange(48))
    problem, state = model._again(rest), model._again(rest).start(model._state.hyper["settings"])
    for _ in range(60):
        state = problem.centred(problem.sweep(state, rho=0.5).state)
    found, wanted = (one.log_density(z[48:], outputs[48:]) for one in (apart, type(apart).of(problem, state)))
    # three passes from where q of all rows is
    np.testing.assert_allclose(found, wanted, atol=0.02)
    seen = model._predictor.log_density(z[48:], outputs[48:])
    assert np.abs(found - wanted).max() < 0.2 * np.abs(seen - wanted).max()


def test_noise_of_ordered_classes_is_a_unit_of_f():
    """Cutpoints, f and its kernel in units of the noise, or the noise in units of these."""
    (law, y), (x, *_), u = laws()["ordinal"], rows(), 3.0
    inner = law._replace(unit=u)
    outer = Law(Ordinal(3), np.array([u * -1.0, 0.7 + np.log(u)]), np.zeros(1))
    kernel = KERNEL.at([KERNEL.theta[0] + 2 * np.log(u), KERNEL.theta[1]])
    one, two = dense(KERNEL, inner, x, y), dense(kernel, outer, x, y)
    np.testing.assert_allclose(u * one.z, two.z, rtol=1e-8)
    np.testing.assert_allclose(u**2 * one.s, two.s, rtol=1e-8)
    mean, var = np.linspace(-1, 1, 70)[None], np.linspace(0.05, 2.0, 70)[None]
    for scaled, plain in zip(inner.slopes(y, mean, var), outer.slopes(y, u * mean, u**2 * var), strict=True):
        ratio = scaled / plain
        np.testing.assert_allclose(ratio, ratio.ravel()[0], rtol=1e-6)
    np.testing.assert_allclose(inner.log_densities(y, mean, var), outer.log_densities(y, u * mean, u**2 * var))


@pytest.mark.slow
def test_neighbours_find_less_noise_than_inducing_inputs_left():
    """Bands that four inducing inputs cannot hold: what is local is noise to them."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, (1_200, 1))
    y = np.digitize(np.sin(6 * x[:, 0]), [-0.5, 0.5])
    few = {"n_inducing": 4, "max_steps": 300, "tol": 0, "likelihood": "ordinal", "n_neighbors": 40}
    model = ng.SparseGPClassifier(**few).fit(x[:1_000], y[:1_000])
    assert model._predictor.local.unit > 2.0
    assert model.score(x[1_000:], y[1_000:]) > 0.9
    assert model.log_predictive_density(x[1_000:], y[1_000:]).mean() > -0.25


def test_what_cannot_be_is_refused_in_words(stripes):
    x, y = stripes
    with pytest.raises(ValueError, match="partial_fit takes rows and lets them go"):
        ng.SparseGPClassifier(**SMALL).partial_fit(x, y)
    with pytest.raises(ValueError, match="n_neighbors must be"):
        ng.SparseGPClassifier(**{**SMALL, "n_neighbors": 0}).fit(x, y)
    with pytest.raises(ValueError, match='finish must be None, "auto" or "neighbours"'):
        ng.SparseGPClassifier(**{**SMALL, "finish": "gibbs"}).fit(x, y)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"z": np.zeros((1, 3))}, "z"),
        ({"s": np.zeros((1, 220))}, "s"),
        ({"n_neighbors": 0}, "n_neighbors"),
        ({"unit": 2.0}, "a unit of 2.0, which is of ordered classes"),
        ({"unit": 0.0}, "unit"),
    ],
)
def test_a_file_with_sites_that_cannot_be_is_refused(fitted, change, said):
    saved = fitted._saved()
    _, of = type(fitted)._tables(fitted.get_params(), saved)
    of(saved, {}, "it")
    saved["local"] = {**saved["local"], **change}
    with pytest.raises(ValueError, match=said):
        of(saved, {}, "it")


@pytest.mark.slow
def test_auto_takes_neighbours_where_they_gain_and_the_sparse_process_elsewhere():
    rng = np.random.default_rng(2)
    x = rng.uniform(0, 10, (1_500, 2))
    auto = {"n_inducing": 10, "max_steps": 300, "tol": 0}
    gains = ng.SparseGPClassifier(**auto).fit(x, np.floor(2 * x[:, 0]) % 2)
    assert "which predicts" not in gains.trace_.strategy
    assert gains.score(x[:50] + 0.001, np.floor(2 * x[:50, 0]) % 2) > 0.9
    noisy = rng.random(1_500) < 0.3 + 0.04 * x[:, 0]
    model = ng.SparseGPClassifier(**auto).fit(x, noisy)
    sparse = ng.SparseGPClassifier(**auto, finish=None).fit(x, noisy)
    np.testing.assert_array_equal(model.predict_proba(x), sparse.predict_proba(x))
    assert "which predicts" in model.trace_.strategy


@pytest.mark.slow
def test_probabilities_of_settled_neighbours_are_frequencies():
    rng = np.random.default_rng(4)
    x = rng.uniform(0, 6, (4_000, 2))
    p = 1.0 / (1.0 + np.exp(-4 * np.sin(4 * x[:, 0]) * np.cos(3 * x[:, 1])))
    y = rng.random(4_000) < p
    model = ng.SparseGPClassifier(n_inducing=20, max_steps=800, finish="neighbours").fit(x[:3_000], y[:3_000])
    found = model.predict_proba(x[3_000:])[:, 1]
    for low in np.arange(0.0, 1.0, 0.2):
        here = (found >= low) & (found < low + 0.2)
        # four standard errors of the frequency
        assert abs(found[here].mean() - y[3_000:][here].mean()) < 4 * 0.5 / np.sqrt(here.sum())
    assert np.mean(np.abs(found - p[3_000:])) < 0.09


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [Periodic(period=2.0) + RBF(), Matern32(1.0, 0.5) + Linear(0.3)])
def test_any_kernel_settles(kernel):
    x, f, rng = rows(300)
    y = f + 0.3 * rng.normal(size=300) > 0
    # so few inducing inputs that the kernel of the sparse process is not that of neighbours
    few = {**SMALL, "n_inducing": 2, "max_steps": 400, "n_neighbors": 40}
    model = ng.SparseGPClassifier(kernel, **few).fit(x, y)
    law, numbers = Law(Bernoulli(), np.zeros(1), np.zeros(1)), np.where(y, 1.0, -1.0)[:, None]
    z = model._x_scaling.apply(x)
    sites = solved(model.kernel_, law, z, numbers, neutral(law, numbers), 40, lambda: True)
    before = SitedLocal(model.kernel_, z, sites, law.offset, 40)
    new, g, _ = rows(2_000, seed=1)
    truth = g + 0.3 * np.random.default_rng(2).normal(size=2_000) > 0
    at = model._x_scaling.apply(new)
    sparse = densities_of(before, Observed(at, np.where(truth, 1.0, -1.0)[:, None], law))
    assert model.log_predictive_density(new, truth).mean() > sparse.mean() + 0.005


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [ng.SparseGPRegressor, ng.SparseGPClassifier])
def test_scikit_learn_refuses_only_what_neighbours_refuse(kind):
    from sklearn.utils.estimator_checks import check_estimator

    model = kind(n_inducing=5, max_steps=20, finish="neighbours", n_neighbors=8, learn_kernel=False, verbose=False)
    words = ("partial_fit takes rows and lets them go", "columns, and neighbours predict one")
    failed = [one for one in check_estimator(model, on_fail=None) if one["status"] == "failed"]
    assert all(any(word in str(one["exception"]) for word in words) for one in failed), failed


def test_one_thread_and_two_give_the_same_bits(stripes):
    from threadpoolctl import threadpool_limits

    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            model = ng.SparseGPClassifier(**FIXED, kernel=Matern32(3.0, [0.1, 1.0])).fit(*stripes)
            found.append(model.predict_proba(stripes[0][:20] + 0.1))
    np.testing.assert_array_equal(*found)


@pytest.mark.filterwarnings("ignore:A column-vector y")
def test_a_parquet_file_is_read_into_memory(stripes, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    x, y = stripes
    numbers = (y == "odd").astype(int)
    path = tmp_path / "rows.parquet"
    pandas.DataFrame({"a": x[:, 0], "b": x[:, 1], "odd": numbers}).to_parquet(path)
    kernel = Matern32(3.0, [0.1, 1.0])
    one = ng.SparseGPClassifier(**FIXED, kernel=kernel).fit(str(path), "odd")
    two = ng.SparseGPClassifier(**FIXED, kernel=kernel).fit(x, numbers)
    np.testing.assert_array_equal(one.predict_proba(x[:20]), two.predict_proba(x[:20]))


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"kernel": "auto"}, {"n_inducing": "auto"}])
def test_what_is_chosen_may_end_with_neighbours(stripes, more):
    x, y = stripes
    model = ng.SparseGPClassifier(**{**SMALL, **more}).fit(x, y)
    assert "12 neighbours expect" in model.trace_.strategy
    assert np.isfinite(model.neighbour_log_density_)
    model = ng.SparseGPRegressor(**{**SMALL, **more}).fit(x, x[:, 0])
    assert np.isfinite(model.neighbour_log_density_)
