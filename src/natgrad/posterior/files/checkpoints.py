"""Write the state of a run after a step to a file from which the run goes on, bit by bit.

Files are written as a whole or not at all (`natgrad.posterior.files.container`). The last two are kept, and what an interrupted
write left behind is removed. On SIGTERM and Ctrl-C the step is finished, the state written, and the place said.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, final

from natgrad.errors import ModelFileError
from natgrad.inference.checkpoint import RunState
from natgrad.inference.options import CheckpointOptions, refuse_unknown
from natgrad.inference.problem import State
from natgrad.inference.schema import check, either, record, refuse
from natgrad.inference.streams import StreamPosition
from natgrad.inference.trace import Stop, Trace
from natgrad.posterior.files.container import LONGEST_HEADER, encoded, read_model, register, write_model
from natgrad.validation import whole_number

__all__ = ["Checkpoints", "checkpointer_of", "checkpoints_in", "refuse_checkpoint"]

register(RunState)
register(StreamPosition)
KIND, PATTERN, ORPHANS = "Checkpoint", re.compile(r"checkpoint-(\d{12})\.natgrad"), ".checkpoint-*.tmp"
KEPT = 2


def _plain(value: Any, sizes: dict[str, int], where: str) -> None:
    """What a run is: names, numbers, lists and mappings of them."""
    if isinstance(value, dict):
        for name, part in value.items():
            check(name, "text", sizes, where)
            _plain(part, sizes, where)
    elif isinstance(value, list):
        check(value, [_plain], sizes, where)
    else:
        check(value, "none | flag | text | float", sizes, where)


def _about(value: Any, sizes: dict[str, int], where: str) -> None:
    check(value, dict, sizes, where)
    _plain(value, sizes, where)


POSITION = record(
    StreamPosition, number="whole in [0, 1e12]", seen="whole in [0, 1e18]", n_observed="nonnegative", means=["float"],
    total="none | nonnegative", told={
        "components?": "natural", "doc_prior?": "positive [_]", "topic_prior?": "positive", "steps?": "whole",
    },
)  # fmt: skip
CONTENT = {
    "about": _about,
    "run": record(
        RunState, state=State, trace=Trace, begun="whole in [0, 1e12]", unread="whole", first="float", notes=tuple,
        phase="none | whole in [0, 1e12]", entered="flag",
        stop=either("none", Stop), source=either("none", POSITION),
    ),
}  # fmt: skip


@final
class Checkpoints:
    """Writes checkpoints of a run into a folder, and finds the last one; a `natgrad.inference.checkpoint.Checkpointer`.

    Parameters
    ----------
    folder : path; made if it is not there
    every : int or str
        After so many steps, or after a time: "60s", "5min", "1h".
    resume : bool
        Whether to go on from the last checkpoint in the folder, if there is one.
    settings : mapping
        What makes the run what it is, besides what the engine knows; a checkpoint of another run is refused.
    table : function, optional
        Gives (table, sizes): what a state of the run may hold (`natgrad.inference.schema`); one that does not fit is refused.
        It is asked when the run goes on, for what is read in parts is known then.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        every: int | str = "60s",
        resume: bool = False,
        settings: Mapping[str, Any] | None = None,
        table: Callable[[], tuple[Any, Mapping[str, int]]] | None = None,
    ) -> None:
        self.table = table
        self.folder, self.resume = Path(folder), bool(resume)
        self.settings = {name: _in_words(value) for name, value in (settings or {}).items()}
        self.steps, self.seconds = _checked_every(every)
        self._about: dict[str, Any] = {}
        self._signal: int | None = None
        self._handlers: dict[int, Any] = {}
        self._lock: int | None = None
        self._written = time.monotonic()
        self._unwritable: set[int] = set()
        if not self.resume and checkpoints_in(self.folder):
            raise FileExistsError(
                f"{str(self.folder)!r} has checkpoints of an earlier run: resume=True goes on from there; otherwise take another "
                "folder"
            )

    @property
    def earlier(self) -> RunState | None:
        """The run that is found here, to be compared by `begin`; None if there is none."""
        return None if self._found is None else self._found[0]

    @cached_property
    def _found(self) -> tuple[RunState, dict[str, Any], Path] | None:
        """The last checkpoint that can be read, if one is asked for; damaged ones are passed over."""
        refused: ModelFileError | None = None
        for path in reversed(checkpoints_in(self.folder)) if self.resume else ():
            try:
                stored = read_model(path)
                if stored.kind == KIND:
                    check(stored.value, CONTENT, where="the checkpoint")
                    run = stored.value["run"]
                    check(run.state.t, "whole", where="the checkpoint's step")
                    if run.begun > run.state.t:
                        refuse(
                            "the checkpoint", f"has a run that began after step {run.begun}, and is at {run.state.t}"
                        )
                    return run, stored.value["about"], path
            except ModelFileError as error:
                refused = refused or error
        if refused is not None:
            raise refused
        return None

    def __enter__(self) -> Checkpoints:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self.folder)
        for orphan in self.folder.glob(ORPHANS):
            orphan.unlink(missing_ok=True)
        self._forget_old()
        # Python lets only the main thread have handlers; elsewhere the usual ones stay.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._handlers[number] = signal.signal(number, self._noticed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}
        if self._lock is not None:
            os.close(self._lock)

    def begin(self, about: dict[str, Any]) -> RunState | None:
        """The state to go on with, None to begin; a later part of the same run begins."""
        self._about = {**about, **self.settings}
        earlier = self._found
        if earlier is None:
            return None
        run, of_file, path = earlier
        self.__dict__["_found"] = None
        if of_file != self._about:
            differs = [
                f"{name} was {of_file.get(name)!r} and is {self._about.get(name)!r}"
                for name in {**of_file, **self._about}
                if of_file.get(name) != self._about.get(name)
            ]
            raise ValueError(f"{str(path)!r} is a checkpoint of another run: {'; '.join(differs)}. Take another folder")
        try:
            table, sizes = (State, {}) if self.table is None else self.table()
            check(run.state, table, dict(sizes), "the state")
        except (ArithmeticError, LookupError, TypeError, ValueError) as reason:
            raise ModelFileError(f"cannot go on from {str(path)!r}: {reason}") from None
        return run

    def after(self, run: RunState) -> None:
        """Write if it is time, if the run ended, or if a signal asks it to end; then say where."""
        wanted = self._signal is not None or run.stop is not None
        due = run.state.t % self.steps == 0 if self.steps else time.monotonic() - self._written >= self.seconds
        if not (wanted or due):
            return
        path = self.folder / f"checkpoint-{run.state.t:012d}.natgrad"
        words = f"{str(path)!r} has it all, and resume=True goes on from there"
        run = run._replace(notes=self._writable(run.notes))
        try:
            write_model(path, KIND, {"about": self._about, "run": run}, overwrite=True)
        except OSError as error:  # a full disk is no reason to lose the run itself
            words = f"{str(path)!r} could not be written ({error}); the last checkpoint before it is still there"
            warnings.warn(words, RuntimeWarning, stacklevel=2)
        self._written = time.monotonic()
        self._forget_old()
        if self._signal is not None:
            words = f"interrupted after step {run.state.t}; {words}"
            raise KeyboardInterrupt(words) if self._signal == signal.SIGINT else SystemExit(words)

    def _writable(self, notes: tuple[Any, ...]) -> tuple[Any, ...]:
        """What callbacks remember, without what no file can hold: that is no reason to lose the run itself."""
        kept, room = list(notes), LONGEST_HEADER // 2
        for place, note in enumerate(notes):
            if note is None or place in self._unwritable:
                kept[place] = None
                continue
            try:
                size = len(encoded("memory", note)[0])
                why = f"it takes {size:,} bytes as text, and {room:,} are left: keep long lists as arrays"
            except (TypeError, ValueError) as error:
                size, why = room + 1, str(error)
            if size <= room:
                room -= size
                continue
            kept[place] = None
            self._unwritable.add(place)
            words = (
                f"callbacks[{place}].memory, a {type(note).__name__}, is not part of the checkpoints: {why}. Everything else is, "
                "and a resumed run begins with a callback that remembers nothing"
            )
            warnings.warn(words, RuntimeWarning, stacklevel=2)
        return tuple(kept)

    def _forget_old(self) -> None:
        for old in checkpoints_in(self.folder)[:-KEPT]:
            old.unlink(missing_ok=True)

    def _noticed(self, number: int, frame: FrameType | None) -> None:
        if self._signal is not None:  # asked twice: at once
            raise KeyboardInterrupt
        self._signal = number


