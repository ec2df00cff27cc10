"""Nodes that are observed in part and have children: against closed forms and enumeration, exact wherever q can be."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import natgrad as ng

nan = np.nan
N = ng.Plate("n", 6)
X = np.array([0.4, nan, -1.1, 2.0, nan, 0.3])
Y = np.array([0.1, 0.9, -0.7, 1.4, -1.2, 0.0])
SEEN = ~np.isnan(X)


def rising(network):
    """The fit, whose bound never falls."""
    first = network().fit(backend="numpy", tol=1e-10)
    assert (np.diff(first.trace["elbo"]) > -1e-8).all()
    return first


def test_a_covariate_is_inferred_exactly():
    """x ~ N(0.5, 1/2), y ~ N(1 + 1.5 x, 1/4): Gaussian, so that the bound is the evidence."""

    def network():
        x = ng.Normal("x", 0.5, 2.0, plate=N, observed=X)
        return ng.Network(ng.Normal("y", 1.0 + 1.5 * x, 4.0, plate=N, observed=Y))

    fit = rising(network)
    seen = stats.norm.logpdf(X, 0.5, 2**-0.5) + stats.norm.logpdf(Y, 1 + 1.5 * X, 0.5)
    free = stats.norm.logpdf(Y, 1 + 1.5 * 0.5, np.sqrt(0.25 + 1.5**2 / 2))
    assert fit.elbo == pytest.approx(np.where(SEEN, np.nan_to_num(seen), free).sum(), abs=1e-9)
    precision = 2.0 + 1.5**2 * 4.0
    mean = (0.5 * 2.0 + 1.5 * 4.0 * (Y - 1.0)) / precision
    np.testing.assert_allclose(fit["x"].mean(), np.where(SEEN, X, mean))
    np.testing.assert_allclose(fit["x"].var(), np.where(SEEN, 0.0, 1 / precision))
    low, high = fit["x"].interval(0.9)
    assert (low[SEEN] == X[SEEN]).all()
    assert (high > low)[~SEEN].all()
    assert (fit["x"].sample(0, 5)[:, SEEN] == X[SEEN]).all()
    np.testing.assert_allclose(fit["x"].moments["xx"], np.where(SEEN, X**2, mean**2 + 1 / precision))
    np.testing.assert_allclose(fit["x"].entropy(), np.where(SEEN, 0.0, stats.norm.entropy(0, precision**-0.5)))
    assert network().hidden == ("x",)


def test_through_an_index_and_in_a_chain_of_parents():
    """Two nodes observed in part, one above the other, and a child that reads the lower one through an index."""
    index = np.array([1, 4, 4])

    def network():
        a = ng.Normal("a", 0.5, 2.0, plate=N, observed=X)
        b = ng.Normal("b", a, 1.0, plate=N, observed=np.where(np.arange(6) == 4, nan, Y))
        return ng.Network(ng.Normal("c", b[index], 3.0, plate=ng.Plate("m", 3), observed=[0.2, 0.4, 0.1]))

    fit = rising(network)
    # a[1] has only its own b[1]; a[4] and b[4] are both hidden.
    assert set(network().hidden) == {"a", "b"}
    a1 = (0.5 * 2.0 + Y[1]) / 3.0
    assert fit["a"].mean()[1] == pytest.approx(a1)
    joint = np.array([[2.0 + 1.0, -1.0], [-1.0, 1.0 + 2 * 3.0]])
    np.testing.assert_allclose(
        [fit["a"].mean()[4], fit["b"].mean()[4]], np.linalg.solve(joint, [1.0, 3.0 * 0.5]), atol=1e-5
    )


def test_categories_that_choose_components():
    """Mixture with known components: q(z) is exact, and so is the bound."""
    labels, means = np.array([0.0, nan, 1.0, 2.0, nan, 1.0]), np.array([-1.0, 0.0, 2.0])
    probs = np.array([0.2, 0.5, 0.3])

    def network(read):
        z = ng.Categorical("z", probs, plate=N, observed=labels)
        return ng.Network(ng.Normal("y", read(z), 1.0, plate=N, observed=Y))

    log = np.log(probs) + stats.norm.logpdf(Y[:, None], means)
    seen = ~np.isnan(labels)
    chosen = log[np.arange(6), np.where(seen, labels, 0).astype(int)]
    for read in (
        lambda z: ng.table(means)[z],
        lambda z: ng.Normal("mu", 0.0, 1.0, plate=ng.Plate("k", 3), observed=means)[z],
    ):
        fit = rising(lambda read=read: network(read))
        extra = fit.elbo_by_node().get("mu", 0.0)
        assert fit.elbo - extra == pytest.approx(np.where(seen, chosen, logsumexp(log, axis=1)).sum(), abs=1e-9)
        posterior = np.exp(log - logsumexp(log, axis=1, keepdims=True))
        onehot = np.eye(3)[np.where(seen, labels, 0).astype(int)]
        np.testing.assert_allclose(fit["z"].mean(), np.where(seen[:, None], onehot, posterior), atol=1e-12)


def test_semi_supervised_mixtures_need_no_start():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 60)
    y = np.where(truth == 1, 3.0, -3.0) + rng.normal(size=60)
    z = ng.Categorical(
        "z", ng.Dirichlet("p", 1.0, size=2), plate=ng.Plate("n", 60), observed=truth, mask=np.arange(60) < 6
    )
    mu = ng.Normal("mu", 0.0, 0.1, plate=ng.Plate("k", 2))
    fit = ng.Network(ng.Normal("y", mu[z], 1.0, plate=ng.Plate("n", 60), observed=y)).fit()
    assert (fit["z"].mean().argmax(-1) == truth).mean() > 0.95
    assert fit["mu"].mean()[1] > 2.0


def vectors():
    rng = np.random.default_rng(1)
    covariance = np.array([[1.0, 0.8, 0.2], [0.8, 1.5, 0.1], [0.2, 0.1, 0.7]])
    rows = rng.multivariate_normal([0.0, 1.0, 2.0], covariance, 7)
    holes = np.where(rng.random(rows.shape) < 0.35, nan, rows)
    holes[3] = nan
    return covariance, holes


def test_vectors_with_missing_entries_are_conditioned():
    covariance, holes = vectors()
    mean = np.array([0.0, 1.0, 2.0])
    x = ng.MultivariateNormal("x", mean, np.linalg.inv(covariance), plate=ng.Plate("n", 7), observed=holes)
    fit = rising(lambda: ng.Network(x))
    evidence, rows = 0.0, fit["x"]
    for i, row in enumerate(holes):
        o, h = ~np.isnan(row), np.isnan(row)
        if not o.any():
            continue  # nobody reads it: it is left out
        here = covariance[np.ix_(o, o)]
        evidence += stats.multivariate_normal(mean[o], here).logpdf(row[o])
        gain = covariance[np.ix_(h, o)] @ np.linalg.inv(here)
        np.testing.assert_allclose(rows.mean()[i, h], mean[h] + gain @ (row[o] - mean[o]), atol=1e-9)
        np.testing.assert_allclose(
            rows.var()[i, h], np.diag(covariance[np.ix_(h, h)] - gain @ covariance[np.ix_(o, h)])
        )
        np.testing.assert_array_equal(rows.mean()[i, o], row[o])
        second = rows.moments["xx"][i]
        np.testing.assert_allclose(second[np.ix_(o, o)], np.outer(row[o], row[o]))
    assert fit.elbo == pytest.approx(evidence, abs=1e-9)


def test_vectors_with_missing_entries_that_are_read():
    """y = w·x with known w: jointly Gaussian, row by row; a row that is missing as a whole is inferred here, as y reads it."""
    covariance, holes = vectors()
    mean, w = np.array([0.0, 1.0, 2.0]), np.array([1.0, -1.0, 0.5])
    y = np.arange(7.0) / 3.0 - 1.0

    def network():
        x = ng.MultivariateNormal("x", mean, np.linalg.inv(covariance), plate=ng.Plate("n", 7), observed=holes)
        return ng.Network(ng.Normal("y", ng.dot(np.tile(w, (7, 1)), x), 2.0, plate=ng.Plate("n", 7), observed=y))

    fit, evidence = rising(network), 0.0
    for row, value in zip(holes, y, strict=True):
        o = ~np.isnan(row)
        whole = np.block([[covariance, (covariance @ w)[:, None]], [(covariance @ w)[None], w @ covariance @ w + 0.5]])
        kept = np.append(o, True)
        centre = np.append(mean, w @ mean)
        evidence += stats.multivariate_normal(centre[kept], whole[np.ix_(kept, kept)]).logpdf(
            np.append(row, value)[kept]
        )
    assert fit.elbo == pytest.approx(evidence, abs=1e-8)


def positives():
    tau = ng.Gamma("t", 2.0, 3.0, plate=N, observed=[0.5, nan, 1.2, nan, 2.0, 0.7])
    marginal = stats.t(df=4, scale=np.sqrt(3.0 / 2.0)).logpdf(Y)
    t = tau.value
    seen = stats.gamma.logpdf(t, 2.0, scale=1 / 3.0) + stats.norm.logpdf(Y, 0.0, t**-0.5)
    return tau, ng.Normal("y", 0.0, tau, plate=N, observed=Y), seen, marginal


def coins():
    p = ng.Beta("p", 2.0, 3.0, plate=N, observed=[0.5, nan, 0.2, nan, 0.1, 0.7])
    y = np.array([1, 1, 0, 0, 1, 0])
    seen = stats.beta.logpdf(p.value, 2.0, 3.0) + stats.bernoulli.logpmf(y, p.value)
    return p, ng.Bernoulli("y", p, plate=N, observed=y), seen, stats.bernoulli.logpmf(y, 0.4)


def simplices():
    rows = np.array([[0.2, 0.8], [nan, nan], [0.5, 0.5], [nan, nan], [0.9, 0.1], [0.3, 0.7]])
    p = ng.Dirichlet("p", [2.0, 1.0], plate=N, observed=rows)
    y = np.array([0, 1, 0, 0, 1, 0])
    seen = stats.beta.logpdf(rows[:, 0], 2.0, 1.0) + np.log(rows[np.arange(6), y])
    return p, ng.Categorical("y", p, plate=N, observed=y), np.nan_to_num(seen), np.log(np.array([2 / 3, 1 / 3])[y])


def matrices():
    rng = np.random.default_rng(0)
    values = np.array([a @ a.T + np.eye(2) for a in rng.normal(size=(6, 2, 2))])
    values[[1, 3]] = nan
    W = ng.Wishart("W", 4.0, np.eye(2), plate=N, observed=values)
    y = rng.normal(size=(6, 2))
    full = np.where(np.isnan(values), np.eye(2), values)
    seen = [
        stats.wishart(4, np.eye(2)).logpdf(v) + stats.multivariate_normal([0, 0], np.linalg.inv(v)).logpdf(row)
        for v, row in zip(full, y, strict=True)
    ]
    free = stats.multivariate_t([0, 0], np.eye(2) / 3.0, df=3).logpdf(y)
    return W, ng.MultivariateNormal("y", np.zeros(2), W, plate=N, observed=y), np.array(seen), free


@pytest.mark.parametrize("case", [positives, coins, simplices, matrices])
def test_every_kind_of_parent(case):
    """One hidden parent for each child, conjugate: the bound is the evidence."""
    parent, child, seen, free = case()
    fit = rising(lambda: ng.Network(child))
    assert fit.elbo == pytest.approx(np.where(parent.mask > 0, seen, free).sum(), abs=1e-8)
    there = parent.mask > 0
    np.testing.assert_array_equal(fit[parent.name].mean()[there], parent.value[there])


def regression(x, y):
    rows = ng.Plate("row", len(x))
    level, spread = ng.Normal("level", 0.0, 0.1), ng.Gamma("spread", 1.0, 1.0)
    a, b, tau = ng.Normal("a", 0.0, 0.1), ng.Normal("b", 0.0, 0.1), ng.Gamma("tau", 1.0, 1.0)
    covariate = ng.Normal("x", level, spread, plate=rows, observed=x)
    return ng.Network(ng.Normal("y", a + b * covariate, tau, plate=rows, observed=y))


def regression_data(n=80):
    rng = np.random.default_rng(2)
    x = rng.normal(2.0, 1.0, n)
    return x, np.where(np.arange(n) % 4 == 0, nan, x), 1.0 - 0.8 * x + 0.3 * rng.normal(size=n)


def test_a_regression_with_gaps_in_its_covariate():
    x, holes, y = regression_data()
    fit = rising(lambda: regression(holes, y))
    assert fit["b"].mean() == pytest.approx(-0.8, abs=0.15)
    gone = np.isnan(holes)
    assert np.corrcoef(fit["x"].mean()[gone], x[gone])[0, 1] > 0.9
    assert fit.predictive("y").mean().shape == (80,)
    assert (fit.predictive("y").var()[gone] > fit.predictive("y").var()[~gone].max()).all()


def test_far_from_zero():
    """x and y 10⁷ standard deviations away: the same bound, with all its digits."""
    far = 1e7

    def network(shift):
        level = ng.Normal("level", shift, 1.0)
        x = ng.Normal("x", level, 2.0, plate=N, observed=X + shift)
        return ng.Network(ng.Normal("y", x, 4.0, plate=N, observed=Y + shift))

    near, away = rising(lambda: network(0.0)), rising(lambda: network(far))
    assert away.elbo == pytest.approx(near.elbo, abs=1e-6)
    np.testing.assert_allclose(away["x"].mean() - far, near["x"].mean(), atol=1e-6)


def test_nobody_reads_it():
    """Missing elements that no child reads have no term: a leaf, or a child that is masked at the same places."""
    x = ng.Normal("x", ng.Normal("m", 0.0, 1.0), 1.0, plate=N, observed=X)
    assert ng.Network(x).hidden == ("m",)
    child = ng.Normal("y", x, 1.0, plate=N, observed=np.where(SEEN, Y, nan))
    assert ng.Network(child).hidden == ("m",)
    elsewhere = ng.Normal("y", x[[0, 2, 3]], 1.0, plate=ng.Plate("m", 3), observed=[0.0, 1.0, 2.0])
    assert ng.Network(elsewhere).hidden == ("m",)
    assert ng.Network(ng.Normal("y", x, 1.0, plate=N, observed=Y)).hidden == ("m", "x")


def test_states_of_a_chain_that_are_known_in_part():
    """Against all paths: the exact posterior of the states given those that were seen, and the evidence."""
    import itertools

    initial, transition = np.array([0.6, 0.4]), np.array([[0.7, 0.3], [0.2, 0.8]])
    means, y, time = np.array([-1.0, 1.0]), np.array([0.2, -0.5, 1.5, 0.1, -2.0]), ng.Plate("time", 5)
    states = np.array([nan, 1.0, nan, 0.0, nan])
    z = ng.MarkovChain("z", initial, transition, plate=time, observed=states)
    fit = ng.Network(ng.Normal("y", ng.table(means)[z], 1.0, plate=time, observed=y)).fit(backend="numpy")
    total, marginals = 0.0, np.zeros((5, 2))
    for path in itertools.product(range(2), repeat=5):
        if any(s != p for s, p in zip(states, path, strict=True) if not np.isnan(s)):
            continue
        p = initial[path[0]] * np.prod([transition[a, b] for a, b in itertools.pairwise(path)])
        p *= np.prod(stats.norm.pdf(y, means[list(path)]))
        total += p
        marginals[np.arange(5), path] += p
    assert fit.elbo == pytest.approx(np.log(total), abs=1e-9)
    np.testing.assert_allclose(fit["z"].mean(), marginals / total, atol=1e-10)
    alone = ng.Network(ng.MarkovChain("z", initial, transition, plate=time, observed=[1, 1, 0, 0, 1])).fit(
        backend="numpy"
    )
    assert alone.elbo == pytest.approx(np.log(0.4 * 0.8 * 0.2 * 0.7 * 0.3))
