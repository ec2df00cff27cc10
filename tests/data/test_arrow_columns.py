"""Columns of Arrow: what is missing stays missing, and ids are what they stand for."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.data.numbers import as_numbers, from_arrow

pa = pytest.importorskip("pyarrow")
GAPS = ["a", None, "b", "b"]


@pytest.fixture(params=["array", "chunked", "two chunks"])
def words(request):
    """Codes of a dictionary, as pandas' categories and many Parquet files have them; one is missing."""
    coded = pa.array(GAPS).dictionary_encode()
    if request.param == "array":
        return coded
    return pa.chunked_array([coded] if request.param == "chunked" else [coded[:2], coded[2:]])


def test_missing_words_of_a_dictionary_are_missing(words):
    assert from_arrow(words).tolist() == GAPS
    assert as_numbers(pa.chunked_array([pa.array([5, None, 7]).dictionary_encode()]), "x").tolist()[::2] == [5, 7]
    assert np.isnan(as_numbers(pa.chunked_array([pa.array([5, None, 7]).dictionary_encode()]), "x")[1])
    assert from_arrow(GAPS) is GAPS


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
    for form in (days, days.astype("M8[ns]"), days.tolist(), list(days), pa.array(days.tolist())):
        assert ng.data.Ratings(form, [1, 2], [1.0, 2.0]).user_ids.tolist() == ["2020-01-02", "2020-01-03"]
