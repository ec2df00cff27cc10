"""Frames of any library are columns of arrays: what is missing stays missing, and ids are what they stand for."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.data.frames import as_column, column_names, frame_columns, is_frame, table_names, take_rows
from natgrad.validation import as_numbers, is_missing

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
GAPS = ["a", None, "b", "b"]
COLUMNS = {"x": [1.5, None, 3.0], "n": [1, None, 3], "word": ["a", None, "b"]}
FRAMES = {
    "pandas": pd.DataFrame(COLUMNS),
    "nullable": pd.DataFrame(COLUMNS).convert_dtypes(),
    "arrow in pandas": pa.table(COLUMNS).to_pandas(types_mapper=pd.ArrowDtype),
    "polars": pl.DataFrame(COLUMNS),
    "lazy": pl.LazyFrame(COLUMNS),
    "arrow": pa.table(COLUMNS),
    "batch": pa.record_batch(COLUMNS),
}


@pytest.mark.parametrize("library", FRAMES)
def test_columns_of_every_library_are_the_same(library):
    frame = FRAMES[library]
    assert is_frame(frame)
    assert column_names(frame) == list(COLUMNS)
    found = frame_columns(frame)
    for name in ("x", "n"):
        np.testing.assert_array_equal(as_numbers(found[name], name, missing=True), np.array(COLUMNS[name], dtype=float))
    assert [None if is_missing(word) else word for word in found["word"].tolist()] == COLUMNS["word"]
    assert list(frame_columns(frame, ["word", "x"])) == ["word", "x"]


@pytest.mark.parametrize("library", sorted(FRAMES.keys() - {"lazy", "batch"}))
def test_rows_of_a_frame_are_a_frame_of_its_library(library):
    frame = FRAMES[library]
    _, chosen = ng.data.train_test_split(frame, test_size=0.3)
    assert type(chosen) is type(frame)
    assert frame_columns(take_rows(frame, np.array([2])))["word"].tolist() == ["b"]


@pytest.mark.parametrize("other", [[1, 2], (1, 2), {"x": 1}, "x", 3.0, None, np.zeros((2, 2)), np.float64(1.0)])
def test_what_is_no_frame_stays_what_it_is(other):
    assert not is_frame(other)
    assert frame_columns(other) is None
    assert as_column(other) is other
    assert take_rows(other, np.zeros(1, int)) is None


@pytest.mark.parametrize(("columns", "names"), [(["a", "b"], ["a", "b"]), ([0, 1], None), (["a", 1], None)])
def test_columns_are_named_where_all_names_are_strings(columns, names):
    assert table_names(pd.DataFrame(np.zeros((1, 2)), columns=columns)) == names


def test_a_name_that_comes_twice_is_refused():
    twice = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(ValueError, match=r"'a' is there 2 times among 'a', 'a': rename one"):
        frame_columns(twice)


@pytest.fixture(params=["array", "chunked", "two chunks"])
def words(request):
    """Codes of a dictionary, as pandas' categories and many Parquet files have them; one is missing."""
    coded = pa.array(GAPS).dictionary_encode()
    if request.param == "array":
        return coded
    return pa.chunked_array([coded] if request.param == "chunked" else [coded[:2], coded[2:]])


def test_missing_words_of_a_dictionary_are_missing(words):
    assert as_column(words).tolist() == GAPS
    numbers = as_column(pa.chunked_array([pa.array([5, None, 7]).dictionary_encode()]))
    np.testing.assert_array_equal(as_numbers(numbers, "x", missing=True), [5, np.nan, 7])


def test_a_row_without_an_id_is_refused_by_networks_and_ratings(words):
    m = ng.Normal("m", 0.0, 0.1, plate=ng.Plate("group"))
    y = ng.Normal("y", m[ng.Column("id")], 1.0, plate=ng.Plate("row"), observed=ng.Column("y"))
    for table in (pa.table({"id": words, "y": [1.0, 2.0, 4.0, 5.0]}), {"id": words, "y": [1.0, 2.0, 4.0, 5.0]}):
        with pytest.raises(ValueError, match="'id', row 1 is missing"):
            ng.Network(y).fit(table, verbose=False)
    rated = pa.table({"user": words, "item": [1, 2, 3, 4], "rating": [1.0, 2.0, 3.0, 4.0]})
    with pytest.raises(ValueError, match=r"users\[1\] = None is missing"):
        ng.MatrixFactorization(1, verbose=False).fit(rated)


def test_observed_categories_may_be_missing(words):
    p = ng.Dirichlet("p", 1.0, size=ng.Column("c"))
    net = ng.Network(ng.Categorical("c", p, plate=ng.Plate("row"), observed=ng.Column("c")))
    fit = net.fit(pa.table({"c": words}), verbose=False)
    np.testing.assert_array_equal(fit["p"].parameters["concentration"], [2.0, 3.0])


def test_ids_of_ratings_are_values_not_scalars_of_arrow():
    """With scalars of Arrow as ids every user of a later call would be a stranger."""
    ratings = ng.data.Ratings(pa.array(["a", "b", "b"]), pa.array([1, 2, 3]), pa.array([1.0, 2.0, 3.0]))
    assert ratings.user_ids.tolist() == ["a", "b"]
    assert ratings.item_ids.tolist() == [1, 2, 3]


def test_days_are_ids_in_every_form():
    """Nanoseconds became whole numbers and days dates, and neither was found by the other."""
    days = np.array(["2020-01-02", "2020-01-03"], "M8[D]")
    for form in (days, days.astype("M8[ns]"), days.tolist(), list(days), pa.array(days.tolist()), pl.Series(days)):
        assert ng.data.Ratings(form, [1, 2], [1.0, 2.0]).user_ids.tolist() == ["2020-01-02", "2020-01-03"]
