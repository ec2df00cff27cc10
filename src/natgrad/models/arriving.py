"""Components in a stream: the first chunk is fitted in memory, later ones are looked through for components that came with them.

A model whose number of components is found says what its components are (`_components`), how a chunk looks with room for the most
(`_room`), and which problem those make that hold something (`_narrowed`). The rest is here, and in `natgrad.inference.arrivals`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

from natgrad.errors import NotConverged
from natgrad.inference.trace import Trace

if TYPE_CHECKING:
    from natgrad.inference.group_components import GroupComponents
    from natgrad.inference.problem import GroupProblem, GroupResult, State
    from natgrad.inference.steppers.groups import Look

__all__ = ["ArrivingMixin"]


class ArrivingMixin:
    """What a ready model does with components that are found in a stream, or by one `partial_fit` after the other."""

    trace_: Trace
    max_passes: float | None

    def _components(self, problem: Any) -> GroupComponents:
        """The components of a problem."""
        raise NotImplementedError

    def _room(self, problem: Any, state: State) -> tuple[GroupProblem, dict[str, Any]] | None:
        """The same groups with room for the most components, and all hyper-parameters; None if there is none."""
        raise NotImplementedError

    def _narrowed(self, problem: Any, wide: Any, state: State) -> tuple[GroupProblem, State]:
        """The problem as it was, and the state, with the components that hold something in one with room."""
        raise NotImplementedError

    def _look(self: Any, before: float, here: float, note: Callable[[Any], None]) -> Look:
        """Looks for what came with ``here`` observations after so many ``before``; who goes on is told of a larger problem."""

        def look(
            problem: GroupProblem, state: State, solved: GroupResult, late: Callable[[], bool]
        ) -> tuple[GroupProblem, State] | None:
            from natgrad.inference.arrivals import Arrivals

            def kept(wide: Any, after: State) -> tuple[GroupProblem, State]:
                return self._narrowed(problem, wide, after)  # type: ignore[no-any-return]

            arrivals = Arrivals(self._components, self._room, kept, self.tol, int(self.seed), self.max_seconds)
            found = arrivals.look(problem, state, solved, before, here, late)
            self.trace_.moves += found.moves
            if found.grown is not None:
                note(found.grown[0])
            return found.grown

        return look

    def _found_in(self, moves: str | None, *data: Any, **named: Any) -> Any:
        """A model of the first chunk of a stream, which is in memory: a run begins with the components that are found there."""
        first: Any = copy(self)
        first.max_passes = type(self)().max_passes  # those that were given are of the stream
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConverged)  # what is to converge is the run over the stream
            first.fit(*data, moves=moves, **named)
        first._state = first._state._replace(t=0, memory={})
        self.trace_.moves += [record._replace(t=0) for record in first.trace_.moves]
        return first

    def _begun_with(self, fitted: Any) -> Any:
        """After a first `partial_fit` that was a fit: one step was made, and the data are gone."""
        fitted._state = fitted._state._replace(t=1, memory={})
        fitted.n_steps_, fitted._data = 1, None
        trace = Trace([fitted.trace_.last._replace(t=1)])
        trace.strategy, trace.schedule = fitted.trace_.strategy, fitted.trace_.schedule
        trace.moves = [m._replace(t=0) for m in fitted.trace_.moves]
        fitted.trace_ = trace
        return fitted

    def _trace_so_far(self) -> Trace:
        """A copy of the trace, for another `partial_fit` to write to: what a fit has set is never changed in place."""
        trace, before = Trace(), getattr(self, "trace_", Trace())
        trace.take_over(before)
        trace.strategy = before.strategy
        return trace
