"""LDA on the engine gives the numbers of the network that declares it, of another engine, and of scikit-learn."""

import math
from functools import cache

import numpy as np
import pytest
from promises.stopping import COUNTS
from reference.lda import draw_documents
from sklearn.decomposition import LatentDirichletAllocation

import natgrad as ng
from natgrad.data.corpus import as_corpus
from natgrad.inference.engine import Limits, Phase, run
from natgrad.inference.steppers.groups import KEY, BatchMemory, GroupMemory, GroupStepper
from natgrad.models.lda.problem import LDAProblem, Local
from natgrad.models.lda.start import reset_better_documents

N_TOPICS, ALPHA, BETA = 4, 0.4, 0.1
ONE_ROUND = Local(tol=0.0, limit=1)


@cache
def drawn():
    return draw_documents(30, 25, N_TOPICS, 40, seed=7, doc_prior=0.3, topic_prior=0.2)


def problem(local=ONE_ROUND, **options):
    return LDAProblem(as_corpus(drawn().counts), np.full(N_TOPICS, ALPHA), BETA, local, **options)


def test_stays_below_the_enumerated_evidence(reference):
    r = reference("exact_conjugate")["lda_exact_tiny"]
    X = np.zeros((2, r["V"]))
    np.add.at(X, (np.array(r["doc"]), np.array(r["w"])), 1)
    ours = LDAProblem(as_corpus(X), np.full(r["K"], float(r["alpha"])), r["beta"])
    bounds = [
        run(
            Phase(ours, ng.VB(), ng.Constant(1.0), ("phi",)), ours.start(seed), limits=Limits(300, 1e-12), seed=0
        ).trace["elbo"][-1]
        for seed in range(5)
    ]
    # log 2! relabellings and mean field: a nat and a bit.
    assert r["log_evidence"] - 2.0 < max(bounds) < r["log_evidence"]


def test_bound_is_scikit_learns_at_its_optimum():
    X = drawn().counts
    theirs = LatentDirichletAllocation(
        N_TOPICS, doc_topic_prior=ALPHA, topic_word_prior=BETA, learning_method="batch", max_iter=60,
        mean_change_tol=1e-10, max_doc_update_iter=5000, random_state=0,
    ).fit(X)  # fmt: skip
    gamma, _ = theirs._e_step(X.astype(float), cal_sstats=False, random_init=False)
    wanted = theirs._approx_bound(X.astype(float), gamma, sub_sampling=False)
    ours = problem(Local(tol=1e-10, limit=5000))
    assert ours.bound(ours.at(theirs.components_)) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("topics", ["posterior", "point"])
@pytest.mark.parametrize("size", [30, 7, 1])
def test_memoised_bound_never_falls_and_is_the_bound(topics, size):
    ours = problem(Local(topics, tol=1e-4, limit=20), batch_size=size)
    n_batches = math.ceil(30 / size)
    found = run(Phase(ours, None, ng.Auto(), ("phi",)), ours.start(1), limits=Limits(15 * n_batches, 0.0), seed=2)
    bounds = found.trace["elbo"]
    # A pass of sampled steps, and one in which each batch is seen.
    exact = 2 * n_batches - 1
    assert np.isnan(bounds[:exact]).all()
    assert np.isfinite(found.trace["elbo_estimate"]).all()
    bounds = bounds[exact:]
    assert np.diff(bounds).min() >= -1e-10 * np.abs(bounds).max()
    assert f"memoised VB in {n_batches} batches" in found.trace.strategy
    # The sums that are kept are those of what is remembered.
    memory = found.state.memory[KEY]
    if n_batches > 1:
        total = sum(kept.messages["phi"][0] for kept in memory.batches)
        np.testing.assert_allclose(memory.messages["phi"][0], total, rtol=1e-9, atol=1e-9)
        assert memory.rest == pytest.approx(sum(kept.rest for kept in memory.batches), rel=1e-10)


def test_map_objective_is_em_and_says_what_it_bounds():
    """At a fixed point E[φ] maximises Σ (counts + β) log φ, and the objective is bound of the words plus log Dir(φ; β + 1)."""
    ours = problem(Local("point", tol=1e-9, limit=500))
    found = run(Phase(ours, ng.VB(), ng.Constant(1.0), ("phi",)), ours.start(1), limits=Limits(300, 1e-12), seed=0)
    phi = (found.state.lam["phi"][0] + 1.0) / (found.state.lam["phi"][0] + 1.0).sum(1, keepdims=True)
    words = ours.infer(found.state, tol=1e-9, limit=500).bound.sum()
    from scipy.stats import dirichlet

    density = sum(dirichlet.logpdf(row / row.sum(), np.full(phi.shape[1], BETA + 1.0)) for row in phi)
    assert found.trace["elbo"][-1] == pytest.approx(words + density, rel=1e-8)


