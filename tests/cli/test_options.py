"""The command line: every example of a --help runs, options follow the estimators and the files that give them."""

import shlex

import pandas
import pytest
from cli.calls import all_commands, call, one_line, right
from loops import compiled_loops  # noqa: F401 - for all tests here

import natgrad as ng
from natgrad.cli.inputs import MODELS
from natgrad.cli.options import Value, estimator_options
from natgrad.reproduce import hmm, paquet, pitfall


def example_of(path):
    lines = right(*path, "--help").output.splitlines()
    return next(line.strip() for line in lines if line.startswith("  natgrad "))


def test_every_command_has_help_and_an_example():
    found = dict(all_commands())
    assert set(found) >= {("fit", "lda"), ("fit", "mf"), ("report",), ("topics",), ("score",), ("demo",)}
    for path, one in found.items():
        assert one.help or one.short_help, path
        if path != ("reproduce",):
            assert example_of(path).split()[1] == path[0]


def sales_of_two_days(folder):
    """What the example of ``natgrad update`` takes: a saved fit, and new rows."""
    shop = ng.Normal("shop", 0.0, 1.0, plate=ng.Plate("shop"))
    y = ng.Normal("y", shop[ng.Column("shop")], 1.0, plate=ng.Plate("row"), observed=ng.Column("sold"))
    table = pandas.DataFrame({"shop": ["a", "b", "a"], "sold": [1.0, 2.0, 1.5]})
    ng.Network(y).fit(table, verbose=False).save(folder / "sales.natgrad")
    table.to_parquet(folder / "today.parquet")


def test_every_example_runs_as_typed(workspace, monkeypatch):
    """In the order of a user's day; the two that take minutes are run with less to do."""
    monkeypatch.setattr(pitfall, "show_demo", lambda plot, page: 0)
    seen = []

    def stop(*arguments, **_):
        seen.append(arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(paquet, "run_experiment", stop)
    monkeypatch.setattr(hmm, "run_chains", stop)
    paths = sorted((path for path, _ in all_commands() if path != ("reproduce",)), key=lambda path: path[0] != "fit")
    for path in paths:
        words = shlex.split(example_of(path))
        if path == ("resume",):  # the folder of a fit that was kept
            right("fit", "lda", "letters/", "-o", "kept.natgrad", "--n-topics", 2, "--checkpoint", "run")
        if path == ("compare",):  # two models of the same texts
            for number, name in ((3, "three"), (2, "auto")):
                right("fit", "lda", "letters/", "-o", f"{name}.natgrad", "--n-topics", number)
        if path == ("update",):  # a network that was fitted to a table, and the table of another day
            sales_of_two_days(workspace)
        if path in (("fit",), ("fit", "lda")):
            words += ["--force"]  # both write the same file
        result = call(*words[1:])
        expected = 130 if path[0] == "reproduce" else 0
        assert result.exit_code == expected, f"{' '.join(words)}: {result.output}"
    assert len(seen) == 2
    for name in ("letters.natgrad", "ratings.natgrad", "letters.html", "shares.csv", "predicted.csv", "longer.natgrad"):
        assert (workspace / name).stat().st_size > 0


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


@pytest.mark.parametrize(
    ("text", "value"),
    [("low,high", ["low", "high"]), ("very low, high", ["very low", "high"]), ("1,2,3", (1, 2, 3)), ("low", "low")],
)
def test_words_with_commas_are_a_list_where_one_is_asked_for(text, value):
    assert Value(listed=True).convert(text, None, None) == value
    assert Value().convert("low,high", None, None) == "low,high"


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
