"""Components of ready models for `natgrad.inference.moves`: their natural parameters are sums over what groups told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.components import Birth, Components, out_of_reach
from natgrad.inference.problem import GroupProblem, State
from natgrad.inference.steppers.group_memory import BEFORE

__all__ = ["GroupComponents", "moved_axes", "restricted", "settled"]

Floats = npt.NDArray[np.float64]
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
