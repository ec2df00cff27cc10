"""Bounds of covariances that no network can declare, summed by hand.

One precision that several means share lies on fewer plates than they do, and the parts of a joint factor of a network lie on the
same plates: `joint=[("mu", "tau")]` refuses it, as the first test says. So these are held to their definition: all paths, in the
usual parameters of q.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.special as sp

import natgrad as ng
from natgrad.errors import PlateMismatch
from natgrad.models import hmm

LENGTHS = [3, 4]
PRIOR: dict[str, Any] = {"mean_prior": [0.3, -0.2], "mean_scale": 0.5, "dof_prior": 5.0}
SCALE = {"tied": np.array([[2.0, 0.3], [0.3, 1.5]]), "spherical": 1.4}


def log_normaliser(dof: Any, rate: Any) -> Any:
    """Log Z of |Λ|^((ν − d − 1)/2) exp(−½ tr R Λ), d × d."""
    d = np.shape(rate)[-1]
    return sp.multigammaln(0.5 * dof, d) + 0.5 * dof * (d * np.log(2.0) - np.linalg.slogdet(rate)[1])


def expected_log(dof: Any, rate: Any) -> Any:
    """E log |Λ|."""
    d = np.shape(rate)[-1]
    return sum(sp.psi(0.5 * (dof - i)) for i in range(d)) + d * np.log(2.0) - np.linalg.slogdet(rate)[1]


def from_prior(dof: float, rate: Any, prior_rate: Any) -> float:
    """KL of Wisharts with ν and ν₀ = 5, R and R₀."""
    d = len(rate)
    log = log_normaliser(PRIOR["dof_prior"], prior_rate) - log_normaliser(dof, rate)
    away = 0.5 * (dof - PRIOR["dof_prior"]) * expected_log(dof, rate)
    return float(log + away - 0.5 * dof * (d - np.trace(prior_rate @ np.linalg.inv(rate))))


def of_means(means: Any, scales: Any, precision: Any) -> float:
    """E KL of N(m, (κ Λ)⁻¹) rows [.., d] to their prior, given what E Λ is."""
    kappa, d = PRIOR["mean_scale"], precision.shape[-1]
    size = d * (kappa / scales - 1.0 - np.log(kappa / scales))
    return float(0.5 * np.sum(size + kappa * np.einsum("...d,de,...e->...", means, precision, means)))


def tied(parameters: Any, X: Any) -> tuple[Any, float]:
    """E log p(y_t | k) [T, K], and the divergence of all components."""
    mean, scale, dof, rate = (np.asarray(parameters[name])[0] for name in ("mean", "scale", "dof", "rate"))
    precision, away = dof * np.linalg.inv(rate), X[:, None] - mean
    square = np.einsum("tkd,de,tke->tk", away, precision, away) + 2.0 / scale
    density = 0.5 * (expected_log(dof, rate) - 2.0 * np.log(2.0 * np.pi) - square)
    kl = from_prior(float(dof), rate, SCALE["tied"]) + of_means(mean - PRIOR["mean_prior"], scale, precision)
    return density, kl


def spherical(parameters: Any, X: Any) -> tuple[Any, float]:
    """The same; entries may be missing."""
    density, kl = np.zeros((len(X), 2)), 0.0
    for k in range(2):
        mean, scale, dof, rate = (np.asarray(parameters[name])[k] for name in ("mean", "scale", "dof", "rate"))
        precision = dof / rate
        away = (X - mean[:, 0]) ** 2 * precision[0] + 1.0 / scale
        own = 0.5 * (expected_log(dof, rate) - np.log(2.0 * np.pi) - away)
        density[:, k] = np.nansum(own, axis=1)
        kl += from_prior(float(dof), rate, np.array([[SCALE["spherical"]]]))
        kl += of_means(mean - np.asarray(PRIOR["mean_prior"])[:, None], scale, precision)
    return density, kl


def rows(kind: str, rng: np.random.Generator) -> Any:
    X = rng.normal(size=(7, 2)) * 2.0
    if kind == "spherical":
        X[4, 1] = np.nan
    return X


@pytest.mark.parametrize("kind", ["tied", "spherical"])
def test_no_network_can_declare_it(kind: str) -> None:
    state, column = ng.Plate("state", 2), ng.Plate("column", 2)
    plates: Any = (state, column) if kind == "spherical" else state
    tau = ng.Gamma("tau", 2.5, 0.7, plate=state if kind == "spherical" else None)
    mu = ng.Normal("mu", 0.0, 0.5 * tau, plate=plates)
    y = ng.Normal("y", mu, tau, plate=plates, observed=np.zeros((2, 2) if kind == "spherical" else 2))
    with pytest.raises(PlateMismatch, match="lie on different plates"):
        ng.Network(y, joint=[("mu", "tau")])


@pytest.mark.parametrize("kind", ["tied", "spherical"])
def test_a_chain_has_the_bound_of_all_paths_and_no_network_is_it(kind: str, rng: np.random.Generator) -> None:
    X = rows(kind, rng)
    model = ng.GaussianHMM(
        2, covariance=hmm.Gaussian(kind, scale_prior=SCALE[kind], **PRIOR), n_init=1, max_passes=3, tol=0, verbose=False
    ).fit(X, lengths=LENGTHS)
    density, wanted = {"tied": tied, "spherical": spherical}[kind](model.posterior_["emission"].parameters, X)
    wanted, begin = -wanted, 0
    logs = {}
    for name in ("initial", "transition"):
        alpha = model.posterior_[name].parameters["concentration"]
        logs[name] = sp.psi(alpha) - sp.psi(alpha.sum(-1, keepdims=True))
        wanted -= sum(
            sp.gammaln(a.sum()) - sp.gammaln(a).sum() - sp.gammaln(2.0) + (a - 1.0) @ log
            for a, log in zip(np.atleast_2d(alpha), np.atleast_2d(logs[name]), strict=True)
        )
    for length in LENGTHS:
        here = density[begin : begin + length]
        paths = [
            logs["initial"][path[0]]
            + sum(logs["transition"][i, j] for i, j in itertools.pairwise(path))
            + here[np.arange(length), path].sum()
            for path in itertools.product(range(2), repeat=length)
        ]
        wanted += sp.logsumexp(paths)
        begin += length
    bound = model._response_problem(X, lengths=LENGTHS).bound(model._state)
    assert bound == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize("kind", ["tied", "spherical"])
def test_a_mixture_has_the_bound_of_all_memberships_and_no_network_is_it(kind: str, rng: np.random.Generator) -> None:
    X = rows(kind, rng)
    model = ng.GaussianMixture(
        2, covariance=hmm.Gaussian(kind, scale_prior=SCALE[kind], **PRIOR), weight_prior=1.0, n_init=1, max_passes=3, tol=0,
        verbose=False,
    ).fit(X)  # fmt: skip
    parameters = dict(model.posterior_["components"].parameters)
    density, kl = {"tied": tied, "spherical": spherical}[kind](parameters, X)
    alpha = model.posterior_["weights"].parameters["concentration"]
    log = sp.psi(alpha) - sp.psi(alpha.sum())
    kl += sp.gammaln(alpha.sum()) - sp.gammaln(alpha).sum() - sp.gammaln(2.0) + (alpha - 1.0) @ log
    bound = model._response_problem(X).bound(model._state)
    assert bound == pytest.approx(sp.logsumexp(density + log, axis=1).sum() - kl, rel=1e-10)


@pytest.mark.parametrize("kind", ["tied", "spherical"])
def test_tracks_of_a_shared_precision_are_the_plain_chain(kind: str, rng: np.random.Generator) -> None:
    """Student's t with many degrees of freedom is the Gaussian, and a track alone is the chain without tracks."""
    X = rows(kind, rng)
    common: dict[str, Any] = {"n_init": 1, "max_passes": 3, "tol": 0, "verbose": False}
    plain = ng.GaussianHMM(2, covariance=hmm.Gaussian(kind, scale_prior=SCALE[kind], **PRIOR), **common).fit(
        X, lengths=LENGTHS
    )
    own = {"covariance": kind, "scale_prior": SCALE[kind], **PRIOR}
    track = hmm.HMM(2, emissions={(0, 1): hmm.Gaussian(**own)}, **common).fit(X, lengths=LENGTHS)
    assert track.elbo_ == pytest.approx(plain.elbo_, rel=1e-10)
    heavy = hmm.HMM(2, emissions=hmm.StudentT(dof=1e9, **own), **common).fit(X, lengths=LENGTHS)
    assert heavy.elbo_ == pytest.approx(plain.elbo_, rel=1e-6)  # the law differs by 1/dof for each entry
