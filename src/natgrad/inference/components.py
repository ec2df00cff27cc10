"""What moves must know of the components along a plate: what each holds, and states in which one is split, merged or empty.

`natgrad.inference.moves` proposes by these. A network finds its components from the declaration, a ready model knows its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import State

__all__ = ["Birth", "Components", "out_of_reach"]

Floats = npt.NDArray[np.float64]
# Observations up to which a component is empty: memberships of rows that are somewhere else add up to something everywhere.
EMPTY = 0.5
# Nats that the merge of a pair may lose before the next sweep, and still be worth passes.
HOPELESS = -100.0


class Birth(NamedTuple):
    """A state with more components, what a fit to the data of the one that was split says of the gain (or NaN), and the new.

    ``bound`` is that of all data there, where the split was made with all of them.
    """

    state: State
    gain: float
    born: tuple[int, ...]
    bound: float = float("nan")


class Components(ABC):
    """What moves must know of the components along one plate, found from the blocks of a problem.

    Parameters
    ----------
    plate : str, as the trace calls it
    size : int, the most components
    """

    plate: str
    size: int
    # Nats that the merge of a pair may lose before the next sweep, and still be worth an exchange.
    most_loss: float = HOPELESS
    # Those that were there before the data came [size]: part of the prior, they are neither merged away nor deleted.
    known: npt.NDArray[np.bool_] | None = None

    @property
    def may_empty(self) -> bool:
        """Whether a component of a given number may become empty, as the prior of the weights would have it."""
        return False

    @abstractmethod
    def held(self, state: State) -> Floats:
        """Observations that each component holds [size]; 0 for one that is empty."""

    @abstractmethod
    def split(
        self, state: State, k: int, empty: Sequence[int], number: int, seed: int, *, goal: float = -np.inf
    ) -> Birth | None:
        """Parts of what ``k`` holds in the places of one or more of the ``empty``; other parts for another ``number``.

        Two halves of four clusters may be no better than one: then several are born at a time. None if it cannot be split.
        A birth whose ``bound`` is known is refused below the ``goal``, so that it may be left as it is when that is out of reach.
        """

    def birth(self, state: State, k: int, empty: Sequence[int], number: int, seed: int) -> Birth | None:
        """How a component is born from one: by a split; what one of the ``known`` is told may be another one as a whole."""
        return self.split(state, k, empty, number, seed)

    @abstractmethod
    def merge(self, state: State, kept: int, emptied: int) -> State:
        """One component holds what both held, and the other is empty."""

    @abstractmethod
    def delete(self, state: State, k: int) -> State:
        """The component is empty."""

    @property
    def at_once(self) -> bool:
        """Whether several may be split at once, because the split of one changes nothing that others were told."""
        return False

    def together(self, state: State, births: Mapping[int, Birth]) -> State:
        """The state in which several components are split, each into places of its own."""
        raise NotImplementedError(f"components along {self.plate} are split one at a time")

    def anew(self, state: State, size: int, seed: int) -> State | None:
        """So many components from a start of their own, after passes of their own; None where births from those there are do.

        It is a function of the size and the seed alone: once refused, it would be refused again by a bound that only rises.
        """
        return None

    def explored(self, state: State, number: int, seed: int) -> State | None:
        """Where sweeps of a sampler lead from here, other ones for another ``number``; None where there is none."""
        return None

    @abstractmethod
    def likeness(self, state: State) -> Floats:
        """How promising the merge of each pair is [size, size], in nats where that is known; −∞ for one that is not."""

    def delete_gains(self, state: State, seed: int) -> Floats | None:
        """Nats that each one's delete gains before the others follow [size]; None where likeness to one other says enough."""
        return None

    def ordered(self, state: State) -> tuple[State, tuple[int, ...]] | None:
        """The same components in the places that priors expect to hold as much, and which is in each; None if they are there."""
        return None

    def alike(self, state: State, other: State) -> bool:
        """Whether both states are known to have the same components, in whatever order."""
        return False

    def active(self, state: State) -> npt.NDArray[np.bool_]:
        """The components that hold something, half an observation at least, or were known before."""
        return self.stays | np.asarray(self.held(state) > EMPTY)

    @property
    def stays(self) -> npt.NDArray[np.bool_]:
        """Those that no move may empty."""
        return np.zeros(self.size, np.bool_) if self.known is None else self.known


def out_of_reach(bound: float, gain: float, rounds: int, goal: float) -> bool:
    """Whether a goal is not reached in so many more rounds, even if each gains twice what the one before it did."""
    return bound + gain * (2.0 ** (rounds + 1) - 2.0) < goal
