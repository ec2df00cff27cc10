"""Ids as levels: numbered by the ids alone, found again whatever their type, new ones after the old."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
