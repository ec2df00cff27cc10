"""Check what users give: numbers are copied, and an error shows the first offending element or the argument that was meant."""

from __future__ import annotations

import difflib
import numbers
import operator
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.errors import PlateMismatch

__all__ = [
    "OnlyWhere",
    "as_index",
    "as_numbers",
    "as_observed",
    "check_counts",
    "check_precision",
    "check_unit",
    "checked_categories",
    "first",
    "hint_for",
    "is_masked",
    "is_missing",
    "is_precision",
    "is_sparse",
    "real_number",
    "refuse_masked",
    "require",
    "where",
    "whole_number",
    "with_mask",
]

CONTENTS = {
    "U": "strings",
    "S": "bytes",
    "c": "complex numbers",
    "M": "dates",
    "m": "time differences",
    "b": "booleans",
}
CONTENTS |= {"f": "floats", "O": "objects"}
OVERFLOW = "squares of larger ones overflow, so give the data in another unit"
# Sizes of numbers whose squares, and sums and ratios of them, are numbers.
LARGEST_VALUE, LEAST_VALUE, LARGEST_COUNT = 1e100, 1e-100, 1e15
LARGEST = np.iinfo(np.int64).max


def first(bad: Any) -> tuple[int, ...] | None:
    """The place of the first True; None if there is none. The place in a single number is ()."""
    if not np.asarray(bad).any():
        return None
    return tuple(int(i) for i in np.argwhere(bad)[0])


def is_sparse(value: Any) -> bool:
    """Whether it is a sparse matrix of SciPy; nobody has one unless ``scipy.sparse`` was imported, which takes a while."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(value))


def is_masked(value: Any) -> bool:
    """Whether it is a masked array; nobody has one unless ``numpy.ma`` was imported, which takes longer than a small fit."""
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(value, masked.MaskedArray)


def is_missing(cell: Any) -> bool:
    """Whether it is None, NaN, NaT or the NA of pandas."""
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, float) and cell != cell)


def with_mask(values: Any) -> Any:
    """The same values; a list of masked arrays as one, since NumPy would drop their masks."""
    if isinstance(values, (list, tuple)) and any(is_masked(part) for part in values):
        return np.ma.array(list(values))
    return values


def refuse_masked(values: Any, argument: str, why: str) -> None:
    """Refuse the first masked entry where none may be missing: NumPy would take the number below the mask."""
    values = with_mask(values)
    if is_masked(values) and np.ma.is_masked(values):
        raise ValueError(f"{argument}{where(first(np.ma.getmaskarray(values)))} is masked, {why}")


def where(place: tuple[int, ...] | None) -> str:
    """An element as one would index it: ``[3, 1]``; nothing for a single number."""
    return str(list(place)) if place else ""


def require(good: Any, array: npt.NDArray[Any], what: str, rule: str, hint: str = "") -> None:
    """Raise ValueError for the first element that is not good: ``what[3, 1] = −2 must be …``."""
    bad = ~np.asarray(good)
    if (place := first(bad)) is not None:
        more = f" ({int(bad.sum())} such)" if array.ndim else ""
        raise ValueError(f"{what}{where(place)} = {array[place]:g} must be {rule}{more}{hint}")


def check_unit(array: npt.NDArray[Any], what: str, stride: int = 1) -> None:
    """Refuse numbers whose squares overflow, and columns of which all squares vanish; NaN is nothing.

    Parameters
    ----------
    array : numbers [N] or [N, D]
    what : what they are called
    stride : how many rows of ``what`` one row of ``array`` stands for
    """
    if not array.size:
        return
    # Without a copy, which data that are mapped from a file may be too large for.
    ends = np.stack([np.fmin.reduce(array, axis=0), np.fmax.reduce(array, axis=0)]).astype(np.float64)
    largest = np.abs(ends).max(axis=0)
    if np.all((largest <= LARGEST_VALUE) & ((largest >= LEAST_VALUE) | (largest == 0))):
        return
    size = np.abs(np.where(np.isfinite(array), array, 0.0), dtype=np.float64)
    largest = size.max(axis=0)
    for bad, rule in (
        (size > LARGEST_VALUE, f"up to {LARGEST_VALUE:g}: squares of larger ones overflow"),
        (
            (size == largest) & (size > 0) & (largest < LEAST_VALUE),
            f"from {LEAST_VALUE:g} on: of smaller ones all squares vanish",
        ),
    ):
        if (place := first(bad)) is not None:
            shown = where((place[0] * stride, *place[1:]))
            raise ValueError(
                f"{what}{shown} = {array[place]:g}, and numbers can be computed with {rule}; give {what} in another unit"
            )


def check_counts(array: npt.NDArray[Any], what: str, stride: int = 1) -> None:
    """Refuse counts that are more than can be told apart."""
    if (place := first(array > LARGEST_COUNT)) is not None:
        shown = where((place[0] * stride, *place[1:]))
        raise ValueError(
            f"{what}{shown} = {array[place]:g}, and counts may be up to {LARGEST_COUNT:g}; count in another unit"
        )


def whole_number(value: Any, what: str, least: int = 1) -> int:
    """A whole number that is at least ``least``."""
    text = f"{what} must be a whole number ≥ {least}, got {value!r}"
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(text) from None
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(text)
    if number < least:
        raise ValueError(text)
    return number


def real_number(value: Any, what: str) -> float:
    """A single number; its range is the caller's business."""
    if type(value) is float:
        return value
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{what} must be a number, got {value!r}")
    return float(value)


