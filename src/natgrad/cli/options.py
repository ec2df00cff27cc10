"""The signature and docstring of an estimator in; an option of the command line for each of its parameters out.

What a shell cannot type (a method, a step, an emission) is written as in Python, ``--method 'SVI({"doc": 256})'``, and read as a
literal: only the names of these are known, and nothing is evaluated.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import operator
import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import click

__all__ = ["Value", "config_option", "estimator_options", "given_parameters", "parameters_of"]

# Every name that may be written as in Python, and where it is defined.
CALLS = {
    name: home
    for home, names in {
        "natgrad.inference": "VB Children GlobalBatch SVI RobbinsMonro Constant HoldThenDecay PerNode Auto LocalOptions",
        "natgrad.models.hmm": "Gaussian StudentT Autoregressive Poisson Bernoulli Categorical Mixture NegativeBinomial Explicit "
        "Subchains Transitions",
        "natgrad.covariance": "RBF Matern12 Matern32 Matern52 Periodic RationalQuadratic Linear White Categories",
        "natgrad.models.gp": "Solver",
        "natgrad.recommenders": "FactorPriors",
    }.items()
    for name in names.split()
}
# The choice that stands for None, where the default is another.
NONE = "none"
# Settings that every model has, in words for the command line; what a model says of its own settings is in its docstring.
SHARED = {
    "method": "Which data each step reads: 'VB()' all of them, 'SVI({\"doc\": 256})' a batch; chosen for you by default.",
    "step": "The length of the steps of a sampled method, such as 'RobbinsMonro(forgetting=0.7)'; none is needed.",
    "max_steps": "Stop after so many steps.",
    "max_passes": "Stop after the data were read so many times.",
    "max_messages": "Stop after so many messages were read.",
    "max_seconds": "Stop after so many seconds.",
    "seed": "Every random choice follows from it.",
    "n_jobs": "Threads; all by default. The result is the same for any number.",
    "executor": "The address of a Dask cluster whose workers compute; this process by default.",
    "local": "Options of the local step, such as 'LocalOptions(tol=1e-6)'.",
    "verbose": "Show a progress bar; by default on a terminal.",
}


class Value(click.ParamType):  # type: ignore[type-arg]  # older versions of click have no type argument
    """A number, a list, a word, or a method, a step or an emission as it is written in Python.

    ``listed``: words with commas between them are a list, ``bad,fair,good``.
    """

    name = "value"

    def __init__(self, listed: bool = False) -> None:
        self.listed = listed

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """What was meant."""
        if not isinstance(value, str):
            return value
        try:
            return _read(ast.parse(value, mode="eval").body)
        except (SyntaxError, _PlainWord):
            return [word.strip() for word in value.split(",")] if self.listed and "," in value else value
        except (TypeError, ValueError) as error:
            self.fail(f"{value!r}: {error}", param, ctx)


class _PlainWord(Exception):
    """A text that is no literal and no call."""


def _read(tree: ast.expr) -> Any:
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        if tree.func.id not in CALLS:
            raise ValueError(f"{tree.func.id} is not known here; known are {', '.join(CALLS)}")
        keywords = {word.arg: _read(word.value) for word in tree.keywords if word.arg}
        return _called(tree.func.id)(*(_read(part) for part in tree.args), **keywords)
    if isinstance(tree, ast.BinOp) and any(isinstance(part, ast.Call) for part in ast.walk(tree)):
        combine = {ast.Add: operator.add, ast.Mult: operator.mul}.get(type(tree.op))
        if combine is None:
            raise ValueError("of kernels there are sums and products")
        return combine(_read(tree.left), _read(tree.right))
    if isinstance(tree, ast.Name) and tree.id in CALLS:
        return _called(tree.id)()
    if isinstance(tree, ast.Dict) and all(key is not None for key in tree.keys):
        return {_read(key): _read(value) for key, value in zip(tree.keys, tree.values, strict=True) if key is not None}
    try:
        return ast.literal_eval(tree)
    except ValueError:
        raise _PlainWord from None


def _called(name: str) -> Any:
    return getattr(import_module(CALLS[name]), name)


def estimator_options(estimator: type) -> list[click.Option]:
    """One option for each parameter; those that are not given are left to the estimator."""
    words: dict[str, str] = {}
    for kind in reversed(estimator.__mro__):
        words |= _descriptions(kind)
    words |= SHARED
    options = []
    for name, parameter in parameters_of(estimator).items():
        annotation = _without_none(str(parameter.annotation))
        if annotation.startswith("Literal[") and _may_be_none(parameter):
            annotation = f"{annotation[:-1]}, {NONE!r}]"
        if annotation:
            options.append(_option(name, annotation, parameter.default, words.get(name, "")))
    return options


def _may_be_none(parameter: inspect.Parameter) -> bool:
    """Whether None is a choice that is not taken by leaving the option out."""
    return parameter.default is not None and _without_none(str(parameter.annotation)) != str(parameter.annotation)


def parameters_of(estimator: type) -> dict[str, inspect.Parameter]:
    """The parameters of the estimator, and those that it passes on to the class it derives from."""
    parameters: dict[str, inspect.Parameter] = {}
    passed_on = True
    for kind in estimator.__mro__:
        if not passed_on or "__init__" not in vars(kind) or kind is object:
            continue
        own = inspect.signature(kind.__init__).parameters  # type: ignore[misc]
        plain = [p for p in own.values() if p.name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        parameters |= {p.name: p for p in plain if p.name not in parameters}
        passed_on = any(p.kind is p.VAR_KEYWORD for p in own.values())
    return parameters


def given_parameters(estimator: type, values: dict[str, Any]) -> dict[str, Any]:
    """Takes the parameters of the estimator out of a command's values, without those that were not given."""
    names = [name for name in parameters_of(estimator) if name in values]
    settings = {name: values.pop(name) for name in names}
    chosen = {name: value for name, value in settings.items() if value is not None}
    parameters = parameters_of(estimator)
    return {
        name: None if isinstance(value, str) and value == NONE and _may_be_none(parameters[name]) else value
        for name, value in chosen.items()
    }