def checkpointer_of(
    keep: CheckpointOptions,
    settings: Callable[[], Mapping[str, Any]],
    table: Callable[[], tuple[Any, Mapping[str, int]]] | None = None,
) -> Checkpoints | None:
    """Make the `Checkpoints` of a run with these settings and a state of this table; None if no folder is given."""
    refuse_unknown(keep)
    folder, resume = keep.get("checkpoint"), keep.get("resume", False)
    if folder is None:
        if resume:
            raise ValueError("resume=True needs checkpoint=, the folder in which the earlier run kept its state")
        if "every" in keep:
            raise ValueError(f"every={keep['every']!r} needs checkpoint=, a folder for what is kept")
        return None
    return Checkpoints(folder, keep.get("every", "60s"), resume, settings(), table)


def refuse_checkpoint(keep: CheckpointOptions, model: str) -> None:
    """Refuse checkpoints of streams whose parts are fits of their own: no single run could go on."""
    if checkpointer_of(keep, dict) is not None:
        raise ValueError(
            f"checkpoint= is not for streams of {model}, each part of which is a fit of its own: call partial_fit part by part, "
            "and save the model in between"
        )


def checkpoints_in(folder: Path) -> list[Path]:
    """The checkpoints of a folder, in the order of their steps."""
    return sorted(path for path in folder.iterdir() if PATTERN.fullmatch(path.name)) if folder.is_dir() else []


def _locked(folder: Path) -> int | None:
    """A lock on the folder that ends with the process, however it ends; None where there are none."""
    try:
        import fcntl
    except ImportError:
        return None
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise BlockingIOError(
            f"another run keeps its checkpoints in {str(folder)!r}: wait for it, or take another folder"
        ) from None
    except OSError:  # a file system without locks
        pass
    return lock


def _in_words(value: Any) -> str:
    """A setting as text; a function has another address in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def _checked_every(every: Any) -> tuple[int, float]:
    if isinstance(every, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h)", every.strip())
        if match is None:
            raise ValueError(f'every must be a number of steps, or a time such as "60s", "5min" or "1h", got {every!r}')
        return 0, float(match[1]) * {"s": 1.0, "min": 60.0, "h": 3600.0}[match[2]]
    return whole_number(every, "every"), 0.0
