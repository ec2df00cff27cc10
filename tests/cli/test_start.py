"""Commands import what they need and no more."""

import subprocess
import sys

import click
import numpy as np

import natgrad as ng
from natgrad.cli.main import COMMANDS, main

HEAVY = ("sklearn", "numba", "jax", "pandas", "matplotlib", "scipy.stats", "scipy.optimize", "scipy.sparse")
RUN = """
import sys
from natgrad.cli.main import main
for arguments in {calls!r}:
    try:
        main(arguments)
    except SystemExit as end:
        assert not end.code, end.code
    print(arguments[0], [name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
"""


def test_the_table_says_what_the_commands_say():
    context = click.Context(main)
    for name, (_, summary) in COMMANDS.items():
        command = main.get_command(context, name)
        assert command.name == name
        assert command.get_short_help_str(1000) == summary
    assert main.get_command(context, "nonsense") is None


def imported(calls):
    """What was imported after each of several commands, in one process."""
    code = RUN.format(calls=[[str(argument) for argument in call] for call in calls], heavy=HEAVY)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return [line for line in ended.stderr.splitlines() if line.endswith("]")]


def test_help_and_answers_import_nothing_heavy(tmp_path):
    words = [["pear", "plum"], ["bolt", "nut"], ["plum", "pear"], ["nut", "nut"]]
    ng.LDA(2, inference="vb", max_passes=3).fit(words).save(tmp_path / "lda")
    ratings = ng.data.Ratings([0, 0, 1], [0, 1, 0], [5.0, 3.0, 4.0])
    ng.MatrixFactorization(1, max_steps=3).fit(ratings).save(tmp_path / "mf")
    ng.GaussianHMM(2, max_passes=3).fit(np.arange(20.0)[:, None]).save(tmp_path / "hmm")
    (tmp_path / "series.csv").write_text("level\n" + "\n".join(map(str, range(20))))
    (tmp_path / "texts.csv").write_text("text\npear plum\nnut bolt nut\n")
    # Documents that are scored are a sparse matrix; nothing else needs one, so this comes last.
    calls = [
        ["--help"],
        ["topics", tmp_path / "lda"],
        ["recommend", tmp_path / "mf", "1"],
        ["decode", tmp_path / "hmm", tmp_path / "series.csv"],
        ["score", tmp_path / "lda", tmp_path / "texts.csv"],
    ]
    assert imported(calls) == [*(f"{call[0]} []" for call in calls[:-1]), "score ['scipy.sparse']"]
