"""`GaussianMixture` as an estimator: streams, files, threads, checkpoints, odd data, and errors that help."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import natgrad as ng
from natgrad.data import open_source
from natgrad.models import hmm

KINDS = ("full", "diag", "tied", "spherical")
every_kind = pytest.mark.parametrize("kind", KINDS)
RNG = np.random.default_rng(0)
CENTRES = np.array([[-5.0, 0.0], [5.0, 1.0], [0.0, 8.0]])
X = CENTRES[RNG.integers(0, 3, 900)] + RNG.normal(size=(900, 2))


def quick(n: int = 3, **settings: object) -> ng.GaussianMixture:
    return ng.GaussianMixture(n, **{"n_init": 1, "verbose": False, **settings})


def same_bits(one: ng.GaussianMixture, two: ng.GaussianMixture) -> None:
    for name in one.posterior_:
        for a, b in zip(one.posterior_[name].lam, two.posterior_[name].lam, strict=True):
            np.testing.assert_array_equal(a, b)


def finds_the_centres(model: ng.GaussianMixture, atol: float = 0.5) -> None:
    away = np.linalg.norm(model.means_[:, None] - CENTRES, axis=2)
    assert (away.min(0) < atol).all(), model.means_


# -- data in every form --


def test_arrays_tables_and_files_are_one(tmp_path) -> None:
    np.save(tmp_path / "rows.npy", X)
    table = pd.DataFrame(X, columns=["a", "b"])
    table.to_parquet(tmp_path / "rows.parquet")
    kept = X.copy()
    model = quick(max_passes=4).fit(X)
    np.testing.assert_array_equal(X, kept)
    for other in (table, tmp_path / "rows.npy", str(tmp_path / "rows.parquet"), np.asfortranarray(X), X.tolist()):
        same_bits(model, quick(max_passes=4).fit(other))
    named = quick(max_passes=4).fit(table)
    assert named.feature_names_in_.tolist() == ["a", "b"]
    named.save(tmp_path / "model")
    assert ng.load(tmp_path / "model").feature_names_in_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(model.predict(tmp_path / "rows.npy"), model.predict(X))


@every_kind
def test_streams(kind, tmp_path) -> None:
    pd.DataFrame(X).rename(columns=str).to_parquet(tmp_path / "rows.parquet")
    model = quick(covariance=kind, max_passes=8).fit(open_source(tmp_path / "rows.parquet", size=100))
    finds_the_centres(model)
    assert model.n_rows_seen_ == len(X)
    assert len(model.trace_) > 9
    once = quick(covariance=kind, n_init=4).fit(X[n : n + 100] for n in range(0, 900, 100))
    finds_the_centres(once, 1.0)
    assert len(once.trace_) == 9
    batches = quick(covariance=kind)
    for begin in range(0, 900, 100):
        batches.partial_fit(X[begin : begin + 100], n_rows=900)
    assert batches.n_rows_seen_ == 900
    with pytest.raises(ValueError, match="no sample_weight"):
        quick().fit(iter([X]), sample_weight=np.ones(900))
    with pytest.raises(ValueError, match="chunk 1 of the stream: X has 1 features"):
        quick().fit(iter([X[:50], X[50:, :1]]))


def test_many_rows_are_read_in_batches(monkeypatch) -> None:
    from natgrad.models import rows

    monkeypatch.setattr(rows, "FEW_ROWS", 500)
    model = quick(max_passes=20).fit(X)
    assert "memoised" in model.trace_.strategy
    finds_the_centres(model)
    bounds = model.trace_["elbo"]
    assert np.diff(bounds[np.isfinite(bounds)]).min() > -1e-9 * abs(bounds[-1])
    assert model.elbo_ == pytest.approx(quick(method=ng.VB(), tol=1e-9).fit(X).elbo_, rel=1e-6)


@every_kind
def test_threads_and_shards_change_no_bit(kind, monkeypatch) -> None:
    from natgrad.inference import rows

    monkeypatch.setattr(rows, "SHARD", 300)
    monkeypatch.setattr(rows, "PIECE", 100)
    monkeypatch.setattr(rows, "LEAST_ROWS", 16)
    weight = RNG.random(len(X))
    one, two = (quick(covariance=kind, n_jobs=n, max_passes=3).fit(X, sample_weight=weight) for n in (1, 2))
    same_bits(one, two)
    assert one.elbo_ == two.elbo_
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))


# -- files --


# -- odd data --


@every_kind
@pytest.mark.filterwarnings("ignore:X.* does not vary")
@pytest.mark.filterwarnings("ignore:.* components for [0-9]+ rows")
def test_odd_data_have_finite_fits(kind) -> None:
    odd = {
        "one row": X[:1],
        "fewer rows than components": X[:2],
        "the same row": np.repeat(X[:1], 20, axis=0),
        "two rows, many times": np.repeat(X[:2], 20, axis=0),
        "a constant column": np.column_stack([X[:50, 0], np.full(50, 7.0)]),
        "all zero": np.zeros((5, 2)),
        "tiny": 1e-90 * X[:50],
        "single precision": X[:50].astype(np.float32),
        "whole numbers": np.round(X[:50]).astype(int),
    }
    for what, data in odd.items():
        model = quick(4, covariance=kind, max_passes=10).fit(data)
        assert np.isfinite(model.elbo_), what
        assert np.isfinite(model.score_samples(data)).all(), what
        np.testing.assert_allclose(model.predict_proba(data).sum(1), 1.0, err_msg=what)


def test_constant_columns_are_told() -> None:
    with pytest.warns(UserWarning, match=r"X\[:, 1\] does not vary"):
        quick().fit(np.column_stack([X[:50, 0], np.full(50, 7.0)]))


@pytest.mark.parametrize(
    ("settings", "data", "error"),
    [
        ({"n_components": 0}, X, "n_components must be a whole number ≥ 1, got 0"),
        ({"n_components": 2.5}, X, "n_components must be a whole number"),
        ({"covariance": "round"}, X, 'covariance must be "full", "diag", "tied" or "spherical"'),
        ({"weight_prior": -1.0}, X, "weight_prior = -1 must be > 0"),
        ({"weight_prior": [1.0, 2.0]}, X, r"weight_prior must be finite, of shape \(\) or \(3,\)"),
        ({"covariance": hmm.Gaussian(mean_prior=[1.0])}, X, r"mean_prior must be finite, of shape \(2,\)"),
        ({"covariance": hmm.Gaussian(dof_prior=0.5)}, X, "dof = 0.5 must be > D − 1"),
        ({"covariance": hmm.Gaussian(scale_prior=[[1.0, 2.0], [2.0, 1.0]])}, X, "smallest eigenvalue of rate"),
        ({"covariance": hmm.Gaussian("diag", scale_prior=np.eye(2))}, X, "scale_prior must be finite, of shape"),
        ({"tol": -1.0}, X, "tol must be ≥ 0"),
        ({"n_init": 0}, X, "n_init must be a whole number ≥ 1"),
        ({"method": "vb"}, X, "method must be VB"),
        ({"method": ng.SVI({"doc": 5})}, X, "plate 'doc', and the groups are called 'row'"),
        ({}, X[:, 0], "2D array"),
        ({}, np.where(np.arange(1800).reshape(900, 2) == 7, np.inf, X), "inf"),
        ({"covariance": "diag"}, np.full((3, 2), np.nan), "nothing to fit to"),
        ({}, 1e200 * X, "give X in another unit"),
        ({}, "rows.txt", "only .npy and .parquet"),
    ],
)
def test_mistakes_are_named(settings, data, error) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        quick(settings.get("n_components", 3)).set_params(**settings).fit(data)


def test_groups_too_far_apart_for_their_width_are_an_error() -> None:
    far = np.concatenate([X[:50], X[:50] + 1e12])
    with pytest.raises(ValueError, match="so far apart, by their own width"):
        quick(2, covariance=hmm.Gaussian(scale_prior=np.eye(2), mean_scale=1e-9)).fit(far)


def test_weights_are_checked() -> None:
    for weight, error in (
        (-np.ones(900), r"sample_weight\[0\] = -1 must be finite and ≥ 0"),
        (np.ones(3), "one for each of 900 rows"),
        (np.zeros(900), "weight of zero"),
    ):
        with pytest.raises(ValueError, match=error):
            quick().fit(X, sample_weight=weight)


def test_a_page_has_its_components(tmp_path) -> None:
    table = pd.DataFrame(X, columns=["<b>", "b"])
    model = quick(max_passes=5).fit(table)
    page = model.report(tmp_path / "page.html", held_out=table[:20]).read_text()
    assert "component 2" in page
    assert "&lt;b&gt;" in page
    assert "nats a row" in page
