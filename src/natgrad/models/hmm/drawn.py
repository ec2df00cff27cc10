"""Draws, linear response and simulated data of hidden Markov models: what the engine asks of the model for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad.models.hmm.inputs import InputChain
from natgrad.models.hmm.priors import walk
from natgrad.models.hmm.tracks import Tracks, own_of, parts_of
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
        n_states_: int
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
        _refuse_simulation(self._model_)
        problem = self._draws_problem(np.full((1, self.n_features_in_), np.nan))
        truth, chain = drawn_from_priors(problem, rng), problem.model.chain
        first, steps = truth["initial"], truth["transition"]
        if chain is not None:
            with np.errstate(divide="ignore"):  # what is forbidden
                logs = {n: problem.blocks[n].family.stats_of(truth[n]) for n in ("initial", "transition", "duration")}
            first, steps = chain.weights(logs)
        path = walk(np.cumsum(np.vstack([first, steps]), axis=1), rng.random(size))
        states = path if chain is None else chain.states[path]
        emission = problem.model.emission
        lam = {name: as_means(problem, name, truth) for name in problem.emitted}
        return truth, emission.draw(own_of(emission, lam), states, rng), states

    def _with_same_priors(self) -> dict[str, Any]:
        return {"_model": lambda X: self._model_, "n_states": self.n_states_}  # also where it was found

    def _renumbered(self, name: str, value: Any, order: Any) -> Any:
        part = parts_of(self._model_.emission).get(name)
        if part is not None and part.shape == (1,):  # one matrix for all states, behind their means
            return np.concatenate([value[..., order], value[..., len(order) :]], axis=-1)
        return value[..., order, :][..., order] if name == "transition" else value[order]


def _refuse_simulation(model: HMMModel) -> None:
    """Models whose data cannot be drawn from their priors alone, or whose parameters have no labels to compare them by."""
    tracks = model.emission.tracks if isinstance(model.emission, Tracks) else ()
    for refused, why in (
        (isinstance(model.chain, InputChain), "inputs= are known and not drawn"),
        (any(t.n_components > 1 for t in tracks), "components of a Mixture() can change places within their state"),
        (any(t.order for t in tracks), "of Autoregressive() the first observations are given and not drawn"),
    ):
        if refused:
            raise TypeError(f"calibrate: {why}; declare the model as a network, whose calibrate() simulates all of it")
