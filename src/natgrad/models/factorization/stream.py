"""A `MatrixFactorization` and chunks of whole users in; item vectors out, with one chunk of ratings in memory at a time.

Given the items, users are independent: they are the groups of the engine, their vectors are local variables, and a chunk of them
makes one step of the items and of the noise,

    λ ← (1 − ρ) λ + ρ (η̃ + users of the stream / users of the chunk · messages of the chunk)

What can be read again is read until the mean estimates of the bound over passes say that less than ``tol`` nats a rating are
left to gain. Precisions of factors stay where they start. The users of the last chunk are those that the model knows at the end;
`fold_in` tells it others.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from natgrad.data.rating_forms import as_ratings
from natgrad.data.ratings import Ratings, joined_ids
from natgrad.data.stream import is_rereadable
from natgrad.inference.engine import Result
from natgrad.inference.executors.threads import sharing
from natgrad.inference.problem import Block, State
from natgrad.inference.steppers.groups import ONE_PASS, GroupResult, SampledGroups
from natgrad.inference.stopping import left_to_gain
from natgrad.inference.trace import Reason, StepRecord, Stop, Trace
from natgrad.models.factorization.likelihoods import Gaussian
from natgrad.models.factorization.problem import FullRatingsProblem
from natgrad.models.factorization.sweep import RatingSweep
from natgrad.posterior.factor import Factor

if TYPE_CHECKING:
    from natgrad.models.factorization.estimator import MatrixFactorization
    from natgrad.models.factorization.likelihoods import RatingSettings

__all__ = ["UsersProblem", "fit_rating_stream"]

Floats = npt.NDArray[np.float64]
Stats = tuple[Any, ...]
ByBlock = Mapping[str, Stats]


class UsersProblem:
    """The users of some ratings as groups: the blocks are the items, and the noise where it is learned.

    Parameters
    ----------
    full : FullRatingsProblem, of these users and all items that are known
    item_precision : array [D], the precision of each number of an item's vector
    population : float, optional
        Users that these stand for.
    """

    group_plate = "user"
    gauges: tuple[tuple[str, str], ...] = ()
    messages = None
    local_limits = (1e-6, 1)  # a user's vector is exact after one update
    row_bytes = 0

    def __init__(self, full: FullRatingsProblem, item_precision: Floats, population: float | None = None) -> None:
        self.full, self.item_precision = full, item_precision
        self.n_groups = self.batch_size = full.ratings.n_users
        self.population = float(self.n_groups if population is None else population)

    @cached_property
    def blocks(self) -> Mapping[str, Block]:
        """Items and noise; precisions are held."""
        return {name: block for name, block in self.full.blocks.items() if name in ("v", "noise")}

    @property
    def message_bytes(self) -> int:
        """Of all items."""
        return 8 * self.full.ratings.n_items * self.full.size * (self.full.size + 1)

    def prior_of(self, name: str) -> Stats:
        """η̃; that of items is the same for all of them."""
        if name == "noise":
            return self.full.prior_of(name)
        return np.zeros((1, self.full.size)), np.diag(-0.5 * self.item_precision)[None]

    def moments(self, block: Block, lam: Any) -> Stats:
        """μ = ∇A(λ)."""
        return self.full.moments(block, lam)

    def solve(self, state: State, groups: Any, rows: Stats | None, tol: float, limit: int) -> GroupResult:
        """Every user at the optimum given the items, and what they tell these; all users are read, whatever ``groups`` says."""
        work = self.updated(state)
        told: dict[str, Stats] = {}
        for name in self.blocks:
            out = tuple(np.zeros(np.shape(part)) for part in state.lam[name])
            work.add_all(name, out)  # type: ignore[arg-type]
            told[name] = out
        parts = work.parts()
        inside = sum(self._inner(name, told[name], state.mu[name]) for name in self.blocks)
        return GroupResult((), told, parts["u"] + parts["r"] - inside, 1, 2 * len(self.full.ratings))

    def updated(self, state: State) -> RatingSweep:
        """The users of these ratings, given the rest of a state."""
        n_users, size = self.n_groups, self.full.size
        none = np.zeros((n_users, size)), np.zeros((n_users, size, size))
        work = RatingSweep(self.full, State({**state.lam, "u": none}, {**state.mu, "u": none}, state.t))
        work.update("u", 1.0)
        return work

    def global_bound(self, lam: ByBlock, mu: ByBlock, messages: ByBlock) -> float:
        """Σ_blocks [⟨m + η̃ − λ, μ⟩ + A(λ) − A(η̃)]; an estimate, since noise and items meet in a rating."""
        total = 0.0
        for name, block in self.blocks.items():
            prior = tuple(np.broadcast_to(p, np.shape(g)) for p, g in zip(self.prior_of(name), lam[name], strict=True))
            slack = tuple(m + p - g for m, p, g in zip(messages[name], prior, lam[name], strict=True))
            normalizers = block.family.log_normalizer(lam[name]) - block.family.log_normalizer(prior)
            total += self._inner(name, slack, mu[name]) + float(np.sum(normalizers))
        return total

    def _inner(self, name: str, left: Stats, right: Stats) -> float:
        return float(np.sum(self.blocks[name].family.inner(left, right)))


def fit_rating_stream(
    model: MatrixFactorization, source: Any, settings: RatingSettings, n_users: float | None, features: tuple[Any, Any]
) -> MatrixFactorization:
    """Fit a model to a source of ratings; if a chunk is refused, the model stays as it was."""
    if any(part is not None for part in features):
        raise ValueError("user_features, item_features: a source of ratings takes none; leave them out")
    stream = _Stream(model, settings, n_users)
    again, seen_before = is_rereadable(source, silent=False), None
    means: list[float] = []
    stop = Stop(Reason.STEPS, "the stream was read once; what cannot be read again is not")
    while True:
        estimates = stream.read(source.chunks(), seen_before)
        means.append(float(np.mean(estimates)) if estimates else np.nan)
        seen_before = stream.seen
        left = left_to_gain(means, rising=False)
        if again and model.tol > 0 and left is not None and left.below(model.tol * stream.n_ratings):
            words = f"about {left.gain:.1e} nats are left to gain in {stream.n_ratings:,} ratings"
            stop = Stop(Reason.TOLERANCE, words)
            break
        if not again or stream.state.t >= model.max_steps:
            stop = stop if not again else Stop(Reason.STEPS, f"all {stream.state.t} steps were taken")
            break
    stream.publish(means[-1], stop)
    return model


class _Stream:
    """A fit on its way through the chunks."""

    state: State
    kind: Gaussian
    ratings: Ratings

    def __init__(self, model: MatrixFactorization, settings: RatingSettings, n_users: float | None) -> None:
        if settings.likelihood != "gaussian" or settings.factorized or settings.noise_by is not None:
            raise ValueError(
                f'a stream of ratings is factorised with likelihood="gaussian", factorized=False and noise_by=None, got '
                f"likelihood={settings.likelihood!r}, factorized={settings.factorized!r}, noise_by={settings.noise_by!r}"
            )
        self.model, self.settings, self.n_users = model, settings, n_users
        self.item_ids: Any = None
        self.trace, self.begin, self.seen, self.n_ratings = Trace(), time.perf_counter(), 0, 0
        self.trace.choice = "sampled steps: the users are a stream, nothing is remembered"

    def read(self, chunks: Any, total: int | None) -> list[float]:
        """One pass: a step from each chunk; the estimates of the bound."""
        self.seen, self.n_ratings, estimates = 0, 0, []
        for number, chunk in enumerate(chunks):
            try:
                problem = self._problem(as_ratings(chunk))
            except (TypeError, ValueError) as error:
                raise type(error)(f"chunk {number} of the stream: {error}") from error
            self.seen += problem.n_groups
            self.n_ratings += len(self.ratings)
            problem.population = float(max(self.seen, total or 0, self.n_users or 0))
            step = ONE_PASS if self.model.step is None else self.model.step
            stepper = SampledGroups(cast("Any", problem), problem.n_groups, *problem.local_limits, step)
            with sharing(problem.full, self.model.executor, by_row=True):
                self.state, info = stepper.step(self.state, int(self.model.seed))
            if not all(bool(block.valid) for block in info.blocks.values()):
                raise FloatingPointError(
                    f"step {self.state.t} left the space of valid parameters; take a smaller step="
                )
            accesses = info.accesses + (self.trace.last.accesses if len(self.trace) else 0)
            moved = max(float(block.moved) for block in info.blocks.values())
            now = time.perf_counter() - self.begin
            self.trace.append(StepRecord(self.state.t, np.nan, info.estimate, info.rho, moved, accesses, now))
            estimates.append(info.estimate)
            self.last = problem
            if self.state.t >= self.model.max_steps:
                break
        if not self.seen:
            raise ValueError("X has no ratings: the stream is empty")
        return estimates

    def _problem(self, chunk: Ratings) -> UsersProblem:
        """A chunk with its items numbered as in the model; items that are new join it with their prior."""
        fresh = self.item_ids is None
        self.item_ids, number = joined_ids(chunk.item_ids[:0] if fresh else self.item_ids, chunk.item_ids)
        self.ratings = Ratings.numbered(chunk.users, number[chunk.items], chunk.values, chunk.user_ids, self.item_ids)
        if fresh:
            self.kind = Gaussian(self.settings, self.ratings)
        full: FullRatingsProblem = self.kind._problem(self.ratings, hold=True)
        start = full.start(int(self.model.seed), float(self.model.init_scale) if fresh else 0.0)
        if fresh:
            self.state = start
        known, n_items = self.state.lam["v"][0].shape[0], self.ratings.n_items
        if known < n_items:
            lam, mu = (
                {**old, "v": tuple(np.concatenate([a, b[known:]]) for a, b in zip(old["v"], new["v"], strict=True))}
                for old, new in ((self.state.lam, start.lam), (self.state.mu, start.mu))
            )
            self.state = self.state._replace(lam=lam, mu=mu)
        return UsersProblem(full, RatingSweep(full, self.state).precision("v")[0])

    def publish(self, estimate: float, stop: Stop) -> None:
        """The items, and the users of the last chunk given them."""
        work = self.last.updated(self.state)
        state = State(work.lam, work.mu, self.state.t)
        posterior = {
            name: Factor(name, block.family, block.plates, state.lam[name])
            for name, block in self.last.full.blocks.items()
        }
        self.model.elbo_ = estimate
        self.model._publish(self.kind, self.ratings, Result(state, self.trace, stop), posterior)
