"""Several workers that run compiled loops: each part of the sequences is counted elsewhere, and the bits are those of here.

What little data take on workers, loops of NumPy, is tried by `tests/promises/test_promises.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from inference.executors.test_threads import Elsewhere
from promises.cases import CHAINS

from natgrad.models.hmm import forward_backward
from natgrad.models.hmm import problem as hmm_problem


@pytest.fixture
def compiled_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An entry for each call of the compiled loop; NumPy's must not be called."""
    calls: list[int] = []
    run = forward_backward._run_windows

    def counted(*args: Any) -> Any:
        calls.append(1)
        return run(*args)

    def refused(*args: Any) -> Any:
        raise AssertionError("NumPy's loop was called, and this is about the compiled one")

    monkeypatch.setattr(forward_backward, "_run_windows", counted)
    monkeypatch.setattr(forward_backward, "_plain_windows", refused)
    monkeypatch.setattr(hmm_problem, "PART", 20)
    return calls


# Whose parts are short enough for one worker.
BATCHES = ("batches of sequences", "subchains")


@pytest.mark.parametrize("option", ['GaussianHMM("full")', "several tracks", *BATCHES])
def test_workers_with_compiled_loops_give_the_bits_of_threads_here(option: str, compiled_calls: list[int]) -> None:
    case, there = CHAINS[option], Elsewhere()
    here = case.fitted(n_jobs=2)
    own, remote = len(compiled_calls), case.fitted(executor=there)
    assert own > 0
    assert len(compiled_calls) == 2 * own  # the same windows, on workers
    assert len(set(there.calls)) > 1 or option in BATCHES, "one worker had all parts"
    np.testing.assert_array_equal(remote.trace_["elbo"], here.trace_["elbo"])
    for name, lam in here._state.lam.items():
        for part, other in zip(lam, remote._state.lam[name], strict=True):
            np.testing.assert_array_equal(part, other)


def test_compiled_counts_on_workers_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was compiled: the loop that little data take leads to the same fit."""
    case = CHAINS['GaussianHMM("full")']
    monkeypatch.setattr(hmm_problem, "PART", 20)
    compiled = case.fitted(executor=Elsewhere())
    monkeypatch.setattr(forward_backward, "is_little", lambda work: True)
    np.testing.assert_allclose(compiled.trace_["elbo"], case.fitted().trace_["elbo"], rtol=1e-9)
