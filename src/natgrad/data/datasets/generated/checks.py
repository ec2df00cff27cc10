"""Sizes and shares of generated data in; the same out, or an error that says which was wrong."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["check_shares", "check_sizes"]


def check_sizes(sizes: Mapping[str, int], least: int = 1) -> None:
    """Whole numbers of at least ``least``."""
    for name, value in sizes.items():
        if value != int(value) or value < least:
            raise ValueError(f"{name} must be a whole number ≥ {least}, got {value!r}")


def check_shares(shares: Mapping[str, float], *, open_ends: bool = False) -> None:
    """Numbers in [0, 1], or strictly between."""
    for name, value in shares.items():
        if not (0.0 < value < 1.0 if open_ends else 0.0 <= value <= 1.0):
            raise ValueError(
                f"{name} must lie {'strictly between 0 and 1' if open_ends else 'in [0, 1]'}, got {value!r}"
            )
