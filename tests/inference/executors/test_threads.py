"""How a step is shared out changes no bit of it: parts are pure functions of what travels to them, added up in order."""

import pickle

import networks
import numpy as np
import pytest
import scipy.sparse as sparse

import natgrad as ng
from natgrad import threads
from natgrad.data.origin import Mapped
from natgrad.inference.executors.threads import (
    Broadcast,
    BroadcastArgument,
    Dask,
    ShardSpec,
    Threads,
    even_cuts,
    opened,
    place_shards,
)
from natgrad.models import hmm
from natgrad.models.factorization import parts as rating_parts
from natgrad.models.hmm import problem as hmm_problem
from natgrad.models.lda import problem as lda_problem
from natgrad.network.groups import groups as network_groups


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
    monkeypatch.setattr(
        threads, "MOST", 600.0
    )  # of most of what is fitted here the whole is compiled, and parts are little
    monkeypatch.setattr(lda_problem, "PART", 300)
    monkeypatch.setattr(lda_problem, "PART_PER_WORD", 1)
    monkeypatch.setattr(hmm_problem, "PART", 100)
    monkeypatch.setattr(rating_parts, "PART", 300)
    monkeypatch.setattr(network_groups, "PART", 20)


def counts(seed=0, documents=120, words=200):
    rng = np.random.default_rng(seed)
    return sparse.csr_array(rng.poisson(0.15, (documents, words)))


def same(first, second):
    assert first.elbo_ == second.elbo_
    for name, factor in first.posterior_.items():
        for a, b in zip(factor.lam, second.posterior_[name].lam, strict=True):
            np.testing.assert_array_equal(a, b)


LDA = {
    "memoised": {},
    "all at once": {"method": ng.VB()},
    "sampled": {"method": ng.SVI({"doc": 60})},
    "learned": {"doc_prior": "learn", "topic_prior": "learn", "local": ng.LocalOptions(topics="point", batch_size=60)},
}


@pytest.mark.parametrize("settings", LDA.values(), ids=LDA)
def test_topics_are_the_same_bits_elsewhere(settings, small_parts):
    settings = {
        "n_topics": 4,
        "inference": "vb",
        "max_passes": 3,
        "tol": 0.0,
        "local": ng.LocalOptions(batch_size=60),
        **settings,
    }
    other = Elsewhere()
    here, there = ng.LDA(**settings).fit(counts()), ng.LDA(**settings, executor=other).fit(counts())
    assert len(set(other.calls)) > 2
    same(here, there)
    assert there.trace_["elbo"][-1] == here.trace_["elbo"][-1] or np.isnan(here.trace_["elbo"][-1])


@pytest.mark.parametrize("settings", [{"n_topics": 3}, {"n_topics": ("auto", 5)}], ids=["given", "found"])
def test_settled_topics_of_little_data_are_the_same_bits_elsewhere(settings):
    """In one shard, which is not placed here; runs that have settled are probed, wherever their documents are."""
    X = np.random.default_rng(1).poisson(0.8, (40, 12))
    settings = {**settings, "inference": "vb", "max_passes": 200, "tol": 1e-3}
    here, there = ng.LDA(**settings).fit(X), ng.LDA(**settings, executor=Elsewhere()).fit(X)
    assert here.stop_.converged
    assert len(here.trace_) == len(there.trace_)
    same(here, there)


def test_sharded_topics_are_those_of_one_piece(monkeypatch):
    settings = {"n_topics": 4, "inference": "vb", "max_passes": 3, "tol": 0.0}
    settings["local"] = ng.LocalOptions(dtype="float64")
    whole = ng.LDA(**settings).fit(counts())
    monkeypatch.setattr(lda_problem, "PART", 300)
    monkeypatch.setattr(lda_problem, "PART_PER_WORD", 1)
    # Sums of doubles in another order.
    np.testing.assert_allclose(ng.LDA(**settings).fit(counts()).components_, whole.components_, rtol=1e-8)


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


CHAINS = {
    "sequences": {"method": ng.VB(), "max_passes": 3},
    "memoised": {"method": ng.SVI({"sequence": 6}), "max_passes": 2},
    "subchains": {"method": hmm.Subchains(60, 20), "max_passes": 3.0},
    "buffers": {"method": hmm.Subchains(60, 20, buffer=7), "max_passes": 3.0},
    "grown": {"method": hmm.Subchains(60, 20, buffer="grow"), "max_passes": 3.0},
}


