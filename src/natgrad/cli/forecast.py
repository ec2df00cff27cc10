"""`natgrad forecast MODEL --data FILE --steps N`: what comes next in series, a row of a CSV file for each step."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import numpy as np

from natgrad.cli.common import Command, UserError, load_model, require_model
from natgrad.cli.inputs import model_of, series_options
from natgrad.cli.predict import MODEL, series_of, write_rows
from natgrad.models.hmm.track_forecast import TrackForecast

__all__ = ["forecast"]

WHAT = ("mean", "sd", "lower", "upper")


@click.command(cls=Command, example="natgrad forecast series.natgrad --data series.csv --steps 5 -o ahead.csv")
@MODEL
@click.option(
    "--data", type=click.Path(path_type=Path), help="For hidden Markov models: the series that go on, as for fit."
)
@click.option("--steps", type=click.IntRange(min=1), required=True, help="How many steps ahead.")
@click.option("--mass", type=float, default=0.9, show_default=True, help="The probability of the intervals.")
@click.option("--inputs", help="For models with inputs: those of the next times, separated by commas.")
@click.option(
    "--every", type=float, help="For gp-time: from one time to the next; by default the median distance of the fit's."
)
@click.option(
    "-o", "--output", "--out", "output", type=click.Path(path_type=Path, dir_okay=False),
    help="A CSV file; standard output if not given.",
)  # fmt: skip
@series_options
def forecast(
    model: Path, data: Path | None, steps: int, mass: float, inputs: str | None, every: float | None,
    output: Path | None, **options: Any,
) -> None:  # fmt: skip
    """What comes next in series: mean, sd and interval of each column, or the probability of each category.

    Hidden Markov models go on from where each sequence of the data ends. A Gaussian process along time (gp-time) goes on from the
    last time of its fit.
    """
    fitted = load_model(model)
    require_model(fitted, "forecast")
    if not 0.0 < mass < 1.0:
        raise UserError(f"--mass must lie in (0, 1), got {mass:g}")
    if type(fitted).__name__ == "StateSpaceGP":
        _refuse(fitted, {"--inputs": inputs})
        if data is not None:
            raise UserError(
                f"--data {data}: gp-time goes on from the rows of its fit; natgrad update adds others to it"
            )
        write_rows(output, *_after_times(fitted, steps, mass, every))
        return
    _refuse(fitted, {"--every": every})
    if data is None:
        raise UserError(
            f"--data is needed: the file of a {type(fitted).__name__} holds no series that could go on; give those that do"
        )
    source = model_of(fitted).read(data, options, fitted)
    told = {} if inputs is None else {"inputs": _inputs(fitted, inputs)}
    rows, lengths = source.arguments
    ends = np.cumsum([0, *lengths])
    head: list[str] = []
    lines: list[list[Any]] = []
    for name, (begin, end) in zip(series_of(source), pairwise(ends.tolist()), strict=True):
        ahead = fitted.forecast(steps, rows[begin:end], **told)
        head, values = _columns_ahead(ahead, _emitted(fitted, source.columns["columns"]), mass)
        lines += [[name, step, *(f"{v:.15g}" for v in row)] for step, row in enumerate(values, 1)]
    write_rows(output, ["sequence", "step", *head], lines)


# -- hidden Markov models --


def _emitted(fitted: Any, columns: list[str]) -> list[str]:
    """Names of what is forecast, in the order in which the model has it."""
    emissions = getattr(fitted, "emissions", None)
    if isinstance(emissions, Mapping) and all(isinstance(part, str) for key in emissions for part in _parts(key)):
        return [part for key in emissions for part in _parts(key)]
    return [name for name in columns if name != getattr(fitted, "inputs", None)]


def _parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _columns_ahead(ahead: Any, names: list[str], mass: float) -> tuple[list[str], Any]:
    """A head, and its columns [steps, …]: of every track in turn."""
    each = [(ahead[track], own) for track, own in ahead.columns.items()] if isinstance(ahead, TrackForecast) else None
    head: list[str] = []
    parts = []
    for one, own in each or [(ahead, range(len(names)))]:
        if one.of_categories:
            head += [f"{names[own[0]]} {category}" for category in one.categories]
            parts.append(one.probabilities())
            continue
        head += [f"{names[place]} {what}" for place in own for what in WHAT]
        together = np.stack([one.mean(), one.std(), *one.interval(mass)], axis=-1)
        parts.append(together.reshape(len(together), -1))
    return head, np.hstack(parts)


def _inputs(fitted: Any, words: str) -> list[Any]:
    """Categories as the model has them: a text that spells a number is this number."""
    if getattr(fitted, "inputs", None) is None:
        raise UserError("--inputs is for models that were fitted with them: natgrad fit hmm-tracks … --inputs COLUMN")
    known = {f"{v:g}" if isinstance(v, float) else str(v): v for v in fitted.inputs_.tolist()}
    given = [word.strip() for word in words.split(",")]
    for place, word in enumerate(given):
        if word not in known:
            raise UserError(
                f"--inputs: {word!r} at place {place} was not seen in the fit; known are {', '.join(known)}"
            )
    return [known[word] for word in given]


# -- a process along time --


def _after_times(fitted: Any, steps: int, mass: float, every: float | None) -> tuple[list[str], list[list[Any]]]:
    """Head and rows of the times after the last one of the fit."""
    times = fitted._rows[0]
    if every is None:
        apart = np.diff(np.unique(times))
        if not len(apart):
            raise UserError("--every is needed: the fit has one time only, and no distance to the next")
        every = float(np.median(apart))
    if not 0.0 < every < np.inf:
        raise UserError(f"--every must be > 0, got {every:g}")
    ahead = times[-1] + every * np.arange(1, steps + 1)
    columns = np.column_stack([*fitted.predict(ahead, return_std=True), *fitted.interval(ahead, mass)])
    known = dict(fitted.columns_ or {})
    name, target = (known.get("columns") or ["x"])[0], known.get("target") or "y"
    rows = [
        [step, f"{time:.15g}", *(f"{v:.15g}" for v in row)]
        for step, (time, row) in enumerate(zip(ahead, columns, strict=True), 1)
    ]
    return ["step", name, *(f"{target} {what}" for what in WHAT)], rows


def _refuse(fitted: Any, given: dict[str, Any]) -> None:
    for flag, value in given.items():
        if value is not None:
            raise UserError(f"{flag} is for other models, and this is {type(fitted).__name__}; leave it out")
