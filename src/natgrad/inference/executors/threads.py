"""Where the parts of a step are computed: shards of data and a pure function in; its results, in the order of the calls, out.

    placed = executor.place(shards)                             once: the data go where they stay
    for found in placed.run(function, calls): …                 each step: function(shard, *arguments) for every call

`Threads` makes one call after the other in this process, and the compiled loops inside share the threads. `Dask` sends each call
to the worker that holds its shard, as a task keyed (shard, step) that runs in one thread. A task depends on nothing but its shard
and its arguments, so a worker may die or join at any time: what it held is placed anew, and what it was doing is done again. How
the data are cut depends on the executor only where nothing is added up over shards, and callers add results up in the order of
the shards: the bits are the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, final

import numpy as np

from natgrad.data.origin import FileIdentity, Mapped

__all__ = [
    "Broadcast",
    "BroadcastArgument",
    "Call",
    "Dask",
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
        from natgrad.inference.executors.dask import DaskShards

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
