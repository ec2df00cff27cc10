"""Ready models fit without scikit-learn, and are its estimators as soon as it is there."""

import subprocess
import sys

import pytest

BEGIN = """
import sys
import numpy as np
import natgrad as ng

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2))
ratings = ng.data.Ratings([0, 0, 1], [0, 1, 0], [5.0, 3.0, 4.0])
FITS = {
    "LDA": lambda: ng.LDA(2, inference="vb", max_passes=3).fit([["pear", "plum"], ["bolt", "nut"], ["plum", "pear"]]),
    "texts": lambda: ng.LDA(2, inference="vb", max_passes=3).fit(["pear plum", "bolt nut", "plum pear", "nut nut"]),
    "MatrixFactorization": lambda: ng.MatrixFactorization(1, max_steps=3).fit(ratings),
    "GaussianHMM": lambda: ng.GaussianHMM(2, max_passes=3).fit(X),
    "CategoricalHMM": lambda: ng.CategoricalHMM(2, max_passes=3).fit(rng.integers(0, 3, 30)),
    "GaussianMixture": lambda: ng.GaussianMixture(2, max_passes=3).fit(X),
    "SparseGPRegressor": lambda: ng.SparseGPRegressor(n_inducing=5, max_steps=3).fit(X, X[:, 0]),
    "SparseGPClassifier": lambda: ng.SparseGPClassifier(n_inducing=5, max_steps=3).fit(X, X[:, 0] > 0),
}
models = {name: fit() for name, fit in FITS.items()}
heavy = {"sklearn", "numba", "jax", "optax", "pandas", "scipy.stats", "matplotlib"} & set(sys.modules)
assert not heavy, heavy
"""
LATER = """
import pickle, tempfile
for name, model in models.items():
    assert model.get_params()["seed"] == 0
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder + "/model")
        ng.load(folder + "/model")
    pickle.loads(pickle.dumps(model))
assert "sklearn" not in sys.modules
plain = {name: model.get_params() for name, model in models.items()}
shares = models["LDA"].transform([["pear"]])

from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.utils import get_tags

for name, model in models.items():  # before anything was asked of them
    assert isinstance(model, BaseEstimator) and issubclass(type(model), BaseEstimator), name
for name, model in models.items():
    fresh = clone(model)
    assert isinstance(model, BaseEstimator) and isinstance(fresh, BaseEstimator), name
    assert fresh.get_params().keys() == plain[name].keys() and list(model.get_params()) == list(plain[name])
    assert type(model).__name__ in repr(model)
    get_tags(model)
assert is_regressor(models["SparseGPRegressor"]) and is_classifier(models["SparseGPClassifier"])
assert not is_classifier(models["GaussianHMM"])
assert (models["LDA"].transform([["pear"]]) == shares).all()
assert list(models["LDA"].set_output(transform="pandas").transform([["pear"]]).columns) == ["lda0", "lda1"]
assert models["LDA"].fit_transform([["pear"], ["nut"]]).shape == (2, 2)
try:
    ng.LDA().set_params(nonsense=1)
except ValueError as error:
    assert "nonsense" in str(error)
else:
    raise AssertionError
"""
FIRST_USES = {
    "set_output": "models['LDA'].set_output(transform='default')",
    "score": "models['SparseGPRegressor'].score(X, X[:, 0])",
    "repr": "repr(models['GaussianMixture'])",
    "tags": "models['SparseGPClassifier'].__sklearn_tags__()",
    "notebook": "ng.LDA()._repr_html_()",
    "parameters": "models['LDA'].set_params(seed=1)",
    "not fitted": "raises(lambda: ng.GaussianHMM().predict(X))",
}
AFTER_FIRST_USE = """
def raises(call):
    try:
        call()
    except ValueError as error:
        assert type(error).__name__ == "NotFittedError"
    else:
        raise AssertionError

{use}
assert "sklearn" in sys.modules
from sklearn.base import BaseEstimator
assert all(isinstance(model, BaseEstimator) for model in (*models.values(), ng.LDA()))
try:
    ng.LDA().nonsense
except AttributeError:
    pass
else:
    raise AssertionError
"""


def run(code):
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr


def test_small_data_need_neither_scikit_learn_nor_a_compiler_and_join_when_it_comes():
    run(BEGIN + LATER)


@pytest.mark.slow
@pytest.mark.parametrize("use", FIRST_USES)
def test_whatever_is_asked_for_first(use):
    run(BEGIN + AFTER_FIRST_USE.format(use=FIRST_USES[use]))
