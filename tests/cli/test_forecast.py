"""`natgrad forecast`: the numbers of `forecast` and `predict`, for every model that goes on."""

import csv

import numpy as np
import pytest
from cli.calls import call, one_line, right

import natgrad as ng
from natgrad.cli.common import with_digits

WHAT = ("mean", "sd", "lower", "upper")
TRACKS = '{"symbol": Categorical(), "level": StudentT()}'


def asked(*arguments):
    return list(csv.DictReader(right("forecast", "m", "--steps", 3, *arguments).stdout.splitlines()))


def numbers(rows, name):
    return [[float(row[f"{name} {what}"]) for what in WHAT] for row in rows]


def told(ahead, mass=0.9):
    return np.column_stack([ahead.mean(), ahead.std(), *ahead.interval(mass)])


def column_of(path, name):
    return [row[name] for row in csv.DictReader(path.read_text().splitlines())]


def test_every_sequence_goes_on_from_its_end(workspace):
    levels = np.array(column_of(workspace / "series.csv", "level"), float)[:, None]
    lines = [f"{x[0]},{'ab'[t >= 80]}" for t, x in enumerate(levels)]
    (workspace / "runs.csv").write_text("\n".join(["level,run", *lines, ""]))
    right("fit", "hmm", "runs.csv", "-o", "m", "--n-states", 2, "--columns", "level", "--sequence", "run")
    model = ng.load(workspace / "m")
    rows = asked("--data", "runs.csv", "--mass", 0.5)
    assert [(row["sequence"], row["step"]) for row in rows] == [(name, str(n)) for name in "ab" for n in (1, 2, 3)]
    expected = [told(model.forecast(3, part), 0.5) for part in (levels[:80], levels[80:])]
    np.testing.assert_allclose(numbers(rows, "level"), np.vstack(expected), rtol=1e-8)
    assert np.abs(expected[0] - expected[1]).max() > 0.1  # the two ends are in different states
    right("forecast", "m", "--data", "runs.csv", "--steps", 3, "--mass", 0.5, "-o", "ahead.csv")
    assert list(csv.DictReader((workspace / "ahead.csv").read_text().splitlines())) == rows


def test_tracks_and_labels_have_their_own_columns(workspace):
    """Tracks stand in the order of the emissions, columns of the file in another."""
    lines = (workspace / "series.csv").read_text().splitlines()
    lines = [line[:-1] + {"0": "rain", "1": "sun", "l": "l"}[line[-1]] for line in lines]
    (workspace / "named.csv").write_text("\n".join([*lines, ""]))
    right("fit", "hmm-tracks", "named.csv", "-o", "m", "--n-states", 2, "--emissions", TRACKS)
    rows = asked("--data", "named.csv")
    path = workspace / "named.csv"
    level, symbol = np.array(column_of(path, "level"), float), np.array(column_of(path, "symbol"))
    table = np.empty(len(level), dtype=[("level", float), ("symbol", symbol.dtype)])
    table["level"], table["symbol"] = level, symbol
    ahead = ng.load(workspace / "m").forecast(3, table)
    assert list(rows[0]) == ["sequence", "step", "symbol rain", "symbol sun", *(f"level {what}" for what in WHAT)]
    np.testing.assert_allclose(numbers(rows, "level"), told(ahead["level"]), rtol=1e-8)
    chances = [[float(row[f"symbol {name}"]) for name in ("rain", "sun")] for row in rows]
    np.testing.assert_allclose(chances, ahead["symbol"].probabilities(), rtol=1e-8)


def test_one_kind_for_several_columns(workspace):
    right("fit", "hmm-tracks", "series.csv", "-o", "m", "--n-states", 2, "--emissions", "StudentT()")
    rows = asked("--data", "series.csv")
    X = np.column_stack([np.array(column_of(workspace / "series.csv", n), float) for n in ("level", "symbol")])
    low, high = (ahead := ng.load(workspace / "m").forecast(3, X)).interval(0.9)
    for place, name in enumerate(("level", "symbol")):
        own = np.column_stack([part[:, place] for part in (ahead.mean(), ahead.std(), low, high)])
        np.testing.assert_allclose(numbers(rows, name), own, rtol=1e-8)


def test_symbols_have_probabilities(workspace):
    right("fit", "hmm-categorical", "series.csv", "-o", "m", "--n-states", 2, "--columns", "symbol")
    X = np.array(column_of(workspace / "series.csv", "symbol"), int)
    found = [[float(row[f"symbol {v}"]) for v in (0, 1)] for row in asked("--data", "series.csv")]
    np.testing.assert_allclose(found, ng.load(workspace / "m").forecast(3, X).probabilities(), rtol=1e-8)


def test_inputs_of_the_next_times(workspace):
    right(
        "fit", "hmm-tracks", "series.csv", "-o", "m", "--n-states", 2, "--emissions", '{"level": Gaussian()}',
        "--transitions", "Transitions(inputs='symbol')", "--columns", "level,symbol",
    )  # fmt: skip
    path = workspace / "series.csv"
    table = np.empty(120, dtype=[("level", float), ("symbol", float)])
    for name in ("level", "symbol"):
        table[name] = column_of(path, name)
    ahead = ng.load(workspace / "m").forecast(3, table, inputs=[1.0, 0.0, 1.0])
    rows = asked("--data", "series.csv", "--inputs", "1,0,1")
    assert list(rows[0]) == ["sequence", "step", *(f"level {what}" for what in WHAT)]
    np.testing.assert_allclose(numbers(rows, "level"), told(ahead), rtol=1e-8)
    ask = ("forecast", "m", "--steps", 3, "--data", "series.csv")
    assert "--inputs must say what comes at each of 3 times, got none" in one_line(call(*ask))
    assert "--inputs: '7' at place 1 was not seen in the fit; known are 0, 1" in one_line(
        call(*ask, "--inputs", "1,7,0")
    )


