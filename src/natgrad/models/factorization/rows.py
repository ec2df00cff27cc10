"""Fit users and items that come after a fit, and predict rows of a table from their own ratings.

New users: a model of them alone, with all items, is fitted at once and answers for them, in milliseconds however many are known.
The rows of everybody, in which theirs are the last, are put together when they are first asked for: a copy of a million rows
takes longer than the fit of one.

A row of a table is a user, known or not, and is judged by its own ratings alone: its vector is fitted to them with all else held.
So rows do not depend on one another, as scikit-learn demands of ``predict(X)``. New users are scored on one half of their ratings
given the other, both ways.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.ids import as_ids
from natgrad.data.ratings import Ratings, as_table
from natgrad.inference.engine import Result
from natgrad.inference.problem import State
from natgrad.models.factorization.likelihoods import OF_USERS, LikelihoodModel, folded_users, likelihood_of, with_parts
from natgrad.posterior.factor import Factor

if TYPE_CHECKING:
    from natgrad.models.factorization.estimator import MatrixFactorization
    from natgrad.models.factorization.predictors import Predictor

__all__ = [
    "FOLD_STEPS",
    "Later",
    "Newcomers",
    "alone_with",
    "check_columns",
    "completed",
    "halves",
    "joined_users",
    "matched_state",
    "new_users",
    "shape_of",
    "visitor_scores",
    "with_new",
    "with_newcomers",
    "with_told",
]


class Newcomers(NamedTuple):
    """Who was known, the ratings of who is new, and the model of the new users alone."""

    base: MatrixFactorization
    chunk: Ratings
    alone: MatrixFactorization


class Later:
    """An attribute of a fit that new users change: where there is none yet, it is made of those of the known and the new."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        came = None if instance is None else vars(instance).get("_newcomers")
        if came is None:
            what = owner.__name__ if instance is None else f"{owner.__name__!r} object"
            raise AttributeError(f"{what} has no attribute {self.name!r}", name=self.name, obj=instance)
        _put_together(instance, came)
        return vars(instance)[self.name]


# What new users change of a fit.
CHANGED = (
    "ratings_", "result_", "posterior_", "user_factors_", "item_factors_", "user_biases_", "item_biases_", "n_factors_",
    "_predictor", "_data",
)  # fmt: skip


def with_newcomers(base: MatrixFactorization, chunk: Ratings) -> MatrixFactorization:
    """A copy of a model that knows new users: all of ``chunk`` are new, and all of its items known."""
    items, known = base.ratings_.find_items(chunk.item_ids, "items"), base.ratings_
    theirs = Ratings.numbered(chunk.users, items[chunk.items], chunk.values, chunk.user_ids, known.item_ids)
    kind, state = base._kind, base.result_.state
    alone, folded = copy.copy(base), copy.copy(base)
    made = new_users(kind, state, theirs, int(base.seed))
    alone._published(kind, theirs, Result(made, base.trace_, base.stop_), None)
    for name in (*CHANGED, "draws_"):
        folded.__dict__.pop(name, None)
    folded._kept_draws, folded._newcomers = None, Newcomers(base, chunk, alone)
    return folded


def with_told(base: MatrixFactorization, chunk: Ratings) -> MatrixFactorization:
    """A copy of a model with more ratings, of known users too."""
    ratings = base.ratings_.extended(chunk)
    rows = ratings.find_users(chunk.user_ids)
    state = base._kind.extended(base.result_.state, ratings, int(base.seed))
    state = base._kind.folded(state, ratings.restricted(rows), rows, FOLD_STEPS)
    folded = copy.copy(base)
    folded._published(base._kind, ratings, Result(state, base.trace_, base.stop_), None)
    return folded


def alone_with(model: Any, users: Any) -> Any:
    """The model of the new users alone, if nobody else is asked for."""
    came = vars(model).get("_newcomers")
    if came is None or users is None:
        return None
    single = isinstance(users, (str, bytes)) or not hasattr(users, "__len__")
    if not single and (not len(users) or np.ndim(users) != 1):
        return None
    ids = came.alone.ratings_.user_ids
    asked = set(as_ids([users] if single else users, "users").tolist())
    return came.alone if asked <= set(ids.tolist()) else None


