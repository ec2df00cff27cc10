"""A mixture of another kind of component, written as a user of `Mixture` would: `GaussianMixture` alone knows Gaussians."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.stats as ss

import natgrad as ng
from natgrad.models.hmm.emissions import Poissons
from natgrad.models.mixture.base import Mixture


class PoissonModel(NamedTuple):
    alpha: np.ndarray
    shape: float
    rate: float
    origin: np.ndarray

    @property
    def emission(self) -> Poissons:
        return Poissons(len(self.alpha), len(self.origin), self.shape, self.rate)


@dataclass(repr=False, eq=False)
class PoissonMixture(Mixture):
    """π ~ Dir(α), ρ_kd ~ Gamma(a, b), x_nd ~ Poisson(ρ_zd)."""

    _: KW_ONLY
    shape: float = 1.0
    rate: float = 0.1

    _model_class = PoissonModel

    def _prepared(self, x: Any, weight: Any) -> PoissonModel:
        return PoissonModel(self._concentration(), self.shape, self.rate, np.zeros(x.shape[1]))

    def _name(self, problem: Any, state: Any) -> None:
        self.rates_ = problem.emission.family.mean(state.lam["components"])

    @classmethod
    def _settings_table(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def _model_table(cls, model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return {}, {}


def counts(n: int = 80, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.integers(0, 2, n)
    return rng.poisson(np.array([[2.0, 9.0, 1.0], [8.0, 1.0, 4.0]])[z]).astype(float), z


def test_it_is_the_declared_network() -> None:
    X, _ = counts()
    alpha, member = [0.5, 2.0], np.random.default_rng(1).dirichlet(np.ones(2), len(X)).T
    model = PoissonMixture(2, weight_prior=alpha, shape=1.5, rate=0.3, verbose=False)
    model.n_features_in_ = X.shape[1]
    problem = model._problem(model._prepared(X, None), X, None)
    state = problem.updated(problem.clustered(member))
    n, k, column = ng.Plate("n", len(X)), ng.Plate("k", 2), ng.Plate("column", 3)
    z = ng.Categorical("z", ng.Dirichlet("pi", alpha), plate=n)
    x = ng.Poisson("x", ng.Gamma("rho", 1.5, 0.3, plate=(k, column))[z, :], plate=(n, column), observed=X)
    fit = ng.Network(x).fit(ng.VB(), max_steps=6, tol=0, init={"z": member.T}, order=("rho", "pi", "z"))
    base = float(np.sum(ss.poisson.logpmf(X, 1.0) + 1.0))  # −Σ log x!, which the statistics of rows leave out
    bounds = [problem.bound(state) + base]
    for _ in range(5):
        state = problem.sweep(state).state
        bounds.append(problem.bound(state) + base)
    np.testing.assert_allclose(bounds, fit.trace["elbo"], rtol=1e-9)
    np.testing.assert_allclose(state.lam["weights"][0] + 1.0, fit["pi"].parameters["concentration"], rtol=1e-9)
    np.testing.assert_allclose(problem.emission.family.mean(state.lam["components"]), fit["rho"].mean(), rtol=1e-9)


def test_it_fits_finds_k_predicts_and_draws() -> None:
    X, z = counts(200)
    model = PoissonMixture(("auto", 6), verbose=False).fit(X)
    assert model.n_components_ == 2
    agreement = np.mean(model.predict(X) == z)
    assert max(agreement, 1.0 - agreement) > 0.97
    rows, members = model.sample(20_000, seed=0)
    np.testing.assert_allclose(rows[members == 0].mean(0), model.rates_[0], rtol=0.05)
    drawn = PoissonMixture(2, verbose=False).fit(X).draws(X, n=200, chains=2, warmup=50, seed=0)
    means = drawn["components"].mean()
    np.testing.assert_allclose(np.sort(means, axis=0), np.sort(model.rates_, axis=0), rtol=0.15)
