"""Triples and their ids: what goes in comes out, grouped; every mistake gets a sentence."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import example, given
from hypothesis import strategies as st

import natgrad as ng
from natgrad.data.ids import number_ids

FRAME = pd.DataFrame({"rating": [5.0, 3.0], "movie_id": [10, 7], "userId": ["b", "a"]})
pairs = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5)), min_size=1, max_size=30, unique=True)


@given(pairs)
def test_rows_hold_every_rating_once_in_the_order_they_came(cells):
    users, items = (np.array(side) for side in zip(*cells, strict=True))
    values = np.arange(len(cells), dtype=float)
    ratings = ng.Ratings(users, items, values, shape=(8, 6))
    for rows, own, other in ((ratings.by_user, users, items), (ratings.by_item, items, users)):
        np.testing.assert_array_equal(rows.place, np.argsort(own, kind="stable"))
        np.testing.assert_array_equal(rows.start, np.searchsorted(np.sort(own), np.arange(len(rows.start))))
        np.testing.assert_array_equal(rows.other, other[rows.place])
        np.testing.assert_array_equal(rows.values, values[rows.place])
    for rows, own, other in ((ratings.sorted_by_user, users, items), (ratings.sorted_by_item, items, users)):
        np.testing.assert_array_equal(rows.place, np.lexsort((other, own)))
        np.testing.assert_array_equal(rows.start, np.searchsorted(np.sort(own), np.arange(len(rows.start))))
        np.testing.assert_array_equal(rows.other, other[rows.place])
        np.testing.assert_array_equal(rows.values, values[rows.place])


@pytest.mark.parametrize(
    ("users", "ids"),
    [
        ([30, 10, 30], [10, 30]),
        (np.array([3, 1, 3], dtype=np.uint8), [1, 3]),
        (np.array([-100, 100, -100], dtype=np.int8), [-100, 100]),
        (np.array([2**64 - 1, 2**63, 2**64 - 1], dtype=np.uint64), [2**63, 2**64 - 1]),
        ([10**12, 0, 10**12], [0, 10**12]),
        (["b", "a", "b"], ["a", "b"]),
        (pd.Series(["b", "a", "b"], index=[7, 8, 9]), ["a", "b"]),
        (pd.Series(["b", "a", "b"], dtype="category"), ["a", "b"]),
        ([1, "1", 1], [1, "1"]),
        ([(1, 2), "x", (1, 2)], [(1, 2), "x"]),
        ([(1, 2), (1, 3), (1, 2)], [(1, 2), (1, 3)]),
        ([2.5, 0.5, 2.5], [0.5, 2.5]),
        ([2**70, 3, 2**70], [2**70, 3]),
    ],
)
def test_ids_of_any_type_keep_their_identity(users, ids):
    ratings = ng.Ratings(users, ["x", "x", "y"], [1, 2, 3])
    assert ratings.user_ids.tolist() == ids
    assert [ratings.user_ids.tolist()[code] for code in ratings.users] == list(users)
    np.testing.assert_array_equal(ratings.find_users(users), ratings.users)
    assert ratings.users.dtype == ratings.items.dtype == np.int32
    assert ratings.values.dtype == np.float64


@example(["\0", ""])  # NumPy's strings lose zeros at their end
@given(st.lists(st.one_of(st.integers(), st.text(max_size=3), st.tuples(st.integers(0, 2))), min_size=1, max_size=20))
def test_numbering_is_a_bijection(values):
    codes, ids = number_ids(values, "users", "user")
    assert [ids.array.tolist()[code] for code in codes] == values
    assert len(set(ids.array.tolist())) == len(ids) == len(set(values))
    np.testing.assert_array_equal(ids.find(values, "users"), codes)


def test_shape_keeps_the_meaning_of_whole_numbers():
    ratings = ng.Ratings([2, 0], [1, 1], [4.0, 5.0], shape=(4, 3))
    assert ratings.shape == (4, 3)
    assert len(ratings) == 2
    assert ratings.users.tolist() == [2, 0]
    assert np.diff(ratings.by_user.start).tolist() == [1, 0, 1, 0]
    assert repr(ratings) == "Ratings(2 ratings of 3 items by 4 users, values 4 … 5)"


def test_tables_by_name_or_by_position():
    by_name = ng.Ratings(FRAME)
    assert (by_name.user_ids.tolist(), by_name.item_ids.tolist()) == (["a", "b"], [7, 10])
    assert by_name.values.tolist() == [5.0, 3.0]
    unnamed = pd.DataFrame([["b", 10, 5], ["a", 7, 3]])
    other_names = unnamed.set_axis(["x", "y", "z"], axis=1)
    for other in (ng.Ratings(unnamed), ng.Ratings.from_frame(other_names, user="x", item="y", value="z")):
        np.testing.assert_array_equal(other.users, by_name.users)
        np.testing.assert_array_equal(other.items, by_name.items)
    nullable = FRAME.assign(rating=pd.array([5, 3], dtype="Int64"))
    assert ng.Ratings(nullable).values.tolist() == [5.0, 3.0]


@pytest.mark.parametrize("form", ["csr_matrix", "coo_array", "csc_array"])
def test_stored_entries_of_a_sparse_matrix_are_the_ratings(form):
    matrix = getattr(scipy.sparse, form)(np.array([[0, 2.0], [0, 0], [1.0, 0]]))
    matrix.data[0] = 0.0
    ratings = ng.Ratings(matrix)
    assert ratings.shape == (3, 2)
    assert len(ratings) == 2
    assert 0.0 in ratings.values


def test_a_full_table_has_nan_where_there_is_no_rating():
    ratings = ng.Ratings.from_dense([[np.nan, 2.0], [1.0, np.nan], [np.nan, np.nan]])
    assert ratings.shape == (3, 2)
    assert (ratings.users.tolist(), ratings.items.tolist()) == ([0, 1], [1, 0])


def test_a_masked_entry_of_a_table_is_no_rating():
    table = np.ma.array([[999, 2], [1, 999], [4, 3]], mask=[[1, 0], [0, 1], [0, 0]])
    for form in (table, list(table)):  # a list of masked rows, too
        ratings = ng.Ratings.from_dense(form)
        assert (ratings.users.tolist(), ratings.items.tolist()) == ([0, 1, 2, 2], [1, 0, 0, 1])
        assert ratings.values.tolist() == [2.0, 1.0, 4.0, 3.0]


@pytest.mark.parametrize(
    ("policy", "values"), [("keep", [1.0, 2.0, 6.0, 4.0]), ("mean", [3.5, 2.0, 4.0]), ("last", [2.0, 6.0, 4.0])]
)
def test_pairs_that_come_twice(policy, values):
    ratings = ng.Ratings(["a", "b", "a", "c"], [0, 0, 0, 1], [1, 2, 6, 4], duplicates=policy)
    assert ratings.values.tolist() == values
    assert ratings.by_user.values[: ratings.by_user.start[1]].sum() == {"keep": 7, "mean": 3.5, "last": 6}[policy]


def test_input_is_neither_changed_nor_shared():
    users, items, values = np.array([0, 1]), np.array([1, 0]), np.array([1.0, 2.0])
    ratings = ng.Ratings(users, items, values, shape=(2, 2))
    for part in (ratings.users, ratings.values, ratings.user_ids, *ratings.by_item):
        with pytest.raises(ValueError, match="read-only"):
            part[0] = 9
    users[:], values[:] = 0, 7.0
    assert ratings.users.tolist() == [0, 1]
    assert ratings.values.tolist() == [1.0, 2.0]
    frame = FRAME.copy()
    ng.Ratings(frame)
    pd.testing.assert_frame_equal(frame, FRAME)


# fmt: off
MISTAKES = [
    (lambda: ng.Ratings([1, 2], [1], [1.0, 2.0]), ValueError,
     "users, items and values must have the same length, got 2, 1 and 2"),
    (lambda: ng.Ratings([], [], []), ValueError, "there are no ratings"),
    (lambda: ng.Ratings([1, 2], [1, 2], [1.0, np.nan]), ValueError, "values[1] = nan must be finite"),
    (lambda: ng.Ratings([1, 2], [1, 2], [None, 1]), ValueError, "values[0] = nan must be finite"),
    (lambda: ng.Ratings([1, 2], [1, 2], [np.inf, 1]), ValueError, "values[0] = inf must be finite"),
    (lambda: ng.Ratings([1, 2], [1, 2], [1, "2"]), TypeError, "values must be numbers, got strings such as '2' at [1]"),
    (lambda: ng.Ratings([1, 2], [1, 2], pd.Series([1, "good"])), TypeError,
     "values must be numbers, got objects such as 'good' at [1]"),
    (lambda: ng.Ratings([1, 2], [1, 2], [[1], [2, 3]]), TypeError, "values must be numbers, got rows of different lengths"),
    (lambda: ng.Ratings([1, 2], [1, 2], [[1], [2]]), ValueError,
     "values must be one number for each rating, got an array of shape (2, 1)"),
    (lambda: ng.Ratings(np.zeros((2, 2), dtype=int), [1, 2], [1, 2]), ValueError,
     "users must be one id for each rating, got an array of shape (2, 2)"),
    (lambda: ng.Ratings("ann", ["x"], [1]), TypeError, "users must be a list or array of ids, got 'ann'"),
    (lambda: ng.Ratings(["a"], {"x"}, [1]), TypeError, "items must be a list or array of ids, got a set"),
    (lambda: ng.Ratings(["a", None], ["x", "y"], [1, 2]), ValueError, "users[1] = None is missing"),
    (lambda: ng.Ratings(["a", "b"], [1.0, np.nan], [1, 2]), ValueError, "items[1] = nan is missing"),
    (lambda: ng.Ratings(pd.Series(["a", pd.NA], dtype="string"), ["x", "y"], [1, 2]), ValueError, "users[1] = <NA> is missing"),
    (lambda: ng.Ratings(["a", [1]], ["x", "y"], [1, 2]), TypeError, "users[1] = [1] cannot be an id"),
    (lambda: ng.Ratings([0, -1], [0, 0], [1, 2], shape=(2, 2)), ValueError,
     "users[1] = -1 is outside 0 … 1, which shape asks for"),
    (lambda: ng.Ratings([0, 1], [0, 2], [1, 2], shape=(2, 2)), ValueError, "items[1] = 2 is outside 0 … 1, which shape asks for"),
    (lambda: ng.Ratings(["a"], [0], [1], shape=(2, 2)), TypeError,
     "users must be whole numbers when shape is given, got <U1: leave out shape for other ids"),
    (lambda: ng.Ratings([0], [0], [1], shape=3), TypeError, "shape must be two whole numbers (users, items), got 3"),
    (lambda: ng.Ratings([0], [0], [1], shape=(0, 3)), ValueError,
     "shape must be two whole numbers ≥ 1 (users, items), got (0, 3)"),
    (lambda: ng.Ratings(["a", "b", "a"], ["x", "x", "x"], [1, 2, 3]), ValueError, "user 'a' rates item 'x' twice, at 0 and 2"),
    (lambda: ng.Ratings([0], [0], [1], duplicates="sum"), ValueError,
     "duplicates must be \"error\", \"keep\", \"mean\" or \"last\", got 'sum'"),
    (lambda: ng.Ratings([1, 2]), TypeError,
     "Ratings takes users, items and values, a table with these columns, or a sparse matrix"),
    (lambda: ng.Ratings(scipy.sparse.eye_array(2), shape=(3, 3)), ValueError,
     "shape = (3, 3) does not fit the sparse matrix of shape (2, 2)"),
    (lambda: ng.Ratings(FRAME.rename(columns={"rating": "x"})), ValueError,
     "cannot tell which column is the value among 'x', 'movie_id', 'userId'"),
    (lambda: ng.Ratings(FRAME.set_axis(["x", "y", "z"], axis=1)), ValueError,
     "cannot tell which column is the user or the item or the value among 'x', 'y', 'z'"),
    (lambda: ng.Ratings(FRAME.assign(customer=1)), ValueError,
     "'userId' and 'customer' may both be the user among 'rating', 'movie_id', 'userId', 'customer'"),
    (lambda: ng.Ratings.from_frame(FRAME, user="userId", item="userId"), ValueError,
     "user, item and value must be different columns, got 'userId', 'userId' and None"),
    (lambda: ng.Ratings(FRAME.set_axis(["user", "item", "user"], axis=1)), ValueError,
     "the column 'user' is there 2 times among 'user', 'item', 'user'"),
    (lambda: ng.Ratings(np.ma.array([1, 2], mask=[0, 1]), [1, 2], [1.0, 2.0]), ValueError,
     "users[1] is masked, and every rating needs its id"),
    (lambda: ng.Ratings([0, 1], np.ma.array([0, 1], mask=[1, 0]), [1.0, 2.0], shape=(2, 2)), ValueError,
     "items[0] is masked, and every rating needs its id"),
    (lambda: ng.Ratings([1, 2], [1, 2], np.ma.array([1, 999], mask=[0, 1])), ValueError, "values[1] = nan must be finite"),
    (lambda: ng.Ratings.from_frame(FRAME, user="who"), ValueError, "user='who' is not a column"),
    (lambda: ng.Ratings.from_frame([1, 2]), TypeError, "a table with named columns is needed, got list"),
    (lambda: ng.Ratings.from_dense([1.0, 2.0]), ValueError,
     "X must be a table [users, items] with NaN for missing ratings, got shape (2,). Reshape your data"),
    (lambda: ng.Ratings.from_dense(np.full((2, 2), np.nan)), ValueError, "X of shape (2, 2) has no ratings"),
    (lambda: ng.Ratings.from_dense([[1.0, np.inf]]), ValueError, "X[0, 1] = inf must be finite, or NaN where there is no rating"),
    (lambda: ng.Ratings([4, 7], [0, 1], [1, 2]).find_users([7, 5]), ValueError,
     "users[1] = 5 is not among the users of the ratings that were fitted"),
]
# fmt: on


@pytest.mark.parametrize(
    ("mistake", "error", "text"), MISTAKES, ids=lambda part: part[:40] if isinstance(part, str) else ""
)
def test_mistakes_name_the_argument_and_its_value(mistake, error, text):
    with pytest.raises(error) as caught:
        mistake()
    assert text in str(caught.value)
