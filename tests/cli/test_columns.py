"""The columns of a fit are remembered: later files are read by name, whatever else is in them and in whatever order."""

import json

import numpy as np
import pytest
from cli.calls import call, one_line, right

import natgrad as ng
from natgrad.errors import ModelFileError


def write(path, **columns):
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")


@pytest.fixture
def series(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    level = np.where(np.arange(60) // 10 % 2, 4.0, 0.0) + rng.normal(size=60)
    return {"day": np.repeat(["mon", "tue"], 30), "level": level.round(4), "noise": rng.normal(size=60).round(4)}


def test_series_are_read_again_by_name_and_keep_the_names_of_their_sequences(series, tmp_path):
    write(tmp_path / "a.csv", **series)
    write(tmp_path / "b.csv", noise=series["noise"], other=series["noise"], level=series["level"], day=series["day"])
    right("fit", "hmm", "a.csv", "-o", "m", "--columns", "level", "--sequence", "day", "--n-states", 2)
    assert ng.load("m").columns_ == {"columns": ["level"], "sequence": "day"}
    first, second = (right("decode", "m", file).stdout for file in ("a.csv", "b.csv"))
    assert first == second
    assert [line.split(",")[0] for line in first.splitlines()[1:]] == series["day"].tolist()
    assert right("score", "m", "a.csv").stdout == right("score", "m", "b.csv").stdout
    write(tmp_path / "c.csv", day=series["day"], noise=series["noise"])
    assert "level" in one_line(call("decode", "m", "c.csv"))


def test_rows_are_predicted_by_name(series, tmp_path):
    write(tmp_path / "a.csv", **series)
    write(tmp_path / "b.csv", noise=series["noise"], level=series["level"], day=series["day"])
    right("fit", "mixture", "a.csv", "-o", "m", "--columns", "level,noise", "--n-components", 2)
    assert right("predict", "m", "a.csv").stdout == right("predict", "m", "b.csv").stdout
    words = ("--columns", "level", "--target", "noise", "--n-inducing", 5, "--max-steps", 5)
    right("fit", "gp", "a.csv", "-o", "g", *words)
    assert right("score", "g", "a.csv").stdout == right("score", "g", "b.csv").stdout


def test_users_and_items_are_found_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    table = {"score": rng.normal(size=40).round(3), "x": np.repeat(list("abcd"), 10), "y": np.arange(40) % 10}
    write(tmp_path / "a.csv", **table)
    right("fit", "mf", "a.csv", "-o", "m", "--user", "x", "--item", "y", "--n-factors", 2, "--max-steps", 5)
    write(tmp_path / "pairs.csv", y=[1, 2], x=["a", "b"])
    found = right("predict", "m", "pairs.csv").stdout.splitlines()[1:]
    assert [line.split(",")[:2] for line in found] == [["a", "1"], ["b", "2"]]
    assert np.isfinite(json.loads(right("score", "m", "a.csv", "--json").stdout)["score"])


def test_a_file_may_hold_names_and_nothing_else(series, tmp_path):
    write(tmp_path / "a.csv", **series)
    right("fit", "mixture", "a.csv", "-o", "m", "--columns", "level", "--n-components", 1)
    model = ng.load("m")
    for wrong in ({"where": "level"}, {"columns": [1]}, {"target": None}, ["level"]):
        model.columns_ = wrong
        with pytest.raises((ValueError, TypeError, ModelFileError)):
            model.save(tmp_path / "wrong")
        assert not (tmp_path / "wrong").exists()
