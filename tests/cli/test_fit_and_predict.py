"""The command line from files to models, pages and predictions."""

import csv
import json

import numpy as np
import pytest
from cli.calls import call, one_line, right
from promises.pages import letters

import natgrad as ng
from natgrad.report.page import LIMIT


def test_from_raw_text_to_topics_and_a_page(workspace):
    told = json.loads(
        right("fit", "lda", "letters", "-o", "m", "--n-topics", 3, "--seed", 1, "--report", "p.html", "--json").stdout
    )
    assert told["model"] == "LDA"
    assert told["data"].startswith("30 documents")
    assert told["inference"].startswith("collapsed Gibbs")
    model = ng.load(workspace / "m")
    assert told["elbo"] == model.elbo_
    together = json.loads(right("topics", "m", "-n", 4, "--coherence", "letters/", "--json").stdout)["topics"]
    assert all(-1 <= topic["coherence"] <= 1 for topic in together)
    found = json.loads(right("topics", "m", "-n", 4, "--json").stdout)["topics"]
    shares = [topic["share"] for topic in found]
    assert shares == sorted(shares, reverse=True)
    assert sum(topic["share"] for topic in found) == pytest.approx(1)
    themes = {frozenset(w for w in topic["words"]) for topic in found}
    assert any(len(words & {"wave", "sail", "harbour", "tide", "anchor", "boat"}) >= 3 for words in themes)
    assert ".txt: " in (workspace / "p.html").read_text()
    assert (workspace / "p.html").stat().st_size < LIMIT
    score = json.loads(right("score", "m", "letters", "--json").stdout)
    assert score["score"] == pytest.approx(model.score(letters()))
    assert score["perplexity"] == pytest.approx(np.exp(-score["score"]))
    rows = list(csv.reader(right("transform", "m", "letters").stdout.splitlines()))
    assert rows[0] == ["document", "topic 0", "topic 1", "topic 2"]
    np.testing.assert_allclose([[float(v) for v in row[1:]] for row in rows[1:]], model.transform(letters()), atol=1e-4)


def test_ratings_from_file_to_recommendation(workspace):
    right("fit", "mf", "ratings.csv", "-o", "m", "--n-factors", 2, "--max-steps", 20)
    model = ng.load(workspace / "m")
    found = json.loads(right("recommend", "m", "ann", "-n", 20, "--json").stdout)
    rated = set(model.ratings_.item_ids[model.ratings_.items[model.ratings_.users == 0]].tolist())
    assert {item["item"] for item in found["items"]} == set(model.ratings_.item_ids.tolist()) - rated
    means = [item["mean"] for item in found["items"]]
    assert means == sorted(means, reverse=True)
    some = model.recommend("ann", n=2).items.tolist()
    words = ("--only", some[0], "--only", some[1], "--exclude", some[0], "--quantile", 0.1, "--because", 2, "--json")
    found = json.loads(right("recommend", "m", "ann", *words).stdout)["items"]
    assert [item["item"] for item in found] == some[1:]
    assert found[0]["because"] == model.because("ann", some[1], 2).items.tolist()
    listed = json.loads(right("recommend", "m", "ann", "-n", 3, "--diversity", 0.9, "--json").stdout)["items"]
    assert [item["item"] for item in listed] == model.recommend("ann", n=3, diversity=0.9).items.tolist()
    assert "diversity must lie in [0, 1]" in one_line(call("recommend", "m", "ann", "--diversity", 2))
    assert "only[0] = 'x' is not among the items" in one_line(call("recommend", "m", "ann", "--only", "x"))
    rows = list(csv.DictReader(right("predict", "m", "pairs.csv").stdout.splitlines()))
    mean, sd = model.predict(["ann", "bob"], ["3", "0"], return_std=True)
    np.testing.assert_allclose([float(row["mean"]) for row in rows], mean, rtol=1e-4)
    np.testing.assert_allclose([float(row["sd"]) for row in rows], sd, rtol=1e-4)
    assert json.loads(right("score", "m", "ratings.csv", "--json").stdout)["rmse"] < 3


def test_likes_are_recommended_in_the_order_of_the_model(workspace):
    rng = np.random.default_rng(0)
    liked = rng.random((80, 30)) < np.linspace(0.05, 0.6, 30)
    model = ng.MatrixFactorization(likelihood="bernoulli", verbose=False).fit(
        ng.data.Ratings(*liked.nonzero(), np.ones(liked.sum()), shape=liked.shape)
    )
    model.save(workspace / "likes")
    found = json.loads(right("recommend", "likes", "3", "-n", 8, "--json").stdout)["items"]
    loaded = ng.load(workspace / "likes")
    assert [item["item"] for item in found] == [str(item) for item in loaded.recommend(3, n=8).items]
    means = [item["mean"] for item in found]
    assert means == sorted(means, reverse=True)


