"""Data that come and go from ready models: the fit given what is left, by a run of the engine from the same state."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import natgrad as ng
from natgrad.inference.engine import Limits, Phase, run
from natgrad.inference.methods import VB
from natgrad.models.gp import Solver

RNG = np.random.default_rng(0)
POINTS = np.concatenate([RNG.normal(-3.0, 1.0, (40, 2)), RNG.normal(3.0, 1.0, (40, 2))])[RNG.permutation(80)]
TEXTS = ["apple pear plum", "plum pear apple apple", "bolt nut screw", "nut bolt bolt screw"] * 6
STEPS = np.repeat([-2.0, 2.0, -2.0, 2.0, -2.0, 2.0], 15) + RNG.normal(size=90)
USERS, ITEMS = RNG.integers(0, 12, 200), RNG.integers(0, 9, 200)
STARS = (RNG.normal(size=12)[USERS] * RNG.normal(size=9)[ITEMS] + 0.3 * RNG.normal(size=200)).round(2)


def ratings(rows: Any) -> ng.Ratings:
    pairs = {(f"user{u}", f"item{i}"): s for u, i, s in zip(USERS[rows], ITEMS[rows], STARS[rows], strict=True)}
    users, items = zip(*pairs, strict=True)
    return ng.Ratings(list(users), list(items), list(pairs.values()))


def revalued(r: ng.Ratings, values: Any) -> ng.Ratings:
    return ng.Ratings(r.user_ids[r.users], r.item_ids[r.items], values)


def mixture() -> Any:
    return ng.GaussianMixture(2, tol=1e-12, max_passes=500)


def topics() -> Any:
    return ng.LDA(
        2,
        tol=1e-12,
        max_passes=400,
        inference="vb",
        local=ng.LocalOptions(tol=1e-08, max_rounds=400, skip_below=0.0, dtype="float64"),
        seed=1,
    )


def chain() -> Any:
    return ng.GaussianHMM(2, tol=1e-12, max_passes=500)


def ends(problem: Any, state: Any) -> float:
    """Where whole sweeps from a state end."""
    result = run(
        Phase(problem, VB()), state._replace(memory={}), limits=Limits(tol=1e-13, max_steps=400), seed=0, verbose=False
    )
    return float(problem.bound(result.state))


def test_rows_of_a_mixture() -> None:
    model = mixture().fit(POINTS[:60])
    before = copy.deepcopy(model._state)
    model.update(POINTS[60:])
    problem = model._problem(model._model_, POINTS, None)
    assert model.elbo_ == pytest.approx(ends(problem, before), rel=1e-8)
    assert model.n_rows_seen_ == 80
    gone = np.zeros(80, dtype=bool)
    gone[60:] = True
    model.forget(gone)
    first = mixture().fit(POINTS[:60])
    assert model.elbo_ == pytest.approx(first.elbo_, rel=1e-8)
    np.testing.assert_allclose(np.sort(model.means_[:, 0]), np.sort(first.means_[:, 0]), rtol=1e-5)
    weighted = mixture().fit(POINTS[:60], sample_weight=np.full(60, 2.0)).update(POINTS[60:], sample_weight=3.0)
    assert weighted.n_rows_seen_ == 180


def test_documents_and_their_words(tmp_path: Path) -> None:
    model = topics().fit(TEXTS)
    before = copy.deepcopy(model._state)
    model.update(["apple quince", "secret screw"])
    assert model.n_documents_seen_ == 26
    assert {"quince", "secret"} <= set(model.vocabulary_.tolist())
    start = model._fitted.at(np.hstack([before.lam["phi"][0] + 1.0, np.full((2, 2), 0.05)]), 1)
    assert model.elbo_ == pytest.approx(ends(model._fitted, start), rel=1e-6)
    model.save(tmp_path / "with.natgrad")
    model.forget([25])
    assert set(model.vocabulary_.tolist()) == {"apple", "bolt", "nut", "pear", "plum", "quince", "screw"}
    model.save(tmp_path / "without.natgrad")
    assert b"secret" in (tmp_path / "with.natgrad").read_bytes()
    assert b"secret" not in (tmp_path / "without.natgrad").read_bytes()
    model.forget([24])
    fresh = topics().fit(TEXTS)
    assert model.elbo_ == pytest.approx(fresh.elbo_, rel=1e-6)
    # Columns of a table of counts stay what they are.
    counts = np.array([[3, 0, 1], [0, 2, 0], [1, 1, 0]])
    table = ng.LDA(2).fit(counts).forget([0])
    assert table.n_features_in_ == 3
    assert table.transform(counts).shape == (3, 2)


def test_sequences_of_a_hidden_markov_model() -> None:
    model = chain().fit(STEPS[:60, None], lengths=[30, 30])
    before = copy.deepcopy(model._state)
    model.update(STEPS[60:, None])
    assert model.n_times_seen_ == 90
    problem = model._response_problem(STEPS[:, None], lengths=[30, 30, 30])
    assert model.elbo_ == pytest.approx(ends(problem, before), rel=1e-8)
    model.forget(2)
    assert model.elbo_ == pytest.approx(chain().fit(STEPS[:60, None], lengths=[30, 30]).elbo_, rel=1e-8)
    known = chain().fit(STEPS[:60, None], lengths=[30, 30], labels=np.full(60, -1)).update(STEPS[60:, None])
    assert known.n_times_seen_ == 90


SLOW = [{"noise": "user"}, {"likelihood": "poisson"}, {"likelihood": "bernoulli"}]


@pytest.mark.parametrize("settings", [{}, *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW)])
def test_ratings_users_and_items(settings: dict[str, Any], tmp_path: Path) -> None:
    first, second, options = (
        ratings(slice(0, 150)),
        ratings(slice(150, None)),
        {"tol": 1e-7, "max_steps": 60, **settings},
    )
    if settings.get("likelihood") == "poisson":
        first, second = (revalued(r, np.round(np.abs(r.values) * 3)) for r in (first, second))
    if settings.get("likelihood") == "bernoulli":
        first, second = (revalued(r, (r.values > 0).astype(float)) for r in (first, second))
    model = ng.MatrixFactorization(2, **options).fit(first)
    model.update(second)
    assert len(model.ratings_) == len(first.extended(second))
    n_users = model.ratings_.n_users
    model.forget({"user": ["user3"], "item": "item2"})
    assert model.ratings_.n_users == n_users - 1
    assert "item2" not in model.ratings_.item_ids
    assert model.user_factors_.mean.shape == (n_users - 1, 2)
    model.save(tmp_path / "m.natgrad")
    content = (tmp_path / "m.natgrad").read_bytes()
    assert b"user3" not in content.replace(b"user3_", b"")
    assert b"item2" not in content
    # It has settled: a run from here stays where it is.
    assert model.elbo_ == pytest.approx(copy.deepcopy(model).continue_fit(max_steps=30).elbo_, rel=1e-4)
    assert ng.load(tmp_path / "m.natgrad").forget({"user": "user1"}).ratings_.n_users == n_users - 2


def test_rows_of_a_gaussian_process() -> None:
    x = np.linspace(0.0, 6.0, 60)[:, None]
    y = np.sin(x[:, 0]) + 0.1 * RNG.normal(size=60)
    fixed: dict[str, Any] = {
        "solver": Solver(standardize=False, batch_size=100),
        "fixed": ["kernel", "noise", "inducing"],
    }
    inducing = np.linspace(0.0, 6.0, 12)[:, None]

    def make() -> Any:
        return ng.SparseGPRegressor(inducing=inducing, noise_variance=0.01, max_steps=40, tol=0.0, **fixed)

    order = np.random.default_rng(1).permutation(60)
    model = make().fit(x[order[:50]], y[order[:50]])
    model.update(x[order[50:]], y[order[50:]])
    # Nothing is learned but q, which is exact: the posterior given all rows.
    offset = model._offset
    whole = make().fit(x[order], y[order])
    np.testing.assert_allclose(model.predict(x) - offset, whole.predict(x) - whole._offset, atol=0.05)
    assert model.n_rows_seen_ == 60
    again = make().fit(x[order[:50]], y[order[:50]])
    model.forget(np.arange(50, 60))
    np.testing.assert_allclose(model.predict(x), again.predict(x), rtol=1e-6, atol=1e-8)
    assert model.elbo_ == pytest.approx(again.elbo_, rel=1e-8)


def test_what_is_not_held_is_said_and_mistakes_change_nothing(tmp_path: Path) -> None:
    model = mixture().fit(POINTS)
    means = model.means_.copy()
    for what, error, words in (
        ([80], IndexError, "there are 80 rows, numbered from 0, and no number 80"),
        ("ann", TypeError, "forget takes the numbers of rows"),
        ({"user": ["ann"]}, TypeError, "rows have no ids here"),
        (np.ones(80, dtype=bool), ValueError, "none of the 80 rows would be left"),
    ):
        with pytest.raises(error, match=words):
            model.forget(what)
    with pytest.raises(ValueError, match="features"):
        model.update(np.zeros((3, 5)))
    assert np.array_equal(model.means_, means)
    model.save(tmp_path / "m.natgrad")
    for other in (ng.load(tmp_path / "m.natgrad"), pickle.loads(pickle.dumps(model))):
        with pytest.raises(ValueError, match="partial_fit"):
            other.update(POINTS)
        with pytest.raises(ValueError, match="fit\\(\\) again"):
            other.forget([0])
    streamed = ng.GaussianMixture(2).fit(iter([POINTS[:40], POINTS[40:]]))
    with pytest.raises(ValueError, match="took a stream"):
        streamed.update(POINTS)
    ratings_model = ng.MatrixFactorization(1, max_steps=3).fit(ratings(slice(0, 50)))
    with pytest.raises(ValueError, match='named by "user" or "item"'):
        ratings_model.forget({"movie": [1]})
    with pytest.raises((KeyError, ValueError), match="nobody"):
        ratings_model.forget({"user": ["nobody"]})
