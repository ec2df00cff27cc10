"""Run a pure function on shards of data, in this process or on the workers of a Dask cluster, with results in order.

    placed = executor.place(shards)                             once: the data go where they stay
    for found in placed.run(function, calls): …                 each step: function(shard, *arguments) for every call

`Threads` makes one call after the other in this process, and the compiled loops inside share the threads. `Dask` sends each call
to the worker that holds its shard, as a task keyed (shard, step) that runs in one thread. A task depends on nothing but its shard
and its arguments, so a worker may die or join at any time: what it held is placed anew, and what it was doing is done again. How
the data are cut depends on the executor only where nothing is added up over shards, and callers add results up in the order of
the shards: the bits are the same.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, Protocol, final

import numpy as np

from natgrad.data.origin import FileIdentity, Mapped, file_identity
from natgrad.threads import one_blas_thread

__all__ = [
    "Broadcast",
    "BroadcastArgument",
    "Call",
    "Dask",
    "DaskShards",
    "Executor",
    "PlacedShards",
    "ShardSpec",
    "Threads",
    "even_cuts",
    "opened",
    "place_shards",
    "shard_in_files",
]

Call = tuple[int, tuple[Any, ...]]


class ShardSpec(NamedTuple):
    """A shard as a description: ``make(*arguments)`` is the data, on whatever machine they are wanted.

    ``files`` are those that it reads. If some worker does not see them as this process does, the data are made here and sent, and
    so they are where ``files`` is None: nobody else has what they are made of. ``held`` are the data where they are in memory
    here already, and never travel with the description.
    """

    make: Callable[..., Any]
    arguments: tuple[Any, ...]
    files: tuple[FileIdentity, ...] | None = ()
    held: Any = None

    def __reduce__(self) -> Any:
        return ShardSpec, (self.make, self.arguments, self.files)

    def made(self) -> Any:
        """The data, here."""
        return self.make(*_plain(self.arguments)) if self.held is None else self.held


def shard_in_files(make: Callable[..., Any], *parts: Any) -> Any:
    """``make(*parts)``; if arrays among these are mapped from files, a recipe that names the bytes instead of sending them."""
    mapped = [Mapped.of(part) if isinstance(part, np.ndarray) else None for part in parts]
    files = tuple(dict.fromkeys(part.file for part in mapped if part is not None))
    if not files:
        return make(*parts)
    named = tuple(part if where is None else where for part, where in zip(parts, mapped, strict=True))
    return ShardSpec(_opened_parts, (make, *named), files, make(*parts))


def _opened_parts(make: Callable[..., Any], *parts: Any) -> Any:
    return make(*(part.opened() if isinstance(part, Mapped) else part for part in parts))


class Broadcast(NamedTuple):
    """Data that every worker holds: any of them may answer a call."""

    data: Any


class BroadcastArgument(NamedTuple):
    """An argument that all calls of a step, or the recipes of all shards, have in common: it travels once to each worker."""

    value: Any


class PlacedShards(Protocol):
    """Shards where they are computed on."""

    def run(self, function: Callable[..., Any], calls: Iterable[Call]) -> Iterator[Any]:
        """``function(shard, *arguments)`` of every call (shard, arguments), in their order.

        Calls may be computed while later ones are still made, and before earlier results are taken.
        """
        ...


class Executor(Protocol):
    """What places shards."""

    @property
    def n_threads(self) -> int:
        """How many calls it computes at a time."""
        ...

    def place(self, shards: Sequence[Any]) -> PlacedShards:
        """Shards, recipes for them, or what is to be everywhere; they stay until the result is thrown away."""
        ...

    def close(self) -> None:
        """Give back what was opened."""
        ...


def even_cuts(sizes: Any, n_parts: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Borders [parts + 1] of runs of about equal size among items of these sizes; fewer where an item is larger than a part.

    Examples
    --------
    >>> even_cuts([5, 1, 1, 1, 4], 2).tolist()
    [0, 2, 5]
    """
    total = np.concatenate([[0], np.cumsum(sizes)])
    cuts = np.searchsorted(total, np.linspace(0, total[-1], n_parts + 1), side="left")
    cuts[0], cuts[-1] = 0, len(total) - 1
    return np.unique(cuts).astype(np.int64)


@contextmanager
def opened(executor: Any) -> Iterator[Executor]:
    """The executor that a user's ``executor=`` stands for, closed afterwards if it was opened here."""
    if executor is None or executor == "threads":
        yield Threads()
    elif callable(getattr(executor, "place", None)):
        yield executor
    else:
        made = Dask(executor)
        try:
            yield made
        finally:
            made.close()


