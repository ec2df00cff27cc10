"""Files of skops: every estimator can be written and read again, where skops is installed."""

import copy
import pickle

import numpy as np
import pytest

import natgrad as ng
from natgrad.inference.trace import Reason, Stop


def fitted(name, rng):
    X, counts = rng.normal(size=(40, 2)), rng.poisson(1.0, (30, 6))
    if name == "SparseGPRegressor":
        model = ng.SparseGPRegressor(n_inducing=4, max_steps=20).fit(X[:, :1], X[:, 1])
        return model, lambda m: m.predict(X[:, :1])
    if name == "SparseGPClassifier":
        model = ng.SparseGPClassifier(n_inducing=4, max_steps=20).fit(X, np.digitize(X[:, 1], [-0.5, 0.5]))
        return model, lambda m: m.predict_proba(X)
    if name == "MatrixFactorization":
        return ng.MatrixFactorization(2).fit(counts.astype(float)), lambda m: m.predict([0, 1], [1, 2])
    if name == "LDA":
        return ng.LDA(2).fit(counts), lambda m: m.transform(counts)
    return getattr(ng, name)(2).fit(X), lambda m: m.predict_proba(X)


NAMES = ["GaussianMixture", "GaussianHMM", "LDA", "MatrixFactorization", "SparseGPRegressor", "SparseGPClassifier"]


@pytest.mark.parametrize("name", NAMES)
def test_files_of_skops_load(name, rng):
    sio = pytest.importorskip("skops.io")
    model, asked = fitted(name, rng)
    data = sio.dumps(model)
    again = sio.loads(data, trusted=sio.get_untrusted_types(data=data))
    np.testing.assert_array_equal(asked(again), asked(model))
    assert again.stop_ == model.stop_


def test_why_a_run_ended_has_plain_state():
    stop = Stop(Reason.STEPS, "stopped", ran_out=True)
    assert stop.__getstate__() == {"reason": "STEPS", "message": "stopped", "ran_out": True}
    for other in (pickle.loads(pickle.dumps(stop)), copy.deepcopy(stop)):
        assert other == stop
        assert other.ran_out
        assert other.reason is Reason.STEPS
