"""The command line: every example of a --help runs, options follow the estimators, mistakes are one helpful line."""

import csv
import inspect
import json
from typing import NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner

import natgrad as ng
from natgrad import demo
from natgrad.cli import main as command
from natgrad.cli.held_out import split_input
from natgrad.cli.inputs import MODELS, Input
from natgrad.cli.options import Value, estimator_options
from natgrad.report.page import LIMIT
from natgrad.reproduce import hmm, paquet

from .conftest import letters


class Called(NamedTuple):
    """How a command ended and what it wrote; ``output`` is all of it."""

    exit_code: int
    stdout: str
    stderr: str
    output: str
    exception: BaseException | None


def call(*arguments):
    # Before version 8.2, click keeps the two streams apart only if it is told so.
    apart = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    result = CliRunner(**apart).invoke(command.main, [str(argument) for argument in arguments])
    return Called(result.exit_code, result.stdout, result.stderr, result.stdout + result.stderr, result.exception)


def right(*arguments):
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    return result


def one_line(result, code=1):
    """The one line of a mistake."""
    assert result.exit_code == code, result.output
    lines = result.output.strip().splitlines()
    assert code == 2 or len(lines) == 1, result.output
    return lines[-1]


def all_commands(group=command.main, path=()):
    """Every command, and the words that lead to it."""
    import click

    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        yield (*path, name), found
        if isinstance(found, click.Group):
            yield from all_commands(found, (*path, name))


# -- help and examples --


def example_of(path):
    lines = right(*path, "--help").output.splitlines()
    return next(line.strip() for line in lines if line.startswith("  natgrad "))


def test_every_command_has_help_and_an_example():
    found = dict(all_commands())
    assert set(found) >= {("fit", "lda"), ("fit", "mf"), ("report",), ("topics",), ("score",), ("demo",), ("bench",)}
    for path, one in found.items():
        assert one.help or one.short_help, path
        if path != ("reproduce",):
            assert example_of(path).split()[1] == path[0]


def test_every_example_runs_as_typed(workspace, monkeypatch):
    """In the order of a user's day; the two that take minutes are run with less to do."""
    monkeypatch.setattr(demo, "main", lambda arguments: 0)
    seen = []

    def stop(*arguments, **_):
        seen.append(arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(paquet, "run_experiment", stop)
    monkeypatch.setattr(hmm, "run_chains", stop)
    paths = sorted((path for path, _ in all_commands() if path != ("reproduce",)), key=lambda path: path[0] != "fit")
    for path in paths:
        words = example_of(path).split()
        if path == ("resume",):  # the folder of a fit that was kept
            right("fit", "lda", "letters/", "-o", "kept.natgrad", "--n-topics", 2, "--checkpoint", "run")
        if path in (("fit",), ("fit", "lda")):
            words += ["--force"]  # both write the same file
        result = call(*words[1:])
        expected = {("reproduce", "paquet"): 130, ("reproduce", "hmm"): 1}.get(path, 0)
        assert result.exit_code == expected, f"{' '.join(words)}: {result.output}"
    assert len(seen) == 2
    for name in ("letters.natgrad", "ratings.natgrad", "letters.html", "shares.csv", "predicted.csv", "longer.natgrad"):
        assert (workspace / name).stat().st_size > 0


# -- options --


@pytest.mark.parametrize("name", list(MODELS))
def test_every_parameter_of_an_estimator_is_an_option(name):
    estimator = MODELS[name].load()
    options = {option.name: option for option in estimator_options(estimator)}
    assert set(options) == set(estimator().get_params())
    for parameter, option in options.items():
        assert option.help, f"{parameter} is not described in the docstring"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("VB", ng.VB()),
        ('SVI({"doc": 16})', ng.SVI({"doc": 16})),
        ("Children(5, option='b')", ng.Children(5, option="b")),
        ("RobbinsMonro(delay=2, forgetting=0.7)", ng.RobbinsMonro(delay=2, forgetting=0.7)),
        ("0.5", 0.5),
        ("[0.1, 0.2]", [0.1, 0.2]),
        ("log", "log"),
    ],
)
def test_values_are_read_as_in_python(text, value):
    assert repr(Value().convert(text, None, None)) == repr(value)


@pytest.mark.parametrize("text", ["__import__('os').system('x')", "print(1)", "VB(nonsense=1)", "Constant(7)"])
def test_nothing_else_is_evaluated(text, workspace):
    result = call("fit", "lda", "letters", "-o", "m", "--method", text)
    assert result.exit_code in (1, 2)
    assert "--method" in result.output or "method must be VB()" in result.output
    assert not (workspace / "m").exists()


