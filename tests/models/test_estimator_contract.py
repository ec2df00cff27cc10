"""The scikit-learn contract, demanded of every estimator, and natgrad's own promises.

The estimators are the cases of `promises/cases.py`. The only exceptions are for sequences: what a hidden Markov model says of a
row depends on its neighbours. Of them the same is demanded of whole sequences.
"""

import warnings
from importlib.metadata import version

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sparse
from promises.cases import CASES
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import natgrad as ng

# Whose settings are of the data of their case: columns by number, batches larger than what the checks feed, and likelihoods of
# numbers that are none of theirs. `inference="gibbs"` of topics moves whole words, and the checks feed fractions of them.
OF_THEIR_DATA = (
    "several tracks", "inputs", "subchains", "batches of sequences", "batches of rows", "batches of documents",
    'inference="gibbs"', "CategoricalHMM", "CategoricalHMM of labels", "BernoulliHMM", "Mixture(Poisson())", "PoissonHMM",
    "sampled children", "features", "likes and dislikes", "likes alone", "likes, n_negatives=2", "likes, features", "ordinal",
    "poisson", "times", "contexts", "times and contexts", "poisson counts", "negative_binomial", "ordinal classes",
    "StateSpaceGP", 'StateSpaceGP("auto")', "VecchiaGPRegressor",
)  # fmt: skip
ESTIMATORS = {
    f"{case.kind.__name__} of {option}": case.made
    for cases in CASES.values()
    for option, case in cases.items()
    if option not in OF_THEIR_DATA
}
ESTIMATORS |= {
    "PoissonHMM of counts": lambda: ng.PoissonHMM(2, n_init=1, max_passes=2, n_jobs=1),
    **{
        f"{name} of documents": lambda name=name: getattr(ng.topics, name)(2, max_steps=3)
        for name in ("SupervisedLDA", "CorrelatedTopics", "DynamicTopics", "AuthorTopics")
    },
    # Two of its columns are the user and the item; the second is the time as well, which the checks do not mind.
    "ContextFactorization of times": lambda: ng.recommenders.ContextFactorization(2, time=1, n_bins=3, max_steps=3),
    "ContextFactorization of contexts": lambda: ng.recommenders.ContextFactorization(2, context=1, max_steps=3),
}
# The gate tries the first option of each class with kernels of its own, and of processes.
FIRST = {
    next(name for name in ESTIMATORS if name.startswith(kind))
    for kind in (
        "GaussianHMM",
        "GaussianMixture",
        "LDA",
        "MatrixFactorization",
        "SparseGPRegressor",
        "SparseGPClassifier",
    )
}


# Rows of a sequence are neighbours: in another order they are another sequence. See the tests of sequences below. A sequence of
# numbers is one of a single column.
OF_ROWS_ALONE = ("check_methods_sample_order_invariance", "check_methods_subset_invariance", "check_fit1d")
# Topic models score a random half of the tokens, where the checks feed fractions of words; and what is known of documents
# besides has a name of its own, and is not called y.
OF_FRACTIONS = ("check_fit_score_takes_y", "check_pipeline_consistency")
OF_OTHER_NAMES = (*OF_FRACTIONS, "check_n_features_in_after_fitting")


def checks():
    for name, make in ESTIMATORS.items():
        with warnings.catch_warnings():
            # Not a check is left out in silence: what the generator skips, it says by a warning.
            warnings.simplefilter("error")
            marks = [] if name in FIRST else [pytest.mark.slow]
            for estimator, check in estimator_checks_generator(make(), mark=None):
                what = getattr(check, "func", check).__name__
                left_out = OF_ROWS_ALONE if "HMM" in name else ()
                left_out = OF_FRACTIONS if "Correlated" in name else OF_OTHER_NAMES if "Topics" in name else left_out
                if what not in left_out:
                    yield pytest.param(estimator, check, id=f"{name}-{what}", marks=marks)


@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_scikit_learn(estimator, check) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def texts() -> tuple[list[str], np.ndarray]:
    rng = np.random.default_rng(0)
    sides = rng.integers(0, 2, 60)
    words = (["apple", "pear", "plum", "and"], ["bolt", "nut", "screw", "and"])
    return [" ".join(rng.choice(words[side], 12)) for side in sides], sides


