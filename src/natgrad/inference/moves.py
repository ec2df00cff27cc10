"""K is found: components are born, merged and deleted between passes, each move accepted only if the exact bound rises.

    birth     a component's data are split in two; the new half fills an empty place
    merge     what two components were told is added up; one of them is empty
    delete    a component is emptied; the next sweep gives its data to others
    exchange  a merge and a birth in the place that it left, so that K stays

A plate has room for as many components as there may be, and the empty ones keep their prior: they are part of the model, and
bounds before and after a move are bounds of the same evidence. A proposal is followed by a few of the run's own passes; if they
lead above where the run was, it goes on from there, otherwise it keeps its state, bit by bit. What was proposed is a function
of the state, the seed and the proposals before, which are in the trace: a run that was stopped goes on with the same ones.

Hughes and Sudderth (2013); Ueda et al. (2000); Ghahramani and Beal (2000).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.problem import GroupProblem, State
from natgrad.inference.trace import MoveRecord

__all__ = [
    "Birth",
    "Components",
    "GroupComponents",
    "Moves",
    "Proposal",
    "checked_moves",
    "hopeful",
    "moved_axes",
    "proposals",
    "records_of_start",
    "settled",
]

Floats = npt.NDArray[np.float64]
Stats = tuple[Any, ...]
# Axes of λ along which components lie, for every statistic of a block.
Axes = tuple[tuple[int, ...], ...]
# Observations up to which a component is empty: memberships of rows that are somewhere else add up to something everywhere.
EMPTY = 0.5
# A proposal that was refused is made again when what its components hold has changed by this part.
CHANGED = 0.05
# Pairs, the most alike first, and components, the smallest first, that are proposed for a merge or a delete in one round.
MOST_MERGES, MOST_DELETES, MOST_EXCHANGES = 8, 3, 3
# Nats that a birth may lose on its component's own data and still be worth passes over all of them; an exchange, with its merge.
WORTH, WORTH_EXCHANGE = -3.0, -20.0
# Nats that the merge of a pair may lose before the next sweep, and still be worth passes.
HOPELESS = -100.0


class Birth(NamedTuple):
    """A state with more components, what a fit to the data of the one that was split says of the gain (or NaN), and the new."""

    state: State
    gain: float
    born: tuple[int, ...]


class Components(ABC):
    """What moves must know of the components along one plate, found from the blocks of a problem.

    Parameters
    ----------
    plate : str, as the trace calls it
    size : int, the most components
    """

    plate: str
    size: int

    @property
    def may_empty(self) -> bool:
        """Whether a component of a given number may become empty, as the prior of the weights would have it."""
        return False

    @abstractmethod
    def held(self, state: State) -> Floats:
        """Observations that each component holds [size]; 0 for one that is empty."""

    @abstractmethod
    def split(self, state: State, k: int, empty: Sequence[int], number: int, seed: int) -> Birth | None:
        """Parts of what ``k`` holds in the places of one or more of the ``empty``; other parts for another ``number``.

        Two halves of four clusters may be no better than one: then several are born at a time. None if it cannot be split.
        """

    @abstractmethod
    def merge(self, state: State, kept: int, emptied: int) -> State:
        """One component holds what both held, and the other is empty."""

    @abstractmethod
    def delete(self, state: State, k: int) -> State:
        """The component is empty."""

    @abstractmethod
    def likeness(self, state: State) -> Floats:
        """How promising the merge of each pair is [size, size]; −∞ for one that is not."""

    def active(self, state: State) -> npt.NDArray[np.bool_]:
        """The components that hold something: half an observation, at least."""
        return np.asarray(self.held(state) > EMPTY)


class Moves(NamedTuple):
    """The plates whose components move; with ``keep`` their number stays."""

    parts: tuple[Components, ...]
    keep: bool = False


def checked_moves(parts: tuple[Components, ...], moves: Any, found: str = "") -> Moves:
    """What ``moves=`` of a fit asks for; ``found`` is the setting that has the number found, if there is one."""
    if moves not in (None, "keep"):
        raise ValueError(f'moves must be "keep" or None, got {moves!r}')
    if moves == "keep" and found:
        raise ValueError(
            f'moves="keep" keeps the number of components, which {found} asks to be found: leave out one of them'
        )
    return Moves(parts, keep=moves == "keep")


class Proposal(NamedTuple):
    """A move that may be tried: what kind, which components, what they hold, and the state to try from."""

    kind: str
    part: Components
    components: tuple[int, ...]
    held: float
    state: State | None
    gain: float = float("nan")


def records_of_start(moves: Moves, state: State) -> list[MoveRecord]:
    """How many components a run begins with, for the trace."""
    return [
        MoveRecord(state.t, part.plate, "start", (), float("-inf"), 0.0, True, int(part.active(state).sum()), 0.0)
        for part in moves.parts
    ]


def proposals(moves: Moves, state: State, earlier: Sequence[MoveRecord], seed: int) -> Iterator[Proposal]:
    """What may be tried at a complete state, and was not tried at one like it: births, then merges, then deletes."""
    for part in moves.parts:
        own = [record for record in earlier if record.plate == part.plate]
        held, active = part.held(state), part.active(state)
        empty = np.flatnonzero(~active)
        if len(empty):
            yield from _births(part, state, held, active, empty.tolist(), own, seed)
        if active.sum() < 2:
            continue
        alike = np.where(np.outer(active, active) & ~np.eye(part.size, dtype=bool), part.likeness(state), -np.inf)
        if not moves.keep or part.may_empty:
            yield from _merges(part, state, held, alike, own)
            yield from _deletes(part, state, held, alike, own)
        if moves.keep and not len(empty):
            yield from _exchanges(part, state, held, alike, own, seed)


def _births(
    part: Components,
    state: State,
    held: Floats,
    active: npt.NDArray[np.bool_],
    empty: list[int],
    own: list[MoveRecord],
    seed: int,
) -> Iterator[Proposal]:
    """The births of all components, the one that gains most on its own data first."""
    found = []
    for k in np.flatnonzero(active).tolist():
        if _refused(own, "birth", (k,), held[k]):
            continue
        birth = part.split(state, k, empty, _tries(own, k), seed)
        gain = float("-inf") if birth is None else birth.gain
        worth = birth is not None and not gain < WORTH
        # By what they gain, then by what they hold; last, those that are not worth a try.
        rank = (2, 0.0) if not worth else (0, -gain) if np.isfinite(gain) else (1, -held[k])
        born = (empty[0],) if birth is None else birth.born
        found.append(
            (rank, Proposal("birth", part, (k, *born), held[k], birth.state if birth and worth else None, gain))
        )
    yield from (proposal for _, proposal in sorted(found, key=lambda pair: pair[0]))


def _merges(part: Components, state: State, held: Floats, alike: Floats, own: list[MoveRecord]) -> Iterator[Proposal]:
    for kept, emptied in _pairs(alike, held)[:MOST_MERGES]:
        total = held[kept] + held[emptied]
        if not _refused(own, "merge", (kept, emptied), total):
            yield Proposal("merge", part, (kept, emptied), total, part.merge(state, kept, emptied))


def _deletes(part: Components, state: State, held: Floats, alike: Floats, own: list[MoveRecord]) -> Iterator[Proposal]:
    """The smallest, of those whose data some other component could take."""
    hopeful_ones = np.any(alike > -np.inf, axis=1)
    order = [k for k in np.argsort(held, kind="stable").tolist() if hopeful_ones[k]]
    for k in order[:MOST_DELETES]:
        if not _refused(own, "delete", (k,), held[k]):
            yield Proposal("delete", part, (k,), held[k], part.delete(state, k))


def _exchanges(
    part: Components, state: State, held: Floats, alike: Floats, own: list[MoveRecord], seed: int
) -> Iterator[Proposal]:
    """Two that are alike become one, or the smallest goes, and another is split in the place that is left.

    What a split gains hardly depends on the place that it fills: it is looked at for the first pair, and for others only where
    it may make up for what their merge loses.
    """
    smallest = int(np.argmin(held))
    gains: dict[int, float] = {}
    for kept, emptied in [*_pairs(alike, held)[:MOST_EXCHANGES], (smallest, smallest)]:
        total = held[kept] + held[emptied]
        loss = float(min(0.0, alike[smallest].max() if kept == emptied else alike[kept, emptied]))
        if loss == -np.inf or _exchange_refused(own, (kept, emptied), total):
            continue
        others = [k for k in range(part.size) if k not in (kept, emptied)]
        if gains:
            others = [k for k in others if _known(gains.get(k)) + loss >= WORTH_EXCHANGE]
            others = sorted(others, key=lambda k: -_known(gains.get(k)))[:MOST_EXCHANGES]
        fewer = part.delete(state, kept) if kept == emptied else part.merge(state, kept, emptied)
        births = [(k, part.split(fewer, k, [emptied], _tries(own, k), seed)) for k in others]
        gains.update({k: float("-inf") if birth is None else birth.gain for k, birth in births})
        worth = [(k, birth) for k, birth in births if birth and _known(birth.gain) + loss >= WORTH_EXCHANGE]
        for k, birth in sorted(worth, key=lambda pair: -_known(pair[1].gain))[:MOST_EXCHANGES]:
            yield Proposal("exchange", part, (kept, emptied, k), total, birth.state, birth.gain)
        yield Proposal("exchange", part, (kept, emptied), total, None)


def _known(gain: float | None) -> float:
    """What is not known is nothing."""
    return 0.0 if gain is None or np.isnan(gain) else gain


def _exchange_refused(own: list[MoveRecord], pair: tuple[int, int], total: float) -> bool:
    """Whether all exchanges in the place of a pair were refused since the last move, when both held about the same."""
    for record in reversed(own):
        if record.accepted:
            return False
        if record.kind == "exchange" and record.components == pair:
            return abs(total - record.held) <= CHANGED * record.held
    return False


def _pairs(alike: Floats, held: Floats) -> list[tuple[int, int]]:
    """Pairs of components, the larger of the two first, those most alike first."""
    rows, columns = np.triu_indices(len(held), 1)
    good = alike[rows, columns] > -np.inf
    rows, columns = rows[good], columns[good]
    order = np.argsort(-alike[rows, columns], kind="stable")
    pairs = zip(rows[order].tolist(), columns[order].tolist(), strict=True)
    return [(i, j) if held[i] >= held[j] else (j, i) for i, j in pairs]


def _refused(own: list[MoveRecord], kind: str, components: tuple[int, ...], held: float) -> bool:
    """Whether the same was refused when its components held about the same, and were these."""
    for record in reversed(own):
        if record.accepted and set(record.components) & set(components):
            return False
        same = record.components[: len(components)] == components
        if record.kind == kind and same and not record.accepted:
            return abs(held - record.held) <= CHANGED * record.held
    return False


def _tries(own: list[MoveRecord], k: int) -> int:
    """How often the birth from a component was refused: the next one is another."""
    return sum(record.kind == "birth" and not record.accepted and record.components[0] == k for record in own)


# -- components whose natural parameters are sums --


def hopeful(gains: Floats) -> Floats:
    """What merges can gain, −∞ where it is hopeless."""
    return np.where(gains < HOPELESS, -np.inf, gains)


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
    """

    def __init__(self, problem: GroupProblem, plate: str, size: int, axes: Mapping[str, Axes]) -> None:
        self.problem, self.plate, self.size, self.axes = problem, plate, size, axes

    def told(self, state: State) -> dict[str, Stats]:
        """λ less the prior."""
        return {
            name: tuple(np.asarray(g, np.float64) - p for g, p in zip(state.lam[name], self._prior(name), strict=True))
            for name in self.axes
        }

    def at(self, state: State, told: Mapping[str, Stats]) -> State:
        """The state in which groups told this; what was remembered is of another one."""
        lam, mu = dict(state.lam), dict(state.mu)
        for name, parts in told.items():
            lam[name] = tuple(np.asarray(p + m, np.float64) for p, m in zip(self._prior(name), parts, strict=True))
            mu[name] = self.problem.moments(self.problem.blocks[name], lam[name])
        return state._replace(lam=lam, mu=mu, memory={})

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

        What is lost besides is the entropy of the memberships in two that are one now. −∞ where the loss is hopeless.
        """
        alike, active = np.full((self.size, self.size), -np.inf), np.flatnonzero(self.active(state))
        told = self.told(state)
        before = self._normalizers({name: tuple(part[None] for part in parts) for name, parts in told.items()})
        for place, i in enumerate(active[:-1].tolist()):
            others = active[place + 1 :]
            merged = {name: _merges_of(parts, self.axes[name], i, others) for name, parts in told.items()}
            alike[i, others] = alike[others, i] = self._normalizers(merged) - before
        return hopeful(alike)

    def _normalizers(self, told: Mapping[str, Stats]) -> Floats:
        """Σ A of what groups may have told, one way in each element of the first axis."""
        total = np.zeros(1)
        for name, parts in told.items():
            lam = tuple(np.asarray(p + m, np.float64) for p, m in zip(self._prior(name), parts, strict=True))
            found = np.asarray(self.problem.blocks[name].family.log_normalizer(lam))
            total = total + found.reshape(len(found), -1).sum(1)
        return total

    def _changed(self, state: State, change: Callable[[Any, int], None]) -> State:
        return self.at(state, {n: moved_axes(parts, self.axes[n], change) for n, parts in self.told(state).items()})

    def _prior(self, name: str) -> Stats:
        return self.problem.full_prior(name)


def settled(part: Any, state: State, sweeps: int, little: float, relative: bool = False) -> tuple[float, State]:
    """The bound and the state of a small problem after sweeps, until one gains so few nats (or so small a share of the bound)."""
    bound = -np.inf
    for _ in range(sweeps):
        before, (state, bound, _, _) = bound, part.sweep(state)
        if bound - before <= (little * abs(bound) if relative else little):
            break
    return bound, state
