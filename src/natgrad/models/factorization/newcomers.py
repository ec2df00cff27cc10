"""New users of a fitted factorisation: their ratings in; a model that knows them out, in milliseconds however many it knows.

A model of the new users alone, with all items, is fitted at once. It answers for them. The rows of everybody, in which theirs are
the last, are put together when they are first asked for: a copy of a million rows takes longer than the fit of one.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from natgrad.data.ids import as_ids
from natgrad.data.ratings import Ratings
from natgrad.inference.engine import Result
from natgrad.models.factorization.tables import FOLD_STEPS, joined_users, new_users

if TYPE_CHECKING:
    from natgrad.models.factorization.estimator import MatrixFactorization

__all__ = ["Later", "Newcomers", "alone_with", "with_newcomers", "with_told"]


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
