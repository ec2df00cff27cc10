"""Sources: every row once, whatever holds it; a broken file is named with its line and column, and costs no memory."""

import gzip
import threading

import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given
from hypothesis import strategies as st

import natgrad as ng
from natgrad.data.io.open import open_source
from natgrad.data.stream import ArraySource, block_order, prefetch

X = np.arange(46.0).reshape(23, 2)
COUNTS = sparse.coo_array((np.random.default_rng(0).random((31, 9)) < 0.3).astype(np.float64))


def written(tmp_path, name: str, text: str):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def joined(source):
    chunks = [chunk.to_sparse() if hasattr(chunk, "to_sparse") else chunk for chunk in source.chunks()]
    assert max(chunk.shape[0] for chunk in chunks) <= 5
    return (sparse.vstack(chunks) if sparse.issparse(chunks[0]) else np.concatenate(chunks)), len(chunks)


@pytest.mark.parametrize("kind", ["array", "memmap", "npy", "parquet", "arrow", "folder"])
def test_rows_in_turn_and_by_number(kind, tmp_path):
    if kind in ("parquet", "arrow", "folder"):
        pa = pytest.importorskip("pyarrow")
        from pyarrow import feather, parquet

        table = pa.table({"a": X[:, 0], "b": X[:, 1].astype(int)})
        data = tmp_path / f"rows.{kind}"
        if kind == "parquet":
            parquet.write_table(table, data, row_group_size=7)
        elif kind == "arrow":
            feather.write_feather(table, data)
        else:
            data.mkdir()
            for number in range(3):
                parquet.write_table(table.slice(8 * number, 8), data / f"part{number}.parquet")
    else:
        np.save(tmp_path / "rows.npy", X)
        maps = {"array": X, "memmap": np.load(tmp_path / "rows.npy", mmap_mode="r"), "npy": tmp_path / "rows.npy"}
        data = maps[kind]
    source = open_source(data, size=5)
    assert source.n_total == 23
    for _ in range(2):
        np.testing.assert_array_equal(joined(source)[0], X)
    np.testing.assert_array_equal(source.take(np.array([7, 0, 22, 7])), X[[7, 0, 22, 7]])
    mixed = joined(open_source(data, size=5, shuffle=1))[0]
    assert not np.array_equal(mixed, X)
    np.testing.assert_array_equal(mixed[np.argsort(mixed[:, 0])], X)
    np.testing.assert_array_equal(joined(open_source(data, size=5, shuffle=1))[0], mixed)


def test_sparse_rows():
    source = open_source(sparse.csc_array(COUNTS), size=5)
    np.testing.assert_array_equal(joined(source)[0].toarray(), COUNTS.toarray())
    np.testing.assert_array_equal(source.take(np.array([3, 1])).toarray(), COUNTS.toarray()[[3, 1]])


@given(st.integers(1, 300), st.integers(1, 60), st.integers(0, 5))
def test_a_block_shuffle_has_every_row_once(n_total, size, seed):
    chunks = list(block_order(n_total, size, seed))
    assert sorted(np.concatenate(chunks).tolist()) == list(range(n_total))
    assert len(chunks) == -(-n_total // size)
    # Blocks are not cut, so chunks differ by the length of one.
    assert max(map(len, chunks)) <= 2 * size


def test_what_cannot_be_opened_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        open_source(tmp_path / "none.npy")
    with pytest.raises(ValueError, match="no kind of file"):
        open_source(written(tmp_path, "x.doc", "x"))
    with pytest.raises(TypeError, match="vocabulary= or n_words="):
        open_source(written(tmp_path, "x.ldac", ""))
    with pytest.raises(ValueError, match=r"shuffle=1: x\.ldac is read from the front"):
        open_source(tmp_path / "x.ldac", n_words=3, shuffle=1)
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table({"name": ["ann"], "n": [1]}), tmp_path / "x.parquet")
    with pytest.raises(TypeError, match="column 'name' is string"):
        open_source(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="no column 'm'"):
        open_source(tmp_path / "x.parquet", columns=["m"])
    assert next(open_source(tmp_path / "x.parquet", columns=["n"]).chunks()).tolist() == [[1.0]]


def test_an_iterator_is_a_source_that_comes_once():
    source = open_source(iter([X[:10], X[10:]]))
    assert (source.n_total, source.rereadable) == (None, False)
    assert sum(len(chunk) for chunk in source.chunks()) == 23
    with pytest.raises(TypeError, match="by number"):
        source.take(np.array([0]))


def test_reading_ahead_hands_over_errors_and_ends_with_its_reader():
    def chunks():
        yield 1
        raise ValueError("broken")

    found = prefetch(chunks())
    assert next(found) == 1
    with pytest.raises(ValueError, match="broken"):
        next(found)
    before = set(threading.enumerate())
    endless = prefetch(iter(int, 1))
    next(endless)
    readers = [thread for thread in threading.enumerate() if thread not in before]
    endless.close()
    assert readers
    assert not any(thread.is_alive() for thread in readers)


def test_topics_of_a_source(tmp_path):
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.5, size=(200, 12))
    np.save(tmp_path / "counts.npy", counts)
    mapped = ng.LDA(3, inference="vb", max_passes=2, tol=0).fit(open_source(tmp_path / "counts.npy", size=50))
    held = ng.LDA(3, inference="vb", max_passes=2, tol=0).fit(ArraySource(counts, 50))
    np.testing.assert_array_equal(mapped.components_, held.components_)
    assert mapped.n_documents_seen_ == 200
