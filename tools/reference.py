"""The pages of `docs/reference`, written from the public names; mkdocstrings fills in signatures and docstrings.

    python tools/reference.py          write the pages
    python tools/reference.py --check  say which are not what would be written

No signature is written by hand: a page lists where a name is defined, and the site shows what is there. The page of the command
line is the help of the commands.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

import natgrad as ng
from natgrad.cli.main import COMMANDS, main
from natgrad.models import hmm
from natgrad.models.registry import MODELS

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
# What is returned, and so has no public name of its own.
RESULTS = {
    "Fit": "natgrad.network.results.fit",
    "SavedFit": "natgrad.network.results.files",
    "Factor": "natgrad.posterior.factor",
    "Summary": "natgrad.posterior.export",
    "Plots": "natgrad.report.charts.plots",
    "LinearResponse": "natgrad.posterior.response.result",
    "Draws": "natgrad.posterior.draws",
    "StateFilter": "natgrad.models.hmm.live",
    "Forecast": "natgrad.models.hmm.forecast",
    "TrackForecast": "natgrad.models.hmm.forecast",
    "Predictive": "natgrad.network.results.predictive",
    "Trace": "natgrad.inference.trace",
    "Stop": "natgrad.inference.trace",
    "Calibration": "natgrad.posterior.calibration",
}
INTRODUCTIONS = {
    "networks": ("Networks", "A network is collected from its observed nodes, and fitted as often as wanted."),
    "nodes": ("Nodes and expressions", "What a declaration is made of: `ng.Name`, or `ng.language.Name`."),
    "models": ("Ready models", "Estimators for scikit-learn's tools, on the same engine as networks."),
    "topics": ("Topic models", "Beyond `ng.LDA`, each a declared network with a thin estimator: `ng.topics`."),
    "recommenders": ("Recommenders", "Ratings in time and context, as a declared network: `ng.recommenders`."),
    "results": ("Results", "What `fit` and the methods of a fit return."),
    "data": ("Data", "Readers, sources, generators and data sets: `ng.data`."),
    "inference": ("Methods and steps", "Which data a step reads and how far it goes: `ng.inference`."),
    "covariance": ("Covariance functions", "For Gaussian processes: `ng.covariance`."),
    "families": ("Exponential families", "The distributions of factors, for those who write their own: `ng.families`."),
    "hmm": ("Emissions and durations", "What states of hidden Markov models emit, and how long they last: `ng.models.hmm`."),
    "errors": ("Errors and warnings", "`ng.errors`."),
}  # fmt: skip


def entries() -> dict[str, dict[str, Any]]:
    """For every page, the names on it, as users write them, and what they are."""
    here = {name: getattr(ng, name) for name in ng.__all__}
    language = {name: getattr(ng.language, name) for name in ng.language.__all__}
    found: dict[str, dict[str, Any]] = {
        "networks": {"Network": ng.Network, "Plate": ng.Plate, "load": ng.load},
        "nodes": {name: thing for name, thing in language.items() if name != "Plate"},
        "models": {name: getattr(ng, name) for name in MODELS},
        "results": {name: getattr(import_module(module), name) for name, module in RESULTS.items()},
    }
    listed = {name for names in found.values() for name in names}
    for page in ("topics", "data", "inference", "covariance", "families", "errors"):
        space = here[page]
        found[page] = {f"{page}.{name}": getattr(space, name) for name in sorted(space.__all__)}
        listed |= set(space.__all__) | {page}
    names = sorted(ng.recommenders.__all__)
    found["recommenders"] = {f"recommenders.{name}": getattr(ng.recommenders, name) for name in names}
    found["hmm"] = {f"models.hmm.{name}": getattr(hmm, name) for name in sorted(hmm.__all__) if name != "HMM"}
    if left := set(here) - listed - {"language"}:
        found["networks"] |= {name: here[name] for name in sorted(left)}
    return found


def page(name: str, things: dict[str, Any]) -> str:
    """One page of names."""
    title, words = INTRODUCTIONS[name]
    parts = [f"# {title}", words]
    for label, thing in sorted(things.items(), key=lambda pair: pair[0].lower()):
        written = label if name == "results" else f"ng.{label}"
        parts.append(f"## {written}")
        if callable(thing) and hasattr(thing, "__module__") and thing.__module__.startswith("natgrad"):
            parts.append(f"::: {thing.__module__}.{thing.__name__}")
        else:  # a table, or a name for a type
            parts.append(
                f"A `{type(thing).__name__}`." + (f" Keys: {_keys(thing)}." if isinstance(thing, dict) else "")
            )
    return "\n\n".join(parts) + "\n"


def index(found: dict[str, dict[str, Any]]) -> str:
    """The page with every name and the first sentence about it."""
    parts = [
        "# Reference",
        "Everything public is a name of the package, `import natgrad as ng`, or of one of its namespaces: `ng.data`, "
        "`ng.inference`, `ng.language`, `ng.topics`, `ng.recommenders`, `ng.covariance`, `ng.families` and `ng.errors`. "
        "What needs a longer import is internal and may change without notice. Signatures, parameters and examples are "
        "those of the docstrings: `help(ng.Normal)`.",
    ]
    for name, things in found.items():
        rows = ["| name | what it is |\n|---|---|"]
        for label, thing in sorted(things.items(), key=lambda pair: pair[0].lower()):
            written = label if name == "results" else f"ng.{label}"
            rows.append(f"| [`{written}`]({name}.md#{_anchor(written)}) | {_first_sentence(thing)} |")
        parts += [f"## [{INTRODUCTIONS[name][0]}]({name}.md)", "\n".join(rows)]
    return "\n\n".join([*parts, "## [Commands](commands.md)", "Of the [command line](../command-line.md)."]) + "\n"


def _anchor(heading: str) -> str:
    """The anchor that a heading gets on the site."""
    return "".join(sign for sign in heading.lower() if sign.isalnum() or sign in "_- ").replace(" ", "-")


def _first_sentence(thing: Any) -> str:
    if not callable(thing) or not (thing.__doc__ or "").strip():
        return f"a `{type(thing).__name__}`"
    first = thing.__doc__.strip().split("\n\n")[0]
    return " ".join(first.split()).replace("|", "\\|").replace("``", "`")


def _keys(table: dict[str, Any]) -> str:
    return ", ".join(f"`{key}`" for key in table)


def command_line() -> str:
    """The help of every command, as a terminal of 80 columns shows it."""
    parts = ["# Commands", "The help of each command of [the command line](../command-line.md)."]
    context = click.Context(main, info_name="natgrad", terminal_width=80, **main.context_settings)
    for name in sorted(COMMANDS):
        command = main.get_command(context, name)
        assert command is not None
        parts += _help(command, f"natgrad {name}", context)
        if isinstance(command, click.Group):
            inner = click.Context(command, info_name=name, parent=context, terminal_width=80)
            for word in command.list_commands(inner):
                part = command.get_command(inner, word)
                assert part is not None
                parts += _help(part, f"natgrad {name} {word}", inner)
    return "\n\n".join(parts) + "\n"


def _help(command: click.Command, words: str, parent: click.Context) -> list[str]:
    context = click.Context(command, info_name=words.split()[-1], parent=parent, terminal_width=80)
    text = command.get_help(context)
    return [f"## {words}", "\n".join(f"    {line}".rstrip() for line in text.splitlines())]


def pages() -> dict[str, str]:
    """Every page, by its file."""
    found = entries()
    written = {f"{name}.md": page(name, things) for name, things in found.items()}
    return {**written, "index.md": index(found), "commands.md": command_line()}


def run(check: bool) -> int:
    """Write the pages, or say which differ."""
    wrong = 0
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        path = FOLDER / name
        if path.exists() and path.read_text() == text:
            continue
        wrong += 1
        if check:
            print(f"docs/reference/{name} is not what the code says: run python tools/reference.py")
        else:
            path.write_text(text)
    return wrong if check else 0


if __name__ == "__main__":
    sys.exit(run("--check" in sys.argv[1:]))
