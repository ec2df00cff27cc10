"""Rows that come and go: the fit given what is left, by theorem and by refit; nothing stays of what was forgotten."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import natgrad as ng
from tests.network.bound_cases import contests, factorisation, interacting, mixture, regression, topics

FIT: dict[str, Any] = {"verbose": False, "tol": 1e-9, "max_steps": 2000}
GO: dict[str, Any] = {"verbose": False, "tol": 1e-9, "max_steps": 2000}


def cut(table: dict[str, Any], rows: Any) -> dict[str, Any]:
    return {name: np.asarray(values)[rows] for name, values in table.items()}


@pytest.mark.parametrize(
    ("make", "chunk_rows"),
    [(regression, None), (contests, None), (interacting, None), (regression, 8), (contests, 8)],
)
def test_rows_that_come_and_go_end_where_a_refit_does(make: Any, chunk_rows: int | None) -> None:
    """These have one optimum: wherever one starts, the fit is the same."""
    case = make()
    first, second = slice(0, 15), slice(15, None)
    fit = case.columns.fit(cut(case.table, first), chunk_rows=chunk_rows, **FIT)
    more = fit.update(cut(case.table, second), **GO)
    whole = case.columns.fit(case.table, chunk_rows=chunk_rows, **FIT)
    assert more.elbo == pytest.approx(whole.elbo, rel=1e-8)
    for name in whole.settings.order:
        if whole[name].plates not in ((), ("row",)) or whole[name].plates == ():
            np.testing.assert_allclose(more[name].mean(), whole[name].mean(), rtol=1e-4, atol=1e-5)
    if chunk_rows is None:
        less = more.forget(np.arange(15, len(next(iter(case.table.values())))), **GO)
        assert less.elbo == pytest.approx(fit.elbo, rel=1e-8)


def test_a_forgotten_user_leaves_nothing_behind(tmp_path: Path) -> None:
    case = factorisation()
    fit = case.columns.fit(case.table, init="random", **{**FIT, "tol": 1e-3})
    less = fit.forget({"userId": "bob"}, verbose=False)
    assert less["bias"].frame()["user"].tolist() == ["ann", "cid"]
    assert less["u"].lam[0].shape == (2, 2)
    kept = case.table["userId"] != "bob"
    refit = case.columns.fit(
        cut(case.table, kept), init={n: less[n].mean() for n in ("u", "v")}, **{**FIT, "tol": 1e-8}
    )
    assert less.continue_fit(tol=1e-8, verbose=False).elbo == pytest.approx(refit.elbo, rel=1e-6)
    less.save(tmp_path / "model.natgrad")
    fit.save(tmp_path / "before.natgrad")
    content = {name: (tmp_path / f"{name}.natgrad").read_bytes() for name in ("model", "before")}
    assert b"bob" in content["before"]
    assert b"bob" not in content["model"]


def test_new_levels_and_their_order() -> None:
    case = factorisation()
    fit = case.columns.fit(case.table, init="random", **{**FIT, "tol": 1e-3})
    new = {"userId": ["abe", "ann"], "movieId": [3, 4], "stars": [1.0, 2.0]}
    more = fit.update(new, verbose=False)
    assert more["bias"].frame()["user"].tolist() == ["ann", "bob", "cid", "abe"]
    assert more["v"].frame()["movie"].tolist() == [3, 7, 12, 900, 4]
    assert more.problem.n_observed["r"] == 39 + 2
    np.testing.assert_allclose(more["u"].mean()[1], fit["u"].mean()[1], atol=0.3)  # bob has no new rows


def test_a_mixture_goes_on_from_where_it_was() -> None:
    case = mixture()
    fit = case.columns.fit(cut(case.table, slice(0, 40)), init=case.init, **{**FIT, "tol": 1e-6})
    more = fit.update(cut(case.table, slice(40, None)), verbose=False, tol=1e-6)
    assert more["z"].mean().shape == (50, 3)
    assert np.diff(more.trace["elbo"]).min() > -1e-9
    np.testing.assert_allclose(np.sort(more["mu"].mean()[:, 0]), np.sort(fit["mu"].mean()[:, 0]), atol=0.3)


def test_a_loaded_fit_takes_rows_exactly_where_there_is_one_block(tmp_path: Path) -> None:
    """Conjugate, one global: the posterior given all rows, although the first ones are gone."""
    rng = np.random.default_rng(0)
    table = {"a": rng.normal(size=30), "b": rng.normal(size=30), "y": 1e6 + rng.normal(size=30)}
    w = ng.MultivariateNormal("w", 0.0, 0.1, size=2)
    y = ng.Normal("y", ng.dot(ng.Columns("a", "b"), w) + 1e6, 2.0, plate=ng.Plate("row"), observed=ng.Column("y"))
    network = ng.Network(y)
    network.fit(cut(table, slice(0, 20)), **FIT).save(tmp_path / "m.natgrad")
    found = ng.load(tmp_path / "m.natgrad").update(cut(table, slice(20, None)), verbose=False)
    whole = network.fit(table, **FIT)
    np.testing.assert_allclose(found["w"].mean(), whole["w"].mean(), rtol=1e-8)
    np.testing.assert_allclose(found["w"].std(), whole["w"].std(), rtol=1e-8)


@pytest.mark.parametrize("make", [factorisation, topics, interacting])
def test_streaming_updates_rise_and_keep_what_they_know(make: Any, tmp_path: Path) -> None:
    case = make()
    half = len(next(iter(case.table.values()))) // 2
    fit = case.columns.fit(cut(case.table, slice(0, half)), init=case.init, **{**FIT, "tol": 1e-4})
    fit.save(tmp_path / "m.natgrad")
    more = ng.load(tmp_path / "m.natgrad").update(cut(case.table, slice(half, None)), verbose=False)
    assert np.diff(more.trace["elbo"]).min() > -1e-7
    more.save(tmp_path / "n.natgrad")
    again = ng.load(tmp_path / "n.natgrad")
    for name in again.binding.domain.levels:
        assert len(again.binding.domain.levels[name]) >= len(fit.binding.domain.levels[name])


def test_forgetting_follows_a_level_that_jumps() -> None:
    level = ng.Normal("level", 0.0, 0.01)
    network = ng.Network(ng.Normal("y", level, 1.0, plate=ng.Plate("row"), observed=ng.Column("y")))
    fit = network.fit({"y": np.zeros(100)}, **FIT)
    kept = fit.update({"y": np.full(100, 5.0)}, verbose=False)["level"].mean()
    followed = fit.update({"y": np.full(100, 5.0)}, forgetting=0.9, verbose=False)["level"].mean()
    assert kept == pytest.approx(5.0 * 100 / 200.01, rel=1e-6)
    assert followed == pytest.approx(5.0 * 100 / (0.01 + 10 + 100), rel=1e-6)


def test_mistakes_are_named_and_the_fit_stays() -> None:
    case = factorisation()
    fit = case.columns.fit(case.table, init="random", max_steps=3, verbose=False)
    before = fit["u"].mean()
    for what, error, words in (
        ({"userId": ["zoe"]}, ValueError, "no row has userId = 'zoe'"),
        ({"user": ["ann"]}, ValueError, "there is no column 'user'"),
        ([99], IndexError, "row 99 is outside"),
        (np.ones(40, dtype=bool), ValueError, "no row of plate 'row' would be left"),
        ("ann", TypeError, "forget takes"),
    ):
        with pytest.raises(error, match=words):
            fit.forget(what)
    with pytest.raises(ValueError, match="no column 'stars'"):
        fit.update({"userId": ["ann"], "movieId": [3]})
    with pytest.raises(ValueError, match="forgetting must lie in"):
        fit.update(case.table, forgetting=1.0)
    assert np.array_equal(fit["u"].mean(), before)
    with pytest.raises(ng.errors.PlateMismatch, match="declared with arrays"):
        case.arrays.fit(init="random", max_steps=3, verbose=False).update(case.table)