def test_columns_and_encodings_are_named(workspace):
    rows = (workspace / "ratings.csv").read_text().splitlines()[1:]
    swapped = ["noten,wer,für was", *(",".join(row.split(",")[place] for place in (2, 0, 1)) for row in rows)]
    (workspace / "latin.csv").write_bytes("\n".join(swapped).encode("latin-1"))
    options = ("--n-factors", 2, "--max-steps", 5, "--user", "wer", "--item", "für was", "--value", "noten")
    assert "line 1: not a text in UTF-8: byte 11 is 0xfc" in one_line(
        call("fit", "mf", "latin.csv", "-o", "x", *options)
    )
    latin = ("--encoding", "latin-1")
    asked = one_line(call("fit", "mf", "latin.csv", "-o", "x", *latin))
    assert "cannot tell which column is the user or the item or the value among 'noten', 'wer', 'für was'" in asked
    assert "--user, --item and --value on the command line" in asked
    right("fit", "mf", "latin.csv", "-o", "m", *options, *latin)
    right("fit", "mf", "ratings.csv", "-o", "n", "--n-factors", 2, "--max-steps", 5)
    assert ng.load(workspace / "m").elbo_ == ng.load(workspace / "n").elbo_
    scores = [
        json.loads(right("score", "m", *words, "--json").stdout)["score"]
        for words in (("ratings.csv",), ("latin.csv", *options[4:], *latin))
    ]
    assert scores[0] == pytest.approx(scores[1], rel=1e-12)
    named = right("predict", "m", "latin.csv", *options[4:8], *latin).stdout
    assert len(named.splitlines()) == len(swapped)


def test_text_spells_the_numbers_of_a_table(workspace):
    users, items = np.divmod(np.arange(24), 6)
    ng.MatrixFactorization(2, max_steps=5).fit(ng.Ratings(users, items, users + items % 3)).save(workspace / "m")
    (workspace / "r.csv").write_text("viewer,film,stars\n0,1,2\n3,5,4\n")
    right("score", "m", "r.csv")
    assert "'007' is not among the users" in one_line(
        call("score", "m", _written(workspace / "s.csv", "user,item,rating\n007,1,2\n"))
    )


def _written(path, text):
    path.write_text(text)
    return path


def test_an_order_of_classes_is_a_list_with_commas(workspace):
    x = np.linspace(0, 6, 60)
    rows = [f"{v},{('bad', 'fair', 'very good')[int(v // 2.01)]}" for v in x]
    (workspace / "stars.csv").write_text("x,stars\n" + "\n".join(rows))
    fit = ("fit", "gp-classifier", "stars.csv", "-o", "m", "--target", "stars", "--likelihood", "ordinal", "--force")
    for order in ("bad,fair,very good", "bad, fair, very good", '["bad", "fair", "very good"]'):
        right(*fit, "--n-inducing", 5, "--max-steps", 10, "--order", order)
        assert ng.load(workspace / "m").classes_.tolist() == ["bad", "fair", "very good"]
    result = call(*fit, "--order", "bad,fair")
    assert result.exit_code
    assert "very good" in result.output


def test_continue_goes_on_with_the_trace(workspace):
    right("fit", "lda", "letters", "-o", "m", "--n-topics", 2, "--max-passes", 2, "--tol", 0)
    before = ng.load(workspace / "m")
    right("continue", "m", "letters", "-o", "longer")
    after = ng.load(workspace / "longer")
    assert len(after.trace_) > len(before.trace_)
    assert after.trace_["elbo"][len(before.trace_) - 1] == before.trace_["elbo"][-1]
    assert "needs the documents" in one_line(call("continue", "m", "-o", "n"), code=2)
    assert "--force replaces it" in one_line(call("continue", "m", "letters", "-o", "longer"))


def test_update_adds_data_to_ready_models(workspace):
    right("fit", "mf", "ratings.csv", "-o", "m", "--n-factors", 2)
    before = ng.load("m")
    new = f"user,item,rating\nsomebody new,{before.ratings_.item_ids[0]},4\n"
    (workspace / "today.csv").write_text(new)
    right("update", "m", "today.csv", "-o", "n")
    assert len(ng.load("n").ratings_) == len(before.ratings_) + 1
    assert "--force replaces it" in call("update", "m", "today.csv", "-o", "n").output
    assert call("update", "m", "nowhere.csv", "-o", "n", "--force").exit_code == 1
    assert "--forgetting is for networks" in call("update", "m", "today.csv", "-o", "o", "--forgetting", 0.1).output
    right("fit", "lda", "letters/", "-o", "l", "--n-topics", 2)
    right("update", "l", "letters/", "-o", "l2")
    assert ng.load("l2").n_documents_seen_ == 2 * ng.load("l").n_documents_seen_


def test_a_page_is_not_replaced_without_force(workspace):
    right("fit", "lda", "letters/", "-o", "l", "--n-topics", 2)
    right("report", "l", "-o", "l.html")
    refused = call("report", "l", "-o", "l.html")
    assert refused.exit_code == 1
    assert "--force replaces it" in refused.output
    right("report", "l", "-o", "l.html", "--force")


