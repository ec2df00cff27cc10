"""Tables of any library, with names: a column in another place is another table, and is found by its name or refused."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import natgrad as ng
from natgrad.models import hmm

BRIEF = {"n_init": 1, "max_passes": 2, "tol": 0.0}
KINDS = {"pulse": hmm.Poisson(), "steps": hmm.Poisson()}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng, state = np.random.default_rng(0), np.repeat([0, 1, 0, 1], 20)
    return pd.DataFrame({"steps": rng.poisson(1 + 6 * state), "pulse": rng.poisson(60 - 20 * state)})


@pytest.fixture(scope="module")
def swapped(table) -> pd.DataFrame:
    return table[["pulse", "steps"]]


def test_emissions_find_columns_by_name_in_tables_files_and_rows(table, swapped, tmp_path: Path) -> None:
    model = ng.HMM(2, emissions=KINDS, **BRIEF).fit(table)
    score = model.score(swapped)
    assert model.score(table) == score == model.score(swapped.to_numpy())
    path = tmp_path / "rows.parquet"
    table.assign(other=1.0).to_parquet(path)
    assert model.score(path) == score
    assert ng.HMM(2, emissions=KINDS, **BRIEF).fit(str(path)).elbo_ == model.elbo_
    for rows in ([row for _, row in table.iterrows()], table.to_dict("records"), list(swapped.to_numpy())):
        live = model.filter()
        states = [live.update(row) for row in rows]
        assert live.log_prob == pytest.approx(score)
    np.testing.assert_allclose(states, model.filter().update(table), atol=1e-12)
    driven = ng.HMM(2, emissions=KINDS, transitions=hmm.Transitions(inputs="push"), **BRIEF).fit(
        table.assign(push=list("ab") * 40)
    )
    live = driven.filter()
    for n, row in enumerate(table.to_dict("records")):
        live.update({"push": "ab"[n % 2], **row})
    assert live.log_prob == pytest.approx(driven.score(table.assign(push=list("ab") * 40)))


@pytest.mark.parametrize("settings", [{"durations": hmm.Explicit(3)}, {"inputs": 1}], ids=["durations", "inputs"])
def test_longer_chains_refuse_moves(settings, table) -> None:
    with pytest.raises(ValueError, match='durations and inputs have no moves of states: leave out moves="keep"'):
        ng.HMM(2, transitions=hmm.Transitions(**settings), **BRIEF).fit(table.to_numpy() % 2, moves="keep")


def test_missing_entries_of_nullable_columns_are_missing():
    """pandas has columns of booleans and numbers with a missing value of their own, and a kind for each column refused it."""
    rng = np.random.default_rng(0)
    plain = pd.DataFrame({"a": rng.normal(size=30), "b": rng.integers(0, 2, 30).astype(float)})
    plain.loc[3, "b"] = plain.loc[5, "a"] = np.nan
    nullable = pd.DataFrame({"a": pd.array(plain["a"], dtype="Float64"), "b": pd.array(plain["b"], dtype="boolean")})
    kinds = {"a": hmm.Gaussian("diag"), "b": hmm.Bernoulli()}
    bounds = [hmm.HMM(2, emissions=kinds, seed=0, max_passes=3, tol=0).fit(X).elbo_ for X in (plain, nullable)]
    assert bounds[0] == bounds[1]
