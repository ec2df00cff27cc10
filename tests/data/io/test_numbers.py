"""Numbers on disk: rows, columns and sequences, and what is said when they are not numbers."""

import numpy as np
import pytest

from natgrad.data.io.numbers import read_numbers, run_lengths


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.csv").write_text("x,who,y\n1,ann,2.5\n,ann,3\n4,bob,-1e3\n")
    np.save(tmp_path / "a.npy", np.arange(6).reshape(3, 2))
    np.save(tmp_path / "line.npy", np.arange(3))
    return tmp_path


def test_columns_become_rows_of_numbers(folder):
    found = read_numbers(folder / "a.csv", apart=["who"])
    np.testing.assert_array_equal(found.rows, [[1, 2.5], [np.nan, 3], [4, -1000]])
    assert found.names == ["x", "y"]
    assert run_lengths(found.apart["who"]).tolist() == [2, 1]
    assert read_numbers(folder / "a.csv", ["y"]).rows.tolist() == [[2.5], [3], [-1000]]
    target = read_numbers(folder / "a.csv", ["x"], ["y"])
    assert target.names == ["x"]
    assert target.apart["y"].tolist() == [2.5, 3, -1000]


def test_arrays_have_columns_by_number(folder):
    assert read_numbers(folder / "a.npy").rows.shape == (3, 2)
    assert read_numbers(folder / "line.npy").rows.shape == (3, 1)
    found = read_numbers(folder / "a.npy", apart=["1"])
    assert found.rows.tolist() == [[0], [2], [4]]
    assert found.apart["1"].tolist() == [1, 3, 5]


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("a.csv", {}, r"row 1: column 'who' holds 'ann', which is no number"),
        ("a.csv", {"columns": ["z"]}, "no column 'z'; it has 'x', 'who', 'y'"),
        ("a.csv", {"apart": ["z"]}, "no column 'z'; it has 'x', 'who', 'y'"),
        ("a.csv", {"columns": ["who"], "apart": ["who"]}, "no column is left"),
        ("a.npy", {"columns": ["2"]}, "columns of an array are 0 … 1"),
        ("text.npy", {}, "expected numbers"),
        ("a.doc", {}, "expected a file ending in .csv"),
    ],
)
def test_what_is_wrong_is_said(name, options, said, folder):
    np.save(folder / "text.npy", np.array(["a"]))
    (folder / "a.doc").write_text("")
    with pytest.raises(ValueError, match=said):
        read_numbers(folder / name, **options)


def test_missing_file_is_said(folder):
    with pytest.raises(FileNotFoundError, match="looked for /"):
        read_numbers(folder / "nowhere.csv")


def test_rows_of_one_sequence_stand_together():
    assert run_lengths(np.array([1.0, 1.0, 2.0, 1.0])).tolist() == [2, 1, 1]
    assert run_lengths(np.array(["a"])).tolist() == [1]
