"""Linear response and draws of every kind of node, against posteriors that are known exactly."""

import numpy as np
import pytest
from exact_posteriors import AUGMENTED, CONJUGATE, GAUSSIAN

import natgrad as ng

SLOW = {"GammaShape": pytest.mark.slow}  # derivatives that take seconds to compile


@pytest.mark.parametrize("name", [pytest.param(n, marks=SLOW.get(n, ())) for n in (*CONJUGATE, *GAUSSIAN)])
def test_linear_response_is_exact(name):
    network, known = (CONJUGATE | GAUSSIAN)[name]()
    fit = network.fit(tol=1e-13, verbose=False)
    lr = fit.linear_response()
    for node, (mean, sd) in known.items():
        np.testing.assert_allclose(fit[node].mean(), mean, atol=1e-5 * np.min(sd), err_msg=node)
        np.testing.assert_allclose(lr[node].std(), sd, rtol=1e-8, err_msg=node)
        covariance = np.reshape(lr.cov(node, node), (np.size(sd), np.size(sd)))
        np.testing.assert_allclose(np.diag(covariance), np.ravel(sd) ** 2, rtol=1e-7)
        assert np.linalg.eigvalsh(covariance).min() > -1e-9 * np.max(sd) ** 2
        # The covariance of a function is that of its derivative, whichever way it is asked for.
        first = (0,) * np.ndim(sd)
        np.testing.assert_allclose(lr.std(lambda m, node=node, at=first: m[node][at]), np.asarray(sd)[first], rtol=1e-5)
        if (
            name in CONJUGATE
            and node not in ("t",)
            and fit[node].family.name not in ("Categorical", "Binary", "MarkovChain")
        ):
            low, high = lr[node].interval(0.9)
            wanted = fit[node].interval(0.9)  # of the exact posterior
            assert (np.abs(low - wanted[0]) < 0.35 * sd).all()
            assert (np.abs(high - wanted[1]) < 0.35 * sd).all()
            draws = lr[node].sample(0, 4000)
            np.testing.assert_allclose(draws.mean(0), mean, atol=0.1 * np.max(sd))
            np.testing.assert_allclose(draws.std(0), sd, rtol=0.1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::natgrad.errors.PoorMixing")
@pytest.mark.parametrize("name", {**CONJUGATE, **GAUSSIAN, **AUGMENTED})
def test_draws_are_those_of_the_exact_posterior(name):
    network, known = (CONJUGATE | GAUSSIAN | AUGMENTED)[name]()
    draws = network.fit(verbose=False).draws(500, chains=4, seed=1, verbose=False)
    for node, (mean, sd) in known.items():
        values = draws[node].values
        if np.ndim(values) - 2 < np.ndim(mean):  # categories are averaged as indicators
            values = (values[..., None] == np.arange(np.shape(mean)[-1])).astype(float)
        found = np.asarray(values, float)
        each = found.mean(1)  # of each chain, and their spread, which sees how far draws depend on one another
        n = found.shape[0] * found.shape[1]
        error = np.maximum(each.std(0, ddof=1) / 2.0, np.asarray(sd) / np.sqrt(n))
        assert (np.abs(found.mean((0, 1)) - mean) < 6.0 * error).all(), (node, found.mean((0, 1)), mean, error)
        spread = ((found - mean) ** 2).mean(1)
        error = np.maximum(spread.std(0, ddof=1) / 2.0, np.asarray(sd) ** 2 * np.sqrt(2.0 / n))
        assert (np.abs(spread.mean(0) - np.asarray(sd) ** 2) < 6.0 * error).all(), (node, np.sqrt(spread.mean(0)), sd)


def test_every_node_of_the_language_has_an_exact_posterior():
    """A node that is added is added to the table, or named here with the reason."""
    always_observed = {"Multinomial", "Ordinal", "LogNormal", "Poisson", "Binomial", "GaussianProcess"}
    nodes = {n for n in ng.language.__all__ if n[0].isupper()} - {"Column", "Columns", "Plate"} - always_observed
    assert nodes <= set(CONJUGATE) | set(AUGMENTED), sorted(nodes - set(CONJUGATE) - set(AUGMENTED))
