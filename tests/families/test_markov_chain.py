"""Forward–backward against the enumeration of all paths."""

import itertools
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad import families as nf
from natgrad._jax import compiled


def enumerate_paths(chain: nf.MarkovChain, lam: nf.Stats) -> tuple[nf.Stats, float, np.ndarray]:
    """Moments, log partition function and Cov(φ) by summing over all K^T paths, from the definition."""
    n_times, n_states = lam[0].shape
    lengths = chain.lengths or (n_times,)
    begins = {sum(lengths[:i]) for i in range(len(lengths))}
    scores, stats = [], []
    for path in itertools.product(range(n_states), repeat=n_times):
        score = 0.0
        x, first, pairs = np.zeros_like(lam[0]), np.zeros_like(lam[1]), np.zeros_like(lam[2])
        for t, z in enumerate(path):
            score += lam[0][t, z] + (lam[1][z] if t in begins else lam[2][path[t - 1], z])
            x[t, z] += 1
            if t in begins:
                first[z] += 1
            else:
                pairs[path[t - 1], z] += 1
        scores.append(score)
        stats.append(np.concatenate([x.ravel(), first, pairs.ravel()]))
    top = max(scores)
    weights = np.exp(np.array(scores) - top)
    a = top + np.log(weights.sum())
    weights /= weights.sum()
    phi = np.array(stats)
    mean = weights @ phi
    x, first, pairs = np.split(mean, [lam[0].size, lam[0].size + n_states])
    covariance = (phi - mean).T @ (weights[:, None] * (phi - mean))
    return (x.reshape(lam[0].shape), first, pairs.reshape(lam[2].shape)), a, covariance


@cache
def _compiled_moments(chain: nf.MarkovChain) -> Any:
    """One function for all examples of a shape: compiling takes longer than everything else here."""
    return compiled(chain.moments)


def _both_paths(chain: nf.MarkovChain, lam: nf.Stats) -> list[tuple[nf.Stats, np.ndarray]]:
    with jax.enable_x64(True):
        compiled = _compiled_moments(chain)(tuple(jax.numpy.asarray(g) for g in lam))
    return [chain.moments(lam), jax.tree.map(np.asarray, compiled)]


def _assert_enumerated(chain: nf.MarkovChain, lam: nf.Stats) -> None:
    expected, a, _ = enumerate_paths(chain, lam)
    for mu, got in _both_paths(chain, lam):
        np.testing.assert_allclose(got, a, rtol=1e-12, atol=1e-12)
        for m, e in zip(mu, expected, strict=True):
            np.testing.assert_allclose(m, e, rtol=1e-9, atol=1e-12)


SHAPES = [(nf.MarkovChain(), 1, 3), (nf.MarkovChain(), 5, 3), (nf.MarkovChain((2, 3)), 5, 3)]
OTHER_SHAPES = [
    (nf.MarkovChain(), 2, 1),
    (nf.MarkovChain(), 6, 3),
    (nf.MarkovChain((1, 3, 2)), 6, 3),
    (nf.MarkovChain((1, 1, 1)), 3, 2),
]
NAMES = ("chain", "n_times", "n_states")
# Each shape is a program to compile.
shapes = pytest.mark.parametrize(NAMES, SHAPES + [pytest.param(*s, marks=pytest.mark.slow) for s in OTHER_SHAPES])


