"""Draws, linear response and simulated data of hidden Markov models: what the engine asks of the model for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.models.hmm.priors import walk
from natgrad.models.hmm.tracks import own_of
from natgrad.models.uncertainty import as_means, drawn_from_priors, with_locations

if TYPE_CHECKING:
    from natgrad.data.sequences import Sequences
    from natgrad.models.hmm.problem import HMMModel, SequenceProblem
    from natgrad.posterior.draws import DrawnFactor

__all__ = ["StateDraws"]

Array = npt.NDArray[Any]


class StateDraws:
    """What `draws`, `posterior_covariance` and `calibrate` ask of a fitted hidden Markov model."""

    if TYPE_CHECKING:
        n_jobs: int | None
        n_features_in_: int
        _model_: HMMModel

        def _columns(self, X: Any, y: Any, lengths: Any, fresh: bool = False) -> tuple[Array, Any]: ...
        def _sequences(
            self, columns: Array, lengths: Any, labels: Any, emission: Any, held_out: bool = False
        ) -> Sequences: ...

    def _response_problem(self, X: Any, y: Any = None, lengths: Any = None, labels: Any = None) -> SequenceProblem:
        from natgrad.models.hmm.problem import SequenceProblem

        data = self._sequences(*self._columns(X, y, lengths), labels, self._model_.emission)
        return SequenceProblem(data, self._model_, n_jobs=self.n_jobs)

    def _draws_problem(self, X: Any, y: Any = None, lengths: Any = None, labels: Any = None) -> SequenceProblem:
        return self._response_problem(X, y, lengths, labels)

    def _drawn_as(self, problem: SequenceProblem, factors: dict[str, DrawnFactor]) -> dict[str, DrawnFactor]:
        emission: Any = problem.model.emission
        gaussian = hasattr(emission, "located")  # of several tracks each has its block
        return with_locations(factors, "emission", emission, "state") if gaussian else factors

    def _simulated(self, size: int, rng: np.random.Generator) -> tuple[dict[str, Any], Array, Array]:
        problem = self._draws_problem(np.full((1, self.n_features_in_), np.nan))
        truth = drawn_from_priors(problem, rng)
        rows = np.cumsum(np.vstack([truth["initial"], truth["transition"]]), axis=1)
        states = walk(rows, rng.random(size))
        emission = problem.model.emission
        lam = {name: as_means(problem, name, truth) for name in problem.emitted}
        return truth, emission.draw(own_of(emission, lam), states, rng), states

    def _with_same_priors(self) -> dict[str, Any]:
        return {"_model": lambda X: self._model_}

    def _renumbered(self, name: str, value: Any, order: Any) -> Any:
        if name == "emission" and getattr(self, "covariance", None) == "tied":
            return np.concatenate([value[..., order], value[..., len(order) :]], axis=-1)
        return value[..., order, :][..., order] if name == "transition" else value[order]
