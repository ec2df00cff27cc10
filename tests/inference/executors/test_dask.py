"""Two worker processes give the bits of this one; a worker may die, join, or fail, and the answer stays right."""

import os
import shutil
import signal
import subprocess
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sparse
from inference.executors.test_threads import same

import natgrad as ng
from natgrad.inference.executors import BroadcastArgument, Dask, ShardSpec
from natgrad.models.lda import problem as lda_problem

distributed = pytest.importorskip("distributed")
import dask  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    # A killed worker leaves sockets behind, which Python reports when it finds them.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


SELF_SIGNED = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0, processes=True
    ) as made:
        yield made


@pytest.fixture
def mortal():
    """A cluster of its own: a nanny does not always bring back what was killed."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0, processes=True
    ) as made:
        yield made


def add(shard, number):
    return float(shard.sum()) + number


def slow_add(shard, number):
    time.sleep(0.3)
    return add(shard, number)


def fail(shard, number):
    raise ValueError(f"no {number}")


def make_ones(n):
    return np.ones(n)


def workers_of(client):
    """Process ids by address."""
    return client.run(os.getpid)


@pytest.fixture(autouse=True)
def several_parts(monkeypatch):
    monkeypatch.setattr(lda_problem, "PART", 50_000)


def topics(executor=None):
    rng = np.random.default_rng(0)
    X = sparse.csr_array(rng.poisson(0.2, (3000, 1000)))
    return ng.LDA(
        8, inference="vb", max_passes=2, tol=0.0, local=ng.LocalOptions(batch_size=1500), executor=executor
    ).fit(X)


def test_topics_are_the_bits_of_threads(cluster):
    here = topics()
    same(here, topics(cluster))
    same(here, topics(cluster.scheduler_address))
    with distributed.Client(cluster) as client:
        same(here, topics(client))
        assert client.status == "running"  # what was given open stays open


def documents_in(folder, **how):
    rng = np.random.default_rng(0)
    file = folder / "counts.npy"
    if not file.exists():
        np.save(file, rng.poisson(0.2, (3000, 1000)).astype(np.uint8))
    return ng.LDA(8, inference="vb", max_passes=2, tol=0.0, local=ng.LocalOptions(batch_size=1500), **how).fit(
        np.load(file, mmap_mode="r")
    )


def ratings_in(folder, **how):
    pandas = pytest.importorskip("pandas")
    file = folder / "ratings.parquet"
    if not file.exists():
        made = ng.data.make_ratings(400, 200, 20_000).ratings
        table = {"user": made.users + 7, "item": made.items, "rating": made.values}
        pandas.DataFrame(table).to_parquet(file, row_group_size=3_000)
    return ng.MatrixFactorization(4, max_steps=4, tol=0.0, **how).fit(file)


@pytest.mark.parametrize("fit", [documents_in, ratings_in], ids=["documents", "ratings"])
def test_workers_read_documents_and_ratings_that_they_see(mortal, fit, monkeypatch, tmp_path):
    """The bits of threads, from files of which only the names travel; and again with a worker that is killed under way."""
    from natgrad.models.factorization import parts as rating_parts

    monkeypatch.setattr(rating_parts, "PART", 5_000)
    here, placed, killed = fit(tmp_path), [], []
    place = Dask.place
    monkeypatch.setattr(Dask, "place", lambda self, shards: placed.extend(shards) or place(self, shards))
    same(here, fit(tmp_path, executor=mortal))
    assert len(placed) > 2
    assert all(isinstance(shard, ShardSpec) and shard.files for shard in placed)

    with distributed.Client(mortal) as client:
        victim = next(iter(workers_of(client).values()))
        timer = threading.Timer(0.5, lambda: killed.append(victim) or os.kill(victim, signal.SIGKILL))
        timer.start()
        while not killed:
            same(here, fit(tmp_path, executor=client))
        same(here, fit(tmp_path, executor=client))


def test_an_error_of_a_part_is_raised_as_it_is(cluster):
    executor = Dask(cluster)
    placed = executor.place([np.ones(3)])
    with pytest.raises(ValueError, match="no 7"):
        list(placed.run(fail, [(0, (7,))]))
    assert list(placed.run(add, [(0, (1,))])) == [4.0]
    executor.close()


@pytest.mark.parametrize("kind", ["data", "recipe"])
def test_a_killed_worker_costs_time_and_nothing_else(cluster, kind):
    executor = Dask(cluster)
    shards = [np.ones(n) if kind == "data" else ShardSpec(make_ones, (n,)) for n in (3, 4, 5, 6)]
    placed = executor.place(shards)
    calls = [(number, (float(number),)) for number in range(4)]
    wanted = [3.0, 5.0, 7.0, 9.0]
    for when in ("between", "during", "during"):
        assert list(placed.run(add, calls)) == wanted
        victim = next(iter(workers_of(executor.client).values()))
        if when == "between":
            os.kill(victim, signal.SIGKILL)
        else:
            threading.Timer(0.4, os.kill, (victim, signal.SIGKILL)).start()
        assert list(placed.run(slow_add, calls)) == wanted
    executor.close()


@pytest.mark.parametrize("kind", ["data", "recipe"])
def test_all_workers_may_die_at_once(mortal, kind):
    executor = Dask(mortal)
    placed = executor.place([np.ones(n) if kind == "data" else ShardSpec(make_ones, (n,)) for n in (3, 4, 5, 6)])
    calls = [(number, (0.0,)) for number in range(4)]
    assert list(placed.run(add, calls)) == [3.0, 4.0, 5.0, 6.0]
    for pid in workers_of(executor.client).values():
        threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
    assert list(placed.run(slow_add, calls)) == [3.0, 4.0, 5.0, 6.0]
    executor.close()


@pytest.mark.parametrize("kind", ["data", "recipe"])
def test_what_is_shared_is_not_sent_to_the_dead(mortal, kind):
    executor = Dask(mortal)
    placed = executor.place([np.ones(n) if kind == "data" else ShardSpec(make_ones, (n,)) for n in (3, 4, 5, 6)])
    for _ in range(2):
        common, begin = BroadcastArgument(np.float64(1.0)), time.monotonic()
        assert list(placed.run(add, [(number, (common,)) for number in range(4)])) == [4.0, 5.0, 6.0, 7.0]
        assert time.monotonic() - begin < 15.0
        os.kill(next(iter(workers_of(executor.client).values())), signal.SIGKILL)
    executor.close()


def test_a_worker_may_join(cluster):
    executor = Dask(cluster)
    placed = executor.place([np.ones(n) for n in (3, 4)])
    assert list(placed.run(add, [(0, (0.0,)), (1, (0.0,))])) == [3.0, 4.0]
    cluster.scale(3)
    executor.client.wait_for_workers(3, timeout=60)
    assert list(placed.run(add, [(0, (1.0,)), (1, (1.0,))])) == [4.0, 5.0]
    cluster.scale(2)
    executor.close()


def test_a_cluster_without_workers_is_an_error_in_time():
    with distributed.LocalCluster(n_workers=0, dashboard_address=":0", processes=True) as empty:
        executor = Dask(empty, patience=0.5)
        with pytest.raises(RuntimeError, match=r"no worker for 0.5 seconds"):
            list(executor.place([np.ones(3)]).run(add, [(0, (1.0,))]))
        executor.close()


def certificates(folder, name):
    """A certificate that signs itself, and its key."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    subprocess.run(
        [*SELF_SIGNED, "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    roles = {
        f"tls_{role}_{what}": str(path)
        for role in ("scheduler", "worker", "client")
        for what, path in (("key", key), ("cert", certificate))
    }
    return distributed.Security(require_encryption=True, tls_ca_file=str(certificate), **roles)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")
def test_an_encrypted_scheduler_asks_for_certificates(tmp_path):
    security = certificates(tmp_path, "ours")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, security=security, protocol="tls://", dashboard_address=":0", memory_limit=0
    ) as made:
        assert made.scheduler_address.startswith("tls://")
        ours = Dask(made.scheduler_address, security=security)
        same(topics(), topics(ours))
        ours.close()
        stranger = Dask(made.scheduler_address, security=certificates(tmp_path, "theirs"))
        with dask.config.set({"distributed.comm.timeouts.connect": "2s"}), pytest.raises(OSError, match="certificate"):
            stranger.client  # noqa: B018
