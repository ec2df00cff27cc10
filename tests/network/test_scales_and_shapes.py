"""Half-Normal scales, learned shapes, hierarchical Dirichlets, links of hidden categories, Kronecker and block precisions."""

import numpy as np
import pytest
from scipy import integrate, special, stats

import natgrad as ng
from natgrad import families
from natgrad.errors import NotConjugate
from natgrad.inference.steppers.gibbs import drawn_point

rng = np.random.default_rng(3)
n = ng.Plate("n", 12)


def test_a_learned_shape_is_exact_where_it_is_all_that_is_hidden():
    x = rng.gamma(2.5, 0.5, 12)
    a = ng.GammaShape("a", 1.5, 0.5)
    fit = ng.Network(ng.Gamma("x", a, 2.0, plate=n, observed=x)).fit()

    def density(v):
        return stats.gamma.pdf(v, 1.5, scale=2.0) * np.prod(stats.gamma.pdf(x, v, scale=0.5))

    evidence = integrate.quad(density, 0, 30, epsabs=0)[0]
    np.testing.assert_allclose(fit.elbo, np.log(evidence), rtol=1e-9)
    low, high = fit["a"].interval(0.9)
    np.testing.assert_allclose(integrate.quad(density, low, high, epsabs=0)[0] / evidence, 0.9, atol=1e-8)
    # The same data with a rate of their own: coordinate ascent, below the evidence and never falling.
    both = ng.Network(ng.Gamma("x", a, ng.Gamma("b", 1.0, 1.0), plate=n, observed=x)).fit(tol=1e-10)
    assert np.diff(both.trace["elbo"]).min() > -1e-10


@pytest.mark.slow
def test_a_shape_has_draws_and_intervals_that_are_right():
    x = rng.gamma(2.5, 0.5, 12)
    a, b = ng.GammaShape("a", 1.5, 0.5), ng.Gamma("b", 2.0, 1.0)
    fit = ng.Network(ng.Gamma("x", a, b, plate=n, observed=x)).fit()
    grid = np.linspace(0.01, 25, 4_000)
    # b is integrated out: Γ(2 + n a) (1 + Σ x)^(−2 − n a).
    shape = 2.0 + 12 * grid
    logs = 0.5 * np.log(grid) - 0.5 * grid + (grid - 1) * np.log(x).sum() - 12 * special.gammaln(grid)
    logs += special.gammaln(shape) - shape * np.log(1.0 + x.sum())
    weights = np.exp(logs - logs.max())
    mean = (weights * grid).sum() / weights.sum()
    sd = np.sqrt((weights * (grid - mean) ** 2).sum() / weights.sum())
    draws = fit.draws(n=500, chains=2, thin=4, verbose=False)["a"]
    assert abs(draws.mean() - mean) < 0.25 * sd
    assert 0.8 < draws.std() / sd < 1.2
    assert fit["a"].std() < 0.6 * sd  # q takes shape and rate as independent
    assert abs(fit.linear_response()["a"].std() / sd - 1) < 0.25


def test_known_weights_are_the_limit_of_a_learned_concentration():
    group, kind = ng.Plate("group", 5), ng.Plate("kind", 3)
    counts = rng.multinomial(20, [0.5, 0.3, 0.2], 5)
    truth = np.array([2.0, 1.0, 0.5])
    known = ng.Network(ng.Multinomial("c", None, ng.Dirichlet("p", truth, plate=group), plate=group, observed=counts))
    near = ng.GammaShape("a", 1e7 * truth, 1e7, plate=kind)
    learned = ng.Network(ng.Multinomial("c", None, ng.Dirichlet("p", near, plate=group), plate=group, observed=counts))
    np.testing.assert_allclose(learned.fit(tol=1e-11).elbo, known.fit(tol=1e-11).elbo, rtol=1e-5)


