"""Draws of softmax scores class by class: means, deviations and correlations of the exact posterior, which a grid has."""

import numpy as np
import pytest
from marking import some_slow
from scipy.special import logsumexp

import natgrad as ng
from natgrad.errors import NotConjugate

SEEN = np.array([0, 0, 2, 1, 0, 2, 0])


def on_a_grid(log_density, points, names):
    """Means and the covariance of named numbers under a density on a grid."""
    axes = np.stack(np.meshgrid(*[points] * names, indexing="ij"), -1).reshape(-1, names)
    log_p = log_density(axes)
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    mean = weight @ axes
    return mean, (weight[:, None] * axes).T @ axes - np.outer(mean, mean)


def compare(draws, mean, covariance, errors=5.0):
    """Draws [chain, draw, numbers] have these moments, within some standard errors of means over independent chains."""
    flat = draws - mean
    for found, wanted in ((flat, 0.0), (flat[..., :, None] * flat[..., None, :], covariance)):
        chains = found.mean(1)
        error = chains.std(0, ddof=1) / np.sqrt(len(chains))
        np.testing.assert_array_less(np.abs(chains.mean(0) - wanted), errors * error)


@pytest.mark.filterwarnings("ignore::natgrad.errors.PoorMixing")  # 40 short chains: their errors are in the test
@pytest.mark.parametrize("rows", some_slow(["all", "missing", "weights", "parts"], ["missing", "parts"]))
def test_three_scores(rows):
    """Rows of which some are missing, or count several times, or 2.5 times and not at all."""
    means = np.array([0.3, -0.2, 0.1])
    weight = {"weights": [4.0, 1.0, 3.0], "parts": [2.5, 0.0, 0.75]}.get(rows)
    seen = {"all": np.append(SEEN, 2), "missing": np.append(SEEN, np.nan)}.get(rows, np.array([0.0, 1.0, 2.0]))
    n = ng.Plate("n", len(seen), weight)
    s = ng.Normal("s", means, 1.0, plate=ng.Plate("kind", 3))
    fit = ng.Network(ng.Categorical("y", softmax=s, plate=n, observed=seen)).fit()
    there = ~np.isnan(seen)
    counts = np.bincount(seen[there].astype(int), None if weight is None else weight, 3)

    def log_density(a):
        return -0.5 * ((a - means) ** 2).sum(-1) + a @ counts - counts.sum() * logsumexp(a, axis=-1)

    mean, covariance = on_a_grid(log_density, np.linspace(-4.5, 4.5, 61), 3)
    drawn = fit.draws(n=150, chains=40, warmup=30, verbose=False)
    compare(drawn["s"].values, mean, covariance)
    # The bound alone is narrower: these draws are not of it.
    assert (fit["s"].std() < 0.95 * np.sqrt(np.diag(covariance))).all()
    assert np.abs(drawn["s"].std() / np.sqrt(np.diag(covariance)) - 1.0).max() < 0.1


@pytest.mark.filterwarnings("ignore::natgrad.errors.PoorMixing")
def test_two_nodes_in_the_scores_and_a_random_precision():
    """Intercepts and slopes of two classes; the precision above them is drawn as in any network."""
    x, y = np.array([-1.0, 0.2, 0.9, 1.5, -0.4]), np.array([0, 1, 1, 0, 0])
    n, kind = ng.Plate("n", 5), ng.Plate("kind", 2)
    a, b = ng.Normal("a", 0.0, 1.0, plate=kind), ng.Normal("b", 0.5, 2.0, plate=kind)
    leaf = ng.Categorical("y", softmax=a + b * x, plate=n, observed=y)

    def log_density(v):
        scores = v[:, None, :2] + v[:, None, 2:] * x[:, None]
        chosen = np.take_along_axis(scores, np.broadcast_to(y[:, None], (len(v), 5, 1)), -1)[..., 0]
        prior = -0.5 * (v[:, :2] ** 2).sum(-1) - ((v[:, 2:] - 0.5) ** 2).sum(-1)
        return prior + (chosen - logsumexp(scores, axis=-1)).sum(-1)

    mean, covariance = on_a_grid(log_density, np.linspace(-4.0, 4.0, 21), 4)
    drawn = ng.Network(leaf).fit().draws(n=150, chains=40, warmup=30, verbose=False)
    compare(np.concatenate([drawn["a"].values, drawn["b"].values], -1), mean, covariance)
    tau = ng.Gamma("tau", 2.0, 2.0)
    leaf = ng.Categorical("y", softmax=ng.Normal("c", 0.0, tau, plate=kind) + b * x, plate=n, observed=y)
    assert np.isfinite(ng.Network(leaf).fit().draws(n=20, chains=2, verbose=False)["tau"].mean())


def test_what_has_no_conditional_is_said():
    n, kind = ng.Plate("n", 7), ng.Plate("kind", 3)
    vector = ng.MultivariateNormal("v", np.zeros(3), 1.0)
    fit = ng.Network(ng.Categorical("y", softmax=vector, plate=n, observed=SEEN)).fit()
    with pytest.raises(
        NotConjugate, match="are one vector, and exact conditionals are those of one class given the others"
    ):
        fit.draws(n=5)
    z = ng.Categorical("z", [0.5, 0.5], plate=n)
    scores = ng.Normal("s", 0.0, 1.0, plate=(ng.Plate("k", 2), kind))
    fit = ng.Network(ng.Categorical("y", softmax=scores[z], plate=n, observed=SEEN)).fit(init="random", max_steps=3)
    with pytest.raises(NotConjugate, match="z chooses the scores of all classes of 'y' at once"):
        fit.draws(n=5)
    fit = ng.Network(ng.Categorical("y", softmax=ng.Normal("s", 0.0, 1.0, plate=kind), plate=n, observed=SEEN)).fit()
    with pytest.raises(ValueError, match=r"draws of 'y\.omega' cannot be kept: it is drawn afresh"):
        fit.draws(n=5, names=["y.omega"])
