"""What a problem of groups adds to have draws: local variables that are drawn where the globals are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from natgrad.inference.state import Block, State

__all__ = ["GroupDraw", "GroupSampler"]

Stats = tuple[Any, ...]


class GroupDraw(NamedTuple):
    """Local variables of all groups, drawn: what they tell the globals, their values, and their probabilities if asked for."""

    messages: Mapping[str, Stats]
    values: Mapping[str, Any]
    chances: Mapping[str, Any]


class GroupSampler(Protocol):
    """Draws the local variables of a problem whose globals are known, for Gibbs sampling.

    ``local_blocks`` are these variables, categories of ``n_labels`` each; ``exchangeable`` says that labels mean nothing.
    """

    local_blocks: Mapping[str, Block]
    n_labels: int
    exchangeable: bool

    def draw(self, state: State, rng: np.random.Generator, chances: bool) -> GroupDraw:
        """Values given globals whose statistics are the state's moments; ``chances``: probabilities are wanted, if at hand."""
        ...

    def probabilities(self, state: State, most: int) -> Mapping[str, Any]:
        """{local block: [n, K] under q}, of the first ``most`` elements."""
        ...

    def renumbered_message(self, name: str, message: Stats, order: Any) -> Stats:
        """What is told a global block, with the labels in another order."""
        ...
