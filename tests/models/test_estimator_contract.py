"""The scikit-learn contract, demanded of every estimator without exceptions, and natgrad's own promises.

A new estimator is one line in ``ESTIMATORS``.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

import natgrad as ng

# Small settings: the checks fit some fifty times.
ESTIMATORS = {
    "LDA": lambda: ng.LDA(n_topics=3, max_passes=2),
}


def checks():
    for name, make in ESTIMATORS.items():
        with warnings.catch_warnings():
            # Not a check is left out in silence: what the generator skips, it says by a warning.
            warnings.simplefilter("error")
            for estimator, check in estimator_checks_generator(make(), mark=None):
                yield pytest.param(estimator, check, id=f"{name}-{getattr(check, 'func', check).__name__}")


@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_scikit_learn(estimator, check) -> None:
    check(estimator)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_settings_are_stored_as_they_are_and_cloned(name) -> None:
    model = ESTIMATORS[name]()
    assert {key: getattr(model, key) for key in model.get_params(deep=False)} == model.get_params(deep=False)
    assert clone(model).get_params() == model.get_params()
    assert vars(type(model)()).keys() == type(model)().get_params(deep=False).keys()


@pytest.fixture(scope="module")
def texts() -> tuple[list[str], np.ndarray]:
    rng = np.random.default_rng(0)
    sides = rng.integers(0, 2, 60)
    words = (["apple", "pear", "plum", "and"], ["bolt", "nut", "screw", "and"])
    return [" ".join(rng.choice(words[side], 12)) for side in sides], sides


def test_topics_in_a_pipeline(texts) -> None:
    documents, sides = texts
    line = make_pipeline(CountVectorizer(), ng.LDA(2, max_passes=10), LogisticRegression())
    assert cross_val_score(line, documents, sides, cv=3).mean() > 0.95
    counts = CountVectorizer().fit_transform(documents)
    search = GridSearchCV(ng.LDA(max_passes=5), {"n_topics": [1, 2], "doc_prior": [0.1, 1.0]}, cv=2).fit(counts)
    assert search.best_params_["n_topics"] == 2


def test_topics_have_names_in_a_table(texts) -> None:
    model = ng.LDA(2, max_passes=2).set_output(transform="pandas").fit(texts[0])
    shares = model.transform(texts[0])
    assert isinstance(shares, pd.DataFrame)
    assert list(shares.columns) == model.get_feature_names_out().tolist() == ["lda0", "lda1"]
    mean, sd = model.transform(texts[0], return_std=True)
    assert mean.shape == sd.shape
