"""The full Gaussian factorisation as the engine's Problem: biases, learned priors and noise, one Gaussian for each row.

    r_n ~ N(u_i · v_j + b_i + c_j, 1/(τ s_i t_j)),   x_i = (u_i, b_i) ~ N(0, diag(α)⁻¹),   y_j = (v_j, c_j) ~ N(0, diag(β)⁻¹)
    α_d, β_d, τ ~ Gamma(a, b),   s_i, t_j ~ Gamma(ν/2, ν/2);   q = Π q(x_i) Π q(y_j) q(α) q(β) q(τ) Π q(s_i) Π q(t_j)

Blocks: "u" and "v" (with the bias as the last number of each vector), "user_precision", "item_precision", "noise",
"user_noise" and "item_noise"; the last five only where they are learned. The same numbers come from the network that
declares the model, as the inner product of (u, b, 1) and (v, 1, c); a test demands it.

Likes with dislikes, and levels, have a ``link`` from f = u·v + b + c to what is seen, and a bound that is Gaussian in f
(`natgrad.models.factorization.links`): before each sweep its parameters are renewed at the state, given which likes or levels are
ratings with precisions of their own. So the bound of a sweep never falls.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import Ratings
from natgrad.families import Gamma, MultivariateNormal
from natgrad.inference.executors import PlacedShards
from natgrad.inference.problem import Block, BlockInfo, ChildSet, EdgeProblem, Sampled, State, SweepResult
from natgrad.inference.rotation import Rotation
from natgrad.kernels.factorization import vectors as rating_vectors
from natgrad.kernels.factorization.gather import sum_rows
from natgrad.models.factorization.links import Link, linked
from natgrad.models.factorization.parts import LinkedMoments, PlacedRows, cut_sides, shards_of
from natgrad.models.factorization.pruning import RatingPruning
from natgrad.models.factorization.rotation import SideSums, best_turn, moved_rows, without_dead
from natgrad.models.factorization.sides import OTHER, PLATE, SideRatings, Zeros, blended_block, owned, packed
from natgrad.models.factorization.sweep import MAP, NOISE, PRECISION, SIDE, RatingSweep
from natgrad.random import Stream, generator

__all__ = ["FullRatingsProblem", "RatingPriors", "counted_pairs", "rescaled_noise", "unseen_weights"]

Floats = npt.NDArray[np.float64]
Pair = tuple[Floats, Floats]
GAMMA, VECTOR = Gamma(), MultivariateNormal()


@dataclass(frozen=True, slots=True)
class RatingPriors:
    """What is known before the ratings.

    Parameters
    ----------
    biases : bool
    precision, noise : float
        α of every number, and τ; known where they are not learned, and where a learned one starts.
    learn_precision, learn_noise : bool
        A Gamma(`shape`, `rate`) on each of them instead.
    user_noise, item_noise : float, optional
        ν of the Gamma(ν/2, ν/2) on s_i or t_j: users or items whose noise differs; none if left out.
    shape, rate : float
        Of the vague Gammas, for ratings of variance one.
    unit : float
        The standard deviation of the ratings. Biases have it, the numbers of both vectors its square root; vague priors are as
        vague in every unit.
    bias_precision : float, optional
        α of the biases, where it is not ``precision``.
    """

    biases: bool = True
    precision: float = 1.0
    noise: float = 1.0
    learn_precision: bool = True
    learn_noise: bool = True
    user_noise: float | None = None
    item_noise: float | None = None
    shape: float = 1e-3
    rate: float = 1e-3
    unit: float = 1.0
    bias_precision: float | None = None

    def squares(self, n_factors: int) -> Floats:
        """The unit of the square of each number of a vector: of factors, then of the bias."""
        return np.array([self.unit] * n_factors + [self.unit**2] * self.biases)

    def precisions(self, n_factors: int) -> Floats:
        """α of each number of a vector."""
        bias = self.precision if self.bias_precision is None else self.bias_precision
        return np.array([self.precision] * n_factors + [bias] * self.biases)


class FullRatingsProblem(EdgeProblem):
    """Ratings with everything about them to be learned.

    Parameters
    ----------
    ratings : Ratings
    n_factors : int, K
    priors : RatingPriors
    hold : bool
        Whether learned precisions stay as they are: in the first sweeps, when the noise is still taken for large, they
        would switch factors off that the data can tell from noise later.
    features : {"u": [users, F], "v": [items, F]}, optional
        What is known of users or items: their vectors are N(W f, diag(α)⁻¹), the rows of W in the blocks "user_map", "item_map".
    offset : float, m
        What is taken off every rating: the model has no mean of its own.
    unseen : array [users], optional
        What each pair of a user that is not stored counts as an observed zero, in parts of a rating: its log density is
        multiplied by this.
    link : float or Cuts, optional
        m of likes and dislikes, or the cutpoints of levels; the noise is known, 1, and the offset 0.
    """

    shards_by_row = True

    extrapolated = ("u", "v")
    n_off = 0  # factors that are switched off, besides those that sweeps update

    def __init__(
        self,
        ratings: Ratings,
        n_factors: int,
        priors: RatingPriors,
        hold: bool = False,
        features: Mapping[str, Floats] | None = None,
        offset: float = 0.0,
        unseen: Floats | None = None,
        link: Link | None = None,
    ) -> None:
        self.link, self.zeros = link, None if unseen is None else self._zeros(unseen, ratings.n_items)
        self.features = dict(features or {})
        self.ratings, self.n_factors, self.priors, self.hold = ratings, n_factors, priors, hold
        self.size = n_factors + priors.biases
        self.values, self.trust, self.offset = ratings.values, np.ones(1), offset
        self._placed: PlacedShards | None = None
        rows, zeros = {"u": ratings.sorted_by_user, "v": ratings.sorted_by_item}, self.zeros or {}
        self.sides = {side: SideRatings(rows[side], priors.biases, offset, zeros=zeros.get(side)) for side in rows}

    @staticmethod
    def _zeros(unseen: Floats, n_items: int) -> dict[str, Zeros]:
        alike = np.ones(n_items)
        return {"u": Zeros(unseen, alike), "v": Zeros(alike, unseen)}

    @property
    def placed(self) -> PlacedShards | None:
        """Where the shards of both sides are, if they are placed."""
        return self._placed

    @placed.setter
    def placed(self, placed: PlacedShards | None) -> None:
        self._placed = placed
        if self.link is not None:  # sides are made where they are ratings
            return
        for name, side in self.sides.items():
            whole = self.zeros is not None
            side.elsewhere = None if placed is None else PlacedRows(placed, self.cuts[name], whole=whole)

    def shards(self, n_threads: int) -> list[Any]:
        """Users, then items, in runs of rows with about equally many ratings; a step reads all of them."""
        self.cuts = cut_sides({name: side.rows for name, side in self.sides.items()}, n_threads)

        def make(name: str, first: int, last: int) -> Callable[[Any], SideRatings]:
            zeros = None if self.zeros is None else self.zeros[name].rows(first, last)
            n_all = self.sides[name].n_all
            return partial(SideRatings, biased=self.priors.biases, offset=self.offset, n_all=n_all, zeros=zeros)

        return shards_of(self.ratings, self.cuts, make)

    def at(self, sides: dict[str, SideRatings], values: Floats, trust: Floats) -> FullRatingsProblem:
        """The same with other values of the ratings, and a noise precision for each of them."""
        made = copy.copy(self)
        made.sides, made.values, made.trust, made.offset, made.link = sides, values, trust, 0.0, None
        return made

    def _as_ratings(self, state: State) -> tuple[FullRatingsProblem, Callable[[], float]]:
        """Return the ratings that likes or levels are to a state, and what the bound has besides theirs; itself without a link.

        Where shards are placed, the rest of the bound comes with what is next asked of the users.
        """
        if self.link is None:
            return self, float
        if self.placed is not None:
            return self._as_ratings_elsewhere(state, self.placed)
        side, n = self.sides["u"], len(self.ratings)
        user, item = (packed(owned(state.mu[name])) for name in OTHER)
        mean, square = side.pair_moments(user, item, self.size, of_users=True)
        by_user, values, trust, rest = np.empty((2, n)), np.empty(n), np.empty(n), np.empty(n)
        linked(self.link, (mean, square), side.rows.place, self.ratings.values, (*by_user, values, trust), rest)
        rows, items = side.rows, self.sides["v"].rows
        sides = {
            "u": SideRatings(rows._replace(values=by_user[0]), self.priors.biases, trust=by_user[1]),
            "v": SideRatings(items._replace(values=values[items.place]), self.priors.biases, trust=trust[items.place]),
        }
        rest_of_users = np.empty(side.n_rows)
        sum_rows(rows.start, rest, rest_of_users)
        return self.at(sides, values, trust), lambda: float(rest_of_users.sum())

    def _as_ratings_elsewhere(
        self, state: State, placed: PlacedShards
    ) -> tuple[FullRatingsProblem, Callable[[], float]]:
        assert self.link is not None
        moments, sides = {name: packed(owned(state.mu[name])) for name in OTHER}, {}
        rest = np.empty(len(moments["u"]))
        for name, other in OTHER.items():
            out = rest if name == "u" else np.empty(len(moments[name]))
            likes = LinkedMoments(moments[name], moments[other], name == "u", self.link, out)
            sides[name] = SideRatings(self.sides[name].rows, self.priors.biases)
            sides[name].elsewhere = PlacedRows(placed, self.cuts[name], likes)
        return self.at(sides, self.ratings.values, np.ones(1)), lambda: float(rest.sum())

    @cached_property
    def blocks(self) -> Mapping[str, Block]:  # type: ignore[override]
        """Those that are learned, parents first."""
        blocks, own, rows = {}, self.priors, {"u": self.ratings.n_users, "v": self.ratings.n_items}
        for side in ("u", "v"):
            if own.learn_precision:
                blocks[PRECISION[side]] = Block(PRECISION[side], GAMMA, ("factor",), (self.size,))
            if side in self.features:
                blocks[MAP[side]] = Block(MAP[side], VECTOR, ("factor",), (self.size,))
            blocks[side] = Block(side, VECTOR, (PLATE[side],), (rows[side],))
        for side, nu in (("v", own.item_noise), ("u", own.user_noise)):
            if nu is not None:
                blocks[NOISE[side]] = Block(NOISE[side], GAMMA, (PLATE[side],), (rows[side],))
        if own.learn_noise:
            blocks["noise"] = Block("noise", GAMMA, (), ())
        return blocks

    @property
    def order(self) -> tuple[str, ...]:
        """Each noise right after the side whose errors it needs, so that a sweep reads every rating twice, not more.

        The side with more rows comes first: between sweeps the other one alone is rotated and extrapolated.
        """
        first, second = ("v", "u") if self.ratings.n_items > self.ratings.n_users else ("u", "v")
        rows = (first, NOISE[first], second, NOISE[second])
        wanted = (*rows, "noise", *MAP.values(), *PRECISION.values())
        held = PRECISION.values() if self.hold else ()
        return tuple(name for name in wanted if name in self.blocks and name not in held)

    @cached_property
    def observed(self) -> Mapping[str, npt.NDArray[np.int64]]:
        """All ratings."""
        return {"r": np.arange(len(self.ratings))}

    @cached_property
    def _child_sets(self) -> dict[str, list[ChildSet]]:
        sets = {}
        rows = {"u": self.ratings.by_user, "v": self.ratings.by_item}
        for name, block in self.blocks.items():
            if name in PRECISION.values() or name in MAP.values():
                side = SIDE[name]
                axes: tuple[int, ...] = ()
                term, sizes, n = side, {PLATE[side]: self.blocks[side].shape[0]}, self.blocks[side].shape[0]
            else:
                axes = (0,) if block.shape else ()
                term, sizes, n = "r", {"rating": len(self.ratings)}, len(self.ratings)
            group = rows.get(SIDE.get(name, name)) if axes else None
            children = np.arange(n) if group is None else group.place
            start = np.array([0, n]) if group is None else group.start
            sets[name] = [ChildSet(term, term == "r", 0, block, axes, sizes, children, start)]
        return sets

    @property
    def n_messages(self) -> int:
        """Messages that a sweep reads: of ratings, and of the rows of a side for each of their precisions and maps."""
        side_of = {name: SIDE[name] for name in (*PRECISION.values(), *MAP.values()) if name in self.blocks}
        return len(self.ratings) * (len(self.blocks) - len(side_of)) + self.size * sum(
            self.blocks[side].shape[0] for side in side_of.values()
        )

    def child_sets(self, name: str) -> list[ChildSet]:
        """Ratings; of precisions, the rows of their side."""
        return self._child_sets[name]

    def coupling(self, name: str) -> int:
        """ω: the variables that meet in a rating, or a row and its precision."""
        return len(self._meeting) if name in self._meeting else 2 + (SIDE[name] in self.features)

    def neighbours(self, name: str) -> set[str]:
        """The other blocks that an update reads."""
        side = name if name in OTHER else SIDE.get(name, "")
        around = {side, MAP.get(side, ""), PRECISION.get(side, "")} & set(self.blocks) - {name}
        if name not in self._meeting:
            return around
        return (self._meeting - {name}) | (around if name in OTHER else set())

    @cached_property
    def _meeting(self) -> set[str]:
        return {name for name in self.blocks if name not in (*PRECISION.values(), *MAP.values())}

    @property
    def gauges(self) -> tuple[tuple[str, str], ...]:  # type: ignore[override]
        """Ratings see u and v only through their inner product; with features the way back to their priors is not free."""
        return () if self.features else (("u", "v"),)

    @property
    def pruning(self) -> RatingPruning | None:  # type: ignore[override]
        """Learned precisions switch factors off, which sweeps need not read then."""
        plain = self.link is None and not self.features
        return RatingPruning(self) if self.priors.learn_precision and plain else None

    def prior_of(self, name: str) -> Pair:
        """λ of the known prior of a Gamma; of a map, N(0, 1) for every number, in its unit."""
        if name in MAP.values():
            n_features = self.features[SIDE[name]].shape[1]
            half = -0.5 / self.priors.squares(self.n_factors)
            return np.zeros((self.size, n_features)), half[:, None, None] * np.eye(n_features)
        if name in NOISE.values():
            nu = self.priors.user_noise if name == "user_noise" else self.priors.item_noise
            assert nu is not None
            shape, rates = 0.5 * nu, np.asarray(0.5 * nu)
        else:
            squares = self.priors.unit**2 if name == "noise" else self.priors.squares(self.n_factors)
            shape, rates = self.priors.shape, np.asarray(self.priors.rate * squares)
        here = self.blocks[name].shape
        return np.full(here, -rates), np.full(here, shape - 1.0)

    def start(self, seed: int, sd: float = 1.0) -> State:
        """Rows drawn ``sd`` times as wide as their prior, biases at zero; Gammas centred at the known values."""
        lam: dict[str, Pair] = {}
        alpha = self.priors.precisions(self.n_factors)
        values = {"noise": self.priors.noise, **dict.fromkeys(PRECISION.values(), alpha)}
        for number, (name, block) in enumerate(self.blocks.items()):
            if name in MAP.values():
                lam[name] = self.prior_of(name)
                continue
            if name not in OTHER:
                shape = self.prior_of(name)[1] + 1.0 + 0.5 * self._n_children(name)
                lam[name] = owned((-shape / values.get(name, 1.0), shape - 1.0))
                continue
            mean = sd * generator(seed, Stream.START, number).normal(size=(block.shape[0], self.size)) / np.sqrt(alpha)
            mean[:, self.n_factors :] = 0.0
            lam[name] = alpha * mean, np.tile(-0.5 * np.diag(alpha), (block.shape[0], 1, 1))
        return State(lam, {name: self.moments(self.blocks[name], part) for name, part in lam.items()}, 0)

    @property
    def n_counted(self) -> float:
        """Observations: ratings, and the parts of one that pairs without a rating count as."""
        return float(len(self.ratings)) if self.zeros is None else counted_pairs(self.ratings, self.zeros["u"].own)

    def _n_children(self, name: str) -> Any:
        """Of each element of a Gamma."""
        if name in PRECISION.values():
            return self.blocks[SIDE[name]].shape[0]
        return self.n_counted if name == "noise" else np.diff(self.sides[SIDE[name]].rows.start)

    # -- exact --

    def sweep(self, state: State, order: tuple[str, ...], rho: float = 1.0) -> SweepResult:
        """Update every block once, in order; the bound needs no rating to be read again."""
        ratings, rest = self._as_ratings(state)
        work = RatingSweep(ratings, state)
        info = {name: work.update(name, float(rho)) for name in order}
        bound = work.bound()
        if self.link is not None and self.placed is not None and "u" not in order:
            ratings.errors_of_users(state)
        return SweepResult(State(work.lam, work.mu, state.t + 1, state.memory), bound + rest(), info)

    def errors_of_users(self, state: State) -> Floats:
        """Compute Σ_n E[t] E[(r − …)²] of every user, with which the rest of a linked bound comes from where shards are."""
        mu = {name: owned(state.mu[name]) for name in OTHER}
        return self.sides["u"].errors(mu["u"], mu["v"], np.ones(len(mu["v"][0])))

    def bound(self, state: State) -> float:
        """The evidence lower bound at a state."""
        return sum(self.bound_by_node(state).values())

    def bound_by_node(self, state: State) -> dict[str, float]:
        """E[log p] of each node, plus its entropy where it is hidden; they add up to the bound."""
        ratings, rest = self._as_ratings(state)
        if self.link is not None and self.placed is not None:
            ratings.errors_of_users(state)
        parts = RatingSweep(ratings, state, afresh=True).parts()
        return {**parts, "r": parts["r"] + rest()}

    def rotate_pair(
        self, pair: tuple[str, str], state: State, needed: tuple[str, ...] | None = None
    ) -> Rotation | None:
        """The pair in the best position that the ratings cannot tell from the present one, and the precisions that fit it.

        A side that is not ``needed`` stays as it was: turning it takes as long as updating it. A link reads both.
        """
        needed = needed if self.link is None else None
        sums = {}
        for side in pair:
            mean, second = state.mu[side]
            precision = PRECISION[side] if self.priors.learn_precision else None
            fixed = self.priors.precisions(self.n_factors)
            alpha = fixed if precision is None else np.asarray(state.mu[precision][0])
            sums[side] = SideSums(mean.sum(0), second.sum(0), len(mean), alpha)
        learning = self.priors.learn_precision and not self.hold
        rates = self.priors.rate * self.priors.squares(self.n_factors)
        gamma = (self.priors.shape, rates) if learning else None
        best = best_turn(sums["u"], sums["v"], self.n_factors, gamma)
        if best is None:
            return None
        state = rescaled_noise(self, state)
        if gamma is not None:
            best = without_dead(
                best,
                {s: state.mu[s][0] for s in pair},
                sums,
                self.n_factors,
                gamma,
                RatingSweep(self, state).total_weight(),
            )
        lam, mu = dict(state.lam), dict(state.mu)
        for side, turn in zip(("u", "v"), best.matrices, strict=True):
            if needed is None or side in needed:
                lam[side], mu[side] = moved_rows(owned(mu[side]), owned(lam[side]), turn)
        if learning:
            for side, diagonal in zip(("u", "v"), best.diagonals, strict=True):
                name = PRECISION[side]
                prior = self.prior_of(name)
                lam[name] = prior[0] - 0.5 * diagonal, prior[1] + 0.5 * sums[side].rows
                mu[name] = self.moments(self.blocks[name], lam[name])
        matrices = dict(zip(("u", "v"), best.matrices, strict=True))
        return Rotation(
            state._replace(lam=lam, mu=mu),
            {side: turn.matrix for side, turn in matrices.items()},
            {side: turn.shift for side, turn in matrices.items()},
        )

    # -- sampled --

    def target(
        self,
        block: Block,
        state: State,
        full: tuple[str, ...] | None = None,
        sampled: tuple[Sampled, ...] = (),
        column: int | None = None,
    ) -> Pair:
        """λ^temp of eq. (6): prior message plus messages of children, whole terms in ``full``, the rest sampled."""
        name, work = block.name, RatingSweep(self._as_ratings(state)[0], state)
        prior = work.prior_message(name)
        out = owned(prior if full is None or name in full else tuple(np.zeros_like(part) for part in prior))
        out = out[0].copy(), out[1].copy()
        child = self._child_sets[name][0].term
        if full is None or child in full:
            work.add_all(name, out)
        for sample in sampled:
            work.add_sample(name, sample, out)
        return out

    def step_block(
        self, block: Block, state: State, target: Any, rho: Any, column: int | None = None
    ) -> tuple[State, BlockInfo]:
        """λ ← (1 − ρ) λ + ρ λ^temp; ρ is a number or one for each element."""

        def fresh(lam: Pair) -> tuple[Pair, bool]:
            mu = self.moments(block, lam)
            inside = bool(np.all(np.isfinite(mu[0]))) and (block.family is VECTOR or bool(np.all(GAMMA.valid(lam))))
            return mu, inside

        return blended_block(block, state, target, rho, column, fresh)

    def moments(self, block: Block, lam: Any) -> Pair:
        """μ = ∇A(λ)."""
        return self.moments_and_log_det(block.name, owned(lam))[0]

    def moments_and_log_det(self, name: str, lam: Pair) -> tuple[Pair, Floats]:
        """Of rows; of Gammas without the second."""
        if name not in OTHER and name not in MAP.values():
            return owned(GAMMA.expected_stats(lam)), np.empty(0)
        mu, log_det = (np.empty(lam[0].shape), np.empty(lam[1].shape)), np.empty(len(lam[0]))
        rating_vectors.moments(*lam, *mu, log_det)
        return mu, log_det


def unseen_weights(ratings: Ratings, negatives: float, least: float = 0.0) -> Floats:
    """Compute what each pair of a user that is not stored counts as a zero, c_i = N n_i / (N n_i + m_i).

    A user with n_i likes, or ``least``, and m_i pairs that are not stored has looked at so many of these that the odds of one to
    be a dislike, not overlooked, are N n_i : m_i. Where m_i is much larger these are N dislikes for each like.
    """
    likes = np.maximum(np.bincount(ratings.users, ratings.values, ratings.n_users), least)
    elsewhere = ratings.n_items - np.bincount(ratings.users, minlength=ratings.n_users)
    return np.asarray(negatives * likes / (negatives * likes + np.maximum(elsewhere, 1)))


def counted_pairs(ratings: Ratings, unseen: Floats) -> float:
    """Count ratings, and the parts of one that pairs of each user without a rating count as."""
    elsewhere = ratings.n_items - np.bincount(ratings.users, minlength=ratings.n_users)
    return len(ratings) + float(unseen @ elsewhere)


def rescaled_noise(problem: FullRatingsProblem, state: State) -> State:
    """Multiply s and t by numbers, and divide τ by them, where the bound is largest; products stay.

    Ratings see τ, s and t through their product alone. A sweep moves what τ and the mean of s disagree on by the weight of the
    prior, ν/(ν + n), which takes a hundred sweeps.

    Of a number c and the N rows that have ratings, with S = Σ E[s], the bound is N ν/2 log c − ν/2 c S − a log c − b E[τ]/c.
    """
    own, lam, mu = problem.priors, dict(state.lam), dict(state.mu)
    for side, nu in (("u", own.user_noise), ("v", own.item_noise)):
        if nu is None or not own.learn_noise:
            continue
        name = NOISE[side]
        rated = np.diff(problem.sides[side].rows.start) > 0
        total, tau = float(np.asarray(mu[name][0])[rated].sum()), float(mu["noise"][0])
        rate = own.rate * own.unit**2
        linear = 0.5 * nu * float(rated.sum()) - own.shape
        scale = (linear + np.sqrt(linear**2 + 2.0 * nu * total * rate * tau)) / (nu * total)
        if not (np.isfinite(scale) and scale > 0.0):
            continue
        lam[name] = np.where(rated, lam[name][0] / scale, lam[name][0]), lam[name][1]
        lam["noise"] = np.asarray(lam["noise"][0] * scale), lam["noise"][1]
        for changed in (name, "noise"):
            mu[changed] = problem.moments(problem.blocks[changed], lam[changed])
    return state._replace(lam=lam, mu=mu)
