"""Ids as levels: numbered by the ids alone, found again whatever their type, new ones after the old."""

import datetime as dt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import natgrad as ng
from natgrad.network.bind.levels import Levels

IDS = st.one_of(
    st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=30),
    st.lists(st.integers(-5, 5), min_size=1, max_size=30),
    st.lists(st.text(max_size=4).filter(lambda text: not text.endswith("\0")), min_size=1, max_size=30),
)


@given(IDS, st.randoms(use_true_random=False))
def test_levels_are_the_sorted_ids_and_find_is_their_inverse(ids: list[Any], random: Any) -> None:
    levels = Levels.of([np.array(ids)])
    assert levels.ids.tolist() == sorted(set(ids))
    assert levels.ids[levels.find(np.array(ids))].tolist() == ids
    mixed = list(ids)
    random.shuffle(mixed)
    assert Levels.of([np.array(mixed[:1]), np.array(mixed)]).ids.tolist() == levels.ids.tolist()


@given(st.lists(st.integers(-9, 9), min_size=1), st.lists(st.integers(-12, 12), min_size=1))
def test_new_ids_come_after_the_old_ones(old: list[int], new: list[int]) -> None:
    levels = Levels.of([np.array(old)])
    after = levels.extended(np.array(new))
    assert after.ids[: len(levels)].tolist() == levels.ids.tolist()
    assert after.ids[len(levels) :].tolist() == sorted(set(new) - set(old))
    assert (levels.find(np.array(new)) < 0).tolist() == [key not in old for key in new]


@pytest.mark.parametrize(
    ("ids", "wanted"),
    [
        (np.array([3, 7]), np.array(["7", "3", "x"])),
        (np.array(["3", "7"]), np.array([7, 3, 1])),
        (np.array([3, 7]), np.array([7.0, 3.0, 1.0])),
    ],
)
def test_ids_of_a_text_file_are_those_of_a_table(ids: Any, wanted: Any) -> None:
    found = Levels(ids).find(wanted[:2])
    assert found.tolist() == [1, 0]
    assert Levels(ids).find(wanted)[-1] == -1


def _level(fitted, asked):
    """The predictions of rows with other ids, of a fit whose levels all are at 5; an unknown one is at 0."""
    m = ng.Normal("m", 0.0, 1e-6, plate=ng.Plate("level"))
    net = ng.Network(ng.Normal("y", m[ng.Column("id")], 1.0, plate=ng.Plate("row"), observed=ng.Column("y")))
    fit = net.fit({"id": fitted, "y": np.full(len(fitted), 5.0)}, verbose=False)
    return (fit.predict({"id": asked})["y"].mean() > 2.5).tolist()


DAY = "2020-01-02"
DAYS = {
    "days": np.array([DAY], "M8[D]"),
    "nanoseconds": np.array([DAY], "M8[ns]"),
    "microseconds": np.array([DAY], "M8[us]"),
    "dates": [dt.date(2020, 1, 2)],
    "times": [dt.datetime(2020, 1, 2)],
    "scalars": [np.datetime64(DAY)],
    "text": [DAY],
}


@pytest.mark.parametrize("fitted", DAYS)
def test_a_day_is_the_same_level_in_every_form(fitted):
    """Frames of pandas have one unit, files another, lists none: all rows would be predicted as strangers."""
    for asked, day in DAYS.items():
        assert _level(DAYS[fitted], day) == [True], asked
    assert _level(DAYS[fitted], [dt.date(2020, 1, 3)]) == [False]
    noon = np.array([f"{DAY}T12:00"], "M8[m]")
    assert _level(DAYS[fitted], noon) == [False]
    assert _level(noon, [dt.datetime(2020, 1, 2, 12)]) == [True]


def test_levels_of_files_with_nine_digits_are_found():
    assert Levels(np.array([f"{DAY}T00:00:00.000000000"])).find(np.array([DAY])).tolist() == [0]


def test_one_odd_id_makes_no_strangers_of_the_others():
    assert _level([1, 2], ["1", "2.0", "x"]) == [True, True, False]
    assert _level([1.5, 2.0], ["1.5", "2", "x"]) == [True, True, False]
    assert _level(["1", "2"], [1.0, 2.0, 3.0]) == [True, True, False]


def test_long_ids_are_compared_by_all_their_digits():
    """As floats, 2⁶⁰ and the number after it are the same."""
    long = [2**60, 2**60 + 1, 2**60 + 2]
    assert _level(long[:2], [str(number) for number in long]) == [True, True, False]
    assert _level([str(number) for number in long[:2]], long) == [True, True, False]
