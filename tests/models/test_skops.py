"""Files of skops: every estimator can be written and read again, where skops is installed."""

import copy
import pickle

import pytest
from promises.cases import FIRST
from promises.promises import answers, same

from natgrad.inference.trace import Reason, Stop

NAMES = ["GaussianMixture", "GaussianHMM", "LDA", "MatrixFactorization", "SparseGPRegressor", "SparseGPClassifier"]


@pytest.mark.parametrize("name", NAMES)
def test_files_of_skops_load(name):
    sio = pytest.importorskip("skops.io")
    model = FIRST[name].fitted()
    data = sio.dumps(model)
    again = sio.loads(data, trusted=sio.get_untrusted_types(data=data))
    same(answers(again, FIRST[name]), answers(model, FIRST[name]))
    assert again.stop_ == model.stop_


def test_why_a_run_ended_has_plain_state():
    stop = Stop(Reason.STEPS, "stopped", ran_out=True)
    assert stop.__getstate__() == {"reason": "STEPS", "message": "stopped", "ran_out": True}
    for other in (pickle.loads(pickle.dumps(stop)), copy.deepcopy(stop)):
        assert other == stop
        assert other.ran_out
        assert other.reason is Reason.STEPS
