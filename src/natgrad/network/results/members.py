"""Nodes that share a factor, in a file: entries in, the place of each node in its factor out; an error if they do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from natgrad import families
from natgrad.families import Family
from natgrad.inference.schema import check, refuse
from natgrad.network.compile.joint_factors import PRECISIONS, Member
from natgrad.posterior.factor import Factor

__all__ = ["check_member", "members_of"]

MEMBER = {"joint": "text", "begin": "whole", "size": "none | natural", "family": "text"}
LAWS: dict[str, Family] = {
    law.name: law for law in (families.Normal(), families.MultivariateNormal(), families.Gamma(), families.Wishart())
}
# Which laws nodes may have that share a factor of this one.
PARTS = {
    "MultivariateNormal": ("Normal", "MultivariateNormal"),
    "GaussianGamma": ("Normal", "MultivariateNormal", "Gamma"),
    "NormalWishart": ("MultivariateNormal", "Wishart"),
}


def members_of(entries: Mapping[str, Any], factors: Mapping[str, Factor]) -> dict[str, Member]:
    """Where each node is in its factor; ``entries`` are checked."""
    return {
        name: Member(
            entry["joint"], entry["begin"], entry["size"], LAWS[entry["family"]], factors[entry["joint"]].family
        )
        for name, entry in entries.items()
    }


def check_member(name: Any, entry: Any, factors: Mapping[str, Factor]) -> None:
    """A node that shares a factor with others is a part of a vector that is there."""
    check(name, "text", where="the name of a node")
    check(entry, MEMBER, where=f"members[{name!r}]")
    joint = factors.get(entry["joint"])
    if name in factors or joint is None or entry["family"] not in PARTS.get(joint.family.name, ()):
        refuse(f"members[{name!r}]", "is no part of a factor")
    if (entry["family"] in ("Normal", "Gamma")) != (entry["size"] is None):
        refuse(f"members[{name!r}]", f"is a {entry['family']} of size {entry['size']}")
    precision, total = entry["family"] in PRECISIONS, np.shape(joint.lam[0])[-1]
    end = entry["begin"] if precision else entry["begin"] + (entry["size"] or 1)
    if end > total or (precision and end != total) or (joint.family.name == "NormalWishart" and entry["size"] != total):
        refuse(f"members[{name!r}]", f"lies outside the factor {entry['joint']!r}")
