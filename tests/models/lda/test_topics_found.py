"""`n_topics="auto"`: topics are born, merged and deleted on the exact bound, with a learned prior of their shares."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from generators.moves import random_move
from marking import some_slow

import natgrad as ng
from natgrad.data.corpus import as_corpus
from natgrad.inference.engine import Limits, Phase, run
from natgrad.inference.group_components import GroupComponents
from natgrad.inference.moves import Moves, proposed_moves
from natgrad.inference.steppers.groups import KEY, GroupStepper
from natgrad.models.lda.components import TopicComponents, found_topics
from natgrad.models.lda.parts import Local
from natgrad.models.lda.problem import LDAProblem


def counts(n_documents: int = 60, k: int = 3) -> npt.NDArray[np.int64]:
    """Topics of four words each; a document has one or two of them."""
    rng = np.random.default_rng(0)
    topics = np.kron(np.eye(k), np.full((1, 4), 0.25))
    shares = rng.dirichlet(np.full(k, 0.2), n_documents)
    return np.array([rng.multinomial(25, share @ topics) for share in shares])


@pytest.fixture(scope="module")
def fitted() -> ng.LDA:
    return ng.LDA(("auto", 6), inference="vb", max_passes=100).fit(counts())


def test_topics_are_found_and_the_bound_never_falls(fitted: ng.LDA) -> None:
    assert fitted.n_topics_ == 3 == len(fitted.topics_) == len(fitted.doc_prior_)
    bounds = fitted.trace_["elbo"]
    assert (np.diff(bounds) >= -1e-6 * np.abs(bounds[1:])).all()  # documents are solved in single precision
    blocks = fitted.topics_.reshape(3, 3, 4).sum(2)
    assert sorted(blocks.argmax(1).tolist()) == [0, 1, 2]
    assert (blocks.max(1) > 0.95).all()
    assert fitted.transform(counts()).shape == (60, 3)
    assert fitted.trace_.n_active()[0] == 1
    assert fitted.posterior_["theta"].mean().shape == (60, 3)


def test_results_are_those_of_the_topics_that_were_found() -> None:
    """The largest first, each with its own concentration; and what a pair may gain is what any components' rule says."""
    corpus, alpha = as_corpus(counts()), np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    problem = LDAProblem(corpus, alpha, 0.05, learn=frozenset({"doc"}), truncated=True)
    topics = np.full((5, corpus.n_words), 0.05)
    topics[[3, 1, 4]] += np.random.default_rng(1).gamma(1.0, [[2.0], [20.0], [6.0]], (3, corpus.n_words))
    state = problem.at(topics)._replace(hyper={"doc_prior": alpha, "topic_prior": 0.05})
    fewer, after = found_topics(problem, state)
    assert fewer.n_topics == 3
    assert np.asarray(after.lam["phi"][0]) + 1.0 == pytest.approx(topics[[1, 4, 3]])
    assert after.hyper["doc_prior"].tolist() == [0.2, 0.5, 0.4]
    parts = TopicComponents(problem)
    alike, usual = parts.likeness(state), GroupComponents.likeness(parts, state)
    assert alike[alike > -np.inf] == pytest.approx(usual[usual > -np.inf], rel=1e-9)
    assert ((alike > -np.inf) == (usual > -np.inf)).all()


def test_empty_topics_change_nothing() -> None:
    """The bound of K topics with room for more is that of K topics."""
    corpus, alpha = as_corpus(counts()), np.full(3, 0.1)
    narrow = LDAProblem(corpus, alpha, 0.05, learn=frozenset({"doc"}))
    wide = LDAProblem(corpus, np.full(7, 0.1), 0.05, learn=frozenset({"doc"}), truncated=True)
    topics = np.random.default_rng(1).gamma(1.0, 10.0, (3, corpus.n_words)) + 0.05
    more = np.vstack([topics, np.full((4, corpus.n_words), 0.05)])
    assert wide.bound(wide.at(more)) == pytest.approx(narrow.bound(narrow.at(topics)), rel=1e-10)


