"""Which parameters of a test the gate tries, and which only `make slow` does."""

from collections.abc import Iterable
from typing import Any

import pytest


def some_slow(values: Iterable[Any], fast: Iterable[Any]) -> list[Any]:
    """Parameters of a test: those in ``fast`` are tried by the gate, the others by `make slow`."""
    chosen = list(fast)
    return [value if value in chosen else pytest.param(value, marks=pytest.mark.slow) for value in values]


def some_rows_slow(rows: Iterable[tuple[Any, ...]], fast: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The same for a test with several parameters, which each row gives."""
    chosen = list(fast)
    return [row if row in chosen else pytest.param(*row, marks=pytest.mark.slow) for row in rows]
