"""The classes of declared networks that model files and checkpoints may hold, each under a name that stays for good."""

from __future__ import annotations

from typing import Any, NamedTuple

from natgrad.network.language.plates import Plate
from natgrad.posterior.files.container import register

__all__ = ["FormerMemory"]


class FormerMemory(NamedTuple):
    """What memoised VB remembered before 0.2; a file with it loads, and a fit that goes on from it remembers anew."""

    cut: Any
    stats: Any
    entropy: Any
    rows: Any


register(FormerMemory, "memory.MemoisedNetwork")
register(Plate, None, lambda plate: {"name": plate.name, "size": plate.size, "weight": plate.weight})
