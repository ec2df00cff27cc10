"""`GaussianMixture` against what is known of it: networks, evidence by enumeration, scikit-learn, and laws of its own."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special as sp
import scipy.stats as ss

import natgrad as ng
from natgrad.inference.problem import State
from natgrad.inference.step_sizes import Constant
from natgrad.inference.steppers.groups import GroupStepper

KINDS = ("full", "diag", "tied", "spherical")
every_kind = pytest.mark.parametrize("kind", KINDS)


def rows(n: int = 60, width: int = 2, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = 4.0 * rng.normal(size=(3, width))
    return centres[rng.integers(0, 3, n)] + rng.normal(size=(n, width)) @ (np.eye(width) + 0.3)


def quick(n: int = 3, **settings: object) -> ng.GaussianMixture:
    return ng.GaussianMixture(n, **{"n_init": 1, "verbose": False, "n_jobs": 1, **settings})


def problem_of(model: ng.GaussianMixture, X: np.ndarray, weight: np.ndarray | None = None):
    model.n_features_in_ = X.shape[1]
    return model._problem(model._prepared(X, weight), X, weight)


def sweeps(problem, state: State, n: int) -> tuple[State, list[float]]:
    stepper, bounds = GroupStepper(problem, problem.n_groups, 1e-6, 1, Constant(1.0), remember=True), []
    for _ in range(n):
        state, info = stepper.step(state, 0)
        bounds.append(info.bound)
    return state, bounds


# -- networks --


# -- evidence --


def conjugate_evidence(X: np.ndarray, z: np.ndarray, K: int, model: object) -> float:
    """Log p(X | z) from the usual updates of a Normal–Wishart, worked out on scatter matrices."""
    D, kappa, nu = X.shape[1], model.scale, model.dof
    sizes, scatters = [], []
    for k in range(K):
        own = X[z == k]
        size = len(own)
        mean = own.mean(0) if size else model.mean
        off = mean - model.mean
        scatters.append((own - mean).T @ (own - mean) + kappa * size / (kappa + size) * np.outer(off, off))
        sizes.append(size)
    sizes, scatters = np.array(sizes), np.array(scatters)
    log_p = -0.5 * D * len(X) * np.log(np.pi) + 0.5 * D * (np.log(kappa) - np.log(kappa + sizes)).sum()
    if model.covariance == "tied":
        return log_p + wishart_ratio(D, nu, model.rate, len(X), scatters.sum(0))
    if model.covariance == "full":
        return log_p + sum(wishart_ratio(D, nu, model.rate, n, s) for n, s in zip(sizes, scatters, strict=True))
    rates = np.broadcast_to(model.rate, (D,))
    if model.covariance == "diag":
        pairs = [(n, s[d, d], rates[d]) for n, s in zip(sizes, scatters, strict=True) for d in range(D)]
        return log_p + sum(wishart_ratio(1, nu, np.array([[r]]), n, np.array([[s]])) for n, s, r in pairs)
    return log_p + sum(
        wishart_ratio(1, nu, np.reshape(model.rate, (1, 1)), D * n, np.array([[np.trace(s)]]))
        for n, s in zip(sizes, scatters, strict=True)
    )


def wishart_ratio(D: int, nu: float, rate: np.ndarray, n: int, scatter: np.ndarray) -> float:
    later = nu + n
    gammas = sp.multigammaln(0.5 * later, D) - sp.multigammaln(0.5 * nu, D)
    return float(gammas + 0.5 * nu * np.linalg.slogdet(rate)[1] - 0.5 * later * np.linalg.slogdet(rate + scatter)[1])


@every_kind
def test_the_bound_of_one_component_is_the_evidence(kind: str) -> None:
    X = rows(7, seed=3)
    model = quick(1, covariance=kind, tol=1e-12, weight_prior=0.7).fit(X)
    wanted = conjugate_evidence(X, np.zeros(7, int), 1, model._model_)
    assert model.elbo_ == pytest.approx(wanted, rel=1e-9)


def expected_log_density(X: np.ndarray, kind: str, factor: object) -> np.ndarray:
    """E log N(x | μ_k, Λ_k⁻¹) [N, K], row by row, from the usual parameters."""
    usual, D = factor.parameters, X.shape[1]
    if kind == "diag":
        usual = {**usual, "dof": 2 * usual["shape"], "rate": 2 * usual["rate"]}
    out = np.zeros((len(X), 3))
    for k in range(3):
        if kind in ("full", "tied"):
            at = (k,) if kind == "full" else (0, k)
            dof, rate = usual["dof"][at[0]], usual["rate"][at[0]]
            log = sp.psi(0.5 * (dof - np.arange(D))).sum() + D * np.log(2) - np.linalg.slogdet(rate)[1]
            for n, x in enumerate(X):
                off = x - usual["mean"][at]
                far = D / usual["scale"][at] + dof * off @ np.linalg.solve(rate, off)
                out[n, k] = 0.5 * (log - D * np.log(2 * np.pi) - far)
            continue
        for d in range(D):
            dof = usual["dof"][k, d] if kind == "diag" else usual["dof"][k]
            rate = usual["rate"][k, d] if kind == "diag" else usual["rate"][k, 0, 0]
            off = X[:, d] - usual["mean"][k, d].item()
            far = 1 / usual["scale"][k, d] + dof / rate * off**2
            out[:, k] += 0.5 * (sp.psi(0.5 * dof) + np.log(2 / rate) - np.log(2 * np.pi) - far)
    return out


@every_kind
def test_the_bound_is_what_its_factors_say(kind: str) -> None:
    """Σ log Σ_k exp E log p(x, k) − KL, from definitions; predictions, too."""
    X = rows(30, seed=2) + 5.0
    model = quick(covariance=kind, max_passes=4, tol=0).fit(X)
    problem = problem_of(quick(covariance=kind), X)
    alpha = model.posterior_["weights"].parameters["concentration"]
    logs = sp.psi(alpha) - sp.psi(alpha.sum()) + expected_log_density(X, kind, model.posterior_["components"])
    wanted = sp.logsumexp(logs, axis=1).sum()
    for name, block in problem.blocks.items():
        wanted -= float(np.sum(block.family.kl(model._state.lam[name], problem.full_prior(name))))
    assert problem.bound(model._state) == pytest.approx(wanted, rel=1e-9)
    np.testing.assert_allclose(model.predict_proba(X), sp.softmax(logs, axis=1), rtol=1e-7, atol=1e-12)
    shape = {"full": (3, 2, 2), "diag": (3, 2), "tied": (2, 2), "spherical": (3,)}[kind]
    assert model.covariances_.shape == shape
    own = {"tied": np.broadcast_to(model.covariances_, (3, *shape)), "full": model.covariances_}.get(kind)
    if own is None:
        own = np.eye(2) * model.covariances_.reshape(3, -1, 1)
    density = [ss.multivariate_normal(m, c).logpdf(X) for m, c in zip(model.means_, own, strict=True)]
    wanted = sp.logsumexp(np.log(model.weights_)[:, None] + density, axis=0)
    np.testing.assert_allclose(model.score_samples(X), wanted, rtol=1e-9)
    drawn, z = model.sample(4000, seed=0)
    for k in np.flatnonzero(model.weights_ > 0.2):
        error = np.sqrt(np.diag(own[k]) / (z == k).sum())
        assert np.all(np.abs(drawn[z == k].mean(0) - model.means_[k]) < 6 * error)
        np.testing.assert_allclose(np.cov(drawn[z == k].T), own[k], atol=0.2 * np.abs(own[k]).max())


# -- scikit-learn --


# -- laws --


@every_kind
def test_the_bound_never_falls_in_whatever_batches(kind: str) -> None:
    X = rows(90)
    for method in (ng.VB(), ng.SVI({"row": 25})):
        bounds = quick(4, covariance=kind, method=method, tol=0, max_passes=15).fit(X).trace_["elbo"]
        bounds = bounds[np.isfinite(bounds)]
        assert len(bounds) > 10
        assert np.diff(bounds).min() > -1e-9 * abs(bounds[-1])


@every_kind
def test_pieces_and_shards_add_up_to_the_whole(kind: str, monkeypatch) -> None:
    from natgrad.inference import rows as module

    X, weight = rows(300), np.random.default_rng(0).random(300)
    whole = problem_of(quick(covariance=kind), X, weight)
    state = quick(covariance=kind, max_passes=2).fit(X)._state
    wanted = whole.solve(state, None, None, 0.0, 1)
    monkeypatch.setattr(module, "SHARD", 70)
    monkeypatch.setattr(module, "PIECE", 64)
    monkeypatch.setattr(module, "LEAST_ROWS", 16)
    parts = problem_of(quick(covariance=kind), X, weight)
    assert len(parts.shards(1)) == 5
    found = parts.solve(state, None, None, 0.0, 1)
    chosen = [parts.solve(state, g, None, 0.0, 1) for g in (np.arange(0, 300, 2), np.arange(1, 300, 2))]
    assert found.rest == pytest.approx(wanted.rest, rel=1e-9)
    assert sum(part.rest for part in chosen) == pytest.approx(wanted.rest, rel=1e-9)
    for name in whole.blocks:
        for place, part in enumerate(wanted.messages[name]):
            np.testing.assert_allclose(found.messages[name][place], part, rtol=1e-10, atol=1e-9)
            both = sum(half.messages[name][place] for half in chosen)
            np.testing.assert_allclose(both, part, rtol=1e-10, atol=1e-9)


def test_a_full_step_of_a_stream_is_a_sweep() -> None:
    X = rows()
    sweep = quick(method=ng.VB(), max_passes=1).fit(X)
    whole, chunk = quick(), quick()
    whole.step = chunk.step = Constant(1.0)
    for other in (whole.partial_fit(X), chunk.fit(iter([X]))):
        for name in sweep.posterior_:
            for one, two in zip(sweep.posterior_[name].lam, other.posterior_[name].lam, strict=True):
                np.testing.assert_allclose(one, two, rtol=1e-12)


def same(one: ng.GaussianMixture, two: ng.GaussianMixture, order: object = slice(None), rtol: float = 1e-7) -> None:
    np.testing.assert_allclose(one.weights_, two.weights_[order], rtol=rtol)
    np.testing.assert_allclose(one.means_, two.means_[order], rtol=rtol, atol=1e-9)
    np.testing.assert_allclose(one.deviations_, two.deviations_[order], rtol=rtol)
    assert one.elbo_ == pytest.approx(two.elbo_, rel=1e-9)


@every_kind
def test_weights_missing_rows_and_the_order_of_rows(kind: str) -> None:
    X, rng = rows(40), np.random.default_rng(0)
    weight = rng.integers(0, 3, 40)
    model = quick(covariance=kind).fit(X, sample_weight=weight)
    order = rng.permutation(weight.sum())
    same(model, quick(covariance=kind).fit(np.repeat(X, weight, axis=0)[order]))
    if kind in ("diag", "spherical"):
        holes = np.where(weight[:, None] == 0, np.nan, X)
        same(model, quick(covariance=kind).fit(holes, sample_weight=np.maximum(weight, 1)))
        holes[3, 0] = np.nan
        some = quick(covariance=kind).fit(holes)
        assert np.isfinite(some.score_samples(holes)).all()
        np.testing.assert_allclose(some.predict_proba(holes).sum(1), 1.0)
    else:
        with pytest.raises(ValueError, match=r'X\[2, 1\] is NaN.*covariance="diag"'):
            quick(covariance=kind).fit(np.where(np.arange(80).reshape(40, 2) == 5, np.nan, X))


def test_a_missing_entry_is_integrated_out() -> None:
    """The density of a row with a hole is that of its other column."""
    X = rows(60)
    model = quick(covariance="diag").fit(X)
    row = np.array([[X[0, 0], np.nan]])
    grid = np.linspace(-60, 60, 20_001)
    whole = model.score_samples(np.column_stack([np.full(len(grid), X[0, 0]), grid]))
    assert model.score_samples(row)[0] == pytest.approx(np.log(np.trapezoid(np.exp(whole), grid)), abs=1e-6)


@every_kind
def test_components_may_be_called_otherwise(kind: str) -> None:
    X = rows(50)
    problem = problem_of(quick(covariance=kind), X)
    member = np.random.default_rng(0).dirichlet(np.ones(3), 50).T
    order = [2, 0, 1]
    found = [sweeps(problem, problem.updated(problem.clustered(q)), 5) for q in (member, member[order])]
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-12)
    np.testing.assert_allclose(found[0][0].lam["weights"][0][order], found[1][0].lam["weights"][0], rtol=1e-10)


@every_kind
def test_the_gradient_of_the_log_normaliser_is_the_moments(kind: str) -> None:
    """By finite differences, along a random symmetric direction."""
    problem, rng = problem_of(quick(covariance=kind), rows(20)), np.random.default_rng(0)
    block, lam = problem.blocks["components"], problem.full_prior("components")
    step = [rng.normal(size=part.shape) for part in lam]
    step = [p + np.swapaxes(p, -1, -2) if s else p for p, s in zip(step, block.family.symmetric, strict=True)]
    near = [tuple(g + h * 1e-6 * abs(g).max() * d for g, d in zip(lam, step, strict=True)) for h in (-1, 1)]
    found = float(np.sum(block.family.log_normalizer(near[1]) - block.family.log_normalizer(near[0])))
    moved = tuple(b - a for a, b in zip(*near, strict=True))
    wanted = float(np.sum(block.family.inner(moved, block.family.expected_stats(lam))))
    assert found == pytest.approx(wanted, rel=1e-5)
