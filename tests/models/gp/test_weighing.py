"""Weights of two processes: moments of their mixture, the best for rows that judge; in predictions, draws and files."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.covariance import RBF
from natgrad.models.gp.weighing import Moments, pooled, weighed, weighed_logs
from natgrad.special import ndtr


def moments(rng, n=500, sd=0.3):
    """Expectations of y that err by so much, and say so."""
    return lambda y: Moments(y[:, None] + sd * rng.normal(size=(n, 1)), np.full((n, 1), sd**2))


def log_normal(y):
    return lambda found, weight: (
        -0.5 * (np.log(2 * np.pi * found.var) + (y[:, None] - found.mean) ** 2 / found.var)[:, 0]
    )


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_pooled_moments_are_those_of_a_mixture(weight):
    rng = np.random.default_rng(0)
    near, sparse = (Moments(rng.normal(size=(4, 2)), rng.uniform(0.1, 2.0, (4, 2))) for _ in range(2))
    found = pooled(near, sparse, weight)
    second = weight * (near.var + near.mean**2) + (1 - weight) * (sparse.var + sparse.mean**2)
    np.testing.assert_allclose(found.mean, weight * near.mean + (1 - weight) * sparse.mean, rtol=1e-12)
    np.testing.assert_allclose(found.var, second - found.mean**2, rtol=1e-9)


def test_errors_of_their_own_are_averaged_and_the_better_one_predicts_alone():
    rng = np.random.default_rng(0)
    y = rng.normal(size=500)
    alike = weighed(log_normal(y), moments(rng)(y), moments(rng)(y), True)
    assert 0.3 < alike.weight < 0.7
    assert alike.gain > 5 * alike.error
    assert weighed(log_normal(y), moments(rng, sd=0.05)(y), moments(rng)(y), True).weight > 0.9
    same = moments(rng)(y)
    assert weighed(log_normal(y), same, same, True) == (1.0, pytest.approx(np.zeros(500)))
    asked = weighed(log_normal(y), moments(rng, sd=2.0)(y), same, False)
    assert asked.weight == 1.0
    assert asked.gain < 0


def test_mixtures_of_classes_are_weighed_by_their_logs():
    rng = np.random.default_rng(0)
    near, sparse = np.log(rng.uniform(0.05, 1.0, (2, 2, 300)))
    found = weighed_logs(near, sparse, True)
    by_hand = [np.log(w * np.exp(near) + (1 - w) * np.exp(sparse)).sum(0) for w in np.linspace(0, 1, 21)]
    best = int(np.argmax([one.mean() for one in by_hand]))
    assert found.weight == pytest.approx(0.05 * best)
    np.testing.assert_allclose(found.gains, by_hand[best] - by_hand[0], atol=1e-12)
    alone = weighed_logs(near, sparse, False)
    assert alone.weight == 1.0
    np.testing.assert_allclose(alone.gains, (near - sparse).sum(0))
    # a class that one of the two had ruled out
    assert np.isfinite(weighed_logs(np.full((1, 4), -np.inf), sparse[:1, :4], True).gains).all()


SMALL = {"n_inducing": 6, "max_steps": 5, "tol": 0, "finish": "neighbours", "n_neighbors": 12, "verbose": False}


@pytest.fixture(scope="module", params=["regressor", "classifier"])
def both(request):
    """Neighbours with a weight beside the sparse process, and inputs."""
    x = np.random.default_rng(0).uniform(0, 6, (150, 1))
    y = np.sin(4 * x[:, 0]) + 0.2 * np.cos(40 * x[:, 0])
    kind = ng.SparseGPRegressor if request.param == "regressor" else ng.SparseGPClassifier
    model = kind(RBF(1.0, 0.2), learn_kernel=False, **SMALL).fit(x, y if request.param == "regressor" else y > 0)
    alone = model._predictor
    model._predictor = alone._replace(settings=model._state.hyper["settings"]).given_neighbours(alone.local, 0.35)
    return model, alone, np.linspace(0.3, 5.7, 9)[:, None]


def test_predictions_are_between_and_their_variance_has_what_they_differ_by(both):
    model, alone, at = both
    x = model._x_scaling.apply(at)
    near, sparse = alone.local.latent(x), alone._replace(local=None).latent(x)
    mean, var = model._predictor.latent(x)
    np.testing.assert_allclose(mean, 0.35 * near[0] + 0.65 * sparse[0], atol=1e-12)
    apart = 0.35 * 0.65 * (near[0] - sparse[0]) ** 2
    np.testing.assert_allclose(var, 0.35 * near[1] + 0.65 * sparse[1] + apart, atol=1e-12)
    assert apart.max() > 1e-3
    assert model.neighbour_weight_ == 0.35
    if isinstance(model, ng.SparseGPRegressor):
        noises = alone.local.noise, float(np.exp(model._state.hyper["settings"].psi[0]))
        unit = model._y_scaling.sd[0] ** 2
        assert model.noise_variance_ / unit == pytest.approx(0.35 * noises[0] + 0.65 * noises[1], rel=1e-4)


def test_draws_have_the_moments_of_predictions(both):
    model, _, at = both
    x = model._x_scaling.apply(at)
    mean, var = model._predictor.latent(x)
    drawn = model._predictor.draws(x, 4_000, np.random.default_rng(1))
    # joint draws of neighbours are given those before them, too, so that variances are a little smaller; five standard errors
    np.testing.assert_allclose(drawn.mean(0), mean, atol=5 * np.sqrt(var.max() / 4_000))
    np.testing.assert_allclose(drawn.var(0), var, rtol=0.15)


def test_a_file_keeps_the_weight(both, tmp_path):
    model, _, at = both
    model.save(tmp_path / "both.natgrad")
    loaded = ng.load(tmp_path / "both.natgrad")
    assert loaded.neighbour_weight_ == 0.35
    np.testing.assert_array_equal(loaded.predict(at), model.predict(at))
    np.testing.assert_array_equal(loaded.sample(at, 3), model.sample(at, 3))
    saved = model._saved()
    _, of = type(model)._tables(model.get_params(), saved)
    for weight in (0.0, 1.5, np.nan):
        with pytest.raises(ValueError, match="weight"):
            of({**saved, "local": {**saved["local"], "weight": weight}}, {}, "it")


@pytest.mark.parametrize(
    ("likelihood", "n"), [("probit", 2), ("probit", 3), ("softmax", 2), ("softmax", 3), ("ordinal", 3)]
)
def test_classes_are_predicted_by_the_mixture_itself(likelihood, n, tmp_path):
    x = np.random.default_rng(0).uniform(0, 6, (120, 1))
    y = np.digitize(np.sin(4 * x[:, 0]) + 0.2 * np.cos(40 * x[:, 0]), np.linspace(-0.5, 0.5, n - 1) if n > 2 else [0])
    model = ng.SparseGPClassifier(RBF(1.0, 0.2), likelihood=likelihood, learn_kernel=False, **SMALL).fit(x, y)
    alone, at = model._predictor, np.linspace(0.3, 5.7, 7)[:, None]
    if likelihood == "ordinal":
        alone = alone._replace(local=alone.local._replace(unit=1.7))
    chances = []
    for weight, local in ((1.0, alone.local), (1.0, None), (0.35, alone.local)):
        model._predictor = alone._replace(weight=weight, local=local)
        chances.append(model.predict_proba(at))
    near, sparse, both = chances
    if (likelihood, n) != ("probit", 3):  # of which each function is a mixture
        np.testing.assert_allclose(both, 0.35 * near + 0.65 * sparse, rtol=1e-12)
    np.testing.assert_allclose(both.sum(1), 1.0)
    assert np.abs(near - sparse).max() > 0.05
    drawn = model.sample(at, 2_000, seed=1)
    mean = drawn.mean(0) if n > 2 else np.stack([1 - drawn.mean(0), drawn.mean(0)], axis=1)
    # five standard errors; draws of "probit" of three classes are divided by their sum one by one
    np.testing.assert_allclose(
        mean, both, atol=5 * 0.5 / np.sqrt(2_000) + (0.05 if (likelihood, n) == ("probit", 3) else 0)
    )
    score = model.decision_function(at)
    if likelihood == "probit" and n == 2:
        np.testing.assert_allclose(ndtr(score), both[:, 1], rtol=1e-10)
        far = model.decision_function(np.array([[1e6]]))
        assert np.isfinite(far).all()
    elif likelihood != "ordinal" and n > 2:
        np.testing.assert_array_equal(score.argmax(1), both.argmax(1))
    model.save(tmp_path / "both.natgrad")
    np.testing.assert_array_equal(ng.load(tmp_path / "both.natgrad").predict_proba(at), both)


@pytest.mark.slow
def test_auto_weighs_both_where_each_knows_something():
    """Hills that few inducing inputs hold, and bumps that they do not; so much noise that few neighbours say little."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, (4_000, 2))
    hills = np.sin(0.5 * x[:, 0]) + np.cos(0.4 * x[:, 1])
    f = hills + 0.5 * np.sin(3 * x[:, 0]) * np.sin(3 * x[:, 1])
    y = f + 0.6 * rng.normal(size=4_000)
    few = {"n_inducing": 25, "max_steps": 400, "n_neighbors": 6, "verbose": False}
    old, new = slice(2_500), slice(2_500, None)
    kinds = ("auto", "neighbours", None)
    models = {finish: ng.SparseGPRegressor(**few, finish=finish).fit(x[old], y[old]) for finish in kinds}
    density = {finish: model.log_predictive_density(x[new], y[new]).mean() for finish, model in models.items()}
    off = {finish: np.mean((model.predict(x[new]) - f[new]) ** 2) for finish, model in models.items()}
    assert 0.3 < models["auto"].neighbour_weight_ < 0.9
    assert "6 neighbours, with a weight of 0." in models["auto"].trace_.strategy
    assert models["neighbours"].neighbour_weight_ == 1.0
    assert density["auto"] > max(density["neighbours"], density[None]) + 0.01
    assert off["auto"] < 0.9 * min(off["neighbours"], off[None])
    low, high = models["auto"].interval(x[new], 0.9)
    # four standard errors of a frequency
    assert abs(np.mean((low < y[new]) & (y[new] < high)) - 0.9) < 4 * np.sqrt(0.09 / 1_500)