def test_sampled_step_is_the_scaled_message():
    ours = problem(Local(tol=1e-6, limit=50))
    state = ours.start(0)
    step = ng.RobbinsMonro(delay=2.0, forgetting=0.7)
    found = run(Phase(ours, ng.SVI({"doc": 6}, 1e-6, 50), step, ("phi",)), state, limits=Limits(1, 0.0), seed=5)
    chosen = np.sort(np.random.default_rng([5, 0]).choice(30, size=6, replace=False, shuffle=False))
    (counts,) = ours.solve(state, chosen, None, 1e-6, 50).messages["phi"]
    rho = 3.0**-0.7
    wanted = (1 - rho) * state.lam["phi"][0] + rho * (BETA - 1.0 + 5.0 * counts)
    np.testing.assert_allclose(found.state.lam["phi"][0], wanted, rtol=1e-12)


def test_a_sweep_is_the_global_step_from_all_documents():
    ours = problem(Local(tol=1e-6, limit=50))
    state = ours.start(0)
    told = ours.solve_all(state).messages
    moved, info, _ = ours.global_step(state, told)
    swept = ours.sweep(state)
    assert info["phi"].valid
    np.testing.assert_allclose(moved.lam["phi"][0], swept.state.lam["phi"][0], rtol=1e-12)
    np.testing.assert_allclose(moved.lam["phi"][0], ours.prior_of("phi")[0] + told["phi"][0], rtol=1e-12)


def test_unsuitable_methods_are_refused():
    ours = problem()
    for method, error, words in (
        (ng.Children(1), TypeError, "groups are sampled"),
        (ng.SVI({"cell": 3}), ValueError, "called 'doc'"),
        (ng.SVI({"doc": 31}), ValueError, "30 elements"),
    ):
        with pytest.raises(error, match=words):
            run(Phase(ours, method, ng.RobbinsMonro(), ("phi",)), ours.start(0), limits=Limits(1), seed=0)


def test_free_memory_decides_no_more_than_the_schedule():
    """Where batches cannot be remembered, steps are as exact: the bound is there after each, and never falls."""
    ours = problem(batch_size=5)
    found = run(Phase(ours, None, ng.Auto(memory=10), ("phi",)), ours.start(0), limits=Limits(6, 0.0), seed=0)
    assert "coordinate ascent on all groups: remembering" in found.trace.strategy
    assert (np.diff(found.trace["elbo"]) >= 0).all()
    asked = run(
        Phase(ours, ng.SVI({"doc": 5}), ng.Auto(memory=10), ("phi",)), ours.start(0), limits=Limits(2, 0.0), seed=0
    )
    assert "more than there is" in asked.trace.strategy
    assert not asked.state.memory


def test_words_say_why_nothing_of_a_stream_is_remembered():
    ours = problem(batch_size=5)
    found = run(Phase(ours, None, ng.Auto("stream"), ("phi",)), ours.start(0), limits=Limits(2, 0.0), seed=0)
    assert "stream" in found.trace.strategy
    assert not found.state.memory


def test_a_step_with_a_length_is_not_called_rising():
    ours = problem()
    whole = ours, ours.n_groups, 1e-3, 5
    assert not GroupStepper(*whole, ng.Constant(0.5), remember=True).monotone
    assert GroupStepper(*whole, remember=True).monotone


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_documents_are_reset_only_in_runs_without_a_sampler_at_their_start(tol):
    """After sweeps every document was solved from equal shares: resets cost as much as the run and change no prediction."""
    settings = {"inference": "vb", "tol": tol, "max_passes": 500, "verbose": False}
    for given in ({}, {"gibbs_sweeps": 10}):
        assert "probes" not in ng.LDA(5, **settings, **given).fit(COUNTS).trace_.costs
    for given, counts in (({"gibbs_sweeps": 0}, COUNTS), ({"method": ng.VB()}, COUNTS), ({}, COUNTS * 1.5)):
        assert ng.LDA(5, **settings, **given).fit(counts).trace_.costs["probes"].messages > 0


def test_resets_of_single_documents_raise_the_bound():
    """Documents that were left in a poor local optimum (all words in one topic) get out of it; the others stay."""
    ours = LDAProblem(as_corpus(COUNTS), np.full(5, 0.1), 0.05, Local(tol=1e-6, limit=500))
    shares = np.zeros((len(COUNTS), 5))
    shares[np.arange(len(COUNTS)), np.arange(len(COUNTS)) % 5] = 1.0
    state = ng.LDA(5, inference="vb", max_passes=3, tol=0.0, verbose=False).fit(COUNTS)._state._replace(memory={})
    poor = ours.solve(state, None, (ours.doc_prior + COUNTS.sum(1)[:, None] * shares,), *ours.local_limits)
    kept = BatchMemory(poor.rows, {}, poor.rest)
    state = state._replace(memory={KEY: GroupMemory(poor.messages, poor.rest, (kept,))})
    after = reset_better_documents(ours, state, (), 0, 0).memory[KEY]
    bounds = [of.rest + np.sum(of.messages["phi"][0] * state.mu["phi"][0]) for of in (state.memory[KEY], after)]
    assert bounds[1] > bounds[0] + 1.0
    moved = np.abs(after.batches[0].rows[0] - poor.rows[0]).max(1) > 1e-6
    best = ours.solve(state, None, None, *ours.local_limits)
    np.testing.assert_allclose(after.batches[0].rows[0][moved], best.rows[0][moved], atol=1e-2)
