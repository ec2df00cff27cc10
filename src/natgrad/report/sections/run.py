"""The part of the page that every model has: what was fitted with which settings, how the bound rose, why it ended.

Everything is read off the estimator's own record (``trace_``, ``stop_``, its parameters); what it does not have is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad._version import __version__
from natgrad.inference.trace import Stop, Trace
from natgrad.report.charts.plots import bound_curve
from natgrad.report.charts.svg import Axis, Line, line_chart
from natgrad.report.format import count, seconds, short
from natgrad.report.html import Html, join, table, tag
from natgrad.report.sections.contribution import Fact, Section, Subject

__all__ = ["Run", "run_of", "run_section"]

Floats = npt.NDArray[np.float64]
# Rows of the table of numbers under the charts.
MOST_ROWS = 25
MOST_MOVED = 10.0


class Run(NamedTuple):
    """How a model was fitted: what estimators and fits of networks both know."""

    elbo: float
    trace: Trace | None
    stop: Stop | None
    settings: list[Fact]
    version: str
    inference: str | None


def run_of(model: Any) -> Run:
    """The record of an estimator (``elbo_``, ``trace_``, ``stop_``), of a fit (without underscores), or what there is of it."""
    trace = getattr(model, "trace_", None)
    trace = getattr(model, "trace", None) if trace is None else trace
    stop = getattr(model, "stop_", None) or getattr(model, "stop", None)
    elbo = getattr(model, "elbo_", None)
    bound = float(getattr(model, "elbo", float("nan")) if elbo is None else elbo)
    made = getattr(model, "settings", None)
    settings = _parameters(model) if made is None else _fields(made)
    inference = getattr(model, "inference_", None) or getattr(model, "inference", None)
    return Run(bound, trace, stop, settings, getattr(made, "version", __version__), inference)


def run_section(subject: Subject, facts: Sequence[Fact]) -> Section:
    """Build the section that every page has, its last."""
    run = run_of(subject.model)
    trace = run.trace if run.trace is not None and len(run.trace) else None
    body = [
        _cards(run, trace),
        _ended(run),
        tag("dl", [_fact(*fact) for fact in facts], class_="facts") if facts else None,
    ]
    if trace is not None:
        body += [
            tag("div", _bound_charts(trace), _size_charts(trace), _step_charts(trace), class_="charts"),
            _no_steps(trace),
            _numbers(trace),
        ]
    body.append(_settings(run))
    return Section("run", "The run", join(body))


# -- what happened --


def _cards(run: Run, trace: Trace | None) -> Html:
    cards = [] if run.inference is None else [Fact("inference", run.inference)]
    if not np.isnan(run.elbo):
        cards.append(Fact("bound (nats)", short(run.elbo, 6)))
    if trace is not None:
        last = trace.last
        cards += [
            Fact("steps", count(last.t)),
            Fact("messages read", short(last.messages_read)),
            Fact("time", seconds(last.seconds)),
        ]
    return tag("dl", [tag("div", tag("dt", card.name), tag("dd", card.value)) for card in cards], class_="cards")


def _ended(run: Run) -> Html | None:
    if run.stop is None:
        return None
    state = "converged" if run.stop.converged else "diverged" if run.stop.diverged else "stopped"
    words = str(run.stop).removeprefix("converged: ")
    words = words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")
    chosen = run.trace.strategy if run.trace is not None else ""
    how = tag("p", tag("b", "How the steps were taken. "), chosen[:1].upper() + chosen[1:] + ".") if chosen else None
    return join([tag("p", tag("span", state, class_=f"chip {state}"), " ", words), how, _proposals(run.trace)])


def _proposals(trace: Trace | None) -> Html | None:
    """What was tried beside the steps of the run, and what that took."""
    if trace is None or not trace.proposals:
        return None
    rows = [
        (
            name,
            f"{cost.tried:,}",
            f"{cost.accepted:,}",
            f"{cost.sweeps:,.4g}",
            short(cost.messages),
            seconds(cost.seconds),
        )
        for name, cost in trace.costs.items()
    ]
    head = ("proposals", "tried", "kept", "sweeps", "messages", "time")
    return table(head, rows, caption=f"What was tried beside the steps; {trace.effort}", numeric=range(1, 6))


def _fact(name: str, value: str) -> Html:
    return tag("div", tag("dt", name), tag("dd", value))


# -- charts --


def _bound_charts(trace: Trace) -> list[Html]:
    """The bound against steps, messages and time: one chart each, chosen by radio buttons that need no script."""
    held = trace["held_out"]
    inputs: list[Html] = []
    panels: list[Html] = []
    for label, column in (("steps", "t"), ("messages", "messages_read"), ("seconds", "seconds")):
        curve = bound_curve(trace, column)
        values, (low, high) = curve.y, _range(curve.y)
        identifier = f"bound-by-{label}"
        inputs.append(tag("input", type="radio", name="bound-by", id=identifier, checked=not panels, class_="pick"))
        inputs.append(tag("label", label, for_=identifier))
        chart = line_chart(
            [curve], Axis(label, low=0.0), Axis("bound (nats)", low=low, high=high),
            title=f"The {curve.name} against {label}", description=_in_words(values),
        )  # fmt: skip
        panels.append(tag("div", chart, class_=f"panel {label}"))
    below = bool((values[np.isfinite(values)] < low).any())
    note = "The first steps lie below the frame." if below else None
    picker = tag(
        "fieldset", tag("legend", "The bound against"), inputs, tag("div", panels, class_="panels"), class_="picker"
    )
    figures = [tag("figure", picker, tag("figcaption", note) if note else None)]
    scored = np.isfinite(held)
    if scored.sum() > 1:
        chart = line_chart(
            [Line(trace["seconds"][scored], held[scored])], Axis("seconds", low=0.0), Axis("held-out score"),
            title="The held-out score against seconds", description=_in_words(held),
        )  # fmt: skip
        figures.append(tag("figure", chart, tag("figcaption", "The score of held-out data.")))
    return figures


def _size_charts(trace: Trace) -> list[Html]:
    """K against steps, for every plate whose components moved."""
    figures = []
    for plate in trace.first_sizes:
        own = [move for move in trace.moves if move.name == plate]
        size, accepted = trace.n_active(plate).astype(np.float64), sum(move.accepted for move in own)
        kinds = {
            kind: [move.accepted for move in own if move.kind == kind] for kind in dict.fromkeys(m.kind for m in own)
        }
        each = ", ".join(f"{kind} {sum(fates)} of {len(fates)}" for kind, fates in kinds.items())
        words = f"From {int(size[0])} to {int(size[-1])}; {accepted} of {len(own)} moves were accepted"
        words += f" ({each})." if own else "."
        axes = Axis("steps", low=0.0), Axis("K", low=0.0, high=float(size.max()) + 1.0)
        title = f"The number of components along {plate!r}"
        chart = line_chart([Line(trace["t"].astype(np.float64), size)], *axes, title=title, description=words)
        figures.append(tag("figure", chart, tag("figcaption", f"{title}. {words}")))
    return figures


def _step_charts(trace: Trace) -> list[Html]:
    """Step sizes, if there were any, and how far λ moved."""
    steps, moved = trace["t"].astype(np.float64), trace["relative_change"]
    columns = [
        (trace["rho"], "step size ρ", "Step sizes", "Step sizes ρ."),
        (
            moved,
            "relative change of λ",
            "How far each step moved the parameters",
            "How far each step moved λ: ‖Δλ‖ / ‖λ‖.",
        ),
    ]
    if _exact(trace):
        del columns[0]
    figures = []
    for values, label, title, caption in columns:
        if len(steps) > 1 and (values > 0).any():
            words = f"From {short(values[0])} at the first step to {short(values[-1])} at the last."
            # A block that starts at zero moves infinitely far in its first step: that is no scale for the others.
            top = min(float(np.nanmax(values)), MOST_MOVED)
            axes = Axis("steps", low=0.0), Axis(label, log=True, high=top)
            chart = line_chart([Line(steps, values)], *axes, title=title, description=words)
            figures.append(tag("figure", chart, tag("figcaption", caption)))
    return figures


def _exact(trace: Trace) -> bool:
    rho = trace["rho"]
    return bool(np.allclose(rho[np.isfinite(rho)], 1.0))


def _no_steps(trace: Trace) -> Html | None:
    words = "Every step was an exact update (ρ = 1): there is no step size to show."
    return tag("p", words, class_="note") if _exact(trace) else None


def _numbers(trace: Trace) -> Html:
    places = np.unique(np.linspace(0, len(trace) - 1, min(MOST_ROWS, len(trace))).round().astype(int))
    records = trace.records
    rows = [
        [
            count(r.t),
            short(r.elbo, 7),
            short(r.rho),
            f"{r.relative_change:.2e}",
            count(r.messages_read),
            f"{r.seconds:.3f}",
        ]
        for r in (records[place] for place in places)
    ]
    head = ("step", "bound", "ρ", "change of λ", "messages", "seconds")
    shown = table(head, rows, caption="The run in numbers", numeric=range(6))
    return tag("details", tag("summary", "The numbers behind the charts"), shown)


def _range(values: Floats) -> tuple[float, float]:
    """From where the bound was after a tenth of its way to its highest point, with a margin: the first plunge is left out."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return 0.0, 1.0
    low, high = float(finite[len(finite) // 10 :].min()), float(finite.max())
    # A bound that rounding alone has moved is drawn as what it is, a flat line.
    margin = max(0.05 * (high - low), 1e-6 * (abs(high) or 1.0))
    return low - margin, high + margin


def _in_words(values: Floats) -> str:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return "It was never evaluated."
    first, last = (short(float(value), 6) for value in finite[[0, -1]])
    return f"From {first} at the first step to {last} at the last, over {len(values)} steps."


# -- settings --


def _settings(run: Run) -> Html:
    rows = [[fact.name, tag("code", fact.value)] for fact in [*run.settings, Fact("natgrad", run.version)]]
    shown = table(("setting", "value"), rows, caption="Settings and version")
    return tag("details", tag("summary", "Settings, seed and version"), shown)


def _parameters(model: Any) -> list[Fact]:
    settings = model.get_params(deep=False) if hasattr(model, "get_params") else {}
    return [Fact(name, _shown(value)) for name, value in settings.items()]


def _fields(made: Any) -> list[Fact]:
    return [Fact(name, _shown(getattr(made, name))) for name in type(made).__dataclass_fields__ if name != "version"]


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"array of shape {value.shape}"
    text = repr(value)
    return text if len(text) <= 120 else text[:119] + "…"
