"""What a problem tells of components that are switched off: which they are, and the problem and the state without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from natgrad.inference.problem import EdgeProblem, State

__all__ = ["Pruning"]

Ints = npt.NDArray[np.int64]


class Pruning(Protocol):
    """The components of an `EdgeProblem` that may be switched off: the columns of some blocks, which sweeps do without."""

    @property
    def n_columns(self) -> int:
        """All of them."""
        ...

    def live(self, state: State) -> Ints:
        """The columns that are not off."""
        ...

    def reduced(self, state: State, kept: Ints) -> tuple[EdgeProblem, State]:
        """The problem and the state of some columns; its bound is that of the whole with the others off."""
        ...

    def whole(self, problem: EdgeProblem, state: State, kept: Ints) -> State:
        """The state of all columns, with the same bound."""
        ...

    def fading(self, state: State) -> Ints | None:
        """The columns to be kept, where some components fade; None where none does."""
        ...
