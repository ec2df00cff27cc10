"""A fit to some ratings, and other ratings, in; the state for these, users and items found by their ids, out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import Ratings
from natgrad.inference.problem import State
from natgrad.models.factorization.likelihoods import LikelihoodModel, likelihood_of
from natgrad.posterior.factor import Factor

__all__ = ["matched_state"]

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