@pytest.mark.parametrize(("every", "apart"), [((), 6 / 39), (("--every", 0.5), 0.5)])
def test_a_process_goes_on_after_its_last_time(workspace, every, apart):
    right("fit", "gp-time", "rows.csv", "-o", "m", "--columns", "x", "--target", "y")
    rows = asked("--mass", 0.8, *every)
    times = np.array([float(row["x"]) for row in rows])
    np.testing.assert_allclose(times, 6 + apart * np.arange(1, 4), atol=0.003)  # the file has three digits
    model = ng.load(workspace / "m")
    expected = np.column_stack([*model.predict(times, return_std=True), *model.interval(times, 0.8)])
    np.testing.assert_allclose(numbers(rows, "y"), expected, rtol=1e-7)


def test_a_process_with_more_rows_goes_on_after_them(workspace):
    """The file of a process along time holds its rows, so that `natgrad update` adds others to all of them."""
    lines = (workspace / "rows.csv").read_text().splitlines()
    (workspace / "first.csv").write_text("\n".join([*lines[:31], ""]))
    (workspace / "rest.csv").write_text("\n".join([lines[0], *lines[31:], ""]))
    for name, file in (("whole", "rows.csv"), ("part", "first.csv")):
        right("fit", "gp-time", file, "-o", name, "--columns", "x", "--target", "y", "--tol", 1e-6)
    right("update", "part", "rest.csv", "-o", "m")
    whole, model = ng.load(workspace / "whole"), ng.load(workspace / "m")
    assert model.n_rows_seen_ == 40
    np.testing.assert_allclose(model.elbo_, whole.elbo_, atol=1e-3)
    times = [float(row["x"]) for row in asked()]
    np.testing.assert_allclose(times, 6 + np.arange(1, 4) * 6 / 39, atol=0.003)
    np.testing.assert_allclose(numbers(asked(), "y")[0][0], whole.predict(times)[0], atol=1e-3)


def test_what_cannot_go_on_is_refused(workspace):
    right("fit", "hmm", "series.csv", "-o", "m", "--n-states", 2, "--columns", "level", "--max-passes", 2)
    assert "--data is needed: the file of a GaussianHMM holds no series" in one_line(
        call("forecast", "m", "--steps", 2)
    )
    ask = ("forecast", "m", "--data", "series.csv", "--steps")
    assert "--mass must lie in (0, 1), got 90" in one_line(call(*ask, 2, "--mass", 90))
    assert "'--steps': 0 is not in the range x>=1" in one_line(call(*ask, 0), code=2)
    assert "--every is for other models, and this is GaussianHMM" in one_line(call(*ask, 2, "--every", 1))
    assert "-o no/x.csv: there is no folder no; make it first" in one_line(call(*ask, 2, "-o", "no/x.csv"))
    assert "--inputs is for models of Transitions" in one_line(call(*ask, 2, "--inputs", "a,b"))
    right("fit", "mixture", "rows.csv", "-o", "c", "--columns", "x,y", "--n-components", 2, "--n-init", 1)
    refused = one_line(call("forecast", "c", "--steps", 2))
    assert "forecast is for" in refused
    assert "this is GaussianMixture; it has natgrad predict" in refused
    right("fit", "gp-time", "rows.csv", "-o", "t", "--columns", "x", "--target", "y", "--max-steps", 2)
    refused = one_line(call("forecast", "t", "--steps", 2, "--data", "rows.csv"))
    assert "--data rows.csv: gp-time goes on from the rows of its fit; natgrad update adds others" in refused
    assert "--every must be > 0, got -1" in one_line(call("forecast", "t", "--steps", 2, "--every", -1))


def test_large_numbers_keep_the_digits_that_their_deviations_need(workspace):
    """Six digits of 10⁹ would say nothing of a wave of height one, nor of a time in milliseconds."""
    lines = [f"{1.7e12 + 10 * t:.0f},{1e9 + np.sin(t / 5):.6f}" for t in range(60)]
    (workspace / "late.csv").write_text("\n".join(["x,y", *lines, ""]))
    right("fit", "gp-time", "late.csv", "-o", "m", "--columns", "x", "--target", "y")
    model, times = ng.load(workspace / "m"), 1.7e12 + 10.0 * np.arange(63)
    mean, sd = model.predict(times, return_std=True)
    rows = list(csv.DictReader(right("predict", "m", "late.csv").stdout.splitlines()))
    assert [float(row["x"]) for row in rows] == times[:60].tolist()
    assert (np.abs([float(row["mean"]) for row in rows] - mean[:60]) < 1e-4 * sd[:60]).all()
    ahead = asked()
    assert [float(row["x"]) for row in ahead] == times[60:].tolist()
    assert (np.abs([float(row["y mean"]) for row in ahead] - mean[60:]) < 1e-4 * sd[60:]).all()


@pytest.mark.parametrize(
    ("value", "sd", "text"),
    [(2.0 / 3.0, 0.1, "0.666667"), (1e9 + 0.25, 0.5, "1000000000.25"), (1e9 + 1.0, 0.0, "1000000001"), (0.0, 1.0, "0"),
     (1.5, np.inf, "1.5"), (np.nan, 1.0, "nan"), (-1e20, 1e-9, "-1e+20")],
)  # fmt: skip
def test_digits(value, sd, text):
    assert with_digits(value, sd) == text
