"""Topics that drift: the model is its declared network, the bound never falls, and moving words are followed."""

from __future__ import annotations

import numpy as np
import pytest

import natgrad as ng
from natgrad.models.lda.topics import aligned

N_TIMES = 4


def drawn(n_each: int, seed: int = 0):
    """Counts and times of documents with three topics whose logarithms make steps of 0.4."""
    moves = np.random.default_rng(7)
    logs = np.log(moves.dirichlet(np.full(50, 0.1), 3) + 1e-4)
    topics = []
    for _ in range(N_TIMES):
        logs = logs + 0.4 * moves.normal(size=logs.shape)
        topics.append(np.exp(logs) / np.exp(logs).sum(1, keepdims=True))
    rng = np.random.default_rng(seed)
    times = np.repeat(np.arange(N_TIMES), n_each)
    shares = rng.dirichlet(np.full(3, 0.2), len(times))
    counts = [rng.multinomial(50, share @ topics[t]) for share, t in zip(shares, times, strict=True)]
    return np.array(counts), times, np.array(topics)


@pytest.fixture(scope="module")
def fitted():
    counts, times, topics = drawn(40)
    return ng.topics.DynamicTopics(3, drift=0.4, max_steps=60, tol=0).fit(counts, 2000 + times), counts, times, topics


def test_it_has_the_bound_of_its_network_and_the_bound_never_falls(fitted) -> None:
    model, counts, times, _ = fitted
    topic, word, a = ng.Plate("topic", 3), ng.Plate("word", 50), 2 / 0.4**2
    theta = ng.Dirichlet("theta", 0.1, size=3, plate=ng.Plate("doc", len(counts)))
    r = [ng.Gamma("r0", 0.05, 0.05 * 50, plate=(topic, word))]
    leaves = []
    for t in range(N_TIMES):
        if t:
            s = ng.Gamma(f"s{t}", a, a * r[-1], plate=(topic, word))
            r.append(ng.Gamma(f"r{t}", a, a * s, plate=(topic, word)))
        docs, words = (part[times[counts.nonzero()[0]] == t] for part in counts.nonzero())
        cell = ng.Plate(f"cell{t}", len(docs), weight=counts[docs, words])
        z = ng.Categorical(f"z{t}", theta[docs], plate=cell)
        leaves.append(ng.Categorical(f"w{t}", weights=r[t][z], plate=cell, observed=words))
    assert ng.Network(*leaves).problem.bound(model.fit_.state) == pytest.approx(model.elbo_, rel=1e-10)
    bounds = np.asarray(model.trace_["elbo"])
    assert (np.diff(bounds) >= -1e-9 * np.abs(bounds[1:])).all()


def test_the_topics_of_every_time_are_found_better_than_by_topics_that_stay(fitted) -> None:
    model, counts, _, topics = fitted
    still = ng.LDA(3, inference="vb", max_passes=10, tol=0, n_jobs=1).fit(counts)
    errors = [aligned(topics[t], model.topics_[t]).distance.mean() for t in range(N_TIMES)]
    assert max(errors) < 0.2
    assert np.mean(errors) < np.mean([aligned(topics[t], still.topics_).distance.mean() for t in range(N_TIMES)])
    new, when, _ = drawn(10, seed=5)
    assert model.score(new, 2000 + when) > -np.log(still.perplexity(new, how="completion"))
    assert model.perplexity(new, 2000 + when) == pytest.approx(np.exp(-model.score(new, 2000 + when)))
    shares = model.transform(new, 2000 + when)
    assert np.allclose(shares.sum(1), 1.0)
    order = np.random.default_rng(0).permutation(len(new))
    assert np.allclose(model.transform(new[order], 2000 + when[order]), shares[order])
    assert model.times_.tolist() == [2000, 2001, 2002, 2003]
    assert model.top_words(2, time=2003) != model.top_words(2, time=2000)
    assert model.coherence(counts, 5).shape == (3,)


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_a_time_without_words_has_topics(empty) -> None:
    counts, times = np.random.default_rng(0).poisson(0.5, (15, 12)), np.repeat([0.5, 1.5, 2.5], 5)
    counts[times == times[5 * empty]] = 0
    model = ng.topics.DynamicTopics(2, max_steps=2, tol=0).fit(counts, times)
    assert model.topics_.shape == (3, 2, 12)
    assert np.allclose(model.topics_.sum(-1), 1.0)


def test_what_is_refused(fitted) -> None:
    model, counts, times, _ = fitted
    with pytest.raises(ValueError, match=r"times must have one entry for each of 160 documents, got shape \(3,\)"):
        ng.topics.DynamicTopics(3).fit(counts, [1, 2, 3])
    with pytest.raises(ValueError, match=r"times\[1\] = nan must be known"):
        ng.topics.DynamicTopics(3).fit(counts[:2], [1.0, np.nan])
    with pytest.raises(ValueError, match="1999 is none of the 4 times of the fit, from 2000 to 2003"):
        model.transform(counts[:2], [2000, 1999])
    with pytest.raises(ValueError, match="drift"):
        ng.topics.DynamicTopics(3, drift=0.0).fit(counts, times)


def test_a_part_may_have_earlier_times_alone() -> None:
    rng = np.random.default_rng(0)
    counts, times = rng.poisson(0.7, (30, 12)), np.repeat([1, 2, 3], 10)
    model = ng.topics.DynamicTopics(2, max_steps=8, tol=0).fit(counts, times)
    last, told = model.topics_[2], np.maximum(model._told["r2"][1], 0.0).sum()
    model.partial_fit(counts[:10], times[:10])
    assert model.times_.tolist() == [1, 2, 3]
    # What was told of the last time counts on: its topics move by no more than their neighbours pull them.
    assert np.maximum(model._told["r2"][1], 0.0).sum() == pytest.approx(told, rel=1e-6)
    assert np.abs(model.topics_[2] - last).sum(-1).max() < 0.2
