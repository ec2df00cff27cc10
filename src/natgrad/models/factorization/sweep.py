"""A state of a `FullRatingsProblem` on its way through a sweep: exact updates, targets and the bound, each rating read twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.special

from natgrad.families import Gamma
from natgrad.families.natural_step import blend, distance, size_of
from natgrad.inference.problem import BlockInfo, Sampled, State
from natgrad.kernels.factorization.gather import sum_rows
from natgrad.models.factorization.sides import OTHER, PLATE, Moved, add_sampled, owned, pair_moments

if TYPE_CHECKING:
    from natgrad.models.factorization.problem import FullRatingsProblem

__all__ = ["MAP", "NOISE", "PRECISION", "SIDE", "OffFactor", "RatingSweep", "off_factor"]

Floats = npt.NDArray[np.float64]
Pair = tuple[Floats, Floats]
GAMMA = Gamma()
PRECISION = {"u": "user_precision", "v": "item_precision"}
NOISE = {"u": "user_noise", "v": "item_noise"}
MAP = {"u": "user_map", "v": "item_map"}
SIDE = {name: side for table in (PRECISION, NOISE, MAP) for side, name in table.items()}
LOG_2PI = float(np.log(2 * np.pi))


class RatingSweep:
    """A state on its way through a sweep: λ and μ by block, and the errors of each side while they are fresh."""

    def __init__(self, problem: FullRatingsProblem, state: State, afresh: bool = False) -> None:
        self.problem, self.priors = problem, problem.priors
        self.lam = {name: owned(part) for name, part in state.lam.items()}
        self.mu = {name: owned(part) for name, part in state.mu.items()}
        self.log_det: dict[str, Floats] = {}
        self.errors: dict[str, Floats] = {}
        # Where they are at the start of a sweep.
        self._off = off_factor(problem, self.total_weight()) if problem.n_off else None
        if afresh:
            for name in problem.blocks:
                self.mu[name], self.log_det[name] = problem.moments_and_log_det(name, self.lam[name])

    # -- what the other blocks say --

    def precision(self, side: str) -> tuple[Floats, Floats]:
        """E[α] and E[log α]."""
        if PRECISION[side] in self.mu:
            return self.mu[PRECISION[side]]
        known = self.priors.precisions(self.problem.n_factors)
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

    def prior_mean(self, side: str) -> Floats | None:
        """E[W f] of each row; None where nothing is known of the rows."""
        if MAP[side] not in self.mu:
            return None
        return np.asarray(self.problem.features[side] @ self.mu[MAP[side]][0].T)

    def squares(self, side: str, rows: npt.NDArray[np.int64] | None = None, weight: Floats | None = None) -> Floats:
        """Σ E[(x − W f)²] over the rows of a side, or Σ weight E[(x − W f)²] over some."""
        mean, second = self.mu[side]
        mean, second = (mean, second) if rows is None else (mean[rows], second[rows])
        squares = (
            second if second.ndim == mean.ndim else np.einsum("rdd->rd", second)
        )  # of points there is the diagonal alone
        prior = self.prior_mean(side)
        if prior is not None:
            known = self.problem.features[side]
            spread = np.einsum("rf,dfg,rg->rd", known, self.mu[MAP[side]][1], known, optimize=True)
            prior, spread = (prior, spread) if rows is None else (prior[rows], spread[rows])
            squares = squares - 2.0 * mean * prior + spread
        return np.asarray(squares.sum(0) if weight is None else weight @ squares)

    def error(self, side: str) -> Floats:
        """Σ_n E[t] E[(r − …)²] of each row of a side, not weighted by its own noise."""
        if side not in self.errors:
            other = OTHER[side]
            self.errors[side] = self.problem.sides[side].errors(self.mu[side], self.mu[other], self.weight(other))
        return self.errors[side]

    def row_weights(self, side: str) -> Floats:
        """Σ_n E[t] of each row of a side."""
        start, other = self.problem.sides[side].rows.start, OTHER[side]
        if NOISE[other] not in self.mu:
            rated, zeros = np.diff(start).astype(np.float64), self.problem.zeros
            return rated if zeros is None else rated + zeros[side].own * zeros[side].other.sum() - self._less(side)
        out = np.empty(len(start) - 1)
        sum_rows(start, self.weight(other)[self.problem.sides[side].rows.other], out)
        return out

    def _less(self, side: str) -> Floats:
        """Weight of the zeros in the places of the ratings of each row."""
        rows = self.problem.sides[side]
        out = np.empty(rows.n_rows)
        sum_rows(rows.rows.start, rows.less, out)
        return out

    def total_weight(self) -> float:
        """Σ_n E[τ] E[s] E[t]."""
        return self.tau[0] * float(self.weight("u") @ self.row_weights("u"))

    def _with_off(self, side: str) -> Floats:
        """The errors of each row of a side, with those that factors add which are off."""
        if self._off is None:
            return self.error(side)
        x = self._off.variance
        return np.asarray(self.error(side) + self.problem.n_off * x["u"] * x["v"] * self.row_weights(side))

    def total_error(self, with_off: bool = False) -> float:
        """Σ_n E[s] E[t] E[(r − …)²], from the side whose errors are at hand."""
        side = "u" if "u" in self.errors else "v"
        return float(self.weight(side) @ (self._with_off(side) if with_off else self.error(side)))

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
            self.lam[name] = owned(blend(old, goal, rho))
            self.mu[name] = self.problem.moments(self.problem.blocks[name], self.lam[name])
            if name in NOISE.values():
                self.errors.pop(OTHER[SIDE[name]], None)
            valid = bool(np.all(self.problem.blocks[name].family.valid(self.lam[name])))
        return BlockInfo(valid, distance(old, self.lam[name]) / size_of(old))

    def _rows(self, side: str, rho: float) -> Moved:
        other = OTHER[side]
        return self.problem.sides[side].sweep(
            self.mu[other],
            self.weight(other),
            self.weight(side),
            self.precision(side)[0],
            self.pull(side),
            self.tau[0],
            rho,
            self.lam[side],
        )

    def pull(self, side: str) -> Floats:
        """E[α] E[W f], or one row of zeros."""
        prior = self.prior_mean(side)
        return np.zeros((1, self.problem.size)) if prior is None else self.precision(side)[0] * prior

    def prior_message(self, name: str) -> Pair:
        """η̃ of a block."""
        if name not in OTHER:
            return self.problem.prior_of(name)
        n_rows = self.problem.blocks[name].shape[0]
        half = np.tile(np.diag(-0.5 * self.precision(name)[0]), (n_rows, 1, 1))
        return np.broadcast_to(self.pull(name), (n_rows, self.problem.size)), half

    def add_all(self, name: str, out: Pair) -> None:
        """Add the messages of all children to a target."""
        if name in OTHER:
            other = OTHER[name]
            scale = self.tau[0] * self.weight(name)
            self.problem.sides[name].add_targets(self.mu[other], self.weight(other), scale, out)
        elif name in PRECISION.values():
            out[0][...] -= 0.5 * self.squares(SIDE[name])
            out[1][...] += 0.5 * len(self.mu[SIDE[name]][0])
        elif name in MAP.values():
            self._add_map(name, None, None, out)
        elif name == "noise":
            out[0][...] -= 0.5 * self.total_error(with_off=True)
            out[1][...] += 0.5 * self.problem.n_counted
        else:
            side = SIDE[name]
            out[0][...] -= 0.5 * self.tau[0] * self._with_off(side)
            out[1][...] += 0.5 * np.diff(self.problem.sides[side].rows.start)

    def add_sample(self, name: str, sample: Sampled, out: Pair) -> None:
        """Add the weighted messages of sampled children to a target."""
        weight = np.ascontiguousarray(sample.weight, dtype=np.float64)
        if name in PRECISION.values():
            out[0][...] -= 0.5 * self.squares(SIDE[name], sample.zipped[PLATE[SIDE[name]]], weight)
            out[1][...] += 0.5 * weight.sum()
            return
        if name in MAP.values():
            self._add_map(name, sample.zipped[PLATE[SIDE[name]]], weight, out)
            return
        ratings, places = self.problem.ratings, sample.zipped["rating"]
        rows = {"u": ratings.users[places], "v": ratings.items[places]}
        values = self.problem.values[places] - self.problem.offset
        noise = {side: self.weight(side)[rows[side]] for side in OTHER}
        if name in OTHER:
            scale = weight * self.tau[0] * noise["u"] * noise["v"]
            scale *= self.problem.trust[places] if len(self.problem.trust) > 1 else 1.0
            others, biased = self.mu[OTHER[name]], self.priors.biases
            add_sampled(rows[name], rows[OTHER[name]], values, scale, others, biased, out)
            return
        mean, variance = pair_moments(rows["u"], rows["v"], self.mu["u"], self.mu["v"], self.priors.biases)
        errors = weight * ((values - mean) ** 2 + variance)
        if name == "noise":
            out[0][...] -= 0.5 * float(errors @ (noise["u"] * noise["v"]))
            out[1][...] += 0.5 * weight.sum()
            return
        side = SIDE[name]
        errors *= self.tau[0] * noise[OTHER[side]]
        n_rows = len(out[0])
        out[0][...] -= 0.5 * np.bincount(rows[side], errors, n_rows)
        out[1][...] += 0.5 * np.bincount(rows[side], weight, n_rows)

    def _add_map(self, name: str, rows: npt.NDArray[np.int64] | None, weight: Floats | None, out: Pair) -> None:
        """What rows say of the map of their features: α Σ x f and −½ α Σ f fᵀ for each number of a vector."""
        known, mean = self.problem.features[SIDE[name]], self.mu[SIDE[name]][0]
        if rows is not None and weight is not None:
            known, mean = known[rows], mean[rows]
        scaled = known if weight is None else weight[:, None] * known
        alpha = self.precision(SIDE[name])[0]
        out[0][...] += alpha[:, None] * (mean.T @ scaled)
        out[1][...] -= 0.5 * alpha[:, None, None] * (scaled.T @ known)

    # -- the bound --

    def bound(self) -> float:
        """The evidence lower bound here."""
        return sum(self.parts().values())

    def parts(self) -> dict[str, float]:
        """E[log p] and entropy by node."""
        parts = {
            name: self._rows_part(name) if name in OTHER else self._prior_part(name) for name in self.problem.blocks
        }
        tau, log_tau = self.tau
        logs = self.problem.n_counted * (log_tau - LOG_2PI)
        for side in OTHER:
            if NOISE[side] in self.mu:
                logs += float(np.diff(self.problem.sides[side].rows.start) @ self.mu[NOISE[side]][1])
        parts["r"] = 0.5 * logs - 0.5 * tau * self.total_error()
        if self.problem.n_off:
            parts["off"] = self.problem.n_off * off_factor(self.problem, self.total_weight()).bound
        return parts

    def _rows_part(self, side: str) -> float:
        """½ Σ (E[log α] + 1 − E[α] E[x²]) − ½ log |Λ|."""
        if side not in self.log_det:
            self.log_det[side] = self.problem.moments_and_log_det(side, self.lam[side])[1]
        alpha, log_alpha = self.precision(side)
        n_rows = len(self.mu[side][0])
        logs = n_rows * (log_alpha.sum() + len(alpha))
        return float(0.5 * (logs - alpha @ self.squares(side) - self.log_det[side].sum()))

    def _prior_part(self, name: str) -> float:
        return -float(np.sum(self.problem.blocks[name].family.kl(self.lam[name], self.problem.prior_of(name))))


# Roots of one variance given the other, in turn: each round leaves a quarter of the error of log x.
ROUNDS = 40


class OffFactor(NamedTuple):
    """q of a factor that is off: the variance of its numbers, by side, and what it adds to the bound."""

    variance: dict[str, float]
    bound: float


def off_factor(problem: FullRatingsProblem, weight: float) -> OffFactor:
    """Find q of a factor that is switched off, where all ratings together have the precision W = ``weight``.

    q(u_k) = N(0, x) for every user and q(v_k) = N(0, y) for every item, apart from all other factors. It says nothing to the rest
    but x y to the variance of each rating, so sweeps without it are those with it. With Gamma(a, b) on its precisions it adds to
    the bound, for each side of N rows, F_N of its variance, and −½ W x y:

        F_N(x) = log Γ(a + N/2) − log Γ(a) + a log b − (a + N/2) log(b + N x/2) + N/2 (1 + log x),   W = Σ_n E[τ s_i t_j]

    For given y the sum is largest at the root of (½ W y N) x² + (W y b + N a) x − N b = 0.
    """
    a, b = problem.priors.shape, problem.priors.rate * problem.priors.unit
    rows = {side: float(problem.blocks[side].shape[0]) for side in OTHER}
    x = dict.fromkeys(OTHER, problem.priors.unit)
    for _ in range(ROUNDS):
        for side, other in OTHER.items():
            square, linear = 0.5 * weight * x[other] * rows[side], weight * x[other] * b + rows[side] * a
            # The root without cancellation.
            x[side] = 2.0 * rows[side] * b / (linear + np.sqrt(linear**2 + 4.0 * square * rows[side] * b))
    bound = -0.5 * weight * x["u"] * x["v"]
    for side, n in rows.items():
        shape = a + 0.5 * n
        known = scipy.special.gammaln(shape) - scipy.special.gammaln(a) + a * np.log(b)
        bound += known - shape * np.log(b + 0.5 * n * x[side]) + 0.5 * n * (1.0 + np.log(x[side]))
    return OffFactor(x, float(bound))
