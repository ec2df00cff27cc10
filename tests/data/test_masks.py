"""Masked arrays: a masked entry is missing where something may be missing, and refused elsewhere; never the number below."""

import numpy as np
import pytest

import natgrad as ng
from natgrad.data.corpus import as_corpus

TABLE = np.random.default_rng(0).integers(1, 6, (12, 8)).astype(float)
MASK = np.random.default_rng(1).random(TABLE.shape) < 0.3
BELOW = np.where(MASK, 999.0, TABLE)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint8])
def test_factorisation_reads_a_mask_as_missing(dtype):
    settings = {"n_factors": 2, "max_steps": 5}
    masked = np.ma.array(np.where(MASK, 250, TABLE).astype(dtype), mask=MASK)
    with_nan = np.where(MASK, np.nan, TABLE)
    models = [ng.MatrixFactorization(**settings).fit(form) for form in (with_nan, masked, list(masked))]
    assert [len(model.ratings_) for model in models] == [np.sum(~MASK)] * 3
    assert models[0].elbo_ == models[1].elbo_ == models[2].elbo_
    assert models[0].score(with_nan) == models[0].score(masked)
    np.testing.assert_array_equal(models[0].predict(with_nan), models[0].predict(masked))
    features = np.ma.array(np.ones((12, 2)), mask=False)
    features[0, 1] = np.ma.masked
    with pytest.raises(ValueError, match=r"user_features\[0, 1\] is masked, and every feature is needed"):
        ng.MatrixFactorization(**settings).fit(with_nan, user_features=features)
    with pytest.raises(ValueError, match=r"users\[1\] is masked, and every rating needs its id"):
        models[0].predict(np.ma.array([0, 1], mask=[0, 1]), [0, 1])


def test_counts_cannot_be_missing():
    masked = np.ma.array(BELOW, mask=MASK)
    d, v = np.argwhere(MASK)[0]
    model = ng.LDA(2, inference="vb", max_passes=2).fit(TABLE)
    unmasked = np.ma.array(TABLE, mask=np.zeros_like(MASK))
    assert ng.LDA(2, inference="vb", max_passes=2).fit(unmasked).elbo_ == model.elbo_
    asked = (
        ng.LDA(2).fit,
        ng.LDA(2).partial_fit,
        model.transform,
        model.score,
        as_corpus,
        lambda X: as_corpus(list(X)),
    )
    for ask in asked:
        with pytest.raises(ValueError, match=rf"X\[{d}, {v}\] is masked, and a count cannot be missing: write 0"):
            ask(masked)
    with pytest.raises(ValueError, match="is masked, and a count cannot be missing"):
        ng.LDA(2).fit(iter([TABLE, masked]))
    with pytest.raises(ValueError, match=rf"document\[{v}\] is masked, and a count cannot be missing"):
        model.infer(masked[d])


def test_rows_of_a_gaussian_process_are_whole():
    X, y = np.linspace(0, 1, 20)[:, None], np.linspace(0, 1, 20)
    masked = np.ma.array(X, mask=X > 0.9)
    for wrong, name in (((masked, y), r"X\[18, 0\]"), ((X, np.ma.array(y, mask=y > 0.9)), r"y\[18\]")):
        with pytest.raises(ValueError, match=rf"{name} is masked, and a row must be whole"):
            ng.SparseGPRegressor(n_inducing=5).fit(*wrong)
        with pytest.raises(ValueError, match=rf"{name} is masked, and a row must be whole"):
            ng.SparseGPClassifier(n_inducing=5).fit(wrong[0], wrong[1] if wrong[0] is X else y > 0.5)
    for missing in (np.nan, np.inf):
        X_off, y_off = np.where(X > 0.9, missing, X), np.where(y > 0.9, missing, y)
        for wrong, name in (((X_off, y), r"X\[18, 0\]"), ((X.tolist(), y_off), r"y\[18\]")):
            with pytest.raises(ValueError, match=rf"{name} = {missing} must be a finite number \(2 such\); a row"):
                ng.SparseGPRegressor(n_inducing=5).fit(*wrong)