def test_config_file_gives_options_and_the_command_line_has_the_last_word(workspace):
    (workspace / "run.toml").write_text('n_topics = 4\nmax-passes = 2\nmethod = "VB()"\n[mf]\nn_factors = 2\n')
    right("fit", "lda", "letters", "-o", "a", "--config", "run.toml", "--seed", 3)
    model = ng.load(workspace / "a")
    assert (model.n_topics, model.max_passes, model.seed, model.method) == (4, 2, 3, ng.VB())
    right("fit", "lda", "letters", "-o", "b", "--config", "run.toml", "--n-topics", 2)
    assert ng.load(workspace / "b").n_topics == 2
    right("fit", "mf", "ratings.csv", "-o", "c", "--config", "run.toml")
    assert ng.load(workspace / "c").n_factors == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [("n_topic = 3", "did you mean 'n_topics'?"), ("n_topics = [", "is not TOML"), (None, "cannot be read")],
)
def test_wrong_config_is_said(text, said, workspace):
    if text is not None:
        (workspace / "run.toml").write_text(text)
    assert said in one_line(call("fit", "lda", "letters", "-o", "a", "--config", "run.toml"), code=2)


# -- the whole way --


def test_from_raw_text_to_topics_and_a_page(workspace):
    told = json.loads(
        right("fit", "lda", "letters", "-o", "m", "--n-topics", 3, "--seed", 1, "--report", "p.html", "--json").stdout
    )
    assert told["model"] == "LDA"
    assert told["data"].startswith("30 documents")
    assert told["stop"]["reason"] in ("tolerance", "steps")
    model = ng.load(workspace / "m")
    assert told["elbo"] == model.elbo_
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
    rows = list(csv.DictReader(right("predict", "m", "pairs.csv").stdout.splitlines()))
    mean, sd = model.predict(["ann", "bob"], ["3", "0"], return_std=True)
    np.testing.assert_allclose([float(row["mean"]) for row in rows], mean, rtol=1e-4)
    np.testing.assert_allclose([float(row["sd"]) for row in rows], sd, rtol=1e-4)
    assert json.loads(right("score", "m", "ratings.csv", "--json").stdout)["rmse"] < 3


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


def test_series_from_file_to_states(workspace):
    right("fit", "hmm", "series.csv", "-o", "m", "--n-states", 2, "--columns", "level", "--report", "p.html")
    model = ng.load(workspace / "m")
    levels = np.array([[float(line.split(",")[0])] for line in (workspace / "series.csv").read_text().split()[1:]])
    rows = list(csv.DictReader(right("decode", "m", "series.csv", "--columns", "level").stdout.splitlines()))
    np.testing.assert_array_equal([int(row["state"]) for row in rows], model.predict(levels))
    assert all(float(row["probability"]) <= 1 for row in rows)
    assert json.loads(right("score", "m", "series.csv", "--columns", "level", "--json").stdout)["score"] == model.score(
        levels
    )
    assert 'id="path-data"' in (workspace / "p.html").read_text()
    (workspace / "two.csv").write_text("who,level\n" + "\n".join(f"{'ab'[n > 2]},{n % 2}" for n in range(6)))
    result = right("fit", "hmm", "two.csv", "-o", "n", "--n-states", 2, "--sequence", "who", "--n-init", 1)
    assert "6 times in 2 sequences, columns level" in result.output


