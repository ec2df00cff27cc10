"""Rows of inputs and outputs in; batches by number, and pieces in order, out. Arrays, memory maps, Parquet files, iterators.

What is in memory or mapped is read where it lies. A Parquet file and an iterator of chunks are written once to a temporary
file of float64 numbers, so that rows can be drawn at random and read again, whatever their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.frames import frame_columns
from natgrad.data.io.npy import spill
from natgrad.data.io.parquet import ParquetTable
from natgrad.validation import as_numbers, check_unit, refuse_masked, require

__all__ = [
    "Rows",
    "Scaling",
    "checked_arrays",
    "joined_pairs",
    "open_rows",
    "rows_of_arrays",
    "validated",
    "validated_with_gaps",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Rows read at once when all of them are.
PIECE = 8192
# Demands of `validate_data` that a plain array of the right shape meets anyway.
NUMBERS = {np.dtype(kind).str for kind in ("f4", "f8", "i4", "i8")}
PLAIN_CHECKS = {"dtype", "order", "multi_output", "y_numeric"}


class Scaling(NamedTuple):
    """Means and standard deviations that standardise columns; a constant column has deviation one."""

    mean: Floats
    sd: Floats

    def apply(self, a: Floats) -> Floats:
        """(a − mean)/sd."""
        return np.ascontiguousarray((a - self.mean) / self.sd)

    def undo(self, a: Floats) -> Floats:
        """The inverse of `apply`."""
        return np.asarray(a * self.sd + self.mean)

    @classmethod
    def none(cls, width: int) -> Scaling:
        """Nothing is changed."""
        return cls(np.zeros(width), np.ones(width))


class Rows:
    """Inputs [N, D] and outputs [N, P], standardised as they are read.

    Parameters
    ----------
    x, y : arrays or memory maps [N, D], [N, P]
    x_scaling, y_scaling : Scaling, optional
    chosen : ints, optional
        Which rows there are; by default all.
    """

    def __init__(
        self,
        x: npt.NDArray[Any],
        y: npt.NDArray[Any],
        x_scaling: Scaling | None = None,
        y_scaling: Scaling | None = None,
        chosen: Ints | None = None,
    ) -> None:
        self._x, self._y, self._chosen = x, y, chosen
        self.x_scaling = Scaling.none(x.shape[1]) if x_scaling is None else x_scaling
        self.y_scaling = Scaling.none(y.shape[1]) if y_scaling is None else y_scaling

    def __len__(self) -> int:
        return len(self._x) if self._chosen is None else len(self._chosen)

    @property
    def n_columns(self) -> int:
        """D."""
        return int(self._x.shape[1])

    @property
    def n_outputs(self) -> int:
        """P."""
        return int(self._y.shape[1])

    @cached_property
    def n_seen(self) -> Ints:
        """How many numbers there are of each output [P]; the others are missing."""
        seen = (np.count_nonzero(~np.isnan(y), axis=0) for _, y in self.pieces())
        return np.asarray(sum(seen, start=np.zeros(self.n_outputs, np.int64)))

    @cached_property
    def gaps(self) -> bool:
        """Whether any entry of several outputs is missing, NaN."""
        return self.n_outputs > 1 and bool((self.n_seen < len(self)).any())

    @property
    def inputs(self) -> npt.NDArray[Any]:
        """All inputs as they lie, not standardised."""
        return self._x

    @property
    def outputs(self) -> npt.NDArray[Any]:
        """All outputs as they lie, not standardised."""
        return self._y

    def take(self, numbers: Ints | None) -> tuple[Floats, Floats]:
        """Some rows, or all of them."""
        if numbers is None:
            numbers = np.arange(len(self))
        where = numbers if self._chosen is None else self._chosen[numbers]
        return self._scaled(self._x[where], self._y[where])

    def pieces(self, size: int = PIECE) -> Iterator[tuple[Floats, Floats]]:
        """All rows in order, so many at a time."""
        for begin in range(0, len(self), size):
            if self._chosen is None:
                yield self._scaled(self._x[begin : begin + size], self._y[begin : begin + size])
            else:
                yield self.take(np.arange(begin, min(begin + size, len(self))))

    def standardised(self, outputs: bool) -> Rows:
        """The same rows with columns of mean 0 and variance 1; constant columns are only centred."""
        none = Scaling.none(self.n_columns), Scaling.none(self.n_outputs)
        x, y = _moments(self.scaled_by(*none).pieces())
        return self.scaled_by(x, y if outputs else none[1])

    def scaled_by(self, x_scaling: Scaling, y_scaling: Scaling) -> Rows:
        """The same rows with other scales."""
        return Rows(self._x, self._y, x_scaling, y_scaling, self._chosen)

    def split(self, share: float, rng: np.random.Generator) -> tuple[Rows, Rows]:
        """The rows but a random share, and that share."""
        n_out = max(1, round(share * len(self)))
        out = np.zeros(len(self), bool)
        out[rng.choice(len(self), n_out, replace=False)] = True
        parts = (np.flatnonzero(~out), np.flatnonzero(out))
        kept, held = (p if self._chosen is None else self._chosen[p] for p in parts)
        make = (self._x, self._y, self.x_scaling, self.y_scaling)
        return Rows(*make, kept), Rows(*make, held)

    def _scaled(self, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> tuple[Floats, Floats]:
        x64, y64 = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
        return self.x_scaling.apply(x64), self.y_scaling.apply(y64)


def rows_of_arrays(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> Rows:
    """Rows of arrays [N, D] and [N] or [N, P]."""
    return Rows(x, y[:, None] if y.ndim == 1 else y)


def validated(estimator: Any, X: Any, *targets: Any, **checks: Any) -> Any:
    """What scikit-learn's ``validate_data`` gives; masked entries are refused, which it reads as if there were no mask."""
    for values, argument in zip((X, *targets), ("X", "y"), strict=False):
        refuse_masked(values, argument, "and a row must be whole: leave out rows with missing entries")
        if any(
            getattr(kind, "kind", "") == "M"
            for kind in np.atleast_1d(np.array(getattr(values, "dtypes", getattr(values, "dtype", None)), object))
        ):
            raise TypeError(
                f"{argument} holds dates, and must hold numbers: give days, (dates - dates[0]) / np.timedelta64(1, 'D'). "
                "StateSpaceGP and hidden Markov models take dates"
            )
    arrays = checked_arrays(estimator, X, *targets, **checks)
    # Rows that a model is fitted to; a single one to predict at may lie as near to zero as it likes.
    for array, argument in zip(arrays if targets else (), ("X", "y"), strict=False):
        if array.dtype.kind == "f":
            check_unit(array, argument)
    return arrays


