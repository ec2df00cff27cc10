"""The collector of garbage is as it was after an import."""

import gc

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
