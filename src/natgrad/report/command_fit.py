"""`natgrad fit MODEL FILE -o OUT` and `natgrad resume`: data in, a model file out.

Every parameter of the estimator is an option, made when its command is asked for, so that `natgrad --help` stays quick. A
folder of checkpoints also has the call that made it, so that `natgrad resume FOLDER` is all it takes to go on.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click

from natgrad.inference.callbacks import HeldOut
from natgrad.report.command_common import Command, UserError, WithExample, emit, json_option, load_model, output_option
from natgrad.report.command_held_out import held_out_option, split_input
from natgrad.report.command_inputs import MODELS, Input, Model, model_of, reading_options
from natgrad.report.command_options import config_option, estimator_options, given_parameters
from natgrad.report.live import live_page
from natgrad.report.numbers import seconds, short
from natgrad.report.page import make_page, write_report
from natgrad.report.sections import Subject

__all__ = ["fit", "resume"]

CALL = "call.json"


class FitGroup(WithExample, click.Group):
    """The models that can be fitted, each a command that is made when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the models."""
        return list(MODELS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of one model."""
        model = MODELS.get(cmd_name)
        return None if model is None else _fit_command(cmd_name, model)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The models with their summaries; no estimator is imported for it."""
        with formatter.section("Models"):
            formatter.write_dl([(name, model.summary) for name, model in MODELS.items()])


@click.command(cls=FitGroup, example="natgrad fit lda letters/ -o letters.natgrad --n-topics 3")
def fit() -> None:
    """Fit a model to a file; see natgrad fit MODEL --help for the options of each."""


def _fit_command(name: str, model: Model) -> click.Command:
    estimator = model.load()
    params: list[click.Parameter] = [
        click.Argument(["file"], type=click.Path(path_type=Path)),
        click.Option(["-o", "--output"], type=click.Path(path_type=Path, dir_okay=False), required=True, help="The model file."),
        click.Option(["--force"], is_flag=True, help="Replace the output if it is there."),
        click.Option(["--report"], type=click.Path(path_type=Path, dir_okay=False), help="Also write the page of the model."),
        click.Option(["--live"], is_flag=True, help="Serve the page on this machine while the fit runs."),
        click.Option(["--checkpoint"], type=click.Path(path_type=Path, file_okay=False), help="Keep the run in this folder."),
        click.Option(["--every"], default="60s", show_default=True, help="Time (60s, 5min) or steps (100) between checkpoints."),
        click.Option(["--resume"], is_flag=True, help="Go on from the last checkpoint, if there is one."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object, for machines."),
        config_option(),
        held_out_option(),
        *model.options(),
        *estimator_options(estimator),
    ]  # fmt: skip

    def call(
        file: Path,
        output: Path,
        force: bool,
        report: Path | None,
        live: bool,
        checkpoint: Path | None,
        every: str,
        resume: bool,
        as_json: bool,
        held_out: float | None,
        **values: Any,
    ) -> None:
        _check_output(output, force)
        fitted = estimator(**given_parameters(estimator, values))
        source, held = model.read(file, values, None), None
        if held_out is not None:
            source, held = split_input(source, held_out, int(fitted.seed))
        callbacks = [] if held is None else [HeldOut(*held)]
        begin = time.perf_counter()
        with live_page(fitted) if live else nullcontext() as page:
            if page is not None:
                click.echo(f"the fit can be watched at {page.address}", err=True)
            with _kept(name, checkpoint):
                keep: dict[str, Any] = {"resume": resume}
                if checkpoint is not None:
                    keep |= {"checkpoint": checkpoint, "every": int(every) if every.isdigit() else every}
                fitted.fit(*source.arguments, callbacks=callbacks, **keep)
            fitted.save(output, overwrite=force)
            if page is not None:
                page.finish(make_page(Subject(fitted, source.raw, source.names)))
        if report is not None:
            shown = None if held is None else held[0] if len(held) == 1 else held
            write_report(fitted, report, data=source.raw, names=source.names, held_out=shown)
        score = None if held is None else float(fitted.score(*held))
        _told(fitted, source.words, output, report, time.perf_counter() - begin, as_json, score)

    return FitCommand(name, params=params, callback=call, help=model.summary, example=model.example)


class FitCommand(Command):
    """A command that remembers the words it was called with."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options and arguments from words."""
        ctx.meta[CALL] = list(args)
        return super().parse_args(ctx, args)


