"""What a terminal, a pipe and those who type commands are shown."""

import csv
import io
import json
import sys

import click
import pytest
from cli.calls import call, right

import natgrad as ng
from natgrad.cli.common import in_options, printable, write_rows
from natgrad.cli.fit import fit

EVIL = "\x1b]0;owned\x07\x9b31m\u202ereversed"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ('fit likelihood="bernoulli"', "fit --likelihood bernoulli"),
        ("inference='vb' (and local='vb')", "--inference vb (and local='vb')"),
        ("raise max_passes= or tol=", "raise --max-passes or --tol"),
        ("leave executor= out, or max_passes=300.", "leave --executor out, or --max-passes=300."),
        ("tol=1e-3, verbose=False", "--tol=1e-3, --no-verbose"),
        ("verbose=True", "--verbose"),
        ('method=SVI({"doc": 2})', '--method=SVI({"doc": 2})'),
    ],
)
def test_parameters_become_options_with_their_values(words, expected):
    names = ("--likelihood", "--inference", "--max-passes", "--tol", "--executor", "--method")
    options = [*(click.Option([name]) for name in names), click.Option(["--verbose/--no-verbose"])]
    assert in_options(words, click.Context(click.Command("fit", params=options))) == expected


def test_no_option_of_a_model_is_glued_to_its_value():
    """Of every model, whatever its parameters: NAME="x" is an option and a word."""
    for name in fit.list_commands(None):
        context = click.Context(fit.get_command(None, name))
        for option in context.command.params:
            if isinstance(option, click.Option) and option.name != "help":
                said = in_options(f'try {option.name}="x", {option.name}=3 or {option.name}= more', context)
                flag = option.opts[0]
                if flag.startswith("--"):
                    assert said == f"try {flag} x, {flag}=3 or {flag} more"


def test_words_of_a_model_do_not_command_the_terminal(workspace):
    counts = [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]] * 5
    model = ng.LDA(2, inference="vb", max_passes=2, tol=0, verbose=False)
    model.fit(counts, vocabulary=[EVIL, "pear", "plum", "bolt"]).save(workspace / "m")
    for words in (("topics", "m"), ("topics", "m", "--json"), ("fit", "nothing", EVIL), ("topics", EVIL)):
        said = call(*words).output
        assert not set(said) & set("\x1b\x07\x9b\u202e")
    shown = json.loads(right("topics", "m", "--json").stdout)["topics"]
    assert EVIL in shown[0]["words"] + shown[1]["words"]  # what machines read is what it was


def test_rows_are_escaped_on_a_terminal_and_nowhere_else(monkeypatch, tmp_path):
    class Terminal(io.StringIO):
        def __init__(self, is_terminal):
            super().__init__()
            self.is_terminal = is_terminal

        def isatty(self):
            return self.is_terminal

    for is_terminal in (True, False):
        screen = Terminal(is_terminal)
        monkeypatch.setattr(sys, "stdout", screen)
        write_rows(None, ["word"], [[EVIL]])
        assert screen.getvalue() == f"word\n{printable(EVIL) if is_terminal else EVIL}\n"
    write_rows(tmp_path / "x.csv", ["word"], [[EVIL]])
    with (tmp_path / "x.csv").open(newline="") as file:
        assert list(csv.reader(file))[1] == [EVIL]
