"""The map of topics: the distance is a metric, the scaling exact where it can be, the sizes those of the posterior."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from natgrad.report.sections.topics import (
    SLIDER,
    distances,
    places,
    relevant_words,
    sizes_from_counts,
    sizes_from_shares,
)

seeds = st.integers(0, 10_000)


@given(seeds, st.integers(1, 8), st.integers(2, 30))
def test_distance_is_a_metric_between_zero_and_root_log_two(seed, K, V):
    topics = np.random.default_rng(seed).dirichlet(np.full(V, 0.2), K) + 1e-12
    found = distances(topics / topics.sum(1, keepdims=True))
    np.testing.assert_allclose(found, found.T)
    np.testing.assert_array_equal(np.diag(found), 0)
    assert found.max(initial=0.0) <= np.sqrt(np.log(2)) + 1e-9
    assert (found[:, None, :] <= found[:, :, None] + found[None, :, :] + 1e-7).all()


def test_topics_without_a_common_word_are_furthest():
    assert distances(np.eye(3))[0, 1] == pytest.approx(np.sqrt(np.log(2)))


def test_rare_words_are_put_together_when_there_are_too_many(rng):
    topics = rng.dirichlet(np.r_[np.full(20, 5.0), np.full(200, 1e-3)], 4) + 1e-15
    np.testing.assert_allclose(distances(topics, max_numbers=8 * 20), distances(topics), atol=0.05)


@given(seeds, st.integers(2, 12))
def test_points_of_a_plane_come_back(seed, K):
    points = np.random.default_rng(seed).normal(size=(K, 2))
    wanted = np.linalg.norm(points[:, None] - points[None], axis=-1)
    found = places(wanted)
    np.testing.assert_allclose(np.linalg.norm(found[:, None] - found[None], axis=-1), wanted, atol=1e-6)
    np.testing.assert_array_equal(found, places(wanted))


@given(seeds, st.integers(1, 10))
def test_words_hold_the_best_at_every_position_of_the_slider(seed, n):
    rng = np.random.default_rng(seed)
    topics, size = rng.dirichlet(np.full(40, 0.3), 3) + 1e-9, rng.dirichlet(np.ones(3))
    overall = size @ topics
    for k, chosen in enumerate(relevant_words(topics, overall, n)):
        for weight in SLIDER:
            score = weight * np.log(topics[k]) + (1 - weight) * np.log(topics[k] / overall)
            # Scores, not words: two words may be equally relevant.
            np.testing.assert_array_equal(np.sort(score[chosen])[-n:], np.sort(score)[-n:])


def test_sizes_are_the_moments_of_the_share_of_words(rng):
    """Against draws: θ_d ~ Dir(γ_d), and the share of a topic is Σ_d n_d θ_dk / N."""
    gamma, lengths = rng.gamma(2.0, 2.0, size=(40, 3)), rng.integers(5, 50, 40).astype(float)
    total = gamma.sum(1, keepdims=True)
    mean = gamma / total
    found = sizes_from_shares(mean, np.sqrt(mean * (1 - mean) / (total + 1)), lengths)
    draws = np.stack([rng.dirichlet(row, 4000) for row in gamma], axis=1)
    share = np.einsum("d,sdk->sk", lengths / lengths.sum(), draws)
    np.testing.assert_allclose(found.mean, share.mean(0), atol=0.005)
    low, high = np.quantile(share, [0.05, 0.95], axis=0)
    np.testing.assert_allclose([found.low, found.high], [low, high], atol=0.01)


def test_sizes_from_counts_are_proportions():
    found = sizes_from_counts(np.array([300.0, 700.0]))
    np.testing.assert_allclose(found.mean, [0.3, 0.7])
    assert found.low[0] == pytest.approx(scipy.stats.beta.ppf(0.05, 300.5, 700.5))
    assert (found.low < found.mean).all()
    assert (found.high > found.mean).all()
