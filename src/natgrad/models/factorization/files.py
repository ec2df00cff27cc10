"""Publish a fit of `MatrixFactorization` as its attributes, and keep it in model files: q, the ratings and the kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from natgrad._version import __version__
from natgrad.data.held import HeldRatings
from natgrad.data.ratings import Ratings
from natgrad.inference.engine import Result
from natgrad.inference.schema import check, either, pair_of, point_of, record, refuse, state_of
from natgrad.inference.trace import Reason, Stop, Trace
from natgrad.models.base import Estimator
from natgrad.models.factorization.checks import FactorPriors, RatingSettings, check_settings
from natgrad.models.factorization.likelihoods import LikelihoodModel, likelihood_of
from natgrad.models.factorization.rows import Later
from natgrad.models.registry import EVERY_MODEL
from natgrad.posterior.export import Posterior, factors_of
from natgrad.posterior.factor import Factor
from natgrad.posterior.files.tables import RUN, memory_of

if TYPE_CHECKING:
    from natgrad.data.ratings import Ratings
    from natgrad.inference.problem import Problem, State
    from natgrad.inference.trace import Trace
    from natgrad.models.factorization.gibbs import KeptDraws
    from natgrad.models.factorization.likelihoods import LikelihoodModel
    from natgrad.posterior.draws import Draws
    from natgrad.posterior.export import Posterior

__all__ = ["Factors", "RatingFiles", "Subject", "run_table", "switched_off"]

# What is fitted; the kind of a fit has the same, as it was then.
OF_THE_KIND: dict[str, Any] = {
    "n_factors": "size factor",
    "likelihood": "'gaussian' | 'bernoulli' | 'ordinal' | 'poisson'",
    "biases": "flag",
    "learn_noise": "flag",
    "learn_priors": "flag",
    "noise_per": "none | 'user' | 'item' | 'both'",
    "noise_dof": "positive",
    "noise_precision": "none | positive",
    "prior_precision": "none | positive",
    "n_negatives": "none | real in [0, 1e4]",
}
PRIORS = record(
    FactorPriors, precision="'learn' | positive", biases="none | flag", n_negatives="none | real in [0, 1e4]"
)  # fmt: skip
SETTINGS: dict[str, Any] = {
    **{name: RUN[name] for name in RUN if name != "step"},
    **{name: OF_THE_KIND[name] for name in ("n_factors", "likelihood")},
    "noise": either("none | 'learn' | 'user' | 'item' | 'both' | positive", ("'user' | 'item' | 'both'", "positive")),
    "priors": either("none", PRIORS),
    "max_steps": "natural",
    "max_seconds": "none | positive",
    "inference": "'vb' | 'gibbs'",
    "n_sweeps": "none | whole in [2, 1e6]",
}
RATINGS = record(
    Ratings,
    user_ids="ids [user]",
    item_ids="ids [item]",
    users="whole [rating] in [0, user)",
    items="whole [rating] in [0, item)",
    values="real [rating]",
)
FEATURES = {"u?": "real [user_row, user_feature]", "v?": "real [item_row, item_feature]"}
# What was taken from the data, by likelihood.
LEARNED: dict[str, Any] = {
    "gaussian": {"offset": "real", "variance": "positive", "features?": FEATURES},
    "ordinal": {"offset": "real", "levels": "real [level]", "cuts": "real [cut]", "features?": FEATURES},
    "bernoulli": {
        "offset": "real",
        "variance?": "positive",
        "negatives?": "positive",
        "features?": FEATURES,
    },
}
# Draws of Gibbs sampling, in single precision.
DRAWN = {
    "user": "real [draw, user, number]",
    "user_mean": "real [draw, user, number]",
    "item": "real [draw, item, number]",
    "noise": "positive [draw]",
    "user_noise": "nonnegative [draw, _]",
    "item_noise": "nonnegative [draw, _]",
    "sweeps": "natural",
}
ALONG = {"trace": Trace, "stop": Stop, "elbo": "float"}


def blocks_of(kind: Mapping[str, Any], learned: Mapping[str, Any]) -> dict[str, str]:
    """The table of every block of a kind with these settings; "number" is a factor, or the bias."""
    features = learned.get("features") or {}
    if kind["likelihood"] == "poisson":
        return {
            "user_rate": "Gamma [user]",
            "u": "Gamma [user, factor]",
            "item_rate": "Gamma [item]",
            "v": "Gamma [item, factor]",
        }
    gaussian = kind["likelihood"] == "gaussian"
    blocks = {"u": "MultivariateNormal [user; number]", "v": "MultivariateNormal [item; number]"}
    for side, name in (("u", "user"), ("v", "item")):
        if kind["learn_priors"]:
            blocks[f"{name}_precision"] = "Gamma [number]"
        if side in features:
            blocks[f"{name}_map"] = f"MultivariateNormal [number; {name}_feature]"
        if gaussian and kind["noise_per"] in (name, "both"):
            blocks[f"{name}_noise"] = f"Gamma [{name}]"
    if kind["learn_noise"] and (gaussian or learned.get("negatives")):
        blocks["noise"] = "Gamma []"
    return blocks


def _state(kind: Mapping[str, Any], learned: Mapping[str, Any]) -> Any:
    blocks = blocks_of(kind, learned)
    points = {name: point_of(rule) for name, rule in blocks.items()}
    return state_of(blocks, memory=memory_of(points, pair_of(blocks)))


def _sizes_of(kind: Mapping[str, Any], sizes: dict[str, int]) -> None:
    sizes.update(factor=int(kind["n_factors"]), number=int(kind["n_factors"]) + int(bool(kind["biases"])))


def run_table(kind: LikelihoodModel, ratings: Ratings) -> tuple[Any, dict[str, int]]:
    """The table of a state of a run, and its sizes."""
    saved = kind.saved()
    learned = saved.get("learned") or {}
    features = learned.get("features") or {}
    sizes = {"user": ratings.n_users, "item": ratings.n_items, "rating": len(ratings)}
    sizes |= {f"{'user' if side == 'u' else 'item'}_feature": table.shape[1] for side, table in features.items()}
    _sizes_of(saved["settings"], sizes)
    return _state(saved["settings"], learned), sizes


class RatingFiles(Estimator):
    """The hooks of `Estimator` for `MatrixFactorization`."""

    kind: ClassVar[str] = "ratings"
    abilities: ClassVar[frozenset[str]] = EVERY_MODEL | {
        "n_jobs", "partial_fit", "executor", "linear_response", "missing", "predict", "recommend",
    }  # fmt: skip
    trace_: Trace
    stop_: Stop
    elbo_: float
    draws_: Draws
    _kind: LikelihoodModel
    _kept_draws: KeptDraws | None
    if TYPE_CHECKING:
        ratings_: Ratings
        result_: Result
        posterior_: Any
        _predictor: Any
        _data: HeldRatings | None
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
            self.__dict__.pop(gone, None)
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

    def _saved(self) -> dict[str, Any]:
        return {
            "ratings": self.ratings_,
            "state": self.result_.state,
            "trace": self.trace_,
            "stop": self.stop_,
            "posterior": dict(self._factors_of_q()),
            "elbo": self.elbo_,
            "kind": self._kind.saved(),
            **({} if self._kept_draws is None else {"drawn": self._kept_draws._asdict()}),
        }

    def _restore(self, saved: Mapping[str, Any]) -> None:
        check_settings(self)
        result = Result(saved["state"], saved["trace"], saved["stop"])
        self.elbo_ = saved["elbo"]
        kept = saved["kind"]
        kind = likelihood_of(RatingSettings(**kept["settings"]), saved["ratings"], kept.get("learned"))
        self._published(kind, saved["ratings"], result, saved["posterior"])
        if saved.get("drawn") is not None:
            from natgrad.models.factorization.gibbs import KeptDraws

            self._show_draws(KeptDraws(**saved["drawn"]))

    def _show_draws(self, kept: KeptDraws) -> None:
        """Have the posterior and predictions be those of draws."""
        from natgrad.models.factorization.drawn import DrawnPredictor, draws_of

        q = self._predictor
        self._kept_draws = kept
        self._predictor = DrawnPredictor(q, kept)
        self._q, self.elbo_ = self.posterior_, float("nan")
        self.draws_ = draws_of(kept, int(self.seed), __version__, self._q)
        self.posterior_ = self.draws_
        self.user_factors_ = self.item_factors_ = None
        self.n_factors_ = kept.item.shape[2] - q.biased
        if q.biased:
            biases = (values[..., -1].astype(np.float64) for values in (kept.user, kept.item))
            self.user_biases_, self.item_biases_ = (Factors(drawn.mean(0), drawn.std(0)) for drawn in biases)

    def _factors_of_q(self) -> Posterior:
        """The variational factors: the posterior of VB, the start of Gibbs sampling."""
        posterior: Posterior = vars(self).get("_q", self.posterior_)
        return posterior

    @classmethod
    def _settings_table(cls) -> Mapping[str, Any]:
        return SETTINGS

    @classmethod
    def _tables(cls, settings: Mapping[str, Any], fitted: Mapping[str, Any]) -> tuple[Any, Any]:
        kept = fitted["kind"]
        check(kept, {"settings": dict, "learned?": dict}, where="fitted['kind']")
        kind, learned = kept["settings"], kept.get("learned") or {}
        check(kind, OF_THE_KIND, {"factor": kind.get("n_factors")}, "fitted['kind']['settings']")

        def of(value: Any, sizes: dict[str, int], where: str) -> None:
            _sizes_of(kind, sizes)
            check(fitted["ratings"], RATINGS, sizes, "ratings")
            _check_values(fitted["ratings"].values, kind["likelihood"])
            _check_learned(kept, sizes)
            if "levels" in learned and not np.isin(fitted["ratings"].values, learned["levels"]).all():
                refuse("ratings", "are not all on the levels of the scale")
            rest = {"ratings": Ratings, "posterior": dict, "kind": dict, "drawn?": DRAWN}
            check(value, {"state": _state(kind, learned), **rest, **ALONG}, sizes, where)
            _check_posterior(value["posterior"], blocks_of(kind, learned), value["state"].lam)

        same = {name: f"'{kind[name]}'" for name in ("likelihood",)}
        return {**SETTINGS, **same, "priors": _equal(kind)}, of


def _equal(kind: Mapping[str, Any]) -> Any:
    def of(value: Any, sizes: dict[str, int], where: str) -> None:
        check(value, SETTINGS["priors"], sizes, where)
        own = value or FactorPriors()
        if own.biases not in (None, bool(kind["biases"])):
            refuse(where, f"= {own} is not what was fitted")

    return of


def _check_values(values: Any, likelihood: str) -> None:
    if likelihood not in ("gaussian", "ordinal") and not ((values >= 0) & (values == np.round(values))).all():
        refuse("ratings", f"are no whole numbers ≥ 0, which {likelihood!r} takes")
    if likelihood == "bernoulli" and values.max() > 1:
        refuse("ratings", "are not all likes (1) or dislikes (0)")


def _check_learned(kept: Mapping[str, Any], sizes: dict[str, int]) -> None:
    """What the data had said; tables of features and popularity may end before users and items that came later."""
    settings, learned = kept["settings"], kept.get("learned")
    if settings["likelihood"] == "poisson":
        check(learned, "none", where="learned")
        return
    check(learned, LEARNED[settings["likelihood"]], sizes, "learned")
    assert learned is not None
    if "levels" in learned:
        levels, cuts = (np.asarray(learned[name]) for name in ("levels", "cuts"))
        if len(cuts) != len(levels) - 1 or not ((np.diff(levels) > 0).all() and (np.diff(cuts) > 0).all()):
            refuse("learned", "has levels or cutpoints that do not increase, or not one cutpoint less than levels")
    if settings["likelihood"] == "bernoulli" and ("negatives" in learned) != (settings["n_negatives"] != 0):
        refuse("learned", "says what pairs that are not stored count, and n_negatives says otherwise")
    for row, most in (("user_row", "user"), ("item_row", "item")):
        if sizes.get(row, 0) > sizes[most]:
            refuse("learned", f"tells of {sizes[row]} rows, and there are {sizes[most]} of {most!r}")


def _check_posterior(posterior: Mapping[str, Any], blocks: Mapping[str, str], lam: Mapping[str, Any]) -> None:
    """The factors are those of the state."""
    check(posterior, dict.fromkeys(blocks, Factor), where="posterior")
    for name, factor in posterior.items():
        family, plates = blocks[name].split(" [")
        wanted = [plate.strip() for plate in plates.rstrip("]").split(";")[0].split(",") if plate.strip()]
        wanted = ["factor" if plate == "number" else plate for plate in wanted]
        if (factor.name, type(factor.family).__name__, list(factor.plates)) != (name, family, wanted):
            refuse(f"posterior[{name!r}]", f"is not the factor of {name!r}")
        for field in ("origin", "seen", "values"):  # all is measured from zero, and hidden
            check(getattr(factor, field), "none", where=f"posterior[{name!r}].{field}")
        same = type(factor.lam) is tuple and len(factor.lam) == len(lam[name])
        if not same or not all(map(np.array_equal, factor.lam, lam[name])):
            refuse(f"posterior[{name!r}]", "is not that of the state")


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
