"""Observed nodes that others read: through an index, through a category, in the middle of a network; against exact results."""

import itertools

import numpy as np
import pytest
from scipy import stats

import natgrad as ng
from natgrad.errors import PlateMismatch


def rows(rng, *shape):
    """Random probabilities along the last axis."""
    return rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])


def test_an_observed_node_read_through_an_index(rng):
    price, day_of, y = rng.normal(size=7), rng.integers(0, 7, 7), rng.normal(size=7)
    day, sale = ng.Plate("day", 7), ng.Plate("sale", 7)
    base = ng.Normal("base", 1.0, 0.5)
    p = ng.Normal("price", 0.0, 1.0, plate=day, observed=price)
    leaf = ng.Normal("y", base + p[day_of], 1.0, plate=sale, observed=y)
    fit = ng.Network(leaf).fit()
    precision = 0.5 + 7
    assert fit["base"].mean() == pytest.approx((0.5 * 1.0 + (y - price[day_of]).sum()) / precision)
    evidence = stats.multivariate_normal(1.0 + price[day_of], np.eye(7) + 2.0).logpdf(y)
    assert fit.elbo == pytest.approx(evidence + stats.norm.logpdf(price).sum())


def test_observed_nodes_read_by_integers_on_plates_of_other_sizes(rng):
    """One number for all, an index that repeats, and one on the first of two plates."""
    a, b = rng.normal(size=3), rng.gamma(2.0, size=4)
    first, second = rng.integers(0, 3, 5), rng.integers(0, 4, 6)
    y = rng.normal(size=(5, 6))
    left, right = ng.Plate("left", 5), ng.Plate("right", 6)
    mean = ng.Normal("mean", 0.0, 1.0, plate=ng.Plate("three", 3), observed=a)
    precision = ng.Gamma("precision", 2.0, 1.0, plate=ng.Plate("four", 4), observed=b)
    shift = ng.Normal("shift", 0.0, 2.0)
    total = shift + mean[left.index(first)] + 2.0 * mean[1]
    leaf = ng.Normal("y", total, precision[right.index(second)], plate=(left, right), observed=y)
    fit = ng.Network(leaf).fit()
    noise = np.tile(b[second], (5, 1))
    rest = y - a[first][:, None] - 2.0 * a[1]
    covariance = np.diag(1.0 / noise.reshape(-1)) + 0.5
    evidence = stats.multivariate_normal(np.zeros(30), covariance).logpdf(rest.reshape(-1))
    evidence += stats.norm.logpdf(a).sum() + stats.gamma.logpdf(b, 2.0).sum()
    assert fit.elbo == pytest.approx(evidence)
    assert fit["shift"].mean() == pytest.approx((noise * rest).sum() / (2.0 + noise.sum()))


@pytest.mark.parametrize("value", [0, 1])
def test_the_term_of_an_observed_category_with_known_probabilities(value):
    z = ng.Categorical("z", [0.001, 0.999], plate=ng.Plate("n", 5), observed=np.full(5, value))
    mu = ng.Normal("mu", 0.0, 1.0)
    x = ng.Normal("x", mu, 1.0, observed=0.3)
    fit = ng.Network(x, z).fit()
    assert fit.elbo_by_node()["z"] == pytest.approx(5 * np.log([0.001, 0.999][value]))


def discrete_network(rng, sizes):
    """A random network of categories: for each node its parents, the one before it among them, and its table [parents, own]."""
    declared = []
    for number, size in enumerate(sizes):
        others = rng.permutation(max(number - 1, 0))[: rng.integers(0, 3)].tolist()
        parents = [*others, number - 1] if number else []
        declared.append((parents, rows(rng, *(sizes[p] for p in parents), size)))
    return declared


@pytest.mark.parametrize("case", range(6))
def test_discrete_networks_on_a_plate_against_enumeration(case):
    """One node hidden, the others observed, known numbers as observed Dirichlets: the bound is the exact evidence."""
    rng = np.random.default_rng(case)
    sizes = rng.integers(2, 4, 5).tolist()
    n, hidden = 4, int(rng.integers(0, 4))
    declared = discrete_network(rng, sizes)
    data = [rng.integers(0, size, n) for size in sizes]
    plate, nodes, density = ng.Plate("n", n), [], 0.0
    for number, (parents, table) in enumerate(declared):
        name = f"z{number}"
        probs = table
        if parents:
            plates = tuple(ng.Plate(f"{name}:{p}", sizes[p]) for p in parents)
            given = ng.Dirichlet(f"table of {name}", np.ones(sizes[number]), plate=plates, observed=table)
            density += stats.dirichlet(np.ones(sizes[number])).logpdf(table[(0,) * len(parents)]) * table[..., 0].size
            probs = given[tuple(nodes[p] for p in parents)]
        observed = None if number == hidden else data[number]
        nodes.append(ng.Categorical(name, probs, plate=plate, observed=observed))
    weights = np.zeros((n, sizes[hidden]))
    for i, k in itertools.product(range(n), range(sizes[hidden])):
        values = [k if number == hidden else data[number][i] for number in range(5)]
        weights[i, k] = np.prod(
            [table[(*(values[p] for p in ps), v)] for (ps, table), v in zip(declared, values, strict=True)]
        )
    fit = ng.Network(*nodes).fit()
    assert fit.elbo == pytest.approx(np.log(weights.sum(1)).sum() + density)
    np.testing.assert_allclose(fit[f"z{hidden}"].mean(), weights / weights.sum(1, keepdims=True), atol=1e-12)