def test_rows_from_file_to_predictions(workspace):
    right("fit", "gp", "rows.csv", "-o", "m", "--columns", "x", "--target", "y", "--n-inducing", 10, "--max-steps", 50)
    model = ng.load(workspace / "m")
    rows = list(csv.DictReader(right("predict", "m", "rows.csv", "--columns", "x").stdout.splitlines()))
    x = np.array([[float(row["x"])] for row in rows])
    mean, sd = model.predict(x, return_std=True)
    np.testing.assert_allclose([float(row["mean"]) for row in rows], mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose([float(row["sd"]) for row in rows], sd, rtol=1e-4, atol=1e-5)
    right("fit", "gp-classifier", "rows.csv", "-o", "c", "--columns", "x,y", "--n-inducing", 10, "--max-steps", 50)
    rows = list(csv.DictReader(right("predict", "c", "rows.csv", "--columns", "x,y").stdout.splitlines()))
    right_ones = np.mean([(row["class"] == "up") == (np.cos(float(row["x"])) > 0) for row in rows])
    assert right_ones > 0.9
    score = json.loads(right("score", "c", "rows.csv", "--columns", "x,y", "--json").stdout)["score"]
    assert score == pytest.approx(ng.load(workspace / "c").score(*_rows_and_kinds(workspace)))
    right("report", "m", "-o", "p.html", "--data", "rows.csv", "--columns", "x", "--target", "y")
    assert "Calibration" in (workspace / "p.html").read_text()


def _rows_and_kinds(folder):
    table = list(csv.DictReader((folder / "rows.csv").read_text().splitlines()))
    return [[float(row["x"]), float(row["y"])] for row in table], [row["kind"] for row in table]


def test_continue_goes_on_with_the_trace(workspace):
    right("fit", "lda", "letters", "-o", "m", "--n-topics", 2, "--max-passes", 2, "--tol", 0)
    before = ng.load(workspace / "m")
    right("continue", "m", "letters", "-o", "longer")
    after = ng.load(workspace / "longer")
    assert len(after.trace_) > len(before.trace_)
    assert after.trace_["elbo"][len(before.trace_) - 1] == before.trace_["elbo"][-1]
    assert "needs the documents" in one_line(call("continue", "m", "-o", "n"), code=2)
    assert "--force replaces it" in one_line(call("continue", "m", "letters", "-o", "longer"))


def test_live_fit_says_where_to_look(workspace):
    result = right("fit", "lda", "letters", "-o", "m", "--n-topics", 2, "--max-passes", 2, "--live")
    assert "http://127.0.0.1:" in result.stderr


# -- mistakes --


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fit", "lda", "nowhere", "-o", "m"), "nowhere: there is no such file or folder (looked for /"),
        (("fit", "mf", "nowhere.csv", "-o", "m"), "there is no such file of ratings"),
        (("fit", "lda", "ratings.csv", "-o", "m"), "which column has the texts? It has 'user', 'item', 'rating'"),
        (
            ("fit", "lda", "ratings.csv", "-o", "m", "--column", "itm"),
            "no column 'itm'; it has 'user', 'item', 'rating'; did",
        ),
        (("fit", "lda", "letters", "-o", "no/m"), "there is no folder no"),
        (("fit", "lda", "letters", "-o", "ratings.csv"), "--force replaces it"),
        (
            ("fit", "lda", "letters", "-o", "m", "--pattern", "*.md"),
            "there are no files '*.md' in this folder; it has 00.txt",
        ),
        (("fit", "lda", "letters", "-o", "m", "--min-documents", "31"), "no words are left of 30 documents"),
        (("fit", "lda", "letters", "-o", "m", "--topic-prior", "-1"), "topic_prior (β) must be > 0, got -1.0"),
        (("topics", "nowhere"), "there is no such model"),
        (("fit", "gp", "nowhere.csv", "-o", "m"), "nowhere.csv: there is no such file"),
        (("fit", "hmm", "letters", "-o", "m"), "expected a file ending in .csv"),
        (("fit", "gp", "rows.csv", "-o", "m", "--target", "z"), "there is no column 'z'; it has 'x', 'y', 'kind'"),
        (("fit", "gp", "rows.csv", "-o", "m", "--target", "y"), "column 'kind' holds 'up', which is no number"),
        (("topics", "ratings.csv"), "ratings.csv"),
        (("report", "nowhere", "-o", "p.html"), "there is no such model"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_one(arguments, said, workspace):
    assert said in one_line(call(*arguments))
    assert not (workspace / "m").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fit", "lda", "letters"), "Missing option '-o'"),
        (("fit", "lda", "letters", "-o", "m", "--n-topics", "many"), "'many' is not a valid integer"),
        (("fit", "lda", "letters", "-o", "m", "--local", "x"), "'x' is not one of 'vb', 'map'"),
        (("fit", "nonsense", "letters"), "No such command 'nonsense'"),
        (("topics",), "Missing argument 'MODEL'"),
    ],
)
def test_calls_that_are_not_understood_have_exit_code_two(arguments, said, workspace):
    assert said in one_line(call(*arguments), code=2)


def test_model_of_another_kind_is_said(workspace):
    right("fit", "mf", "ratings.csv", "-o", "m", "--max-steps", 2)
    assert one_line(call("topics", "m")) == "Error: topics is for LDA models, and this is MatrixFactorization"
    assert "there is no user 'zoe'" in one_line(call("recommend", "m", "zoe"))
    (workspace / "bad.csv").write_text("user,what\nann,1\n")
    assert "cannot tell which column is the item among 'user', 'what'" in one_line(call("predict", "m", "bad.csv"))


def test_traceback_is_there_for_those_who_want_it(workspace, monkeypatch):
    monkeypatch.setenv("NATGRAD_TRACEBACK", "1")
    assert isinstance(call("topics", "nowhere").exception, FileNotFoundError)


@pytest.mark.parametrize(
    ("words", "held"),
    [
        (("lda", "letters", "--n-topics", 3, "--max-passes", 5), "3 documents held out"),
        (("mf", "ratings.csv", "--n-factors", 2, "--max-steps", 5), "held out"),
        (("hmm", "series.csv", "--columns", "level", "--n-states", 2, "--max-sweeps", 3), "held out"),
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
    assert "--held-out needs at least 2 documents, and there is 1" in one_line(result)
    assert call("fit", "lda", "letters", "-o", "o", "--held-out", 1.5).exit_code == 2


def test_bench_measures_what_is_installed():
    told = json.loads(right("bench", "gp", "--scale", 0.01, "--json").stdout)
    assert {speed["library"] for speed in told["speeds"]} == {"natgrad", "scikit-learn, exact"}
    assert all(speed["seconds"] > 0 for speed in told["speeds"])


def test_shell_completion_is_offered(monkeypatch):
    from click.shell_completion import BashComplete

    words = BashComplete(command.main, {}, "natgrad", "_NATGRAD_COMPLETE").get_completions(["fit"], "")
    assert {word.value for word in words} == set(MODELS)
