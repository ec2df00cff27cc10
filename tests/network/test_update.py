"""Rows that come and go: the fit given what is left, by theorem and by refit; nothing stays of what was forgotten."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from network.bound_cases import contests, factorisation, interacting, mixture, regression, topics

import natgrad as ng

FIT: dict[str, Any] = {"verbose": False, "tol": 1e-9, "max_steps": 2000}


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
    more = fit.update(cut(case.table, second), **FIT)
    whole = case.columns.fit(case.table, chunk_rows=chunk_rows, **FIT)
    assert more.elbo == pytest.approx(whole.elbo, rel=1e-8)
    for name in whole.settings.order:
        if whole[name].plates not in ((), ("row",)) or whole[name].plates == ():
            np.testing.assert_allclose(more[name].mean(), whole[name].mean(), rtol=1e-4, atol=1e-5)
    if chunk_rows is None:
        less = more.forget(np.arange(15, len(next(iter(case.table.values())))), **FIT)
        assert less.elbo == pytest.approx(fit.elbo, rel=1e-8)


def test_a_forgotten_user_leaves_nothing_behind(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
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
    in_chunks = case.columns.fit(case.table, chunk_rows=9, init="random", **{**FIT, "tol": 1e-3})
    for now, then in ((fit, less), (in_chunks, in_chunks.forget({"userId": "bob"}, verbose=False))):
        now.save(tmp_path / "before.natgrad", overwrite=True)
        then.save(tmp_path / "after.natgrad", overwrite=True)
        assert b"bob" in (tmp_path / "before.natgrad").read_bytes()
        assert b"bob" not in (tmp_path / "after.natgrad").read_bytes()


def test_new_levels_and_their_order() -> None:
    pytest.importorskip("pandas")
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


def levels() -> tuple[ng.Network, dict[str, Any]]:
    """A level for each group, read by its id, and a spread: additive, nothing hidden in rows."""
    rng = np.random.default_rng(0)
    group = rng.choice(["d", "b", "e", "a"], 60).astype(object)
    level = ng.Normal("level", ng.Normal("top", 0.0, 0.1), 1.0, plate=ng.Plate("group"))
    y = ng.Normal(
        "y", level[ng.Column("group")], ng.Gamma("tau", 1.0, 1.0), plate=ng.Plate("row"), observed=ng.Column("y")
    )
    return ng.Network(y), {"group": group, "y": rng.normal(size=60)}


def test_levels_come_and_go() -> None:
    pytest.importorskip("pandas")
    network, table = levels()
    table["group"][:12] = "z"
    fit = network.fit(table, chunk_rows=12, **FIT, backend="numpy")
    less = fit.forget({"group": ["z"]}, **FIT)
    assert less["level"].frame()["group"].tolist() == ["a", "b", "d", "e"]
    assert less.problem.source.n_read == 0  # the chunk of z is gone, the others told what they told
    refit = network.fit(cut(table, slice(12, None)), chunk_rows=12, **FIT, backend="numpy")
    assert less.elbo == pytest.approx(refit.elbo, rel=1e-8)
    more = less.update({"group": ["c", "a"], "y": [0.5, -0.5]}, **FIT)
    assert more.problem.source.n_read == 1
    assert more["level"].frame()["group"].tolist() == ["a", "b", "d", "e", "c"]
    joined = {
        name: np.concatenate([table[name][12:], new]) for name, new in (("group", ["c", "a"]), ("y", [0.5, -0.5]))
    }
    assert more.elbo == pytest.approx(network.fit(joined, chunk_rows=12, **FIT, backend="numpy").elbo, rel=1e-8)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_rows_of_a_chunk_that_all_have_weight_zero_tell_nothing(place):
    """They were refused, as if no row of the table counted."""
    row = ng.Plate("row", weight=ng.Column("w"))
    mu = ng.Normal("mu", [-1.0, 1.0], 1.0, plate=ng.Plate("k", 2))
    z = ng.Categorical("z", [0.4, 0.6], plate=row)
    network = ng.Network(ng.Normal("y", mu[z], ng.Gamma("t", 1.0, 1.0), plate=row, observed=ng.Column("y")))
    table = {"y": np.random.default_rng(0).normal(size=12), "w": np.ones(12)}
    table["w"][4 * place : 4 * place + 4] = 0.0
    whole, parts = (network.fit(table, ng.VB(), chunk_rows=n, max_steps=5, tol=0, verbose=False) for n in (100, 4))
    np.testing.assert_allclose(parts.trace["elbo"], whole.trace["elbo"], rtol=1e-12)
    with pytest.raises(ValueError, match="weight is 0 everywhere"):
        network.fit({**table, "w": np.zeros(12)}, chunk_rows=4, verbose=False)


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