def test_observed_categories_are_ancestors_like_any_other(rng):
    """The sprinkler's rain alone brings the weather that its table is indexed by, and the prior of the weather."""
    weather, wet = rng.integers(0, 2, 50), rng.integers(0, 2, 50)
    n = ng.Plate("n", 50)
    season = ng.Beta("season", 1.0, 1.0)
    cloudy = ng.Categorical("cloudy", ng.Dirichlet("sky", [1.0, 1.0]), plate=n, observed=weather)
    table = ng.Beta("table", 1.0, 1.0, plate=ng.Plate("state", 2))
    rain = ng.Bernoulli("rain", table[cloudy], plate=n, observed=wet)
    more = ng.Bernoulli("more", season, plate=n, observed=wet)
    alone, together = ng.Network(rain), ng.Network(cloudy, rain)
    assert set(alone.nodes) == {"sky", "cloudy", "table", "rain"} == set(together.nodes)
    assert alone.fit().elbo == pytest.approx(together.fit().elbo)
    assert set(ng.Network(rain, more).nodes) == {*alone.nodes, "season", "more"}
    new = ng.Categorical("new", [0.5, 0.5], plate=n, observed=1 - weather)
    predicted = alone.fit().predictive("rain", prob=table[new]).mean()
    assert abs(predicted[weather == 0].mean() - wet[weather == 1].mean()) < 0.1


def test_a_hidden_category_that_chooses_an_observed_one(rng):
    """x reads mu[kind[z]]: the kind of each component is known, which component is not; both have exact evidences."""
    kinds, means, data = np.array([1, 0, 1]), np.array([-2.0, 1.0]), rng.normal(size=4)
    probabilities = np.array([0.2, 0.5, 0.3])
    n, component, two = ng.Plate("n", 4), ng.Plate("component", 3), ng.Plate("two", 2)
    kind = ng.Categorical("kind", [0.5, 0.5], plate=component, observed=kinds)
    mu = ng.Normal("mu", 0.0, 1.0, plate=two, observed=means)
    z = ng.Categorical("z", probabilities, plate=n)
    x = ng.Normal("x", mu[kind[z]], 1.0, plate=n, observed=data)
    fit = ng.Network(x).fit()
    parts = probabilities * stats.norm.pdf(data[:, None], means[kinds])
    evidence = np.log(parts.sum(1)).sum() + 3 * np.log(0.5) + stats.norm.logpdf(means).sum()
    assert fit.elbo == pytest.approx(evidence)
    np.testing.assert_allclose(fit["z"].mean(), parts / parts.sum(1, keepdims=True))


def test_observed_categories_on_two_plates_read_by_integers(rng):
    seen, i, j, y = rng.integers(0, 2, (3, 4)), rng.integers(0, 3, 8), rng.integers(0, 4, 8), rng.normal(size=8)
    grid = ng.Categorical("grid", [0.5, 0.5], plate=(ng.Plate("a", 3), ng.Plate("b", 4)), observed=seen)
    mu = ng.Normal("mu", 0.0, 1.0, plate=ng.Plate("two", 2))
    fit = ng.Network(ng.Normal("y", mu[grid[i, j]], 1.0, plate=ng.Plate("n", 8), observed=y)).fit()
    sums, counts = np.bincount(seen[i, j], y, 2), np.bincount(seen[i, j], minlength=2)
    np.testing.assert_allclose(fit["mu"].mean(), sums / (1.0 + counts))
    with pytest.raises(PlateMismatch, match="one index for each of them"):
        mu[grid[i]]


def test_missing_values_in_the_middle_are_elements_that_are_not_there():
    """What is missing of an observed parent and of all its children is as if it had been left out."""
    rng = np.random.default_rng(3)
    price, sold, gone = rng.normal(size=5), rng.normal(size=5), np.arange(5) == 2

    def network(price, sold, index=None):
        day = ng.Plate("day", len(price))
        base, level, tau = ng.Normal("base", 0.0, 0.5), ng.Normal("level", 0.0, 2.0), ng.Gamma("tau", 2.0, 1.0)
        p = ng.Normal("price", level, tau, plate=day, observed=price)
        return ng.Network(ng.Normal("y", base + (p if index is None else p[index]), tau, plate=day, observed=sold))

    holes = np.where(gone, np.nan, price), np.where(gone, np.nan, sold)
    missing, short = network(*holes).fit(tol=1e-9), network(price[~gone], sold[~gone]).fit(tol=1e-9)
    assert missing.elbo == pytest.approx(short.elbo, abs=1e-7)
    for name in ("base", "level", "tau"):
        np.testing.assert_allclose(missing[name].mean(), short[name].mean(), rtol=1e-5)
    assert network(*holes, np.arange(5)).fit(tol=1e-9).elbo == pytest.approx(short.elbo, abs=1e-7)
    # Read by a child that counts, it is inferred.
    assert "price" in network(holes[0], sold).hidden
