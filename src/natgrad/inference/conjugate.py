"""Solve symmetric positive systems by preconditioned conjugate gradients, one step at a time.

With residual r and preconditioner V, directions p = r + β p have images V p, which satisfy the same recursion. A step along them
is α = ⟨r, V r⟩ / ⟨V p, A V p⟩. Callers repeat steps, in Python or in what JAX compiles, and may look at curvatures before.

Hestenes and Stiefel (1952), Methods of conjugate gradients for solving linear systems.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Search", "conjugate_step"]

Array = Any


class Search(NamedTuple):
    """Where a solve is: V x solves A V x = b; r is what is left of b, and ``size`` is ⟨r, V r⟩."""

    x: Array
    residual: Array
    direction: Array
    image: Array
    size: Array
    count: Any


def conjugate_step(
    at: Search,
    bent: Array,
    along: Array,
    precondition: Callable[[Array], Array],
    inner: Callable[[Array, Array], Array],
) -> Search:
    """The search after the step along its direction p, of which ``bent`` is A V p and ``along`` ⟨V p, A V p⟩."""
    step = at.size / along
    residual = at.residual - step * bent
    image = precondition(residual)
    size = inner(residual, image)
    turn = size / at.size
    return Search(
        at.x + step * at.direction,
        residual,
        residual + turn * at.direction,
        image + turn * at.image,
        size,
        at.count + 1,
    )