@contextmanager
def _kept(name: str, folder: Path | None) -> Iterator[None]:
    """Keep the call beside its checkpoints, and say how to go on if the fit is interrupted."""
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    beside, words = folder / f".{CALL}.tmp", click.get_current_context().meta[CALL]
    beside.write_text(json.dumps({"model": name, "words": words, "folder": os.getcwd()}), encoding="utf-8")
    beside.replace(folder / CALL)
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stopped:
        raise UserError(str(stopped).replace("resume=True", f"natgrad resume {folder}") or "interrupted") from None


def _go_on(folder: Path) -> None:
    """The call again that was kept in a folder, from its last checkpoint on."""
    try:
        kept = json.loads((folder / CALL).read_text(encoding="utf-8"))
        name, words, where = str(kept["model"]), [str(word) for word in kept["words"]], str(kept["folder"])
        command = _fit_command(name, MODELS[name])
    except FileNotFoundError:
        raise UserError(
            f"{folder} has no {CALL}: natgrad fit MODEL FILE -o OUT --checkpoint {folder} makes one"
        ) from None
    except (LookupError, TypeError, ValueError):
        raise UserError(f"{folder / CALL} cannot be read; call natgrad fit again with --resume") from None
    with chdir(where):
        command.main([*words, "--resume"], prog_name=f"natgrad fit {name}", standalone_mode=False)


@click.command(cls=Command, example="natgrad resume letters.natgrad letters/ -o longer.natgrad")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("file", type=click.Path(path_type=Path), required=False)
@output_option("The new model file; by default the old one is replaced.")
@reading_options
@json_option
def resume(model: Path, file: Path | None, output: Path | None, as_json: bool, **options: Any) -> None:
    """Go on with a fit from where it ended, for as many steps as it has in its settings.

    FILE is what the model was fitted to. Matrix factorisation keeps its ratings and needs none. MODEL may also be a folder of
    checkpoints (natgrad fit --checkpoint): then the fit that was interrupted goes on as if nothing had happened.
    """
    if model.is_dir():
        _go_on(model)
        return
    fitted = load_model(model)
    source: Input | None = None
    if not hasattr(fitted, "continue_"):
        raise UserError(f"{type(fitted).__name__} cannot go on with a fit yet")
    name = type(fitted).__name__
    if name != "MatrixFactorization":
        if file is None:
            what = "documents" if name == "LDA" else "rows"
            raise click.UsageError(
                f"resume of {name} needs the {what} that it was fitted to: natgrad resume MODEL FILE"
            )
        source = model_of(fitted).read(file, options, fitted)
    begin = time.perf_counter()
    fitted.continue_(*(() if source is None else source.arguments))
    where = output or model
    fitted.save(where, overwrite=output is None)
    _told(fitted, "" if source is None else source.words, where, None, time.perf_counter() - begin, as_json)


def _check_output(output: Path, force: bool) -> None:
    """What would fail after the fit is said before it."""
    if not output.absolute().parent.is_dir():
        raise FileNotFoundError(f"-o {output}: there is no folder {output.parent}; make it first")
    if output.exists() and not force:
        raise FileExistsError(f"-o {output}: is there already; --force replaces it")


def _told(
    fitted: Any,
    words: str,
    output: Path,
    report: Path | None,
    took: float,
    as_json: bool,
    held_out: float | None = None,
) -> None:
    stop = fitted.stop_
    found = {
        "model": type(fitted).__name__,
        "data": words,
        "elbo": fitted.elbo_,
        "steps": len(fitted.trace_),
        "seconds": took,
        "held_out": held_out,
        "stop": {"reason": stop.reason.name.lower(), "converged": stop.converged, "words": str(stop)},
        "choice": fitted.trace_.choice,
        "output": str(output),
        "report": None if report is None else str(report),
    }
    shown = [words] if words else []
    shown += [
        f"bound {short(fitted.elbo_, 7)} after {len(fitted.trace_)} steps, {seconds(took)}: {stop}",
        *([] if held_out is None else [f"held-out score {short(held_out, 6)}"]),
        f"model: {output}" + ("" if report is None else f"   page: {report}"),
    ]
    emit(found, shown, as_json)
