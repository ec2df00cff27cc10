"""Collapsed Gibbs sampling: the oracle is exact, the fast sampler agrees with it, counts stay right."""

import itertools
from functools import cache

import numpy as np
import pytest
import scipy.optimize
import scipy.special as sp
from reference.gibbs import enumerated_counts, sampled_counts, tokens_of
from reference.lda import draw_documents, naive_documents

import natgrad as ng
from natgrad.data.corpus import as_corpus
from natgrad.inference.auto import Auto, choose
from natgrad.kernels.lda.shares import draw_shares
from natgrad.models.lda.gibbs import GibbsSweeps, Sampler, TopicMoments, drawn_factors
from natgrad.models.lda.problem import LDAProblem
from natgrad.models.lda.start import sample_topics
from natgrad.models.lda.topics import aligned

HELD, LEARNED = {"doc_prior": 0.1, "topic_prior": 0.05}, {"doc_prior": "learn", "topic_prior": "learn"}
# Three documents, seven tokens; an asymmetric α tells the topics apart, so that counts can be compared one by one.
TINY = np.array([[2, 1, 0], [0, 1, 1], [0, 0, 2]])
ALPHA, BETA = np.array([0.9, 0.4]), 0.5


def standard_error(samples):
    """Of the mean of a chain, by the means of fifty batches."""
    batches = samples[: len(samples) // 50 * 50].reshape(50, -1, *samples.shape[1:]).mean(1)
    return batches.std(0, ddof=1) / np.sqrt(50)


def test_enumeration_is_the_evidence_of_the_reference(reference):
    r = reference("exact_conjugate")["lda_exact_tiny"]
    X = np.zeros((2, r["V"]), dtype=int)
    np.add.at(X, (np.array(r["doc"]), np.array(r["w"])), 1)
    _, _, evidence = enumerated_counts(tokens_of(X), np.full(r["K"], float(r["alpha"])), r["beta"])
    assert evidence == pytest.approx(r["log_evidence"], rel=1e-10)


def test_oracle_agrees_with_enumeration():
    tokens = tokens_of(TINY)
    wanted, _, _ = enumerated_counts(tokens, ALPHA, BETA)
    samples = sampled_counts(tokens, ALPHA, BETA, 3000, seed=1)[50:]
    error = standard_error(samples)
    assert error.max() < 0.06
    assert (np.abs(samples.mean(0) - wanted) < 5 * error).all()


@pytest.mark.parametrize("refreshed", [1, 100], ids=lambda n: f"tables of {n} sweeps")
def test_fast_sampler_agrees_with_enumeration(refreshed):
    check_sampler(refreshed, n_samples=10_000, within=0.05)


def check_sampler(refreshed, n_samples, within):
    """Means of the fast sampler are those of all assignments, within five standard errors, which are small themselves."""
    wanted, _, _ = enumerated_counts(tokens_of(TINY), ALPHA, BETA)
    sampler = Sampler(as_corpus(TINY), ALPHA, BETA, seed=3)
    # Tables far from the truth: what is refused corrects for them.
    sampler.settle(np.array([[5.0, 1.0, 1.0], [1.0, 1.0, 9.0]]))
    samples, refused = np.empty((n_samples, *wanted.shape)), 0.0
    for number in range(refreshed):
        sampler.sweep(fresh=number == 0)
    for number in range(len(samples)):
        sampler.sweep(fresh=False)
        samples[number] = sampler.by_word
        refused += sampler.refused
    error = standard_error(samples)
    assert error.max() < within
    assert refused > 0
    assert (np.abs(samples.mean(0) - wanted) < 5 * error).all()


@pytest.mark.parametrize("shards", [1, 3])
def test_counts_are_those_of_the_tokens(shards):
    corpus = as_corpus(draw_documents(40, 30, 6, 25, seed=2).counts)
    sampler = Sampler(corpus, np.full(6, 0.1), 0.05, seed=0, shards=shards)
    sampler.settle(np.ones((6, 30)))
    for number in range(5):
        sampler.sweep(fresh=number % 2 == 0, averaged=number > 2)
    by_word, totals = sampler.by_word.copy(), sampler.totals.copy()
    sampler.recount()
    np.testing.assert_array_equal(by_word, sampler.by_word)
    np.testing.assert_array_equal(totals, sampler.totals)
    np.testing.assert_array_equal(by_word.sum(1), corpus.to_sparse().sum(0))
    assert sampler.sums.sum() == 2 * corpus.n_tokens


def test_log_likelihood_is_that_of_each_token_given_all_others():
    """With one topic the sampler has no choice, and the leave-one-out probability is (n_w − 1 + β) / (n − 1 + V β)."""
    sampler = Sampler(as_corpus(TINY), np.array([0.5]), BETA, seed=0)
    sampler.settle(np.ones((1, 3)))
    sampler.sweep()
    value = sampler.sweep()
    n = TINY.sum(0)
    # The table still counts the token itself; it weighs α against n_d − 1.
    assert value == pytest.approx(n @ np.log((n - 1 + BETA) / (n.sum() - 1 + 3 * BETA)), rel=0.1)


def test_priors_climb_the_evidence_to_its_maximum():
    corpus = as_corpus(draw_documents(300, 40, 3, 30, seed=4, doc_prior=0.3).counts)
    sampler = Sampler(corpus, np.array([0.1, 1.0, 3.0]), 0.4, seed=0)
    sampler.settle(np.ones((3, 40)))
    for _ in range(10):
        sampler.sweep()
    documents = np.repeat(np.arange(300), np.diff(sampler.tokens))
    shares = np.zeros((300, 3))
    np.add.at(shares, (documents, sampler.topics), 1)

    def evidence(alpha):
        terms = sp.gammaln(alpha + shares) - sp.gammaln(alpha)
        return terms.sum() + (sp.gammaln(alpha.sum()) - sp.gammaln(alpha.sum() + shares.sum(1))).sum()

    values = [evidence(sampler.alpha)]
    for _ in range(100):
        sampler.update_hyper(frozenset({"doc", "topic"}))
        values.append(evidence(sampler.alpha))
    assert np.diff(values).min() > -1e-9 * abs(values[0])
    best = scipy.optimize.minimize(lambda log: -evidence(np.exp(log)), np.zeros(3), method="BFGS")
    np.testing.assert_allclose(sampler.alpha, np.exp(best.x), rtol=1e-2)
    n = sampler.by_word.astype(float)
    beta = scipy.optimize.minimize_scalar(
        lambda b: (
            -((sp.gammaln(b + n) - sp.gammaln(b)).sum() + (sp.gammaln(40 * b) - sp.gammaln(40 * b + n.sum(0))).sum())
        ),
        bounds=(1e-3, 5.0),
        method="bounded",
    ).x
    assert sampler.beta == pytest.approx(beta, rel=1e-2)


@cache
def drawn():
    return draw_documents(400, 60, 5, 80, seed=1, doc_prior=0.1, topic_prior=0.1)


@cache
def finished():
    return ng.LDA(5, seed=0, topic_prior=0.1, gibbs_sweeps=60).fit(drawn().counts)


def test_samples_are_described():
    plain = ng.LDA(5, seed=0, topic_prior=0.1, inference="vb", max_passes=1, tol=0).fit(
        drawn().counts
    )  # one pass, by default
    model = finished()
    # The bound is that of the topics that are returned, and the last line of the trace says so; before it are those of the pass.
    np.testing.assert_array_equal(model.trace_["elbo"], [*plain.trace_["elbo"][:-1], model.elbo_])
    under_q = LDAProblem(as_corpus(drawn().counts), np.full(5, 0.1), 0.1)
    # Single precision, and documents that are solved to 1e-3.
    assert model.elbo_ == pytest.approx(under_q.bound(under_q.at(model.components_)), rel=1e-4)
    assert model.stop_.message == "collapsed Gibbs sampling from a VB start, 60 sweeps (mean of the last 30)"
    assert model.log_likelihood_.shape == (60,)
    assert np.isfinite(model.log_likelihood_).all()
    assert model.components_.sum() == pytest.approx(drawn().counts.sum() + 5 * 60 * 0.1, rel=1e-9)
    assert set(model.posterior_) == {"phi", "theta"}
    assert np.isfinite(model.score(drawn().counts))
    assert not hasattr(plain, "log_likelihood_")


def test_same_seed_same_samples_for_any_number_of_threads():
    X = draw_documents(2500, 100, 8, 50, seed=4).counts  # more tokens than one shard takes
    options = {"max_passes": 1, "tol": 0, "inference": "gibbs", "gibbs_sweeps": 4}
    one, two = (ng.LDA(8, n_jobs=n, **options).fit(X) for n in (1, 2))
    np.testing.assert_array_equal(one.components_, two.components_)
    np.testing.assert_array_equal(one.log_likelihood_, two.log_likelihood_)
    np.testing.assert_array_equal(one.doc_prior_, two.doc_prior_)
    assert not np.array_equal(
        ng.LDA(8, seed=1, **options).fit(X[:500]).components_, ng.LDA(8, **options).fit(X[:500]).components_
    )


def test_documents_without_words_and_odd_sizes():
    X = drawn().counts[:50].copy()
    X[::5] = 0
    model = ng.LDA(70, seed=0, gibbs_sweeps=1, max_passes=1).fit(X)
    assert np.isfinite(model.topics_).all()
    nothing = LDAProblem(as_corpus(np.zeros((2, 3))), np.ones(2), 0.1, learn=frozenset({"doc", "topic"}))
    sweeps, state = GibbsSweeps(nothing, 4), nothing.at(np.ones((2, 3)))
    for _ in range(4):
        state, _ = sweeps.step(state, 0)
    _, point = sweeps.point(state)
    np.testing.assert_allclose(point.lam["phi"][0] + 1.0, point.hyper["topic_prior"], rtol=1e-12)
    assert np.isfinite(sweeps.log_likelihood).all()


def test_wrong_settings_are_explained():
    with pytest.raises(ValueError, match='inference must be "gibbs" or "vb"'):
        ng.LDA(2, inference="mcmc").fit(np.eye(3))
    with pytest.raises(ValueError, match="gibbs_sweeps"):
        ng.LDA(2, gibbs_sweeps=0).fit(np.eye(3))


# -- what the samples say of topics and documents --


def enumerated_moments():
    """E[φ], E[φ²], E[θ], E[θ²] of the tiny corpus, over all assignments of its tokens."""
    documents, words = np.nonzero(TINY)
    d, w = np.repeat(documents, TINY[documents, words]), np.repeat(words, TINY[documents, words])
    weights, found = [], {"phi": [], "theta": []}
    for z in itertools.product(range(2), repeat=len(w)):
        n_kw, n_dk = np.zeros((2, 3)), np.zeros((3, 2))
        np.add.at(n_kw, (np.array(z), w), 1)
        np.add.at(n_dk, (d, np.array(z)), 1)
        a, b = n_dk + ALPHA, n_kw + BETA
        weights.append(
            (sp.gammaln(a).sum() - sp.gammaln(a.sum(1)).sum()) + sp.gammaln(b).sum() - sp.gammaln(b.sum(1)).sum()
        )
        for name, c in (("phi", b), ("theta", a)):
            total = c.sum(1, keepdims=True)
            found[name].append([c / total, c * (c + 1) / (total * (total + 1))])
    share = sp.softmax(weights)
    return {name: np.tensordot(share, np.array(parts), 1) for name, parts in found.items()}


def test_moments_of_topics_and_documents_are_those_of_an_enumeration():
    sampler = Sampler(as_corpus(TINY), ALPHA, BETA, seed=3)
    sampler.settle(np.array([[5.0, 1.0, 1.0], [1.0, 1.0, 9.0]]))
    for _ in range(100):  # tables as old as the start move slowly
        sampler.sweep(fresh=True)
    moments = TopicMoments(8000)
    for _ in range(8000):
        sampler.sweep(fresh=False)
        moments.add(sampler)
    for name, (first, second) in enumerated_moments().items():
        factor = drawn_factors(moments.kept())[name]
        np.testing.assert_allclose(factor.mean(), first, atol=0.02)
        np.testing.assert_allclose(factor.var(), second - first**2, atol=0.01)
        np.testing.assert_allclose(factor.values[0].mean(0), first, atol=0.03)


def check_shares(sweeps, within):
    """Shares of documents given topics, against all assignments of their tokens."""
    X, alpha = np.array([[2, 0, 1], [0, 3, 0]]), np.array([0.5, 1.5])
    topics = np.array([[0.7, 0.2, 0.1], [0.1, 0.5, 0.4]])
    first, second = np.empty((2, 2)), np.empty((2, 2))
    corpus = as_corpus(X)
    draw_shares(
        first, second, corpus.start, corpus.words, corpus.counts.astype(np.int64), np.ascontiguousarray(topics.T), alpha,
        np.array([5, 9], dtype=np.uint64), 20, sweeps,
    )  # fmt: skip
    for d, row in enumerate(X):
        w = np.repeat(np.arange(3), row)
        weights, parts = [], []
        for z in itertools.product(range(2), repeat=len(w)):
            a = alpha + np.bincount(z, minlength=2)
            weights.append(np.log(topics[list(z), w]).sum() + sp.gammaln(a).sum())
            parts.append([a / a.sum(), a * (a + 1) / (a.sum() * (a.sum() + 1))])
        wanted = np.tensordot(sp.softmax(weights), np.array(parts), 1)
        np.testing.assert_allclose([first[d], second[d]], wanted, atol=within)


def test_shares_given_topics_are_those_of_an_enumeration():
    check_shares(sweeps=20_000, within=0.01)


def test_samples_have_wider_intervals():
    X = draw_documents(80, 12, 3, 30, 1, doc_prior=1.0, topic_prior=0.5).counts
    options = {"n_topics": 3, "seed": 1, "doc_prior": 1.0, "topic_prior": 0.5, "verbose": False}
    model = ng.LDA(gibbs_sweeps=120, **options).fit(X)
    plain = ng.LDA(inference="vb", **options).fit(X)
    order = aligned(model.topics_, plain.topics_).other
    wide, narrow = model.posterior_["phi"].std(), plain.posterior_["phi"].std()[order]
    assert np.median(wide / narrow) > 1.05
    np.testing.assert_allclose(model.posterior_["phi"].mean(), model.topics_, atol=0.02)
    low, high = model.posterior_["theta"].interval(0.9)
    assert (low < high).all()
    mean, sd = model.transform(X, return_std=True)
    np.testing.assert_array_equal(mean, model.transform(X))
    assert np.median(sd / plain.transform(X, return_std=True)[1][:, order]) > 1.05
    table = model.posterior_.summary(["phi"])  # it said that they were those of q
    assert (table.level, plain.posterior_.summary(["phi"]).level) == ("draws", "q")
    assert list(table.columns) == ["mean", "sd (draws)", "lower", "upper", "R̂", "ESS"]


# -- sweeps at the start --


def test_passes_that_start_from_a_sampler_end_higher_and_have_an_honest_bound() -> None:
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(120, 0.1), 8)
    X = np.array([rng.multinomial(60, share @ topics) for share in rng.dirichlet(np.full(8, 0.5), 150)])
    settings = {
        "seed": 0,
        "max_passes": 15,
        "tol": 0,
        "local": ng.LocalOptions(tol=1e-6, dtype="float64", skip_below=0.0),
    }
    plain, sampled = (ng.LDA(8, inference="vb", gibbs_sweeps=sweeps, **settings).fit(X) for sweeps in (0, 60))
    assert sampled.elbo_ > plain.elbo_ + 100.0
    bounds = sampled.trace_["elbo"][np.isfinite(sampled.trace_["elbo"])]
    assert len(bounds) > 50
    assert (np.diff(bounds) >= -1e-9 * np.abs(bounds[-1])).all()
    # The slow twin from the shares that were found: no word of what was sampled is in it.
    lam, gamma = sampled.components_, sampled.posterior_["theta"].parameters["concentration"]
    elog = sp.digamma(lam) - sp.digamma(lam.sum(1, keepdims=True))
    documents = naive_documents(X, elog, np.full(8, 0.1), gamma / gamma.sum(1, keepdims=True), 1e-6, 200)
    own, prior = (sp.gammaln(c.sum(1)).sum() - sp.gammaln(c).sum() for c in (lam, np.full(lam.shape, 0.05)))
    divergence = own - prior + ((lam - 0.05) * elog).sum()
    reached = (
        documents.bound.sum() - divergence
    )  # after a few rounds more for documents that were solved before the last steps
    assert sampled.elbo_ <= reached + 1e-6
    assert reached == pytest.approx(sampled.elbo_, rel=1e-4)
    assert sampled.topics_.sum(1) == pytest.approx(np.ones(8))


