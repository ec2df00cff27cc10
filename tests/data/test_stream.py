"""Sources: every row once, whatever holds it; a broken file is named with its line and column, and costs no memory."""

import gzip
import threading

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sparse
from hypothesis import given
from hypothesis import strategies as st

import natgrad as ng
from natgrad.data.io.matrix_market import read_matrix_market
from natgrad.data.stream import ArraySource, block_order, is_rereadable, open_source, prefetch

X = np.arange(46.0).reshape(23, 2)
COUNTS = sparse.coo_array((np.random.default_rng(0).random((31, 9)) < 0.3).astype(np.float64))


def written(tmp_path, name: str, text: str):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def svmlight() -> str:
    rows = [" ".join(f"{v + 1}:{c:g}" for v, c in zip(r.indices, r.data, strict=True)) for r in rows_of(COUNTS)]
    return "# a comment\n\n" + "\n".join(f"1 {row}" for row in rows) + "\n"


def ldac() -> str:
    return "".join(
        f"{len(r.data)} {' '.join(f'{v}:{c:g}' for v, c in zip(r.indices, r.data, strict=True))}\n"
        for r in rows_of(COUNTS)
    )


def docword() -> str:
    table = COUNTS.tocoo()
    order = np.lexsort((table.col, table.row))
    entries = [f"{table.row[i] + 1} {table.col[i] + 1} {table.data[i]:g}" for i in order]
    return "\n".join(["31", "9", str(len(entries)), *entries]) + "\n"


def rows_of(table):
    table = table.tocsr()
    return [table[[n]] for n in range(table.shape[0])]


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


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "text", "options"),
    [("x.svm", svmlight, {"n_features": 9}), ("x.ldac", ldac, {"n_words": 9}), ("docword.x.txt", docword, {})],
)
def test_text_files(name, text, options, ending, tmp_path):
    source = open_source(written(tmp_path, name + ending, text()), size=5, **options)
    for _ in range(2):
        table, n_chunks = joined(source)
        np.testing.assert_array_equal(table.toarray(), COUNTS.toarray())
        assert n_chunks == 7
    with pytest.raises(TypeError, match=r"by number.*\.npy"):
        source.take(np.array([1]))


@pytest.mark.parametrize(
    ("matrix", "options"),
    [
        (sparse.coo_array(np.array([[1.5, 0.0, -2.0], [0.0, 3.0, 0.0]])), {}),
        (sparse.coo_array(np.array([[1.0, 2.0], [2.0, 0.0]])), {"symmetry": "symmetric"}),
        (sparse.coo_array(np.array([[0.0, 2.0], [-2.0, 0.0]])), {"symmetry": "skew-symmetric"}),
        (sparse.coo_array(np.eye(3)), {"field": "pattern"}),
        (sparse.coo_array((3, 4)), {}),
        (np.arange(6.0).reshape(2, 3), {}),
    ],
    ids=["general", "symmetric", "skew", "pattern", "empty", "array"],
)
def test_a_matrix_market_file_is_what_scipy_reads(matrix, options, tmp_path):
    scipy.io.mmwrite(tmp_path / "x.mtx", matrix, comment="two\nlines", **options)
    wanted = scipy.io.mmread(tmp_path / "x.mtx")
    found = read_matrix_market(tmp_path / "x.mtx")
    assert sparse.issparse(found) == sparse.issparse(wanted)
    np.testing.assert_array_equal(*(m.toarray() if sparse.issparse(m) else m for m in (found, wanted)))


