"""Ready models of a·y + b: everything they say is transformed alike, because their priors come from the data.

b is in standard deviations; at 10⁹ the data themselves have seven digits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from loops import compiled_loops  # noqa: F401 - for all tests here

import natgrad as ng

rng = np.random.default_rng(3)
STATES = np.repeat([0, 1, 2, 0, 1, 2], 50)
CHAIN = np.array([[-4.0, 0.0], [4.0, 1.0], [0.0, 6.0]])[STATES] + rng.normal(size=(300, 2))
TABLE = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 20)) + 0.5 * rng.normal(size=(30, 20)) + rng.normal(size=20)
SEEN = rng.random(TABLE.shape) < 0.6
INPUT = np.sort(rng.uniform(0, 6, 60))[:, None]
CURVE = np.sin(INPUT[:, 0]) + 0.2 * rng.normal(size=60)
FEATURES = rng.normal(size=(20, 2))
Found = dict[str, np.ndarray]


def gaussian_hmm(covariance: str) -> Callable[[float, float], Found]:
    def summary(a: float, b: float) -> Found:
        data = a * (CHAIN + b)
        model = ng.GaussianHMM(3, covariance=covariance, seed=0, n_init=2).fit(data)
        order = np.argsort(model.means_[:, 0])
        factor = model.posterior_["emission"]
        drawn, states = model.sample(20, seed=0)
        return {
            "elbo": np.asarray(model.elbo_ + CHAIN.size * np.log(a)),
            "means": model.means_[order] / a - b,
            "covars": model.covars_[order] / a**2,
            "transmat": model.transmat_[order][:, order],
            "factor": factor.mean()[order][..., 0] / a - b,
            "parameters": factor.parameters["mean"][order] / a - b,
            "low": factor.interval(0.9)[0][order][..., 0] / a - b,
            "score": np.asarray(model.score(data) + CHAIN.size * np.log(a)),
            "predict": np.argsort(order)[model.predict(data)],
            "drawn": np.asarray(np.abs(drawn / a - b - (model.means_ / a - b)[states]).max() < 6.0),
        }

    return summary


def factorization(**options: object) -> Callable[[float, float], Found]:
    def summary(a: float, b: float) -> Found:
        features = {"item_features": FEATURES} if options.get("features") else {}
        settings = {name: value for name, value in options.items() if name != "features"}
        model = ng.MatrixFactorization(4, **settings).fit(np.where(SEEN, a * (TABLE + b), np.nan), **features)
        mean, sd = model.predict(*np.nonzero(~SEEN), return_std=True)
        low, high = model.interval(*np.nonzero(~SEEN), mass=0.8)
        return {
            "elbo": np.asarray(model.elbo_ + SEEN.sum() * np.log(a)),
            "mean": mean / a - b,
            "sd": sd / a,
            "interval": (high - low) / a,
            "biases": np.asarray(0.0) if model.item_biases_ is None else model.item_biases_.mean / a,
            "steps": np.asarray(len(model.trace_)),
        }

    return summary


def process(likelihood: str) -> Callable[[float, float], Found]:
    def summary(a: float, b: float) -> Found:
        x, y = 1e-3 * (INPUT + b / 1e3), a * (CURVE + b)
        model = ng.SparseGPRegressor(n_inducing=6, max_steps=25, likelihood=likelihood).fit(x, y)
        mean, sd = model.predict(x, return_std=True)
        return {
            "elbo": np.asarray(model.elbo_ + 60 * np.log(a)),
            "mean": mean / a - b,
            "sd": sd / a,
            "noise": model.noise_variance_ / a**2,
            "density": model.log_predictive_density(x, y) + np.log(a),
        }

    return summary


MODELS = {
    "hmm full": gaussian_hmm("full"),
    "hmm diag": gaussian_hmm("diag"),
    "factorization": factorization(),
    "noise by user": factorization(noise="user"),
    "without biases": factorization(priors=ng.recommenders.FactorPriors(biases=False)),
    "features": factorization(features=True),
    "process": process("gaussian"),
    "student": process("student_t"),
}


@pytest.fixture(scope="module")
def references() -> dict[str, Found]:
    return {}


def compare(name: str, a: float, b: float, references: dict[str, Found]) -> None:
    if name not in references:
        references[name] = MODELS[name](1.0, 0.0)
    found = MODELS[name](a, b)
    # What rounding the data does to them, a thousand times; likelihoods sum over some hundreds of them.
    atol = 1e3 * (1e4 + abs(b)) * 2.0**-53
    for key, expected in references[name].items():
        scale = 1.0 + np.abs(expected).max()
        np.testing.assert_allclose(found[key], expected, rtol=0, atol=atol * scale, err_msg=f"{name}: {key} {a=} {b=}")


@pytest.mark.parametrize(
    ("name", "a", "b"),
    [
        ("hmm full", 1.0, 1e7),
        ("hmm diag", 1e-12, -1e9),
        ("factorization", 1e-3, 1e9),
        ("without biases", 1e12, 0.0),
        ("process", 1e-12, 0.0),
    ],
)
def test_results_are_transformed_like_the_data(name: str, a: float, b: float, references: dict[str, Found]) -> None:
    compare(name, a, b, references)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("a", [1e-12, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e12])
@pytest.mark.parametrize("b", [0.0, 50.0, 500.0, -1e5, 1e7, 1e9])
def test_results_are_transformed_like_the_data_on_a_grid(
    name: str, a: float, b: float, references: dict[str, Found]
) -> None:
    if name == "without biases" and b != 0.0:
        b = 0.0  # a model without a mean of its own has no way to follow one
    compare(name, a, b, references)


def test_a_column_that_does_not_vary_is_told_from_one_that_hardly_does() -> None:
    tiny = np.column_stack([1e-12 * CHAIN[:, 0], 1e7 + CHAIN[:, 1]])
    ng.GaussianHMM(2, covariance="diag", n_init=1).fit(tiny)  # warnings are errors
    with pytest.warns(UserWarning, match="does not vary"):
        ng.GaussianHMM(2, covariance="diag", n_init=1).fit(np.column_stack([CHAIN[:, 0], np.full(300, 0.1)]))


def test_a_model_of_far_data_is_saved_and_goes_on(tmp_path) -> None:
    model = ng.GaussianHMM(3, n_init=1).fit(CHAIN + 1e7)
    model.save(tmp_path / "model.natgrad")
    again = ng.load(tmp_path / "model.natgrad")
    np.testing.assert_array_equal(again.means_, model.means_)
    assert again.score(CHAIN + 1e7) == model.score(CHAIN + 1e7)
    again.partial_fit(CHAIN + 1e7 + 1.0)
    assert np.abs(again.means_ - 1e7).max() < 10
