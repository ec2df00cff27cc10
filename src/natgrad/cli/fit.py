"""Fit a model to a file, go on with a fit, or add data to it: `natgrad fit`, `natgrad continue`, `natgrad update`.

Every parameter of an estimator is an option, made when its command is asked for, so that `natgrad --help` stays quick.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import click

from natgrad.cli.common import (
    FILE,
    INTERRUPTED,
    MODEL,
    Command,
    UserError,
    WithExample,
    check_output,
    emit,
    in_options,
    json_option,
    load_model,
    output_option,
    with_declaration,
)
from natgrad.cli.inputs import MODELS, Model, model_of, options_of, reading_options, split_input
from natgrad.cli.options import config_option, estimator_options, given_parameters
from natgrad.inference.callbacks import HeldOut
from natgrad.inference.trace import Reason, Stop
from natgrad.report.format import seconds, short

__all__ = ["continue_", "fit", "update"]


class FitGroup(WithExample, click.Group):
    """The models that can be fitted, each a command that is made when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the models."""
        return list(MODELS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of one model."""
        model = MODELS.get(cmd_name)
        return None if model is None else fit_command(cmd_name, model)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The models with their summaries; no estimator is imported for it."""
        with formatter.section("Models"):
            formatter.write_dl([(name, model.summary) for name, model in MODELS.items()])


@click.command(cls=FitGroup, example="natgrad fit lda letters/ -o letters.natgrad --n-topics 3")
def fit() -> None:
    """Fit a model to a file; see natgrad fit MODEL --help for the options of each."""


def fit_command(name: str, model: Model) -> click.Command:
    """``natgrad fit NAME``, with an option for every parameter of the estimator."""
    estimator = model.load()

    def call(
        file: Path,
        output: Path,
        force: bool,
        report: Path | None,
        checkpoint: Path | None,
        every: str,
        resume: bool,
        as_json: bool,
        held_out: float | None,
        **values: Any,
    ) -> None:
        check_output(output, force)
        options = dict(values)  # some are both a setting and a column of the file
        fitted = estimator(**given_parameters(estimator, values))
        source, held = model.read(file, options, None), None
        columns = source.columns or None
        if held_out is not None:
            source, held = split_input(source, held_out, int(fitted.seed))
        callbacks: list[Any] = [] if held is None else [HeldOut(*held)]
        begin = time.perf_counter()
        # With a folder of checkpoints the run itself notices signals, and writes its state.
        noticing = noticing_interrupts() if checkpoint is None else nullcontext(Interruption())
        with noticing as interruption, _how_to_resume():
            keep: dict[str, Any] = {"resume": resume, "callbacks": [*callbacks, interruption]}
            if checkpoint is not None:
                keep |= {"checkpoint": checkpoint, "every": int(every) if every.isdigit() else every}
            fitted.fit(*source.arguments, **source.named, **keep)
        fitted.columns_ = columns
        fitted.save(output, overwrite=force)
        if report is not None:
            shown = None if held is None else held[0] if len(held) == 1 else held
            fitted.report(report, data=source.raw, names=source.names, held_out=shown)
        score = None if held is None else float(fitted.score(*held))
        _show(fitted, source.words, output, report, time.perf_counter() - begin, as_json, score)
        if interruption.signal is not None:
            needed = "" if fitted.kind == "ratings" else f" {file}"  # which keep their ratings
            click.echo(
                f"interrupted: {output} is the model so far; natgrad continue {output}{needed} -o NEW goes on", err=True
            )
            raise SystemExit(128 + interruption.signal)

    return Command(name, params=_parameters(model, estimator), callback=call, help=model.summary, example=model.example)


def _parameters(model: Model, estimator: Any) -> list[click.Parameter]:
    """What the command takes: a file, where the result goes, how the run is kept, and the settings of the model."""
    part, page = click.FloatRange(0, 1, min_open=True, max_open=True), click.Path(path_type=Path, dir_okay=False)
    return [
        click.Argument(["file"], type=click.Path(path_type=Path)),
        click.Option(["-o", "--output"], type=page, required=True, help="The model file."),
        click.Option(["--force"], is_flag=True, help="Replace the output if it is there."),
        click.Option(["--report"], type=page, help="Also write the page of the model."),
        click.Option(["--checkpoint"], type=click.Path(path_type=Path, file_okay=False), help="Keep the run in this folder."),
        click.Option(["--every"], default="60s", show_default=True, help="Time (60s, 5min) or steps (100) between checkpoints."),
        click.Option(["--resume"], is_flag=True, help="Go on from the last checkpoint, if there is one."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object, for machines."),
        config_option(),
        click.Option(["--held-out"], type=part, metavar="FRACTION", help=HELD_OUT),
        *options_of(*model.options),
        *estimator_options(estimator),
    ]  # fmt: skip


HELD_OUT = "Leave this part of the data out and score it meanwhile: in the progress bar, the result and the page."


@contextmanager
def _how_to_resume() -> Iterator[None]:
    """Exit as shells expect of a program that a signal ended, and say how to go on."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stopped:
        said = str(stopped).replace("resume=True", "the same command with --resume")
        code = INTERRUPTED if isinstance(stopped, KeyboardInterrupt) else 128 + signal.SIGTERM
        raise UserError(said or "interrupted, and nothing was written", code) from None


