"""Chains and gaps in chunks: whole sequences, and missing values that others read, are what they are in memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import natgrad as ng
from natgrad.inference.problem import Sampled
from tests.network.bound_cases import Twins, sequences
from tests.network.test_chunks import FIT, assert_same, chunked


def local_first(case: Twins, fit: Any) -> list[str]:
    return [*(name for name in case.arrays.hidden if name not in fit.settings.order), *fit.settings.order]


def smoothed() -> Twins:
    """Random walks of different lengths, some of their values missing."""
    rng = np.random.default_rng(0)
    series, y = np.repeat(["s", "t", "r", "q"], [6, 9, 4, 5]), rng.normal(size=24).cumsum()
    y[[3, 11]] = np.nan

    def declared(time: ng.Plate, lengths: Any, observed: Any) -> ng.Network:
        walk = ng.GaussianChain("x", 0.0, 0.1, 1.0, ng.Gamma("q", 1.0, 1.0), plate=time, lengths=lengths)
        tau = ng.Gamma("tau", 1.0, 1.0)
        return ng.Network(ng.Normal("y", walk[:, 0], tau, plate=time, observed=observed))

    later = declared(ng.Plate("time"), ng.Column("series"), ng.Column("y"))
    return Twins(later, {"series": series, "y": y}, declared(ng.Plate("time", 24), [6, 9, 4, 5], y))


def gaps() -> Twins:
    """A predictor with gaps that a response reads, and vectors of which single entries are missing."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=30)
    y = 2.0 * x + 0.3 * rng.normal(size=30)
    both = rng.normal(size=(30, 2))
    x[[4, 5, 17]] = y[[2, 5]] = both[[1, 9], [0, 1]] = np.nan
    table = {"x": x, "y": y, "a": both[:, 0], "b": both[:, 1]}

    def declared(row: ng.Plate, x: Any, y: Any, both: Any) -> ng.Network:
        level, slope, tau = ng.Normal("level", 0.0, 0.1), ng.Normal("slope", 0.0, 0.1), ng.Gamma("tau", 1.0, 1.0)
        seen = ng.Normal("seen", level, 1.0, plate=row, observed=x)
        centre = ng.MultivariateNormal("centre", 0.0, 1.0, size=2)
        return ng.Network(
            ng.Normal("y", slope * seen, tau, plate=row, observed=y),
            ng.MultivariateNormal("v", centre, ng.Wishart("K", 4.0, np.eye(2)), plate=row, observed=both),
        )

    later = declared(ng.Plate("row"), ng.Column("x"), ng.Column("y"), ng.Columns("a", "b"))
    return Twins(later, table, declared(ng.Plate("row", 30), x, y, both), {"slope": 0.5})


@pytest.mark.parametrize("make", [smoothed, gaps, sequences])
def test_chunks_are_the_whole(make: Any) -> None:
    case = make()
    fits = [chunked(case, size, ng.VB(), max_steps=3) for size in (5, 11, 1000)]
    assert_same(fits[0], fits[2])
    assert_same(fits[1], fits[2])
    order = local_first(case, fits[2])
    assert_same(fits[2], case.arrays.fit(ng.VB(), init=case.init, order=order, **{**FIT, "max_steps": 3}), 1e-11)


def test_sequences_are_never_cut_and_memoised_batches_rise() -> None:
    case = sequences()
    fit = chunked(case, 11, max_steps=30, tol=1e-6)
    assert [chunk.program.plan.terms["y"].sizes["time"] for chunk in fit.problem.chunks.held] == [10, 12, 8]
    bounds = fit.trace["elbo"]
    assert np.diff(bounds[np.isfinite(bounds)]).min() >= -1e-9
    again = chunked(case, 11, max_steps=30, tol=1e-6)
    assert bounds.tolist() == again.trace["elbo"].tolist()


def test_chunks_that_are_not_held_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [chunked(make(), 9, ng.VB(), max_steps=2) for make in (sequences, gaps)]
    monkeypatch.setattr("natgrad.network.bind.chunks.HELD", 0)
    for fit, make in zip(kept, (sequences, gaps), strict=True):
        assert fit.trace["elbo"].tolist() == chunked(make(), 9, ng.VB(), max_steps=2).trace["elbo"].tolist()


