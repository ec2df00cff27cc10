"""`natgrad compare`: models of the same data side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from natgrad.cli.common import Command, emit, json_option, load_model
from natgrad.cli.inputs import model_of, reading_options
from natgrad.posterior.compare import compare_by, score_of

__all__ = ["compare"]


@click.command(cls=Command, example="natgrad compare three.natgrad auto.natgrad")
@click.argument("models", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--held-out", type=click.Path(path_type=Path), help="A file of data that no model has seen: each one's score on it."
)
@click.option("--picture", type=click.Path(path_type=Path), help="Where to write bounds against K, as an SVG.")
@reading_options
@json_option
def compare(
    models: tuple[Path, ...], held_out: Path | None, picture: Path | None, as_json: bool, **options: Any
) -> None:
    """Put models of the same data side by side: bounds, with and without labellings, and their score on a file.

    The best is first: by its held-out score if there is one, otherwise by the bound with log of the labellings added.
    """
    short = len({path.name for path in models}) == len(models)
    fits = {path.name if short else str(path): load_model(path) for path in dict.fromkeys(models)}

    def score(fit: Any) -> Any:
        assert held_out is not None
        return score_of(fit, model_of(fit).read(held_out, options, fit).arguments)

    table = compare_by(fits, None if held_out is None else score)
    if picture is not None:
        table.draw().save(picture)
    rows = [
        {
            "model": name,
            **{column: float(values[i]) for column, values in table.columns.items() if values[i] == values[i]},
        }
        for i, name in enumerate(table.names)
    ]
    emit({"models": rows}, str(table), as_json)
