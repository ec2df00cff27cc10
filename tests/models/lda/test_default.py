"""What a fit does unless it is told: samples and learned priors where they can be had, passes elsewhere, a bound in both."""

from functools import cache

import numpy as np
import pytest
import scipy.special as sp
from reference.lda import draw_documents, naive_collapsed_shares

import natgrad as ng
from natgrad.data.corpus import as_corpus
from natgrad.inference.engine import Limits, Phase, run
from natgrad.inference.trace import Reason
from natgrad.kernels.lda.shares import collapsed_shares

FEW = {"finish_sweeps": 20, "verbose": False}


@cache
def drawn():
    return draw_documents(150, 40, 3, 30, seed=1, doc_prior=0.1, topic_prior=0.1)


@cache
def fitted():
    return ng.LDA(3, **FEW).fit(drawn().counts)


def test_default_is_samples_with_learned_priors():
    model, same = fitted(), ng.LDA(3, finish="gibbs", learn_priors=True, **FEW).fit(drawn().counts)
    np.testing.assert_array_equal(model.components_, same.components_)
    assert model.elbo_ == same.elbo_
    assert model.trace_.last.elbo == model.elbo_
    assert np.ptp(model.doc_prior_) > 0
    assert model.topic_prior_ != 0.05


def test_given_priors_are_held():
    alpha = np.array([0.3, 0.2, 0.1])
    model = ng.LDA(3, doc_prior=alpha, topic_prior=0.2, **FEW).fit(drawn().counts)
    assert len(model.log_likelihood_) == 20
    np.testing.assert_array_equal(model.doc_prior_, alpha)
    assert model.topic_prior_ == 0.2
    one = ng.LDA(3, doc_prior=0.3, **FEW).fit(drawn().counts)
    np.testing.assert_array_equal(one.doc_prior_, 0.3)
    assert one.topic_prior_ != 0.05
    none = ng.LDA(3, learn_priors=False, **FEW).fit(drawn().counts)
    np.testing.assert_array_equal(none.doc_prior_, 0.1)
    assert none.topic_prior_ == 0.05


@pytest.mark.parametrize(
    "settings",
    [
        {"finish": None}, {"method": ng.VB()}, {"max_passes": 3}, {"max_steps": 5}, {"tol": 1e-2}, {"start_sweeps": 0},
        {"local": "map"}, {"moves": "keep"}, {"n_topics": "auto"},
    ],
    ids=str,
)  # fmt: skip
def test_who_speaks_of_passes_gets_passes(settings):
    own = {"max_passes": 3} | settings if "moves" in settings or "n_topics" in settings else dict(settings)
    moves = {"moves": own.pop("moves")} if "moves" in own else {}
    model = ng.LDA(**({"n_topics": 3, "max_topics": 4} | own), **FEW).fit(drawn().counts, **moves)
    assert not hasattr(model, "log_likelihood_")
    if "n_topics" not in settings:
        np.testing.assert_array_equal(model.doc_prior_, 0.1)
        assert model.topic_prior_ == 0.05


def test_what_cannot_be_sampled_is_read_by_passes():
    X = drawn().counts[:100, :20]
    assert hasattr(ng.LDA(3, **FEW).fit(X), "log_likelihood_")
    for documents in (X + 0.5 * (X > 0), 1000 * X, X[:99], iter([X])):
        assert not hasattr(ng.LDA(3, **FEW).fit(documents), "log_likelihood_")
    assert not hasattr(ng.LDA(3, **FEW).partial_fit(X), "log_likelihood_")
    with pytest.raises(ValueError, match="X\\[0, "):
        ng.LDA(3, finish="gibbs", **FEW).fit(X + 0.5 * (X > 0))


def test_samples_that_time_ends_say_so():
    model = ng.LDA(3, finish_sweeps=10**6, max_seconds=0.4, verbose=False).fit(drawn().counts)
    assert model.stop_.reason is Reason.SECONDS
    assert "max_seconds = 0.4" in model.stop_.message
    assert np.isfinite(model.elbo_)


def test_bound_of_one_topic_is_the_evidence():
    """With one topic q(φ) = Dir(counts + β) is the posterior, so that the bound is log p(w): θ and z have no choice."""
    model = ng.LDA(1, topic_prior=0.3, **FEW).fit(drawn().counts)
    n = drawn().counts.sum(0)
    evidence = sp.gammaln(40 * 0.3) - sp.gammaln(40 * 0.3 + n.sum()) + (sp.gammaln(0.3 + n) - sp.gammaln(0.3)).sum()
    assert model.elbo_ == pytest.approx(evidence, rel=1e-6)  # weights of words are single


def test_bound_is_below_that_of_passes_from_the_same_topics():
    """Passes climb from any topics: with the same priors, what samples report must be lower than where passes lead from it."""
    model = fitted()
    passes = ng.LDA(
        3, doc_prior=model.doc_prior_, topic_prior=model.topic_prior_, finish=None, start_sweeps=0, verbose=False
    )
    problem = passes._problem(as_corpus(drawn().counts))
    start = problem.at(model.components_)
    assert model.elbo_ == pytest.approx(problem.bound(start), rel=1e-6)
    after = run(Phase(problem, ng.VB(), None, ("phi",)), start, limits=Limits(3, 0.0), seed=0).state
    assert problem.bound(after) > model.elbo_


def test_later_documents_keep_the_priors_that_were_learned(tmp_path):
    model = ng.LDA(3, **FEW).fit(drawn().counts)
    alpha, beta = model.doc_prior_, model.topic_prior_
    model.save(tmp_path / "topics.natgrad")
    for one in (model, ng.load(tmp_path / "topics.natgrad")):
        shares = one.transform(drawn().counts[:5])
        np.testing.assert_allclose(one.infer(drawn().counts[3]), shares[3], rtol=1e-12)
        one.partial_fit(drawn().counts[:50], n_documents=150)
        np.testing.assert_array_equal(one.doc_prior_, alpha)
        assert one.topic_prior_ == beta
    np.testing.assert_array_equal(model.components_, one.components_)


@pytest.mark.parametrize("scale", [1.0, 0.25, 1000.0])
def test_collapsed_shares_are_those_of_their_twin(scale):
    corpus, rng = as_corpus(drawn().counts[:20] * scale), np.random.default_rng(0)
    topics, alpha = rng.dirichlet(np.full(40, 0.1), 3) + 1e-9, np.array([0.5, 0.01, 2.0])
    out = np.empty((20, 3))
    collapsed_shares(
        out, corpus.start, corpus.words, corpus.counts, np.ascontiguousarray(topics.T), alpha, 1e-9, 30
    )  # fmt: skip
    np.testing.assert_allclose(out, naive_collapsed_shares(corpus, topics, alpha, 1e-9, 30), rtol=1e-9)
    np.testing.assert_allclose(out.sum(1), corpus.lengths + alpha.sum(), rtol=1e-9)


def test_collapsed_shares_are_near_those_of_samples():
    """Given topics, the mean of θ by sampling is what the shares stand for; those of q are further from it."""
    from natgrad.models.lda.drawn import drawn_shares

    model, held = fitted(), draw_documents(300, 40, 3, 8, seed=5, doc_prior=0.3, topic_prior=0.1).counts
    mean, _ = drawn_shares(as_corpus(held), model.topics_, model.doc_prior_, 0)
    gamma = model._inferred(as_corpus(held)).gamma
    far = np.abs(gamma / gamma.sum(1, keepdims=True) - mean).mean()
    assert np.abs(model.transform(held) - mean).mean() < far
