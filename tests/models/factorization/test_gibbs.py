"""Gibbs sampling of a factorisation: conditionals against the declared network, kernels against definitions, predictions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

import natgrad as ng
from natgrad import threads
from natgrad.kernels.factorization.draws import draw_rows, squared_errors
from natgrad.models.factorization.gibbs import RatingGibbs, drawn_scales, gibbs_problem
from natgrad.models.factorization.sides import SideRatings
from natgrad.network.draws.chains import with_chains
from natgrad.network.draws.gibbs import Gibbs, Schedule
from natgrad.network.execute.problem import NetworkProblem


def some_ratings(seed: int = 0) -> ng.Ratings:
    rng = np.random.default_rng(seed)
    cells = rng.choice(35, 20, replace=False)
    return ng.Ratings(cells // 5, cells % 5, rng.normal(3.0, 1.0, 20), shape=(7, 5))


def declared(model: ng.MatrixFactorization, ratings: ng.Ratings) -> ng.Network:
    """u·v + b + c as the inner product of (u, b, 1) and (v, 1, c), with the priors that the model chose."""
    priors, n_factors = model._kind.priors, model._kind.n_factors
    user, item, size = ng.Plate("user", 7), ng.Plate("item", 5), n_factors + 1
    factor, rows = ng.Plate("factor", size), []
    rates = priors.rate * np.array([priors.unit] * n_factors + [priors.unit**2])
    for name, plate in (("u", user), ("v", item)):
        precision = ng.Gamma(f"{plate.name}_precision", priors.shape, rates, plate=factor)
        rows.append(ng.MultivariateNormal(name, np.zeros(size), ng.diag(precision), plate=plate))
    noise = ng.Gamma("noise", priors.shape, priors.rate * priors.unit**2)
    noise = noise * ng.Gamma("user_noise", priors.user_noise / 2, priors.user_noise / 2, plate=user)[ratings.users]
    eye, one = np.eye(size + 1), np.eye(size + 1)
    left = np.delete(eye, size, axis=1) @ rows[0][ratings.users] + one[size]
    right = np.delete(eye, size - 1, axis=1) @ rows[1][ratings.items] + one[size - 1]
    plate = ng.Plate("rating", len(ratings))
    return ng.Network(ng.Normal("r", ng.dot(left, right), noise, plate=plate, observed=ratings.values - model.offset_))


def test_conditionals_are_those_of_the_network_that_declares_the_model() -> None:
    ratings = some_ratings()
    model = ng.MatrixFactorization(2, noise="user", max_steps=5, verbose=False).fit(ratings)
    sampler = RatingGibbs(gibbs_problem(model._kind, ratings), 2)
    sampler._begin(model.result_.state, 3)
    network = declared(model, ratings).problem
    theirs = Gibbs(NetworkProblem(with_chains(network.plan, 1), "numpy"), Schedule(0, 1, 1), {}, together=False)
    stats = {name: tuple(np.asarray(part)[None] for part in parts) for name, parts in sampler._mu.items()}
    eye = np.eye(3)
    for side in "uv":  # of vectors the network wants x xᵀ, the sampler its diagonal
        x = sampler._mu[side][0]
        stats[side] = x[None], (x[:, :, None] * x[:, None, :])[None]
    for name in sampler.problem.order:
        wanted = [part[0] for part in theirs.conditional(theirs.problem.blocks[name], stats)]
        if name not in "uv":
            for ours, other in zip(sampler._conditional(name, dict(sampler._mu)), wanted, strict=True):
                np.testing.assert_allclose(ours, other, rtol=1e-9, atol=1e-10, err_msg=name)
            continue
        # x = Λ⁻¹ λ + U⁻¹ ε for ε = 0 and the unit vectors: the mean, and the covariance as U⁻¹ U⁻ᵀ.
        mean, *columns = (sampler._side(name, sampler._mu, Fixed(noise), means=True).x for noise in (np.zeros(3), *eye))
        root = np.stack(columns, axis=2) - mean[:, :, None]
        precision = -2.0 * wanted[1]
        np.testing.assert_allclose(mean, np.linalg.solve(precision, wanted[0][:, :, None])[:, :, 0], rtol=1e-8)
        np.testing.assert_allclose(root @ np.swapaxes(root, 1, 2), np.linalg.inv(precision), rtol=1e-8, atol=1e-9)


class Fixed:
    """A generator whose normal numbers are known, the same for every row."""

    def __init__(self, row: np.ndarray) -> None:
        self.row = row

    def standard_normal(self, shape: tuple[int, int]) -> np.ndarray:
        return np.tile(self.row, (shape[0], 1))


@pytest.mark.parametrize("plain", [False, True])
def test_rows_and_errors_are_what_they_are_defined_as(plain: bool) -> None:
    rng = np.random.default_rng(1)
    root = rng.normal(size=(6, 3, 3))
    precision = root @ np.swapaxes(root, 1, 2) + np.eye(3)
    lam, noise = rng.normal(size=(6, 3)), rng.normal(size=(6, 3))
    x = np.empty((6, 3))
    draw_rows.run(plain, lam, -0.5 * precision, noise, x)
    for row in range(6):
        wanted = np.linalg.solve(precision[row], lam[row])
        wanted += np.linalg.solve(np.linalg.cholesky(precision[row]).T, noise[row])
        np.testing.assert_allclose(x[row], wanted, rtol=1e-10)
    ratings, own, other = some_ratings(), rng.normal(size=(7, 3)), rng.normal(size=(5, 3))
    rows, weight, out = ratings.sorted_by_user, rng.gamma(1.0, size=5), np.empty(7)
    squared_errors.run(plain, out, rows.start, rows.other, rows.values, 0.5, np.ones(1), own, other, weight, True)
    wanted = np.zeros(7)
    for i, j, value in zip(ratings.users, ratings.items, ratings.values, strict=True):
        fit = own[i, :2] @ other[j, :2] + own[i, 2] + other[j, 2] + 0.5
        wanted[i] += weight[j] * (value - fit) ** 2
    np.testing.assert_allclose(out, wanted, rtol=1e-10)


def test_predictions_are_averages_over_draws() -> None:
    ratings = some_ratings()
    settings = {"inference": "gibbs", "n_sweeps": 60, "max_steps": 20, "verbose": False, "noise": "item"}
    model = ng.MatrixFactorization(2, **settings).fit(ratings)
    users, items = np.repeat(np.arange(7), 5), np.tile(np.arange(5), 7)
    u, v = model.draws_["u"].values[0].astype(float), model.draws_["v"].values[0].astype(float)
    assert u.shape == (40, 7, 3)
    mean = model._kept_draws.user_mean.astype(float)

    def f(user: np.ndarray) -> np.ndarray:
        inner = np.einsum("snk,snk->sn", user[:, users, :2], v[:, items, :2])
        return inner + user[:, users, 2] + v[:, items, 2] + model.offset_

    # Draws about the mean of conditional means.
    values = f(u) - f(u).mean(0) + f(mean).mean(0)
    np.testing.assert_allclose(model.predict(users, items), f(mean).mean(0), rtol=1e-5)
    kept = model._kept_draws
    noise = kept.noise[:, None] * kept.item_noise[:, items]
    low, high = model.interval(users, items, 0.8)
    for end, level in ((low, 0.1), (high, 0.9)):
        np.testing.assert_allclose(ndtr((end - values) / np.sqrt(noise)).mean(0), level, atol=1e-6)
    at = ratings.users * 5 + ratings.items
    density = np.exp(-0.5 * (ratings.values - values[:, at]) ** 2 / noise[:, at]) / np.sqrt(2 * np.pi * noise[:, at])
    found = model._predictor.log_density(ratings.users, ratings.items, ratings.values)
    np.testing.assert_allclose(found, np.log(density.mean(0)), rtol=1e-5)
    best = model.recommend(2, n=5, exclude_seen=False)
    assert best.items.tolist() == np.argsort(-values.mean(0)[10:15]).tolist()


def test_the_model_of_the_paper_is_drawn_too_and_others_say_why_not() -> None:
    ratings = some_ratings()
    known = {"noise": 1.0, "max_steps": 10, "verbose": False}
    model = ng.MatrixFactorization(
        2, priors=ng.recommenders.FactorPriors(1.0, False), inference="gibbs", n_sweeps=10, **known
    ).fit(ratings)
    assert model.draws_["noise"].values.tolist() == [[1.0] * 7]
    with pytest.raises(ValueError, match='inference="gibbs" samples Gaussian ratings'):
        ng.MatrixFactorization(2, likelihood="poisson", inference="gibbs").fit(ng.Ratings([0, 1], [0, 1], [1.0, 2.0]))
    with pytest.raises(ValueError, match="inference must be"):
        ng.MatrixFactorization(2, inference="mcmc").fit(ratings)
    with pytest.raises(ValueError, match="n_sweeps"):
        ng.MatrixFactorization(2, inference="gibbs", n_sweeps=1).fit(ratings)


@pytest.mark.parametrize("most", [0, 10**9], ids=["compiled", "plain"])
@pytest.mark.parametrize("biases", [True, False])
def test_rows_tell_how_likely_other_scales_of_their_numbers_are(biases: bool, most: int, monkeypatch) -> None:
    monkeypatch.setattr(threads, "MOST", most)
    ratings, rng, size = some_ratings(), np.random.default_rng(2), 2 + biases
    side = SideRatings(ratings.sorted_by_user, biases, 0.5)
    other, t, scale = rng.normal(size=(5, size)), rng.gamma(2.0, size=5), rng.gamma(2.0, size=7)
    alpha, pull = np.array([0.5, 2.0, 1.0])[:size], rng.normal(size=(7, size))
    drawn = side.drawn(other, t, scale, alpha, pull, rng.normal(size=(7, size)), means=True, tells=True)

    def log_likelihood(x: np.ndarray) -> float:
        return -0.5 * float(scale @ side.squared_errors(np.ascontiguousarray(x), other, t))

    at = log_likelihood(drawn.x)
    for c in rng.gamma(4.0, 0.25, size=(5, size)):
        told = -0.5 * (c @ drawn.matrix @ c - drawn.matrix.sum()) + drawn.vector @ (c - 1.0)
        np.testing.assert_allclose(told, log_likelihood(drawn.x * c) - at, rtol=1e-9)
    # The conditional mean is where the log density with its prior is flat.
    near = [(drawn.mean + sign * 1e-4, sign) for sign in (-1.0, 1.0)]
    slope = sum(sign * (log_likelihood(x) + (pull * x - 0.5 * alpha * x**2).sum()) for x, sign in near)
    assert abs(slope) < 1e-7


@pytest.mark.parametrize("size", [3, 4])
@pytest.mark.parametrize("biases", [True, False])
def test_rows_of_any_length_are_drawn_as_by_the_plain_twin(biases: bool, size: int, monkeypatch) -> None:
    rng = np.random.default_rng(5)
    cells = np.concatenate(
        [np.arange(150), 150 + np.arange(64), 300 + np.arange(65), 450 + np.arange(7)]
    )  # and one of none
    ratings = ng.Ratings(cells // 150, cells % 150, rng.normal(size=len(cells)), shape=(5, 150))
    side = SideRatings(ratings.sorted_by_user, biases, 0.5, rng.gamma(2.0, size=len(cells)))
    numbers = rng.normal(size=(150, size)), rng.gamma(2.0, size=150), rng.gamma(2.0, size=5), rng.gamma(2.0, size=size)
    more = rng.normal(size=(1, size)), rng.normal(size=(5, size))
    found = []
    for most in (0, 10**9):
        monkeypatch.setattr(threads, "MOST", most)
        found.append(side.drawn(*numbers, *more, means=True, tells=True))
    for ours, plain in zip(*found, strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-9, atol=1e-11)
    assert side.drawn(*numbers, *more, means=False, tells=False).mean.shape == (0, size)


def test_scales_are_drawn_from_their_density() -> None:
    """One number of many rows: 4,000 moves against integration, with a prior that matters and one that does not."""
    rng = np.random.default_rng(3)
    curve, slope, squares, n_rows = 9.0, 12.0, 7.0, 6
    grid = np.linspace(1e-3, 6.0, 20_001)
    for shape, rate in ((2.0, 3.0), (1e-3, 1e-3)):
        logs = slope * grid - 0.5 * curve * grid**2 + (n_rows - 1) * np.log(grid)
        logs -= (shape + 0.5 * n_rows) * np.log(rate + 0.5 * squares * grid**2)
        weight = np.exp(logs - logs.max())
        mean, second = (float((weight * grid**power).sum() / weight.sum()) for power in (1, 2))
        c, found = 1.0, []
        for _ in range(4_000):  # the move is of where the rows are now
            told = np.array([[curve * c * c]]), np.array([slope * c]), np.array([squares * c * c])
            c *= float(drawn_scales(*told, n_rows, shape, np.array([rate]), rng)[0])
            found.append(c)
        deviation = np.sqrt(second - mean**2)
        assert abs(np.mean(found) - mean) < 6 * deviation / np.sqrt(1_000)
        assert abs(np.std(found) / deviation - 1.0) < 0.1


def test_factors_that_begin_anew_are_gone_soon_where_ratings_have_none() -> None:
    rng = np.random.default_rng(4)
    users, items = np.divmod(rng.choice(300 * 40, 6_000, replace=False), 40)
    noise = rng.normal(size=6_000)
    plain = ng.Ratings(users, items, rng.normal(size=300)[users] + noise, shape=(300, 40))  # no factor at all
    model = ng.MatrixFactorization(4, inference="gibbs", n_sweeps=30, verbose=False).fit(plain)
    kept = model._kept_draws
    products = np.einsum("suk,svk->suv", kept.user[..., :4], kept.item[..., :4])
    assert products.std(axis=(1, 2))[-5:].max() < 0.5  # they began at one, the standard deviation of the ratings
    assert np.isfinite(model.predict(users[:5], items[:5])).all()
