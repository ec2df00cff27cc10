"""The command line holds out a part of the data and scores it; completion is offered."""

import json

import numpy as np
import pytest
from cli.calls import call, one_line, right

import natgrad as ng
from natgrad.cli import main as command
from natgrad.cli.inputs import MODELS, Input, split_input


@pytest.mark.parametrize(
    ("words", "held"),
    [
        (("lda", "letters", "--n-topics", 3, "--max-passes", 5), "3 documents held out"),
        (("mf", "ratings.csv", "--n-factors", 2, "--max-steps", 5), "held out"),
        (("hmm", "series.csv", "--columns", "level", "--n-states", 2, "--max-passes", 3), "held out"),
        (
            ("gp", "rows.csv", "--columns", "x", "--target", "y", "--n-inducing", 10, "--max-steps", 5),
            "4 rows held out",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_part_is_held_out_and_scored(words, held, workspace):
    told = json.loads(right("fit", *words, "-o", "h", "--held-out", 0.1, "--report", "h.html", "--json").stdout)
    assert held in told["data"]
    model = ng.load(workspace / "h")
    assert np.isfinite(told["held_out"])
    assert np.isfinite(model.trace_["held_out"]).any()
    assert "held-out" in (workspace / "h.html").read_text()


def test_held_out_ratings_leave_everybody_one():
    rng = np.random.default_rng(0)
    users, items = np.nonzero(rng.random((30, 20)) < 0.1)
    ratings = ng.Ratings(users, items, rng.normal(size=len(users)))
    source = Input((ratings,), ratings, None, "")
    part, (held,) = split_input(source, 0.5, 1)
    (known,) = part.arguments
    assert len(known) + len(held) == len(ratings)
    assert set(held.user_ids) <= set(known.user_ids)
    assert set(held.item_ids) <= set(known.item_ids)
    again = split_input(source, 0.5, 1)[1][0]
    np.testing.assert_array_equal(again.values, held.values)


def test_held_out_sequences_are_whole():
    rows, lengths = np.arange(10.0)[:, None], np.array([3, 4, 3])
    source = Input((rows, lengths), None, None, "")
    part, (held, its) = split_input(source, 0.34, 0)
    assert len(its) == 1
    assert sorted([*part.arguments[0][:, 0], *held[:, 0]]) == list(range(10))
    assert int(part.arguments[1].sum()) == len(part.arguments[0])
    assert np.ptp(held) == len(held) - 1  # one stretch
    one = Input((rows, np.array([10])), None, None, "")
    part, (held, its) = split_input(one, 0.2, 0)
    assert held[:, 0].tolist() == [8.0, 9.0]


def test_too_little_to_hold_out_is_said(workspace):
    (workspace / "one.txt").write_text("a word and a word and another word\n")
    result = call("fit", "lda", "one.txt", "-o", "o", "--min-documents", 1, "--max-share", 1, "--held-out", 0.5)
    assert "--held-out 0.5: holding out a part takes at least 2 documents, and there is 1" in one_line(result)
    assert call("fit", "lda", "letters", "-o", "o", "--held-out", 1.5).exit_code == 2


def test_shell_completion_is_offered(monkeypatch):
    from click.shell_completion import BashComplete

    words = BashComplete(command.main, {}, "natgrad", "_NATGRAD_COMPLETE").get_completions(["fit"], "")
    assert {word.value for word in words} == set(MODELS)