def as_numbers(value: Any, what: str, wanted: str = "numbers", *, missing: bool = False) -> npt.NDArray[np.float64]:
    """Copy numbers as floats; refuse text, whatever it spells.

    Parameters
    ----------
    value : array_like
    what : name of the argument, for messages
    wanted : what would have been right, for messages
    missing : bool, default=False
        Whether entries may be missing: masked ones, None and NaN are NaN then, and infinities are left to the caller. Without,
        all must be finite.
    """
    if missing:
        value = with_mask(value)
        array = _copied(value, what, wanted, "").astype(np.float64)
        return np.where(np.ma.getmaskarray(value), np.nan, array) if is_masked(value) else array
    refuse_masked(value, what, "and only observed= may have missing values")
    array = _copied(value, what, wanted, "")
    if array.size == 0:
        raise ValueError(f"{what} is empty, shape {array.shape}")
    if not (small := np.abs(array) <= LARGEST_VALUE).all():  # nor is it where they are not finite
        require(np.isfinite(array), array, what, "finite")
        require(small, array, what, f"at most {LARGEST_VALUE:g} in size", f": {OVERFLOW}")
    return array.astype(np.float64, copy=False)


def as_observed(value: Any, what: str) -> npt.NDArray[Any]:
    """A copy of data, integers as int64 and all else as floats; masked entries and None become NaN."""
    hidden = np.ma.getmaskarray(value) if is_masked(value) else None
    array = _copied(value, what, "numbers", ": encode labels as integers, np.unique(labels, return_inverse=True)[1]")
    if hidden is not None and hidden.any():
        return np.where(hidden, np.nan, array.astype(np.float64))
    if array.dtype.kind == "f":
        return array.astype(np.float64, copy=False)
    return _signed(array, what, "whole numbers as large are floats: give observed=values.astype(float)")


def as_index(value: Any, what: str) -> npt.NDArray[np.int64]:
    """A copy of integers; whole-numbered floats are refused, because they often hide missing values."""
    hint = ": np.unique(ids, return_inverse=True)[1] numbers ids 0, 1, …"
    refuse_masked(value, what, "drop what has no element to read")
    if isinstance(value, slice) or value is Ellipsis:
        raise TypeError(f"{what} must be integers or a category, got {value!r}: only a whole plate can be written ':'")
    array = _copied(value, what, "integers", hint)
    if array.size == 0:
        raise ValueError(f"{what} is empty: give one integer for each element of the node that reads it")
    if array.dtype.kind not in "iu":
        lost = first(np.isnan(array)) if array.dtype.kind == "f" else None
        contents = CONTENTS[array.dtype.kind] + (f" with nan at {list(lost)}" if lost is not None else "")
        raise TypeError(f"{what} must be integers, got {contents}{hint}")
    return _signed(array, what, hint.removeprefix(": "))


