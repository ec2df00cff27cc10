"""lda-c and docword: every row once; a broken file is named with its line and column, and costs no memory."""

import gzip

import numpy as np
import pytest
import scipy.sparse as sparse

from natgrad.data.io.open import open_source

COUNTS = sparse.coo_array((np.random.default_rng(0).random((31, 9)) < 0.3).astype(np.float64))


def written(tmp_path, name: str, text: str):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def docword() -> str:
    table = COUNTS.tocoo()
    order = np.lexsort((table.col, table.row))
    entries = [f"{table.row[i] + 1} {table.col[i] + 1} {table.data[i]:g}" for i in order]
    return "\n".join(["31", "9", str(len(entries)), *entries]) + "\n"


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


@pytest.mark.parametrize(("name", "reader"), [("x.mtx", "scipy.io.mmread"), ("x.svm.gz", "load_svmlight_file")])
def test_formats_of_other_libraries_are_read_there(name, reader, tmp_path):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match=f"{name}.*{reader}"):
        open_source(tmp_path / name)