def validated_with_gaps(estimator: Any, X: Any, y: Any, **checks: Any) -> Any:
    """As `validated`, but entries of several outputs y [N, P] may be missing, NaN, None or masked: they are NaN."""
    shape = y.shape if hasattr(y, "shape") else _shape_of(y)
    if len(shape) != 2 or shape[1] < 2:
        return validated(estimator, X, y, **checks)
    plain = type(y) in (np.ndarray, np.memmap) and y.dtype.kind in "biuf"
    numbers = y if plain else as_numbers(y, "y", missing=True)
    missing = np.isnan(numbers)
    if not missing.any():
        return validated(estimator, X, numbers, **checks)
    X, filled = validated(estimator, X, np.where(missing, numbers.dtype.type(0), numbers), **checks)
    filled[missing] = np.nan
    return X, filled


def _shape_of(values: Any) -> tuple[int, ...]:
    try:
        shape: tuple[int, ...] = np.asarray(values).shape
    except ValueError:  # rows of different lengths, which are refused elsewhere
        return ()
    return shape


def checked_arrays(estimator: Any, X: Any, *targets: Any, **checks: Any) -> Any:
    """What scikit-learn's ``validate_data`` gives, without importing it for plain arrays that nothing is to be said about."""
    if (plain := _plain_arrays(estimator, X, *targets, **checks)) is not None:
        return plain if targets else plain[0]
    from sklearn.utils.validation import validate_data

    try:
        return validate_data(estimator, X, *targets, **checks)
    except ValueError as error:
        said = error
    _refuse_labels(X)
    for values, argument in zip((X, *targets), ("X", "y"), strict=False):
        _refuse_not_finite(values, argument)
    raise said


