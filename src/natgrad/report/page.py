"""A fitted model in, one self-contained HTML page out: no request to anywhere, light and dark, below 500 kB.

A content security policy in the page forbids every request and every script but ours, so a word that looks like markup stays
a word even if an escape were forgotten.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from natgrad.report.html import Html, join, tag
from natgrad.report.sections.contribution import Fact, Section, Subject, contribution_of
from natgrad.report.sections.run import run_section

__all__ = ["asset", "make_page", "write_report"]

LIMIT = 500_000


def write_report(
    model: Any,
    path: str | Path,
    *,
    data: Any = None,
    names: Sequence[str] | None = None,
    held_out: Any = None,
    title: str | None = None,
) -> Path:
    """Write the page of a fitted model; the parameters are those of ``estimator.report``."""
    where = Path(path)
    if not where.absolute().parent.is_dir():
        raise FileNotFoundError(f"path: there is no folder {where.parent} to write {where.name} to; make it first")
    text = make_page(Subject(model, data, names, held_out), title=title)
    where.write_text(text, encoding="utf-8")
    return where


def make_page(subject: Subject, *, title: str | None = None) -> str:
    """The text of the page; the same model gives the same text."""
    contribution = contribution_of(subject.model)
    facts: list[Fact] = contribution.facts(subject) if contribution else []
    parts = [*(contribution.sections(subject) if contribution else []), run_section(subject, facts)]
    heading = title or _title(subject.model)
    scripts = ["page.js", *dict.fromkeys(part.script for part in parts if part.script)]
    code = [asset(name) for name in scripts]
    body = [
        tag("a", "Skip to the content", href="#content", class_="skip"),
        _header(heading, subject.model, parts),
        tag("main", [_section(part) for part in parts], id="content"),
        _footer(),
        [tag("script", Html(text)) for text in code],
    ]
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(code)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content="natgrad"),
        tag("title", heading),
        tag("style", Html(asset("page.css"))),
    ]
    page = f"<!doctype html>\n{tag('html', tag('head', head), tag('body', body), lang='en')}\n"
    size = len(page.encode())
    if size > LIMIT:
        raise ValueError(
            f"the page has {size:,} bytes, more than the {LIMIT:,} that a page may have: give fewer or shorter names="
        )
    return page


def asset(name: str) -> str:
    """A style sheet or script of the page."""
    return resources.files("natgrad.report").joinpath("assets", name).read_text(encoding="utf-8")


def _policy(scripts: Sequence[str]) -> str:
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}; base-uri 'none'; form-action 'none'"


def _header(heading: str, model: Any, parts: Sequence[Section]) -> Html:
    links = [tag("li", tag("a", part.title, href=f"#{part.key}")) for part in parts]
    toggle = tag("button", "Theme: system", type="button", id="theme", hidden=True)
    top = tag("div", tag("p", "natgrad report", class_="mark"), toggle, class_="top")
    return join(
        [
            tag("header", top, tag("h1", heading), tag("p", _lead(model), class_="lead")),
            tag("nav", tag("ul", links), aria_label="Sections") if len(parts) > 1 else None,
        ]
    )


def _section(part: Section) -> Html:
    heading = f"{part.key}-heading"
    return tag("section", tag("h2", part.title, id=heading), part.body, id=part.key, aria_labelledby=heading)


def _footer() -> Html:
    words = "Made by natgrad. The page holds everything it shows and asks no other machine for anything."
    return tag("footer", tag("p", words))


def _title(model: Any) -> str:
    kind = type(model).__name__
    if kind in ("Fit", "SavedFit"):
        return f"A network: {', '.join(list(model)[:4])}{', …' if len(list(model)) > 4 else ''}"
    sizes = [name for name in ("n_topics", "n_factors", "n_states", "n_components") if hasattr(model, name)]
    if not sizes:
        return kind
    # "auto" has found a number; parameters of size one are told in the singular.
    number = getattr(model, f"{sizes[0]}_", getattr(model, sizes[0]))
    word = sizes[0].removeprefix("n_")
    return f"{kind}: {number} {word.removesuffix('s') if number == 1 else word}"


def _lead(model: Any) -> str:
    """What kind of model it is: the first sentence of the class's docstring."""
    if type(model).__name__ in ("Fit", "SavedFit"):
        return "The posterior of a Bayesian network, by variational inference."
    text = " ".join((model.__doc__ or "").strip().split("\n\n")[0].split()).replace("`", "")
    return text if text.endswith(".") else f"{text}."
