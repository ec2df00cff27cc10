"""C_v by its definition, word by word and window by window: the slow twin of `natgrad.models.lda.topics`."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

__all__ = ["c_v_slowly", "windows_slowly"]


def windows_slowly(texts: Sequence[Sequence[Any]], size: int) -> list[set[Any]]:
    """The sets of tokens of all windows."""
    return [set(text[begin : begin + size]) for text in texts for begin in range(max(1, len(text) - size + 1))]


def c_v_slowly(words: Sequence[Any], windows: Sequence[Collection[Any]], epsilon: float = 1e-12) -> float:
    """C_v of one topic, all of whose words occur."""

    def share(*wanted: Any) -> float:
        return sum(all(word in window for word in wanted) for window in windows) / len(windows)

    def npmi(first: Any, second: Any) -> float:
        joint = share(first, second)
        if joint == 1.0:
            return 1.0
        return math.log((joint + epsilon) / (share(first) * share(second))) / -math.log(joint + epsilon)

    vectors = [[npmi(first, second) for second in words] for first in words]
    whole = [sum(column) for column in zip(*vectors, strict=True)]

    def cosine(a: Sequence[float], b: Sequence[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))

    return sum(cosine(vector, whole) for vector in vectors) / len(words)
