"""What happened, step by step, and why it ended; a warning, at the line of the user's program, if it has not converged."""

from __future__ import annotations

import enum
import functools
import math
import os
import sys
import warnings
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.errors import NotConverged

__all__ = [
    "MoveRecord",
    "Reason",
    "StartRecord",
    "StepRecord",
    "Stop",
    "Trace",
    "levels_to_the_caller",
    "warn_if_ran_out",
]

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class StepRecord(NamedTuple):
    """One line of the trace."""

    t: int
    elbo: float
    elbo_estimate: float
    rho: float
    relative_change: float
    messages_read: int
    seconds: float
    held_out: float = math.nan


class StartRecord(NamedTuple):
    """One of the starts that were compared: what it is, how many steps it made, and its bound after them."""

    name: str
    steps: int
    bound: float


class MoveRecord(NamedTuple):
    """A move that was proposed (`natgrad.inference.moves`): after which step, along which plate, what and which components.

    ``components`` are, of a birth, the one that was split and the new ones; of several births at once, those that were split
    and then all that are new; of topics begun anew, how many; of a merge, the one that is left and the one that is empty; of an
    exchange, these and the one that was split; of another order, the one that is in each place now. ``bound`` is the exact bound
    before it, ``gain`` how much higher the passes after it led, or less where it was refused (−∞ where it was refused before
    any pass), ``n_active`` the number of components after it, and ``held`` what the components held of which it was made. The
    number at the start is a record, too.
    """

    t: int
    plate: str
    kind: str
    components: tuple[int, ...]
    bound: float
    gain: float
    accepted: bool
    n_active: int
    held: float


class Trace:
    """Columns of numbers with one entry for each step, as in ``trace["elbo"]``.

    ``elbo`` is the exact bound (NaN where it was not evaluated), ``elbo_estimate`` what the mini-batch says of it,
    ``messages_read`` the messages read so far, ``seconds`` the time so far, ``relative_change`` how far λ moved, ``held_out``
    the score of held-out data (NaN where it was not evaluated). ``strategy`` says in words how the steps are taken, and why.
    ``starts`` lists the starts that were compared before the first step, the one that was taken first; none if there was one.
    ``spent`` has the messages that ``"starts"``, ``"probes"``, ``"restarts"`` and ``"moves"`` read, which are among
    ``messages_read``; files do not keep it.
    ``schedule`` has the name of the schedule ("memoised", "sampled"; "" for exact sweeps) and its number of steps a pass, and
    ``inference`` says both with what was run: "VB, memoised, 37 passes".
    ``moves`` lists the births, merges and deletes that were proposed, where K is found, and `n_active` has K after each step.
    """

    columns = StepRecord._fields

    def __init__(self, records: list[StepRecord] | None = None) -> None:
        self._records = list(records or [])
        self.strategy = ""
        self.schedule = ("", 1)
        self.starts: tuple[StartRecord, ...] = ()
        self.moves: list[MoveRecord] = []
        self.spent: dict[str, int] = {}

    def append(self, record: StepRecord) -> None:
        """Add one step."""
        self._records.append(record)

    def pop(self) -> StepRecord:
        """Take back the last step: the guard did not accept it."""
        return self._records.pop()

    def note(self, held_out: float) -> None:
        """Write a held-out score beside the last step."""
        self._records[-1] = self._records[-1]._replace(held_out=held_out)

    def bounded(self, elbo: float) -> None:
        """Write the bound of what closing phases led to beside the last step."""
        if self._records:
            self._records[-1] = self._records[-1]._replace(elbo=elbo)

    def take_over(self, other: Trace) -> None:
        """Have the lines of another trace in place of one's own."""
        self._records, self.starts, self.moves = list(other._records), other.starts, list(other.moves)
        self.schedule, self.spent = other.schedule, dict(other.spent)

    @property
    def inference(self) -> str:
        """Variational inference, its schedule, and how long it ran, on one line."""
        name, steps_per_pass = self.schedule
        unit = {"": "sweep", "memoised": "pass"}.get(name, "step")
        number = round((self.last.t if self._records else 0) / steps_per_pass, 1)
        plural = "" if number == 1 else "es" if unit == "pass" else "s"
        return ", ".join(part for part in ("VB", name, f"{number:,g} {unit}{plural}") if part)

    def n_active(self, plate: str | None = None) -> npt.NDArray[np.int64]:
        """The number of components after each step; ``plate`` says of which, if several plates grow. Empty if none does."""
        names = list(dict.fromkeys(move.plate for move in self.moves))
        if not names:
            return np.zeros(0, np.int64)
        if plate is None and len(names) > 1:
            raise ValueError(f"several plates grow: say which, one of {', '.join(names)}")
        if plate is not None and plate not in names:
            raise KeyError(f"no components move along {plate!r}; plates that grow are {', '.join(names)}")
        own = [move for move in self.moves if move.plate == (plate or names[0])]
        # A move that was accepted after step t led to the state of the next line; components may also empty by themselves.
        times = np.array([-1 if move.kind == "start" else move.t for move in own])
        return np.array([own[int(np.searchsorted(times, r.t)) - 1].n_active for r in self._records], np.int64)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name not in self.columns:
            raise KeyError(f"the trace has no column {name!r}; it has {', '.join(self.columns)}")
        return np.array([getattr(record, name) for record in self._records])

    def __len__(self) -> int:
        return len(self._records)

    @property
    def last(self) -> StepRecord:
        """The most recent step."""
        return self._records[-1]

    @property
    def records(self) -> tuple[StepRecord, ...]:
        """The lines themselves."""
        return tuple(self._records)

    def to_frame(self) -> Any:
        """The trace as a pandas DataFrame."""
        try:
            import pandas
        except ImportError:
            raise ImportError("trace.to_frame() needs pandas: pip install 'natgrad[table]'") from None
        return pandas.DataFrame(self._records, columns=list(self.columns)).set_index("t")

    def __repr__(self) -> str:
        if not self._records:
            return "Trace(no steps)"
        last = self._records[-1]
        return f"Trace({len(self)} steps, elbo {last.elbo:.6g}, {last.messages_read:,} messages, {last.seconds:.3g} s)"

    def __str__(self) -> str:
        shown = self._records if len(self) <= 12 else [*self._records[:6], None, *self._records[-5:]]
        lines = [self.strategy] if self.strategy else []
        lines += [f"started from {s.name}: {s.bound:.6g} after {s.steps} steps" for s in self.starts[:1]]
        lines += [f"           not {s.name}: {s.bound:.6g} after {s.steps}" for s in self.starts[1:]]
        if self.spent:
            shares = ", ".join(f"{what} {read:,}" for what, read in self.spent.items())
            lines += [f"of {self.last.messages_read if self._records else 0:,} messages: {shares}"]
        lines += [f"{'t':>6} {'elbo':>16} {'rho':>9} {'change':>9} {'messages':>12} {'seconds':>9}"]
        for r in shown:
            lines.append(
                "     …"
                if r is None
                else f"{r.t:>6} {r.elbo:>16.6f} {r.rho:>9.3g} {r.relative_change:>9.2e} {r.messages_read:>12,} {r.seconds:>9.3f}"
            )
        return "\n".join(lines)


