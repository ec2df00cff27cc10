"""The page of a network's fit: its drawing, and its factors with their means and intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

from natgrad.report.charts.drawing import draw_network
from natgrad.report.charts.svg import Axis, bar_chart
from natgrad.report.format import count, short
from natgrad.report.html import Html, join, table, tag
from natgrad.report.sections.contribution import Fact, Section, Subject, level_note

__all__ = ["facts", "sections"]

MOST_NUMBERS, MOST_BARS = 12, 60


def facts(subject: Subject) -> list[Fact]:
    """Sizes of the network."""
    fit = subject.model
    hidden = [name for name in fit]
    facts_shown = [Fact("hidden variables", ", ".join(hidden))]
    nodes = _nodes(fit)
    if nodes:
        observed = [name for name, node in nodes.items() if node.is_observed]
        facts_shown.append(Fact("observed", ", ".join(observed)))
        plates = {plate.name: plate.size for node in nodes.values() for plate in node.plates}
        facts_shown.append(
            Fact("plates", ", ".join(f"{name} {count(size)}" for name, size in plates.items()) or "none")
        )
    facts_shown.append(Fact("seed", str(fit.settings.seed)))
    if (response := getattr(fit, "_response", None)) is not None and np.isfinite(response.contraction):
        facts_shown.append(Fact("a plain sweep leaves", f"{response.contraction:.3g} of the distance to the optimum"))
    return facts_shown


def sections(subject: Subject) -> list[Section]:
    """The drawing and the factors."""
    fit = subject.model
    nodes = _nodes(fit)
    level, best = _level(fit)
    known = set(best)
    factors = {name: best[name] if name in known else fit[name] for name in fit}
    single = {name: factor for name, factor in factors.items() if np.size(factor.mean()) == 1}
    parts = [_single(single, known, level)] if single else []
    parts += [_factor(f, level if name in known else "q") for name, f in factors.items() if name not in single]
    parts.append(level_note(level))
    shown = [Section("factors", "The posterior", join(parts))]
    if nodes:
        picture = tag(
            "figure", Html(draw_network(nodes)), tag("figcaption", "Shaded: observed. Boxes: plates."), class_="drawing"
        )
        shown.append(Section("network", "The network", picture))
    return shown


def _single(factors: dict[str, Any], known: set[str], level: str) -> Html:
    """All nodes that are one number, in one table."""
    rows = []
    for name, factor in factors.items():
        mean, sd = (np.asarray(v, dtype=np.float64).reshape(()) for v in (factor.mean(), factor.std()))
        low, high = (float(np.reshape(end, ())) for end in _interval(factor, mean, sd))
        law = f"{factor.family.name}{'' if name in known else ', by q'}"
        rows.append([tag("code", name), law, short(float(mean)), short(float(sd)), f"{short(low)} to {short(high)}"])
    head = ("node", "distribution", "mean", "sd", "90 % interval")
    return table(head, rows, caption=f"Single numbers, by {level}", numeric=(2, 3, 4))


def _level(fit: Any) -> tuple[str, Any]:
    """The best that was computed of this fit: draws, linear response, or the factors themselves."""
    for level, attribute in (("draws", "_drawn"), ("linear response", "_response")):
        if (estimate := getattr(fit, attribute, None)) is not None:
            return level, estimate
    return "q", fit


def _nodes(fit: Any) -> dict[str, Any]:
    """The declared nodes; a fit that was loaded from a file has none."""
    plan = getattr(getattr(fit, "problem", None), "plan", None)
    return dict(plan.declared) if plan is not None else {}


def _factor(factor: Any, level: str) -> Html:
    """A factor's numbers in a table if they are few, as bars if they are a vector, otherwise their range."""
    mean, sd = np.asarray(factor.mean(), dtype=np.float64), np.asarray(factor.std(), dtype=np.float64)
    where = f", on {' × '.join(factor.plates)}" if factor.plates else ""
    heading = tag("h3", tag("code", factor.name), f": {factor.family.name}{where}")
    if mean.size <= MOST_NUMBERS:
        low, high = (np.asarray(end) for end in _interval(factor, mean, sd))
        rows = [
            [
                _place(index),
                short(float(mean[index])),
                short(float(sd[index])),
                f"{short(float(low[index]))} to {short(float(high[index]))}",
            ]
            for index in np.ndindex(mean.shape)
        ]
        return join(
            [
                heading,
                table(
                    ("element", "mean", "sd", "90 % interval"),
                    rows,
                    caption=f"{factor.name}, by {level}",
                    numeric=(1, 2, 3),
                ),
            ]
        )
    if mean.ndim == 1 and len(mean) <= MOST_BARS:
        low, high = _interval(factor, mean, sd)
        words = f"Means from {short(mean.min())} to {short(mean.max())}."
        chart = bar_chart(
            mean, Axis(factor.plates[0] if factor.plates else "element"), Axis(f"mean of {factor.name}"),
            title=f"Means and 90 % intervals of {factor.name}", description=words, intervals=(low, high),
            edges=np.arange(len(mean) + 1, dtype=np.float64) - 0.5,
        )  # fmt: skip
        return join([heading, tag("figure", chart)])
    words = f"{count(mean.size)} numbers {list(mean.shape)}, means from {short(mean.min())} to {short(mean.max())}, "
    return join([heading, tag("p", words + f"standard deviations from {short(sd.min())} to {short(sd.max())}.")])


def _interval(factor: Any, mean: Any, sd: Any) -> tuple[Any, Any]:
    try:
        low, high = factor.interval(0.9)
    except NotImplementedError:
        low, high = mean - 1.645 * sd, mean + 1.645 * sd
    return (low, high) if np.shape(low) == mean.shape else (mean - 1.645 * sd, mean + 1.645 * sd)


def _place(index: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, index))}]" if index else "value"
