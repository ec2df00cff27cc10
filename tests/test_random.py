"""Draws without replacement: the right number, no repeats, uniform, and a function of the seed."""

import ast
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import natgrad
from natgrad.random import Stream, draw_rows, generator


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 40)), min_size=1, max_size=8),
    st.integers(0, 10**6),
    st.booleans(),
)
def test_rows_get_distinct_positions_of_their_own(rows, seed, many):
    lengths = np.array([length for length, _ in rows]) * (10 if many else 1)
    counts = np.minimum([count * (10 if many else 1) for _, count in rows], lengths)
    start = np.concatenate([[0], np.cumsum(lengths)])
    positions, row = draw_rows(generator(seed, 1), start, counts)
    assert len(positions) == counts.sum()
    np.testing.assert_array_equal(np.bincount(row, minlength=len(rows)), counts)
    for r in range(len(rows)):
        mine = positions[row == r]
        assert len(set(mine.tolist())) == len(mine)
        assert ((mine >= start[r]) & (mine < start[r + 1])).all()
    again, _ = draw_rows(generator(seed, 1), start, counts)
    np.testing.assert_array_equal(positions, again)


@pytest.mark.parametrize("count", [3, 70])
def test_every_position_is_drawn_equally_often(count):
    length, repeats = 100, 4000
    start = np.array([0, length])
    hits = np.zeros(length)
    for t in range(repeats):
        positions, _ = draw_rows(generator(0, t), start, np.array([count]))
        hits[positions] += 1
    expected = repeats * count / length
    # Each count is close to binomial: five standard deviations leave one chance in 10⁴ over a hundred positions.
    assert np.abs(hits - expected).max() < 5 * np.sqrt(expected)


def test_a_place_in_a_run_is_a_step_or_a_stream() -> None:
    """No file has a large number of its own in place of a step: two of them once had the same."""
    places = [
        (path, call.args[1])
        for path in Path(natgrad.__file__).parent.rglob("*.py")
        if "generator(" in (text := path.read_text())
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and len(call.args) > 1 and ast.unparse(call.func).split(".")[-1] == "generator"
    ]
    assert len(places) > 10
    for path, place in places:
        words = ast.unparse(place)
        assert words.startswith(("Stream.", "random.Stream.")) or words.islower(), f"{path.name}: {words}"
    assert len({int(stream) for stream in Stream}) == len(Stream.__members__)
