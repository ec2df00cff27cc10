"""What users know of documents, in the forms in which they have it: times, authors, classes; and what is refused."""

from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import natgrad as ng
from natgrad.topics.known import as_authors, as_classes, as_times

TEXTS = ["apple pear plum", "bolt nut screw", "plum pear apple apple", "nut bolt bolt screw"] * 5
FAST = {"max_steps": 3, "tol": 0, "verbose": False}
DAYS = pd.date_range("2020-01-30", periods=3)


@pytest.mark.parametrize(
    ("times", "found"),
    [
        ([3, 1, 2], [3, 1, 2]),
        (["10", "9", "9"], [10, 9, 9]),
        (["1.5", "10", "9"], [1.5, 10.0, 9.0]),
        (["2020-02", "2020-01", "2019-12"], ["2020-02", "2020-01", "2019-12"]),
        (DAYS, DAYS.to_numpy()),
        (list(DAYS), DAYS.to_numpy()),
        (pd.Series(DAYS), DAYS.to_numpy()),
        ([day.date() for day in DAYS], DAYS.to_numpy()),
        ([date(2020, 1, 30), datetime(2020, 1, 31), datetime(2020, 2, 1)], DAYS.to_numpy()),
        ([day.tz_localize("UTC") for day in DAYS], DAYS.to_numpy()),
        ([datetime(2020, 1, 30, tzinfo=UTC)] * 3, [np.datetime64("2020-01-30")] * 3),
        (pd.Series(DAYS).dt.to_period("M"), ["2020-01", "2020-01", "2020-02"]),
        (pd.Categorical(["a", "b", "a"], ordered=True), ["a", "b", "a"]),
    ],
)
def test_times_are_numbers_dates_or_names(times, found):
    labels = as_times(times, 3)
    assert labels.dtype.kind in "ifMU"
    assert labels.tolist() == np.asarray(found, dtype=labels.dtype).tolist()


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([1, "a", 2], r"times\[1\] = 'a' is of type str, and times\[0\] = 1"),
        ([1.0, np.nan, 2.0], r"times\[1\] = nan must be known"),
        (["a", None, "b"], r"times\[1\] = None must be known"),
        (np.array(["2020-01-01", "NaT", "2020-01-02"], dtype="datetime64[D]"), r"times\[1\] = NaT"),
        ([pd.NaT, *DAYS[:2]], r"times\[0\] = NaT"),
        ([1.0, np.inf, 2.0], r"times\[1\] = inf must be finite"),
        ("abc", "times is one text"),
        ([1, 2], r"one entry for each of 3 documents, got shape \(2,\)"),
        (pd.Categorical(["b", "a", "b"], categories=["b", "a"], ordered=True), r"in the order b, a.*times.codes"),
        ([(1, 2), (3, 4), (5, 6)], r"got shape \(3, 2\)"),
    ],
)
def test_times_that_cannot_be_ordered_are_refused(times, words):
    with pytest.raises((TypeError, ValueError), match=words):
        as_times(times, 3)


def test_names_without_numbers_are_said_to_be_alphabetical():
    with pytest.warns(UserWarning, match="alphabetical order: feb, jan, mar"):
        as_times(["jan", "feb", "mar"], 3)


def test_later_times_are_of_the_kind_of_the_fit():
    """Old models have names where numbers would be read today: names they stay."""
    assert as_times(["9", "10"], 2, np.array(["10", "9"])).tolist() == ["9", "10"]
    with pytest.raises(TypeError, match="times are names, and those of the fit are numbers"):
        as_times(["a", "b"], 2, np.array([1, 2]))
    with pytest.raises(TypeError, match="times are numbers, and those of the fit are dates"):
        as_times([1, 2], 2, DAYS.to_numpy())


def test_dates_are_kept_by_files(tmp_path: Path):
    times = [DAYS[d % 3] for d in range(len(TEXTS))]
    model = ng.topics.DynamicTopics(2, **FAST).fit(TEXTS, times)
    model.save(tmp_path / "model.natgrad")
    again = ng.load(tmp_path / "model.natgrad")
    assert again.top_words(2, time=date(2020, 1, 31)) == model.top_words(2, time=DAYS[1])
    np.testing.assert_array_equal(again.times_, model.times_)


@pytest.mark.parametrize(
    ("authors", "found"),
    [
        (["a", "b"], [["a"], ["b"]]),
        ([["a", "a", "b"], ("c",)], [["a", "b"], ["c"]]),
        (pd.Series([["a"], ["b"]]), [["a"], ["b"]]),
        (np.array([["a", "b"], ["b", "c"]]), [["a", "b"], ["b", "c"]]),
        ([7, np.int64(8)], [[7], [8]]),
        ([{"a": 1}, ["b"]], [["a"], ["b"]]),
    ],
)
def test_authors_are_names_or_numbers(authors, found):
    assert as_authors(authors, 2) == found


