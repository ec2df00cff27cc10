"""A plan in, a hash of all that is in it out: what the functions of its problem are made of, besides natgrad's own code.

The hash goes over the plan as it is pickled, with every number of its data and its declaration: whatever tracing a function
could read is in there. So two plans with one hash have the same programs, whichever decisions those took.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from natgrad.network.compile.plan import Plan

__all__ = ["plan_hash", "source_of"]


# Functions that are made of the plan, their key and the code of `network.execute` and `families` alone.
OF_THE_PLAN = ("sweep", "sweeps", "bound", "moments", "prior", "advance")


def source_of(plan: Callable[[], str | None], key: Any) -> str | None:
    """What the function with a key is made of, given the hash of its plan; None if it may be made of more than that."""
    kind = key[0] if isinstance(key, tuple) else key
    if kind not in OF_THE_PLAN or not _is_plain(key):
        return None
    found = plan()
    return None if found is None else f"{found}\n{key!r}"


def plan_hash(plan: Plan) -> str | None:
    """The hash of a plan; None where a class of its nodes is not natgrad's own, whose code is in no file that is looked at."""
    objects = (*plan.nodes.values(), *plan.declared.values(), *(block.family for block in plan.blocks.values()))
    if not all(type(entry).__module__.startswith("natgrad.") for entry in objects):
        return None
    sink = _Sink()
    try:
        # Its fields alone, sets in order: what else it remembers follows from them, and would differ from run to run.
        parts = [getattr(plan, entry.name) for entry in fields(plan)]
        content = [sorted(part) if isinstance(part, frozenset) else part for part in parts]
        pickle.Pickler(sink, protocol=5, buffer_callback=sink.buffer).dump(content)
    except Exception:  # something in it cannot be pickled: then its programs are known by their text alone
        return None
    return sink.hash.hexdigest()


def _is_plain(key: Any) -> bool:
    """Whether a key is made of names and numbers, so that two that are written alike are equal."""
    if isinstance(key, tuple):
        return all(map(_is_plain, key))
    return key is None or type(key) in (str, int, bool)


class _Sink:
    """A file that keeps nothing but a hash: a pickle of large data is never there as a whole."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()

    def write(self, part: Any) -> int:
        """A piece of the pickle."""
        self.hash.update(part)
        return len(part)

    def buffer(self, part: pickle.PickleBuffer) -> None:
        """An array that lies in one piece; None says that it is taken."""
        raw = part.raw()
        self.hash.update(b"%d bytes" % raw.nbytes)
        self.hash.update(raw)
