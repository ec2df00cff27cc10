"""Correlated topics: the model is its declared network, the bound never falls, and correlations are found."""

from __future__ import annotations

import numpy as np
import pytest

import natgrad as ng
from natgrad.models.lda.topics import aligned


def drawn(n_documents: int, seed: int = 0, n_words: int = 60):
    """Counts of documents with four topics, of which the first two come together."""
    rng = np.random.default_rng(seed)
    topics = np.random.default_rng(5).dirichlet(np.full(80, 0.1), 4)
    covariance = 3.0 * np.eye(4)
    covariance[0, 1] = covariance[1, 0] = 2.2
    logs = rng.multivariate_normal(np.zeros(4), covariance, n_documents)
    shares = np.exp(logs) / np.exp(logs).sum(1, keepdims=True)
    return np.array([rng.multinomial(n_words, share @ topics) for share in shares]), topics, shares


@pytest.fixture(scope="module")
def fitted():
    counts, topics, shares = drawn(150)
    return ng.topics.CorrelatedTopics(4, max_steps=40, tol=0).fit(counts), counts, topics, shares


def test_it_has_the_bound_of_its_network_and_the_bound_never_falls(fitted) -> None:
    model, counts, _, _ = fitted
    docs, words = counts.nonzero()
    cell, doc = ng.Plate("cell", len(docs), weight=counts[docs, words]), ng.Plate("doc", len(counts))
    phi = ng.Dirichlet("phi", 0.05, size=80, plate=ng.Plate("topic", 4))
    precision = ng.Wishart("precision", 5.0, 20.0 * np.eye(3))
    mean = ng.MultivariateNormal("mean", -np.log([3.0, 2.0, 1.0]), 0.1)
    psi = ng.MultivariateNormal("psi", mean, precision, plate=doc)
    z = ng.Categorical("z", logits=psi[docs], plate=cell)
    network = ng.Network(ng.Categorical("w", phi[z], plate=cell, observed=words))
    assert network.problem.bound(model.fit_.state) == pytest.approx(model.elbo_, rel=1e-10)
    bounds = np.asarray(model.trace_["elbo"])
    assert (np.diff(bounds) >= -1e-9 * np.abs(bounds[1:])).all()


def test_topics_and_their_correlations_are_found(fitted) -> None:
    model, counts, topics, shares = fitted
    match = aligned(topics, model.topics_)
    assert match.distance.max() < 0.3
    order = match.other
    found = model.correlations_[np.ix_(order, order)]
    others = found[~np.eye(4, dtype=bool)].reshape(4, 3)
    assert found[0, 1] > 0.3
    assert found[0, 1] == pytest.approx(others.max(), rel=1e-12)
    read = model.transform(counts)[:, order]
    assert np.allclose(read.sum(1), 1.0)
    assert np.corrcoef(read.ravel(), shares.ravel())[0, 1] > 0.95
    new, _, _ = drawn(40, seed=3)
    assert model.score(new) > -np.log(80)


def test_a_single_topic_has_no_correlations() -> None:
    with pytest.raises(ValueError, match="n_topics must be"):
        ng.topics.CorrelatedTopics(1).fit(["aa bb", "bb cc"])


def test_documents_without_words_have_the_shares_of_the_prior(fitted) -> None:
    model, counts, _, _ = fitted
    empty = np.zeros((2, 80), int)
    assert np.allclose(model.transform(empty), model.transform(np.vstack([empty, counts[:1]]))[:2], rtol=1e-10)
