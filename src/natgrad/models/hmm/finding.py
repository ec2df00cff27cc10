"""The number of states where it is found: settings in; the states that move, in all data or in a part of a stream, out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from natgrad.models.hmm.priors import Transitions
from natgrad.models.rows import number_of

if TYPE_CHECKING:
    from natgrad.inference.moves import Moves
    from natgrad.inference.problem import State
    from natgrad.models.hmm.components import HMMComponents
    from natgrad.models.hmm.problem import HMMModel, SequenceProblem

__all__ = ["MAX_STATES", "FoundStates"]

# The most states that "auto" finds.
MAX_STATES = 20


class FoundStates:
    """What every hidden Markov model does where ``n_states="auto"``, or ``moves="keep"``."""

    if TYPE_CHECKING:
        n_states: Any
        transitions: Transitions | None
        n_jobs: int | None

    @property
    def _finds_number(self) -> str:
        return 'n_states="auto"' if isinstance(self.n_states, (str, tuple, list)) else ""

    @property
    def _places(self) -> int:
        """The states that the model has room for."""
        return number_of(self.n_states, "n_states", MAX_STATES)[0]

    @property
    def _transitions(self) -> Transitions:
        """The setting ``transitions``, checked."""
        if not isinstance(given := Transitions() if self.transitions is None else self.transitions, Transitions):
            raise TypeError(f"transitions must be Transitions(…) of natgrad.models.hmm, got {given!r}")
        return given

    def _moves(self, problem: SequenceProblem, keep: Any) -> Moves | None:
        if keep is None and not self._finds_number:
            return None
        from natgrad.inference.moves import checked_moves

        if self._transitions.topology != "ergodic":
            raise ValueError(
                f"states of topology={self._transitions.topology!r} have an order, in which none can be born or merged"
            )
        if problem.model.chain is not None:
            raise ValueError('durations and inputs have no moves of states: leave out moves="keep"')
        return checked_moves((self._components(problem),), keep, self._finds_number)

    def _components(self, problem: SequenceProblem) -> HMMComponents:
        from natgrad.models.hmm.components import HMMComponents

        return HMMComponents(problem)

    def _with_number(self, model: HMMModel, number: int) -> HMMModel:
        """The priors of so many of the states that there is room for; all are alike where they are found."""
        from natgrad.models.hmm.components import with_states
        from natgrad.models.hmm.problem import HMMModel

        if number == model.n_states:
            return model
        return HMMModel(model.initial[:number], model.transition[:number, :number], with_states(model.emission, number))

    def _room(self, problem: SequenceProblem, state: State) -> tuple[SequenceProblem, dict[str, Any]] | None:
        from natgrad.models.hmm.components import with_states
        from natgrad.models.hmm.problem import HMMModel, SequenceProblem

        if self._places <= problem.model.n_states:
            return None
        wide = HMMModel(
            *self._transitions.concentrations(self._places, shared=True),
            with_states(problem.model.emission, self._places),
        )
        return SequenceProblem(problem.data, wide, n_jobs=self.n_jobs, truncated=True), {}

    def _narrowed(self, problem: SequenceProblem, wide: SequenceProblem, state: State) -> tuple[SequenceProblem, State]:
        from natgrad.models.hmm.components import found_states
        from natgrad.models.hmm.problem import SequenceProblem

        model, after = found_states(wide.model, state)
        return SequenceProblem(problem.data, model, population=problem.population, n_jobs=self.n_jobs), after
