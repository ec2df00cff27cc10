"""Counts as the engine's Problem: hierarchical Poisson factorisation, where a pair that is not stored is a zero.

    r_ij ~ Poisson(Σ_k θ_ik β_jk),   θ_ik ~ Gamma(a, ξ_i),   ξ_i ~ Gamma(a', b'),   and the same for β_jk and η_j

Zeros cost nothing: what they say is −Σ_k (Σ_i E[θ_ik]) (Σ_j E[β_jk]). Gopalan, Hofman and Blei (2015). Blocks "u" (θ),
"user_rate" (ξ), "v" (β) and "item_rate" (η).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
from scipy import special

from natgrad.data.ratings import Ratings, RatingsRows
from natgrad.families import Gamma
from natgrad.families.natural_step import blend, distance, size_of
from natgrad.inference.engine import Phase
from natgrad.inference.executors import BroadcastArgument
from natgrad.inference.methods import VB, Method
from natgrad.inference.problem import Block, BlockInfo, ChildSet, EdgeProblem, Sampled, State, SweepResult
from natgrad.kernels.factorization.counts import share_counts
from natgrad.models.factorization.likelihoods import RatingSettings, extended_state, narrowed, with_parts, with_rows
from natgrad.models.factorization.parts import cut_sides, shards_of
from natgrad.models.factorization.predictors import PoissonPredictor, Predictor
from natgrad.models.factorization.sides import LEAST_RATINGS, OTHER, PLATE, aligned, blended_block, owned, run_alone
from natgrad.random import Stream, generator
from natgrad.validation import check_counts

__all__ = ["Counts", "CountsProblem"]

Floats = npt.NDArray[np.float64]
Pair = tuple[Floats, Floats]
GAMMA = Gamma()
RATE = {"u": "user_rate", "v": "item_rate"}
SIDE = {name: side for side, name in RATE.items()}
ORDER = ("u", "user_rate", "v", "item_rate")
# a of the factors, a' and b' of their rates, as the authors have them: small a makes factors sparse.
SHAPE, RATE_SHAPE, RATE_RATE = 0.3, 0.3, 0.3


# Runs of rows with about equally many ratings: enough to balance the threads whatever their number, and long enough that
# starting them costs nothing. They depend on the data alone, so that results do not depend on the threads.
MOST_CHUNKS = 64


class Side(NamedTuple):
    """The counts of one side in compressed rows, cut into chunks of rows."""

    chunks: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    other: npt.NDArray[np.int32]
    values: Floats

    @property
    def n_rows(self) -> int:
        """Users, or items."""
        return len(self.start) - 1


@final
class CountsProblem(EdgeProblem):
    """Counts with Gamma factors.

    Parameters
    ----------
    ratings : Ratings, whole numbers ≥ 0
    n_factors : int, K
    """

    shards_by_row = True

    def __init__(self, ratings: Ratings, n_factors: int) -> None:
        self.ratings, self.n_factors = ratings, n_factors
        self.sides = {"u": make_side(ratings.sorted_by_user), "v": make_side(ratings.sorted_by_item)}
        self.constant = -float(special.gammaln(ratings.values + 1.0).sum())

    @cached_property
    def blocks(self) -> Mapping[str, Block]:  # type: ignore[override]
        """Rates of both sides, and their factors."""
        blocks, rows = {}, {"u": self.ratings.n_users, "v": self.ratings.n_items}
        for side in OTHER:
            blocks[RATE[side]] = Block(RATE[side], GAMMA, (PLATE[side],), (rows[side],))
            blocks[side] = Block(side, GAMMA, (PLATE[side], "factor"), (rows[side], self.n_factors))
        return blocks

    @cached_property
    def observed(self) -> Mapping[str, npt.NDArray[np.int64]]:
        """The counts that are stored."""
        return {"r": np.arange(len(self.ratings))}

    @cached_property
    def _child_sets(self) -> dict[str, list[ChildSet]]:
        sets = {}
        rows = {"u": self.ratings.by_user, "v": self.ratings.by_item}
        for name, block in self.blocks.items():
            if name in rows:
                sizes, group = {"rating": len(self.ratings)}, rows[name]
                sets[name] = [ChildSet("r", True, 0, block, (0,), sizes, group.place, group.start)]
            else:
                n = block.shape[0] * self.n_factors
                sizes = {PLATE[SIDE[name]]: block.shape[0], "factor": self.n_factors}
                start = np.arange(0, n + 1, self.n_factors)
                sets[name] = [ChildSet(SIDE[name], False, 0, block, (0,), sizes, np.arange(n), start)]
        return sets

    def child_sets(self, name: str) -> list[ChildSet]:
        """The counts of a row; of a rate, the factors of its row."""
        return self._child_sets[name]

    def coupling(self, name: str) -> int:
        """Factors of both sides meet in a count, a rate and a factor in its prior."""
        return 2 if name in SIDE else 2 * self.n_factors

    def neighbours(self, name: str) -> set[str]:
        """The other side and the rates, or the side of a rate."""
        return {SIDE[name]} if name in SIDE else {OTHER[name], RATE[name]}

    def start(self, seed: int, sd: float = 1.0, sides: tuple[str, ...] = ("u", "v")) -> State:
        """Factors around what makes the mean of all pairs right, a tenth up or down; equal ones would stay equal."""
        level = np.sqrt(self.ratings.values.sum() / (self.ratings.n_users * self.ratings.n_items) / self.n_factors)
        lam: dict[str, Pair] = {}
        for number, (name, block) in enumerate(self.blocks.items()):
            if SIDE.get(name, name) not in sides:
                continue
            if name in SIDE:
                shape = np.full(block.shape, RATE_SHAPE + self.n_factors * SHAPE)
                lam[name] = -shape / (SHAPE / level), shape - 1.0
                continue
            around = 1.0 + 0.1 * sd * generator(seed, Stream.START, number).uniform(-1.0, 1.0, block.shape)
            lam[name] = np.full(block.shape, -1.0), np.maximum(level * around, 1e-3) - 1.0
        return State(lam, {name: self.moments(self.blocks[name], part) for name, part in lam.items()}, 0)

    def sweep(self, state: State, order: tuple[str, ...], rho: float = 1.0) -> SweepResult:
        """Every block once, each with the best φ; the bound takes one more pass over the counts."""
        info: dict[str, BlockInfo] = {}
        for name in order:
            old = state.lam[name]
            goal = self.target(self.blocks[name], state)
            new = owned(blend(old, goal, rho))
            mu = self.moments(self.blocks[name], new)
            state = state._replace(lam={**state.lam, name: new}, mu={**state.mu, name: mu})
            info[name] = BlockInfo(bool(np.all(GAMMA.valid(new))), distance(owned(old), new) / size_of(owned(old)))
        return SweepResult(state._replace(t=state.t + 1), self.bound(state), info)

    def bound(self, state: State) -> float:
        """The evidence lower bound, with the best φ."""
        mu = {name: self.moments(self.blocks[name], state.lam[name]) for name in self.blocks}
        logs = self._shared("u", mu)[1]
        zeros = float(mu["u"][0].sum(0) @ mu["v"][0].sum(0))
        bound = self.constant + float(logs.sum()) - zeros
        for side, rate in RATE.items():
            bound -= float(np.sum(GAMMA.kl(state.lam[rate], self._prior(rate))))
            (x, log_x), (xi, log_xi) = mu[side], mu[rate]
            density = SHAPE * log_xi[:, None] - special.gammaln(SHAPE) + (SHAPE - 1.0) * log_x - xi[:, None] * x
            bound += float(density.sum() + np.sum(GAMMA.entropy(state.lam[side])))
        return bound

    def target(
        self,
        block: Block,
        state: State,
        full: tuple[str, ...] | None = None,
        sampled: tuple[Sampled, ...] = (),
        column: int | None = None,
    ) -> Pair:
        """λ* with the best φ, from all counts."""
        name = block.name
        if sampled or full is not None:
            raise NotImplementedError("counts are read as a whole: leave out method=, or take VB()")
        mu = {key: owned(part) for key, part in state.mu.items()}
        if name in SIDE:
            prior = self._prior(name)
            return prior[0] - mu[SIDE[name]][0].sum(1), prior[1] + SHAPE * self.n_factors
        rate = mu[RATE[name]][0][:, None] + mu[OTHER[name]][0].sum(0)
        return -rate, SHAPE - 1.0 + self._shared(name, mu)[0]

    def step_block(
        self, block: Block, state: State, target: Any, rho: Any, column: int | None = None
    ) -> tuple[State, BlockInfo]:
        """λ ← (1 − ρ) λ + ρ λ^temp."""

        def fresh(lam: Pair) -> tuple[Pair, bool]:
            return self.moments(block, lam), bool(np.all(GAMMA.valid(lam)))

        return blended_block(block, state, target, rho, column, fresh)

    def moments(self, block: Block, lam: Any) -> Pair:
        """μ = ∇A(λ)."""
        return owned(GAMMA.expected_stats(owned(lam)))

    def _prior(self, name: str) -> Pair:
        shape = self.blocks[name].shape
        return np.full(shape, -RATE_RATE), np.full(shape, RATE_SHAPE - 1.0)

    def _shared(self, name: str, mu: Mapping[str, Pair]) -> tuple[Floats, Floats]:
        """Σ_n r_n φ_nk and Σ_n r_n log Σ_k … of each row. Scaled by the largest G of each row, which may be tiny."""
        tops = {side: mu[side][1].max(1) for side in OTHER}
        own, other = (np.exp(mu[side][1] - tops[side][:, None]) for side in (name, OTHER[name]))
        side = self.sides[name]
        out, logs = share_rows(side, own, other) if self.placed is None else self._elsewhere(name, own, other)
        back = np.add.reduceat(np.append(side.values * tops[OTHER[name]][side.other], 0.0), side.start[:-1])
        totals = np.add.reduceat(np.append(side.values, 0.0), side.start[:-1])
        some = np.diff(side.start) > 0
        return out, logs + np.where(some, back + totals * tops[name], 0.0)

    def shards(self, n_threads: int) -> list[Any]:
        """Users, then items, in runs of rows with about equally many counts."""
        rows = {"u": self.ratings.sorted_by_user, "v": self.ratings.sorted_by_item}
        self._cuts = cut_sides(rows, n_threads)
        return shards_of(self.ratings, self._cuts, lambda *_: make_side)

    def _elsewhere(self, name: str, own: Floats, other: Floats) -> tuple[Floats, Floats]:
        """The sums of every row, where the shards are."""
        assert self.placed is not None
        cut, told = self._cuts[name], BroadcastArgument(other)
        calls = [(cut.first + n, (own[a:b], told)) for n, (a, b) in enumerate(pairwise(cut.borders))]
        out, logs = zip(*self.placed.run(share_rows, calls), strict=True)
        return np.concatenate(out), np.concatenate(logs)


def share_rows(side: Side, own: Floats, other: Floats) -> tuple[Floats, Floats]:
    """Σ_n r_n φ_nk and Σ_n r_n log Σ_k G_ik G_jk of each row."""
    out, logs = np.empty(own.shape), np.empty(len(own))
    arguments = *(aligned(part) for part in side), aligned(own), aligned(other), out, logs
    if len(side.chunks) > 2:
        share_counts(*arguments)
    else:
        run_alone(share_counts, *arguments)
    return out, logs


@final
class Counts:
    """Counts, for the estimator."""

    sides, offset, warm_up = ("u", "v"), 0.0, 0

    def __init__(self, settings: RatingSettings, ratings: Ratings) -> None:
        values = ratings.values
        if (bad := np.flatnonzero((values < 0) | (values != np.round(values)))).size:
            raise ValueError(
                f'likelihood="poisson" takes counts, whole numbers ≥ 0, got values[{bad[0]}] = {values[bad[0]]:g} '
                f"({len(bad)} such)"
            )
        check_counts(values, "values")
        if not values.any():
            raise ValueError('likelihood="poisson": every count is 0; nothing can be learned from them')
        self.settings, self.n_factors = settings, settings.n_factors

    def start(self, ratings: Ratings, seed: int, scale: float) -> State:
        """Factors around the mean."""
        return CountsProblem(ratings, self.n_factors).start(seed, scale)

    def phase(self, ratings: Ratings, seed: int, t: int, method: Method | None, growing: bool) -> Phase:
        """One part."""
        if method is not None and not isinstance(method, VB):
            raise ValueError(f'likelihood="poisson" reads all counts at each step, got method={method}: leave it out')
        return Phase(CountsProblem(ratings, self.n_factors), method, order=ORDER)

    def extended(self, state: State, ratings: Ratings, seed: int) -> State:
        """New rows as at a start."""
        rows = {"u": ratings.n_users, "v": ratings.n_items}
        sides = tuple(side for side in rows if rows[side] > len(state.mu[side][0]))
        longer = extended_state(state, CountsProblem(ratings, self.n_factors).start(seed, sides=sides))
        return longer._replace(lam={**state.lam, **longer.lam}, mu={**state.mu, **longer.mu})

    def folded(self, state: State, some: Ratings, rows: npt.NDArray[np.int64], steps: int) -> State:
        """Some users anew: sweeps of their factors and rates, whose zeros are told by the sum of all items.

        Nothing else changes, and no bound is asked for: a sweep of the engine, which reads every item, takes many times as long.
        """
        n_rounds, everything = 3 * steps, np.asarray(state.mu["v"][0]).sum(0)
        some, near = narrowed(some, state)
        problem = CountsProblem(some, self.n_factors)
        others = np.asarray(near.mu["v"][1])
        geometric = np.exp(others - others.max(1, keepdims=True))
        logs, rates = np.asarray(near.mu["u"][1])[rows], np.asarray(near.mu["user_rate"][0])[rows]
        rate_shape = RATE_SHAPE + SHAPE * self.n_factors
        for _ in range(n_rounds):
            own = np.exp(logs - logs.max(1, keepdims=True))
            shape = SHAPE + share_rows(problem.sides["u"], own, geometric)[0]
            rate = rates[:, None] + everything
            logs = special.digamma(shape) - np.log(rate)
            rate_rate = RATE_RATE + (shape / rate).sum(1)
            rates = rate_shape / rate_rate
        new = {"u": (-rate, shape - 1.0), "user_rate": (-rate_rate, np.full(len(rows), rate_shape - 1.0))}
        if not all(np.all(GAMMA.valid(lam)) for lam in new.values()):
            raise FloatingPointError(
                "fold_in: the factors of a new user are no numbers; are its counts far beyond those fitted?"
            )
        mu = {name: problem.moments(problem.blocks[name], lam) for name, lam in new.items()}
        return with_parts(state, new, partial(with_rows, rows), State(new, mu, state.t))

    def predictor(self, state: State, ratings: Ratings) -> Predictor:
        """Moments of both sides."""
        pairs = [(GAMMA.mean(state.lam[side]), GAMMA.var(state.lam[side])) for side in self.sides]
        user, item = ((mean, variance + mean**2) for mean, variance in pairs)
        return PoissonPredictor(user, item)

    def saved(self) -> dict[str, Any]:
        """Settings."""
        return {"settings": self.settings._asdict()}


def make_side(rows: RatingsRows) -> Side:
    """Cut the rows of a side into chunks with about equally many counts."""
    n_rows = len(rows.start) - 1
    n_chunks = min(MOST_CHUNKS, 1 + len(rows.values) // LEAST_RATINGS)
    cuts = np.searchsorted(rows.start, np.linspace(0, rows.start[-1], n_chunks + 1), side="left")
    cuts[0], cuts[-1] = 0, n_rows
    return Side(np.unique(cuts), rows.start, rows.other, rows.values)