def _signed(array: npt.NDArray[Any], what: str, hint: str) -> npt.NDArray[np.int64]:
    """Integers as int64; what does not fit would turn negative."""
    if array.dtype == np.uint64 and (place := first(array > np.uint64(LARGEST))) is not None:
        raise ValueError(f"{what}{where(place)} = {array[place]} is above 2⁶³ − 1, the largest integer: {hint}")
    return array.astype(np.int64, copy=False)


def _copied(value: Any, what: str, wanted: str, hint: str) -> npt.NDArray[Any]:
    """A copy of booleans, integers or floats; everything else is refused."""
    try:
        array = np.array(value)
    except ValueError:
        raise TypeError(f"{what} must be {wanted}, got rows of different lengths") from None
    except TypeError:
        raise TypeError(f"{what} must be {wanted}, got {_named(value)}") from None
    if array.dtype.kind == "O":
        array = _from_objects(array)
    if array.dtype.kind in "biuf":
        return array
    if hasattr(value, "toarray"):
        raise TypeError(f"{what} must be {wanted}, got a sparse matrix: give its .toarray()")
    if array.ndim == 0:
        listed = ": give list(…)" if isinstance(value, Iterator) else ""
        raise TypeError(f"{what} must be {wanted}, got {_named(value)}{listed}")
    contents = CONTENTS.get(array.dtype.kind, f"dtype {array.dtype}")
    if array.dtype.kind not in "USO":
        raise TypeError(f"{what} must be {wanted}, got {contents}")
    # As objects: of [1, "2"] NumPy makes two texts.
    entries = np.array(value, dtype=object)
    texts = {place: entry for place, entry in np.ndenumerate(entries) if isinstance(entry, (str, bytes))}
    such = next((f" such as {text!r} at {list(place)}" for place, text in texts.items()), "")
    if texts and all(map(_is_numeric, texts.values())):
        hint = ": these are numbers in quotes, np.asarray(values, dtype=float)"
    elif not texts:
        such = _first_that_is_no_number(entries)
    raise TypeError(f"{what} must be {wanted}, got {contents}{such}{hint}")


def _first_that_is_no_number(entries: npt.NDArray[Any]) -> str:
    """The first object that is no number, with its place and the reason."""
    for place, entry in np.ndenumerate(entries):
        try:
            float(entry)
        except (TypeError, ValueError) as reason:
            return f" such as {entry!r} at {list(place)} ({reason})"
    return ""


