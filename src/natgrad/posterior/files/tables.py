"""Tables that the files of all models share: the settings of a run, and what methods remember from step to step.

A method that remembers something else gets a line here, and its record one in `natgrad.posterior.files.container`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from natgrad.inference.auto import Auto
from natgrad.inference.methods import SVI, VB, Children, GlobalBatch
from natgrad.inference.problem import GroupProblem
from natgrad.inference.schema import LARGEST, check, either, record, refuse, state_of
from natgrad.inference.steppers.groups import BatchMemory, GroupMemory, check_shapes
from natgrad.inference.steppers.sweep import History, Snapshot
from natgrad.posterior.factor import Factor

__all__ = ["METHOD", "RUN", "STEP", "check_origin", "check_seen", "check_sums", "group_state", "groups_of", "memory_of"]

Sizes = dict[str, int]
# Sums that were exchanged for many passes differ by rounding from sums that are made again.
ROUNDING = 1e-9


def _stored_method(value: Any, sizes: Sizes, where: str) -> None:
    """A method of ours with numbers in it; a function cannot come from a file."""
    if value is not None and not isinstance(value, (VB, Children, GlobalBatch, SVI)):
        refuse(where, f"is no method but a {type(value).__name__}")
    if isinstance(value, Children):
        check(value.C, "positive", sizes, f"{where}.C")


def _stored_step(value: Any, sizes: Sizes, where: str) -> None:
    """A step of ours, or one whose class the program itself has registered."""
    if value is not None and not isinstance(value, Auto) and not callable(getattr(value, "rate", None)):
        refuse(where, f"is no step but a {type(value).__name__}")


# The settings of a run that every model has, as a file may hold them. Who computes (``executor``) is no part of a model: no table
# has it, so no file can name a machine, a path or a function.
METHOD, STEP = _stored_method, _stored_step
RUN: dict[str, Any] = {
    "method": METHOD,
    "step": STEP,
    "tol": "nonnegative",
    "seed": "whole",
    "n_jobs": "none | whole in [1, 65536]",
    "verbose": "none | flag",
}


def memory_of(points: Mapping[str, Any], whole: Any) -> dict[str, Any]:
    """The table of what exact and guarded steps remember.

    Parameters
    ----------
    points : {block: table of its coordinates}: the mean of a Gaussian, otherwise natural parameters
    whole : the table of (λ, μ) of all blocks
    """
    point = {f"{name}?": rule for name, rule in points.items()}
    checks = {"bound": "float", "checks": "whole", "passes": "nonnegative", "use_rotation": "flag"}
    return {
        "accelerated?": record(
            History, bound="float", start=point, end=point, before=either("none", point),
            age="real in [-1, 1e15]", use_rotation="flag", rest="whole in [0, 1000]", failures="whole in [0, 1e5]",
        ),
        "safeguard?": _both(record(Snapshot, damping="share", **checks), whole),
        "live?": whole,
    }  # fmt: skip


CUT = either("none", ("text", "natural", "whole"))


def groups_of(said: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    """The table of what memoised groups remember.

    Parameters
    ----------
    said : {block: table of the messages of a batch}
    rows : the table of the local variables of a batch
    """

    def of(value: Any, sizes: Sizes, where: str) -> None:
        record(GroupMemory, rest="real", batches=[either("none", BatchMemory)], cut=CUT)(value, sizes, where)
        seen = [kept for kept in value.batches if kept is not None]
        # Of a single batch only the sums are kept.
        own = {} if len(value.batches) == 1 else dict(said)
        check(value.messages, dict(said) if seen else {}, sizes, f"{where}.messages")
        for number, kept in enumerate(seen):
            record(BatchMemory, rows=rows, messages=own, rest="real")(kept, sizes, f"{where}.batches[{number}]")
        check_sums(value, where)

    return {"groups?": of, "before?": {name: part for name, part in said.items() if name != "theta"}}


def group_state(problem: GroupProblem) -> Any:
    """The table of a state whose groups remember nothing of themselves: λ of each block at its shape, and what batches say."""
    shapes = {name: [part.shape for part in problem.full_prior(name)] for name in problem.blocks}

    def natural(name: str) -> Any:
        family = problem.blocks[name].family

        def of(value: Any, sizes: Sizes, where: str) -> None:
            check(
                value, tuple(f"real {list(shape)} in [-{LARGEST}, {LARGEST}]" for shape in shapes[name]), sizes, where
            )
            for place, part in enumerate(value):
                off = np.abs(part - np.swapaxes(part, -1, -2)).max(initial=0.0) if family.symmetric[place] else 0.0
                if part.dtype != np.float64 or not off <= 1e-6 * np.abs(part).max(initial=0.0):
                    refuse(f"{where}[{place}]", "must be of double precision, and symmetric if it is a matrix")
            if not np.all(family.valid(value)):
                refuse(where, f"is outside the natural parameters of a {family.name}")

        return of

    said = {name: tuple(f"real {list(shape)}" for shape in own) for name, own in shapes.items()}
    return state_of(
        {name: natural(name) for name in shapes},
        memory=groups_of(said, ()),
        moments=lambda name, lam: problem.moments(problem.blocks[name], lam),
    )


def check_sums(value: GroupMemory, where: str) -> None:
    """Batches are taken out of the sums and put back, so that a wrong sum would never be noticed."""
    if len(value.batches) == 1:  # only the sums are kept, and the next step replaces them
        return
    seen = [kept for kept in value.batches if kept is not None]
    for number, kept in enumerate(seen):
        check_shapes(kept, value, f"{where}.batches[{number}]")
    sums = {
        f"{where}.messages[{name!r}][{place}]": (total, [kept.messages[name][place] for kept in seen])
        for name, parts in value.messages.items()
        for place, total in enumerate(parts)
    }
    sums[f"{where}.rest"] = value.rest, [kept.rest for kept in seen]
    for what, (total, parts) in sums.items():
        wanted = sum(np.asarray(part, np.float64) for part in parts)
        size = sum(np.abs(part, dtype=np.float64) for part in parts)
        if not np.all(np.abs(total - wanted) <= ROUNDING * (size + np.max(size, initial=0.0))):
            refuse(what, "is not the sum over its batches")


def _both(own: Any, whole: Any) -> Any:
    """A record, with λ and μ in it that belong together."""

    def of(value: Any, sizes: Sizes, where: str) -> None:
        own(value, sizes, where)
        check((value.lam, value.mu), whole, sizes, where)

    return of


def check_origin(factor: Factor, where: str) -> None:
    """A location is measured from a point of its own kind."""
    if factor.origin is None:
        return
    if not hasattr(factor.family, "shifted"):
        refuse(where, f"is a {factor.family.name}, which is measured from zero")
    check(factor.origin, f"real {list(np.shape(factor.origin))} in [-1e300, 1e300]", where=f"{where}.origin")
    shape = np.shape(factor.lam[0])
    if factor.family.event_ndim > np.ndim(factor.origin) or (
        np.broadcast_shapes(np.shape(factor.family.location(factor.origin)), shape) != shape
    ):
        refuse(where, f"is measured from a point of shape {list(np.shape(factor.origin))}, and has shape {list(shape)}")


def check_seen(factor: Factor, plates: tuple[int, ...], where: str) -> None:
    """What was observed of a node that is hidden in part: values for its elements, and which of them count."""
    if factor.seen is None and factor.values is None:
        return
    shape = [] if factor.values is None else list(np.shape(factor.values))
    if (
        factor.seen is None
        or factor.values is None
        or np.asarray(factor.seen).dtype != bool
        or list(np.shape(factor.seen)) != shape
    ):
        refuse(where, "does not say which of its values were observed")
    if tuple(shape[: len(plates)]) != plates or len(shape) != len(plates) + factor.family.event_ndim:
        refuse(where, f"has observed values of shape {shape} on plates of sizes {list(plates)}")
    check(factor.values, f"real {shape}", where=f"{where}.values")
