"""Frequencies of hidden categories as a regressor: the bound against an enumeration, and that it never falls."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import natgrad as ng
from natgrad.errors import PlateMismatch
from natgrad.inference.problem import State


def declared(rng: np.random.Generator, link: str = "mean") -> ng.Network:
    """Three people with up to three answers of two or three kinds; the last answer of one is missing."""
    person, answer, kind = ng.Plate("person", 3), ng.Plate("answer", 3), ng.Plate("kind", 2)
    weights = np.array([[0.5, 0.25, 0.25], [0.5, 0.5, 0.0], [1.0, 2.0, -1.0]])
    z = ng.Categorical("z", ng.Dirichlet("share", 0.7, size=2, plate=person), plate=(person, answer))
    word = ng.Dirichlet("word", 0.5, size=4, plate=kind)
    w = ng.Categorical("w", word[z], plate=(person, answer), observed=rng.integers(0, 4, (3, 3)), mask=weights != 0)
    eta = ng.MultivariateNormal("eta", np.array([1.0, -1.0]), np.array([[1.0, 0.3], [0.3, 2.0]]))
    mean = ng.dot(ng.language.frequencies(z, answer, weights), eta)
    if link == "mean":
        tau = ng.Gamma("tau", 2.0, 1.0)
        return ng.Network(w, ng.Normal("y", mean, tau, plate=person, observed=[1.0, -2.0, 0.5]))
    return ng.Network(w, ng.Bernoulli("y", logit=mean, plate=person, observed=[1, 0, 1]))


def expected_square(state: State, weights: np.ndarray, y: np.ndarray) -> np.ndarray:
    """E(y − z̄·η)² of each person, summed over all paths of its categories."""
    mean, square = map(np.asarray, state.mu["eta"])
    q = np.asarray(state.mu["z"][0])
    total = np.zeros(3)
    for person, path in itertools.product(range(3), itertools.product(range(2), repeat=3)):
        chance = np.prod([q[person, place, k] for place, k in enumerate(path)])
        often = np.array([weights[person][np.array(path) == k].sum() for k in range(2)])
        total[person] += chance * (y[person] ** 2 - 2 * y[person] * often @ mean + often @ square @ often)
    return total


@pytest.mark.parametrize("backend", ["numpy", pytest.param("jax", marks=pytest.mark.slow)])
def test_the_message_to_the_noise_is_that_of_an_enumeration(backend) -> None:
    rng = np.random.default_rng(3)
    network = declared(rng)
    fit = network.fit(max_steps=3, tol=0, seed=1, backend=backend)
    problem, state = fit.problem, fit.state
    weights = np.array([[0.5, 0.25, 0.25], [0.5, 0.5, 0.0], [1.0, 2.0, -1.0]])
    half = expected_square(state, weights, np.array([1.0, -2.0, 0.5])).sum() / 2
    natural = tuple(map(np.asarray, problem.sweep(state, ("tau",)).state.lam["tau"]))
    rate = float(problem.blocks["tau"].family.usual(natural)["rate"])
    assert rate == pytest.approx(1.0 + half, rel=1e-12)


@pytest.mark.parametrize("link", ["mean", "logit"])
def test_the_bound_never_falls(link) -> None:
    network = declared(np.random.default_rng(4), link)
    fit = network.fit(max_steps=15, tol=0, seed=2)
    bounds = fit.trace["elbo"]
    assert (np.diff(bounds) >= -1e-9 * np.abs(bounds[1:])).all()
    assert network.problem.bound(fit.state) == pytest.approx(fit.elbo, abs=1e-9)


def test_factors_that_cannot_change_places_count_for_themselves() -> None:
    """A quadratic form with a known matrix that is not symmetric: the target is the slope of the bound's polynomial."""
    rng = np.random.default_rng(0)
    item, other = ng.Plate("item", 4), ng.Plate("other", 4)
    z = ng.Categorical("z", [0.3, 0.7], plate=item)
    weights = rng.normal(size=4)
    eta, psi = (ng.MultivariateNormal(name, np.zeros(2), np.eye(2)) for name in ("eta", "psi"))
    a, b = ng.dot(ng.frequencies(z, item, weights), eta), ng.dot(ng.frequencies(z, item, weights[::-1]), psi)
    assert other.size == 4
    network = ng.Network(ng.Normal("y", a + b, 2.0, observed=1.5))
    fits = [network.fit(max_steps=4, tol=0, seed=1, backend=name) for name in ("numpy",)]
    bounds = fits[0].trace["elbo"]
    assert (np.diff(bounds) >= -1e-9 * np.abs(bounds[1:])).all()
    state, problem = fits[0].state, network.problem_on("numpy")
    target = np.asarray(problem.target(problem.blocks["z"], state)[0])
    for place, k in itertools.product(range(4), range(2)):
        moved = np.array(state.mu["z"][0])
        moved[place, k] += 1e-5
        slopes = [
            sum(float(problem.program.log_joint(t, {**state.mu, "z": (mu,)}, problem.known_arrays)) for t in ("z", "y"))
            for mu in (moved, state.mu["z"][0])
        ]
        assert (slopes[0] - slopes[1]) / 1e-5 == pytest.approx(target[place, k], abs=1e-4)


