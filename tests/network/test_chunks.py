"""Tables read in chunks: the same numbers as in one piece, for every network, chunk size, number of threads and method."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import natgrad as ng
from natgrad.network.bind.chunks import Chunks
from natgrad.threads import at_most
from tests.network.bound_cases import (
    AUGMENTED,
    CASES,
    Twins,
    augmented,
    contests,
    factorisation,
    interacting,
    mixture,
    pca,
    regression,
    topics,
)

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
    if name == "interacting":  # hidden nodes of a row are solved to the end; in memory they take turns with the globals
        return
    local = [node for node in case.arrays.hidden if node not in whole.settings.order]
    order = [*local, *whole.settings.order]
    now = case.arrays.fit(ng.VB(), init=case.init, order=order, **FIT)
    assert_same(whole, now, 1e-11)
    assert whole.trace["elbo"][-1] == pytest.approx(now.trace["elbo"][-1], rel=1e-12)


@pytest.mark.parametrize("make", [factorisation, mixture])
def test_the_bound_never_falls_and_ends_where_exact_sweeps_do(make: Any) -> None:
    case = make()
    fit = chunked(case, 9, max_steps=60, tol=1e-6)
    bounds = fit.trace["elbo"]
    assert np.diff(bounds[np.isfinite(bounds)]).min() >= -1e-9
    # It has settled where exact sweeps, which are those of arrays, settle.
    after = fit.continue_fit(ng.VB(), max_steps=3, tol=0.0)
    assert after.elbo == pytest.approx(fit.elbo, abs=1e-6)  # the tolerance; 8e-9 and 1e-9 are gained


@pytest.mark.parametrize("make", [factorisation, mixture])
def test_one_thread_and_two_give_the_same_bits(make: Any) -> None:
    case = make()
    with at_most(1):
        one = chunked(case, 6)
    with at_most(2):
        two = chunked(case, 6)
    assert one.trace["elbo"].tolist() == two.trace["elbo"].tolist()
    assert all(np.array_equal(a, b) for name in one for a, b in zip(one[name].lam, two[name].lam, strict=True))


def test_chunks_that_are_not_held_give_the_same_bits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pandas, case = pytest.importorskip("pandas"), factorisation()
    held = chunked(case, 7)
    monkeypatch.setattr("natgrad.network.bind.chunks.HELD", 0)
    anew = chunked(case, 7)
    frame = pandas.DataFrame(case.table)
    frame.iloc[:13].to_parquet(tmp_path / "a.parquet")
    frame.iloc[13:].to_parquet(tmp_path / "b.parquet")
    files = case.columns.fit(str(tmp_path / "*.parquet"), chunk_rows=7, init=case.init, **FIT)
    assert held.trace["elbo"].tolist() == anew.trace["elbo"].tolist() == files.trace["elbo"].tolist()


def test_sampled_steps_read_some_chunks() -> None:
    # From near the centres: from elsewhere exact sweeps are probed, and leave a place in which sampled steps stay.
    case = mixture()._replace(init={"mu": [[-2.0, 0.0], [2.0, 1.0], [0.0, -2.0]]})
    method = ng.SVI({"row": 10})
    fit = chunked(case, 10, method, step=ng.RobbinsMonro(delay=1.0), max_steps=40)
    exact = chunked(case, 10, ng.VB(), max_steps=200, tol=1e-8)
    assert fit.trace["messages_read"][0] < 0.5 * exact.trace["messages_read"][0]
    assert fit.elbo == pytest.approx(exact.elbo, abs=3.0)


@pytest.mark.parametrize("method", [ng.Children(2), ng.GlobalBatch(9), ng.Children(1, option="b")], ids=str)
@pytest.mark.parametrize("make", [factorisation, regression, contests])
def test_single_rows_are_drawn_as_in_memory(make: Any, method: Any) -> None:
    """The same children at the same steps, wherever the rows are."""
    case, steps = make(), {"step": ng.PerNode()}  # the checks of Auto solve jointly in memory, and in chunks do not
    fits = [chunked(case, size, method, **steps) for size in (7, 1000)]
    now = case.arrays.fit(method, init=case.init, order=fits[0].settings.order, **steps, **FIT)
    for fit in fits:
        assert_same(fit, now, 1e-11)
        assert fit.trace["messages_read"].tolist() == now.trace["messages_read"].tolist()


@pytest.mark.parametrize("make", [mixture, topics, pca, pytest.param(interacting, marks=pytest.mark.slow)])
def test_single_rows_with_hidden_nodes(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is hidden in a row is solved where it is drawn: whatever the size of chunks, and wherever their arrays are."""
    case = make()
    for method in (ng.Children(5), ng.GlobalBatch(11)):
        fits = [chunked(case, size, method, max_steps=2) for size in (9, 1000)]
        assert_same(*fits)
    monkeypatch.setattr("natgrad.network.bind.sampled.IN_MEMORY", 0)
    again = chunked(case, 9, method, max_steps=2)
    assert again.trace["elbo"].tolist() == fits[0].trace["elbo"].tolist()


