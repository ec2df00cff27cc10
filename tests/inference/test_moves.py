"""Births, merges and deletes: the exact bound never falls, statistics are those of the data, and a run goes on bit by bit."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import natgrad as ng

Floats = npt.NDArray[np.float64]
CENTRES = np.array([[-9.0, 0.0], [0.0, 9.0], [9.0, 0.0], [0.0, -9.0]])


def rows(n: int = 240, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    found: Floats = CENTRES[rng.integers(4, size=n)] + rng.normal(size=(n, 2))
    return found


@pytest.fixture(scope="module")
def fitted() -> ng.GaussianMixture:
    return ng.GaussianMixture(("auto", 8), seed=3).fit(rows())


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
    accepted = [move for move in moves if move.accepted]
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
