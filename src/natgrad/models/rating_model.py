"""The full Gaussian factorisation as the engine's Problem: biases, learned priors and noise, one Gaussian for each row.

    r_n ~ N(u_i · v_j + b_i + c_j, 1/(τ s_i t_j)),   x_i = (u_i, b_i) ~ N(0, diag(α)⁻¹),   y_j = (v_j, c_j) ~ N(0, diag(β)⁻¹)
    α_d, β_d, τ ~ Gamma(a, b),   s_i, t_j ~ Gamma(ν/2, ν/2);   q = Π q(x_i) Π q(y_j) q(α) q(β) q(τ) Π q(s_i) Π q(t_j)

Blocks: "u" and "v" (with the bias as the last number of each vector), "user_precision", "item_precision", "noise",
"user_noise" and "item_noise"; the last five only where they are learned. Without biases the same numbers come from the
network that declares the model; a test demands it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import Ratings
from natgrad.families import Gamma, MultivariateNormal
from natgrad.inference.draws import generator
from natgrad.inference.gauge import Rotation
from natgrad.inference.start import START
from natgrad.kernels import rating_vectors
from natgrad.models.blending import blended_block, distance, length, owned
from natgrad.models.rating_gauge import SideSums, best_turn, moved_rows
from natgrad.models.rating_sides import ItsRatings, Moved
from natgrad.problem import Block, BlockInfo, ChildSet, Sampled, State, SweepResult

__all__ = ["FullRatingsProblem", "RatingPriors"]

Floats = npt.NDArray[np.float64]
Pair = tuple[Floats, Floats]
OTHER = {"u": "v", "v": "u"}
PRECISION = {"u": "user_precision", "v": "item_precision"}
NOISE = {"u": "user_noise", "v": "item_noise"}
PLATE = {"u": "user", "v": "item"}
SIDE = {name: side for table in (PRECISION, NOISE) for side, name in table.items()}
LOG_2PI = float(np.log(2 * np.pi))
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
        Of the vague Gammas.
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


class FullRatingsProblem:
    """Ratings with everything about them to be learned.

    Parameters
    ----------
    ratings : Ratings
        Centred: the model has no mean of its own.
    n_factors : int, K
    priors : RatingPriors
    hold : bool
        Whether learned precisions stay as they are: in the first sweeps, when the noise is still taken for large, they
        would switch factors off that the data can tell from noise later.
    """

    extrapolated = ("u", "v")

    def __init__(self, ratings: Ratings, n_factors: int, priors: RatingPriors, hold: bool = False) -> None:
        self.ratings, self.n_factors, self.priors, self.hold = ratings, n_factors, priors, hold
        self.size = n_factors + priors.biases
        self.values, self.trust = ratings.values, np.ones(1)
        self.sides = {
            "u": ItsRatings(ratings.by_user, priors.biases),
            "v": ItsRatings(ratings.by_item, priors.biases),
        }

    def at(self, sides: dict[str, ItsRatings], values: Floats, trust: Floats) -> FullRatingsProblem:
        """The same with other values of the ratings, and a noise precision for each of them."""
        made = copy.copy(self)
        made.sides, made.values, made.trust = sides, values, trust
        return made

    @cached_property
    def blocks(self) -> Mapping[str, Block]:
        """Those that are learned, parents first."""
        found, own, rows = {}, self.priors, {"u": self.ratings.n_users, "v": self.ratings.n_items}
        for side in ("u", "v"):
            if own.learn_precision:
                found[PRECISION[side]] = Block(PRECISION[side], GAMMA, ("factor",), (self.size,))
            found[side] = Block(side, VECTOR, (PLATE[side],), (rows[side],))
        for side, nu in (("v", own.item_noise), ("u", own.user_noise)):
            if nu is not None:
                found[NOISE[side]] = Block(NOISE[side], GAMMA, (PLATE[side],), (rows[side],))
        if own.learn_noise:
            found["noise"] = Block("noise", GAMMA, (), ())
        return found

    @property
    def order(self) -> tuple[str, ...]:
        """Each noise right after the side whose errors it needs, so that a sweep reads every rating twice, not more."""
        wanted = ("u", "user_noise", "v", "item_noise", "noise", "user_precision", "item_precision")
        held = PRECISION.values() if self.hold else ()
        return tuple(name for name in wanted if name in self.blocks and name not in held)

    @cached_property
    def observed(self) -> Mapping[str, npt.NDArray[np.int64]]:
        """All ratings."""
        return {"r": np.arange(len(self.ratings))}

    @cached_property
    def _child_sets(self) -> dict[str, list[ChildSet]]:
        found = {}
        rows = {"u": self.ratings.by_user, "v": self.ratings.by_item}
        for name, block in self.blocks.items():
            if name in PRECISION.values():
                side = SIDE[name]
                axes: tuple[int, ...] = ()
                term, sizes, n = side, {PLATE[side]: self.blocks[side].shape[0]}, self.blocks[side].shape[0]
            else:
                axes = (0,) if block.shape else ()
                term, sizes, n = "r", {"rating": len(self.ratings)}, len(self.ratings)
            group = rows.get(SIDE.get(name, name)) if axes else None
            children = np.arange(n) if group is None else group.place
            start = np.array([0, n]) if group is None else group.start
            found[name] = [ChildSet(term, term == "r", 0, block, axes, sizes, children, start)]
        return found

    def child_sets(self, name: str) -> list[ChildSet]:
        """Ratings; of precisions, the rows of their side."""
        return self._child_sets[name]

    def coupling(self, name: str) -> int:
        """ω: the variables that meet in a rating, or a row and its precision."""
        return 2 if name in PRECISION.values() else len(self._meeting)

    def neighbours(self, name: str) -> set[str]:
        """The other blocks that an update reads."""
        if name in PRECISION.values():
            return {SIDE[name]}
        found = self._meeting - {name}
        return found | ({PRECISION[name]} & set(self.blocks) if name in PRECISION else set())

    @cached_property
    def _meeting(self) -> set[str]:
        return {name for name in self.blocks if name not in PRECISION.values()}

    @property
    def gauges(self) -> tuple[tuple[str, str], ...]:
        """Ratings see u and v only through their inner product."""
        return (("u", "v"),)

    @property
    def messages(self) -> None:
        """Vectors are not remembered: a rating's message has K² numbers."""
        return None

    def prior_of(self, name: str) -> Pair:
        """λ of the known prior of a Gamma."""
        if name in NOISE.values():
            nu = self.priors.user_noise if name == "user_noise" else self.priors.item_noise
            assert nu is not None
            shape = rate = 0.5 * nu
        else:
            shape, rate = self.priors.shape, self.priors.rate
        here = self.blocks[name].shape
        return np.full(here, -rate), np.full(here, shape - 1.0)

    def start(self, seed: int, sd: float = 1.0) -> State:
        """Rows drawn ``sd`` times as wide as their prior, biases at zero; Gammas centred at the known values."""
        lam: dict[str, Pair] = {}
        values = {"noise": self.priors.noise, **dict.fromkeys(PRECISION.values(), self.priors.precision)}
        for number, (name, block) in enumerate(self.blocks.items()):
            if name not in OTHER:
                n_children = np.diff(self._child_sets[name][0].start)
                half_of_them = 0.5 * np.broadcast_to(n_children, block.shape or (1,)).reshape(block.shape)
                shape = self.prior_of(name)[1] + 1.0 + half_of_them
                lam[name] = owned((-shape / values.get(name, 1.0), shape - 1.0))
                continue
            mean = (
                sd
                * generator(seed, START, number).normal(size=(block.shape[0], self.size))
                / np.sqrt(self.priors.precision)
            )
            mean[:, self.n_factors :] = 0.0
            half = np.tile(-0.5 * self.priors.precision * np.eye(self.size), (block.shape[0], 1, 1))
            lam[name] = self.priors.precision * mean, half
        return State(lam, {name: self.moments(self.blocks[name], part) for name, part in lam.items()}, 0)

    # -- exact --

    def sweep(self, state: State, order: tuple[str, ...], rho: float = 1.0) -> SweepResult:
        """Update every block once, in order; the bound needs no rating to be read again."""
        work = _Sweep(self, state)
        info = {name: work.update(name, float(rho)) for name in order}
        return SweepResult(State(work.lam, work.mu, state.t + 1, state.memory), work.bound(), info)

    def sweep_jointly(self, state: State, order: tuple[str, ...]) -> SweepResult:
        """The same: the numbers of a row are one variable."""
        return self.sweep(state, order)

    def bound(self, state: State) -> float:
        """The evidence lower bound at a state."""
        return sum(self.bound_by_node(state).values())

    def bound_by_node(self, state: State) -> dict[str, float]:
        """E[log p] of each node, plus its entropy where it is hidden; they add up to the bound."""
        return _Sweep(self, state, afresh=True).parts()

    def turned(self, pair: tuple[str, str], state: State) -> Rotation | None:
        """The pair in the best position that the ratings cannot tell from the present one, and the precisions that fit it."""
        sums = {}
        for side in pair:
            mean, second = state.mu[side]
            precision = PRECISION[side] if self.priors.learn_precision else None
            fixed = np.full(self.size, self.priors.precision)
            alpha = fixed if precision is None else np.asarray(state.mu[precision][0])
            sums[side] = SideSums(mean.sum(0), second.sum(0), len(mean), alpha)
        learning = self.priors.learn_precision and not self.hold
        gamma = (self.priors.shape, self.priors.rate) if learning else None
        best = best_turn(sums["u"], sums["v"], self.n_factors, gamma)
        if best is None:
            return None
        lam, mu = dict(state.lam), dict(state.mu)
        for side, turn in zip(("u", "v"), best.turns, strict=True):
            lam[side], mu[side] = moved_rows(owned(lam[side]), owned(mu[side]), turn)
        if learning:
            for side, diagonal in zip(("u", "v"), best.diagonals, strict=True):
                name = PRECISION[side]
                prior = self.prior_of(name)
                lam[name] = prior[0] - 0.5 * diagonal, prior[1] + 0.5 * sums[side].rows
                mu[name] = self.moments(self.blocks[name], lam[name])
        turns = dict(zip(("u", "v"), best.turns, strict=True))
        return Rotation(
            state._replace(lam=lam, mu=mu),
            {side: turn.matrix for side, turn in turns.items()},
            {side: turn.shift for side, turn in turns.items()},
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
        name, work = block.name, _Sweep(self, state)
        prior = work.prior_message(name)
        out = owned(prior if full is None or name in full else tuple(np.zeros_like(part) for part in prior))
        out = out[0].copy(), out[1].copy()
        child = self._child_sets[name][0].term
        if full is None or child in full:
            work.add_all(name, out)
        for sample in sampled:
            work.add_sample(name, sample, out)
        return out

    def advance(
        self, block: Block, state: State, target: Any, rho: Any, column: int | None = None
    ) -> tuple[State, BlockInfo]:
        """λ ← (1 − ρ) λ + ρ λ^temp; ρ is a number or one for each element."""

        def fresh(lam: Pair) -> tuple[Pair, bool]:
            mu = self.moments(block, lam)
            inside = bool(np.all(np.isfinite(mu[0]))) and (block.name in OTHER or bool(np.all(GAMMA.valid(lam))))
            return mu, inside

        return blended_block(block, state, target, rho, column, fresh)

    def moments(self, block: Block, lam: Any) -> Pair:
        """μ = ∇A(λ)."""
        return self.moments_and_log_det(block.name, owned(lam))[0]

    def moments_and_log_det(self, name: str, lam: Pair) -> tuple[Pair, Floats]:
        """Of rows; of Gammas without the second."""
        if name not in OTHER:
            return owned(GAMMA.expected_stats(lam)), np.empty(0)
        mu, log_det = (np.empty(lam[0].shape), np.empty(lam[1].shape)), np.empty(len(lam[0]))
        rating_vectors.moments(*lam, *mu, log_det)
        return mu, log_det


class _Sweep:
    """A state on its way through a sweep: λ and μ by block, and the errors of each side while they are fresh."""

    def __init__(self, problem: FullRatingsProblem, state: State, afresh: bool = False) -> None:
        self.problem, self.priors = problem, problem.priors
        self.lam = {name: owned(part) for name, part in state.lam.items()}
        self.mu = {name: owned(part) for name, part in state.mu.items()}
        self.log_det: dict[str, Floats] = {}
        self.errors: dict[str, Floats] = {}
        if afresh:
            for name in problem.blocks:
                self.mu[name], self.log_det[name] = problem.moments_and_log_det(name, self.lam[name])

    # -- what the other blocks say --

    def precision(self, side: str) -> tuple[Floats, Floats]:
        """E[α] and E[log α]."""
        if PRECISION[side] in self.mu:
            return self.mu[PRECISION[side]]
        known = np.full(self.problem.size, self.priors.precision)
        return known, np.log(known)

    @property
    def tau(self) -> tuple[float, float]:
        """E[τ] and E[log τ]."""
        if "noise" in self.mu:
            return float(self.mu["noise"][0]), float(self.mu["noise"][1])
        return self.priors.noise, float(np.log(self.priors.noise))

    def weight(self, side: str) -> Floats:
        """E[s] or E[t] of every row; ones where noise is the same for all."""
        name = NOISE[side]
        return self.mu[name][0] if name in self.mu else np.ones(self.problem.blocks[side].shape[0])

    def error(self, side: str) -> Floats:
        """Σ_n E[t] E[(r − …)²] of each row of a side, not weighted by its own noise."""
        if side not in self.errors:
            other = OTHER[side]
            self.errors[side] = self.problem.sides[side].errors(self.mu[side], self.mu[other], self.weight(other))
        return self.errors[side]

    def total_error(self) -> float:
        """Σ_n E[s] E[t] E[(r − …)²], from the side whose errors are at hand."""
        side = "u" if "u" in self.errors else "v"
        return float(self.weight(side) @ self.error(side))

    # -- exact updates --

    def update(self, name: str, rho: float) -> BlockInfo:
        """One block at its optimum given the others, or ρ of the way to it."""
        old = self.lam[name]
        if name in OTHER:
            new = self._rows(name, rho)
            self.lam[name], self.mu[name], self.log_det[name] = new.lam, new.mu, new.log_det
            self.errors = {name: new.errors}
            valid = bool(np.isfinite(new.log_det).all() and np.isfinite(new.lam[0]).all())
        else:
            goal = self.prior_message(name)
            goal = goal[0].copy(), goal[1].copy()
            self.add_all(name, goal)
            lam = goal if rho == 1.0 else tuple((1.0 - rho) * a + rho * b for a, b in zip(old, goal, strict=True))
            self.lam[name] = owned(lam)
            self.mu[name] = owned(GAMMA.expected_stats(self.lam[name]))
            if name in NOISE.values():
                self.errors.pop(OTHER[SIDE[name]], None)
            valid = bool(np.all(GAMMA.valid(self.lam[name])))
        return BlockInfo(valid, distance(old, self.lam[name]) / length(old))

    def _rows(self, side: str, rho: float) -> Moved:
        other = OTHER[side]
        return self.problem.sides[side].sweep(
            self.mu[other],
            self.weight(other),
            self.weight(side),
            self.precision(side)[0],
            self.tau[0],
            rho,
            self.lam[side],
        )

    def prior_message(self, name: str) -> Pair:
        """η̃ of a block."""
        if name not in OTHER:
            return self.problem.prior_of(name)
        n_rows = self.problem.blocks[name].shape[0]
        half = np.tile(np.diag(-0.5 * self.precision(name)[0]), (n_rows, 1, 1))
        return np.zeros((n_rows, self.problem.size)), half

    def add_all(self, name: str, out: Pair) -> None:
        """Add the messages of all children to a target."""
        if name in OTHER:
            other = OTHER[name]
            scale = self.tau[0] * self.weight(name)
            self.problem.sides[name].add_targets(self.mu[other], self.weight(other), scale, out)
        elif name in PRECISION.values():
            second = self.mu[SIDE[name]][1]
            out[0][...] -= 0.5 * np.einsum("rdd->d", second)
            out[1][...] += 0.5 * len(second)
        elif name == "noise":
            out[0][...] -= 0.5 * self.total_error()
            out[1][...] += 0.5 * len(self.problem.ratings)
        else:
            side = SIDE[name]
            out[0][...] -= 0.5 * self.tau[0] * self.error(side)
            out[1][...] += 0.5 * np.diff(self.problem.sides[side].rows.start)

    def add_sample(self, name: str, sample: Sampled, out: Pair) -> None:
        """Add the weighted messages of sampled children to a target."""
        weight = np.ascontiguousarray(sample.weight, dtype=np.float64)
        if name in PRECISION.values():
            squares = np.einsum("rdd->rd", self.mu[SIDE[name]][1][sample.zipped[PLATE[SIDE[name]]]])
            out[0][...] -= 0.5 * weight @ squares
            out[1][...] += 0.5 * weight.sum()
            return
        ratings, places = self.problem.ratings, sample.zipped["rating"]
        rows = {"u": ratings.users[places], "v": ratings.items[places]}
        noise = {side: self.weight(side)[rows[side]] for side in OTHER}
        if name in OTHER:
            scale = weight * self.tau[0] * noise["u"] * noise["v"]
            scale *= self.problem.trust[places] if len(self.problem.trust) > 1 else 1.0
            self.problem.sides[name].add_sample(
                rows[name], rows[OTHER[name]], self.problem.values[places], scale, self.mu[OTHER[name]], out
            )
            return
        mean, variance = self.problem.sides["u"].pairs(rows["u"], rows["v"], self.mu["u"], self.mu["v"])
        errors = weight * ((ratings.values[places] - mean) ** 2 + variance)
        if name == "noise":
            out[0][...] -= 0.5 * float(errors @ (noise["u"] * noise["v"]))
            out[1][...] += 0.5 * weight.sum()
            return
        side = SIDE[name]
        errors *= self.tau[0] * noise[OTHER[side]]
        n_rows = len(out[0])
        out[0][...] -= 0.5 * np.bincount(rows[side], errors, n_rows)
        out[1][...] += 0.5 * np.bincount(rows[side], weight, n_rows)

    # -- the bound --

    def bound(self) -> float:
        """The evidence lower bound here."""
        return sum(self.parts().values())

    def parts(self) -> dict[str, float]:
        """E[log p] and entropy by node."""
        found = {
            name: self._rows_part(name) if name in OTHER else self._gamma_part(name) for name in self.problem.blocks
        }
        tau, log_tau = self.tau
        logs = len(self.problem.ratings) * (log_tau - LOG_2PI)
        for side in OTHER:
            if NOISE[side] in self.mu:
                logs += float(np.diff(self.problem.sides[side].rows.start) @ self.mu[NOISE[side]][1])
        return {**found, "r": 0.5 * logs - 0.5 * tau * self.total_error()}

    def _rows_part(self, side: str) -> float:
        """½ Σ (E[log α] + 1 − E[α] E[x²]) − ½ log |Λ|."""
        if side not in self.log_det:
            self.log_det[side] = self.problem.moments_and_log_det(side, self.lam[side])[1]
        alpha, log_alpha = self.precision(side)
        second = self.mu[side][1]
        squares = np.einsum("rdd->d", second)
        return float(0.5 * (len(second) * (log_alpha.sum() + len(alpha)) - alpha @ squares - self.log_det[side].sum()))

    def _gamma_part(self, name: str) -> float:
        return -float(np.sum(GAMMA.kl(self.lam[name], self.problem.prior_of(name))))
