"""Tables read in chunks: the same numbers as in one piece, for every network, chunk size, number of threads and method."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from network.bound_cases import (
    AUGMENTED,
    CASES,
    SOLVED_IN_ROWS,
    Twins,
    augmented,
    contests,
    factorisation,
    gaps,
    interacting,
    mixture,
    regression,
    sequences,
)

import natgrad as ng
from natgrad.network.execute.problem import NetworkProblem

FIT: dict[str, Any] = {"max_steps": 4, "tol": 0.0, "verbose": False, "backend": "numpy", "seed": 3}


def assert_same(one: Any, other: Any, rtol: float = 1e-12) -> None:
    """Bounds and natural parameters, against the size of each."""
    np.testing.assert_allclose(one.trace["elbo"], other.trace["elbo"], rtol=rtol)
    for name in one:
        for a, b in zip(one[name].lam, other[name].lam, strict=True):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=100 * rtol * np.abs(b).max())


def chunked(case: Twins, size: int, method: Any = None, **options: Any) -> Any:
    return case.columns.fit(case.table, method, chunk_rows=size, init=case.init, **{**FIT, **options})


@pytest.mark.parametrize("name", CASES)
def test_chunks_of_any_size_are_the_whole(name: str) -> None:
    case = CASES[name]()
    whole = chunked(case, 1000, ng.VB())
    assert_same(chunked(case, 7, ng.VB()), whole)
    assert_same(chunked(case, 11, ng.VB(), max_steps=2), chunked(case, 1000, ng.VB(), max_steps=2))
    if name in SOLVED_IN_ROWS:
        assert np.diff(whole.trace["elbo"]).min() > -1e-9
        return
    local = [node for node in case.arrays.hidden if node not in whole.settings.order]
    order = [*local, *whole.settings.order]
    now = case.arrays.fit(ng.VB(), init=case.init, order=order, **FIT)
    assert_same(whole, now, 1e-11)


@pytest.mark.parametrize("make", [factorisation, mixture])
def test_the_bound_never_falls_and_ends_where_exact_sweeps_do(make: Any) -> None:
    case = make()
    fit = chunked(case, 9, max_steps=60, tol=1e-6)
    bounds = fit.trace["elbo"]
    assert np.diff(bounds[np.isfinite(bounds)]).min() >= -1e-9
    # It has settled where exact sweeps, which are those of arrays, settle.
    after = fit.continue_fit(ng.VB(), max_steps=3, tol=0.0)
    assert after.elbo == pytest.approx(fit.elbo, abs=1e-6)  # the tolerance; 8e-9 and 1e-9 are gained


@pytest.fixture
def read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are read, made and forgotten at every visit, as those of large files are."""
    monkeypatch.setattr("natgrad.network.bind.chunks.HELD", 0)


@pytest.mark.usefixtures("read_again")
@pytest.mark.parametrize("make", [factorisation, gaps, sequences])
def test_files_that_are_read_at_every_visit_are_the_whole(make: Any, tmp_path: Path) -> None:
    pandas, case = pytest.importorskip("pandas"), make()
    whole = chunked(case, 1000, ng.VB())
    frame = pandas.DataFrame(case.table)
    frame.iloc[:13].to_parquet(tmp_path / "a.parquet")
    frame.iloc[13:].to_parquet(tmp_path / "b.parquet")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    # Ids of a text file are text, and in another order: a random start would be another one.
    for table in (case.table, str(tmp_path / "*.parquet"), tmp_path / "rows.csv")[: 2 if case.init == "random" else 3]:
        assert_same(case.columns.fit(table, ng.VB(), chunk_rows=9, init=case.init, **FIT), whole, 1e-11)


@pytest.mark.parametrize("method", [ng.Children(2), ng.GlobalBatch(9)], ids=str)
def test_single_rows_are_not_read_from_chunks(method: Any) -> None:
    case = regression()
    with pytest.raises(TypeError, match=r"reads single rows, .* leave chunk_rows= out"):
        chunked(case, 7, method)
    with pytest.raises(TypeError, match="reads single rows"):
        chunked(case, 7, max_steps=2).continue_fit(method)


