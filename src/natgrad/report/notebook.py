"""A fit in, the few lines that a notebook shows of it out; colours are those of the notebook, light or dark."""

from __future__ import annotations

from typing import Any

import numpy as np

from natgrad.report.charts.svg import sparkline
from natgrad.report.format import count, seconds, short
from natgrad.report.html import Html, tag
from natgrad.report.sections.run import run_of

__all__ = ["summary"]

CARD = "font-family:system-ui,sans-serif;border:1px solid rgba(128,128,128,.4);border-radius:8px;padding:.7em 1em;max-width:46em"
QUIET = "opacity:.75;font-size:.92em"
MOST_FACTORS = 12


def summary(model: Any) -> Html:
    """The bound and its history, why the run ended, and for networks the factors."""
    run = run_of(model)
    trace = run.trace if run.trace is not None and len(run.trace) else None
    facts = [f"bound {short(run.elbo, 7)} nats"] if np.isfinite(run.elbo) else []
    if trace is not None:
        facts += [f"{count(trace.last.t)} steps", seconds(trace.last.seconds)]
    line = sparkline(trace["elbo"], title="The bound, step by step") if trace is not None else None
    rows = [
        tag("div", tag("b", _name(model)), " · ", " · ".join(facts)),
        tag("div", run.inference, style=QUIET) if run.inference else None,
        tag("div", str(run.stop), style=QUIET) if run.stop is not None else None,
        tag("div", trace.strategy, style=QUIET) if trace is not None and trace.strategy else None,
        _factors(model),
    ]
    picture = tag("div", line, style="flex:0 0 160px;color:#3f86b5") if line else None
    body = tag("div", tag("div", rows, style="flex:1 1 18em"), picture, style="display:flex;gap:1em;flex-wrap:wrap")
    return tag("div", body, style=CARD, role="group", aria_label=f"Summary of a {type(model).__name__}")


def _name(model: Any) -> str:
    """The class with the settings that are not the defaults."""
    if not hasattr(model, "get_params"):
        return type(model).__name__
    default = type(model)().get_params(deep=False)
    changed = {k: v for k, v in model.get_params(deep=False).items() if not _same(v, default[k])}
    return f"{type(model).__name__}({', '.join(f'{k}={_brief(v)}' for k, v in changed.items())})"


def _same(first: Any, second: Any) -> bool:
    return type(first) is type(second) and bool(np.all(first == second))


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _factors(model: Any) -> Html | None:
    """Names, families and plates of the factors, and the mean of those that are one number."""
    if not hasattr(model, "__iter__") or not hasattr(model, "trace"):
        return None
    rows = []
    for name in list(model)[:MOST_FACTORS]:
        factor = model[name]
        mean = np.asarray(factor.mean())
        shown = f"{mean:.4g} ± {np.asarray(factor.std()):.2g}" if mean.ndim == 0 else f"array {list(mean.shape)}"
        where = " × ".join(factor.plates)
        rows.append(tag("tr", tag("td", tag("code", name)), [tag("td", t) for t in (factor.family.name, where, shown)]))
    more = len(list(model)) - len(rows)
    head = tag("tr", [tag("th", text, style="text-align:left") for text in ("factor", "family", "plates", "mean")])
    note = tag("div", f"and {more} more", style=QUIET) if more else None
    return tag("div", tag("table", tag("thead", head), tag("tbody", rows), style="margin-top:.4em"), note)
