"""SVMlight files in, ``label feature:value feature:value … # comment`` on each line; sparse rows out, labels left out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, final

import numpy as np
import scipy

from natgrad.data.io.text import TextSource, number_in, open_text, pairs_in, wrong_field

__all__ = ["SvmlightSource"]


@final
class SvmlightSource(TextSource):
    """Rows ``label feature:value feature:value … # comment``, features from 1; chunks are sparse [n, n_features].

    Parameters
    ----------
    path : str or Path
    n_features : int
        How many columns; a feature beyond is an error. It must be given: a stream does not know its last line.
    zero_based : bool
        Whether features are counted from 0.
    size : rows of a chunk
    encoding : of the text, optional
    """

    def __init__(
        self,
        path: str | Path,
        *,
        n_features: int | None = None,
        zero_based: bool = False,
        size: int | None = None,
        encoding: str | None = None,
    ) -> None:
        super().__init__(path, size, encoding)
        if n_features is None:
            raise TypeError(f"{self.path.name}: give n_features=, the number of columns; the file does not say")
        self.n_features, self.first = n_features, 0 if zero_based else 1

    def parts(self) -> Iterator[Any]:
        """Sparse rows, ``size`` at a time."""
        rows = self._rows()
        while group := list(islice(rows, self.size)):
            features = np.fromiter(chain.from_iterable(numbers for numbers, _ in group), np.int64) - self.first
            values = np.fromiter(chain.from_iterable(values for _, values in group), np.float64)
            start = np.cumsum([0, *(len(numbers) for numbers, _ in group)])
            table = scipy.sparse.csr_array((values, features, start), shape=(len(group), self.n_features))
            table.sum_duplicates()
            yield table

    def _rows(self) -> Iterator[tuple[list[int], list[float]]]:
        """The features and values of each line that has any."""
        last = self.n_features - 1 + self.first
        with open_text(self.path, self.encoding) as file:
            for line, whole in enumerate(file, 1):
                text = whole.split("#")[0]
                if not (fields := text.split()):
                    continue
                if math.isnan(number_in(fields[0])):
                    raise wrong_field(self.path, line, text, 0, "a label, a number")
                skip = 2 if fields[1:] and fields[1].startswith("qid:") else 1
                numbers, values = pairs_in(self.path, line, text, skip, self.first)
                if numbers and max(numbers) > last:
                    place = skip + int(np.argmax(numbers))
                    raise wrong_field(self.path, line, text, place, f"a feature up to {last} (n_features)")
                yield numbers, values