def test_what_frequencies_refuse() -> None:
    person, answer = ng.Plate("person", 3), ng.Plate("answer", 2)
    z = ng.Categorical("z", [0.5, 0.5], plate=(person, answer))
    x = ng.Normal("x", 0.0, 1.0, plate=(person, answer))
    eta = ng.MultivariateNormal("eta", np.zeros(2), 1.0)
    frequencies = ng.language.frequencies
    with pytest.raises(TypeError, match="frequencies takes a Categorical along a plate, not x, a real number"):
        frequencies(x, answer)
    with pytest.raises(TypeError, match="the plate to sum over comes second, got 2"):
        frequencies(z, 2)
    with pytest.raises(PlateMismatch, match=r"weights must have 2 numbers along their last axis.*got shape \(3,\)"):
        frequencies(z, answer, np.ones(3))
    with pytest.raises(ValueError, match=r"frequencies: weights.*finite"):
        frequencies(z, answer, [np.nan, 1.0])
    mean, y = ng.dot(frequencies(z, answer), eta), np.zeros((3, 2))
    with pytest.raises(PlateMismatch, match="'y' lies on plate 'answer', and frequencies"):
        ng.Normal("y", mean, 1.0, plate=(person, answer), observed=y)


@pytest.mark.slow
def test_draws_and_the_bound_against_all_paths() -> None:
    eta, weights = np.array([-1.0, 2.0]), np.array([[0.5, 0.3, 0.2], [0.6, 0.4, 0.0]])
    y, chance = np.array([0.8, -0.9]), np.array([0.6, 0.4])
    person, item = ng.Plate("person", 2), ng.Plate("item", 3)
    z = ng.Categorical("z", chance, plate=(person, item))
    known = ng.MultivariateNormal("eta", eta, 1e8 * np.eye(2))
    mean = ng.dot(ng.frequencies(z, item, weights), known)
    fit = ng.Network(ng.Normal("y", mean, 2.0, plate=person, observed=y)).fit()
    exact, evidence = np.zeros((2, 3, 2)), 0.0
    for d in range(2):
        total = 0.0
        for path in itertools.product(range(2), repeat=3):
            taken = np.array(path)
            own = np.prod(chance[taken]) * np.exp(-((y[d] - weights[d] @ eta[taken]) ** 2)) / np.sqrt(np.pi)
            total += own
            exact[d, np.arange(3), taken] += own
        exact[d] /= total
        evidence += np.log(total)
    assert evidence - 0.5 < fit.elbo < evidence
    assert np.allclose(fit.draws(4000, chains=2, verbose=False)["z"].mean(), exact, atol=0.03)


def test_categories_that_take_turns_alone_are_no_optimum_after_a_sweep() -> None:
    """Nothing is extrapolated here, and yet the words of a document read one another."""
    doc, token = ng.Plate("doc", 6), ng.Plate("token", 5)
    z = ng.Categorical("z", [0.5, 0.3, 0.2], plate=(doc, token))
    mean = ng.dot(ng.frequencies(z, token), [-2.0, 0.0, 2.0])
    fit = ng.Network(ng.Normal("y", mean, 50.0, plate=doc, observed=np.linspace(-2, 2, 6))).fit(tol=1e-12)
    assert fit.continue_fit(max_steps=50).elbo == pytest.approx(fit.elbo, abs=1e-9)