def _refuse_labels(X: Any) -> None:
    """An error with the first label in a column of a table, if there is one: scikit-learn does not say which column it is."""
    for place, (name, column) in enumerate((frame_columns(X) or {}).items()):
        entries = np.asarray(column, dtype=object)
        for row in np.flatnonzero([isinstance(value, str) for value in entries[:PIECE]])[:1]:
            raise ValueError(
                f"X[{row}, {name!r}] = {entries[row]!r} is a label, and columns must hold numbers: give each label one, "
                f"np.unique(column, return_inverse=True)[1]. The covariance Categories(active=[{place}]) of a Gaussian process "
                'reads such numbers as labels, and kernel="auto" tries to'
            )


def _refuse_not_finite(values: Any, argument: str) -> None:
    """An error with the first entry that is NaN or infinite, if these are numbers: scikit-learn does not say where it is."""
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "fO" or array.ndim == 0:
            return
        array = array.astype(np.float64)
    except (TypeError, ValueError):
        return
    hint = "; a row must be whole: leave out rows with NaN (missing entries) or infinity"
    require(np.isfinite(array), array, argument, "a finite number", hint)


def _plain_arrays(
    estimator: Any, X: Any, *targets: Any, reset: bool = True, ensure_all_finite: bool = True, **checks: Any
) -> list[npt.NDArray[Any]] | None:
    """The arrays as they are, if they are rows of finite numbers in order; None where there is something to convert or refuse."""
    of_numbers = checks.get("dtype") == (np.float64, np.float32) and checks.keys() <= PLAIN_CHECKS
    if not of_numbers or type(X) is not np.ndarray or X.ndim != 2 or 0 in X.shape or X.dtype.str not in NUMBERS:
        return None
    order = checks.get("order")
    arrays = [np.asarray(X, order=order) if X.dtype.kind == "f" else X.astype(np.float64)]
    for y in targets:
        if type(y) is not np.ndarray or y.ndim != 1 or len(y) != len(X) or y.dtype.kind not in "fiubU":
            return None
        arrays.append(y)
    if ensure_all_finite and not all(np.isfinite(array).all() for array in arrays if array.dtype.kind == "f"):
        return None
    if "feature_names_in_" in vars(estimator) or not (reset or estimator.n_features_in_ == X.shape[1]):
        return None
    if reset:
        estimator.n_features_in_ = X.shape[1]
    return arrays


def joined_pairs(chunks: Iterator[Any], y: Any = None) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """All rows of an iterator of pairs (X, y), each as they come."""
    if y is not None:
        raise ValueError("y must be None where X is an iterator of pairs (X, y)")
    inputs, outputs = [], []
    for number, chunk in enumerate(chunks):
        if not isinstance(chunk, (tuple, list)) or len(chunk) != 2:
            raise TypeError(f"chunk {number} of the stream: expected a pair (X, y), got a {type(chunk).__name__}")
        x, numbers = (np.asarray(part) for part in chunk)
        if x.shape[:1] != numbers.shape[:1] or not x.ndim:
            raise ValueError(f"chunk {number} of the stream: X has shape {x.shape} and y {numbers.shape}")
        inputs.append(x.reshape(len(x), -1))
        outputs.append(numbers)
    if not inputs:
        raise ValueError("X has no rows: the stream is empty")
    if len(widths := {x.shape[1] for x in inputs}) > 1:
        raise ValueError(f"chunks of the stream have {', '.join(map(str, sorted(widths)))} columns")
    return np.concatenate(inputs), np.concatenate(outputs)


