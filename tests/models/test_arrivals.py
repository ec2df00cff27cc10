"""Components that come with later chunks of a stream, or later calls of `partial_fit`: theorems, found numbers, odd chunks."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import natgrad as ng
from natgrad.data.corpus import as_corpus
from natgrad.inference.arrivals import Arrivals
from natgrad.inference.moves import Moves, proposed_moves
from natgrad.inference.problem import State
from natgrad.models.hmm.problem import SequenceProblem
from natgrad.models.lda.problem import LDAProblem
from natgrad.models.mixture.components import MixtureComponents

Floats = npt.NDArray[Any]
COVARIANCES = ("full", "diag", "tied", "spherical")
CENTRES = np.array([[-6.0, 0.0], [6.0, 0.0], [0.0, 9.0], [0.0, -9.0]])


def rows(n: int, used: int, seed: int = 0, width: int = 2) -> Floats:
    """Rows of the first so many clusters."""
    rng = np.random.default_rng(seed)
    return np.hstack([CENTRES, np.zeros((4, width - 2))])[rng.integers(used, size=n)] + rng.normal(size=(n, width))


def chain(n: int, used: int, seed: int = 0) -> Floats:
    """Times of the first so many states, which last."""
    rng = np.random.default_rng(seed)
    states = np.repeat(rng.integers(used, size=n // 10), 10)
    return CENTRES[states] + rng.normal(size=(len(states), 2))


def counts(n: int, used: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """Documents of the first so many topics, of four words each, among sixteen words."""
    rng = np.random.default_rng(seed)
    topics = np.kron(np.eye(4), np.full((1, 4), 0.25))[:used]
    return np.array([rng.multinomial(40, share @ topics) for share in rng.dirichlet(np.full(used, 0.2), n)])


def mixture(**settings: Any) -> ng.GaussianMixture:
    return ng.GaussianMixture(("auto", 8), **settings)


# Those that take some seconds are slow.
EVERY = ["mixture", pytest.param("hmm", marks=pytest.mark.slow), pytest.param("lda", marks=pytest.mark.slow)]
MODELS = {
    "mixture": (mixture, lambda used, seed: rows(120, used, seed), "n_components_"),
    "hmm": (lambda: ng.GaussianHMM(("auto", 8)), lambda used, seed: chain(160, used, seed), "n_states_"),
    "lda": (lambda: ng.LDA(("auto", 8)), lambda used, seed: counts(60, used, seed), "n_topics_"),
}


def state_of_one(problem: Any, scale: float = 1.0) -> State:
    """What all groups tell a single component, ``scale`` times."""
    told = problem.solve(problem.at({n: problem.full_prior(n) for n in problem.blocks}), None, None, 1e-9, 100).messages
    return problem.at({
        n: tuple(p + scale * m for p, m in zip(problem.full_prior(n), told[n], strict=True)) for n in told
    })  # fmt: skip


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_the_bound_given_the_past_is_that_of_all_less_that_of_the_past(covariance: str) -> None:
    """Of one component nothing is hidden: the bound is log p, and log p(chunk | past) = log p(past, chunk) − log p(past)."""
    x = rows(60, 3)
    model = ng.GaussianMixture(1, covariance=covariance).fit(x)
    past, chunk, both = (model._problem(model._model_, part, None) for part in (x[:35], x[35:], x))
    before = state_of_one(past)
    chunk.past = {n: tuple(g - p for g, p in zip(before.lam[n], past.full_prior(n), strict=True)) for n in before.lam}
    wanted = both.bound(state_of_one(both)) - past.bound(before)
    assert chunk.bound(state_of_one(chunk)) == pytest.approx(wanted, rel=1e-9)


def test_the_bound_of_states_and_of_topics_given_the_past() -> None:
    x = chain(80, 2)
    model = ng.GaussianHMM(1).fit(x)
    past, chunk, both = (
        SequenceProblem(model._sequences(part, lengths, None, model._model_.emission), model._model_)
        for part, lengths in ((x[:50], None), (x[50:], None), (x, [50, 30]))
    )
    before = state_of_one(past)
    chunk.past = {n: tuple(g - p for g, p in zip(before.lam[n], past.full_prior(n), strict=True)) for n in before.lam}
    wanted = both.bound(state_of_one(both)) - past.bound(before)
    assert chunk.bound(state_of_one(chunk)) == pytest.approx(wanted, rel=1e-9)

    documents = counts(20, 3)
    old, new, all_ = (
        LDAProblem(as_corpus(part), np.array([0.3]), 0.1) for part in (documents[:12], documents[12:], documents)
    )
    told, total = (part.sum(0)[None].astype(float) for part in (documents[:12], documents))
    new.past = {"phi": (told,)}
    wanted = all_.bound(all_.at(total + 0.1)) - old.bound(old.at(told + 0.1))
    assert new.bound(new.at(total + 0.1)) == pytest.approx(wanted, rel=1e-6)  # documents are solved in single precision


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_what_is_apart_is_what_a_second_component_gains(covariance: str) -> None:
    """A of the past in one and the chunk in another, less A of both in one; less than nothing if they were drawn alike."""
    for shift, sign in ((4.0, 1.0), (0.0, -1.0)):
        x = np.concatenate([rows(30, 1), rows(20, 1, 1) + np.array([shift, 0.0])])
        model = ng.GaussianMixture(1, covariance=covariance).fit(x)
        two, past, chunk = (
            model._problem(model._model_._replace(alpha=np.ones(2)), part, None) for part in (x, x[:30], x[30:])
        )
        chunk.past = past.clustered(np.ones((1, 30)), [0])
        apart = MixtureComponents(chunk).apart(chunk.clustered(np.ones((1, 20)), [0]), 1)
        first = (np.arange(50) < 30).astype(float)
        family, prior = two.emission.family, two.full_prior("components")
        sums = [
            np.sum(family.log_normalizer(tuple(p + m for p, m in zip(prior, told["components"], strict=True))))
            for told in (two.clustered(np.stack(member)) for member in ((first, 1.0 - first), (first**0, 0.0 * first)))
        ]
        assert apart[0] == pytest.approx(sums[0] - sums[1], rel=1e-9)
        assert sign * apart[0] > 0.0


@pytest.mark.parametrize("name", EVERY)
def test_components_that_come_later_are_found(name: str) -> None:
    """In a stream and by partial_fit; every move that was accepted raised the bound of its chunk."""
    make, draw, found = MODELS[name]
    chunks = [draw(2, 1), draw(2, 2), draw(4, 3), draw(4, 4)]
    model = make().fit(iter(chunks))
    assert getattr(model, found) == 4
    assert model.trace_.n_active().tolist()[:2] == [2, 2]
    assert model.trace_.n_active()[-1] == 4
    assert all(move.t in (0, 2) or not move.accepted for move in model.trace_.moves) or name == "lda"
    accepted = [move for move in model.trace_.moves if move.t > 0 and move.accepted]
    assert all(move.gain > 0.0 and np.isfinite(move.bound) for move in accepted)
    steps = make()
    for chunk in chunks:
        steps.partial_fit(chunk)
    assert getattr(steps, found) == 4
    assert steps.trace_.n_active().tolist() == [2, 2, 4, 4]
    assert len(steps.trace_) == steps.n_steps_ == 4


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("seed", [0, pytest.param(100, marks=pytest.mark.slow)])
def test_nothing_is_born_where_nothing_is_new(name: str, seed: int) -> None:
    make, draw, found = MODELS[name]
    chunks = [draw(3, seed + number) for number in range(6)]
    model = make().fit(iter(chunks))
    whole = make().fit(chunks if name == "hmm" else np.concatenate(chunks))
    assert getattr(model, found) == getattr(whole, found) == 3
    assert not [move for move in model.trace_.moves if move.t > 0 and move.accepted]


def test_the_past_counts_what_was_seen_not_what_was_promised() -> None:
    """λ that stands for a thousand times as many rows is the same past, and the same moves follow."""
    x, new = rows(120, 2), rows(120, 4, 5)
    model = mixture().fit(x)
    problem = model._problem(model._model_, new, None)
    found = []
    for scale in (1.0, 1000.0):
        lam = {
            n: tuple(p + scale * (g - p) for g, p in zip(model._state.lam[n], problem.full_prior(n), strict=True))
            for n in problem.blocks
        }
        state = problem.at(lam, 1)
        look = Arrivals(model._components, model._room, lambda wide, after: (wide, after), 1e-6, 0)
        solved = problem.solve(state, None, None, 1e-6, 1)
        found.append(look.look(problem, state, solved, 120.0, 120.0))
    one, many = found
    assert [(m.kind, m.components) for m in one.moves] == [(m.kind, m.components) for m in many.moves]
    known = [move.gain for move in one.moves if np.isfinite(move.gain)]
    assert known == pytest.approx([move.gain for move in many.moves if np.isfinite(move.gain)], rel=1e-6, abs=1e-6)
    assert one.grown is not None
    assert many.grown is not None
    # The clock is that of the stream: when its time is up, nothing more is tried.
    late = look.look(problem, state, solved, 120.0, 120.0, late=lambda: True)
    assert late.grown is None
    assert late.moves == []
    (wide, few), (_, more) = one.grown, many.grown
    held = MixtureComponents(wide).held
    assert held(more) == pytest.approx(1000.0 * held(few), rel=1e-6)
    promised = mixture().partial_fit(x).partial_fit(new, n_rows=1e6)
    assert promised.n_components_ == 4


def test_components_that_were_known_are_neither_merged_nor_deleted() -> None:
    x = rows(120, 4)
    model = mixture().fit(x)
    problem, _ = model._room(model._problem(model._model_, x, None), model._state) or (None, None)
    assert problem is not None
    parts = MixtureComponents(problem)
    member = np.zeros((8, 120))
    member[np.arange(120) % 8, np.arange(120)] = 1.0  # all alike: every merge gains
    state = problem.updated(problem.clustered(member))
    parts.known = np.arange(8) < 5
    made = [p for p in proposed_moves(Moves((parts,)), state, (), 0) if p.kind in ("merge", "delete")]
    assert {p.kind for p in made} == {"merge", "delete"}
    assert all(p.components[-1] >= 5 for p in made)
    nothing = problem.at({n: problem.full_prior(n) for n in problem.blocks})
    assert parts.active(nothing).tolist() == [True] * 5 + [False] * 3


@pytest.mark.parametrize(("scale", "shift"), [(1e6, 0.0), (1.0, 1e9), pytest.param(1e-6, 0.0, marks=pytest.mark.slow)])
def test_units_and_origins_change_nothing(scale: float, shift: float) -> None:
    chunks = [rows(120, 2), rows(120, 4, 1), rows(120, 4, 2)]
    plain, moved = mixture().fit(iter(chunks)), mixture().fit(iter([scale * chunk + shift for chunk in chunks]))
    assert moved.n_components_ == plain.n_components_ == 4
    assert [(move.kind, move.components) for move in moved.trace_.moves if move.accepted] == [
        (move.kind, move.components) for move in plain.trace_.moves if move.accepted
    ]
    assert (moved.means_ - shift) / scale == pytest.approx(plain.means_, abs=1e-3)


def test_odd_chunks() -> None:
    """A chunk in which a group is empty, one row, one row far away, none but new rows, rows that do not count, and no room."""
    begun = mixture().partial_fit(rows(120, 3))
    assert begun.n_components_ == 3
    assert begun.partial_fit(rows(60, 2, 1)).n_components_ == 3
    assert begun.partial_fit(rows(1, 1, 2)).n_components_ == 3
    far = rows(80, 1, 3) * 0.1 + [0.0, -60.0]
    weighted = np.append(np.ones(60), np.zeros(80))
    assert begun.partial_fit(np.concatenate([rows(60, 3, 4), far]), sample_weight=weighted).n_components_ == 3
    assert begun.partial_fit(far).n_components_ == 4
    assert begun.means_[:, 1].min() == pytest.approx(-60.0, abs=0.5)
    assert begun.partial_fit(rows(1, 1, 5) + 1e4).n_components_ == 5
    full = ng.GaussianMixture(("auto", 2)).partial_fit(rows(100, 2)).partial_fit(rows(100, 4, 1))
    assert full.n_components_ == 2
    given = ng.GaussianMixture(2).fit(iter([rows(100, 2), rows(100, 4, 1)]))
    assert given.n_components_ == 2
    assert not given.trace_.moves


def test_two_come_on_both_sides_of_one_that_was_known() -> None:
    """Together they are a wide cluster with its centre where the known one has its own."""
    sides = np.repeat([[12.0, 8.0], [0.0, -8.0]], 30, axis=0) + np.random.default_rng(0).normal(size=(60, 2))
    late = np.concatenate([rows(40, 2), sides])
    model = mixture().partial_fit(rows(150, 2, 1)).partial_fit(late)
    assert model.n_components_ == 4
    assert (np.linalg.norm(model.means_[:, None] - [[12.0, 8.0], [0.0, -8.0]], axis=-1).min(0) < 1.0).all()


def test_what_is_read_again_is_no_news() -> None:
    """Chunks that can be read again bring components in the first pass alone; the next ones count them."""
    chunks = [rows(120, 2), rows(120, 4, 1), rows(120, 4, 2)]
    model = mixture(max_passes=3, tol=0).fit(chunks)
    assert model.n_components_ == 4
    assert max(move.t for move in model.trace_.moves) < 3
    assert len(model.trace_) == 9


@pytest.mark.slow
def test_states_and_topics_of_every_kind() -> None:
    states = [np.repeat(np.random.default_rng(seed).integers(used, size=40), 10) for seed, used in ((0, 2), (1, 4))]
    rng, rates = np.random.default_rng(2), np.array([1.0, 60.0, 15.0, 200.0])
    draws = [rng.poisson(rates[z])[:, None] for z in states]
    assert ng.PoissonHMM(("auto", 8)).fit(iter(draws)).n_states_ == 4
    tracks = [(rng.random((400, 6)) < np.eye(4, 6)[z] * 0.8 + 0.1).astype(int) for z in states]
    assert ng.BernoulliHMM(("auto", 8)).fit(iter(tracks)).n_states_ == 4
    symbols = [(z + 4 * rng.integers(2, size=400))[:, None] for z in states]
    assert ng.CategoricalHMM(("auto", 8), categories=8).fit(iter(symbols)).n_states_ == 4
    # Weights are no tokens, which a sampler could move.
    weights = [0.5 * counts(60, 2, 1), 0.5 * counts(60, 3, 2)]
    assert ng.LDA(("auto", 8)).fit(iter(weights)).n_topics_ == 3


@pytest.mark.slow
def test_words_and_topics_that_come_together() -> None:
    """Named words that no earlier chunk had, in documents of a topic of their own."""
    texts = [["apple pear plum " * 4, "bolt nut screw " * 4] * 20, ["sea wave tide " * 4, "bolt nut screw " * 4] * 20]
    model = ng.LDA(("auto", 6))
    for chunk in texts:
        model.partial_fit(as_corpus(chunk))
    assert model.n_topics_ == 3
    assert {"sea tide wave"} < {" ".join(sorted(words)) for words in model.top_words(3)}
