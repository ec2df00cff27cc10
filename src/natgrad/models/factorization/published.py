"""The state of a run in; the fitted attributes of a factorisation out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad.data.held import HeldRatings
from natgrad.inference.engine import Result
from natgrad.inference.trace import Reason, Stop
from natgrad.models.factorization.newcomers import Later
from natgrad.posterior.export import Posterior, factors_of
from natgrad.posterior.factor import Factor

if TYPE_CHECKING:
    from natgrad.data.ratings import Ratings
    from natgrad.inference.problem import Problem, State
    from natgrad.inference.trace import Trace
    from natgrad.models.factorization.gibbs import KeptDraws
    from natgrad.models.factorization.likelihoods import LikelihoodModel

__all__ = ["Factors", "PublishedFactors", "Subject", "switched_off"]

Floats = npt.NDArray[np.float64]


class Subject:
    """What is published along with a state; the problem is that of the last phase."""

    problem: Problem

    def __init__(self, kind: LikelihoodModel, ratings: Ratings) -> None:
        self.kind, self.ratings = kind, ratings

    def published(self, result: Result) -> tuple[LikelihoodModel, Ratings, Result, dict[str, Factor]]:
        """The likelihood, the ratings, the result and its factors."""
        return self.kind, self.ratings, result, factors_of(self.problem.blocks, result.state)


class Factors(NamedTuple):
    """Means and standard deviations of a side's factors, both [rows, K]."""

    mean: Floats
    sd: Floats


def spread_of(moments: tuple[Floats, Floats]) -> Factors:
    """Means and standard deviations from E[x] [rows, D] and E[x²] [rows, D] or E[x xᵀ] [rows, D, D]."""
    mean, second = moments
    squares = second if second.ndim == mean.ndim else np.einsum("rdd->rd", second)
    return Factors(np.array(mean), np.sqrt(np.maximum(squares - mean**2, 0.0)))


# Part of the largest factor's squared products below which a factor is switched off.
SWITCHED_OFF = 1e-6


def switched_off(user: Floats, item: Floats) -> npt.NDArray[np.bool_]:
    """Which factors are, by the means of both sides [rows, K]."""
    energy = (user**2).sum(0) * (item**2).sum(0)
    return ~np.asarray(energy > SWITCHED_OFF * energy.max(initial=0.0))


class PublishedFactors:
    """The fitted attributes of `MatrixFactorization`, set together."""

    if TYPE_CHECKING:
        _data: HeldRatings | None
        _kept_draws: KeptDraws | None
        _newcomers: Any
    else:
        ratings_, result_, posterior_, n_factors_ = Later(), Later(), Later(), Later()
        user_factors_, item_factors_, user_biases_, item_biases_ = Later(), Later(), Later(), Later()
        _predictor, _data = Later(), Later()

    def _publish(self, subject: Any, state: State) -> None:
        """What a callback sees: the fit as it would be if the run ended at a state."""
        result = Result(state, self.trace_, Stop(Reason.CALLBACK, "the run goes on"))
        self._published(*subject.published(result))

    def _published(
        self, kind: LikelihoodModel, ratings: Ratings, result: Result, posterior: Mapping[str, Factor] | None
    ) -> None:
        self.ratings_, self._data = ratings, HeldRatings(ratings)
        self.n_features_in_: int = ratings.n_items
        self.result_: Result = result
        self.trace_: Trace = result.trace
        self.stop_: Stop = result.stop
        self.n_steps_: int = result.state.t
        if posterior is None:
            old, lam = vars(self).get("_q", self.posterior_), result.state.lam
            posterior = {name: Factor(name, old[name].family, old[name].plates, lam[name]) for name in old}
        labels = {"user": ratings.user_ids, "item": ratings.item_ids}
        self.posterior_: Posterior = Posterior(posterior, axes=dict.fromkeys("uv", ("factor",)), labels=labels)
        # What was fitted, kept apart from the parameters, which may be changed before the next fit.
        self._kind = kind
        self.offset_ = kind.offset
        self.noise_per_: str | None = kind.saved()["settings"]["noise_per"]
        self._predictor: Any = kind.predictor(result.state, ratings)
        self.levels_ = (kind.saved().get("learned") or {}).get("levels")
        self._kept_draws = None
        for gone in ("draws_", "_q", "_newcomers"):
            vars(self).pop(gone, None)
        self.user_factors_ = self.item_factors_ = self.user_biases_ = self.item_biases_ = None
        self.n_factors_: int = 0
        sides = [spread_of(pair) for pair in (self._predictor.user, self._predictor.item)]
        cut = kind.n_factors
        self.user_factors_, self.item_factors_ = (Factors(q.mean[:, :cut], q.sd[:, :cut]) for q in sides)
        self.n_factors_ = int((~switched_off(self.user_factors_.mean, self.item_factors_.mean)).sum())
        biased = sides[0].mean.shape[1] > cut
        self.user_biases_, self.item_biases_ = (
            Factors(q.mean[:, cut], q.sd[:, cut]) if biased else None for q in sides
        )
