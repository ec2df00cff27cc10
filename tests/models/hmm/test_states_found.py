"""`n_states="auto"`: states are born, merged and deleted on the exact bound, for every emission."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from generators.moves import random_move

import natgrad as ng
from natgrad.models import hmm

STATES = np.repeat(np.arange(18) % 3, 10)


def data(kind: str, seed: int = 0) -> npt.NDArray[Any]:
    rng = np.random.default_rng(seed)
    if kind == "gaussian":
        return np.array([[-6.0, 0.0], [0.0, 6.0], [6.0, 0.0]])[STATES] + rng.normal(size=(180, 2))
    if kind == "poisson":
        return rng.poisson(np.array([1.0, 12.0, 50.0])[STATES])[:, None]
    if kind == "bernoulli":
        chance = np.array(
            [[0.9, 0.9, 0.1, 0.1, 0.5, 0.1], [0.1, 0.9, 0.9, 0.1, 0.9, 0.5], [0.1, 0.1, 0.1, 0.9, 0.1, 0.9]]
        )
        return (rng.random((180, 6)) < chance[STATES]).astype(int)
    return ((rng.random(180) < 0.9) * (2 * STATES + 1) - (rng.random(180) < 0.4)).clip(0)[:, None]


MODELS: dict[str, Any] = {
    "gaussian": ng.GaussianHMM,
    "poisson": ng.PoissonHMM,
    "bernoulli": ng.BernoulliHMM,
    "categorical": ng.CategoricalHMM,
}


@pytest.mark.parametrize(
    "kind", ["gaussian", *(pytest.param(kind, marks=pytest.mark.slow) for kind in list(MODELS)[1:])]
)
def test_states_are_found_and_the_bound_never_falls(kind: str) -> None:
    model = MODELS[kind](("auto", 6), transitions=hmm.Transitions(sticky=1.0)).fit(data(kind))
    assert model.n_states_ == 3 == len(model.startprob_) == len(model.transmat_)
    bounds = model.trace_["elbo"]
    assert (np.diff(bounds) >= -1e-9 * np.abs(bounds[1:])).all()
    assert next(move.kind for move in model.trace_.moves if move.accepted) == "birth"
    path = model.predict(data(kind))
    assert all((np.bincount(path[state == STATES], minlength=3).max() > 50) for state in range(3))


def test_a_truncated_model_has_the_bound_of_the_whole() -> None:
    """States at their prior get no times: q is restricted, so the bound is no higher than with all of them."""
    from natgrad.models.hmm.components import HMMComponents
    from natgrad.models.hmm.problem import SequenceProblem
    from natgrad.models.hmm.start import start_of_one

    model = ng.GaussianHMM(("auto", 4))
    x = data("gaussian")
    model.n_features_in_ = 2
    priors = model._model(x)
    sequences = model._sequences(x, None, None, priors.emission)
    part, full = SequenceProblem(sequences, priors, truncated=True), SequenceProblem(sequences, priors)
    state = part.sweep(start_of_one(part)).state
    assert part.bound(state) <= full.bound(state) + 1e-9
    assert part.bound(state) == pytest.approx(full.bound(state), abs=1e-2)
    components = HMMComponents(part)
    birth = components.split(state, 0, [1, 2, 3], 0, 0)
    assert birth is not None
    merged = components.merge(components.merge(birth.state, 0, 1), 0, 2) if len(birth.born) > 1 else birth.state
    assert components.held(merged).sum() == pytest.approx(180.0, abs=1e-6)


@pytest.mark.parametrize("n_moves", [20, pytest.param(1_000, marks=pytest.mark.slow)])
def test_statistics_after_random_moves_are_those_of_the_sequences(n_moves: int) -> None:
    """Memoised in three batches: all states together hold every first time, every transition and every row once."""
    from natgrad.inference.steppers.groups import KEY, GroupStepper
    from natgrad.models.hmm.components import HMMComponents
    from natgrad.models.hmm.problem import SequenceProblem
    from natgrad.models.hmm.start import start_of_one

    model, x = ng.GaussianHMM(("auto", 5)), data("gaussian")[:120]
    model.n_features_in_ = 2
    priors = model._model(x)
    problem = SequenceProblem(model._sequences(x, [20] * 6, None, priors.emission), priors, truncated=True)
    parts, state = HMMComponents(problem), start_of_one(problem)
    whole = {name: [np.asarray(p).sum(a) for p, a in zip(told, parts.axes[name], strict=True)]
             for name, told in parts.told(state).items()}  # fmt: skip
    assert whole["initial"][0] == pytest.approx(6.0)
    assert whole["transition"][0] == pytest.approx(114.0)
    stepper = GroupStepper(problem, 2, 0.0, 1, remember=True)
    rng, kinds = np.random.default_rng(0), set()
    for number in range(n_moves):
        state, kind = random_move(parts, state, number, rng, 5)
        kinds.add(kind)
        for _ in range(2 * stepper.n_batches):
            state = stepper.step(state, 0)[0]
        kept = state.memory[KEY]
        for name, told in parts.told(state).items():
            for i, (part, axes, wanted) in enumerate(zip(told, parts.axes[name], whole[name], strict=True)):
                scale = 1e-10 * max(1.0, float(np.abs(wanted).max()))
                assert np.abs(np.asarray(part).sum(axes) - wanted).max() <= scale
                assert np.abs(part - sum(np.asarray(b.messages[name][i]) for b in kept.batches)).max() <= scale
    assert kinds == {0, 1, 2}


@pytest.mark.parametrize("kind", [*MODELS, "tied", "spherical"])
def test_results_are_those_of_the_states_that_were_found(kind: str) -> None:
    """The most frequent first: what they hold, first times, transitions both ways, emissions and the priors of all these."""
    from natgrad.models.hmm.components import HMMComponents, found_states
    from natgrad.models.hmm.problem import SequenceProblem
    from natgrad.models.hmm.start import sums_of

    shared = kind in ("tied", "spherical")
    rows = np.concatenate([np.flatnonzero(k == STATES)[:n] for k, n in ((0, 20), (1, 60), (2, 40))])
    x, rng = data("gaussian" if shared else kind)[rows], np.random.default_rng(0)
    priors = {"transitions": hmm.Transitions(initial=rng.gamma(1.0, size=5), prior=rng.gamma(1.0, size=(5, 5)))}
    model = MODELS["gaussian" if shared else kind](5, n_init=1, max_passes=1, **priors)
    model = (model.set_params(covariance=kind) if shared else model).fit(x)
    whole = model._model(x)
    problem = SequenceProblem(model._sequences(x, None, None, whole.emission), whole)
    states, order = np.eye(5)[np.array([3, 1, 4])[STATES[rows]]], [1, 4, 3]
    state = problem.from_counts(states[0], states[:-1].T @ states[1:], sums_of(problem, states))
    assert HMMComponents(problem).held(state)[order] == pytest.approx([60, 40, 20])
    fewer, after = found_states(whole, state)
    assert (fewer.initial == whole.initial[order]).all()
    assert (fewer.transition == whole.transition[np.ix_(order, order)]).all()
    assert (after.lam["initial"][0] == state.lam["initial"][0][order]).all()
    assert (after.lam["transition"][0] == state.lam["transition"][0][np.ix_(order, order)]).all()
    told, prior = SequenceProblem(problem.data, fewer).full_prior("emission"), problem.full_prior("emission")
    for a, b, p, q, axes in zip(
        after.lam["emission"], state.lam["emission"], told, prior, problem.emitted["emission"].axes, strict=True
    ):
        if axes:
            assert (a == np.take(b, order, axes[0])).all()
            assert (p == np.take(q, order, axes[0])).all()
        else:  # one precision for all: what the data told it, and the prior of as many means as there are
            assert np.asarray(a - p) == pytest.approx(np.asarray(b - q), rel=1e-12)


@pytest.mark.parametrize(
    "model_of", [pytest.param(ng.GaussianHMM, marks=pytest.mark.slow), ng.GaussianMixture], ids=["states", "components"]
)
def test_one_precision_for_all_does_not_depend_on_the_room(model_of: Any) -> None:
    """Priors of states that are empty were counted as observations of the precision that all share."""
    x = data("gaussian")
    fits = [
        model_of(("auto", room), covariance=hmm.Gaussian("tied", [20.0, 0.0], scale_prior=np.eye(2))).fit(x)
        for room in (4, 12)
    ]
    found = [(fit.posterior_["emission" if model_of is ng.GaussianHMM else "components"]).lam[3] for fit in fits]
    assert [len(fit.means_) for fit in fits] == [3, 3]
    assert found[0] == pytest.approx(found[1], rel=1e-10)
    assert 2 * found[0] == pytest.approx(180 + 4 + 3 - 3, abs=0.5)  # rows, ν, a mean each, and D + 1


def test_keep_is_never_worse() -> None:
    x = data("gaussian")
    poor, kept = ng.GaussianHMM(3, n_init=1, seed=2).fit(x), ng.GaussianHMM(3, n_init=1, seed=2).fit(x, moves="keep")
    assert kept.elbo_ >= poor.elbo_ - 1e-6
    assert kept.n_states_ == 3


@pytest.mark.filterwarnings("ignore:X.* does not vary")
def test_nothing_but_missing_times_is_one_state() -> None:
    """And its bound is the evidence of its path: an urn with a third of a ball of each of three colours."""
    fit = ng.GaussianHMM(("auto", 3)).fit(np.full((20, 2), np.nan))
    stays = np.arange(19)
    assert fit.n_states_ == 1
    assert fit.elbo_ == pytest.approx(np.log(1 / 3) + np.log((1 / 3 + stays) / (1 + stays)).sum(), rel=1e-10)


def test_what_cannot_be_is_refused() -> None:
    x = data("gaussian")
    with pytest.raises(ValueError, match="have an order"):
        ng.GaussianHMM("auto", transitions=hmm.Transitions(topology="left-to-right")).fit(x)
    with pytest.raises(ValueError, match="labels name states"):
        ng.GaussianHMM("auto").fit(x, labels=STATES)
    with pytest.raises(ValueError, match="n_states must be"):
        ng.GaussianHMM("some").fit(x)  # type: ignore[arg-type]
