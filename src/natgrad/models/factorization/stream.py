"""A `MatrixFactorization` and chunks of whole users in; item vectors out, with one chunk of ratings in memory at a time.

Given the items, users are independent: they are the groups of the engine, their vectors are local variables, and a chunk of them
makes one step of the items and of the noise,

    λ ← (1 − ρ) λ + ρ (η̃ + users of the stream / users of the chunk · messages of the chunk)

(`natgrad.inference.streams`). Precisions of factors stay where they start. The users of the last chunk are those that the model
knows at the end; `fold_in` tells it others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.data.ids import joined_ids
from natgrad.data.rating_forms import as_ratings
from natgrad.data.ratings import Ratings
from natgrad.inference.engine import Result
from natgrad.inference.options import FitOptions
from natgrad.inference.problem import Block, GroupProblem, GroupResult, State
from natgrad.inference.streams import Chunk, StreamPhases
from natgrad.inference.trace import Trace
from natgrad.models.factorization.likelihoods import Gaussian, with_parts
from natgrad.models.factorization.problem import FullRatingsProblem
from natgrad.models.factorization.sweep import RatingSweep
from natgrad.posterior.factor import Factor

if TYPE_CHECKING:
    from natgrad.models.factorization.checks import RatingSettings
    from natgrad.models.factorization.estimator import MatrixFactorization

__all__ = ["UsersProblem", "fit_rating_stream"]

Floats = npt.NDArray[np.float64]
Stats = tuple[Any, ...]
ByBlock = Mapping[str, Stats]


class UsersProblem(GroupProblem):
    """The users of some ratings as groups: the blocks are the items, and the noise where it is learned.

    Parameters
    ----------
    full : FullRatingsProblem, of these users and all items that are known
    item_precision : array [D], the precision of each number of an item's vector
    population : float, optional
        Users that these stand for.
    """

    group_plate = "user"
    shards_by_row = True
    local_limits = (1e-6, 1)  # a user's vector is exact after one update

    def __init__(self, full: FullRatingsProblem, item_precision: Floats, population: float | None = None) -> None:
        self.full, self.item_precision = full, item_precision
        self.n_groups = self.batch_size = full.ratings.n_users
        self.population = float(self.n_groups if population is None else population)

    @cached_property
    def blocks(self) -> Mapping[str, Block]:  # type: ignore[override]
        """Items and noise; precisions are held."""
        return {name: block for name, block in self.full.blocks.items() if name in ("v", "noise")}

    @property
    def n_observed(self) -> Mapping[str, int]:
        """The ratings of these users."""
        return {"r": len(self.full.ratings)}

    @property
    def n_messages(self) -> int:
        """Users and items read every rating."""
        return 2 * len(self.full.ratings)

    @property
    def placed(self) -> Any:
        """Where the shards of both sides are, if they are placed."""
        return self.full.placed

    @placed.setter
    def placed(self, placed: Any) -> None:
        self.full.placed = placed

    def shards(self, size: int) -> Sequence[Any] | None:
        """Those of the ratings."""
        return self.full.shards(size)

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
        messages: dict[str, Stats] = {}
        for name in self.blocks:
            out = tuple(np.zeros(np.shape(part)) for part in state.lam[name])
            work.add_all(name, out)  # type: ignore[arg-type]
            messages[name] = out
        parts = work.parts()
        inside = sum(self._inner(name, messages[name], state.mu[name]) for name in self.blocks)
        return GroupResult((), messages, parts["u"] + parts["r"] - inside, 1, 2 * len(self.full.ratings))

    def updated(self, state: State) -> RatingSweep:
        """The users of these ratings, given the rest of a state."""
        n_users, size = self.n_groups, self.full.size
        none = np.zeros((n_users, size)), np.zeros((n_users, size, size))
        work = RatingSweep(self.full, State({**state.lam, "u": none}, {**state.mu, "u": none}, state.t))
        work.update("u", 1.0)
        return work

    def _inner(self, name: str, left: Stats, right: Stats) -> float:
        return float(np.sum(self.blocks[name].family.inner(left, right)))


def fit_rating_stream(
    model: MatrixFactorization,
    source: Any,
    settings: RatingSettings,
    n_users: float | None,
    features: tuple[Any, Any],
    options: FitOptions,
) -> None:
    """Fit a model to a source of ratings."""
    if any(part is not None for part in features):
        raise ValueError("user_features, item_features: a source of ratings takes none; leave them out")
    if model.inference == "gibbs":
        raise ValueError('inference="gibbs" needs all ratings in memory: say inference="vb" for a stream')
    if model.method is not None:
        raise ValueError(f"method={model.method}: a source of ratings is read by one step a chunk; leave it out")
    users, trace = _Users(model, settings), Trace()
    phases = StreamPhases(
        source.chunks, users.chunk, trace, step=None, rereadable=bool(getattr(source, "rereadable", False)),
        max_passes=float("inf"), tol=model.tol, n_groups=n_users, words="ratings",
    )  # fmt: skip

    def start() -> State:
        phases.first()
        return users.start

    result = model._run(phases, start, model._limits(advice="raise max_steps"), users, options=options, trace=trace)
    model.elbo_ = phases.elbo
    model._published(*users.published(result))
    model._data = None  # only the users of the last chunk are known


class _Users:
    """Chunks of users on their way through a fit: items are numbered as they come."""

    likelihood: Gaussian
    ratings: Ratings
    start: State
    last: UsersProblem

    def __init__(self, model: MatrixFactorization, settings: RatingSettings) -> None:
        if settings.likelihood != "gaussian" or settings.noise_per is not None:
            raise ValueError(
                f'a stream of ratings is factorised with likelihood="gaussian" and one noise, got '
                f"likelihood={settings.likelihood!r}, noise={model.noise!r}"
            )
        self.model, self.settings = model, settings
        self.item_ids: Any = None

    def chunk(self, raw: Any) -> Chunk:
        """A chunk with its items numbered as in the model; items that are new join it with their prior."""
        chunk, fresh = as_ratings(raw), self.item_ids is None
        self.item_ids, number = joined_ids(chunk.item_ids[:0] if fresh else self.item_ids, chunk.item_ids)
        self.ratings = Ratings.numbered(chunk.users, number[chunk.items], chunk.values, chunk.user_ids, self.item_ids)
        self.ratings.origin = chunk.origin
        if fresh:
            self.likelihood = Gaussian(self.settings, self.ratings)
        full: FullRatingsProblem = self.likelihood._problem(self.ratings, hold=True)
        new = full.start(int(self.model.seed), 1.0 if fresh else 0.0)
        if fresh:
            self.start = new

        def enter(state: State) -> State:
            known = state.lam["v"][0].shape[0]
            if known == full.ratings.n_items:
                return state
            grown = with_parts(state, ("v",), lambda a, b: np.concatenate([a, b[known:]]), new)
            return state._replace(lam=grown.lam, mu=grown.mu)

        def problem(population: float) -> UsersProblem:
            self.last = UsersProblem(full, RatingSweep(full, new).precision("v")[0], population)
            return self.last

        return Chunk(problem, self.ratings.n_users, len(self.ratings), enter)

    def published(self, result: Result) -> tuple[Any, ...]:
        """The items of a run, and the users of the last chunk given them."""
        work = self.last.updated(result.state)
        state = State(work.lam, work.mu, result.state.t)
        blocks = self.last.full.blocks.items()
        posterior = {name: Factor(name, block.family, block.plates, state.lam[name]) for name, block in blocks}
        return self.likelihood, self.ratings, Result(state, result.trace, result.stop), posterior