def test_targets_of_all_rows_are_the_full_ones() -> None:
    """ρ = 1 on all children is the exact update, with hidden nodes too."""
    case = mixture()
    fit = chunked(case, 9, ng.Children(1000), step=ng.Constant(1.0), max_steps=1, order=["share", "mu", "precision"])
    problem = fit.problem
    exact = chunked(case, 9, ng.VB(), max_steps=1, order=["share", "mu", "precision"])
    for a, b in zip(fit["share"].lam, exact["share"].lam, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert problem.n_observed["x"] == 50


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


def test_going_on_is_never_having_stopped(tmp_path: Path) -> None:
    case = mixture()
    whole = chunked(case, 7, max_steps=8)
    assert chunked(case, 7, max_steps=3).continue_fit(max_steps=5, tol=0.0).trace["elbo"][-1] == pytest.approx(
        whole.trace["elbo"][-1], rel=1e-12
    )
    keep = {"checkpoint": tmp_path / "run", "every": 1}
    chunked(case, 7, max_steps=3, **keep)
    again = chunked(case, 7, max_steps=8, **keep, resume=True)
    assert again.trace["elbo"].tolist() == whole.trace["elbo"].tolist()


def test_predictions_need_no_rows() -> None:
    case = factorisation()
    fit = chunked(case, 7)
    np.testing.assert_allclose(
        fit.predict({"userId": ["bob"], "movieId": [12]})["r"].mean(),
        fit["u"].mean()[1] @ fit["v"].mean()[2] + fit["bias"].mean()[1],
    )
    assert fit["bias"].frame()["user"].tolist() == ["ann", "bob", "cid"]
    with pytest.raises(ng.errors.PlateMismatch, match="read in chunks"):
        fit.predictive("r")


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


def test_a_long_file_that_cannot_be_cut_is_read_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There would be no other way to fit it; whoever asks for chunks is told."""
    rows = ng.Dirichlet("A", 1.0, size=2, plate=ng.Plate("state", 2))
    chain = ng.MarkovChain("z", [0.5, 0.5], rows, plate=(time := ng.Plate("time")))
    mu = ng.Normal("mu", 0.0, 1.0, plate=ng.Plate("s", 2))
    # Weights of times, which are hidden too, meet the chain.
    y = ng.StudentT("y", mu[chain], 1.0, df=4.0, plate=time, observed=ng.Column("y"))
    whole = ng.Network(y)
    table = {"y": np.repeat([-2.0, 2.0], 15)}
    path = tmp_path / "rows.parquet"
    pytest.importorskip("pandas").DataFrame(table).to_parquet(path)
    options = {"init": {"mu": np.array([-1.0, 1.0])}, **FIT}
    wanted = whole.fit(table, **options)
    monkeypatch.setattr("natgrad.network.bind.bound.LARGE", 10)
    found = whole.fit(path, **options)
    assert found.trace["elbo"].tolist() == wanted.trace["elbo"].tolist()
    assert found.binding.chunk_rows is None
    with pytest.raises(ng.errors.NotConjugate, match=r"'z' is one chain along all rows, and 'y.weight'"):
        whole.fit(path, chunk_rows=10, **options)


def test_a_table_that_changes_during_the_fit_is_an_error() -> None:
    case, reads = mixture(), [0]

    def parts() -> Any:
        reads[0] += 1
        yield {name: values[: 50 - 5 * (reads[0] > 4)] for name, values in case.table.items()}

    from natgrad.network.bind import chunks

    before = chunks.HELD
    chunks.HELD = 0
    try:
        with pytest.raises(ValueError, match="had 50 rows when it was first read, and has 45 now"):
            case.columns.fit(parts, chunk_rows=10, init=case.init, **FIT)
    finally:
        chunks.HELD = before
    assert Chunks is chunks.Chunks


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
def test_leaves_that_are_conjugate_by_augmentation(kind: str, tmp_path: Path) -> None:
    """What makes them so is hidden in every row: local, though nobody declared it."""
    case = augmented(kind)
    whole = chunked(case, 1000, ng.VB())
    assert_same(chunked(case, 9, ng.VB()), whole)
    later, now = case.columns.fit(case.table, ng.VB(), **FIT), case.arrays.fit(ng.VB(), **FIT)
    assert later.trace["elbo"].tolist() == now.trace["elbo"].tolist()
    new = {name: values[:3] for name, values in case.table.items() if name != "y"}
    found = later.predict(new)["y"]
    later.save(tmp_path / "m.natgrad")
    again = ng.load(tmp_path / "m.natgrad")
    assert np.array_equal(again.predict(new)["y"].sample(0, 20), found.sample(0, 20))
    assert np.isfinite(found.log_density(case.table["y"][:3])).all()
    assert (again.update(case.table, verbose=False)["w"].std() < later["w"].std()).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", AUGMENTED)
def test_augmented_leaves_end_where_those_of_arrays_do(kind: str) -> None:
    case, many = augmented(kind), {**FIT, "max_steps": 300}
    assert chunked(case, 9, ng.VB(), **many).elbo == pytest.approx(case.arrays.fit(ng.VB(), **many).elbo, rel=1e-6)


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


def robust_ratings(row: ng.Plate, user: ng.Plate, movie: ng.Plate, i: Any, j: Any, y: Any) -> ng.Network:
    """A scale and a category hidden in every row, and two indices: locals are solved in each pass of a sweep."""
    u = ng.MultivariateNormal("u", 0.0, 1.0, size=2, plate=user)
    v = ng.MultivariateNormal("v", 0.0, 1.0, size=2, plate=movie)
    z = ng.Categorical("z", [0.3, 0.7], plate=row)
    shift = ng.Normal("shift", 0.0, 1.0, plate=ng.Plate("part", 2))
    mean = ng.dot(u[i], v[j]) + shift[z]
    return ng.Network(ng.language.StudentT("r", mean, ng.Gamma("tau", 1.0, 1.0), df=4.0, plate=row, observed=y))


ROBUST = {"u": np.ones((3, 2)), "v": np.arange(8.0).reshape(4, 2) / 8, "shift": [-1.0, 1.0]}


def test_rows_with_hidden_nodes_that_read_several_globals() -> None:
    table = factorisation().table
    later = robust_ratings(ng.Plate("row"), ng.Plate("user"), ng.Plate("movie"), *map(ng.Column, table))
    fits = [later.fit(table, ng.VB(), chunk_rows=size, init=ROBUST, **{**FIT, "max_steps": 2}) for size in (1000, 13)]
    assert_same(*fits)
    assert type(fits[0].problem).__name__ == "ChunkedEdges"
    assert np.diff(fits[0].trace["elbo"]).min() > -1e-9
    np.testing.assert_allclose(fits[1].problem.bound(fits[1].state), fits[0].problem.bound(fits[0].state), rtol=1e-12)


@pytest.mark.slow
def test_they_end_where_those_of_arrays_do() -> None:
    table, many = factorisation().table, {**FIT, "max_steps": 150}
    later = robust_ratings(ng.Plate("row"), ng.Plate("user"), ng.Plate("movie"), *map(ng.Column, table))
    codes = [np.unique(table[name], return_inverse=True)[1] for name in ("userId", "movieId")]
    now = robust_ratings(ng.Plate("row", 40), ng.Plate("user", 3), ng.Plate("movie", 4), *codes, table["stars"])
    end = later.fit(table, ng.VB(), chunk_rows=9, init=ROBUST, **many).elbo
    assert end == pytest.approx(now.fit(ng.VB(), init=ROBUST, **many).elbo, abs=0.02)


@pytest.mark.parametrize("n_parts", [2, 4])
def test_a_chunk_is_as_long_as_the_cache_has_room_for(n_parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default; rows with much that is hidden make short ones."""
    monkeypatch.setattr("natgrad.network.bind.streaming.IN_CACHE", 60)
    monkeypatch.setattr("natgrad.network.bind.streaming.LEAST", 1)
    rows = ng.Plate("row")
    mu = ng.Normal("mu", 0.0, 1.0, plate=ng.Plate("part", n_parts))
    z = ng.Categorical("z", ng.Dirichlet("share", 1.0, size=n_parts), plate=rows)
    network = ng.Network(ng.Normal("x", mu[z], 1.0, plate=rows, observed=ng.Column("x")))
    start = {"mu": np.arange(float(n_parts))}
    fit = network.fit({"x": np.arange(70.0)}, ng.VB(), init=start, executor=_Here(), **FIT)
    assert fit.binding.chunk_rows == 60 // n_parts


class _Here:
    """Somebody else who computes, in this process."""

    n_threads = 1

    def place(self, shards: Any) -> Any:
        from natgrad.inference.executors.threads import Threads

        return Threads().place(shards)

    def close(self) -> None:
        pass


def test_moments_of_very_many_elements_are_made_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    case = topics()
    whole = chunked(case, 30, ng.VB(), backend="jax")
    monkeypatch.setattr("natgrad.network.groups.summary.MANY_NUMBERS", 0)
    monkeypatch.setattr("natgrad.network.groups.summary.ELEMENTS", 2)
    assert_same(chunked(case, 30, ng.VB(), backend="jax"), whole)