@pytest.mark.parametrize(
    ("make", "method"),
    [
        (sequences, ng.Children(5)),
        (sequences, ng.GlobalBatch(11)),
        (smoothed, ng.Children(2, option="b")),
        pytest.param(sequences, ng.Children(2, option="b"), marks=pytest.mark.slow),
        pytest.param(smoothed, ng.Children(5), marks=pytest.mark.slow),
        pytest.param(smoothed, ng.GlobalBatch(11), marks=pytest.mark.slow),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_single_steps_of_chains_are_drawn(make: Any, method: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Each with its whole sequence: whatever the size of chunks, and wherever their rows are."""
    case = make()
    fits = [chunked(case, size, method, max_steps=3) for size in (9, 1000)]
    assert_same(*fits)
    monkeypatch.setattr("natgrad.network.bind.sampled.IN_MEMORY", -1)
    again = chunked(case, 9, method, max_steps=3)
    assert again.trace["elbo"].tolist() == fits[0].trace["elbo"].tolist()
    path = tmp_path / "rows.parquet"
    pytest.importorskip("pandas").DataFrame(case.table).to_parquet(path, row_group_size=7)
    filed = case.columns.fit(path, method, chunk_rows=9, init=case.init, **{**FIT, "max_steps": 3})
    assert filed.trace["elbo"].tolist() == fits[0].trace["elbo"].tolist()


@pytest.mark.parametrize("make", [sequences, smoothed])
def test_all_steps_of_chains_are_the_exact_target(make: Any) -> None:
    case = make()
    fit = chunked(case, 9, ng.Children(1000), max_steps=1)
    sampled, state = fit._resume.__self__.sampled, fit.state
    for name, block in sampled.blocks.items():
        sets = sampled.child_sets(name)
        samples = tuple(Sampled(c.term, c.occurrence, c.zipped(c.children), np.ones(len(c.children))) for c in sets)
        for a, b in zip(sampled.target(block, state, (name,), samples), sampled.target(block, state), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


def test_a_group_that_comes_twice_is_an_error() -> None:
    case = sequences()
    table = {**case.table, "series": np.repeat(["s", "t", "r", "s"], [8, 8, 8, 6])}
    with pytest.raises(ValueError, match="the rows of 's' are not together"):
        case.columns.fit(table, chunk_rows=9, init=case.init, **FIT)


def test_a_chunk_without_any_value_counts_nothing() -> None:
    network = ng.Network(ng.Normal("y", ng.Normal("mu", 0.0, 1.0), 1.0, plate=ng.Plate("row"), observed=ng.Column("y")))
    y = np.where(np.arange(20) // 5 == 2, np.nan, np.arange(20.0))
    fits = [network.fit({"y": values}, chunk_rows=5, **FIT) for values in (y, y[np.isfinite(y)])]
    assert fits[0]["mu"].mean() == pytest.approx(fits[1]["mu"].mean(), rel=1e-13)
    assert fits[0].elbo == pytest.approx(fits[1].elbo, rel=1e-13)
    assert fits[0].problem.n_observed["y"] == 15


def test_a_file_that_is_written_during_the_fit_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("natgrad.network.bind.chunks.HELD", 0)
    case, path = sequences(), tmp_path / "rows.csv"
    lines = ["series,y", *(f"{s},{y}" for s, y in zip(case.table["series"], case.table["y"], strict=True))]
    path.write_text("\n".join(lines) + "\n")

    def rewrite(progress: Any) -> None:
        path.write_text("\n".join([*lines[:-1], "r,1000.0"]) + "\n")

    with pytest.raises(ValueError, match="was written while it was read"):
        case.columns.fit(str(path), ng.VB(), chunk_rows=12, init=case.init, callbacks=[rewrite], **FIT)


def test_chunks_with_another_schema_are_named() -> None:
    network = ng.Network(ng.Normal("y", ng.Normal("mu", 0.0, 1.0), 1.0, plate=ng.Plate("row"), observed=ng.Column("y")))
    with pytest.raises(ValueError, match="chunk 1: there is no column 'y'"):
        network.fit([{"y": np.zeros(5)}, {"z": np.zeros(5)}], chunk_rows=5, **FIT)
    with pytest.raises(TypeError, match="chunk 1: column 'y', row 5: 'a' is not a number"):
        network.fit([{"y": np.zeros(5)}, {"y": ["a"] * 5}], chunk_rows=5, **FIT)
