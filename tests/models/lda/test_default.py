"""Which inference `LDA` runs: that of its argument, whatever else is given; what cannot be sampled runs VB and warns."""

from functools import cache

import numpy as np
import pytest
import scipy.special as sp
from reference.lda import draw_documents, naive_collapsed_shares

import natgrad as ng
from natgrad.data.corpus import as_corpus
from natgrad.inference.engine import Limits, Phase, run
from natgrad.kernels.lda.shares import collapsed_shares

FEW = {"gibbs_sweeps": 20, "verbose": False}


@cache
def drawn():
    return draw_documents(150, 40, 3, 30, seed=1, doc_prior=0.1, topic_prior=0.1)


@cache
def fitted():
    return ng.LDA(3, **FEW).fit(drawn().counts)


def test_default_is_samples_with_learned_priors():
    model, same = (
        fitted(),
        ng.LDA(3, inference="gibbs", doc_prior="learn", topic_prior="learn", **FEW).fit(drawn().counts),
    )
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
    none = ng.LDA(3, doc_prior=0.1, topic_prior=0.05, **FEW).fit(drawn().counts)
    np.testing.assert_array_equal(none.doc_prior_, 0.1)
    assert none.topic_prior_ == 0.05


def test_tolerance_before_samples_is_that_of_several_passes():
    """Without it there is one pass, as with ``max_passes=1``; with it they go on until so little is left to gain."""
    X = drawn().counts
    one = ng.LDA(3, max_passes=1, **FEW).fit(X)
    np.testing.assert_array_equal(one.components_, fitted().components_)
    assert one.elbo_ == fitted().elbo_
    loose, tight = (ng.LDA(3, tol=tol, **FEW).fit(X) for tol in (1e-2, 1e-5))
    assert fitted().n_steps_ < loose.n_steps_ < tight.n_steps_
    assert all(model.inference_.startswith("collapsed Gibbs sampling") for model in (loose, tight))


def test_arguments_without_effect_are_refused():
    X, batches = drawn().counts[:100, :20], ng.LocalOptions(batch_size=7)
    for settings, documents, options, words in (
        ({"method": ng.VB()}, iter([X]), {}, r"method=VB\(\) reads all documents at each step, and X is a stream"),
        ({"method": ng.VB(), "local": batches}, X, {}, r"batch_size=7 in local= has no effect with method=VB"),
        ({"method": ng.SVI({"doc": 5}), "local": batches}, X, {}, "batch_size=7 in local= has no effect"),
        ({}, X, {"n_documents": 500}, "n_documents=500 is the length of a stream"),
    ):
        with pytest.raises(ValueError, match=words):
            ng.LDA(2, inference="vb", verbose=False, **settings).fit(documents, **options)
    stream = ng.LDA(2, inference="vb", method=ng.SVI({"doc": 5}), verbose=False).fit(iter([X]))
    assert stream.n_steps_ == 20


def test_what_cannot_be_sampled_runs_vb_and_warns():
    X = drawn().counts[:100, :20]
    assert hasattr(ng.LDA(3, **FEW).fit(10 * X), "log_likelihood_")  # large counts are sampled like small ones
    auto = ng.LDA(("auto", 3), max_passes=2, **FEW)
    for model, documents, options, reason in (
        (ng.LDA(3, **FEW), X + 0.5 * (X > 0), {}, r"whole counts, but X\[0, "),
        (ng.LDA(3, **FEW), X * 1.0000001, {}, "whole counts"),
        (ng.LDA(3, **FEW), iter([X]), {}, "a stream"),
        (ng.LDA(3, max_passes=2, **FEW), X, {"moves": "keep"}, "moves='keep'"),
        (auto, X, {}, 'n_topics="auto"'),
    ):
        with pytest.warns(UserWarning, match=f'this fit runs VB: .*{reason}.*inference="vb"'):
            model.fit(documents, **options)
        assert not hasattr(model, "log_likelihood_")
        assert model.inference_.startswith("VB, ")
    with pytest.raises(ValueError, match='inference="vb"'):
        ng.LDA(3, **FEW).fit(X * 10**9)


def test_more_topics_than_words_warn():
    X = drawn().counts[:30, :4]
    with pytest.warns(UserWarning, match="n_topics = 50, and the documents have 4 different words.*n_topics=4"):
        ng.LDA(50, **FEW).fit(X)
    with pytest.warns(UserWarning, match="n_topics = 5, and the documents have 4 different words"):
        ng.topics.SupervisedLDA(5, max_steps=1, tol=0, verbose=False).fit(X, np.arange(30.0))
    ng.LDA(4, **FEW).fit(X)  # warnings are errors here


def test_partial_fit_after_samples_warns_before_it_takes_a_vb_step():
    model = ng.LDA(3, **FEW).fit(drawn().counts)
    with pytest.warns(UserWarning, match="partial_fit takes a VB step"):
        model.partial_fit(drawn().counts[:50])
    assert model.inference_.startswith("VB, ")
    assert not hasattr(model, "log_likelihood_")


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
        3, doc_prior=model.doc_prior_, topic_prior=model.topic_prior_, inference="vb", gibbs_sweeps=0, verbose=False
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
        one.inference = "vb"
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
    from natgrad.models.lda.gibbs import drawn_shares

    model, held = fitted(), draw_documents(300, 40, 3, 8, seed=5, doc_prior=0.3, topic_prior=0.1).counts
    mean, _ = drawn_shares(as_corpus(held), model.topics_, model.doc_prior_, 0)
    gamma = model._inferred(as_corpus(held)).gamma
    far = np.abs(gamma / gamma.sum(1, keepdims=True) - mean).mean()
    assert np.abs(model.transform(held) - mean).mean() < far
