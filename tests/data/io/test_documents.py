"""Documents and tables on disk: every form gives the same counts, and what is wrong is said with its place."""

import gzip

import numpy as np
import pytest
import scipy.sparse as sparse

from natgrad.data.io.documents import count_words, read_documents
from natgrad.data.io.tables import read_table

TEXTS = ["apple pear, plum", 'plum "pear" apple apple', "bolt nut screw", "nut bolt bolt screw"]


def counts(documents):
    corpus = count_words(documents, stop_words=None, min_documents=1, max_share=1.0)
    return corpus.to_sparse().toarray(), corpus.vocabulary.tolist()


def write_csv(path, separator):
    import csv

    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(["number", "text"])
        writer.writerows([[n, text] for n, text in enumerate(TEXTS)])


def make(kind, folder):
    if kind == "folder":
        (folder / "docs" / "deep").mkdir(parents=True)
        for n, text in enumerate(TEXTS):
            (folder / "docs" / ("deep" if n > 1 else ".") / f"{n}.txt").write_text(text)
        return folder / "docs"
    path = (
        folder
        / {
            "lines": "a.txt",
            "gz": "a.txt.gz",
            "csv": "a.csv",
            "tsv": "a.tsv",
            "jsonl": "a.jsonl",
            "parquet": "a.parquet",
        }[kind]
    )
    if kind == "lines":
        path.write_text("\n".join(TEXTS[:2]) + "\n\n" + "\n".join(TEXTS[2:]))
    elif kind == "gz":
        with gzip.open(path, "wt") as file:
            file.write("\n".join(TEXTS))
    elif kind in ("csv", "tsv"):
        write_csv(path, "," if kind == "csv" else "\t")
    elif kind == "jsonl":
        import json

        path.write_text("\n".join(json.dumps({"number": n, "text": text}) for n, text in enumerate(TEXTS)))
    else:
        pytest.importorskip("pyarrow")
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"number": [0, 1, 2, 3], "text": TEXTS}), path)
    return path


@pytest.mark.parametrize("kind", ["folder", "lines", "gz", "csv", "tsv", "jsonl", "parquet"])
def test_every_form_of_texts_gives_the_same_counts(kind, tmp_path):
    path = make(kind, tmp_path)
    found = read_documents(path, column="text")
    # A folder is read by the names of its files.
    order = [names.split("/")[-1] for names in found.names] if kind == "folder" else None
    texts = [TEXTS[int(name[0])] for name in order] if order else TEXTS
    assert found.texts == texts
    table, words = counts(found)
    assert words == ["apple", "bolt", "nut", "pear", "plum", "screw"]
    assert table[texts.index(TEXTS[3])].tolist() == [0, 2, 1, 0, 0, 1]


def test_counted_forms(tmp_path):
    table = np.array([[2, 0, 1], [0, 3, 0]])
    (tmp_path / "words.txt").write_text("a\nb\nc\n")
    (tmp_path / "x.ldac").write_text("2 0:2 2:1\n1 1:3\n")
    (tmp_path / "x.txt").write_text("2 0:2 2:1\n1 1:3\n")
    (tmp_path / "docword.x.txt").write_text("2\n3\n3\n1 1 2\n1 3 1\n2 2 3\n")
    sparse.save_npz(tmp_path / "x.npz", sparse.csr_array(table))
    for name in ("x.ldac", "x.txt", "docword.x.txt", "x.npz"):
        found = read_documents(tmp_path / name, vocabulary=tmp_path / "words.txt")
        corpus = count_words(found)
        np.testing.assert_array_equal(corpus.to_sparse().toarray(), table, err_msg=name)
        assert corpus.vocabulary.tolist() == ["a", "b", "c"]
        assert len(found) == 2


def test_rules_of_counting(tmp_path):
    path = make("lines", tmp_path)
    corpus = count_words(read_documents(path), min_documents=2, max_share=0.5, max_words=4)
    assert corpus.n_words == 4
    with pytest.raises(ValueError, match=r"no words are left of 4 documents .* lower min_documents"):
        count_words(read_documents(path), min_documents=4)


@pytest.mark.parametrize(
    ("name", "text", "options", "said"),
    [
        (
            "a.csv",
            "x,text\n1,b\n1\n",
            {"column": "text"},
            r"line 3: 1 fields, but the first line names 2 columns \(x, text\)",
        ),
        ("a.csv", "", {"column": "text"}, "is empty"),
        (
            "a.csv",
            "x,txt\n1,b\n",
            {"column": "text"},
            "there is no column 'text'; it has 'x', 'txt'; did you mean 'txt'",
        ),
        ("a.csv", "text\n", {}, "has no rows"),
        ("a.jsonl", '{"text": "a"}\n[1]\n', {}, "line 2: expected an object"),
        ("a.jsonl", '{"text": "a"}\n{"txt": "b"}\n', {"column": "text"}, "there is no column 'text'; it has 'txt'"),
        ("a.jsonl", "{", {}, "line 1: not JSON"),
        ("a.txt", "\n\n", {}, "expected a document on each line"),
        ("a.pdf", "x", {}, "cannot tell what it holds"),
        ("a.npz", "x", {}, "not a sparse matrix"),
        ("a.txt", "x", {"kind": "word"}, "kind must be one of folder, lines"),
    ],
)
def test_what_is_wrong_is_said(name, text, options, said, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=said):
        read_documents(tmp_path / name, **options)


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="looked for /"):
        read_documents(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="it is empty"):
        read_documents(tmp_path / "empty")
    (tmp_path / "x.ldac").write_text("1 0:1\n")
    with pytest.raises(FileNotFoundError, match="no such file of words"):
        read_documents(tmp_path / "x.ldac", vocabulary=tmp_path / "words.txt")


def test_tables_have_all_columns_or_those_asked_for(tmp_path):
    write_csv(tmp_path / "a.csv", ",")
    assert list(read_table(tmp_path / "a.csv")) == ["number", "text"]
    assert read_table(tmp_path / "a.csv", ["text", "number"])["number"] == ["0", "1", "2", "3"]
    with pytest.raises(ValueError, match="not a table by its name"):
        read_table(tmp_path / "a.doc")
