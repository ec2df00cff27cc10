"""Authors and topics: the model is its declared network, the bound never falls, and authors are told apart."""

from __future__ import annotations

import numpy as np
import pytest

import natgrad as ng
from natgrad.models.lda.topics import aligned


def drawn(n_documents: int, seed: int = 0):
    """Counts of documents with one to three of eight authors, and four topics."""
    rng = np.random.default_rng(seed)
    fixed = np.random.default_rng(11)
    topics, shares = fixed.dirichlet(np.full(60, 0.1), 4), fixed.dirichlet(np.full(4, 0.15), 8)
    authors = [rng.choice(8, rng.integers(1, 4), replace=False).tolist() for _ in range(n_documents)]
    counts = np.array([rng.multinomial(40, shares[names].mean(0) @ topics) for names in authors])
    return counts, [[f"author {name}" for name in names] for names in authors], topics, shares


@pytest.fixture(scope="module")
def fitted():
    counts, authors, topics, shares = drawn(120)
    return ng.topics.AuthorTopics(4, max_steps=50, tol=0).fit(counts, authors), counts, authors, topics, shares


def test_it_has_the_bound_of_its_network_and_the_bound_never_falls(fitted) -> None:
    model, counts, authors, _, _ = fitted
    docs, words = counts.nonzero()
    cell = ng.Plate("cell", len(docs), weight=counts[docs, words])
    names = sorted({name for own in authors for name in own})
    chance = np.array([[(name in own) / len(own) for name in names] for own in authors])
    phi = ng.Dirichlet("phi", 0.05, size=60, plate=ng.Plate("topic", 4))
    theta = ng.Dirichlet("theta", 0.1, size=4, plate=ng.Plate("author", 8))
    x = ng.Categorical("x", chance[docs], plate=cell)
    z = ng.Categorical("z", theta[x], plate=cell)
    network = ng.Network(ng.Categorical("w", phi[z], plate=cell, observed=words))
    assert network.problem.bound(model.fit_.state) == pytest.approx(model.elbo_, rel=1e-10)
    bounds = np.asarray(model.trace_["elbo"])
    assert (np.diff(bounds) >= -1e-9 * np.abs(bounds[1:])).all()


def test_topics_and_what_authors_write_about_are_found(fitted) -> None:
    model, _, _, topics, shares = fitted
    match = aligned(topics, model.topics_)
    assert match.distance.max() < 0.25
    assert 0.5 * np.abs(model.author_shares_[:, match.other] - shares).sum(1).mean() < 0.2
    new, whose, _, _ = drawn(30, seed=4)
    still = ng.LDA(4, inference="vb", max_passes=10, tol=0, n_jobs=1).fit(new)
    assert model.score(new, whose) > np.log(1 / 60)
    assert np.allclose(model.transform(new, whose).sum(1), 1.0)
    assert model.transform(new).shape == still.transform(new).shape
    assert len(model.top_authors(3)[0]) == 3
    assert model.coherence(new, 5).shape == (4,)


def test_no_word_has_an_author_who_did_not_write_its_document(fitted) -> None:
    model, counts, authors, _, _ = fitted
    place = {name: number for number, name in enumerate(model.authors_)}
    chance = model.fit_["x"].mean()
    for row, doc in enumerate(counts.nonzero()[0][:200]):
        others = [number for name, number in place.items() if name not in authors[doc]]
        assert (chance[row, others] == 0).all()


def test_what_is_refused(fitted) -> None:
    model, counts, _, _, _ = fitted
    with pytest.raises(ValueError, match="authors must have a list for each of 120 documents, got 1"):
        ng.topics.AuthorTopics(3).fit(counts, [["eve"]])
    with pytest.raises(ValueError, match=r"authors\[1\] is empty"):
        ng.topics.AuthorTopics(3).fit(counts[:2], [["eve"], []])
    with pytest.raises(ValueError, match=r"authors\[0\] has 'eve', who is none of the 8 authors of the fit"):
        model.transform(counts[:1], [["eve"]])