@pytest.mark.parametrize("settings", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("kind", [ng.GaussianHMM, ng.CategoricalHMM])
def test_chains_are_the_same_bits_elsewhere(kind, settings, small_parts, rng):
    # Some sequences are shorter than a subchain.
    lengths = np.array([90, 15, 200, 3, 120, 80, 64, 10, 150, 30, 60, 50])
    X = rng.normal(size=(lengths.sum(), 2)) if kind is ng.GaussianHMM else rng.integers(0, 3, lengths.sum())
    settings = {"n_states": 2, "n_init": 1, "tol": 0.0, **settings}
    other = Elsewhere()
    here, there = kind(**settings).fit(X, lengths), kind(**settings, executor=other).fit(X, lengths)
    assert len(set(other.calls)) > 1
    same(here, there)


@pytest.mark.parametrize("settings", [CHAINS["sequences"], CHAINS["grown"]], ids=["sequences", "grown"])
@pytest.mark.parametrize("kind", [ng.GaussianHMM, ng.CategoricalHMM])
def test_chains_in_a_file_are_read_by_those_who_compute(kind, settings, small_parts, tmp_path, rng):
    lengths = np.array([900, 15, 2000, 3, 1200])
    X = rng.normal(size=(4118, 2)) if kind is ng.GaussianHMM else rng.integers(0, 3, 4118).astype(np.uint8)
    file = tmp_path / "path.npy"
    np.save(file, X)
    settings = {"n_states": 2, "n_init": 1, "tol": 0.0, **settings}
    other = Elsewhere()
    here, there = kind(**settings).fit(X, lengths), kind(**settings, executor=other).fit(str(file), lengths)
    assert len(set(other.calls)) > 1
    assert all(isinstance(pickle.loads(shard), ShardSpec) and len(shard) < 1000 for shard in other.shards)
    same(here, there)


@pytest.mark.parametrize("covariance", ["full", "spherical"])
@pytest.mark.parametrize("method", [ng.VB(), ng.SVI({"row": 200})], ids=repr)
def test_rows_are_the_same_bits_elsewhere(method, covariance, monkeypatch, tmp_path, rng):
    from natgrad.inference import rows

    monkeypatch.setattr(rows, "SHARD", 300)
    monkeypatch.setattr(rows, "PIECE", 2_000)
    X, weight, file = rng.normal(size=(1000, 2)), rng.random(1000), tmp_path / "rows.npy"
    np.save(file, X)
    settings = {"covariance": covariance, "n_init": 1, "tol": 0.0, "max_passes": 2, "method": method, "n_jobs": 1}
    here = ng.GaussianMixture(2, **settings).fit(X, sample_weight=weight)
    for data in (X, file):
        other = Elsewhere()
        same(here, ng.GaussianMixture(2, **settings, executor=other).fit(data, sample_weight=weight))
        assert len(set(other.calls)) > 1
    assert all(isinstance(pickle.loads(shard), ShardSpec) for shard in other.shards)


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


@pytest.mark.parametrize("settings", [{}, {"noise": "both"}, {"noise": 0.7}], ids=str)
@pytest.mark.parametrize("many", [0.0, 1.0], ids=["all moments", "those that are read"])
def test_factors_are_the_same_bits_elsewhere(settings, many, small_parts, monkeypatch):
    monkeypatch.setattr(rating_parts, "MANY", many)
    ratings = ng.data.make_ratings(60, 40, 1500).ratings
    settings = {"n_factors": 3, "max_steps": 12, "tol": 0.0, **settings}
    other = Elsewhere()
    here = ng.MatrixFactorization(**settings).fit(ratings)
    there = ng.MatrixFactorization(**settings, executor=other).fit(ratings)
    assert len(set(other.calls)) > 5
    same(here, there)


LIKES = {
    "likelihood": "bernoulli",
    "n_factors": 3,
    "priors": ng.recommenders.FactorPriors(n_negatives=0),
    "max_steps": 12,
    "tol": 0.0,
}


@pytest.mark.parametrize(
    "settings", [{}, {"priors": ng.recommenders.FactorPriors(n_negatives=0, biases=False)}], ids=str
)
@pytest.mark.parametrize("many", [0.0, 1.0], ids=["all moments", "those that are read"])
def test_likes_are_the_same_bits_elsewhere(settings, many, small_parts, monkeypatch):
    monkeypatch.setattr(rating_parts, "MANY", many)
    ratings = ng.data.make_ratings(60, 40, 1500).ratings
    table = ng.Ratings(ratings.users, ratings.items, (ratings.values > np.median(ratings.values)) * 1.0)
    other = Elsewhere()
    here = ng.MatrixFactorization(**{**LIKES, **settings}).fit(table)
    there = ng.MatrixFactorization(**{**LIKES, **settings}, executor=other).fit(table)
    assert len(set(other.calls)) > 5
    same(here, there)
    assert list(here.trace_["elbo"]) == list(there.trace_["elbo"])


def test_likes_alone_and_counts_are_the_same_bits_elsewhere(small_parts):
    ratings = ng.data.make_ratings(60, 40, 1500).ratings
    likes = ng.Ratings(ratings.users, ratings.items, np.ones(len(ratings)))
    counts = ng.Ratings(ratings.users, ratings.items, np.round(np.abs(ratings.values)) + 1.0)
    every_pair = {**LIKES, "priors": ng.recommenders.FactorPriors(n_negatives=4.0)}
    for table, settings in (
        (likes, every_pair),
        (counts, {**LIKES, "priors": ng.recommenders.FactorPriors(), "likelihood": "poisson"}),
    ):
        other = Elsewhere()
        here = ng.MatrixFactorization(**settings).fit(table)
        there = ng.MatrixFactorization(**settings, executor=other).fit(table)
        assert len(set(other.calls)) > 5
        same(here, there)
        assert list(here.trace_["elbo"]) == list(there.trace_["elbo"])


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
def test_any_network_with_columns_is_shared_out(name, method, backend, monkeypatch):
    """Those without independent groups, too; how many rows a chunk has is not for the executor to say."""
    from tests.network.bound_cases import CASES

    monkeypatch.setattr("natgrad.network.bind.streaming.CHUNK", 5)
    case, other = CASES[name](), Elsewhere()
    settings = {"init": case.init, "max_steps": 4, "tol": 0.0, "backend": backend, "verbose": False}
    here = case.columns.fit(case.table, method, chunk_rows=5, **settings)
    there = case.columns.fit(case.table, method, executor=other, **settings)
    assert len(set(other.calls)) > 3
    assert name == "mixture" or here.problem.run_length > 1  # sums of runs come back
    assert here.trace["elbo"].tolist() == there.trace["elbo"].tolist()
    for block in here.state.lam:
        for a, b in zip(here.state.lam[block], there.state.lam[block], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("wrong", [{"method": ng.VB()}, {"method": ng.SVI({"point": 80}), "step": ng.Constant(0.5)}])
def test_a_network_shares_out_batches_of_groups_only(wrong):
    with pytest.raises(TypeError, match=r"shares out batches of independent groups.*leave executor= out"):
        mixture(**wrong, executor=Elsewhere())


def test_factors_with_known_precisions_are_the_same_bits_elsewhere(small_parts):
    ratings = ng.data.make_ratings(60, 40, 1500).ratings
    known = ng.recommenders.FactorPriors(precision=1.0, biases=False)
    bare, other = {"n_factors": 3, "noise": 1.0, "priors": known, "max_steps": 8, "tol": 0.0}, Elsewhere()
    here = ng.MatrixFactorization(**bare).fit(ratings)
    there = ng.MatrixFactorization(**bare, executor=other).fit(ratings)
    assert len(set(other.calls)) > 5
    same(here, there)


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


def test_even_cuts_cover_all_whatever_the_sizes(rng):
    for n_parts in (1, 2, 7, 100):
        sizes = rng.integers(0, 30, 40)
        cuts = even_cuts(sizes, n_parts)
        assert cuts[0] == 0
        assert cuts[-1] == 40
        assert (np.diff(cuts) > 0).all()
        assert len(cuts) - 1 <= n_parts


def test_a_copied_estimator_talks_to_the_same_workers():
    from sklearn.base import clone

    dask = Dask("tcp://nowhere:8786")
    assert clone(ng.LDA(inference="vb", executor=dask)).executor is dask


def dense(folder):
    np.save(folder / "counts.npy", counts().toarray())
    return np.load(folder / "counts.npy", mmap_mode="r")


def compressed(folder):
    """A sparse matrix whose three arrays are mapped."""
    table = counts()
    for name in ("data", "indices", "indptr"):
        np.save(folder / f"{name}.npy", getattr(table, name))
    parts = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("data", "indices", "indptr")]
    return sparse.csr_array(tuple(parts), shape=table.shape)


@pytest.mark.parametrize("form", [dense, compressed], ids=lambda form: form.__name__)
@pytest.mark.parametrize("settings", [LDA["memoised"], LDA["sampled"]], ids=["memoised", "sampled"])
def test_documents_in_a_file_are_read_by_those_who_compute(form, settings, small_parts, tmp_path):
    settings = {
        "n_topics": 4,
        "inference": "vb",
        "max_passes": 3,
        "tol": 0.0,
        "local": ng.LocalOptions(batch_size=60),
        **settings,
    }
    other = Elsewhere()
    here, there = (
        ng.LDA(**settings).fit(counts()),
        ng.LDA(**settings, executor=other).fit(form(tmp_path)),
    )
    assert len(set(other.calls)) > 2
    assert all(isinstance(pickle.loads(shard), ShardSpec) and len(shard) < 2000 for shard in other.shards)
    same(here, there)


@pytest.mark.parametrize("shuffle", [None, 3], ids=["in order", "mixed"])
@pytest.mark.parametrize("kind", ["npy", "parquet", "h5ad"])
def test_a_source_is_read_by_those_who_compute(kind, shuffle, small_parts, tmp_path):
    table = counts(documents=150, words=40).toarray()
    path = tmp_path / f"counts.{kind}"
    if kind == "npy":
        np.save(path, table)
    elif kind == "parquet":
        frame = pytest.importorskip("pandas").DataFrame(table, columns=[f"w{n}" for n in range(40)])
        frame.to_parquet(path, row_group_size=64)
    else:
        anndata = pytest.importorskip("anndata")
        anndata.AnnData(sparse.csr_matrix(table.astype(np.float32))).write_h5ad(path)
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


def test_words_that_a_file_numbers_otherwise_are_sent(small_parts, tmp_path):
    """The first chunk brings its words by name; a file with others cannot be read by number."""
    pandas = pytest.importorskip("pandas")
    first = pandas.DataFrame(counts(1, 60, 30).toarray(), columns=[f"w{n}" for n in range(30)])
    anndata = pytest.importorskip("anndata")
    cells = anndata.AnnData(sparse.csr_matrix(counts(2, 60, 30).toarray().astype(np.float32)))
    cells.var_names = [f"w{29 - n}" for n in range(30)]
    cells.write_h5ad(tmp_path / "cells.h5ad")
    found = []
    for executor in (None, Elsewhere()):
        model = ng.LDA(
            3, local=ng.LocalOptions(batch_size=30), inference="vb", max_passes=5, executor=executor
        ).partial_fit(first)
        found.append(model.fit(ng.data.open_source(tmp_path / "cells.h5ad"), vocabulary=[f"w{n}" for n in range(30)]))
    np.testing.assert_array_equal(found[0].components_, found[1].components_)


RATINGS = {
    "vectors": {},
    "known precisions": {
        "noise": 1.0,
        "priors": ng.recommenders.FactorPriors(precision=1.0, biases=False),
    },
    "likes": {**LIKES},
    "likes, every pair": {**LIKES, "priors": ng.recommenders.FactorPriors(n_negatives=4.0)},
    "counts": {"likelihood": "poisson", "n_factors": 3},
}


@pytest.mark.parametrize("ids", ["numbers", "text"])
@pytest.mark.parametrize("kind", ["parquet", "npz"])
@pytest.mark.parametrize("settings", RATINGS.values(), ids=RATINGS)
def test_ratings_in_a_file_are_read_by_those_who_compute(settings, kind, ids, small_parts, tmp_path):
    pandas = pytest.importorskip("pandas")
    made = ng.data.make_ratings(60, 40, 1500).ratings
    values = np.round(np.abs(made.values)) + 1.0
    if settings.get("likelihood") == "bernoulli":
        values = (made.values > np.median(made.values)) * 1.0
    names = (
        (1_000 - 7 * made.users, made.items)
        if ids == "numbers"
        else tuple(
            np.array([f"{letter}{n}" for n in codes]) for letter, codes in (("u", made.users), ("i", made.items))
        )
    )
    path = tmp_path / f"ratings.{kind}"
    table = {"user": names[0], "item": names[1], "rating": values}
    if kind == "npz":
        np.savez(path, **table)
    else:
        pandas.DataFrame(table).to_parquet(path, row_group_size=400)
    settings = {"n_factors": 3, "max_steps": 6, "tol": 0.0, **settings}
    other = Elsewhere()
    here = ng.MatrixFactorization(**settings).fit(ng.Ratings(*table.values()))
    there = ng.MatrixFactorization(**settings, executor=other).fit(path)
    assert len(set(other.calls)) > 3
    assert all(isinstance(pickle.loads(shard), ShardSpec) for shard in other.shards)
    same(here, there)


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
    made = ng.data.make_ratings(60, 40, 1500).ratings
    path = tmp_path / "ratings.npz"
    np.savez(path, user=made.users, item=made.items, rating=made.values)
    ratings = ng.data.read_ratings(path)
    np.savez(path, user=made.users[1:], item=made.items[1:], rating=made.values[1:])
    with pytest.raises(FileNotFoundError, match="all workers must see the file"):
        ng.MatrixFactorization(3, max_steps=3, executor=Elsewhere()).fit(ratings)
