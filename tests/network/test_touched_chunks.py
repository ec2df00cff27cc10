"""Rows that come and go in chunks: only the touched ones are summed anew, and the end is that of a refit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import natgrad as ng
from tests.network.bound_cases import factorisation, mixture, regression
from tests.network.test_update import cut

FIT: dict[str, Any] = {"verbose": False, "tol": 1e-9, "max_steps": 2000, "backend": "numpy"}
GO: dict[str, Any] = {"verbose": False, "tol": 1e-9, "max_steps": 2000}


CENTRES = [[-2.0, 0.0], [2.0, 1.0], [0.0, -2.0]]


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
    network, table = levels()
    table["group"][:12] = "z"
    fit = network.fit(table, chunk_rows=12, **FIT)
    less = fit.forget({"group": ["z"]}, **GO)
    assert less["level"].frame()["group"].tolist() == ["a", "b", "d", "e"]
    assert less.problem.n_read == 0  # the chunk of z is gone, the others told what they told
    refit = network.fit(cut(table, slice(12, None)), chunk_rows=12, **FIT)
    assert less.elbo == pytest.approx(refit.elbo, rel=1e-8)
    more = less.update({"group": ["c", "a"], "y": [0.5, -0.5]}, **GO)
    assert more.problem.n_read == 1
    assert more["level"].frame()["group"].tolist() == ["a", "b", "d", "e", "c"]
    joined = {
        name: np.concatenate([table[name][12:], new]) for name, new in (("group", ["c", "a"]), ("y", [0.5, -0.5]))
    }
    assert more.elbo == pytest.approx(network.fit(joined, chunk_rows=12, **FIT).elbo, rel=1e-8)


def test_a_forgotten_user_leaves_no_bytes(tmp_path: Path) -> None:
    """Neither in the file of the model nor in a checkpoint of the run that forgets."""
    case = factorisation()
    network, table = levels()
    table["group"][[3, 30]] = "someone"
    for net, rows, column, name, init in (
        (network, table, "group", "someone", None),
        (case.columns, case.table, "userId", "bob", "random"),
    ):
        fit = net.fit(rows, chunk_rows=9, init=init, **{**FIT, "tol": 1e-3})
        fit.save(tmp_path / "before.natgrad", overwrite=True)
        fit.forget({column: [name]}, verbose=False).save(tmp_path / "after.natgrad", overwrite=True)
        assert name.encode() in (tmp_path / "before.natgrad").read_bytes()
        assert name.encode() not in (tmp_path / "after.natgrad").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("make", [regression, mixture])
def test_a_hundred_random_pieces_end_where_a_refit_does(make: Any) -> None:
    """10 % of the rows go and come back in 100 pieces, in random order."""
    case = make()
    rng = np.random.default_rng(0)
    length = len(next(iter(case.table.values())))
    table = cut(case.table, rng.integers(0, length, 1000))
    table = {k: v + (0.01 * rng.normal(size=1000) if v.dtype.kind == "f" else 0) for k, v in table.items()}
    fit = case.columns.fit(
        cut(table, slice(0, 950)), chunk_rows=50, init={"mu": CENTRES} if make is mixture else None, **FIT
    )
    now = cut(table, slice(0, 950))
    waiting = list(range(950, 1000))
    for piece in rng.permutation(100):
        if piece % 2 and waiting:
            row = [waiting.pop()]
            fit = fit.update(cut(table, row), verbose=False, tol=1e-6)
            now = {k: np.concatenate([now[k], v[row]]) for k, v in table.items()}
        else:
            row = [int(rng.integers(len(now[next(iter(now))])))]
            fit = fit.forget(row, verbose=False, tol=1e-6)
            now = {k: np.delete(v, row) for k, v in now.items()}
    fit = fit.continue_fit(tol=1e-9, verbose=False)
    start = {"mu": fit["mu"].mean()} if make is mixture else None
    refit = case.columns.fit(now, chunk_rows=50, init=start, **FIT)
    assert fit.elbo == pytest.approx(refit.elbo, rel=1e-8)


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
