"""Where the parts of a step are computed: shards of data and a pure function in; its results, in the order of the calls, out.

    placed = executor.place(shards)                             once: the data go where they stay
    for found in placed.run(function, calls): …                 each step: function(shard, *arguments) for every call

`Threads` makes one call after the other in this process, and the compiled loops inside share the threads. `Dask` sends each call
to the worker that holds its shard, as a task keyed (shard, step) that runs in one thread. A task depends on nothing but its shard
and its arguments, so a worker may die or join at any time: what it held is placed anew, and what it was doing is done again. How
the data are cut never depends on the executor, and callers add results up in the order of the shards: the bits are the same.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, Protocol, final

import numpy as np

__all__ = [
    "Call",
    "Dask",
    "Everywhere",
    "Executor",
    "Placed",
    "Recipe",
    "Shared",
    "Threads",
    "even_cuts",
    "opened",
    "sharing",
]

Call = tuple[int, tuple[Any, ...]]
# Arguments above this many bytes go to a worker directly, below it with the task.
LARGE = 1_000_000
# How often what a dead worker took along is done again, without anything finished in between.
ATTEMPTS = 10
# Seconds between two looks at whether there are workers at all.
LOOK = 2.0


class Recipe(NamedTuple):
    """A shard as a description: ``make(*arguments)`` is the data, on whatever machine they are wanted."""

    make: Callable[..., Any]
    arguments: tuple[Any, ...]


class Everywhere(NamedTuple):
    """Data that every worker holds: any of them may answer a call."""

    data: Any


class Shared(NamedTuple):
    """An argument that all calls of a step have in common: it travels once to each worker."""

    value: Any


class Placed(Protocol):
    """Shards where they are computed on."""

    def run(self, function: Callable[..., Any], calls: Iterable[Call]) -> Iterator[Any]:
        """``function(shard, *arguments)`` of every call (shard, arguments), in their order.

        Calls may be computed while later ones are still made, and before earlier results are taken.
        """
        ...


class Executor(Protocol):
    """What places shards."""

    def place(self, shards: Sequence[Any]) -> Placed:
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
def sharing(problem: Any, executor: Any, size: int = 1, by_row: bool = False) -> Iterator[None]:
    """The shards of a problem placed where they are computed on, as long as the block runs.

    ``by_row``: nothing is added up over shards, so that here, where it would save nothing, nothing is cut.
    """
    with opened(executor) as where:
        here = isinstance(where, Threads)
        if here and (by_row or not hasattr(problem, "shards")):
            yield
            return
        if not hasattr(problem, "shards"):
            raise TypeError(
                f"executor={executor!r}: a {type(problem).__name__} cannot be shared out; leave executor= out"
            )
        shards = problem.shards(size)
        if here and len(shards) == 1:  # nothing to hand over
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

    def place(self, shards: Sequence[Any]) -> Placed:
        """Nothing moves; a recipe is followed whenever its shard is wanted."""
        return _Here(shards)

    def close(self) -> None:
        """Nothing was opened."""


class _Here(NamedTuple):
    shards: Sequence[Any]

    def run(self, function: Callable[..., Any], calls: Iterable[Call]) -> Iterator[Any]:
        for number, arguments in calls:
            yield function(_made(self.shards[number]), *(a.value if isinstance(a, Shared) else a for a in arguments))


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

    def place(self, shards: Sequence[Any]) -> Placed:
        """Shards on workers, in turn; a recipe is followed by the worker that is to hold its shard."""
        return _OnWorkers(self, list(shards))

    def close(self) -> None:
        """Close the connection, if it is our own."""
        if self._client is not None and self._client is not self.where:
            self._client.close()
        self._client = None


@final
class _OnWorkers:
    """Shards as futures, placed when they are first wanted and again when they are lost."""

    def __init__(self, dask: Dask, shards: list[Any]) -> None:
        self.dask, self.shards = dask, shards
        self.token, self.step = uuid.uuid4().hex[:12], 0
        self._held: dict[int, Any] = {}
        self._home: dict[int, str] = {}
        self._common: dict[int, tuple[Any, Any]] = {}

    def run(self, function: Callable[..., Any], calls: Iterable[Call]) -> Iterator[Any]:
        self.step += 1
        self._common = {}
        begun: list[tuple[Call, Any]] = []
        for number, call in enumerate(calls):
            begun.append((call, self._tried(function, call, (number, 0))))
        for number, (call, future) in enumerate(begun):
            yield self._result(function, call, number, future)

    def _result(self, function: Callable[..., Any], call: Call, number: int, future: Any) -> Any:
        """What a task found, begun anew as often as it is lost."""
        for attempt in range(1, ATTEMPTS + 1):
            found = None if future is None else self._collected(future)
            if found is not None:
                return found[0]
            self._await_workers()
            # A shard may be listed by the scheduler and yet be gone; what failed begins from the data again.
            self._held.pop(call[0], None)
            self._common = {}
            future = self._tried(function, call, (number, attempt))
        raise RuntimeError(
            f"step {self.step}: workers died {ATTEMPTS} times in a row while they computed a part of it; they may be short of "
            "memory: use smaller batches, or give them more"
        )

    def _tried(self, function: Callable[..., Any], call: Call, attempt: tuple[int, int]) -> Any:
        """The future of a call; None if the worker it was to go to is gone."""
        try:
            return self._submit(function, *call, attempt)
        except (OSError, TimeoutError, KeyError) as error:
            self._check_scheduler(error)
            return None

    def _submit(
        self, function: Callable[..., Any], shard: int, arguments: tuple[Any, ...], attempt: tuple[int, int]
    ) -> Any:
        client = self.dask.client
        key = f"natgrad-{self.token}-shard{shard}-step{self.step}-call{attempt[0]}-{attempt[1]}"
        held = self._shard(shard)
        common = [self._shared(part) for part in arguments if isinstance(part, Shared)]
        own: Any = tuple(None if isinstance(part, Shared) else part for part in arguments)
        places = [place for place, part in enumerate(arguments) if isinstance(part, Shared)]
        if sum(getattr(part, "nbytes", 0) for part in own) > LARGE:
            there = [self._home[shard]] if shard in self._home else None
            own = client.scatter([own], hash=False, direct=self.dask.direct, workers=there)[0]
        return client.submit(_apply, function, held, own, places, *common, key=key, pure=False)

    def _shared(self, part: Shared) -> Any:
        """The future of what the calls of a step have in common, on every worker."""
        kept = self._common.get(id(part.value))
        if kept is None:
            client, value = self.dask.client, part.value
            kept = value, client.scatter([value], hash=False, direct=self.dask.direct, broadcast=True)[0]
            self._common[id(value)] = kept
        return kept[1]

    def _shard(self, number: int) -> Any:
        """The future of a shard."""
        held = self._held.get(number)
        if held is not None and held.status in ("finished", "pending"):
            return held
        client, shard = self.dask.client, self.shards[number]
        if isinstance(shard, Recipe):
            key = f"natgrad-{self.token}-shard-{number}-{uuid.uuid4().hex[:8]}"
            held = client.submit(shard.make, *shard.arguments, key=key, pure=False)
        else:
            workers, spread = sorted(self._await_workers()), isinstance(shard, Everywhere)
            where = workers if spread else [workers[number % len(workers)]]
            if not spread:
                self._home[number] = where[0]
            data = [shard.data if spread else shard]
            held = client.scatter(data, hash=False, direct=self.dask.direct, workers=where, broadcast=spread)[0]
        self._held[number] = held
        return held

    def _collected(self, future: Any) -> tuple[Any] | None:
        """The result of a task, when it has ended; None if it is lost. An error of the function itself is raised."""
        import distributed

        wait: Any = distributed.wait
        losses = _losses()
        while future.status == "pending":
            try:
                with self.dask.client.as_current():
                    wait(future, timeout=LOOK)
            except TimeoutError:
                self._await_workers()
            except losses:
                break
        if future.status == "error" and not isinstance(future.exception(), losses):
            future.result()
        if future.status != "finished":
            return None
        gone: tuple[type[Exception], ...] = (OSError, TimeoutError, *losses)
        try:
            return tuple(self.dask.client.gather([future], direct=self.dask.direct))
        except gone as error:  # the worker went away with the result
            self._check_scheduler(error)
            return None

    def _await_workers(self) -> list[str]:
        """The addresses of the workers, as soon as there is one."""
        until = time.monotonic() + self.dask.patience
        while True:
            try:
                workers = list(self.dask.client.nthreads())
            except (OSError, TimeoutError) as error:
                self._check_scheduler(error)
                workers = []
            if workers:
                return workers
            if time.monotonic() > until:
                raise RuntimeError(
                    f"{self.dask!r} has had no worker for {self.dask.patience:g} seconds: start some, or raise patience="
                )
            time.sleep(0.1)

    def _check_scheduler(self, error: Exception) -> None:
        if self.dask.client.status not in ("running", "connecting"):
            raise ConnectionError(f"the scheduler of {self.dask!r} does not answer: {error}") from error


def _losses() -> tuple[type[Exception], ...]:
    """Errors that say that a worker is gone with what it held, and not that the function failed."""
    from distributed import CancelledError, KilledWorker
    from distributed.scheduler import NoValidWorkerError

    return CancelledError, KilledWorker, NoValidWorkerError


def _made(shard: Any) -> Any:
    if isinstance(shard, Everywhere):
        return shard.data
    return shard.make(*shard.arguments) if isinstance(shard, Recipe) else shard


def _apply(function: Callable[..., Any], shard: Any, own: Any, places: list[int], *common: Any) -> Any:
    """On a worker: one thread for a task, and one for the matrices in it."""
    import numba

    _pin_matrices()
    numba.set_num_threads(1)
    arguments = list(own)
    for place, value in zip(places, common, strict=True):
        arguments[place] = value
    return function(shard, *arguments)


@cache
def _pin_matrices() -> None:
    """Two threads of a matrix library round differently; once for each process."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1, user_api="blas")