def config_option() -> click.Option:
    """``--config file.toml``: any option of the command by its name; the command line has the last word."""
    return click.Option(
        ["--config"],
        type=click.Path(path_type=Path, dir_okay=False),
        is_eager=True,
        expose_value=False,
        callback=_load_config,
        help="A TOML file with options of this command by name, like n_topics = 20.",
    )


def _load_config(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise click.UsageError(f"--config: {path} cannot be read ({error.strerror})", ctx) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--config: {path} is not TOML ({error})", ctx) from None
    # The settings of several models may share a file, each in a table of its own.
    own = table.get(str(ctx.info_name))
    table = own if isinstance(own, dict) else {k: v for k, v in table.items() if not isinstance(v, dict)}
    known = [option.name for option in ctx.command.params if option.name and option.name != "config"]
    settings = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"--config: {path} sets {key!r}, which is no option of {ctx.info_name}{hint}", ctx)
        settings[name] = value
    ctx.default_map = {**(ctx.default_map or {}), **settings}


# -- one option --


def _option(name: str, kind: str, default: Any, words: str) -> click.Option:
    flag = "--" + name.replace("_", "-")
    shown = "" if default is None or default is inspect.Parameter.empty else f"  [default: {_shown(default)}]"
    settings: dict[str, Any] = {"default": None, "help": (words + shown).strip() or None}
    if kind == "bool":
        return click.Option([f"{flag}/--no-{name.replace('_', '-')}"], **settings)
    if kind.startswith("Literal[") and kind.endswith("]"):
        choices = ast.literal_eval(f"({kind[len('Literal[') : -1]},)")
        return click.Option([flag], type=click.Choice([str(choice) for choice in choices]), **settings)
    if (
        kind.startswith("int | Literal['auto'") and name.startswith("n_") and name != "n_inducing"
    ):  # --topics auto; --inducing are inputs
        return click.Option([name, flag, "--" + name[2:].replace("_", "-")], type=Value(), **settings)
    if kind.startswith("Sequence["):
        return click.Option([flag], type=Value(listed=True), **settings)
    types: dict[str, Any] = {"int": click.INT, "float": click.FLOAT, "str": click.STRING}
    return click.Option([flag], type=types.get(kind, Value()), **settings)


def _without_none(annotation: str) -> str:
    """The annotation without None; empty if nothing else is left."""
    kinds = [kind.strip() for kind in re.split(r"\|(?![^\[]*\])", annotation)]
    return " | ".join(kind for kind in kinds if kind != "None")


def _shown(default: Any) -> str:
    return ("yes" if default else "no") if isinstance(default, bool) else str(default)


def _descriptions(estimator: type) -> dict[str, str]:
    """What the docstring says of each parameter: the first sentence of the text under it, or what stands after its colon."""
    lines = inspect.cleandoc(estimator.__doc__ or "").splitlines()
    if "Parameters" not in lines:
        return {}
    descriptions: dict[str, str] = {}
    names: list[str] = []
    for line in lines[lines.index("Parameters") + 2 :]:
        if line and not line.startswith(" "):
            head, colon, kind = line.partition(" : ")
            if not colon:
                break
            names = [name.strip() for name in head.split(",")]
            descriptions.update(dict.fromkeys(names, kind.strip()))
            fresh = True
        elif line.strip() and names:
            for name in names:
                descriptions[name] = line.strip() if fresh else f"{descriptions[name]} {line.strip()}"
            fresh = False
    return {name: _first_sentence(text.replace("`", "")) for name, text in descriptions.items()}


def _first_sentence(text: str) -> str:
    """As many sentences as make more than a symbol ("R. By default …")."""
    sentences = re.split(r"(?<=\.)\s", text)
    return " ".join(sentences[:2] if len(sentences[0]) < 12 else sentences[:1])
