"""The collector of garbage is as it was after an import, and leaves nothing large to the first fit."""

import gc
import subprocess
import sys

import pytest

from natgrad._imports import paused_collector


def test_the_collector_pauses_and_goes_on():
    assert gc.isenabled()
    with paused_collector():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_import_that_fails_does_not_leave_it_off():
    with pytest.raises(ImportError), paused_collector():
        raise ImportError("no such module")
    assert gc.isenabled()


def test_who_has_switched_it_off_finds_it_off():
    gc.disable()
    try:
        with paused_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_first_fit_does_not_wait_for_a_full_collection():
    code = """
import gc
import natgrad as ng
assert gc.isenabled()
full = []
gc.callbacks.append(lambda phase, info: full.append(1) if info["generation"] == 2 else None)
p = ng.Beta("p", 1.0, 1.0)
ng.Network(ng.Bernoulli("y", p, plate=ng.Plate("n", 4), observed=[1, 0, 1, 1])).fit(verbose=False)
assert not full
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