def bound_of_shared_weights(counts, grid):
    """The best bound with q(a_1) q(a_2) q(u_1) q(p_1) q(u_2) …, by coordinate ascent with q(a_k) on a grid of log a.

    u_g ~ Gamma(Σ_k a_k, 1) makes Γ(Σ_k a_k): with q(u_g) at its best log Γ(Σ_k a_k) counts at E[Σ_k a_k].
    """
    groups, step = len(counts), np.log(grid[1] / grid[0])
    prior = stats.gamma.logpdf(grid, 1.0, scale=5.0) + np.log(grid)
    ways = (special.gammaln(11) - special.gammaln(counts + 1).sum(-1)).sum()
    mean, law = np.array([5.0, 5.0]), np.empty((2, len(grid)))
    for _ in range(400):
        shapes = mean + counts
        logs = (special.digamma(shapes) - special.digamma(shapes.sum(-1, keepdims=True))).sum(0)
        for k in range(2):
            # Each a_k is updated with the tangent at the means of the moment.
            power = groups * special.digamma(mean.sum()) + logs[k]
            law[k] = prior + power * grid - groups * special.gammaln(grid)
            law[k] -= special.logsumexp(law[k]) + np.log(step)
            mean[k] = (np.exp(law[k]) * grid).sum() * step
    shapes = mean + counts
    each = special.digamma(shapes) - special.digamma(shapes.sum(-1, keepdims=True))
    entropies = (
        special.gammaln(shapes).sum(-1) - special.gammaln(shapes.sum(-1)) - ((shapes - 1) * each).sum(-1)
    ).sum()
    chance = np.exp(law) * step
    about_a = (chance * (prior - law - groups * special.gammaln(grid))).sum()
    return about_a + groups * special.gammaln(mean.sum()) + ((mean - 1 + counts) * each).sum() + entropies + ways


def test_groups_share_weights_below_the_evidence():
    group, kind = ng.Plate("group", 6), ng.Plate("kind", 2)
    counts = np.array([[9, 1], [7, 3], [8, 2], [10, 0], [6, 4], [9, 1]])
    a = ng.GammaShape("a", [1.0, 1.0], 0.2, plate=kind)
    c = ng.Multinomial("c", None, ng.Dirichlet("p", a, plate=group), plate=group, observed=counts)
    fit = ng.Network(c).fit(tol=1e-10)
    grid = np.exp(np.linspace(-5, 5, 400))
    first, second = grid[:, None, None], grid[None, :, None]
    logs = special.betaln(first + counts[:, 0], second + counts[:, 1]) - special.betaln(first, second)
    ways = special.gammaln(11) - special.gammaln(counts + 1).sum(-1)
    prior = stats.gamma.logpdf(grid, 1.0, scale=5.0) + np.log(grid)
    total = (logs + ways).sum(-1) + prior[:, None] + prior[None, :]
    evidence = special.logsumexp(total) + 2 * np.log(np.log(grid[1] / grid[0]))
    assert fit.elbo < evidence
    assert fit.elbo == pytest.approx(bound_of_shared_weights(counts, grid), abs=1e-7)
    assert np.diff(fit.trace["elbo"]).min() > -1e-10
    weights = np.exp(total - total.max())
    share = (weights * (first / (first + second))[..., 0]).sum() / weights.sum()
    mean = fit["a"].mean()
    assert abs(mean[0] / mean.sum() - share) < 0.03


def hidden_logits(precision, observed=None, mask=None):
    cut, kind, y = ng.Plate("cut", 2), ng.Plate("kind", 3), rng.normal(0.0, 3.0, 12)
    psi = ng.Normal("psi", [0.7, -1.1], precision, plate=cut)
    z = ng.Categorical("z", logits=psi, plate=n, observed=observed, mask=mask)
    table = ng.table([-2.0, 0.0, 2.5])
    return ng.Network(ng.Normal("y", table[z], 1.0, plate=n, observed=y)), y, kind


def test_given_its_logits_a_hidden_category_is_exact():
    net, y, _ = hidden_logits(1e10)
    first, second = special.expit([0.7, -1.1])
    chances = np.array([first, (1 - first) * second, (1 - first) * (1 - second)])
    evidence = np.log(stats.norm.pdf(y[:, None], [-2.0, 0.0, 2.5]) @ chances).sum()
    fit = net.fit(tol=1e-12)
    np.testing.assert_allclose(fit.elbo, evidence, rtol=1e-7)
    posterior = stats.norm.pdf(y[:, None], [-2.0, 0.0, 2.5]) * chances
    np.testing.assert_allclose(fit["z"].mean(), posterior / posterior.sum(-1, keepdims=True), atol=1e-6)


@pytest.mark.slow
def test_the_bound_of_hidden_logits_is_below_the_evidence():
    net, y, _ = hidden_logits(0.5)
    fit = net.fit(tol=1e-12)
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    first, second = (special.expit(m + points / np.sqrt(0.5)) for m in (0.7, -1.1))
    a, b = first[:, None, None], second[None, :, None]
    kinds = stats.norm.pdf(y[:, None], [-2.0, 0.0, 2.5])
    rows = np.log(a * kinds[:, 0] + (1 - a) * (b * kinds[:, 1] + (1 - b) * kinds[:, 2])).sum(-1)
    evidence = special.logsumexp(rows, b=weights[:, None] * weights / weights.sum() ** 2)
    assert evidence - 1.0 < fit.elbo < evidence
    assert np.diff(fit.trace["elbo"]).min() > -1e-10
    # Gibbs sampling with Pólya–Gamma weights has no bound in it.
    chance = np.exp(rows - rows.max()) * weights[:, None] * weights
    truth = (chance * (0.7 + points / np.sqrt(0.5))[:, None]).sum() / chance.sum()
    assert abs(fit.draws(n=1000, chains=2, verbose=False)["psi"].mean()[0] - truth) < 0.15


