"""How a step is shared out changes no bit of it: parts are pure functions of what travels to them, added up in order."""

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sparse
from network.bound_cases import CASES
from promises import networks

import natgrad as ng
from natgrad import threads
from natgrad.data.origin import Mapped
from natgrad.inference import rows as row_parts
from natgrad.inference.executors import (
    Broadcast,
    BroadcastArgument,
    Dask,
    ShardSpec,
    Threads,
    opened,
    place_shards,
)
from natgrad.models import hmm
from natgrad.models.factorization import parts as rating_parts
from natgrad.models.hmm import problem as hmm_problem
from natgrad.models.lda import problem as lda_problem
from natgrad.network.execute import groups as network_groups
from natgrad.recommenders import FactorPriors


class Elsewhere:
    """What another machine would do: everything travels as bytes, and the last call is the first one to be done."""

    n_threads = 3

    def __init__(self):
        self.bytes, self.calls = 0, []

    def place(self, shards):
        self.shards = [pickle.dumps(shard.data if isinstance(shard, Broadcast) else shard) for shard in shards]
        found = [pickle.loads(shard) for shard in self.shards]
        self.made = [shard.made() if isinstance(shard, ShardSpec) else shard for shard in found]
        return self

    def run(self, function, calls):
        found, calls = {}, list(calls)
        for number in reversed(range(len(calls))):
            shard, arguments = calls[number]
            arguments = tuple(part.value if isinstance(part, BroadcastArgument) else part for part in arguments)
            sent = pickle.dumps((function, arguments))
            self.bytes += len(sent)
            self.calls.append(shard)
            function, arguments = pickle.loads(sent)
            found[number] = pickle.loads(pickle.dumps(function(self.made[shard], *arguments)))
        return [found[number] for number in range(len(calls))]

    def close(self):
        pass


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of so few rows that little data are several; of most of what is fitted here the whole is compiled."""
    sizes = {threads: {"MOST": 600.0}, lda_problem: {"PART": 300, "PART_PER_WORD": 1}, hmm_problem: {"PART": 100}}
    sizes |= {rating_parts: {"PART": 300}, network_groups: {"PART": 20}, row_parts: {"SHARD": 300, "PIECE": 2_000}}
    for module, names in sizes.items():
        for name, size in names.items():
            monkeypatch.setattr(module, name, size)


def counts(seed=0, documents=120, words=200):
    rng = np.random.default_rng(seed)
    return sparse.csr_array(rng.poisson(0.15, (documents, words)))


def same(first, second):
    assert first.elbo_ == second.elbo_
    for name, factor in first.posterior_.items():
        for a, b in zip(factor.lam, second.posterior_[name].lam, strict=True):
            np.testing.assert_array_equal(a, b)


def documents(**settings):
    local = {} if "method" in settings else {"local": ng.LocalOptions(batch_size=60)}
    settings = {"n_topics": 4, "max_passes": 3, **local, **settings}

    def fit(folder, **executor):
        data: Any = counts()
        if folder is not None:
            np.save(folder / "counts.npy", data.toarray())
            data = np.load(folder / "counts.npy", mmap_mode="r")
        return ng.LDA(inference="vb", tol=0.0, **settings, **executor).fit(data)

    return fit


def sequences(kind, **settings):
    lengths = np.array([900, 15, 2000, 3, 1200])  # some are shorter than a subchain
    X = np.random.default_rng(0).normal(size=(4118, 2))
    X = X if kind is ng.GaussianHMM else (X[:, 0] > 0).astype(np.uint8)

    def fit(folder, **executor):
        if folder is not None:
            np.save(folder / "path.npy", X)
        data = X if folder is None else str(folder / "path.npy")
        return kind(n_states=2, n_init=1, tol=0.0, **settings, **executor).fit(data, lengths)

    return fit


def mixtures(**settings):
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(1000, 2)), rng.random(1000)

    def fit(folder, **executor):
        if folder is not None:
            np.save(folder / "rows.npy", X)
        model = ng.GaussianMixture(2, n_init=1, tol=0.0, max_passes=2, n_jobs=1, **settings, **executor)
        return model.fit(X if folder is None else folder / "rows.npy", sample_weight=weight)

    return fit


def ratings(value=lambda v: v, **settings):
    made = ng.data.make_ratings(60, 40, 1500).ratings
    table = {
        "user": np.array([f"u{n}" for n in made.users]),
        "item": 1_000 - 7 * made.items,
        "rating": value(made.values),
    }

    def fit(folder, **executor):
        data: Any = ng.Ratings(*table.values())
        if folder is not None:
            data = folder / "ratings.parquet"
            pytest.importorskip("pandas").DataFrame(table).to_parquet(data, row_group_size=400)
        return ng.MatrixFactorization(3, max_steps=8, tol=0.0, **settings, **executor).fit(data)

    return fit


KNOWN = {"noise": 1.0, "priors": FactorPriors(precision=1.0, biases=False)}
LIKES = {"likelihood": "bernoulli", "value": lambda v: (v > np.median(v)) * 1.0}
SHARED = {
    "topics, memoised": documents(),
    "topics, all at once": documents(method=ng.VB()),
    "topics, sampled": documents(method=ng.SVI({"doc": 60})),
    "topics, learned priors": documents(
        doc_prior="learn", topic_prior="learn", local=ng.LocalOptions(topics="point", batch_size=60)
    ),
    "sequences": sequences(ng.GaussianHMM, method=ng.VB(), max_passes=3),
    "sequences, memoised": sequences(ng.GaussianHMM, method=ng.SVI({"sequence": 2}), max_passes=2),
    "sequences of codes": sequences(ng.CategoricalHMM, method=ng.VB(), max_passes=3),
    "subchains": sequences(ng.GaussianHMM, method=hmm.Subchains(60, 20), max_passes=1.0),
    "subchains with buffers": sequences(ng.GaussianHMM, method=hmm.Subchains(60, 20, buffer=7), max_passes=1.0),
    "subchains that grow": sequences(ng.CategoricalHMM, method=hmm.Subchains(60, 20, buffer="grow"), max_passes=1.0),
    "rows": mixtures(covariance="full", method=ng.VB()),
    "rows, memoised": mixtures(covariance="spherical", method=ng.SVI({"row": 200})),
    "ratings": ratings(),
    "ratings, noise of each": ratings(noise="both"),
    "ratings, known precisions": ratings(**KNOWN),
    "likes": ratings(**LIKES, priors=FactorPriors(n_negatives=0)),
    "likes, no biases": ratings(**LIKES, priors=FactorPriors(n_negatives=0, biases=False)),
    "likes, every pair": ratings(**LIKES, priors=FactorPriors(n_negatives=4.0)),
    "counts": ratings(lambda v: np.round(np.abs(v)) + 1.0, likelihood="poisson"),
}


@pytest.mark.parametrize("place", ["memory", "a file"])
@pytest.mark.parametrize("name", SHARED)
def test_models_have_the_same_bits_elsewhere(name, place, small_parts, tmp_path):
    """Of data in a file only the names travel: they are read by those who compute."""
    fit, other = SHARED[name], Elsewhere()
    here, there = fit(None), fit(tmp_path if place == "a file" else None, executor=other)
    assert len(set(other.calls)) > 1
    if place == "a file":
        most = (
            4_500 if name.startswith("rows") or "every pair" in name else 2_000
        )  # weights of rows and of users travel
        assert all(isinstance(pickle.loads(shard), ShardSpec) and len(shard) < most for shard in other.shards)
    same(here, there)


@pytest.mark.parametrize("name", ["ratings", "ratings, noise of each", "likes"])
def test_moments_that_are_read_alone_travel_and_change_no_bit(name, small_parts, monkeypatch):
    here = SHARED[name](None)
    for many in (0.0, 1.0):
        monkeypatch.setattr(rating_parts, "MANY", many)
        same(here, SHARED[name](None, executor=Elsewhere()))


@pytest.mark.parametrize("settings", [{"n_topics": 3}, {"n_topics": ("auto", 5)}], ids=["given", "found"])
def test_settled_topics_of_little_data_are_the_same_bits_elsewhere(settings):
    """In one shard, which is not placed here; runs that have settled are probed, wherever their documents are."""
    X = np.random.default_rng(1).poisson(0.8, (40, 12))
    settings = {**settings, "inference": "vb", "max_passes": 200, "tol": 1e-3}
    here, there = ng.LDA(**settings).fit(X), ng.LDA(**settings, executor=Elsewhere()).fit(X)
    assert here.stop_.converged
    assert len(here.trace_) == len(there.trace_)
    same(here, there)


def test_sharded_topics_are_those_of_one_piece(request):
    """But for sums of doubles in another order."""
    options = {"inference": "vb", "max_passes": 3, "tol": 0.0, "local": ng.LocalOptions(dtype="float64")}
    whole = ng.LDA(4, **options).fit(counts())
    request.getfixturevalue("small_parts")
    np.testing.assert_allclose(ng.LDA(4, **options).fit(counts()).components_, whole.components_, rtol=1e-8)


def test_a_stream_is_shared_out_too(small_parts):
    parts = [counts(seed) for seed in range(3)]
    other = Elsewhere()
    same_words = {"n_topics": 4, "inference": "vb", "local": ng.LocalOptions(batch_size=60)}
    here, there = (
        ng.LDA(**same_words).fit(iter(parts)),
        ng.LDA(**same_words, executor=other).fit(iter(parts)),
    )
    np.testing.assert_array_equal(here.components_, there.components_)
    assert other.calls


def test_only_rows_of_words_that_occur_travel(small_parts):
    X = sparse.csr_array((np.ones(400), (np.repeat(np.arange(40), 10), np.tile(np.arange(10), 40))), shape=(40, 20_000))
    other = Elsewhere()
    ng.LDA(32, inference="vb", method=ng.VB(), max_passes=1, executor=other).fit(X)
    assert other.bytes < 200_000 < 20_000 * 32 * 4


def test_an_array_is_found_in_its_file_and_nowhere_else(tmp_path, rng):
    X = rng.normal(size=(50, 3))
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = Mapped.of(np.asarray(mapped)[5:].view())
    np.testing.assert_array_equal(found.rows(7, 20).opened(), X[12:25])
    assert len(pickle.dumps(found)) < 500
    for other in (X, mapped[:, 1:], mapped[:0], np.load(tmp_path / "x.npy", mmap_mode="c"), mapped + 1.0):
        assert Mapped.of(np.asarray(other)) is None
    np.save(tmp_path / "x.npy", X[:40])
    with pytest.raises(
        FileNotFoundError, match=r"x.npy has .* bytes, .* expected, or was changed: all workers must see"
    ):
        found.opened()
    (tmp_path / "x.npy").unlink()
    with pytest.raises(FileNotFoundError, match="is not there: all workers must see the file"):
        found.opened()


def mixture(**settings):
    case = networks.scalar_mixture(n=240)
    return case.network.fit(init=case.init, order=case.order, **settings)


@pytest.mark.slow
def test_networks_are_the_same_bits_elsewhere(small_parts):
    settings = {"method": ng.SVI({"point": 80}), "max_steps": 12, "tol": 0.0}
    other = Elsewhere()
    here, there = mixture(**settings), mixture(**settings, executor=other)
    assert len(other.calls) == 12 * 4  # 80 observations of a batch, 20 in a part
    assert here.elbo == there.elbo
    for name in here.state.lam:
        for a, b in zip(here.state.lam[name], there.state.lam[name], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("backend", ["numpy", pytest.param("jax", marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", [None, ng.VB()], ids=["none", "VB"])
@pytest.mark.parametrize("name", ["factorisation", "mixture"])
def test_any_network_with_columns_is_shared_out(name, method, backend):
    """Those without independent groups, too."""
    case, other = CASES[name](), Elsewhere()
    settings = {"init": case.init, "max_steps": 4, "tol": 0.0, "backend": backend, "verbose": False, "chunk_rows": 5}
    here, there = (case.columns.fit(case.table, method, **settings, executor=e) for e in (None, other))
    assert len(set(other.calls)) > 3
    assert here.trace["elbo"].tolist() == there.trace["elbo"].tolist()
    for block in here.state.lam:
        for a, b in zip(here.state.lam[block], there.state.lam[block], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("wrong", [{"method": ng.VB()}, {"method": ng.SVI({"point": 80}), "step": ng.Constant(0.5)}])
def test_a_network_shares_out_batches_of_groups_only(wrong):
    with pytest.raises(TypeError, match=r"shares out batches of independent groups.*leave executor= out"):
        mixture(**wrong, executor=Elsewhere())


def test_what_cannot_be_shared_out_says_so():
    with (
        pytest.raises(TypeError, match="cannot be shared out; leave executor= out"),
        place_shards(networks.CASES["scalar_mixture"]().network.problem, Elsewhere()),
    ):
        pass


@pytest.mark.parametrize("wrong", [3, "cluster", object()])
def test_a_wrong_executor_is_named(wrong):
    with pytest.raises((TypeError, ValueError), match=r"executor must be .*tcp://host:8786"):
        ng.LDA(2, inference="vb", executor=wrong).fit(counts())


def test_threads_are_the_default_and_follow_recipes():
    for given in (None, "threads"):
        with opened(given) as found:
            assert isinstance(found, Threads)
            placed = found.place([np.ones(3), ShardSpec(np.zeros, (2,))])
            assert list(placed.run(len, [(1, ()), (0, ())])) == [2, 3]


def test_a_copied_estimator_talks_to_the_same_workers():
    from sklearn.base import clone

    dask = Dask("tcp://nowhere:8786")
    assert clone(ng.LDA(inference="vb", executor=dask)).executor is dask


@pytest.mark.parametrize("shuffle", [None, 3], ids=["in order", "mixed"])
@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_a_source_is_read_by_those_who_compute(kind, shuffle, small_parts, tmp_path):
    table = counts(documents=150, words=40).toarray()
    path = tmp_path / f"counts.{kind}"
    if kind == "npy":
        np.save(path, table)
    else:
        frame = pytest.importorskip("pandas").DataFrame(table, columns=[f"w{n}" for n in range(40)])
        frame.to_parquet(path, row_group_size=64)
    settings, other, sent = (
        {"n_topics": 4, "inference": "vb", "local": ng.LocalOptions(batch_size=60), "max_passes": 2},
        Elsewhere(),
        [],
    )
    place = other.place

    def noted(shards):
        sent.extend(shards)
        return place(shards)

    other.place = noted
    source = ng.data.open_source(path, size=70, shuffle=shuffle)
    here, there = ng.LDA(**settings).fit(source), ng.LDA(**settings, executor=other).fit(source)
    np.testing.assert_array_equal(here.components_, there.components_)
    assert other.calls
    assert all(isinstance(shard, ShardSpec) for shard in sent)


def test_a_stream_of_ratings_is_read_by_those_who_compute(small_parts, tmp_path):
    pandas = pytest.importorskip("pandas")
    made = ng.data.make_ratings(60, 40, 1500).ratings
    order = np.argsort(made.users, kind="stable")
    table = {"user": made.users[order], "item": made.items[order], "rating": made.values[order]}
    pandas.DataFrame(table).to_parquet(tmp_path / "ratings.parquet", row_group_size=230)
    found, sent = [], []
    for executor in (None, Elsewhere()):
        if executor is not None:
            place = executor.place
            executor.place = lambda shards, place=place: (sent.extend(shards), place(shards))[1]
        source = ng.data.RatingsSource(tmp_path / "ratings.parquet", size=400)
        model = ng.MatrixFactorization(3, max_steps=2, tol=0.0, executor=executor)
        found.append(model.fit(source))
    same(*found)
    assert sent
    assert all(isinstance(shard, ShardSpec) for shard in sent)


def test_ratings_of_a_file_that_changes_are_refused(small_parts, tmp_path):
    pandas = pytest.importorskip("pandas")
    made = ng.data.make_ratings(60, 40, 1500).ratings
    path = tmp_path / "ratings.parquet"
    table = pandas.DataFrame({"user": made.users, "item": made.items, "rating": made.values})
    table.to_parquet(path)
    ratings = ng.data.read_ratings(path)
    table[1:].to_parquet(path)
    with pytest.raises(FileNotFoundError, match="all workers must see the file"):
        ng.MatrixFactorization(3, max_steps=3, executor=Elsewhere()).fit(ratings)
