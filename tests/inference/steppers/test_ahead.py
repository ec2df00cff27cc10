"""Sweeps that are made several in one call are the sweeps that are made one by one, bit for bit, wherever a run ends."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.network.execute.backend import MOST_AHEAD

ORDER = ("z", "mu", "tau", "weight")


@pytest.fixture(scope="module")
def mixture():
    """Two components that overlap, so that a run takes its time."""
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(-1, 1, 40), rng.normal(1.5, 1, 30)])
    point, component = ng.Plate("point", len(x)), ng.Plate("component", 2)
    z = ng.Categorical("z", ng.Dirichlet("weight", 1.0, size=2), plate=point)
    mu, tau = ng.Normal("mu", 0.0, 0.1, plate=component), ng.Gamma("tau", 2.0, 2.0, plate=component)
    return ng.Network(ng.Normal("x", mu[z], tau[z], plate=point, observed=x))


def fitted(network, **options):
    return network.fit(ng.VB(), init={"mu": [-0.5, 0.7]}, order=ORDER, backend="jax", verbose=False, **options)


def lines(fit):
    """The trace without the time that went by."""
    return [record._replace(seconds=0.0, held_out=0.0) for record in fit.trace.records]


def same_bits(fit, other):
    assert lines(fit) == lines(other)
    assert (fit.stop.reason, fit.elbo) == (other.stop.reason, other.elbo)
    for name, parts in fit.state.lam.items():
        for part, expected in zip(parts, other.state.lam[name], strict=True):
            np.testing.assert_array_equal(part, expected)


@pytest.mark.parametrize(
    "options", [{"max_steps": 1, "tol": 0}, {"max_steps": 75, "tol": 0}, {}, {"max_messages": 9000, "tol": 0}]
)
def test_a_run_that_goes_ahead_has_the_bits_of_one_that_is_watched(mixture, options, monkeypatch):
    sizes = []
    problem = mixture.problem_on("jax")
    assert problem.ahead == MOST_AHEAD

    def counted(state, order, count):
        sizes.append(count)
        return type(problem).sweeps_ahead(problem, state, order, count)

    with monkeypatch.context() as patched:
        patched.setattr(problem, "sweeps_ahead", counted)
        fit = fitted(mixture, **options)
    watched = fitted(mixture, callbacks=[lambda seen: None], **options)
    same_bits(fit, watched)
    assert (max(sizes) > 1) == (len(fit.trace) > 1)
    assert isinstance(fit.state.lam, dict)
    if "max_steps" in options:  # nothing was made in vain
        assert sum(sizes) == options["max_steps"]


def test_a_run_that_goes_on_has_the_bits_of_an_uninterrupted_one(mixture):
    whole = fitted(mixture, max_steps=40, tol=0)
    first = fitted(mixture, max_steps=13, tol=0)
    same_bits(first.continue_fit(max_steps=27, tol=0), whole)