@pytest.mark.parametrize(
    ("authors", "words"),
    [
        ("ab", "must be a list with the authors of each document, got str"),
        ({"a": 1, "b": 2}, "got dict"),
        (["a"], "a list for each of 2 documents, got 1"),
        ([["a"], []], r"authors\[1\] is empty"),
        (["a", None], r"authors\[1\] has None"),
        ([["a", np.nan], "b"], r"authors\[0\] has nan"),
        (["a", 1], r"authors\[0\] has the text 'a' and authors\[1\] has 1"),
        (np.eye(2), "a table of 0 and 1"),
        ([[("a", "b")], "c"], r"authors\[0\] has \('a', 'b'\)"),
    ],
)
def test_authors_that_are_none_are_refused(authors, words):
    with pytest.raises((TypeError, ValueError), match=words):
        as_authors(authors, 2)


def test_authors_who_wrote_everything_together_have_the_same_shares():
    model = ng.topics.AuthorTopics(2, verbose=False).fit(TEXTS, [["eve", "bob"]] * len(TEXTS))
    np.testing.assert_allclose(model.author_shares_.mean(0), 0.5, atol=0.1)


@pytest.mark.parametrize(
    ("y", "values", "classes"),
    [
        ([0, 1, None], [0, 1, np.nan], [0.0, 1.0]),
        ([True, True, False], [1, 1, 0], [0.0, 1.0]),
        ([1.0, 1.0, np.nan], [1, 1, np.nan], [0.0, 1.0]),
        ([-1, 1, 1], [0, 1, 1], [-1.0, 1.0]),
        (["yes", "no", None], [1, 0, np.nan], ["no", "yes"]),
        (pd.Categorical(["b", "a", np.nan]), [1, 0, np.nan], ["a", "b"]),
        (np.array(["b", "a", "b"]), [1, 0, 1], ["a", "b"]),
    ],
)
def test_two_classes_are_zero_and_one(y, values, classes):
    found, names = as_classes(y, 3, None)
    np.testing.assert_array_equal(found, values)
    assert names.tolist() == classes
    np.testing.assert_array_equal(as_classes(y, 3, names)[0], values)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (["a", "a", "a"], "must have two classes.*got 1: 'a'"),
        (["a", "b", "c"], "got 3: 'a', 'b', 'c'"),
        ([0, 1, 2], "got 3: 0, 1, 2"),
        ([0.0, 0.5, 1.0], r"y\[1\] = 0.5 must be 0 or 1"),
        ([0.0, 1.0, np.inf], r"y\[2\] = inf must be 0 or 1"),
        (["a", 1, "b"], "texts and others, 'a' and 1"),
        ([[0], [1], [1]], r"got shape \(3, 1\)"),
    ],
)
def test_responses_that_are_not_two_classes_are_refused(y, words):
    with pytest.raises((TypeError, ValueError), match=words):
        as_classes(y, 3, None)


def test_classes_with_names_are_predicted_by_name_and_kept_by_files(tmp_path: Path):
    y = ["fruit", "tools"] * 10
    model = ng.topics.SupervisedLDA(2, response="bernoulli", seed=1, **FAST).fit(TEXTS, y)
    coded = ng.topics.SupervisedLDA(2, response="bernoulli", seed=1, **FAST).fit(TEXTS, [0, 1] * 10)
    np.testing.assert_array_equal(model.topics_, coded.topics_)
    assert model.predict(TEXTS[:2]).tolist() == ["fruit", "tools"]
    assert coded.predict(TEXTS[:2]).tolist() == [0.0, 1.0]
    model.save(tmp_path / "model.natgrad")
    again = ng.load(tmp_path / "model.natgrad")
    assert again.predict(TEXTS[:2]).tolist() == ["fruit", "tools"]
    again.partial_fit(TEXTS, y)
    with pytest.raises(ValueError, match=r"y\[0\] = 'other' is none of the two classes"):
        again.partial_fit(TEXTS, ["other"] * 20)
    with pytest.raises(TypeError, match=r"y\[0\] = 'fruit'; two classes are for response"):
        ng.topics.SupervisedLDA(2).fit(TEXTS, y)


def test_one_long_document_is_refused_before_memory_is_full():
    counts = np.ones((2000, 3), dtype=int)
    counts[5, 0] = 100_000
    with pytest.raises(ValueError, match=r"up to 100,002 words \(number 5; half have 3 or fewer\)"):
        ng.topics.SupervisedLDA(2, max_seconds=0.1, **FAST).fit(counts, np.arange(2000.0))
