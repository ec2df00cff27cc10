"""A fitted model in; the facts and sections that its page has, out. Each model contributes a module of its own.

A contribution has two functions: ``facts(subject)``, short lines for the summary of the run, and ``sections(subject)``.
`CONTRIBUTIONS` says where it is, by the name of the model's class; nothing is imported before it is needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

from natgrad.report.html import Html

__all__ = ["CONTRIBUTIONS", "Contribution", "Fact", "Section", "Subject", "contribution_of"]

CONTRIBUTIONS = {
    "LDA": "natgrad.report.sections.lda",
    "MatrixFactorization": "natgrad.report.sections.factorization",
    "ContextFactorization": "natgrad.report.sections.context",
    "HiddenMarkov": "natgrad.report.sections.hmm",
    "GaussianMixture": "natgrad.report.sections.mixture",
    "SparseGP": "natgrad.report.sections.gp",
    "StateSpaceGP": "natgrad.report.sections.gp",
    "VecchiaGPRegressor": "natgrad.report.sections.gp",
    "TopicNetwork": "natgrad.report.sections.topics",
    "Fit": "natgrad.report.sections.network",
    "SavedFit": "natgrad.report.sections.network",
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
    """The contribution of the model's class, or of the nearest class that it derives from."""
    for kind in type(model).__mro__:
        if kind.__name__ in CONTRIBUTIONS:
            return cast(Contribution, importlib.import_module(CONTRIBUTIONS[kind.__name__]))
    return None