def open_rows(source: Any, target: Any, check: Callable[[Any, Any], tuple[Any, Any]]) -> Rows:
    """Rows of a Parquet file (``target`` names its output columns) or of an iterator of (X, y), spilled to a file."""
    if isinstance(source, (str, Path)):
        return _spilled(_parquet(Path(source), target), check)
    return _spilled(source, check)


def _parquet(path: Path, target: Any) -> Iterator[tuple[Any, Any]]:
    if target is None:
        raise ValueError(f"{path}: y must name the column, or list the columns, that are the outputs")
    table = ParquetTable(path)
    if not table.n_rows:
        raise ValueError(f"{path}: has no rows")
    wanted = table.choose([target] if isinstance(target, str) else [*target])
    inputs = [name for name in table.names if name not in wanted]
    for columns in table.arrays([*inputs, *wanted], PIECE):
        yield np.column_stack(columns[: len(inputs)]), np.column_stack(columns[len(inputs) :])


def _spilled(chunks: Iterable[Any], check: Callable[[Any, Any], tuple[Any, Any]]) -> Rows:
    """Chunks (X, y) written one after the other to a temporary file, mapped into memory."""
    widths: tuple[int, int] | None = None

    def tables() -> Iterator[Floats]:
        nonlocal widths
        for number, chunk in enumerate(chunks):
            try:
                x, y = chunk
            except (TypeError, ValueError):
                raise TypeError(f"chunk {number} must be a pair (X, y), got {type(chunk).__name__}") from None
            x, y = check(x, y)
            y = y[:, None] if y.ndim == 1 else y
            if widths is not None and (x.shape[1], y.shape[1]) != widths:
                raise ValueError(
                    f"chunk {number} has {x.shape[1]} columns and {y.shape[1]} outputs, and the first {widths[0]} and {widths[1]}"
                )
            widths = x.shape[1], y.shape[1]
            yield np.hstack([x, y])

    table = spill(tables())
    if widths is None:
        raise ValueError("the iterator gave no chunks: expected pairs (X, y)")
    return Rows(table[:, : widths[0]], table[:, widths[0] :])


def _moments(pieces: Iterator[tuple[Floats, Floats]]) -> tuple[Scaling, Scaling]:
    """Mean and standard deviation of every column in one reading, by Chan's update of pieces."""
    n: Any = 0
    means = squares = None
    for piece in pieces:
        part = np.hstack(piece)
        mean, square, size = _centred(part)
        if means is None or squares is None:
            n, means, squares = size, mean, square
            continue
        off = mean - means
        means = means + off * size / np.maximum(n + size, 1)
        squares = squares + square + off**2 * n * size / np.maximum(n + size, 1)
        n += size
    assert means is not None
    assert squares is not None
    sd = np.sqrt(squares / np.maximum(n, 1))
    # What a constant column has is rounding, a few times 2⁻⁵³ of its mean; that must not depend on its unit.
    sd = np.where(sd > 1e-13 * np.abs(means), sd, 1.0)
    width = piece[0].shape[1]
    return Scaling(means[:width], sd[:width]), Scaling(means[width:], sd[width:])


def _centred(part: Floats) -> tuple[Floats, Floats, Any]:
    """Means of columns, sums of squares about them, and of how many numbers; NaN is none."""
    seen = ~np.isnan(part)
    if seen.all():
        mean = part.mean(0)
        return mean, ((part - mean) ** 2).sum(0), len(part)
    size = seen.sum(0)
    mean = np.where(seen, part, 0.0).sum(0) / np.maximum(size, 1)
    return mean, np.where(seen, (part - mean) ** 2, 0.0).sum(0), size