@contextmanager
def place_shards(problem: Any, executor: Any, size: int = 1) -> Iterator[None]:
    """The shards of a problem placed where they are computed on, as long as the block runs.

    Where nothing is added up over shards (``problem.shards_by_row``), they are cut for as many as compute at a time, and here,
    where it would save nothing, not at all.
    """
    with opened(executor) as where:
        here = isinstance(where, Threads)
        if here and problem.shards_by_row:
            yield
            return
        shards = problem.shards(where.n_threads if problem.shards_by_row else size)
        if shards is None and not here:
            raise TypeError(
                f"executor={executor!r}: what this model computes cannot be shared out; leave executor= out"
            )
        if shards is None or (here and len(shards) == 1):  # nothing to hand over
            yield
            return
        problem.placed = where.place(shards)
        try:
            yield
        finally:
            problem.placed = None


@final
class Threads:
    """In this process; the default."""

    n_threads = 1

    def place(self, shards: Sequence[Any]) -> PlacedShards:
        """Nothing moves; a recipe is followed whenever its shard is wanted."""
        return _Here(shards)

    def close(self) -> None:
        """Nothing was opened."""


class _Here(NamedTuple):
    shards: Sequence[Any]

    def run(self, function: Callable[..., Any], calls: Iterable[Call]) -> Iterator[Any]:
        for number, arguments in calls:
            yield function(_made(self.shards[number]), *_plain(arguments))


@final
class Dask:
    """Workers of Dask distributed, on this machine or on many.

    Parameters
    ----------
    where : str, Client or cluster
        The address of a scheduler ("tcp://host:8786", "tls://host:8786"), a `distributed.Client`, or a cluster such as
        `distributed.LocalCluster`.
    security : distributed.Security, optional
        Certificates, for an address that begins with tls://.
    direct : bool
        Whether this process reaches the workers themselves; if not, everything goes through the scheduler.
    patience : float
        Seconds to wait while there is no worker at all.

    Examples
    --------
    >>> Dask("tcp://scheduler:8786")  # nothing is opened before it is used
    Dask('tcp://scheduler:8786')
    """

    def __init__(self, where: Any, *, security: Any = None, direct: bool = True, patience: float = 60.0) -> None:
        known = isinstance(where, str) or hasattr(where, "scheduler_address") or hasattr(where, "scheduler_info")
        if not known:
            raise TypeError(
                f'executor must be None, "threads", an address such as "tcp://host:8786", a distributed.Client, a cluster or '
                f"Dask(…), got {where!r}"
            )
        if isinstance(where, str) and "://" not in where:
            raise ValueError(f'executor must be "threads" or an address such as "tcp://host:8786", got {where!r}')
        self.where, self.security, self.direct, self.patience = where, security, direct, float(patience)
        self._client: Any = None

    def __repr__(self) -> str:
        return f"Dask({self.where!r})"

    def __deepcopy__(self, memo: Any) -> Dask:
        """Itself: a copy of an estimator talks to the same workers."""
        return self

    @property
    def client(self) -> Any:
        """The `distributed.Client`, opened at first use."""
        if self._client is None:
            try:
                from distributed import Client
            except ImportError:
                raise ImportError("executor= on other machines needs Dask: pip install 'natgrad[cluster]'") from None
            make: Any = Client
            mine = not isinstance(self.where, Client)
            self._client = make(self.where, security=self.security, set_as_default=False) if mine else self.where
        return self._client

    @property
    def n_threads(self) -> int:
        """Of the workers that there are now."""
        return sum(self.workers().values())

    def workers(self) -> dict[str, int]:
        """The threads of each worker by its address, as soon as there is one."""
        until = time.monotonic() + self.patience
        while True:
            try:
                n_threads = {str(address): int(threads) for address, threads in self.client.nthreads().items()}
            except (OSError, TimeoutError) as error:
                self.check_scheduler(error)
                n_threads = {}
            if n_threads:
                return n_threads
            if time.monotonic() > until:
                raise RuntimeError(
                    f"{self!r} has had no worker for {self.patience:g} seconds: start some, or raise patience="
                )
            time.sleep(0.1)

    def check_scheduler(self, error: Exception) -> None:
        """An error that says so, if it is the scheduler that is gone."""
        if self.client.status not in ("running", "connecting"):
            raise ConnectionError(f"the scheduler of {self!r} does not answer: {error}") from error

    def place(self, shards: Sequence[Any]) -> PlacedShards:
        """Shards on workers, in turn; a recipe is followed by the worker that is to hold its shard."""
        return DaskShards(self, list(shards))

    def close(self) -> None:
        """Close the connection, if it is our own."""
        if self._client is not None and self._client is not self.where:
            self._client.close()
        self._client = None


def _plain(arguments: tuple[Any, ...]) -> Iterator[Any]:
    return (part.value if isinstance(part, BroadcastArgument) else part for part in arguments)


