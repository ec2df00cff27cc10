"""Settings of a model file: only those that are listed are read, with the types and ranges that are listed."""

import inspect

import numpy as np
import pytest
from promises.cases import FIRST

import natgrad as ng
from natgrad.models.gp import Solver
from natgrad.models.registry import MODELS
from natgrad.posterior.files.container import read_model, write_model

KINDS = ("LDA", "MatrixFactorization", "GaussianHMM", "GaussianMixture", "SparseGPRegressor")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A small fit of one class of each module, in a file."""
    folder = tmp_path_factory.mktemp("models")
    for name in KINDS:
        FIRST[name].fitted().save(folder / name)
    return folder


def forged(source, target, **settings):
    """The same file with other settings, and a digest that is right."""
    stored = read_model(source)
    write_model(target, stored.kind, {**stored.value, "settings": {**stored.value["settings"], **settings}})
    return target


STRANGE = {
    "executor": "tcp://192.0.2.1:8786",
    "callbacks": ["http://192.0.2.1"],
    "checkpoint": "/tmp/somewhere",
    "verbose": "/tmp/somewhere",
    "seed": -1,
    "tol": "1e-3",
    "method": "tcp://192.0.2.1:8786",
    "step": {"rate": 1.0},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", STRANGE)
def test_a_file_cannot_name_a_machine_a_path_or_a_callback(kind, name, saved, tmp_path) -> None:
    with pytest.raises(ng.ModelFileError, match=name):
        ng.load(forged(saved / kind, tmp_path / "forged", **{name: STRANGE[name]}))


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("LDA", "n_topics", 10**12),
        ("LDA", "n_topics", 3),
        ("LDA", "gibbs_sweeps", 10**12),
        ("LDA", "doc_prior", [0.1, 0.2, 0.3]),
        ("LDA", "doc_prior", float("nan")),
        ("LDA", "local", "object"),
        ("MatrixFactorization", "n_factors", 10**12),
        ("MatrixFactorization", "likelihood", "poisson"),
        ("MatrixFactorization", "noise", ("user", -1.0)),
        ("MatrixFactorization", "priors", ng.recommenders.FactorPriors(biases=False)),
        ("GaussianHMM", "n_states", 10**12),
        ("GaussianHMM", "covariance", "diag"),
        ("GaussianHMM", "method", 1.0),
        ("GaussianMixture", "n_components", 10**12),
        ("GaussianMixture", "covariance", "diag"),
        ("GaussianMixture", "weight_prior", [1.0, 2.0, 3.0, 4.0, 5.0]),
        ("SparseGPRegressor", "n_inducing", 0),
        ("SparseGPRegressor", "kernel", 3.0),
        ("SparseGPRegressor", "inducing", [[1.0], [2.0, 3.0]]),
        ("SparseGPRegressor", "solver", Solver(jitter=1.0)),
        ("SparseGPRegressor", "fixed", ["noises"]),
    ],
)
def test_settings_have_types_and_ranges_and_fit_the_arrays(kind, name, value, saved, tmp_path) -> None:
    with pytest.raises(ng.ModelFileError, match=name):
        ng.load(forged(saved / kind, tmp_path / "forged", **{name: value}))


@pytest.mark.parametrize("kind", KINDS)
def test_settings_that_may_be_read_are_read(kind, saved, tmp_path) -> None:
    method = {"solver": Solver(method=ng.VB())} if kind == "SparseGPRegressor" else {"method": ng.VB()}
    model = ng.load(forged(saved / kind, tmp_path / "forged", seed=7, tol=0, **method))
    assert (model.seed, model.tol, {name: getattr(model, name) for name in method}) == (7, 0, method)


@pytest.mark.parametrize("kind", MODELS)
def test_every_setting_is_in_the_table_of_its_model(kind) -> None:
    """A new setting without a line in the table would make models that cannot be saved."""
    cls = getattr(ng, kind)
    likely = {"local": {"topics": "posterior", "tol": 1e-3, "limit": 1, "skip": 0.0, "dtype": "float64"}}
    emission = {"PoissonHMM": "Poissons", "BernoulliHMM": "Bernoullis", "CategoricalHMM": "Categories"}
    likely |= {"emission": emission.get(kind, "FullGaussians"), "n_features": 2}
    prior = {"mean": np.zeros(2), "scale": 1.0, "dof": 4.0, "rate": np.eye(2), "origin": np.zeros(2)}
    likely["model"] = {"alpha": np.ones(3), "covariance": "full", **prior}
    settings = cls().get_params(deep=False)
    if kind == "MatrixFactorization":
        likely["kind"] = {"settings": ng.MatrixFactorization()._settings()._asdict()}
    table, _ = cls._tables(settings, likely)
    assert set(table) == set(inspect.signature(cls).parameters) - {"executor"}


def test_what_could_not_be_loaded_is_not_saved(saved, tmp_path) -> None:
    model = ng.load(saved / "LDA").set_params(n_topics=5)
    with pytest.raises(ValueError, match=r"n_topics.*= 5, but the arrays have topic = 2"):
        model.save(tmp_path / "topics")
    assert not list(tmp_path.iterdir())
