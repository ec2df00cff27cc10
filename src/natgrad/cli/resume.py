"""`natgrad resume` and `natgrad continue`: a folder of checkpoints, or a model, and its data in; a model file out.

A folder of checkpoints has ``call.json`` beside them: the model, the options that say what is fitted (`kept_options`), and a
digest of the data. It may come from anybody, so it holds nothing that a stranger must not choose: which files are read and
written, who computes, and what is shown are said by the command line that goes on, and by nothing else.
"""

from __future__ import annotations

import hashlib
import json
import math
import shlex
import time
from pathlib import Path
from typing import Any

import click
import numpy as np

from natgrad.cli.common import Command, UserError, json_option, load_model
from natgrad.cli.inputs import MODELS, Input, Model, model_of, reading_options
from natgrad.cli.options import estimator_options
from natgrad.data.corpus import Corpus
from natgrad.data.ratings import Ratings
from natgrad.posterior.files.checkpoints import checkpoints_in
from natgrad.posterior.files.container import read_model

__all__ = ["CALL", "as_words", "continue_", "data_digest", "keep_call", "kept_options", "known_call", "resume"]

CALL = "call.json"
LAYOUT = 2
LONGEST, LONGEST_VALUE = 100_000, 1000
# Options that are said anew: who computes, and what is shown of it.
ANEW = ("executor", "n_jobs", "verbose")
# Options that say how a file is read, and name no other file.
READING = (
    "column", "format", "pattern", "stop_words", "min_documents", "max_share", "max_words", "phrases", "columns", "sequence",
    "target", "user", "item", "value", "encoding", "authors", "times",
)  # fmt: skip


def kept_options(model: Model) -> dict[str, click.Option]:
    """The options of a model's ``fit`` that ``call.json`` may hold, by name; every other is refused."""
    own = [option for option in estimator_options(model.load()) if option.name not in ANEW]
    reading = [option for option in model.options() if option.name in READING]
    return {str(option.name): option for option in (*own, *reading)} | {"held_out": click.Option(["--held-out"])}


def as_words(options: dict[str, Any], known: dict[str, click.Option]) -> list[str]:
    """Options as words of a command line, one word each, so that no value can begin an option of its own."""
    words = []
    for name, value in options.items():
        flag = known[name].opts[0]
        if isinstance(value, bool):
            words.append(flag if value else known[name].secondary_opts[0])
        else:
            words.append(f"{flag}={value}")
    return words


def keep_call(folder: Path, name: str, values: dict[str, Any], digest: str) -> None:
    """Write ``call.json``: the options that were given, and what the data are."""
    known = kept_options(MODELS[name])
    plain = {key: value for key, value in values.items() if key in known and value is not None}
    options = {
        key: value if isinstance(value, (bool, int, float, str)) else repr(value) for key, value in plain.items()
    }
    beside = folder / f".{CALL}.tmp"
    text = json.dumps({"layout": LAYOUT, "model": name, "options": options, "data": digest}, indent=1)
    beside.write_text(text, encoding="utf-8")
    beside.replace(folder / CALL)


def known_call(folder: Path) -> tuple[str, dict[str, Any], str] | None:
    """The model, the options and the digest of a folder's ``call.json``, checked; None if there is none."""
    path = folder / CALL
    if not path.exists():
        return None
    again = f"call natgrad fit again with --checkpoint {folder} --resume"
    try:
        with path.open("rb") as file:
            kept = json.loads(file.read(LONGEST))
        if kept["layout"] != LAYOUT:
            raise ValueError("another layout")
        name, options, digest = kept["model"], kept["options"], kept["data"]
        known = kept_options(MODELS[name])
        if set(kept) != {"layout", "model", "options", "data"} or not isinstance(digest, str):
            raise ValueError("other parts")
    except (LookupError, TypeError, ValueError, RecursionError, AttributeError):
        raise UserError(f"{path} cannot be read, or an older natgrad wrote it; {again}") from None
    if not isinstance(options, dict):
        raise UserError(f"{path} cannot be read; {again}")
    for option, value in options.items():
        if option not in known:
            raise UserError(f"{path} has the option {option[:60]!r}, which it may not have; {again}")
        if not _is_plain(value) or isinstance(value, bool) != bool(known[option].secondary_opts):
            raise UserError(f"{path} has {option} = {str(value)[:60]!r}, which is not a value of it; {again}")
        if option == "pattern" and ".." in value:  # files of the folder that is named, and of no other
            raise UserError(f"{path} has the pattern {value!r}, which leaves the folder of documents; {again}")
    return name, options, digest


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST_VALUE and value.isprintable()
    return isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value))


def data_digest(arguments: tuple[Any, ...]) -> str:
    """A digest of what was read: the arrays that the estimator is given."""
    digest = hashlib.sha256()
    for part in arguments:
        if isinstance(part, Corpus):
            arrays = [part.start, part.words, part.counts, part.vocabulary]
        elif isinstance(part, Ratings):
            arrays = [part.users, part.items, part.values, part.user_ids, part.item_ids]
        else:
            arrays = [part]
        for array in arrays:
            contiguous = np.ascontiguousarray([] if array is None else array)
            digest.update(f"{contiguous.dtype.kind}{contiguous.shape}".encode())
            if contiguous.dtype.kind == "O":
                digest.update("\0".join(map(repr, contiguous.ravel().tolist())).encode("utf-8", "surrogatepass"))
            else:
                digest.update(contiguous.tobytes())
    return digest.hexdigest()


