"""Every kernel of LDA equals its slow twin, for any number of threads."""

import numpy as np
import pytest
import scipy.special as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.lda import draw_documents, naive_documents, naive_sparse_document

from natgrad.data.corpus import as_corpus
from natgrad.kernels.special import bits_like, elog_columns, exp_digamma, lgamma_columns, series_for
from natgrad.models.lda.problem import LDAProblem, Local

pytestmark = pytest.mark.usefixtures("loops")
seeds = st.integers(0, 2**32 - 1)


class Case:
    """Documents (one of them empty), topics and starting shares."""

    def __init__(self, seed, n_topics, local):
        rng = np.random.default_rng(seed)
        self.n_words = int(rng.integers(2, 12))
        self.X = rng.poisson(rng.gamma(0.5, 3.0), (int(rng.integers(1, 7)), self.n_words)).astype(float)
        self.X[rng.integers(len(self.X))] = 0
        self.alpha = rng.uniform(0.05, 1.0, n_topics)
        self.shares = rng.dirichlet(np.ones(n_topics), len(self.X))
        self.concentration = rng.gamma(0.5, 5.0, (n_topics, self.n_words)) + 0.01
        self.problem = LDAProblem(as_corpus(self.X), self.alpha, 0.1, local, shares=self.shares)
        self.state = self.problem.at(self.concentration)

    @property
    def elog(self):
        return sp.digamma(self.concentration) - sp.digamma(self.concentration.sum(1, keepdims=True))


@pytest.mark.parametrize(("dtype", "within"), [(np.float32, 1e-5), (np.float64, 1e-13)])
def test_exp_digamma(dtype, within):
    x = np.concatenate([np.geomspace(0.02, 1e5, 1000), np.linspace(0.02, 30, 1000)]).astype(dtype)
    out, power = np.empty_like(x), np.empty_like(x)
    exp_digamma(x, len(x), series_for(dtype), power, bits_like(power), out)
    np.testing.assert_allclose(out, np.exp(sp.digamma(x.astype(float))), rtol=within)


def test_exp_digamma_never_underflows():
    x = np.array([1e-6, 1e-3, 1e-2], dtype=np.float32)
    out, power = np.empty_like(x), np.empty_like(x)
    exp_digamma(x, 3, series_for(np.float32), power, bits_like(power), out)
    assert (out > 1e-31).all()
    assert (out < 1e-29).all()


def test_digamma_and_lgamma():
    x = np.concatenate([np.geomspace(1e-3, 1e7, 3000), [0.5, 1.0, 2.0]])[:, None]
    out, total = np.empty_like(x), np.empty(len(x))
    elog_columns(x, np.zeros(1), out)
    # ψ and log Γ vanish near 1.46, 1 and 2, where rounding of order one remains.
    np.testing.assert_allclose(out, sp.digamma(x), rtol=1e-13, atol=1e-14)
    lgamma_columns(x, total)
    np.testing.assert_allclose(total, sp.gammaln(x[:, 0]), rtol=1e-13, atol=2e-14)


@settings(max_examples=40)
@given(seeds, st.sampled_from([1, 2, 5, 16, 17, 40]), st.sampled_from([1, 2, 7, 300]))
def test_documents_equal_their_twin(seed, n_topics, limit):
    case = Case(seed, n_topics, Local(tol=1e-7, limit=limit))
    wanted = naive_documents(case.X, case.elog, case.alpha, case.shares, 1e-7, limit)
    found = case.problem.solve(case.state, None, None, 1e-7, limit)
    # Near the end of the rounds one more or less may be taken, for a change of 1e-7.
    np.testing.assert_allclose(found.rows[0], wanted.gamma, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(found.messages["phi"][0], wanted.counts, rtol=1e-9, atol=1e-6)
    bound = found.rest + (found.messages["phi"][0] * case.elog).sum()
    assert bound == pytest.approx(wanted.bound.sum(), rel=1e-10, abs=1e-9)


@settings(max_examples=30)
@given(seeds, st.sampled_from([4, 20, 70]), st.sampled_from([3, 12, 300]))
def test_sparse_documents_equal_their_twin(seed, n_topics, limit):
    case = Case(seed, n_topics, Local(tol=1e-6, limit=limit, skip=1e-3))
    found = case.problem.solve(case.state, None, None, 1e-6, limit)
    gamma, _ = zip(
        *(
            naive_sparse_document(row, case.elog, case.alpha, shares, 1e-6, limit, 1e-3)
            for row, shares in zip(case.X, case.shares, strict=True)
        ),
        strict=True,
    )
    # One round more or less near the end, for a change of 1e-6 in the mean over topics.
    np.testing.assert_allclose(found.rows[0], gamma, rtol=1e-7, atol=1e-5 * n_topics)


@settings(max_examples=30)
@given(seeds, st.sampled_from([5, 40]), st.sampled_from([0.0, 1e-4, 1e-2]))
def test_a_document_is_done_when_a_round_over_all_topics_says_so(seed, n_topics, skip):
    """Whatever sat out and was extrapolated: the last round is a plain one over all topics that moved γ by less than tol."""
    tol = 1e-3
    case = Case(seed, n_topics, Local(tol=tol, limit=10_000, skip=skip))
    weights = case.problem._topics(case.state.mu["phi"][0]).weights
    found = case.problem.infer(case.state, tol=tol, limit=10_000)
    for d, row in enumerate(case.X):
        if row.any():
            t = found.weight[d, :n_topics]
            r = t * weights[:, :n_topics]
            new = case.alpha + (row / r.sum(1)) @ r
            np.testing.assert_allclose(found.gamma[d], new, rtol=1e-9)
            before = inverse_exp_digamma(t)
            assert np.abs(new - before).mean() <= tol * (1 + 1e-6)


def inverse_exp_digamma(t):
    low, high = np.full_like(t, 1e-3), t + 10.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        below = np.exp(sp.digamma(middle)) < t
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)


