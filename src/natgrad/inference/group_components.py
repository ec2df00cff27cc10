"""Define what moves must know of components along a plate: what each holds, and states where one is split, merged or empty.

Natural parameters of components are sums of messages of groups. `natgrad.inference.moves` proposes by these. A network finds
its components from the declaration, a ready model knows its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import GroupProblem, State
from natgrad.inference.steppers.groups import BEFORE

__all__ = ["Birth", "Components", "GroupComponents", "moved_axes", "out_of_reach", "restricted", "settled"]

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

    def n_active(self, state: State) -> int:
        """How many components hold something."""
        return int(self.active(state).sum())

    @property
    def stays(self) -> npt.NDArray[np.bool_]:
        """Those that no move may empty."""
        return np.zeros(self.size, np.bool_) if self.known is None else self.known


def out_of_reach(bound: float, gain: float, rounds: int, goal: float) -> bool:
    """Whether a goal is not reached in so many more rounds, even if each gains twice what the one before it did."""
    return bound + gain * (2.0 ** (rounds + 1) - 2.0) < goal


Stats = tuple[Any, ...]
# Axes of λ along which components lie, for every statistic of a block.
Axes = tuple[tuple[int, ...], ...]


def _merges_of(parts: Stats, axes: Axes, i: int, others: npt.NDArray[np.int64]) -> Stats:
    """What was told after the merge of one component with each of some others, along a new first axis."""
    out = tuple(np.repeat(np.asarray(part, np.float64)[None], len(others), 0) for part in parts)
    pairs = np.arange(len(others))
    for part, own in zip(out, axes, strict=True):
        for axis in own:
            moved = np.moveaxis(part, axis + 1 if axis >= 0 else axis, 1)
            moved[:, i] += moved[pairs, others]
            moved[pairs, others] = 0.0
    return out


def moved_axes(parts: Sequence[Any], axes: Axes, change: Callable[[Any, int], None]) -> tuple[Any, ...]:
    """Copies of arrays, changed along every axis on which components lie; ``change`` sees that axis first."""
    out = tuple(np.array(part, dtype=np.float64) for part in parts)
    for part, own in zip(out, axes, strict=True):
        for axis in own:
            change(np.moveaxis(part, axis, 0), axis)
    return out


def restricted(lam: Stats, axes: Axes, order: Any, prior: Stats, own_prior: Stats) -> Stats:
    """λ of some components alone, of a model with no others: ``prior`` is that of all, ``own_prior`` that of these.

    A statistic that components share (one precision for all) has something from the prior of each, also of those that are empty.
    """
    return tuple(
        np.take(part, order, axis=own[0]) if own else np.asarray(part, np.float64) - whole + few
        for part, own, whole, few in zip(lam, axes, prior, own_prior, strict=True)
    )


class GroupComponents(Components):
    """Components of a `GroupProblem`: λ less the prior is a sum over what groups told, so that merged components add up.

    Parameters
    ----------
    problem : GroupProblem, whose `solve` gives nothing to components at their prior
    plate, size : as in `Components`
    axes : {block: for every statistic the axes of λ along which components lie}
    emitted : the blocks that say what data of a component look like; the others how many they are, and which follow which
    """

    def __init__(
        self, problem: GroupProblem, plate: str, size: int, axes: Mapping[str, Axes], emitted: Sequence[str]
    ) -> None:
        self.problem, self.plate, self.size, self.axes, self.emitted = problem, plate, size, axes, tuple(emitted)

    def told(self, state: State) -> dict[str, Stats]:
        """λ less the prior."""
        return {
            name: tuple(np.asarray(g, np.float64) - p for g, p in zip(state.lam[name], self._prior(name), strict=True))
            for name in self.axes
        }

    def at(self, state: State, told: Mapping[str, Stats]) -> State:
        """The state in which groups told this; what each of them told is known when it is read again."""
        lam, mu = dict(state.lam), dict(state.mu)
        for name, parts in told.items():
            lam[name] = tuple(np.asarray(p + m, np.float64) for p, m in zip(self._prior(name), parts, strict=True))
            mu[name] = self.problem.moments(self.problem.blocks[name], lam[name])
        return state._replace(lam=lam, mu=mu, memory={BEFORE: told})

    @property
    def at_once(self) -> bool:
        """Not where pairs of components are told something, as in transitions."""
        return all(len(own) <= 1 for axes in self.axes.values() for own in axes)

    def together(self, state: State, births: Mapping[int, Birth]) -> State:
        """What every one of the split was told, shared out as its own birth has it."""
        after = {name: tuple(np.array(part) for part in parts) for name, parts in self.told(state).items()}
        for k, birth in births.items():
            born = self.told(birth.state)
            for name, axes in self.axes.items():
                for part, own, other in zip(after[name], axes, born[name], strict=True):
                    for axis in own:
                        places = [k, *birth.born]
                        np.moveaxis(part, axis, 0)[places] = np.moveaxis(other, axis, 0)[places]
        return self.at(state, after)

    def birth(self, state: State, k: int, empty: Sequence[int], number: int, seed: int) -> Birth | None:
        """A split; of one that was known, all that it is told now as another component, if it looks like one, or as several.

        Passes give back what is like its past, which no split could tell from the rest.
        """
        if not self.stays[k]:
            return self.split(state, k, empty, number, seed)
        gain = float(self.apart(self.told(state), empty[0])[k])
        if not gain > 0.0:
            return None
        moved = self.merge(state, empty[0], k)
        parts = self.split(moved, empty[0], empty[1:], number, seed) if len(empty) > 1 else None
        if parts is not None and parts.gain > 0.0:
            return Birth(parts.state, gain + parts.gain, (empty[0], *parts.born))
        return Birth(moved, gain, (empty[0],))

    @property
    def separate(self) -> bool:
        """Whether no two components share anything of what their data look like, such as a precision."""
        return all(
            all(axis == (0,) for axis in self.axes[n]) and self.problem.blocks[n].shape[:1] == (self.size,)
            for n in self.emitted
        )

    def apart(self, told: Mapping[str, Stats], empty: int | None = None) -> Floats:
        """Nats by which what each component is told now rather has a law of its own than that of its past [size].

        Of emissions alone: A(η̃ + m) − A(η̃) + A(η̃ + past) − A(η̃ + past + m), a Bayes factor. Components that share something need
        an ``empty`` place to be told of.
        """
        gains = np.zeros(self.size)
        for name in self.emitted:
            family, past = self.problem.blocks[name].family, self._prior(name)
            own = tuple(np.asarray(part, np.float64) for part in told[name])
            both = tuple(p + m for p, m in zip(past, own, strict=True))
            if self.separate:
                nothing = self.problem.empty_prior(name)
                alone = tuple(p + m for p, m in zip(nothing, own, strict=True))
                for sign, lam in ((1.0, alone), (-1.0, nothing), (1.0, past), (-1.0, both)):
                    gains += sign * np.reshape(family.log_normalizer(lam), (self.size, -1)).sum(1)
            else:
                assert empty is not None
                moved = _merges_of(own, self.axes[name], empty, np.arange(self.size))
                after = family.log_normalizer(tuple(p + m for p, m in zip(past, moved, strict=True)))
                gains += np.reshape(after, (self.size, -1)).sum(1) - np.sum(family.log_normalizer(both))
        return gains

    def merge(self, state: State, kept: int, emptied: int) -> State:
        """What both were told, added up."""

        def add(part: Any, axis: int) -> None:
            part[kept] += part[emptied]
            part[emptied] = 0.0

        return self._changed(state, add)

    def delete(self, state: State, k: int) -> State:
        """Nothing was told."""

        def forget(part: Any, axis: int) -> None:
            part[k] = 0.0

        return self._changed(state, forget)

    def likeness(self, state: State) -> Floats:
        """The most that a merge can gain before the next sweep: the bound's global part, at the same memberships.

        What is lost besides is the entropy of the memberships in two that are one now.
        """
        alike, active = np.full((self.size, self.size), -np.inf), np.flatnonzero(self.active(state))
        told = self.told(state)
        before = self._normalizers({name: tuple(part[None] for part in parts) for name, parts in told.items()})
        for place, i in enumerate(active[:-1].tolist()):
            others = active[place + 1 :]
            merged = {name: _merges_of(parts, self.axes[name], i, others) for name, parts in told.items()}
            alike[i, others] = alike[others, i] = self._normalizers(merged) - before
        return alike

    def _normalizers(self, told: Mapping[str, Stats]) -> Floats:
        """Σ A of what groups may have told, one way in each element of the first axis."""
        total = np.zeros(1)
        for name, parts in told.items():
            lam = tuple(np.asarray(p + m, np.float64) for p, m in zip(self._prior(name), parts, strict=True))
            log_normalizer = np.asarray(self.problem.blocks[name].family.log_normalizer(lam))
            total = total + log_normalizer.reshape(len(log_normalizer), -1).sum(1)
        return total

    def _changed(self, state: State, change: Callable[[Any, int], None]) -> State:
        return self.at(state, {n: moved_axes(parts, self.axes[n], change) for n, parts in self.told(state).items()})

    def _prior(self, name: str) -> Stats:
        return self.problem.full_prior(name)


def settled(
    part: Any, state: State, sweeps: int, little: float, *, relative: bool = False, goal: float = -np.inf
) -> tuple[float, State]:
    """The bound and the state of a small problem after sweeps, until one gains so few nats (or so small a share of the bound).

    Or until the ``goal`` is out of reach.
    """
    bound = -np.inf
    for left in reversed(range(sweeps)):
        before, (state, bound, _, _) = bound, part.sweep(state)
        if bound - before <= (little * abs(bound) if relative else little):
            break
        if out_of_reach(bound, bound - before, left, goal):
            break
    return bound, state
