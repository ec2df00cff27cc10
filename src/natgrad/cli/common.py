"""What every command shares: mistakes said in one line, models loaded by path, results for people or as JSON.

Exit codes: 0 for success, 1 for a mistake in the data, files or settings, 2 for a call that the command does not understand,
130 if it was interrupted.
"""

from __future__ import annotations

import json
import math
import os
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import natgrad as ng
from natgrad.cli.interrupt import INTERRUPTED
from natgrad.errors import NotConverged
from natgrad.models.registry import COMMANDS, MODELS, NETWORK_MODELS, model_class

__all__ = [
    "Command",
    "UserError",
    "WithExample",
    "emit",
    "in_options",
    "json_option",
    "load_model",
    "make_table",
    "output_option",
    "require_model",
    "with_digits",
]

# What the library raises when something from outside does not fit; anything else is a bug and shows its traceback.
MISTAKES = (ValueError, TypeError, KeyError, OSError, ImportError, NotImplementedError, FloatingPointError, MemoryError)
TRACEBACK = "NATGRAD_TRACEBACK"


class UserError(click.ClickException):
    """A mistake that is said in one line."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # of every error of click, for the whole class


class WithExample(click.Command):
    """A command whose help ends with an example."""

    def __init__(self, *args: Any, example: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.example = example

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The example, as one types it."""
        with formatter.section("Example"):
            formatter.write(f"  {self.example}\n")


class Command(WithExample):
    """A command that turns the library's errors into one line; NATGRAD_TRACEBACK=1 shows where they come from."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; warnings are one line, too."""
        try:
            with warnings.catch_warnings():
                # How a fit ended is said with its result.
                warnings.filterwarnings("ignore", "the fit has not converged", NotConverged)
                warnings.showwarning = lambda words, *_: click.echo(f"Warning: {in_options(str(words), ctx)}", err=True)
                return super().invoke(ctx)
        except KeyboardInterrupt:
            raise UserError("interrupted, and nothing was written", INTERRUPTED) from None
        except MISTAKES as error:
            if os.environ.get(TRACEBACK):
                raise
            words = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
            raise UserError(in_options(words, ctx) or type(error).__name__) from None


def in_options(words: str, ctx: click.Context) -> str:
    """What the library says to those who write Python, for those who type commands: parameters are options."""
    words = words.replace("or call continue_fit()", "or use natgrad continue")
    for option in ctx.command.params:
        if isinstance(option, click.Option) and option.name and option.opts[0].startswith("--"):
            flag = option.opts[0]
            words = re.sub(rf"(?<![\w.-]){option.name}='([\w.-]+)'", rf"{flag} \1", words)
            words = re.sub(rf"(?<![\w.-]){option.name}=(?!\w)", flag, words)
            # Names of one word are words of English as well, but for the first of a message.
            place = rf"(?<![\w.-]){option.name}(?![\w(])" if "_" in option.name else rf"\A{option.name}(?= must | = )"
            words = re.sub(place, flag, words)
    return words


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--json``: one JSON object on standard output and nothing else."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for machines.")(function)


def output_option(words: str) -> Callable[..., Any]:
    """``-o``: where a file goes."""
    return click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help=words)


def emit(answer: dict[str, Any], shown: Any, as_json: bool) -> None:
    """Print the result: as JSON, or what people are shown (lines of text, or a table)."""
    if as_json:
        click.echo(json.dumps(answer, ensure_ascii=False, default=_plain))
        return
    console = Console(highlight=False, markup=False)
    for part in shown if isinstance(shown, list) else [shown]:
        console.print(part, soft_wrap=isinstance(part, str))


def make_table(head: list[str], rows: list[list[str]], numeric: tuple[int, ...] = ()) -> Table:
    """A table for the terminal."""
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for place, name in enumerate(head):
        table.add_column(name, justify="right" if place in numeric else "left")
    for row in rows:
        table.add_row(*row)
    return table


def with_digits(value: float, sd: float) -> str:
    """A number with six digits, and as many more as its standard deviation needs: 1000000003.21 ± 0.5, not 1e+09."""
    if not math.isfinite(value) or not math.isfinite(sd) or value == 0.0:
        return f"{value:.6g}"
    wanted = 5 + math.ceil(math.log10(abs(value) / sd)) if sd > 0.0 else 15
    return f"{value:.{min(max(wanted, 6), 17)}g}"


def load_model(path: Path) -> Any:
    """A model that `fit` wrote."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such model (looked for {path.absolute()}); natgrad fit makes one")
    model = ng.load(path)
    if not hasattr(model, "abilities"):
        raise UserError(
            f"{path} holds {type(model).__name__}, for which there is no command; natgrad.load reads it in Python"
        )
    return model


def require_model(model: Any, what: str) -> None:
    """Refuse a model that cannot do what was asked, and say what it can do, and which models can do it."""
    if what in model.abilities:
        return
    able = [name for name in {**MODELS, **NETWORK_MODELS} if what in model_class(name).abilities]
    others = [f"natgrad {name}" for name in COMMANDS if name in model.abilities]
    hint = f"; it has {_listed(others)}" if others else ""
    raise UserError(f"{what} is for {_listed(able)} models, and this is {type(model).__name__}{hint}")


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
