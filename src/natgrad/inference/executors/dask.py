"""Shards on the workers of a Dask cluster: calls in, results in the order of the calls out, whatever becomes of the workers."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, final

from natgrad.data.origin import FileIdentity, file_identity
from natgrad.inference.executors.threads import Broadcast, BroadcastArgument, Call, ShardSpec
from natgrad.threads import one_blas_thread

if TYPE_CHECKING:
    from natgrad.inference.executors.threads import Dask

__all__ = ["DaskShards"]

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
        """As `natgrad.inference.executors.threads.PlacedShards` says; results are fetched as they come, whatever their order."""
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