def test_sampled_chunks_of_what_does_not_add_up() -> None:
    case = factorisation()
    method = ng.SVI({"row": 14})
    fit = chunked(case, 7, method, max_steps=60)
    exact = chunked(case, 7, ng.VB(), max_steps=100, tol=1e-6)
    assert fit.trace["messages_read"][0] < 0.5 * exact.trace["messages_read"][0]
    assert fit.elbo > exact.trace["elbo"][0]
    assert fit.elbo == pytest.approx(exact.elbo, abs=5.0)
    all_rows = chunked(case, 7, ng.SVI({"row": 42}), step=ng.Constant(1.0), max_steps=3)
    swept = chunked(case, 7, ng.VB(), step=ng.Constant(1.0), max_steps=3)
    assert_same(all_rows, swept, 1e-11)


def test_equal_arrays_of_one_chunk_are_not_taken_for_one() -> None:
    """Two columns that agree in the first chunk, values without spread, gaps that come later."""
    rng = np.random.default_rng(0)
    a = np.zeros(20)
    b = np.concatenate([np.zeros(8), rng.normal(size=12)])
    y = np.concatenate([np.zeros(8), rng.normal(size=12)])
    y[[10, 15]] = np.nan
    count = np.concatenate([np.zeros(8), rng.integers(0, 5, 12)])
    table = {"a": a, "b": b, "y": y, "n": count}

    def declared(row: ng.Plate, a: Any, b: Any, y: Any, n: Any) -> ng.Network:
        s, t, rate = ng.Normal("s", 0.0, 1.0), ng.Normal("t", 1.0, 1.0), ng.Gamma("rate", 1.0, 1.0)
        return ng.Network(
            ng.Normal("y", s * a + t * b + b, rate, plate=row, observed=y), ng.Poisson("n", rate, plate=row, observed=n)
        )

    later = declared(ng.Plate("row"), *map(ng.Column, "abyn"))
    fit = later.fit(table, ng.VB(), chunk_rows=8, **FIT)
    now = declared(ng.Plate("row", 20), a, b, y, count).fit(ng.VB(), order=fit.settings.order, **FIT)
    assert_same(fit, now)


def test_data_far_from_zero_keep_their_digits() -> None:
    y = 1e9 + np.random.default_rng(0).normal(size=30)

    def declared(row: ng.Plate, observed: Any) -> ng.Network:
        level, tau = ng.Normal("level", 1e9, 1.0), ng.Gamma("tau", 1.0, 1.0)
        return ng.Network(ng.Normal("y", level, tau, plate=row, observed=observed))

    fit = declared(ng.Plate("row"), ng.Column("y")).fit({"y": y}, ng.VB(), chunk_rows=8, **FIT)
    now = declared(ng.Plate("row", 30), y).fit(ng.VB(), order=fit.settings.order, **FIT)
    assert fit["tau"].mean() == pytest.approx(now["tau"].mean(), rel=1e-6)
    assert fit["level"].mean() - 1e9 == pytest.approx(now["level"].mean() - 1e9, abs=1e-6)


def test_what_cannot_be_cut_is_refused() -> None:
    case = mixture()
    rows = ng.Dirichlet("A", 1.0, size=2, plate=ng.Plate("state", 2))
    chain = ng.MarkovChain("z", [0.5, 0.5], rows, plate=(time := ng.Plate("time")))
    whole = ng.Network(
        ng.Normal(
            "y", ng.Normal("mu", 0.0, 1.0, plate=ng.Plate("s", 2))[chain], 1.0, plate=time, observed=ng.Column("y")
        )
    )
    with pytest.raises(ng.errors.PlateMismatch, match="'z' is one chain along all rows of 'time'"):
        whole.fit({"y": np.zeros(30)}, ng.SVI({"time": 10}), chunk_rows=10)
    with pytest.raises(ValueError, match="'z' is hidden in every row"):
        case.columns.fit(case.table, chunk_rows=10, init={"z": np.zeros(50, dtype=int)})
    with pytest.raises(ng.errors.PlateMismatch, match="SVI: batch names plate 'part'"):
        chunked(case, 10, ng.SVI({"part": 3}))
    with pytest.raises(TypeError, match="chunk_rows= is for networks declared with Column"):
        case.arrays.fit(chunk_rows=10)
    with pytest.raises(ValueError, match="chunk_rows must be a whole number"):
        chunked(case, 0)
    twice = {**sequences().table, "series": np.repeat(["s", "t", "r", "s"], [8, 8, 8, 6])}
    with pytest.raises(ValueError, match="the rows of 's' are not together"):
        sequences().columns.fit(twice, chunk_rows=9, **FIT)


