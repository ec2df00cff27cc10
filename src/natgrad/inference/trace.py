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
    "Cost",
    "ProposalRecord",
    "Reason",
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


@dataclass(frozen=True)
class ProposalRecord:
    """A state that was proposed to the run (`natgrad.inference.proposals`), what it cost to judge it, and whether it was kept.

    Parameters
    ----------
    t : int
        The step after which it was proposed.
    kind : str
        "start", "probe", or a move of components: "birth", "births", "merge", "delete", "exchange", "anew", "order", "explore".
    name : str
        Which one: of a start where it comes from, of a probe what it changes, of a move the plate of the components.
    sweeps, messages, seconds : what was made for it, its own construction included
    bound : float
        The ELBO that it was compared with; of starts, which are compared with one another, its own after its sweeps.
    gain : float
        How much higher its sweeps led; −∞ where it was refused before any.
    accepted : bool
    components : tuple of int
        Of a birth, the one that was split and the new ones; of several births at once, those that were split and then all that
        are new; of topics from a start of their own, how many; of a merge, the one that is left and the one that is empty; of an
        exchange, these and the one that was split; of another order, the one that is in each place now.
    n_active : int
        Of a move, the number of components after it.
    held : float
        Observations in the components of which a move was made.
    """

    t: int
    kind: str
    name: str
    sweeps: float
    messages: int
    seconds: float = field(compare=False)
    bound: float
    gain: float
    accepted: bool
    components: tuple[int, ...] = ()
    n_active: int = 0
    held: float = 0.0


class Cost(NamedTuple):
    """How many proposals of a kind were judged, how many were kept, and what that took."""

    tried: int
    accepted: int
    sweeps: float
    messages: int
    seconds: float


class Trace:
    """Columns of numbers with one entry for each step, as in ``trace["elbo"]``.

    ``elbo`` is the exact bound (NaN where it was not evaluated), ``elbo_estimate`` what the mini-batch says of it,
    ``messages_read`` the messages read so far, ``seconds`` the time so far, ``relative_change`` how far λ moved, ``held_out``
    the score of held-out data (NaN where it was not evaluated). ``strategy`` says in words how the steps are taken, and why.
    ``proposals`` lists every state that was judged beside the run's own steps, with its sweeps, messages (which are among
    ``messages_read``), seconds and fate; `starts` are those before the first step, the best first, and `moves` those of
    components. `costs` sums them up.
    ``schedule`` has the name of the schedule ("memoised", "sampled"; "" for exact sweeps) and its number of steps a pass, and
    ``inference`` says both with what was run: "VB, memoised, 37 passes".
    Where K is found, ``first_sizes`` has the number of components before the first step, by plate; `n_active` that after each.
    """

    columns = StepRecord._fields

    def __init__(self, records: list[StepRecord] | None = None) -> None:
        self._records = list(records or [])
        self.strategy = ""
        self.schedule = ("", 1)
        self.proposals: list[ProposalRecord] = []
        self.first_sizes: dict[str, int] = {}

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
        self._records, self.proposals = list(other._records), list(other.proposals)
        self.schedule, self.first_sizes = other.schedule, dict(other.first_sizes)

    @property
    def starts(self) -> tuple[ProposalRecord, ...]:
        """The starts that were compared, the one that was taken first; none if there was one."""
        return tuple(record for record in self.proposals if record.kind == "start")

    @property
    def moves(self) -> tuple[ProposalRecord, ...]:
        """The births, merges, deletes and exchanges of components that were proposed."""
        return tuple(record for record in self.proposals if record.kind not in ("start", "probe"))

    @property
    def costs(self) -> dict[str, Cost]:
        """What "starts", "probes" and "moves" took, as far as there were any."""
        probes = tuple(record for record in self.proposals if record.kind == "probe")
        kinds = {"starts": self.starts, "probes": probes, "moves": self.moves}
        return {
            name: Cost(
                len(records), sum(r.accepted for r in records), sum(r.sweeps for r in records),
                sum(r.messages for r in records), sum(r.seconds for r in records),
            )
            for name, records in kinds.items() if records
        }  # fmt: skip

    @property
    def effort(self) -> str:
        """The passes of the run, and those that were made to judge proposals, on one line; empty if nothing was proposed."""
        if not self.proposals:
            return ""
        passes = (self.last.t if self._records else 0) / self.schedule[1]
        costs = [
            f"{cost.sweeps:,.4g} for {cost.tried} {name if cost.tried > 1 else name[:-1]}"
            for name, cost in self.costs.items()
        ]
        return ", ".join([f"passes: {passes:,.4g} of the run", *costs])

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
        names = list(self.first_sizes)
        if not names:
            return np.zeros(0, np.int64)
        if plate is None and len(names) > 1:
            raise ValueError(f"several plates grow: say which, one of {', '.join(names)}")
        if plate is not None and plate not in names:
            raise KeyError(f"no components move along {plate!r}; plates that grow are {', '.join(names)}")
        own = [move for move in self.moves if move.name == (plate or names[0])]
        # A move that was accepted after step t led to the state of the next line; components may also empty by themselves.
        sizes = [self.first_sizes[plate or names[0]], *(move.n_active for move in own)]
        times = np.array([move.t for move in own])
        return np.array([sizes[int(np.searchsorted(times, r.t))] for r in self._records], np.int64)

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
        lines += [
            f"{'started from' if s.accepted else '         not'} {s.name}: {s.bound:.6g} after {s.sweeps:.4g} sweeps"
            for s in self.starts
        ]
        lines += [self.effort] if self.proposals else []
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
