"""The classes of declared networks that model files and checkpoints may hold, each under a name that stays for good."""

from __future__ import annotations

from natgrad.network.groups.memoised import Remembered
from natgrad.network.language.plates import Plate
from natgrad.posterior.files.records import register

__all__: list[str] = []

register(Remembered, "memory.MemoisedNetwork")
register(Plate, None, lambda plate: {"name": plate.name, "size": plate.size, "weight": plate.weight})