@pytest.mark.usefixtures("read_again")
def test_a_table_that_changes_during_the_fit_is_an_error(tmp_path: Path) -> None:
    case, reads = mixture(), [0]

    def parts() -> Any:
        reads[0] += 1
        yield {name: values[: 50 - 5 * (reads[0] > 4)] for name, values in case.table.items()}

    with pytest.raises(ValueError, match="had 50 rows when it was first read, and has 45 now"):
        case.columns.fit(parts, chunk_rows=10, init=case.init, **FIT)
    case, path = sequences(), tmp_path / "rows.csv"
    lines = ["series,y", *(f"{s},{y}" for s, y in zip(case.table["series"], case.table["y"], strict=True))]
    path.write_text("\n".join(lines) + "\n")

    def rewrite(progress: Any) -> None:
        path.write_text("\n".join([*lines[:-1], "r,1000.0"]) + "\n")

    with pytest.raises(ValueError, match="was written while it was read"):
        case.columns.fit(str(path), ng.VB(), chunk_rows=12, init=case.init, callbacks=[rewrite], **FIT)


@pytest.mark.slow
@pytest.mark.parametrize("make", [factorisation, mixture, contests, interacting])
def test_compiled_chunks_are_the_interpreted_ones(make: Any) -> None:
    case = make()
    assert_same(chunked(case, 9, ng.VB(), backend="jax"), chunked(case, 9, ng.VB()), 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("make", [factorisation, mixture])
def test_workers_give_the_same_bits(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that are sent, and files that workers read themselves."""
    distributed, pandas = pytest.importorskip("distributed"), pytest.importorskip("pandas")
    case = make()
    pandas.DataFrame(case.table).to_parquet(tmp_path / "rows.parquet")
    here = [chunked(case, 7, method) for method in (None, ng.VB())]
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", processes=True) as cluster:
        there = [chunked(case, 7, method, executor=cluster) for method in (None, ng.VB())]
        monkeypatch.setattr("natgrad.network.bind.chunks.HELD", 0)
        files = case.columns.fit(
            str(tmp_path / "rows.parquet"), ng.VB(), chunk_rows=7, init=case.init, executor=cluster, **FIT
        )
    for one, other in zip([*here, here[1]], [*there, files], strict=True):
        assert one.trace["elbo"].tolist() == other.trace["elbo"].tolist()
        assert all(np.array_equal(a, b) for name in one for a, b in zip(one[name].lam, other[name].lam, strict=True))


@pytest.mark.parametrize("kind", AUGMENTED)
def test_leaves_that_are_conjugate_by_augmentation(kind: str) -> None:
    """What makes them so is hidden in every row: local, though nobody declared it."""
    case = augmented(kind)
    assert_same(chunked(case, 9, ng.VB()), chunked(case, 1000, ng.VB()))
    later, now = case.columns.fit(case.table, ng.VB(), **FIT), case.arrays.fit(ng.VB(), **FIT)
    assert later.trace["elbo"].tolist() == now.trace["elbo"].tolist()


def test_chunks_with_and_without_censored_rows_are_the_whole() -> None:
    """Censored rows are hidden nodes, and not every chunk has one."""
    mu = ng.Normal("mu", 0.0, 1.0)
    seen = ng.language.censored(ng.Column("y"), right=ng.Column("cut"))
    network = ng.Network(ng.Normal("y", mu, 1.0, plate=ng.Plate("row"), observed=seen))
    table = {"y": np.arange(20.0) / 10, "cut": np.arange(20) < 3}
    plain = ng.Normal("y", ng.Normal("mu", 0.0, 1.0), 1.0, plate=ng.Plate("row", 20),
                      observed=ng.language.censored(table["y"], right=table["cut"]))  # fmt: skip
    later, now = network.fit(table, **FIT), ng.Network(plain).fit(**FIT)
    assert later.trace["elbo"].tolist() == now.trace["elbo"].tolist()
    for rows in (3, 7, 20):
        assert_same(network.fit(table, ng.VB(), chunk_rows=rows, **FIT), network.fit(table, ng.VB(), **FIT))


def test_sequences_are_never_cut_and_memoised_batches_rise() -> None:
    case = sequences()
    fit = chunked(case, 11, max_steps=30, tol=1e-6)
    assert [chunk.program.plan.terms["y"].sizes["time"] for chunk in fit.problem.source.chunks.held] == [10, 12, 8]
    bounds = fit.trace["elbo"]
    assert np.diff(bounds[np.isfinite(bounds)]).min() >= -1e-9
    again = chunked(case, 11, max_steps=30, tol=1e-6)
    assert bounds.tolist() == again.trace["elbo"].tolist()


def test_a_chunk_without_any_value_counts_nothing() -> None:
    network = ng.Network(ng.Normal("y", ng.Normal("mu", 0.0, 1.0), 1.0, plate=ng.Plate("row"), observed=ng.Column("y")))
    y = np.where(np.arange(20) // 5 == 2, np.nan, np.arange(20.0))
    fits = [network.fit({"y": values}, chunk_rows=5, **FIT) for values in (y, y[np.isfinite(y)])]
    assert fits[0]["mu"].mean() == pytest.approx(fits[1]["mu"].mean(), rel=1e-13)
    assert fits[0].elbo == pytest.approx(fits[1].elbo, rel=1e-13)
    assert fits[0].problem.n_observed["y"] == 15


def test_chunks_that_read_few_of_many_levels_are_the_whole() -> None:
    """Such a chunk is asked about its own levels alone."""
    rng = np.random.default_rng(3)
    case = factorisation()
    table = {
        "userId": rng.permutation(3000) % 2500,
        "movieId": rng.integers(0, 15, 3000),
        "stars": rng.normal(size=3000),
    }
    fits = [
        case.columns.fit(table, ng.VB(), chunk_rows=size, init="random", **{**FIT, "max_steps": 2})
        for size in (300, 10_000)
    ]
    assert_same(*fits)
    new = {"userId": np.array([7, 9_999]), "movieId": np.array([3, 3]), "stars": np.array([1.0, -1.0])}
    more = [fit.update(new, max_steps=2, tol=0.0, verbose=False) for fit in fits]
    assert_same(*(fit.forget({"userId": [11]}, max_steps=2, tol=0.0, verbose=False) for fit in more))


def chain(**options: Any) -> ng.Network:
    time = ng.Plate("time")
    level = ng.GaussianChain("level", 0.0, 1.0, 1.0, ng.Gamma("moves", 1.0, 1.0), plate=time, **options)
    y = ng.Normal("y", level[:, 0], ng.Gamma("tau", 1.0, 1.0), plate=time, observed=ng.Column("y"))
    return ng.Network(y)


SERIES = {
    "y": np.cumsum(np.random.default_rng(5).normal(size=60)),
    "who": np.repeat(np.arange(5), [10, 14, 14, 10, 12]),
}


def test_a_chain_along_all_rows_is_not_cut() -> None:
    for method in (None, ng.VB(), ng.SVI({"time": 20})):
        with pytest.raises(
            ng.errors.PlateMismatch, match=r"'level' is one chain along all rows .* lengths=Column\(…\)"
        ):
            chain().fit(SERIES, method, chunk_rows=20)


def test_states_of_sequences_come_chunk_by_chunk() -> None:
    """What one chunk, the whole table, says of every row; a chunk has sequences of its own lengths."""
    net, options = chain(lengths=ng.Column("who")), {"max_steps": 2, "tol": 0, "verbose": False}
    (whole,) = net.fit(SERIES, ng.VB(), chunk_rows=60, **options).rows("level")
    fit = net.fit(SERIES, ng.VB(), chunk_rows=24, **options)
    parts = list(fit.rows("level"))
    assert len(parts) == 3
    np.testing.assert_allclose(np.concatenate([part.mean() for part in parts]), whole.mean(), rtol=0, atol=1e-11)
    np.testing.assert_allclose(np.concatenate([part.var() for part in parts]), whole.var(), rtol=0, atol=1e-11)
    with pytest.raises(KeyError, match=r"fit.rows\('level'\) has them, chunk by chunk"):
        fit["level"]
    with pytest.raises(KeyError, match="'tau' is not hidden in rows; hidden there are level"):
        next(fit.rows("tau"))
    with pytest.raises(TypeError, match="this table was not read in chunks"):
        next(net.fit(SERIES, **options).rows("level"))


def test_one_invalid_colour_ends_a_run_over_some_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a block that is moved colour after colour, the validity of the last one stood for all."""
    right, calls = NetworkProblem.step_block, []

    def step_block(self: Any, block: Any, *args: Any) -> Any:
        state, info = right(self, block, *args)
        calls.extend([1] if block.name == "skill" else [])
        return state, info._replace(valid=info.valid & (len(calls) != 1))

    monkeypatch.setattr(NetworkProblem, "step_block", step_block)
    fit = chunked(contests(), 9, ng.SVI({"game": 9}))
    assert len(calls) == 5  # the colours of one step
    assert fit.stop.diverged
    assert "'skill'" in str(fit.stop)
