"""What a model file keeps of several tracks: the tables of their blocks, made from what the tracks are said to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from natgrad.inference.schema import Sizes, check, like, refuse
from natgrad.models.hmm.files import KINDS, SHAPES, family_of, tied_natural
from natgrad.models.hmm.general import declared_emissions
from natgrad.models.hmm.kinds import EmissionKind

__all__ = ["check_emissions", "tracks_table"]

TRACK = {
    "name": "text",
    "columns": "whole list [_]",
    "kind": " | ".join(f"'{kind}'" for kind in KINDS),
    "arguments": dict,
    "n_components": "whole in [1, 1e6]",
    "weight_prior": "positive",
    "dof": "none | positive",
}


def checked_tracks(arguments: Any) -> list[Mapping[str, Any]]:
    """What tracks are made of, as far as tables of their blocks need it."""
    check(arguments, {"n_states": "natural", "tracks": [TRACK]}, where="fitted['arguments']")
    return list(arguments["tracks"])


def tracks_table(tracks: list[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], Any]:
    """Tables of λ of the blocks and of messages to them; families of blocks that no rule names; the table of the arguments."""
    blocks: dict[str, Any] = {}
    said: dict[str, Any] = {}
    tied: dict[str, Any] = {}
    each = []
    for number, track in enumerate(tracks):
        name, m, kind = track["name"], track["n_components"], track["kind"]
        sizes = {size: f"{size}{number}" for size in ("column", "category", "regressor")}
        own = {key: _renamed(rule, sizes) for key, rule in KINDS[kind].arguments.items()}
        own["n_states"] = _leaves(m)
        if kind == "TiedGaussians" and m > 1:
            refuse("fitted['arguments']", "has components that share one precision with other states")
        if kind in SHAPES:
            shapes = tuple(_renamed(shape, sizes) for shape in SHAPES[kind])
            if m > 1:
                shapes = tuple(shape.replace("[state", f"[state, component{number}") for shape in shapes)
            blocks[name], said[name] = tied_natural(kind, shapes), shapes
            tied[name] = family_of(kind)
        else:
            rule = _renamed(KINDS[kind].family, sizes)
            rule = rule.replace("[state", f"[state, component{number}") if m > 1 else rule
            blocks[name], said[name] = rule, like(rule)
        if m > 1:
            weights = f"{name}_weights"
            if weights in blocks:
                refuse("fitted['arguments']", f"has two blocks called {weights!r}")
            blocks[weights] = f"Dirichlet [state; component{number}]"
            said[weights] = like(blocks[weights])
        each.append({**TRACK, "arguments": own, "columns": f"whole list [column{number}]", "n_components": _same(m)})
    if len(blocks) != sum(1 + (track["n_components"] > 1) for track in tracks):
        refuse("fitted['arguments']", "has two tracks of the same name")
    return blocks, said, tied, {"n_states": "size state", "tracks": tuple_like(each)}


def check_emissions(value: Any, tracks: list[Mapping[str, Any]] | None, emission: str, width: int) -> None:
    """Refuse a setting ``emissions`` that is not what was fitted."""
    where = "settings['emissions']"
    try:
        named = declared_emissions(value, width)
    except (TypeError, ValueError) as reason:
        refuse(where, f"does not fit the columns: {reason}")
    if tracks is None:
        if isinstance(value, Mapping) or not named[0][2].plain or named[0][2].kind != emission:
            refuse(where, f"is not of the fitted {emission}")
        return
    if [(name, list(columns)) for name, columns, _ in named] != [(t["name"], list(t["columns"])) for t in tracks]:
        refuse(where, "names other columns than the fitted emissions")
    for (name, _, kind), track in zip(named, tracks, strict=True):
        if not _agrees(kind, track):
            refuse(where, f"[{name!r}] is not what was fitted")


def _agrees(kind: EmissionKind, track: Mapping[str, Any]) -> bool:
    extras = {"n_components": 1, "dof": None, **kind.extras()}
    return kind.kind == track["kind"] and all(extras[key] == track[key] for key in ("n_components", "dof"))


def tuple_like(rules: list[Any]) -> Callable[[Any, Sizes, str], None]:
    """A list with a table for each of its parts."""

    def of(value: Any, sizes: Sizes, where: str) -> None:
        for place, (part, rule) in enumerate(zip(value, rules, strict=True)):
            check(part, rule, sizes, f"{where}[{place}]")

    return of


def _renamed(rule: Any, sizes: Mapping[str, str]) -> Any:
    if isinstance(rule, str):
        for name, own in sizes.items():
            rule = rule.replace(name, own)
    return rule


def _leaves(m: int) -> Callable[[Any, Sizes, str], None]:
    """K · m, whole."""

    def of(value: Any, sizes: Sizes, where: str) -> None:
        check(value, "natural", sizes, where)
        if "state" in sizes and value != sizes["state"] * m:
            refuse(where, f"= {value!r} is not {m} for each of {sizes['state']} states")

    return of


def _same(m: int) -> Callable[[Any, Sizes, str], None]:
    return lambda value, sizes, where: None if value == m else refuse(where, f"= {value!r} is not {m}")
