"""Ratings as the engine's Problem, with compiled kernels: blocks u and v, exact sweeps, sampled targets, the bound.

    r_n ~ N(u_i · v_j, 1/τ),   u_ik ~ N(0, 1/α),   v_jk ~ N(0, 1/α)

The same numbers as the network that declares this model, draw by draw (a test demands it), many times faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import Ratings
from natgrad.families.natural_step import distance, size_of
from natgrad.inference.executors.threads import BroadcastArgument
from natgrad.inference.problem import Block, BlockInfo, ChildSet, EdgeProblem, Sampled, State, SweepResult
from natgrad.models.factorization.blending import blended_block, owned
from natgrad.models.factorization.messages import RatingMessages
from natgrad.models.factorization.parts import cut_sides, shards_of
from natgrad.models.factorization.rows import Law, Numbers, Sample, Scalars, Updated, Vectors, move_rows
from natgrad.models.factorization.sides import OTHER
from natgrad.random import Stream, generator

__all__ = ["RatingsProblem"]

Floats = npt.NDArray[np.float64]
Pair = tuple[Floats, Floats]
LOG_2PI = float(np.log(2 * np.pi))


class RatingsProblem(EdgeProblem):
    """A matrix factorisation with known precisions.

    Parameters
    ----------
    ratings : Ratings
    n_factors : int, K
    prior_precision : float, α
    noise_precision : float, τ
    factorized : bool
        Whether every number of u and v has a factor of its own in q, or every user and every item one (of K dimensions).
    """

    shards_by_row = True

    def __init__(
        self,
        ratings: Ratings,
        n_factors: int,
        prior_precision: float = 1.0,
        noise_precision: float = 1.0,
        factorized: bool = True,
    ) -> None:
        self.ratings = ratings
        self.n_factors = n_factors
        self.numbers = Numbers(float(prior_precision), float(noise_precision))
        self.law: Law = Scalars() if factorized else Vectors()
        self._sides = {"u": self.law.side(ratings.sorted_by_user), "v": self.law.side(ratings.sorted_by_item)}

    @cached_property
    def blocks(self) -> Mapping[str, Block]:  # type: ignore[override]
        """Of the users, u; of the items, v."""
        blocks = {}
        for name, plate, size in (("u", "user", self.ratings.n_users), ("v", "item", self.ratings.n_items)):
            scalar = self.law.column_axis is not None
            plates, shape = ((plate, "factor"), (size, self.n_factors)) if scalar else ((plate,), (size,))
            blocks[name] = Block(name, self.law.family, plates, shape, self.law.column_axis)
        return blocks

    @cached_property
    def observed(self) -> Mapping[str, npt.NDArray[np.int64]]:
        """All ratings."""
        return {"r": np.arange(len(self.ratings))}

    @cached_property
    def _child_sets(self) -> dict[str, list[ChildSet]]:
        sizes = {"rating": len(self.ratings)}
        rows = {"u": self.ratings.by_user, "v": self.ratings.by_item}
        return {
            name: [ChildSet("r", True, 0, block, (0,), sizes, rows[name].place, rows[name].start)]
            for name, block in self.blocks.items()
        }

    @property
    def n_messages(self) -> int:
        """Messages that a sweep reads."""
        return 2 * len(self.ratings) * (self.n_factors if self.law.column_axis is not None else 1)

    def child_sets(self, name: str) -> list[ChildSet]:
        """The ratings of each user, or of each item."""
        return self._child_sets[name]

    def coupling(self, name: str) -> int:
        """ω: the variables that meet in a rating."""
        return self.law.coupling(self.n_factors)

    def neighbours(self, name: str) -> set[str]:
        """The other side."""
        return {OTHER[name]}

    @property
    def gauges(self) -> tuple[tuple[str, str], ...]:  # type: ignore[override]
        """Ratings see u and v only through their inner product."""
        return (("u", "v"),)

    @cached_property
    def message_memory(self) -> RatingMessages | None:  # type: ignore[override]
        """Remembered messages, for a q of scalars."""
        if self.law.column_axis is None:
            return None
        return RatingMessages(self.ratings, self.n_factors, self.numbers.prior, self.numbers.noise)

    def prior(self) -> State:
        """Both sides at their prior: a saddle, which no exact update leaves."""
        lam = {
            name: self.law.prior(side.n_rows, self.n_factors, self.numbers.prior) for name, side in self._sides.items()
        }
        return State(lam, {name: self.moments(self.blocks[name], part) for name, part in lam.items()}, 0)

    def start(self, seed: int, sd: float = 1.0) -> State:
        """Means drawn from the prior, ``sd`` times as wide, with its precision; the draw is that of the network's."""
        lam, mu = {}, {}
        for number, (name, block) in enumerate(self.blocks.items()):
            prior = self.law.prior(self._sides[name].n_rows, self.n_factors, self.numbers.prior)
            drawn = sd * block.family.sample(prior, generator(seed, Stream.START, number))
            lam[name] = owned(block.family.centred(drawn, prior))
            mu[name] = self.moments(block, lam[name])
        return State(lam, mu, 0)

    # -- exact --

    def sweep(self, state: State, order: tuple[str, ...], rho: float = 1.0) -> SweepResult:
        """Update both sides, each from the freshest other, factor after factor; the bound comes with the second."""

        def update(name: str, lam: Any, mu: Any, last: bool) -> Updated:
            return self._moved(name, lam, mu, float(rho), last)

        return self._swept(state, order, update)

    def sweep_jointly(self, state: State, order: tuple[str, ...]) -> SweepResult:
        """As `sweep`, with the best means of all factors of a user or an item at once; the bound never falls."""

        def update(name: str, lam: Any, mu: Any, last: bool) -> Updated:
            return self._moved(name, lam, mu, None, last)

        return self._swept(state, order, update)

    def _moved(
        self, name: str, lam: Mapping[str, Pair], mu: Mapping[str, Pair], rho: float | None, last: bool
    ) -> Updated:
        """A side after an update, made here or where the shards are; ρ None: the factors of each row together."""
        others, how = mu[OTHER[name]], (self.law, self.numbers, rho, last)
        if self.placed is None:
            return move_rows(self._sides[name], lam[name], mu[name], others, *how)
        cut, told = self._cuts[name], BroadcastArgument(others)
        calls = [
            (cut.first + n, (_run(lam[name], a, b), _run(mu[name], a, b), told, *how))
            for n, (a, b) in enumerate(pairwise(cut.borders))
        ]
        parts = list(self.placed.run(move_rows, calls))
        arrays = zip(*((*part.lam, *part.mu, part.errors) for part in parts), strict=True)
        first, second, mean, square, errors = map(np.concatenate, arrays)
        return Updated((first, second), (mean, square), errors)

    def shards(self, n_threads: int) -> list[Any]:
        """Users, then items, in runs of rows with about equally many ratings."""
        rows = {"u": self.ratings.sorted_by_user, "v": self.ratings.sorted_by_item}
        self._cuts = cut_sides(rows, n_threads)
        n_all = {name: len(side.values) + len(side.start) for name, side in rows.items()}
        return shards_of(self.ratings, self._cuts, {name: partial(self.law.side, n_all=n_all[name]) for name in rows})

    def _swept(self, state: State, order: tuple[str, ...], update: Any) -> SweepResult:
        lam = {name: owned(part) for name, part in state.lam.items()}
        mu = {name: owned(part) for name, part in state.mu.items()}
        info: dict[str, BlockInfo] = {}
        errors = np.empty(0)
        for number, name in enumerate(order):
            new = update(name, lam, mu, number == len(order) - 1)
            info[name] = BlockInfo(self._is_valid(new.lam, new.mu), distance(lam[name], new.lam) / size_of(lam[name]))
            lam[name], mu[name], errors = new.lam, new.mu, new.errors
        bound = self._likelihood(errors) + sum(self._minus_kl(lam[name], mu[name]) for name in mu)
        return SweepResult(State(lam, mu, state.t + 1, state.memory), bound, info)

    def bound(self, state: State) -> float:
        """The evidence lower bound at a state."""
        return sum(self.bound_by_node(state).values())

    def bound_by_node(self, state: State) -> dict[str, float]:
        """E[log p] of each node, plus its entropy where it is hidden; they add up to the bound."""
        lam = {name: owned(part) for name, part in state.lam.items()}
        mu = {name: self.moments(self.blocks[name], part) for name, part in lam.items()}
        parts = {name: self._minus_kl(lam[name], mu[name]) for name in self.blocks}
        return {**parts, "r": self._likelihood(self.law.errors(self._sides["u"], mu["u"], mu["v"]))}

    def _likelihood(self, errors: Floats) -> float:
        """E[log p(r | u, v)], with the errors summed in the order of the rows."""
        noise = self.numbers.noise
        return float(0.5 * len(self.ratings) * (np.log(noise) - LOG_2PI) - 0.5 * noise * errors.sum())

    def _minus_kl(self, lam: Pair, mu: Pair) -> float:
        """E[log p(x)] plus the entropy of q(x): ½ (log α + 1 − log Λ − α E[x²]), summed."""
        alpha = self.numbers.prior
        squares = mu[1] if self.law.column_axis is not None else np.trace(mu[1], axis1=-2, axis2=-1)
        log_det = self.law.moments(lam)[1]
        return float(0.5 * (mu[0].size * (np.log(alpha) + 1.0) - log_det.sum() - alpha * squares.sum()))

    # -- sampled --

    def target(
        self,
        block: Block,
        state: State,
        full: tuple[str, ...] | None = None,
        sampled: tuple[Sampled, ...] = (),
        column: int | None = None,
    ) -> Pair:
        """λ^temp of eq. (6): prior message plus messages of ratings, all of them or a sample."""
        name = block.name
        side, mu, others = self._sides[name], owned(state.mu[name]), owned(state.mu[OTHER[name]])
        if full is None or "r" in full:
            out = self.law.full_target(side, mu, others, self.numbers, column)
        else:
            width = self.n_factors if column is None else 1
            out = self.law.prior(side.n_rows, width, self.numbers.prior)
        if full is not None and name not in full:
            out[1][...] -= self.law.prior(side.n_rows, out[0].shape[1], self.numbers.prior)[1]
        for sample in sampled:
            self.law.add_sample(self._sample(name, sample), mu, others, self.numbers, column, out)
        return out if column is None else (out[0][:, 0], out[1][:, 0])

    def _sample(self, name: str, sample: Sampled) -> Sample:
        places = sample.zipped["rating"]
        # Gathered before the kernel: reading the triples inside its loop took one and a half times as long.
        users, items = self.ratings.users[places], self.ratings.items[places]
        own, other = (users, items) if name == "u" else (items, users)
        return Sample(own, other, self.ratings.values[places], np.ascontiguousarray(sample.weight, dtype=np.float64))

    def step_block(
        self, block: Block, state: State, target: Any, rho: Any, column: int | None = None
    ) -> tuple[State, BlockInfo]:
        """λ ← (1 − ρ) λ + ρ λ^temp for a block or one column of it; ρ is a number or one for each element."""

        def fresh(lam: Pair) -> tuple[Pair, bool]:
            mu, log_det = self.law.moments(lam)
            return mu, bool(np.isfinite(log_det).all())

        return blended_block(block, state, target, rho, column, fresh)

    def moments(self, block: Block, lam: Any) -> Pair:
        """μ = ∇A(λ)."""
        return self.law.moments(owned(lam))[0]

    def _is_valid(self, lam: Pair, mu: Pair) -> bool:
        """Whether λ is finite and inside; moments of a matrix that is not positive definite are NaN."""
        finite = all(bool(np.isfinite(part).all()) for part in (*lam, *mu))
        return finite and (self.law.column_axis is None or bool((lam[1] < 0).all()))


def _run(pair: Pair, begin: int, end: int) -> Pair:
    """Some rows of both."""
    return pair[0][begin:end], pair[1][begin:end]
