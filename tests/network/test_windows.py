"""A chunk that reads few levels of a plate is asked about these: the same bits as if it were asked about all of them."""

import os
import signal

import numpy as np
import pytest

import natgrad as ng
from natgrad.network.bind import windows
from natgrad.network.bind.windows import ChunkSums, Window, summed, summed_in_windows

N = 240
RNG = np.random.default_rng(0)
TABLE = {
    "user": RNG.integers(0, 40, N).astype(str),
    "item": RNG.integers(0, 15, N),
    "age": RNG.normal(size=N),
    "stars": RNG.normal(size=N),
    "word": RNG.integers(0, 6, N),
}


def ratings():
    row, user, item = ng.Plate("row"), ng.Plate("user"), ng.Plate("item")
    u = ng.MultivariateNormal("u", 0.0, 1.0, size=2, plate=user)
    v = ng.MultivariateNormal("v", 0.0, 1.0, size=2, plate=item)
    bias = ng.Normal("bias", 0.0, ng.Gamma("spread", 1.0, 1.0), plate=user)
    mean = ng.dot(u[ng.Column("user")], v[ng.Column("item")]) + bias[ng.Column("user")]
    return ng.Network(ng.Normal("stars", mean, ng.Gamma("tau", 1.0, 1.0), plate=row, observed=ng.Column("stars")))


def topics():
    token, user = ng.Plate("token"), ng.Plate("user")
    theta = ng.Dirichlet("theta", 0.5, size=3, plate=user)
    phi = ng.Dirichlet("phi", 0.5, size=6, plate=ng.Plate("topic", 3))
    z = ng.Categorical("z", theta[ng.Column("user")], plate=token)
    return ng.Network(ng.Categorical("word", phi[z], plate=token, observed=ng.Column("word")))


def cells():
    """One number for each pair of a user and an item: two windows on one node."""
    row, user, item = ng.Plate("row"), ng.Plate("user"), ng.Plate("item")
    w = ng.Normal("w", 0.0, 1.0, plate=(user, item))
    mean = w[ng.Column("user"), ng.Column("item")]
    return ng.Network(ng.Normal("stars", mean, ng.Gamma("tau", 1.0, 1.0), plate=row, observed=ng.Column("stars")))


def fitted(network, monkeypatch, least, method=None, table=TABLE, **options):
    monkeypatch.setattr(windows, "LEAST_LEVELS", least)
    monkeypatch.setattr(windows, "MOST_SHARE", 100.0)
    start = {"phi": np.random.default_rng(1).dirichlet(np.ones(6), 3)} if "z" in str(network) else "random"
    given = {
        "init": start,
        "max_steps": 4,
        "tol": 0.0,
        "chunk_rows": 25,
        "verbose": False,
        "backend": "numpy",
        **options,
    }
    return network.fit(table, method or ng.VB(), **given)


def same(a, b):
    return all(np.array_equal(x, y) for name in a.state.lam for x, y in zip(a.state.lam[name], b.state.lam[name]))  # noqa: B905


@pytest.mark.parametrize(
    ("declare", "plates", "method"),
    [
        (ratings, {"user", "item"}, ng.VB()),
        (ratings, {"user", "item"}, ng.Children(4)),
        (topics, {"user"}, ng.VB()),
        (topics, {"user"}, None),
        (cells, {"user", "item"}, ng.VB()),
    ],
)
def test_windows_change_no_bit(declare, plates, method, monkeypatch):
    cut = fitted(declare(), monkeypatch, 0, method)
    whole = fitted(declare(), monkeypatch, 10**9, method)
    assert set(cut.problem.program.windows.keys) == plates
    assert not whole.problem.program.windows.keys
    assert same(cut, whole)
    assert cut.elbo == whole.elbo


@pytest.mark.slow
def test_compiled_windows_change_no_bit(monkeypatch):
    cut = fitted(ratings(), monkeypatch, 0, backend="jax", max_steps=2)
    assert same(cut, fitted(ratings(), monkeypatch, 10**9, backend="jax", max_steps=2))


@pytest.mark.parametrize("declare", [ratings, topics])
def test_rows_come_and_go_through_windows(declare, monkeypatch):
    found = []
    for least in (0, 10**9):
        fit = fitted(declare(), monkeypatch, least, table={key: column[:200] for key, column in TABLE.items()})
        new = {
            **{key: column[200:] for key, column in TABLE.items()},
            "user": np.append(TABLE["user"][201:], "nobody yet"),
        }
        fit = fit.update(new, max_steps=2, tol=0.0, verbose=False)
        found.append(fit.forget({"user": [TABLE["user"][3]]}, max_steps=2, tol=0.0, verbose=False))
    assert same(*found)
    assert found[0].elbo == found[1].elbo