def _is_numeric(text: str | bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _from_objects(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Objects that are numbers, as floats: Decimals, a table's nullable columns, None for a missing entry."""
    if array.ndim == 0 or any(isinstance(entry, (str, bytes, complex)) for entry in array.flat):
        return array
    try:
        return np.array([np.nan if is_missing(entry) else float(entry) for entry in array.flat]).reshape(array.shape)
    except (TypeError, ValueError):
        return array


def _named(value: Any) -> str:
    return repr(value) if value is None or isinstance(value, (str, bytes)) else type(value).__name__


class OnlyWhere:
    """Decorate a method that an estimator has with some settings only; without them it is missing, and the error says why.

    Examples
    --------
    >>> class Model:
    ...     scale = None
    ...
    ...     @OnlyWhere(lambda model: model.scale is not None, "needs scale=")
    ...     def levels(self):
    ...         return [self.scale]
    >>> Model().levels
    Traceback (most recent call last):
        ...
    AttributeError: levels needs scale=
    """

    def __init__(self, condition: Callable[[Any], bool], reason: str) -> None:
        self.condition, self.reason = condition, reason

    def __call__(self, method: Callable[..., Any]) -> Any:
        self.method = method
        return self

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self.method
        if not self.condition(instance):
            name = self.method.__name__
            raise AttributeError(f"{name} {self.reason}", name=name, obj=instance)
        return self.method.__get__(instance, owner)


# Names that other libraries have for settings of ours; of several, the first that a function has.
HABITS = {
    "covariance_type": ("covariance",),
    "doc_topic_prior": ("doc_prior",),
    "max_step": ("max_steps", "max_passes"),
    "max_steps": ("max_passes",),
    "n_clusters": ("n_components", "n_states"),
    "n_mix": ("n_components",),
    "num_topics": ("n_topics",),
    "progress": ("verbose",),
    "random_state": ("seed",),
    "startprob_prior": ("transitions",),
    "topic_word_prior": ("topic_prior",),
    "transmat_prior": ("transitions",),
    "weight_concentration_prior": ("weight_prior",),
    **dict.fromkeys(
        ("n_iter", "num_iter", "max_iter", "maxiter", "iterations", "epochs", "n_epochs", "num_steps", "repeat"),
        ("max_steps", "max_passes"),
    ),
}
# Settings that some models have, and what to do where one has not.
ONE_PROCESS = {
    "n_jobs": "the threads of its fit are not chosen. Leave it out; several fits in processes of their own use several cores",
    "executor": "this process computes its fit. Leave it out; rows beyond memory can be those of a file or a stream",
}


def hint_for(name: str, known: Collection[str]) -> str:
    """What to do about an argument that there is not, after a colon; nothing if none of the ``known`` ones is near it.

    Examples
    --------
    >>> hint_for("n_iter", ["max_steps", "seed"]), hint_for("sead", ["max_steps", "seed"])
    (': did you mean max_steps=?', ': did you mean seed=?')
    """
    near = [new for new in HABITS.get(name, ()) if new in known]
    if not near and name in ONE_PROCESS:
        return f": {ONE_PROCESS[name]}"
    near = near or difflib.get_close_matches(name, list(known), 1)
    return f": did you mean {near[0]}=?" if near else ""


def check_precision(what: str, array: npt.NDArray[Any], semidefinite: bool = False) -> None:
    """Symmetric and positive definite (or semidefinite), with the first matrix that is not."""
    if array.ndim < 2 or array.shape[-1] != array.shape[-2]:
        raise PlateMismatch(
            f"{what} must be a square matrix, got shape {array.shape}; for a diagonal one numpy.diag(values)"
        )
    mirrored = np.swapaxes(array, -1, -2)
    if (place := first(np.abs(array - mirrored) > 1e-8 + 1e-5 * np.abs(mirrored))) is not None:
        raise ValueError(
            f"{what} must be symmetric, but its element {where(place)} = {array[place]:g} and "
            f"{where((*place[:-2], place[-1], place[-2]))} = {mirrored[place]:g}: use (m + m.T) / 2"
        )
    smallest = np.asarray(np.linalg.eigvalsh(array)[..., 0])
    # A matrix of low rank has eigenvalues that are zero to rounding.
    floor = -1e-12 * np.abs(array).max(axis=(-1, -2))
    if (place := first(smallest < floor if semidefinite else smallest <= 0)) is not None:
        raise ValueError(
            f"{what}{where(place)} must be positive {'semi' * semidefinite}definite, but its smallest eigenvalue is "
            f"{smallest[place]:g}"
        )


def is_precision(array: npt.NDArray[np.float64]) -> bool:
    """Whether numbers that are not all positive are a precision matrix: ``tau * np.eye(3)``."""
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or bool((array > 0).all()):
        return False
    return np.allclose(array, np.swapaxes(array, -1, -2)) and bool((np.linalg.eigvalsh(array) > 0).all())


def checked_categories(
    what: str, value: npt.NDArray[Any], size: int, present: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Integer categories 0 … size − 1, with the first offender named."""
    value = np.where(present, value, 0)
    if (place := first(value != np.round(value))) is not None:
        raise ValueError(f"{what}{where(place)} = {value[place]:g}, but categories are whole numbers 0 … {size - 1}")
    outside = (value < 0) | (value >= size)
    if (place := first(outside)) is not None:
        more = f" ({int(outside.sum())} such)" if value.ndim else ""
        raise ValueError(f"{what}{where(place)} = {value[place]:g} is outside the categories 0 … {size - 1}{more}")
    return value.astype(np.int64)