def _put_together(folded: Any, came: Newcomers) -> None:
    base, kind = came.base, came.base._kind
    state, mine = base.result_.state, came.alone.result_.state
    vars(folded).pop("_newcomers")
    folded.posterior_ = base.posterior_
    whole = Result(joined_users(state, mine), base.trace_, base.stop_)
    folded._published(kind, base.ratings_.extended(came.chunk), whole, None)


Ints = npt.NDArray[np.int64]
SIDES = {"user": "u", "item": "v"}


def matched_state(
    kind: LikelihoodModel,
    state: State,
    posterior: Mapping[str, Factor],
    old: Ratings,
    new: Ratings,
    seed: int,
) -> tuple[LikelihoodModel, State]:
    """Users and items that went are left out, in the order of the others; those that came are at their priors."""
    stays = {"user": np.isin(old.user_ids, new.user_ids), "item": np.isin(old.item_ids, new.item_ids)}
    rows = {side: np.flatnonzero(flags) for side, flags in stays.items()}
    if not all(flags.all() for flags in stays.values()):
        kind = _without(kind, rows, new)
        lam, mu = (
            {name: _taken(posterior[name].plates, own, rows) for name, own in q.items()} for q in (state.lam, state.mu)
        )
        state = State(lam, mu, state.t)
    return kind, kind.extended(state._replace(memory={}), new, seed)


def _taken(plates: tuple[str, ...], parts: tuple[Any, ...], rows: Mapping[str, Ints]) -> tuple[Any, ...]:
    if not plates or plates[0] not in rows:
        return parts
    return tuple(np.asarray(part)[rows[plates[0]]] for part in parts)


def _without(kind: Any, rows: Mapping[str, Ints], ratings: Ratings) -> LikelihoodModel:
    """The kind with what it knows of single users and items cut to those that stay."""
    learned = dict(getattr(kind, "learned", {}))
    if not learned:
        return kind  # type: ignore[no-any-return]
    own = {side: rows[name] for name, side in SIDES.items()}
    learned["features"] = {
        side: np.asarray(table)[own[side][own[side] < len(table)]] for side, table in learned["features"].items()
    }
    return likelihood_of(kind.settings, ratings, learned)


Floats = npt.NDArray[np.float64]
# Rounds of updates of new users' vectors, items held: scalars, and users with a noise of their own, need a few.
FOLD_STEPS = 10
# Who predicts, and the users, items and ratings to predict.
Asked = tuple["Predictor", Ints, Ints, Floats]
# Ratings predicted at once.
SLICE = 1_000_000


def shape_of(X: Any) -> tuple[int, ...]:
    """Rows and columns of a table without ids; nothing of anything else."""
    return np.shape(X) if isinstance(X, (list, np.ndarray)) or hasattr(X, "tocoo") else ()


def check_columns(X: Any, n_items: int) -> None:
    """A table without ids must have a column for each item of the fit."""
    shape = shape_of(X)
    if len(shape) == 2 and shape[1] != n_items:
        raise ValueError(
            f"X has {shape[1]} features, but MatrixFactorization is expecting {n_items} features as input: a column for each "
            "item; give Ratings for others, whose ids tell which they are"
        )


