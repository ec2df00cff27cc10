"""Several fits matched: what all of them find is stable, what none of them agrees on is not."""

from __future__ import annotations

import numpy as np
import pytest

import natgrad as ng
from natgrad.models.lda.ensemble import matched


def drawn(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Counts of 150 documents with three topics on words of their own."""
    rng = np.random.default_rng(seed)
    topics = np.zeros((3, 30))
    for k in range(3):
        topics[k, 10 * k : 10 * k + 10] = rng.dirichlet(np.ones(10))
    shares = rng.dirichlet(np.full(3, 0.2), 150)
    return np.array([rng.multinomial(40, share @ topics) for share in shares]), topics


@pytest.mark.slow
def test_topics_that_are_there_are_stable_and_come_before_those_that_are_not() -> None:
    counts, topics = drawn()
    found = ng.LDA(6, seed=3, inference="vb", max_passes=10, n_jobs=1).ensemble(4, counts)  # three too many
    assert (np.diff(found.stability) <= 0).all()
    assert found.stability.shape == (6,)
    assert found.stability[0] > 0.9
    assert len(found.models) == 4
    assert [model.seed for model in found.models] == [3, 4, 5, 6]
    # The same by hand, of every topic and fit.
    for place, number in enumerate(found.order):
        mine = found.model.topics_[number]
        others = [
            1.0 - 0.5 * np.abs(mine - model.topics_[found.matches[fit, place]]).sum()
            for fit, model in enumerate(found.models)
            if fit != found.reference
        ]
        assert found.stability[place] == pytest.approx(np.mean(others))
    assert np.allclose(found.topics.sum(1), 1.0)
    assert found.matches[found.reference].tolist() == found.order.tolist()
    exact = ng.LDA(3, seed=3, inference="vb", max_passes=10, n_jobs=1).ensemble(3, counts)
    assert exact.stability.min() > 0.95
    distance = 0.5 * np.abs(exact.topics[:, None] - topics).sum(-1).min(1)
    assert distance.max() < 0.1
    assert np.allclose(exact.transform(counts), exact.model.transform(counts)[:, exact.order])
    assert exact.top_words(2) == [exact.model.top_words(2)[k] for k in exact.order]
    assert len(exact.stable(0.9)) == 3


def test_a_fitted_model_is_the_first_of_its_ensemble_and_stays_as_it_is() -> None:
    counts, _ = drawn(1)
    model = ng.LDA(3, seed=5, inference="vb", max_passes=5, n_jobs=1).fit(counts)
    before = model.components_.copy()
    found = model.ensemble(3)
    assert found.models[0] is model
    assert np.array_equal(model.components_, before)
    again = ng.LDA(3, seed=5, inference="vb", max_passes=5, n_jobs=1).ensemble(3, counts)
    assert np.array_equal(again.stability, found.stability)
    assert np.array_equal(again.topics, found.topics)


def test_fits_with_different_numbers_of_topics_are_matched_where_they_can_be() -> None:
    counts, _ = drawn(2)
    few, many = (
        ng.LDA(2, seed=1, inference="vb", max_passes=5, n_jobs=1).fit(counts),
        ng.LDA(4, seed=1, inference="vb", max_passes=5, n_jobs=1).fit(counts),
    )
    found = matched((many, few, many))
    assert (found.matches[1] == -1).sum() == 2
    assert np.isfinite(found.topics).all()
    assert found.stability.max() > found.stability.min()


def test_what_an_ensemble_refuses(tmp_path) -> None:
    counts, _ = drawn()
    with pytest.raises(ValueError, match=r"ensemble\(\) needs documents: give X"):
        ng.LDA(3).ensemble(3)
    with pytest.raises(ValueError, match="n must be"):
        ng.LDA(3).ensemble(1, counts)
    model = ng.LDA(3, inference="vb", max_passes=2).fit(counts)
    model.save(tmp_path / "topics.natgrad")
    with pytest.raises(ValueError, match="needs documents"):
        ng.load(tmp_path / "topics.natgrad").ensemble(3)
