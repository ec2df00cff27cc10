"""Fits of networks to tables, from the command line: `predict` and `update`. The file holds the declaration; no code is run."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import click
import numpy as np

from natgrad.cli.common import Command, UserError, load_model, with_digits
from natgrad.cli.inputs import model_of, reading_options
from natgrad.network.bind.bound import open_tables
from natgrad.network.bind.tables import Table, TableChunks
from natgrad.network.results.saved import SavedFit

__all__ = ["opened", "predict_table", "update"]


@click.command(cls=Command, example="natgrad update sales.natgrad today.parquet -o sales-new.natgrad")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The new model.")
@click.option(
    "--forgetting",
    type=click.FloatRange(0, 1, max_open=True),
    help="Part of what was learned that no longer counts; of networks.",
)
@click.option("--force", "--overwrite", is_flag=True, help="Replace the output if it is there.")
@reading_options
def update(model: Path, file: Path, output: Path, forgetting: float | None, force: bool, **options: Any) -> None:
    """Add new data to a fitted model.

    Of a network that was fitted to a table: the posterior given the rows of FILE too; ids that are new become new levels. Of
    matrix factorisation: a few sweeps over all ratings, which the model keeps. Of gp-time: steps on all rows, which it keeps. Of
    other models: one step from the new data, as partial_fit takes it, since the earlier data are not in the file.
    """
    from natgrad.cli.fit import check_output

    check_output(output, force)
    fitted = load_model(model)
    keeps_all = type(fitted).__name__ in ("StateSpaceGP", "VecchiaGPRegressor")
    if keeps_all or hasattr(fitted, "partial_fit"):
        if forgetting is not None:
            raise click.UsageError("--forgetting is for networks that were fitted to a table: leave it out")
        source = model_of(fitted).read(file, options, fitted)
        grown = fitted.update(*source.arguments) if keeps_all else fitted.partial_fit(*source.arguments)
        grown.save(output, overwrite=force)
        click.echo(f"{source.words}\n{output}: updated")
        return
    updated = _with_declaration(fitted, "update").update(str(file), forgetting=forgetting, verbose=False)
    updated.save(output, overwrite=force)
    click.echo(f"{output}: {updated.stop}")


def predict_table(fitted: SavedFit, file: Path, output: Path | None) -> None:
    """Write predictions for the rows of a table beside its columns, as CSV."""
    _with_declaration(fitted, "predict")
    assert fitted.binding is not None
    template = fitted.binding.template
    tables = open_tables(template, str(file), str(file), partial=True)
    ((plate, source),) = tables.items()
    table = source.whole(source.names) if isinstance(source, TableChunks) else source
    predictions = fitted.predict({plate: table})
    head, columns = list(table.names), [_texts(table, name) for name in table.names]
    for name, predictive in predictions.items():
        names, values = _columns(fitted, name, predictive)
        head += names
        columns += values
    with opened(output) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(zip(*columns, strict=True))


def _columns(fitted: SavedFit, name: str, predictive: Any) -> tuple[list[str], list[list[str]]]:
    """What is written of a predicted node: mean, sd and the ends of a 90 % interval; of a category its name and probability."""
    if type(predictive.node).__name__ == "Categorical":
        assert fitted.binding is not None
        probability = predictive.probabilities()
        best = probability.argmax(-1)
        uses = [u.column.name for u in fitted.binding.template.uses if u.node == name and u.role == "observed"]
        levels = fitted.binding.domain.categories.get(uses[0])
        shown = best if levels is None else levels.ids[best]
        top = np.take_along_axis(probability, best[:, None], -1)[:, 0]
        return [name, f"{name} probability"], [[str(s) for s in shown], [f"{p:.5f}" for p in top]]
    mean, sd, (low, high) = predictive.mean(), predictive.std(), predictive.interval(0.9)
    flat = [np.reshape(part, (len(part), -1)) for part in (mean, sd, low, high)]
    width = flat[0].shape[1]
    words = [""] if width == 1 else [f" {place}" for place in range(width)]
    names = [f"{name}{word} {what}" for word in words for what in ("mean", "sd", "lower", "upper")]
    spread = flat[1]
    texts = [
        [with_digits(v, s) for v, s in zip(part[:, place], spread[:, place], strict=True)]
        for place in range(width)
        for part in flat
    ]
    return names, texts


def _texts(table: Table, name: str) -> list[str]:
    return [
        "" if lost else str(cell) for cell, lost in zip(table.cells(name).tolist(), table.missing(name), strict=True)
    ]


def _with_declaration(fitted: Any, what: str) -> SavedFit:
    if not isinstance(fitted, SavedFit):
        raise UserError(f"{what} of a table is for networks, and this is {type(fitted).__name__}")
    if fitted.binding is None:
        raise UserError(
            f"{what}: this network was declared with arrays, and its file has no declaration; declare it with ng.Column"
        )
    return fitted


@contextmanager
def opened(path: Path | None) -> Iterator[TextIO]:
    """A file to write, or standard output."""
    if path is None:
        yield sys.stdout
        return
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"-o {path}: there is no folder {path.parent}; make it first")
    with path.open("w", encoding="utf-8", newline="") as file:
        yield file
