"""What the lines of `binding.py` share: the time of a pass, and the peak of memory."""

from __future__ import annotations

import resource
import time
from typing import Any

import numpy as np

__all__ = ["CHUNK", "Clock", "K", "measured", "peak"]

CHUNK = 100_000
K = 5


class Clock:
    """A callback that notes the processor's time at every step."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def __call__(self, progress: Any) -> None:
        self.at.append(time.process_time())

    def per_pass(self) -> float:
        """The median of the passes after the first two."""
        return float(np.median(np.diff(self.at)[1:]))


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def measured(fit: Any, clock: Clock, **more: Any) -> dict[str, Any]:
    bounds = fit.trace["elbo"]
    return {"pass_seconds": clock.per_pass(), "peak_MB": peak(), "elbo": float(bounds[np.isfinite(bounds)][-1]), **more}
