"""What a page says of the level of its intervals, and of a better one."""

from __future__ import annotations

from natgrad.report.html import Html, tag

__all__ = ["level_note"]

LEVELS = {
    "q": "Standard deviations and intervals are those of q, which are too narrow where nodes depend on each other. Call "
    "fit.linear_response(), or fit.draws(), before report() to see better ones here.",
    "linear response": "Means are those of q; standard deviations and intervals are those of linear response. fit.draws() also "
    "repairs means that are off.",
    "draws": "Means, standard deviations and intervals are those of draws from the posterior.",
    "q of a model": "Intervals are those of q, which are too narrow where parameters depend on what is hidden in the data: "
    "model.linear_response(X) and model.draws(X) have better ones.",
}


def level_note(level: str) -> Html:
    """A sentence below intervals of "q", "linear response", "draws", or "q of a model"."""
    return tag("p", LEVELS[level], class_="note")
