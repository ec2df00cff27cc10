"""What a model file keeps of a fitted hidden Markov model: q of its parameters and their priors; not the sequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from natgrad.models.saving import SaveMixin

if TYPE_CHECKING:
    from natgrad.models.hmm_problem import HMMModel
    from natgrad.problem import State

__all__ = ["HMMFiles"]

# There after a fit, but not after partial_fit alone.
OF_A_RUN = ("trace_", "stop_")


class HMMFiles(SaveMixin):
    """The hooks of `SaveMixin` for hidden Markov models."""

    n_times_seen_: int
    n_features_in_: int
    elbo_: float
    _state: State
    _model_: HMMModel

    def _publish(self, model: HMMModel, state: State) -> None:
        raise NotImplementedError

    def _saved(self) -> dict[str, Any]:
        model = self._model_
        return {
            "state": self._state,
            "initial": model.initial,
            "transition": model.transition,
            "emission": type(model.emission).__name__,
            "arguments": model.emission.arguments,
            "n_times_seen": self.n_times_seen_,
            "n_features": self.n_features_in_,
            "elbo": self.elbo_,
            "run": {name: getattr(self, name) for name in OF_A_RUN if hasattr(self, name)},
        }

    def _restore(self, saved: Mapping[str, Any]) -> None:
        from natgrad.models.hmm_emissions import EMISSIONS  # Numba takes a while to import
        from natgrad.models.hmm_problem import HMMModel

        if saved["emission"] not in EMISSIONS:
            raise ValueError(f"emissions of kind {saved['emission']!r}")
        emission = EMISSIONS[saved["emission"]](**saved["arguments"])
        self._publish(HMMModel(saved["initial"], saved["transition"], emission), saved["state"])
        self.n_times_seen_, self.n_features_in_ = saved["n_times_seen"], saved["n_features"]
        self.elbo_ = saved["elbo"]
        for name in OF_A_RUN:
            if name in saved["run"]:
                setattr(self, name, saved["run"][name])
