"""The content of a file in, the draws that it holds out, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from natgrad.families import Family
from natgrad.inference.schema import check, record, refuse
from natgrad.posterior.draws import DrawnFactor, Draws, DrawsSettings

__all__ = ["drawn_rule", "saved_draws"]

SETTINGS = record(
    DrawsSettings, n="natural", chains="natural", warmup="whole", thin="natural", seed="whole", version="text"
)


def saved_draws(content: Any) -> Draws:
    """The draws that a file holds, checked."""
    if type(content) is dict and "relabelled" in content:  # files of earlier versions have neither
        content = {"exchanged": np.zeros_like(content["relabelled"]), "notes": [], **content}
    counts = {"relabelled": "whole [chain]", "exchanged": "whole [chain]"}
    check(content, {"factors": dict, "settings": SETTINGS, "notes": ["text"], **counts}, where="the draws")
    settings, chains = content["settings"], content["settings"].chains
    if len(content["relabelled"]) != chains:
        refuse("relabelled", f"is not of {chains} chains")
    for name, factor in content["factors"].items():
        where = f"factors[{str(name)[:60]!r}]"
        check(factor, record(
            DrawnFactor, name="text", family=_family, plates=["text"], kept=_arrays, first=_arrays, second=_arrays,
            count="natural", stride="natural", origin=_arrays,
        ), where=where)  # fmt: skip
        if factor.name != name or type(factor.plates) is not tuple or factor.count != settings.n:
            refuse(where, "is not of this node, or of another number of draws")
        shape = np.shape(factor.first)
        if not shape or shape[0] not in (1, chains) or len(shape) < 1 + len(factor.plates):
            refuse(where, f"has averages of shape {list(shape)}")
        if np.shape(factor.second) not in ((1,), shape):
            refuse(where, f"has second moments of shape {list(np.shape(factor.second))} beside {list(shape)}")
        if factor.kept is not None and np.shape(factor.kept)[:2] != (chains, -(-settings.n // factor.stride)):
            refuse(where, f"has {list(np.shape(factor.kept)[:2])} draws")
    return Draws(content["factors"], settings, content["relabelled"], content["exchanged"], notes=content["notes"])


def drawn_rule(value: Any, sizes: Any, where: str) -> None:
    """The rule of a table: draws that are a part of a fit."""
    if type(value) is not dict:
        refuse(where, "is no draws")
    saved_draws(value)


def _family(value: Any, sizes: Any, where: str) -> None:
    if not isinstance(value, Family):
        refuse(where, "is no family")


def _arrays(value: Any, sizes: Any, where: str) -> None:
    """None, or finite numbers; their shapes are those of a network that is not there."""
    if value is not None:
        kind = "whole" if np.asarray(value).dtype.kind in "iu" else "real"
        check(value, f"{kind} {list(np.shape(value))}" if np.ndim(value) else kind, sizes, where)
