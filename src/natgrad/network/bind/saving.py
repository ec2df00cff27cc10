"""What a fit knows of its data, as a file holds it: the declaration and the levels; no rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from natgrad.inference.schema import check, refuse
from natgrad.network.bind.bound import Binding
from natgrad.network.bind.build import Domain
from natgrad.network.bind.checking import check_makes
from natgrad.network.bind.declaration import from_data, to_data
from natgrad.network.bind.levels import Levels
from natgrad.network.bind.template import Template, made_parents
from natgrad.network.compile.joint_factors import Member, groups_of
from natgrad.posterior.factor import Factor

__all__ = ["binding_from_data", "binding_to_data"]

TABLE: dict[str, Any] = {"network": dict, "levels": dict, "categories": dict}


def binding_to_data(binding: Binding) -> dict[str, Any]:
    """The declaration and the levels of a fit."""
    levels, categories = binding.domain
    return {
        "network": to_data(binding.template),
        "levels": {plate: part.ids for plate, part in levels.items()},
        "categories": {column: part.ids for column, part in categories.items()},
    }


def binding_from_data(
    data: Any,
    factors: Mapping[str, Factor],
    auxiliary: Collection[str] = (),
    members: Mapping[str, Member] | None = None,
) -> Binding:
    """The declaration and the levels from a file; what does not fit to the factors, and their members, is refused."""
    check(data, TABLE, where="the declaration")
    template = from_data(data["network"])
    domain = Domain(
        *({str(key): _levels(key, ids) for key, ids in data[part].items()} for part in TABLE if part != "network")
    )
    for plate in template.level_plates:
        if plate not in domain.levels:
            refuse("the declaration", f"has no levels of plate {plate!r}")
    members = members or {}
    own = {name: Factor(name, m.family, factors[m.joint].plates, factors[m.joint].lam) for name, m in members.items()}
    joint = {member.joint for member in members.values()}
    for factor in (*factors.values(), *own.values()):
        for size, plate in zip(factor.lam[0].shape, factor.plates, strict=False):
            if plate in domain.levels and len(domain.levels[plate]) != size:
                refuse(
                    f"plate {plate!r}",
                    f"has {len(domain.levels[plate])} levels, and {factor.name!r} has {size} of them",
                )
        node = template.nodes.get(factor.name)
        declared = () if node is None else tuple(plate.name for plate in node.plates)
        # A path is one element: its time is no plate of its factor.
        if node is not None and declared[: len(factor.plates)] != factor.plates:
            refuse(f"factors[{factor.name!r}]", "is on other plates than the node that is declared")
    if not template.observed():
        refuse("the declaration", "observes no column")
    try:
        check_makes(template, domain, data["network"]["nodes"])
    except (TypeError, ValueError, ArithmeticError) as error:  # a number of 400 digits is no float
        refuse("the declaration", f"cannot be made: {error}")
    for group in groups_of(template.joint, members):
        if {members[name].joint if name in members else None for name in group} != {"+".join(group)}:
            refuse("the declaration", f"has {'+'.join(group)[:60]!r} in one factor, which is not there")
    _check_names(template, [*(name for name in factors if name not in joint), *own], auxiliary)
    return Binding(template, domain)


def _check_names(template: Template, factors: Collection[str], auxiliary: Collection[str]) -> None:
    """Every factor is of a node that is declared, and every node that is not along rows has one."""
    known = {*template.nodes, *made_parents(template), *auxiliary}
    for name in factors:
        if name not in known:
            refuse(f"factors[{name!r}]", "is of a node that is not declared")
    for name, node in template.nodes.items():
        if name not in factors and name not in template.row_plates and not node.is_observed:
            refuse(f"factors[{name!r}]", "is not there, and the node is declared")


def _levels(name: Any, ids: Any) -> Levels:
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or not len(ids):
        refuse(f"the levels of {str(name)[:60]!r}", "are no list of ids")
    if len(set(ids.tolist())) < len(ids):
        refuse(f"the levels of {str(name)[:60]!r}", "are not all different")
    return Levels(ids)
