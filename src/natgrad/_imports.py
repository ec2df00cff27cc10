"""The collector of cyclic garbage, while many modules are imported.

An import makes tens of thousands of objects that stay, and no garbage. Collected as they come, they leave the collector
on the edge of a full collection, which then happens in the first fit and takes longer than most of those. So it pauses, and goes
through the new objects once at the end; what a program had before is not looked at.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["paused_collector"]


@contextmanager
def paused_collector() -> Iterator[None]:
    """No collection inside, and one of the young objects at the end, if there would be any."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
        gc.collect(1)
    finally:
        gc.enable()