def completed(kind: LikelihoodModel, state: State, item_ids: npt.NDArray[Any], X: Any) -> tuple[Floats, Floats]:
    """Mean and variance [rows, items] of the ratings of rows, given those that are there (the others are NaN)."""
    if hasattr(X, "tocoo"):
        raise TypeError(
            "X is sparse, and a table with every rating is not: give X.toarray() with NaN where there is none"
        )
    table = as_table(X)
    check_columns(table, len(item_ids))
    n_rows, n_items = table.shape
    rows, items = np.nonzero(~np.isnan(table))
    predictor, n_users = _of_rows(kind, state, item_ids, n_rows, rows, items, table[rows, items])
    mean, variance = np.empty((n_rows, n_items)), np.empty((n_rows, n_items))
    for some in np.array_split(np.arange(n_rows), -(-n_rows * n_items // SLICE)):
        pairs = n_users + np.repeat(some, n_items), np.tile(np.arange(n_items), len(some))
        for out, predicted in zip((mean, variance), predictor.pairs(*pairs), strict=True):
            out[some] = predicted.reshape(len(some), n_items)
    return mean, variance


def halves(kind: LikelihoodModel, state: State, item_ids: npt.NDArray[Any], held: Ratings) -> Iterator[Asked]:
    """Who predicts, and the users, items and ratings to predict: every second rating of new users given the others, twice."""
    by_user = held.by_user
    rows = np.repeat(np.arange(held.n_users), np.diff(by_user.start))
    rank = np.arange(len(rows)) - by_user.start[rows]
    for half in (0, 1):
        asked = rank % 2 == half
        told = rows[~asked], by_user.other[~asked], by_user.values[~asked]
        predictor, first = _of_rows(kind, state, item_ids, held.n_users, *told)
        yield predictor, first + rows[asked], by_user.other[asked].astype(np.int64), by_user.values[asked]


def with_new(
    kind: LikelihoodModel, state: State, new_users: int, new_items: int, known: Ratings | None = None
) -> Predictor:
    """Who predicts for the users and items of the fit, and for so many behind them of whom only the prior is known."""
    n_users, n_items = (len(state.mu[side][0]) for side in ("u", "v"))
    ids = np.arange(n_users + new_users), np.arange(n_items + new_items)
    nothing = Ratings.numbered(np.array([0]), np.array([0]), np.zeros(1), *ids)
    larger = kind.extended(state, nothing, 0)
    lam, mu = dict(larger.lam), dict(larger.mu)
    for side, name, n_known in (("u", "user_precision", n_users), ("v", "item_precision", n_items)):
        if name in mu:  # new rows are as wide as the prior that was learned, not as the one at the start
            precision = np.asarray(mu[name][0])
            lam[side] = _put_behind(lam[side], n_known, (np.zeros_like(precision), np.diag(-0.5 * precision)))
            mu[side] = _put_behind(mu[side], n_known, (np.zeros_like(precision), np.diag(1.0 / precision)))
    ratings = nothing if known is None else Ratings.numbered(known.users, known.items, known.values, *ids)
    predictor: Predictor = kind.predictor(State(lam, mu, state.t), ratings)
    return predictor


def visitor_scores(kind: LikelihoodModel, state: State, item_ids: Any, items: Ints, values: Floats) -> Any:
    """What orders all items for a new user with these ratings [1, items]: one row is fitted, from the items that it has rated."""
    nobody = np.zeros(1, dtype=np.int64)
    alone = with_parts(state, OF_USERS, lambda part: np.ascontiguousarray(part[nobody]))
    if "user_noise" in alone.mu:  # of the row before its ratings only the noise is read: it begins at 1
        alone = alone._replace(mu={**alone.mu, "user_noise": (np.ones(1), np.zeros(1))})
    ratings = Ratings.numbered(np.zeros(len(items), dtype=np.int64), items, values, np.arange(1), item_ids)
    mine = folded_users(state, kind.folded(alone, ratings, nobody, FOLD_STEPS))
    users, others = kind.predictor(mine, ratings).vectors()
    return users @ others.T


def new_users(kind: LikelihoodModel, state: State, some: Ratings, seed: int) -> State:
    """The state with the users of ``some``, all of them new, instead of those that it has; all items are known."""
    alone = kind.extended(with_parts(state, OF_USERS, lambda part: part[:0]), some, seed)
    return kind.folded(alone, some, np.arange(some.n_users), FOLD_STEPS)


def joined_users(state: State, alone: State) -> State:
    """A state with the users of another behind its own."""
    return with_parts(state, OF_USERS, lambda *parts: np.concatenate(parts), alone)


def _put_behind(parts: Any, known: int, row: tuple[Floats, Floats]) -> tuple[Floats, ...]:
    return tuple(
        np.concatenate([np.asarray(part)[:known], np.broadcast_to(new, (len(part) - known, *new.shape))])
        for part, new in zip(parts, row, strict=True)
    )


def _of_rows(
    kind: LikelihoodModel, state: State, item_ids: npt.NDArray[Any], n_rows: int, rows: Ints, items: Any, values: Floats
) -> tuple[Predictor, int]:
    """Who predicts for so many new users with these ratings, and the number of the first of them."""
    n_users = len(state.mu["u"][0])
    if len(rows):
        ids = np.arange(n_users + n_rows)
        ratings = Ratings.numbered(n_users + rows, items, values, ids, item_ids)
        state = kind.extended(state, ratings, 0)
        state = kind.folded(state, ratings.restricted(ids[n_users:]), ids[n_users:], FOLD_STEPS)
        return kind.predictor(state, ratings), n_users
    return with_new(kind, state, n_rows, 0), n_users  # nothing to go by but the priors
