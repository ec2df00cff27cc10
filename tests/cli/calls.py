"""A command in, how it ended and what it wrote out."""

import inspect
from typing import NamedTuple

from click.testing import CliRunner

from natgrad.cli import main as command


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
