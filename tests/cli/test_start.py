"""Commands import what they need and no more."""

import click

from natgrad.cli.main import COMMANDS, main


def test_the_table_says_what_the_commands_say():
    context = click.Context(main)
    for name, (_, summary) in COMMANDS.items():
        command = main.get_command(context, name)
        assert command.name == name
        assert command.get_short_help_str(1000) == summary
    assert main.get_command(context, "nonsense") is None
