"""Ratings in time and context that come in parts, as columns, through files, pages and command lines."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

import natgrad as ng
from natgrad.recommenders.columns import TimeBins

MODEL = ng.recommenders.ContextFactorization(2, n_bins=4, time="year", context="place", max_steps=8, tol=0)


def drawn(n: int = 300):
    """A structured table: 10 users, 8 items, odd items rise over the years, two places."""
    rng = np.random.default_rng(0)
    rows = np.empty(n, dtype=[("user", int), ("item", "U2"), ("rating", float), ("year", float), ("place", "U4")])
    item = rng.integers(0, 8, n)
    rows["user"], rows["item"], rows["year"] = rng.integers(0, 10, n), [f"i{j}" for j in item], rng.uniform(0, 8, n)
    rows["place"] = rng.choice(["home", "work"], n)
    rows["rating"] = 3 + 0.4 * (item % 2) * (rows["year"] - 4) + (rows["place"] == "home") + 0.2 * rng.normal(size=n)
    return rows


ROWS = drawn()


@pytest.fixture(scope="module")
def fitted():
    return clone(MODEL).fit(ROWS)


def test_columns_by_name_by_number_and_as_values_are_the_same(tmp_path):
    pandas = pytest.importorskip("pandas")
    quick = clone(MODEL).set_params(max_steps=1, n_factors=1)
    fitted = clone(quick).fit(ROWS)
    asked = fitted.predict(ROWS[:20])
    plain = clone(quick).set_params(time=None, context=None)
    pairs, known = ROWS[["user", "item"]], {"time": ROWS["year"], "context": ROWS["place"]}
    by_value = plain.fit(pairs, ROWS["rating"], **known)
    at = {name: values[:20] for name, values in known.items()}
    np.testing.assert_array_equal(by_value.predict(ROWS["user"][:20], ROWS["item"][:20], **at), asked)
    whole = ng.data.Ratings(ROWS["user"], ROWS["item"], ROWS["rating"], duplicates="keep")
    np.testing.assert_array_equal(clone(plain).fit(whole, **known).predict(whole, **known)[:20], asked)
    numbers = np.array([[*row] for row in ROWS.tolist()], dtype=object)
    by_number = clone(quick).set_params(time=3, context=4).fit(numbers, ROWS["rating"])
    np.testing.assert_array_equal(by_number.predict(numbers[:20]), asked)
    assert by_number.n_features_in_ == 5
    with pytest.raises(ValueError, match="X has 4 features, but ContextFactorization is expecting 5"):
        by_number.predict(numbers[:, :4])
    frame = pandas.DataFrame({name: ROWS[name] for name in ROWS.dtype.names})
    frame.to_csv(tmp_path / "r.csv", index=False)
    frame.to_parquet(tmp_path / "r.parquet")
    for form in (frame, tmp_path / "r.parquet", iter([frame[:100], frame[100:]])):
        np.testing.assert_allclose(clone(quick).fit(form).predict(ROWS[:20]), asked, rtol=1e-9)
    text = clone(quick).fit(tmp_path / "r.csv")  # ids of text are text, as everywhere
    assert text.user_ids_.tolist() == [str(n) for n in range(10)]
    assert text.elbo_ == pytest.approx(fitted.elbo_, rel=1e-9)


def test_dates_of_a_file_are_times(tmp_path):
    days = [f"2020-0{1 + n % 9}-15" for n in range(len(ROWS))]
    lines = [
        f"{row['user']},{row['item']},{row['rating']},{day}" for row, day in zip(ROWS[:80], days[:80], strict=True)
    ]
    (tmp_path / "d.csv").write_text("\n".join(["user,item,rating,day", *lines]))
    model = clone(MODEL).set_params(time="day", context=None, max_steps=2).fit(tmp_path / "d.csv")
    assert model.time_edges_[0] == np.datetime64("2020-01-15").astype("datetime64[s]").astype(int)
    (tmp_path / "e.csv").write_text("user,item,rating,day\n1,2,3,soon\n")
    with pytest.raises(ValueError, match="must hold numbers or dates as 2024-05-31"):
        clone(MODEL).set_params(time="day", context=None).fit(tmp_path / "e.csv")


def test_more_ratings_join_and_the_end_is_that_of_all(fitted, tmp_path):
    early = ROWS[ROWS["year"] < 5]
    late = ROWS[ROWS["year"] >= 5]
    model = clone(MODEL).partial_fit(early)
    edges = model.time_edges_
    model.save(tmp_path / "m")
    model.partial_fit(late)
    assert len(model.ratings_) == len(ROWS)
    np.testing.assert_allclose(model.time_edges_[:5], edges, rtol=1e-12)  # bins stay, and others follow
    assert len(model.time_edges_) > 5
    assert model.score(ROWS) > fitted.score(ROWS) - 0.3
    again = ng.load(tmp_path / "m").partial_fit(late)
    np.testing.assert_array_equal(again.predict(ROWS), model.predict(ROWS))
    with pytest.raises(ValueError, match="bins beyond"):
        model.partial_fit(np.array([(1, "i1", 3.0, 1e9, "home")], dtype=ROWS.dtype))
    with pytest.raises(ValueError, match="the fit had a time=: give one"):
        model.set_params(time=None).partial_fit(ROWS)


@pytest.mark.slow
def test_continued_updated_and_forgotten_fits_have_the_bound_of_one_from_all():
    """From where it was, and from a start of its own: the same optimum, found by as many sweeps as it takes."""
    long = clone(MODEL).set_params(max_steps=2000, tol=1e-7)
    whole = clone(long).fit(ROWS)
    np.testing.assert_allclose(clone(MODEL).fit(ROWS).continue_fit(2000).elbo_, whole.elbo_, rtol=2e-3)
    grown = clone(long).fit(ROWS[:280]).update(ROWS[280:])
    np.testing.assert_allclose(grown.predict(ROWS), whole.predict(ROWS), atol=0.05)
    less = grown.forget(np.arange(280, 300))
    assert len(less.ratings_) == 280
    shorter = clone(long).fit(ROWS[:280])
    np.testing.assert_allclose(less.predict(ROWS), shorter.predict(ROWS), atol=0.05)


def test_who_is_forgotten_is_gone_and_new_contexts_join(fitted, tmp_path):
    model = clone(MODEL).set_params(max_steps=2).fit(ROWS).forget({"user": [3]})
    assert 3 not in model.user_ids_.tolist()
    assert 3 not in model.ratings_.user_ids.tolist()
    moon = np.array([("zoe", "i1", 3.0, 2.0, "moon")], dtype=[*[("user", "U3")], *ROWS.dtype.descr[1:]])
    model.update(moon)
    assert model.context_ids_.tolist() == ["home", "moon", "work"]
    assert "zoe" in model.user_ids_.tolist()
    with pytest.raises(ValueError, match="none of the"):
        model.forget(np.ones(len(model.ratings_), bool))


def test_callbacks_and_pages_show_the_model(fitted, tmp_path):
    seen = []
    model = clone(MODEL).set_params(max_steps=3)
    model.fit(ROWS, callbacks=[ng.HeldOut(ROWS[:50], share=1), lambda p: seen.append(p.model())])
    assert [type(shown) for shown in seen] == [type(model)] * 3
    assert model.trace_["held_out"][-1] == pytest.approx(model.score(ROWS[:50]))
    text = fitted.report(tmp_path / "p.html", held_out=ROWS[:50]).read_text()
    for key in ("factors", "calibration", "drift", "contexts"):
        assert f'id="{key}"' in text
    assert "nats a rating" in text
    assert "i1" in text
    assert "held-out" not in fitted.report(tmp_path / "q.html").read_text().split("<h2")[0]


def test_bins_go_on_with_their_length():
    bins = TimeBins(0.0, 8.0, 4).extended(np.array([-1.0, 3.0, 11.0]))
    assert bins == TimeBins(-2.0, 12.0, 7)
    assert bins.of(np.array([-2.0, 0.0, 11.9, 12.0])).tolist() == [0, 1, 6, 6]
    same = TimeBins.over(np.array([5.0, 5.0]), 3)
    assert same.of(np.array([5.0, 5.5, 6.5])).tolist() == [0, 0, 1]
    assert same.extended(np.array([5.0, 6.5])) == TimeBins(5.0, 7.0, 2)


def test_what_is_refused():
    with pytest.raises(TypeError, match=r"time must be the name of a column or its number, got \[1, 2\]"):
        ng.recommenders.ContextFactorization(time=[1, 2]).fit(ROWS)
    with pytest.raises(ValueError, match="time=7 is the number of no column of X, which has 3"):
        ng.recommenders.ContextFactorization(time=7).fit(np.ones((4, 3)), np.ones(4))
    with pytest.raises(ValueError, match="requires y to be passed"):
        ng.recommenders.ContextFactorization(time=2).fit(np.ones((4, 3)))
    with pytest.raises(TypeError, match=r"ng\.recommenders\.ContextFactorization"):
        ng.MatrixFactorization().fit(ng.data.Ratings([0], [0], [1.0]), time=[2000])


def test_chunks_of_ratings_are_the_whole():
    """Times alone to rounding, since every block is updated as without chunks; contexts by another order of single numbers."""
    quick = clone(MODEL).set_params(context=None, max_steps=3)
    whole, chunks = clone(quick).fit(ROWS), clone(quick).set_params(chunk_rows=70).fit(ROWS)
    assert "5 chunks of 70" in chunks.trace_.strategy
    np.testing.assert_allclose(chunks.trace_["elbo"], whole.trace_["elbo"], rtol=1e-12)
    np.testing.assert_allclose(chunks.predict(ROWS[:20]), whole.predict(ROWS[:20]), rtol=1e-9)