def test_advice_names_options(workspace):
    """In the language of the caller: an option on the command line, a parameter in Python."""
    said = call(
        "fit", "lda", "letters/", "-o", "l", "--n-topics", 2, "--max-passes", 1, "--tol", 1e-12, "--inference", "vb"
    )
    assert said.exit_code == 0
    assert "stopped at --max-passes = 1" in said.output
    assert "raise --max-passes, or --tol if so little does not matter, or use natgrad continue" in said.output
    assert "Warning" not in said.output
    (workspace / "latin.csv").write_bytes("text\ncafé\n".encode("latin-1"))
    assert "--encoding latin-1" in call("fit", "lda", "latin.csv", "-o", "x").output
    (workspace / "two.csv").write_text("id;text\n1;sea\n")
    assert "name one with --column" in call("fit", "lda", "two.csv", "-o", "x").output


REVIEWED = {
    "supervised": ("--target", "price"),
    "author": ("--authors", "author"),
    "dynamic": ("--times", "year"),
    "correlated": (),
}


@pytest.mark.parametrize("kind", REVIEWED)
def test_topics_of_documents_with_columns_besides(workspace, kind):
    options = ("--column", "text", *REVIEWED[kind], "--n-topics", 2, "--seed", 1)
    said = right("fit", kind, "reviews.csv", "-o", "m", *options, "--report", "p.html", "--held-out", 0.2, "--json")
    assert np.isfinite(json.loads(said.stdout)["held_out"])
    assert 'id="topics-data"' in (workspace / "p.html").read_text()
    found = json.loads(right("topics", "m", "-n", 3, "--json").stdout)["topics"]
    assert sorted(sorted(entry["words"])[0] for entry in found) == ["apple", "bolt"]
    shares = list(csv.reader(right("transform", "m", "reviews.csv").stdout.splitlines()))
    assert (len(shares), len(shares[0])) == (41, 3)
    # The columns are remembered.
    assert json.loads(right("score", "m", "reviews.csv", "--json").stdout)["perplexity"] < 7
    right("update", "m", "reviews.csv", "-o", "n")
    assert ng.load(workspace / "n").n_documents_seen_ == 32 + 40
    right("report", "n", "-o", "q.html", "--data", "reviews.csv", "--held-out", "reviews.csv")
    if kind == "supervised":
        guesses = list(csv.DictReader(right("predict", "m", "reviews.csv").stdout.splitlines()))
        assert [round(float(row["mean"])) for row in guesses[:2]] == [2, 9]
    if kind == "author":
        assert "--authors says which column it is" in one_line(
            call("fit", kind, "reviews.csv", "-o", "x", "--column", "text")
        )


def test_ratings_in_time_and_context(workspace):
    words = ("--time", "year", "--context", "device", "--n-factors", 1, "--n-bins", 3, "--max-steps", 2)
    right("fit", "context", "rated.csv", "-o", "m", *words, "--held-out", 0.2, "--report", "p.html")
    assert 'id="drift"' in (workspace / "p.html").read_text()
    assert json.loads(right("score", "m", "rated.csv", "--json").stdout)["rmse"] < 3
    right("predict", "m", "rated.csv", "-o", "said.csv")
    lines = (workspace / "said.csv").read_text().splitlines()
    assert lines[0] == "user,item,year,device,mean,sd"
    known = ng.load("m")
    mean, sd = known.predict(["ann"], ["0"], True, time=2000.0, context="tv")
    assert lines[1] == f"ann,0,2000.0,tv,{mean[0]:.6g},{sd[0]:.6g}"
    best = json.loads(right("recommend", "m", "ann", "--time", 2003, "--context", "tv", "--json").stdout)
    assert "3" in [row["item"] for row in best["items"]]
    told = json.loads(
        right("recommend", "m", "ann", "--time", 2003, "--context", "tv", "--because", 1, "--json").stdout
    )
    assert [len(row["because"]) for row in told["items"]] == [1] * len(best["items"])
    right("continue", "m", "-o", "n")
    assert len(ng.load("n").ratings_) == len(known.ratings_)
    assert "the fit had a time" in one_line(call("recommend", "m", "ann"))
    for way in ("--draw", "--diversity"):
        assert f"without {way}" in one_line(call("recommend", "m", "ann", "--time", 2003, "--context", "tv", way, 1))
    assert "must be a number, or a date" in one_line(call("recommend", "m", "ann", "--time", "soon"))
    assert "--time yeer is not a column" in one_line(call("fit", "context", "rated.csv", "-o", "x", "--time", "yeer"))
    assert "give --time or --context" in one_line(call("fit", "context", "rated.csv", "-o", "x"))
    right("fit", "mf", "ratings.csv", "-o", "f", "--n-factors", 1, "--max-steps", 2)
    assert "natgrad fit context" in one_line(call("recommend", "f", "ann", "--time", 2003))
