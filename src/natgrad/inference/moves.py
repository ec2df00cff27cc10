"""K is found: components are born, merged and deleted between passes, each move accepted only if the exact bound rises.

    birth     a component's data are split in two; the new half fills an empty place
    births    several of these at once, where that is how a model grows to many components
    merge     what two components were told is added up; one of them is empty
    delete    a component is emptied; the next sweep gives its data to others
    exchange  a merge and a birth in the place that it left, of another component or of the same, so that K stays
    anew      more components from a start of their own, where those that births lead to are poor (topics)
    order     the same components in other places, where priors tell places apart (sticks)
    explore   as many components, where sweeps of a sampler lead from those there are (topics)

A plate has room for as many components as there may be, and the empty ones keep their prior: they are part of the model, and
bounds before and after a move are bounds of the same evidence. A proposal is followed by a few of the run's own passes; if they
lead above where the run was, it goes on from there, otherwise it keeps its state, bit by bit. What was proposed is a function
of the state, the seed and the proposals before, which are in the trace: a run that was stopped goes on with the same ones.

Hughes and Sudderth (2013); Ueda et al. (2000); Ghahramani and Beal (2000).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.inference.group_components import HOPELESS, Birth, Components
from natgrad.inference.problem import State
from natgrad.inference.proposals import Proposal
from natgrad.inference.trace import ProposalRecord, Trace

__all__ = ["Moves", "checked_moves", "moves_are_due", "proposed_moves"]

Floats = npt.NDArray[np.float64]
# A proposal that was refused is made again when what its components hold has changed by this part.
CHANGED = 0.05
# Pairs, the most alike first, and components, the smallest first, that are proposed for a merge or a delete in one round.
MOST_MERGES, MOST_DELETES, MOST_EXCHANGES = 8, 3, 2
# Components that are begun anew, where a model has a start for it: so many, twice as many, and so on.
FIRST_STEP = 8
# Nats that a birth may lose on its component's own data and still be worth passes over all of them; an exchange, with its merge.
WORTH, WORTH_EXCHANGE = -3.0, -20.0
# Nats that a delete may lose before the other components follow, and still be worth passes.
WORTH_DELETE = -20.0
# A pass that gains less than so many nats has found what its components are; or so many passes since the last move are enough.
LITTLE, ENOUGH = 1.0, 10
# Passes between two rounds in which all proposals were refused, and after several births, which were a guess.
PATIENCE, GROWING = 5, 3
# Nats that one more component must be worth. Less than that, passes gain by themselves after a birth that came to nothing.
BIRTH = 1.0
# Moves that must gain so much: those that make more components, and those that may lead to the same ones in another order.
COSTLY = ("birth", "births", "anew", "exchange", "explore", "order")
# Nats below the run from which a state is worth passes, where its bound is known after some sweeps already.
NOT_FAR = 1.0
# Nats above the run up to which the same components in another order are no more than the same.
AS_HIGH = 0.1


class Moves(NamedTuple):
    """The plates whose components move; with ``keep`` their number stays."""

    parts: tuple[Components, ...]
    keep: bool = False


def checked_moves(parts: tuple[Components, ...], moves: Any, auto_setting: str = "") -> Moves:
    """What ``moves=`` of a fit asks for; ``found`` is the setting that has the number found, if there is one."""
    if moves not in (None, "keep"):
        raise ValueError(f'moves must be "keep" or None, got {moves!r}')
    if moves == "keep" and auto_setting:
        raise ValueError(
            f'moves="keep" keeps the number of components, which {auto_setting} asks to be found: leave out one of them'
        )
    return Moves(parts, keep=moves == "keep")


class _Move(NamedTuple):
    """A move that may be tried: what kind, which components, what they hold, the state to try from, and how many are born.

    ``gain`` is what a fit to its own data says, ``bound`` that of the state, where they are known.
    """

    kind: str
    part: Components
    components: tuple[int, ...]
    held: float
    state: State | None
    gain: float = float("nan")
    n_born: int = 1
    bound: float = float("nan")


def moves_are_due(trace: Trace, bounds: Sequence[float], begun: int, per_pass: int, tol: float, settled: bool) -> bool:
    """Whether components may move now: after a pass, when little was gained, or all of it.

    A function of the trace alone, so that a run that was stopped goes on with the same moves.
    """
    if settled:
        return True
    if len(bounds) < per_pass + 1 or trace.last.elbo != bounds[-1]:
        return False
    last = trace.moves[-1] if trace.moves else None
    since = sum(r.t > (begun if last is None else last.t) and not np.isnan(r.elbo) for r in trace.records)
    if since == 0 or since % per_pass:
        return False
    if last is not None and not last.accepted:
        return since >= PATIENCE * per_pass
    if last is not None and last.kind in ("births", "anew") and since >= GROWING * per_pass:
        return True
    return bounds[-1] - bounds[-1 - per_pass] <= max(tol, LITTLE) or since >= ENOUGH * per_pass


def proposed_moves(
    moves: Moves, state: State, earlier: Sequence[ProposalRecord], seed: int, bound: float = np.inf
) -> Iterator[Proposal]:
    """Propose moves of a complete state that were not refused at one like it: births, then merges, then deletes.

    One whose ELBO is known and far below the ``bound`` of the state, or that has led back to the same components, has no state:
    it is refused before any sweep.
    """
    goal = bound - NOT_FAR if np.isfinite(bound) else -np.inf
    for move in _moves(moves, state, earlier, seed, goal):
        part = move.part
        hopeless = move.state is None or move.bound < goal or _is_back(move, state, bound)
        yield Proposal(
            move.kind, part.plate, None if hopeless else move.state, move.components, move.held,
            BIRTH * move.n_born if move.kind in COSTLY else 0.0,
            part.n_active,
        )  # fmt: skip


def _is_back(move: _Move, state: State, bound: float) -> bool:
    """Whether an exchange has led to the components that there were, and no higher: priors may tell their order apart."""
    if move.kind != "exchange" or move.state is None or not move.bound < bound + AS_HIGH:
        return False
    return move.part.alike(move.state, state)


def _moves(moves: Moves, state: State, earlier: Sequence[ProposalRecord], seed: int, goal: float) -> Iterator[_Move]:
    """What may be tried; a split whose ELBO is known to stay below the ``goal`` is not made."""
    for part in moves.parts:
        own = [record for record in earlier if record.name == part.plate]
        here = _Round(part, state, own, seed, goal, part.held(state), part.active(state))
        # A ladder is climbed until a step is refused; those it led to are looked at one by one after that.
        climbing = [record.kind for record in own if record.accepted][-1:] == ["anew"]
        if climbing:
            yield from here.anew()
            yield from here.explored()
        yield from here.ordered()
        full = here.active.all()
        if not full:
            yield from here.births()
        if here.active.sum() < 2:
            continue
        alike = here.likeness()
        if not moves.keep or part.may_empty:
            hopeful = np.where(alike < HOPELESS, -np.inf, alike)
            yield from here.merges(hopeful)
            yield from here.deletes(hopeful)
        if not moves.keep and not climbing:
            yield from here.anew()
        if not climbing:
            yield from here.explored()
        if moves.keep and full:
            yield from here.split_again(alike)
            yield from here.exchanges(alike)


class _Round(NamedTuple):
    """The components along one plate at a state, what they hold, and what was proposed of them before."""

    part: Components
    state: State
    own: list[ProposalRecord]
    seed: int
    goal: float
    held: Floats
    active: npt.NDArray[np.bool_]

    def likeness(self) -> Floats:
        """How alike two components are that may be merged; −∞ for others."""
        part, active = self.part, self.active
        pairs = np.outer(active, active) & ~np.outer(part.stays, part.stays) & ~np.eye(part.size, dtype=bool)
        return np.where(pairs, part.likeness(self.state), -np.inf)

    def ordered(self) -> Iterator[_Move]:
        """Other places for the same components, where priors tell places apart."""
        found, total = self.part.ordered(self.state), float(self.held.sum())
        if found is not None and not self.refused("order", found[1], total):
            yield _Move("order", self.part, found[1], total, found[0])

    def births(self) -> Iterator[_Move]:
        """Births, several at once where they can be, and then one by one, the one that gains most on its own data first."""
        ranked, good = [], dict[int, Birth]()
        left = empty = np.flatnonzero(~self.active).tolist()
        for k in sorted(np.flatnonzero(self.active).tolist(), key=lambda k: -self.held[k]):
            if self.refused("birth", (k,), self.held[k]):
                continue
            birth = self.part.birth(self.state, k, left or empty, self.tries(k), self.seed)
            gain = float("-inf") if birth is None else birth.gain
            worth = birth is not None and not gain < WORTH
            # By what they gain, then by what they hold; last, those that are not worth a try.
            rank = (2, 0.0) if not worth else (0, -gain) if np.isfinite(gain) else (1, -self.held[k])
            born = (empty[0],) if birth is None else birth.born
            state = birth.state if birth and worth else None
            ranked.append((rank, _Move("birth", self.part, (k, *born), self.held[k], state, gain)))
            if self.part.at_once and birth is not None and left and gain > 0.0:
                good[k], left = birth, [place for place in left if place not in birth.born]
        yield from self.several_births(good)
        yield from (proposal for _, proposal in sorted(ranked, key=lambda pair: pair[0]))

    def several_births(self, good: dict[int, Birth]) -> Iterator[_Move]:
        """Those that gain on their own data, all at once; or the better half of them, and so on."""
        order = sorted(good, key=lambda k: -good[k].gain)
        while len(order) > 1:
            births = {k: good[k] for k in order}
            components = (*order, *(place for birth in births.values() for place in birth.born))
            total = float(self.held[order].sum())
            if not self.refused("births", components, total):
                gain, n_born = sum(birth.gain for birth in births.values()), len(components) - len(order)
                together = self.part.together(self.state, births)
                yield _Move("births", self.part, components, total, together, gain, n_born)
            order = order[: len(order) // 2]

    def anew(self) -> Iterator[_Move]:
        """The next two numbers of a ladder above K, each of them once."""
        part, n_active = self.part, int(self.active.sum())
        tried = {record.components for record in self.own if record.kind == "anew"}
        ladder = [min(FIRST_STEP << n, part.size) for n in range(part.size.bit_length())]
        for size in sorted({step for step in ladder if step > n_active})[:2]:
            if (size,) not in tried:
                proposed = part.anew(self.state, size, self.seed)
                if proposed is None:
                    return
                yield _Move("anew", part, (size,), float(self.held.sum()), proposed, n_born=size - n_active)

    def explored(self) -> Iterator[_Move]:
        """Sweeps of a sampler, as long as they gain a nat for each component; refused once with so many, not again with these."""
        n_active, tried = int(self.active.sum()), [record for record in self.own if record.kind == "explore"]
        if any(not record.accepted and record.n_active == n_active for record in tried):
            return
        proposed = self.part.explored(self.state, len(tried), self.seed)
        if proposed is not None:
            yield _Move("explore", self.part, (), float(self.held.sum()), proposed, n_born=n_active)

    def merges(self, alike: Floats) -> Iterator[_Move]:
        """Pairs, those most alike first."""
        for kept, emptied in self.pairs(alike)[:MOST_MERGES]:
            total = self.held[kept] + self.held[emptied]
            if not self.refused("merge", (kept, emptied), total):
                merged = self.emptied(self.part.merge(self.state, kept, emptied), emptied)
                yield _Move("merge", self.part, (kept, emptied), total, merged)

    def deletes(self, alike: Floats) -> Iterator[_Move]:
        """Those that promise most; or the smallest, of those whose data some other component could take."""
        gains = self.part.delete_gains(self.state, self.seed)
        if gains is None:
            order = [k for k in np.argsort(self.held, kind="stable").tolist() if np.any(alike[k] > -np.inf)]
        else:
            order = [k for k in np.argsort(-gains, kind="stable").tolist() if gains[k] >= WORTH_DELETE]
        for k in [k for k in order if not self.part.stays[k]][:MOST_DELETES]:
            if not self.refused("delete", (k,), self.held[k]):
                yield _Move("delete", self.part, (k,), self.held[k], self.emptied(self.part.delete(self.state, k), k))

    def emptied(self, state: State, k: int) -> State | None:
        """The state, if the component is empty in it: one that holds known labels never is."""
        return None if self.part.active(state)[k] else state

    def split_again(self, alike: Floats) -> Iterator[_Move]:
        """Two become one, which is split again: one of them may have had a part of the other.

        Those most alike, and the smallest with the largest, which took what it lacks.
        """
        part, held = self.part, self.held
        smallest, most = int(np.argmin(held)), max(MOST_EXCHANGES, part.size // 3)
        largest = [k for k in np.argsort(-held, kind="stable").tolist() if k != smallest][:most]
        for kept, emptied in dict.fromkeys([*((k, smallest) for k in largest), *self.pairs(alike)[:most]]):
            places, total = (kept, emptied, kept), held[kept] + held[emptied]
            if self.exchange_refused(places, total):
                continue
            merged = part.merge(self.state, kept, emptied)
            birth = part.split(merged, kept, [emptied], 0, self.seed, goal=self.goal)
            state, gain, bound = (None, np.nan, np.nan) if birth is None else (birth.state, birth.gain, birth.bound)
            yield _Move("exchange", part, places, total, state, gain, bound=bound)

    def exchanges(self, alike: Floats) -> Iterator[_Move]:
        """Two that are alike become one, or the smallest goes, and another is split in the place that is left.

        What a split gains hardly depends on the place that it fills: it is looked at for the first pair, and for others only
        where it may make up for what their merge loses.
        """
        part, held, smallest = self.part, self.held, int(np.argmin(self.held))
        gains: dict[int, float] = {}
        for kept, emptied in [*self.pairs(alike)[:MOST_EXCHANGES], (smallest, smallest)]:
            total = held[kept] + held[emptied]
            loss = float(min(0.0, alike[smallest].max() if kept == emptied else alike[kept, emptied]))
            if not loss >= part.most_loss or self.exchange_refused((kept, emptied), total):
                continue
            others = [k for k in range(part.size) if k not in (kept, emptied)]
            if gains:
                # Those of the first pair have not been looked at.
                others = [k for k in others if k not in gains or _known(gains[k]) + loss >= WORTH_EXCHANGE]
                others = sorted(others, key=lambda k: -_known(gains[k]) if k in gains else -np.inf)
                others = others[: MOST_EXCHANGES + 2]
            fewer = part.delete(self.state, kept) if kept == emptied else part.merge(self.state, kept, emptied)
            births = [(k, part.split(fewer, k, [emptied], self.tries(k), self.seed, goal=self.goal)) for k in others]
            gains.update({k: float("-inf") if birth is None else birth.gain for k, birth in births})
            # Where the bound is known, it decides before any pass.
            worth = [
                (k, birth)
                for k, birth in births
                if birth and (not np.isnan(birth.bound) or _known(birth.gain) + loss >= WORTH_EXCHANGE)
            ]
            worth.sort(key=lambda pair: (-_known(pair[1].bound), -_known(pair[1].gain)))
            for k, birth in worth[:MOST_EXCHANGES]:
                yield _Move("exchange", part, (kept, emptied, k), total, birth.state, birth.gain, bound=birth.bound)
            yield _Move("exchange", part, (kept, emptied), total, None)

    def pairs(self, alike: Floats) -> list[tuple[int, int]]:
        """Pairs of components, the one that stays or the larger of the two first, those most alike first."""
        held, stays = self.held, self.part.stays
        rows, columns = np.triu_indices(len(held), 1)
        good = alike[rows, columns] > -np.inf
        rows, columns = rows[good], columns[good]
        order = np.argsort(-alike[rows, columns], kind="stable")
        pairs = zip(rows[order].tolist(), columns[order].tolist(), strict=True)
        return [(i, j) if (stays[i], held[i]) >= (stays[j], held[j]) else (j, i) for i, j in pairs]

    def refused(self, kind: str, components: tuple[int, ...], held: float) -> bool:
        """Whether the same was refused when its components held about the same, and were these."""
        for record in reversed(self.own):
            if record.accepted and set(record.components) & set(components):
                return False
            same = record.components[: len(components)] == components
            if record.kind == kind and same and not record.accepted:
                return abs(held - record.held) <= CHANGED * record.held
        return False

    def exchange_refused(self, places: tuple[int, ...], total: float) -> bool:
        """Whether all exchanges in the place of a pair were refused since the last move, when both held about the same."""
        for record in reversed(self.own):
            if record.accepted:
                return False
            if record.kind == "exchange" and record.components == places:
                return abs(total - record.held) <= CHANGED * record.held
        return False

    def tries(self, k: int) -> int:
        """How often the birth from a component was refused: the next one is another."""
        return sum(record.kind == "birth" and not record.accepted and record.components[0] == k for record in self.own)


def _known(gain: float) -> float:
    """What is not known is nothing."""
    return 0.0 if np.isnan(gain) else gain
