"""Components of ready models for `natgrad.inference.moves`: their natural parameters are sums over what groups told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.inference.components import Birth, Components, out_of_reach
from natgrad.inference.problem import GroupProblem, State
from natgrad.inference.steppers.group_memory import BEFORE

__all__ = ["GroupComponents", "moved_axes", "settled"]

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
        """A split; of one that was known, all that it is told now as another component, if it looks like one.

        Passes give back what is like its past, which no split could tell from the rest.
        """
        if not self.stays[k]:
            return self.split(state, k, empty, number, seed)
        gain = float(self.apart(self.told(state))[k])
        return Birth(self.merge(state, empty[0], k), gain, (empty[0],)) if gain > 0.0 else None

    def apart(self, told: Mapping[str, Stats]) -> Floats:
        """Nats by which what each component is told now rather has a law of its own than that of its past [size].

        Of emissions alone: A(η̃ + m) − A(η̃) + A(η̃ + past) − A(η̃ + past + m), a Bayes factor.
        """
        gains = np.zeros(self.size)
        for name in self.emitted:
            block, axes = self.problem.blocks[name], self.axes[name]
            nothing, past = self.problem.empty_prior(name), self._prior(name)
            own = tuple(np.asarray(part, np.float64) for part in told[name])
            if all(axis == (0,) for axis in axes) and block.shape[:1] == (self.size,):
                alone, both = (tuple(p + m for p, m in zip(prior, own, strict=True)) for prior in (nothing, past))
                for sign, lam in ((1.0, alone), (-1.0, nothing), (1.0, past), (-1.0, both)):
                    gains += sign * np.reshape(block.family.log_normalizer(lam), (self.size, -1)).sum(1)
            else:  # components that share something, such as a precision
                gains += [
                    float(np.sum(block.family.log_normalizer(moved) - block.family.log_normalizer(stayed)))
                    for stayed, moved in (_with_one_more(nothing, past, own, axes, k) for k in range(self.size))
                ]
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


def _with_one_more(nothing: Stats, past: Stats, told: Stats, axes: Axes, k: int) -> tuple[Stats, Stats]:
    """λ with an empty component more, and with what was told of ``k`` in it."""
    stayed, moved = [], []
    for empty, prior, message, own in zip(nothing, past, told, axes, strict=True):
        stays, moves = prior + message, prior + message
        for axis in own:
            one, mine = np.take(empty, [0], axis), np.take(message, [k], axis)
            stays, moves = np.concatenate([stays, one], axis), np.concatenate([moves, one + mine], axis)
            np.moveaxis(moves, axis, 0)[k] -= np.moveaxis(mine, axis, 0)[0]
        stayed.append(stays)
        moved.append(moves)
    return tuple(stayed), tuple(moved)


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
