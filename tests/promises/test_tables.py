"""A matrix: every node, hidden and as a leaf, declared with columns, times everything that a table can be asked for."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from network.test_chunks import assert_same
from promises.tables import CHAINS, NAMES, declared, table

import natgrad as ng

FIT: dict[str, Any] = {"max_steps": 4, "tol": 0.0, "verbose": False, "backend": "numpy", "seed": 3}
TABLE = table()
# Links, gaps, augmentation and chains, one of each: the others are slow tests.
FEW = (
    "leaf Categorical, logits", "leaf Normal, censored", "leaf Poisson, sum", "hidden Normal, gap", "hidden StudentT",
    "hidden Categorical, gap", "hidden Bernoulli, logit", "hidden Gamma", "hidden Dirichlet, shared",
    "hidden TruncatedNormal", "hidden GaussianChain", "hidden MarkovChain",
)  # fmt: skip
CASES = [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
pytestmark = pytest.mark.filterwarnings("ignore")  # few steps do not converge


def rows(begin: int, end: int, series: str = "") -> dict[str, Any]:
    """Some rows; with ``series``, all of one sequence of this name."""
    found = {name: column[begin:end] for name, column in TABLE.items()}
    return {**found, "series": np.full(end - begin, series)} if series else found


@pytest.mark.parametrize("name", CASES)
def test_chunks_are_the_whole(name: str, monkeypatch: Any, tmp_path: Path) -> None:
    """Exact sweeps for chunks of any size, from a file, and of rows in any order; others at least run."""
    network = declared(name, monkeypatch)
    whole = network.fit(TABLE, ng.VB(), chunk_rows=1000, **FIT)
    held, other = (network.fit(TABLE, ng.VB(), chunk_rows=size, **FIT) for size in (5, 7))
    for fit in (held, other):
        assert_same(fit, whole, 1e-12)
    for method in (None, ng.SVI({"n": 5})):
        assert np.isfinite(network.fit(TABLE, method, chunk_rows=5, **FIT).elbo)
    pytest.importorskip("pandas").DataFrame(TABLE).to_parquet(tmp_path / "rows.parquet", row_group_size=4)
    filed = network.fit(tmp_path / "rows.parquet", ng.VB(), chunk_rows=5, **FIT)
    assert filed.trace["elbo"].tolist() == held.trace["elbo"].tolist()
    # Rows of a sequence stay together, in order of time.
    order = (
        np.r_[9:12, 5:9, 0:5] if name.removeprefix("hidden ") in CHAINS else np.random.default_rng(0).permutation(12)
    )
    shuffled = network.fit({key: column[order] for key, column in TABLE.items()}, ng.VB(), chunk_rows=5, **FIT)
    np.testing.assert_allclose(shuffled.trace["elbo"], whole.trace["elbo"], rtol=1e-12)


def asked(predictive: Any) -> list[Any]:
    if isinstance(predictive.node, ng.Categorical):
        return [predictive.probabilities()]
    return [predictive.mean(), predictive.std(), *predictive.interval(0.9)]


@pytest.mark.parametrize("size", [None, 5], ids=["in memory", "in chunks"])
@pytest.mark.parametrize("name", CASES)
def test_rows_are_predicted_come_and_go(name: str, size: int | None, monkeypatch: Any, tmp_path: Path) -> None:
    """Also from a file, which holds the declaration."""
    network = declared(name, monkeypatch)
    fit = network.fit(TABLE, ng.VB(), chunk_rows=size, **FIT)
    found = fit.predict(rows(0, 3), ["y"])["y"]
    assert all(np.isfinite(part).all() for part in asked(found))
    fit.save(tmp_path / "m.natgrad")
    loaded = ng.load(tmp_path / "m.natgrad")
    np.testing.assert_array_equal(loaded.predict(rows(0, 3), ["y"])["y"].sample(0, 5), found.sample(0, 5))
    assert len(str(fit.summary())) > 10
    new = rows(0, 3, "new one" if name.removeprefix("hidden ") in CHAINS else "")
    assert np.isfinite(loaded.update(new, verbose=False, max_steps=3).elbo)


def _sized(case: Any, size: int | None) -> Any:
    """In chunks the shared Dirichlet takes as long as all others together, which are read in the same way."""
    if case == "hidden Dirichlet, shared" and size is not None:
        return pytest.param(case, size, marks=pytest.mark.slow)
    return (case, size) if isinstance(case, str) else pytest.param(*case.values, size, marks=case.marks)


@pytest.mark.parametrize(("name", "size"), [_sized(case, size) for case in CASES for size in (None, 5)])
def test_what_came_and_went_is_as_if_it_had_always_been_so(name: str, size: int | None, monkeypatch: Any) -> None:
    network, long = declared(name, monkeypatch), {**FIT, "max_steps": 400, "tol": 1e-9}
    more = {key: long[key] for key in ("max_steps", "tol", "verbose")}
    wanted = network.fit(rows(0, 9), ng.VB(), chunk_rows=size, **long).elbo
    fewer = network.fit(rows(0, 5), ng.VB(), chunk_rows=size, **long)
    assert fewer.update(rows(5, 9), **more).elbo == pytest.approx(wanted, abs=1e-7)
    longer = network.fit(TABLE, ng.VB(), chunk_rows=size, **long)
    assert longer.forget([9, 10, 11], **more).elbo == pytest.approx(wanted, abs=1e-7)