@pytest.mark.parametrize("room", [0, 2])
def test_a_topic_that_no_document_uses_is_still_a_part_of_their_shares(room: int) -> None:
    """It has a word that nobody uses, and gets no token at all: the bound is that of three topics until a sweep empties it."""
    corpus = as_corpus(np.hstack([counts(), np.zeros((60, 1), int)]))
    narrow = LDAProblem(corpus, np.array([0.1, 0.1, 1e-3]), 0.05, learn=frozenset({"doc"}))
    alpha = np.append([0.1, 0.1, 1e-3], np.full(room, 0.1))
    wide = LDAProblem(corpus, alpha, 0.05, learn=frozenset({"doc"}), truncated=True)
    topics = np.vstack([np.random.default_rng(1).gamma(1.0, 10.0, (2, 13)), 1e4 * np.eye(13)[12]]) + 0.05
    state = wide.at(np.vstack([topics, np.full((room, corpus.n_words), 0.05)]))
    solved = wide.solve(state, None, None, *wide.local_limits)
    told = np.array(solved.messages["phi"][0])
    assert told[2].max() < 1e-30
    told[2] = 0.0  # as compiled kernels have it
    messages = {**solved.messages, "phi": (told,)}
    wanted = narrow.bound(narrow.at(topics))
    assert solved.rest + wide.global_bound(state.lam, state.mu, messages) == pytest.approx(wanted, rel=1e-10)
    assert wide.places(wide.sweep(state).state).tolist() == [0, 1]


def test_words_that_are_all_as_frequent_are_a_topic() -> None:
    """The counts of one topic for all words are all equal, which its prior is, too."""
    model = ng.LDA(("auto", 4), inference="vb", max_passes=30).fit(np.kron(np.eye(3, dtype=int), np.full((10, 4), 6)))
    assert model.n_topics_ == 3
    assert ng.LDA(("auto", 4), inference="vb", max_passes=30).fit(np.full((8, 5), 3)).n_topics_ == 1


def test_both_priors_are_learned_unless_only_one_is_asked_for(fitted: ng.LDA) -> None:
    assert fitted.topic_prior_ <= 0.05
    asked = ng.LDA(("auto", 6), inference="vb", max_passes=100, topic_prior=0.05).fit(counts())
    assert asked.topic_prior_ == 0.05
    assert asked.n_topics_ == 3
    assert len(set(fitted.doc_prior_.tolist())) == 3


def test_several_births_at_once() -> None:
    corpus = as_corpus(counts(k=6))
    problem = LDAProblem(corpus, np.full(6, 0.1), 0.05, learn=frozenset({"doc", "topic"}), truncated=True)
    words = np.bincount(corpus.words, corpus.counts, corpus.n_words)
    two = np.kron(np.eye(2), np.ones((1, 12))) * words  # each has the words of three topics
    parts, state = TopicComponents(problem), problem.at(np.vstack([two, np.zeros((4, 24))]) + 0.05)
    births = {k: parts.split(state, k, [place], 0, 0) for k, place in ((0, 2), (1, 5))}
    assert all(births.values())
    both = parts.together(state, births)  # type: ignore[arg-type]
    assert parts.active(both).tolist() == [True, True, True, False, False, True]
    back = parts.merge(parts.merge(both, 0, 2), 1, 5)
    assert back.lam["phi"][0] == pytest.approx(state.lam["phi"][0], rel=1e-10, abs=1e-10)
    # Parts of a share have its concentration together.
    assert both.hyper["doc_prior"][[0, 2]].sum() == pytest.approx(0.1)
    assert back.hyper["doc_prior"][:2] == pytest.approx(0.1)


