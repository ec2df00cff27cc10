"""Topics with a response: the model is its declared network, the bound never falls, and what was drawn is found."""

from __future__ import annotations

import numpy as np
import pytest

import natgrad as ng
from natgrad.data.corpus import as_corpus
from natgrad.models.lda.topics import aligned
from natgrad.topics.base import First

ETA = np.array([-2.0, 0.0, 2.0])


def drawn(n_documents: int = 80, n_words: int = 30, seed: int = 0):
    """Counts, responses and logits of documents with three topics."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(40, 0.1), 3)
    shares = rng.dirichlet(np.full(3, 0.4), n_documents)
    taken = np.array([rng.multinomial(n_words, share) for share in shares])
    counts = np.array([sum(rng.multinomial(n, topic) for n, topic in zip(row, topics, strict=True)) for row in taken])
    mean = taken / n_words @ ETA
    return counts, mean + 0.2 * rng.normal(size=n_documents), mean, topics, rng


@pytest.fixture(scope="module")
def fitted():
    counts, y, _, topics, _ = drawn()
    counts[7] = 0  # an empty document, and one whose response is not known
    y[3] = np.nan
    return ng.topics.SupervisedLDA(3, tol=1e-6, max_steps=60, seed=2).fit(counts, 100.0 + 10.0 * y), counts, y, topics


def declared(counts: np.ndarray, y: np.ndarray, alpha: float, beta: float, precision: float) -> ng.Network:
    """The same by hand, with y standardised: each token beside those of its document."""
    longest = int(counts.sum(1).max())
    words, there = np.zeros((len(counts), longest), dtype=int), np.zeros((len(counts), longest), dtype=bool)
    for d, row in enumerate(counts):
        tokens = np.repeat(np.arange(len(row)), row)
        words[d, : len(tokens)], there[d, : len(tokens)] = tokens, True
    doc, token, topic = ng.Plate("doc", len(counts)), ng.Plate("token", longest), ng.Plate("topic", 3)
    phi = ng.Dirichlet("phi", beta, size=counts.shape[1], plate=topic)
    theta = ng.Dirichlet("theta", alpha, size=3, plate=doc)
    z = ng.Categorical("z", theta, plate=(doc, token), mask=there)
    w = ng.Categorical("w", phi[z], plate=(doc, token), observed=words, mask=there)
    eta = ng.MultivariateNormal("eta", np.zeros(3), precision * np.eye(3))
    often = ng.language.frequencies(z, token, there / np.maximum(there.sum(1, keepdims=True), 1))
    known = np.isfinite(y) & there.any(1)
    value = np.where(known, (y - np.nanmean(y)) / np.nanstd(y), 0.0)
    tau = ng.Gamma("tau", 1.0, 0.1)
    return ng.Network(w, ng.Normal("y", ng.dot(often, eta), tau, plate=doc, observed=value, mask=known))


def test_coefficients_of_labels_start_at_logits_of_two() -> None:
    model = ng.topics.SupervisedLDA(2, response="bernoulli", coefficient_prior=1e-9)
    model.scale_ = (0.0, 1.0)
    first = First(np.full((2, 3), 1 / 3), np.eye(2)[[0, 1, 0]])
    start = model._start(first, as_corpus(np.ones((3, 3), int)), np.array([1.0, 0.0, np.nan]))
    np.testing.assert_allclose(start["eta"], [2.0, -2.0], rtol=1e-6)


def test_it_has_the_bound_of_its_network_and_the_bound_never_falls(fitted) -> None:
    model, counts, y, _ = fitted
    network = declared(counts, 100.0 + 10.0 * y, 0.1, 0.05, 0.1)
    assert network.problem.bound(model.fit_.state) == pytest.approx(model.elbo_, rel=1e-10)
    bounds = np.asarray(model.trace_["elbo"])
    assert (np.diff(bounds) >= -1e-9 * np.abs(bounds[1:])).all()


def test_topics_coefficients_and_responses_are_found(fitted) -> None:
    model, _, _, topics = fitted
    match = aligned(topics, model.topics_)
    assert match.distance.max() < 0.2
    assert np.allclose(model.coefficients_[match.other], 100.0 + 10.0 * ETA, atol=4.0)
    assert 1.0 < model.noise_ < 4.0
    rng = np.random.default_rng(9)
    shares = rng.dirichlet(np.full(3, 0.4), 50)
    new = np.array([rng.multinomial(40, share @ topics) for share in shares])
    mean, std = model.predict(new, return_std=True)
    truth = 100.0 + 10.0 * shares @ ETA
    assert np.corrcoef(mean, truth)[0, 1] > 0.95
    assert (np.abs(mean - truth) < 3 * np.hypot(std, 2.0)).mean() > 0.9
    assert model.transform(new).shape == (50, 3)
    assert np.allclose(model.transform(new).sum(1), 1.0)
    assert model.score(new) > -np.log(40)


@pytest.mark.slow
def test_a_response_tells_topics_apart_that_words_leave_together() -> None:
    """Two kinds of documents that differ in two words among many: with y they are told apart."""
    rng = np.random.default_rng(1)
    kind = np.arange(60) % 2
    topics = np.full((2, 20), 1.0)
    topics[0, 0] = topics[1, 1] = 4.0
    counts = np.array([rng.multinomial(30, topics[k] / topics[k].sum()) for k in kind])
    model = ng.topics.SupervisedLDA(2, response="bernoulli", max_steps=40, doc_prior=0.5).fit(counts, kind)
    assert (model.predict(counts) == kind).mean() > 0.8
    assert np.allclose(model.predict_proba(counts).sum(1), 1.0)


def test_the_unit_of_the_response_changes_nothing(fitted) -> None:
    model, counts, y, _ = fitted
    network = declared(counts, 1e6 * y - 3e8, 0.1, 0.05, 0.1)
    # Standardised responses are the same but for rounding.
    assert network.problem.bound(model.fit_.state) == pytest.approx(model.elbo_, rel=1e-9)


@pytest.mark.parametrize(
    ("y", "settings", "words"),
    [
        ([1.0], {}, "y must have one number for each of 4 documents, got shape"),
        ([1.0, np.inf, 0.0, 0.0], {}, r"y\[1\]"),
        ([np.nan] * 4, {}, "no response is known"),
        ([0.0, 1.0, 2.0, 0.0], {"response": "bernoulli"}, r"y\[2\]"),
        ([0.0, 1.0, 1.0, 0.0], {"response": "poisson"}, 'response must be "gaussian" or "bernoulli"'),
        ([0.0, 1.0, 1.0, 0.0], {"n_topics": 0}, "n_topics"),
        ([0.0, 1.0, 1.0, 0.0], {"doc_prior": -1.0}, "doc_prior"),
    ],
)
def test_what_is_refused(y, settings, words) -> None:
    with pytest.raises(ValueError, match=words):
        ng.topics.SupervisedLDA(**{"n_topics": 2, **settings}).fit(["aa bb", "bb cc", "cc dd", "aa aa"], y)


def test_counts_that_are_not_whole_and_questions_before_a_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="counts must be whole numbers"):
        ng.topics.SupervisedLDA(2).fit(np.array([[0.5, 1.0], [1.0, 2.0]]), [0.0, 1.0])
    with pytest.raises(ValueError, match="not fitted"):
        ng.topics.SupervisedLDA(2).predict(["a"])
    with pytest.raises(AttributeError, match="predict_proba is for"):
        ng.topics.SupervisedLDA(2).predict_proba(["a"])


@pytest.mark.parametrize(("what", "advice"), [("update", "partial_fit"), ("forget", "fit\\(\\) again")])
def test_data_that_are_not_kept_are_said_so(fitted, what, advice) -> None:
    with pytest.raises(ValueError, match=f"{what}: SupervisedLDA keeps no data of its fit; {advice}"):
        getattr(fitted[0], what)([0])


def ragged(width, seed=0):
    """Documents of one to six words in rows of some width, with a response; and how long they are."""
    rng = np.random.default_rng(seed)
    n, size = 12, 3
    lengths, words = rng.integers(1, 7, n), np.zeros((n, width), dtype=int)
    words[:, :6] = rng.integers(0, 8, (n, 6))
    there = np.arange(width) < lengths[:, None]
    doc, token = ng.Plate("doc", n), ng.Plate("token", width)
    phi = ng.Dirichlet("phi", 0.1, size=8, plate=ng.Plate("topic", size))
    theta = ng.Dirichlet("theta", 0.3, size=size, plate=doc)
    z = ng.Categorical("z", theta, plate=(doc, token), mask=there)
    w = ng.Categorical("w", phi[z], plate=(doc, token), observed=words, mask=there)
    eta = ng.MultivariateNormal("eta", np.zeros(size), np.eye(size))
    mean = ng.dot(ng.frequencies(z, token, there / lengths[:, None]), eta)
    network = ng.Network(w, ng.Normal("y", mean, 2.0, plate=doc, observed=rng.normal(size=n)))
    init = {"phi": rng.dirichlet(np.ones(8), size), "eta": rng.normal(size=size)}
    return network, init, lengths


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_words_that_are_not_there_do_not_count(backend):
    """Of every document as many words counted as the longest has: shares of short ones were far too certain."""
    fits = []
    for width in (6, 9):
        network, init, lengths = ragged(width)
        fits.append(network.fit(ng.VB(), init=init, max_steps=20, tol=0, backend=backend))
        concentration = fits[-1]["theta"].parameters["concentration"]
        np.testing.assert_allclose(concentration.sum(1), 3 * 0.3 + lengths, rtol=1e-10)
    np.testing.assert_allclose(fits[0].elbo, fits[1].elbo, rtol=1e-12)
    np.testing.assert_allclose(fits[0]["eta"].mean(), fits[1]["eta"].mean(), rtol=1e-9)


def test_shares_of_a_short_document_are_as_uncertain_as_its_words_say():
    counts = np.random.default_rng(0).multinomial(20, np.ones(12) / 12, 15)
    counts[0] = 0
    counts[0, 3] = 2
    model = ng.topics.SupervisedLDA(3, max_steps=2, tol=0, verbose=False).fit(counts, np.arange(15.0))
    concentration = model.fit_["theta"].parameters["concentration"]
    np.testing.assert_allclose(concentration.sum(1), 3 * 0.1 + counts.sum(1), rtol=1e-9)


def test_large_counts_are_told_of():
    """A sweep takes as long as there are tokens; documents that are repeated say so before it does."""
    from natgrad.data.corpus import as_corpus
    from natgrad.topics.base import as_tokens

    X = np.array([[3, 0, 1], [0, 2, 2]])
    with pytest.warns(UserWarning, match=r"400,000 of them, 100000 for each word of a document.*divided by 12500"):
        as_tokens(as_corpus(50_000 * np.array([[3, 0, 1], [0, 2, 2]])), 4)
    assert as_tokens(as_corpus(X), 4).there.sum() == 8
