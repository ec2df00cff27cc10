"""Ask the module of a model's kind for the facts and sections of its page.

A contribution has two functions: ``facts(subject)``, short lines for the summary of the run, and ``sections(subject)``. It stands
in the module of this folder that is called like ``model.kind``; nothing is imported before it is needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

from natgrad.report.html import Html, tag

__all__ = ["Contribution", "Fact", "Section", "Subject", "contribution_of", "level_note"]

LEVELS = {
    "q": "Standard deviations and intervals are those of q, which are too narrow where nodes depend on each other. Call "
    "fit.linear_response(), or fit.draws(), before report() to see better ones here.",
    "linear response": "Means are those of q; standard deviations and intervals are those of linear response. fit.draws() also "
    "repairs means that are off.",
    "draws": "Means, standard deviations and intervals are those of draws from the posterior.",
    "q of a model": "Intervals are those of q, which are too narrow where parameters depend on what is hidden in the data: "
    "model.linear_response(X) and model.draws(X) have better ones.",
}


class Fact(NamedTuple):
    """One line of a summary."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: its anchor, its heading, what it shows, and the script that makes it move, if any."""

    key: str
    title: str
    body: Html
    script: str | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """What a page is about.

    Attributes
    ----------
    model : a fitted estimator, or the fit of a network
    data : what it was fitted to, or other data to show; models say what they take
    names : a name for each row of the data
    held_out : data that were not fitted, for scores
    """

    model: Any
    data: Any = None
    names: Sequence[str] | None = None
    held_out: Any = None


class Contribution(Protocol):
    """What a model adds to its page."""

    def facts(self, subject: Subject) -> list[Fact]:
        """Lines for the summary: the data, and scores on held-out data."""
        ...

    def sections(self, subject: Subject) -> list[Section]:
        """The parts of the page after the run."""
        ...


def contribution_of(model: Any) -> Contribution | None:
    """The contribution of the module that is called like the kind of the model; of what has no kind, None."""
    kind = getattr(model, "kind", None)
    return None if kind is None else cast("Contribution", importlib.import_module(f"natgrad.report.sections.{kind}"))


def level_note(level: str) -> Html:
    """A sentence below intervals of "q", "linear response", "draws", or "q of a model"."""
    return tag("p", LEVELS[level], class_="note")