def test_topics_in_a_pipeline(texts) -> None:
    documents, sides = texts
    line = make_pipeline(CountVectorizer(), ng.LDA(2, inference="vb", max_passes=10), LogisticRegression())
    assert cross_val_score(line, documents, sides, cv=3).mean() > 0.95
    counts = CountVectorizer().fit_transform(documents)
    search = GridSearchCV(
        ng.LDA(inference="vb", max_passes=5), {"n_topics": [1, 2], "doc_prior": [0.1, 1.0]}, cv=2
    ).fit(counts)
    assert search.best_params_["n_topics"] == 2


def test_topics_have_names_in_a_table(texts) -> None:
    model = ng.LDA(2, inference="vb", max_passes=2).set_output(transform="pandas").fit(texts[0])
    shares = model.transform(texts[0])
    assert isinstance(shares, pd.DataFrame)
    assert list(shares.columns) == model.get_feature_names_out().tolist() == ["lda0", "lda1"]
    mean, sd = model.transform(texts[0], return_std=True)
    assert mean.shape == sd.shape


def test_a_table_of_ratings_is_completed(rng) -> None:
    table = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 25))
    holes = np.where(rng.random(table.shape) < 0.3, np.nan, table)
    model = ng.MatrixFactorization(2).fit(holes[:30])
    mean, sd = model.predict(holes[30:], return_std=True)  # users it never saw
    missing = np.isnan(holes[30:])
    assert np.abs(mean - table[30:])[missing].mean() < 0.1 * np.abs(table[30:]).mean()
    assert sd.shape == mean.shape
    # Nothing is known of this user: the items' means, with more doubt than of any other.
    nobody, doubt = model.predict(np.full((1, 25), np.nan), return_std=True)
    assert np.isfinite(nobody).all()
    assert (doubt > sd.min(0)).all()
    folded = model.fold_in(ng.Ratings.from_dense(np.vstack([np.full((30, 25), np.nan), holes[30:]])))
    np.testing.assert_allclose(folded.predict([30] * 25, range(25)), mean[0], rtol=1e-10)
    with pytest.raises(TypeError, match="toarray"):
        model.predict(sparse.csr_array(table))
    with pytest.raises(ValueError, match="24 features"):
        model.predict(table[:, :24])


@pytest.mark.slow
def test_processes_and_chains_in_searches(rng) -> None:
    X = rng.normal(size=(90, 2))
    y = np.sin(2 * X[:, 0])
    line = make_pipeline(StandardScaler(), ng.SparseGPRegressor(n_inducing=15, max_steps=60))
    assert cross_val_score(line, X, y, cv=2).mean() > 0.5
    grid = {"sparsegpclassifier__n_inducing": [10]}
    line = make_pipeline(StandardScaler(), ng.SparseGPClassifier(max_steps=20))
    assert GridSearchCV(line, grid, cv=2).fit(X, y > 0).best_score_ > 0.7
    series = np.repeat([0.0, 5.0, 0.0, 5.0], 25)[:, None] + rng.normal(size=(100, 1))
    chain = GridSearchCV(ng.GaussianHMM(n_init=1, max_passes=10), {"n_states": [1, 2]}, cv=KFold(2)).fit(series)
    assert chain.best_params_ == {"n_states": 2}


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tables_in_and_out(library, texts) -> None:
    tables = pytest.importorskip(library)
    vectoriser = CountVectorizer()
    counts = vectoriser.fit_transform(texts[0]).toarray()
    table = tables.DataFrame({word: counts[:, v] for v, word in enumerate(vectoriser.get_feature_names_out())})
    model = ng.LDA(2, inference="vb", max_passes=2).set_output(transform=library).fit(table)
    shares = model.transform(table)
    assert isinstance(shares, tables.DataFrame)
    assert list(shares.columns) == ["lda0", "lda1"]
    np.testing.assert_array_equal(
        shares.to_numpy(), clone(model).set_output(transform="default").fit(counts).transform(counts)
    )
    names = list(reversed(table.columns))
    np.testing.assert_allclose(model.transform(table[names]).to_numpy(), shares.to_numpy())  # matched by name
    target = tables.DataFrame({"x": np.arange(20.0)})
    process = ng.SparseGPRegressor(n_inducing=3, max_steps=2).fit(target, target["x"])
    if library == "pandas" or not version("scikit-learn").startswith("1.6."):  # which knows no names of newer Polars
        assert process.feature_names_in_.tolist() == ["x"]
