"""lda-c and docword: every row once; a broken file is named with its line and column, and costs no memory."""

import gzip

import numpy as np
import pytest
import scipy.sparse as sparse

import natgrad as ng
from natgrad.data.io.open import open_source

COUNTS = sparse.coo_array((np.random.default_rng(0).random((31, 9)) < 0.3).astype(np.float64))


def written(tmp_path, name: str, text: str):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


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


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "text", "options"),
    [("x.ldac", ldac, {"n_words": 9}), ("docword.x.txt", docword, {})],
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
    ("name", "text", "words"),
    [
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
    options = {"x.ldac": {"n_words": 9}, "docword.txt": {}}[name]
    with pytest.raises(ValueError, match=words):
        list(open_source(written(tmp_path, name, text), size=2, **options).chunks())


def test_compression_and_bytes_that_are_broken_are_named(tmp_path):
    whole = gzip.compress(docword().encode())
    (tmp_path / "docword.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"docword\.gz: the compressed data are damaged or cut off"):
        list(open_source(tmp_path / "docword.gz").chunks())
    (tmp_path / "x.ldac").write_bytes(b"1 1:\xff\xfe\n")
    with pytest.raises(ValueError, match=r"x\.ldac, line 1: not a text in UTF-8: byte 4 is 0xff"):
        list(open_source(tmp_path / "x.ldac", n_words=3).chunks())
    for name, content in (("x.parquet", b"PAR1nothing"), ("x.arrow", b"ARROW1")):
        (tmp_path / name).write_bytes(content)
        pytest.importorskip("pyarrow")
        with pytest.raises(ValueError, match="cannot be read as"):
            open_source(tmp_path / name)


@pytest.mark.parametrize("name", ["x.ldac", "docword.txt"])
def test_mutated_text_is_read_or_refused_in_words(name, tmp_path, rng):
    text = {"x.ldac": ldac, "docword.txt": docword}[name]().encode()
    options = {"x.ldac": {"n_words": 9}, "docword.txt": {}}[name]
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


def test_topics_of_a_compressed_file(tmp_path):
    words = [f"w{v}" for v in range(9)]
    source = open_source(written(tmp_path, "docword.gz", docword()), size=5, vocabulary=words)
    assert ng.LDA(2, inference="vb", max_passes=2).fit(source).vocabulary_.tolist() == words


@pytest.mark.parametrize(("name", "reader"), [("x.mtx", "scipy.io.mmread"), ("x.svm.gz", "load_svmlight_file")])
def test_formats_of_other_libraries_are_read_there(name, reader, tmp_path):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match=f"{name}.*{reader}"):
        open_source(tmp_path / name)
