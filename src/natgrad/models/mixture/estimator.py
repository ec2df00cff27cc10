"""Fit a mixture of Gaussians to rows: `GaussianMixture`.

    π ~ Dir(α),   Λ_k ~ Wishart(ν, R),   μ_k | Λ_k ~ N(m, (κ Λ_k)⁻¹),   z_n ~ Cat(π),   x_n ~ N(μ_z, Λ_z⁻¹)

Attias (2000); Bishop (2006), section 10.2. The loop, the steps, streams, clusters and files are those of every model of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, final

import numpy as np
import numpy.typing as npt
from sklearn.base import DensityMixin

from natgrad.inference.problem import State
from natgrad.inference.schema import check, either
from natgrad.inference.steppers.gibbs import point_stats
from natgrad.models.gaussian_prior import (
    COVARIANCES,
    covariance_of,
    finite_numbers,
    gaussian_of,
    gaussian_prior,
    prior_tables,
)
from natgrad.models.registry import EVERY_MODEL
from natgrad.models.rows import SETTINGS as ROW_SETTINGS
from natgrad.models.rows import RowEstimator, number_of
from natgrad.models.uncertainty import as_means, drawn_from_priors, with_locations
from natgrad.validation import require, whole_number

if TYPE_CHECKING:
    from natgrad.inference.moves import Moves
    from natgrad.inference.problem import State
    from natgrad.inference.starts import Starts
    from natgrad.models.hmm.kinds import Gaussian
    from natgrad.models.mixture.components import MixtureComponents
    from natgrad.models.mixture.problem import MixtureProblem
    from natgrad.posterior.draws import DrawnFactor

__all__ = ["GaussianMixture", "MixtureModel"]

Floats = npt.NDArray[np.float64]

# The most components that "auto" finds.
MAX_COMPONENTS = 30
# Draws over which predictions are averaged.
DRAWS_AVERAGED = 100
SETTINGS: dict[str, Any] = {
    **ROW_SETTINGS,
    "n_components": either("'auto' | size component", ("'auto'", "natural")),
    "weight_prior": "none | positive | positive list [component]",
    "inference": "'vb' | 'gibbs'",
    "n_sweeps": "none | natural",
}


class MixtureModel(NamedTuple):
    """Priors: α [K] of the weights, and m, κ, ν and R of the components, measured from the origin."""

    alpha: Floats
    covariance: str
    mean: Floats
    scale: float
    dof: float
    rate: Floats
    origin: Floats

    @property
    def emission(self) -> Any:
        """What a component is."""
        from natgrad.models.gaussians import GAUSSIANS

        return GAUSSIANS[self.covariance](len(self.alpha), *self[2:])


@final
@dataclass(repr=False, eq=False)
class GaussianMixture(DensityMixin, RowEstimator):
    """A mixture of Gaussians, by variational inference; components that the data do not need keep their prior.

    Parameters
    ----------
    n_components : int, "auto" or ("auto", most)
        K, how many components; with "auto" it is found, up to ``most`` (30), for which the model has room: components are born,
        merged and deleted as the exact bound says (`finding K <finding-k.md>`_).
    covariance : "full", "diag", "tied", "spherical" or `Gaussian`
        A precision matrix for each component; one for each component and column; one matrix for all components; one number for
        each component. With "diag" and "spherical" single entries may be missing (NaN). `natgrad.models.hmm.Gaussian` has a kind
        of covariance and the prior of a component, ``Gaussian("diag", mean_scale=1.0)``; by default it follows from the data.
    weight_prior : float or array [K], optional
        α, concentration of the weights; by default 1/K, with which components that are not needed become empty. Of "auto" a
        number, by default 1/most.
    inference : "vb" or "gibbs"
        "gibbs" goes on from the fit of "vb" by Gibbs sampling on all rows: `posterior_`, predictions and intervals are those of
        the draws, `draws_`, and there is no bound.
    n_sweeps : int, optional
        Sweeps of each of four chains of "gibbs", by default 500; the second half counts.
    Further settings are those of every model of rows, see `RowEstimator`.

    Attributes
    ----------
    n_components_ : int, K, as given or as found; of "auto" the components are those found, the heaviest first
    weights_, means_ : arrays [K], [K, D], E[π] and E[μ]
    covariances_ : array [K, D, D], [K, D], [D, D] or [K], E[Λ]⁻¹
    deviations_ : array [K, D], standard deviations of the columns in each component
    posterior_ : {"weights", "components"}, a Factor each
    elbo_, trace_, stop_ : the bound (of streams: its estimate), its history, and why the run ended

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-4.0, 1.0, (50, 2)), rng.normal(4.0, 1.0, (150, 2))])
    >>> model = GaussianMixture(2, seed=0).fit(X)
    >>> sorted(model.weights_.round(2).tolist())
    [0.25, 0.75]
    >>> model.predict_proba(X).shape
    (200, 2)
    >>> GaussianMixture("auto", seed=0).fit(X).n_components_
    2
    """

    kind: ClassVar[str] = "mixture"
    abilities: ClassVar[frozenset[str]] = EVERY_MODEL | {
        "n_jobs", "partial_fit", "executor", "draws", "linear_response", "calibrate", "sample_weight", "missing", "predict",
    }  # fmt: skip

    n_components: int | Literal["auto"] | tuple[Literal["auto"], int] = 4
    _: KW_ONLY
    weight_prior: Any = None
    inference: Literal["vb", "gibbs"] = "vb"
    n_sweeps: int | None = None
    covariance: Literal["full", "diag", "tied", "spherical"] | Gaussian = "full"

    _model_class = MixtureModel
    _nan_advice = '; covariance="diag" and covariance="spherical" take missing entries'

    # -- memberships and densities --

    def predict_proba(self, X: Any) -> Floats:
        """q(z), the probability of each component for each row [N, K]; of draws their mean."""
        from natgrad.models.mixture.problem import memberships

        each = self._by_point(X, lambda x, sent: memberships(x, sent)[1].T)
        return np.asarray(sum(each) / len(each))

    def _by_point(self, X: Any, function: Callable[[Any, Any], Any], **how: Any) -> list[Any]:
        """What a function says of rows given q; or at each of some draws."""
        if "draws_" not in vars(self):
            return [self._by_row(X, function, **how)]
        with self._threads():
            problem = self._problem(self._model_, self._rows(X, None, False, fitting=False)[0], None, truncated=False)
            states, kept = [], {name: self.draws_[name].kept for name in problem.blocks}
            values = {name: draws.reshape(-1, *draws.shape[2:]) for name, draws in kept.items() if draws is not None}
            n_draws = len(values["weights"])
            for draw in np.linspace(0, n_draws - 1, min(n_draws, DRAWS_AVERAGED)).astype(int):
                mu = {n: point_stats(problem.blocks[n].family, own[draw], None) for n, own in values.items()}
                states.append(State({}, mu, 0))
            return [problem.by_row(function, problem.sent(state)) for state in states]

    @property
    def _exchangeable(self) -> bool:
        """Whether components in another order are the same model."""
        return bool((self._model_.alpha == self._model_.alpha[0]).all())

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """The likeliest component of each row."""
        return np.asarray(self.predict_proba(X).argmax(1))

    def score_samples(self, X: Any) -> Floats:
        """The log density of each row at the mean of q; of draws the logarithm of their mean density."""
        from natgrad.models.mixture.problem import memberships

        each = self._by_point(X, lambda x, sent: memberships(x, sent)[2], at_mean=True)
        return np.asarray(np.logaddexp.reduce(each) - np.log(len(each)))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log density of a row; higher is better."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, seed: int | None = None) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Rows drawn from the mixture at the mean of q, and the component of each."""
        self._check_fitted()
        rng, weights = np.random.default_rng(seed), self.posterior_["weights"].mean()
        z = rng.choice(len(weights), whole_number(n_samples, "n_samples"), p=weights)
        return self._model_.emission.draw(self._state.lam["components"], z, rng), z

    # -- what every model of rows needs --

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_nan
        return tags

    def _concentration(self) -> Floats:
        """α [K], checked; of "auto" that of the most components."""
        n, finds_number = number_of(self.n_components, "n_components", MAX_COMPONENTS)
        shapes: list[tuple[int, ...]] = [()] if finds_number else [(), (n,)]
        alpha = finite_numbers(1.0 / n if self.weight_prior is None else self.weight_prior, "weight_prior", shapes)
        require(alpha > 0, alpha, "weight_prior", "> 0")
        return np.full(n, alpha)

    @property
    def _finds_number(self) -> str:
        return 'n_components="auto"' if isinstance(self.n_components, (str, tuple, list)) else ""

    @property
    def _places(self) -> int:
        """The components that the model has room for."""
        return number_of(self.n_components, "n_components", MAX_COMPONENTS)[0]

    def _problem(self, model: Any, x: Any, weight: Floats | None, **options: Any) -> MixtureProblem:
        from natgrad.models.mixture.problem import MixtureProblem

        return MixtureProblem(model, x, weight, **{"truncated": bool(self._finds_number), **options})

    def _starts(self, problem: MixtureProblem) -> State | Starts:
        from natgrad.models.clusters import row_starts

        if self._finds_number:
            return problem.updated(problem.clustered(np.ones((1, problem.n_groups)), [0]))

        return row_starts(problem, len(problem.model.alpha), int(self.seed), int(self.n_init))

    def _moves(self, problem: MixtureProblem, keep: str | None) -> Moves:
        from natgrad.inference.moves import checked_moves

        return checked_moves((self._components(problem),), keep, self._finds_number)

    def _components(self, problem: MixtureProblem) -> MixtureComponents:
        from natgrad.models.mixture.components import MixtureComponents

        return MixtureComponents(problem)

    def _number_in(self, model: Any) -> int:
        return len(model.alpha)

    def _with_number(self, model: Any, number: int) -> Any:
        return model._replace(alpha=model.alpha[:number])

    def _room(self, problem: MixtureProblem, state: State) -> tuple[MixtureProblem, dict[str, Any]] | None:
        alpha, size = problem.model.alpha, self._places
        wide = problem.model._replace(alpha=np.full(size, alpha[0]))
        return (self._problem(wide, *problem.data), {}) if size > len(alpha) else None

    def _narrowed(self, problem: MixtureProblem, wide: MixtureProblem, state: State) -> tuple[MixtureProblem, State]:
        from natgrad.models.mixture.components import found_components

        model, after = found_components(wide, state)
        return self._problem(model, *problem.data, population=problem.population), after

    def _publish(self, model: Any, state: State) -> None:
        if self._finds_number:
            from natgrad.models.mixture.components import found_components

            model, state = found_components(self._problem(model, np.empty((0, self.n_features_in_)), None), state)
        self.n_components_: int = len(model.alpha)
        super()._publish(model, state)
        self.weights_: Floats = self.posterior_["weights"].mean()

    # -- draws and calibration --

    def _draws_problem(self, X: Any, sample_weight: Any = None) -> MixtureProblem:
        # Of the components that were found, which may all be drawn: none is left out as empty.
        return self._problem(self._model_, *self._rows(X, sample_weight, False), truncated=False)

    def _simulated(self, size: int, rng: np.random.Generator) -> tuple[dict[str, Any], Floats, Any]:
        problem = self._problem(self._model_, np.empty((0, self.n_features_in_)), None)
        truth = drawn_from_priors(problem, rng)
        z = rng.choice(len(truth["weights"]), size, p=truth["weights"])
        return truth, problem.emission.draw(as_means(problem, "components", truth), z, rng), z

    def _with_same_priors(self) -> dict[str, Any]:
        # Also where it was found.
        return {"_prepared": lambda x, weight: self._model_, "n_components": self.n_components_}

    @property
    def _takes_nan(self) -> bool:
        return getattr(self.covariance, "covariance", self.covariance) in ("diag", "spherical")

    def _prepared(self, x: Any, weight: Floats | None) -> MixtureModel:
        alpha, kind = self._concentration(), gaussian_of(self.covariance)
        return MixtureModel(alpha, kind.covariance, *gaussian_prior(kind, x, len(alpha), weight)[:5])

    def _name(self, problem: MixtureProblem, state: State) -> None:
        self.means_, self.covariances_, self.deviations_ = problem.emission.located(state.lam["components"])

    def _drawn_as(self, problem: MixtureProblem, factors: dict[str, DrawnFactor]) -> dict[str, DrawnFactor]:
        return with_locations(factors, "components", problem.emission, "component")

    def _renumbered(self, name: str, value: Any, order: Any) -> Any:
        if name == "components" and self._model_.covariance == "tied":
            return np.concatenate([value[..., order], value[..., len(order) :]], axis=-1)
        return value[order]

    @classmethod
    def _settings_table(cls) -> Mapping[str, Any]:
        return {**SETTINGS, "covariance": covariance_of(tuple(COVARIANCES))}

    @classmethod
    def _model_table(cls, model: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        check(
            model.get("covariance"),
            " | ".join(f"'{kind}'" for kind in COVARIANCES),
            where="fitted['model']['covariance']",
        )
        settings, prior = prior_tables(model["covariance"])
        return settings, {"alpha": "positive [component]", "covariance": "text", **prior, "origin": prior["mean"]}
