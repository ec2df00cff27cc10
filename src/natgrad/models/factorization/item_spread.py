"""How sure the regression on other items is: the posterior of Λ and the likes of users in; scores by a quantile or a draw out.

Of Λ ~ Wishart(ν, V⁻¹), V = E[Λ]/ν, the weights of item j given Λ_jj are Gaussian around −V_kj/V_jj with the covariance of V
without j, over Λ_jj, and E[1/Λ_jj] = 1/(V_jj (ν − 2)). With s_ij the score of an item that user i does not like,

    Var s_ij = (q_i / V_jj − s_ij²) / (ν − 2),   q_i = x_iᵀ V x_i = Σ_j x_ij V_jj (1 − s_ij)

exactly: a number for each user and one for each item. Items that are too rare for the regression are as sure as one of which
nothing is known but its own likes. The variance of tastes or of a weighted factorisation beside it is that of each user's vector,
to first order, and is added; neighbours, and the factorisation of older files, are taken as known.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import special

from natgrad.inference.problem import State
from natgrad.models.factorization.item_tastes import Tastes
from natgrad.models.factorization.item_weighted import Weighted
from natgrad.models.factorization.items import ItemLikes, ItemPredictor

__all__ = ["item_deviations", "unsure_scores"]

Floats = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


def unsure_scores(
    kind: ItemLikes, state: State, predictor: ItemPredictor, users: Ints, quantile: float | None, seed: int | None
) -> Callable[[slice], Float32s]:
    """Scores of all items for a run of the users: at a quantile, or each drawn by itself."""
    if kind.ridge.mix >= 1.0 and not isinstance(predictor.factors, Tastes | Weighted):
        raise TypeError(
            "quantile= and draw=: what was learned from these likes ranks by a factorisation alone, which keeps no uncertainty; "
            "n_negatives=4 has Gaussian factors"
        )
    if kind.ridge.near >= 1.0:
        raise TypeError(
            "quantile= and draw=: what was learned from these likes ranks by the neighbours of likes alone, which keep no "
            "uncertainty; n_negatives=4 has Gaussian factors"
        )
    rng = np.random.default_rng(seed)

    def scores(some: slice) -> Float32s:
        rows = users[some]
        deviations = item_deviations(kind, state, predictor, rows) * predictor.scale
        steps = rng.standard_normal(deviations.shape) if quantile is None else float(special.ndtri(quantile))
        return np.asarray(predictor.scores(rows) + steps * deviations, dtype=np.float32)

    return scores


def item_deviations(kind: ItemLikes, state: State, predictor: ItemPredictor, users: Ints) -> Floats:
    """Standard deviations of what is expected of every item [users, items]; of items that a user likes they mean nothing."""
    rows = [predictor.liked[predictor.start[user] : predictor.start[user + 1]] for user in users]
    of_tastes = np.zeros((len(users), len(predictor.part)))
    if isinstance(predictor.factors, Tastes | Weighted):
        start = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
        of_tastes += predictor.part * predictor.factors.deviations(
            start, np.concatenate([*rows, np.empty(0, np.int32)])
        )
    places, own = predictor.places, (1.0 - kind.ridge.mix) * (1.0 - kind.ridge.near)
    if not own:
        return of_tastes
    mean = np.asarray(state.mu["items"][0])
    dof = 2.0 * float(state.lam["items"][1]) + len(mean) + 1.0
    diagonal = np.diagonal(mean) / dof
    size = len(places)
    table = np.zeros((len(users), len(predictor.part)))
    for row, liked in enumerate(rows):
        table[row, liked] = 1.0
    x = table[:, places]
    s = x @ (predictor.weights / own) + predictor.bias / own
    q = np.einsum("uj,uj,j->u", x, 1.0 - s, diagonal[:size])
    if kind.ridge.bias:
        # B_kb = B_bk V_kk / V_bb, since V is symmetric.
        back = predictor.bias / own * diagonal[:size] / diagonal[size]
        q += diagonal[size] * (1.0 - x @ back)
    likes_of = np.maximum(np.asarray(kind.learned["popularity"]), 1.0)
    rate = kind.ridge._replace(bias=False).rate(likes_of) + likes_of
    variance = q[:, None] * np.append(rate, np.full(table.shape[1] - len(rate), rate.max(initial=1.0)))
    variance[:, places] = q[:, None] / diagonal[:size] - s**2
    return np.asarray(np.sqrt(own**2 * np.maximum(variance, 0.0) / (dof - 2.0) + of_tastes**2))