class Interruption:
    """A callback that ends the fit after its step once a signal has come; a second one ends it at once."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self, progress: Any) -> Stop | None:
        return None if self.signal is None else Stop(Reason.CALLBACK, f"interrupted after step {progress.t}")

    def notice(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signals."""
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number


@contextmanager
def noticing_interrupts() -> Iterator[Interruption]:
    """Notice SIGINT and SIGTERM instead of ending the program; threads other than the main one cannot have handlers."""
    noticed = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield noticed
        return
    before = {number: signal.signal(number, noticed.notice) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noticed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@click.command("continue", cls=Command, example="natgrad continue letters.natgrad letters/ -o longer.natgrad")
@MODEL
@click.argument("file", type=click.Path(path_type=Path), required=False)
@output_option("The new model file.", required=True)
@click.option("--force", is_flag=True, help="Replace the output if it is there.")
@reading_options()
@json_option
def continue_(model: Path, file: Path | None, output: Path, force: bool, as_json: bool, **options: Any) -> None:
    """Go on with a fit from where it ended, for as many steps as it has in its settings.

    FILE is what the model was fitted to. Factorisations keep their ratings and take none.
    """
    check_output(output, force)
    fitted = load_model(model)
    name = type(fitted).__name__
    if not hasattr(fitted, "continue_fit"):
        raise UserError(f"{name} cannot go on with a fit yet")
    begin, arguments, words = time.perf_counter(), (), ""
    if fitted.kind != "ratings":
        if file is None:
            what = "documents" if fitted.kind == "topics" else "rows"
            raise click.UsageError(
                f"continue of {name} needs the {what} that it was fitted to: natgrad continue MODEL FILE -o OUT"
            )
        source = model_of(fitted).read(file, options, fitted)
        arguments, words = source.arguments, source.words
    elif file is not None:
        command = next(key for key, known in MODELS.items() if known.estimator == name)
        raise click.UsageError(
            f"{model} keeps the ratings that it was fitted to, and {file} would not be read: leave it out. For other "
            f"ratings: natgrad fit {command} {file} -o {output}"
        )
    fitted.continue_fit(*arguments)
    fitted.save(output, overwrite=force)
    _show(fitted, words, output, None, time.perf_counter() - begin, as_json)


@click.command(cls=Command, example="natgrad update sales.natgrad today.parquet -o sales-new.natgrad")
@MODEL
@FILE
@output_option("The new model.", required=True)
@click.option(
    "--forgetting",
    type=click.FloatRange(0, 1, max_open=True),
    help="Part of what was learned that no longer counts; of networks.",
)
@click.option("--force", "--overwrite", is_flag=True, help="Replace the output if it is there.")
@reading_options()
def update(model: Path, file: Path, output: Path, forgetting: float | None, force: bool, **options: Any) -> None:
    """Add new data to a fitted model.

    Of a network that was fitted to a table: the posterior given the rows of FILE too; ids that are new become new levels. Of
    matrix factorisation: a few sweeps over all ratings, which the model keeps. Of gp-time: steps on all rows, which it keeps. Of
    other models: one step from the new data, as partial_fit takes it, since the earlier data are not in the file.
    """
    check_output(output, force)
    fitted = load_model(model)
    if fitted.kind == "network":
        updated = with_declaration(fitted, "update").update(str(file), forgetting=forgetting, verbose=False)
        updated.save(output, overwrite=force)
        click.echo(f"{output}: {updated.stop}")
        return
    if forgetting is not None:
        raise click.UsageError("--forgetting is for networks that were fitted to a table: leave it out")
    source = model_of(fitted).read(file, options, fitted)
    grown = (fitted.partial_fit if "partial_fit" in fitted.abilities else fitted.update)(*source.arguments)
    grown.save(output, overwrite=force)
    click.echo(f"{source.words}\n{output}: updated")


def _show(
    fitted: Any,
    words: str,
    output: Path,
    report: Path | None,
    took: float,
    as_json: bool,
    held_out: float | None = None,
) -> None:
    """Say how a fit ended: for people, or as JSON."""
    stop = fitted.stop_
    inference = fitted.inference_
    ended = in_options(str(stop), click.get_current_context()).removesuffix(f" ({inference})")
    answer = {
        "model": type(fitted).__name__,
        "data": words,
        "inference": inference,
        "elbo": None if math.isnan(bound := getattr(fitted, "elbo_", math.nan)) else bound,
        "steps": len(fitted.trace_),
        "seconds": took,
        "held_out": held_out,
        "stop": {"reason": stop.reason.name.lower(), "converged": stop.converged, "words": ended},
        "choice": fitted.trace_.strategy,
        "output": str(output),
        "report": None if report is None else str(report),
    }
    shown = [words] if words else []
    shown += [
        inference,
        ("no bound" if answer["elbo"] is None else f"bound {short(bound, 7)}")
        + f" after {len(fitted.trace_)} steps, {seconds(took)}: {ended}",
        *([] if held_out is None else [f"held-out score {short(held_out, 6)}"]),
        f"model: {output}" + ("" if report is None else f"   page: {report}"),
    ]
    emit(answer, shown, as_json)