@click.command(cls=Command, example="natgrad resume run letters/ -o resumed.natgrad")
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The model file.")
@click.option("--force", is_flag=True, help="Replace the output if it is there.")
@click.option(
    "--vocabulary", type=click.Path(path_type=Path), help="A file with a word on each line, if the fit had one."
)
@click.option("--user-features", metavar="FILE", help="What is known of users, if the fit had it.")
@click.option("--item-features", metavar="FILE", help="What is known of items, if the fit had it.")
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False), help="Also write the page of the model.")
@click.option("--live", is_flag=True, help="Serve the page on this machine while the fit runs.")
@click.option("--every", default="60s", show_default=True, help="Time (60s, 5min) or steps (100) between checkpoints.")
@click.option("--executor", help="Who computes; by default this process.")
@click.option("--n-jobs", type=click.IntRange(min=1), help="Threads; by default all.")
@json_option
def resume(folder: Path, file: Path | None, output: Path | None, **options: Any) -> None:
    """Go on with a fit that was interrupted, from the last checkpoint in its folder, as if nothing had happened.

    FOLDER is that of natgrad fit --checkpoint; it has the settings of the fit. FILE is what was fitted, and must be the same;
    it and the output are named anew, since a folder may come from anybody. To go on with a model that was fitted to its
    end, use natgrad continue.
    """
    if folder.is_file():
        meant = " ".join(
            ["natgrad continue", shlex.quote(str(folder)), *([shlex.quote(str(file))] if file else []), "-o NEW"]
        )
        raise UserError(f"resume takes a folder of checkpoints, and {folder} is a file. To go on with a model: {meant}")
    call = known_call(folder)
    if call is None:
        raise UserError(f"{folder} has no {CALL}: natgrad fit MODEL FILE -o OUT --checkpoint {folder} makes one")
    if file is None or output is None:
        raise click.UsageError(f"name the data and the output anew: natgrad resume {folder} FILE -o OUT")
    name, kept, _ = call
    _check_sizes(folder, kept)
    from natgrad.cli.fit import fit_command

    command = fit_command(name, MODELS[name])
    settings = as_words(kept, kept_options(MODELS[name]))
    said = [str(file), "-o", str(output), "--checkpoint", str(folder), "--resume", "--every", options["every"]]
    for flag in ("force", "live", "as_json"):
        said += [f"--{flag.removeprefix('as_')}"] if options[flag] else []
    for flag in ("vocabulary", "user_features", "item_features", "report", "executor", "n_jobs"):
        said += [] if options[flag] is None else [f"--{flag.replace('_', '-')}={options[flag]}"]
    click.echo(f"natgrad fit {name} {shlex.join([str(file), *settings])}", err=True)
    command.main([*said, *settings], prog_name=f"natgrad fit {name}", standalone_mode=False)


def _check_sizes(folder: Path, options: dict[str, Any]) -> None:
    """Refuse sizes that no array of the last checkpoint has: they would be allocated before anything is compared."""
    checkpoints = checkpoints_in(folder)
    if not checkpoints:
        return
    stored = read_model(checkpoints[-1])
    lam = getattr(getattr(stored.value.get("run"), "state", None), "lam", {})
    longest = max((max(np.shape(part), default=1) for parts in dict(lam).values() for part in parts), default=1)
    for name in ("n_topics", "n_states", "n_factors", "n_categories", "n_components"):
        if isinstance(options.get(name), int) and options[name] > longest:
            raise UserError(
                f"{folder / CALL} has {name} = {options[name]}, and the checkpoint beside it has no such array"
            )


@click.command("continue", cls=Command, example="natgrad continue letters.natgrad letters/ -o longer.natgrad")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The new model file."
)
@click.option("--force", is_flag=True, help="Replace the output if it is there.")
@reading_options
@json_option
def continue_(model: Path, file: Path | None, output: Path, force: bool, as_json: bool, **options: Any) -> None:
    """Go on with a fit from where it ended, for as many steps as it has in its settings.

    FILE is what the model was fitted to. Factorisations keep their ratings and take none.
    """
    from natgrad.cli.fit import check_output, tell

    if model.is_dir():
        raise UserError(f"continue takes a model, and {model} is a folder: natgrad resume {model} FILE -o OUT")
    check_output(output, force)
    fitted = load_model(model)
    name, source = type(fitted).__name__, None
    if not hasattr(fitted, "continue_fit"):
        raise UserError(f"{name} cannot go on with a fit yet")
    if name in ("MatrixFactorization", "ContextFactorization"):
        if file is not None:
            raise click.UsageError(
                f"{model} keeps the ratings that it was fitted to, and {file} would not be read: leave it out. For other "
                f"ratings: natgrad fit {'mf' if name[0] == 'M' else 'context'} {file} -o {output}"
            )
    else:
        source = _source(fitted, file, options)
    begin = time.perf_counter()
    fitted.continue_fit(*(() if source is None else source.arguments))
    fitted.save(output, overwrite=force)
    tell(fitted, "" if source is None else source.words, output, None, time.perf_counter() - begin, as_json)


def _source(fitted: Any, file: Path | None, options: dict[str, Any]) -> Input:
    name = type(fitted).__name__
    if file is None:
        what = "documents" if name == "LDA" else "rows"
        raise click.UsageError(
            f"continue of {name} needs the {what} that it was fitted to: natgrad continue MODEL FILE -o OUT"
        )
    return model_of(fitted).read(file, options, fitted)
