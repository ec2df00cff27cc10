"""Commands import what they need and no more."""

import subprocess
import sys

import click

import natgrad as ng
from natgrad.cli.main import COMMANDS, main

HEAVY = ("sklearn", "numba", "jax", "pandas", "matplotlib", "scipy.stats", "scipy.optimize", "scipy.sparse")


def test_the_table_says_what_the_commands_say():
    context = click.Context(main)
    for name, (_, summary) in COMMANDS.items():
        command = main.get_command(context, name)
        assert command.name == name
        assert command.get_short_help_str(1000) == summary
    assert main.get_command(context, "nonsense") is None


def imported(*lines):
    """The heavy packages that a process has after these lines of Python."""
    shown = f"import sys; print('imported', [name for name in {HEAVY!r} if name in sys.modules])"
    code = "\n".join([*lines, shown])
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return ended.stdout.splitlines()[-1]


def test_help_and_files_of_networks_import_nothing_heavy(tmp_path):
    assert imported("from natgrad.cli.main import main", "main(['--help'], standalone_mode=False)") == "imported []"
    coin = ng.Beta("coin", 1.0, 1.0)
    heads = ng.Binomial("heads", 10, coin, plate=ng.Plate("round", 3), observed=[2, 5, 9])
    ng.Network(heads).fit(verbose=False).save(tmp_path / "fit")
    assert imported("import natgrad as ng", f"ng.load({str(tmp_path / 'fit')!r})['coin'].mean()") == "imported []"
