"""`inference_`: one line, the inference first and its schedule after a comma, the same wherever a fit is shown."""

from __future__ import annotations

import re

import numpy as np
import pytest
from promises.cases import CASES, Case

import natgrad as ng

SCHEDULES = r"(, (memoised|sampled|by gradients))?, [\d,.]+ (sweep|pass|step)(e?s)?(, then \d+ steps? of partial_fit)?"


@pytest.mark.parametrize("case", [case for cases in CASES.values() for case in cases.values()])
def test_a_fit_says_its_inference(case: Case, tmp_path) -> None:
    model = case.fitted()
    line = model.inference_
    assert re.fullmatch(f"VB{SCHEDULES}", line) or "Gibbs" in line
    assert repr(model).endswith(f"  # {line}")
    assert line.split(";")[0] in str(model.stop_) or "Gibbs" in line
    model.save(tmp_path / "model")
    assert ng.load(tmp_path / "model").inference_ == line


def test_batches_are_counted_in_passes_and_partial_fits_in_steps() -> None:
    X = np.random.default_rng(0).normal(size=(25_000, 2)) + np.arange(25_000)[:, None] % 2 * 9.0
    model = ng.GaussianMixture(2, max_passes=2, tol=0, verbose=False).fit(X)
    assert model.inference_ == "VB, memoised, 2 passes"
    model.partial_fit(X[:100])
    assert model.inference_ == "VB, memoised, 2 passes, then 1 step of partial_fit"
    assert ng.GaussianMixture(2).partial_fit(X[:100]).partial_fit(X[100:200]).inference_ == "VB, 2 steps of partial_fit"
