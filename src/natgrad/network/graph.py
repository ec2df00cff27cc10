"""Collect the nodes of a network from its leaves, and check them together."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch, UnreachedNode
from natgrad.network.language.columns import RecordedNode
from natgrad.network.language.expressions import Expression
from natgrad.network.language.nodes import Node

__all__ = ["check_plates", "check_roots", "collected", "warn_unreached"]


def check_roots(roots: Collection[Any]) -> None:
    """A network is made of nodes, not of nothing, names, lists or expressions."""
    if not roots:
        raise TypeError("Network needs the observed nodes: Network(y), or Network(y1, y2)")
    for node in roots:
        if not isinstance(node, (Node, RecordedNode)):
            hint = ": write Network(*nodes)" if isinstance(node, (list, tuple)) else ""
            hint = ": give the node, not its name" if isinstance(node, str) else hint
            given = f"the expression {node}" if isinstance(node, Expression) else type(node).__name__
            raise TypeError(f"Network takes nodes, got {given}{hint}")


def collected(roots: Iterable[Node]) -> dict[str, Node]:
    """Every ancestor, parents before children."""
    nodes: dict[str, Node] = {}
    met: dict[str, Node] = {}
    for root in roots:
        # A chain of nodes may be longer than Python's stack: what waits is kept in a list, not in calls.
        waiting = [(root, iter(root.parents()))]
        while waiting:
            node, parents = waiting[-1]
            if met.setdefault(node.name, node) is not node:
                raise ValueError(f"two different nodes are called {node.name!r}: give each node its own name")
            parent = None if node.name in nodes else next(parents, None)
            if parent is None:
                nodes.setdefault(node.name, node)
                waiting.pop()
            else:
                waiting.append((parent, iter(parent.parents())))
    return nodes


def check_plates(nodes: Iterable[Node]) -> None:
    """Plates of one name must be one plate."""
    seen: dict[str, Any] = {}
    for node in nodes:
        for plate in node.plates:
            other = seen.setdefault(plate.name, plate)
            if other.size != plate.size or not _same_weight(other.weight, plate.weight):
                what = (
                    f"of sizes {other.size} and {plate.size}" if other.size != plate.size else "with different weights"
                )
                raise PlateMismatch(
                    f"{node.name!r}: there are two plates called {plate.name!r}, {what}; use one Plate for both, or two names"
                )


def _same_weight(first: npt.NDArray[Any] | None, second: npt.NDArray[Any] | None) -> bool:
    return first is second or (first is not None and second is not None and np.array_equal(first, second))


def warn_unreached(nodes: dict[str, Node]) -> None:
    """A warning, where the network is made, for every hidden node that no data depend on."""
    reached: set[str] = set()
    for node in reversed(list(nodes.values())):
        if node.is_observed or node.has_evidence or node.name in reached:
            reached.update(parent.name for parent in node.parents())
    for name, node in nodes.items():
        if not (node.is_observed or node.has_evidence) and name not in reached:
            warnings.warn(
                f"{name!r} is hidden and has no path to data: its posterior will be its prior. Leave it out, or observe a "
                "node that depends on it",
                UnreachedNode,
                stacklevel=3,
            )
