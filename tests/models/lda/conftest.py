"""Little data take compiled loops here, too (tests/loops.py)."""

from loops import compiled_loops

__all__ = ["compiled_loops"]
