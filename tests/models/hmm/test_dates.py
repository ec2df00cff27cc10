"""Series with dates: states, forecasts and pages are in dates, a regular step goes on, an irregular one is named."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli.calls import call, one_line, right

import natgrad as ng
from natgrad.models import hmm

FREQUENCIES = ["D", "B", "h", "17min", "W-WED", "MS", "ME", "QE"]
VALUES = np.repeat([0.0, 5.0, 0.0, 5.0], 15) + np.random.default_rng(0).normal(size=60)


def series(dates, values=VALUES):
    return pd.Series(values[: len(dates)], dates, name="level")


@pytest.fixture(scope="module")
def fitted():
    dates = pd.date_range("2023-11-01", periods=60)
    return ng.GaussianHMM(2, verbose=False).fit(series(dates)), dates


@pytest.mark.parametrize("frequency", FREQUENCIES)
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_the_step_goes_on(fitted, frequency, zone):
    dates = pd.date_range("2024-01-31", periods=65, freq=frequency, tz=zone)
    bare = pd.DatetimeIndex(dates.to_list())  # its step is to be found
    assert bare.freq is None
    ahead = fitted[0].forecast(5, series(bare[:60]))
    assert ahead.dates.tolist() == dates[60:].tolist()
    assert ahead.frame().index.tolist() == dates[60:].tolist()


def test_states_have_the_dates_of_their_rows(fitted):
    model, dates = fitted
    X, plain = series(dates), VALUES[:, None]
    for values, own in zip(
        (model.predict(X), model.predict_proba(X), model.decode(X)[1], model.score_samples(X)[1]),
        (model.predict(plain), model.predict_proba(plain), model.decode(plain)[1], model.score_samples(plain)[1]),
        strict=True,
    ):
        assert values.index.equals(dates)
        np.testing.assert_array_equal(values, own)
        assert type(own) is np.ndarray
    assert type(model.predict(X, out=np.zeros(60, np.int64))) is np.ndarray
    both = model.predict([X.to_frame()[:20], X.to_frame()[20:]])
    assert both.index.equals(dates)


def test_periods_are_dates(fitted):
    periods = pd.period_range("2020-01", periods=60, freq="M")
    assert str(fitted[0].forecast(1, series(periods)).dates[0].date()) == "2025-01-01"


def test_forecasts_after_the_fit_follow_its_last_sequence(fitted):
    _, dates = fitted
    first = pd.date_range("2000-01-01", periods=40, freq="MS")
    both = pd.concat([series(dates), series(first)]).to_frame()
    two = ng.GaussianHMM(2, verbose=False).fit(both, lengths=[60, 40])
    assert str(two.forecast(1).dates[0].date()) == "2003-05-01"
    assert two.forget([1]).forecast(1).dates[0] == dates[-1] + pd.Timedelta(days=1)
    assert two.update(series(first).to_frame()).forecast(1).dates[0].year == 2003
    assert two.update(VALUES[:10, None]).forecast(1).dates is None  # rows without dates came last


def test_a_filter_counts_on_and_refuses_a_gap(fitted):
    model, dates = fitted
    X, after = series(dates), pd.date_range(dates[-1], periods=9)[1:]
    live = model.filter(X)
    live.update(VALUES[:1])
    live.update(series(after[1:4]))
    assert live.copy().forecast(1).dates[0] == after[4]
    with pytest.raises(ValueError, match=r"2024-01-08.*goes on with 2024-01-04"):
        live.update(series(pd.date_range("2024-01-08", periods=1)))
    assert live.forecast(1).dates[0] == after[4]  # nothing has changed
    live.reset()
    assert live.forecast(1).dates is None


@pytest.mark.parametrize("gone", [2, 17, 58])
@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_the_first_irregular_step_is_named(fitted, gone, frequency):
    dates = pd.date_range("2024-01-31", periods=60, freq=frequency)
    with pytest.warns(UserWarning, match=f"not regular: row {gone} is ") as warned:
        ahead = fitted[0].forecast(2, series(dates.delete(gone)))
    assert str(dates[gone + 1]) in str(warned[0].message)
    assert ahead.dates is None
    assert ahead.frame()["step"].tolist() == [1, 2]


def test_dates_that_do_not_ascend_are_refused():
    dates = pd.date_range("2024-01-31", periods=60)
    model = ng.GaussianHMM(2, verbose=False)
    with pytest.raises(ValueError, match="must ascend, and row 30 of X"):
        model.fit(series(dates[:30].append(dates[:30])))
    model.fit(series(dates[:30].append(dates[:30])).to_frame(), lengths=[30, 30])  # two sequences
    with pytest.raises(ValueError, match="row 7 of X has no date"):
        model.fit(series(dates[:7].append(pd.DatetimeIndex([pd.NaT])).append(dates[8:])))


def test_tracks_and_labels_have_dates():
    dates = pd.date_range("2024-01-31", periods=60, freq="h")
    weather = np.where(VALUES > 2, "sun", "rain")
    words = ng.CategoricalHMM(2, verbose=False).fit(pd.Series(weather, dates))
    assert words.forecast(2).frame().index[0] == dates[-1] + pd.Timedelta(hours=1)
    table = pd.DataFrame({"level": VALUES, "weather": weather}, dates)
    kinds = {"level": hmm.Autoregressive(1), "weather": hmm.Categorical()}
    both = hmm.HMM(2, emissions=kinds, verbose=False).fit(table)
    ahead = both.forecast(2)
    assert ahead.dates.equals(ahead["level"].dates)
    assert ahead.frame()["weather"].index[1] == dates[-1] + pd.Timedelta(hours=2)


def test_the_page_shows_dates(fitted, tmp_path):
    model, dates = fitted
    model.report(tmp_path / "p.html", data=series(dates))
    assert f'[59,"{dates[-1].date()}"]' in (tmp_path / "p.html").read_text()


# -- a process along time --


def test_a_process_takes_dates_of_any_kind(tmp_path):
    dates = pd.date_range("2024-01-31", periods=60, freq="6h")
    days = 19753.0 + np.arange(60) / 4
    numbers = ng.StateSpaceGP(verbose=False).fit(days, VALUES)
    expected = numbers.predict(days[:5] + 100)
    later = dates + pd.Timedelta(days=100)
    for kind in (
        lambda t: t, pd.Series, lambda t: t.to_numpy(), lambda t: t.to_numpy("datetime64[h]")[:, None],
        lambda t: t.tz_localize("UTC").tz_convert("Asia/Tokyo"), lambda t: pd.DataFrame({"t": t}),
    ):  # fmt: skip
        model = ng.StateSpaceGP(verbose=False).fit(kind(dates), VALUES)
        np.testing.assert_allclose(model.predict(kind(later[:5])), expected, rtol=1e-12)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(ng.load(tmp_path / "m").predict(later[:5]), expected)
    model.report(tmp_path / "p.html", data=(pd.DataFrame({"t": dates}), VALUES))
    assert "2024-02-" in (tmp_path / "p.html").read_text()
    with pytest.raises(TypeError, match="dates"):
        numbers.predict(dates)
    for X in (dates.to_numpy()[:, None], pd.DataFrame({"t": dates})):
        with pytest.raises(TypeError, match="dates"):
            ng.SparseGPRegressor().fit(X, VALUES)


@pytest.mark.parametrize("frequency", ["M", "Q", "h"])
def test_a_process_takes_periods_as_their_begins(frequency):
    periods = pd.period_range("1990-01", periods=60, freq=frequency)
    expected = ng.StateSpaceGP(verbose=False).fit(periods.to_timestamp(), VALUES).predict(periods[-3:].to_timestamp())
    for kind in (lambda t: t, pd.Series, lambda t: pd.DataFrame({"t": t})):
        model = ng.StateSpaceGP(verbose=False).fit(kind(periods), VALUES)
        np.testing.assert_allclose(model.predict(kind(periods[-3:])), expected, rtol=1e-12)


def test_a_process_refuses_a_row_without_a_date():
    dates = pd.date_range("2024-01-31", periods=60).where(np.arange(60) != 17)
    for X in (dates, dates.to_numpy(), pd.DataFrame({"t": dates}), dates.tz_localize("Asia/Tokyo")):
        with pytest.raises(ValueError, match="row 17 of X has no date"):
            ng.StateSpaceGP(verbose=False).fit(X, VALUES)


# -- files --


@pytest.fixture
def dated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dates = pd.date_range("2024-01-31", periods=60, freq="MS")
    table = pd.DataFrame({"day": dates.astype(str), "level": VALUES, "run": "a", "sign": VALUES > 2})
    table.assign(sign=np.where(table.sign, "sun", "rain")).to_csv("dated.csv", index=False)
    return dates


def rows(*arguments):
    return list(csv.DictReader(right(*arguments).stdout.splitlines()))


@pytest.mark.parametrize(
    ("model", "column", "more"),
    [
        ("hmm", "level", ()),
        ("hmm-categorical", "sign", ()),
        ("hmm-tracks", "level,sign", ("--emissions", '{"level": StudentT(), "sign": Categorical()}')),
    ],
)
def test_files_with_dates(dated, model, column, more):
    right("fit", model, "dated.csv", "-o", "m", "--n-states", 2, "--columns", column, "--dates", "day",
          "--sequence", "run", "--report", "p.html", *more)  # fmt: skip
    assert "2024-02-01" in Path("p.html").read_text()
    states = rows("decode", "m", "dated.csv")  # the column of dates is that of the fit
    assert [row["date"] for row in states] == [str(date.date()) for date in dated]
    ahead = rows("forecast", "m", "--data", "dated.csv", "--steps", 2)
    assert [row["date"] for row in ahead] == ["2029-02-01", "2029-03-01"]
    assert ng.load("m").columns_["dates"] == "day"


def test_files_of_a_process_with_dates(dated):
    right("fit", "gp-time", "dated.csv", "-o", "m", "--target", "level", "--dates", "day")
    assert rows("predict", "m", "dated.csv")[0]["day"] == str(dated[0].date())
    (ahead,) = rows("forecast", "m", "--steps", 1, "--every", 1)
    assert ahead["day"] == "2029-01-02"


def test_files_of_a_process_with_dates_of_a_zone(dated):
    table = pd.read_csv("dated.csv")
    table.assign(day=table["day"] + "T02:00:00+02:00").to_csv("zoned.csv", index=False)
    for name in ("zoned", "dated"):
        right("fit", "gp-time", f"{name}.csv", "-o", name, "--target", "level", "--dates", "day", "--max-steps", 3)
    for theirs, ours in zip(rows("predict", "zoned", "zoned.csv"), rows("predict", "dated", "dated.csv"), strict=True):
        assert theirs["mean"] == ours["mean"]
        assert theirs["day"] == ours["day"] + "T02:00:00+02:00"


def test_a_column_that_holds_no_dates(dated):
    words = one_line(call("fit", "hmm", "dated.csv", "-o", "m", "--columns", "level", "--dates", "run"))
    assert "--dates run" in words
    assert "2024-01-31" in words
