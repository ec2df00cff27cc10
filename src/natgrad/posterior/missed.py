"""Draws of chains that began at two places in; whether they reach into one another, and what to say if they do not, out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["EACH", "FAR", "SAME", "SWEEPS", "is_gap", "words_of"]

Array = npt.NDArray[Any]
# Nats below the fit at which another place has no mass to speak of (a twentieth), and what is the same bound to a short fit.
FAR, SAME = 3.0, 0.05
# Chains at either place, and their sweeps: a tenth of those of the draws, at most these; as many before they count.
EACH, SWEEPS = 2, 60


def is_gap(here: Array, there: Array) -> bool:
    """Whether there is a gap between two sets of draws [chain, draw, …], wider than either spreads, in some element.

    Chains that mix slowly have different averages, and a large R̂, but reach into one another.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(2, 50, 3))
    >>> is_gap(x, x + [0.0, 0.0, 9.0]), is_gap(x, x + 2.0)
    (True, False)
    """
    one, two = (draws.reshape(draws.shape[0] * draws.shape[1], -1) for draws in (here, there))
    gap = np.maximum(one.min(0) - two.max(0), two.min(0) - one.max(0))
    return bool((gap > np.maximum(one.std(0), two.std(0))).any())


def words_of(gain: float, if_higher: str, if_lower: str) -> str:
    """What to say of a place whose bound is so many nats above, with advice."""
    what = (
        f"{gain:.1f} nats higher"
        if gain > SAME
        else f"{abs(gain):.1f} nats lower, which is a share of about {1.0 / (1.0 + np.exp(-gain)):.0%} of the two"
    )
    return (
        f"a fit from another start has a bound {what}. Chains from there stay there, and these draws miss it: "
        f"{if_higher if gain > SAME else if_lower}"
    )
