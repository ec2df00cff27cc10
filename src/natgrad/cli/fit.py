"""`natgrad fit MODEL FILE -o OUT`: data in, a model file out.

Every parameter of the estimator is an option, made when its command is asked for, so that `natgrad --help` stays quick. A
folder of checkpoints also has the settings of the fit, with which `natgrad resume FOLDER FILE -o OUT` goes on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click

from natgrad.cli.common import Command, UserError, WithExample, emit, in_options
from natgrad.cli.held_out import held_out_option, split_input
from natgrad.cli.inputs import MODELS, Input, Model
from natgrad.cli.interrupt import INTERRUPTED, TERMINATED, Interruption, noticing_interrupts
from natgrad.cli.options import config_option, estimator_options, given_parameters
from natgrad.cli.resume import data_digest, keep_call, known_call
from natgrad.inference.callbacks import HeldOut
from natgrad.report.format import seconds, short
from natgrad.report.live import live_page
from natgrad.report.page import make_page, write_report
from natgrad.report.sections.contribution import Subject

__all__ = ["check_output", "fit", "fit_command", "tell"]


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
        live: bool,
        checkpoint: Path | None,
        every: str,
        resume: bool,
        as_json: bool,
        held_out: float | None,
        **values: Any,
    ) -> None:
        check_output(output, force)
        kept = {**values, "held_out": held_out}
        fitted = estimator(**given_parameters(estimator, values))
        source, held = model.read(file, kept, None), None
        whole = source
        if held_out is not None:
            source, held = split_input(source, held_out, int(fitted.seed))
        callbacks: list[Any] = [] if held is None else [HeldOut(*held)]
        begin = time.perf_counter()
        # With a folder of checkpoints the run itself notices signals, and writes its state.
        noticing = noticing_interrupts() if checkpoint is None else nullcontext(Interruption())
        with noticing as interruption, live_page(fitted) if live else nullcontext() as page:
            callbacks.append(interruption)
            if page is not None:
                click.echo(f"the fit can be watched at {page.address}", err=True)
                callbacks.append(page)
            with _kept(name, checkpoint, resume, kept, whole, f"{file} -o {output}"):
                keep: dict[str, Any] = {"resume": resume}
                if checkpoint is not None:
                    keep |= {"checkpoint": checkpoint, "every": int(every) if every.isdigit() else every}
                fitted.fit(*source.arguments, callbacks=callbacks, **source.named, **keep)
            fitted.columns_ = whole.columns or None
            fitted.save(output, overwrite=force)
            if page is not None:
                page.finish(make_page(Subject(fitted, source.raw, source.names)))
        if report is not None:
            shown = None if held is None else held[0] if len(held) == 1 else held
            write_report(fitted, report, data=source.raw, names=source.names, held_out=shown)
        score = None if held is None else float(fitted.score(*held))
        tell(fitted, source.words, output, report, time.perf_counter() - begin, as_json, score)
        if interruption.exit_code:
            needed = "" if name in ("mf", "context") else f" {file}"  # which keep their ratings
            click.echo(
                f"interrupted: {output} is the model so far; natgrad continue {output}{needed} -o NEW goes on", err=True
            )
            raise SystemExit(interruption.exit_code)

    return Command(name, params=_parameters(model, estimator), callback=call, help=model.summary, example=model.example)


def _parameters(model: Model, estimator: Any) -> list[click.Parameter]:
    """What the command takes: a file, where the result goes, how the run is kept, and the settings of the model."""
    return [
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


@contextmanager
def _kept(
    name: str, folder: Path | None, going_on: bool, values: dict[str, Any], source: Input, words: str
) -> Iterator[None]:
    """Keep the settings beside the checkpoints, and say how to go on if the fit is interrupted; refuse other data."""
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    beside = [part for known in source.named.values() for part in (list(known), list(known.values()))]
    digest = data_digest((*source.arguments, *beside))
    earlier = known_call(folder) if going_on else None
    if earlier is not None and earlier[2] != digest:
        raise UserError(
            f"the data are not those of the run in {folder}: give the same file, or take another --checkpoint"
        )
    keep_call(folder, name, values, digest)
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stopped:
        said = str(stopped).replace("resume=True", f"natgrad resume {folder} {words}")
        code = INTERRUPTED if isinstance(stopped, KeyboardInterrupt) else TERMINATED
        raise UserError(said or "interrupted", code) from None


def check_output(output: Path, force: bool) -> None:
    """What would fail after the fit is said before it."""
    if not output.absolute().parent.is_dir():
        raise FileNotFoundError(f"-o {output}: there is no folder {output.parent}; make it first")
    if output.exists() and not force:
        raise FileExistsError(f"-o {output}: is there already; --force replaces it")


def tell(
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
    ended = in_options(str(stop), click.get_current_context())
    answer = {
        "model": type(fitted).__name__,
        "data": words,
        "inference": getattr(fitted, "inference_", None),
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
        *([answer["inference"]] if answer["inference"] else []),
        ("no bound" if answer["elbo"] is None else f"bound {short(bound, 7)}")
        + f" after {len(fitted.trace_)} steps, {seconds(took)}: {ended}",
        *([] if held_out is None else [f"held-out score {short(held_out, 6)}"]),
        f"model: {output}" + ("" if report is None else f"   page: {report}"),
    ]
    emit(answer, shown, as_json)
