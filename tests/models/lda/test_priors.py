"""Learned priors of `LDA`: the bound does not fall, known priors come back, hostile data do no harm, runs can be resumed."""

import numpy as np
import pytest
from marking import some_rows_slow
from reference.lda import draw_documents

import natgrad as ng
from natgrad.data.corpus import as_corpus
from natgrad.inference.engine import Limits, Phase, run
from natgrad.inference.steppers.groups import KEY
from natgrad.models.lda.dirichlet_prior import RANGE, best_concentrations
from natgrad.models.lda.problem import LDAProblem, Local

BOTH = frozenset({"doc", "topic"})


def problem(topics="vb", learn=BOTH, **options):
    X = draw_documents(60, 30, 4, 40, seed=7, doc_prior=0.3, topic_prior=0.2).counts
    X[::9] = 0
    return LDAProblem(as_corpus(X), np.full(4, 0.4), 0.1, Local(topics, tol=1e-5, limit=30), learn=learn, **options)


@pytest.mark.parametrize(
    ("topics", "learn", "size"),
    some_rows_slow(
        [
            (topics, learn, size)
            for topics in ("posterior", "point")
            for learn in (BOTH, {"doc"}, {"topic"})
            for size in (60, 7)
        ],
        # Every two choices together.
        [
            ("vb", BOTH, 7),
            ("point", BOTH, 60),
            ("vb", {"doc"}, 60),
            ("point", {"doc"}, 7),
            ("vb", {"topic"}, 60),
            ("point", {"topic"}, 7),
        ],
    ),
)
def test_bound_never_falls_and_is_the_bound(topics, learn, size):
    ours = problem(topics, learn, batch_size=size)
    n_batches = -(-60 // size)
    found = run(Phase(ours, None, ng.Auto(), ("phi",)), ours.start(1), limits=Limits(30 * n_batches, 0.0), seed=2)
    bounds = found.trace["elbo"]
    bounds = bounds[np.isfinite(bounds)]
    assert np.diff(bounds).min() >= -1e-10 * np.abs(bounds).max()
    # The bound that is carried along is the one evaluated afresh with the learned priors.
    hyper = found.state.hyper
    fresh = LDAProblem(
        ours.corpus, hyper["doc_prior"], hyper["topic_prior"], Local(topics, tol=1e-9, limit=500), learn=frozenset()
    )
    assert fresh.bound(found.state._replace(hyper={})) == pytest.approx(bounds[-1], rel=3e-3)
    assert ("doc" in learn) == (not np.allclose(hyper["doc_prior"], 0.4))
    assert ("topic" in learn) == (hyper["topic_prior"] != 0.1)


def test_parts_of_the_bound_add_up_to_the_same_whether_priors_are_learned_or_not():
    plain, learning = problem(learn=frozenset()), problem()
    state = plain.start(3)
    assert learning.bound(state) == pytest.approx(plain.bound(state), rel=1e-12)


def test_alpha_is_the_maximum_given_the_documents():
    ours = problem(learn=frozenset({"doc"}))
    found = run(Phase(ours, ng.VB(), ng.Constant(1.0), ("phi",)), ours.start(1), limits=Limits(5, 0.0), seed=0)
    sums, n_filled = found.state.memory[KEY].messages["theta"]
    assert n_filled[0] == (ours.corpus.lengths > 0).sum()
    again = best_concentrations(np.ones(4), sums, float(n_filled[0]))
    np.testing.assert_allclose(found.state.hyper["doc_prior"], again, rtol=1e-4)


def test_learning_raises_the_bound_of_a_converged_fit():
    plain, learning = problem(learn=frozenset()), problem()
    fixed = run(Phase(plain, ng.VB(), ng.Constant(1.0), ("phi",)), plain.start(1), limits=Limits(200, 1e-8), seed=0)
    phase = Phase(learning, ng.VB(), ng.Constant(1.0), ("phi",))
    free = run(phase, fixed.state._replace(memory={}), limits=Limits(50, 0.0), seed=0)
    assert free.trace.last.elbo > fixed.trace.last.elbo + 5.0


@pytest.mark.parametrize(
    ("options", "slack"),
    [
        pytest.param({"gibbs_sweeps": 0}, 0.2, marks=pytest.mark.slow),
        ({"method": ng.SVI({"doc": 100})}, 0.6),
    ],
    ids=["memoised", "sampled"],
)
def test_known_priors_are_recovered(options, slack):
    rng = np.random.default_rng(5)
    alpha, beta = np.array([0.9, 0.3, 0.1, 0.1]), 0.2
    topics = rng.dirichlet(np.full(60, beta), 4)
    shares = rng.dirichlet(alpha, 1000)
    X = np.array([rng.multinomial(100, p) for p in shares @ topics])
    model = ng.LDA(4, doc_prior="learn", topic_prior="learn", seed=0, inference="vb", max_passes=15, **options).fit(X)
    # Mean field takes a document's shares for better known than they are, so large concentrations come out smaller; sampled
    # steps still remember where β started. After 15 passes β is on its way down from 0.5; converged it is 0.13 from any start.
    np.testing.assert_allclose(np.sort(model.doc_prior_)[::-1], alpha, rtol=0.3)
    assert model.topic_prior_ == pytest.approx(beta, rel=slack)


HOSTILE = {
    "one word each": np.eye(30, dtype=int)[np.arange(200) % 30],
    "all the same": np.full((200, 30), 2),
    "one document": np.arange(30)[None],
    "one word": np.full((200, 1), 5),
    "long": 10_000 * np.eye(30, dtype=int)[np.arange(40) % 30],
}


@pytest.mark.parametrize(
    ("name", "options"),
    some_rows_slow(
        [
            (name, options)
            for name in HOSTILE
            for options in ({}, {"local": ng.LocalOptions(topics="point")}, {"method": ng.VB()})
        ],
        [
            *((name, {}) for name in HOSTILE),
            (next(iter(HOSTILE)), {"local": ng.LocalOptions(topics="point")}),
            (next(reversed(HOSTILE)), {"method": ng.VB()}),
        ],
    ),
)
def test_priors_do_not_run_away_on_hostile_data(name, options):
    model = ng.LDA(6, doc_prior="learn", topic_prior="learn", inference="vb", max_passes=12, **options).fit(
        HOSTILE[name]
    )
    assert (model.doc_prior_ >= RANGE[0]).all()
    assert (model.doc_prior_ <= RANGE[1]).all()
    assert RANGE[0] <= model.topic_prior_ <= RANGE[1]
    assert np.isfinite(model.components_).all()
    assert np.isfinite(model.elbo_)
    assert not model.stop_.diverged
    assert np.isfinite(model.transform(HOSTILE[name])).all()


def test_a_problem_that_learns_nothing_is_given_as_it_is():
    ours = problem(learn=frozenset())
    assert ours.hyper is None


@pytest.mark.parametrize("value", ["all", -1.5, [0.1, 0.2]])
def test_wrong_wishes_are_explained(value):
    with pytest.raises(ValueError, match="doc_prior"):
        ng.LDA(3, doc_prior=value).fit(np.eye(3))
