"""Why a user is expected to like an item: what the user has rated in; what each of these adds to the score out.

The mean of a user's vector is linear in the ratings, given the items. With z = (v, 1) beside the bias c of an item,

    E[(u_i, b_i)] = Σ_n Λ⁻¹ a_n,   a_n = ω_n (E[z_n] (y_n − m) − E[z_n c_n]),   Λ = diag(α) + Σ_n ω_n E[z_n z_nᵀ]

so that the score m + c_j + Σ_n E[z_j] · Λ⁻¹ a_n is a sum over what the user has rated. Of Gaussian ratings y_n is the rating and
ω_n = τ s_i t_n; of levels and of likes with dislikes they are the hidden value and its precision, as of the next sweep. Counts
are shared by factors, and with φ_n ∝ exp(E[log θ_i] + E[log β_n])

    E[θ_ik] = (a + Σ_n r_n φ_nk) / g_ik,   g_ik = E[ξ_i] + Σ_j E[β_jk],   so that r_n adds Σ_k r_n φ_nk E[β_jk] / g_ik to θ·β
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.ratings import Ratings
from natgrad.inference.problem import State
from natgrad.models.factorization.likelihoods import Gaussian
from natgrad.models.factorization.links import Link, linked
from natgrad.models.factorization.problem import unseen_weights
from natgrad.models.factorization.sides import pair_moments

__all__ = ["reasons"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class _Told(NamedTuple):
    """Numbers of the items that a user has rated, the values y_n − m and the precisions ω_n; and α, that of the prior.

    ``unseen`` is the precision with which every other item is a zero.
    """

    items: Ints
    values: Floats
    weight: Floats
    prior: Floats
    unseen: float = 0.0


def reasons(kind: Any, state: State, ratings: Ratings, row: int, item: int) -> tuple[Ints, Floats]:
    """The items that a user has rated, and what each rating adds to the score of an item."""
    settings = kind.settings
    if settings.likelihood != "poisson":
        _check_told(kind.learned)
    rows = ratings.sorted_by_user
    here = slice(int(rows.start[row]), int(rows.start[row + 1]))
    rated, values = rows.other[here].astype(np.int64), rows.values[here]
    if settings.likelihood == "poisson":
        return rated, _of_counts(state, row, item, rated, values)
    known = kind.priors.precisions(kind.n_factors)
    prior = np.asarray(state.mu["user_precision"][0] if "user_precision" in state.mu else known)
    if isinstance(kind, Gaussian) and kind.negatives:
        tau = float(state.mu["noise"][0]) if "noise" in state.mu else kind.priors.noise
        unseen = tau * float(unseen_weights(ratings, kind.negatives)[row])
        told = _Told(rated, values, np.full(len(rated), tau), prior, unseen)
    elif isinstance(kind, Gaussian):
        told = _Told(rated, values - kind.offset, _trust(kind, state, row, rated), prior)
    else:
        hidden = _hidden(kind.link, state, row, rated, values, bool(settings.biases))
        told = _Told(rated, *hidden, prior)
    return rated, _parts(state, told, item, kind.n_factors, bool(settings.biases))


def _check_told(learned: Any) -> None:
    if learned["features"]:
        raise TypeError(
            "because: with user_features= or item_features= the prior has a part in every prediction; fit without them to have "
            "scores that are sums over what a user has rated"
        )


def _parts(state: State, told: _Told, item: int, k: int, biased: bool) -> Floats:
    z, zc, zz = _designs(state, told.items, k, biased)
    weight = told.weight - told.unseen
    precision = np.diag(told.prior) + np.einsum("n,nde->de", weight, zz)
    if told.unseen:
        precision += told.unseen * _designs(state, np.arange(len(state.mu["v"][0])), k, biased)[2].sum(0)
    adds = told.weight[:, None] * z * told.values[:, None] - weight[:, None] * zc
    return np.asarray(adds @ np.linalg.solve(precision, _designs(state, np.array([item]), k, biased)[0][0]))


def _designs(state: State, items: Ints, k: int, biased: bool) -> tuple[Floats, Floats, Floats]:
    """E[z], E[z c] and E[z zᵀ] of some items."""
    mean, second = (np.asarray(part)[items] for part in state.mu["v"])
    z, zc = mean[:, :k], np.zeros((len(items), k))
    if not biased:
        return z, zc, second
    bias, both, ones = mean[:, k], second[:, :k, k], np.ones((len(items), 1))
    zz = np.block([[second[:, :k, :k], z[:, :, None]], [z[:, None, :], ones[:, :, None]]])
    return np.hstack([z, ones]), np.hstack([both, bias[:, None]]), zz


def _trust(kind: Gaussian, state: State, row: int, rated: Ints) -> Floats:
    """τ s_i t_n of Gaussian ratings."""
    mu = state.mu
    noise = float(mu["noise"][0]) if "noise" in mu else kind.priors.noise
    own = float(mu["user_noise"][0][row]) if "user_noise" in mu else 1.0
    of_items = np.asarray(mu["item_noise"][0])[rated] if "item_noise" in mu else np.ones(len(rated))
    return np.asarray(noise * own * of_items)


def _hidden(link: Link, state: State, row: int, rated: Ints, seen: Floats, biased: bool) -> tuple[Floats, Floats]:
    """The ratings that levels or likes are to a state, less m, and their precisions."""
    n = len(rated)
    mean, variance = pair_moments(np.full(n, row), rated, state.mu["u"], state.mu["v"], biased)
    values, trust, rest = np.empty((3, n))
    linked(link, (mean, variance + mean**2), np.arange(n), seen, (values, trust, values, trust), rest)
    return values, trust


def _of_counts(state: State, row: int, item: int, rated: Ints, counts: Floats) -> Floats:
    theta_log, (beta, beta_log) = np.asarray(state.mu["u"][1])[row], (np.asarray(part) for part in state.mu["v"])
    logs = theta_log + beta_log[rated]
    shares = np.exp(logs - logs.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    rate = -np.asarray(state.lam["u"][0])[row]
    return np.asarray(counts * (shares @ (beta[item] / rate)))
