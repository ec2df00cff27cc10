"""A pytest plugin: what need not be collected is not, and what was collected is left alone by the garbage collector.

Each worker collects everything. Looking for examples in modules that have none takes seconds; so does looking through all that
was imported for garbage, over and over, while tests make and drop millions of small objects.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule

SOURCE = Path(__file__).resolve().parents[1] / "src"
# Python's own are 700 and 10: a collection of the youngest for every 700 objects more.
THRESHOLDS = 10_000, 20


def _has_examples(path: Path) -> bool:
    return path.suffix != ".py" or b">>> " in path.read_bytes()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Modules of natgrad are collected for their examples."""
    if collection_path.is_file() and collection_path.is_relative_to(SOURCE) and not _has_examples(collection_path):
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, Any, Any]:
    found = yield
    return [one for one in found if not isinstance(one, DoctestModule) or _has_examples(file_path)]


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
