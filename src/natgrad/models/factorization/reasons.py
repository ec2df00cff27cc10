"""Why a user is expected to rate an item as high: the user's ratings in; what each of them adds to the prediction out.

The mean of a user's vector is linear in the ratings, given the items. With z = (v, 1) beside the bias c of an item,

    E[(u_i, b_i)] = Σ_n Λ⁻¹ a_n,   a_n = τ s_i t_n (E[z_n] (r_n − m) − E[z_n c_n]),   Λ = diag(α) + Σ_n τ s_i t_n E[z_n z_nᵀ]

so that the prediction m + c_j + Σ_n E[z_j] · Λ⁻¹ a_n is a sum over what the user has rated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import Ratings
from natgrad.inference.problem import State
from natgrad.models.factorization.likelihoods import Gaussian

__all__ = ["rating_reasons"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def rating_reasons(kind: Gaussian, state: State, ratings: Ratings, row: int, item: int) -> tuple[Ints, Floats]:
    """The items that a user has rated, and what each rating adds to the prediction for an item."""
    if kind.learned["features"]:
        raise TypeError("because: with user_features= or item_features= the prior has a part in every prediction")
    rows = ratings.sorted_by_user
    here = slice(int(rows.start[row]), int(rows.start[row + 1]))
    rated, values = rows.other[here].astype(np.int64), rows.values[here] - kind.offset
    mean, second = (np.asarray(part) for part in state.mu["v"])
    k = kind.n_factors
    weight = _expected(state, "noise", kind.priors.noise) * _of_row(state, "user_noise", row)
    weight = weight * (state.mu["item_noise"][0][rated] if "item_noise" in state.mu else np.ones(len(rated)))
    z, zz, zc = mean[rated, :k], second[rated, :k, :k], np.zeros((len(rated), k))
    asked = mean[item, :k]
    if kind.settings.biases:
        bias, both = mean[rated, k], second[rated, :k, k]
        ones = np.ones((len(rated), 1))
        zz = np.block([[zz, z[:, :, None]], [z[:, None, :], ones[:, :, None]]])
        z, zc, asked = np.hstack([z, ones]), np.hstack([both, bias[:, None]]), np.append(asked, 1.0)
    alpha = np.asarray(state.mu["user_precision"][0]) if "user_precision" in state.mu else kind.priors.precisions(k)
    precision = np.diag(alpha) + np.einsum("n,nde->de", weight, zz)
    told = weight[:, None] * (z * values[:, None] - zc)
    return rated, np.asarray(told @ np.linalg.solve(precision, asked))


def _expected(state: State, name: str, otherwise: float) -> float:
    return float(state.mu[name][0]) if name in state.mu else otherwise


def _of_row(state: State, name: str, row: int) -> Any:
    return float(state.mu[name][0][row]) if name in state.mu else 1.0