@pytest.mark.parametrize("n", [1, 101])
def test_sweeps_initialise_vb_whatever_the_number_of_documents(n: int) -> None:
    X = drawn().counts[:n]
    one, other = (
        ng.LDA(3, inference="vb", gibbs_sweeps=sweeps, max_passes=3, tol=0).fit(X).components_ for sweeps in (0, 10)
    )
    assert not np.array_equal(one, other)


def test_sweeps_that_have_no_effect_are_refused() -> None:
    X = drawn().counts[:120]
    for counts, options, reason in (
        (X * 0.5, {}, "whole counts"),
        (X, {"method": ng.VB()}, r"method=VB\(\)"),
        (X, {"n_topics": "auto"}, "auto"),
        (iter([X]), {}, "a stream"),
    ):
        with pytest.raises(ValueError, match=f"gibbs_sweeps=10 has no effect: .*{reason}"):
            ng.LDA(**{"n_topics": 3, "inference": "vb", "gibbs_sweeps": 10, **options}).fit(counts)
    for wrong in (-1, 2.5, "many"):
        with pytest.raises((TypeError, ValueError), match="gibbs_sweeps"):
            ng.LDA(3, inference="vb", gibbs_sweeps=wrong).fit(X)


@pytest.mark.parametrize("learn", [False, True])
def test_a_run_that_was_stopped_before_or_after_the_sweeps_goes_on_with_the_same_bits(learn, tmp_path) -> None:
    X, settings = (
        drawn().counts[:120],
        {"gibbs_sweeps": 8, "tol": 0, **(LEARNED if learn else HELD), "local": ng.LocalOptions(batch_size=20)},
    )
    whole = ng.LDA(3, inference="vb", max_passes=5, **settings).fit(X)
    for number, passes in enumerate((1, 2)):  # the sweeps come after the first
        folder = tmp_path / str(number)
        ng.LDA(3, inference="vb", max_passes=passes, **settings).fit(X, checkpoint=folder, every=1)
        again = ng.LDA(3, inference="vb", max_passes=5, **settings).fit(X, checkpoint=folder, resume=True)
        np.testing.assert_array_equal(again.topics_, whole.topics_)


