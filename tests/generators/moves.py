"""Random births, merges and deletions of components, for the tests that compare statistics with the data after each."""

from typing import Any

import numpy as np

BIRTH, MERGE = range(2)


def random_move(parts: Any, state: Any, number: int, rng: np.random.Generator, most: int) -> tuple[Any, int]:
    """The state after a move that its components allow, and which it was; a birth that nothing came of leaves it as it is."""
    active = np.flatnonzero(parts.active(state))
    kind = int(rng.integers(3)) if 1 < len(active) < most else BIRTH if len(active) < most else MERGE
    k = int(rng.choice(active))
    if kind == BIRTH:
        birth = parts.split(state, k, np.flatnonzero(~parts.active(state)).tolist()[:1], number, 0)
        return (state if birth is None else birth.state), kind
    other = int(rng.choice(active[active != k]))
    return (parts.merge(state, k, other) if kind == MERGE else parts.delete(state, k)), kind
