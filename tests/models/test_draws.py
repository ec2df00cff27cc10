"""Posterior draws of ready models against enumeration of all memberships or paths, and against the network that declares one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.special as sp

import natgrad as ng
from natgrad.errors import PoorMixing
from natgrad.inference.steppers.gibbs import GroupGibbs, Schedule
from natgrad.models import hmm
from natgrad.models.mixture.problem import MixtureProblem
from natgrad.posterior.draws import ess

pytestmark = pytest.mark.filterwarnings("ignore::natgrad.errors.PoorMixing")


def exact(problem, told: list[dict], chances: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """E[x] of every global block and P(z) of every local variable, by enumeration.

    ``told[c]`` are the messages of configuration c, ``chances[c]`` the indicators [n, K] of its local variables. Given z the
    globals are conjugate: log p(z, y) = Σ_blocks A(η̃ + m(z)) − A(η̃).
    """
    logs, means = [], []
    for messages in told:
        total, mean = 0.0, {}
        for name, block in problem.blocks.items():
            prior = problem.full_prior(name)
            lam = tuple(p + m for p, m in zip(prior, messages[name], strict=True))
            total += float(np.sum(block.family.log_normalizer(lam) - block.family.log_normalizer(prior)))
            mean[name] = block.family.mean(lam)
        logs.append(total)
        means.append(mean)
    weight = sp.softmax(np.array(logs))
    found = {n: np.tensordot(weight, np.stack([m[n] for m in means]), 1) for n in problem.blocks}
    return found, np.tensordot(weight, chances, 1)


def compare_categories(draws, name: str, shares: np.ndarray) -> None:
    values = np.eye(shares.shape[1])[draws[name].values]
    error = np.sqrt(shares * (1 - shares) / np.maximum(ess(values), 4.0))
    away = np.abs(values.mean((0, 1)) - shares)
    assert (away <= 5.0 * error + 1e-12).all(), (name, away / error)
    # Averages of probabilities are no worse.
    assert (np.abs(draws[name].mean() - shares) <= 5.0 * error + 1e-12).all()


def compare(draws, name: str, wanted: np.ndarray, origin) -> None:
    factor = draws[name]
    error = factor.std() / np.sqrt(factor.ess())
    away = np.abs(factor.mean() - (wanted if origin is None else wanted + origin))
    assert (away <= 5.0 * error + 1e-12).all(), (name, away / error)


X4 = np.array([[-1.0, 0.3], [0.2, -0.4], [1.1, 0.8], [2.0, 0.1], [2.4, 1.9]])
KINDS = ["full", "diag", "tied", "spherical"]
SCALES = {"full": 8 * np.eye(2), "tied": 8 * np.eye(2), "diag": [8.0, 8.0], "spherical": 8.0}


@pytest.mark.parametrize("kind", [k if k == "full" else pytest.param(k, marks=pytest.mark.slow) for k in KINDS])
def test_draws_of_a_mixture_are_those_that_all_memberships_add_up_to(kind: str) -> None:
    x = X4.copy()
    if kind in ("diag", "spherical"):
        x[1, 0] = np.nan
    # Weights differ, so that labels mean something and nothing is put back; more freedom, so that variances exist.
    own = hmm.Gaussian(kind, dof_prior=8.0, mean_scale=0.5, scale_prior=SCALES[kind])
    model = ng.GaussianMixture(2, covariance=own, weight_prior=[1.0, 2.5]).fit(x)
    problem = model._draws_problem(x)
    assert isinstance(problem, MixtureProblem)
    paths = np.array(list(itertools.product(range(2), repeat=len(x))))
    chances = np.eye(2)[paths]
    wanted, shares = exact(problem, [problem.clustered(member.T) for member in chances], chances)
    draws = model.draws(x, 400, chains=2, warmup=50, seed=1, verbose=False, starts="q")
    for name in problem.blocks:
        compare(draws, name, wanted[name], problem.blocks[name].origin)
    compare_categories(draws, "membership", shares)
    assert not draws.relabelled.any()


@pytest.mark.parametrize("weights", [[2.0, 4.0], pytest.param([3.0, 3.0, 5.0], marks=pytest.mark.slow)])
def test_labellings_far_from_one_another_have_the_shares_of_all_memberships(weights: list[float]) -> None:
    """Rows so far apart that no sweep exchanges their labels; of three components two are alike, and keep their order."""
    x, n = 5.0 * X4[[0, 1, 3, 4]], len(weights)
    own = hmm.Gaussian(dof_prior=8.0, mean_scale=0.5, scale_prior=SCALES["full"])
    model = ng.GaussianMixture(n, covariance=own, weight_prior=weights).fit(x)
    problem = model._draws_problem(x)
    chances = np.eye(n)[list(itertools.product(range(n), repeat=len(x)))]
    wanted, shares = exact(problem, [problem.clustered(member.T) for member in chances], chances)
    draws = model.draws(x, 80, chains=8, warmup=20, seed=1, verbose=False, starts="q")
    assert draws.exchanged.min() > 0
    last = draws["membership"].values == n - 1  # the one that is like no other
    means = last.mean(1)
    error = means.std(0, ddof=1) / np.sqrt(len(means))
    assert (np.abs(means.mean(0) - shares[:, -1]) <= 5.0 * error).all(), (means.mean(0), shares[:, -1], error)
    own = draws["weights"].values[..., -1].mean(1)
    assert abs(own.mean() - wanted["weights"][-1]) <= 5.0 * own.std(ddof=1) / np.sqrt(len(own))


def chain(kind: str) -> tuple[object, np.ndarray]:
    chain = {"transitions": hmm.Transitions([[2.0, 1.0], [1.0, 1.0]], [1.0, 2.0]), "n_init": 1}
    y = np.array([[0.1], [2.0], [np.nan], [3.0], [0.0], [1.0]])
    if kind in ("gaussian", "diag"):
        own = {"dof_prior": 8.0, "mean_scale": 0.5, "scale_prior": SCALE1[kind]}
        return ng.GaussianHMM(2, covariance=hmm.Gaussian("diag" if kind == "diag" else "full", **own), **chain), y
    if kind == "poisson":
        return ng.PoissonHMM(2, rate_prior=(1.5, 0.5), **chain), y.round()
    if kind == "bernoulli":
        return ng.BernoulliHMM(2, track_prior=(0.7, 2.0), **chain), np.minimum(y.round(), 1.0)
    return ng.CategoricalHMM(2, categories=hmm.Categorical(4, emission_prior=0.6), **chain), y.round()


SCALE1 = {"gaussian": [[8.0]], "diag": [8.0]}
CHAINS = ["gaussian", "diag", "poisson", "bernoulli", "categorical"]


@pytest.mark.parametrize("kind", [k if k == "categorical" else pytest.param(k, marks=pytest.mark.slow) for k in CHAINS])
def test_draws_of_a_chain_are_those_that_all_paths_add_up_to(kind: str) -> None:
    model, y = chain(kind)
    lengths = [4, 2]
    model.fit(y, lengths=lengths)
    problem = model._draws_problem(y, lengths=lengths)
    paths = np.array(list(itertools.product(range(2), repeat=len(y))))
    told = [  # with all states known, what the data tell is a sum along the path
        model._draws_problem(y, lengths=lengths, labels=path).solve_all(problem.at(model._state.lam)).messages
        for path in paths
    ]
    wanted, shares = exact(problem, told, np.eye(2)[paths])
    draws = model.draws(y, 400, chains=2, warmup=50, seed=1, verbose=False, starts="q", lengths=lengths)
    for name in problem.blocks:
        compare(draws, name, wanted[name], problem.blocks[name].origin)
    compare_categories(draws, "states", shares)


def test_states_that_are_known_or_forbidden_are_drawn_as_they_are() -> None:
    y = np.array([0.0, 1.0, 0.0, 3.0, 2.0, 3.0, 3.0])[:, None]
    known = np.array([-1, 0, -1, -1, 1, -1, -1])
    model = ng.CategoricalHMM(2, categories=4, transitions=hmm.Transitions(topology="left-to-right"), n_init=1).fit(
        y, labels=known
    )
    draws = model.draws(y, 50, chains=2, verbose=False, labels=known)
    states = draws["states"].values
    assert (states[..., 1] == 0).all()
    assert (states[..., 4:] == 1).all()
    assert (np.diff(states) >= 0).all()
    assert (draws["transition"].values[..., 1, 0] == 0).all()
    with pytest.raises(ValueError, match="no variable 'path'"):
        model.draws(y, names=["path"])


def overlapping() -> tuple[ng.GaussianMixture, np.ndarray]:
    rng = np.random.default_rng(3)
    x = np.where(rng.random(30) < 0.5, 0.0, 1.5)[:, None] + rng.normal(size=(30, 1))
    return ng.GaussianMixture(2, covariance=hmm.Gaussian("diag", mean_scale=0.2), weight_prior=2.0).fit(x), x


def test_labels_are_those_of_the_fit_in_every_chain() -> None:
    model, x = overlapping()
    problem = model._draws_problem(x)
    wanted = problem.sampler.probabilities(model._state, 30)
    gibbs = GroupGibbs(problem, Schedule(0, 1, 1), 1, {}, wanted)
    z = wanted["membership"].argmax(1)
    assert gibbs._order({"membership": z}) is None
    order = gibbs._order({"membership": 1 - z})
    assert order.tolist() == [1, 0]
    told = problem.clustered(np.eye(2)[1 - z].T)
    back = {name: problem.sampler.renumbered_message(name, told[name], order) for name in told}
    for name, parts in problem.clustered(np.eye(2)[z].T).items():
        for one, two in zip(parts, back[name], strict=True):
            np.testing.assert_allclose(one, two, atol=1e-12)
    draws = model.draws(x, 150, warmup=20, verbose=False, seed=2)
    assert draws.relabelled.sum() > 0  # they did change places
    agree = (draws["membership"].values == z).mean(2)
    assert (agree >= 0.5).mean() > 0.95  # never the other way round, but for ties of what q is not sure of


def test_a_run_of_draws_goes_on_where_it_stopped_and_draws_are_kept_in_files(tmp_path) -> None:
    model, x = overlapping()
    whole = model.draws(x, 20, warmup=10, chains=2, verbose=False)

    def stop(event):
        if event.state.t == 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.draws(x, 20, warmup=10, chains=2, verbose=False, checkpoint=tmp_path / "run", every=5, callbacks=[stop])
    again = model.draws(x, 20, warmup=10, chains=2, verbose=False, checkpoint=tmp_path / "run", every=5, resume=True)
    for name in whole:
        np.testing.assert_array_equal(whole[name].values, again[name].values)
        np.testing.assert_array_equal(whole[name].mean(), again[name].mean())
    whole.save(tmp_path / "draws")
    loaded = ng.load(tmp_path / "draws")
    np.testing.assert_array_equal(loaded["means"].interval(0.8)[0], whole["means"].interval(0.8)[0])
    assert loaded.to_arviz()["posterior"]["means"].dims == ("chain", "draw", "component", "column")


def test_rows_of_weight_two_are_two_rows() -> None:
    x, weight = X4[:3], np.array([2.0, 0.0, 1.0])
    own = hmm.Gaussian("diag", dof_prior=8.0, scale_prior=[8.0, 8.0])
    model = ng.GaussianMixture(2, covariance=own, weight_prior=[1.0, 2.5]).fit(x, sample_weight=weight)
    rows = x[[0, 0, 2]]
    problem = MixtureProblem(model._model_, rows, None)
    paths = np.array(list(itertools.product(range(2), repeat=3)))
    chances = np.eye(2)[paths]
    wanted, shares = exact(problem, [problem.clustered(member.T) for member in chances], chances)
    draws = model.draws(x, 300, chains=2, warmup=50, verbose=False, sample_weight=weight)
    compare(draws, "weights", wanted["weights"], None)
    compare(draws, "components", wanted["components"], problem.blocks["components"].origin)
    np.testing.assert_allclose(draws["membership"].mean()[[0, 2]], shares[[0, 2]], atol=0.1)
    with pytest.raises(ValueError, match=r"sample_weight\[1\] = 0.5 is no whole number"):
        model.draws(x, sample_weight=[1.0, 0.5, 1.0])


def test_a_mode_that_chains_do_not_reach_is_said() -> None:
    """Three groups for two components: the one in the middle goes with either, and X and −X are the same data."""
    off = np.array([-1.2, -0.7, -0.3, 0.1, 0.4, 0.9])
    x = np.concatenate([-6.0 + off, 0.1 * off, -0.1 * off, 6.0 - off])[:, None]
    own = hmm.Gaussian("tied", dof_prior=400.0, scale_prior=[[400.0]], mean_scale=0.02)
    model = ng.GaussianMixture(2, covariance=own, weight_prior=2.0).fit(x)
    with pytest.warns(PoorMixing, match="0.0 nats lower, which is a share of about 50% of the two"):
        draws = model.draws(x, 200, chains=2, verbose=False)
    quiet = model.draws(x, 200, chains=2, verbose=False, starts="q")
    np.testing.assert_array_equal(quiet["means"].values, draws["means"].values)
    assert quiet.notes == []
    with pytest.raises(ValueError, match='starts must be "q" or None'):
        model.draws(x, starts="restarts")


def test_draws_of_a_model_know_no_network_and_one_chain_has_no_other() -> None:
    """They said that they were loaded from a file, and that arviz-stats was missing."""
    model, x = overlapping()
    draws = model.draws(x, 20, chains=1, verbose=False)
    with pytest.raises(ValueError, match="those of ready models have none"):
        draws.predictive("x")
    assert draws.message == "one chain has no other to agree with: make several (chains=4) to see whether they do"
    assert np.isnan(draws.summary(["weights"])["R̂"]).all()


def test_models_without_draws_say_what_to_do() -> None:
    model = ng.LDA(2, inference="vb", max_passes=2).fit(["ab cd ef", "cd ef gh", "gh ij ab"])
    with pytest.raises(TypeError, match='inference="gibbs"'):
        model.draws(["ab cd"])
    with pytest.raises(TypeError, match="no calibrate"):
        model.calibrate(2)
    with pytest.raises(ValueError, match="not fitted"):
        ng.GaussianMixture(2).draws(X4)


def test_calibration_of_a_model_whose_q_is_exact() -> None:
    # One component: q is the posterior itself, and so are draws; ranks of both must be uniform.
    model = ng.GaussianMixture(
        1, covariance=hmm.Gaussian("diag", mean_scale=1.0, dof_prior=6.0), n_init=1, verbose=False
    )
    model.fit(X4[:, :1] + 50.0)
    found = model.calibrate(60, size=5, n_ranks=19)
    drawn = model.calibrate(40, size=5, level="draws", n_ranks=19, draws_options={"n": 20, "warmup": 1, "chains": 1})
    for level in (found, drawn):
        assert level.failed == 0
        assert level.p_values(5)["components"] > 0.001
        assert 0.75 < level.coverage(0.9)["components"] <= 1.0
    with pytest.raises(ValueError, match="level must be one of"):
        model.calibrate(2, level="bootstrap")


def test_calibration_puts_true_parameters_into_the_order_of_the_fit() -> None:
    y = np.random.default_rng(0).poisson(3.0, (30, 1))
    model = ng.PoissonHMM(2, rate_prior=(4.0, 1.0), n_init=1, max_passes=30, verbose=False).fit(y)
    rng = np.random.default_rng(1)
    truth, x, states = model._simulated(50, rng)
    assert x.shape == (50, 1)
    assert states.shape == (50,)
    swapped = {name: model._renumbered(name, value, [1, 0]) for name, value in truth.items()}
    assert swapped["transition"][0, 0] == truth["transition"][1, 1]
    found = model.calibrate(6, size=40, n_ranks=19)
    assert found.ranks["emission"].shape == (6, 2, 1)
    assert set(found.ranks) == {"initial", "transition", "emission"}


@pytest.mark.parametrize("covariance", ["tied", "diag"])
def test_calibration_of_components_far_apart_ranks_each_by_its_own(covariance: str) -> None:
    """In another order every rank would be 0 or all."""
    kind = hmm.Gaussian(
        covariance, np.zeros(2), 1e-4, 8.0, 6.0 * np.eye(2) if covariance == "tied" else np.full(2, 6.0)
    )
    model = ng.GaussianMixture(2, covariance=kind, n_init=1, verbose=False).fit(X4[:, :2])
    assert model.calibrate(12, size=40, n_ranks=19).coverage(0.98)["components"] > 0.7