def test_an_index_that_points_into_two_plates_has_no_window(monkeypatch):
    """Two columns that are equal in every chunk are one array."""
    codes = np.arange(N) % 40
    w, x = (ng.Normal(name, 0.0, 1.0, plate=ng.Plate(f"of {name}")) for name in "wx")
    mean = w[ng.Column("code")] + x[ng.Column("other")]
    network = ng.Network(ng.Normal("stars", mean, 1.0, plate=ng.Plate("row"), observed=ng.Column("stars")))
    table = {"code": codes, "other": codes, "stars": TABLE["stars"]}
    cut, whole = (fitted(network, monkeypatch, least, table=table) for least in (0, 10**9))
    assert not cut.problem.program.windows.keys
    assert same(cut, whole)


def test_windows_are_left_where_a_chunk_reads_most_levels(monkeypatch):
    cut = fitted(ratings(), monkeypatch, 0)
    assert cut.problem.program.windows.keys  # forced here
    monkeypatch.undo()
    fit = ratings().fit(TABLE, ng.VB(), init="random", max_steps=1, tol=0.0, chunk_rows=25, verbose=False)
    assert not fit.problem.program.windows.keys  # forty users are no reason


def test_sums_own_what_they_add_to():
    whole, part = np.zeros(4), np.array([1.0, 2.0])
    first, second = (
        ChunkSums({"a": (whole,)}, 1.0),
        ChunkSums({"a": (part,)}, 2.0, {"a": (Window(0, np.array([0, 3]), 4),)}),
    )
    total = summed([first, second, second])
    np.testing.assert_array_equal(total.parts["a"][0], [2.0, 0.0, 0.0, 4.0])
    assert total.value == 5.0
    assert not whole.any()
    np.testing.assert_array_equal(summed([second, first]).parts["a"][0], [1.0, 0.0, 0.0, 2.0])


def test_sums_of_runs_keep_the_windows_of_their_chunks(rng):
    """And have the bits of the sum over all entries, wherever a chunk has none of some array."""
    size, whole, told = 50, np.zeros((50, 3)), []
    for n in (5, 20, 1):
        levels = np.sort(rng.choice(size, n, replace=False))
        part = rng.normal(size=(n, 3))
        told.append(ChunkSums({"a": (part,), "b": (part.sum(0),)}, float(n), {"a": (Window(0, levels, size),)}))
        whole[levels] += part
    run = summed_in_windows(told)
    (window,) = run.windows["a"]
    assert len(window.levels) < size
    np.testing.assert_array_equal(run.whole()["a"][0], whole)
    assert run.value == 26.0
    plain = ChunkSums({"a": (np.ones((size, 3)),), "b": (np.ones(3),)}, 1.0)
    mixed = summed_in_windows([*told, plain])
    assert not mixed.windows
    np.testing.assert_array_equal(mixed.parts["a"][0], whole + 1.0)
    assert summed_in_windows([told[0]]) is told[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_workers_that_die_cost_no_bit(tmp_path, monkeypatch):
    """Chunks that are sent and chunks that workers read themselves, with windows of their own size; one is killed under way."""
    distributed, pandas = pytest.importorskip("distributed"), pytest.importorskip("pandas")
    n, rng = 3_000, np.random.default_rng(3)
    table = {
        "user": rng.permutation(n) % 2_500,
        "item": rng.integers(0, 15, n),
        "stars": rng.normal(size=n),
    }
    pandas.DataFrame(table).to_parquet(tmp_path / "rows.parquet")
    options = {"init": "random", "max_steps": 4, "tol": 0.0, "chunk_rows": 300, "verbose": False, "backend": "numpy"}
    here = ratings().fit(table, ng.VB(), **options)
    assert set(here.problem.program.windows.keys) == {"user"}
    killed = []

    def kill(progress):
        if progress.t == 2:
            with distributed.Client(cluster) as client:
                killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[-1], signal.SIGKILL)

    for source in (table, str(tmp_path / "rows.parquet")):
        with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
            there = ratings().fit(source, ng.VB(), **options, executor=cluster, callbacks=[kill])
        assert here.trace["elbo"].tolist() == there.trace["elbo"].tolist()
        assert same(here, there)
        monkeypatch.setattr("natgrad.network.bind.chunks.HELD", 0)
    assert len(killed) == 2
