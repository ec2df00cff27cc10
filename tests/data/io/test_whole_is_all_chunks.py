"""The theorem of every format: a file read whole is the concatenation of its chunks, whatever their size."""

import gzip
import json

import numpy as np
import pyarrow
import pytest
from pyarrow import feather, parquet

from natgrad.data.io.bags import read_docword, read_ldac
from natgrad.data.io.npy import load_array
from natgrad.data.io.open import open_source
from natgrad.data.io.ratings import RatingsSource, read_ratings
from natgrad.data.io.tables import read_table, table_chunks
from natgrad.data.rows import open_rows
from natgrad.data.sequences import as_columns

# One row at a time, sizes that do and do not divide, all at once, and more than there is.
SIZES = (1, 3, 7, 23, 1000)
rng = np.random.default_rng(3)
COUNTS = (rng.random((23, 9)) < 0.3) * rng.integers(1, 5, (23, 9))
COUNTS[[0, 5, 6, 22]] = 0  # documents without words, at the ends too
NUMBERS = np.where(rng.random((23, 2)) < 0.1, np.nan, rng.normal(size=(23, 2)))


def ldac() -> str:
    lines = (" ".join(f"{v}:{row[v]}" for v in np.flatnonzero(row)) for row in COUNTS)
    return "".join(f"{np.count_nonzero(row)} {line}\n" for row, line in zip(COUNTS, lines, strict=True))


def docword() -> str:
    entries = [f"{d + 1} {v + 1} {COUNTS[d, v]}" for d, v in np.argwhere(COUNTS)]
    return "\n".join(["23", "9", str(len(entries)), *entries[:20], "", *entries[20:]]) + "\n"


def table(chunks) -> np.ndarray:
    return np.vstack([chunk.to_sparse().toarray() for chunk in chunks])


def put(path, text: str):
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("name", "text", "read"), [("f.ldac", ldac, read_ldac), ("docword.f.gz", docword, read_docword)]
)
def test_counts(name, text, read, size, tmp_path):
    path, words = put(tmp_path / name, text()), [f"w{v}" for v in range(9)]
    whole = read(path, words)
    np.testing.assert_array_equal(whole.to_sparse().toarray(), COUNTS)
    chunks = list(open_source(path, size=size, vocabulary=words).chunks())
    assert [len(chunk) for chunk in chunks] == [min(size, 23 - done) for done in range(0, 23, size)]
    np.testing.assert_array_equal(table(chunks), COUNTS)
    assert all(chunk.vocabulary.tolist() == whole.vocabulary.tolist() == words for chunk in chunks)


def test_documents_in_any_order_are_one_chunk(tmp_path):
    head, entries = docword().split("\n")[:3], [line for line in docword().split("\n")[3:] if line]
    path = put(tmp_path / "docword.f", "\n".join([*head, *reversed(entries)]))
    np.testing.assert_array_equal(read_docword(path).to_sparse().toarray(), COUNTS)
    with pytest.raises(ValueError, match=r"docword\.f, line \d+, column 1: expected documents in order: sort the file"):
        list(open_source(path, size=22).chunks())


def test_documents_without_any_word(tmp_path):
    path = put(tmp_path / "f.ldac", "0\n0\n")
    assert read_ldac(path, "abc").to_sparse().shape == (2, 3)  # was refused: X has no words, the vocabulary three
    assert table(open_source(path, vocabulary="abc").chunks()).shape == (2, 3)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["npy", "parquet", "arrow", "folder"])
def test_numbers(kind, size, tmp_path):
    path, columns = tmp_path / f"f.{kind}", pyarrow.table({"a": NUMBERS[:, 0], "b": NUMBERS[:, 1]})
    whole = NUMBERS
    if kind == "npy":
        np.save(path, NUMBERS)
        whole = load_array(path)
    elif kind == "arrow":
        feather.write_feather(columns, path, chunksize=5)
    elif kind == "folder":
        path.mkdir()
        for part in range(3):
            parquet.write_table(columns.slice(8 * part, 8), path / f"{part}.parquet", row_group_size=5)
    else:
        parquet.write_table(columns, path, row_group_size=10)
        whole = as_columns(path)
        rows = open_rows(path, ["b"], lambda x, y: (x, y))
        np.testing.assert_array_equal(np.hstack([rows.inputs, rows.outputs]), NUMBERS)
    np.testing.assert_array_equal(np.concatenate(list(open_source(path, size=size).chunks())), whole)


RECORDS = [{"id": n, "text": f'{n} "quoted", and\nmore', "x": None if n % 5 == 0 else n / 8} for n in range(23)]


def records_file(path):
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(RECORDS), path, row_group_size=10)
    elif path.suffix == ".jsonl":
        put(path, "\n\n".join(map(json.dumps, RECORDS)))
    else:
        mark = {".tsv": "\t", ".csv": ","}[path.suffixes[0]]
        rows = (mark.join('"{}"'.format(str(value).replace('"', '""')) for value in r.values()) for r in RECORDS)
        put(path, mark.join(RECORDS[0]) + "\r\n" + "\r\n".join(rows))
    return path


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["f.csv", "f.tsv.gz", "f.jsonl", "f.parquet"])
def test_tables(name, size, tmp_path):
    path = records_file(tmp_path / name)
    chunks = list(table_chunks(path, ["text", "x"], size=size))
    whole = read_table(path, ["text", "x"])
    assert whole["text"] == [record["text"] for record in RECORDS]
    assert {column: [value for chunk in chunks for value in chunk[column]] for column in whole} == whole
    assert max(len(chunk["text"]) for chunk in chunks) <= size


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["f.csv", "f.dat.gz", "f.tsv", "f.parquet"])
def test_ratings(name, size, tmp_path):
    users = [f"u{n // 4}" for n in range(23)]
    items, stars = [f"film {n % 4}; or, so" for n in range(23)], [float(n % 5) for n in range(23)]
    path = tmp_path / name
    if name.endswith("parquet"):
        parquet.write_table(pyarrow.table({"stars": stars, "customer": users, "movie": items}), path, row_group_size=6)
    else:
        mark, quote = {".dat": ("::", ""), ".csv": (",", '"'), ".tsv": ("\t", '"')}[path.suffixes[0]]
        rows = (f"{s}{mark}{u}{mark}{quote}{i}{quote}" for s, u, i in zip(stars, users, items, strict=True))
        put(path, "\n".join([f"stars{mark}customer{mark}movie", *rows]) + "\n")
    whole = triples([read_ratings(path)])
    assert whole == list(zip(users, items, stars, strict=True))
    assert triples(RatingsSource(path, size=size).chunks()) == whole


def triples(parts) -> list[tuple[str, str, float]]:
    columns = ((r.user_ids[r.users].tolist(), r.item_ids[r.items].tolist(), r.values.tolist()) for r in parts)
    return [triple for part in columns for triple in zip(*part, strict=True)]