def test_topics_begun_anew_are_tried_once_each_and_raise_the_bound(fitted: ng.LDA) -> None:
    tried = [move.components for move in fitted.trace_.moves if move.kind == "anew"]
    assert tried
    assert len(set(tried)) == len(tried)
    problem = LDAProblem(as_corpus(counts()), np.full(12, 0.1), 0.05, learn=frozenset({"doc", "topic"}), truncated=True)
    parts, state = TopicComponents(problem), problem.start(0)
    found = parts.anew(state, 8, 0)
    assert found is not None
    assert parts.active(found).sum() <= 8
    assert parts.held(found).sum() == pytest.approx(as_corpus(counts()).n_tokens, rel=1e-6)
    assert (found.lam["phi"][0][8:] == found.hyper["topic_prior"] - 1.0).all()


def test_a_topic_that_is_a_blend_of_others_is_deleted() -> None:
    """It is like none of them, so that no merge is worth a pass; what its delete gains is known before one."""
    corpus = as_corpus(counts())
    problem = LDAProblem(
        corpus, np.full(5, 0.1), 0.05, Local(dtype=np.float64), learn=frozenset({"doc"}), truncated=True
    )
    words = np.bincount(corpus.words, corpus.counts, corpus.n_words)
    pure = np.kron(np.eye(3), np.ones((1, 4)))
    topics = np.vstack([0.7 * words * pure, 0.3 * words * (pure[0] + pure[1]), np.zeros((1, 12))]) + 0.05
    topics[2] = words * pure[2] + 0.05
    parts, state = TopicComponents(problem), problem.at(topics)
    alike = parts.likeness(state)
    assert alike[np.isfinite(alike)].max() < -100.0
    gains = parts.delete_gains(state, 0)
    assert gains.argmax() == 3
    assert gains[3] > 0.0 > gains[:3].max()
    assert gains[4] == -np.inf
    for k in range(4):  # documents without words of it gain besides: their prior has a topic less
        exact = problem.bound(parts.delete(state, k)) - problem.bound(state)
        assert gains[k] <= exact + 1e-3
        assert gains[k] == pytest.approx(exact, rel=0.2, abs=60 * 0.1 * 5.0)
    offered = [
        (p.kind, p.components) for p in proposed_moves(Moves((parts,)), state, (), 0) if p.kind in ("merge", "delete")
    ]
    assert offered == [("delete", (3,))]
    found = run(Phase(problem, ng.VB(), order=("phi",), moves=Moves((parts,))), state, limits=Limits(300, 1e-3), seed=0)
    assert parts.active(found.state).tolist() == [True, True, True, False, False]


def test_a_sampler_leaves_what_passes_do_not() -> None:
    """Every topic has a third of the words of each: passes stay there, sweeps of a sampler lead to the topics."""
    corpus = as_corpus(counts())
    problem = LDAProblem(corpus, np.full(3, 0.1), 0.05)
    words = np.bincount(corpus.words, corpus.counts, corpus.n_words)
    parts, poor = TopicComponents(problem), problem.at(np.tile(words / 3.0, (3, 1)) + 0.05)
    found = parts.explored(poor, 0, 0)
    assert found is not None
    assert parts.told(found)["phi"][0].sum(0) == pytest.approx(words)  # every token is somewhere
    blocks = np.asarray(found.lam["phi"][0] + 1.0).reshape(3, 3, 4).sum(2)
    assert sorted(blocks.argmax(1).tolist()) == [0, 1, 2]
    assert problem.bound(found) > problem.bound(poor) + 500.0
    # Sweeps are a function of the state, the number and the seed.
    again, other = parts.explored(poor, 0, 0), parts.explored(poor, 1, 0)
    assert again is not None
    assert other is not None
    assert (again.lam["phi"][0] == found.lam["phi"][0]).all()
    assert (other.lam["phi"][0] != found.lam["phi"][0]).any()
    # Refused once, they are not proposed again with as many topics.
    kept = run(
        Phase(problem, ng.VB(), order=("phi",), moves=Moves((parts,), keep=True)),
        poor,
        limits=Limits(300, 1e-3),
        seed=0,
    )
    fates = [move.accepted for move in kept.trace.moves if move.kind == "explore"]
    assert fates == [True] * (len(fates) - 1) + [False]
    weights = LDAProblem(as_corpus(counts() * 0.5), np.full(3, 0.1), 0.05)
    assert TopicComponents(weights).explored(weights.at(np.asarray(poor.lam["phi"][0]) + 1.0), 0, 0) is None


