"""What a Gaussian process reads: arrays, files and streams in; checked rows, and moments and draws of f at them, out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from natgrad.data.rows import Rows, Scaling, open_rows, rows_of_arrays, validated, validated_with_gaps
from natgrad.models.gp.files import GPFiles
from natgrad.models.gp.likelihood import Likelihood
from natgrad.models.gp.predictor import Predictor

__all__ = ["GPReading", "as_times", "check_one", "joined_pairs", "numbered"]

Floats = npt.NDArray[np.float64]
MOST_JOINT_ROWS = 5_000


class GPReading(GPFiles):
    """Rows as likelihoods and predictions take them; abstract."""

    _predictor: Predictor
    _x_scaling: Scaling

    def _own_likelihood(self) -> Likelihood:
        raise NotImplementedError

    def _read(self, X: Any, y: Any, reset: bool) -> Rows:
        """Checked rows with outputs as the likelihood takes them."""
        raise NotImplementedError

    def _is_stream(self, X: Any) -> bool:
        return isinstance(X, (str, Path, Iterator))

    def _rows(self, X: Any, y: Any, reset: bool, **checks: Any) -> Rows:
        """Rows of arrays, memory maps, a Parquet file or an iterator of (X, y)."""
        types = (np.float64, np.float32)

        def checked(x: Any, targets: Any) -> tuple[Any, Any]:
            return validated_with_gaps(self, x, targets, reset=reset, dtype=types, **checks)  # type: ignore[no-any-return]

        if self._is_stream(X):
            return open_rows(X, y, checked)
        arrays = checked(X, y)
        if not isinstance(X, np.memmap):  # a file stays one; elsewhere the same numbers are added up in the same order
            arrays = np.ascontiguousarray(arrays[0]), np.ascontiguousarray(arrays[1])
        return rows_of_arrays(*arrays)

    def _latent(self, X: Any) -> tuple[Floats, Floats]:
        """Means and variances of f, in standardised units."""
        x = self._inputs(X)
        return self._predictor.latent(x)

    def _inputs(self, X: Any) -> Floats:
        """Inputs of a fitted model, standardised."""
        check_is_fitted(self)
        x = validated(self, X, reset=False, dtype=(np.float64, np.float32))
        return self._x_scaling.apply(np.asarray(x, dtype=np.float64))

    def _latent_draws(self, X: Any, n: int, rng: np.random.Generator) -> Floats:
        """Joint draws of f [n, N, F], in standardised units."""
        return self._predictor.draws(self._few_inputs(X), n, rng)

    def _few_inputs(self, X: Any) -> Floats:
        """Inputs of which there may be joint draws."""
        x = self._inputs(X)
        if len(x) > MOST_JOINT_ROWS:
            raise ValueError(f"X has {len(x)} rows: joint draws are for at most {MOST_JOINT_ROWS}; draw in parts")
        return x


def numbered(chunks: Iterator[Any], names: dict[Any, int]) -> Iterator[Any]:
    """Pairs (X, y) with numbers in place of classes that are words, as ``names`` notes them; other pairs as they are."""
    for number, chunk in enumerate(chunks):
        words = isinstance(chunk, (tuple, list)) and len(chunk) == 2 and _has_words(np.asarray(chunk[1]))
        if number and words != bool(names):
            raise ValueError(f"chunk {number} of the stream: y must be words in all chunks, or numbers in all")
        if not words:
            yield chunk
            continue
        x, y = chunk[0], np.asarray(chunk[1])
        if (
            bad := [place for place, name in enumerate(y.ravel().tolist()) if not isinstance(name, str)]
        ) or y.ndim != 1:
            raise ValueError(
                f"chunk {number} of the stream: y must be a class for each row, words or numbers; "
                + (f"y[{bad[0]}] = {y.ravel()[bad[0]]!r}" if bad else f"got the shape {y.shape}")
            )
        yield x, np.array([names.setdefault(name, len(names)) for name in y.tolist()], dtype=np.float64)


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


def as_times(X: Any) -> Any:
    """A list of times is a table of one column."""
    return X if np.ndim(X) != 1 or isinstance(X, str) else np.asarray(X)[:, None]


def check_one(x: npt.NDArray[Any]) -> None:
    """Refuse inputs of several columns."""
    if x.shape[1] != 1:
        raise ValueError(
            f"X has {x.shape[1]} columns, and a process along time takes one: give times [N] or [N, 1]. "
            "SparseGPRegressor takes more"
        )


def _has_words(y: npt.NDArray[Any]) -> bool:
    return y.dtype.kind == "U" or (y.dtype.kind == "O" and any(isinstance(name, str) for name in y.ravel().tolist()))
