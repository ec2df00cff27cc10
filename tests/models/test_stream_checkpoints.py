"""Checkpoints of streams: which stream a run goes on with. That it ends with the same bits is among the promises."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import natgrad as ng

RNG = np.random.default_rng(0)
CENTRES = np.array([[0.0, 0.0], [8.0, 8.0], [-9.0, 6.0], [10.0, -7.0]])
ROWS = [CENTRES[np.arange(n) % k] + RNG.normal(size=(n, 2)) for k, n in ((2, 60), (2, 60), (4, 90), (4, 50), (4, 60))]


def mixture(**settings: Any) -> ng.GaussianMixture:
    return ng.GaussianMixture(4, **{"n_init": 2, "tol": 0, "max_passes": 2, "verbose": False, **settings})


def until(n: int) -> Callable[[Any], bool]:
    """End a run after so many steps."""
    return lambda progress: progress.t >= n


def test_a_run_that_has_read_all_is_there_and_goes_on_when_more_passes_are_allowed(tmp_path: Path) -> None:
    whole = mixture(max_passes=3).fit(ROWS)
    mixture(max_passes=1).fit(ROWS, checkpoint=tmp_path)
    again = mixture(max_passes=3).fit(ROWS, checkpoint=tmp_path, resume=True)
    ended = mixture(max_passes=3).fit(ROWS, checkpoint=tmp_path, resume=True)
    for model in (again, ended):
        for one, other in zip(whole._state.lam["components"], model._state.lam["components"], strict=True):
            np.testing.assert_array_equal(one, other)
        assert (model.elbo_, model.n_rows_seen_, model.stop_) == (whole.elbo_, whole.n_rows_seen_, again.stop_)


def test_another_stream_is_refused(tmp_path: Path) -> None:
    mixture().fit(ROWS, checkpoint=tmp_path, callbacks=[until(7)])
    again = mixture()
    with pytest.raises(ValueError, match="not the stream of the earlier run, which had read 120 rows in 2 parts"):
        again.fit([ROWS[1], ROWS[0][:50], *ROWS[2:]], checkpoint=tmp_path, resume=True)
    with pytest.raises(ValueError, match="an iterator cannot be read again"):
        again.fit(iter(ROWS), checkpoint=tmp_path, resume=True)
    with pytest.raises(ValueError, match="seed was '0' and is '1'"):
        mixture(seed=1).fit(ROWS, checkpoint=tmp_path, resume=True)
    with pytest.raises(ValueError, match="of another run"):
        again.fit(np.concatenate(ROWS), checkpoint=tmp_path, resume=True)
    whole = tmp_path / "whole"
    mixture().fit(np.concatenate(ROWS), checkpoint=whole, callbacks=[until(2)])
    with pytest.raises(ValueError, match="of a run that read no stream"):
        again.fit(ROWS, checkpoint=whole, resume=True)
