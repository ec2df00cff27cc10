"""What users fit: the ready models, a folder each. `natgrad.models.hmm` has names of its own."""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """The one namespace among the folders."""
    if name != "hmm":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("natgrad.models.hmm")
