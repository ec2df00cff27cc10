"""What every command shares: mistakes said in one line, models loaded by path, results for people or as JSON.

Exit codes: 0 for success, 1 for a mistake in the data, files or settings, 2 for a call that the command does not understand,
130 if it was interrupted.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

import click
from rich.console import Console
from rich.table import Table

import natgrad as ng
from natgrad.errors import NotConverged
from natgrad.models.registry import COMMANDS, MODELS, NETWORK_MODELS, model_class

__all__ = [
    "FILE",
    "INTERRUPTED",
    "MODEL",
    "Command",
    "UserError",
    "WithExample",
    "check_output",
    "emit",
    "in_options",
    "json_option",
    "load_model",
    "make_table",
    "output_option",
    "printable",
    "require_model",
    "with_declaration",
    "with_digits",
    "write_rows",
]

# What the library raises when something from outside does not fit; anything else is a bug and shows its traceback.
MISTAKES = (ValueError, TypeError, KeyError, OSError, ImportError, NotImplementedError, FloatingPointError, MemoryError)
TRACEBACK = "NATGRAD_TRACEBACK"
INTERRUPTED = 128 + signal.SIGINT  # what shells expect
MODEL = click.argument("model", type=click.Path(path_type=Path))
FILE = click.argument("file", type=click.Path(path_type=Path))
# What a terminal would carry out or show in another order: control characters but tab and new line, and directions of text.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class UserError(click.ClickException):
    """A mistake that is said in one line."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(printable(message))
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
                warnings.showwarning = lambda words, *_: click.echo(
                    printable(f"Warning: {in_options(str(words), ctx)}"), err=True
                )
                return super().invoke(ctx)
        except KeyboardInterrupt:
            raise UserError("interrupted, and nothing was written", INTERRUPTED) from None
        except BrokenPipeError:  # such as head, which has read enough: click ends the program without a word
            raise
        except MISTAKES as error:
            if os.environ.get(TRACEBACK):
                raise
            words = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
            raise UserError(in_options(words, ctx) or type(error).__name__) from None


def in_options(words: str, ctx: click.Context) -> str:
    """Rewrite a message for those who type commands: parameters become options, with their values."""
    words = words.replace("or call continue_fit()", "or use natgrad continue")
    for option in ctx.command.params:
        if isinstance(option, click.Option) and option.name and option.opts[0].startswith("--"):
            flag, name = option.opts[0], rf"(?<![\w.-]){option.name}"
            if option.secondary_opts:
                words = re.sub(rf"{name}=True\b", flag, words)
                words = re.sub(rf"{name}=False\b", option.secondary_opts[0], words)
            words = re.sub(rf"""{name}=(["'])([\w.-]+)\1""", rf"{flag} \2", words)
            words = re.sub(rf"{name}=(?=[^\s,;:.!?)])", f"{flag}=", words)
            words = re.sub(rf"{name}=", flag, words)
            # Names of one word are words of English as well, but for the first of a message.
            place = rf"{name}(?![\w(])" if "_" in option.name else rf"\A{option.name}(?= must | = )"
            words = re.sub(place, flag, words)
    return words


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--json``: one JSON object on standard output and nothing else."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for machines.")(function)


def output_option(words: str, **settings: Any) -> Callable[..., Any]:
    """``-o``: where a file goes."""
    return click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help=words, **settings)


def check_output(output: Path, force: bool) -> None:
    """Refuse before the work what would fail after it."""
    if not output.absolute().parent.is_dir():
        raise FileNotFoundError(f"-o {output}: there is no folder {output.parent}; make it first")
    if output.exists() and not force:
        raise FileExistsError(f"-o {output}: is there already; --force replaces it")


def printable(text: str) -> str:
    """Escape what a terminal would carry out: words of a model may come from anybody."""
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def emit(answer: dict[str, Any], shown: Any, as_json: bool) -> None:
    """Print the result: as JSON, or what people are shown (lines of text, or a table)."""
    if as_json:
        click.echo(printable(json.dumps(answer, ensure_ascii=False, default=_plain)))
        return
    console = Console(highlight=False, markup=False)
    for part in shown if isinstance(shown, list) else [shown]:
        text = isinstance(part, str)
        console.print(printable(part) if text else part, soft_wrap=text)


def write_rows(path: Path | None, head: Sequence[Any], rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file, or print it; on a terminal escaped."""
    if path is not None:
        check_output(path, force=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            _write_csv(file, head, rows)
    elif sys.stdout.isatty():
        text = io.StringIO()
        _write_csv(text, head, rows)
        sys.stdout.write(printable(text.getvalue()))
    else:
        _write_csv(sys.stdout, head, rows)
    sys.stdout.flush()  # a reader that has gone is noticed here, and not when Python ends


def _write_csv(file: TextIO, head: Sequence[Any], rows: Iterable[Iterable[Any]]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)


def make_table(head: list[str], rows: list[list[str]], numeric: tuple[int, ...] = ()) -> Table:
    """A table for the terminal."""
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for place, name in enumerate(head):
        table.add_column(name, justify="right" if place in numeric else "left")
    for row in rows:
        table.add_row(*map(printable, row))
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


def with_declaration(fitted: Any, what: str) -> Any:
    """The fit of a network whose file has the declaration."""
    if fitted.binding is None:
        raise UserError(
            f"{what}: this network was declared with arrays, and its file has no declaration; declare it with ng.Column"
        )
    return fitted


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