def test_labels_that_are_known_in_part_have_logits():
    labels = rng.integers(0, 3, 12).astype(float)
    all_seen = ng.Categorical(
        "z", logits=ng.Normal("psi", 0.0, 1.0, plate=ng.Plate("cut", 2)), plate=n, observed=labels
    )
    wide = ng.Plate("n", 14)
    some = ng.Categorical(
        "z", logits=ng.Normal("psi", 0.0, 1.0, plate=ng.Plate("cut", 2)), plate=wide, observed=[*labels, np.nan, np.nan]
    )
    np.testing.assert_allclose(
        ng.Network(some).fit(tol=1e-12).elbo, ng.Network(all_seen).fit(tol=1e-12).elbo, rtol=1e-9
    )
    net, _, _ = hidden_logits(0.5, labels, rng.random(12) < 0.5)
    fit = net.fit(tol=1e-10)
    assert np.diff(fit.trace["elbo"]).min() > -1e-10


def test_kronecker_and_block_precisions_are_what_they_say():
    data = rng.normal(size=(12, 6))
    between, within = ng.Wishart("A", 5.0, np.eye(2)), ng.Wishart("B", 6.0, np.eye(3))
    columns = data.reshape(12, 2, 3).transpose(0, 2, 1).reshape(36, 2)
    apart = ng.MultivariateNormal("x", np.zeros(2), between, plate=ng.Plate("m", 36), observed=columns)
    tied = ng.MultivariateNormal("x", np.zeros(6), ng.kron(between, np.eye(3)), plate=n, observed=data)
    np.testing.assert_allclose(ng.Network(tied).fit().elbo, ng.Network(apart).fit().elbo, rtol=1e-12)
    blocks = ng.MultivariateNormal("x", np.zeros(5), ng.block_diag(between, within), plate=n, observed=data[:, :5])
    parts = [
        ng.Network(ng.MultivariateNormal("x", np.zeros(d), p, plate=n, observed=part)).fit().elbo
        for d, p, part in ((2, between, data[:, :2]), (3, within, data[:, 2:5]))
    ]
    np.testing.assert_allclose(ng.Network(blocks).fit().elbo, sum(parts), rtol=1e-12)
    both = ng.Network(ng.MultivariateNormal("x", np.zeros(6), ng.kron(between, within), plate=n, observed=data))
    fit = both.fit(tol=1e-6)
    assert np.diff(fit.trace["elbo"]).min() > -1e-10
    precision = np.kron(fit["A"].mean(), fit["B"].mean())
    drawn = fit.predictive("x").sample(0, 4000)[:, 0]
    np.testing.assert_allclose(np.linalg.inv(np.cov(drawn.T)).diagonal(), precision.diagonal(), rtol=0.6)


def test_a_gamma_is_no_shape():
    with pytest.raises(NotConjugate, match="a GammaShape, whose q has log Γ among its statistics"):
        ng.Gamma("x", ng.Gamma("a", 1.0, 1.0), 1.0)
    with pytest.raises(NotConjugate, match="concentration cannot be the Gamma a"):
        ng.Dirichlet("p", ng.Gamma("a", 1.0, 1.0, plate=ng.Plate("k", 3)))


def test_draws_of_probabilities_that_are_zero_to_rounding_keep_their_logarithms():
    """A shape of 0.001 makes probabilities of e^−1000, whose logarithms the shape is drawn from: E[log p] = ψ(a) − ψ(Σ a)."""
    alpha, rng = np.array([1e-3, 1.0, 2.0]), np.random.default_rng(0)
    lam = (np.broadcast_to(alpha - 1.0, (20_000, 3)),)
    value, (logs,) = drawn_point(families.Dirichlet(), lam, rng, 3)
    assert (value[:, 0] == 0.0).mean() > 0.3
    np.testing.assert_allclose(logs.mean(0), special.digamma(alpha) - special.digamma(alpha.sum()), rtol=0.03)
    seen = value > 0
    np.testing.assert_array_equal(logs[seen], np.log(value[seen]))
