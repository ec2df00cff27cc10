"""The page of a mixture: its components, largest first, with the uncertainty of their weights."""

from __future__ import annotations

import numpy as np

from natgrad.report.charts.heatmap import means_table
from natgrad.report.format import count, percent, short
from natgrad.report.html import join, table
from natgrad.report.sections.contribution import Fact, Section, Subject, level_note

__all__ = ["facts", "sections"]

MOST_COMPONENTS = 50


def facts(subject: Subject) -> list[Fact]:
    """How much was read, and how well other rows are predicted."""
    model = subject.model
    sizes = {"rows": round(model.n_rows_seen_), "components": len(model.weights_), "columns": model.n_features_in_}
    facts_shown = [Fact(name, count(size)) for name, size in sizes.items()] + [Fact("seed", str(model.seed))]
    if subject.held_out is not None:
        facts_shown.append(Fact("held-out", f"{short(model.score(subject.held_out))} nats a row"))
    return facts_shown


def sections(subject: Subject) -> list[Section]:
    """The components."""
    model, order = subject.model, np.argsort(-subject.model.weights_, kind="stable")[:MOST_COMPONENTS]
    names = [f"component {k}" for k in order]
    low, high = model.posterior_["weights"].interval(0.9)
    parts = [percent(float(model.weights_[k])) for k in order]
    ranges = [f"{percent(float(low[k]))} to {percent(float(high[k]))}" for k in order]
    rows = [list(row) for row in zip(names, parts, ranges, strict=True)]
    shares = table(("component", "part of the rows", "90 % interval"), rows, caption="Weights", numeric=(1, 2))
    words = "Means ± standard deviations of the rows in each component"
    heads = getattr(model, "feature_names_in_", None)
    means = means_table(model.means_[order], model.deviations_[order], names, words, heads)
    return [Section("components", "Components", join([shares, level_note("q of a model"), means]))]
