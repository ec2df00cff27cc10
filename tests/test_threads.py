"""The matrix library has one thread while a fit runs, and the user's number of threads afterwards, however fits overlap."""

import os
import threading

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

import natgrad as ng
from natgrad.threads import in_order, one_blas_thread


@pytest.fixture
def threads():
    """How many threads the matrix libraries have; three at the beginning."""
    controller = ThreadpoolController().select(user_api="blas")

    def now() -> set[int]:
        return {library.num_threads for library in controller.lib_controllers}

    with controller.limit(limits=3):
        if now() != {3}:
            pytest.skip("a matrix library without three threads")
        yield now


def test_the_last_one_out_restores_what_the_first_one_found(threads):
    order = []
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()

    def first():
        with one_blas_thread():
            first_in.set()
            second_in.wait(10)
        order.append(threads())
        first_out.set()

    def second():
        first_in.wait(10)
        with one_blas_thread():
            second_in.set()
            first_out.wait(10)
            order.append(threads())

    workers = [threading.Thread(target=target) for target in (first, second)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(20)
    assert order == [{1}, {1}]
    assert threads() == {3}


def test_an_error_inside_restores_them_too(threads):
    def interrupted():
        with one_blas_thread(), one_blas_thread():
            assert threads() == {1}
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert threads() == {3}


def test_fits_in_threads_leave_the_number_alone(threads, rng):
    counts = rng.poisson(0.5, (20, 10))
    one_began, other_ended = threading.Event(), threading.Event()

    def wait(progress):
        one_began.set()
        other_ended.wait(20)

    long = threading.Thread(
        target=lambda: ng.LDA(2, inference="vb", max_passes=2, verbose=False).fit(counts, callbacks=[wait])
    )
    long.start()
    assert one_began.wait(20)
    seen = []
    ng.LDA(2, inference="vb", max_passes=2, verbose=False).fit(
        counts, callbacks=[lambda progress: seen.append(threads())]
    )
    assert set(map(frozenset, seen)) == {frozenset({1})}
    other_ended.set()
    long.join(20)
    assert threads() == {3}


def test_work_that_is_shared_has_one_each(threads):
    assert in_order(lambda item: (item, threads()), range(5)) == [(item, {1}) for item in range(5)]
    assert threads() == {3}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:os.fork:RuntimeWarning")
def test_a_forked_child_has_the_users_number_of_threads(threads):
    with one_blas_thread():
        child = os.fork()
        if child == 0:
            os._exit(0 if threads() == {3} and np.linalg.inv(np.eye(3))[0, 0] == 1.0 else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert threads() == {3}
