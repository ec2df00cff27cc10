"""A part to fit and a part to score: nothing is lost, nothing is in both, whatever the kind of data."""

import numpy as np
import pytest
from scipy import sparse

import natgrad as ng
from natgrad.data import train_test_split


@pytest.mark.parametrize(
    "kind", [list, np.array, sparse.csr_array, sparse.coo_array], ids=["list", "array", "csr", "coo"]
)
def test_rows_are_in_one_part_and_keep_their_targets(kind):
    X = kind(np.arange(40.0).reshape(20, 2) + 1)
    a, b, ya, yb = train_test_split(X, np.arange(20), test_size=0.25, seed=3)
    assert (len(ya), len(yb)) == (15, 5)
    rows = [np.asarray(part.todense() if sparse.issparse(part) else part) for part in (a, b)]
    assert np.array_equal(np.concatenate(rows)[:, 0], 2.0 * np.concatenate([ya, yb]) + 1)
    assert sorted([*ya, *yb]) == list(range(20))


def test_the_seed_decides():
    same = [train_test_split(np.arange(30), seed=seed)[1].tolist() for seed in (0, 0, 1)]
    assert same[0] == same[1] != same[2]


def test_frames_keep_their_columns():
    pandas = pytest.importorskip("pandas")
    train, test = train_test_split(pandas.DataFrame({"a": range(10), "b": list("abcdefghij")}), test_size=0.2)
    assert list(test.columns) == ["a", "b"]
    assert len(train) == 8


def test_whole_sequences_are_held_out():
    x, lengths = np.arange(30.0), np.array([5, 10, 15])
    a, b, left, held = train_test_split(x, lengths=lengths, test_size=0.3)
    assert (left.sum(), held.sum()) == (len(a), len(b))
    assert len(held) == 1
    assert np.array_equal(b, np.arange(b[0], b[0] + held[0]))
    a, b, left, held = train_test_split(x, lengths=[30], test_size=0.2)
    assert np.array_equal(a, np.arange(24.0))
    assert np.array_equal(b, np.arange(24.0, 30.0))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {}, "needs data"),
        (([1, 2],), {"test_size": 1.0}, "test_size must lie between 0 and 1, got 1.0"),
        (([1],), {}, "at least 2 rows, and there is 1"),
        (([1, 2], [1, 2, 3]), {}, "same number of rows, got 2, 3"),
        (([1, 2],), {"lengths": [3]}, "lengths add up to 3, and there are 2 rows"),
        (([1, 2],), {"lengths": [0, 2]}, "whole numbers ≥ 1"),
        ((ng.Ratings([0, 1], [0, 1], [1.0, 2.0]),), {}, "every rating is needed"),
        ((ng.Ratings([0, 1], [0, 1], [1.0, 2.0]), [1]), {}, "split alone"),
    ],
)  # fmt: skip
def test_what_cannot_be_split_is_said(arguments, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        train_test_split(*arguments, **options)