@pytest.mark.parametrize("lost", [1, 3])
def test_words_that_another_topic_took_are_given_back(lost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No sweep leaves a state in which the documents of one topic have some of its words from another one."""
    corpus = as_corpus(counts())
    problem = LDAProblem(corpus, np.full(3, 0.1), 0.05)
    topics = np.kron(np.eye(3), np.ones((1, 4))) * np.bincount(corpus.words, corpus.counts, corpus.n_words)
    topics[0, 4 : 4 + lost], topics[1, 4 : 4 + lost] = topics[1, 4 : 4 + lost], 0.0
    parts = TopicComponents(problem)
    monkeypatch.setattr(parts, "explored", lambda *_: None)  # an exchange alone
    moves = Moves((parts,), keep=True)
    stuck, freed = (
        run(
            Phase(problem, ng.VB(), order=("phi",), moves=asked),
            problem.at(topics + 0.05),
            limits=Limits(300, 1e-3),
            seed=0,
        )
        for asked in (None, moves)
    )
    good = problem.at(np.kron(np.eye(3), np.full((1, 4), 100.0)) + 0.05)
    best = run(Phase(problem, ng.VB(), order=("phi",)), good, limits=Limits(300, 1e-3), seed=0)
    assert stuck.trace.last.elbo < best.trace.last.elbo - 100.0
    assert freed.trace.last.elbo == pytest.approx(best.trace.last.elbo, rel=1e-3)  # single documents may differ
    assert [m.components for m in freed.trace.moves if m.accepted] == [(0, 1, 0)]


@pytest.mark.parametrize("seed", some_slow(range(3), [0]))
def test_keep_ends_no_lower_than_the_fit_alone(seed: int) -> None:
    options: dict[str, Any] = {"seed": seed, "inference": "vb", "doc_prior": "learn", "max_passes": 100}
    alone, kept = ng.LDA(3, **options).fit(counts()), ng.LDA(3, **options).fit(counts(), moves="keep")
    assert kept.elbo_ >= alone.elbo_ - 1e-4 * abs(alone.elbo_)
    assert kept.n_topics_ == 3


@pytest.mark.parametrize("n_moves", [20, pytest.param(1_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("n_batches", [1, 3])
def test_statistics_after_random_moves_are_those_of_the_documents(n_moves: int, n_batches: int) -> None:
    corpus = as_corpus(counts(30))
    problem = LDAProblem(
        corpus, np.full(6, 0.1), 0.05, Local(dtype=np.float64), learn=frozenset({"doc", "topic"}), truncated=True
    )
    parts, state = TopicComponents(problem), problem.start(0)
    stepper = GroupStepper(problem, 30 // n_batches, 0.0, 5, remember=True)
    words = np.bincount(corpus.words, corpus.counts, corpus.n_words)
    rng, kinds = np.random.default_rng(0), set()
    for number in range(n_moves):
        state, kind = random_move(parts, state, number, rng, 6)
        kinds.add(kind)
        for _ in range(2 * stepper.n_batches):
            state = stepper.step(state, 0)[0]
        told, kept = parts.told(state)["phi"][0], state.memory[KEY]
        assert told.sum(0) == pytest.approx(words, rel=1e-10, abs=1e-10)
        said = sum(np.asarray(batch.messages["phi"][0]) for batch in kept.batches) if n_batches > 1 else told
        assert np.abs(told - said).max() <= 1e-10 * words.max()
    assert kinds == {0, 1, 2}


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match='it takes topics="posterior"'):
        ng.LDA("auto", inference="vb", local=ng.LocalOptions(topics="point")).fit(counts())
    with pytest.raises(ValueError, match="n_topics must be"):
        ng.LDA("few").fit(counts())  # type: ignore[arg-type]
