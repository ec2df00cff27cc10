"""Known tables that categories choose from, against the forward algorithm, enumeration and closed forms; zeros included."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import natgrad as ng
from natgrad.errors import PlateMismatch, SymmetricStart


def forward(initial, transition, likelihood):
    """Log evidence of a hidden Markov chain, in plain probabilities with scaling."""
    total, alpha = 0.0, initial * likelihood[0]
    for row in likelihood[1:]:
        total, alpha = total + np.log(alpha.sum()), (alpha / alpha.sum()) @ transition * row
    return total + np.log(alpha.sum())


INITIAL = np.array([0.6, 0.4, 0.0])
TRANSITION = np.array([[0.7, 0.3, 0.0], [0.1, 0.6, 0.3], [0.5, 0.0, 0.5]])
EMISSION = np.array([[0.5, 0.4, 0.1, 0.0], [0.0, 0.1, 0.3, 0.6], [0.25, 0.25, 0.25, 0.25]])


def chain(length):
    return ng.MarkovChain("z", INITIAL, TRANSITION, plate=ng.Plate("time", length))


def test_a_chain_with_known_emissions_has_its_exact_evidence(rng):
    """Zeros in the initial probabilities, the transitions and the emissions; no prior density of the table in the bound."""
    state, y = 0, []
    for _ in range(80):
        y.append(rng.choice(4, p=EMISSION[state]))
        state = rng.choice(3, p=TRANSITION[state])
    z = chain(80)
    leaf = ng.Categorical("y", ng.table(EMISSION)[z], plate=z.plates[0], observed=y)
    fit = ng.Network(leaf).fit()
    assert fit.elbo == pytest.approx(forward(INITIAL, TRANSITION, EMISSION[:, y].T), abs=1e-9)
    assert set(ng.Network(leaf).nodes) == {"z", "y"}
    assert np.all(fit["z"].mean()[EMISSION[:, y].T == 0] == 0)
    assert not np.isnan(fit.predictive("y").log_density(np.zeros(80))).any()


def likelihoods():
    """A leaf on plate n that reads known numbers through z, and its likelihood [n, 3] by NumPy."""
    rng = np.random.default_rng(3)
    means, rates, chances = np.array([-1.0, 0.5, 2.0]), np.array([0.5, 2.0, 7.0]), np.array([0.0, 0.5, 1.0])
    centres, precisions = rng.normal(size=(3, 2)), np.stack([np.eye(2) * s for s in (0.5, 1.0, 3.0)])
    x, points, counts, bits = rng.normal(size=6), rng.normal(size=(6, 2)), rng.poisson(3.0, 6), rng.integers(0, 2, 6)
    w = np.array([0.3, -1.0])

    def vector(z, n):
        return ng.MultivariateNormal("y", ng.table(centres)[z], ng.table(precisions)[z], plate=n, observed=points)

    def dotted(z, n):
        known = ng.MultivariateNormal("w", np.zeros(2), np.eye(2), observed=w)
        return ng.Normal("y", ng.dot(ng.table(centres)[z], known) + 1.0, 1.0, plate=n, observed=x)

    def summed(z, n):
        known = ng.Normal("w", 0.0, 1.0, plate=ng.Plate("two", 2), observed=w)
        return ng.Normal("y", ng.dot(known, ng.table(centres)[z]), 1.0, plate=n, observed=x)

    def shifted(z, n):
        shift = ng.Normal("shift", 0.0, 1.0, observed=0.7)
        return ng.Normal("y", 2.0 * shift - ng.table(means)[z], ng.table(rates)[z], plate=n, observed=x)

    density = np.stack(
        [stats.multivariate_normal(c, np.linalg.inv(p)).pdf(points) for c, p in zip(centres, precisions, strict=True)]
    )
    prior = stats.norm.logpdf(w).sum()
    normal, poisson, bernoulli = stats.norm.pdf, stats.poisson.pmf, stats.bernoulli.pmf
    return {
        "mean": (lambda z, n: ng.Normal("y", ng.table(means)[z], 4.0, plate=n, observed=x), normal(x[:, None], means, 0.5), 0.0),
        "rate": (
            lambda z, n: ng.Poisson("y", ng.table(rates)[z], plate=n, observed=counts), poisson(counts[:, None], rates), 0.0
        ),
        "chance": (
            lambda z, n: ng.Bernoulli("y", ng.table(chances)[z], plate=n, observed=bits), bernoulli(bits[:, None], chances), 0.0
        ),
        "vector": (vector, density.T, 0.0),
        "dot": (dotted, stats.norm.pdf(x[:, None], centres @ w + 1.0), prior),
        "sum over a plate": (summed, stats.norm.pdf(x[:, None], centres @ w), prior),
        "shift": (shifted, stats.norm.pdf(x[:, None], 1.4 - means, rates**-0.5), stats.norm.logpdf(0.7)),
    }  # fmt: skip


@pytest.mark.parametrize("name", likelihoods())
def test_known_parameters_chosen_by_a_hidden_category(name):
    declare, likelihood, prior = likelihoods()[name]
    probabilities, n = np.array([0.2, 0.3, 0.5]), ng.Plate("n", 6)
    z = ng.Categorical("z", probabilities, plate=n)
    fit = ng.Network(declare(z, n)).fit()
    joint = probabilities * likelihood
    assert fit.elbo == pytest.approx(np.log(joint.sum(1)).sum() + prior)
    np.testing.assert_allclose(fit["z"].mean(), joint / joint.sum(1, keepdims=True), atol=1e-12)


def test_several_categories_hidden_and_observed(rng):
    """table[z1, z2, integers] with z2 observed: Σ over z1 by enumeration."""
    values = rng.dirichlet(np.ones(3), size=(2, 4, 5))
    n, seen, place, y = ng.Plate("n", 7), rng.integers(0, 4, 7), rng.integers(0, 5, 7), rng.integers(0, 3, 7)
    one = ng.Categorical("one", [0.3, 0.7], plate=n)
    two = ng.Categorical("two", np.full(4, 0.25), plate=n, observed=seen)
    leaf = ng.Categorical("y", ng.table(values)[one, two, place], plate=n, observed=y)
    fit = ng.Network(leaf).fit()
    joint = np.array([0.3, 0.7]) * values[:, seen, place, y].T
    assert fit.elbo == pytest.approx(np.log(joint.sum(1)).sum() + 7 * np.log(0.25))
    np.testing.assert_allclose(fit["one"].mean(), joint / joint.sum(1, keepdims=True))


def test_a_category_that_chooses_a_chain(rng):
    """A mixture of two known chains: the rows of transition[kind], and what each sequence starts with."""
    initial, transition = rng.dirichlet(np.ones(2), size=2), rng.dirichlet(np.ones(2), size=(2, 2))
    emission, y = rng.dirichlet(np.ones(2), size=2), rng.integers(0, 2, (3, 5))
    sequence, time = ng.Plate("sequence", 3), ng.Plate("time", 5)
    kind = ng.Categorical("kind", [0.5, 0.5], plate=sequence, observed=[0, 1, 1])
    z = ng.MarkovChain("z", ng.table(initial)[kind], ng.table(transition)[kind], plate=(sequence, time))
    leaf = ng.Categorical("y", ng.table(emission)[z], plate=(sequence, time), observed=y)
    fit = ng.Network(leaf).fit()
    exact = sum(forward(initial[k], transition[k], emission[:, row].T) for k, row in zip([0, 1, 1], y, strict=True))
    assert fit.elbo == pytest.approx(exact + 3 * np.log(0.5))


def test_a_hidden_child_of_a_table_is_ruled_out_where_it_is_impossible():
    z = ng.Categorical("z", ng.table([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])[ng.Categorical("k", [1.0, 0.0], observed=0)])
    x = ng.Normal("x", ng.table([0.0, 1.0, 2.0])[z], 1.0, observed=1.9)
    fit = ng.Network(x).fit()
    assert fit["z"].mean()[2] == 0.0
    assert fit.elbo == pytest.approx(logsumexp(stats.norm.logpdf(1.9, [0.0, 1.0]) + np.log(0.5)))


def test_data_that_nothing_explains_are_an_error():
    n = ng.Plate("n", 2)
    z = ng.Categorical("z", [0.5, 0.5], plate=n)
    y = ng.Categorical("y", ng.table([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])[z], plate=n, observed=[0, 2])
    with pytest.raises(ValueError, match="probability 0: whatever is hidden, 'y'"):
        ng.Network(y).fit()


def wrong_tables():
    n = ng.Plate("n", 4)
    z, three = ng.Categorical("z", [0.5, 0.5], plate=n), ng.Categorical("z", np.ones(3) / 3, plate=n)
    mu = ng.Normal("mu", 0.0, 1.0)
    two = ng.table(np.eye(2))
    return {
        "random": (lambda: ng.table(mu), TypeError, "known numbers, got mu"),
        "number": (lambda: ng.table(3.0), PlateMismatch, "a single number, 3"),
        "nan": (lambda: ng.table([1.0, np.nan]), ValueError, r"table: values\[1\] = nan"),
        "size": (lambda: two[three], PlateMismatch, "3 categories, but plate 'axis 0'"),
        "too many": (lambda: two[z, z, z], PlateMismatch, "got 3 indices"),
        "outside": (lambda: two[[0, 1, 2, 1]], IndexError, r"index\[2\] = 2 is outside"),
        "not last": (lambda: two[:, z], PlateMismatch, "':' may only stand last"),
        "nothing": (lambda: two[:], PlateMismatch, "nothing is chosen"),
        "vector for a number": (lambda: ng.Normal("y", two[z], 1.0, plate=n), PlateMismatch, "mean takes a number for each"),
        "number for a vector": (lambda: ng.Categorical("y", two[z, z], plate=n), PlateMismatch, "leaves a number of the table"),
        "range": (
            lambda: ng.Poisson("y", ng.table([1.0, -2.0])[z], plate=n, observed=[1] * 4), ValueError,
            r"table\[1\] = -2 must be > 0",
        ),
        "sum": (lambda: ng.Categorical("y", ng.table(np.ones((2, 2)))[z], plate=n), ValueError, r"table\[0\] sums to 2"),
        "fixed": (lambda: ng.Gamma("y", ng.table([1.0, 2.0])[z], 1.0, plate=n), TypeError, "shape must be known numbers"),
        "plates": (lambda: ng.Normal("y", ng.table([1.0, 2.0])[z], 1.0), PlateMismatch, "repeats over plate 'n'"),
    }  # fmt: skip


@pytest.mark.parametrize("name", wrong_tables())
def test_wrong_tables(name):
    declare, error, message = wrong_tables()[name]
    with pytest.raises(error, match=message):
        declare()


@pytest.mark.parametrize("form", range(6))
def test_sums_and_products_of_choices(form):
    """What is chosen is a number: arithmetic with it is exact, whatever stands on which side."""
    forms = [
        lambda x: 2.0 * x + 1.0,
        lambda x: 3.0 - x / 2.0,
        lambda x: 1.5 / x,
        lambda x: np.array([1.0, -1.0, 2.0]) * x,
        lambda x: x - np.array([1.0, -1.0, 2.0]),
        lambda x: x + x,
    ]
    n, values, y = ng.Plate("n", 3), np.array([1.0, 2.5]), np.array([1.0, 2.0, 3.0])
    z = ng.Categorical("z", [0.3, 0.7], plate=n)
    node = ng.Normal("y", forms[form](ng.table(values)[z]), 2.0, plate=n, observed=y)
    means = np.stack([forms[form](np.full(3, value)) for value in values])
    wanted = logsumexp(stats.norm.logpdf(y, means, 0.5**0.5) + np.log([[0.3], [0.7]]), axis=0).sum()
    assert ng.Network(node).fit(backend="numpy").elbo == pytest.approx(wanted, rel=1e-12)


def test_a_table_tells_components_apart_that_start_equal(rng):
    """Components start at their priors where known numbers break the symmetry; with equal rows they cannot."""
    kinds = rng.integers(0, 2, 30)
    n = ng.Plate("n", 30)
    mu = ng.Normal("mu", 0.0, 0.1, plate=ng.Plate("k", 2))
    z = ng.Categorical("z", [0.5, 0.5], plate=n)
    x = ng.Normal("x", mu[z], 1.0, plate=n, observed=6.0 * kinds + rng.normal(size=30))
    mark = ng.Bernoulli("mark", ng.table([0.1, 0.8])[z], plate=n, observed=kinds)
    means = ng.Network(x, mark).fit()["mu"].mean()
    np.testing.assert_allclose(means, [0.0, 6.0], atol=1.0)
    same = ng.Bernoulli("mark", ng.table([0.4, 0.4])[z], plate=n, observed=kinds)
    assert not ng.Network(x, mark).fit().trace.starts
    assert len(ng.Network(x, same).fit().trace.starts) > 1
    with pytest.raises(SymmetricStart):
        ng.Network(x, same).fit(init={"mu": [1.0, 1.0]})