class Reason(enum.Enum):
    """Why a run ended."""

    TOLERANCE = "less than tol is left to gain"
    STEPS = "all steps were taken"
    PASSES = "the data were read as often as allowed"
    PHASES = "all phases were run"
    SECONDS = "the time was up"
    MESSAGES = "as many messages were read as allowed"
    CALLBACK = "a callback asked to stop"
    DIVERGED = "a step left the space of valid parameters"


@dataclass(frozen=True)  # with slots, early releases of Python 3.11 would replace __getstate__
class Stop:
    """The reason a run ended, and in words what happened and what to do about it.

    ``ran_out`` says whether a limit, or the guard, ended a run that was to go on until it had converged; files do not keep it.
    """

    reason: Reason
    message: str = field(default="")
    ran_out: bool = field(default=False, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """The reason by its name: libraries such as skops rebuild objects from their state, and no enumeration."""
        return {"reason": self.reason.name, "message": self.message, "ran_out": self.ran_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in {**state, "reason": Reason[state["reason"]]}.items():
            object.__setattr__(self, name, value)

    @property
    def converged(self) -> bool:
        """Whether the run ended because less than the tolerance was left to gain."""
        return self.reason is Reason.TOLERANCE

    @property
    def diverged(self) -> bool:
        """Whether the guard ended the run; the state is the last good one."""
        return self.reason is Reason.DIVERGED

    def __str__(self) -> str:
        return self.message or self.reason.value


def warn_if_ran_out(stop: Stop) -> None:
    """Warn of a fit that has not converged; ``tol=0`` asks for all steps, and says nothing."""
    if stop.ran_out:
        words = f"the fit has not converged: {stop}"
        warnings.warn(words, _category(), stacklevel=levels_to_the_caller())


def _category() -> type[Warning]:
    """Ours; one that is also scikit-learn's where that is loaded: nobody else can ask for it by its class."""
    theirs = sys.modules.get("sklearn.exceptions")
    return NotConverged if theirs is None else _as_theirs(theirs.ConvergenceWarning)


@functools.cache
def _as_theirs(theirs: type[Warning]) -> type[Warning]:
    return type("ConvergenceWarning", (NotConverged, theirs), {"__module__": __name__, "__doc__": NotConverged.__doc__})


def levels_to_the_caller() -> int:
    """How far above who asks the first line stands that is not of this package: the ``stacklevel`` of a warning."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    return level