@pytest.mark.parametrize("late_after", [0, 5, 35])
def test_sweeps_at_the_start_end_when_time_is_up(late_after):
    """Of 40 sweeps the last ten are averaged; every token is counted once, however many were made."""
    corpus = as_corpus(np.random.default_rng(0).poisson(0.5, (30, 20)))
    problem = LDAProblem(corpus, np.full(3, 0.1), 0.05)
    asked = iter(range(100))
    found = sample_topics(problem, problem.start(0).lam["phi"][0] + 1.0, 1, 40, lambda: next(asked) >= late_after)
    assert next(asked) == late_after + 1
    np.testing.assert_allclose(found.counts.sum(0), np.bincount(corpus.words, corpus.counts, corpus.n_words))


def test_the_clock_of_a_run_reaches_the_sweeps_at_its_start():
    """A million sweeps, of which none is made: the stepper hands down whether time is up."""
    problem = LDAProblem(as_corpus(np.ones((100, 4))), np.full(2, 0.1), 0.05, start_sweeps=10**6)
    stepper, _ = choose(problem, None, Auto(), ("phi",))
    stepper.late = lambda: True
    state = problem.start(0)
    for _ in range(stepper.n_batches + 1):
        state, _ = stepper.step(state, 0)
    assert state.t == stepper.n_batches + 1