def test_matrix_market(tmp_path):
    scipy.io.mmwrite(tmp_path / "x.mtx", COUNTS)
    source = open_source(tmp_path / "x.mtx", size=5)
    np.testing.assert_array_equal(joined(source)[0].toarray(), COUNTS.toarray())
    written(tmp_path, "bad.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n9 9 1\n")
    with pytest.raises(ValueError, match=r"bad\.mtx.*entry 2: expected a row from 1 to 2, got 9"):
        open_source(tmp_path / "bad.mtx")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("x.svm", "1 1:2\n0 2:1 3;4\n", r"line 2, column 7: expected number:value, got '3;4'"),
        ("x.svm", "1 1:2\none 2:1\n", "line 2, column 1: expected a label"),
        ("x.svm", "1 1:2 10:1\n", "line 1, column 7: expected a feature up to 9"),
        ("x.svm", "1 0:2\n", "line 1, column 3: expected a number from 1"),
        ("x.svm", "1 3:nan\n", "line 1, column 3: expected a finite value"),
        ("x.ldac", "1 0:2\n3 1:1 2:1\n", "line 2, column 1: expected the number of pairs that follow, 2"),
        ("x.ldac", "1 0:2\n2 1:1 9:1\n", "line 2, column 7: expected a word below 9"),
        ("x.ldac", "1 0:-2\n", "line 1, column 3: .*count ≥ 0"),
        ("docword.txt", "3\nfour\n1\n", "line 2, column 1: expected V"),
        ("docword.txt", "3\n4\n2\n1 1 1\n", "line 3 announces 2 entries, and there are 1"),
        ("docword.txt", "3\n4\n2\n1 1 1\n4 1 1\n", "line 5, column 1: expected a document from 1 to 3"),
        ("docword.txt", "3\n4\n2\n1 1 1\n2 x 1\n", "line 5, column 3: expected document word count"),
        ("docword.txt", "3\n4\n2\n1 1 1\n2 1\n", "line 5, column 4: expected document word count"),
        ("docword.txt", "3\n4\n2\n2 1 1\n1 1 1\n", "line 5, column 1: expected documents in order"),
        ("docword.txt", "3\n4\n1\n1 2 -3\n", "line 4, column 5: expected a count"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_column(name, text, words, tmp_path):
    options = {"x.svm": {"n_features": 9}, "x.ldac": {"n_words": 9}, "docword.txt": {}}[name]
    with pytest.raises(ValueError, match=words):
        list(open_source(written(tmp_path, name, text), **options).chunks())


def test_compression_and_bytes_that_are_broken_are_named(tmp_path):
    whole = gzip.compress(docword().encode())
    (tmp_path / "docword.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"docword\.gz: the compressed data are damaged or cut off"):
        list(open_source(tmp_path / "docword.gz").chunks())
    (tmp_path / "x.svm").write_bytes(b"1 1:\xff\xfe\n")
    with pytest.raises(ValueError, match=r"x\.svm, line 1: not a text in UTF-8: byte 4 is 0xff"):
        list(open_source(tmp_path / "x.svm", n_features=3).chunks())
    for name, content in (("x.parquet", b"PAR1nothing"), ("x.arrow", b"ARROW1")):
        (tmp_path / name).write_bytes(content)
        pytest.importorskip("pyarrow")
        with pytest.raises(ValueError, match="cannot be read as"):
            open_source(tmp_path / name)


@pytest.mark.parametrize("name", ["x.svm", "x.ldac", "docword.txt"])
def test_mutated_text_is_read_or_refused_in_words(name, tmp_path, rng):
    text = {"x.svm": svmlight, "x.ldac": ldac, "docword.txt": docword}[name]().encode()
    options = {"x.svm": {"n_features": 9}, "x.ldac": {"n_words": 9}, "docword.txt": {}}[name]
    path, refused = tmp_path / name, 0
    for _ in range(300):
        changed = bytearray(text)
        for place in rng.integers(0, len(text), 3):
            changed[place] = int(rng.integers(256)) if rng.random() < 0.5 else rng.choice(list(b" :\n-e09#"))
        path.write_bytes(changed[: int(rng.integers(1, len(text) + 1))] if rng.random() < 0.3 else changed)
        try:
            list(open_source(path, **options).chunks())
        except ValueError:
            refused += 1
    assert refused > 50


def test_what_cannot_be_opened_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        open_source(tmp_path / "none.npy")
    with pytest.raises(ValueError, match="no kind of file"):
        open_source(written(tmp_path, "x.doc", "x"))
    with pytest.raises(TypeError, match="n_features"):
        open_source(written(tmp_path, "x.svm", ""))
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
    before = threading.active_count()
    endless = prefetch(iter(int, 1))
    next(endless)
    endless.close()
    assert threading.active_count() == before


def test_topics_of_a_source(tmp_path):
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.5, size=(200, 12))
    np.save(tmp_path / "counts.npy", counts)
    mapped = ng.LDA(3, max_passes=2, tol=0).fit(open_source(tmp_path / "counts.npy", size=50))
    held = ng.LDA(3, max_passes=2, tol=0).fit(ArraySource(counts, 50))
    np.testing.assert_array_equal(mapped.components_, held.components_)
    assert mapped.n_documents_seen_ == 200
    words = [f"w{v}" for v in range(9)]
    topics = ng.LDA(2, max_passes=2).fit(
        open_source(written(tmp_path, "docword.gz", docword()), size=5, vocabulary=words)
    )
    assert topics.vocabulary_.tolist() == words


@pytest.mark.parametrize("silent", [True, False])
def test_a_source_says_whether_it_can_be_read_again(silent):
    class Once:
        rereadable = False

    class Old:
        again = False

    assert is_rereadable(Once(), silent=silent) is False
    assert is_rereadable(object(), silent=silent) is silent
    with pytest.raises(TypeError, match=r"Old\.again is called rereadable now"):
        is_rereadable(Old(), silent=silent)
