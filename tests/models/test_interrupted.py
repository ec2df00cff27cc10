"""Whatever ends a partial_fit early leaves the estimator as it was, and a fit to an iterator forgets what came before."""

import copy
import os
import sys
from pathlib import Path

import pytest
from promises.cases import FIRST

import natgrad as ng

KINDS = ("LDA", "MatrixFactorization", "GaussianMixture", "GaussianHMM", "SparseGPRegressor", "SparseGPClassifier")
CASES = {name: (FIRST[name].made(), FIRST[name].data[: 2 if "GP" in name else 1]) for name in KINDS}
OURS = str(Path(ng.__file__).parent) + os.sep


def interrupted_at(turn: int, function) -> int:
    """Call a function and press Ctrl-C when our code makes its n-th call; how many it made until then."""
    made = 0

    def trace(frame, event, argument):
        nonlocal made
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if event == "call" and file.startswith(OURS) and not name.startswith("<"):
            made += 1
            if made == turn:
                raise KeyboardInterrupt
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return made


@pytest.mark.parametrize("name", CASES)
def test_an_interrupted_partial_fit_leaves_the_model_as_it_was(name):
    model, data = CASES[name]
    fitted = copy.deepcopy(model).fit(*data)
    wanted = copy.deepcopy(fitted).partial_fit(*data)
    # The second time, when everything that is kept for later is there.
    again = [copy.deepcopy(fitted) for _ in range(2)]
    calls = [interrupted_at(0, lambda held=held: held.partial_fit(*data)) for held in again][1]
    assert calls > 20
    # All over it, and at each of the last calls, in which the results are published.
    turns, ended = {*range(2, calls, max(1, calls // 12)), *range(max(2, calls - 20), calls + 1)}, 0
    for turn in sorted(turns):
        held = copy.deepcopy(fitted)
        before = dict(vars(held))
        if interrupted_at(turn, lambda held=held: held.partial_fit(*data)) < turn:
            ended += 1  # what an interrupted one had computed was there already: fewer calls
            continue
        assert vars(held).keys() == before.keys()
        assert all(vars(held)[key] is value for key, value in before.items())
    assert ended < len(turns) // 2
    # Nor was anything inside changed.
    assert copy.deepcopy(fitted).partial_fit(*data).elbo_ == wanted.elbo_


@pytest.mark.parametrize("name", ["LDA", "GaussianHMM"])
def test_a_fit_to_an_iterator_forgets_what_came_before(name):
    model, (data,) = copy.deepcopy(CASES[name])
    wanted = copy.deepcopy(model).fit(iter([data[:10], data[10:]])).elbo_
    model.fit(data)
    assert model.fit(iter([data[:10], data[10:]])).elbo_ == wanted
    with pytest.raises(ValueError, match=r"nothing|empty"):
        model.fit(iter([]))