@shapes
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1), spread=st.sampled_from([0.1, 3.0, 60.0, 300.0]))
def test_enumeration(chain: nf.MarkovChain, n_times: int, n_states: int, seed: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    lam = tuple(spread * rng.normal(size=s) for s in ((n_times, n_states), n_states, (n_states, n_states)))
    _assert_enumerated(chain, lam)


@pytest.mark.parametrize(NAMES, SHAPES + OTHER_SHAPES)
def test_fisher_by_enumeration(chain: nf.MarkovChain, n_times: int, n_states: int, rng: np.random.Generator) -> None:
    lam = tuple(rng.normal(size=s) for s in ((n_times, n_states), n_states, (n_states, n_states)))
    np.testing.assert_allclose(chain.fisher(lam), enumerate_paths(chain, lam)[2], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("chain", [nf.MarkovChain(), nf.MarkovChain((2, 3))])
def test_log_weights_two_thousand_apart(chain: nf.MarkovChain, rng: np.random.Generator) -> None:
    # The favourite of each time changes, and the transitions forbid (to within e⁻²⁰⁰⁰) following it.
    potentials = np.where(np.arange(5)[:, None] % 3 == np.arange(3), 0.0, -2000.0) + rng.normal(size=(5, 3))
    transition = np.where(np.eye(3, dtype=bool), 0.0, -2000.0) + rng.normal(size=(3, 3))
    _assert_enumerated(chain, (potentials, rng.normal(size=3), transition))


def test_forbidden_transitions_and_states(rng: np.random.Generator) -> None:
    left_to_right = np.where(np.triu(np.ones((3, 3), dtype=bool)), rng.normal(size=(3, 3)), -np.inf)
    initial = np.array([0.0, -np.inf, -np.inf])
    potentials = rng.normal(size=(5, 3))
    potentials[3, 1] = -np.inf
    lam = (potentials, initial, left_to_right)
    with np.errstate(invalid="raise"):
        _assert_enumerated(nf.MarkovChain(), lam)
        _assert_enumerated(nf.MarkovChain((2, 3)), lam)
    chain = nf.MarkovChain()
    assert chain.valid(lam)
    assert np.isfinite(chain.entropy(lam))
    np.testing.assert_allclose(chain.kl(lam, lam), 0, atol=1e-12)
    np.testing.assert_allclose(chain.fisher(lam), enumerate_paths(chain, lam)[2], rtol=1e-9, atol=1e-10)
    paths = chain.sample(lam, rng, 200)
    assert np.all(np.diff(paths, axis=-1) >= 0)
    assert np.all(paths[:, 0] == 0)
    with jax.enable_x64(True):
        gradient = compiled(jax.grad(chain.log_normalizer))(tuple(jax.numpy.asarray(g) for g in lam))
    for g, m in zip(gradient, chain.expected_stats(lam), strict=True):
        np.testing.assert_allclose(g, m, rtol=1e-9, atol=1e-12)


def test_an_impossible_chain_has_no_paths() -> None:
    lam = (np.zeros((2, 2)), np.array([0.0, -np.inf]), np.array([[-np.inf, -np.inf], [0.0, 0.0]]))
    for _, a in _both_paths(nf.MarkovChain(), lam):
        assert a == -np.inf


def test_batches_with_shared_transitions(rng: np.random.Generator) -> None:
    chain = nf.MarkovChain((2, 2))
    potentials, initial, transition = (rng.normal(size=s) for s in ((2, 3, 4, 2), (3, 2), (2, 2)))
    for mu, a in _both_paths(chain, (potentials, initial, transition)):
        assert a.shape == (2, 3)
        assert [m.shape for m in mu] == [(2, 3, 4, 2), (2, 3, 2), (2, 3, 2, 2)]
        for i, j in itertools.product(range(2), range(3)):
            expected, log_z, _ = enumerate_paths(chain, (potentials[i, j], initial[j], transition))
            np.testing.assert_allclose(a[i, j], log_z)
            for m, e in zip(mu, expected, strict=True):
                np.testing.assert_allclose(m[i, j], e, rtol=1e-9, atol=1e-12)
    assert chain.sample((potentials, initial, transition), rng, 7).shape == (7, 2, 3, 4)
    # The other way round: one chain of potentials, several transitions.
    many = rng.normal(size=(3, 2, 2))
    for mu, a in _both_paths(chain, (potentials[0, 0], initial[0], many)):
        for k in range(3):
            expected, log_z, _ = enumerate_paths(chain, (potentials[0, 0], initial[0], many[k]))
            np.testing.assert_allclose(a[k], log_z)
            np.testing.assert_allclose(mu[2][k], expected[2], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("apart", [0.0, 400.0])
def test_long_chain_is_a_product_of_matrices(apart: float, rng: np.random.Generator) -> None:
    # Longer than a chunk of pair counts and not a multiple of it; with and without a transition far away.
    n_times, n_states = 1201, 3
    lam = tuple(rng.normal(size=s) for s in ((n_times, n_states), n_states, (n_states, n_states)))
    lam[2][0, 1] -= apart
    alpha, log_z = np.exp(lam[1] + lam[0][0]), 0.0
    for t in range(1, n_times):
        alpha = (alpha @ np.exp(lam[2])) * np.exp(lam[0][t])
        log_z += np.log(alpha.sum())
        alpha /= alpha.sum()
    for mu, a in _both_paths(nf.MarkovChain(), lam):
        np.testing.assert_allclose(a, log_z, rtol=1e-12)
        np.testing.assert_allclose(mu[2].sum(), n_times - 1)
        # Every pair has a left and a right state.
        np.testing.assert_allclose(mu[2].sum(1), mu[0][:-1].sum(0), rtol=1e-10)
        np.testing.assert_allclose(mu[2].sum(0), mu[0][1:].sum(0), rtol=1e-10)


def test_stats_of_a_path() -> None:
    x, first, pairs = nf.MarkovChain((2, 3)).stats_of(np.array([0, 1, 1, 0, 0]), 2)
    assert x.tolist() == [[1, 0], [0, 1], [0, 1], [1, 0], [1, 0]]
    assert first.tolist() == [1, 1]
    assert pairs.tolist() == [[1, 1], [1, 0]]


def test_reference_hmm(reference) -> None:
    hmm = reference("exact_conjugate")["hmm_fixed_parameters"]
    potentials = np.log(np.array(hmm["B"]))[:, hmm["obs"]].T
    lam = (potentials, np.log(hmm["pi"]), np.log(hmm["A"]))
    for mu, a in _both_paths(nf.MarkovChain(), lam):
        np.testing.assert_allclose(a, hmm["log_likelihood"], rtol=1e-12)
        np.testing.assert_allclose(mu[0], hmm["smoothed"], rtol=1e-10)
