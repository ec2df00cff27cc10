"""Define step sizes ρ as functions of the number of the step, and of how much of its children a node read.

    RobbinsMonro   ρ_t = (t + τ)^(−κ)                        the textbook schedule
    Constant       ρ_t = ρ
    HoldThenDecay  ρ_t = ρ for n steps, then (t − n + τ)^(−κ) scaled to start at ρ   (the Xbox recommender's practice)
    PerNode        ρ_{i,t} = (t + τ_i)^(−κ), τ_i = (N_i/C_i)^(1/κ) − 1, so that ρ_{i,1} = C_i/N_i
                   (C_i/(N_i √ω) for ω coupled scalars)

Paquet (2014), sections 2.2, 3 and A.3–A.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt

from natgrad.validation import real_number, whole_number

__all__ = ["Constant", "HoldThenDecay", "PerNode", "RobbinsMonro", "Step"]

Rate = float | npt.NDArray[np.float64]


class Step(Protocol):
    """A step size for step ``t`` = 1, 2, … of nodes that read C_i of N_i children.

    ``ratio`` is N_i/C_i; ``coupled`` (ω) is how many variables that meet in one child are updated from different samples, or
    ``together``: at the same time (option b).
    """

    def rate(self, t: int, ratio: Any = 1.0, *, coupled: int = 1, together: bool = False) -> Rate:
        """The length ρ of the step along the natural gradient."""
        ...


@final
@dataclass(frozen=True, slots=True)
class RobbinsMonro:
    """ρ_t = (t + τ)^(−κ) with delay τ and forgetting κ; ``first`` sets τ so that ρ_1 = first.

    Examples
    --------
    >>> RobbinsMonro(first=1 / 64, forgetting=0.6).rate(1)
    0.015625
    """

    delay: float | None = None
    forgetting: float = 0.6
    first: float | None = None

    def __post_init__(self) -> None:
        _check_forgetting(self.forgetting)
        if self.delay is not None and self.first is not None:
            raise ValueError(f"give delay (τ) or first (ρ₁), not both: got delay={self.delay} and first={self.first}")
        if self.delay is not None and not 0 <= real_number(self.delay, "delay (τ)") < np.inf:
            raise ValueError(f"delay (τ) must be finite and ≥ 0, got {self.delay}: 0 starts with a step of length 1")
        if self.first is not None:
            _check_rate("first (ρ₁)", self.first)

    def rate(self, t: int, ratio: Any = 1.0, *, coupled: int = 1, together: bool = False) -> Rate:
        """(t + τ)^(−κ)."""
        delay = self.delay or 0.0
        if self.first is not None:
            delay = self.first ** (-1.0 / self.forgetting) - 1.0
        return float((t + delay) ** -self.forgetting)


@final
@dataclass(frozen=True, slots=True)
class Constant:
    """ρ_t = ρ: the same length at every step. ρ = 1 is the exact update; smaller ones never average out the noise."""

    rho: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < real_number(self.rho, "rho") <= 2.0:
            raise ValueError(
                f"rho must lie in (0, 2], got {self.rho}: at 0 nothing moves, beyond 2 every block overshoots"
            )

    def rate(self, t: int, ratio: Any = 1.0, *, coupled: int = 1, together: bool = False) -> Rate:
        """ρ."""
        return float(self.rho)


@final
@dataclass(frozen=True, slots=True)
class HoldThenDecay:
    """ρ_t = ``rho`` for the first ``n`` steps, then ρ (1 + t − n)^(−κ)."""

    n: int = 10
    forgetting: float = 0.6
    rho: float = 1.0

    def __post_init__(self) -> None:
        _check_forgetting(self.forgetting)
        _check_rate("rho", self.rho)
        whole_number(self.n, "n", least=0)

    def rate(self, t: int, ratio: Any = 1.0, *, coupled: int = 1, together: bool = False) -> Rate:
        """ρ, then ρ (1 + t − n)^(−κ)."""
        return float(self.rho * max(1, 1 + t - self.n) ** -self.forgetting)


@final
@dataclass(frozen=True, slots=True)
class PerNode:
    """ρ_{i,t} = (t + τ_i)^(−κ) with ρ_{i,1} = C_i/N_i: a sampled message enters with the weight of one message.

    One child then never speaks for N_i at full volume, the first of the two causes that make the textbook recipe diverge.
    The second is that ω co-parents of one child answer its residual from different samples, or at the same time. Their
    errors add like independent ones, so a sampled step starts at C_i/(N_i √ω); and where all move at the same time
    (option b), it is never longer than 1/ω. A node that reads all its children in turn has an exact target, and takes it.

    Examples
    --------
    >>> PerNode().rate(1, ratio=50.0)
    array(0.02)
    """

    forgetting: float = 0.6

    def __post_init__(self) -> None:
        _check_forgetting(self.forgetting)

    def rate(self, t: int, ratio: Any = 1.0, *, coupled: int = 1, together: bool = False) -> Rate:
        """(t + τ_i)^(−κ), or 1 where the target is exact and nothing else moves with it."""
        read = np.asarray(ratio, dtype=np.float64)
        scale = np.where(read <= 1.0, 1.0, read * np.sqrt(coupled))
        scale = np.maximum(scale, float(coupled)) if together else scale
        rho = (t - 1.0 + scale ** (1.0 / self.forgetting)) ** -self.forgetting
        return np.where(scale <= 1.0, 1.0, rho)


def _check_forgetting(value: float) -> None:
    if not 0.5 < real_number(value, "forgetting (κ)") <= 1.0:
        raise ValueError(
            f"forgetting (κ) must lie in (0.5, 1], got {value}: at or below 0.5 the noise never averages out, above 1 the steps "
            "die before the optimum. For a fixed length use Constant(rho)."
        )


def _check_rate(name: str, value: float) -> None:
    if not 0.0 < real_number(value, name) <= 1.0:
        raise ValueError(f"{name} must lie in (0, 1], got {value}: 1 is the exact update, 0 does not move")
