"""`GaussianMixture`: rows in; components with their uncertainty, and each row's memberships, out.

    π ~ Dir(α),   Λ_k ~ Wishart(ν, R),   μ_k | Λ_k ~ N(m, (κ Λ_k)⁻¹),   z_n ~ Cat(π),   x_n ~ N(μ_z, Λ_z⁻¹)

Attias (2000); Bishop (2006), section 10.2. The loop, the steps, streams, clusters and files are those of every model of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, final

import numpy as np
import numpy.typing as npt

from natgrad.inference.schema import check
from natgrad.models.gaussian_prior import COVARIANCES, finite_numbers, gaussian_prior, prior_tables
from natgrad.models.rows import SETTINGS, RowEstimator
from natgrad.models.scikit import DensityMixin
from natgrad.models.uncertainty import as_means, drawn_from_priors, with_locations
from natgrad.renamed import says_new_names
from natgrad.validation import require, whole_number

if TYPE_CHECKING:
    from natgrad.inference.moves import Moves
    from natgrad.inference.problem import State
    from natgrad.inference.starts import Starts
    from natgrad.models.mixture.problem import MixtureProblem
    from natgrad.posterior.draws import DrawnFactor

__all__ = ["GaussianMixture", "MixtureModel"]

Floats = npt.NDArray[np.float64]


class MixtureModel(NamedTuple):
    """Priors: α [K] of the weights, and m, κ, ν and R of the components, measured from the origin."""

    alpha: Floats
    covariance: str
    mean: Floats
    scale: float
    dof: float
    rate: Floats
    origin: Floats


@final
@says_new_names
@dataclass(repr=False, eq=False)
class GaussianMixture(DensityMixin, RowEstimator):
    """A mixture of Gaussians, by variational inference; components that the data do not need keep their prior.

    Parameters
    ----------
    n_components : int, K, or "auto"
        How many components; with "auto" it is found: components are born, merged and deleted as the exact bound says, from one
        up to ``max_components`` (`finding K <finding-k.md>`_).
    max_components : int
        The most that "auto" may find; part of the model, which has room for so many.
    covariance : "full", "diag", "tied" or "spherical"
        A precision matrix for each component; one for each component and column; one matrix for all components; one number for
        each component. With "diag" and "spherical" single entries may be missing (NaN).
    weight_prior : float or array [K], optional
        α, concentration of the weights; by default 1/K, with which components that are not needed become empty. Of "auto" a
        number, by default 1/max_components.
    mean_prior : array [D], optional
        m. By default the mean of each column.
    mean_scale : float, κ
        How many rows the prior mean is worth.
    dof_prior : float, optional
        ν of Λ ~ Wishart(ν, R), E[Λ] = ν R⁻¹; of "diag" and "spherical", τ ~ Gamma(ν/2, R/2). By default D + 2.
    scale_prior : array [D, D] (full, tied), [D] (diag) or a number (spherical), optional
        R. By default the variance of each column divided by K^(2/D), a guess of what one component covers; of "spherical" the
        mean of these. For "auto" K is max_components here.
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

    n_components: int | Literal["auto"] = 4
    _: KW_ONLY
    max_components: int = 30
    covariance: Literal["full", "diag", "tied", "spherical"] = "full"
    weight_prior: Any = None
    mean_prior: Any = None
    mean_scale: float = 0.01
    dof_prior: float | None = None
    scale_prior: Any = None

    _model_class = MixtureModel
    _nan_advice = '; covariance="diag" and covariance="spherical" take missing entries'

    # -- memberships and densities --

    def predict_proba(self, X: Any) -> Floats:
        """q(z), the probability of each component for each row [N, K]."""
        from natgrad.models.mixture.problem import memberships

        return np.asarray(self._by_row(X, lambda x, sent: memberships(x, sent)[1].T))

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """The likeliest component of each row."""
        return np.asarray(self.predict_proba(X).argmax(1))

    def score_samples(self, X: Any) -> Floats:
        """The log density of each row at the mean of q."""
        from natgrad.models.mixture.problem import memberships

        return np.asarray(self._by_row(X, lambda x, sent: memberships(x, sent)[2], at_mean=True))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log density of a row; higher is better."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, seed: int | None = None) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Rows drawn from the mixture at the mean of q, and the component of each."""
        self._check_fitted()
        rng = np.random.default_rng(seed)
        z = rng.choice(len(self.weights_), whole_number(n_samples, "n_samples"), p=self.weights_)
        gaussians = self._problem(self._model_, np.empty((0, self.n_features_in_)), None).gaussians
        return gaussians.draw(self._state.lam["components"], z, rng), z

    # -- what every model of rows needs --

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_nan
        return tags

    @property
    def _takes_nan(self) -> bool:
        return self.covariance in ("diag", "spherical")

    def _prepared(self, x: Any, weight: Floats | None) -> MixtureModel:
        found = bool(self._finds_number)
        if found and self.n_components != "auto":
            raise ValueError(f'n_components must be a whole number ≥ 1, or "auto", got {self.n_components!r}')
        n = whole_number(
            self.max_components if found else self.n_components, "max_components" if found else "n_components"
        )
        shapes: list[tuple[int, ...]] = [()] if found else [(), (n,)]
        alpha = finite_numbers(1.0 / n if self.weight_prior is None else self.weight_prior, "weight_prior", shapes)
        require(alpha > 0, alpha, "weight_prior", "> 0")
        return MixtureModel(np.full(n, alpha), self.covariance, *gaussian_prior(self, x, n, weight)[:5])

    @property
    def _finds_number(self) -> str:
        return 'n_components="auto"' if isinstance(self.n_components, str) else ""

    def _problem(self, model: MixtureModel, x: Any, weight: Floats | None, **options: Any) -> MixtureProblem:
        from natgrad.models.mixture.problem import MixtureProblem

        return MixtureProblem(model, x, weight, truncated=bool(self._finds_number), **options)

    def _draws_problem(self, X: Any, sample_weight: Any = None) -> MixtureProblem:
        return self._problem(self._model_, *self._rows(X, sample_weight, False))

    def _drawn_as(self, problem: MixtureProblem, factors: dict[str, DrawnFactor]) -> dict[str, DrawnFactor]:
        return with_locations(factors, "components", problem.gaussians, "component")

    def _simulated(self, size: int, rng: np.random.Generator) -> tuple[dict[str, Any], Floats, Any]:
        problem = self._problem(self._model_, np.empty((0, self.n_features_in_)), None)
        truth = drawn_from_priors(problem, rng)
        z = rng.choice(len(truth["weights"]), size, p=truth["weights"])
        return truth, problem.gaussians.draw(as_means(problem, "components", truth), z, rng), z

    def _with_same_priors(self) -> dict[str, Any]:
        return {"_prepared": lambda x, weight: self._model_}

    def _renumbered(self, name: str, value: Any, order: Any) -> Any:
        if name == "components" and self.covariance == "tied":
            return np.concatenate([value[..., order], value[..., len(order) :]], axis=-1)
        return value[order]

    def _moves(self, problem: MixtureProblem, keep: str | None) -> Moves:
        from natgrad.inference.moves import checked_moves
        from natgrad.models.mixture.components import MixtureComponents

        return checked_moves((MixtureComponents(problem),), keep, self._finds_number)

    def _publish(self, model: MixtureModel, state: State) -> None:
        if self._finds_number:
            from natgrad.models.mixture.components import found_components

            model, state = found_components(self._problem(model, np.empty((0, self.n_features_in_)), None), state)
        super()._publish(model, state)

    def _starts(self, problem: MixtureProblem) -> State | Starts:
        from natgrad.models.clusters import row_starts

        if self._finds_number:
            return problem.updated(problem.clustered(np.ones((1, problem.n_groups)), [0]))

        return row_starts(problem, len(problem.model.alpha), int(self.seed), int(self.n_init))

    def _name(self, problem: MixtureProblem, state: State) -> None:
        self.n_components_: int = len(problem.model.alpha)
        self.weights_: Floats = self.posterior_["weights"].mean()
        self.means_, self.covariances_, self.deviations_ = problem.gaussians.located(state.lam["components"])

    @classmethod
    def _settings_table(cls) -> Mapping[str, Any]:
        tables = [prior_tables(kind)[0] for kind in COVARIANCES]
        joined = {name: " | ".join(dict.fromkeys(table[name] for table in tables)) for name in tables[0]}
        own = {
            "n_components": "'auto' | size component",
            "max_components": "natural",
            "weight_prior": "none | positive | positive list [component]",
        }
        return {**SETTINGS, **joined, **own}

    @classmethod
    def _model_table(cls, model: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        check(
            model.get("covariance"),
            " | ".join(f"'{kind}'" for kind in COVARIANCES),
            where="fitted['model']['covariance']",
        )
        settings, prior = prior_tables(model["covariance"])
        return settings, {"alpha": "positive [component]", "covariance": "text", **prior, "origin": prior["mean"]}
