"""Births, merges and deletes: the exact bound never falls, statistics are those of the data, and a run goes on bit by bit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import natgrad as ng
from natgrad.inference.engine import Round
from natgrad.inference.group_components import HOPELESS
from natgrad.inference.moves import Moves, Proposal, proposals
from natgrad.inference.problem import State
from natgrad.inference.steppers.groups import KEY, GroupStepper
from natgrad.inference.steppers.stepper import StepInfo
from natgrad.models.mixture.components import MixtureComponents, found_components
from natgrad.models.mixture.problem import MixtureProblem

Floats = npt.NDArray[np.float64]
CENTRES = np.array([[-9.0, 0.0], [0.0, 9.0], [9.0, 0.0], [0.0, -9.0]])


def rows(n: int = 240, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    found: Floats = CENTRES[rng.integers(4, size=n)] + rng.normal(size=(n, 2))
    return found


@pytest.fixture(scope="module")
def fitted() -> ng.GaussianMixture:
    return ng.GaussianMixture(("auto", 8), seed=3).fit(rows())


@pytest.fixture(scope="module")
def problem() -> MixtureProblem:
    model = ng.GaussianMixture(("auto", 6))
    x = rows()
    return model._problem(model._prepared(x, None), x, None)


def settled(problem: MixtureProblem, k: int = 3, sweeps: int = 30) -> State:
    """A state of ``k`` components."""
    member = np.zeros((6, problem.n_groups))
    member[np.argmin(((problem.data.x[:, None] - CENTRES[:k]) ** 2).sum(-1), 1), np.arange(problem.n_groups)] = 1.0
    state = problem.updated(problem.clustered(member))
    for _ in range(sweeps):
        state = problem.sweep(state).state
    return state


def test_the_number_is_found_and_results_follow(fitted: ng.GaussianMixture) -> None:
    assert fitted.n_components_ == 4 == len(fitted.weights_) == len(fitted.means_)
    assert (np.diff(fitted.weights_) <= 0).all()
    distance = np.linalg.norm(fitted.means_[:, None] - CENTRES, axis=-1)
    assert (distance.min(1) < 0.5).all()
    assert len(set(distance.argmin(1))) == 4
    labels = fitted.predict(rows())
    assert np.bincount(labels, minlength=4) / 240 == pytest.approx(fitted.weights_, abs=0.02)


def test_the_bound_never_falls_and_every_accepted_move_raises_it(fitted: ng.GaussianMixture) -> None:
    bounds, moves = fitted.trace_["elbo"], fitted.trace_.moves
    assert (np.diff(bounds) >= -1e-9 * np.abs(bounds[1:])).all()
    accepted = [move for move in moves if move.accepted and move.kind != "start"]
    assert accepted
    assert accepted[0].kind == "birth"
    for move in accepted:
        before, after = bounds[fitted.trace_["t"] == move.t], bounds[fitted.trace_["t"] == move.t + 1]
        assert move.bound == before[0]
        assert after[0] - before[0] == pytest.approx(move.gain)
        assert move.gain > 0
    assert "birth" in {move.kind for move in moves if not move.accepted}
    assert fitted.trace_.n_active().tolist()[0] == 1
    assert fitted.trace_.n_active()[-1] == 4


def test_the_bound_is_that_of_the_whole_model(problem: MixtureProblem) -> None:
    """Components at their prior change nothing: the same state in a model that lets them hold rows, which is looser."""
    state = settled(problem)
    other = MixtureProblem(problem.model, problem.data.x, None)
    assert other.bound(state) == pytest.approx(problem.bound(state), abs=1e-6)
    assert other.bound(state) >= problem.bound(state) - 1e-9


@pytest.mark.parametrize("n_moves", [30, pytest.param(1_000, marks=pytest.mark.slow)])
def test_statistics_after_random_moves_are_those_of_the_data(n_moves: int) -> None:
    """Memoised in three batches: the sums that were exchanged 1,000 times over are those of the rows."""
    model, x = ng.GaussianMixture(("auto", 6)), rows(48)
    problem = model._problem(model._prepared(x, None), x, None, batch_size=16)
    parts, state = MixtureComponents(problem), settled(problem, 3, 5)
    stepper = GroupStepper(problem, 16, 0.0, 1, remember=True)
    origin, rng, kinds = problem.model.origin, np.random.default_rng(0), set()
    for number in range(n_moves):
        active = np.flatnonzero(parts.active(state))
        kind = rng.integers(3) if 1 < len(active) < 6 else 0 if len(active) < 6 else 1
        k = int(rng.choice(active))
        if kind == 0:
            birth = parts.split(state, k, np.flatnonzero(~parts.active(state)).tolist()[:1], number, 0)
            state = state if birth is None else birth.state
            kinds.add(kind if birth is not None else -1)
        else:
            other = int(rng.choice(active[active != k]))
            state = parts.merge(state, k, other) if kind == 1 else parts.delete(state, k)
            kinds.add(kind)
        memory: Mapping[str, Any] = {}  # of the steps before, which a run forgets after a move
        for _ in range(2 * stepper.n_batches):  # the second pass exchanges what the first one remembered
            before = state._replace(memory=memory)
            state = stepper.step(before, 0)[0]
            memory = state.memory
        # Whatever the components are, together they hold every row once.
        told = parts.told(state)
        assert told["weights"][0].sum() == pytest.approx(48.0, rel=1e-10)
        sums = [np.asarray(part).sum(0) for part in told["components"]]
        for wanted in ((x - origin).sum(0), (x - origin).T @ (x - origin)):
            assert any(s.shape == wanted.shape and _same(s, wanted) for s in sums)
        # And what is held is what its batches said, each of them when it was read last.
        kept = state.memory[KEY]
        for name, stats in told.items():
            for i, part in enumerate(stats):
                assert _same(part, sum(batch.messages[name][i] for batch in kept.batches))
    assert {0, 1, 2} <= kinds
    # The batch that was read last, by memberships at the state before, written out.
    from natgrad.models.mixture.problem import memberships

    rows_of_batch = stepper._cut(0)[stepper._next(before, 0)]
    assert rows_of_batch is not None
    sent = problem.sent(before)
    q = sent.spread(memberships(x[rows_of_batch], sent)[1])
    said = state.memory[KEY].batches[stepper._next(before, 0)].messages["weights"][0]
    assert said == pytest.approx(q.sum(1), rel=1e-10, abs=1e-10)


def _same(found: Floats, wanted: Floats) -> bool:
    """To 1e-10 of the largest entry, or with the sign that natural parameters of a precision have, −½ of the squares."""
    scale = 1e-10 * max(1.0, float(np.abs(wanted).max()))
    return any(bool((np.abs(found - factor * wanted) <= scale).all()) for factor in (1.0, -0.5, -1.0))


def test_a_delete_empties_one_component_and_leaves_the_others(problem: MixtureProblem) -> None:
    parts, state = MixtureComponents(problem), settled(problem)
    after = parts.delete(state, 1)
    assert parts.active(after).tolist() == [True, False, True, False, False, False]
    for name, axes in parts.axes.items():
        for a, b, prior, own in zip(after.lam[name], state.lam[name], problem.full_prior(name), axes, strict=True):
            kept = [0, 2, 3, 4, 5]
            assert (np.take(a, 1, own[0]) == np.take(prior, 1, own[0])).all()
            assert np.take(a, kept, own[0]) == pytest.approx(np.take(b, kept, own[0]), rel=1e-12)


def test_results_are_those_of_the_components_that_were_found(problem: MixtureProblem) -> None:
    """The heaviest first, each with its own concentration."""
    uneven = problem.model._replace(alpha=np.arange(1.0, 7.0))
    other = MixtureProblem(uneven, problem.data.x, None)
    member = np.zeros((6, 240))
    for place, begin, end in ((4, 0, 40), (0, 40, 180), (2, 180, 240)):
        member[place, begin:end] = 1.0
    state = other.updated(other.clustered(member))
    model, after = found_components(other, state)
    assert model.alpha.tolist() == [1.0, 3.0, 5.0]
    for name, axes in MixtureComponents(other).axes.items():
        for a, b, own in zip(after.lam[name], state.lam[name], axes, strict=True):
            assert (a == np.take(b, [0, 2, 4], own[0])).all()


def test_what_was_told_before_a_move_stands_for_batches_that_are_not_read_again() -> None:
    model, x = ng.GaussianMixture(("auto", 6)), rows(48)
    problem = model._problem(model._prepared(x, None), x, None, batch_size=16)
    parts, state = MixtureComponents(problem), settled(problem, 3, 5)
    merged = parts.merge(state._replace(t=9), 0, 1)
    after = GroupStepper(problem, 16, 0.0, 1, remember=True).step(merged, 0)[0]
    for name, told in parts.told(after).items():
        for a, before, own in zip(told, parts.told(merged)[name], after.memory[KEY].messages[name], strict=True):
            assert np.asarray(a) == pytest.approx(own + (1 - 16 / 48) * before, abs=1e-9)


def test_a_merge_after_a_birth_restores_the_state(problem: MixtureProblem) -> None:
    parts, state = MixtureComponents(problem), settled(problem, 3, 200)
    for k in range(3):
        birth = parts.split(state, k, [4], 0, 0)
        assert birth is not None
        assert parts.active(birth.state).sum() == 4
        back = parts.merge(birth.state, k, 4)
        for name in state.lam:
            for a, b in zip(back.lam[name], state.lam[name], strict=True):
                assert a == pytest.approx(b, rel=1e-10, abs=1e-9 * np.abs(b).max())


def test_the_likeness_of_a_pair_bounds_what_its_merge_gains(problem: MixtureProblem) -> None:
    """Before another sweep: the memberships of the two added up, and their entropy lost."""
    parts, state = MixtureComponents(problem), settled(problem)
    sent, alike = problem.sent(state), parts.likeness(state)
    from natgrad.models.mixture.problem import memberships

    q = sent.spread(memberships(problem.data.x, sent)[1])
    told = problem.clustered(q)
    at = parts.at(state, told)
    base = problem.global_bound(at.lam, at.mu, told)
    own = parts._normalizers({n: tuple(p[None] for p in told) for n, told in parts.told(at).items()})
    assert alike[0, 1] < HOPELESS  # far apart: not proposed
    assert (0, 1) not in {
        tuple(sorted(p.components)) for p in proposals(Moves((parts,)), state, (), 0) if p.kind == "merge"
    }
    for i, j in ((0, 1), (1, 2)):
        lost = -np.nansum(q[[i, j]] * np.log(q[[i, j]] / q[[i, j]].sum(0)))
        both = q.copy()
        both[i], both[j] = q[i] + q[j], 0.0
        merged = parts.at(state, problem.clustered(both))
        gain = problem.global_bound(merged.lam, merged.mu, problem.clustered(both)) - base - lost
        assert gain <= alike[i, j] + 1e-6
        again = parts._normalizers({n: tuple(p[None] for p in told) for n, told in parts.told(merged).items()})
        assert alike[i, j] == pytest.approx(again[0] - own[0])


def test_several_births_at_once_are_those_one_after_another(problem: MixtureProblem) -> None:
    parts, state = MixtureComponents(problem), settled(problem, 3, 50)
    births = {k: parts.split(state, k, [empty], 0, 0) for k, empty in ((0, 3), (2, 5))}
    assert all(births.values())
    both = parts.together(state, births)  # type: ignore[arg-type]
    assert parts.active(both).tolist() == [True, True, True, True, False, True]
    # Each has what its own birth gave it, and what was not split is as it was.
    for places, of in (((0, 3), births[0].state), ((2, 5), births[2].state), ((1, 4), state)):  # type: ignore[union-attr]
        for name, axes in parts.axes.items():
            for a, b, own in zip(both.lam[name], of.lam[name], axes, strict=True):
                for axis in own:
                    assert (np.take(a, places, axis) == np.take(b, places, axis)).all()
    back = parts.merge(parts.merge(both, 0, 3), 2, 5)
    for name in state.lam:
        for a, b in zip(back.lam[name], state.lam[name], strict=True):
            assert a == pytest.approx(b, rel=1e-10, abs=1e-9 * np.abs(b).max())


def test_many_components_are_born_at_once_and_each_is_worth_it() -> None:
    """Sixteen clusters on a grid: the splits of several components are accepted as one move, and the bound is exact."""
    rng = np.random.default_rng(1)
    centres = 12.0 * np.stack(np.meshgrid(np.arange(4), np.arange(4)), -1).reshape(-1, 2)
    x = centres[np.arange(480) % 16] + rng.normal(size=(480, 2))
    model = ng.GaussianMixture(("auto", 24)).fit(x)
    assert model.n_components_ == 16
    several = [move for move in model.trace_.moves if move.kind == "births" and move.accepted]
    assert several
    assert several[0].n_active > 9
    bounds = model.trace_["elbo"]
    assert (np.diff(bounds) >= -1e-9 * np.abs(bounds[1:])).all()


@pytest.mark.parametrize(
    ("kind", "n_born", "nats"),
    [("birth", 1, 1.0), ("births", 3, 3.0), ("anew", 8, 8.0), ("explore", 5, 5.0), ("exchange", 1, 1.0), ("order", 1, 1.0),
     ("merge", 1, 0.0), ("delete", 1, 0.0)],
)  # fmt: skip
def test_a_move_must_gain_a_nat_for_each_new_component(
    problem: MixtureProblem, kind: str, n_born: int, nats: float
) -> None:
    class Passes:
        """Passes that lead higher by so much, and there they stay."""

        monotone, steps_per_pass, batches = True, 1, 1

        def __init__(self, gain: float) -> None:
            self.gain = gain

        def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
            return state._replace(t=state.t + 1), StepInfo({}, 1.0, 1, -100.0 + self.gain)

        def finish(self, state: State) -> State:
            return state

    parts, state = MixtureComponents(problem), settled(problem)
    proposal = Proposal(kind, parts, (0, 1), 1.0, parts.merge(state, 0, 1), n_born=n_born)
    for gain, accepted in ((nats + 0.02, True), (nats - 0.02 if nats else 0.005, False), (-3.0, False)):
        found = Round(Moves((parts,)), Passes(gain), 0, 0.01, lambda: False)._tried(proposal, state, -100.0)
        assert found.higher == accepted, gain


def test_refused_proposals_are_not_made_again_at_the_same_state(problem: MixtureProblem) -> None:
    parts, state = MixtureComponents(problem), settled(problem, 4, 100)
    birth = parts.split(state, 0, [4], 0, 0)  # two that may be merged again
    assert birth is not None
    moves, state = Moves((parts,)), birth.state
    made = list(proposals(moves, state, (), 0))
    assert {proposal.kind for proposal in made} == {"birth", "merge", "delete"}
    from natgrad.inference.trace import MoveRecord

    refused = tuple(
        MoveRecord(state.t, "component", p.kind, p.components, 0.0, -1.0, False, 4, float(p.held)) for p in made
    )
    assert not list(proposals(moves, state, refused, 0))


def test_seeds_repeat_and_a_run_that_was_stopped_goes_on_bit_by_bit(fitted: ng.GaussianMixture, tmp_path: Path) -> None:
    """After any number of steps: also where moves were due, which steps that ran out leave to the run that goes on."""
    options = {"seed": 3}
    for steps in range(1, fitted.n_steps_):
        where = tmp_path / str(steps)
        ng.GaussianMixture(("auto", 8), **options, max_passes=steps).fit(rows(), checkpoint=where, every=1)
        again = ng.GaussianMixture(("auto", 8), **options).fit(rows(), checkpoint=where, every=1, resume=True)
        assert again.elbo_ == fitted.elbo_
        assert (again.means_ == fitted.means_).all()
        assert again.trace_.moves == fitted.trace_.moves


def test_a_file_keeps_what_was_found(fitted: ng.GaussianMixture, tmp_path: Path) -> None:
    fitted.save(tmp_path / "a.natgrad")
    again = ng.load(tmp_path / "a.natgrad")
    assert again.n_components_ == 4
    assert again.trace_.moves == fitted.trace_.moves
    assert (again.predict_proba(rows()) == fitted.predict_proba(rows())).all()


def test_keeping_k_leaves_a_poor_optimum() -> None:
    """Two components on one cluster and one on two: no sweep leaves that, an exchange does."""
    x = rows()
    poor = ng.GaussianMixture(4, n_init=1, seed=3).fit(x)
    better = ng.GaussianMixture(4, n_init=1, seed=3).fit(x, moves="keep")
    best = max(ng.GaussianMixture(4, n_init=1, seed=seed).fit(x).elbo_ for seed in range(4))
    assert better.elbo_ >= poor.elbo_ - 1e-9
    assert better.elbo_ == pytest.approx(best, rel=1e-4)
    assert len(better.weights_) == 4


@pytest.mark.parametrize("covariance", ["diag", "tied", "spherical"])
def test_every_covariance(covariance: str) -> None:
    fit = ng.GaussianMixture(("auto", 6), covariance=covariance).fit(rows(120))  # type: ignore[arg-type]
    assert fit.n_components_ == 4
    assert (np.diff(fit.trace_["elbo"]) >= -1e-9 * abs(fit.elbo_)).all()


def test_streams_find_k_in_their_first_chunk_and_partial_fit_goes_on() -> None:
    x = rows(400)
    fit = ng.GaussianMixture(("auto", 8), max_passes=2).fit([x[:200], x[200:]])
    assert fit.n_components_ == 4
    assert set(fit.trace_.n_active()) == {4}
    assert {move.t for move in fit.trace_.moves} == {0}
    assert fit.partial_fit(x[:100]).n_components_ == 4
    begun = ng.GaussianMixture(("auto", 8)).partial_fit(x[:200])
    assert begun.n_components_ == 4
    assert begun.partial_fit(x[200:]).n_steps_ == 2
    kept = ng.GaussianMixture(4, n_init=1, seed=3, max_passes=2).fit([x[:200], x[200:]], moves="keep")
    assert np.linalg.norm(kept.means_[:, None] - CENTRES, axis=-1).min(1) == pytest.approx(0.0, abs=0.5)


def test_what_cannot_be_is_refused() -> None:
    x = rows(40)
    with pytest.raises(ValueError, match='moves="keep" keeps the number'):
        ng.GaussianMixture("auto").fit(x, moves="keep")
    with pytest.raises(ValueError, match='moves must be "keep" or None'):
        ng.GaussianMixture(2).fit(x, moves="grow")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='moves="keep" keeps the number'):
        ng.GaussianMixture("auto").fit([x, x], moves="keep")
    with pytest.raises(ValueError, match="n_components must be"):
        ng.GaussianMixture("many").fit(x)  # type: ignore[arg-type]
