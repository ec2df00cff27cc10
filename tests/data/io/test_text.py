"""Text in other encodings: read as its mark or the caller says, or refused with the place of the byte; never shortened."""

import gzip

import pytest

from natgrad.data.io.bags import read_ldac
from natgrad.data.io.documents import read_documents
from natgrad.data.io.numbers import read_numbers
from natgrad.data.io.open import open_source
from natgrad.data.io.ratings import RatingsSource, read_ratings
from natgrad.data.io.tables import read_table
from natgrad.data.io.text import open_text

TEXT = "über café\nchère naïve\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_texts_are_detected_or_refused(encoding, suffix, tmp_path):
    data = TEXT.encode(encoding)
    folder = tmp_path / "letters"
    folder.mkdir()
    lines, one = tmp_path / f"lines.txt{suffix}", folder / f"one.txt{suffix}"
    for path in (lines, one):
        path.write_bytes(gzip.compress(data) if suffix else data)
    if encoding in ("latin-1", "utf-16-le", "utf-16-be"):
        words = r"line 1: not a text in UTF-8: byte 0 is 0xfc" if encoding == "latin-1" else r"byte \d+ is (zero|0xfc)"
        for path in (lines, folder):
            with pytest.raises(ValueError, match=rf"\.txt.*{words}.*encoding="):
                read_documents(path, kind="lines" if path is lines else "folder", pattern="*.txt*")
    named = {} if encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32") else {"encoding": encoding}
    assert read_documents(lines, kind="lines", **named).texts == TEXT.split("\n")[:2]
    assert read_documents(folder, pattern="*.txt*", **named).texts == [TEXT]


def test_the_byte_is_found_in_a_long_file(tmp_path):
    path = tmp_path / "long.txt"
    data = ("é" * 50_001 + "\n") * 3
    path.write_bytes(b"\xef\xbb\xbf" + data.encode() + b"caf\xe9 au lait\n")
    place = 3 + len(data.encode()) + 3
    with (
        pytest.raises(ValueError, match=rf"long\.txt, line 4: not a text in UTF-8: byte {place} is 0xe9"),
        open_text(path) as file,
    ):
        file.read()
    path.write_bytes("ab\n".encode("utf-16")[:-1])
    with pytest.raises(ValueError, match=r"not a text in UTF-16: byte 6 is 0x0a \(truncated"), open_text(path) as file:
        file.read()


def test_an_encoding_that_is_none(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("word\n")
    for wrong in ("latin-17", "base64"):
        with (
            pytest.raises(ValueError, match="encoding must be one that Python knows, as 'latin-1'"),
            open_text(path, wrong),
        ):
            pass


def test_every_reader_of_text_takes_an_encoding(tmp_path):
    table = tmp_path / "t.csv"
    table.write_bytes("größe,text\n1.5,über\n".encode("latin-1"))
    assert read_table(table, encoding="latin-1") == {"größe": ["1.5"], "text": ["über"]}
    assert read_numbers(table, ["größe"], encoding="latin-1").rows.tolist() == [[1.5]]
    assert read_documents(table, column="text", encoding="latin-1").texts == ["über"]
    ratings = tmp_path / "r.csv"
    ratings.write_bytes("user,item,rating\nJürgen,café,3\n".encode("latin-1"))
    assert read_ratings(ratings, encoding="latin-1").user_ids.tolist() == ["Jürgen"]
    assert next(RatingsSource(ratings, encoding="latin-1").chunks()).item_ids.tolist() == ["café"]
    for read in (read_ratings, lambda path: list(RatingsSource(path).chunks()), read_table):
        with pytest.raises(ValueError, match=r"r\.csv, line 2: not a text in UTF-8: byte 18 is 0xfc"):
            read(ratings)
    ratings.write_text("user,item,rating\nJürgen,café,3\n", encoding="utf-16")
    assert read_ratings(ratings).user_ids.tolist() == ["Jürgen"]


def test_counts_in_other_encodings(tmp_path):
    path = tmp_path / "f.ldac"
    path.write_text("2 0:1 3:2\n1 2:4\n", encoding="utf-16")
    assert read_ldac(path).n_tokens == 7
    assert next(open_source(path, n_words=4).chunks()).n_tokens == 7
    path.write_text("2 0:1 1_0:2\n")
    for read in (read_ldac, lambda path: list(open_source(path, n_words=40).chunks())):
        with pytest.raises(ValueError, match=r"f\.ldac, line 1"):
            read(path)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "t.csv",
            "x,y, x\n1,2,3\n",
            r"t\.csv, line 1: the column 'x' is there 2 times among 'x', 'y', 'x': rename one",
        ),
        ("t.tsv", "x\tx\n1\t2\n", r"the column 'x' is there 2 times"),
        (
            "t.jsonl",
            '{"x": 1, "y": 2}\n{"x": 1, "x": 2, "y": 3}\n',
            r"t\.jsonl, line 2: the column 'x' is there 2 times",
        ),
    ],
)
def test_a_column_name_that_comes_twice(name, text, words, tmp_path):
    path = tmp_path / name
    path.write_text(text)
    for read in (read_table, lambda path: read_numbers(path, ["y"]), lambda path: read_documents(path, column="y")):
        with pytest.raises(ValueError, match=words):
            read(path)


def test_a_column_of_parquet_that_comes_twice(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.Table.from_arrays([[1], [2]], names=["x", "x"]), path)
    with pytest.raises(ValueError, match=r"t\.parquet: the column 'x' is there 2 times"):
        read_table(path)


def test_numbers_as_python_writes_them_are_none(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x\n1\n1_0\n")
    with pytest.raises(ValueError, match="row 2: column 'x' holds '1_0', which is no number"):
        read_numbers(path)
    path.write_text("x\nnan\n-NaN\n 2.5 \n")
    assert read_numbers(path).rows[2].tolist() == [2.5]
