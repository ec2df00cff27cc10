"""Checkpoints: a run that was stopped, however it was, ends with the bits of one that never was."""

import os
import signal
import threading
from functools import cache

import numpy as np
import pytest
from adversary.files import bits_of
from adversary.watch import watching
from promises.runs import RUNS

import natgrad as ng
from natgrad.posterior.files.checkpoints import Checkpoints, checkpoints_in

QUICK = ("network, memoised", "Topics: learned priors", "Ratings: gaussian", "Ratings: sampled children")


def interrupted(fit, step, folder, **options):
    """Ctrl-C in the middle of a step."""

    def watcher(trace):
        if len(trace) == step:
            os.kill(os.getpid(), signal.SIGINT)

    with watching(watcher, saved=True), pytest.raises(KeyboardInterrupt, match="resume=True"):
        fit(checkpoint=folder, every=1000, **options)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in RUNS])
def test_an_interrupted_fit_goes_on_bit_by_bit(name, tmp_path):
    fit = RUNS[name]
    whole = fit()
    expected = bits_of(whole)
    n_steps = len(getattr(whole, "trace_", None) or whole.trace)
    interrupted(fit, max(1, n_steps // 3), tmp_path)
    interrupted(fit, max(2, 2 * n_steps // 3), tmp_path, resume=True)
    assert bits_of(fit(checkpoint=tmp_path, resume=True)) == expected
    # A run that has ended is there at once, and is the same.
    with watching(lambda trace: pytest.fail("a step was taken"), saved=True):
        assert bits_of(fit(checkpoint=tmp_path, resume=True)) == expected


@cache
def small():
    mu = ng.Normal("mu", 0.0, 1.0)
    tau = ng.Gamma("tau", 1.0, 1.0)
    x = ng.Normal("x", mu, tau, plate=ng.Plate("n", 20), observed=np.random.default_rng(0).normal(3.0, 2.0, 20))
    return ng.Network(x)


def test_two_files_are_kept_and_orphans_removed(tmp_path):
    net = small()
    whole = net.fit(max_steps=11, tol=0)

    def power_cut(progress):
        if progress.t == 9:
            raise RuntimeError("the lights are out")

    with pytest.raises(RuntimeError, match="lights"):
        net.fit(max_steps=11, tol=0, callbacks=[power_cut], checkpoint=tmp_path, every=2)
    assert [path.name[-12:] for path in checkpoints_in(tmp_path)] == ["0006.natgrad", "0008.natgrad"]
    (tmp_path / ".checkpoint-000000000010.natgrad.abc.tmp").write_bytes(b"half")
    with pytest.raises(FileExistsError, match="resume=True"):
        net.fit(checkpoint=tmp_path)
    # The last one is damaged: the one before it is as good.
    last = checkpoints_in(tmp_path)[-1]
    last.write_bytes(last.read_bytes()[:-9])
    resumed = net.fit(max_steps=11, tol=0, checkpoint=tmp_path, every=2, resume=True)
    assert bits_of(resumed) == bits_of(whole)
    assert sorted(path.name[-12:] for path in tmp_path.iterdir()) == ["0010.natgrad", "0011.natgrad"]


def test_a_raised_limit_goes_on(tmp_path):
    net = small()
    net.fit(max_steps=4, tol=0, checkpoint=tmp_path)
    assert bits_of(net.fit(max_steps=9, tol=0, checkpoint=tmp_path, resume=True)) == bits_of(
        net.fit(max_steps=9, tol=0)
    )
    fewer = net.fit(max_steps=2, tol=0, checkpoint=tmp_path, resume=True)
    assert len(fewer.trace) == 9


def test_what_a_callback_remembers_comes_back(tmp_path):
    class Highest:
        """Counts its calls, and stops at the twelfth."""

        memory = 0

        def __call__(self, progress):
            self.memory += 1
            return self.memory == 12

    net = small()
    net.fit(max_steps=7, tol=0, checkpoint=tmp_path, callbacks=[Highest()])
    resumed = net.fit(max_steps=30, tol=0, checkpoint=tmp_path, callbacks=[Highest()], resume=True)
    assert len(resumed.trace) == 12


def forever() -> list:
    """A list that holds itself."""
    endless: list = []
    endless.append(endless)
    return endless


@pytest.mark.parametrize(
    ("memory", "why"),
    [
        ({1, 2}, "a set is not a number"),
        (["word"] * 150_000, "keep long lists as arrays"),
        (forever(), "nested too deeply"),
        (np.zeros(3, complex), "array of complex"),
    ],
    ids=["set", "long", "endless", "complex"],
)
def test_a_memory_that_cannot_be_written_is_no_reason_to_lose_the_run(tmp_path, memory, why):
    class Hoarder:
        def __init__(self):
            self.memory = memory

        def __call__(self, progress):
            pass

    class Counter:
        memory = 0

        def __call__(self, progress):
            self.memory += 1

    net, counter = small(), Counter()
    with pytest.warns(RuntimeWarning, match=rf"callbacks\[0\]\.memory.*{why}") as caught:
        net.fit(max_steps=5, tol=0, checkpoint=tmp_path, every=1, callbacks=[Hoarder(), Counter()])
    assert len(caught) == 1  # not once for each checkpoint
    again = Hoarder()
    again.memory = "its own"
    resumed = net.fit(max_steps=9, tol=0, checkpoint=tmp_path, every=1, callbacks=[again, counter], resume=True)
    assert bits_of(resumed) == bits_of(net.fit(max_steps=9, tol=0))
    assert (again.memory, counter.memory) == ("its own", 9)


def test_another_run_is_refused(tmp_path, rng):
    counts = rng.poisson(0.4, size=(50, 12))
    model = ng.LDA(2, inference="vb", max_passes=3, tol=0).fit(counts, checkpoint=tmp_path, every=1)
    with pytest.raises(ValueError, match=r"another run: seed was '0' and is '1'"):
        ng.LDA(2, inference="vb", max_passes=3, tol=0, seed=1).fit(counts, checkpoint=tmp_path, resume=True)
    with pytest.raises(ValueError, match="another run: observed"):
        model.fit(counts[:40], checkpoint=tmp_path, resume=True)
    with pytest.raises(ValueError, match=r"another run: topic_prior was 'None' and is '0.1'"):
        ng.LDA(2, topic_prior=0.1, inference="vb", max_passes=3, tol=0).fit(counts, checkpoint=tmp_path, resume=True)
    for path in checkpoints_in(tmp_path):
        path.write_bytes(b"")
    with pytest.raises(ng.ModelFileError):
        model.fit(counts, checkpoint=tmp_path, resume=True)


def test_wrong_settings_are_explained(tmp_path, rng):
    counts = rng.poisson(0.4, size=(20, 12))
    with pytest.raises(ValueError, match="every must be a number of steps"):
        ng.LDA(2).fit(counts, checkpoint=tmp_path, every="soon")
    with pytest.raises(ValueError, match="resume=True needs checkpoint="):
        ng.LDA(2).fit(counts, resume=True)
    with pytest.raises(ValueError, match="every=5 needs checkpoint="):
        ng.LDA(2).fit(counts, every=5)
    with pytest.raises(ValueError, match="not for streams of CorrelatedTopics"):
        ng.topics.CorrelatedTopics(2).fit(iter([counts]), checkpoint=tmp_path)
    with pytest.raises(TypeError, match="unexpected keyword argument 'checkpoints'"):
        ng.LDA(2).fit(counts, checkpoints=tmp_path)
    ng.LDA(2, inference="vb", max_passes=2).fit(
        counts, checkpoint=tmp_path / "new" / "folder", every="0.5min", resume=True
    )


def test_one_run_has_a_folder_for_itself_and_other_threads_keep_too(tmp_path):
    with Checkpoints(tmp_path), pytest.raises(BlockingIOError, match="another run keeps"):
        small().fit(checkpoint=tmp_path)
    found = []
    thread = threading.Thread(target=lambda: found.append(small().fit(max_steps=3, checkpoint=tmp_path)))
    thread.start()
    thread.join()
    assert len(found) == len(checkpoints_in(tmp_path)) == 1


def test_a_full_disk_does_not_end_the_run(tmp_path, monkeypatch):
    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("natgrad.posterior.files.checkpoints.write_model", full)
    with pytest.warns(RuntimeWarning, match="could not be written"):
        assert len(small().fit(max_steps=3, tol=0, checkpoint=tmp_path).trace) == 3
