"""What a method is to the loop: a state in, the state after one step and what it did out."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from natgrad.inference.problem import BlockInfo, State

__all__ = ["NothingToFinish", "StepInfo", "Stepper", "all_valid"]


class StepInfo(NamedTuple):
    """What one step did: the blocks it moved, the step lengths, the messages it read, the bound if it came for free.

    ``final``: no further step would change anything.
    ``unbounded``: there is no bound of this state, and none is to be evaluated. A bound that is NaN is one that was lost.
    """

    blocks: dict[str, BlockInfo]
    rho: float
    messages_read: int
    bound: float | None = None
    estimate: float = float("nan")
    unbounded: bool = False
    final: bool = False


class Stepper(Protocol):
    """A method bound to a problem.

    ``monotone`` says that its bound cannot fall, so that the change over ``steps_per_pass`` steps tells when it has converged.
    ``batches`` are the steps that read as much as there is; None where that is counted in messages.
    """

    monotone: bool
    steps_per_pass: int

    @property
    def batches(self) -> int | None:
        """Steps of a pass."""
        ...

    def step(self, state: State, seed: int) -> tuple[State, StepInfo]:
        """Take step number ``state.t + 1``."""
        ...

    def finish(self, state: State) -> State:
        """The state as a user sees it, after the last step of a run."""
        ...


class NothingToFinish:
    """A stepper whose states are complete after every step."""

    def finish(self, state: State) -> State:
        """The state itself."""
        return state


def all_valid(info: StepInfo) -> bool:
    """Whether every block that a step moved stayed in its space."""
    return all(bool(block.valid) for block in info.blocks.values())
