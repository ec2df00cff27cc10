"""Separated fields, JSON lines and Parquet: what is malformed is named with its file, its line or row group, and what to do."""

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import natgrad as ng
from natgrad.data.io import tables
from natgrad.data.io.documents import read_documents
from natgrad.data.io.open import open_source
from natgrad.data.io.ratings import RatingsSource, read_ratings
from natgrad.data.io.tables import read_table, separator_in


def put(tmp_path, name: str, text: str):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "line", "separator"),
    [
        ("r.csv", '1,"Die; hard",5', ","),  # was ; and the line two columns
        ("r.csv", "1;2;3", ";"),
        ("r.csv", "text", None),
        ("r.tsv", "1\tAlien, the; first\t5", "\t"),
        ("r.dat", "1::Alien, the::5", "::"),
        ("r.txt", '1;"a,b";3', ";"),
    ],
)
def test_what_separates_fields(name, line, separator, tmp_path):
    assert separator_in(tmp_path / name, line) == separator


def test_a_table_separated_by_semicolons(tmp_path):
    path = put(tmp_path, "t.csv", "text;label\na, b;1\n")
    assert read_table(path) == {"text": ["a, b"], "label": ["1"]}  # was one column "text;label", in silence
    assert read_documents(path, column="text").texts == ["a, b"]


def test_a_rating_may_stand_on_two_lines(tmp_path):
    path = put(tmp_path, "r.csv", 'user,review,item,rating\nann,"good,\nand long",alien,5\nbob,short,alien,x\n')
    with pytest.raises(ValueError, match=r"r\.csv, line 4, column 4: the rating must be a finite number, got 'x'"):
        read_ratings(path)
    path.write_text(path.read_text().replace("x\n", "3\n"))
    assert read_ratings(path).values.tolist() == [5.0, 3.0]
    assert [chunk.values.tolist() for chunk in RatingsSource(path).chunks()] == [[5.0], [3.0]]


@pytest.mark.parametrize("read", [read_table, read_ratings, lambda path: list(RatingsSource(path).chunks())])
def test_a_quotation_mark_that_is_not_closed(read, tmp_path, monkeypatch):
    path = put(tmp_path, "t.csv", 'user,item,rating\nann,alien,5\nbob,"alien,3\n' + "cat,brazil,4\n" * 50)
    # A table of texts had one long last document instead.
    with pytest.raises(ValueError, match=r"t\.csv, line 3: a field begins with a quotation mark that is never closed"):
        read(path)
    path.write_text('user,item,rating\nann,alien,5\n"')
    with pytest.raises(ValueError, match=r"t\.csv, line 3: a field begins with a quotation mark that is never closed"):
        read(path)
    path.write_text('user,item,rating\nann,alien,5\nbob,"' + "alien,3\n" * 50)
    monkeypatch.setattr(tables, "LONGEST", 100)
    with pytest.raises(ValueError, match=r"t\.csv, line 3: field larger than field limit .100.; is a quotation mark"):
        read(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1}\n{"b": 2}\n', r"t\.jsonl, line 2: there is no column 'a'; it has 'b'"),
        ('{"a": 1}\n{"a": 2, "b": 3}\n', r"t\.jsonl, line 2: the column 'b' is new; name the columns to read"),
        ('{"a": 1}\n\n[2]\n', r"t\.jsonl, line 3: expected an object with the columns as keys"),
        ('{"a": 1}\n{"a": \n', r"t\.jsonl, line 2: not JSON"),
        ("\n", r"t\.jsonl: is empty"),
    ],
)
def test_json_lines_that_do_not_fit_together(text, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        read_table(put(tmp_path, "t.jsonl", text))


def test_columns_that_are_named_may_have_others_beside_them(tmp_path):
    assert read_table(put(tmp_path, "t.jsonl", '{"a": 1}\n{"a": 2, "b": 3}\n'), ["a"]) == {"a": [1, 2]}


@pytest.fixture
def damaged(tmp_path):
    """Three row groups, the second of which is damaged."""
    path, numbers = tmp_path / "t.parquet", np.arange(3000.0)
    columns = pyarrow.table({"user": numbers // 4, "item": numbers % 4, "rating": numbers % 5})
    parquet.write_table(columns, path, row_group_size=1000, compression="snappy", use_dictionary=False)
    column, data = parquet.read_metadata(path).row_group(1).column(0), bytearray(path.read_bytes())
    data[column.data_page_offset : column.data_page_offset + column.total_compressed_size] = bytes(
        column.total_compressed_size
    )
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "read",
    [
        read_table,
        read_ratings,
        lambda path: list(RatingsSource(path).chunks()),
        lambda path: list(open_source(path).chunks()),
        lambda path: ng.GaussianHMM(2).fit(path),
        lambda path: ng.SparseGPRegressor(4).fit(path, "rating"),
        lambda path: read_documents(path, column="user"),
    ],
)
def test_a_damaged_row_group_is_named_by_everyone_who_reads_it(read, damaged):
    with pytest.raises(ValueError, match=r"t\.parquet, row group 1: cannot be read .*; the file is damaged"):
        read(damaged)


def test_a_file_of_a_folder_that_lacks_a_column(tmp_path):
    for part, names in enumerate(("ab", "a")):
        parquet.write_table(pyarrow.table({name: [1.0] for name in names}), tmp_path / f"{part}.parquet")
    with pytest.raises(ValueError, match=r"1\.parquet: there is no column 'b'; it has 'a'"):
        list(open_source(tmp_path).chunks())  # was filled with NaN
    assert np.concatenate(list(open_source(tmp_path, columns=["a"]).chunks())).tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize(
    ("users", "last", "words"),
    [
        (["a", "b", None], 3.0, r"row 2, column 'user': it is empty; leave out the row"),
        (["a", "b", "c"], None, r"row 2, column 'rating': it is empty; leave out the row"),
        (["a", "b", "c"], np.nan, r"row 2, column 'rating': the rating must be a finite number, got nan"),
    ],
)
def test_what_is_missing_in_ratings_is_named_by_its_row(users, last, words, tmp_path):
    path = tmp_path / "t.parquet"
    columns = pyarrow.table({"user": users, "item": [1, 2, 3], "rating": [1.0, 2.0, last]})
    parquet.write_table(columns, path, row_group_size=2)
    for read in (read_ratings, lambda path: list(RatingsSource(path).chunks())):
        with pytest.raises(ValueError, match=rf"t\.parquet, {words}"):
            read(path)


def test_nothing_to_read_is_said_with_the_name(tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"x": pyarrow.array([], "float64"), "y": pyarrow.array([], "float64")}), path)
    with pytest.raises(ValueError, match=r"t\.parquet: has no rows"):
        ng.SparseGPRegressor(4).fit(path, "y")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match=r"folder: there are no columns in it; expected Parquet or Arrow files"):
        open_source(tmp_path / "folder")