def _made(shard: Any) -> Any:
    if isinstance(shard, Broadcast):
        return shard.data
    return shard.made() if isinstance(shard, ShardSpec) else shard


# Arguments above this many bytes go to a worker directly, below it with the task.
LARGE = 1_000_000
# How often what a dead worker took along is done again, without anything finished in between.
ATTEMPTS = 10
# Seconds between two looks at whether there are workers at all.
LOOK = 2.0
# Workers that are sent what is common to all.
COPIES = 4
# Bytes that a worker keeps for the next part, and the names of its settings in malloc.h.
KEPT, M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = 2**26, -1, -3
# Tasks that are waited for at a time, the first ones of those that are left: a wait costs as much as there are.
AHEAD = 64


@final
class DaskShards:
    """Shards as futures, placed when they are first wanted and again when they are lost."""

    def __init__(self, dask: Dask, shards: list[Any]) -> None:
        self.dask, self.shards = dask, shards
        self.token, self.step = uuid.uuid4().hex[:12], 0
        self._tasks = itertools.count()
        self._held: dict[int, Any] = {}
        self._home: dict[int, str] = {}
        self._seen: dict[FileIdentity, bool] = {}
        self._common: dict[int, tuple[Any, Any]] = {}

    def run(self, function: Callable[..., Any], calls: Iterable[Call]) -> Iterator[Any]:
        """As `natgrad.inference.executors.PlacedShards` says; results are fetched as they come, whatever their order."""
        self.step += 1
        self._common = {}
        made, begun, results = [], {}, {}
        for number, call in enumerate(calls):
            made.append(call)
            begun[number] = self._tried(function, call, number)
        losses = 0
        for number in range(len(made)):
            while number not in results:
                arrived, lost = self._arrived(begun)
                if not arrived and not lost:
                    lost = self._stranded({n: made[n][0] for n in begun})
                results.update(arrived)
                losses = losses + 1 if lost and not arrived else 0
                if losses == ATTEMPTS:
                    raise RuntimeError(
                        f"step {self.step}: workers died {ATTEMPTS} times in a row while they computed a part of it; they may be "
                        "short of memory: use smaller batches, or give them more"
                    )
                begun = {n: future for n, future in begun.items() if n not in arrived}
                begun.update(self._again(function, {n: made[n] for n in lost}))
            yield results.pop(number)

    def _stranded(self, shards: dict[int, int]) -> list[int]:
        """Calls whose worker is gone: the scheduler would wait for it, if there was no other one when they were to begin."""
        there = self.dask.workers()
        return [number for number, shard in shards.items() if self._home.get(shard, next(iter(there))) not in there]

    def _again(self, function: Callable[..., Any], lost: dict[int, Call]) -> dict[int, Any]:
        """Calls begun anew, from the data: a shard may be listed by the scheduler and yet be gone."""
        if lost:
            self.dask.workers()
            self._common = {}
        for shard, _ in lost.values():
            self._held.pop(shard, None)
        return {number: self._tried(function, call, number) for number, call in lost.items()}

    def _tried(self, function: Callable[..., Any], call: Call, number: int) -> Any:
        """The future of a call; None if the worker it was to go to is gone."""
        try:
            return self._submit(function, *call, number)
        except (OSError, TimeoutError, KeyError) as error:
            self.dask.check_scheduler(error)
            return None

    def _submit(self, function: Callable[..., Any], shard: int, arguments: tuple[Any, ...], number: int) -> Any:
        client = self.dask.client
        key = f"natgrad-{self.token}-shard{shard}-step{self.step}-{next(self._tasks)}"
        held = self._shard(shard)
        common = [self._shared(part, shard) for part in arguments if isinstance(part, BroadcastArgument)]
        own: Any = tuple(None if isinstance(part, BroadcastArgument) else part for part in arguments)
        places = [place for place, part in enumerate(arguments) if isinstance(part, BroadcastArgument)]
        there = [self._home[shard]] if shard in self._home else None
        if sum(getattr(part, "nbytes", 0) for part in own) > LARGE:
            own = client.scatter([own], hash=False, direct=self.dask.direct, workers=there, timeout=LOOK)[0]
        # Where the shard is, unless another worker has nothing to do; and in the order in which results are taken, so that they
        # come back while later ones are computed.
        how = {"workers": there, "allow_other_workers": there is not None, "priority": -number}
        return client.submit(_apply, function, held, own, places, *common, key=key, pure=False, **how)

    def _shared(self, part: BroadcastArgument, shard: int) -> Any:
        """The future of what the calls of a step have in common: sent to some workers at once, from which others take it."""
        kept = self._common.get(id(part.value))
        if kept is None:
            client, workers = self.dask.client, sorted(self.dask.workers())[:COPIES]

            async def send() -> list[Any]:
                how = {"hash": False, "direct": self.dask.direct, "timeout": LOOK, "asynchronous": True}
                sent = [client.scatter([part.value], workers=[worker], **how) for worker in workers]
                return [copy for (copy,) in await asyncio.gather(*sent)]

            kept = self._common[id(part.value)] = part.value, client.sync(send)
        return kept[1][shard % len(kept[1])]

    def _shard(self, number: int) -> Any:
        """The future of a shard."""
        held = self._held.get(number)
        if held is not None and held.status in ("finished", "pending"):
            return held
        client, shard = self.dask.client, self.shards[number]
        workers = sorted(self.dask.workers())
        home = [workers[number % len(workers)]]
        if isinstance(shard, ShardSpec) and (shard.files is None or not self._is_seen(shard.files)):
            shard = shard.made()
        if isinstance(shard, Broadcast):
            held = client.scatter([shard.data], hash=False, direct=self.dask.direct, workers=workers, broadcast=True)[0]
        elif isinstance(shard, ShardSpec):
            key = f"natgrad-{self.token}-shard-{number}-{next(self._tasks)}"
            parts = [self._shared(p, number) if isinstance(p, BroadcastArgument) else p for p in shard.arguments]
            held = client.submit(shard.make, *parts, key=key, pure=False, workers=home, allow_other_workers=True)
        else:
            held = client.scatter([shard], hash=False, direct=self.dask.direct, workers=home, timeout=LOOK)[0]
        if not isinstance(shard, Broadcast):
            self._home[number] = home[0]
        self._held[number] = held
        return held

    def _is_seen(self, files: tuple[FileIdentity, ...]) -> bool:
        """Whether all workers see the files as they are here; asked once for each."""
        unknown = [file for file in files if file not in self._seen]
        if unknown:
            seen_by_workers = self.dask.client.run(_stamps, [file.path for file in unknown], on_error="ignore").values()
            self._seen |= {file: all(stamps[n] == file for stamps in seen_by_workers) for n, file in enumerate(unknown)}
        return all(self._seen[file] for file in files)

    def _arrived(self, begun: dict[int, Any]) -> tuple[dict[int, Any], list[int]]:
        """What the tasks found that have ended by now, or first; and those that are lost. An error of the function is raised."""
        import distributed

        wait: Any = distributed.wait
        ahead = dict(itertools.islice(begun.items(), AHEAD))
        lost = [number for number, future in ahead.items() if future is None]
        if not lost and all(future.status == "pending" for future in ahead.values()):
            try:
                with self.dask.client.as_current():
                    wait(list(ahead.values()), timeout=LOOK, return_when="FIRST_COMPLETED")
            except TimeoutError:
                self.dask.workers()
            except _losses():
                pass
        ended = {n: future for n, future in ahead.items() if future is not None and future.status != "pending"}
        for future in ended.values():
            if future.status == "error" and not isinstance(future.exception(), _losses()):
                future.result()
        results = self._gathered({n: future for n, future in ended.items() if future.status == "finished"})
        return results, lost + [number for number in ended if number not in results]

    def _gathered(self, finished: dict[int, Any]) -> dict[int, Any]:
        """Results, all at once; if a worker went away with its own, one by one."""
        gone: tuple[type[Exception], ...] = (OSError, TimeoutError, *_losses())
        try:
            results: dict[int, Any] = self.dask.client.gather(finished, direct=self.dask.direct)
            return results
        except gone as error:
            self.dask.check_scheduler(error)
        if len(finished) == 1:
            return {}
        return {n: result for number in finished for n, result in self._gathered({number: finished[number]}).items()}


def _stamps(paths: list[str]) -> list[FileIdentity | None]:
    """On a worker: the files that it sees."""
    return [file_identity(path) for path in paths]


def _losses() -> tuple[type[Exception], ...]:
    """Errors that say that a worker is gone with what it held, and not that the function failed."""
    from distributed import CancelledError, KilledWorker
    from distributed.scheduler import NoValidWorkerError

    return CancelledError, KilledWorker, NoValidWorkerError


def _apply(function: Callable[..., Any], shard: Any, own: Any, places: list[int], *common: Any) -> Any:
    """On a worker: one thread for a task, and one for the matrices in it."""
    from natgrad.threads import at_most

    _prepare()
    arguments = list(own)
    for place, value in zip(places, common, strict=True):
        arguments[place] = value
    with at_most(1), one_blas_thread():
        return function(shard, *arguments)


@cache
def _prepare() -> None:
    """Once for each process: memory that is used again.

    Dask has its workers give freed memory back at once (MALLOC_TRIM_THRESHOLD_), so that every part would begin with fresh pages:
    a tenth of its time and more. These are the largest thresholds that the C library would choose by itself.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, KEPT // 2)
        mallopt(M_TRIM_THRESHOLD, KEPT)