def test_sitting_out_costs_no_quality():
    """On documents of a generated corpus the bounds are those of all topics in every round, on average and nearly each."""
    drawn = draw_documents(300, 400, 40, 80, seed=5)
    bounds = []
    for skip in (0.0, 1e-3):
        problem = LDAProblem(as_corpus(drawn.counts), np.full(40, 0.1), 0.05, Local(skip=skip, dtype=np.float32))
        bounds.append(problem.infer(problem.at(1e3 * drawn.topics + 0.05), tol=1e-3, limit=100).bound)
    lengths = drawn.counts.sum(1)
    assert (bounds[1] - bounds[0]).sum() > -1e-4 * lengths.sum()
    assert ((bounds[1] - bounds[0]) / lengths).min() > -0.05


@settings(max_examples=25)
@given(seeds, st.sampled_from([3, 20, 70]))
def test_single_precision_and_skipped_topics_stay_near_and_below(seed, n_topics):
    fine = Case(seed, n_topics, Local(tol=1e-6, limit=500))
    skip = 1e-4
    rough = Case(seed, n_topics, Local(tol=1e-6, limit=500, skip=skip, dtype=np.float32))
    wanted = fine.problem.infer(fine.state, tol=1e-6, limit=500)
    found = rough.problem.infer(rough.state, tol=1e-6, limit=500)
    # q(z) without the skipped topics is a q(z) like any other. Its bound may be another local optimum's, but leaving out
    # at most K · skip of the words, from the same start, costs about as many nats a word.
    length = fine.X.sum(1)
    assert (found.bound <= wanted.bound + 1e-3 * (1.0 + np.abs(wanted.bound))).all()
    assert (found.bound >= wanted.bound - (10 * n_topics * skip * length + 1e-3 * (1.0 + np.abs(wanted.bound)))).all()
    np.testing.assert_allclose(found.gamma.sum(1), fine.alpha.sum() + length, rtol=1e-4)


def test_a_word_that_only_a_left_out_topic_knows_stays_finite():
    case = Case(0, 4, Local(skip=0.2, dtype=np.float32))
    concentration = np.full((4, case.n_words), 1e-3)
    concentration[0, 0], concentration[1:, 1:] = 1e4, 50.0
    found = case.problem.infer(case.problem.at(concentration), tol=1e-6, limit=50)
    assert np.isfinite(found.gamma).all()
    assert np.isfinite(found.bound).all()


@settings(max_examples=12)
@given(seeds, st.sampled_from([1, 2, 5, 17, 40]))
def test_tangents_equal_their_twin_and_the_derivative_of_solutions(seed, n_topics):
    case = Case(seed, n_topics, Local(tol=1e-9, limit=5000))
    solved = case.problem.solve(case.state, None, None, 1e-13, 20_000)
    rng = np.random.default_rng(seed)
    direction = {"phi": (rng.normal(size=case.elog.shape),)}
    twin = LDAProblem(as_corpus(case.X), case.alpha, 0.1, Local(tol=1e-9, limit=5000))
    twin._views[id(None)] = (None, case.problem.view_of(None)._replace(little=not case.problem.view_of(None).little))
    found, wanted = (p.tangent(case.state, solved, False) for p in (case.problem, twin))
    first = found(direction)["phi"][0]
    np.testing.assert_allclose(wanted(direction)["phi"][0], first, rtol=1e-8, atol=1e-8)
    # A second direction reads the factors that were kept.
    other = {"phi": (rng.normal(size=case.elog.shape),)}
    np.testing.assert_allclose(found(other)["phi"][0], wanted(other)["phi"][0], rtol=1e-8, atol=1e-8)
    ends = []
    for sign in (1.0, -1.0):
        moved = case.state._replace(mu={"phi": (case.state.mu["phi"][0] + sign * 1e-5 * direction["phi"][0],)})
        ends.append(case.problem.solve(moved, None, solved.rows, 1e-13, 20_000).messages["phi"][0])
    size = max(1.0, float(np.abs(first).max()))
    np.testing.assert_allclose((ends[0] - ends[1]) / 2e-5, first, atol=1e-4 * size)
